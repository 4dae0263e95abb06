"""Layers of units, and those without variables: dense, dropout, flatten."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from anabranch.core.dtypes import as_dtype, float32
from anabranch.core.shapes import ShapeLike, TensorShape
from anabranch.core.values import PassedOn, TensorLike
from anabranch.frontend.arguments import Activation, InitializerLike
from anabranch.frontend.layers.base import Layer
from anabranch.frontend.layers.input_spec import InputSpec
from anabranch.frontend.layers.utils import get_activation, get_initializer, normalize_data_format, smart_cond
from anabranch.frontend.nn import activations as nn_activations
from anabranch.frontend.variables.initializers import zeros_initializer
from anabranch.frontend.variables.store import Reuse
from anabranch.graph.graph import get_default_graph
from anabranch.graph.operation import Tensor
from anabranch.ops import raw


class Dense(Layer):
    """``activation(inputs @ kernel + bias)`` over the last dimension.

    Args:
        units: size of the output's last dimension.
        activation: function of a tensor, or its name; None: linear.
        use_bias: whether there is a bias.
        kernel_initializer: default: the variable scope's, else Glorot's uniform one.
        bias_initializer: default zeros.
        kernel_regularizer, bias_regularizer, activity_regularizer: functions to a loss.
        kernel_constraint, bias_constraint: functions that optimizers apply to new values.
        trainable: whether the variables join `GraphKeys.TRAINABLE_VARIABLES`.
        name: of the layer, under which its variables stand.

    Raises:
        ValueError: (when called) the last dimension is not known.
        TypeError: (when called) the inputs are not floating.

    Example:
        >>> layer = tf.layers.Dense(4)
        >>> layer(tf.ones([2, 3])).shape, layer.kernel.shape
        (TensorShape([Dimension(2), Dimension(4)]), TensorShape([Dimension(3), Dimension(4)]))
    """

    def __init__(
        self,
        units: int,
        activation: Activation | None = None,
        use_bias: bool = True,
        kernel_initializer: InitializerLike | None = None,
        bias_initializer: InitializerLike | None = zeros_initializer(),  # noqa: B008 - initializers are immutable
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
        self.units = int(units)
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
        self.input_spec = InputSpec(min_ndim=2)

    def build(self, input_shape: ShapeLike) -> None:
        dtype = as_dtype(self.dtype or float32)
        if not (dtype.is_floating or dtype.is_complex):
            raise TypeError(f"Unable to build `Dense` layer {self.name} with non-floating point dtype {dtype.name}")
        features = TensorShape(input_shape).as_list()[-1]
        if features is None:
            raise ValueError(
                "The last dimension of the inputs to `Dense` should be defined. Found `None` "
                f"(layer {self.name}, input shape {input_shape}); use set_shape"
            )
        self.input_spec = InputSpec(min_ndim=2, axes={-1: features})
        self.kernel = self.add_weight(
            "kernel",
            [features, self.units],
            initializer=self.kernel_initializer,
            regularizer=self.kernel_regularizer,
            constraint=self.kernel_constraint,
        )
        if self.use_bias:
            self.bias = self.add_weight(
                "bias",
                [self.units],
                initializer=self.bias_initializer,
                regularizer=self.bias_regularizer,
                constraint=self.bias_constraint,
            )
        self.built = True

    def call(self, inputs: Tensor) -> Tensor:
        if inputs.dtype is not self.kernel.dtype:
            inputs = raw.Cast(inputs, DstT=self.kernel.dtype)
        outputs: Any = raw.MatMul(inputs, self.kernel) if inputs.shape.ndims == 2 else self._over_last(inputs)
        if self.use_bias:
            outputs = raw.BiasAdd(outputs, self.bias)
        result: Tensor = outputs if self.activation is None else self.activation(outputs)
        return result

    def _over_last(self, inputs: Tensor) -> Tensor:
        """For more than two dimensions: all but the last are one batch."""
        dims = inputs.shape.as_list()
        known = dims[:-1]
        with get_default_graph().name_scope("Tensordot") as scope:
            rows = raw.Reshape(inputs, [-1, dims[-1]])
            products = raw.MatMul(rows, self.kernel)
            if sum(d is None for d in known) <= 1:
                shape: Any = [-1 if d is None else d for d in known] + [self.units]
            else:
                outer = raw.StridedSlice(raw.Shape(inputs), [0], [-1], [1])
                shape = raw.ConcatV2([outer, np.array([self.units], np.int32)], axis=0)
            outputs: Tensor = raw.Reshape(products, shape, name=scope)
        outputs.set_shape([*known, self.units])
        return outputs

    def compute_output_shape(self, input_shape: ShapeLike) -> TensorShape:
        dims = TensorShape(input_shape).with_rank_at_least(2).as_list()
        if dims[-1] is None:
            raise ValueError(f"The innermost dimension of input_shape must be defined, but saw: {input_shape}")
        return TensorShape([*dims[:-1], self.units])


class Dropout(Layer):
    """Sets a fraction `rate` of the inputs to 0 and scales the others by ``1 / (1 - rate)``, in training only.

    Args:
        rate: between 0 and 1.
        noise_shape: shape of the random mask, broadcast to the inputs; None or -1 entries stand for the inputs' sizes.
        seed: of the mask.
    """

    def __init__(
        self,
        rate: TensorLike = 0.5,
        noise_shape: TensorLike | None = None,
        seed: int | None = None,
        name: str | None = None,
        **kwargs: PassedOn,
    ) -> None:
        super().__init__(name=name, **kwargs)
        self.rate = rate
        self.noise_shape = noise_shape
        self.seed = seed

    def _get_noise_shape(self, inputs: Tensor) -> Any:
        if self.noise_shape is None or isinstance(self.noise_shape, Tensor):
            return self.noise_shape
        sizes = raw.Unpack(raw.Shape(inputs), num=inputs.shape.ndims)
        return [sizes[i] if value is None else value for i, value in enumerate(self.noise_shape)]

    def call(self, inputs: Tensor, training: TensorLike = False) -> Tensor:
        def dropped() -> Any:
            return nn_activations.dropout(
                inputs, noise_shape=self._get_noise_shape(inputs), seed=self.seed, rate=self.rate
            )

        result: Tensor = smart_cond(training, dropped, lambda: raw.Identity(inputs))
        return result

    def compute_output_shape(self, input_shape: ShapeLike) -> TensorShape:
        return TensorShape(input_shape)


class Flatten(Layer):
    """Makes a matrix: the first dimension stays, all others become one.

    Args:
        data_format: "channels_first" inputs are brought to "channels_last" first.
    """

    def __init__(self, data_format: str | None = None, **kwargs: PassedOn) -> None:
        super().__init__(**kwargs)
        self.data_format = normalize_data_format(data_format)
        self.input_spec = InputSpec(min_ndim=1)

    def call(self, inputs: Tensor) -> Tensor:
        rank = inputs.shape.ndims or 0
        if self.data_format == "channels_first" and rank > 2:
            inputs = raw.Transpose(inputs, [0, *range(2, rank), 1])
        dims = inputs.shape.as_list()
        size = self.compute_output_shape(dims).as_list()[1]
        if size:
            shape: Any = [-1, size]
        elif dims[0] is not None:
            shape = [dims[0], -1 if size is None else size]
        else:
            batch = raw.StridedSlice(raw.Shape(inputs), [0], [1], [1], shrink_axis_mask=1)
            shape = raw.Pack([batch, -1 if size is None else size])
        outputs = raw.Reshape(inputs, shape)
        outputs.set_shape(self.compute_output_shape(dims))
        result: Tensor = outputs
        return result

    def compute_output_shape(self, input_shape: ShapeLike) -> TensorShape:
        dims = TensorShape(input_shape).as_list()
        known = [d for d in dims[1:] if d is not None]
        return TensorShape([dims[0], math.prod(known) if len(known) == len(dims) - 1 else None])


# ---------------------------------------------------------------------- functions
def dense(
    inputs: TensorLike,
    units: int,
    activation: Activation | None = None,
    use_bias: bool = True,
    kernel_initializer: InitializerLike | None = None,
    bias_initializer: InitializerLike | None = zeros_initializer(),  # noqa: B008
    kernel_regularizer: Callable[..., Any] | None = None,
    bias_regularizer: Callable[..., Any] | None = None,
    activity_regularizer: Callable[..., Any] | None = None,
    kernel_constraint: Callable[..., Any] | None = None,
    bias_constraint: Callable[..., Any] | None = None,
    trainable: bool = True,
    name: str | None = None,
    reuse: Reuse = None,
) -> Tensor:
    """A layer of units, ``activation(inputs @ kernel + bias)`` over the last dimension: calls a new `Dense` layer.

    Args:
        inputs: a floating tensor of shape [..., features]; the number of features is known.
        units: the size of the result's last dimension.
        activation: a function of a tensor, or its name; None: linear.
        use_bias: whether there is a bias.
        kernel_initializer: of the kernel [features, units]; default: the variable scope's, else Glorot's uniform one.
        bias_initializer: of the bias [units].
        kernel_regularizer, bias_regularizer, activity_regularizer: functions from the kernel, the bias and the result
            to a loss.
        kernel_constraint, bias_constraint: functions that optimizers apply to new values.
        trainable: whether the variables join `GraphKeys.TRAINABLE_VARIABLES`.
        name: of the layer, under which its variables stand; default: "dense", made unique.
        reuse: True: the variables of that name are there already; `AUTO_REUSE`: if they are.

    Returns:
        A tensor of shape [..., units].

    Raises:
        ValueError: the number of features is not known, or the variables cannot be made or reused.
        TypeError: `inputs` are not floating.

    Example:
        >>> x = tf.ones([2, 3])
        >>> y = tf.layers.dense(x, 4, kernel_initializer=tf.ones_initializer())
        >>> sess.run(tf.global_variables_initializer())
        >>> sess.run(y)
        array([[3., 3., 3., 3.],
               [3., 3., 3., 3.]], dtype=float32)
    """
    layer = Dense(
        units,
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
        _scope=name,
        _reuse=reuse,
    )
    result: Tensor = layer(inputs)
    return result


def dropout(
    inputs: TensorLike,
    rate: TensorLike = 0.5,
    noise_shape: TensorLike | None = None,
    seed: int | None = None,
    training: TensorLike = False,
    name: str | None = None,
) -> Tensor:
    """Sets a part of the elements to 0 and scales the others by ``1 / (1 - rate)``, in training only.

    Args:
        inputs: a floating tensor of any shape.
        rate: how large a part, a scalar in [0, 1].
        noise_shape: the shape of the random mask, which broadcasts to `inputs`; None for an entry: the size of
            `inputs`.
        seed: of the mask.
        training: a bool or a boolean scalar tensor: whether to drop anything.
        name: of the operation.

    Returns:
        A tensor of the shape and dtype of `inputs`.

    Raises:
        ValueError: `rate` lies outside [0, 1].

    Example:
        >>> x = tf.ones([4])
        >>> sess.run(tf.layers.dropout(x, rate=0.5, training=False))
        array([1., 1., 1., 1.], dtype=float32)
    """
    result: Tensor = Dropout(rate, noise_shape, seed, name)(inputs, training=training)
    return result


def flatten(inputs: TensorLike, name: str | None = None, data_format: str | None = "channels_last") -> Tensor:
    """Makes a matrix: the first dimension stays, all others become one.

    Args:
        inputs: a tensor of shape [batch, ...].
        name: of the operation.
        data_format: "channels_last", or "channels_first", which is brought to "channels_last" first.

    Returns:
        A tensor of shape [batch, product of the other sizes].

    Raises:
        ValueError: `inputs` is a scalar, or the format is unknown.

    Example:
        >>> tf.layers.flatten(tf.zeros([2, 3, 4])).shape
        TensorShape([Dimension(2), Dimension(12)])
    """
    result: Tensor = Flatten(data_format, name=name)(inputs)
    return result
