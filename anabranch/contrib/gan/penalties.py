"""Penalties and losses that are added to those of generators and discriminators, of single tensors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import anabranch as tf
from anabranch.contrib.arguments import PassedOn, TensorLike

_LOSSES = tf.GraphKeys.LOSSES
_BY_NONZERO = tf.losses.Reduction.SUM_BY_NONZERO_WEIGHTS


def wasserstein_gradient_penalty(
    real_data: TensorLike,
    generated_data: TensorLike,
    generator_inputs: PassedOn,
    discriminator_fn: Callable[..., Any],
    discriminator_scope: str | tf.VariableScope | None,
    epsilon: float = 1e-10,
    target: TensorLike = 1.0,
    one_sided: bool = False,
    weights: TensorLike = 1.0,
    scope: str | None = None,
    loss_collection: str | None = _LOSSES,
    reduction: str = _BY_NONZERO,
    add_summaries: bool = False,
) -> tf.Tensor:
    """How far the norm of the discriminator's gradient is from a target, squared, between real and generated data.

    Args:
        real_data, generated_data: batches of one shape; the gradient is taken at a random point between each two.
        generator_inputs: what the discriminator is called with besides.
        discriminator_fn: gives logits, or a tuple that begins with them.
        discriminator_scope: of its variables, which are used again.
        epsilon: added to the square of the norm.
        target: the norm.
        one_sided: whether smaller norms are right too.
        weights, scope, loss_collection, reduction, add_summaries: as for losses.

    Raises:
        ValueError: the rank of data is not known.
    """
    with tf.name_scope(scope, "wasserstein_gradient_penalty", [real_data, generated_data]) as name:
        real, generated = tf.convert_to_tensor(real_data), tf.convert_to_tensor(generated_data)
        for argument, data in (("real_data", real), ("generated_data", generated)):
            if data.shape.ndims is None:
                raise ValueError(f"`{argument}` can't have unknown rank.")
        way = generated - real
        length = way.shape.as_list()[0]
        batch = tf.shape(way)[0] if length is None else length
        rank = real.shape.ndims or 0
        between = real + tf.random_uniform([batch] + [1] * (rank - 1)) * way
        # updates of the discriminator's layers are found by the names of its scope
        with tf.name_scope(None), tf.variable_scope(discriminator_scope, "gpenalty_dscope", reuse=tf.AUTO_REUSE):
            outputs = discriminator_fn(between, generator_inputs)
        outputs = outputs[0] if isinstance(outputs, tuple) else outputs
        (gradient,) = tf.gradients(outputs, between)
        squares = tf.reduce_sum(tf.square(gradient), list(range(1, rank)))
        if length is not None:
            squares.set_shape([length])
        off = tf.sqrt(squares + epsilon) / target - 1.0
        if one_sided:
            off = tf.maximum(0.0, off)
        penalty = tf.losses.compute_weighted_loss(tf.square(off), weights, name, loss_collection, reduction)
        if add_summaries:
            tf.summary.scalar("gradient_penalty_loss", penalty)
    return penalty


def mutual_information_penalty(
    structured_generator_inputs: Sequence[Any],
    predicted_distributions: Sequence[Any],
    weights: TensorLike = 1.0,
    scope: str | None = None,
    loss_collection: str | None = _LOSSES,
    reduction: str = _BY_NONZERO,
    add_summaries: bool = False,
) -> tf.Tensor:
    """How unlikely the discriminator's distributions hold what data were made from: minus the mean of log p.

    Args:
        structured_generator_inputs: tensors.
        predicted_distributions: as many distributions.
        weights, scope, loss_collection, reduction, add_summaries: as for losses.

    Raises:
        ValueError: there are not as many of both, or something is no distribution.
    """
    if not isinstance(predicted_distributions, list | tuple):
        raise ValueError(f"`distributions` must be a list or tuple. Instead, found {type(predicted_distributions)}.")
    for one in predicted_distributions:
        if not callable(getattr(one, "log_prob", None)):
            raise ValueError(f"`distributions` must be a list of `Distributions`. Instead, found {type(one)}.")
    if len(structured_generator_inputs) != len(predicted_distributions):
        raise ValueError(
            f"`structured_generator_inputs` length {len(structured_generator_inputs)} must be the same as "
            f"`predicted_distributions` length {len(predicted_distributions)}."
        )
    with tf.name_scope(scope, "mutual_information_loss") as name:
        means = [
            tf.reduce_mean(distribution.log_prob(noise))
            for distribution, noise in zip(predicted_distributions, structured_generator_inputs, strict=True)
        ]
        loss = -tf.losses.compute_weighted_loss(tf.stack(means), weights, name, loss_collection, reduction)
        if add_summaries:
            tf.summary.scalar("mutual_information_penalty", loss)
    return loss


def combine_adversarial_loss(
    main_loss: tf.Tensor,
    adversarial_loss: tf.Tensor,
    weight_factor: TensorLike | None = None,
    gradient_ratio: TensorLike | None = None,
    gradient_ratio_epsilon: float = 1e-6,
    variables: Sequence[tf.Variable] | None = None,
    scalar_summaries: bool = True,
    gradient_summaries: bool = True,
    scope: str | None = None,
) -> tf.Tensor:
    """A loss and an adversarial one together, with a factor, or so that their gradients have a ratio.

    Args:
        main_loss, adversarial_loss: scalars.
        weight_factor: of the adversarial loss.
        gradient_ratio: the norm of the main loss's gradient by that of the other; exactly one of the two is given.
        gradient_ratio_epsilon: added to the norm that is divided by.
        variables: whose gradients count; default: all that are trained.
        scalar_summaries, gradient_summaries: whether losses and norms of gradients are written.
        scope: the name of the operations.

    Raises:
        ValueError: a loss is no scalar; both a factor and a ratio are given, or neither.
    """
    for loss in (main_loss, adversarial_loss):
        loss.shape.assert_is_compatible_with([])
    if (weight_factor is None) == (gradient_ratio is None):
        both = "both be `None.`" if weight_factor is None else "both be specified."
        raise ValueError(f"`weight_factor` and `gradient_ratio` cannot {both}")
    own = tf.trainable_variables() if variables is None else list(variables)
    with tf.name_scope(scope, "adversarial_loss", [main_loss, adversarial_loss]):
        if scalar_summaries:
            tf.summary.scalar("main_loss", main_loss)
            tf.summary.scalar("adversarial_loss", adversarial_loss)
        of_main, of_adversarial = 0.0, 0.0
        if gradient_summaries or gradient_ratio is not None:
            of_main, of_adversarial = (_norm(tf.gradients(one, own)) for one in (main_loss, adversarial_loss))
        if gradient_summaries:
            tf.summary.scalar("main_loss_gradients", of_main)
            tf.summary.scalar("adversarial_loss_gradients", of_adversarial)
        wanted = weight_factor if gradient_ratio is None else gradient_ratio
        constant = tf.contrib.util.constant_value(tf.convert_to_tensor(wanted))
        if constant is not None and constant == 0:
            return main_loss
        if gradient_ratio is None:
            factor: Any = wanted
        else:
            factor = of_main / (of_adversarial + gradient_ratio_epsilon) / gradient_ratio
            tf.summary.scalar("adversarial_coefficient", factor)
        return main_loss + tf.stop_gradient(tf.convert_to_tensor(factor)) * adversarial_loss


def _norm(tensors: Sequence[Any]) -> Any:
    """The norm of all numbers, taken after a division by the largest so that squares do not overflow."""
    there = [one for one in tensors if one is not None]
    if not there:
        return 0.0
    largest = tf.reduce_max(tf.stack([tf.reduce_max(tf.abs(one)) for one in there]))
    return largest * tf.global_norm([one / largest for one in there])


def cycle_consistency_loss(
    data_x: TensorLike,
    reconstructed_data_x: TensorLike,
    data_y: TensorLike,
    reconstructed_data_y: TensorLike,
    scope: str | None = None,
    add_summaries: bool = False,
) -> tf.Tensor:
    """The mean of the absolute differences between data and what they became there and back, of both kinds."""
    given = [data_x, reconstructed_data_x, data_y, reconstructed_data_y]
    with tf.name_scope(scope, "cycle_consistency_loss", given):
        of_x = tf.losses.absolute_difference(data_x, reconstructed_data_x)
        of_y = tf.losses.absolute_difference(data_y, reconstructed_data_y)
        loss = (of_x + of_y) / 2.0
        if add_summaries:
            tf.summary.scalar("cycle_consistency_loss_x2x", of_x)
            tf.summary.scalar("cycle_consistency_loss_y2y", of_y)
            tf.summary.scalar("cycle_consistency_loss", loss)
    return loss
