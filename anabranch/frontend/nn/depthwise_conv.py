"""Convolutions per channel, and separable ones."""

from __future__ import annotations

from anabranch.core.values import TensorLike
from anabranch.frontend.arguments import Padding, PerAxis, one_of
from anabranch.frontend.framework import name_scope
from anabranch.frontend.nn.conv import conv2d
from anabranch.frontend.nn.conv_arguments import conv_attrs, padding_attrs
from anabranch.graph.conversion import convert_to_tensor
from anabranch.graph.operation import Tensor
from anabranch.ops import raw


def depthwise_conv2d_native(
    input: TensorLike,
    filter: TensorLike,
    strides: PerAxis,
    padding: Padding,
    data_format: str | None = "NHWC",
    dilations: PerAxis = (1, 1, 1, 1),
    name: str | None = None,
) -> Tensor:
    """Convolves each channel with its own filters.

    Args:
        input: [batch, height, width, channels] (or "NCHW").
        filter: [filter height, filter width, channels, multiplier]; the output has channels * multiplier channels.
    """
    how = {**conv_attrs(strides, dilations, data_format, 2), **padding_attrs(padding)}
    result: Tensor = raw.DepthwiseConv2dNative(input, filter, name=name, **how)
    return result


def depthwise_conv2d_native_backprop_input(
    input_sizes: TensorLike,
    filter: TensorLike,
    out_backprop: TensorLike,
    strides: PerAxis,
    padding: Padding,
    data_format: str | None = "NHWC",
    dilations: PerAxis = (1, 1, 1, 1),
    name: str | None = None,
) -> Tensor:
    """The gradient of `depthwise_conv2d_native` with respect to its input."""
    how = {**conv_attrs(strides, dilations, data_format, 2), **padding_attrs(padding)}
    result: Tensor = raw.DepthwiseConv2dNativeBackpropInput(input_sizes, filter, out_backprop, name=name, **how)
    return result


def depthwise_conv2d_native_backprop_filter(
    input: TensorLike,
    filter_sizes: TensorLike,
    out_backprop: TensorLike,
    strides: PerAxis,
    padding: Padding,
    data_format: str | None = "NHWC",
    dilations: PerAxis = (1, 1, 1, 1),
    name: str | None = None,
) -> Tensor:
    """The gradient of `depthwise_conv2d_native` with respect to its filter."""
    how = {**conv_attrs(strides, dilations, data_format, 2), **padding_attrs(padding)}
    result: Tensor = raw.DepthwiseConv2dNativeBackpropFilter(input, filter_sizes, out_backprop, name=name, **how)
    return result


depthwise_conv2d_backprop_input = depthwise_conv2d_native_backprop_input
depthwise_conv2d_backprop_filter = depthwise_conv2d_native_backprop_filter


def depthwise_conv2d(
    input: TensorLike,
    filter: TensorLike,
    strides: PerAxis,
    padding: Padding,
    rate: PerAxis | None = None,
    name: str | None = None,
    data_format: str | None = None,
    dilations: PerAxis | None = None,
) -> Tensor:
    """Slides filters over the channels of images, each on its own.

    Args:
        input: [batch, height, width, channels], or [batch, channels, height, width] with data_format "NCHW".
        filter: [filter height, filter width, channels, multiplier].
        strides: four numbers, one per axis of the data.
        padding: "SAME" or "VALID".
        rate: dilations: two numbers (height, width).
        name: of the operation.
        data_format: "NHWC" or "NCHW".
        dilations: another name of `rate`.

    Returns:
        [batch, out height, out width, channels * multiplier], or in "NCHW".

    Raises:
        ValueError: shapes or attributes that do not go together.

    Example:
        >>> image = tf.constant([[[[1.0, 10.0], [2.0, 20.0]]]])
        >>> sums = tf.nn.depthwise_conv2d(image, tf.ones([1, 2, 2, 1]), [1, 1, 1, 1], "VALID")
        >>> sess.run(sums)
        array([[[[ 3., 30.]]]], dtype=float32)
    """
    rate = one_of("dilations", dilations, "rate", rate)
    with name_scope(name, "depthwise", [input, filter]) as scope:
        return depthwise_conv2d_native(input, filter, strides, padding, data_format, rate, name=scope)


def separable_conv2d(
    input: TensorLike,
    depthwise_filter: TensorLike,
    pointwise_filter: TensorLike,
    strides: PerAxis,
    padding: Padding,
    rate: PerAxis | None = None,
    name: str | None = None,
    data_format: str | None = None,
    dilations: PerAxis | None = None,
) -> Tensor:
    """A convolution per channel, then one of size 1x1 that mixes the channels.

    Args:
        depthwise_filter: [filter height, filter width, channels, multiplier].
        pointwise_filter: [1, 1, channels * multiplier, out channels].
        strides, rate: of the first convolution.

    Raises:
        ValueError: the filters' shapes do not go together.
    """
    rate = one_of("dilations", dilations, "rate", rate)
    with name_scope(name, "separable_conv2d", [input, depthwise_filter, pointwise_filter]) as scope:
        point = convert_to_tensor(pointwise_filter, name="pointwise_filter")
        point.shape.with_rank(4)[:2].assert_is_compatible_with([1, 1])
        mixed = depthwise_conv2d_native(input, depthwise_filter, strides, padding, data_format, rate, name="depthwise")
        return conv2d(mixed, point, 1, "VALID", data_format=data_format, name=scope)
