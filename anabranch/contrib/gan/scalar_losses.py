"""Losses of generators and discriminators, from the discriminator's outputs [batch] or [batch, ...].

All of them take the same last arguments: `scope`, the name of their operations; `loss_collection`, to which they are
added, None for none; `reduction`, of `tf.losses.Reduction`; `add_summaries`, whether they are written as scalars.
Weights have the rank of the outputs that they weigh, or 0, and broadcast to them.
"""

from __future__ import annotations

from typing import Any

import anabranch as tf
from anabranch.contrib.arguments import PassedOn, TensorLike

_LOSSES = tf.GraphKeys.LOSSES
_BY_NONZERO = tf.losses.Reduction.SUM_BY_NONZERO_WEIGHTS


def _summaries(wanted: bool, **scalars: PassedOn) -> None:
    if wanted:
        for name, value in scalars.items():
            tf.summary.scalar(name, value)


def _collected(loss: tf.Tensor, collection: str | None) -> tf.Tensor:
    if collection:
        tf.losses.add_loss(loss, collection)
    return loss


def _floats(*tensors: PassedOn) -> list[Any]:
    return [tf.cast(one, tf.float32) for one in tensors]


def _both(real_outputs: PassedOn, gen_outputs: PassedOn) -> list[Any]:
    """Outputs for real and for generated data, as floats of the same shape."""
    real, generated = _floats(real_outputs, gen_outputs)
    real.shape.assert_is_compatible_with(generated.shape)
    return [real, generated]


def wasserstein_generator_loss(
    discriminator_gen_outputs: TensorLike,
    weights: TensorLike = 1.0,
    scope: str | None = None,
    loss_collection: str | None = _LOSSES,
    reduction: str = _BY_NONZERO,
    add_summaries: bool = False,
) -> tf.Tensor:
    """The generator's loss of the Wasserstein distance: -D(G(z))."""
    with tf.name_scope(scope, "generator_wasserstein_loss", [discriminator_gen_outputs, weights]) as name:
        (outputs,) = _floats(discriminator_gen_outputs)
        loss = tf.losses.compute_weighted_loss(-outputs, weights, name, loss_collection, reduction)
        _summaries(add_summaries, generator_wass_loss=loss)
    return loss


def wasserstein_discriminator_loss(
    discriminator_real_outputs: TensorLike,
    discriminator_gen_outputs: TensorLike,
    real_weights: TensorLike = 1.0,
    generated_weights: TensorLike = 1.0,
    scope: str | None = None,
    loss_collection: str | None = _LOSSES,
    reduction: str = _BY_NONZERO,
    add_summaries: bool = False,
) -> tf.Tensor:
    """The discriminator's loss of the Wasserstein distance: D(G(z)) - D(x)."""
    given = [discriminator_real_outputs, discriminator_gen_outputs, real_weights, generated_weights]
    with tf.name_scope(scope, "discriminator_wasserstein_loss", given) as name:
        real, generated = _both(discriminator_real_outputs, discriminator_gen_outputs)
        of_generated = tf.losses.compute_weighted_loss(generated, generated_weights, name, None, reduction)
        of_real = tf.losses.compute_weighted_loss(real, real_weights, name, None, reduction)
        loss = _collected(of_generated - of_real, loss_collection)
        _summaries(
            add_summaries,
            discriminator_gen_wass_loss=of_generated,
            discriminator_real_wass_loss=of_real,
            discriminator_wass_loss=loss,
        )
    return loss


def acgan_discriminator_loss(
    discriminator_real_classification_logits: TensorLike,
    discriminator_gen_classification_logits: TensorLike,
    one_hot_labels: TensorLike,
    label_smoothing: float = 0.0,
    real_weights: TensorLike = 1.0,
    generated_weights: TensorLike = 1.0,
    scope: str | None = None,
    loss_collection: str | None = _LOSSES,
    reduction: str = _BY_NONZERO,
    add_summaries: bool = False,
) -> tf.Tensor:
    """The discriminator's loss of classes: cross entropies of real data, with smoothed labels, and of generated."""
    given = [discriminator_real_classification_logits, discriminator_gen_classification_logits, one_hot_labels]
    with tf.name_scope(scope, "acgan_discriminator_loss", given) as name:
        of_generated = tf.losses.softmax_cross_entropy(
            one_hot_labels,
            discriminator_gen_classification_logits,
            weights=generated_weights,
            scope=name,
            loss_collection=None,
            reduction=reduction,
        )
        of_real = tf.losses.softmax_cross_entropy(
            one_hot_labels,
            discriminator_real_classification_logits,
            weights=real_weights,
            label_smoothing=label_smoothing,
            scope=name,
            loss_collection=None,
            reduction=reduction,
        )
        loss = _collected(of_generated + of_real, loss_collection)
        _summaries(
            add_summaries,
            discriminator_gen_ac_loss=of_generated,
            discriminator_real_ac_loss=of_real,
            discriminator_ac_loss=loss,
        )
    return loss


def acgan_generator_loss(
    discriminator_gen_classification_logits: TensorLike,
    one_hot_labels: TensorLike,
    weights: TensorLike = 1.0,
    scope: str | None = None,
    loss_collection: str | None = _LOSSES,
    reduction: str = _BY_NONZERO,
    add_summaries: bool = False,
) -> tf.Tensor:
    """The generator's loss of classes: the cross entropy of what it made."""
    given = [discriminator_gen_classification_logits, one_hot_labels]
    with tf.name_scope(scope, "acgan_generator_loss", given) as name:
        loss = tf.losses.softmax_cross_entropy(
            one_hot_labels,
            discriminator_gen_classification_logits,
            weights=weights,
            scope=name,
            loss_collection=loss_collection,
            reduction=reduction,
        )
        _summaries(add_summaries, generator_ac_loss=loss)
    return loss


def minimax_discriminator_loss(
    discriminator_real_outputs: TensorLike,
    discriminator_gen_outputs: TensorLike,
    label_smoothing: float = 0.25,
    real_weights: TensorLike = 1.0,
    generated_weights: TensorLike = 1.0,
    scope: str | None = None,
    loss_collection: str | None = _LOSSES,
    reduction: str = _BY_NONZERO,
    add_summaries: bool = False,
) -> tf.Tensor:
    """-log sigmoid(D(x)) - log(1 - sigmoid(D(G(z)))), with labels of real data smoothed."""
    given = [discriminator_real_outputs, discriminator_gen_outputs, real_weights, generated_weights, label_smoothing]
    with tf.name_scope(scope, "discriminator_minimax_loss", given) as name:
        of_real = tf.losses.sigmoid_cross_entropy(
            tf.ones_like(discriminator_real_outputs),
            discriminator_real_outputs,
            real_weights,
            label_smoothing,
            name,
            None,
            reduction,
        )
        of_generated = tf.losses.sigmoid_cross_entropy(
            tf.zeros_like(discriminator_gen_outputs),
            discriminator_gen_outputs,
            generated_weights,
            scope=name,
            loss_collection=None,
            reduction=reduction,
        )
        loss = _collected(of_real + of_generated, loss_collection)
        _summaries(
            add_summaries,
            discriminator_gen_minimax_loss=of_generated,
            discriminator_real_minimax_loss=of_real,
            discriminator_minimax_loss=loss,
        )
    return loss


def minimax_generator_loss(
    discriminator_gen_outputs: TensorLike,
    label_smoothing: float = 0.0,
    weights: TensorLike = 1.0,
    scope: str | None = None,
    loss_collection: str | None = _LOSSES,
    reduction: str = _BY_NONZERO,
    add_summaries: bool = False,
) -> tf.Tensor:
    """The negative of the discriminator's loss, in which an output of 1 stands for real data."""
    with tf.name_scope(scope, "generator_minimax_loss") as name:
        loss = -minimax_discriminator_loss(
            tf.ones_like(discriminator_gen_outputs),
            discriminator_gen_outputs,
            label_smoothing,
            weights,
            weights,
            name,
            loss_collection,
            reduction,
        )
    _summaries(add_summaries, generator_minimax_loss=loss)
    return loss


def modified_discriminator_loss(
    discriminator_real_outputs: TensorLike,
    discriminator_gen_outputs: TensorLike,
    label_smoothing: float = 0.25,
    real_weights: TensorLike = 1.0,
    generated_weights: TensorLike = 1.0,
    scope: str | None = None,
    loss_collection: str | None = _LOSSES,
    reduction: str = _BY_NONZERO,
    add_summaries: bool = False,
) -> tf.Tensor:
    """The same as `minimax_discriminator_loss`; the generator's loss is the modified one."""
    return minimax_discriminator_loss(
        discriminator_real_outputs,
        discriminator_gen_outputs,
        label_smoothing,
        real_weights,
        generated_weights,
        scope or "discriminator_modified_loss",
        loss_collection,
        reduction,
        add_summaries,
    )


def modified_generator_loss(
    discriminator_gen_outputs: TensorLike,
    label_smoothing: float = 0.0,
    weights: TensorLike = 1.0,
    scope: str | None = None,
    loss_collection: str | None = _LOSSES,
    reduction: str = _BY_NONZERO,
    add_summaries: bool = False,
) -> tf.Tensor:
    """-log sigmoid(D(G(z))), whose gradient does not vanish at the beginning."""
    with tf.name_scope(scope, "generator_modified_loss", [discriminator_gen_outputs]) as name:
        loss = tf.losses.sigmoid_cross_entropy(
            tf.ones_like(discriminator_gen_outputs),
            discriminator_gen_outputs,
            weights,
            label_smoothing,
            name,
            loss_collection,
            reduction,
        )
        _summaries(add_summaries, generator_modified_loss=loss)
    return loss


def least_squares_generator_loss(
    discriminator_gen_outputs: TensorLike,
    real_label: float = 1,
    weights: TensorLike = 1.0,
    scope: str | None = None,
    loss_collection: str | None = _LOSSES,
    reduction: str = _BY_NONZERO,
    add_summaries: bool = False,
) -> tf.Tensor:
    """Half the square of what is between the output for generated data and that for real data."""
    with tf.name_scope(scope, "lsq_generator_loss", [discriminator_gen_outputs, real_label]) as name:
        (outputs,) = _floats(discriminator_gen_outputs)
        squares = tf.squared_difference(outputs, real_label) / 2.0
        loss = tf.losses.compute_weighted_loss(squares, weights, name, loss_collection, reduction)
    _summaries(add_summaries, generator_lsq_loss=loss)
    return loss


def least_squares_discriminator_loss(
    discriminator_real_outputs: TensorLike,
    discriminator_gen_outputs: TensorLike,
    real_label: float = 1,
    fake_label: float = 0,
    real_weights: TensorLike = 1.0,
    generated_weights: TensorLike = 1.0,
    scope: str | None = None,
    loss_collection: str | None = _LOSSES,
    reduction: str = _BY_NONZERO,
    add_summaries: bool = False,
) -> tf.Tensor:
    """Half the squares of what is between outputs and the labels of real and of generated data."""
    with tf.name_scope(scope, "lsq_discriminator_loss", [discriminator_gen_outputs, real_label]) as name:
        real, generated = _both(discriminator_real_outputs, discriminator_gen_outputs)
        of_real, of_generated = (
            tf.losses.compute_weighted_loss(tf.squared_difference(x, label) / 2.0, weights, name, None, reduction)
            for x, label, weights in ((real, real_label, real_weights), (generated, fake_label, generated_weights))
        )
        loss = _collected(of_real + of_generated, loss_collection)
    _summaries(
        add_summaries,
        discriminator_gen_lsq_loss=of_generated,
        discriminator_real_lsq_loss=of_real,
        discriminator_lsq_loss=loss,
    )
    return loss
