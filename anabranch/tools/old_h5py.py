"""What h5py 3 does otherwise than h5py 2, undone for the process that runs an older program.

An attribute that was stored as ASCII, which is how `bytes` are stored, was read as `bytes`; h5py 3 decodes it. Keras
and others call `.decode` on what they read. What was stored as `str` is `str` in both. A file was opened for writing
unless a mode was given, and made where there was none; h5py 3 opens it for reading. What a data set holds was its
`value`.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any, Protocol

import numpy as np

from anabranch.core.values import PassedOn
from anabranch.tools import after_import


class _AttributeManager(Protocol):
    """h5py's attributes of one group or data set."""

    def get_id(self, name: str) -> Any: ...


def restore() -> Callable[[], None]:
    """Undoes these, once h5py is imported; returns the function that takes that back."""
    undo = [
        after_import.change("h5py._hl.attrs", _read_bytes),
        after_import.change("h5py._hl.files", _open_for_writing),
        after_import.change("h5py._hl.dataset", _give_values),
    ]

    def undo_all() -> None:
        for one in undo:
            one()

    return undo_all


def _read_bytes(module: ModuleType) -> Callable[[], None]:
    """Lets `AttributeManager` read ASCII as bytes; returns the function that undoes it."""
    manager: Any = module.AttributeManager
    read = manager.__getitem__

    def read_bytes(attributes: _AttributeManager, name: str) -> object:
        value = read(attributes, name)
        if isinstance(value, str) and _is_ascii(attributes, name):
            return value.encode("utf-8", "surrogateescape")
        if isinstance(value, np.ndarray) and value.dtype == object and _is_ascii(attributes, name):
            # h5py 2 stored lists of bytes with one length
            return np.array([v.encode("utf-8", "surrogateescape") for v in value.flat]).reshape(value.shape)
        return value

    manager.__getitem__ = read_bytes

    def undo() -> None:
        manager.__getitem__ = read

    return undo


def _is_ascii(attributes: _AttributeManager, name: str) -> bool:
    """Whether an attribute was stored as ASCII text of any length."""
    h5t = sys.modules["h5py"].h5t
    stored = h5t.check_string_dtype(attributes.get_id(name).dtype)
    return stored is not None and stored.encoding == "ascii"


def _open_for_writing(module: ModuleType) -> Callable[[], None]:
    """Lets `File` open files for writing where it can and no mode is given; returns the function that undoes it."""
    file: Any = module.File
    initialize = file.__init__

    def initialize_for_writing(
        self: object, name: PassedOn, mode: str | None = None, *args: PassedOn, **kwargs: PassedOn
    ) -> None:
        if mode is not None or not isinstance(name, str | bytes | os.PathLike):
            initialize(self, name, mode or "r", *args, **kwargs)
            return
        try:
            initialize(self, name, "a", *args, **kwargs)
        except PermissionError:
            initialize(self, name, "r", *args, **kwargs)

    file.__init__ = initialize_for_writing
    file.fid = property(lambda self: self.id)  # the identifier's name until h5py 2

    def undo() -> None:
        file.__init__ = initialize
        del file.fid

    return undo


def _give_values(module: ModuleType) -> Callable[[], None]:
    """Lets `Dataset` have all that it holds as `value`; returns the function that undoes it."""
    dataset: Any = module.Dataset
    dataset.value = property(lambda self: self[()])

    def undo() -> None:
        del dataset.value

    return undo
