"""Fold: compute while planning what is the same in every step (§5, WP5)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from anabranch.core import dtypes
from anabranch.core.kernel_context import KernelContext
from anabranch.core.roles import Role
from anabranch.graph.constants import described_by_shape, run_on_known_values
from anabranch.graph.kernel_binding import BoundKernel
from anabranch.graph.step_nodes import StepNode, StepTensor
from anabranch.passes.control_edges import RemovingOperations
from anabranch.passes.step_graph import StepGraph

#: larger results are left to the device: computing them here would only move the work and hold the memory
MAX_FOLDED_ELEMENTS = 1 << 20
#: results of at most this size are folded even if they are larger than the inputs
MAX_GROWN_ELEMENTS = 1 << 12


def fold(step: StepGraph, task_for: Callable[[str], str] = lambda _: "") -> StepGraph:
    """Takes constants, resource handles, known shapes, and portable arithmetic on these out of the step.

    So it does with what only waits, and has nothing to wait for.

    What these waited for is waited for by who takes their values (`passes.control_edges`).

    Args:
        task_for: what a program asks for as the device of a resource -> the task, as `ResourceHandle.task` says it.
    """
    # before anything is removed: whether an operation may be dead is told by the Switches in front of it in the
    # old graph
    staying = _needed_for_deadness(step)
    rewriting = RemovingOperations(step)
    for op in step.operations:
        inputs = [rewriting.tensor(t) for t in op.inputs]
        values = None if op in staying else _known_outputs(op, inputs, task_for)
        if _waits_for_nothing(op, rewriting) and op not in step.targets:
            values = []
        if values is not None:
            rewriting.remove(op, values)
        elif _passes_known_handle(op, inputs):
            # it stays, since it says whether its consumers are alive, but which resource they use is known
            node = op.copied(inputs, rewriting.inherit(op), op.after)
            # on the copy: the nodes of the graph that was given belong to whoever made it
            for out in node.outputs:
                out.known = inputs[0].known
            rewriting.replace(op, node)
        elif early := _early_outputs(op, inputs) if op not in staying else {}:
            node = op.copied(inputs, rewriting.inherit(op), op.after)
            for position, value in early.items():
                node.outputs[position].known = value
            rewriting.replace(op, node)
        else:
            rewriting.keep(op, control_inputs=rewriting.inherit(op))
    return rewriting.result(targets=rewriting.ends())


def _needed_for_deadness(step: StepGraph) -> set[StepNode]:
    """The operations whose deadness somebody has to learn of, so that they stay although their values are known.

    A Merge takes the input that is alive; a fetch of what is on a branch that was not taken is an error.
    """
    # a Merge that took a known value would find it there from the start, and take it on the branch that is not
    # taken too
    merged = {t.op for op in step.operations if op.op_def.role is Role.MERGE for t in op.inputs}
    dependent: set[StepNode] = set()
    for op in step.operations:
        # in step order, so that what an operation takes was looked at before; back edges need no second look, since
        # what leaves a loop has gone through its Switch
        if op.op_def.role is Role.SWITCH or any(
            e in dependent for e in (*(t.op for t in op.inputs), *op.control_inputs)
        ):
            dependent.add(op)
    return merged | {t.op for t in step.fetches if t.op in dependent}


def _waits_for_nothing(op: StepNode, rewriting: RemovingOperations) -> bool:
    """Whether an operation is there to be waited for only, and waits for nothing itself: a check that held at once.

    It would be work of the host, and part what waits for it from what does not.
    """
    return op.op_def.passes_on and not op.inputs and not op.outputs and not rewriting.inherit(op)


def _passes_known_handle(op: StepNode, inputs: list[StepTensor]) -> bool:
    """Whether the handle of a resource goes into a branch or a loop: it is known, though the operation still runs."""
    if op.op_def.role not in (Role.SWITCH, Role.ENTER) or inputs[0].dtype is not dtypes.resource:
        return False
    return inputs[0].is_known and not op.outputs[0].is_known


def _early_outputs(op: StepNode, inputs: list[StepTensor]) -> Mapping[int, Any]:
    """The outputs that are known though others are not, such as the range of a quantised product."""
    rule = op.op_def.early_rule
    if rule is None or op.control_inputs:
        return {}
    return rule(op.attrs, [t.known if isinstance(t.known, np.ndarray) else None for t in inputs])


def _known_outputs(op: StepNode, inputs: list[StepTensor], task_for: Callable[[str], str]) -> list[Any] | None:
    if op.type == "Const":
        return [op.attrs["value"]]
    if not op.op_def.portable or not op.outputs:
        return None
    # before the question about state, for what makes a handle is stateful by its type, though its handle never changes
    if op.outputs[0].dtype is dtypes.resource:
        return _handles(op, inputs, task_for)
    if op.op_def.stateful or op.control_inputs:
        return None
    known = _known_inputs(op, inputs)
    # of a shape only the sizes are looked at; what stands for the values has no memory behind it
    if known is None or sum(i.size for i in known if not op.op_def.shape_valued) > MAX_FOLDED_ELEMENTS:
        return None
    values = run_on_known_values(op, known)
    if any(v is None for v in values):
        return None
    return None if _only_grows(known, values) else values


def _only_grows(inputs: list[Any], values: list[Any]) -> bool:
    """Whether the device had better make the result: it is large, and larger than what it is made from (zeros, tiles).

    Folded, it would be held for as long as the step is kept, beside the variable that it initialises.
    """
    produced, needed = sum(int(v.size) for v in values), sum(int(i.size) for i in inputs)
    return produced > MAX_FOLDED_ELEMENTS or (produced > MAX_GROWN_ELEMENTS and produced > needed)


class _NamingContext(KernelContext):
    """The kernel context of an operation that names a resource."""

    __slots__ = ("_task",)

    def __init__(self, op: StepNode, task: str) -> None:
        super().__init__(op)
        self._task = task

    @property
    def task(self) -> str:
        return self._task


def _handles(op: StepNode, inputs: list[StepTensor], task_for: Callable[[str], str]) -> list[Any] | None:
    """The handle that an operation names: it depends on attributes, or is passed on from an input."""
    rule = op.op_def.compiled_rule
    if rule is None or not all(t.is_known for t in inputs):
        return None
    return [BoundKernel(op, rule, np, _NamingContext(op, task_for(op.device)))([t.known for t in inputs])]


def _known_inputs(op: StepNode, inputs: list[StepTensor]) -> list[Any] | None:
    if op.op_def.shape_valued and inputs:
        # a tensor may be fed with any value of its static shape, so a fully known shape holds for feeds as well
        described = [described_by_shape(op, t) for t in inputs]
        return None if any(value is None for value in described) else described
    return [t.known for t in inputs] if all(isinstance(t.known, np.ndarray) for t in inputs) else None
