"""What a layout of images means for axes and for vectors with a number for each axis."""

from __future__ import annotations

from typing import Any

import numpy as np

from anabranch.core.arrays import Array, ArrayLibrary
from anabranch.core.kernel_context import OperationContext
from anabranch.graph.building import OpFunction, define_op
from anabranch.ops import shape_rules


def _permuting(name: str) -> OpFunction:
    op = define_op(
        name, "x: T -> y: T", "T: {int32, int64} = int32, src_format: string = 'NHWC', dst_format: string = 'NCHW'"
    )
    op.shape(shape_rules.same_as_first)
    op.not_differentiable()
    return op


def _check_formats(source: bytes, target: bytes, ctx: OperationContext) -> None:
    for which, letters in (("Source", source), ("Destination", target)):
        ctx.check(len(letters) in (4, 5), f"{which} format must be of length 4 or 5, received {letters!r}")
    fits = len(set(source)) == len(source) and sorted(source) == sorted(target)
    ctx.check(
        fits,
        "Destination and source format must determine a permutation of 4 or 5 letters, got "
        f"{source.decode(errors='replace')} and {target.decode(errors='replace')}",
    )


DataFormatDimMap = _permuting("DataFormatDimMap")


@DataFormatDimMap.kernel
def _(x: Array, *, src_format: bytes, dst_format: bytes, xp: ArrayLibrary, ctx: OperationContext) -> Any:
    """Where the axes of one layout stand in another; negative ones count from the end."""
    _check_formats(src_format, dst_format, ctx)
    places = np.array([dst_format.index(letter) for letter in src_format], x.dtype)
    count = len(places)
    # a remainder of its sign, as processors have it: what is out of range is the last axis
    shifted = xp.fmod(x + count, count)
    return xp.where((shifted >= 0) & (shifted < count), xp.asarray(places)[xp.clip(shifted, 0, count - 1)], places[-1])


DataFormatVecPermute = _permuting("DataFormatVecPermute")


@DataFormatVecPermute.kernel
def _(x: Array, *, src_format: bytes, dst_format: bytes, xp: ArrayLibrary, ctx: OperationContext) -> Any:
    """The numbers, or rows of two, in the order of another layout; those of the inner axes may stand alone."""
    _check_formats(src_format, dst_format, ctx)
    shape = np.shape(x)
    fits = len(shape) in (1, 2) and shape[1:] in ((), (2,)) and shape[0] in (len(src_format), len(src_format) - 2)
    ctx.check(fits, f"x must have a number, or two, for each axis of {src_format.decode()}, got the shape {shape}")
    kept = [a for a in src_format if shape[0] == len(src_format) or a not in b"NC"]
    order = [kept.index(letter) for letter in dst_format if letter in kept]
    return x[np.array(order)]
