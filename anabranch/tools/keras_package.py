"""`tensorflow.keras`, served by the package `keras` where one of its versions 2.2 and 2.3 is installed.

That package builds and trains models on the graph's operations itself, and runs on anabranch unmodified (`make
libraries`). Later versions need TensorFlow 2.
"""

from __future__ import annotations

import functools
import importlib
import importlib.metadata
import importlib.util
import threading
from types import ModuleType
from typing import Final

from anabranch.tools.slim_package import StandIn

PACKAGE: Final = "keras"
_VERSIONS: Final = ("2.2.", "2.3.")

_lock = threading.RLock()
#: what was imported while anabranch stood in, by full name
_loaded: dict[str, ModuleType] = {}


@functools.cache
def is_installed() -> bool:
    """Whether a version of the package that serves is installed."""
    try:
        return importlib.metadata.version(PACKAGE).startswith(_VERSIONS)
    except importlib.metadata.PackageNotFoundError:
        return False


def find_module(path: str, standing_in: StandIn) -> ModuleType | None:
    """The package's module for a public one, "keras.layers"; None without such a module or package.

    TensorFlow's private modules, "python.keras.utils.generic_utils", have the names that the package has. Where
    `tensorflow` is not anabranch for the whole process, it is for the package alone, by `standing_in`.
    """
    path = path.removeprefix("python.")
    if path.split(".")[0] != PACKAGE or not is_installed():
        return None
    try:
        with _lock:
            if path in _loaded:
                return _loaded[path]
            with standing_in(PACKAGE, _loaded):
                return importlib.import_module(path)
    except ModuleNotFoundError as error:
        if error.name is not None and path.startswith(error.name):
            return None
        raise
