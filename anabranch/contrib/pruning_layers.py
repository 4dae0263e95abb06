"""`tf.contrib.model_pruning`: layers and cells whose weights have masks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import anabranch as tf
from anabranch.contrib.arguments import PassedOn, ScopeLike, TensorLike
from anabranch.contrib.layer_functions import xavier_initializer
from anabranch.contrib.pruning_masks import masked_by

_ZEROS: Final = tf.zeros_initializer()


class _Masked:
    """What is computed with the attribute `_weight` of a layer, is computed with it times its mask."""

    _weight = "kernel"

    def build(self, input_shape: PassedOn) -> None:
        layer: Any = self
        super().build(input_shape)  # type: ignore[misc]
        layer.built = False  # there are variables to come
        weight = getattr(layer, self._weight)
        ones, zeros = tf.ones_initializer(), tf.zeros_initializer()
        layer.mask = layer.add_weight("mask", weight.shape, weight.dtype, ones, trainable=False)
        layer.threshold = layer.add_weight("threshold", [], weight.dtype, zeros, trainable=False)
        with tf.init_scope():  # cells are built inside of loops
            layer.masked_weight = masked_by(weight, layer.mask, layer.threshold)
        layer.built = True

    def call(self, *args: PassedOn, **kwargs: PassedOn) -> PassedOn:
        layer: Any = self
        weight = getattr(layer, self._weight)
        setattr(layer, self._weight, layer.masked_weight)
        try:
            return super().call(*args, **kwargs)  # type: ignore[misc]
        finally:
            setattr(layer, self._weight, weight)


class MaskedConv2D(_Masked, tf.layers.Conv2D):
    """A convolution whose weights have a mask; its arguments are those of `tf.layers.Conv2D`."""


class MaskedFullyConnected(_Masked, tf.layers.Dense):
    """A dense layer whose weights have a mask; its arguments are those of `tf.layers.Dense`."""


class MaskedBasicLSTMCell(_Masked, tf.nn.rnn_cell.BasicLSTMCell):
    """A `BasicLSTMCell` whose weights have a mask.

    Args:
        num_units: size of c and h.
        forget_bias: added to the forget gate's input.
        state_is_tuple: whether states are pairs of c and h, or these side by side.
        activation: default: tanh.
        reuse: whether the variables exist already.
        name: of the cell.
    """

    _weight = "_kernel"


class MaskedLSTMCell(_Masked, tf.nn.rnn_cell.LSTMCell):
    """An `LSTMCell` whose weights, but those of a projection, have a mask; its arguments are those of `LSTMCell`."""

    _weight = "_kernel"


def masked_convolution(
    inputs: TensorLike,
    num_outputs: int,
    kernel_size: PassedOn,
    stride: PassedOn = 1,
    padding: str = "SAME",
    data_format: str | None = None,
    rate: PassedOn = 1,
    activation_fn: Callable[..., Any] | None = tf.nn.relu,
    normalizer_fn: Callable[..., Any] | None = None,
    normalizer_params: dict[str, Any] | None = None,
    weights_initializer: PassedOn = None,
    weights_regularizer: PassedOn = None,
    biases_initializer: PassedOn = _ZEROS,
    biases_regularizer: PassedOn = None,
    reuse: bool | None = None,
    variables_collections: PassedOn = None,
    outputs_collections: PassedOn = None,
    trainable: bool = True,
    scope: ScopeLike | None = None,
) -> tf.Tensor:
    """A convolution in two dimensions whose weights have a mask.

    Its arguments are those of `tf.contrib.layers.conv2d`. Variables: "weights", "biases", "mask" and "threshold".

    Raises:
        ValueError: inputs of another rank than 4, or another data format than NHWC and NCHW.
    """
    formats = {None: "channels_last", "NHWC": "channels_last", "NCHW": "channels_first"}
    if data_format not in formats:
        raise ValueError(f"Invalid data_format: {data_format!r}")
    given = tf.convert_to_tensor(inputs)
    if given.shape.ndims != 4:
        raise ValueError(f"Sparse Convolution not supported for input with rank {given.shape.ndims}")

    def layer(scope: tf.VariableScope) -> MaskedConv2D:
        return MaskedConv2D(
            num_outputs,
            kernel_size,
            stride,
            padding,
            formats[data_format],
            rate,
            None,
            not normalizer_fn and biases_initializer is not None,
            weights_initializer or xavier_initializer(),
            biases_initializer,
            weights_regularizer,
            biases_regularizer,
            trainable=trainable,
            name=scope.name,
            dtype=given.dtype,
            _scope=scope,
            _reuse=reuse,
        )

    collections = variables_collections, outputs_collections
    finish = normalizer_fn, normalizer_params, activation_fn
    return _applied(
        given, layer, finish, collections, tf.variable_scope(scope, "Conv", [given], reuse=reuse, custom_getter=_getter)
    )


def masked_fully_connected(
    inputs: TensorLike,
    num_outputs: int,
    activation_fn: Callable[..., Any] | None = tf.nn.relu,
    normalizer_fn: Callable[..., Any] | None = None,
    normalizer_params: dict[str, Any] | None = None,
    weights_initializer: PassedOn = None,
    weights_regularizer: PassedOn = None,
    biases_initializer: PassedOn = _ZEROS,
    biases_regularizer: PassedOn = None,
    reuse: bool | None = None,
    variables_collections: PassedOn = None,
    outputs_collections: PassedOn = None,
    trainable: bool = True,
    scope: ScopeLike | None = None,
) -> tf.Tensor:
    """A dense layer whose weights have a mask.

    Its arguments are those of `tf.contrib.layers.fully_connected`. Variables: "weights", "biases", "mask", "threshold".

    Raises:
        ValueError: `num_outputs` is no int, or the last dimension of the inputs is not known.
    """
    if not isinstance(num_outputs, int):
        raise ValueError(f"num_outputs should be int or long, got {num_outputs}.")
    given = tf.convert_to_tensor(inputs)

    def layer(scope: tf.VariableScope) -> MaskedFullyConnected:
        return MaskedFullyConnected(
            num_outputs,
            None,
            not normalizer_fn and biases_initializer is not None,
            weights_initializer or xavier_initializer(),
            biases_initializer,
            weights_regularizer,
            biases_regularizer,
            trainable=trainable,
            name=scope.name,
            dtype=given.dtype,
            _scope=scope,
            _reuse=reuse,
        )

    collections = variables_collections, outputs_collections
    finish = normalizer_fn, normalizer_params, activation_fn
    opened = tf.variable_scope(scope, "fully_connected", [given], reuse=reuse, custom_getter=_getter)
    return _applied(given, layer, finish, collections, opened)


def _getter(getter: Callable[..., Any], name: str, *args: PassedOn, **kwargs: PassedOn) -> PassedOn:
    """Names variables as `tf.contrib.layers` does, and enters them among those of the model."""
    scope, _, short = name.rpartition("/")
    short = {"kernel": "weights", "bias": "biases"}.get(short, short)
    collections = list(kwargs.get("collections") or [tf.GraphKeys.GLOBAL_VARIABLES])
    kwargs["collections"] = [*collections, tf.GraphKeys.MODEL_VARIABLES]
    return getter(f"{scope}/{short}" if scope else short, *args, **kwargs)


def _applied(
    inputs: tf.Tensor,
    make: Callable[[tf.VariableScope], Any],
    finish: tuple[Any, dict[str, Any] | None, Any],
    collections: tuple[Any, Any],
    opened: PassedOn,
) -> tf.Tensor:
    normalizer, parameters, activation = finish
    with opened as scope:
        layer = make(scope)
        outputs = layer.apply(inputs)
        biases = [("biases", layer.bias)] if layer.use_bias else []
        for kind, variable in [("weights", layer.kernel), *biases]:
            names = collections[0].get(kind) if isinstance(collections[0], dict) else collections[0]
            for part in variable if hasattr(variable, "as_tensor") else [variable]:
                tf.add_to_collections([n for n in names or () if part not in tf.get_collection(n)], part)
        if normalizer is not None:
            outputs = normalizer(outputs, **(parameters or {}))
        if activation is not None:
            outputs = activation(outputs)
        if collections[1]:
            tf.add_to_collections(collections[1], outputs)
        result: tf.Tensor = outputs
        return result
