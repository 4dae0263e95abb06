"""Arrays and shapes to and from messages: `make_tensor_proto`, `make_ndarray`, `shape_to_proto`, `shape_from_proto`.

A TensorProto holds its elements in one of two ways: in `tensor_content`, the bytes of the array, little-endian and row
by row; or in the list of its dtype, where a list shorter than the shape is continued by its last element (so one
element fills a tensor), and an empty list stands for zeros. Written is what TensorFlow writes; read is what
TensorFlow's C++ reads. Sizes that a message states are compared with what it holds before memory is taken for them.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final, cast

import numpy as np

from anabranch.core import dtypes
from anabranch.core.dtypes import DType, as_dtype
from anabranch.core.shapes import TensorShape, write_messages_with
from anabranch.core.values import to_array
from anabranch.proto.graph_pb2 import DataType, TensorProto, TensorShapeProto

Array = np.ndarray[Any, Any]

#: A shape has at most so many dimensions, as in TensorFlow; NumPy sets a lower limit for arrays.
MAX_RANK: Final = 254

#: The most bytes that a list shorter than its shape is continued to.
MAX_CONTINUED_BYTES: Final = 1 << 32

_MAX_CONTENT_BYTES: Final = 1 << 31  # of a message

#: From so many elements on, the tensor of an attribute is looked through for whether one value fills it.
_MIN_REPEATED: Final = 1024


@dataclass(frozen=True, slots=True)
class _Encoding:
    """How the elements of a dtype are written.

    Attributes:
        field: the list's name.
        entry: the NumPy type of what the list holds, as integers or floats that Python has.
        stored: what an element's bytes are viewed as for the list; as wide as the element, or half as wide where an
            element takes two entries.
        in_content: whether TensorFlow writes several elements of this dtype to tensor_content.
    """

    field: str
    entry: Any
    stored: Any
    in_content: bool = True


_ENCODINGS: Final[dict[DType, _Encoding]] = {
    dtypes.float32: _Encoding("float_val", np.float32, np.float32),
    dtypes.float64: _Encoding("double_val", np.float64, np.float64),
    dtypes.int32: _Encoding("int_val", np.int32, np.int32),
    dtypes.uint8: _Encoding("int_val", np.int32, np.uint8),
    dtypes.int16: _Encoding("int_val", np.int32, np.int16),
    dtypes.int8: _Encoding("int_val", np.int32, np.int8),
    dtypes.uint16: _Encoding("int_val", np.int32, np.uint16, in_content=False),
    dtypes.complex64: _Encoding("scomplex_val", np.float32, np.float32, in_content=False),
    dtypes.complex128: _Encoding("dcomplex_val", np.float64, np.float64, in_content=False),
    dtypes.int64: _Encoding("int64_val", np.int64, np.int64),
    dtypes.bool: _Encoding("bool_val", np.bool_, np.bool_, in_content=False),
    dtypes.qint8: _Encoding("int_val", np.int32, np.int8),
    dtypes.quint8: _Encoding("int_val", np.int32, np.uint8),
    dtypes.qint16: _Encoding("int_val", np.int32, np.int16),
    dtypes.quint16: _Encoding("int_val", np.int32, np.uint16),
    dtypes.qint32: _Encoding("int_val", np.int32, np.int32),
    dtypes.float16: _Encoding("half_val", np.int32, np.uint16),
    dtypes.bfloat16: _Encoding("half_val", np.int32, np.uint16),
    dtypes.uint32: _Encoding("uint32_val", np.uint32, np.uint32),
    dtypes.uint64: _Encoding("uint64_val", np.uint64, np.uint64),
    dtypes.float8_e5m2: _Encoding("float8_val", np.uint8, np.uint8),
    dtypes.float8_e4m3fn: _Encoding("float8_val", np.uint8, np.uint8),
}


def dtype_to_proto(dtype: DType) -> DataType.ValueType:
    """The number of a dtype in messages."""
    return cast("DataType.ValueType", dtype.as_datatype_enum)


# ---------------------------------------------------------------------- arrays to messages
def make_tensor_proto(
    values: Any,
    dtype: Any = None,
    shape: Any = None,
    verify_shape: bool = False,
    allow_broadcast: bool = False,
) -> TensorProto:
    """The message that holds a constant.

    Args:
        values: a Python value, a nested list of them, or an array; a TensorProto is returned as it is.
        dtype: the element type; by default the array's, and float32, int32, ... for Python values.
        shape: the shape; by default that of `values`. Fewer values than the shape has elements are continued by the
            last one, or by zeros if there is none, when the message is read.
        verify_shape: require `values` to have exactly this shape.
        allow_broadcast: broadcast `values` to the shape by NumPy's rules instead of continuing them.

    Raises:
        TypeError: a value does not fit `dtype`; with `verify_shape`, the shape differs.
        ValueError: None or a ragged list; more values than `shape` has elements; both flags; 2 GiB or more.
    """
    if allow_broadcast and verify_shape:
        raise ValueError("allow_broadcast and verify_shape are not both allowed.")
    if isinstance(values, TensorProto):
        return values
    wanted = None if dtype is None else as_dtype(dtype)
    array = to_array(values, wanted)
    # An array of objects tells nothing about its type when it is empty or holds resources; `wanted` does.
    element_type = wanted.base_dtype if wanted is not None else as_dtype(array.dtype)
    dims = array.shape if shape is None else tuple(int(d) for d in shape)
    array = _fitted(array, dims, verify_shape, allow_broadcast)
    return _encoded(array, element_type, dims)


def attribute_tensor(values: Any, dtype: Any = None) -> TensorProto:
    """As `make_tensor_proto`, but a large array of one value is one element, which readers continue.

    So says a graph of TensorFlow's `tf.constant(False, shape=[1 << 30])`; graphs here hold the whole array.

    Raises:
        As `make_tensor_proto`.
    """
    if isinstance(values, np.ndarray) and values.size >= _MIN_REPEATED and _is_of_one_value(values):
        return make_tensor_proto(values.reshape(-1)[:1], dtype, values.shape)
    return make_tensor_proto(values, dtype)


def _is_of_one_value(array: Array) -> bool:
    """Whether all elements have the same bits."""
    if array.dtype.kind not in "biufcV" or not array.flags.c_contiguous:
        return False
    flat = array.reshape(-1)
    if flat[0].tobytes() != flat[flat.size // 2].tobytes():  # most arrays of several values
        return False
    octets = flat.view(np.uint8)
    return np.array_equal(octets[array.itemsize :], octets[: -array.itemsize])


def _fitted(array: Array, dims: tuple[int, ...], verify_shape: bool, allow_broadcast: bool) -> Array:
    """The elements to write for a tensor of shape `dims`."""
    if verify_shape and array.shape != dims:
        raise TypeError(f"Expected Tensor's shape: {dims}, got {array.shape}.")
    if any(d < 0 for d in dims):
        raise ValueError(f"A constant's shape must be known, got {list(dims)}.")
    count = math.prod(dims)
    if allow_broadcast and array.size not in (1, count):
        return np.broadcast_to(array, dims)
    if count == 0:
        return np.empty(0, array.dtype)
    if array.size > count:
        raise ValueError(f"Too many elements provided. Needed at most {count}, but received {array.size}")
    return array


def _encoded(array: Array, dtype: DType, dims: tuple[int, ...]) -> TensorProto:
    proto = TensorProto(dtype=_enum(dtype), tensor_shape=shape_to_proto(dims))
    if dtype is dtypes.string:
        proto.string_val.extend(array.ravel().tolist())
        return proto
    encoding = _encoding(dtype)
    if array.nbytes >= _MAX_CONTENT_BYTES:
        raise ValueError(f"Cannot create a tensor proto whose content is larger than 2GB: {array.nbytes} bytes.")
    if encoding.in_content and array.size == math.prod(dims) > 1:
        proto.tensor_content = _little_endian(array).tobytes()
        return proto
    entries = np.ascontiguousarray(array).reshape(-1).view(encoding.stored)
    if encoding.field == "float8_val":
        proto.float8_val = entries.tobytes()
    else:
        getattr(proto, encoding.field).extend(entries.tolist())
    return proto


def _encoding(dtype: DType) -> _Encoding:
    try:
        return _ENCODINGS[dtype.base_dtype]
    except KeyError:
        raise TypeError(f"Unsupported tensor type: {dtype.name}; NumPy has no arrays of it.") from None


def _little_endian(array: Array) -> Array:
    return array.astype(array.dtype.newbyteorder("<"), copy=False)


def _enum(dtype: DType) -> Any:
    return dtype.as_datatype_enum  # enums of messages are typed by their own class


# ---------------------------------------------------------------------- messages to arrays
def make_ndarray(tensor: TensorProto) -> Array:
    """The array that a message holds, writable and its own.

    Strings come as an object array of `bytes`, quantised types as one-field records.

    Raises:
        TypeError: a dtype that NumPy has no arrays of (resource, variant), or an unknown one.
        ValueError: the message contradicts itself: its content is not as long as its shape says, it lists more elements
            than the shape has, the shape is not fully known; or one value is to fill more than 4 GiB.
    """
    dtype = as_dtype(tensor.dtype).base_dtype
    dims = _known_dims(tensor.tensor_shape)
    count = math.prod(dims)
    if dtype is dtypes.string:
        return _strings(tensor, count).reshape(dims)
    encoding = _encoding(dtype)
    element_type = np.dtype(dtype.as_numpy_dtype)
    if tensor.tensor_content:
        return _from_content(tensor.tensor_content, dtype, element_type, count).reshape(dims)
    elements = _listed(tensor, encoding, dtype, element_type)
    return _continued(elements, count, dtype).reshape(dims)


def _known_dims(proto: TensorShapeProto) -> tuple[int, ...]:
    shape = shape_from_proto(proto).dims_tuple
    if shape is None or None in shape:
        raise ValueError(f"A constant's shape must be known, got {TensorShape(shape)}.")
    return tuple(d for d in shape if d is not None)


def _from_content(content: bytes, dtype: DType, element_type: np.dtype[Any], count: int) -> Array:
    if len(content) != count * element_type.itemsize:
        raise ValueError(
            f"A tensor of {count} elements of {dtype.name} takes {count * element_type.itemsize} bytes, "
            f"but its tensor_content has {len(content)}; the message is damaged."
        )
    if dtype.is_bool:
        return np.frombuffer(content, np.uint8).astype(np.bool_)
    stored = np.frombuffer(content, element_type.newbyteorder("<"))
    return stored.astype(element_type)  # a copy: the buffer of a message cannot be written


def _listed(tensor: TensorProto, encoding: _Encoding, dtype: DType, element_type: np.dtype[Any]) -> Array:
    entries = getattr(tensor, encoding.field)
    raw = np.fromiter(entries, encoding.entry, len(entries))
    per_element = element_type.itemsize // np.dtype(encoding.stored).itemsize
    if raw.size % per_element:
        raise ValueError(f"{encoding.field} of a {dtype.name} tensor must hold pairs, but it has {raw.size} entries.")
    return raw.astype(encoding.stored, copy=False).view(element_type)


def _continued(elements: Array, count: int, dtype: DType) -> Array:
    """`elements` made `count` long by repeating the last one; zeros (or empty strings) if there is none."""
    if elements.size == count:
        return elements
    if elements.size > count:
        raise ValueError(f"A tensor of {count} elements of {dtype.name} lists {elements.size}; the message is damaged.")
    if count * elements.itemsize > MAX_CONTINUED_BYTES:
        raise ValueError(
            f"A tensor of {count} elements of {dtype.name} lists only {elements.size}; continuing them would take "
            f"{count * elements.itemsize} bytes, more than the limit of {MAX_CONTINUED_BYTES}. "
            "If that is meant, build the tensor with tf.fill."
        )
    if elements.size == 0 and dtype is not dtypes.string:
        return np.zeros(count, elements.dtype)
    whole = np.empty(count, elements.dtype)
    whole[: elements.size] = elements
    whole[elements.size :] = elements[-1] if elements.size else b""
    return whole


def _strings(tensor: TensorProto, count: int) -> Array:
    items = _split_strings(tensor.tensor_content, count) if tensor.tensor_content else list(tensor.string_val)
    elements = np.empty(len(items), np.object_)
    elements[:] = items
    return _continued(elements, count, dtypes.string)


def _split_strings(content: bytes, count: int) -> list[bytes]:
    """The strings of a tensor_content: first the length of each as a varint, then their bytes."""
    if count > len(content):
        raise ValueError(f"tensor_content of {len(content)} bytes cannot hold {count} strings; the message is damaged.")
    lengths, at = [], 0
    for _ in range(count):
        length, at = _varint(content, at)
        lengths.append(length)
    if at + sum(lengths) != len(content):
        raise ValueError(
            f"The {count} strings of a tensor_content take {at + sum(lengths)} bytes, but it has {len(content)}; "
            "the message is damaged."
        )
    items = []
    for length in lengths:
        items.append(content[at : at + length])
        at += length
    return items


def _varint(content: bytes, at: int) -> tuple[int, int]:
    """The number of seven bits a byte, lowest first, that starts at `at`, and where it ends."""
    value = 0
    for shift in range(0, 35, 7):
        if at >= len(content):
            break
        byte, at = content[at], at + 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, at
    raise ValueError("A string's length in tensor_content does not end; the message is damaged.")


# ---------------------------------------------------------------------- shapes
def shape_to_proto(shape: TensorShape | Iterable[int | None] | None) -> TensorShapeProto:
    """The message of a shape; unknown dimensions become -1.

    Raises:
        TypeError, ValueError: `shape` is no shape.
    """
    dims = TensorShape(shape).dims_tuple
    if dims is None:
        return TensorShapeProto(unknown_rank=True)
    return TensorShapeProto(dim=[TensorShapeProto.Dim(size=-1 if d is None else d) for d in dims])


write_messages_with(shape_to_proto)


def shape_from_proto(proto: TensorShapeProto) -> TensorShape:
    """The shape of a message; a size of -1 is an unknown dimension.

    Raises:
        ValueError: a size below -1, more than 254 dimensions, or dimensions of an unknown rank.
    """
    if proto.unknown_rank:
        if proto.dim:
            raise ValueError(f"A shape of unknown rank states {len(proto.dim)} dimensions; the message is damaged.")
        return TensorShape(None)
    if len(proto.dim) > MAX_RANK:
        raise ValueError(f"A shape has {len(proto.dim)} dimensions; at most {MAX_RANK} are possible.")
    sizes = [dim.size for dim in proto.dim]
    if any(size < -1 for size in sizes):
        raise ValueError(f"A shape's sizes must be -1 (unknown) or more, got {sizes}.")
    return TensorShape.from_tuple(tuple(None if size == -1 else size for size in sizes))
