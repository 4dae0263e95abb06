"""The sliced Wasserstein distance between patches of pictures, on each level of a Laplacian pyramid."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

import anabranch as tf

#: one dimension of the filter by which pictures are made smaller and larger
_BINOMIAL: Final = np.array([1.0, 4.0, 6.0, 4.0, 1.0], np.float32) / 16.0


def sliced_wasserstein_distance(
    real_images: tf.Tensor,
    fake_images: tf.Tensor,
    resolution_min: int = 16,
    patches_per_image: int = 64,
    patch_size: int = 7,
    random_sampling_count: int = 1,
    random_projection_dim: int = 7 * 7 * 3,
    use_svd: bool = False,
) -> list[tuple[Any, Any]]:
    """How far pictures are from others, in random projections of random patches, from the finest level on.

    Args:
        real_images, fake_images: [batch, size, size, 3], of one shape, which is known but for the batch.
        resolution_min: the size of the coarsest level.
        patches_per_image: how many are drawn from each picture of a level.
        patch_size: their length, odd.
        random_sampling_count, random_projection_dim: how many times patches are projected, and to how many dimensions.
        use_svd: project to singular vectors instead.

    Returns:
        For each level the distances between real pictures and other patches of them, and between real and other ones.

    Raises:
        ValueError: shapes are others.
    """
    size = int(real_images.shape[1])
    real_images.shape.assert_is_compatible_with([None, None, size, 3])
    fake_images.shape.assert_is_compatible_with(real_images.shape)
    levels = int(np.log2(size)) - int(np.log2(min(resolution_min, size))) + 1
    scores = []
    pyramids = zip(_pyramid(real_images, levels), _pyramid(fake_images, levels), strict=True)
    for real, fake in pyramids:
        ours, again, others = (_patches(level, patches_per_image, patch_size) for level in (real, real, fake))
        if use_svd:
            scores.append((_along_singular_vectors(ours, again), _along_singular_vectors(ours, others)))
        else:
            scores.append(
                (
                    _projected(ours, again, random_sampling_count, random_projection_dim),
                    _projected(ours, others, random_sampling_count, random_projection_dim),
                )
            )
    return scores


def _filtered(images: tf.Tensor, gain: float) -> Any:
    kernel = (np.outer(_BINOMIAL, _BINOMIAL) * gain)[:, :, None, None] * np.ones([1, 1, 3, 1], np.float32)
    padded = tf.pad(images, [[0, 0], [2, 2], [2, 2], [0, 0]], "REFLECT")
    return tf.nn.depthwise_conv2d(padded, kernel.astype(np.float32), [1, 1, 1, 1], "VALID")


def _pyramid(images: tf.Tensor, levels: int) -> list[Any]:
    """What each level has beyond the next coarser one; the last one is whole."""
    pyramid: list[Any] = [tf.cast(images, tf.float32)]
    for _ in range(levels - 1):
        smaller = _filtered(pyramid[-1], 1.0)[:, ::2, ::2]
        height, width = smaller.shape.as_list()[1:3]
        spread = tf.reshape(smaller, [-1, height, 1, width, 1, 3])
        spread = tf.pad(spread, [[0, 0], [0, 0], [0, 1], [0, 0], [0, 1], [0, 0]])
        pyramid[-1] -= _filtered(tf.reshape(spread, [-1, 2 * height, 2 * width, 3]), 4.0)
        pyramid.append(smaller)
    return pyramid


def _patches(images: tf.Tensor, count: int, size: int) -> Any:
    """Patches at random places, normalized, one in each row."""
    half = size // 2
    shape = tf.shape(images)
    total = shape[0] * count
    owner = tf.reshape(tf.range(total) // count, [-1, 1, 1])
    top, left = (tf.random_uniform([total, 1, 1], half, shape[axis] - half, tf.int32) for axis in (1, 2))
    around = tf.range(-half, half + 1)
    rows, columns = top + around[None, :, None], left + around[None, None, :]
    places = tf.stack(tf.broadcast_dynamic_shape(tf.shape(rows), tf.shape(columns)))
    index = tf.stack([one + tf.zeros(places, tf.int32) for one in (owner, rows, columns)], -1)
    patches = tf.gather_nd(images, index)
    mean, variance = tf.nn.moments(patches, [1, 2, 3], keep_dims=True)
    return tf.reshape((patches - mean) / tf.sqrt(variance), [total, size * size * 3])


def _distance(a: tf.Tensor, b: tf.Tensor) -> Any:
    """The mean difference of two samples in one dimension, for each column, and of all columns."""
    first, second = (tf.sort(tf.transpose(one), direction="DESCENDING") for one in (a, b))
    return tf.reduce_mean(tf.abs(first - second))


def _projected(a: tf.Tensor, b: tf.Tensor, count: int, dimensions: int) -> Any:
    distances = []
    for _ in range(count):
        directions = tf.random_normal([tf.shape(a)[1], dimensions])
        directions *= tf.rsqrt(tf.reduce_sum(tf.square(directions), 0, keepdims=True))
        distances.append(_distance(tf.matmul(a, directions), tf.matmul(b, directions)))
    return tf.reduce_mean(tf.stack(distances))


def _along_singular_vectors(a: tf.Tensor, b: tf.Tensor) -> Any:
    values, vectors, _ = tf.svd(tf.concat([a, b], 0))
    return _distance(*tf.split(vectors * values, 2, 0))
