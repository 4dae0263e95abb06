"""What h5py 3 does otherwise than h5py 2 with attributes, undone for the process that runs an older program.

An attribute that was stored as ASCII, which is how `bytes` are stored, was read as `bytes`; h5py 3 decodes it. Keras
and others call `.decode` on what they read. What was stored as `str` is `str` in both.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np

from anabranch.tools import after_import


def restore() -> Callable[[], object]:
    """Reads attributes as h5py 2 did, once h5py is imported; returns the function that undoes it."""
    return after_import.change("h5py._hl.attrs", _read_bytes)


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
