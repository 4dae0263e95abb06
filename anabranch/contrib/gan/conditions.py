"""Weights in bounds, tensors that depend on a condition, and earlier values in place of new ones."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import anabranch as tf
from anabranch.contrib.arguments import PassedOn, TensorLike
from anabranch.contrib.gan.namedtuples import GANModel


def clip_variables(
    optimizer: tf.train.Optimizer, variables: Sequence[tf.Variable], weight_clip: float
) -> tf.train.Optimizer:
    """An optimizer that, after each step, brings each number of the variables to at most `weight_clip`, either sign.

    Raises:
        ValueError: the bound is negative.
    """
    if weight_clip < 0:
        raise ValueError(f"`discriminator_weight_clip` must be positive. Instead, was {weight_clip}")
    return tf.contrib.opt.VariableClippingOptimizer(
        optimizer, {variable: [] for variable in variables}, weight_clip, use_locking=True
    )


def clip_discriminator_weights(
    optimizer: tf.train.Optimizer, model: GANModel, weight_clip: float
) -> tf.train.Optimizer:
    """The same for the variables of a model's discriminator."""
    return clip_variables(optimizer, model.discriminator_variables, weight_clip)


def condition_tensor(tensor: tf.Tensor, conditioning: tf.Tensor) -> tf.Tensor:
    """A batch, plus a linear function of a condition that is learned.

    Args:
        tensor: [batch, ...], of known lengths but for the batch.
        conditioning: [batch, ...], of at least rank 2.

    Raises:
        ValueError: lengths are not known, or the condition is of lower rank.
    """
    tensor.shape[1:].assert_is_fully_defined()
    if (conditioning.shape.ndims or 0) < 2:
        raise ValueError(f"conditioning must be at least 2D, but saw shape: {conditioning.shape}")
    count = int(tensor.shape[1:].num_elements() or 1)
    flat = tf.layers.flatten(conditioning)
    with tf.variable_scope(None, "fully_connected"):
        weights = tf.get_variable("weights", [flat.shape.as_list()[1], count], flat.dtype)
        biases = tf.get_variable("biases", [count], flat.dtype, tf.zeros_initializer())
    mapped = tf.nn.xw_plus_b(flat, weights, biases)
    if not mapped.shape.is_compatible_with(tensor.shape):
        mapped = tf.reshape(mapped, tf.shape(tensor))
    return tensor + mapped


def condition_tensor_from_onehot(tensor: tf.Tensor, one_hot_labels: tf.Tensor, embedding_size: int = 256) -> tf.Tensor:
    """The same, with embeddings of classes [batch, classes] as the condition.

    Raises:
        ValueError: the classes are of another rank, or their number is not known.
    """
    one_hot_labels.shape.assert_has_rank(2)
    one_hot_labels.shape[1:].assert_is_fully_defined()
    embedding = tf.get_variable("embedding", [one_hot_labels.shape.as_list()[1], embedding_size])
    return condition_tensor(tensor, tf.nn.embedding_lookup(embedding, tf.argmax(one_hot_labels, 1)))


def tensor_pool(
    input_values: PassedOn,
    pool_size: int = 50,
    pooling_probability: TensorLike = 0.5,
    name: str = "tensor_pool",
) -> PassedOn:
    """Values, or in place of them earlier ones that were put into a pool.

    Until the pool is full, new values go into it and are given. Then one is taken out at random, the new one put in,
    and with `pooling_probability` that one is given, else the new one.

    Args:
        input_values: a tensor or a structure of tensors.
        pool_size: 0 for no pool.
        pooling_probability: of an earlier value.
        name: begins the names of operations.

    Raises:
        ValueError: the size is negative.
    """
    if int(pool_size) < 0:
        raise ValueError("`pool_size` is negative.")
    if int(pool_size) == 0:
        return input_values
    values = [tf.convert_to_tensor(one) for one in tf.nest.flatten(input_values)]
    with tf.name_scope(f"{name}_pool_queue", values=[*values, pooling_probability]):
        pool = tf.RandomShuffleQueue(int(pool_size), 0, [one.dtype for one in values])

        def filling() -> list[Any]:
            with tf.control_dependencies([pool.enqueue(values)]):
                return [tf.identity(one) for one in values]

        def exchanging() -> list[Any]:
            taken = pool.dequeue()
            earlier = list(taken) if isinstance(taken, list | tuple) else [taken]
            with tf.control_dependencies(earlier), tf.control_dependencies([pool.enqueue(values)]):
                is_earlier = tf.random_uniform([]) < pooling_probability
                chosen = tf.cond(is_earlier, lambda: earlier, lambda: [tf.identity(one) for one in values])
                return list(chosen) if isinstance(chosen, list | tuple) else [chosen]

        given = tf.cond(pool.size() < int(pool_size), filling, exchanging)
        outputs = list(given) if isinstance(given, list | tuple) else [given]
        for output, value in zip(outputs, values, strict=True):
            output.set_shape(value.shape)
    return tf.nest.pack_sequence_as(input_values, outputs)
