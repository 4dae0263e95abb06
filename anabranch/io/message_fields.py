"""Fields of serialized protocol buffers, read and written one by one by the descriptor of each.

A message is a sequence of tags and values; a tag says the number of the field and how long the value is. No message is
made: fields that nobody asked for are passed over, and messages in messages stay bytes.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping
from typing import Any, Final

from google.protobuf.descriptor import FieldDescriptor

from anabranch.io.sstable import SSTableError, read_varint, varint

_VARINT, _FIXED_64, _BYTES, _GROUP, _END_GROUP, _FIXED_32 = range(6)
_ENDLESS: Final = "a group has no end"
#: groups in groups in a field that is passed over
_DEEPEST: Final = 100

_TYPE: Final = FieldDescriptor
_FIXED: Final[Mapping[int, str]] = {
    _TYPE.TYPE_DOUBLE: "<d",
    _TYPE.TYPE_FLOAT: "<f",
    _TYPE.TYPE_FIXED64: "<Q",
    _TYPE.TYPE_SFIXED64: "<q",
    _TYPE.TYPE_FIXED32: "<I",
    _TYPE.TYPE_SFIXED32: "<i",
}
_TEXTS: Final = frozenset({_TYPE.TYPE_STRING, _TYPE.TYPE_BYTES, _TYPE.TYPE_MESSAGE})
_SIGNED: Final[Mapping[int, int]] = {_TYPE.TYPE_INT64: 64, _TYPE.TYPE_INT32: 32, _TYPE.TYPE_ENUM: 32}
_ZIGZAG: Final = frozenset({_TYPE.TYPE_SINT32, _TYPE.TYPE_SINT64})


class MessageError(ValueError):
    """The bytes are no such message. The message says where."""


def read_fields(data: bytes, wanted: Mapping[int, FieldDescriptor]) -> dict[int, list[Any]]:
    """The values of some fields, in the order in which they stand there.

    Args:
        wanted: the fields by number.

    Returns:
        By number: bytes for strings, messages and groups, numbers and truth values for all others. Of a field that is
        not repeated the last value counts, as the only one.

    Raises:
        MessageError: the bytes end too early, or are no message.
    """
    found: dict[int, list[Any]] = {number: [] for number in wanted}
    at = 0
    try:
        while at < len(data):
            tag, at = read_varint(data, at)
            number, kind = tag >> 3, tag & 7
            if number == 0 or kind == _END_GROUP:
                raise MessageError(f"there is no field {number} of kind {kind} before byte {at}")
            field = wanted.get(number)
            if field is None or not _fits(field, kind):
                at = _passed(data, at, kind, number)
            else:
                at = _read(data, at, kind, field, found[number])
    except SSTableError as error:
        raise MessageError(str(error)) from None
    except struct.error:
        raise MessageError(f"the message ends within the value at byte {at}") from None
    return {n: values if wanted[n].is_repeated else values[-1:] for n, values in found.items()}


def _wire_kind(field: FieldDescriptor) -> int:
    if field.type in _FIXED:
        return _FIXED_64 if struct.calcsize(_FIXED[field.type]) == 8 else _FIXED_32
    if field.type == _TYPE.TYPE_GROUP:
        return _GROUP
    return _BYTES if field.type in _TEXTS else _VARINT


def _fits(field: FieldDescriptor, kind: int) -> bool:
    """Whether a value may be one of the field, or several in a row."""
    of_field = _wire_kind(field)
    return kind == of_field or (kind == _BYTES and of_field not in (_BYTES, _GROUP))


def _read(data: bytes, at: int, kind: int, field: FieldDescriptor, values: list[Any]) -> int:
    if kind == _GROUP:
        end = _passed(data, at, kind, field.number)
        values.append(varint(field.number << 3 | _GROUP) + data[at:end])  # its ends are part of it, as in TensorFlow
        return end
    if kind != _BYTES:
        value, at = _number(data, at, field)
        values.append(value)
        return at
    size, at = read_varint(data, at)
    end = at + size
    if end > len(data):
        raise MessageError(f"{size} bytes are announced at byte {at}, and {len(data) - at} follow")
    if field.type in _TEXTS:
        values.append(data[at:end])
        return end
    packed, inside = data[at:end], 0
    while inside < len(packed):
        value, inside = _number(packed, inside, field)
        values.append(value)
    return end


def _number(data: bytes, at: int, field: FieldDescriptor) -> tuple[Any, int]:
    if (form := _FIXED.get(field.type)) is not None:
        return struct.unpack_from(form, data, at)[0], at + struct.calcsize(form)
    value, at = read_varint(data, at)
    value &= (1 << 64) - 1
    if field.type == _TYPE.TYPE_BOOL:
        return bool(value), at
    if (bits := _SIGNED.get(field.type)) is not None:
        value &= (1 << bits) - 1
        return value - (1 << bits if value >> bits - 1 else 0), at
    if field.type in (_TYPE.TYPE_UINT32, _TYPE.TYPE_SINT32):
        value &= (1 << 32) - 1
    return (value >> 1 ^ -(value & 1) if field.type in _ZIGZAG else value), at


def _passed(data: bytes, at: int, kind: int, number: int) -> int:
    """Where the value ends that begins here."""
    open_groups: list[int] = []
    while True:
        if kind == _VARINT:
            _, at = read_varint(data, at)
        elif kind in (_FIXED_64, _FIXED_32):
            at += 8 if kind == _FIXED_64 else 4
        elif kind == _BYTES:
            size, at = read_varint(data, at)
            at += size
        elif kind == _GROUP:
            open_groups.append(number)
            if len(open_groups) > _DEEPEST:
                raise MessageError(f"more than {_DEEPEST} groups stand in each other at byte {at}")
        elif kind == _END_GROUP:
            if not open_groups or open_groups.pop() != number:
                raise MessageError(f"a group {number} ends at byte {at} that did not begin")
        else:
            raise MessageError(f"there is no kind {kind} of values, as the field {number} before byte {at} has it")
        if at > len(data):
            raise MessageError(f"the message ends within the field {number}")
        if not open_groups:
            return at
        if at == len(data):
            raise MessageError(_ENDLESS)
        tag, at = read_varint(data, at)
        number, kind = tag >> 3, tag & 7


def written(field: FieldDescriptor, values: Iterable[Any]) -> bytes:
    """Values of one field, serialized; packed where the field's options say so.

    Args:
        values: bytes for strings, messages and groups, else numbers, whose lowest bits are written.
    """
    if field.type == _TYPE.TYPE_GROUP:
        ends = varint(field.number << 3 | _GROUP), varint(field.number << 3 | _END_GROUP)
        return b"".join(ends[0] + bytes(value) + ends[1] for value in values)
    if field.type in _TEXTS:
        head = varint(field.number << 3 | _BYTES)
        return b"".join(head + varint(len(value)) + bytes(value) for value in values)
    if field.GetOptions().packed:
        packed = b"".join(_encoded(field, value) for value in values)
        return varint(field.number << 3 | _BYTES) + varint(len(packed)) + packed
    head = varint(field.number << 3 | _wire_kind(field))
    return b"".join(head + _encoded(field, value) for value in values)


def bytes_field(number: int, content: bytes) -> bytes:
    """A field of a string or a message, serialized."""
    return varint(number << 3 | _BYTES) + varint(len(content)) + content


def number_field(number: int, value: int) -> bytes:
    """A field of a number that is not negative, serialized."""
    return varint(number << 3 | _VARINT) + varint(value)


def _encoded(field: FieldDescriptor, value: float) -> bytes:
    if (form := _FIXED.get(field.type)) is not None:
        if form in ("<d", "<f"):
            return struct.pack(form, value)
        size = struct.calcsize(form)
        return (int(value) & (1 << 8 * size) - 1).to_bytes(size, "little")
    whole = int(value)
    if field.type == _TYPE.TYPE_BOOL:
        return varint(int(bool(whole)))
    if field.type in _ZIGZAG:
        bits = 32 if field.type == _TYPE.TYPE_SINT32 else 64
        return varint((whole << 1 ^ whole >> bits - 1) & (1 << bits) - 1)
    if field.type == _TYPE.TYPE_UINT32:
        return varint(whole & (1 << 32) - 1)
    if field.type in (_TYPE.TYPE_INT32, _TYPE.TYPE_ENUM):
        whole &= (1 << 32) - 1
        whole -= 1 << 32 if whole >> 31 else 0
    return varint(whole & (1 << 64) - 1)  # negative numbers take ten bytes
