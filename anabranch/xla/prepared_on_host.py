"""Exact arithmetic that prepares what the host takes, of what the host gave: it runs there if that saves a program.

A feature that is put into buckets, and crossed with another one, goes from the host to a program and back; the program
then computes early whatever else it can, and a second one takes what it gives. Where a few operations on little data
are all that the host needs of an island, and NumPy gives for them what XLA gives to the last bit, the host runs them,
and the rest of the island goes where its results are taken. Whether that saves an island is for `xla.islands` to find
out: it counts them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence, Set as AbstractSet
from typing import Final

from anabranch.core.op_def import ASSUMED_DIMENSION
from anabranch.graph.loop_bodies import bodies_of
from anabranch.graph.step_nodes import StepNode, StepTensor
from anabranch.passes.dependencies import Dependencies
from anabranch.passes.step_graph import StepGraph

#: so many of them, which the host calls one by one, take less time than a program that is called for them
MAX_PREPARING: Final = 24
#: numbers in a tensor of theirs, where each unknown dimension is taken to be `ASSUMED_DIMENSION`
MAX_PREPARED: Final = 1 << 12


def prepared_on_host(
    step: StepGraph, islands: Sequence[Sequence[StepNode]], host: AbstractSet[StepNode], dependencies: Dependencies
) -> set[str]:
    """The names of the operations that alone lead from host operations, and maybe feeds, to other host operations.

    Args:
        islands: the operations of each.
        host: the operations that run on the host already.
    """
    prepared: set[str] = set()
    wanted = {tensor.op for op in step.operations if op in host for tensor in op.inputs}
    members = set(step.operations)
    for operations in islands:
        inside = set(operations)
        found = {op for op in operations if op in wanted}
        pending = list(found)
        while pending and len(found) <= MAX_PREPARING:
            op = pending.pop()
            tensors, controls = dependencies.of(op)
            before = {*(t.op for t in tensors if not t.is_known), *controls} & members - host
            if not _is_exact(op) or not before <= inside:
                pending.append(op)
                break
            pending += before - found
            found |= before
        if pending or len(found) > MAX_PREPARING or not all(map(_is_exact, found)):
            continue
        # what is made of fed values alone is for `xla.quick_islands`
        if any(tensor.op in host for op in found for tensor in op.inputs):
            prepared.update(op.name for op in found)
    return prepared


def _is_exact(op: StepNode) -> bool:
    """Whether NumPy and XLA give the same for it, and it is little work."""
    op_def = op.op_def
    if not op_def.portable or op_def.stateful or op_def.random or not op.outputs or bodies_of(op):
        return False
    if op_def.is_primitive or op_def.flops_rule is not None:
        return False
    tensors = [*op.inputs, *op.outputs]
    if not op_def.shape_valued and any(_size(t) > MAX_PREPARED for t in tensors):
        return False
    return op_def.exact or op_def.shape_valued or all(t.dtype.is_integer or t.dtype.is_bool for t in tensors)


def _size(tensor: StepTensor) -> float:
    """How many elements it may have."""
    dims = tensor.shape.dims_tuple
    return math.inf if dims is None else math.prod(ASSUMED_DIMENSION if d is None else int(d) for d in dims)
