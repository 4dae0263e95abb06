"""What h5py 3 does otherwise than h5py 2 with attributes, undone for the process that runs an older program.

An attribute that was stored as ASCII, which is how `bytes` are stored, was read as `bytes`; h5py 3 decodes it. Keras
and others call `.decode` on what they read. What was stored as `str` is `str` in both.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import sys
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any, Final

import numpy as np

_ATTRIBUTES: Final = "h5py._hl.attrs"


def restore() -> Callable[[], None]:
    """Reads attributes as h5py 2 did, once h5py is imported; returns the function that undoes it."""
    loaded = sys.modules.get(_ATTRIBUTES)
    if loaded is not None:
        return _read_bytes(loaded)
    finder = _Finder()
    sys.meta_path.insert(0, finder)

    def undo() -> None:
        if finder in sys.meta_path:
            sys.meta_path.remove(finder)
        for one in finder.undo:
            one()

    return undo


class _Finder(importlib.abc.MetaPathFinder):
    """Lets the module of attributes be found and loaded as ever, and changes it then."""

    def __init__(self) -> None:
        self.undo: list[Callable[[], None]] = []

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname != _ATTRIBUTES:
            return None
        spec = importlib.machinery.PathFinder.find_spec(fullname, path, target)
        if spec is not None and spec.loader is not None:
            spec.loader = _Loader(spec.loader, self.undo)
        return spec


class _Loader(importlib.abc.Loader):
    """Another loader, after which the class of attributes is changed."""

    def __init__(self, loader: Any, undo: list[Callable[[], None]]) -> None:
        self._loader = loader
        self._undo = undo

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType | None:
        module: ModuleType | None = self._loader.create_module(spec)
        return module

    def exec_module(self, module: ModuleType) -> None:
        self._loader.exec_module(module)
        self._undo.append(_read_bytes(module))


def _read_bytes(module: ModuleType) -> Callable[[], None]:
    """Lets `AttributeManager` read ASCII as bytes; returns the function that undoes it."""
    manager: Any = module.AttributeManager
    read = manager.__getitem__

    def read_bytes(attributes: Any, name: str) -> object:
        value = read(attributes, name)
        if isinstance(value, str) and _is_ascii(attributes, name):
            return value.encode("utf-8", "surrogateescape")
        if isinstance(value, np.ndarray) and value.dtype == object and _is_ascii(attributes, name):
            encoded = [v.encode("utf-8", "surrogateescape") if isinstance(v, str) else v for v in value.flat]
            value.flat[:] = encoded
        return value

    manager.__getitem__ = read_bytes

    def undo() -> None:
        manager.__getitem__ = read

    return undo


def _is_ascii(attributes: Any, name: str) -> bool:
    """Whether an attribute was stored as ASCII text of any length."""
    h5t = sys.modules["h5py"].h5t
    stored = h5t.check_string_dtype(attributes.get_id(name).dtype)
    return stored is not None and stored.encoding == "ascii"
