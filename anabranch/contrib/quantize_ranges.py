"""Fake quantization with ranges that are measured while a graph is trained, and used as they are afterwards."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, TypeAlias

import anabranch as tf
from anabranch.contrib.arguments import TensorLike

#: takes a variable, what was measured in a batch, and a name; gives the new value
_Assignment: TypeAlias = "Callable[[tf.Variable, tf.Tensor, str], TensorLike]"


class RangeOptions(NamedTuple):
    """How values are quantized.

    `collection` is what the variables of ranges join beside `GraphKeys.GLOBAL_VARIABLES`; `symmetric` ranges lie on
    both sides of 0 alike; a `narrow_range` leaves out the smallest number, so that 0 is in the middle.
    """

    is_training: bool = True
    num_bits: int = 8
    symmetric: bool = False
    narrow_range: bool = False
    init_min: float = -6.0
    init_max: float = 6.0
    collection: str | None = None


def last_value_quantize(
    inputs: TensorLike,
    init_min: float = -6.0,
    init_max: float = 6.0,
    vars_collection: str | None = None,
    name_prefix: str = "LastValueQuant",
    reuse: bool | None = None,
    is_training: bool = True,
    num_bits: int = 8,
    narrow_range: bool = False,
    symmetric: bool = False,
) -> tf.Tensor:
    """Quantizes and back, with the range of the last batch that was trained on.

    Args:
        inputs: a tensor of any shape, float32.
        init_min, init_max: the range before the first batch.
        vars_collection: what the variables "min" and "max" join, beside `GraphKeys.GLOBAL_VARIABLES`.
        name_prefix: of the scope of variables.
        reuse: of that scope.
        is_training: whether ranges are measured.
        num_bits: from 2 to 8.
        narrow_range: whether the smallest number is left out.
        symmetric: whether the range is the same on both sides of 0.

    Returns:
        A tensor like `inputs`.
    """
    options = RangeOptions(is_training, num_bits, symmetric, narrow_range, init_min, init_max, vars_collection)

    def assign(variable: tf.Variable, value: tf.Tensor, name: str) -> TensorLike:
        return tf.assign(variable, value, name=f"{name}Last")

    return _quantize(tf.convert_to_tensor(inputs), options, name_prefix, reuse, assign)


def moving_average_quantize(
    inputs: TensorLike,
    init_min: float = -6.0,
    init_max: float = 6.0,
    ema_decay: float = 0.999,
    vars_collection: str | None = tf.GraphKeys.MOVING_AVERAGE_VARIABLES,
    name_prefix: str = "MovingAvgQuantize",
    reuse: bool | None = None,
    is_training: bool = True,
    num_bits: int = 8,
    narrow_range: bool = False,
    symmetric: bool = False,
) -> tf.Tensor:
    """Quantizes and back, with moving averages of the ranges of batches; the rest is as in `last_value_quantize`.

    Args:
        ema_decay: how much of the averages stays at each step.
    """
    options = RangeOptions(is_training, num_bits, symmetric, narrow_range, init_min, init_max, vars_collection)

    def assign(variable: tf.Variable, value: tf.Tensor, name: str) -> TensorLike:
        return tf.assign(variable, _moved(variable, value, 1.0 - ema_decay), name=f"{name}Ema")

    return _quantize(tf.convert_to_tensor(inputs), options, name_prefix, reuse, assign)


def _moved(average: tf.Variable, value: tf.Tensor, rate: float) -> tf.Tensor:
    """A moving average that takes a step towards a value, corrected for having begun at 0 (Kingma and Ba 2015)."""
    # a scope puts its name before that of the variable, which begins with it: so TensorFlow names them in checkpoints
    biased = tf.get_variable(f"{average.op.name}/biased", [], initializer=tf.zeros_initializer(), trainable=False)
    count = tf.get_variable(f"{average.op.name}/local_step", [], initializer=tf.zeros_initializer(), trainable=False)
    step = tf.assign_add(count, 1.0)
    return tf.assign_sub(biased, (biased - value) * rate) / (1.0 - tf.pow(1.0 - rate, step))


def _quantize(
    inputs: tf.Tensor, options: RangeOptions, prefix: str, reuse: bool | None, assign: _Assignment
) -> tf.Tensor:
    with tf.variable_scope(None, default_name=prefix, values=[inputs], reuse=reuse) as scope:
        scope.set_partitioner(None)  # a number cannot be partitioned
        low, high = _variable("min", options.init_min, options), _variable("max", options.init_max, options)
        ends: tuple[TensorLike, TensorLike] = low, high
        if options.is_training:
            least, greatest = _range_of_batch(inputs, options)
            ends = assign(low, least, "AssignMin"), assign(high, greatest, "AssignMax")
        return tf.fake_quant_with_min_max_vars(
            inputs, ends[0], ends[1], num_bits=options.num_bits, narrow_range=options.narrow_range
        )


def _variable(name: str, value: float, options: RangeOptions) -> tf.Variable:
    further = [] if options.collection is None else [options.collection]
    return tf.get_variable(
        name,
        shape=[],
        initializer=tf.constant_initializer(value),
        collections=list(dict.fromkeys([*further, tf.GraphKeys.GLOBAL_VARIABLES])),
        trainable=False,
    )


def _range_of_batch(inputs: tf.Tensor, options: RangeOptions) -> tuple[tf.Tensor, tf.Tensor]:
    """The least and the greatest value of a batch, and 0 between them: what is 0 has to stay 0."""
    least, greatest = tf.reduce_min(inputs, name="BatchMin"), tf.reduce_max(inputs, name="BatchMax")
    if not options.symmetric:
        return tf.minimum(least, 0.0), tf.maximum(greatest, 0.0)
    # in two's complement there is one negative number more than positive ones
    steps = 1 << options.num_bits
    ratio = -1.0 if options.narrow_range else -(steps - 2) / steps
    return tf.minimum(least, greatest / ratio), tf.maximum(greatest, least * ratio)
