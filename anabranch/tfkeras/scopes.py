"""Blocks in which the package makes objects of the served classes by their names."""

from __future__ import annotations

import contextlib
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
