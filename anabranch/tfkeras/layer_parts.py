"""Pieces of what a Keras layer does that need no layer."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

import anabranch as tf
from anabranch.core.values import PassedOn
from anabranch.tfkeras import (
    history,
    initializers,
    package,
)
from anabranch.train.tracked_containers import TrackedContainer

_PackageLayer: Any = package.module("engine.base_layer").Layer


def named_function(argument: str, value: PassedOn) -> Any:
    """A program's own function that a configuration names; the package would call it to make the regularizer."""
    if not isinstance(value, str) or not argument.endswith(("_regularizer", "_initializer", "_constraint")):
        return value
    function = package.module("utils.generic_utils")._GLOBAL_CUSTOM_OBJECTS.get(value)
    is_meant = inspect.isfunction(function) and initializers.required_parameters(function)
    return function if is_meant else value


def lengths_of(shape: PassedOn) -> tuple[Any, ...]:
    return tuple(tf.TensorShape(shape).as_list())


def as_tensor(value: PassedOn) -> Any:
    return tf.convert_to_tensor(value) if isinstance(value, np.ndarray | float | int | np.generic) else value


def is_symbolic(value: PassedOn) -> bool:
    return isinstance(value, tf.Tensor | tf.Variable)


def parameters_of(call: Callable[..., Any]) -> list[str]:
    """The parameters of a layer's `call` after its inputs; "**" stands for arguments of any name."""
    return initializers.parameters(call)[1:]


def definer(cls: type, name: str, over: bool = False) -> type:
    """The class that a method comes from; with `over`, past those of ours that hand on to the package."""
    for one in cls.__mro__:
        method = vars(one).get(name)
        if method is not None and not (over and hasattr(method, "__wrapped__")):
            return one
    return object


def layers_in(value: PassedOn, depth: int) -> Iterator[Any]:
    if isinstance(value, _PackageLayer | tf.layers.Layer):
        yield value
    elif depth and isinstance(value, list | tuple):
        for one in value:
            yield from layers_in(one, depth - 1)
    elif depth and isinstance(value, dict):
        for one in value.values():
            yield from layers_in(one, depth - 1)
    elif depth and isinstance(value, TrackedContainer):
        yield from layers_in(value.contents(), depth - 1)


def once(items: list[Any]) -> list[Any]:
    return list({id(item): item for item in items}.values())


def as_list(value: PassedOn) -> list[Any]:
    if isinstance(value, list):
        return value
    if isinstance(value, tuple) and not (len(value) == 2 and isinstance(value[0], tf.Variable)):
        return list(value)
    return [value]


def any_given(masks: PassedOn) -> bool:
    return any(mask is not None for mask in tf.nest.flatten(masks))


def masks_of(inputs: PassedOn) -> Any:
    return tf.nest.map_structure(lambda x: getattr(x, "_keras_mask", None), inputs)


def copied(inputs: PassedOn, outputs: PassedOn) -> Any:
    """The outputs; what is also an input is a tensor of its own."""
    given = {id(x) for x in tf.nest.flatten(inputs)}

    def copy(x: PassedOn) -> Any:
        return tf.identity(x) if id(x) in given and isinstance(x, tf.Tensor) else x

    return tf.nest.map_structure(copy, outputs)


def depending(items: list[Any], inputs: PassedOn, tag: str) -> list[Any]:
    if inputs is None:
        return [item for item in items if getattr(item, tag, True)]
    conditional = [item for item in items if not getattr(item, tag, True)]
    return history.reached(conditional, tf.nest.flatten(inputs))
