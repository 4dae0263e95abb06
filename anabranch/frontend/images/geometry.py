"""Cropping, padding, mirroring and turning of images."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from anabranch.core import dtypes
from anabranch.core.values import TensorLike
from anabranch.frontend.arithmetic.random import random_uniform
from anabranch.frontend.control_flow.checks import assert_greater_equal, assert_non_negative
from anabranch.frontend.control_flow.conditionals import cond
from anabranch.frontend.control_flow.grouping import with_dependencies
from anabranch.frontend.framework import name_scope
from anabranch.graph.constants import constant_value
from anabranch.graph.conversion import convert_to_tensor
from anabranch.graph.operation import Operation, Tensor
from anabranch.ops import raw


# ---------------------------------------------------------------------- one image or a batch
def as_batch(images: TensorLike, unranked_is_single: bool = False) -> tuple[Tensor, bool]:
    """A batch of images, and whether it was a single one.

    Args:
        unranked_is_single: whether what has no known rank, as decoded images have, is taken for one image.

    Raises:
        ValueError: neither rank 3 nor rank 4, or the rank is not known.
    """
    images = convert_to_tensor(images, name="images")
    rank = images.shape.ndims
    if rank is None and unranked_is_single:
        batch: Tensor = raw.ExpandDims(images, np.int32(0))
        batch.set_shape([1, None, None, None])
        return batch, True
    if rank is None:
        raise ValueError("'images' contains no shape; use set_shape to say whether it is one image or a batch")
    if rank not in (3, 4):
        raise ValueError(f"'images' must have either 3 or 4 dimensions, got shape {images.shape}")
    return (raw.ExpandDims(images, np.int32(0)), True) if rank == 3 else (images, False)


def from_batch(batch: Tensor, single: bool) -> Tensor:
    """Undoes `as_batch`."""
    result: Tensor = raw.Squeeze(batch, squeeze_dims=[0]) if single else batch
    return result


def image_size(batch: Tensor) -> tuple[Any, Any]:
    """Height and width of a batch, as numbers where they are known."""
    dims = batch.shape.dims_tuple or (None,) * 4
    shape = raw.Shape(batch) if None in dims[1:3] else None
    zero = np.int32(0)
    height, width = (
        raw.GatherV2(shape, np.int32(axis), zero) if (size := dims[axis]) is None else np.int32(size) for axis in (1, 2)
    )
    return height, width


def _number(value: TensorLike) -> int | None:
    """The value of an integer argument where it is known."""
    if isinstance(value, Tensor):
        constant = constant_value(value)
        return None if constant is None else int(constant)
    return int(value)


def _at_least(value: TensorLike, least: TensorLike, message: str) -> list[Operation]:
    """Nothing where it is known to hold, else an assertion for the step.

    Raises:
        ValueError: it is known not to hold.
    """
    known, bound = _number(value), _number(least)
    if known is None or bound is None:
        return [assert_greater_equal(value, least, message=message)]
    if known < bound:
        raise ValueError(message)
    return []


def _difference(a: TensorLike, b: TensorLike) -> Any:
    known = [_number(v) for v in (a, b)]
    if known[0] is not None and known[1] is not None:
        return np.int32(known[0] - known[1])
    return raw.Sub(convert_to_tensor(a, dtypes.int32), convert_to_tensor(b, dtypes.int32))


# ---------------------------------------------------------------------- cropping and padding
def crop_to_bounding_box(
    image: TensorLike,
    offset_height: TensorLike,
    offset_width: TensorLike,
    target_height: TensorLike,
    target_width: TensorLike,
) -> Tensor:
    """The rectangle whose upper left corner lies at (offset_height, offset_width).

    Args:
        image: [height, width, channels], or a batch of them; any dtype.
        offset_height, offset_width: of the upper left corner, not negative.
        target_height, target_width: the size of the rectangle, at least 1.

    Returns:
        A tensor of shape [..., target_height, target_width, channels] and of the dtype of `image`.

    Raises:
        ValueError: the rectangle is known to reach beyond the image.

    Example:
        >>> image = np.arange(9).reshape([3, 3, 1])
        >>> sess.run(tf.image.crop_to_bounding_box(image, 1, 0, 2, 2))[:, :, 0]
        array([[3, 4],
               [6, 7]])
    """
    with name_scope(None, "crop_to_bounding_box", [image]):
        batch, single = as_batch(image, unranked_is_single=True)
        height, width = image_size(batch)
        checks = [
            *_at_least(offset_width, 0, "offset_width must be >= 0."),
            *_at_least(offset_height, 0, "offset_height must be >= 0."),
            *_at_least(target_width, 1, "target_width must be > 0."),
            *_at_least(target_height, 1, "target_height must be > 0."),
            *_at_least(_difference(width, target_width), offset_width, "width must be >= target + offset."),
            *_at_least(_difference(height, target_height), offset_height, "height must be >= target + offset."),
        ]
        batch = with_dependencies(checks, batch)
        begin = raw.Pack(_int32s(0, offset_height, offset_width, 0))
        cropped = raw.Slice(batch, begin, raw.Pack(_int32s(-1, target_height, target_width, -1)))
        cropped.set_shape([batch.shape[0], _number(target_height), _number(target_width), batch.shape[3]])
        return from_batch(cropped, single)


def _int32s(*values: TensorLike) -> list[Tensor]:
    return [raw.Cast(v, DstT=dtypes.int32) if isinstance(v, Tensor) else convert_to_tensor(np.int32(v)) for v in values]


def pad_to_bounding_box(
    image: TensorLike,
    offset_height: TensorLike,
    offset_width: TensorLike,
    target_height: TensorLike,
    target_width: TensorLike,
) -> Tensor:
    """The image with its upper left corner at (offset_height, offset_width) of a larger one, the rest zero.

    Raises:
        ValueError: the image is known to reach beyond the target.
    """
    with name_scope(None, "pad_to_bounding_box", [image]):
        batch, single = as_batch(image, unranked_is_single=True)
        height, width = image_size(batch)
        after_width = _difference(_difference(target_width, offset_width), width)
        after_height = _difference(_difference(target_height, offset_height), height)
        checks = [
            *_at_least(offset_height, 0, "offset_height must be >= 0"),
            *_at_least(offset_width, 0, "offset_width must be >= 0"),
            *_at_least(after_width, 0, "width must be <= target - offset"),
            *_at_least(after_height, 0, "height must be <= target - offset"),
        ]
        batch = with_dependencies(checks, batch)
        flat = raw.Pack(_int32s(0, 0, offset_height, after_height, offset_width, after_width, 0, 0))
        padded = raw.Pad(batch, raw.Reshape(flat, np.array([4, 2], np.int32)))
        padded.set_shape([batch.shape[0], _number(target_height), _number(target_width), batch.shape[3]])
        return from_batch(padded, single)


def resize_image_with_crop_or_pad(image: TensorLike, target_height: TensorLike, target_width: TensorLike) -> Tensor:
    """Cuts off or adds zeros on both sides, so that the middle stays in the middle.

    Args:
        image: [height, width, channels], or a batch of them; any dtype.
        target_height, target_width: integers, at least 1.

    Returns:
        A tensor of shape [..., target_height, target_width, channels] and of the dtype of `image`.

    Raises:
        ValueError: a target is known to be less than 1.

    Example:
        >>> sess.run(tf.image.resize_image_with_crop_or_pad([[[1], [2], [3]]], 3, 1))[:, :, 0]
        array([[0],
               [2],
               [0]], dtype=int32)
    """
    with name_scope(None, "resize_image_with_crop_or_pad", [image]):
        batch, single = as_batch(image, unranked_is_single=True)
        checks = [
            *_at_least(target_width, 1, "target_width must be > 0."),
            *_at_least(target_height, 1, "target_height must be > 0."),
        ]
        batch = with_dependencies(checks, batch)
        height, width = image_size(batch)
        extra = [_difference(target_height, height), _difference(target_width, width)]
        top, left = (_half_positive(_negative(e)) for e in extra)
        kept = _smaller(target_height, height), _smaller(target_width, width)
        cropped = crop_to_bounding_box(batch, top, left, *kept)
        above, before = (_half_positive(e) for e in extra)
        padded = pad_to_bounding_box(cropped, above, before, target_height, target_width)
        padded.set_shape([batch.shape[0], _number(target_height), _number(target_width), batch.shape[3]])
        return from_batch(padded, single)


resize_with_crop_or_pad = resize_image_with_crop_or_pad


def _negative(value: TensorLike) -> Any:
    return raw.Neg(value) if isinstance(value, Tensor) else -value


def _half_positive(value: TensorLike) -> Any:
    """max(0, value // 2)."""
    if isinstance(value, Tensor):
        return raw.Maximum(raw.FloorDiv(value, np.int32(2)), np.int32(0))
    return np.int32(max(0, value // 2))


def _smaller(a: TensorLike, b: TensorLike) -> Any:
    known = [_number(v) for v in (a, b)]
    if known[0] is not None and known[1] is not None:
        return np.int32(min(known[0], known[1]))
    return raw.Minimum(convert_to_tensor(a, dtypes.int32), convert_to_tensor(b, dtypes.int32))


def central_crop(image: TensorLike, central_fraction: float) -> Tensor:
    """The middle of an image: both sides keep the fraction.

    Raises:
        ValueError: the fraction is not in (0, 1].
    """
    with name_scope(None, "central_crop", [image]):
        image = convert_to_tensor(image, name="image")
        if central_fraction <= 0.0 or central_fraction > 1.0:
            raise ValueError("central_fraction must be within (0, 1]")
        if central_fraction == 1.0:
            whole: Tensor = image
            return whole
        batch, single = as_batch(image)
        starts = [_start(n, central_fraction) for n in image_size(batch)]
        sizes = [_difference(n, _twice(s)) for n, s in zip(image_size(batch), starts, strict=True)]
        cropped = raw.Slice(batch, raw.Pack(_int32s(0, *starts, 0)), raw.Pack(_int32s(-1, *sizes, -1)))
        return from_batch(cropped, single)


def _start(length: TensorLike, fraction: float) -> Any:
    if not isinstance(length, Tensor):
        return np.int32((length - length * fraction) / 2)
    exact = raw.Cast(length, DstT=dtypes.float64)
    return raw.Cast(raw.Mul(exact, np.float64((1 - fraction) / 2)), DstT=dtypes.int32)


def _twice(value: TensorLike) -> Any:
    return raw.Add(value, value) if isinstance(value, Tensor) else 2 * value


def random_crop(value: TensorLike, size: TensorLike, seed: int | None = None, name: str | None = None) -> Tensor:
    """A random slice of the given size.

    Args:
        value: any tensor.
        size: a vector with one length per axis.
        seed: of the place.
        name: of the operation.

    Returns:
        A tensor of shape `size` and of the dtype of `value`.

    Raises:
        InvalidArgumentError: when run, if the size is larger than the tensor.

    Example:
        >>> sess.run(tf.shape(tf.random_crop(tf.zeros([10, 10, 3]), [4, 4, 3])))
        array([4, 4, 3], dtype=int32)
    """
    with name_scope(name, "random_crop", [value, size]) as scope:
        value = convert_to_tensor(value, name="value")
        size = convert_to_tensor(size, dtypes.int32, name="size")
        shape = raw.Shape(value)
        fits = assert_greater_equal(shape, size, message="Need value.shape >= size")
        shape = with_dependencies([fits], shape)
        limit = raw.Add(raw.Sub(shape, size), np.int32(1))
        drawn = random_uniform(raw.Shape(shape), dtype=dtypes.int32, maxval=dtypes.int32.max, seed=seed)
        result: Tensor = raw.Slice(value, raw.FloorMod(drawn, limit), size, name=scope)
        return result


# ---------------------------------------------------------------------- mirroring and turning
def flip_left_right(image: TensorLike) -> Tensor:
    """Mirrors along the width."""
    return _flipped(image, -2, "flip_left_right")


def flip_up_down(image: TensorLike) -> Tensor:
    """Mirrors along the height."""
    return _flipped(image, -3, "flip_up_down")


def _flipped(image: TensorLike, axis: int, scope_name: str) -> Tensor:
    with name_scope(None, scope_name, [image]):
        image = convert_to_tensor(image, name="image")
        image.shape.with_rank_at_least(3)
        result: Tensor = raw.ReverseV2(image, np.array([axis], np.int32))
        result.set_shape([None] * 3 if image.shape.ndims is None else image.shape)
        return result


def random_flip_left_right(image: TensorLike, seed: int | None = None) -> Tensor:
    """Mirrors along the width with probability 1/2; each image of a batch on its own.

    Args:
        image: [height, width, channels], or a batch of them; any dtype.
        seed: of the choice.

    Returns:
        A tensor of the shape and dtype of `image`.

    Raises:
        ValueError: `image` has another rank.

    Example:
        >>> row = sess.run(tf.image.random_flip_left_right([[[1], [2]]]))[0, :, 0].tolist()
        >>> row in ([1, 2], [2, 1])
        True
    """
    return _randomly_flipped(image, flip_left_right, seed, "random_flip_left_right")


def random_flip_up_down(image: TensorLike, seed: int | None = None) -> Tensor:
    """Mirrors along the height with probability 1/2; each image of a batch on its own."""
    return _randomly_flipped(image, flip_up_down, seed, "random_flip_up_down")


def _randomly_flipped(image: TensorLike, flip: Callable[[Any], Tensor], seed: int | None, scope_name: str) -> Tensor:
    with name_scope(None, scope_name, [image]):
        image = convert_to_tensor(image, name="image")
        rank = image.shape.ndims
        if rank not in (3, 4, None):
            raise ValueError(f"'image' must have either 3 or 4 dimensions, got shape {image.shape}")
        count = [] if rank != 4 else [raw.GatherV2(raw.Shape(image), np.int32(0), np.int32(0)), 1, 1, 1]
        drawn = random_uniform(count, 0, 1.0, seed=seed)
        result: Tensor = raw.SelectV2(raw.Less(drawn, np.float32(0.5)), flip(image), image)
        result.set_shape([None] * 3 if image.shape.ndims is None else image.shape)
        return result


def transpose_image(image: TensorLike, name: str | None = None) -> Tensor:
    """Exchanges height and width."""
    with name_scope(name, "transpose", [image]):
        image = convert_to_tensor(image, name="image")
        order = [0, 2, 1, 3] if image.shape.with_rank_at_least(3).ndims == 4 else [1, 0, 2]
        result: Tensor = raw.Transpose(image, np.array(order, np.int32))
        return result


def rot90(image: TensorLike, k: TensorLike = 1, name: str | None = None) -> Tensor:
    """Turns counter-clockwise by k quarters.

    Args:
        k: a number, or a scalar integer tensor (then the result's size is known only when run).
    """
    with name_scope(name, "rot90", [image, k]):
        image = convert_to_tensor(image, name="image")
        turns = convert_to_tensor(k, dtypes.int32, name="k")
        turns.shape.assert_has_rank(0)
        known = constant_value(turns)
        if known is not None:
            return _turned(image, int(known) % 4)
        quarter = raw.FloorMod(turns, np.int32(4))
        assert_non_negative(quarter)
        result: Tensor = image
        for times in (1, 2, 3):
            turned, kept = functools.partial(_turned, image, times), functools.partial(_same, result)
            result = cond(raw.Equal(quarter, np.int32(times)), turned, kept)
        return result


def _same(image: Tensor) -> Tensor:
    return image


def _turned(image: Tensor, quarters: int) -> Tensor:
    if quarters == 0:
        return image
    if quarters == 1:
        return transpose_image(flip_left_right(image))
    if quarters == 2:
        return flip_up_down(flip_left_right(image))
    return flip_left_right(transpose_image(image))
