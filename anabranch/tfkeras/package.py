"""The package keras, 2.2 or 2.3, that the classes of this room derive from.

Its modules are loaded by whoever serves `tf.keras`, who says how before any other module of the room is imported.
"""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any, Final

#: modules of `tf.keras` that the package does not have
FURTHER_MODULES: Final = frozenset({"keras.estimator", "keras.experimental", "keras.optimizers.schedules"})
_loaders: list[Callable[[str], ModuleType]] = []


def use(loader: Callable[[str], ModuleType]) -> None:
    """Says how a module of the package is loaded: `loader` takes its name, "keras.layers"."""
    _loaders[:] = [loader]


def module(path: str) -> Any:
    """A module of the package by its path there, "engine.base_layer".

    Raises:
        RuntimeError: nobody said how the package is loaded.
    """
    if not _loaders:
        raise RuntimeError("tf.keras is served by the package keras; take it from `tensorflow` under `anabranch run`")
    return _loaders[0](f"keras.{path}" if path else "keras")
