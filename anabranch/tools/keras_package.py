"""`tensorflow.keras`, served by the package `keras` where one of its versions 2.2 and 2.3 is installed.

That package builds and trains models on the graph's operations itself, and runs on anabranch unmodified (`make
libraries`). Later versions need TensorFlow 2.
"""

from __future__ import annotations

import functools
import importlib
import importlib.metadata
import importlib.util
import sys
from types import ModuleType
from typing import Any, Final

from anabranch.tfkeras import package as keras_classes
from anabranch.tools import carried_packages
from anabranch.tools.carried_packages import StandIn

PACKAGE: Final = "keras"
_NAMES: Final = "anabranch.tfkeras.names"
_VERSIONS: Final = ("2.2.", "2.3.")
#: the versions whose classes are served on foundations of our own; others as they are
_WITH_FOUNDATIONS: Final = "2.3."
#: names that `tf.keras` has, and the package too, in another of its modules, or under another name there
_ELSEWHERE: Final = {
    "keras.initializers": {
        "GlorotNormal": "keras.initializers:glorot_normal",
        "GlorotUniform": "keras.initializers:glorot_uniform",
    },
    "keras.layers": {
        "Convolution2DTranspose": "keras.layers.convolutional",
        "SeparableConvolution1D": "keras.layers.convolutional",
        "SeparableConvolution2D": "keras.layers.convolutional",
        "Wrapper": "keras.layers.wrappers",
    },
    "keras.metrics": {"KLD": "keras.losses:kullback_leibler_divergence", "kld": "keras.losses"},
    "keras.utils": {"SequenceEnqueuer": "keras.utils.data_utils"},
}


@functools.cache
def installed_version() -> str | None:
    """The version of the package that is installed; None without one that serves."""
    try:
        version = importlib.metadata.version(PACKAGE)
    except importlib.metadata.PackageNotFoundError:
        return None
    return version if version.startswith(_VERSIONS) else None


def is_installed() -> bool:
    """Whether a version of the package that serves is installed."""
    return installed_version() is not None


def find_module(path: str, standing_in: StandIn) -> ModuleType | None:
    """The package's module for a public one, "keras.layers"; None without such a module or package.

    TensorFlow's private modules, "python.keras.utils.generic_utils", have the names that the package has. Where
    `tensorflow` is not anabranch for the whole process, it is for the package alone, by `standing_in`.
    """
    path = path.removeprefix("python.")
    if path.split(".")[0] != PACKAGE or not is_installed():
        return None
    if module_of_package(path, standing_in) is None and path not in keras_classes.FURTHER_MODULES:
        return None
    return _Served(path, standing_in)


class _Served(ModuleType):
    """What is served for a module; the classes are made when the first name is asked for.

    The package imports modules of TensorFlow's own Keras itself, and cannot be derived from before it is there.
    """

    def __init__(self, path: str, standing_in: StandIn) -> None:
        super().__init__(path)
        self._standing_in = standing_in

    def _names(self) -> ModuleType:
        of_package = module_of_package(self.__name__, self._standing_in)
        if of_package is not None and not importlib.metadata.version(PACKAGE).startswith(_WITH_FOUNDATIONS):
            return of_package
        # The package asks for names while it is imported itself, before there is anything to derive from.
        whole = module_of_package(PACKAGE, self._standing_in)
        if of_package is not None and getattr(getattr(whole, "__spec__", None), "_initializing", False):
            return of_package
        served: ModuleType = _served_names(self._standing_in).module(self.__name__, of_package)
        return served

    def __getattr__(self, name: str) -> Any:
        if name == "__all__":  # for `from tensorflow.keras.layers import *`
            return [one for one in dir(self) if not one.startswith("_")]
        if name.startswith("__") and name != "__version__":
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        return getattr(self._names(), name)

    def __dir__(self) -> list[str]:
        return dir(self._names())


def module_of_package(path: str, standing_in: StandIn) -> ModuleType | None:
    """The package's own module, "keras.backend", as it is; None without such a module or package."""
    if not is_installed():
        return None
    try:
        return carried_packages.module(path, standing_in)
    except ModuleNotFoundError as error:
        if error.name is not None and path.startswith(error.name):
            return None
        raise


def _served_names(standing_in: StandIn) -> Any:
    """The module that says what is served; it needs the package."""
    if _NAMES not in sys.modules:
        keras_classes.use(functools.partial(carried_packages.module, standing_in=standing_in))
        carried_packages.module(PACKAGE, standing_in)
    return importlib.import_module(_NAMES)


class _Elsewhere(ModuleType):
    """Names of a module of `tf.keras` that the package has elsewhere."""

    def __init__(self, path: str, standing_in: StandIn) -> None:
        super().__init__(path)
        self._standing_in = standing_in

    def __getattr__(self, name: str) -> Any:
        home = _ELSEWHERE[self.__name__].get(name)
        if home is None:
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        module, _, there = home.partition(":")
        return getattr(carried_packages.module(module, self._standing_in), there or name)

    def __dir__(self) -> list[str]:
        return sorted(_ELSEWHERE[self.__name__])


def has_more_names(path: str) -> bool:
    """Whether a module has names that the package has elsewhere."""
    return path.removeprefix("python.") in _ELSEWHERE


def more_names(path: str, standing_in: StandIn) -> list[ModuleType]:
    """What has further names of a module that `find_module` gave: one module, or none."""
    return [_Elsewhere(path.removeprefix("python."), standing_in)] if has_more_names(path) else []
