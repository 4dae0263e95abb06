"""How tensors cut values into rows: splits from lengths, row numbers, starts and limits, and what must hold of each."""

from __future__ import annotations

from typing import Any

import numpy as np

from anabranch.core import dtypes
from anabranch.core.dtypes import DType
from anabranch.core.values import TensorLike
from anabranch.errors import InvalidArgumentError
from anabranch.graph.constants import constant_value
from anabranch.graph.conversion import convert_to_tensor
from anabranch.graph.graph import get_default_graph
from anabranch.graph.operation import Operation, Tensor
from anabranch.ops import raw


def require(ok: Tensor, message: str) -> Operation:
    """An operation that fails unless all of `ok` is true."""
    every = ok if ok.shape.ndims == 0 else raw.All(raw.Reshape(ok, [-1]), [0])
    operation: Operation = raw.Assert(every, [message])
    return operation


def after(checks: list[Operation], tensor: Tensor) -> Tensor:
    """The tensor, once the checks have passed."""
    with get_default_graph().control_dependencies(checks):
        result: Tensor = raw.Identity(tensor)
    return result


def require_same_splits(
    nested: list[Any], message: str = "Inputs must have identical ragged splits"
) -> list[Operation]:
    """Checks that several lists of nested splits are one.

    Raises:
        ValueError: they have different lengths, or splits have, as far as these are known.
        InvalidArgumentError: constants among them differ.
    """
    first = nested[0]
    if any(len(other) != len(first) for other in nested):
        raise ValueError(message)
    pairs = [(a, b) for other in nested[1:] for a, b in zip(first, other, strict=True) if a is not b]
    for a, b in pairs:
        if not a.shape.is_compatible_with(b.shape):
            raise ValueError(f"{message}: of shapes {a.shape} and {b.shape}")
        known, other = constant_value(a), constant_value(b)
        if known is not None and other is not None and not np.array_equal(known, other):
            raise InvalidArgumentError(None, None, f"{message}: {known} and {other}")
    return [require(_same(a, b), message) for a, b in pairs]


def _same(a: Tensor, b: Tensor) -> Tensor:
    """A boolean scalar: whether two vectors are one, of whatever lengths."""
    size = raw.Minimum(raw.Size(a), raw.Size(b))
    begin, end = [0], raw.Reshape(size, [1])
    elements = raw.Equal(raw.Slice(a, begin, end), raw.Slice(b, begin, end))
    same: Tensor = raw.LogicalAnd(raw.Equal(raw.Size(a), raw.Size(b)), raw.All(elements, [0]))
    return same


def count_rows(tensor: Tensor, dtype: DType) -> Tensor:
    """The size of the first dimension."""
    dims = tensor.shape.dims_tuple
    if dims is not None and dims and dims[0] is not None:
        return convert_to_tensor(np.array(dims[0], dtype.as_numpy_dtype))
    rows: Tensor = raw.Shape(tensor, out_type=dtype)[0]
    return rows


def zero_and(tensor: Tensor) -> Tensor:
    """The vector with a 0 before it."""
    joined: Tensor = raw.ConcatV2([np.zeros(1, tensor.dtype.as_numpy_dtype), tensor], 0)
    return joined


def splits_of_lengths(lengths: Tensor) -> Tensor:
    """The splits of rows of these lengths."""
    return zero_and(raw.Cumsum(lengths, 0))


def row_numbers(splits: Tensor, count: Tensor | None = None) -> Tensor:
    """For each value the number of its row; `count` is the number of values."""
    total = splits[-1] if count is None else count
    places = raw.Range(np.zeros((), splits.dtype.as_numpy_dtype), total, np.ones((), splits.dtype.as_numpy_dtype))
    limits = raw.ExpandDims(splits[1:], 0)
    numbers: Tensor = raw.Reshape(raw.UpperBound(limits, raw.ExpandDims(places, 0), out_type=splits.dtype), [-1])
    return numbers


def splits_of_row_numbers(rowids: Tensor, nrows: Tensor) -> Tensor:
    """The splits of `nrows` rows in which the values are that have these row numbers, which do not decrease."""
    one = np.ones((), rowids.dtype.as_numpy_dtype)
    rows = raw.Range(np.zeros((), one.dtype), raw.AddV2(nrows, one), one)
    below = raw.LowerBound(raw.ExpandDims(rowids, 0), raw.ExpandDims(rows, 0), out_type=rowids.dtype)
    splits: Tensor = raw.Reshape(below, [-1])
    known = constant_value(nrows)
    if known is not None:
        splits.set_shape([int(known) + 1])
    return splits


def last_plus_one(rowids: Tensor) -> Tensor:
    """The number of rows that row numbers speak of."""
    known = constant_value(rowids)
    if known is not None:
        rows = known[-1] + 1 if known.size else 0
        return convert_to_tensor(np.array(rows, rowids.dtype.as_numpy_dtype), name="nrows")
    before = np.array([-1], rowids.dtype.as_numpy_dtype)
    last = raw.ConcatV2([before, rowids[-1:]], 0)[-1]
    rows_found: Tensor = raw.AddV2(last, np.ones((), before.dtype))
    return rows_found


# ---------------------------------------------------------------------- what must hold
def _not_decreasing(vector: Tensor) -> Tensor:
    result: Tensor = raw.GreaterEqual(vector[1:], vector[:-1])
    return result


def _zero(tensor: Tensor) -> Any:
    return np.zeros((), tensor.dtype.as_numpy_dtype)


def check_splits(splits: Tensor, count: Tensor) -> list[Operation]:
    message = "Arguments to from_row_splits do not form a valid RaggedTensor"
    return [
        require(raw.Equal(splits[:1], _zero(splits)), message),
        require(_not_decreasing(splits), message),
        require(raw.Equal(splits[-1], count), message),
    ]


def check_row_numbers(rowids: Tensor, nrows: Tensor, count: Tensor) -> list[Operation]:
    message = "Arguments to from_value_rowids do not form a valid RaggedTensor"
    return [
        require(raw.Equal(count_rows(rowids, rowids.dtype), count), message),
        require(raw.GreaterEqual(rowids[:1], _zero(rowids)), message),
        require(_not_decreasing(rowids), message),
        require(raw.Less(rowids[-1:], nrows), message),
    ]


def check_lengths(lengths: Tensor, count: Tensor) -> list[Operation]:
    message = "Arguments to from_row_lengths do not form a valid RaggedTensor"
    return [
        require(raw.GreaterEqual(lengths, _zero(lengths)), message),
        require(raw.Equal(raw.Sum(lengths, [0]), count), message),
    ]


def check_starts(starts: Tensor, count: Tensor) -> list[Operation]:
    message = "Arguments to from_row_starts do not form a valid RaggedTensor"
    return [
        require(raw.Equal(starts[:1], _zero(starts)), message),
        require(_not_decreasing(starts), message),
        require(raw.LessEqual(starts[-1:], count), message),
    ]


def check_limits(limits: Tensor, count: Tensor) -> list[Operation]:
    message = "Arguments to from_row_limits do not form a valid RaggedTensor"
    return [
        require(raw.GreaterEqual(limits[:1], _zero(limits)), message),
        require(_not_decreasing(limits), message),
        require(raw.Equal(limits[-1:], count), message),
    ]


def ragged_right(indices: Tensor) -> Tensor:
    """Of the sorted indices of a sparse tensor: whether each continues the row of the one before it, or begins one."""
    before, last = indices[:, :-1], indices[:, -1]
    starts = raw.Any(raw.NotEqual(before[1:], before[:-1]), [1])
    continued = raw.Equal(last[1:], raw.AddV2(last[:-1], np.int64(1)))
    begun = raw.Equal(last[1:], np.int64(0))
    right = raw.SelectV2(starts, begun, continued)
    found: Tensor = raw.ConcatV2([raw.Equal(last[:1], np.int64(0)), right], 0)
    return found


# ---------------------------------------------------------------------- from dense tensors
def as_lengths(lengths: TensorLike, dtype: DType, name: str = "lengths") -> Tensor:
    """An argument of integers, as a tensor of the dtype of splits.

    Raises:
        TypeError: they are no integers.
    """
    tensor = convert_to_tensor(lengths, name=name, preferred_dtype=dtype)
    if not tensor.dtype.is_integer:
        raise TypeError(f"{name} must be an integer tensor, got {tensor.dtype.name}; use tf.cast")
    return tensor if tensor.dtype.base_dtype is dtype else raw.Cast(tensor, DstT=dtype)


def lengths_before_padding(tensor: Tensor, padding: TensorLike, dtype: DType) -> Tensor:
    """For each row of a matrix (of elements of any rank), how many columns come before its padding."""
    element = convert_to_tensor(padding, tensor.dtype, name="padding")
    element.shape.assert_is_compatible_with(tensor.shape[2:])
    same = raw.Equal(tensor, element)
    per_element = raw.Reshape(same, raw.ConcatV2([raw.Shape(tensor)[:2], [-1]], 0))
    kept = raw.Cast(raw.LogicalNot(raw.All(per_element, [2])), DstT=dtype)
    one = np.ones((), dtype.as_numpy_dtype)
    columns = raw.Range(one, raw.AddV2(raw.Shape(tensor, out_type=dtype)[1], one), one)
    none = raw.Reshape(raw.Mul(raw.Sum(kept, [1]), np.zeros((), one.dtype)), [-1, 1])
    lengths: Tensor = raw.Max(raw.ConcatV2([none, raw.Mul(kept, columns)], 1), [1])
    return lengths


def uniform_splits(shape: Tensor, dimension: int) -> Tensor:
    """The splits of a dense tensor's dimension, where those before it are one: rows of one length."""
    one = np.ones((), shape.dtype.as_numpy_dtype)
    rows = raw.Prod(shape[:dimension], [0])
    splits: Tensor = raw.Mul(raw.Range(np.zeros((), one.dtype), raw.AddV2(rows, one), one), shape[dimension])
    return splits


def splits_dtype(dtype: object) -> DType:
    """The dtype of row splits that an argument names.

    Raises:
        ValueError: neither int32 nor int64.
    """
    found = dtypes.as_dtype(dtype)
    if found not in (dtypes.int32, dtypes.int64):
        raise ValueError(f"the dtype of row splits must be int32 or int64, got {found.name}")
    return found


def positive_axis(axis: int, ndims: int | None) -> int:
    """An axis counted from the front.

    Raises:
        TypeError: no integer.
        ValueError: out of range, or negative where the rank is not known.
    """
    if not isinstance(axis, int):
        raise TypeError(f"axis must be an int; got {type(axis).__name__}")
    if ndims is None:
        if axis < 0:
            raise ValueError("axis may only be negative if ndims is statically known.")
        return axis
    if not -ndims <= axis < ndims:
        raise ValueError(f"axis={axis} out of bounds: expected {-ndims}<=axis<{ndims}")
    return axis % ndims
