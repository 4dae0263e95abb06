"""Models of `tf.contrib.gan`: the functions of a program, called on real and on generated data."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import anabranch as tf
from anabranch.contrib.arguments import PassedOn, TensorLike
from anabranch.contrib.gan.namedtuples import ACGANModel, CycleGANModel, GANModel, InfoGANModel, StarGANModel


def converted(inputs: PassedOn) -> Any:
    """A tensor, or a list or dictionary of tensors, of what can be converted to such."""
    if isinstance(inputs, list | tuple):
        return [tf.convert_to_tensor(one) for one in inputs]
    if isinstance(inputs, dict):
        return {key: tf.convert_to_tensor(one) for key, one in inputs.items()}
    return tf.convert_to_tensor(inputs)


def variables_of(scope: tf.VariableScope) -> list[tf.Variable]:
    """The variables of a scope that are trained."""
    return list(tf.get_collection(tf.GraphKeys.TRAINABLE_VARIABLES, scope.name + "/"))


def _check_shapes(generated: PassedOn, real: PassedOn) -> None:
    if not generated.shape.is_compatible_with(real.shape):
        raise ValueError(
            f"Generator output shape ({generated.shape}) must be the same shape as real data ({real.shape})."
        )


def gan_model(
    generator_fn: Callable[..., Any],
    discriminator_fn: Callable[..., Any],
    real_data: TensorLike,
    generator_inputs: PassedOn,
    generator_scope: str | tf.VariableScope = "Generator",
    discriminator_scope: str | tf.VariableScope = "Discriminator",
    check_shapes: bool = True,
) -> GANModel:
    """A generator and a discriminator, the latter called on generated and, with the same variables, on real data.

    Args:
        generator_fn: gives data for `generator_inputs`.
        discriminator_fn: gives logits for data and `generator_inputs`.
        real_data: a batch.
        generator_inputs: a tensor, or a list or dictionary of tensors.
        generator_scope, discriminator_scope: of their variables.
        check_shapes: whether generated data have to have the shape of real ones.

    Raises:
        ValueError: they have another one.
    """
    with tf.variable_scope(generator_scope) as generator:
        inputs = converted(generator_inputs)
        generated = generator_fn(inputs)
    with tf.variable_scope(discriminator_scope) as discriminator:
        of_generated = discriminator_fn(generated, inputs)
    with tf.variable_scope(discriminator, reuse=True):
        real = converted(real_data)
        of_real = discriminator_fn(real, inputs)
    if check_shapes:
        _check_shapes(generated, real)
    return GANModel(
        inputs,
        generated,
        variables_of(generator),
        generator,
        generator_fn,
        real,
        of_real,
        of_generated,
        variables_of(discriminator),
        discriminator,
        discriminator_fn,
    )


def infogan_model(
    generator_fn: Callable[..., Any],
    discriminator_fn: Callable[..., Any],
    real_data: TensorLike,
    unstructured_generator_inputs: PassedOn,
    structured_generator_inputs: PassedOn,
    generator_scope: str | tf.VariableScope = "Generator",
    discriminator_scope: str | tf.VariableScope = "Discriminator",
) -> InfoGANModel:
    """The same, where the discriminator also gives a list of distributions, of the structured inputs.

    Args:
        generator_fn: gives data for the list of both kinds of inputs.
        discriminator_fn: gives (logits, distributions) for data and that list.
        real_data: a batch.
        unstructured_generator_inputs, structured_generator_inputs: lists of tensors.
        generator_scope, discriminator_scope: of their variables.

    Raises:
        ValueError: generated data have another shape than real ones, or there are not as many distributions as inputs.
    """
    with tf.variable_scope(generator_scope) as generator:
        structured = converted(structured_generator_inputs)
        inputs = converted(unstructured_generator_inputs) + structured
        generated = generator_fn(inputs)
    with tf.variable_scope(discriminator_scope) as discriminator:
        of_generated, predicted = discriminator_fn(generated, inputs)
    if not isinstance(predicted, list | tuple):
        raise ValueError(f"`predicted_distributions` must be a list. Instead, found {type(predicted)}.")
    if len(predicted) != len(structured):
        raise ValueError(
            f"Length of `predicted_distributions` {len(predicted)} must be the same as the length of structured noise "
            f"{len(structured)}."
        )
    with tf.variable_scope(discriminator, reuse=True):
        real = tf.convert_to_tensor(real_data)
        of_real, _ = discriminator_fn(real, inputs)
    _check_shapes(generated, real)
    return InfoGANModel(
        inputs,
        generated,
        variables_of(generator),
        generator,
        generator_fn,
        real,
        of_real,
        of_generated,
        variables_of(discriminator),
        discriminator,
        lambda data, given: discriminator_fn(data, given)[0],
        structured,
        predicted,
        discriminator_fn,
    )


def acgan_model(
    generator_fn: Callable[..., Any],
    discriminator_fn: Callable[..., Any],
    real_data: TensorLike,
    generator_inputs: PassedOn,
    one_hot_labels: TensorLike,
    generator_scope: str | tf.VariableScope = "Generator",
    discriminator_scope: str | tf.VariableScope = "Discriminator",
    check_shapes: bool = True,
) -> ACGANModel:
    """The same, where the discriminator gives a pair: logits of real or not, and logits of classes.

    Args:
        generator_fn: gives data for `generator_inputs`.
        discriminator_fn: gives the pair for data and `generator_inputs`.
        real_data: a batch.
        generator_inputs: a tensor, or a list or dictionary of tensors.
        one_hot_labels: the classes of the batch [batch, classes].
        generator_scope, discriminator_scope: of their variables.
        check_shapes: whether generated data have to have the shape of real ones.

    Raises:
        ValueError: they have another one.
        TypeError: the discriminator gives no pair.
    """
    with tf.variable_scope(generator_scope) as generator:
        inputs = converted(generator_inputs)
        generated = generator_fn(inputs)
    with tf.variable_scope(discriminator_scope) as discriminator, tf.name_scope(f"{discriminator.name}/generated/"):
        of_generated, classes_of_generated = _pair(discriminator_fn(generated, inputs))
    with tf.variable_scope(discriminator, reuse=True), tf.name_scope(f"{discriminator.name}/real/"):
        real = tf.convert_to_tensor(real_data)
        of_real, classes_of_real = _pair(discriminator_fn(real, inputs))
    if check_shapes:
        _check_shapes(generated, real)
    return ACGANModel(
        inputs,
        generated,
        variables_of(generator),
        generator,
        generator_fn,
        real,
        of_real,
        of_generated,
        variables_of(discriminator),
        discriminator,
        discriminator_fn,
        one_hot_labels,
        classes_of_real,
        classes_of_generated,
    )


def _pair(outputs: PassedOn) -> tuple[Any, Any]:
    try:
        first, second = outputs
    except (TypeError, ValueError):
        raise TypeError(
            "A discriminator function for ACGAN must output a tuple consisting of (discrimination logits, "
            "classification logits)."
        ) from None
    return first, second


def cyclegan_model(
    generator_fn: Callable[..., Any],
    discriminator_fn: Callable[..., Any],
    data_x: TensorLike,
    data_y: TensorLike,
    generator_scope: str = "Generator",
    discriminator_scope: str = "Discriminator",
    model_x2y_scope: str | tf.VariableScope = "ModelX2Y",
    model_y2x_scope: str | tf.VariableScope = "ModelY2X",
    check_shapes: bool = True,
) -> CycleGANModel:
    """Two models, from data of one kind to the other and back, and what each makes of the other's output.

    Args:
        generator_fn, discriminator_fn: as for `gan_model`; each model has variables of its own.
        data_x, data_y: batches of both kinds.
        generator_scope, discriminator_scope: of variables, in the scopes of the models.
        model_x2y_scope, model_y2x_scope: of the models.
        check_shapes: whether generated data have to have the shape of real ones.

    Raises:
        ValueError: they have another one.
    """

    def partial(given: PassedOn, aim: PassedOn) -> GANModel:
        return gan_model(generator_fn, discriminator_fn, aim, given, generator_scope, discriminator_scope, check_shapes)

    with tf.variable_scope(model_x2y_scope):
        x2y = partial(data_x, data_y)
    with tf.variable_scope(model_y2x_scope):
        y2x = partial(data_y, data_x)
    with tf.variable_scope(y2x.generator_scope, reuse=True):
        reconstructed_x = y2x.generator_fn(x2y.generated_data)
    with tf.variable_scope(x2y.generator_scope, reuse=True):
        reconstructed_y = x2y.generator_fn(y2x.generated_data)
    return CycleGANModel(x2y, y2x, reconstructed_x, reconstructed_y)


def stargan_model(
    generator_fn: Callable[..., Any],
    discriminator_fn: Callable[..., Any],
    input_data: PassedOn,
    input_data_domain_label: PassedOn,
    generator_scope: str | tf.VariableScope = "Generator",
    discriminator_scope: str | tf.VariableScope = "Discriminator",
) -> StarGANModel:
    """A generator between several domains, with targets drawn at random, there and back.

    Args:
        generator_fn: gives data for data and the domains that are aimed at, one hot [batch, domains].
        discriminator_fn: gives (real or not, which domain) for data and the number of domains.
        input_data: a batch, or a list of batches.
        input_data_domain_label: its domains, one hot [batch, domains], or a list of such.
        generator_scope, discriminator_scope: of their variables.

    Raises:
        ValueError: the shape of the domains is not known, or of another rank.
    """
    data, label = (
        tf.concat(one, 0) if isinstance(one, list) else one
        for one in (converted(input_data), converted(input_data_domain_label))
    )
    label.shape.assert_has_rank(2)
    label.shape.assert_is_fully_defined()
    batch, domains = label.shape.as_list()
    with tf.variable_scope(generator_scope) as generator:
        target = tf.one_hot(tf.random_uniform([batch], maxval=domains, dtype=tf.int32), domains)
        generated = generator_fn(data, target)
    with tf.variable_scope(generator, reuse=True):
        reconstructed = generator_fn(generated, label)
    with tf.variable_scope(discriminator_scope) as discriminator:
        source_of_generated, domain_of_generated = discriminator_fn(generated, domains)
    with tf.variable_scope(discriminator, reuse=True):
        source_of_data, domain_of_data = discriminator_fn(data, domains)
    return StarGANModel(
        data,
        label,
        generated,
        target,
        reconstructed,
        source_of_data,
        source_of_generated,
        domain_of_data,
        domain_of_generated,
        variables_of(generator),
        generator,
        generator_fn,
        variables_of(discriminator),
        discriminator,
        discriminator_fn,
    )
