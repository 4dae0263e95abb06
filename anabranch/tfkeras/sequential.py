"""`tf.keras.Sequential`."""

from __future__ import annotations

from typing import Any

import numpy as np

import anabranch as tf
from anabranch.core.values import PassedOn
from anabranch.tfkeras import composite, features, package, rebasing, shapes
from anabranch.tfkeras.inputs import Input, InputLayer
from anabranch.tfkeras.layer import KerasLayer
from anabranch.tfkeras.models import KerasModel
from anabranch.tfkeras.networks import KerasNetwork

_sequential = package.module("engine.sequential")
_Sequential: Any = rebasing.rebased(_sequential.Sequential)


@rebasing.serves(_sequential.Sequential)
class Sequential(_Sequential):
    """Layers one after another."""

    inputs: Any
    outputs: Any
    _build_input_shape: Any

    def __init__(self, layers: PassedOn = None, name: str | None = None) -> None:
        KerasNetwork.__init__(self, name=name)
        self._build_input_shape = None
        for layer in layers if isinstance(layers, list | tuple) else [] if layers is None else [layers]:
            self.add(layer)

    def get_config(self) -> dict[str, Any]:
        config = dict(_sequential.Sequential.get_config(self))
        if self._is_graph_network and self.inputs and "batch_input_shape" not in config["layers"][0]["config"]:
            config["build_input_shape"] = self.inputs[0].shape.as_list()
        return config

    @classmethod
    def from_config(cls, config: PassedOn, custom_objects: PassedOn = None) -> Any:
        made: Any = _Sequential.from_config.__func__(cls, config, custom_objects)
        return made

    def add(self, layer: PassedOn) -> None:
        """Adds a layer, or an input to begin with.

        Raises:
            TypeError: it is no layer, or gives several tensors.
            ValueError: it is the first one and has several inputs.
        """
        if hasattr(layer, "_keras_history") and isinstance(layer._keras_history[0], InputLayer):
            layer = layer._keras_history[0]
        if not isinstance(layer, KerasLayer.__mro__[1]) and not isinstance(layer, tf.layers.Layer):
            raise TypeError(f"The added layer must be an instance of class Layer. Found: {layer}")
        self.built = False
        if not self._layers:
            self._begin(layer)
        elif self.outputs:
            outputs = layer(self.outputs[0])
            if isinstance(outputs, list | tuple):
                raise TypeError(_ONE_OUTPUT)
            self.outputs = [outputs]
        if self.inputs:
            self._layers.append(layer)
            self.build()
        else:
            self._layers.append(layer)

    def _begin(self, layer: PassedOn) -> None:
        """Makes the input of a first layer that knows its shape."""
        if isinstance(layer, InputLayer):
            self.inputs = self.outputs = [layer._inbound_nodes[-1].output_tensors[0]]
            return
        first = layer
        while isinstance(first, KerasModel) and first.layers:
            first = first.layers[0] if not getattr(first, "_input_layers", None) else first._input_layers[0]
        shape = getattr(first, "batch_input_shape", None)
        if shape is None:
            return
        x = Input(batch_shape=shape, dtype=first.dtype, name=f"{layer.name}_input")
        outputs = layer(x)
        if isinstance(outputs, list | tuple):
            raise ValueError(_ONE_OUTPUT)
        self.inputs, self.outputs = [x], [outputs]
        self._layers.append(x._keras_history[0])

    def build(self, input_shape: PassedOn = None) -> None:
        """Connects the layers, from a placeholder of that shape on where they are not yet."""
        if self._is_graph_network and not self.inputs:
            return
        if input_shape is not None and not self.inputs:
            shape = tuple(shapes.as_tuples(input_shape))
            x = Input(batch_shape=shape, dtype=self._first_dtype(), name=f"{self.name}_input")
            self.inputs = [x]
            for layer in self._layers:
                x = layer(x)
            self.outputs = [x]
            self._build_input_shape = shape
        if self.inputs:
            self._init_graph_network(self.inputs[0], self.outputs[0], name=self.name)
            self.built = True

    def _first_dtype(self) -> Any:
        return self.layers[0].dtype if self.layers else None

    def pop(self) -> None:
        """Removes the last layer."""
        if not self.layers:
            raise TypeError("There are no layers in the model.")
        self._layers.pop()
        self.built = False
        if not self.layers:
            self.inputs = self.outputs = None
            self._is_graph_network = False
        elif self.outputs:
            self.layers[-1]._outbound_nodes = []
            self.outputs = [self.layers[-1].output]
            self.build()

    def _maybe_build(self, inputs: PassedOn) -> None:
        """Layers that are not connected build as they are called."""

    def call(self, inputs: PassedOn, training: PassedOn = None, mask: PassedOn = None) -> Any:
        if self._is_graph_network:
            return super().call(inputs, training=training, mask=mask)
        for layer in self.layers:
            inputs = layer(inputs) if training is None else layer(inputs, training=training)
        return inputs

    def _was_called(self, inputs: PassedOn, outputs: PassedOn) -> None:
        if not self._is_graph_network:
            self.built = True
            self._called_shape = inputs.shape if isinstance(inputs, tf.Tensor) else None

    def compile(self, *args: PassedOn, **kwargs: PassedOn) -> None:
        """Says how the model is trained; one that was only called on tensors gets an input of their shape."""
        shape = self.__dict__.get("_called_shape")
        if not self.inputs and shape is not None and shape.ndims:
            self.build([None, *shape.as_list()[1:]])
        super().compile(*args, **kwargs)

    def _set_inputs(self, inputs: PassedOn, outputs: PassedOn = None, training: PassedOn = None) -> None:
        if isinstance(inputs, dict) and not (self.layers and isinstance(self.layers[0], _OF_FEATURES)):
            raise ValueError(
                "Passing a dictionary input to a Sequential Model which doesn't have FeatureLayer as the first layer "
                "is an error"
            )
        if isinstance(inputs, dict) or (isinstance(inputs, list | tuple) and len(inputs) > 1):
            super()._set_inputs(inputs, outputs, training)
            return
        one = inputs[0] if isinstance(inputs, list | tuple) else inputs
        if isinstance(one, composite.Rows):
            raise ValueError(composite.UNDECLARED)
        if isinstance(one, tf.Tensor):
            self.inputs = [Input(tensor=one)]
            x = self.inputs[0]
            for layer in self._layers:
                x = layer(x)
            self.outputs = [x]
            self.build()
            return
        array = np.asarray(one)
        self.build((None, *(array.shape[1:] or (1,))))

    @property
    def layers(self) -> list[Any]:
        found = list(self.__dict__.get("_layers", []))
        return found[1:] if found and isinstance(found[0], InputLayer) else found

    @property
    def input_shape(self) -> Any:
        if self._is_graph_network:
            return KerasLayer.input_shape.fget(self)
        raise AttributeError("The layer has never been called and thus has no defined input shape.")


_OF_FEATURES = (features.DenseFeatures, features.SequenceFeatures)
_ONE_OUTPUT = (
    "All layers in a Sequential model should have a single output tensor. For multi-output layers, use the functional "
    "API."
)
