"""Packages that carry on parts of TensorFlow: their modules, for which TensorFlow is anabranch.

Such a package imports TensorFlow. Where the program runs under `anabranch run`, that is anabranch anyway; else
anabranch stands in for TensorFlow while the package is imported, and the process is afterwards as it was.
"""

from __future__ import annotations

import functools
import importlib
import importlib.util
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from types import ModuleType
from typing import TypeAlias

#: a block in which `import tensorflow` means anabranch for a package, whose modules are kept in a dictionary
StandIn: TypeAlias = Callable[[str, dict[str, ModuleType]], AbstractContextManager[None]]

_lock = threading.RLock()
#: what was imported while anabranch stood in, by full name, for each package
_loaded: dict[str, dict[str, ModuleType]] = {}


@functools.cache
def is_installed(package: str) -> bool:
    """Whether the package can be imported."""
    return importlib.util.find_spec(package) is not None


def module(name: str, standing_in: StandIn) -> ModuleType:
    """A module of a package, "tf_slim.layers.layers".

    Raises:
        ModuleNotFoundError: there is no such module.
    """
    package = name.partition(".")[0]
    with _lock:
        loaded = _loaded.setdefault(package, {})
        if name in loaded:
            return loaded[name]
        with standing_in(package, loaded):
            return importlib.import_module(name)
