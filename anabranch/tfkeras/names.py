"""What the modules of `tf.keras` serve: the package's names, with this room's classes and functions in their place."""

from __future__ import annotations

import functools
import importlib
import importlib.util
import inspect
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any, Final

from anabranch.core.values import PassedOn
from anabranch.tfkeras import (
    attention,
    backend,
    basic_layers,
    callbacks,
    cloning,
    constraints,
    downloads,
    estimators,
    features,
    initializers,
    inputs,
    locally_connected,
    losses,
    metrics,
    models,
    normalization,
    op_layers,
    optimizers,
    package,
    rebasing,
    recurrent,
    recurrent_cells,
    saving,
    schedules,
    scopes,
    sequential,
    update_rules,
    wrapped_layers,
)

_models = package.module("models")
_layers = package.module("layers")
_metrics = package.module("metrics")
_PackageLayer: Any = package.module("engine.base_layer").Layer

#: functions of the package that apply a layer to a list of tensors
_MERGING: Final = {
    "add": "Add",
    "subtract": "Subtract",
    "multiply": "Multiply",
    "average": "Average",
    "maximum": "Maximum",
    "minimum": "Minimum",
    "concatenate": "Concatenate",
    "dot": "Dot",
}


def _merging(name: str) -> Callable[..., Any]:
    def apply(inputs: PassedOn, *args: PassedOn, **kwargs: PassedOn) -> Any:
        return rebasing.served(getattr(_layers, name))(*args, **kwargs)(inputs)

    return apply


#: layers that `tf.keras` has under a second name
_SECOND_NAMES: Final = {
    "Convolution2DTranspose": "Conv2DTranspose",
    "Convolution3DTranspose": "Conv3DTranspose",
    "SeparableConvolution1D": "SeparableConv1D",
    "SeparableConvolution2D": "SeparableConv2D",
}


def _in_scope(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function of the package that makes objects by their names; the classes that it makes are those served."""

    @functools.wraps(function)
    def call(*args: PassedOn, **kwargs: PassedOn) -> Any:
        with scopes.served_classes():
            return function(*args, **kwargs)

    return call


def _deserialize_layer(config: dict[str, Any], custom_objects: dict[str, Any] | None = None) -> Any:
    with scopes.served_classes():
        return _layers.deserialize(config, custom_objects)


def _end_pools(grace_period: float = 0.1, use_sigkill: bool = False) -> list[str]:
    """What was in the way of ending pools of processes: nothing, for they end with the calls that made them."""
    return []


#: served for classes of the package as they are imported
_REGISTERED: Final = (basic_layers, locally_connected, recurrent, wrapped_layers)

_OWN: Final[Mapping[str, Mapping[str, Any]]] = {
    "keras": {
        "Input": inputs.Input,
        "Model": models.KerasModel,
        "Sequential": sequential.Sequential,
        "__version__": "2.2.4-tf",
    },
    "keras.backend": backend.NAMES,
    "keras.callbacks": callbacks.NAMES,
    "keras.constraints": constraints.NAMES,
    "keras.losses": losses.NAMES,
    "keras.metrics": metrics.NAMES,
    "keras.models": {
        "Input": inputs.Input,
        "Model": models.KerasModel,
        "Sequential": sequential.Sequential,
        "clone_model": cloning.clone_model,
        "load_model": saving.load_model,
        "save_model": models.KerasModel.save,
        "model_from_config": _in_scope(_models.model_from_config),
        "model_from_json": _in_scope(_models.model_from_json),
        "model_from_yaml": _in_scope(_models.model_from_yaml),
    },
    "keras.layers": {
        "Input": inputs.Input,
        "deserialize": _deserialize_layer,
        "AdditiveAttention": attention.AdditiveAttention,
        "Attention": attention.Attention,
        "AbstractRNNCell": recurrent_cells.AbstractRNNCell,
        "DenseFeatures": features.DenseFeatures,
        "_DenseFeaturesV2": features.DenseFeaturesV2,
        "LayerNormalization": normalization.LayerNormalization,
        "Wrapper": rebasing.served(package.module("layers.wrappers").Wrapper),
        **{name: rebasing.served(getattr(_layers, of)) for name, of in _SECOND_NAMES.items()},
        **{name: _merging(of) for name, of in _MERGING.items()},
    },
    "keras.initializers": {
        "get": initializers.get,
        "serialize": initializers.serialize,
        "deserialize": initializers.deserialize,
        **initializers.NAMES,
    },
    "keras.engine.base_layer": {
        "TensorFlowOpLayer": op_layers.TensorFlowOpLayer,
        "AddLoss": op_layers.AddLoss,
        "AddMetric": op_layers.AddMetric,
    },
    "keras.engine.training": {"Model": models.KerasModel},
    "keras.engine.sequential": {"Sequential": sequential.Sequential},
    "keras.optimizers": {
        "Optimizer": optimizers.KerasOptimizer,
        "get": optimizers.get,
        "serialize": optimizers.serialize,
        "deserialize": optimizers.deserialize,
        **{cls.__name__: cls for cls in update_rules.OPTIMIZERS},
    },
    "keras.optimizers.schedules": {
        "LearningRateSchedule": schedules.LearningRateSchedule,
        "serialize": schedules.serialize,
        "deserialize": schedules.deserialize,
        **{name: cls for name, cls in schedules.SCHEDULES.items() if "Cosine" not in name},
    },
    "keras.utils.conv_utils": {"normalize_data_format": package.module("backend.common").normalize_data_format},
    "keras.utils.generic_utils": {
        "make_batches": package.module("engine.training_utils").make_batches,
        "to_snake_case": package.module("engine.base_layer")._to_snake_case,
    },
    "keras.estimator": {"model_to_estimator": estimators.model_to_estimator},
    "keras.experimental": {
        **{name: cls for name, cls in schedules.SCHEDULES.items() if "Cosine" in name},
        "PeepholeLSTMCell": recurrent_cells.PeepholeLSTMCell,
        "SequenceFeatures": features.SequenceFeatures,
        "export_saved_model": saving.export_saved_model,
        "load_from_saved_model": saving.load_from_saved_model,
        "terminate_keras_multiprocessing_pools": _end_pools,
    },
}


def served_classes() -> dict[str, Any]:
    """Layers and optimizers by the names that configurations have for them."""
    found = {name: rebasing.served(value) for name, value in vars(_layers).items() if _is_served(value)}
    found |= {value.__name__: value for value in _OWN["keras.layers"].values() if inspect.isclass(value)}
    found |= {cls.__name__: cls for cls in (models.KerasModel, sequential.Sequential, inputs.InputLayer)}
    found |= {cls.__name__: cls for cls in (op_layers.TensorFlowOpLayer, op_layers.AddLoss, op_layers.AddMetric)}
    found |= initializers.NAMES
    found |= {cls.__name__: cls for cls in (recurrent_cells.PeepholeLSTMCell, constraints.RadialConstraint)}
    found |= {
        "BatchNormalizationV1": normalization.KerasBatchNormalization,
        "BatchNormalizationV2": normalization.KerasBatchNormalization,
    }
    # a loss and a metric may have one name, and then are the package's
    found |= {
        name: value for name, value in losses.NAMES.items() if inspect.isclass(value) and not hasattr(_metrics, name)
    }
    found |= {name: getattr(metrics, name) for name in ("MeanTensor", "MeanRelativeError")}
    for cls in update_rules.OPTIMIZERS:
        found[cls.__name__] = found[cls.__name__.lower()] = cls
    return found


scopes.provide(functools.cache(served_classes))


def _is_served(value: PassedOn) -> bool:
    bases = (_PackageLayer, package.module("losses").Loss)
    return inspect.isclass(value) and issubclass(value, bases) and rebasing.is_of_package(value)


def _application(path: str, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """A function of `keras.applications`, which builds with the modules that it is given: with those served."""
    package_of = package.module("applications")
    places = (
        [path]
        if path != package_of.__name__
        else [one.__name__ for one in vars(package_of).values() if isinstance(one, ModuleType) and hasattr(one, name)]
    )
    homes = [place.replace("keras.applications", "keras_applications", 1) for place in places]
    found = [importlib.import_module(home) for home in homes if importlib.util.find_spec(home) is not None]
    builder = next((getattr(home, name) for home in found if inspect.isfunction(getattr(home, name, None))), None)
    if builder is None:
        return function

    @functools.wraps(function)
    def call(*args: PassedOn, **kwargs: PassedOn) -> Any:
        modules: dict[str, Any] = {
            name: module(f"keras.{name}", package.module(name)) for name in ("backend", "layers", "models", "utils")
        }
        if "layers" in kwargs:  # a program may build with layers of its own
            modules["layers"] = kwargs["layers"]
        return builder(*args, **kwargs | modules)

    return call


class ServedModule(ModuleType):
    """A module of `tf.keras`: first what this room has for it, then what the package has."""

    def __init__(self, path: str, of_package: ModuleType | None) -> None:
        super().__init__(f"tensorflow.{path}")
        self.__dict__["_path"], self.__dict__["_of_package"] = path, of_package

    def __getattr__(self, name: str) -> Any:
        path, of_package = self.__dict__["_path"], self.__dict__["_of_package"]
        own = _OWN.get(path, {})
        if name in own:
            value: Any = own[name]
        elif of_package is not None and hasattr(of_package, name):
            value = getattr(of_package, name)
            if isinstance(value, ModuleType) and value.__name__.partition(".")[0] == path.partition(".")[0]:
                value = module(value.__name__, value)
            elif _is_served(value):
                value = rebasing.served(value)
            elif path.startswith("keras.applications") and inspect.isfunction(value):
                value = _application(path, name, value)
            elif path.startswith("keras.datasets.") and inspect.isfunction(value):
                value = downloads.told_where(value)
        elif f"{path}.{name}" in _OWN:
            value = module(f"{path}.{name}", None)
        else:
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        self.__dict__[name] = value
        return value

    def __dir__(self) -> list[str]:
        path = self.__dict__["_path"]
        inside = [key[len(path) + 1 :] for key in _OWN if key.rpartition(".")[0] == path]
        return sorted({*_OWN.get(path, {}), *inside, *dir(self.__dict__["_of_package"])})


_modules: dict[str, ServedModule] = {}


def has_own(path: str) -> bool:
    """Whether this room has a module of its own for a path."""
    return path in _OWN


def module(path: str, of_package: ModuleType | None) -> ServedModule:
    """The module that is served for a path, "keras.layers".

    Args:
        path: below `tensorflow`.
        of_package: the package's module; None where it has none.
    """
    if path not in _modules:
        _modules[path] = ServedModule(path, of_package)
    return _modules[path]
