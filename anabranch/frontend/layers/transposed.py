"""Transposed convolution layers (also called deconvolutions)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from anabranch.core.shapes import ShapeLike, TensorShape
from anabranch.core.values import PassedOn, TensorLike
from anabranch.frontend.arguments import Activation, InitializerLike, PerAxis
from anabranch.frontend.layers.convolutional import CONVOLUTION_ARGS, CONVOLUTION_RAISES, Conv, with_channels
from anabranch.frontend.layers.utils import convert_data_format, deconv_output_length
from anabranch.frontend.variables.initializers import zeros_initializer
from anabranch.frontend.variables.store import Reuse
from anabranch.graph.operation import Tensor
from anabranch.ops import raw

_ZEROS = zeros_initializer()


class _ConvTranspose(Conv):
    """The gradient of a convolution with respect to its input, as a layer.

    The arguments are those of `Conv`, without dilation.
    """

    def __init__(
        self,
        rank: int,
        filters: int,
        kernel_size: PerAxis,
        strides: PerAxis = 1,
        padding: str = "valid",
        data_format: str | None = "channels_last",
        activation: Activation | None = None,
        *args: PassedOn,
        **kwargs: PassedOn,
    ) -> None:
        super().__init__(rank, filters, kernel_size, strides, padding, data_format, 1, activation, *args, **kwargs)

    def build(self, input_shape: ShapeLike) -> None:
        channels = self._input_channels(input_shape)
        self.kernel = self.add_weight(
            "kernel",
            [*self.kernel_size, self.filters, channels],
            initializer=self.kernel_initializer,
            regularizer=self.kernel_regularizer,
            constraint=self.kernel_constraint,
        )
        self._build_bias()
        self.built = True

    def _convolved(self, inputs: Tensor) -> Any:
        op = raw.Conv2DBackpropInput if self.rank == 2 else raw.Conv3DBackpropInputV2
        outputs = op(
            self._output_sizes(inputs),
            self.kernel,
            inputs,
            strides=with_channels(self.strides, self.data_format),
            padding=self.padding.upper(),
            data_format=convert_data_format(self.data_format, self.rank + 2),
            name=f"conv{self.rank}d_transpose",
        )
        outputs.set_shape(self.compute_output_shape(inputs.shape))
        return outputs

    def _output_sizes(self, inputs: Tensor) -> Any:
        """The output's shape: integers where known, else computed from the input's."""
        static = self.compute_output_shape(inputs.shape).as_list()
        if None not in static:
            return static
        sizes = raw.Shape(inputs)
        first = 1 if self.data_format == "channels_last" else 2
        parts: list[Any] = []
        for axis, known in enumerate(static):
            if known is not None:
                parts.append(known)
                continue
            size = raw.StridedSlice(sizes, [axis], [axis + 1], [1], shrink_axis_mask=1)
            if axis > 0:
                window, stride = self.kernel_size[axis - first], self.strides[axis - first]
                extra = max(window - stride, 0) if self.padding == "valid" else 0
                size = raw.AddV2(raw.Mul(size, stride), extra)
            parts.append(size)
        return raw.Pack(parts, name="stack")

    def compute_output_shape(self, input_shape: ShapeLike) -> TensorShape:
        dims = TensorShape(input_shape).as_list()
        first = 1 if self.data_format == "channels_last" else 2
        for i, (size, stride) in enumerate(zip(self.kernel_size, self.strides, strict=True)):
            dims[first + i] = deconv_output_length(dims[first + i], size, self.padding, stride)
        dims[self._channel_axis] = self.filters
        return TensorShape(dims)


class Conv2DTranspose(_ConvTranspose):
    """Transposed convolution over images; inputs [batch, height, width, channels]."""

    def __init__(self, filters: int, kernel_size: PerAxis, *args: PassedOn, **kwargs: PassedOn) -> None:
        super().__init__(2, filters, kernel_size, *args, **kwargs)


class Conv3DTranspose(_ConvTranspose):
    """Transposed convolution over volumes; inputs [batch, depth, height, width, channels]."""

    def __init__(self, filters: int, kernel_size: PerAxis, *args: PassedOn, **kwargs: PassedOn) -> None:
        super().__init__(3, filters, kernel_size, *args, **kwargs)


def _transpose_function(layer_class: type[Any], rank: int) -> Callable[..., Tensor]:
    def conv_transpose(
        inputs: TensorLike,
        filters: int,
        kernel_size: PerAxis,
        strides: PerAxis = (1,) * rank,
        padding: str = "valid",
        data_format: str | None = "channels_last",
        activation: Activation | None = None,
        use_bias: bool = True,
        kernel_initializer: InitializerLike | None = None,
        bias_initializer: InitializerLike | None = _ZEROS,
        kernel_regularizer: Callable[..., Any] | None = None,
        bias_regularizer: Callable[..., Any] | None = None,
        activity_regularizer: Callable[..., Any] | None = None,
        kernel_constraint: Callable[..., Any] | None = None,
        bias_constraint: Callable[..., Any] | None = None,
        trainable: bool = True,
        name: str | None = None,
        reuse: Reuse = None,
    ) -> Tensor:
        layer = layer_class(
            filters,
            kernel_size,
            strides,
            padding,
            data_format,
            activation,
            use_bias,
            kernel_initializer,
            bias_initializer,
            kernel_regularizer,
            bias_regularizer,
            activity_regularizer,
            kernel_constraint,
            bias_constraint,
            trainable,
            name,
            _reuse=reuse,
            _scope=name,
        )
        result: Tensor = layer(inputs)
        return result

    conv_transpose.__name__ = conv_transpose.__qualname__ = f"conv{rank}d_transpose"
    conv_transpose.__doc__ = f"""A transposed convolution ("deconvolution"): calls a new `Conv{rank}DTranspose` layer.

    Args:
        {CONVOLUTION_ARGS}

    Returns:
        Images of shape [batch, *new sizes, filters], or [batch, filters, *new sizes].

    Raises:
        {CONVOLUTION_RAISES}

    Example:
        >>> images = tf.ones({[1] + [3] * rank + [2]})
        >>> tf.layers.conv{rank}d_transpose(images, filters=4, kernel_size=2, strides=2).shape.as_list()
        {[1] + [6] * rank + [4]}
    """
    return conv_transpose


conv2d_transpose = _transpose_function(Conv2DTranspose, 2)
conv3d_transpose = _transpose_function(Conv3DTranspose, 3)
