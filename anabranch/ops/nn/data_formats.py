"""Numbers of dimensions, and vectors with an element for each dimension, from one order of dimensions to another."""

from __future__ import annotations

from typing import Any

import numpy as np

from anabranch.core.arrays import Array, ArrayLibrary
from anabranch.core.kernel_context import OperationContext
from anabranch.core.shapes import TensorShape
from anabranch.graph.building import define_op
from anabranch.ops import shape_rules

_ATTRS = "T: {int32, int64} = int32, src_format: string = 'NHWC', dst_format: string = 'NCHW'"


def _check_formats(ctx: OperationContext, source: str, wanted: str) -> None:
    """Both have the same four or five dimensions."""
    same = sorted(source) == sorted(wanted) and len({*source}) == len(source) and len(source) in (4, 5)
    ctx.check(same, f"the formats must have the same four or five dimensions, got {source!r} and {wanted!r}")


DataFormatDimMap = define_op("DataFormatDimMap", "x: T -> y: T", _ATTRS)
DataFormatDimMap.shape(shape_rules.same_as_first)
DataFormatDimMap.not_differentiable()


@DataFormatDimMap.kernel
def _(x: Array, *, src_format: bytes, dst_format: bytes, xp: ArrayLibrary, ctx: OperationContext) -> Any:
    """Where the dimension of each number is in the other order; negative numbers count from the end."""
    source, wanted = src_format.decode(), dst_format.decode()
    _check_formats(ctx, source, wanted)
    rank = len(source)
    ctx.check((x >= -rank) & (x < rank), f"dimensions must lie in [{-rank}, {rank}), got {{0}}", x)
    places = xp.asarray([wanted.index(letter) for letter in source], dtype=x.dtype)
    return places[x % rank]


DataFormatVecPermute = define_op("DataFormatVecPermute", "x: T -> y: T", _ATTRS)
DataFormatVecPermute.not_differentiable()


@DataFormatVecPermute.shape
def _(x: TensorShape) -> TensorShape:
    if x.ndims not in (None, 1, 2):
        raise ValueError(f"the input must be a vector or a matrix, got shape {x}")
    return x


@DataFormatVecPermute.kernel
def _(x: Array, *, src_format: bytes, dst_format: bytes, xp: ArrayLibrary, ctx: OperationContext) -> Any:
    """Rows in the order of the other format; where there are two fewer, they are those of the spatial dimensions."""
    source, wanted = src_format.decode(), dst_format.decode()
    _check_formats(ctx, source, wanted)
    count = np.shape(x)[0]
    if count == len(source) - 2:
        source, wanted = (f.replace("N", "").replace("C", "") for f in (source, wanted))
    fits = count == len(source) and (np.ndim(x) == 1 or np.shape(x)[1] == 2)
    ctx.check(fits, f"a tensor of shape {np.shape(x)} has no row, or pair, for each dimension of {source}")
    return x[np.array([source.index(letter) for letter in wanted])]
