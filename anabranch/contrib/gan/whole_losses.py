"""The losses of a model: those of its generator and discriminator, with penalties, regularization and a pool."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import anabranch as tf
from anabranch.contrib.arguments import PassedOn, TensorLike
from anabranch.contrib.gan import model_losses, penalties, scalar_losses
from anabranch.contrib.gan.namedtuples import (
    ACGANModel,
    CycleGANLoss,
    CycleGANModel,
    GANLoss,
    GANModel,
    InfoGANModel,
    StarGANModel,
)

_LossFn = Callable[..., Any]
_STARGAN_GENERATOR_LOSS = model_losses.stargan_generator_loss_wrapper(scalar_losses.wasserstein_generator_loss)
_STARGAN_DISCRIMINATOR_LOSS = model_losses.stargan_discriminator_loss_wrapper(
    scalar_losses.wasserstein_discriminator_loss
)


def _checked(weight: PassedOn, name: str) -> Any:
    """A weight that is not negative."""
    if isinstance(weight, tf.Tensor):
        weight.shape.assert_is_compatible_with([])
        with tf.control_dependencies([tf.assert_greater_equal(weight, 0.0)]):
            return tf.identity(weight)
    if weight is not None and weight < 0:
        raise ValueError(f"`{name}` must be greater than 0. Instead, was {weight}")
    return weight


def _counts(weight: PassedOn) -> bool:
    return weight is not None and (isinstance(weight, tf.Tensor) or weight > 0)


def _pooled(model: PassedOn, tensor_pool_fn: Callable[[Any], Any]) -> Any:
    """The model with what a pool gives in place of generated data, and the discriminator's outputs for that."""
    if isinstance(model, GANModel | ACGANModel):
        inputs, data = tensor_pool_fn((model.generator_inputs, model.generated_data))
    elif isinstance(model, InfoGANModel):
        inputs, data, structured = tensor_pool_fn(
            (model.generator_inputs, model.generated_data, model.structured_generator_inputs)
        )
    else:
        raise ValueError(f"Tensor pool does not support `model`: {type(model)}.")
    new = model._replace(generator_inputs=inputs, generated_data=data)
    with tf.variable_scope(model.discriminator_scope, reuse=True):
        if isinstance(new, GANModel):
            return new._replace(discriminator_gen_outputs=new.discriminator_fn(data, inputs))
        if isinstance(new, ACGANModel):
            outputs, classes = new.discriminator_fn(data, inputs)
            return new._replace(discriminator_gen_outputs=outputs, discriminator_gen_classification_logits=classes)
        outputs, predicted = new.discriminator_and_aux_fn(data, inputs)
        return new._replace(
            structured_generator_inputs=structured,
            discriminator_gen_outputs=outputs,
            predicted_distributions=predicted,
        )


def gan_loss(
    model: GANModel | ACGANModel | InfoGANModel,
    generator_loss_fn: _LossFn = model_losses.wasserstein_generator_loss,
    discriminator_loss_fn: _LossFn = model_losses.wasserstein_discriminator_loss,
    gradient_penalty_weight: TensorLike | None = None,
    gradient_penalty_epsilon: float = 1e-10,
    gradient_penalty_target: TensorLike = 1.0,
    gradient_penalty_one_sided: bool = False,
    mutual_information_penalty_weight: TensorLike | None = None,
    aux_cond_generator_weight: TensorLike | None = None,
    aux_cond_discriminator_weight: TensorLike | None = None,
    tensor_pool_fn: Callable[[Any], Any] | None = None,
    add_summaries: bool = True,
) -> GANLoss:
    """The losses of generator and discriminator, with the regularization of their variables.

    Args:
        model: what they are of.
        generator_loss_fn, discriminator_loss_fn: losses of models, which take `add_summaries`.
        gradient_penalty_weight: of `wasserstein_gradient_penalty`, which the discriminator's loss gets; its epsilon,
            target and sides are the next arguments.
        mutual_information_penalty_weight: of `mutual_information_penalty`, which both get; for an `InfoGANModel`.
        aux_cond_generator_weight, aux_cond_discriminator_weight: of the losses of classes; for an `ACGANModel`.
        tensor_pool_fn: gives earlier data in place of some, for the discriminator, as `features.tensor_pool`.
        add_summaries: whether losses are written.

    Raises:
        ValueError: a weight is negative, or belongs to another kind of model.
    """
    of_gradient = _checked(gradient_penalty_weight, "gradient_penalty_weight")
    of_information = _checked(mutual_information_penalty_weight, "infogan_weight")
    of_generator = _checked(aux_cond_generator_weight, "aux_cond_generator_weight")
    of_discriminator = _checked(aux_cond_discriminator_weight, "aux_cond_discriminator_weight")
    if _counts(of_information) and not isinstance(model, InfoGANModel):
        raise ValueError(
            "When `mutual_information_penalty_weight` is provided, `model` must be an `InfoGANModel`. Instead, was "
            f"{type(model)}."
        )
    if (_counts(of_generator) or _counts(of_discriminator)) and not isinstance(model, ACGANModel):
        raise ValueError(
            "When `aux_cond_generator_weight` or `aux_cond_discriminator_weight` is provided, `model` must be an "
            f"`ACGANModel`. Instead, was {type(model)}."
        )
    pooled = model if tensor_pool_fn is None else _pooled(model, tensor_pool_fn)
    generator_loss = generator_loss_fn(model, add_summaries=add_summaries)
    discriminator_loss = discriminator_loss_fn(pooled, add_summaries=add_summaries)
    if _counts(of_gradient):
        discriminator_loss += of_gradient * model_losses.wasserstein_gradient_penalty(
            pooled,
            epsilon=gradient_penalty_epsilon,
            target=gradient_penalty_target,
            one_sided=gradient_penalty_one_sided,
            add_summaries=add_summaries,
        )
    if _counts(of_information):
        first = second = model_losses.mutual_information_penalty(model, add_summaries=add_summaries)
        if pooled is not model:
            second = model_losses.mutual_information_penalty(pooled, add_summaries=add_summaries)
        generator_loss += of_information * first
        discriminator_loss += of_information * second
    if _counts(of_generator):
        loss = model_losses.acgan_generator_loss(model, add_summaries=add_summaries)
        generator_loss += of_generator * loss
    if _counts(of_discriminator):
        loss = model_losses.acgan_discriminator_loss(pooled, add_summaries=add_summaries)
        discriminator_loss += of_discriminator * loss
    if model.generator_scope:
        generator_loss += tf.losses.get_regularization_loss(model.generator_scope.name)
    if model.discriminator_scope:
        discriminator_loss += tf.losses.get_regularization_loss(model.discriminator_scope.name)
    return GANLoss(generator_loss, discriminator_loss)


def cyclegan_loss(
    model: CycleGANModel,
    generator_loss_fn: _LossFn = model_losses.least_squares_generator_loss,
    discriminator_loss_fn: _LossFn = model_losses.least_squares_discriminator_loss,
    cycle_consistency_loss_fn: _LossFn = model_losses.cycle_consistency_loss,
    cycle_consistency_loss_weight: TensorLike = 10.0,
    **kwargs: PassedOn,
) -> CycleGANLoss:
    """The losses of both models, the generators' with the weighted loss of what went there and back.

    Args:
        model: both.
        generator_loss_fn, discriminator_loss_fn: losses of each.
        cycle_consistency_loss_fn: of both.
        cycle_consistency_loss_weight: its weight.
        kwargs: further arguments of `gan_loss`.

    Raises:
        ValueError: it is no `CycleGANModel`, or the weight is negative.
    """
    if not isinstance(model, CycleGANModel):
        raise ValueError(f"`model` must be a `CycleGANModel`. Instead, was {type(model)}.")
    consistency = cycle_consistency_loss_fn(model, add_summaries=kwargs.get("add_summaries", True))
    added = _checked(cycle_consistency_loss_weight, "cycle_consistency_loss_weight") * consistency

    def partial(one: GANModel) -> GANLoss:
        loss = gan_loss(one, generator_loss_fn, discriminator_loss_fn, **kwargs)
        return loss._replace(generator_loss=loss.generator_loss + added)

    with tf.name_scope("cyclegan_loss_x2y"):
        x2y = partial(model.model_x2y)
    with tf.name_scope("cyclegan_loss_y2x"):
        y2x = partial(model.model_y2x)
    return CycleGANLoss(x2y, y2x)


def stargan_loss(
    model: StarGANModel,
    generator_loss_fn: _LossFn = _STARGAN_GENERATOR_LOSS,
    discriminator_loss_fn: _LossFn = _STARGAN_DISCRIMINATOR_LOSS,
    gradient_penalty_weight: TensorLike | None = 10.0,
    gradient_penalty_epsilon: float = 1e-10,
    gradient_penalty_target: TensorLike = 1.0,
    gradient_penalty_one_sided: bool = False,
    reconstruction_loss_fn: _LossFn = tf.losses.absolute_difference,
    reconstruction_loss_weight: TensorLike = 10.0,
    classification_loss_fn: _LossFn = tf.losses.softmax_cross_entropy,
    classification_loss_weight: TensorLike = 1.0,
    classification_one_hot: bool = True,
    add_summaries: bool = True,
) -> GANLoss:
    """The losses of a `StarGANModel`: real or not, there and back, and of domains.

    Args:
        model: what they are of.
        generator_loss_fn, discriminator_loss_fn: losses of such a model.
        gradient_penalty_weight: of the penalty, None or 0 for none; its epsilon, target and sides come next.
        reconstruction_loss_fn, reconstruction_loss_weight: of data that went there and back.
        classification_loss_fn, classification_loss_weight: of domains; takes `onehot_labels` and `logits`.
        classification_one_hot: whether data are of one domain each; else the loss's columns are summed.
        add_summaries: whether losses are written.

    Raises:
        ValueError: the domains' shape is not known, or of another rank.
    """
    model.input_data_domain_label.shape.assert_has_rank(2)
    model.input_data_domain_label.shape[1:].assert_is_fully_defined()

    def of_domains(labels: PassedOn, logits: PassedOn, name: str) -> Any:
        with tf.name_scope(name, values=[labels, logits]):
            loss = classification_loss_fn(onehot_labels=labels, logits=logits)
            loss = tf.reduce_mean(loss if classification_one_hot else tf.reduce_sum(loss, 1))
            if add_summaries:
                tf.summary.scalar(name, loss)
            return loss * classification_loss_weight

    generator_loss = generator_loss_fn(model, add_summaries=add_summaries)
    discriminator_loss = discriminator_loss_fn(model, add_summaries=add_summaries)
    if _counts(gradient_penalty_weight):
        penalty = model_losses.stargan_gradient_penalty_wrapper(penalties.wasserstein_gradient_penalty)(
            model,
            epsilon=gradient_penalty_epsilon,
            target=gradient_penalty_target,
            one_sided=gradient_penalty_one_sided,
            add_summaries=add_summaries,
        )
        discriminator_loss += penalty * gradient_penalty_weight
    there_and_back = reconstruction_loss_fn(model.input_data, model.reconstructed_data)
    generator_loss += there_and_back * reconstruction_loss_weight
    if add_summaries:
        tf.summary.scalar("reconstruction_loss", there_and_back)
    generator_loss += of_domains(
        model.generated_data_domain_target,
        model.discriminator_generated_data_domain_predication,
        "generator_classification_loss",
    )
    discriminator_loss += of_domains(
        model.input_data_domain_label,
        model.discriminator_input_data_domain_predication,
        "discriminator_classification_loss",
    )
    return GANLoss(generator_loss, discriminator_loss)
