"""`tf.contrib.nn`: losses over some of many classes, and derivatives in one direction."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import anabranch as tf
from anabranch.contrib.arguments import PassedOn, TensorLike

#: classes, and how often the true and those classes were to be expected, as samplers give them
Sampled = tuple[Any, Any, Any]


def sampled_sparse_softmax_loss(
    weights: PassedOn,
    biases: PassedOn,
    labels: TensorLike,
    inputs: TensorLike,
    num_sampled: int,
    num_classes: int,
    sampled_values: Sampled | None = None,
    remove_accidental_hits: bool = True,
    partition_strategy: str = "mod",
    name: str = "sampled_sparse_softmax_loss",
) -> tf.Tensor:
    """The loss of `tf.nn.sampled_softmax_loss` for one true class of each example.

    Args:
        weights: float [num_classes, dim], or a list of parts.
        biases: float [num_classes].
        labels: int64 [batch_size, 1].
        inputs: float [batch_size, dim].
        num_sampled: int: how many classes are drawn.
        num_classes: int.
        sampled_values: what a candidate sampler gave; None: one whose classes are log-uniform.
        remove_accidental_hits: whether a class that was drawn and is true does not count.
        partition_strategy: "mod" or "div": how `weights` was cut.
        name: of the operations.

    Returns:
        float [batch_size].
    """
    losses: tf.Tensor = tf.nn.sampled_softmax_loss(
        weights=weights,
        biases=biases,
        labels=labels,
        inputs=inputs,
        num_sampled=num_sampled,
        num_classes=num_classes,
        num_true=1,
        sampled_values=sampled_values,
        remove_accidental_hits=remove_accidental_hits,
        partition_strategy=partition_strategy,
        name=name,
    )
    return losses


def rank_sampled_softmax_loss(
    weights: PassedOn,
    biases: PassedOn,
    labels: TensorLike,
    inputs: TensorLike,
    num_sampled: int,
    num_resampled: int,
    num_classes: int,
    num_true: int,
    sampled_values: Sampled | None,
    resampling_temperature: TensorLike,
    remove_accidental_hits: bool,
    partition_strategy: str,
    name: str | None = None,
) -> tf.Tensor:
    """The loss of `tf.nn.sampled_softmax_loss` over those drawn classes that inputs are nearest to (Bai et al. 2017).

    Args:
        num_sampled: int: how many classes are drawn.
        num_resampled: int: how many of them, whose sum over the batch of exp(logit / temperature) is largest, count.
        num_true: int: how many classes of each example are true.
        sampled_values: what a candidate sampler gave; None: one that learns how frequent classes are.
        resampling_temperature: float scalar.
        weights, biases, inputs, num_classes, remove_accidental_hits, partition_strategy, name: as
            `sampled_sparse_softmax_loss` has them.
        labels: int64 [batch_size, num_true].

    Returns:
        float [batch_size].

    Raises:
        ValueError: there are not more classes than are drawn, nor more drawn than count, or another strategy.
    """
    if num_sampled > num_classes:
        raise ValueError(f"num_sampled ({num_sampled}) cannot be greater than num_classes ({num_classes})")
    if num_sampled <= num_resampled:
        raise ValueError(f"num_resampled ({num_resampled}) must be less than num_sampled ({num_sampled})")
    if partition_strategy not in ("div", "mod"):
        raise ValueError(f"unsupported partition_strategy ({partition_strategy})")
    with tf.name_scope(name, "rank_sampled_softmax_loss"):
        if sampled_values is None:
            sampled_values = tf.nn.learned_unigram_candidate_sampler(labels, num_true, num_sampled, True, num_classes)
        drawn, true_count, drawn_count = map(tf.stop_gradient, sampled_values)
        drawn = tf.cast(drawn, tf.int64)
        rows = tf.nn.embedding_lookup(weights, drawn, partition_strategy)
        shift = tf.reshape(tf.nn.embedding_lookup(biases, drawn, partition_strategy), [-1])
        near = tf.reduce_logsumexp(tf.matmul(rows, inputs / resampling_temperature, transpose_b=True), axis=1)
        _, kept = tf.nn.top_k(near + shift / resampling_temperature, num_resampled, sorted=False)
        losses: tf.Tensor = tf.nn.sampled_softmax_loss(
            weights=weights,
            biases=biases,
            labels=labels,
            inputs=inputs,
            num_sampled=num_resampled,
            num_classes=num_classes,
            num_true=num_true,
            sampled_values=(tf.gather(drawn, kept), true_count, tf.gather(drawn_count, kept)),
            remove_accidental_hits=remove_accidental_hits,
            partition_strategy=partition_strategy,
        )
        return losses


def fwd_gradients(
    ys: Sequence[tf.Tensor],
    xs: Sequence[tf.Tensor],
    grad_xs: Sequence[TensorLike] | None = None,
    assert_unused: bool = False,
) -> list[Any]:
    """Derivatives of tensors in one direction: the gradient of a gradient that is linear in a factor.

    Args:
        ys: float tensors.
        xs: what they depend on.
        grad_xs: the direction, like `xs`; None: ones.
        assert_unused: whether a step that computes the gradients from which the derivatives are made fails.

    Returns:
        For each of `ys` its derivative, of its shape; None where it depends on none of `xs`.
    """
    # the factors' values are never used, since the first gradient is linear in them; where they are by mistake,
    # the result is no number
    factors = [tf.zeros_like(y) + float("nan") for y in ys]
    dense = [None if g is None else tf.convert_to_tensor(g) for g in tf.gradients(list(ys), list(xs), grad_ys=factors)]
    there = [g for g in dense if g is not None]
    if assert_unused and there:
        with tf.control_dependencies(there):
            refused = tf.Assert(False, [1], name="fwd_gradients")
        with tf.control_dependencies([refused]):
            there = tf.identity_n(there)
    given = None if grad_xs is None else [d for g, d in zip(dense, grad_xs, strict=True) if g is not None]
    derivatives: list[Any] = tf.gradients(there, factors, grad_ys=given) if there else [None] * len(factors)
    return derivatives
