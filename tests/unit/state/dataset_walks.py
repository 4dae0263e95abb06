"""What datasets yield, as plain Python values, from their beginning and from a saved position."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np

from anabranch.state.datasets import (
    DatasetIterator,
    Element,
    Elements,
)
from anabranch.state.positions import decode_position, encode_position

MANY = 200


def plain(element: Element) -> Any:
    """An element as Python values; a window as the list of its elements."""
    values = [_plain_component(c) for c in element]
    return values[0] if len(values) == 1 else tuple(values)


def _plain_component(array: Any) -> Any:
    value = array.tolist() if isinstance(array, np.ndarray) else array
    return taken(value) if isinstance(value, Elements) else value


def taken(dataset: Elements, most: int = MANY) -> list[Any]:
    return rest_of(dataset.iterator(), most)


def rest_of(iterator: DatasetIterator, most: int = MANY) -> list[Any]:
    return [plain(e) for e in itertools.islice(iter(iterator.next, None), most)]


def continued(make: Callable[[], Elements], steps: int) -> list[Any]:
    """What a restored iterator yields after another one went some steps."""
    iterator = make().iterator()
    for _ in range(steps):
        iterator.next()
    saved = encode_position(iterator.position())
    restored = make().iterator()
    restored.restore(decode_position(saved))
    return rest_of(restored)
