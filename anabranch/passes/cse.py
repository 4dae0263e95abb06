"""Common subexpressions: of operations that compute the same from the same, keep the first (§5, WP5.1)."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

import numpy as np

from anabranch.core.shapes import TensorShape
from anabranch.graph.operation import Operation, Tensor
from anabranch.passes.step_graph import StepGraph

_MAX_COMPARED_BYTES = 4096


def merge_common_subexpressions(step: StepGraph) -> StepGraph:
    """Redirects the consumers of a repeated operation to its first occurrence.

    Operations with state, with control edges, with function bodies, or fed outputs are left alone.
    """
    alias: dict[Tensor, Tensor] = dict(step.alias)
    seen: dict[Hashable, Operation] = {}
    fed = set(step.feeds)
    pinned = set(step.targets)
    constants: dict[Hashable, Tensor] = {}
    kept = []
    for op in step.operations:
        for tensor in op.inputs:
            _merge_constant(tensor, step.known, constants, alias)
        key = _key(op, alias) if op not in pinned and not any(t in fed for t in op.outputs) else None
        first = None if key is None else seen.setdefault(key, op)
        if first is None or first is op:
            kept.append(op)
            continue
        alias.update(zip(op.outputs, first.outputs, strict=True))
    return StepGraph(kept, step.fetches, step.targets, step.feeds, step.known, alias)


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


def _key(op: Operation, alias: dict[Tensor, Tensor]) -> Hashable:
    op_def = op.op_def
    if op_def.stateful or op._control_inputs or op._control_outputs or not op.outputs:
        return None
    inputs: list[Any] = [alias.get(t, t) for t in op.inputs]
    if op_def.commutative:
        inputs.sort(key=id)
    attrs = tuple((k, _hashable(op.attrs[k])) for k in op_def.attrs)
    if any(a is _UNHASHABLE for _, a in attrs):
        return None
    return (op_def.name, op.device, tuple(inputs), attrs)


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
