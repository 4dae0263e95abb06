"""Signatures of operation types, as text: what `core.op_def.OpDef`s are read from."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import Any, Final, TypeVar, Unpack

import numpy as np

from anabranch.core import dtypes
from anabranch.core.attrs import single_precision
from anabranch.core.dtypes import DType
from anabranch.core.op_def import MISSING, ArgDef, AttrDef, OpDef, OpFlags
from anabranch.core.shapes import TensorShape

TYPE_GROUPS: Final[dict[str, tuple[DType, ...] | None]] = {
    "any": None,
    "floating": dtypes.FLOATING,
    "complex": dtypes.COMPLEX,
    "real": dtypes.REAL_NUMBERS,
    "numbers": dtypes.NUMBERS,
    "integers": dtypes.INTEGERS,
    "index": dtypes.INDEX,
    "inexact": (*dtypes.FLOATING, *dtypes.COMPLEX),
}
_SCALAR_KINDS: Final = frozenset({"int", "float", "bool", "string", "type", "shape", "tensor", "func"})

T = TypeVar("T", bound=OpDef)


def parse_op_def(
    name: str,
    signature: str,
    attrs: str = "",
    factory: type[T] = OpDef,  # type: ignore[assignment]
    **flags: Unpack[OpFlags],
) -> T:
    """Reads a signature.

    Args:
        signature: ``"a: T, rest: N * T, n: int32 -> out: T"``; a type is a dtype name, a type attribute, `N * type`,
            or the name of a `list(type)` attribute.
        attrs: ``"T: floating, N: int >= 1, axis: int = 0, padding: {'SAME', 'VALID'}"``.
        factory: the class to make; `OpDef` or a subclass.
        flags: `stateful`, `static`, ... as in `OpDef`.

    Raises:
        ValueError: the text does not follow the grammar, or names an attribute that is not declared.
    """
    attr_defs = {a.name: a for a in (_parse_attr(name, text) for text in _split(attrs))}
    before, _, after = signature.partition("->")
    inputs = tuple(_parse_arg(name, text, attr_defs) for text in _split(before))
    outputs = tuple(_parse_arg(name, text, attr_defs) for text in _split(after))
    inferred = {a for arg in inputs for a in (arg.type_attr, arg.number_attr, arg.type_list_attr) if a}
    fields: dict[str, Any] = {**flags}
    for key in ("static", "reads", "writes"):
        fields[key] = frozenset(fields.get(key, ()))
    for key in ("static", "reads", "writes", "ranks", "late_ranks", "rank_words", "sized_by"):
        unknown = set(fields.get(key, ())) - {arg.name for arg in inputs}
        if unknown:
            raise ValueError(f"operation {name}: {key} names {sorted(unknown)}, which are not inputs")
    for key in ("outputs_sized_by", "shape_outputs"):
        if unknown := set(fields.get(key, ())) - {arg.name for arg in outputs}:
            raise ValueError(f"operation {name}: {key} names {sorted(unknown)}, which are not outputs")
    return factory(name, inputs, outputs, attr_defs, inferred=frozenset(inferred), **fields)


_ARGUMENT = re.compile(r"(\w+)\s*:\s*(?:(\w+)\s*\*\s*)?(\w+)")
_ATTRIBUTE = re.compile(r"(\w+)\s*:\s*(.*?)(?:\s*>=\s*(-?\d+))?(?:\s*=\s*(.+))?", re.DOTALL)
_NESTING = re.compile(r"['\"({\[]")


def _split(text: str) -> Iterator[str]:
    """Splits at commas outside brackets and quotes."""
    if not _NESTING.search(text):
        parts = [part.strip() for part in text.split(",")]
        yield from parts if parts[-1] else parts[:-1]
        return
    depth, start, quote = 0, 0, ""
    for at, char in enumerate(text):
        if quote:
            quote = "" if char == quote else quote
        elif char in "'\"":
            quote = char
        elif char in "({[":
            depth += 1
        elif char in ")}]":
            depth -= 1
        elif char == "," and depth == 0:
            yield text[start:at].strip()
            start = at + 1
    if text[start:].strip():
        yield text[start:].strip()


def _parse_arg(op: str, text: str, attrs: dict[str, AttrDef]) -> ArgDef:
    match = _ARGUMENT.fullmatch(text)
    if match is None:
        raise ValueError(f"operation {op}: cannot read the argument {text!r}; write 'name: type' or 'name: N * type'")
    name, number, type_name = match.groups()
    if number is not None and (number not in attrs or attrs[number].kind != "int"):
        raise ValueError(f"operation {op}: argument {name!r} counts by {number!r}, which is not an int attribute")
    if type_name in attrs:
        kind = attrs[type_name].kind
        if kind == "type":
            return ArgDef(name, type_attr=type_name, number_attr=number)
        if kind == "list(type)" and number is None:
            return ArgDef(name, type_list_attr=type_name)
        raise ValueError(f"operation {op}: argument {name!r} has the type {type_name!r}, an attribute of kind {kind}")
    return ArgDef(name, dtype=_dtype(op, type_name), number_attr=number)


def _dtype(op: str, name: str) -> DType:
    try:
        return dtypes.as_dtype(name)
    except TypeError as error:
        raise ValueError(f"operation {op}: {name!r} is neither a dtype nor an attribute") from error


def _parse_attr(op: str, text: str) -> AttrDef:
    match = _ATTRIBUTE.fullmatch(text)
    if match is None:
        raise ValueError(f"operation {op}: cannot read the attribute {text!r}; write 'name: kind = default'")
    name, spec, minimum, default = match.groups()
    kind, allowed = _parse_kind(op, spec.strip())
    return AttrDef(
        name,
        kind,
        MISSING if default is None else _parse_default(op, kind, default.strip()),
        allowed,
        None if minimum is None else int(minimum),
    )


def _parse_kind(op: str, spec: str) -> tuple[str, frozenset[Any] | tuple[Any, ...] | None]:
    if spec.startswith("list(") and spec.endswith(")"):
        kind, allowed = _parse_kind(op, spec[5:-1].strip())
        return f"list({kind})", allowed
    if spec in _SCALAR_KINDS:
        return spec, None
    if spec in TYPE_GROUPS:
        group = TYPE_GROUPS[spec]
        return "type", None if group is None else frozenset(group)
    if spec.startswith("{") and spec.endswith("}"):
        items = list(_split(spec[1:-1]))
        if items and items[0][0] in "'\"":
            return "string", tuple(ast.literal_eval(item).encode() for item in items)
        return "type", frozenset(_group_or_dtype(op, items))
    raise ValueError(f"operation {op}: {spec!r} is not an attribute kind")


def _group_or_dtype(op: str, items: list[str]) -> Iterator[DType]:
    for item in items:
        group = TYPE_GROUPS.get(item)
        if group is not None:
            yield from group
        else:
            yield _dtype(op, item)


def _parse_default(op: str, kind: str, text: str) -> Any:
    """Defaults are Python literals, dtype names, `unknown` (a shape of unknown rank), or `uint8[1, 2]` (a tensor)."""
    if kind == "tensor":
        name, _, elements = text.partition("[")
        return np.array(ast.literal_eval(f"[{elements}"), _dtype(op, name).as_numpy_dtype)
    if kind == "type":
        return _dtype(op, text)
    if kind == "shape":
        return TensorShape(None if text == "unknown" else ast.literal_eval(text))
    if kind == "list(type)" or kind == "list(shape)":
        if text != "[]":
            raise ValueError(f"operation {op}: only [] can be the default of a {kind} attribute")
        return []
    value = ast.literal_eval(text)
    if kind == "string":
        return value.encode()
    if kind == "float":
        return single_precision(value)
    return [v.encode() if isinstance(v, str) else v for v in value] if kind.startswith("list(") else value
