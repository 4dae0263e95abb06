"""Protocol buffers in which something is wrong: a field that is no longer what it was, at random places.

A damaged message is well formed: what reads it has to look at what it says. Half of the changes put something in a
field's place that stands elsewhere in the message (a node's name in another node's input, another node's attribute), so
that they pass the first checks: graphs become cyclic, frames are entered from inside, functions call themselves.
"""

from __future__ import annotations

import contextlib
import random
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

#: sizes, versions and indices that nothing has
HOSTILE = (-1, 0, 1, 2, -2, 7, -(2**31), 2**31 - 1, 2**20, 2**40, 2**62, 2**63 - 1, -(2**63))
_TEXTS = ("", "^", "x:99", "../x", "/etc/passwd", "\0", "^nothing", "a" * 5000, "é")
_INTEGERS = {
    FieldDescriptor.CPPTYPE_INT32: (-(2**31), 2**31 - 1),
    FieldDescriptor.CPPTYPE_INT64: (-(2**63), 2**63 - 1),
    FieldDescriptor.CPPTYPE_UINT32: (0, 2**32 - 1),
    FieldDescriptor.CPPTYPE_UINT64: (0, 2**64 - 1),
}


@dataclass(frozen=True)
class Place:
    """A field that is set: of which message, and which element where there are several."""

    message: Any
    field: Any
    index: Any = None

    @property
    def value(self) -> Any:
        held = getattr(self.message, self.field.name)
        return held if self.index is None else held[self.index]


def places(message: Message) -> Iterator[Place]:
    """Every field that is set, however deep; each element of those with several."""
    for field, value in message.ListFields():
        if is_map(field):
            for key in value:
                yield Place(message, field, key)
                if isinstance(value[key], Message):
                    yield from places(value[key])
        elif is_repeated(field):
            for index, item in enumerate(value):
                yield Place(message, field, index)
                if isinstance(item, Message):
                    yield from places(item)
        else:
            yield Place(message, field)
            if isinstance(value, Message):
                yield from places(value)


def is_repeated(field: Any) -> bool:
    """Whether a field has several elements."""
    return bool(getattr(field, "is_repeated", False))


def is_map(field: Any) -> bool:
    """Whether a field is a mapping."""
    return field.message_type is not None and field.message_type.GetOptions().map_entry


def damage(message: Message, draw: random.Random) -> None:
    """Changes one to four things in a message."""
    for _ in range(draw.choice((1, 1, 1, 2, 4))):
        by_field: dict[str, list[Place]] = defaultdict(list)
        for place in places(message):
            by_field[place.field.full_name].append(place)
        if not by_field:
            return
        # by kind first: otherwise most changes would be of the numbers of one tensor
        alike = by_field[draw.choice(sorted(by_field))]
        _change(draw.choice(alike), alike, draw)


def _change(place: Place, alike: list[Place], draw: random.Random) -> None:
    if is_map(place.field):
        _change_mapping(place, alike, draw)
    elif is_repeated(place.field):
        _change_list(place, alike, draw)
    elif place.field.message_type is not None:
        other = draw.choice(alike).value
        if draw.random() < 0.4:
            place.message.ClearField(place.field.name)
        else:
            place.value.CopyFrom(_copy(other))
    elif draw.random() < 0.15:
        place.message.ClearField(place.field.name)
    else:
        with contextlib.suppress(ValueError):  # enumerations of older messages take the numbers that they know
            setattr(place.message, place.field.name, _scalar(place, alike, draw))


def _change_mapping(place: Place, alike: list[Place], draw: random.Random) -> None:
    mapping = getattr(place.message, place.field.name)
    other = draw.choice(alike).value
    if draw.random() < 0.3:
        del mapping[place.index]
    elif isinstance(other, Message):
        mapping[place.index].CopyFrom(_copy(other))
    else:
        mapping[place.index] = other


def _change_list(place: Place, alike: list[Place], draw: random.Random) -> None:
    items = getattr(place.message, place.field.name)
    kind = draw.choice(("delete", "repeat", "swap", "change", "change", "change", "change"))
    other = draw.choice(alike).value
    if kind == "delete":
        del items[place.index]
    elif kind == "repeat":
        items.extend([items[place.index]])
    elif kind == "swap":
        at = draw.randrange(len(items))
        values = [_copy(item) for item in items]
        values[at], values[place.index] = values[place.index], values[at]
        del items[:]
        items.extend(values)
    elif isinstance(other, Message):
        items[place.index].CopyFrom(_copy(other))
    else:
        items[place.index] = _scalar(place, alike, draw)


def _copy(item: Any) -> Any:
    if not isinstance(item, Message):
        return item
    copied = type(item)()
    copied.CopyFrom(item)
    return copied


def _scalar(place: Place, alike: list[Place], draw: random.Random) -> Any:
    value, field = place.value, place.field
    if draw.random() < 0.5:
        return draw.choice(alike).value
    if field.cpp_type in _INTEGERS:
        least, most = _INTEGERS[field.cpp_type]
        return min(max(draw.choice((*HOSTILE, value - 1, value + 1)), least), most)
    changes: dict[int, Callable[[], Any]] = {
        FieldDescriptor.CPPTYPE_BOOL: lambda: not value,
        FieldDescriptor.CPPTYPE_ENUM: lambda: draw.choice((0, 1, 3, 7, 14, 20, 21, 23, 101, 107, 999, -1)),
        FieldDescriptor.CPPTYPE_FLOAT: lambda: draw.choice((0.0, -1.0, float("nan"), float("inf"), 3e38)),
        FieldDescriptor.CPPTYPE_DOUBLE: lambda: draw.choice((0.0, -1.0, float("nan"), float("inf"), 1e308)),
        FieldDescriptor.CPPTYPE_STRING: lambda: damaged_text(value, draw) if isinstance(value, str) else b"",
    }
    if isinstance(value, bytes):
        return damaged_bytes(value, draw)
    return changes[field.cpp_type]()


def damaged_text(text: str, draw: random.Random) -> str:
    """A name that is no name, or nearly the same."""
    at = draw.randrange(len(text) + 1)
    return draw.choice(
        (*_TEXTS, text[:at], text[:at] + draw.choice("a/:^9_ ") + text[at + 1 :], text + ":1", "^" + text)
    )


def damaged_bytes(data: bytes, draw: random.Random) -> bytes:
    """Bytes that were cut off, in which a few bits or bytes changed, or between which others came."""
    changed = bytearray(data)
    kind = draw.choice(("cut", "flip", "flip", "set", "insert", "repeat", "zero"))
    at = draw.randrange(len(changed) + 1)
    if kind == "cut":
        del changed[at:]
    elif kind == "insert":
        changed[at:at] = draw.randbytes(draw.choice((1, 2, 8, 64)))
    elif kind == "repeat":
        changed[at:at] = changed[at : at + draw.choice((1, 8, 64))]
    elif kind == "zero":
        changed[at : at + 8] = bytes(len(changed[at : at + 8]))
    elif changed:
        for _ in range(draw.choice((1, 1, 2, 8))):
            at = draw.randrange(len(changed))
            changed[at] = changed[at] ^ 1 << draw.randrange(8) if kind == "flip" else draw.randrange(256)
    return bytes(changed)
