"""Batch normalizations are folded into the layers before them, as they will be when the graph is used.

Where a layer computes ``conv(x, w)`` and its normalization ``gamma * (y - mean) / sigma + beta``, the graph that is
used later multiplies the weights by ``gamma / sigma`` and adds one bias. Quantized training has to see those weights
(Jacob et al. 2018, *Quantization and Training of Neural Networks for Efficient Integer-Arithmetic-Only Inference*, 3.2;
the corrections are those of Krishnamoorthi 2018, *Quantizing deep convolutional networks for efficient inference*).

In training, gamma / sigma of a batch jumps from step to step, and ranges of weights with it. So the weights are
multiplied by gamma / sigma of the moving average, and what comes out of the layer by the quotient of the two sigmas:
until a number of steps, if one is given, the result is that of the batch, and that of the moving averages afterwards.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import anabranch as tf
from anabranch.contrib.quantize_layers import LAYER_TYPES
from anabranch.contrib.quantize_steps import SUMS, quantization_step, reroute, scope_of

_FUSED = frozenset({"FusedBatchNorm", "FusedBatchNormV2", "FusedBatchNormV3"})
#: operations between the mean of a batch and what it is the mean of
_BEHIND_MEANS = frozenset({"Cast", "Identity", "Mean", "Squeeze", "StopGradient"})
_GRADIENT = "FusedBatchNormStatisticsGradient"


@dataclass(frozen=True, slots=True)
class _AverageUpdate:
    """A moving average: its value, and the operation that multiplies the step towards the batch by a rate."""

    average: tf.Tensor
    product: tf.Operation
    rate: tf.Tensor


@dataclass(frozen=True, slots=True)
class _Normalization:
    """A batch normalization behind a layer.

    `spread` is the BatchToSpaceND of a dilated layer; `output` what the rest of the graph takes. In training, `mean`
    and `variance` are those of the batch. `factor` and `offset` are there where the graph computes them, which a fused
    normalization does inside.
    """

    layer: tf.Operation
    spread: tf.Operation | None
    output: tf.Tensor
    fused: tf.Operation | None
    gamma: tf.Tensor | None
    beta: tf.Tensor | None
    mean: tf.Tensor
    variance: tf.Tensor
    epsilon: tf.Tensor | float
    factor: tf.Tensor | None
    offset: tf.Tensor | None
    in_training: bool


def fold_batch_norms(graph: tf.Graph, is_training: bool, freeze_batch_norm_delay: int | None = None) -> None:
    """Folds the batch normalizations of a graph that follow a convolution or a product with a matrix.

    Args:
        graph: is changed.
        is_training: whether normalizations of batches are corrected; one that is fused says so itself.
        freeze_batch_norm_delay: the number of steps after which the moving averages are used, and stay as they are;
            None: never.

    Raises:
        ValueError: a normalization of batches has no moving averages, or none without a correction of their start.
    """
    with graph.as_default():
        for found in [*_fused_ones(graph), *_plain_ones(graph, is_training)]:
            _fold(found, freeze_batch_norm_delay)


# ---------------------------------------------------------------------------------------------------- what is there
def _fused_ones(graph: tf.Graph) -> Iterator[_Normalization]:
    for op in graph.get_operations():
        found = _layer_before(op.inputs[0]) if op.type in _FUSED else None
        if found is None:
            continue
        output = op.outputs[0]
        if found[0].type == "MatMul":  # between two Reshapes, since it takes four dimensions
            reshapes = [consumer for consumer in output.consumers() if consumer.type == "Reshape"]
            if not reshapes:
                continue
            output = reshapes[0].outputs[0]
        if not output.consumers():
            continue
        in_training = bool(op.get_attr("is_training"))
        mean, variance = (op.outputs[1], op.outputs[2]) if in_training else (op.inputs[3], op.inputs[4])
        yield _Normalization(
            *found,
            output,
            op,
            gamma=op.inputs[1],
            beta=op.inputs[2],
            mean=mean,
            variance=variance,
            epsilon=op.get_attr("epsilon"),
            factor=None,
            offset=None,
            in_training=in_training,
        )


def _plain_ones(graph: tf.Graph, is_training: bool) -> Iterator[_Normalization]:
    """Those of `tf.nn.batch_normalization`: y * f + (beta - mean * f), where f = gamma / sqrt(variance + epsilon)."""
    for op in graph.get_operations():
        if op.type not in SUMS or not op.outputs[0].consumers():
            continue
        for product, shift in (tuple(op.inputs), tuple(op.inputs)[::-1]):
            found = _plain_one(op.outputs[0], product, shift, is_training)
            if found is not None:
                yield found
                break


def _plain_one(output: tf.Tensor, product: tf.Tensor, shift: tf.Tensor, is_training: bool) -> _Normalization | None:
    if product.op.type != "Mul" or shift.op.type not in ("Sub", "Neg"):
        return None
    y, factor = product.op.inputs
    of_mean = shift.op.inputs[-1].op
    layer = _layer_before(y)
    if layer is None or of_mean.type != "Mul" or of_mean.inputs[1] is not factor:
        return None
    root, gamma = (factor.op.inputs[0].op, factor.op.inputs[1]) if factor.op.type == "Mul" else (factor.op, None)
    if root.type != "Rsqrt" or root.inputs[0].op.type not in SUMS:
        return None
    variance, epsilon = root.inputs[0].op.inputs
    mean = of_mean.inputs[0]
    return _Normalization(
        *layer,
        output,
        None,
        gamma=gamma,
        beta=shift.op.inputs[0] if shift.op.type == "Sub" else None,
        mean=mean,
        variance=variance,
        epsilon=epsilon,
        factor=factor,
        offset=shift,
        in_training=is_training and _is_of_batch(mean),
    )


def _layer_before(tensor: tf.Tensor) -> tuple[tf.Operation, tf.Operation | None] | None:
    """The layer that a normalization takes its input from, and the BatchToSpaceND behind it."""
    op, spread = tensor.op, None
    for between in ("Reshape", "Identity"):
        if op.type == between:
            op = op.inputs[0].op
    if op.type == "BatchToSpaceND":
        op, spread = op.inputs[0].op, op
    return (op, spread) if op.type in LAYER_TYPES else None


def _is_of_batch(mean: tf.Tensor) -> bool:
    """Whether a mean is computed from a batch, and not read from a moving average."""
    op = mean.op
    while op.type in _BEHIND_MEANS and op.type != "Mean":
        op = op.inputs[0].op
    return bool(op.type == "Mean")


def _update_towards(statistic: tf.Tensor, what: str, layer: tf.Operation) -> _AverageUpdate:
    """The operations ``(average - statistic) * rate`` of a moving average."""
    if statistic.op.type == "Identity":  # which waits for the updates
        statistic = statistic.op.inputs[0]
    for difference in statistic.consumers():
        if difference.type != "Sub" or difference.inputs[1] is not statistic:
            continue
        for product in difference.outputs[0].consumers():
            if product.type == "Mul" and product.inputs[0] is difference.outputs[0]:
                return _AverageUpdate(difference.inputs[0], product, product.inputs[1])
    raise ValueError(
        f"the batch normalization of {layer.name} has no moving average of its {what}; train it with the moving "
        "averages that tf.layers and tf.contrib.layers make, without zero_debias_moving_mean"
    )


# ------------------------------------------------------------------------------------------------------ what it becomes
def _fold(found: _Normalization, delay: int | None) -> None:
    scope = scope_of(found.layer)
    with tf.name_scope(f"{scope}/" if scope else None), tf.device(found.layer.device):
        with tf.name_scope("BatchNorm_Fold"):
            variance = _biased_variance(found)
            factor, offset = _factor_and_offset(found, variance)
            correction = _corrections(found, variance, delay) if found.in_training else None
        weights = found.layer.inputs[1]
        if correction is not None:
            weights = tf.multiply(_for_weights(found, correction[0], "correction_reshape"), weights, "correction_mult")
        weights = tf.multiply(weights, _for_weights(found, factor, "scale_reshape"), name="mul_fold")
        result = _layer_with(found, weights)
        if correction is not None:
            result = tf.multiply(_for_outputs(found, correction[1]), result, name="post_conv_mul")
            result = tf.add(result, _for_outputs(found, correction[2]), name="correction_add")
        result = tf.add(result, _for_outputs(found, offset), name="add_fold")
    reroute(found.output, result, [op for op in found.output.consumers() if op is not result.op])


def _biased_variance(found: _Normalization) -> tf.Tensor:
    """The variance that the batch is normalized by; what a fused normalization gives out is N / (N - 1) times it."""
    if found.fused is None or not found.in_training:
        return found.variance
    # its own gradient knows nothing of these outputs, which are all that is used of it from now on
    found.fused._set_attr("_gradient_op_type", _GRADIENT.encode())
    scope = scope_of(found.fused)
    with tf.name_scope(f"{scope}/" if scope else None):
        count = tf.cast(tf.size(found.fused.inputs[0]) / tf.size(found.mean), found.variance.dtype)
        return tf.multiply(found.variance, (count - 1) / count, name="Undo_Bessel_Correction")


@tf.RegisterGradient(_GRADIENT)
def _of_statistics(
    op: tf.Operation, _: tf.Tensor, to_mean: tf.Tensor, to_variance: tf.Tensor, *__: tf.Tensor
) -> list[tf.Tensor | None]:
    """The gradient of a fused normalization's mean and corrected variance."""
    x = op.inputs[0]
    count = tf.cast(tf.size(x) / tf.size(to_mean), x.dtype)
    mean = op.outputs[1]
    if op.get_attr("data_format") == b"NCHW":
        to_mean, to_variance, mean = (tf.reshape(t, [-1, 1, 1]) for t in (to_mean, to_variance, mean))
    return [to_mean / count + 2.0 * to_variance * (x - mean) / (count - 1.0), None, None, None, None]


def _factor_and_offset(found: _Normalization, variance: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """What the weights are multiplied by, gamma / sigma, and what is added in the end, beta - mean * gamma / sigma."""
    if found.factor is not None and found.offset is not None:
        return found.factor, found.offset
    factor = found.gamma * tf.rsqrt(variance + found.epsilon)
    return factor, tf.subtract(found.beta, found.mean * factor, name="bias")


def _corrections(
    found: _Normalization, variance: tf.Tensor, delay: int | None
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """What the weights are multiplied by, and what the layer's results are multiplied by and get added.

    Before the averages are frozen: sigma of the batch / sigma of the average, its inverse, 0. Afterwards: the same, 1,
    and gamma * (mean / sigma of the batch - mean / sigma of the average).
    """
    mean_update = _update_towards(found.mean, "mean", found.layer)
    variance_update = _update_towards(found.variance, "variance", found.layer)
    with tf.name_scope("batch_norm_correction"):
        inverse_of_average = tf.rsqrt(variance_update.average + found.epsilon)
        inverse_of_batch = tf.rsqrt(variance + found.epsilon)
        scale = tf.identity(tf.divide(inverse_of_average, inverse_of_batch, name="scale_compute"), "correction_scale")
        inverse = tf.reciprocal(scale, name="reciprocal_compute")
        shift = found.mean * inverse_of_batch - mean_update.average * inverse_of_average
        offset = shift if found.gamma is None else tf.multiply(found.gamma, shift, name="offset_compute")
        if delay is None:
            return scale, inverse, tf.zeros_like(offset, name="correction_offset")
        frozen = tf.greater_equal(quantization_step(), delay, name="use_moving_average")
        for update, name in ((mean_update, "freeze_moving_mean"), (variance_update, "freeze_moving_var")):
            rate = _either(frozen, tf.zeros_like(update.rate), update.rate, name)
            reroute(update.rate, rate, [update.product])
        return (
            scale,
            _either(frozen, tf.ones_like(inverse), inverse, "correction_recip"),
            _either(frozen, offset, tf.zeros_like(offset), "correction_offset"),
        )


def _either(frozen: tf.Tensor, then: tf.Tensor, otherwise: tf.Tensor, name: str) -> tf.Tensor:
    result: tf.Tensor = tf.cond(frozen, lambda: then, lambda: otherwise, name=name)
    return result


def _is_channels_first(layer: tf.Operation) -> bool:
    return layer.type != "MatMul" and layer.get_attr("data_format") == b"NCHW"


def _for_outputs(found: _Normalization, per_channel: tf.Tensor) -> tf.Tensor:
    """A vector with an element for each channel, in the shape in which it meets what the layer computes."""
    return tf.reshape(per_channel, [-1, 1, 1]) if _is_channels_first(found.layer) else per_channel


def _for_weights(found: _Normalization, per_channel: tf.Tensor, name: str) -> tf.Tensor:
    """The same for the weights, whose last dimension the channels are; those of depthwise layers are the last two."""
    if found.layer.type == "DepthwiseConv2dNative":
        return tf.reshape(per_channel, found.layer.inputs[1].shape[2:], name=name)
    return per_channel


def _layer_with(found: _Normalization, weights: tf.Tensor) -> tf.Tensor:
    """A second layer like that of the normalization, with other weights."""
    layer = found.layer
    name = f"{layer.name.rpartition('/')[2]}_Fold"
    attributes = {key: layer.get_attr(key) for key in layer.node_def.attr if key != "T" and not key.startswith("_")}
    inputs = {"a": layer.inputs[0], "b": weights} if layer.type == "MatMul" else {"input": layer.inputs[0]}
    if layer.type != "MatMul":
        inputs["filter"] = weights
    result: tf.Tensor = getattr(tf.raw_ops, layer.type)(**inputs, **attributes, name=name)
    if found.spread is not None:
        # TensorFlow puts it beside the layer where the normalization is fused, and beside the original else
        of_spread = found.spread.name
        where = scope_of(found.layer) + "/" if scope_of(found.layer) else ""
        name = of_spread.rpartition("/")[2] if found.fused is not None else of_spread.removeprefix(where)
        _, block_shape, crops = found.spread.inputs
        result = tf.batch_to_space_nd(result, block_shape, crops, name=f"{name}_Fold")
    return result
