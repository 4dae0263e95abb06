"""Configurations of functional models: which layers there are, and on what each was called."""

from __future__ import annotations

import copy
import json
from typing import Any

import anabranch as tf
from anabranch.core.values import PassedOn
from anabranch.tfkeras import package, scopes

_layers = package.module("layers")
#: how an argument that is a tensor of the model is written: under this key, the place that it comes from
_TENSOR = "_keras_tensor"


def config_of(network: PassedOn) -> dict[str, Any]:
    """The configuration of a functional model."""
    numbers = _numbers(network)
    layers = []
    for layer in network._layers:
        nodes = [
            _node_config(node, numbers)
            for index, node in enumerate(layer._inbound_nodes)
            if (layer.name, index) in numbers and node.inbound_layers
        ]
        layers.append(
            {
                "name": layer.name,
                "class_name": type(layer).__name__,
                "config": layer.get_config(),
                "inbound_nodes": nodes,
            }
        )

    def ends(coordinates: PassedOn) -> list[list[Any]]:
        known = [one for one in coordinates if (one[0].name, one[1]) in numbers]
        return [[layer.name, numbers[layer.name, node], tensor] for layer, node, tensor in known]

    return copy.deepcopy(
        {
            "name": network.name,
            "layers": layers,
            "input_layers": ends(network._input_coordinates),
            "output_layers": ends(network._output_coordinates),
        }
    )


def _numbers(network: PassedOn) -> dict[tuple[str, int], int]:
    """The number that each node of the model will have among those of its layer in a copy."""
    found = {}
    for layer in network._layers:
        kept = int(
            bool(getattr(layer, "_is_graph_network", False))
        )  # it begins with a node from its inputs to its outputs
        for index in range(len(layer._inbound_nodes)):
            if f"{layer.name}_ib-{index}" in network._network_nodes:
                found[layer.name, index] = kept
                kept += 1
    return found


def _node_config(node: PassedOn, numbers: dict[tuple[str, int], int]) -> Any:
    places = {
        id(x): [layer.name, numbers.get((layer.name, index), 0), tensor]
        for x, layer, index, tensor in zip(
            node.input_tensors, node.inbound_layers, node.node_indices, node.tensor_indices, strict=True
        )
        if layer is not None
    }
    structure = getattr(node, "structure", None)
    if structure is None:
        structure = list(node.input_tensors)
    arguments = _arguments_config(getattr(node, "kwargs", None) or node.arguments or {}, places)
    if isinstance(structure, dict):
        return {key: [*places[id(x)], arguments] for key, x in structure.items()}
    return [[*places[id(x)], arguments] for x in tf.nest.flatten(structure)]


def _arguments_config(arguments: dict[str, Any], places: dict[int, list[Any]]) -> dict[str, Any]:
    """Arguments of a call that can be written down."""

    def written(value: PassedOn) -> Any:
        if id(value) in places and isinstance(value, tf.Tensor | tf.SparseTensor):
            return {_TENSOR: places[id(value)]}
        if isinstance(value, dict):
            return {key: written(one) for key, one in value.items()}
        if isinstance(value, list | tuple):
            return [written(one) for one in value]
        return value

    found = {}
    for key, value in arguments.items():
        try:
            json.dumps(one := written(value))
        except TypeError:
            tf.logging.warning("argument %r of a layer's call is no part of the model's configuration: %r", key, value)
            continue
        found[key] = one
    return found


class _Builder:
    """Makes the layers of a configuration, and calls them in an order in which their inputs are there."""

    def __init__(self, custom_objects: PassedOn) -> None:
        self._custom_objects = custom_objects
        self._made: dict[str, Any] = {}

    def build(self, config: dict[str, Any]) -> tuple[list[Any], list[Any]]:
        """The inputs and the outputs of the model.

        Raises:
            ValueError: calls depend on each other, or on layers that are not there.
        """
        waiting: dict[str, list[Any]] = {}
        for one in config["layers"]:
            self._made[one["name"]] = _layers.deserialize(copy.deepcopy(one), self._custom_objects)
            waiting[one["name"]] = list(one["inbound_nodes"])
        while any(waiting.values()):
            called = 0
            for name, nodes in waiting.items():
                while nodes and self._is_ready(nodes[0]):
                    self._call(self._made[name], nodes.pop(0))
                    called += 1
            if not called:
                left = [name for name, nodes in waiting.items() if nodes]
                raise ValueError(f"the configuration's layers {left} are called on tensors that no layer of it gives")
        return ([self._tensor(place) for place in config[key]] for key in ("input_layers", "output_layers"))  # type: ignore[return-value]

    def ends(self, model: PassedOn) -> list[Any]:
        """The outputs of layers that add losses and metrics, which no output of the model depends on."""
        there = {id(layer) for layer in model._layers}
        kinds = ("AddLoss", "AddMetric")
        left = [one for one in self._made.values() if id(one) not in there and type(one).__name__ in kinds]
        return [node.output_tensors[0] for layer in left for node in layer._inbound_nodes]

    def _is_ready(self, node: PassedOn) -> bool:
        entries = list(node.values()) if isinstance(node, dict) else node
        return all(self._is_there(place) for entry in entries for place in self._places(entry))

    def _places(self, entry: PassedOn) -> list[Any]:
        found = [entry[:3]]
        waiting = list((entry[3] if len(entry) > 3 else {}).values())
        while waiting:
            value = waiting.pop()
            if isinstance(value, dict) and set(value) == {_TENSOR}:
                found.append(value[_TENSOR])
            elif isinstance(value, dict | list):
                waiting.extend(value.values() if isinstance(value, dict) else value)
        return found

    def _is_there(self, place: PassedOn) -> bool:
        layer = self._made.get(place[0])
        return layer is not None and len(layer._inbound_nodes) > place[1]

    def _tensor(self, place: PassedOn) -> Any:
        return self._made[place[0]]._inbound_nodes[place[1]].output_tensors[place[2]]

    def _value(self, value: PassedOn) -> Any:
        if isinstance(value, dict):
            if set(value) == {_TENSOR}:
                return self._tensor(value[_TENSOR])
            return {key: self._value(one) for key, one in value.items()}
        return [self._value(one) for one in value] if isinstance(value, list) else value

    def _call(self, layer: PassedOn, node: PassedOn) -> None:
        entries = list(node.values()) if isinstance(node, dict) else node
        arguments = entries[-1][3] if len(entries[-1]) > 3 else {}
        inputs: Any = (
            {key: self._tensor(entry) for key, entry in node.items()}
            if isinstance(node, dict)
            else [self._tensor(entry) for entry in entries]
        )
        if isinstance(inputs, list) and len(inputs) == 1:
            inputs = inputs[0]
        layer(inputs, **self._value(arguments))


def network_of(cls: type, config: dict[str, Any], custom_objects: PassedOn = None) -> Any:
    """The functional model of a class that `config_of` described."""
    builder = _Builder(custom_objects)
    with scopes.served_classes():
        inputs, outputs = builder.build(config)
    made = cls(
        inputs=inputs[0] if len(inputs) == 1 else inputs,
        outputs=outputs[0] if len(outputs) == 1 else outputs,
        name=config.get("name"),
    )
    for tensor in builder.ends(made):
        made._attach(tensor)
    return made
