"""Summaries of models whose data are pictures, and pictures side by side."""

from __future__ import annotations

import math
from collections.abc import Sequence

import anabranch as tf
from anabranch.contrib.arguments import PassedOn
from anabranch.contrib.gan.namedtuples import CycleGANModel, GANModel


def image_grid(
    input_tensor: tf.Tensor, grid_shape: Sequence[int], image_shape: Sequence[int] = (32, 32), num_channels: int = 3
) -> tf.Tensor:
    """Pictures of a batch in a grid, as one picture.

    Args:
        input_tensor: [batch, height, width, channels], or flat [batch, height · width · channels].
        grid_shape: rows and columns, which have as many places as the batch has pictures.
        image_shape: height and width.
        num_channels: of each picture.

    Raises:
        ValueError: the grid has more or fewer places, or pictures have another shape.
    """
    lengths = input_tensor.shape.as_list()
    rows, columns = grid_shape
    height, width = image_shape
    if rows * columns != lengths[0]:
        raise ValueError(f"Grid shape {grid_shape} incompatible with minibatch size {lengths[0]}.")
    if len(lengths) not in (2, 4):
        raise ValueError("Unrecognized input tensor format.")
    if lengths[1:] not in ([height * width * num_channels], [height, width, num_channels]):
        raise ValueError("Image shape and number of channels incompatible with input tensor.")
    places = tf.reshape(input_tensor, [rows, columns, height, width, num_channels])
    return tf.reshape(tf.transpose(places, [0, 2, 1, 3, 4]), [1, rows * height, columns * width, num_channels])


def image_reshaper(images: PassedOn, num_cols: int | None = None) -> tf.Tensor:
    """Pictures in nearly as many rows as columns, black ones in the places that are left.

    Args:
        images: a tensor [batch, height, width, channels] or a list of pictures of 1 or 3 channels.
        num_cols: how many columns.

    Returns:
        [1, height, width, channels].

    Raises:
        ValueError: a picture has another rank or other channels, or its shape is not known.
    """
    listed = tf.unstack(images) if isinstance(images, tf.Tensor) else list(images)
    for one in listed:
        one.shape.assert_has_rank(3)
        one.shape.assert_is_fully_defined()
        if one.shape.as_list()[-1] not in (1, 3):
            raise ValueError("image_reshaper only supports 1 or 3 channel images.")
    columns = num_cols or math.ceil(math.sqrt(len(listed)))
    listed += [tf.zeros_like(listed[-1])] * (-len(listed) % columns)
    rows = [tf.concat(listed[at : at + columns], 1) for at in range(0, len(listed), columns)]
    return tf.expand_dims(tf.concat(rows, 0), 0)


def _check_pictures(*data: tf.Tensor) -> None:
    for one in data:
        one.shape.assert_has_rank(4)
        one.shape[1:].assert_is_fully_defined()


def add_gan_model_image_summaries(gan_model: GANModel, grid_size: int = 4, model_summaries: bool = True) -> None:
    """Writes grids of real and of generated pictures.

    Args:
        gan_model: a model.
        grid_size: rows and columns of a grid.
        model_summaries: whether variables are written too.

    Raises:
        ValueError: data are no pictures, or it is a `CycleGANModel`.
    """
    if isinstance(gan_model, CycleGANModel):
        raise ValueError(
            "`add_gan_model_image_summaries` does not take CycleGANModels. Please use `add_cyclegan_image_summaries` "
            "instead."
        )
    _check_pictures(gan_model.real_data, gan_model.generated_data)
    for name, data in (("real_data", gan_model.real_data), ("generated_data", gan_model.generated_data)):
        *shape, channels = data.shape.as_list()[1:]
        grid = image_grid(data[: grid_size**2], [grid_size, grid_size], shape, channels)
        tf.summary.image(name, grid, max_outputs=1)
    if model_summaries:
        add_gan_model_summaries(gan_model)


def add_cyclegan_image_summaries(cyclegan_model: CycleGANModel) -> None:
    """Writes, for both models, a picture, what it becomes, and what comes back.

    Raises:
        ValueError: it is no `CycleGANModel`, or data are no pictures.
    """
    if not isinstance(cyclegan_model, CycleGANModel):
        raise ValueError(f"`cyclegan_model` was not a CycleGANModel. Instead, was {type(cyclegan_model)}")
    x2y, y2x, of_x, of_y = cyclegan_model
    for name, model, back in (("x2y", x2y, of_x), ("y2x", y2x, of_y)):
        _check_pictures(model.generator_inputs, model.generated_data, back)
        with tf.name_scope(f"{name}_image_comparison_summaries"):
            three = [one[0] for one in (model.generator_inputs, model.generated_data, back)]
            tf.summary.image("image_comparison", image_reshaper(three, 3), max_outputs=1)


def add_image_comparison_summaries(gan_model: GANModel, num_comparisons: int = 2, display_diffs: bool = False) -> None:
    """Writes pictures that the generator got, those that it made, and those that were wanted.

    Args:
        gan_model: a model whose inputs are pictures of the shape of its data.
        num_comparisons: how many of each.
        display_diffs: whether the differences of the last two are written too.

    Raises:
        ValueError: data are no pictures, or of different shapes.
    """
    given, made, wanted = gan_model.generator_inputs, gan_model.generated_data, gan_model.real_data
    _check_pictures(given, made, wanted)
    made.shape.assert_is_compatible_with(given.shape)
    wanted.shape.assert_is_compatible_with(made.shape)
    rows = [one[:num_comparisons] for one in (given, made, wanted)]
    if display_diffs:
        rows.append(tf.abs(tf.cast(rows[1], tf.float32) - tf.cast(rows[2], tf.float32)))
    pictures = [one for row in rows for one in tf.unstack(row, num_comparisons)]
    tf.summary.image("image_comparison", image_reshaper(pictures, num_comparisons), max_outputs=1)


def add_gan_model_summaries(gan_model: GANModel) -> None:
    """Writes histograms of the variables of both networks."""
    if isinstance(gan_model, CycleGANModel):
        for name, model in zip(("cyclegan_x2y_summaries", "cyclegan_y2x_summaries"), gan_model[:2], strict=True):
            with tf.name_scope(name):
                add_gan_model_summaries(model)
        return
    for part, variables in (
        ("generator", gan_model.generator_variables),
        ("discriminator", gan_model.discriminator_variables),
    ):
        with tf.name_scope(f"{part}_variables"):
            for variable in variables:
                tf.summary.histogram(variable.op.name, variable)


def add_regularization_loss_summaries(gan_model: GANModel) -> None:
    """Writes the regularization of the variables of both networks."""
    if isinstance(gan_model, CycleGANModel):
        for name, model in zip(
            ("cyclegan_x2y_regularization_loss_summaries", "cyclegan_y2x_regularization_loss_summaries"),
            gan_model[:2],
            strict=True,
        ):
            with tf.name_scope(name):
                add_regularization_loss_summaries(model)
        return
    for part, scope in (("generator", gan_model.generator_scope), ("discriminator", gan_model.discriminator_scope)):
        if scope:
            tf.summary.scalar(f"{part}_regularization_loss", tf.losses.get_regularization_loss(scope.name))
