"""`tf.keras.initializers`: those of the graph's front end, by TensorFlow's names and defaults."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import anabranch as tf
from anabranch.core.dtypes import DTypeLike
from anabranch.core.values import PassedOn
from anabranch.tfkeras import package, scopes, unsaid

_module = package.module("initializers")
_PackageInitializer: Any = _module.Initializer


class KerasRandomNormal(tf.random_normal_initializer):
    """Normal numbers, with a standard deviation of 0.05 by default."""

    def __init__(
        self, mean: float = 0.0, stddev: float = 0.05, seed: int | None = None, dtype: DTypeLike = tf.float32
    ) -> None:
        super().__init__(mean, stddev, seed, dtype)


class KerasTruncatedNormal(tf.truncated_normal_initializer):
    """Normal numbers within two standard deviations, of 0.05 by default."""

    def __init__(
        self, mean: float = 0.0, stddev: float = 0.05, seed: int | None = None, dtype: DTypeLike = tf.float32
    ) -> None:
        super().__init__(mean, stddev, seed, dtype)


class KerasRandomUniform(tf.random_uniform_initializer):
    """Evenly distributed numbers, between -0.05 and 0.05 by default."""

    def __init__(
        self, minval: float = -0.05, maxval: float = 0.05, seed: int | None = None, dtype: DTypeLike = tf.float32
    ) -> None:
        super().__init__(minval, maxval, seed, dtype)


for _cls in (KerasRandomNormal, KerasRandomUniform, KerasTruncatedNormal):
    _cls.__name__ = _cls.__qualname__ = _cls.__name__.removeprefix("Keras")  # which configurations have

#: by the names of `tf.keras.initializers`
NAMES: dict[str, Any] = {
    "Constant": tf.constant_initializer,
    "GlorotNormal": tf.glorot_normal_initializer,
    "GlorotUniform": tf.glorot_uniform_initializer,
    "Identity": tf.initializers.identity,
    "Ones": tf.ones_initializer,
    "Orthogonal": tf.orthogonal_initializer,
    "RandomNormal": KerasRandomNormal,
    "RandomUniform": KerasRandomUniform,
    "TruncatedNormal": KerasTruncatedNormal,
    "VarianceScaling": tf.variance_scaling_initializer,
    "Zeros": tf.zeros_initializer,
    "constant": tf.constant_initializer,
    "glorot_normal": tf.glorot_normal_initializer,
    "glorot_uniform": tf.glorot_uniform_initializer,
    "he_normal": tf.initializers.he_normal,
    "he_uniform": tf.initializers.he_uniform,
    "identity": tf.initializers.identity,
    "lecun_normal": tf.initializers.lecun_normal,
    "lecun_uniform": tf.initializers.lecun_uniform,
    "normal": KerasRandomNormal,
    "ones": tf.ones_initializer,
    "orthogonal": tf.orthogonal_initializer,
    "random_normal": KerasRandomNormal,
    "random_uniform": KerasRandomUniform,
    "truncated_normal": KerasTruncatedNormal,
    "uniform": KerasRandomUniform,
    "zeros": tf.zeros_initializer,
}


def of_package(initializer: PassedOn) -> Any:
    """The same as an initializer of the package, whose numbers follow the graph's seed; others are themselves."""
    if initializer is unsaid.UNSAID:
        return None
    cls = type(initializer)
    if not isinstance(initializer, _PackageInitializer) or getattr(_module, cls.__name__, None) is not cls:
        return initializer
    served = NAMES.get(cls.__name__)
    if served is None or served is tf.constant_initializer:
        return initializer
    return served(**initializer.get_config())


def serialize(initializer: PassedOn) -> Any:
    """An initializer as its class's name and its configuration."""
    return package.module("utils.generic_utils").serialize_keras_object(initializer)


def deserialize(config: PassedOn, custom_objects: PassedOn = None) -> Any:
    """The initializer that `serialize` described."""
    with scopes.served_classes():
        return _module.deserialize(config, custom_objects)


def get(identifier: PassedOn) -> Any:
    """The initializer of a name, a configuration or a class; what is callable, and None, is itself."""
    if identifier is None:
        return None
    if inspect.isclass(identifier):
        return identifier()
    with scopes.served_classes():
        return of_package(_module.get(identifier))


def function(given: PassedOn, dtype: tf.DType, name: str | None) -> Callable[..., Any]:
    """A function from a shape and a dtype to a value."""
    if given is None:
        if dtype.is_floating:
            given = "glorot_uniform"
        elif dtype.is_integer or dtype.is_bool:
            given = "zeros"
        else:
            raise ValueError(f"An initializer for variable {name} of type {dtype.base_dtype} is required")
    made: Callable[..., Any] = get(given)

    def make(shape: list[Any], dtype: DTypeLike) -> Any:
        if not callable(made):
            return tf.cast(made, dtype)
        names = parameters(made)
        if "dtype" not in names and "**" not in names:
            return tf.cast(made(shape), dtype)
        return made(shape, dtype=dtype)

    return make


def parameters(function: Callable[..., Any]) -> list[str]:
    """The names of a function's parameters; "**" stands for those of any name."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return ["**"]
    return ["**" if p.kind is p.VAR_KEYWORD else p.name for p in parameters if p.kind is not p.VAR_POSITIONAL]


def required_parameters(function: Callable[..., Any]) -> list[str]:
    """The names of the parameters that a call must give."""
    try:
        given = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return []
    return [p.name for p in given if p.default is p.empty and p.kind not in (p.VAR_KEYWORD, p.VAR_POSITIONAL)]
