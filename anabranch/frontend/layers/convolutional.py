"""Convolution layers of one, two and three dimensions, and separable ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from anabranch.core.shapes import ShapeLike, TensorShape
from anabranch.core.values import PassedOn, TensorLike
from anabranch.frontend.arguments import Activation, InitializerLike, PerAxis
from anabranch.frontend.layers.base import Layer
from anabranch.frontend.layers.input_spec import InputSpec
from anabranch.frontend.layers.utils import (
    conv_output_length,
    convert_data_format,
    get_activation,
    get_initializer,
    normalize_data_format,
    normalize_padding,
    normalize_tuple,
)
from anabranch.frontend.variables.initializers import zeros_initializer
from anabranch.frontend.variables.store import Reuse
from anabranch.graph.graph import get_default_graph
from anabranch.graph.operation import Tensor
from anabranch.ops import raw

_ZEROS = zeros_initializer()


class Conv(Layer):
    """Base of the convolution layers.

    Args:
        rank: number of spatial dimensions.
        filters: channels of the output.
        kernel_size: the window's size: one integer, or one per spatial dimension.
        strides, dilation_rate: likewise; not both larger than 1.
        padding: "valid" or "same"; one-dimensional layers also "causal".
        data_format: "channels_last" (default) or "channels_first".
        activation, use_bias, trainable, name, and the initializers, regularizers, constraints: see `Dense`.

    Raises:
        ValueError: an argument has another form, or strides and dilation are combined.
    """

    def __init__(
        self,
        rank: int,
        filters: int,
        kernel_size: PerAxis,
        strides: PerAxis = 1,
        padding: str = "valid",
        data_format: str | None = None,
        dilation_rate: PerAxis = 1,
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
        **kwargs: PassedOn,
    ) -> None:
        super().__init__(trainable, name, activity_regularizer=activity_regularizer, **kwargs)
        self.rank = rank
        self.filters = int(filters)
        self.kernel_size = normalize_tuple(kernel_size, rank, "kernel_size")
        self.strides = normalize_tuple(strides, rank, "strides")
        self.padding = normalize_padding(padding, ("valid", "same", "causal") if rank == 1 else ("valid", "same"))
        self.data_format = normalize_data_format(data_format)
        self.dilation_rate = normalize_tuple(dilation_rate, rank, "dilation_rate")
        if max(self.strides) > 1 and max(self.dilation_rate) > 1:
            raise ValueError(
                f"layer {self.name}: strides > 1 not supported in conjunction with dilation_rate > 1, got strides "
                f"{self.strides} and dilation_rate {self.dilation_rate}"
            )
        self.activation = get_activation(activation)
        self.use_bias = use_bias
        self.kernel_initializer = get_initializer(kernel_initializer)
        self.bias_initializer = get_initializer(bias_initializer)
        self.kernel_regularizer = kernel_regularizer
        self.bias_regularizer = bias_regularizer
        self.kernel_constraint = kernel_constraint
        self.bias_constraint = bias_constraint
        self.kernel: Any = None
        self.bias: Any = None
        self.input_spec = InputSpec(ndim=rank + 2)

    # ------------------------------------------------------------------ variables
    @property
    def _channel_axis(self) -> int:
        return -1 if self.data_format == "channels_last" else 1

    def _input_channels(self, input_shape: ShapeLike) -> int:
        channels = TensorShape(input_shape).as_list()[self._channel_axis]
        if channels is None:
            raise ValueError(
                f"The channel dimension of the inputs should be defined. Found `None` (layer {self.name}, input shape "
                f"{input_shape}); use set_shape"
            )
        self.input_spec = InputSpec(ndim=self.rank + 2, axes={self._channel_axis: channels})
        return channels

    def build(self, input_shape: ShapeLike) -> None:
        channels = self._input_channels(input_shape)
        self.kernel = self.add_weight(
            "kernel",
            [*self.kernel_size, channels, self.filters],
            initializer=self.kernel_initializer,
            regularizer=self.kernel_regularizer,
            constraint=self.kernel_constraint,
        )
        self._build_bias()
        self.built = True

    def _build_bias(self) -> None:
        if self.use_bias:
            self.bias = self.add_weight(
                "bias",
                [self.filters],
                initializer=self.bias_initializer,
                regularizer=self.bias_regularizer,
                constraint=self.bias_constraint,
            )

    # ------------------------------------------------------------------ computing
    def call(self, inputs: Tensor) -> Tensor:
        result: Tensor = self._finished(self._convolved(inputs))
        return result

    def _convolved(self, inputs: Tensor) -> Any:
        inputs, padding = self._padded(inputs)
        if self.rank > 1:
            return convolve(inputs, self.kernel, self.strides, padding, self.data_format, self.dilation_rate)
        with get_default_graph().name_scope("conv1d") as scope:
            axis = 1 if self.data_format == "channels_last" else 2
            image, kernel = raw.ExpandDims(inputs, axis), raw.ExpandDims(self.kernel, 0)
            strides, dilations = (1, *self.strides), (1, *self.dilation_rate)
            outputs = convolve(image, kernel, strides, padding, self.data_format, dilations, scope)
            return raw.Squeeze(outputs, squeeze_dims=[axis])

    def _padded(self, inputs: Tensor) -> tuple[Tensor, str]:
        """For "causal" padding, zeros before the first position, so that no output looks ahead."""
        if self.padding != "causal":
            return inputs, self.padding
        before = self.dilation_rate[0] * (self.kernel_size[0] - 1)
        none = [0, 0]
        pads = [none, [before, 0], none] if self.data_format == "channels_last" else [none, none, [before, 0]]
        return raw.Pad(inputs, pads), "valid"

    def _finished(self, outputs: TensorLike) -> Any:
        if self.use_bias:
            outputs = add_bias(outputs, self.bias, self.data_format)
        return outputs if self.activation is None else self.activation(outputs)

    def compute_output_shape(self, input_shape: ShapeLike) -> TensorShape:
        dims = TensorShape(input_shape).as_list()
        first = 1 if self.data_format == "channels_last" else 2
        windows = zip(self.kernel_size, self.strides, self.dilation_rate, strict=True)
        for i, (size, stride, dilation) in enumerate(windows):
            dims[first + i] = conv_output_length(dims[first + i], size, self.padding, stride, dilation)
        dims[self._channel_axis] = self.filters
        return TensorShape(dims)


def with_channels(sizes: tuple[int, ...], data_format: str) -> list[int]:
    """One entry per dimension of the input, from one per spatial dimension."""
    return [1, *sizes, 1] if data_format == "channels_last" else [1, 1, *sizes]


def convolve(
    inputs: Tensor,
    kernel: TensorLike,
    strides: tuple[int, ...],
    padding: str,
    data_format: str,
    dilations: tuple[int, ...],
    name: str | None = None,
) -> Any:
    """A convolution over two or three spatial dimensions."""
    op = raw.Conv2D if len(strides) == 2 else raw.Conv3D
    return op(
        inputs,
        kernel,
        strides=with_channels(strides, data_format),
        padding=padding.upper(),
        data_format=convert_data_format(data_format, len(strides) + 2),
        dilations=with_channels(dilations, data_format),
        name=name,
    )


def add_bias(outputs: Tensor, bias: TensorLike, data_format: str) -> Any:
    """One number per channel is added."""
    if data_format == "channels_last":
        return raw.BiasAdd(outputs, bias)
    if outputs.shape.ndims in (4, 5):
        return raw.BiasAdd(outputs, bias, data_format="NCHW")
    return raw.AddV2(outputs, raw.Reshape(bias, [1, -1, 1]), name="add")  # the name that TensorFlow's layers have


class Conv1D(Conv):
    """Convolution over one dimension; inputs [batch, length, channels]. Arguments: those of `Conv` after `rank`."""

    def __init__(self, filters: int, kernel_size: PerAxis, *args: PassedOn, **kwargs: PassedOn) -> None:
        super().__init__(1, filters, kernel_size, *args, **kwargs)


class Conv2D(Conv):
    """Convolution over images; inputs [batch, height, width, channels]. Arguments: those of `Conv` after `rank`."""

    def __init__(self, filters: int, kernel_size: PerAxis, *args: PassedOn, **kwargs: PassedOn) -> None:
        super().__init__(2, filters, kernel_size, *args, **kwargs)


class Conv3D(Conv):
    """Convolution over volumes; inputs [batch, depth, height, width, channels]. Arguments as in `Conv` after `rank`."""

    def __init__(self, filters: int, kernel_size: PerAxis, *args: PassedOn, **kwargs: PassedOn) -> None:
        super().__init__(3, filters, kernel_size, *args, **kwargs)


class _SeparableConv(Conv):
    """A convolution of each channel by itself, then one over channels alone.

    Args:
        depth_multiplier: outputs per channel of the first convolution.
        Other arguments: those of `Conv`, with initializers, regularizers and constraints of both kernels.
    """

    def __init__(
        self,
        rank: int,
        filters: int,
        kernel_size: PerAxis,
        strides: PerAxis = 1,
        padding: str = "valid",
        data_format: str | None = None,
        dilation_rate: PerAxis = 1,
        depth_multiplier: int = 1,
        activation: Activation | None = None,
        use_bias: bool = True,
        depthwise_initializer: InitializerLike | None = None,
        pointwise_initializer: InitializerLike | None = None,
        bias_initializer: InitializerLike | None = _ZEROS,
        depthwise_regularizer: Callable[..., Any] | None = None,
        pointwise_regularizer: Callable[..., Any] | None = None,
        bias_regularizer: Callable[..., Any] | None = None,
        activity_regularizer: Callable[..., Any] | None = None,
        depthwise_constraint: Callable[..., Any] | None = None,
        pointwise_constraint: Callable[..., Any] | None = None,
        bias_constraint: Callable[..., Any] | None = None,
        trainable: bool = True,
        name: str | None = None,
        **kwargs: PassedOn,
    ) -> None:
        super().__init__(
            rank,
            filters,
            kernel_size,
            strides,
            padding,
            data_format,
            dilation_rate,
            activation,
            use_bias,
            bias_initializer=bias_initializer,
            bias_regularizer=bias_regularizer,
            activity_regularizer=activity_regularizer,
            bias_constraint=bias_constraint,
            trainable=trainable,
            name=name,
            **kwargs,
        )
        self.depth_multiplier = depth_multiplier
        self.depthwise_initializer = get_initializer(depthwise_initializer)
        self.pointwise_initializer = get_initializer(pointwise_initializer)
        self.depthwise_regularizer = depthwise_regularizer
        self.pointwise_regularizer = pointwise_regularizer
        self.depthwise_constraint = depthwise_constraint
        self.pointwise_constraint = pointwise_constraint
        self.depthwise_kernel: Any = None
        self.pointwise_kernel: Any = None

    def build(self, input_shape: ShapeLike) -> None:
        channels = self._input_channels(input_shape)
        self.depthwise_kernel = self.add_weight(
            "depthwise_kernel",
            [*self.kernel_size, channels, self.depth_multiplier],
            initializer=self.depthwise_initializer,
            regularizer=self.depthwise_regularizer,
            constraint=self.depthwise_constraint,
        )
        self.pointwise_kernel = self.add_weight(
            "pointwise_kernel",
            [1] * self.rank + [channels * self.depth_multiplier, self.filters],
            initializer=self.pointwise_initializer,
            regularizer=self.pointwise_regularizer,
            constraint=self.pointwise_constraint,
        )
        self._build_bias()
        self.built = True

    def _convolved(self, inputs: Tensor) -> Any:
        inputs, padding = self._padded(inputs)
        if self.rank == 2:
            kernels = (self.depthwise_kernel, self.pointwise_kernel)
            return self._separable(inputs, *kernels, self.strides, self.dilation_rate, padding)
        axis = 1 if self.data_format == "channels_last" else 2
        image = raw.ExpandDims(inputs, axis)
        depthwise, pointwise = raw.ExpandDims(self.depthwise_kernel, 0), raw.ExpandDims(self.pointwise_kernel, 0)
        # the operation wants equal strides; the other dimension has length 1
        return self._separable(image, depthwise, pointwise, self.strides * 2, (1, *self.dilation_rate), padding)

    def _finished(self, outputs: TensorLike) -> Any:
        """Series are still images of one line; the bias is added to these, as in TensorFlow."""
        if self.rank == 2:
            return super()._finished(outputs)
        if self.use_bias:
            outputs = add_bias(outputs, self.bias, self.data_format)
        outputs = raw.Squeeze(outputs, squeeze_dims=[1 if self.data_format == "channels_last" else 2])
        return outputs if self.activation is None else self.activation(outputs)

    def _separable(
        self,
        image: TensorLike,
        depthwise: TensorLike,
        pointwise: TensorLike,
        strides: tuple[int, ...],
        dilations: tuple[int, ...],
        padding: str,
    ) -> Any:
        with get_default_graph().name_scope("separable_conv2d") as scope:
            middle = raw.DepthwiseConv2dNative(
                image,
                depthwise,
                strides=with_channels(strides, self.data_format),
                padding=padding.upper(),
                data_format=convert_data_format(self.data_format, 4),
                dilations=with_channels(dilations, self.data_format),
                name="depthwise",
            )
            return convolve(middle, pointwise, (1, 1), "valid", self.data_format, (1, 1), scope)


class SeparableConv1D(_SeparableConv):
    """Separable convolution over one dimension; inputs [batch, length, channels]."""

    def __init__(self, filters: int, kernel_size: PerAxis, *args: PassedOn, **kwargs: PassedOn) -> None:
        super().__init__(1, filters, kernel_size, *args, **kwargs)


class SeparableConv2D(_SeparableConv):
    """Separable convolution over images; inputs [batch, height, width, channels]."""

    def __init__(self, filters: int, kernel_size: PerAxis, *args: PassedOn, **kwargs: PassedOn) -> None:
        super().__init__(2, filters, kernel_size, *args, **kwargs)


#: what the functions of this file and of `transposed` say of their arguments
CONVOLUTION_ARGS = """inputs: floating images [batch, *sizes, channels] or, "channels_first", [batch, channels, *sizes].
        filters: how many channels the result has.
        kernel_size, strides: an integer, or one for each dimension of the images.
        padding: "valid" or "same".
        data_format: "channels_last" or "channels_first".
        activation: a function of a tensor, or its name; None: linear.
        use_bias: whether there is a bias.
        kernel_initializer: of the kernel; default: the variable scope's, else Glorot's uniform one.
        bias_initializer: of the bias [filters].
        kernel_regularizer, bias_regularizer, activity_regularizer: functions to a loss.
        kernel_constraint, bias_constraint: functions that optimizers apply to new values.
        trainable: whether the variables join `GraphKeys.TRAINABLE_VARIABLES`.
        name: of the layer, under which its variables stand.
        reuse: True: the variables of that name are there already; `AUTO_REUSE`: if they are."""
CONVOLUTION_RAISES = """ValueError: the images have another rank, their number of channels is not known, or arguments
            contradict each other."""


# ---------------------------------------------------------------------- functions
def _conv_function(layer_class: type[Any], rank: int) -> Callable[..., Tensor]:
    one = (1,) * rank if rank > 1 else 1

    def conv(
        inputs: TensorLike,
        filters: int,
        kernel_size: PerAxis,
        strides: PerAxis = one,
        padding: str = "valid",
        data_format: str | None = "channels_last",
        dilation_rate: PerAxis = one,
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
            dilation_rate,
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

    conv.__name__ = conv.__qualname__ = f"conv{rank}d"
    shape = [1] + [3] * rank + [1]
    conv.__doc__ = f"""A convolution with a kernel that is trained: calls a new `Conv{rank}D` layer.

    Args:
        {CONVOLUTION_ARGS}
        dilation_rate: the distance of the kernel's elements, an integer or one for each dimension.

    Returns:
        Images of shape [batch, *new sizes, filters], or [batch, filters, *new sizes].

    Raises:
        {CONVOLUTION_RAISES}

    Example:
        >>> sums = tf.layers.conv{rank}d(tf.ones({shape}), 1, 3, kernel_initializer=tf.ones_initializer())
        >>> sess.run(tf.global_variables_initializer())
        >>> sess.run(tf.squeeze(sums))
        np.float32({3.0**rank})
    """
    return conv


conv1d = _conv_function(Conv1D, 1)
conv2d = _conv_function(Conv2D, 2)
conv3d = _conv_function(Conv3D, 3)


def _separable_function(layer_class: type[Any], rank: int) -> Callable[..., Tensor]:
    one = (1,) * rank if rank > 1 else 1

    def separable_conv(
        inputs: TensorLike,
        filters: int,
        kernel_size: PerAxis,
        strides: PerAxis = one,
        padding: str = "valid",
        data_format: str | None = "channels_last",
        dilation_rate: PerAxis = one,
        depth_multiplier: int = 1,
        activation: Activation | None = None,
        use_bias: bool = True,
        depthwise_initializer: InitializerLike | None = None,
        pointwise_initializer: InitializerLike | None = None,
        bias_initializer: InitializerLike | None = _ZEROS,
        depthwise_regularizer: Callable[..., Any] | None = None,
        pointwise_regularizer: Callable[..., Any] | None = None,
        bias_regularizer: Callable[..., Any] | None = None,
        activity_regularizer: Callable[..., Any] | None = None,
        depthwise_constraint: Callable[..., Any] | None = None,
        pointwise_constraint: Callable[..., Any] | None = None,
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
            dilation_rate,
            depth_multiplier,
            activation,
            use_bias,
            depthwise_initializer,
            pointwise_initializer,
            bias_initializer,
            depthwise_regularizer,
            pointwise_regularizer,
            bias_regularizer,
            activity_regularizer,
            depthwise_constraint,
            pointwise_constraint,
            bias_constraint,
            trainable,
            name,
            _reuse=reuse,
            _scope=name,
        )
        result: Tensor = layer(inputs)
        return result

    separable_conv.__name__ = separable_conv.__qualname__ = f"separable_conv{rank}d"
    separable_conv.__doc__ = f"Calls a new `SeparableConv{rank}D` layer; `name` and `reuse` share its variables."
    return separable_conv


separable_conv1d = _separable_function(SeparableConv1D, 1)
separable_conv2d = _separable_function(SeparableConv2D, 2)
