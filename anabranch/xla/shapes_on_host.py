"""Which arithmetic on shapes runs on the host although it could be compiled: what the host has, and wants back.

The shape of a sparse tensor is fed, or a result of the host. What is computed of it is the new shape of that tensor,
which the host takes, or a size, for which a program is compiled. An island between two host operations would cost a
call, and a level more (`xla.levels`), for what takes NumPy a few microseconds. And a program that picks the first of
two numbers, and is compiled for its value, would be compiled for both: for the longest row of each batch, where only
the number of rows matters.
"""

from __future__ import annotations

from collections.abc import Set as AbstractSet

from anabranch.graph.loop_bodies import bodies_of
from anabranch.graph.step_nodes import StepNode, StepTensor
from anabranch.passes.step_graph import StepGraph
from anabranch.xla.changing_sizes import is_small_integer, may_be_shape


def shapes_on_host(step: StepGraph, host: AbstractSet[StepNode], static: AbstractSet[StepTensor]) -> set[StepNode]:
    """The operations that compute few integers of fed values and results of the host, for the host.

    Args:
        host: the operations that run on the host in any case.
        static: the tensors for whose values programs are compiled.
    """
    candidates = _candidates(step, host)
    if not candidates:
        return set()
    wanted: set[StepTensor] = {tensor for op in step.operations if op in host for tensor in op.inputs}
    found: set[StepNode] = set()
    for op in reversed(step.operations):
        if op not in candidates:
            continue
        picks = candidates[op] and any(out in static for out in op.outputs) and _picks(op)
        if picks or any(out in wanted for out in op.outputs):
            found.add(op)
            wanted.update(op.inputs)
    return found


def _candidates(step: StepGraph, host: AbstractSet[StepNode]) -> dict[StepNode, bool]:
    """What computes few integers of fed values, of results of the host, and of what does so itself.

    And for each whether values decide what it gives, and not shapes alone, which are known when a program is compiled.
    """
    members = set(step.operations)
    candidates: dict[StepNode, bool] = {}
    for op in step.operations:
        op_def = op.op_def
        if op in host or op in step.transfers or not op.inputs or not op.outputs:
            continue
        if not op_def.portable or op_def.stateful or op_def.random or op_def.is_primitive or bodies_of(op):
            continue
        # a piece of a shape of unknown rank has an unknown length, too
        if not all(is_small_integer(t) or (op_def.known_rule is not None and may_be_shape(t)) for t in op.outputs):
            continue
        if not op_def.shape_valued and not all(t.is_known or is_small_integer(t) or may_be_shape(t) for t in op.inputs):
            continue
        if all(t.is_known or t.op in host or t.op in candidates or t.op not in members for t in op.inputs):
            takes_values = (candidates.get(t.op, True) for t in op.inputs if not t.is_known)
            candidates[op] = not op_def.shape_valued and any(takes_values)
    return candidates


def _picks(op: StepNode) -> bool:
    """Whether it gives fewer numbers than it takes."""
    taken = [t.shape.num_elements() for t in op.inputs if not t.is_known]
    return None in taken or sum(t.shape.num_elements() or 0 for t in op.outputs) < sum(size or 0 for size in taken)
