"""`ragged[...]`: rows, ranges of rows, and ranges within rows."""

from __future__ import annotations

from typing import Any

import numpy as np

from anabranch.core.values import TensorLike, TensorOrRagged
from anabranch.frontend.framework import name_scope
from anabranch.frontend.ragged import partitions
from anabranch.frontend.ragged.conversion import is_ragged
from anabranch.frontend.ragged.gathering import gather
from anabranch.frontend.ragged.levels import picked
from anabranch.frontend.ragged.rearranging import expand_dims
from anabranch.frontend.ragged.tensor import RaggedIndex, RaggedTensor
from anabranch.graph.conversion import convert_to_tensor
from anabranch.graph.operation import Tensor
from anabranch.ops import raw


def getitem(ragged: RaggedTensor, key: RaggedIndex) -> TensorOrRagged:
    """A part of a ragged tensor, as Python indexes lists.

    Args:
        key: an integer, a slice, `...`, `tf.newaxis`, or a tuple of these. Numbers may be scalar tensors.

    Returns:
        A RaggedTensor; a Tensor where no ragged dimension is left.

    Raises:
        ValueError: a single place of a ragged dimension inside is asked for, which some rows may not have.
        TypeError: something is no index.
        IndexError: there are too many of them.
    """
    keys = list(key) if isinstance(key, list | tuple) else [key]
    with name_scope(None, "RaggedGetItem"):
        return _rows(ragged, keys)


def _rows(ragged: RaggedTensor, keys: list[Any]) -> Any:
    """The part that the keys name, the first of them among the rows."""
    if not keys:
        return ragged
    first, inner = keys[0], keys[1:]
    if first is Ellipsis:
        return _rows(ragged, _without_ellipsis(keys, ragged.shape.ndims))
    if first is None:
        return expand_dims(_rows(ragged, inner), 0)
    if isinstance(first, slice):
        return _within_rows(_some_rows(ragged, first), inner)
    row = ragged.values[ragged.row_starts()[first] : ragged.row_limits()[first]]
    return row[tuple(inner)] if inner else row


def _some_rows(ragged: RaggedTensor, key: slice) -> RaggedTensor:
    if key == slice(None):
        return ragged
    starts, limits = ragged.row_starts()[key], ragged.row_limits()[key]
    if key.step is not None and not (isinstance(key.step, int) and key.step == 1):
        return _ranges_of(ragged.values, starts, limits, 1)
    # the start of the first row and the limits of all; of no rows, 0
    zero = np.zeros(1, ragged.row_splits.dtype.as_numpy_dtype)
    cuts = raw.ConcatV2([convert_to_tensor(zero)[raw.Size(starts) :], starts[:1], limits], 0)
    first = cuts[0]
    return RaggedTensor.from_row_splits(ragged.values[first : cuts[-1]], raw.Sub(cuts, first), validate=False)


def _within_rows(value: TensorLike, keys: list[Any]) -> Any:
    """The part of each row that the keys name; all rows stay."""
    if not keys:
        return value
    if not is_ragged(value):
        return value[(slice(None), *keys)]
    first, inner = keys[0], keys[1:]
    if first is Ellipsis:
        return _within_rows(value, _without_ellipsis(keys, value.values.shape.ndims))
    if first is None:
        return expand_dims(_within_rows(value, inner), 1)
    if not isinstance(first, slice):
        raise ValueError("Cannot index into an inner ragged dimension.")
    if first == slice(None):
        return value.with_values(_within_rows(value.values, inner))
    starts, limits = value.row_starts(), value.row_limits()
    if isinstance(first.step, int) and first.step < 0:
        # counted downwards: the places before the first of each row and before its end take the parts of the bounds
        one = np.ones((), starts.dtype.as_numpy_dtype)
        starts, limits = raw.Sub(starts, one), raw.Sub(limits, one)
        begin = limits if first.start is None else _moved_back(first.start, starts, limits)
        end = starts if first.stop is None else _moved_back(first.stop, starts, limits)
        part = _ranges_of(value.values, begin, end, first.step)
        return part.with_values(_within_rows(part.values, inner))
    begin = starts if _is_zero(first.start) else _moved(first.start, starts, limits)
    end = limits if first.stop is None else _moved(first.stop, starts, limits)
    part = _ranges_of(value.values, begin, end, 1 if first.step is None else first.step)
    return part.with_values(_within_rows(part.values, inner))


def _is_zero(offset: TensorLike | None) -> bool:
    return offset is None or (isinstance(offset, int) and offset == 0)


def _without_ellipsis(keys: list[Any], dimensions: int | None) -> list[Any]:
    """The keys with one `:` more before the ellipsis, or without it where the others name all dimensions."""
    if dimensions is None:
        raise ValueError("Ellipsis not supported for unknown shape RaggedTensors")
    count = sum(key is not None for key in keys)
    if count > dimensions + 1:
        raise IndexError("Too many indices for RaggedTensor")
    return keys[1:] if count == dimensions + 1 else [slice(None), *keys]


def _ranges_of(values: TensorLike, starts: Tensor, limits: Tensor, step: TensorLike) -> RaggedTensor:
    """Rows: row i is `values[starts[i]:limits[i]:step]`."""
    by = convert_to_tensor(step, name="step")
    if not by.dtype.is_integer:
        raise TypeError("slice strides must be integers or None")
    places = raw.RaggedRange(starts, limits, raw.Cast(by, DstT=starts.dtype), Tsplits=starts.dtype)
    at = places.rt_dense_values
    chosen = gather(values, at) if is_ragged(values) else picked(values, at)
    return RaggedTensor(chosen, places.rt_nested_splits, internal=True)


def _moved(offset: TensorLike, starts: Tensor, limits: Tensor) -> Tensor:
    """The places that lie `offset` behind the starts, or before the limits where it is negative; never outside."""
    by = _offset(offset, starts)
    ahead, back = raw.Minimum(raw.AddV2(starts, by), limits), raw.Maximum(raw.AddV2(limits, by), starts)
    if isinstance(offset, int):
        found: Tensor = ahead if offset >= 0 else back
        return found
    forward = raw.GreaterEqual(by, np.zeros((), starts.dtype.as_numpy_dtype))
    result: Tensor = raw.SelectV2(forward, ahead, back)
    return result


def _moved_back(offset: TensorLike, before: Tensor, last: Tensor) -> Tensor:
    """The places that lie `offset` behind the first of each row, or from its end where it is negative; never outside.

    Args:
        before: the places before the first.
        last: the places of the last.
    """
    by, one = _offset(offset, before), np.ones((), before.dtype.as_numpy_dtype)
    ahead = raw.Minimum(raw.AddV2(raw.AddV2(before, by), one), last)
    back = raw.Maximum(raw.AddV2(raw.AddV2(last, by), one), before)
    forward = raw.GreaterEqual(by, np.zeros((), before.dtype.as_numpy_dtype))
    result: Tensor = raw.SelectV2(forward, ahead, back)
    return result


def _offset(offset: TensorLike, starts: Tensor) -> Tensor:
    try:
        by = convert_to_tensor(offset, name="offset", preferred_dtype=starts.dtype)
    except (TypeError, ValueError):
        raise TypeError("slice offsets must be integers or None") from None
    if not by.dtype.is_integer:
        raise TypeError("slice offsets must be integers or None")
    if by.shape.ndims not in (None, 0):
        raise ValueError(f"slice offsets must be scalars, got the shape {by.shape}")
    return partitions.as_lengths(by, starts.dtype, "offset")


RaggedTensor.OPERATORS["getitem"] = getitem
