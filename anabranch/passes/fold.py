"""Fold: compute while planning what is the same in every step (§5, WP5)."""

from __future__ import annotations

from typing import Any

import numpy as np

from anabranch.core import dtypes
from anabranch.core.kernel_context import KernelContext
from anabranch.graph.constants import run_on_known_values
from anabranch.graph.loop_structure import ENTERS, MERGES, SWITCHES
from anabranch.graph.operation import Operation, Tensor
from anabranch.passes.control_edges import ControlEdges
from anabranch.passes.step_graph import StepGraph

#: larger results are left to the device: computing them here would only move the work and hold the memory
MAX_FOLDED_ELEMENTS = 1 << 20
#: results of at most this size are folded even if they are larger than the inputs
MAX_GROWN_ELEMENTS = 1 << 12


def fold(step: StepGraph) -> StepGraph:
    """Takes constants, resource handles, known shapes, and portable arithmetic on these out of the step.

    What these waited for is waited for by who takes their values (`passes.control_edges`).
    """
    known: dict[Tensor, Any] = dict(step.known)
    fed = set(step.feeds)
    staying = _mortal(step)
    edges = ControlEdges(step)
    kept = []
    for op in step.operations:
        values = None if op in staying else _known_outputs(op, known, fed)
        if values is None:
            kept.append(op)
            edges.keep(op, step.inputs_of(op))
            known.update(_passed_handles(op, known))
            continue
        known.update((out, value) for out, value in zip(op.outputs, values, strict=True) if out not in fed)
        kept += edges.remove(op)
    targets = dict.fromkeys(source for op in step.targets for source in edges.stands_for(op))
    for tensor in map(step.resolve, step.fetches):
        if tensor not in fed:
            targets.update(dict.fromkeys(edges.behind(tensor.op)))
    return step.with_operations(kept, known=known, controls=edges.controls, targets=list(targets))


def _mortal(step: StepGraph) -> set[Operation]:
    """The operations whose deadness somebody has to learn of, so that they stay although their values are known.

    A Merge takes the input that is alive; a fetch of what is on a branch that was not taken is an error.
    """
    merged = {t.op for op in step.operations if op.type in MERGES for t in step.inputs_of(op)}
    dependent: set[Operation] = set()
    for op in step.operations:
        if op.type in SWITCHES or any(
            e in dependent for e in (*(t.op for t in step.inputs_of(op)), *step.controls_of(op))
        ):
            dependent.add(op)
    return merged | {t.op for t in map(step.resolve, step.fetches) if t.op in dependent}


def _passed_handles(op: Operation, known: dict[Tensor, Any]) -> dict[Tensor, Any]:
    """The handle of a resource that goes into a branch or a loop: it is known, though the operation still runs."""
    if op.type not in SWITCHES | ENTERS or op.inputs[0].dtype is not dtypes.resource or op.inputs[0] not in known:
        return {}
    return dict.fromkeys(op.outputs, known[op.inputs[0]])


def _known_outputs(op: Operation, known: dict[Tensor, Any], fed: set[Tensor]) -> list[Any] | None:
    if op.type == "Const":
        return [op.attrs["value"]]
    if not op.op_def.portable or not op.outputs:
        return None
    if op.outputs[0].dtype is dtypes.resource:
        return _handles(op, known)
    if op.op_def.stateful or op._control_inputs:
        return None
    inputs = _known_inputs(op, known, fed)
    if inputs is None or sum(i.size for i in inputs if not op.op_def.shape_valued) > MAX_FOLDED_ELEMENTS:
        return None
    values = run_on_known_values(op, inputs)
    if any(v is None for v in values):
        return None
    return None if _only_grows(inputs, values) else values


def _only_grows(inputs: list[Any], values: list[Any]) -> bool:
    """Whether the device had better make the result: it is large, and larger than what it is made from (zeros, tiles).

    Folded, it would be held for as long as the step is kept, beside the variable that it initialises.
    """
    made, needed = sum(int(v.size) for v in values), sum(int(i.size) for i in inputs)
    return made > MAX_FOLDED_ELEMENTS or (made > MAX_GROWN_ELEMENTS and made > needed)


def _handles(op: Operation, known: dict[Tensor, Any]) -> list[Any] | None:
    """The handle that an operation names: it depends on attributes, or is passed on from an input."""
    rule = op.op_def.compiled_rule
    if rule is None or not all(t in known for t in op.inputs):
        return None
    specials: dict[str, Any] = {"xp": np, "ctx": KernelContext(op)}
    keywords = {k: specials[k] if k in specials else op.attrs[k] for k in rule.keywords}
    return [rule.function(*(known[t] for t in op.inputs), **keywords)]


def _known_inputs(op: Operation, known: dict[Tensor, Any], fed: set[Tensor]) -> list[Any] | None:
    if not op.inputs:
        return []
    if op.op_def.shape_valued:
        # a tensor may be fed with any value of its static shape, so a fully known shape holds for feeds as well
        if not all(t.shape.is_fully_defined() for t in op.inputs):
            return None
        return [np.broadcast_to(np.zeros((), np.bool_), t.shape.sizes()) for t in op.inputs]
    if not all(isinstance(known.get(t), np.ndarray) for t in op.inputs):
        return None
    return [known[t] for t in op.inputs]
