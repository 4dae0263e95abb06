"""Dilation and erosion of images."""

from __future__ import annotations

import numpy as np

from anabranch.core.values import TensorLike
from anabranch.frontend.arguments import Padding, PerAxis, one_of
from anabranch.frontend.framework import name_scope
from anabranch.graph.operation import Tensor
from anabranch.ops import raw


def dilation2d(
    input: TensorLike,
    filter: TensorLike | None = None,
    strides: PerAxis | None = None,
    rates: PerAxis | None = None,
    padding: Padding | None = None,
    name: str | None = None,
    filters: TensorLike | None = None,
    dilations: PerAxis | None = None,
) -> Tensor:
    """The largest sum of pixel and filter under a sliding window, channel by channel.

    Args:
        input: [batch, height, width, channels], any real dtype.
        filter: [filter height, filter width, channels]; `filters` is another name.
        strides, rates: four numbers each, 1 for batch and channels; `dilations` is another name of `rates`.
        padding: "SAME" or "VALID".
    """
    filter, rates = one_of("filters", filters, "filter", filter), one_of("dilations", dilations, "rates", rates)
    result: Tensor = raw.Dilation2D(input, filter, strides=strides, rates=rates, padding=padding, name=name)
    return result


def erosion2d(
    value: TensorLike, kernel: TensorLike, strides: PerAxis, rates: PerAxis, padding: Padding, name: str | None = None
) -> Tensor:
    """The smallest difference of pixel and (mirrored) filter under a sliding window; arguments as `dilation2d`."""
    with name_scope(name, "erosion2d", [value, kernel]) as scope:
        mirrored = raw.ReverseV2(kernel, np.array([0, 1], np.int32))
        dilated = raw.Dilation2D(raw.Neg(value), mirrored, strides=strides, rates=rates, padding=padding)
        result: Tensor = raw.Neg(dilated, name=scope)
        return result
