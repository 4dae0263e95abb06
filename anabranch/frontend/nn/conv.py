"""Convolutions of one to three spatial dimensions, transposed and dilated."""

from __future__ import annotations

from typing import Any

import numpy as np

from anabranch.core.values import TensorLike
from anabranch.frontend.arguments import Padding, PerAxis, one_of
from anabranch.frontend.framework import name_scope
from anabranch.frontend.nn.conv_arguments import FORMATS, channels_last, conv_attrs, padding_attrs, per_axis
from anabranch.graph.constants import constant_value_as_shape
from anabranch.graph.conversion import convert_to_tensor
from anabranch.graph.operation import Tensor
from anabranch.ops import raw


# ---------------------------------------------------------------------- two dimensions
def conv2d(
    input: TensorLike,
    filter: TensorLike | None = None,
    strides: PerAxis | None = None,
    padding: Padding | None = None,
    use_cudnn_on_gpu: bool = True,
    data_format: str | None = "NHWC",
    dilations: PerAxis = (1, 1, 1, 1),
    name: str | None = None,
    filters: TensorLike | None = None,
) -> Tensor:
    """Slides filters over images: each output pixel is the sum over a window of input times filter.

    Args:
        input: [batch, height, width, in channels], or [batch, channels, height, width] with data_format "NCHW".
        filter: [filter height, filter width, in channels, out channels].
        strides, dilations: one number, two (height, width), or four (one per axis of the data).
        padding: "SAME", "VALID", or four pairs of paddings, one for each axis of the data.
        use_cudnn_on_gpu: accepted: the compiler chooses.
        data_format: "NHWC" or "NCHW".
        name: of the operation.
        filters: another name of `filter`.

    Returns:
        A tensor of the dtype of `input`: [batch, out height, out width, out channels], or in "NCHW".

    Raises:
        ValueError: shapes or attributes that do not go together.

    Example:
        >>> image = np.arange(9.0, dtype=np.float32).reshape([1, 3, 3, 1])
        >>> sums = tf.nn.conv2d(image, tf.ones([2, 2, 1, 1]), strides=[1, 1, 1, 1], padding="VALID")
        >>> sess.run(sums)[0, :, :, 0]
        array([[ 8., 12.],
               [20., 24.]], dtype=float32)
    """
    filter = one_of("filters", filters, "filter", filter)
    how = {**conv_attrs(strides, dilations, data_format, 2), **padding_attrs(padding)}
    result: Tensor = raw.Conv2D(input, filter, use_cudnn_on_gpu=use_cudnn_on_gpu, name=name, **how)
    return result


def conv2d_backprop_input(
    input_sizes: TensorLike,
    filter: TensorLike | None = None,
    out_backprop: TensorLike | None = None,
    strides: PerAxis | None = None,
    padding: Padding | None = None,
    use_cudnn_on_gpu: bool = True,
    data_format: str | None = "NHWC",
    dilations: PerAxis | None = (1, 1, 1, 1),
    name: str | None = None,
    filters: TensorLike | None = None,
) -> Tensor:
    """The gradient of `conv2d` with respect to its input, which has the shape `input_sizes`."""
    filter = one_of("filters", filters, "filter", filter)
    how = {**conv_attrs(strides, dilations, data_format, 2), **padding_attrs(padding)}
    result: Tensor = raw.Conv2DBackpropInput(
        input_sizes, filter, out_backprop, use_cudnn_on_gpu=use_cudnn_on_gpu, name=name, **how
    )
    return result


def conv2d_backprop_filter(
    input: TensorLike,
    filter_sizes: TensorLike,
    out_backprop: TensorLike,
    strides: PerAxis,
    padding: Padding,
    use_cudnn_on_gpu: bool = True,
    data_format: str | None = "NHWC",
    dilations: PerAxis = (1, 1, 1, 1),
    name: str | None = None,
) -> Tensor:
    """The gradient of `conv2d` with respect to its filter, which has the shape `filter_sizes`."""
    how = {**conv_attrs(strides, dilations, data_format, 2), **padding_attrs(padding)}
    result: Tensor = raw.Conv2DBackpropFilter(
        input, filter_sizes, out_backprop, use_cudnn_on_gpu=use_cudnn_on_gpu, name=name, **how
    )
    return result


def conv2d_transpose(
    value: TensorLike | None = None,
    filter: TensorLike | None = None,
    output_shape: TensorLike | None = None,
    strides: PerAxis | None = None,
    padding: Padding = "SAME",
    data_format: str | None = "NHWC",
    name: str | None = None,
    input: TensorLike | None = None,
    filters: TensorLike | None = None,
    dilations: PerAxis | None = None,
) -> Tensor:
    """The transpose of `conv2d` ("deconvolution"): its gradient with respect to the input, as a layer of its own.

    Args:
        value: [batch, height, width, in channels] (or "NCHW").
        filter: [filter height, filter width, out channels, in channels].
        output_shape: four integers, a list or a vector tensor.
        strides, dilations: one number, two (height, width), or four (one per axis of the data).
        padding: "SAME" or "VALID".
        data_format: "NHWC" or "NCHW".
        name: of the operation.
        input, filters: other names of `value` and `filter`.

    Returns:
        A tensor of shape `output_shape`.

    Raises:
        ValueError: shapes that do not go together.

    Example:
        >>> image = tf.constant([[[[1.0], [2.0]]]])
        >>> wide = tf.nn.conv2d_transpose(image, tf.ones([1, 2, 1, 1]), [1, 1, 4, 1], strides=[1, 1, 2, 1])
        >>> sess.run(wide)[0, :, :, 0]
        array([[1., 1., 2., 2.]], dtype=float32)
    """
    value, filter = one_of("input", input, "value", value), one_of("filters", filters, "filter", filter)
    with name_scope(name, "conv2d_transpose", [value, filter, output_shape]) as scope:
        return conv2d_backprop_input(
            output_shape, filter, value, strides, padding, data_format=data_format, dilations=dilations, name=scope
        )


def atrous_conv2d(
    value: TensorLike, filters: TensorLike, rate: int, padding: Padding, name: str | None = None
) -> Tensor:
    """Convolution with holes: `conv2d` with both dilations `rate`, "NHWC"."""
    return convolution(input=value, filter=filters, padding=padding, dilation_rate=[rate, rate], name=name)


def atrous_conv2d_transpose(
    value: TensorLike,
    filters: TensorLike,
    output_shape: TensorLike,
    rate: int,
    padding: Padding,
    name: str | None = None,
) -> Tensor:
    """The transpose of `atrous_conv2d`."""
    with name_scope(name, "atrous_conv2d_transpose", [value, filters, output_shape]) as scope:
        return conv2d_transpose(value, filters, output_shape, 1, padding, name=scope, dilations=[rate, rate])


# ---------------------------------------------------------------------- one dimension
def conv1d(
    value: TensorLike | None = None,
    filters: TensorLike | None = None,
    stride: PerAxis | None = None,
    padding: Padding | None = None,
    use_cudnn_on_gpu: bool | None = None,
    data_format: str | None = None,
    name: str | None = None,
    input: TensorLike | None = None,
    dilations: PerAxis | None = None,
) -> Tensor:
    """`conv2d` of images of height 1.

    Args:
        value: [batch, width, in channels], or [batch, channels, width] with data_format "NCW".
        filters: [filter width, in channels, out channels].
        stride: one number, or a list of one or three.
        padding: "SAME" or "VALID".
        use_cudnn_on_gpu: accepted: the compiler chooses.
        data_format: "NWC" (the default) or "NCW".
        name: of the operation.
        input: another name of `value`.
        dilations: one number, or a list of one or three.

    Returns:
        [batch, out width, out channels], or in "NCW".

    Raises:
        ValueError: shapes or attributes that do not go together.

    Example:
        >>> line = tf.constant([[[1.0], [2.0], [3.0]]])
        >>> sess.run(tf.nn.conv1d(line, tf.ones([2, 1, 1]), 1, "VALID"))[0, :, 0]
        array([3., 5.], dtype=float32)
    """
    value = one_of("input", input, "value", value)
    with name_scope(name, "conv1d", [value, filters]) as scope:
        last = channels_last(_spelled_1d(data_format), 1)
        at = 1 if last else 2
        images = raw.ExpandDims(convert_to_tensor(value, name="input"), np.int32(at))
        filter = raw.ExpandDims(convert_to_tensor(filters, name="filters"), np.int32(0))
        out = conv2d(
            images,
            filter,
            _with_height(stride, last, "stride"),
            padding,
            use_cudnn_on_gpu=True if use_cudnn_on_gpu is None else use_cudnn_on_gpu,
            data_format="NHWC" if last else "NCHW",
            dilations=_with_height(dilations, last, "dilations"),
            name=scope,
        )
        result: Tensor = raw.Squeeze(out, squeeze_dims=[at])
        return result


def _spelled_1d(data_format: str | None) -> str | None:
    """The formats of images are accepted for sequences as well."""
    return {"NHWC": "NWC", "NCHW": "NCW"}.get(data_format or "", data_format)


def _with_height(value: TensorLike, last: bool, name: str) -> list[int]:
    numbers = per_axis(value, 1, last, name)
    return [numbers[0], 1, *numbers[1:]] if last else [*numbers[:2], 1, numbers[2]]


def conv1d_transpose(
    input: TensorLike,
    filters: TensorLike,
    output_shape: TensorLike,
    strides: PerAxis,
    padding: Padding = "SAME",
    data_format: str | None = "NWC",
    dilations: PerAxis | None = None,
    name: str | None = None,
) -> Tensor:
    """The transpose of `conv1d`; `filters`: [filter width, out channels, in channels]."""
    with name_scope(name, "conv1d_transpose", [input, filters, output_shape]) as scope:
        last = channels_last(_spelled_1d(data_format), 1)
        at = 1 if last else 2
        shape = raw.ConcatV2([*_cut(convert_to_tensor(output_shape, np.int32), at)], np.int32(0))
        out = conv2d_transpose(
            raw.ExpandDims(convert_to_tensor(input, name="input"), np.int32(at)),
            raw.ExpandDims(convert_to_tensor(filters, name="filters"), np.int32(0)),
            shape,
            _with_height(strides, last, "strides"),
            padding,
            data_format="NHWC" if last else "NCHW",
            dilations=_with_height(dilations, last, "dilations"),
            name=scope,
        )
        result: Tensor = raw.Squeeze(out, squeeze_dims=[at])
        return result


def _cut(shape: Tensor, at: int) -> tuple[Tensor, Any, Tensor]:
    """A vector of three numbers with a 1 put in at place `at`."""
    before = raw.Slice(shape, np.array([0], np.int32), np.array([at], np.int32))
    after = raw.Slice(shape, np.array([at], np.int32), np.array([3 - at], np.int32))
    return before, np.array([1], np.int32), after


# ---------------------------------------------------------------------- three dimensions
def conv3d(
    input: TensorLike,
    filter: TensorLike | None = None,
    strides: PerAxis | None = None,
    padding: Padding | None = None,
    data_format: str | None = "NDHWC",
    dilations: PerAxis = (1, 1, 1, 1, 1),
    name: str | None = None,
    filters: TensorLike | None = None,
) -> Tensor:
    """Slides filters over volumes.

    Args:
        input: [batch, depth, height, width, in channels], or [batch, channels, ...] with data_format "NCDHW".
        filter: [filter depth, height, width, in channels, out channels]; `filters` is another name.
        strides, dilations: one number, three, or five (one per axis of the data).
    """
    filter = one_of("filters", filters, "filter", filter)
    how = conv_attrs(strides, dilations, data_format, 3)
    result: Tensor = raw.Conv3D(input, filter, padding=padding, name=name, **how)
    return result


def conv3d_backprop_filter_v2(
    input: TensorLike,
    filter_sizes: TensorLike,
    out_backprop: TensorLike,
    strides: PerAxis,
    padding: Padding,
    data_format: str | None = "NDHWC",
    dilations: PerAxis = (1, 1, 1, 1, 1),
    name: str | None = None,
) -> Tensor:
    """The gradient of `conv3d` with respect to its filter, which has the shape `filter_sizes`."""
    how = conv_attrs(strides, dilations, data_format, 3)
    result: Tensor = raw.Conv3DBackpropFilterV2(input, filter_sizes, out_backprop, padding=padding, name=name, **how)
    return result


conv3d_backprop_filter = conv3d_backprop_filter_v2


def conv3d_transpose(
    value: TensorLike,
    filter: TensorLike | None = None,
    output_shape: TensorLike | None = None,
    strides: PerAxis | None = None,
    padding: Padding = "SAME",
    data_format: str | None = "NDHWC",
    name: str | None = None,
    input: TensorLike | None = None,
    filters: TensorLike | None = None,
    dilations: PerAxis | None = None,
) -> Tensor:
    """The transpose of `conv3d`; `filter`: [depth, height, width, out channels, in channels]."""
    value, filter = one_of("input", input, "value", value), one_of("filters", filters, "filter", filter)
    with name_scope(name, "conv3d_transpose", [value, filter, output_shape]) as scope:
        how = conv_attrs(strides, dilations, data_format, 3)
        result: Tensor = raw.Conv3DBackpropInputV2(output_shape, filter, value, padding=padding, name=scope, **how)
        return result


def conv_transpose(
    input: TensorLike,
    filters: TensorLike,
    output_shape: TensorLike,
    strides: PerAxis,
    padding: Padding = "SAME",
    data_format: str | None = None,
    dilations: PerAxis | None = None,
    name: str | None = None,
) -> Tensor:
    """The transposed convolution of one to three spatial dimensions, by the length of `output_shape`."""
    with name_scope(name, "conv_transpose", [input, filters, output_shape]) as scope:
        shape = constant_value_as_shape(convert_to_tensor(output_shape, np.int32, name="output_shape"))
        spatial = (shape.ndims or 0) - 2
        if spatial not in FORMATS:
            raise ValueError(f"output_shape must have 3, 4 or 5 entries, got {shape}")
        function: Any = {1: conv1d_transpose, 2: conv2d_transpose, 3: conv3d_transpose}[spatial]
        result: Tensor = function(
            input,
            filters,
            output_shape,
            strides,
            padding=padding,
            data_format=data_format or FORMATS[spatial][0],
            dilations=dilations,
            name=scope,
        )
        return result


# ---------------------------------------------------------------------- any dimension
def convolution(
    input: TensorLike,
    filter: TensorLike | None = None,
    padding: Padding | None = None,
    strides: PerAxis | None = None,
    dilation_rate: PerAxis | None = None,
    name: str | None = None,
    data_format: str | None = None,
    filters: TensorLike | None = None,
    dilations: PerAxis | None = None,
) -> Tensor:
    """A convolution of one to three spatial dimensions.

    Args:
        input: rank N + 2, with N spatial dimensions.
        filter: [*spatial, in channels, out channels]; `filters` is another name.
        strides, dilation_rate: N numbers each; not both greater than 1. `dilations` is another name of the second.
        data_format: "N...C" (default) or "NC...".

    Raises:
        ValueError: the ranks do not go together, or both strides and dilations are greater than 1.
    """
    filter = one_of("filters", filters, "filter", filter)
    dilation_rate = one_of("dilations", dilations, "dilation_rate", dilation_rate)
    with name_scope(name, "convolution", [input, filter]) as scope:
        data = convert_to_tensor(input, name="input")
        kernel = convert_to_tensor(filter, name="filter")
        rank = data.shape.ndims if data.shape.ndims is not None else kernel.shape.ndims
        spatial = (rank or 0) - 2
        if spatial not in FORMATS:
            raise ValueError(f"the input must have rank 3, 4 or 5, got shape {data.shape}")
        last = channels_last(data_format, spatial)
        steps = per_axis(strides, spatial, last, "strides")
        rates = per_axis(dilation_rate, spatial, last, "dilation_rate")
        if max(steps) > 1 and max(rates) > 1:
            raise ValueError(f"strides > 1 not supported in conjunction with dilation_rate > 1: {steps} and {rates}")
        function: Any = {1: conv1d, 2: conv2d, 3: conv3d}[spatial]
        result: Tensor = function(
            data, kernel, steps, padding, data_format=data_format or FORMATS[spatial][0], dilations=rates, name=scope
        )
        return result
