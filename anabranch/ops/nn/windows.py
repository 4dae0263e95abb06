"""Sliding windows: what convolutions, pooling and patch extraction share.

Attributes like `strides` and `ksize` list one number per axis of the data, in the order of `data_format`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeVar

import numpy as np

from anabranch.core.dimensions import DimensionLike
from anabranch.core.shapes import TensorShape
from anabranch.ops import shape_rules

T = TypeVar("T")

_LARGEST_INT32: Final = 2**31 - 1


@dataclass(frozen=True, slots=True)
class Layout:
    """Where the axes of a batch of images or volumes stand.

    Attributes:
        rank: number of axes.
        channel: the channel axis.
        spatial: the axes that a window slides along, outermost first.
        name: the axes' letters, as XLA's convolutions name them.
    """

    rank: int
    channel: int
    spatial: tuple[int, ...]
    name: str

    def pick(self, per_axis: Sequence[T]) -> tuple[T, ...]:
        """The spatial entries of a list with one entry per axis."""
        return tuple(per_axis[a] for a in self.spatial)

    def spread(self, spatial: Sequence[T], other: T) -> tuple[T, ...]:
        """A list with one entry per axis: `spatial` for the spatial ones, `other` for batch and channels."""
        return tuple(spatial[self.spatial.index(a)] if a in self.spatial else other for a in range(self.rank))

    def pick_pairs(self, pairs: Sequence[int]) -> tuple[tuple[int, int], ...]:
        """The spatial entries of `explicit_paddings`: (before, after) per axis, flattened."""
        return tuple((pairs[2 * a], pairs[2 * a + 1]) for a in self.spatial) if pairs else ((0, 0),) * len(self.spatial)

    def shape(self, batch: DimensionLike, channels: DimensionLike, spatial: Sequence[DimensionLike]) -> TensorShape:
        """The shape of data in this layout."""
        dims: list[DimensionLike] = [batch] * self.rank
        dims[self.channel] = channels
        for axis, length in zip(self.spatial, spatial, strict=True):
            dims[axis] = length
        return TensorShape(dims)


_LAYOUTS = {
    b"NHWC": Layout(4, 3, (1, 2), "NHWC"),
    b"NCHW": Layout(4, 1, (2, 3), "NCHW"),
    b"NDHWC": Layout(5, 4, (1, 2, 3), "NDHWC"),
    b"NCDHW": Layout(5, 1, (2, 3, 4), "NCDHW"),
    # Channels in groups of four, the group innermost.
    b"NCHW_VECT_C": Layout(5, 1, (2, 3), "NCHWv"),
}


def layout_of(data_format: bytes) -> Layout:
    """The layout that a `data_format` attribute names."""
    return _LAYOUTS[data_format]


def per_axis(values: Sequence[int], layout: Layout, what: str) -> tuple[int, ...]:
    """A list attribute with one number per axis of `layout`.

    Raises:
        ValueError: it has another length.
    """
    padded = [*values, 1] if layout.name == "NCHWv" else list(values)
    if len(padded) != layout.rank:
        raise ValueError(f"{what} must list {layout.rank} numbers, one per axis of {layout.name}, got {list(values)}")
    return tuple(int(v) for v in padded)


def output_length(
    length: int | None,
    window: int | None,
    stride: int,
    padding: bytes,
    dilation: int = 1,
    explicit: tuple[int, int] = (0, 0),
) -> int | None:
    """How many positions a window takes along an axis; None where that is unknown. What graphs are refused by.

    Raises:
        ValueError: the window is longer than the (padded) axis, or has no length.
    """
    if length is not None and window and padding != b"SAME":
        reach, padded = (window - 1) * dilation + 1, length + sum(explicit)
        if padded < reach:
            raise ValueError(
                f"Negative dimension size caused by subtracting {reach} (the window) from {padded} (the input); "
                "use a smaller window or padding='SAME'"
            )
    return positions(length, window, stride, padding, dilation, explicit)


def positions(
    length: int | None,
    window: int | None,
    stride: int,
    padding: bytes,
    dilation: int = 1,
    explicit: tuple[int, int] = (0, 0),
) -> int | None:
    """The same of an operation that runs: it takes a window that is longer than the axis by a stride at most.

    Raises:
        ValueError: the window is longer still, or has no length; the stride is not positive; a number is above those of
            int32, which TensorFlow's kernels count with.
    """
    if stride < 1:
        raise ValueError(f"Stride must be > 0, but got {stride}")
    for what, number in (("Stride", stride), ("a window's reach", ((window or 1) - 1) * dilation + 1)):
        if number > _LARGEST_INT32:
            raise ValueError(f"{what} must not be above {_LARGEST_INT32}, the largest int32, but got {number}")
    if window == 0:
        raise ValueError("a window (or filter) must not have zero elements, but its length is 0")
    if window is not None and window < 0:
        raise ValueError(f"a window (or filter) must have a positive length, got {window}")
    if length is None or (window is None and padding != b"SAME"):
        return None
    if padding == b"SAME":
        return -(-length // stride)
    reach = ((window or 1) - 1) * dilation + 1
    padded = length + sum(explicit)
    # cut off towards zero: a number between -1 and 0 is none, and not below it
    count = math.trunc((padded - reach + stride) / stride)
    if count < 0:
        raise ValueError(
            f"Computed output size would be negative: {count} [input_size: {padded}, effective_filter_size: {reach}, "
            f"stride: {stride}]; use a smaller window or padding='SAME'"
        )
    return count


def pad_amounts(
    length: int, window: int, stride: int, padding: bytes, dilation: int = 1, explicit: tuple[int, int] = (0, 0)
) -> tuple[int, int]:
    """How much padding goes before and after an axis. SAME puts an odd element after."""
    if padding == b"VALID":
        return (0, 0)
    if padding == b"EXPLICIT":
        return explicit
    reach = (window - 1) * dilation + 1
    total = max(0, (-(-length // stride) - 1) * stride + reach - length)
    return (total // 2, total - total // 2)


def pooled_shape(
    data: TensorShape,
    ksize: Sequence[int],
    strides: Sequence[int],
    padding: bytes,
    data_format: bytes,
    explicit_paddings: Sequence[int] = (),
) -> TensorShape:
    """The shape rule of pooling: every axis may be pooled, the channel axis too.

    Raises:
        ValueError: wrong rank, or a window that does not fit.
    """
    layout = layout_of(data_format)
    data = shape_rules.with_rank(data, layout.rank, "the input of pooling")
    windows, steps = per_axis(ksize, layout, "ksize"), per_axis(strides, layout, "strides")
    check_explicit(padding, explicit_paddings, layout)
    if min(windows) < 1 or min(steps) < 1:
        raise ValueError(f"ksize and strides must be positive, got {list(ksize)} and {list(strides)}")
    pairs = list(zip(explicit_paddings[::2], explicit_paddings[1::2], strict=True)) or [(0, 0)] * layout.rank
    dims = data.dims_tuple or (None,) * layout.rank
    lengths = [
        # an empty batch stays one: no window slides there
        d if axis not in layout.spatial and (k, s) == (1, 1) else output_length(d, k, s, padding, 1, p)
        for axis, (d, k, s, p) in enumerate(zip(dims, windows, steps, pairs, strict=True))
    ]
    return TensorShape(lengths)


def check_explicit(padding: bytes, explicit_paddings: Sequence[int], layout: Layout) -> None:
    """Raises ValueError unless `explicit_paddings` goes with `padding`."""
    if padding != b"EXPLICIT":
        if explicit_paddings:
            raise ValueError(f"explicit_paddings must be empty with padding {padding.decode()}: {explicit_paddings}")
        return
    if len(explicit_paddings) != 2 * layout.rank or min(explicit_paddings) < 0:
        raise ValueError(
            f"padding 'EXPLICIT' needs explicit_paddings with {2 * layout.rank} numbers >= 0 (before and after, "
            f"for each axis of {layout.name}), got {list(explicit_paddings)}"
        )
    for axis in set(range(layout.rank)) - set(layout.spatial):
        if explicit_paddings[2 * axis] or explicit_paddings[2 * axis + 1]:
            raise ValueError(f"the batch and channel axes cannot be padded, got {list(explicit_paddings)}")


def lowest(dtype: np.dtype[Any]) -> Any:
    """What no number of a dtype is below: what stands beside the data where windows are searched for their maxima."""
    return np.iinfo(dtype).min if dtype.kind in "iu" else -np.inf
