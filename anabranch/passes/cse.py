"""Common subexpressions: of operations that compute the same from the same, keep the first (§5, WP5.1)."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

import numpy as np

from anabranch.core.resources import ResourceHandle
from anabranch.core.shapes import TensorShape
from anabranch.graph.operation import Operation, Tensor
from anabranch.passes.control_edges import ControlEdges
from anabranch.passes.step_graph import StepGraph

_MAX_COMPARED_BYTES = 4096


def merge_common_subexpressions(step: StepGraph) -> StepGraph:
    """Redirects the consumers of a repeated operation to its first occurrence.

    Operations with state, with control edges, with function bodies, or fed outputs are left alone; except that reads of
    a variable are merged between which nothing of the step writes it. (Inside an island such reads cost nothing, but
    each would be sent to another device.)
    """
    alias: dict[Tensor, Tensor] = dict(step.alias)
    seen: dict[Hashable, Operation] = {}
    fed = set(step.feeds)
    pinned = set(step.targets)
    constants: dict[Hashable, Tensor] = {}
    versions = _Versions(step)
    edges = ControlEdges(step)
    kept = []
    for op in step.operations:
        for tensor in op.inputs:
            _merge_constant(tensor, step.known, constants, alias)
        version = versions.seen_by(op)
        mergeable = op not in pinned and not any(t in fed for t in op.outputs)
        edges.keep(op)
        key = _key(op, alias, version, edges.controls.get(op, op._control_inputs)) if mergeable else None
        first = None if key is None else seen.setdefault(key, op)
        if first is None or first is op:
            kept.append(op)
            continue
        alias.update(zip(op.outputs, first.outputs, strict=True))
        edges.replace(op, first)
    return step.with_operations(kept, alias=alias, controls=edges.controls)


def _merge_constant(
    tensor: Tensor, known: dict[Tensor, Any], constants: dict[Hashable, Tensor], alias: dict[Tensor, Tensor]
) -> None:
    if tensor in alias:
        return
    value = known.get(tensor)
    if isinstance(value, np.ndarray) and value.dtype != np.object_ and value.nbytes <= _MAX_COMPARED_BYTES:
        first = constants.setdefault((value.dtype, value.shape, value.tobytes()), tensor)
        if first is not tensor:
            alias[tensor] = first


class _Versions:
    """Counts, in step order, the operations that may have written each resource."""

    def __init__(self, step: StepGraph) -> None:
        self._known = step.known
        self._count: dict[ResourceHandle, int] = {}

    def seen_by(self, op: Operation) -> Hashable:
        """What an operation that only reads variables sees of them, or None for any other; counts those that write."""
        handles = [v for t in op._inputs if isinstance(v := self._known.get(t), ResourceHandle)]
        if op.type == "ReadVariableOp" and handles:
            return handles[0], self._count.get(handles[0], 0)
        for handle in handles:
            self._count[handle] = self._count.get(handle, 0) + 1
        return None


def _key(op: Operation, alias: dict[Tensor, Tensor], read: Hashable, controls: list[Operation]) -> Hashable:
    op_def = op.op_def
    if (op_def.stateful and read is None) or op._control_inputs or op._control_outputs or not op.outputs:
        return None
    inputs: list[Any] = [alias.get(t, t) for t in op.inputs]
    if op_def.commutative:
        inputs.sort(key=id)
    attrs = tuple((k, _hashable(op.attrs[k])) for k in op_def.attrs)
    if any(a is _UNHASHABLE for _, a in attrs):
        return None
    # what waits for other operations is not the same, though it has the same inputs
    return (op_def.name, op.device, read or tuple(inputs), attrs, frozenset(controls))


_UNHASHABLE = object()


def _hashable(value: Any) -> Hashable:
    if isinstance(value, list):
        return tuple(_hashable(v) for v in value)
    if isinstance(value, np.ndarray):
        if value.dtype == np.object_ or value.nbytes > _MAX_COMPARED_BYTES:
            return _UNHASHABLE
        return (value.dtype, value.shape, value.tobytes())
    if isinstance(value, TensorShape):
        return ("shape", value.dims_tuple)
    try:
        hash(value)
    except TypeError:
        return _UNHASHABLE
    return value  # type: ignore[no-any-return]
