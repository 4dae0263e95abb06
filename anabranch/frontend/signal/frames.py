"""Frames: pieces of a signal that may overlap, and signals put together from them."""

from __future__ import annotations

import numpy as np

from anabranch.core import dtypes
from anabranch.core.values import TensorLike
from anabranch.frontend.arithmetic.elementwise import maximum
from anabranch.frontend.arithmetic.reduction import range as range_
from anabranch.frontend.arrays.constants import one_hot
from anabranch.frontend.arrays.gathering import gather
from anabranch.frontend.arrays.joining import concat
from anabranch.frontend.arrays.layout import pad, transpose
from anabranch.frontend.arrays.segments import unsorted_segment_sum
from anabranch.frontend.arrays.shapes import rank, reshape, shape
from anabranch.frontend.framework import name_scope
from anabranch.graph.constants import constant_value
from anabranch.graph.conversion import convert_to_tensor
from anabranch.graph.operation import Tensor


def frame(
    signal: TensorLike,
    frame_length: TensorLike,
    frame_step: TensorLike,
    pad_end: bool = False,
    pad_value: TensorLike = 0,
    axis: int | Tensor = -1,
    name: str | None = None,
) -> Tensor:
    """Pieces of a signal: one that is `frame_length` long begins at every `frame_step`.

    Args:
        signal: of one dimension at least.
        frame_length: how many elements a frame has, a scalar.
        frame_step: how many elements the next one begins later, a scalar.
        pad_end: whether frames that end after the signal count, with `pad_value` for what is missing.
        pad_value: of the signal's type.
        axis: the signal's dimension along which frames follow each other.

    Returns:
        A tensor with two dimensions, of the frames and of what is in a frame, in place of `axis`.

    Raises:
        ValueError: a length, step or axis is no scalar, or the signal has no such dimension.

    Example:
        >>> sess.run(tf.signal.frame([1, 2, 3, 4, 5], 3, 2))
        array([[1, 2, 3],
               [3, 4, 5]], dtype=int32)
    """
    with name_scope(name, "frame", [signal, frame_length, frame_step, pad_value]):
        x = convert_to_tensor(signal, name="signal")
        length, step = _scalar(frame_length, "frame_length"), _scalar(frame_step, "frame_step")
        along = _known_axis(axis, x)
        size = shape(x)[along]
        if pad_end:
            count = -(-size // step)
            missing = maximum(0, length + step * (count - 1) - size)
            fill = convert_to_tensor(pad_value, x.dtype, name="pad_value")
            if not fill.shape.is_compatible_with([]):
                raise ValueError(f"pad_value is a scalar, not of shape {fill.shape}")
            x = pad(x, _after(x, along, missing), constant_values=fill)
        else:
            count = maximum(0, 1 + (size - length) // step)
        result = gather(x, _places(count, length, step), axis=along)
        if x.shape.ndims is not None:
            dims = x.shape.as_list()
            result.set_shape([*dims[:along], constant_value(count), constant_value(length), *dims[along + 1 :]])
        return result


def overlap_and_add(signal: TensorLike, frame_step: TensorLike, name: str | None = None) -> Tensor:
    """The sum of frames, of which the next one begins `frame_step` elements later: what `frame` has taken apart.

    Args:
        signal: shape [..., frames, frame_length], numbers.
        frame_step: an integer scalar.

    Returns:
        A tensor of shape [..., (frames - 1) * frame_step + frame_length].

    Raises:
        ValueError: the signal has fewer than two dimensions, or `frame_step` is no integer scalar.

    Example:
        >>> sess.run(tf.signal.overlap_and_add([[1, 2, 3], [10, 20, 30]], 2))
        array([ 1,  2, 13, 20, 30], dtype=int32)
    """
    with name_scope(name, "overlap_and_add", [signal, frame_step]):
        x = convert_to_tensor(signal, name="signal")
        x.shape.with_rank_at_least(2)
        step = convert_to_tensor(frame_step, name="frame_step")
        if not step.dtype.is_integer:
            raise ValueError(f"frame_step is a number of elements, not of type {step.dtype.name}")
        step = _scalar(step, "frame_step")
        sizes = shape(x)
        outer, count, length = sizes[:-2], sizes[-2], sizes[-1]
        total = maximum(0, (count - 1) * step + length)
        # elements first, so that those of one place are summed over all frames at once
        flat = transpose(reshape(x, concat([[-1], [count * length]], 0)))
        places = reshape(_places(count, length, step), [-1])
        summed = transpose(unsorted_segment_sum(flat, places, total))
        result = reshape(summed, concat([outer, [total]], 0))
        if x.shape.ndims is not None:
            result.set_shape([*x.shape.as_list()[:-2], constant_value(total)])
        return result


def _places(count: Tensor, length: Tensor, step: Tensor) -> Tensor:
    """[frames, frame_length]: where in the signal what is in a frame stands."""
    return reshape(range_(count) * step, [-1, 1]) + range_(length)


def _scalar(value: TensorLike, what: str) -> Tensor:
    tensor = convert_to_tensor(value, dtypes.int32, name=what)
    if not tensor.shape.is_compatible_with([]):
        raise ValueError(f"{what} is a scalar, not of shape {tensor.shape}")
    known = constant_value(tensor)
    if known is not None and int(known) < (1 if what == "frame_step" else 0):
        raise ValueError(f"{what} is positive, not {int(known)}")
    return tensor


def _known_axis(axis: int | Tensor, x: Tensor) -> int:
    """The axis counted from the first, or as it is given where nobody knows how many there are."""
    known = constant_value(convert_to_tensor(axis, name="axis"))
    if known is None or np.ndim(known):
        raise ValueError("axis is an integer that is known when the graph is built")
    ndims = x.shape.ndims
    if ndims is None:
        return int(known)
    if not -ndims <= int(known) < ndims:
        raise ValueError(f"a signal of {ndims} dimensions has no axis {int(known)}")
    return int(known) % ndims


def _after(x: Tensor, axis: int, count: Tensor) -> Tensor | list[list[TensorLike]]:
    """The paddings that add `count` elements after an axis."""
    if x.shape.ndims is not None:
        return [[0, count if i == axis else 0] for i in range(x.shape.ndims)]
    place = axis if axis >= 0 else rank(x) + axis
    return transpose(one_hot([-1, place], rank(x), on_value=count, off_value=0))
