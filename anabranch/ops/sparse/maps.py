"""Sparse tensors kept in a map, so that a queue's elements can hold their numbers instead."""

from __future__ import annotations

import itertools
import threading
from typing import Any

import numpy as np

from anabranch.core.arrays import Array
from anabranch.core.dtypes import DType
from anabranch.core.kernel_context import OperationContext
from anabranch.core.resources import ResourceHandle
from anabranch.core.shapes import TensorShape
from anabranch.errors import InvalidArgumentError
from anabranch.graph.building import define_op
from anabranch.graph.kernel_contexts import StepHostContext
from anabranch.ops import shape_rules
from anabranch.ops.resources.shared_objects import Plan, object_behind, open_object

_NAMES = "container: string = '', shared_name: string = ''"


class SparseTensorsMap:
    """Sparse tensors by number. Thread-safe; a tensor is taken once."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._numbers = itertools.count()
        self._tensors: dict[int, tuple[Any, Any, Any]] = {}

    def add(self, indices: Array, values: Array, shape: Array) -> int:
        """Keeps a tensor; returns its number."""
        with self._lock:
            number = next(self._numbers)
            self._tensors[number] = (np.array(indices), np.array(values), np.array(shape))
            return number

    def take(self, number: int) -> tuple[Any, Any, Any]:
        """Gives a tensor out and forgets it.

        Raises:
            InvalidArgumentError: there is none of that number.
        """
        with self._lock:
            tensor = self._tensors.pop(number, None)
        if tensor is None:
            raise InvalidArgumentError(
                None, None, f"Unable to find SparseTensor: {number}; it was never stored in this map, or taken before"
            )
        return tensor


def _map(ctx: StepHostContext) -> SparseTensorsMap:
    def plan(handle: ResourceHandle) -> Plan:
        return {}, SparseTensorsMap

    handle = open_object(ctx, "sparse tensors map", plan, by_node_name=True)
    tensors: SparseTensorsMap = object_behind(ctx, handle, "sparse tensors map")
    return tensors


_SPARSE = "sparse_indices: int64, sparse_values: T, sparse_shape: int64"


def _check(ctx: OperationContext, indices: Array, values: Array, shape: Array) -> None:
    if indices.ndim != 2 or values.ndim != 1 or shape.ndim != 1 or indices.shape != (len(values), len(shape)):
        raise InvalidArgumentError(
            None,
            ctx.op,
            f"{ctx.op.name!r}: indices {list(indices.shape)}, values {list(values.shape)}, shape {list(shape.shape)} "
            "are no sparse tensor: they must be [n, rank], [n] and [rank]",
        )


AddSparseToTensorsMap = define_op(
    "AddSparseToTensorsMap", f"{_SPARSE} -> sparse_handle: int64", f"T: any, {_NAMES}", stateful=True
)
AddSparseToTensorsMap.shape(shape_rules.scalar)
AddSparseToTensorsMap.not_differentiable()


@AddSparseToTensorsMap.host_kernel
def _(sparse_indices: Array, sparse_values: Array, sparse_shape: Array, *, ctx: StepHostContext) -> int:
    _check(ctx, sparse_indices, sparse_values, sparse_shape)
    return _map(ctx).add(sparse_indices, sparse_values, sparse_shape)


AddManySparseToTensorsMap = define_op(
    "AddManySparseToTensorsMap", f"{_SPARSE} -> sparse_handles: int64", f"T: any, {_NAMES}", stateful=True
)
AddManySparseToTensorsMap.not_differentiable()


@AddManySparseToTensorsMap.shape
def _(sparse_indices: TensorShape, sparse_values: TensorShape, sparse_shape: TensorShape) -> TensorShape:
    return TensorShape([None])


@AddManySparseToTensorsMap.host_kernel
def _(sparse_indices: Array, sparse_values: Array, sparse_shape: Array, *, ctx: StepHostContext) -> Any:
    _check(ctx, sparse_indices, sparse_values, sparse_shape)
    if len(sparse_shape) < 2:
        raise InvalidArgumentError(
            None,
            ctx.op,
            f"{ctx.op.name!r} takes a sparse tensor apart, so its rank must be > 1, got {len(sparse_shape)}",
        )
    kept = _map(ctx)
    rows = sparse_indices[:, 0]
    numbers = []
    for row in range(int(sparse_shape[0])):
        chosen = rows == row
        numbers.append(kept.add(sparse_indices[chosen, 1:], sparse_values[chosen], sparse_shape[1:]))
    return np.array(numbers, np.int64)


TakeManySparseFromTensorsMap = define_op(
    "TakeManySparseFromTensorsMap",
    "sparse_handles: int64 -> sparse_indices: int64, sparse_values: dtype, sparse_shape: int64",
    f"dtype: any, {_NAMES}",
    stateful=True,
)
TakeManySparseFromTensorsMap.not_differentiable()


@TakeManySparseFromTensorsMap.shape
def _(sparse_handles: TensorShape) -> list[TensorShape]:
    return [TensorShape([None, None]), TensorShape([None]), TensorShape([None])]


@TakeManySparseFromTensorsMap.host_kernel
def _(sparse_handles: Array, *, dtype: DType, ctx: StepHostContext) -> Any:
    kept = _map(ctx)
    taken = [kept.take(number) for number in sparse_handles.reshape(-1).tolist()]
    ranks = {len(shape) for _, _, shape in taken}
    if len(ranks) > 1:
        raise InvalidArgumentError(None, ctx.op, f"{ctx.op.name!r}: the sparse tensors of a batch have ranks {ranks}")
    rank = ranks.pop() if ranks else 0
    indices = [np.insert(places, 0, row, axis=1) for row, (places, _, _) in enumerate(taken)]
    values = [elements for _, elements, _ in taken]
    largest = np.max([shape for _, _, shape in taken], axis=0) if taken else np.zeros(0, np.int64)
    return (
        np.concatenate([np.zeros((0, rank + 1), np.int64), *indices]).astype(np.int64),
        np.concatenate([np.zeros(0, dtype.as_numpy_dtype), *values]),
        np.concatenate([[len(taken)], largest]).astype(np.int64),
    )
