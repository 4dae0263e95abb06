"""Loops that make lists longer are counted before they run, so that XLA can take them (docs/decisions/0112).

How long a list will be follows from how often its loop runs (`ops.control_flow.growing_lists`). Where only values of
the step decide that, the loop is cut down to what its condition depends on, and runs so beforehand; the number is part
of the key of the program with the loop. A loop that something differentiates has such an operation beside it already,
which rounds the number; it gives the number itself then. Another loop gets one, if that part of it multiplies no
matrices, which would take as long as the loop, and running it twice is the same.

What is counted here may still be refused when it is traced; then the host runs it.
"""

from __future__ import annotations

from collections.abc import Sequence

from anabranch.core import dtypes
from anabranch.core.attrs import FuncAttr
from anabranch.core.roles import Role
from anabranch.core.shapes import TensorShape
from anabranch.graph.graph import op_def_of
from anabranch.graph.loop_bodies import bodies_of, closure_of_parameters, nesting, parameters_behind
from anabranch.graph.step_nodes import StepFunction, StepNode, StepTensor
from anabranch.ops.control_flow.growing_lists import GROWING, growing_lists
from anabranch.ops.control_flow.loops import COUNTED
from anabranch.passes.added_nodes import added_node
from anabranch.passes.rewriting import Rewriting
from anabranch.passes.step_graph import StepGraph
from anabranch.passes.unneeded_values import part_of

_SCALAR = TensorShape([])
#: what `nesting` says of a loop without functions within its own, or with conditionals
_ONE_LOOP = 4


def count_loops(step: StepGraph) -> StepGraph:
    """A step in which loops that make lists longer are told how often they run; itself where there are none."""
    loops = [op for op in step.operations if op.op_def.role is Role.LOOP]
    growing = {op: positions for op in loops if (positions := _growing(op))}
    if not growing:
        return step
    members, taken_by = set(step.operations), step.consumers()
    rewriting = Rewriting(step)
    counts = {op: _bound_of(op, members, taken_by) for op in growing}
    rounded = {bound for bound in counts.values() if bound is not None}
    for op in step.operations:
        if op in rounded:
            count = op.copied([rewriting.tensor(t) for t in op.inputs], rewriting.nodes(op.control_inputs))
            count.op_def, count.after = op_def_of("_DeviceLoopCount"), rewriting.nodes(op.after)
            rewriting.replace(op, count)
        elif op not in growing:
            rewriting.keep(op)
        elif op.type != "_RecordingWhile" and _is_cheap_to_count(op):
            _count_first(op, growing[op], rewriting)
        else:
            node = op.copied(
                [rewriting.tensor(t) for t in op.inputs], rewriting.nodes(op.control_inputs), rewriting.nodes(op.after)
            )
            node.attrs = {**op.attrs, GROWING: growing[op]}
            if counts[op] is not None:
                node.attrs[COUNTED] = True
            rewriting.replace(op, node)
    return rewriting.result()


def _growing(op: StepNode) -> list[int]:
    """The positions of a loop's variables that are lists which begin without elements, and only grow."""
    condition, body = bodies_of(op)
    recorded = zip(op.attrs.get("recorded", ()), op.attrs.get("only_shapes", ()), strict=True)
    found = growing_lists(condition, body, {place for place, only_shape in recorded if not only_shape})
    first = len(op.inputs) - len(body.inputs)
    # no gradient goes to what makes a list without elements
    return [position for position in found if op.inputs[first + position].op.op_def.differentiable is False]


def _bound_of(op: StepNode, members: set[StepNode], taken_by: dict[StepTensor, list[StepNode]]) -> StepNode | None:
    """What tells how often a loop runs that records; only loops may take it, of which a larger bound is no other."""
    if op.type != "_RecordingWhile" or op.inputs[0].op not in members:
        return None
    bound = op.inputs[0].op
    is_rounded = bound.type == "_DeviceLoopBound"
    return bound if is_rounded and all(u.type == "_RecordingWhile" for u in taken_by[op.inputs[0]]) else None


def _is_cheap_to_count(op: StepNode) -> bool:
    """Whether the part of a loop that its condition depends on may run by itself before it, and takes little."""
    if nesting(op) > _ONE_LOOP or op.control_inputs or op.after:
        return False
    if op.device or "_class" in op.attrs:  # the number is to be found where the loop runs
        return False
    return all(
        not (inner.op_def.stateful or inner.op_def.random or inner.functions or inner.op_def.flops_rule)
        and inner.op_def.compiled_rule is not None
        for function in _counting_part(op)[1]
        for inner in function.operations
    )


def _counting_part(op: StepNode) -> tuple[Sequence[int], tuple[StepFunction, StepFunction]]:
    """The positions of what a loop's condition depends on, and its functions cut down to that."""
    condition, body = bodies_of(op)
    needed = sorted(closure_of_parameters(body, parameters_behind(condition, condition.outputs)))
    return needed, (part_of(condition, [0], needed), part_of(body, needed, needed))


def _count_first(op: StepNode, growing: list[int], rewriting: Rewriting) -> None:
    """Counts a loop before it runs, and tells it."""
    needed, functions = _counting_part(op)
    inputs = [rewriting.tensor(t) for t in op.inputs]
    taken = [inputs[position] for position in needed]
    names = [FuncAttr(function.name) for function in functions]
    attrs = {"T": [t.dtype for t in taken], "cond": names[0], "body": names[1]}
    count = added_node("_DeviceLoopCount", op, "count", taken, (), op.device, [(dtypes.int32, _SCALAR)], **attrs)
    count.functions = {function.name: function for function in functions}
    rewriting.add(count)
    loop = op.copied([count.outputs[0], *inputs], rewriting.nodes(op.control_inputs), rewriting.nodes(op.after))
    loop.op_def = op_def_of("_RecordingWhile")
    loop.attrs = {**op.attrs, "N": 0, "recorded": [], "only_shapes": [], COUNTED: True, GROWING: growing}
    loop.outputs.append(StepTensor(loop, len(op.outputs), dtypes.int32, _SCALAR))
    rewriting.operations.append(loop)
    rewriting.take_in(op, loop, dict(enumerate(loop.outputs[:-1])))
