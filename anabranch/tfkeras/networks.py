"""Layers that are made of layers: what models have beside their training."""

from __future__ import annotations

import contextlib
import copy
import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np

import anabranch as tf
from anabranch.core.dtypes import DTypeLike
from anabranch.core.values import PassedOn
from anabranch.tfkeras import calls, configurations, history, naming, op_layers, package, rebasing, scopes, shapes
from anabranch.tfkeras.layer import KerasLayer
from anabranch.tfkeras.layer_parts import depending, once
from anabranch.tfkeras.tracking import TrackedNetwork

_module = package.module("engine.network")
_backend = package.module("backend")
_Network: Any = rebasing.rebased(_module.Network)


@rebasing.serves(_module.Network)
class KerasNetwork(_Network, TrackedNetwork):
    """A model without its training: functional, from inputs to outputs, or one whose class defines `call`."""

    built: Any

    def __init__(self, *args: PassedOn, **kwargs: PassedOn) -> None:
        given = {"inputs" if name == "input" else "outputs" if name == "output" else name for name in kwargs}
        is_dynamic = bool(kwargs.pop("dynamic", False))
        if "input" in kwargs:
            kwargs["inputs"] = kwargs.pop("input")
        if "output" in kwargs:
            kwargs["outputs"] = kwargs.pop("output")
        if len(args) >= 2 or "outputs" in kwargs:
            unknown = [name for name in given if name not in ("name", "trainable", "inputs", "outputs")]
            if unknown:
                raise TypeError(
                    "Functional models may only specify `name` and `trainable` keyword arguments during "
                    f"initialization. Got an unexpected argument: {unknown[0]}"
                )
            self._init_graph_network(*args, **kwargs)
        else:
            self._init_subclassed_network(**kwargs)
            self._dynamic = is_dynamic

    def _base_init(self, name: str | None = None, trainable: bool = True, dtype: DTypeLike | None = None) -> None:
        self.__dict__.setdefault("_callable_losses", [])
        before = self.__dict__.get("_trainable", trainable)
        self.__dict__["_trainable"], self.__dict__["_dynamic"] = before, False
        kept = {key: self.__dict__.get(key, []) for key in ("_losses", "_updates", "_metrics")}
        self._setting_up = True
        super()._base_init(name=name or self.__dict__.get("_name") or naming.unique_name(type(self)), dtype=dtype)
        self.__dict__.update(kept)
        self._setting_up = False
        self.__dict__["_trainable"] = before
        self._dtype = None if dtype is None else tf.as_dtype(dtype).name

    def _init_graph_network(
        self, inputs: PassedOn, outputs: PassedOn, name: str | None = None, **kwargs: PassedOn
    ) -> None:
        inputs, outputs = (x[0] if isinstance(x, list) and len(x) == 1 else x for x in (inputs, outputs))
        self._nested_inputs, self._nested_outputs = inputs, outputs
        flat = tf.nest.flatten(inputs)
        given = tf.nest.flatten(outputs)
        for x in given:
            if not isinstance(x, tf.Tensor | tf.SparseTensor | tf.RaggedTensor | tf.Variable):
                raise ValueError(
                    f"Output tensors to a {type(self).__name__} must be the output of a layer (thus holding past layer "
                    f"metadata). Found: {x}"
                )
        for x in flat:
            if not hasattr(x, "_keras_history"):
                raise ValueError(
                    f"Input tensors to a {type(self).__name__} must come from `tf.keras.Input`. Received: {x} (missing "
                    "previous layer metadata); wrap it: `tf.keras.Input(tensor=x)`."
                )
        sizes = [x._keras_history[0].batch_size for x in flat if getattr(x._keras_history[0], "batch_size", None)]
        if len(set(sizes)) > 1:
            raise ValueError(
                f"The specified batch sizes of the Input Layers are incompatible. Found batch sizes: {sizes}"
            )
        history.ensure(given, all_of_them=True)
        given = [x if hasattr(x, "_keras_history") else _as_output(x) for x in given]
        trainable = kwargs.pop("trainable", True)
        super()._init_graph_network(flat, given, name=name, **kwargs)
        if not trainable:
            self.trainable = False
        self.output_names = _different([layer.name for layer in self._output_layers])

    def _init_subclassed_network(self, name: str | None = None, **kwargs: PassedOn) -> None:
        super()._init_subclassed_network(name=name, **kwargs)
        # programs ask how many there are
        self.inputs: Any = []
        self.outputs: Any = []

    # ------------------------------------------------------------------ parts: as any layer of the room has them
    trainable = KerasLayer.trainable
    metrics = KerasLayer.metrics

    def __setattr__(self, name: str, value: PassedOn) -> None:
        if (
            isinstance(value, KerasLayer)
            and "_is_graph_network" not in self.__dict__
            and not hasattr(value, "update_state")
        ):
            raise RuntimeError(
                "It looks like you are subclassing `Model` and you forgot to call `super(YourClass, self).__init__()`. "
                "Always start with this line."
            )
        KerasLayer.__setattr__(self, name, value)

    def __copy__(self) -> Any:
        """A model with the same parts, also where its class cannot be described: the package would pickle it."""
        made = object.__new__(type(self))
        made.__dict__.update(self.__dict__)
        return made

    def _parts(self) -> list[Any]:
        if self.__dict__.get("_setting_up"):
            return []
        return list(self.layers)

    @property
    def layers(self) -> list[Any]:
        """The layers: those between inputs and outputs, or those that are attributes."""
        if self.__dict__.get("_is_graph_network"):
            return list(self._layers)
        # a subclass may fill the list itself, which TensorFlow's attributes fill
        parts = [*tf.nest.flatten(self.__dict__.get("_layers", [])), *KerasLayer._parts(self)]
        return once([part for part in parts if not isinstance(part, package.module("metrics").Metric)])

    @property
    def weights(self) -> list[Any]:
        """All variables, layer by layer.

        Raises:
            ValueError: the model's class has a method `build`, and nothing has called it yet.
        """
        self._check_there_are_weights()
        if scopes.is_trainable_first():
            return [*self.trainable_weights, *self.non_trainable_weights]
        inside = self._of_parts("weights")
        own = [*self._trainable_weights, *self._non_trainable_weights]
        return list({id(variable): variable for variable in [*inside, *own]}.values())

    @property
    def lacks_weights(self) -> bool:
        """Whether its class has a method `build` that nothing has called yet."""
        return not self._is_graph_network and "build" in vars(type(self)) and not self.built

    def _check_there_are_weights(self) -> None:
        if self.lacks_weights:
            raise ValueError(
                f"Weights for model {self.name} have not yet been created. Weights are created when the Model is first "
                "called on inputs or `build()` is called with an `input_shape`."
            )

    @property
    def trainable_weights(self) -> list[Any]:
        """Those of the layers, and then its own."""
        self._check_there_are_weights()
        own = self._trainable_weights if self.trainable else []
        return once([*self._of_parts("trainable_weights"), *own]) if self.trainable else []

    @trainable_weights.setter
    def trainable_weights(self, weights: list[Any]) -> None:
        self._trainable_weights = weights

    @property
    def non_trainable_weights(self) -> list[Any]:
        """Those of the layers, and then its own."""
        if self.trainable:
            return once([*self._of_parts("non_trainable_weights"), *self._non_trainable_weights])
        return once([*self._of_parts("weights"), *self._trainable_weights, *self._non_trainable_weights])

    @non_trainable_weights.setter
    def non_trainable_weights(self, weights: list[Any]) -> None:
        self._non_trainable_weights = weights

    def get_weights(self) -> list[Any]:
        return list(_backend.batch_get_value(self.weights))

    def set_weights(self, weights: list[Any]) -> None:
        mine = self.weights
        if len(mine) != len(weights):
            raise ValueError(
                f'You called `set_weights(weights)` on layer "{self.name}" with a weight list of length '
                f"{len(weights)}, but the layer was expecting {len(mine)} weights."
            )
        for variable, value in zip(mine, weights, strict=True):
            if not variable.shape.is_compatible_with(np.shape(value)):
                raise ValueError(
                    f"Layer weight shape {variable.shape} not compatible with provided weight shape {np.shape(value)}"
                )
        _backend.batch_set_value(list(zip(mine, weights, strict=True)))

    @property
    def losses(self) -> list[Any]:
        """The losses of the layers and its own, those of other calls of the layers included."""
        found = self._all_losses()
        return self._relevant(found, "_unconditional_loss") if self.__dict__.get("_is_trained") else found

    @property
    def updates(self) -> list[Any]:
        """The updates of the layers and its own, likewise."""
        found = self._all_updates()
        return self._relevant(found, "_unconditional_update") if self.__dict__.get("_is_trained") else found

    @contextlib.contextmanager
    def as_trained(self) -> Iterator[None]:
        """A block in which losses and updates are those that training the model takes.

        They are those that its inputs decide, or nothing.
        """
        self.__dict__["_is_trained"] = True
        try:
            yield
        finally:
            self.__dict__["_is_trained"] = False

    def add_loss(self, losses: PassedOn, inputs: PassedOn = None) -> None:
        """Adds losses; to a functional model, as layers that are copied with it and called where it is called."""
        for loss in tf.nest.flatten(losses):
            if self._is_of_layers(loss):
                self._attach(op_layers.AddLoss(unconditional=False)(loss))
            else:
                super().add_loss(loss, inputs)

    def add_metric(self, value: PassedOn, aggregation: str | None = None, name: str | None = None) -> None:
        """Adds a metric, likewise."""
        if aggregation == "mean" and name and self._is_of_layers(value):
            self._attach(op_layers.AddMetric(aggregation, name)(value))
        else:
            super().add_metric(value, aggregation, name)

    def _is_of_layers(self, value: PassedOn) -> bool:
        """Whether it was computed from what layers of this functional model gave."""
        if not self.__dict__.get("_is_graph_network") or calls.in_call() or not isinstance(value, tf.Tensor):
            return False
        history.ensure([value])
        return hasattr(value, "_keras_history") and bool(history.reached([value], self.inputs))

    def _attach(self, tensor: tf.Tensor) -> None:
        """Makes the layers between inputs and a tensor that is no output layers of the functional model."""
        self._attached = [*self.__dict__.get("_attached", []), tensor]
        found = _module._map_graph_network(self.inputs, [*self.outputs, *self._attached])
        self._network_nodes, self._nodes_by_depth, self._layers, self._layers_by_depth = found

    def _relevant(self, found: list[Any], tag: str) -> list[Any]:
        """What depends on tensors that the model was called on, or on none."""
        if not self.inputs:
            return list(found)
        sources = [x for node in self._inbound_nodes for x in node.input_tensors] or list(self.inputs)
        conditional = [x for x in found if not getattr(x, tag, True)]
        kept = {id(x) for x in history.reached(conditional, sources)}
        return [x for x in found if getattr(x, tag, True) or id(x) in kept]

    def get_updates_for(self, inputs: PassedOn) -> list[Any]:
        return depending(self._all_updates(), inputs, "_unconditional_update")

    def get_losses_for(self, inputs: PassedOn) -> list[Any]:
        return depending(self._all_losses(), inputs, "_unconditional_loss")

    @property
    def uses_learning_phase(self) -> bool:
        """Whether steps are told the learning phase: always, once there are outputs."""
        return bool(self.outputs)

    @property
    def state_updates(self) -> list[Any]:
        return [update for layer in self.layers if layer.stateful for update in layer.updates]

    @property
    def input_spec(self) -> Any:
        return None

    @input_spec.setter
    def input_spec(self, value: PassedOn) -> None:
        self.__dict__["_input_spec"] = value

    # ------------------------------------------------------------------ calling it
    def build(self, input_shape: PassedOn = None) -> None:
        """Makes the variables of a model whose class defines `call`, by calling it on placeholders.

        Raises:
            ValueError: no shape is given.
        """
        if self._is_graph_network or self.built:
            self.built = True
            return
        if input_shape is None:
            raise ValueError("Input shape must be defined when calling build on a model subclass network.")
        given = shapes.as_tuples(input_shape)
        made = [_placeholder(shape) for shape in given] if isinstance(given, list) else _placeholder(given)
        kwargs = {"training": False} if self._expects_training_arg else {}
        with calls.entered(False), tf.name_scope(self._name_scope()):
            try:
                self.call(made, **kwargs)
            except (TypeError, tf.errors.InvalidArgumentError) as error:
                raise ValueError(
                    "You cannot build your model by calling `build` if your layers do not support float type inputs. "
                    "Instead, in order to instantiate and build your model, `call` your model on real tensor data (of "
                    "the correct dtype)."
                ) from error
        self.built = True

    def _maybe_build(self, inputs: PassedOn) -> None:
        defined = next(one for one in type(self).__mro__ if "build" in vars(one))
        if not self.built and not rebasing.is_foundation(defined):
            self.build(tf.nest.map_structure(shapes.of, inputs))
        self.built = True

    def call(self, inputs: PassedOn, training: PassedOn = None, mask: PassedOn = None) -> Any:
        """Applies the layers of a functional model to other inputs."""
        if not self._is_graph_network:
            raise NotImplementedError("When subclassing the `Model` class, you should implement a `call` method.")
        flat = tf.nest.flatten(inputs)
        if mask is not None:
            for x, one in zip(flat, tf.nest.flatten(mask), strict=True):
                x._keras_mask = one
        flat = self._in_order(inputs) if isinstance(inputs, dict) else flat
        if len(flat) != len(self.inputs):
            raise ValueError(f"Model {self.name} has {len(self.inputs)} inputs, and was called on {len(flat)} tensors")
        given = {id(x): y for x, y in zip(self.inputs, flat, strict=True)}
        for depth in sorted(self._nodes_by_depth, reverse=True):
            for node in self._nodes_by_depth[depth]:
                self._apply(node, given, training)
        outputs = [given[id(x)] for x in self.outputs]
        if len(tf.nest.flatten(self._nested_outputs)) == len(outputs):
            return tf.nest.pack_sequence_as(self._nested_outputs, outputs)
        return outputs[0] if len(outputs) == 1 else outputs

    def _in_order(self, inputs: dict[str, Any]) -> list[Any]:
        if isinstance(self._nested_inputs, dict):
            return [inputs[key] for key in sorted(self._nested_inputs)]
        return [inputs[name] for name in self.input_names]

    def _apply(self, node: PassedOn, given: dict[int, Any], training: PassedOn) -> None:
        """Calls the layer of a node on what stands for its inputs, and enters its outputs."""
        layer = node.outbound_layer
        if all(id(x) in given for x in node.output_tensors):
            return
        arguments = getattr(node, "kwargs", None) or node.arguments or {}
        if not node.input_tensors or not node.inbound_layers:
            for x in node.output_tensors:
                given[id(x)] = x
            return
        structure = getattr(node, "structure", None)
        if structure is None:
            structure = node.input_tensors[0] if len(node.input_tensors) == 1 else list(node.input_tensors)

        def stands_for(x: PassedOn) -> Any:
            return given.get(id(x), x) if isinstance(x, tf.Tensor | tf.SparseTensor) else x

        kwargs = tf.nest.map_structure(stands_for, copy.copy(arguments)) if arguments else {}
        if "training" in kwargs or training is not None:
            phase = _backend.learning_phase()
            if kwargs.get("training") is phase or "training" not in kwargs:
                kwargs["training"] = training
        outputs = layer(_mapped(structure, stands_for), **_taken(layer, kwargs))
        for x, y in zip(node.output_tensors, tf.nest.flatten(outputs), strict=True):
            given[id(x)] = y

    def run_internal_graph(self, inputs: PassedOn, masks: PassedOn = None) -> Any:
        """The outputs for other inputs, their masks and their shapes, each a list or alone."""
        outputs = self.call(inputs, mask=masks if masks and any(m is not None for m in masks) else None)
        flat = tf.nest.flatten(outputs)
        found = [getattr(x, "_keras_mask", None) for x in flat]
        known = [shapes.as_tuples(shapes.of(x)) for x in flat]
        return tuple(x[0] if len(x) == 1 else x for x in (flat, found, known))

    def _mark(self, inputs: PassedOn, outputs: PassedOn, masks: PassedOn) -> None:
        """The layers inside have set the outputs' masks."""

    def compute_mask(self, inputs: PassedOn, mask: PassedOn = None) -> Any:
        """The masks of the outputs."""
        if not self._is_graph_network:
            if self.inputs and inputs is self.inputs:
                return [getattr(x, "_keras_mask", None) for x in self.outputs]
            return None
        flat = tf.nest.flatten(inputs)
        own = all(x is y for x, y in zip(flat, self.inputs, strict=False))
        outputs = self.outputs if own else tf.nest.flatten(self.call(inputs, mask=mask))
        found = [getattr(x, "_keras_mask", None) for x in outputs]
        return found[0] if len(found) == 1 else found

    @property
    def output_mask(self) -> Any:
        """The mask of the output, or a list of those of the outputs."""
        found = [getattr(x, "_keras_mask", None) for x in tf.nest.flatten(self.output)]
        return found[0] if len(found) == 1 else found

    def compute_output_shape(self, input_shape: PassedOn) -> Any:
        if self._is_graph_network and not any(not isinstance(x, tf.Tensor) for x in self.inputs):
            listed = tf.nest.flatten(shapes.as_tensor_shapes(shapes.as_tuples(input_shape)))
            made = [tf.placeholder(x.dtype, shape) for x, shape in zip(self.inputs, listed, strict=True)]
            with calls.entered(False):
                answer = tf.nest.map_structure(shapes.of, self.call(made))
            return answer if shapes.of_tensorflow(input_shape) else shapes.as_tuples(answer)
        return KerasLayer.compute_output_shape(self, input_shape)

    # ------------------------------------------------------------------ configurations
    def get_config(self) -> dict[str, Any]:
        if not self._is_graph_network:
            raise NotImplementedError
        return configurations.config_of(self)

    @classmethod
    def from_config(cls, config: PassedOn, custom_objects: PassedOn = None) -> Any:
        return configurations.network_of(cls, config, custom_objects)

    def reset_states(self) -> None:
        for layer in self.layers:
            if hasattr(layer, "reset_states") and getattr(layer, "stateful", False):
                layer.reset_states()

    def summary(self, *args: PassedOn, **kwargs: PassedOn) -> None:
        if not self.built:
            raise ValueError(
                "This model has not yet been built. Build the model first by calling `build()` or calling `fit()` "
                "with some data, or specify an `input_shape` argument in the first layer(s) for automatic build."
            )
        with scopes.served_classes():
            super().summary(*args, **kwargs)


def _different(names: list[str]) -> list[str]:
    """Names, of which each that occurs again gets a number: "out", "out_1"."""
    found: list[str] = []
    for name in names:
        numbered = (f"{name}_{count}" for count in itertools.count(1))
        found.append(name if name not in found else next(one for one in numbered if one not in found))
    return found


def _placeholder(shape: PassedOn) -> Any:
    return tf.placeholder(_backend.floatx(), shape)


def _as_output(tensor: PassedOn) -> Any:
    """An output that comes from no layer, as one of a layer."""
    outputs = tf.identity(tensor)
    history.ensure([outputs], all_of_them=True)
    return outputs


def _mapped(structure: PassedOn, stands_for: PassedOn) -> Any:
    return tf.nest.map_structure(stands_for, structure)


def _taken(layer: PassedOn, kwargs: dict[str, Any]) -> dict[str, Any]:
    """The arguments without those that are masks or phases of the first call alone."""
    return {key: value for key, value in kwargs.items() if not (key == "training" and value is None)}
