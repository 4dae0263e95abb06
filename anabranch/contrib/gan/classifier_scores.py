"""Scores of generated data by what a classifier makes of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import anabranch as tf

#: singular values below it are taken for 0
_LEAST = 1e-10


def _in_batches(data: tf.Tensor, function: Callable[..., Any], num_batches: int) -> Any:
    """A classifier's outputs for data, batch by batch."""
    batches = tf.stack(tf.split(data, num_batches))
    outputs = tf.map_fn(
        function, batches, parallel_iterations=1, back_prop=False, swap_memory=True, name="RunClassifier"
    )
    return tf.concat(tf.unstack(outputs, num_batches), 0)


def classifier_score(images: tf.Tensor, classifier_fn: Callable[..., Any], num_batches: int = 1) -> tf.Tensor:
    """`classifier_score_from_logits` of a classifier's logits.

    Args:
        images: generated data.
        classifier_fn: gives logits [batch, classes].
        num_batches: how many batches they are classified in.
    """
    return classifier_score_from_logits(_in_batches(images, classifier_fn, num_batches))


def classifier_score_from_logits(logits: tf.Tensor) -> tf.Tensor:
    """The exponential of the mean divergence of the classes of each example from those of all: higher is better.

    Args:
        logits: [examples, classes].
    """
    logits.shape.assert_has_rank(2)
    wide = tf.cast(logits, tf.float64)
    each = tf.nn.softmax(wide)
    whole = tf.reduce_mean(each, 0)
    divergence = tf.reduce_sum(each * (tf.nn.log_softmax(wide) - tf.log(whole)), 1)
    return tf.cast(tf.exp(tf.reduce_mean(divergence)), logits.dtype)


def frechet_classifier_distance(
    real_images: tf.Tensor, generated_images: tf.Tensor, classifier_fn: Callable[..., Any], num_batches: int = 1
) -> tf.Tensor:
    """`frechet_classifier_distance_from_activations` of what a classifier gives for real and for generated data."""
    real, generated = (_in_batches(data, classifier_fn, num_batches) for data in (real_images, generated_images))
    return frechet_classifier_distance_from_activations(real, generated)


def _wide(*activations: tf.Tensor) -> list[tf.Tensor]:
    for one in activations:
        one.shape.assert_has_rank(2)
    return [tf.cast(one, tf.float64) for one in activations]


def mean_only_frechet_classifier_distance_from_activations(
    real_activations: tf.Tensor, generated_activations: tf.Tensor
) -> tf.Tensor:
    """The square of the distance between the means of activations [examples, features]."""
    real, generated = _wide(real_activations, generated_activations)
    distance = tf.reduce_sum(tf.squared_difference(tf.reduce_mean(real, 0), tf.reduce_mean(generated, 0)))
    return tf.cast(distance, real_activations.dtype)


def diagonal_frechet_distance(real_activations: tf.Tensor, generated_activations: tf.Tensor) -> tf.Tensor:
    """The Frechet distance of two normal distributions of independent features."""
    real, generated = _wide(real_activations, generated_activations)
    mean, variance = tf.nn.moments(real, [0])
    other_mean, other_variance = tf.nn.moments(generated, [0])
    spread = tf.squared_difference(tf.sqrt(variance), tf.sqrt(other_variance))
    distance = tf.reduce_sum(tf.squared_difference(mean, other_mean) + spread)
    return tf.cast(distance, real_activations.dtype)


def frechet_classifier_distance_from_activations(
    real_activations: tf.Tensor, generated_activations: tf.Tensor
) -> tf.Tensor:
    """The Frechet distance of two normal distributions, |m - w|² + Tr(C + D - 2 √(C·D)).

    Args:
        real_activations, generated_activations: [examples, features], of whose means m and w and covariances C and D
            the distributions are. With few examples the distance is too long.
    """
    real, generated = _wide(real_activations, generated_activations)
    mean, covariance = _moments(real)
    other_mean, other_covariance = _moments(generated)
    root = _root(covariance)
    shared = tf.trace(_root(tf.matmul(root, tf.matmul(other_covariance, root))))
    distance = tf.reduce_sum(tf.squared_difference(mean, other_mean))
    distance += tf.trace(covariance + other_covariance) - 2.0 * shared
    return tf.cast(distance, real_activations.dtype)


def _moments(activations: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    mean = tf.reduce_mean(activations, 0)
    centered = activations - mean
    count = tf.cast(tf.shape(activations)[0], activations.dtype)
    return mean, tf.matmul(centered, centered, transpose_a=True) / (count - 1)


def _root(matrix: tf.Tensor) -> Any:
    """The symmetric root of a symmetric matrix."""
    values, left, right = tf.svd(matrix)
    roots = tf.where(tf.less(values, _LEAST), values, tf.sqrt(values))
    return tf.matmul(left * roots, right, transpose_b=True)


def kernel_classifier_distance(
    real_images: tf.Tensor,
    generated_images: tf.Tensor,
    classifier_fn: Callable[..., Any],
    num_classifier_batches: int = 1,
    max_block_size: int = 1024,
    dtype: tf.DType | None = None,
) -> tf.Tensor:
    """`kernel_classifier_distance_from_activations` of what a classifier gives."""
    distance, _ = kernel_classifier_distance_and_std(
        real_images, generated_images, classifier_fn, num_classifier_batches, max_block_size, dtype
    )
    return distance


def kernel_classifier_distance_and_std(
    real_images: tf.Tensor,
    generated_images: tf.Tensor,
    classifier_fn: Callable[..., Any],
    num_classifier_batches: int = 1,
    max_block_size: int = 1024,
    dtype: tf.DType | None = None,
) -> tuple[tf.Tensor, tf.Tensor]:
    """`kernel_classifier_distance_and_std_from_activations` of what a classifier gives."""
    real, generated = (
        _in_batches(data, classifier_fn, num_classifier_batches) for data in (real_images, generated_images)
    )
    return kernel_classifier_distance_and_std_from_activations(real, generated, max_block_size, dtype)


def kernel_classifier_distance_from_activations(
    real_activations: tf.Tensor,
    generated_activations: tf.Tensor,
    max_block_size: int = 1024,
    dtype: tf.DType | None = None,
) -> tf.Tensor:
    """The first result of `kernel_classifier_distance_and_std_from_activations`."""
    distance, _ = kernel_classifier_distance_and_std_from_activations(
        real_activations, generated_activations, max_block_size, dtype
    )
    return distance


def kernel_classifier_distance_and_std_from_activations(
    real_activations: tf.Tensor,
    generated_activations: tf.Tensor,
    max_block_size: int = 1024,
    dtype: tf.DType | None = None,
) -> tuple[tf.Tensor, tf.Tensor]:
    """The squared maximum mean discrepancy of activations under the kernel (x·y / features + 1)³, without bias.

    Args:
        real_activations, generated_activations: [examples, features], in random order.
        max_block_size: examples are compared in blocks of at most so many, whose distances are averaged.
        dtype: in which it is computed; default: that of the activations.

    Returns:
        The distance and an estimate of its standard error, which is NaN for a single block.
    """
    for one in (real_activations, generated_activations):
        one.shape.assert_has_rank(2)
    real_activations.shape[1].assert_is_compatible_with(generated_activations.shape[1])
    kind = real_activations.dtype if dtype is None else tf.as_dtype(dtype)
    samples = [tf.cast(one, kind) for one in (real_activations, generated_activations)]
    counts = [tf.shape(one)[0] for one in samples]
    larger = tf.maximum(counts[0], counts[1])
    blocks = (larger + max_block_size - 1) // max_block_size
    features = tf.cast(tf.shape(samples[0])[1], kind)

    def block(index: tf.Tensor) -> Any:
        """The distance of one block of both samples, of which the last ones are one longer where they have to be."""
        parts, sizes = [], []
        for sample, count in zip(samples, counts, strict=True):
            size, rest = count // blocks, count % blocks
            longer = blocks - rest
            begin = index * size + tf.maximum(index - longer, 0)
            length = size + tf.cast(index >= longer, tf.int32)
            parts.append(sample[begin : begin + length])
            sizes.append(tf.cast(length, kind))
        ours, theirs = parts
        distance = -2 * tf.reduce_mean(_kernel(ours, theirs, features))
        for part, size in zip(parts, sizes, strict=True):
            own = _kernel(part, part, features)
            distance += (tf.reduce_sum(own) - tf.trace(own)) / (size * (size - 1))
        return distance

    distances = tf.map_fn(block, tf.range(blocks), dtype=kind, back_prop=False)
    mean, number = tf.reduce_mean(distances), tf.cast(blocks, kind)
    spread = tf.reduce_sum(tf.squared_difference(distances, mean)) / (number - 1)
    return mean, tf.sqrt(spread / number)


def _kernel(x: tf.Tensor, y: tf.Tensor, features: tf.Tensor) -> Any:
    return (tf.matmul(x, y, transpose_b=True) / features + 1) ** 3
