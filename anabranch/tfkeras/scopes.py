"""Blocks in which the package makes objects of the served classes by their names."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from typing import Any

from anabranch.tfkeras import package

#: gives the served classes and functions by the names that configurations have for them
_providers: list[Callable[[], dict[str, Any]]] = []


def provide(provider: Callable[[], dict[str, Any]]) -> None:
    """Says what the served classes are."""
    _providers[:] = [provider]


@contextlib.contextmanager
def served_classes() -> Iterator[None]:
    """While the block runs, a name in a configuration means the served class, unless the program defines it."""
    known = package.module("utils.generic_utils")._GLOBAL_CUSTOM_OBJECTS
    added = {name: value for name, value in _providers[0]().items() if name not in known}
    known.update(added)
    try:
        yield
    finally:
        for name in added:
            known.pop(name, None)


class _Order(threading.local):
    trainable_first = False


_order = _Order()


def is_trainable_first() -> bool:
    """Whether models give the variables that are trained before the others, as HDF5 files have them."""
    return _order.trainable_first


@contextlib.contextmanager
def trainable_first() -> Iterator[None]:
    """A block in which they do."""
    before, _order.trainable_first = _order.trainable_first, True
    try:
        yield
    finally:
        _order.trainable_first = before
