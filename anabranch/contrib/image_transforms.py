"""`tf.contrib.image`: projective transforms of images.

A transform has eight numbers `a0, a1, a2, b0, b1, b2, c0, c1`: what stands at (x, y) of the output is taken from
((a0 x + a1 y + a2) / k, (b0 x + b1 y + b2) / k) of the input, with k = c0 x + c1 y + 1. Beyond the input all is 0.
"""

from __future__ import annotations

from typing import Any

import anabranch as tf
from anabranch.contrib.arguments import TensorLike


def transform(
    images: TensorLike,
    transforms: TensorLike,
    interpolation: str = "NEAREST",
    output_shape: TensorLike | None = None,
    name: str | None = None,
) -> tf.Tensor:
    """Images seen through projective transforms.

    Args:
        images: [batch, height, width, channels], [height, width, channels] or [height, width]; any numbers.
        transforms: float32 [8] or [batch, 8].
        interpolation: "NEAREST" or "BILINEAR".
        output_shape: int32 [2], height and width; None: those of the images.

    Returns:
        The same dtype, and rank, as `images`.

    Raises:
        TypeError: the rank of `images` is not known, or none of these.
        ValueError: `interpolation` is not known.
    """
    with tf.name_scope(name, "transform", [images]):
        images = tf.convert_to_tensor(images, name="images")
        rank = images.shape.ndims
        if rank not in (2, 3, 4):
            raise TypeError(f"images must have a known rank of 2, 3 or 4, got shape {images.shape}")
        if interpolation.upper() not in ("NEAREST", "BILINEAR"):
            raise ValueError(f"interpolation must be NEAREST or BILINEAR, got {interpolation!r}")
        batch = images[tf.newaxis, :, :, tf.newaxis] if rank == 2 else images[tf.newaxis] if rank == 3 else images
        flat = tf.convert_to_tensor(transforms, dtype=tf.float32, name="transforms")
        if flat.shape.ndims == 1:
            flat = flat[tf.newaxis]
        size = tf.shape(batch)[1:3] if output_shape is None else tf.convert_to_tensor(output_shape, tf.int32)
        seen = _seen(batch, flat, size, interpolation.upper() == "BILINEAR")
        height, width = batch.shape.as_list()[1:3]
        if output_shape is not None:
            known = tf.get_static_value(size)
            height, width = (None, None) if known is None else (int(n) for n in known)
        seen.set_shape([batch.shape[0], height, width, batch.shape[3]])
        result: tf.Tensor = seen[0, :, :, 0] if rank == 2 else seen[0] if rank == 3 else seen
        return result


def _seen(images: TensorLike, flat: TensorLike, size: TensorLike, bilinear: bool) -> Any:
    columns, rows = tf.meshgrid(tf.cast(tf.range(size[1]), tf.float32), tf.cast(tf.range(size[0]), tf.float32))
    a0, a1, a2, b0, b1, b2, c0, c1 = (each[:, :, tf.newaxis] for each in tf.split(flat, 8, axis=1))
    depth = c0 * columns + c1 * rows + 1.0
    x, y = (a0 * columns + a1 * rows + a2) / depth, (b0 * columns + b1 * rows + b2) / depth
    shape = tf.concat([tf.shape(images)[:1], size], 0)
    x, y = tf.broadcast_to(x, shape), tf.broadcast_to(y, shape)
    if not bilinear:
        return _at(images, tf.round(x), tf.round(y))
    left, top = tf.floor(x), tf.floor(y)
    kind = images.dtype if images.dtype.is_floating else tf.float32
    sums = 0.0
    for dx in (0.0, 1.0):
        for dy in (0.0, 1.0):
            weight = (1.0 - tf.abs(x - left - dx)) * (1.0 - tf.abs(y - top - dy))
            sums += tf.cast(weight, kind)[..., tf.newaxis] * tf.cast(_at(images, left + dx, top + dy), kind)
    return tf.cast(sums, images.dtype)


def _at(images: TensorLike, x: TensorLike, y: TensorLike) -> Any:
    """The pixels at whole numbers, which may lie outside or not be finite."""
    height, width = (tf.cast(tf.shape(images)[axis], tf.float32) for axis in (1, 2))
    inside = (x >= 0) & (x < width) & (y >= 0) & (y < height)
    column, row = (tf.cast(tf.where(inside, v, tf.zeros_like(v)), tf.int32) for v in (x, y))
    batch = tf.broadcast_to(tf.range(tf.shape(images)[0])[:, tf.newaxis, tf.newaxis], tf.shape(column))
    # a pixel that is outside is not looked for: there may be none at all
    known = tf.pad(images, [[0, 0], [0, 1], [0, 1], [0, 0]])
    pixels = tf.gather_nd(known, tf.stack([batch, row, column], -1))
    return tf.where(tf.broadcast_to(inside[..., tf.newaxis], tf.shape(pixels)), pixels, tf.zeros_like(pixels))


def rotate(
    images: TensorLike, angles: TensorLike, interpolation: str = "NEAREST", name: str | None = None
) -> tf.Tensor:
    """Images turned counterclockwise around their centres.

    Args:
        images: as of `transform`.
        angles: float32 scalar, or [batch]: in radians.
        interpolation: "NEAREST" or "BILINEAR".

    Returns:
        The same shape and dtype.

    Raises:
        TypeError: the rank of `images` is not known, or none of these.
    """
    with tf.name_scope(name, "rotate", [images]):
        images = tf.convert_to_tensor(images, name="images")
        rank = images.shape.ndims
        if rank not in (2, 3, 4):
            raise TypeError(f"images must have a known rank of 2, 3 or 4, got shape {images.shape}")
        first = 1 if rank == 4 else 0
        height, width = (tf.cast(tf.shape(images)[first + axis], tf.float32) for axis in (0, 1))
        return transform(images, angles_to_projective_transforms(angles, height, width), interpolation)


def angles_to_projective_transforms(
    angles: TensorLike, image_height: TensorLike, image_width: TensorLike, name: str | None = None
) -> tf.Tensor:
    """Transforms that turn images counterclockwise around their centres.

    Args:
        angles: float32 scalar, or [images]: in radians.
        image_height, image_width: float32 scalars, in pixels.

    Returns:
        float32 [images, 8].
    """
    with tf.name_scope(name, "angles_to_projective_transforms"):
        angles = tf.reshape(tf.convert_to_tensor(angles, dtype=tf.float32), [-1, 1])
        sine, cosine, zero = tf.sin(angles), tf.cos(angles), tf.zeros_like(angles)
        right, bottom = image_width - 1, image_height - 1
        x = (right - (cosine * right - sine * bottom)) / 2.0
        y = (bottom - (sine * right + cosine * bottom)) / 2.0
        flat: tf.Tensor = tf.concat([cosine, tf.negative(sine), x, sine, cosine, y, zero, zero], 1)
        return flat


def translate(
    images: TensorLike, translations: TensorLike, interpolation: str = "NEAREST", name: str | None = None
) -> tf.Tensor:
    """Images moved to the right and down.

    Args:
        images: as of `transform`.
        translations: float32 [2] or [batch, 2]: by how many pixels.
        interpolation: "NEAREST" or "BILINEAR".

    Returns:
        The same shape and dtype.
    """
    with tf.name_scope(name, "translate", [images]):
        return transform(images, translations_to_projective_transforms(translations), interpolation)


def translations_to_projective_transforms(translations: TensorLike, name: str | None = None) -> tf.Tensor:
    """Transforms that move images, float32 [images, 8], by `translations` [2] or [images, 2]."""
    with tf.name_scope(name, "translations_to_projective_transforms"):
        moves = tf.reshape(tf.convert_to_tensor(translations, dtype=tf.float32), [-1, 2])
        zero, one = tf.zeros_like(moves[:, :1]), tf.ones_like(moves[:, :1])
        flat: tf.Tensor = tf.concat([one, zero, -moves[:, :1], zero, one, -moves[:, 1:], zero, zero], 1)
        return flat


def compose_transforms(*transforms: TensorLike) -> tf.Tensor:
    """One transform for several, of which the first is applied to the images first; each [8] or [images, 8].

    Raises:
        ValueError: there is none.
    """
    if not transforms:
        raise ValueError("compose_transforms needs a transform")
    composed = flat_transforms_to_matrices(transforms[0])
    for other in transforms[1:]:
        composed = tf.linalg.matmul(composed, flat_transforms_to_matrices(other))
    return matrices_to_flat_transforms(composed)


def flat_transforms_to_matrices(transforms: TensorLike) -> tf.Tensor:
    """[8] or [images, 8] -> matrices [images, 3, 3], the last element of each being 1."""
    flat = tf.reshape(tf.convert_to_tensor(transforms, dtype=tf.float32), [-1, 8])
    matrices: tf.Tensor = tf.reshape(tf.concat([flat, tf.ones_like(flat[:, :1])], 1), [-1, 3, 3])
    return matrices


def matrices_to_flat_transforms(transform_matrices: TensorLike) -> tf.Tensor:
    """Matrices [3, 3] or [images, 3, 3] -> [images, 8], divided by their last elements."""
    flat = tf.reshape(tf.convert_to_tensor(transform_matrices, dtype=tf.float32), [-1, 9])
    transforms: tf.Tensor = (flat / flat[:, 8:9])[:, :8]
    return transforms
