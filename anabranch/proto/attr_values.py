"""Attribute values to and from messages: `attr_to_proto`, `attr_from_proto`.

Kinds are those of op definitions: `int`, `float`, `bool`, `string`, `type`, `shape`, `tensor`, `func`, and lists of
them, `list(KIND)`. The Python value of each is told in `anabranch.core.attrs`.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from anabranch.core.attrs import AttributeValue, AttrPlaceholder, FuncAttr
from anabranch.core.compat import as_bytes
from anabranch.core.dtypes import DType, as_dtype
from anabranch.core.shapes import TensorShape
from anabranch.proto.graph_pb2 import AttrValue, NameAttrList
from anabranch.proto.tensors import attribute_tensor, make_ndarray, shape_from_proto, shape_to_proto


@dataclass(frozen=True, slots=True)
class _ScalarKind:
    """A scalar kind: its field in AttrValue and in AttrValue.ListValue, and the conversions of one value."""

    field: str
    to_message: Callable[[Any], Any]
    from_message: Callable[[Any], Any]


def attr_to_proto(kind: str | None, value: Any) -> AttrValue:
    """The message of an attribute's value.

    Args:
        kind: what the operation's definition calls it, such as "type" or "list(int)"; None where no definition tells,
            and the value has to (an empty list then has no kind, nor needs one).
        value: the value; an `AttrPlaceholder` is of every kind.

    Raises:
        TypeError, ValueError: the value is not of that kind, or there is no such kind.
    """
    if isinstance(value, AttrPlaceholder):
        return AttrValue(placeholder=value.name)
    if kind is None:
        kind = _kind_of(value)
    element = _element(kind)
    scalar = _kind(kind if element is None else element)
    if element is None:
        return AttrValue(**{scalar.field: scalar.to_message(value)})
    items = [scalar.to_message(item) for item in value]
    return AttrValue(list=AttrValue.ListValue(**{scalar.field: items}))


def attr_from_proto(proto: AttrValue, kind: str | None = None) -> Any:
    """The value that a message holds.

    Args:
        kind: what it has to be, as in `attr_to_proto`; by default whatever the message says. An empty list is of every
            list kind.

    Raises:
        ValueError: the message holds no value, one of another kind, a list of several kinds, or a type, shape or tensor
            that cannot be.
    """
    which = proto.WhichOneof("value")
    if which is None:
        raise ValueError(f"An attribute of kind {kind or 'unknown'} has no value.")
    if which == "placeholder":
        return AttrPlaceholder(proto.placeholder)
    actual, items = _contents(proto, which)
    if kind is not None and actual not in (kind, "list()" if _element(kind) else kind):
        raise ValueError(f"Expected an attribute of kind {kind}, got one of kind {actual}.")
    if which != "list":
        return _KINDS[actual].from_message(items)
    element = _element(actual)
    return [_KINDS[element].from_message(item) for item in items] if element else []


def as_shown_to_programs(value: AttributeValue, kind: str | None) -> Any:
    """An attribute's value as programs for TensorFlow take it: messages for tensors, shapes and functions.

    Args:
        value: the value; what no message can say, such as a branch of a conditional that is a graph, is returned as it
            is.
        kind: as in `attr_to_proto`.
    """
    if isinstance(value, list | tuple):
        return [as_shown_to_programs(item, None if kind is None else _element(kind)) for item in value]
    if isinstance(value, np.ndarray | TensorShape | FuncAttr) or (kind == "shape" and value is not None):
        kind = kind or _kind_of(value)
        return getattr(attr_to_proto(kind, value), _kind(kind).field)
    return value


def _contents(proto: AttrValue, which: str) -> tuple[str, Any]:
    """The kind of a message's value, "list()" for an empty list, and what the message holds."""
    if which != "list":
        return _KIND_OF_FIELD[which], getattr(proto, which)
    filled = [(descriptor.name, items) for descriptor, items in proto.list.ListFields()]
    if not filled:
        return "list()", []
    if len(filled) > 1:
        raise ValueError(f"An attribute lists values of several kinds: {', '.join(name for name, _ in filled)}.")
    ((field, items),) = filled
    return f"list({_KIND_OF_FIELD[field]})", items


def _element(kind: str) -> str | None:
    """The kind of a list's elements, or None for a scalar kind."""
    return kind[5:-1] if kind.startswith("list(") and kind.endswith(")") else None


def _kind(name: str) -> _ScalarKind:
    try:
        return _KINDS[name]
    except KeyError:
        raise ValueError(f"There is no attribute kind {name!r}; the kinds are {', '.join(_KINDS)}.") from None


def _type_from_message(number: int) -> DType:
    try:
        return as_dtype(number)
    except TypeError:
        raise ValueError(f"The type number {number} is not one that anabranch has.") from None


def _tensor_to_message(value: Any) -> Any:
    return attribute_tensor(value)


def _tensor_from_message(value: Any) -> np.ndarray[Any, Any]:
    try:
        return make_ndarray(value)
    except TypeError as error:
        raise ValueError(str(error)) from error


def _func_to_message(value: Any) -> NameAttrList:
    if isinstance(value, str):
        return NameAttrList(name=value)
    if not isinstance(value, FuncAttr):
        raise TypeError(f"Expected a FuncAttr or a function's name, got {value!r}.")
    message = NameAttrList(name=value.name)
    for name, attr in value.attrs.items():
        message.attr[name].CopyFrom(attr_to_proto(None, attr))
    return message


def _func_from_message(message: NameAttrList) -> FuncAttr:
    return FuncAttr(message.name, {name: attr_from_proto(message.attr[name]) for name in sorted(message.attr)})


def _float_to_message(value: Any) -> float:
    return float(value)


def _kind_of(value: Any) -> str:
    if isinstance(value, list | tuple):
        return f"list({_kind_of(value[0])})" if value else "list(int)"
    for types, kind in _KIND_OF_TYPE:
        if isinstance(value, types):
            return kind
    raise TypeError(f"No attribute has a value of type {type(value).__name__}: {value!r}.")


_KINDS: Final[dict[str, _ScalarKind]] = {
    "int": _ScalarKind("i", operator.index, int),
    "float": _ScalarKind("f", _float_to_message, float),
    "bool": _ScalarKind("b", bool, bool),
    "string": _ScalarKind("s", as_bytes, bytes),
    "type": _ScalarKind("type", lambda value: as_dtype(value).as_datatype_enum, _type_from_message),
    "shape": _ScalarKind("shape", shape_to_proto, shape_from_proto),
    "tensor": _ScalarKind("tensor", _tensor_to_message, _tensor_from_message),
    "func": _ScalarKind("func", _func_to_message, _func_from_message),
}
_KIND_OF_FIELD: Final = {kind.field: name for name, kind in _KINDS.items()}

#: In this order: a bool is an int too.
_KIND_OF_TYPE: Final[tuple[tuple[Any, str], ...]] = (
    ((bool, np.bool_), "bool"),
    ((int, np.integer), "int"),
    ((float, np.floating), "float"),
    ((bytes, str), "string"),
    (DType, "type"),
    (TensorShape, "shape"),
    (np.ndarray, "tensor"),
    (FuncAttr, "func"),
)
