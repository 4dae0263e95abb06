"""Wrappers and other layers of the package that take more arguments in TensorFlow."""

from __future__ import annotations

from typing import Any

import anabranch as tf
from anabranch.core.values import PassedOn
from anabranch.tfkeras import package, rebasing, scopes, shapes
from anabranch.tfkeras.layer import KerasLayer

_module = package.module("layers.wrappers")
_embeddings = package.module("layers.embeddings")
_layers = package.module("layers")
_convolutional = package.module("layers.convolutional")
_scope: Any = package.module("utils.generic_utils").CustomObjectScope
_Wrapper: Any = rebasing.rebased(_module.Wrapper)


@rebasing.serves(_module.Wrapper)
class Wrapper(_Wrapper):
    """A layer around another, whose variables, losses and updates are its own."""

    def __init__(self, layer: PassedOn, **kwargs: PassedOn) -> None:
        if not isinstance(layer, KerasLayer.__mro__[1] | tf.layers.Layer):
            raise ValueError(
                f"Please initialize `{type(self).__name__}` layer with a `Layer` instance. You passed: {layer}"
            )
        super().__init__(layer, **kwargs)

    trainable = KerasLayer.trainable
    trainable_weights = KerasLayer.trainable_weights
    non_trainable_weights = KerasLayer.non_trainable_weights
    updates = KerasLayer.updates
    losses = KerasLayer.losses
    get_updates_for = KerasLayer.get_updates_for
    get_losses_for = KerasLayer.get_losses_for
    get_weights = KerasLayer.get_weights
    set_weights = KerasLayer.set_weights

    @property
    def activity_regularizer(self) -> Any:
        return None

    @activity_regularizer.setter
    def activity_regularizer(self, value: PassedOn) -> None:
        """The inner layer regularizes its own outputs."""


_TimeDistributed: Any = rebasing.rebased(_module.TimeDistributed)
_Bidirectional: Any = rebasing.rebased(_module.Bidirectional)


@rebasing.serves(_module.TimeDistributed)
class TimeDistributed(_TimeDistributed):
    """A layer applied to every step of a sequence: to all of them at once, as one batch."""

    def build(self, input_shape: PassedOn) -> None:
        lengths = tf.TensorShape(input_shape).as_list()
        if len(lengths) < 3:
            raise ValueError(
                "`TimeDistributed` Layer should be passed an `input_shape ` with at least 3 dimensions, "
                f"received: {lengths}"
            )
        self.input_spec = _module.InputSpec(shape=(None, None, *lengths[2:]))
        if not self.layer.built:
            self.layer.build(tf.TensorShape([lengths[0], *lengths[2:]]))
            self.layer.built = True
        self.built = True

    def compute_output_shape(self, input_shape: PassedOn) -> Any:
        lengths = tf.TensorShape(input_shape).as_list()
        inner = self.layer.compute_output_shape(tf.TensorShape([lengths[0], *lengths[2:]]))
        inside = tf.TensorShape(inner).as_list()
        answer = tf.TensorShape([inside[0], lengths[1], *inside[1:]])
        return answer if shapes.of_tensorflow(input_shape) else shapes.as_tuples(answer)

    def call(self, inputs: PassedOn, training: PassedOn = None, mask: PassedOn = None) -> Any:
        lengths = inputs.shape.as_list()
        dynamic = tf.shape(inputs)
        steps = lengths[1] or dynamic[1]
        merged = tf.reshape(inputs, tf.concat([[-1], dynamic[2:]], 0))
        merged.set_shape([None, *lengths[2:]])
        kwargs: dict[str, Any] = {"training": training} if training is not None else {}
        if mask is not None and _accepts(self.layer, "mask"):
            kwargs["mask"] = tf.reshape(mask, tf.concat([[-1], tf.shape(mask)[2:]], 0))
        outputs = self.layer(merged, **kwargs)
        rest = outputs.shape.as_list()[1:]
        parts = [length if length is not None else tf.shape(outputs)[i + 1] for i, length in enumerate(rest)]
        result = tf.reshape(outputs, tf.stack([-1 if lengths[1] or lengths[0] is None else lengths[0], steps, *parts]))
        result.set_shape([lengths[0], lengths[1], *rest])
        return result

    def compute_mask(self, inputs: PassedOn, mask: PassedOn = None) -> Any:
        lengths = inputs.shape.as_list()
        if lengths[0] is not None:
            return mask
        shape = tf.shape(inputs)
        merged = tf.reshape(inputs, tf.concat([[-1], shape[2:]], 0))
        merged.set_shape([None, *lengths[2:]])
        inner = None if mask is None else tf.reshape(mask, tf.concat([[-1], tf.shape(mask)[2:]], 0))
        takes = self.layer.supports_masking or type(self.layer).compute_mask is not KerasLayer.compute_mask
        found = self.layer.compute_mask(merged, inner) if takes else None
        if found is not None:
            return tf.reshape(found, tf.concat([[-1, lengths[1] or shape[1]], tf.shape(found)[1:]], 0))
        if mask is None:
            return None
        return tf.reduce_any(mask, list(range(2, mask.shape.ndims))) if (mask.shape.ndims or 0) > 2 else mask

    def _tell_shapes(self, inputs: PassedOn, outputs: PassedOn) -> None:
        """`call` sets them."""


def _accepts(layer: PassedOn, name: str) -> bool:
    return bool(package.module("utils.generic_utils").has_arg(layer.call, name))


def _classes_of_cells(layer: PassedOn) -> dict[str, Any]:
    """A program's own classes of a recurrent layer's cells, by the names that its configuration has for them."""
    cell = getattr(layer, "cell", None)
    cells = [] if cell is None else [cell, *getattr(cell, "cells", [])]
    return {type(one).__name__: type(one) for one in cells if not rebasing.is_foundation(type(one))}


@rebasing.serves(_module.Bidirectional)
class Bidirectional(_Bidirectional):
    """A recurrent layer, and another one that goes through time the other way.

    Args:
        backward_layer: the other one; default: one of the same configuration.
    """

    input_spec: Any
    backward_layer: Any

    def __init__(
        self,
        layer: PassedOn,
        merge_mode: PassedOn = "concat",
        weights: PassedOn = None,
        backward_layer: PassedOn = None,
        **kwargs: PassedOn,
    ) -> None:
        for one in (layer, *([] if backward_layer is None else [backward_layer])):
            if not isinstance(one, KerasLayer.__mro__[1]):
                raise ValueError(f"Please initialize `Bidirectional` layer with a `Layer` instance. You passed: {one}")
        with scopes.served_classes(), _scope(_classes_of_cells(layer)):
            super().__init__(layer, merge_mode, weights, **kwargs)
        if self.return_sequences:  # what is not there adds nothing to what the other direction gives
            for one in (self.forward_layer, backward_layer or self.backward_layer):
                one.zero_output_for_mask = True
        self.input_spec = self.input_spec or [None]  # to which those of states and constants are added
        self._given_backward = backward_layer
        if backward_layer is not None:
            for attribute in ("stateful", "return_sequences", "return_state"):
                if getattr(backward_layer, attribute) != getattr(layer, attribute):
                    raise ValueError(
                        "Forward layer and backward layer are expected to have the same value for attribute "
                        f"{attribute}, got {getattr(layer, attribute)} and {getattr(backward_layer, attribute)}"
                    )
            if backward_layer.go_backwards == layer.go_backwards:
                raise ValueError("Forward layer and backward layer should have different `go_backwards` value.")
            self.backward_layer = backward_layer
            backward_layer.name = f"backward_{backward_layer.name}"

    def _parts(self) -> list[Any]:
        """The two directions; the layer that was given is what they were made of, and shares lists with one of them."""
        return [part for part in super()._parts() if part is not self.layer]

    def build(self, input_shape: PassedOn) -> None:
        with tf.name_scope(self.forward_layer.name):
            self.forward_layer.build(input_shape)
        with tf.name_scope(self.backward_layer.name):
            self.backward_layer.build(input_shape)
        self.forward_layer.built = self.backward_layer.built = self.built = True

    losses, updates = KerasLayer.losses, KerasLayer.updates
    get_losses_for, get_updates_for = KerasLayer.get_losses_for, KerasLayer.get_updates_for

    def call(
        self,
        inputs: PassedOn,
        mask: PassedOn = None,
        training: PassedOn = None,
        initial_state: PassedOn = None,
        constants: PassedOn = None,
    ) -> Any:
        """What both directions give, merged, and their last states where those are asked for."""
        listed = list(inputs) if isinstance(inputs, list | tuple) else [inputs]
        if self._num_constants and constants is None and len(listed) > 1:
            listed, constants = listed[: -self._num_constants], listed[-self._num_constants :]
        if len(listed) > 1:
            if initial_state is not None:
                raise ValueError("initial states are given in the list of inputs and by `initial_state`; leave one out")
            initial_state = listed[1:]
        states = list(initial_state or [])
        half = len(states) // 2
        told = {"mask": mask, "training": training, "constants": constants}
        outputs, last = [], []
        for one, its in ((self.forward_layer, states[:half]), (self.backward_layer, states[half:])):
            given = {"initial_state": its or None, **told}
            given = {name: value for name, value in given.items() if value is not None and _accepts(one, name)}
            found = one.call(listed[0], **given)
            found = list(found) if self.return_state else [found]
            one._regularize(listed[0], found[0])
            outputs.append(found[0])
            last += found[1:]
        if self.return_sequences:
            outputs[1] = tf.reverse(outputs[1], [0 if getattr(self.forward_layer, "time_major", False) else 1])
        merged = self._merged(*outputs)
        if not self.return_state:
            return merged
        return [*(merged if self.merge_mode is None else [merged]), *last]

    def _merged(self, forward: PassedOn, backward: PassedOn) -> Any:
        if self.merge_mode == "concat":
            return tf.concat([forward, backward], -1)
        if self.merge_mode == "sum":
            return forward + backward
        if self.merge_mode == "ave":
            return (forward + backward) / 2
        return forward * backward if self.merge_mode == "mul" else [forward, backward]

    def get_config(self) -> dict[str, Any]:
        config: dict[str, Any] = super().get_config()
        if self._given_backward is not None:
            config["backward_layer"] = {
                "class_name": type(self.backward_layer).__name__,
                "config": self.backward_layer.get_config()
                | {"name": self.backward_layer.name.removeprefix("backward_")},
            }
        return config

    @classmethod
    def from_config(cls, config: PassedOn, custom_objects: PassedOn = None) -> Any:
        config = dict(config)
        with scopes.served_classes():
            if "backward_layer" in config:
                config["backward_layer"] = _layers.deserialize(dict(config["backward_layer"]), custom_objects)
                config["backward_layer"].name = config["backward_layer"].name.removeprefix("backward_")
            layer = _layers.deserialize(dict(config.pop("layer")), custom_objects)
            count = config.pop("num_constants", None)
            made = cls(layer, **config)
            made._num_constants = count
            return made


_Conv: Any = rebasing.rebased(_convolutional._Conv)


@rebasing.serves(_convolutional._Conv)
class KerasConv(_Conv):
    """A convolution, which programs' own layers compute with other weights than the variable."""

    def call(self, inputs: PassedOn) -> Any:
        """The convolution, whose nodes have TensorFlow's names: "conv2d/Conv2D", "conv2d/BiasAdd"."""
        if self.padding == "causal":
            inputs = _padded_before(self, inputs)
        outputs = self._convolution_op(inputs, self.kernel)
        if self.use_bias:
            outputs = self._with_bias(outputs)
        return outputs if self.activation is None else self.activation(outputs)

    def _with_bias(self, outputs: PassedOn) -> Any:
        if self.data_format == "channels_last":
            return tf.nn.bias_add(outputs, self.bias)
        if len(self.kernel_size) == 1:
            return outputs + tf.reshape(self.bias, [1, self.filters, 1])
        return tf.nn.bias_add(outputs, self.bias, "NCHW")

    def _convolution_op(self, inputs: PassedOn, kernel: PassedOn) -> Any:
        """The convolution by the layer's strides, dilations and padding, by the name that TensorFlow's layers have."""
        rank = len(self.kernel_size)
        layout = {"channels_first": ("NCW", "NCHW", "NCDHW")}.get(self.data_format, ("NWC", "NHWC", "NDHWC"))[rank - 1]
        padding = "VALID" if self.padding == "causal" else self.padding.upper()
        kernel = tf.convert_to_tensor(kernel)
        if rank == 1:
            return tf.nn.conv1d(
                inputs, kernel, self.strides[0], padding, data_format=layout, dilations=self.dilation_rate[0]
            )
        rates = {"strides": self.strides, "dilation_rate": self.dilation_rate}
        return tf.nn.convolution(inputs, kernel, padding, data_format=layout, name=f"Conv{rank}D", **rates)


def _padded_before(layer: PassedOn, inputs: PassedOn) -> Any:
    """Series with zeros before them, so that no result of a convolution sees what comes later."""
    before = [layer.dilation_rate[0] * (layer.kernel_size[0] - 1), 0]
    axes = [[0, 0], before, [0, 0]] if layer.data_format == "channels_last" else [[0, 0], [0, 0], before]
    return tf.pad(inputs, axes)


_Conv3DTranspose: Any = rebasing.rebased(_convolutional.Conv3DTranspose)


@rebasing.serves(_convolutional.Conv3DTranspose)
class KerasConv3DTranspose(_Conv3DTranspose):
    """A transposed convolution of volumes, whose bias is added by the operation that TensorFlow's layers have."""

    use_bias: bool
    activation: Any

    def call(self, inputs: PassedOn) -> Any:
        use_bias, activation = self.use_bias, self.activation
        self.use_bias, self.activation = False, None
        try:
            outputs = super().call(inputs)
        finally:
            self.use_bias, self.activation = use_bias, activation
        if use_bias:
            layout = "NHWC" if self.data_format == "channels_last" else "NCHW"
            outputs = tf.nn.bias_add(outputs, self.bias, layout)
        return outputs if activation is None else activation(outputs)


_SeparableConv1D: Any = rebasing.rebased(_convolutional.SeparableConv1D)


@rebasing.serves(_convolutional.SeparableConv1D)
class KerasSeparableConv1D(_SeparableConv1D):
    """A separable convolution of series, whose padding may be "causal": what comes later is not seen."""

    padding: str

    def __init__(
        self,
        filters: int,
        kernel_size: PassedOn,
        strides: PassedOn = 1,
        padding: str = "valid",
        data_format: str | None = None,
        **kwargs: PassedOn,
    ) -> None:
        is_causal = padding == "causal"
        super().__init__(filters, kernel_size, strides, "valid" if is_causal else padding, data_format, **kwargs)
        if is_causal:
            self.padding = "causal"

    def call(self, inputs: PassedOn) -> Any:
        """Both convolutions as those of pictures of one line, with TensorFlow's names."""
        is_causal, is_last = self.padding == "causal", self.data_format == "channels_last"
        if is_causal:
            inputs = _padded_before(self, inputs)
        axis, layout = (1, "NHWC") if is_last else (2, "NCHW")
        steps = self.strides * 2
        outputs = tf.nn.separable_conv2d(
            tf.expand_dims(inputs, axis),
            tf.expand_dims(self.depthwise_kernel, 0),
            tf.expand_dims(self.pointwise_kernel, 0),
            (1, *steps, 1) if is_last else (1, 1, *steps),
            "VALID" if is_causal else self.padding.upper(),
            rate=(1, *self.dilation_rate),
            data_format=layout,
        )
        if self.use_bias:
            outputs = tf.nn.bias_add(outputs, self.bias, layout)
        outputs = tf.squeeze(outputs, [axis])
        return outputs if self.activation is None else self.activation(outputs)
