"""Copies of models: the same layers anew, over placeholders or given tensors."""

from __future__ import annotations

from typing import Any

import anabranch as tf
from anabranch.core.values import PassedOn
from anabranch.tfkeras import package
from anabranch.tfkeras.inputs import InputLayer
from anabranch.tfkeras.models import KerasModel
from anabranch.tfkeras.sequential import Sequential

_generic = package.module("utils.generic_utils")
_Metric: Any = package.module("metrics").Metric


def _over(tensors: dict[str, Any]) -> type:
    """A class that a configuration's input layers are made of: over the tensor of their name, where there is one."""

    class _Given(InputLayer):
        @classmethod
        def from_config(cls, config: PassedOn) -> Any:
            tensor = tensors.get(config["name"])
            if tensor is None:
                return InputLayer.from_config(config)
            if hasattr(tensor, "_keras_history"):
                return tensor._keras_history[0]
            return InputLayer(input_tensor=tensor, name=config["name"])

    return _Given


def clone_model(model: PassedOn, input_tensors: PassedOn = None, clone_function: PassedOn = None) -> Any:
    """A model of the same layers, which have variables of their own.

    Args:
        model: a functional or sequential one.
        input_tensors: what it is built over; default: placeholders.
        clone_function: makes the copy of a sequential model's layer; default: by its configuration.

    Raises:
        ValueError: the model's class defines `call`.
    """
    if not isinstance(model, KerasModel) or not (model._is_graph_network or isinstance(model, Sequential)):
        raise ValueError(
            "Expected `model` argument to be a functional `Model` instance, but got a subclass model instead."
        )
    given = [] if input_tensors is None else tf.nest.flatten(input_tensors)
    if isinstance(model, Sequential):
        if not given and model._is_graph_network and isinstance(model._layers[0], InputLayer):
            given = [None]
        copy = Sequential(name=model.name)
        for tensor in given:
            if tensor is None:
                copy.add(InputLayer.from_config(model._layers[0].get_config()))
            else:
                copy.add(InputLayer(input_tensor=tensor, name=f"{model.name}_input"))
        for layer in model.layers:
            copy.add(_copied(layer, clone_function))
        return copy
    tensors = dict(zip(model.input_names, given, strict=False))
    with _generic.CustomObjectScope({"InputLayer": _over(tensors), **_classes(model)}):
        return KerasModel.from_config(model.get_config())


def _classes(model: PassedOn) -> dict[str, Any]:
    """The classes of a model's layers by their names: a program's own need not be registered to be copied."""
    found = {type(layer).__name__: type(layer) for layer in model.submodules}
    return {name: cls for name, cls in found.items() if cls is not InputLayer}


def _copied(layer: PassedOn, clone_function: PassedOn) -> Any:
    if clone_function is not None:
        return clone_function(layer)
    if isinstance(layer, KerasModel):
        return clone_model(layer)
    return type(layer).from_config(layer.get_config())


def clone_and_build_model(
    model: PassedOn,
    input_tensors: PassedOn = None,
    target_tensors: PassedOn = None,
    optimizer: PassedOn = None,
) -> Any:
    """A copy of a compiled model over tensors, compiled alike."""
    copy = clone_model(model, input_tensors)
    copy.compile(
        optimizer,
        model.loss,
        metrics=_copied_metrics(model._compile_metrics),
        loss_weights=model.loss_weights,
        sample_weight_mode=model.sample_weight_mode,
        weighted_metrics=_copied_metrics(model._compile_weighted_metrics),
        target_tensors=target_tensors,
    )
    return copy


def _copied_metrics(metrics: PassedOn) -> Any:
    """What was given to `compile`, with metrics of their own variables: those of the others may be in another graph."""
    if isinstance(metrics, dict):
        return {name: _copied_metrics(one) for name, one in metrics.items()}
    if isinstance(metrics, list | tuple):
        return [_copied_metrics(one) for one in metrics]
    return type(metrics).from_config(metrics.get_config()) if isinstance(metrics, _Metric) else metrics
