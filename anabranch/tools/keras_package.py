"""`tensorflow.keras`, served by the package `keras` where one of its versions 2.2 and 2.3 is installed.

That package builds and trains models on the graph's operations itself, and runs on anabranch unmodified (`make
libraries`). Later versions need TensorFlow 2.
"""

from __future__ import annotations

import functools
import importlib
import importlib.metadata
import importlib.util
from types import ModuleType
from typing import Any, Final

PACKAGE: Final = "keras"
_VERSIONS: Final = ("2.2.", "2.3.")
#: names that `tf.keras` has, and the package too, in another of its modules
_ELSEWHERE: Final = {
    "keras.layers": {
        "Convolution2DTranspose": "keras.layers.convolutional",
        "SeparableConvolution1D": "keras.layers.convolutional",
        "SeparableConvolution2D": "keras.layers.convolutional",
        "Wrapper": "keras.layers.wrappers",
    },
    "keras.metrics": {"kld": "keras.losses"},
    "keras.utils": {"SequenceEnqueuer": "keras.utils.data_utils"},
}


@functools.cache
def is_installed() -> bool:
    """Whether a version of the package that serves is installed."""
    try:
        return importlib.metadata.version(PACKAGE).startswith(_VERSIONS)
    except importlib.metadata.PackageNotFoundError:
        return False


def find_module(path: str) -> ModuleType | None:
    """The package's module for a public one, "keras.layers"; None without such a module or package.

    TensorFlow's private modules, "python.keras.utils.generic_utils", have the names that the package has.
    """
    path = path.removeprefix("python.")
    if path.split(".")[0] != PACKAGE or not is_installed():
        return None
    try:
        return importlib.import_module(path)
    except ModuleNotFoundError as error:
        if error.name is not None and path.startswith(error.name):
            return None
        raise


class _Elsewhere(ModuleType):
    """Names of a module of `tf.keras` that other modules of the package have."""

    def __getattr__(self, name: str) -> Any:
        home = _ELSEWHERE[self.__name__].get(name)
        if home is None:
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        return getattr(importlib.import_module(home), name)

    def __dir__(self) -> list[str]:
        return sorted(_ELSEWHERE[self.__name__])


def more_names(path: str) -> list[ModuleType]:
    """What has further names of a module that `find_module` gave: one module, or none."""
    path = path.removeprefix("python.")
    return [_Elsewhere(path)] if path in _ELSEWHERE else []
