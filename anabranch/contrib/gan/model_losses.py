"""Losses of whole models: those of single tensors, which are taken from the model's fields by their names."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

import anabranch as tf
from anabranch.contrib.arguments import PassedOn, TensorLike
from anabranch.contrib.gan import penalties, scalar_losses
from anabranch.contrib.gan.namedtuples import CycleGANModel, GANLoss, GANModel, StarGANModel

_Loss = Callable[..., Any]


def _of_model(loss_fn: Callable[..., Any]) -> Callable[..., Any]:
    """A loss that takes a model, and by keywords what the model has not.

    The loss raises ValueError where an argument is missing, or is both in the model and a keyword.
    """
    parameters = inspect.signature(loss_fn).parameters

    @functools.wraps(loss_fn)
    def call(gan_model: PassedOn, **kwargs: PassedOn) -> Any:
        fields = gan_model._fields
        twice = sorted(set(fields) & set(kwargs))
        if twice:
            raise ValueError(
                f"The following args are present in both the tuple and keyword args for {loss_fn.__name__}: {twice}"
            )
        given = {name: getattr(gan_model, name) for name in parameters if name in fields} | kwargs
        for name, parameter in parameters.items():
            if name not in given and parameter.default is inspect.Parameter.empty:
                raise ValueError(f"`{name}` must be supplied to {loss_fn.__name__} loss function.")
        return loss_fn(**given)

    del vars(call)["__wrapped__"]  # whose arguments are others
    call.__annotations__ = {"gan_model": "GANModel", "kwargs": "PassedOn", "return": "tf.Tensor"}
    call.__doc__ = f"`wargs.{loss_fn.__name__}` of the tensors of a model; keywords are the other arguments."
    return call


wasserstein_generator_loss: _Loss = _of_model(scalar_losses.wasserstein_generator_loss)
wasserstein_discriminator_loss: _Loss = _of_model(scalar_losses.wasserstein_discriminator_loss)
wasserstein_gradient_penalty: _Loss = _of_model(penalties.wasserstein_gradient_penalty)
acgan_discriminator_loss: _Loss = _of_model(scalar_losses.acgan_discriminator_loss)
acgan_generator_loss: _Loss = _of_model(scalar_losses.acgan_generator_loss)
minimax_discriminator_loss: _Loss = _of_model(scalar_losses.minimax_discriminator_loss)
minimax_generator_loss: _Loss = _of_model(scalar_losses.minimax_generator_loss)
modified_discriminator_loss: _Loss = _of_model(scalar_losses.modified_discriminator_loss)
modified_generator_loss: _Loss = _of_model(scalar_losses.modified_generator_loss)
least_squares_discriminator_loss: _Loss = _of_model(scalar_losses.least_squares_discriminator_loss)
least_squares_generator_loss: _Loss = _of_model(scalar_losses.least_squares_generator_loss)
mutual_information_penalty: _Loss = _of_model(penalties.mutual_information_penalty)


def combine_adversarial_loss(
    gan_loss: GANLoss,
    gan_model: GANModel,
    non_adversarial_loss: PassedOn,
    weight_factor: TensorLike | None = None,
    gradient_ratio: TensorLike | None = None,
    gradient_ratio_epsilon: float = 1e-6,
    scalar_summaries: bool = True,
    gradient_summaries: bool = True,
) -> GANLoss:
    """The losses, with another loss added to the generator's; see `wargs.combine_adversarial_loss`."""
    combined = penalties.combine_adversarial_loss(
        non_adversarial_loss,
        gan_loss.generator_loss,
        weight_factor,
        gradient_ratio,
        gradient_ratio_epsilon,
        gan_model.generator_variables,
        scalar_summaries,
        gradient_summaries,
    )
    return gan_loss._replace(generator_loss=combined)


def cycle_consistency_loss(
    cyclegan_model: CycleGANModel, scope: str | None = None, add_summaries: bool = False
) -> tf.Tensor:
    """`wargs.cycle_consistency_loss` of the tensors of a model.

    Raises:
        ValueError: it is no `CycleGANModel`.
    """
    if not isinstance(cyclegan_model, CycleGANModel):
        raise ValueError(f"`cyclegan_model` must be a `CycleGANModel`. Instead, was {type(cyclegan_model)}.")
    return penalties.cycle_consistency_loss(
        cyclegan_model.model_x2y.generator_inputs,
        cyclegan_model.reconstructed_x,
        cyclegan_model.model_y2x.generator_inputs,
        cyclegan_model.reconstructed_y,
        scope,
        add_summaries,
    )


def stargan_generator_loss_wrapper(loss_fn: Callable[..., Any]) -> Callable[..., Any]:
    """A generator's loss, of the outputs for generated data, as one of a `StarGANModel`."""

    def call(stargan_model: StarGANModel, **kwargs: PassedOn) -> Any:
        return loss_fn(stargan_model.discriminator_generated_data_source_predication, **kwargs)

    call.__name__ = loss_fn.__name__
    return call


def stargan_discriminator_loss_wrapper(loss_fn: Callable[..., Any]) -> Callable[..., Any]:
    """A discriminator's loss, of the outputs for real and for generated data, as one of a `StarGANModel`."""

    def call(stargan_model: StarGANModel, **kwargs: PassedOn) -> Any:
        return loss_fn(
            stargan_model.discriminator_input_data_source_predication,
            stargan_model.discriminator_generated_data_source_predication,
            **kwargs,
        )

    call.__name__ = loss_fn.__name__
    return call


def stargan_gradient_penalty_wrapper(loss_fn: Callable[..., Any]) -> Callable[..., Any]:
    """A penalty of the discriminator's gradients as one of a `StarGANModel`."""

    def call(stargan_model: StarGANModel, **kwargs: PassedOn) -> Any:
        return loss_fn(
            real_data=stargan_model.input_data,
            generated_data=stargan_model.generated_data,
            generator_inputs=stargan_model.input_data_domain_label.shape.as_list()[-1],
            discriminator_fn=stargan_model.discriminator_fn,
            discriminator_scope=stargan_model.discriminator_scope,
            **kwargs,
        )

    call.__name__ = loss_fn.__name__
    return call
