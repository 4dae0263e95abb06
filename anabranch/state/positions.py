"""Positions of iterators as bytes: structures of numbers, strings and arrays, for checkpoints (§4.3).

    "ABPOS1" | uint64 length of the JSON text | JSON text | the arrays' bytes, one after the other

In the JSON text an array stands as its number in a list of dtypes and shapes. Nothing in the bytes is executed.
"""

from __future__ import annotations

import base64
import json
import math
import struct
from collections.abc import Callable
from typing import Any, Final, TypeAlias, TypeVar

import numpy as np

from anabranch.core.dtypes import as_dtype
from anabranch.errors import DataLossError, UnimplementedError

#: where an iterator stands: a structure of numbers, strings and arrays, of another form for each kind of iterator
Position: TypeAlias = Any
_T = TypeVar("_T")

_MAGIC: Final = b"ABPOS1"
_LENGTH: Final = struct.Struct("<Q")
#: by tag: classes of objects that elements may hold, and the ways to a structure and back
_held: Final[dict[str, tuple[type[Any], Callable[[Any], Position], Callable[[Position], Any]]]] = {}


def register_held(tag: str, kind: type[_T], encode: Callable[[_T], Position], decode: Callable[[Position], _T]) -> None:
    """Lets positions hold objects of a class.

    Args:
        encode: gives a structure as `encode_position` takes it.
        decode: makes the object of that structure, in which tuples are lists; raises ValueError for any other.
    """
    _held[tag] = kind, encode, decode


def encode_position(position: Position) -> bytes:
    """The bytes of a structure of None, bools, ints, floats, strings, bytes, lists, tuples, dicts of these, and arrays.

    Raises:
        UnimplementedError: it holds something else, such as a dataset that a function made.
    """
    arrays: list[np.ndarray[Any, Any]] = []
    tree = _to_json(position, arrays)
    # by TensorFlow's names, which also numbers have that NumPy does not know by itself (bfloat16)
    kinds = [[as_dtype(a.dtype).name, list(a.shape)] for a in arrays]
    text = json.dumps({"tree": tree, "arrays": kinds}, separators=(",", ":")).encode()
    return b"".join([_MAGIC, _LENGTH.pack(len(text)), text, *(a.tobytes() for a in arrays)])


def decode_position(data: bytes) -> Any:
    """The structure that `encode_position` turned into bytes; tuples come back as lists.

    Raises:
        DataLossError: the bytes are no position.
    """
    try:
        return _decoded(data)
    except (ValueError, KeyError, IndexError, TypeError, struct.error) as error:
        raise DataLossError(None, None, f"the saved position of an iterator is damaged: {error}") from error


def _decoded(data: bytes) -> Any:
    start = len(_MAGIC) + _LENGTH.size
    if data[: len(_MAGIC)] != _MAGIC:
        raise ValueError(f"it begins with {data[:6]!r}, not with {_MAGIC!r}")
    (length,) = _LENGTH.unpack(data[len(_MAGIC) : start])
    head = json.loads(data[start : start + length])
    offset = start + length
    arrays = []
    for name, shape in head["arrays"]:
        dtype = np.dtype(as_dtype(name).as_numpy_dtype)
        size = math.prod(shape) * dtype.itemsize
        # before anything of that size is made: the shape was read
        if offset + size > len(data):
            raise ValueError(f"it ends after {len(data)} bytes, within an array")
        # of bytes, and hence not writable: elements are never changed
        arrays.append(np.frombuffer(data[offset : offset + size], dtype).reshape(shape))
        offset += size
    return _from_json(head["tree"], arrays)


def _to_json(value: Position, arrays: list[np.ndarray[Any, Any]]) -> Any:
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, bytes):
        return {"b": base64.b64encode(value).decode()}
    if isinstance(value, list | tuple):
        return [_to_json(v, arrays) for v in value]
    # tagged, like all that JSON has no word for: a dictionary of the position's own cannot be taken for a tag
    if isinstance(value, dict):
        return {"d": {str(k): _to_json(v, arrays) for k, v in value.items()}}
    # numbers of NumPy's, and what lies in the memory of a device
    if isinstance(value, np.generic) or (hasattr(value, "__dlpack__") and not isinstance(value, np.ndarray)):
        value = np.asarray(value)
    if isinstance(value, np.ndarray):
        # strings, element by element: their bytes lie elsewhere
        if value.dtype == np.object_:
            return {"o": [list(value.shape), [_to_json(v, arrays) for v in value.reshape(-1).tolist()]]}
        # `ascontiguousarray` gives a scalar a dimension, which `reshape` takes away again
        arrays.append(np.ascontiguousarray(value).reshape(value.shape))
        return {"a": len(arrays) - 1}
    for tag, (kind, encode, _) in _held.items():
        if isinstance(value, kind):
            return {"h": [tag, _to_json(encode(value), arrays)]}
    raise UnimplementedError(
        None,
        None,
        f"the position of this iterator cannot be saved: an element that it holds contains a {type(value).__name__}; "
        "save before such elements are buffered, or take the iterator out of the checkpoint",
    )


def _from_json(tree: Position, arrays: list[np.ndarray[Any, Any]]) -> Any:
    if isinstance(tree, list):
        return [_from_json(t, arrays) for t in tree]
    if not isinstance(tree, dict):
        return tree
    # one entry, or the unpacking fails: what was written is a tag and what it tags
    ((kind, value),) = tree.items()
    if kind == "a":
        return arrays[value]
    if kind == "b":
        return base64.b64decode(value)
    if kind == "d":
        return {k: _from_json(v, arrays) for k, v in value.items()}
    if kind == "h":
        tag, item = value
        return _held[tag][2](_from_json(item, arrays))
    if kind != "o":
        raise ValueError(f"unknown kind {kind!r}")
    shape, items = value
    array = np.empty(len(items), np.object_)
    for i, item in enumerate(items):
        array[i] = _from_json(item, arrays)
    return array.reshape(shape)
