"""Operations on strings. They run on the host: a string tensor is a NumPy array of objects, each a `bytes`."""

from __future__ import annotations

import base64
import itertools
import math
import re
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from anabranch.core.arrays import Array, ElementType
from anabranch.core.dtypes import DType
from anabranch.core.kernel_context import OperationContext
from anabranch.core.shapes import LateShapeError, TensorShape
from anabranch.core.sizes import check_storable
from anabranch.graph.building import define_op
from anabranch.graph.constants import ShapeContext
from anabranch.ops import shape_rules
from anabranch.ops.arrays.layout import int_list, scalar_int
from anabranch.ops.strings.hashing_many import fingerprints64, murmurs64, siphashes


def elementwise(function: Callable[..., Any], *arrays: Array, dtype: ElementType = np.object_) -> Any:
    """`function` of the elements of arrays that broadcast, as an array of `dtype`."""
    parts = np.broadcast_arrays(*arrays)
    result = np.empty(parts[0].shape, dtype)
    flat = result.reshape(-1)
    for i, items in enumerate(zip(*(p.reshape(-1).tolist() for p in parts), strict=True)):
        flat[i] = function(*items)
    return result


#: an operation on each element of its input: how many there are does not depend on their values
_BY_INPUT = {"input": "shape"}

# ---------------------------------------------------------------------- to and from numbers
AsString = define_op(
    "AsString",
    "input: T -> output: string",
    "T: {floating, integers, complex, bool, variant, string}, precision: int = -1, scientific: bool = False, "
    "shortest: bool = False, width: int = -1, fill: string = ''",
    sized_by=_BY_INPUT,
)
AsString.shape(shape_rules.same_as_first)
AsString.not_differentiable()


@AsString.host_kernel
def _(input: Array, *, precision: int, scientific: bool, shortest: bool, width: int, fill: bytes) -> Any:
    kind = input.dtype.kind
    if scientific and shortest:
        raise ValueError("Cannot select both scientific and shortest notation")
    if len(fill) > 1:
        raise ValueError(f"Fill string must be one or fewer characters, got {fill!r}")
    if kind in "biu" and (scientific or shortest):
        raise ValueError(f"scientific and shortest format not supported for {input.dtype}: it has no fraction")
    if kind in "biu" and precision > -1:
        raise ValueError(f"precision not supported for {input.dtype}: it has no fraction")
    if fill and fill not in b" +-0#":
        raise ValueError(f'Fill argument not supported: "{fill.decode()}"')
    size = (str(width) if width > -1 else "") + (f".{precision}" if precision > -1 else "")
    form = f"%{fill.decode()}{size}"
    letter = "e" if scientific else "g" if shortest else "f"
    if kind == "O":
        return input
    if kind == "b":
        return elementwise(lambda v: b"true" if v else b"false", input)
    if kind in "iu":
        return elementwise(lambda v: ((form + "d") % v).encode(), input)
    # what is no number is filled with spaces, as C has it
    wild = f"%{size}{letter}" if fill == b"0" else form + letter

    def real(value: float) -> str:
        return (form + letter if math.isfinite(value) else wild) % value

    if kind == "c":
        return elementwise(lambda v: f"({real(v.real)},{real(v.imag)})".encode(), input)
    return elementwise(lambda v: real(v).encode(), input.astype(np.float64))


StringToNumber = define_op(
    "StringToNumber",
    "string_tensor: string -> output: out_type",
    "out_type: {float, double, int32, int64, uint32, uint64} = float",
    sized_by={"string_tensor": "shape"},
)
StringToNumber.shape(shape_rules.same_as_first)
StringToNumber.not_differentiable()


@StringToNumber.host_kernel
def _(string_tensor: Array, *, out_type: DType, ctx: OperationContext) -> Any:
    wanted = np.dtype(out_type.as_numpy_dtype)

    def number(text: bytes) -> Any:
        try:
            if wanted.kind == "f":
                return _real(text) if b"_" not in text else _fail(text)
            value = int(text) if b"_" not in text else _fail(text)
            return value if np.iinfo(wanted).min <= value <= np.iinfo(wanted).max else _fail(text)
        except ValueError:
            ctx.check(False, f"StringToNumberOp could not correctly convert string: {shown(text)}")

    return elementwise(number, string_tensor, dtype=wanted)


def _real(text: bytes) -> float:
    """A number in decimal digits, or in hexadecimal ones as C writes them."""
    return float.fromhex(text.decode()) if b"x" in text.lower() else float(text)


def _fail(text: bytes) -> Any:
    raise ValueError(text)


def shown(text: bytes) -> str:
    """A string of a graph as a part of a message's format."""
    return text.decode("utf-8", "replace").replace("{", "{{").replace("}", "}}")


DecodeRaw = define_op(
    "DecodeRaw",
    "bytes: string -> output: out_type",
    "out_type: {half, float, double, int32, uint16, uint8, int16, int8, int64, complex64, complex128, bool, bfloat16}, "
    "little_endian: bool = True",
)
DecodeRaw.not_differentiable()


@DecodeRaw.shape
def _(bytes: TensorShape) -> TensorShape:
    return bytes.concatenate([None])


@DecodeRaw.host_kernel
def _(bytes: Array, *, out_type: DType, little_endian: bool, ctx: OperationContext) -> Any:
    wanted = np.dtype(out_type.as_numpy_dtype)
    items = bytes.reshape(-1).tolist()
    length = len(items[0]) if items else 0
    for i, item in enumerate(items):
        ctx.check(
            len(item) == length,
            "DecodeRaw requires input strings to all be the same size, but "
            f"element {i} has size {length} != {len(item)}",
        )
    size = wanted.itemsize
    ctx.check(
        length % size == 0,
        f"Input to DecodeRaw has length {length} that is not a multiple of {size}, the size of {out_type.name}",
    )
    values = np.frombuffer(b"".join(items), wanted)
    values = values if little_endian else values.byteswap()
    return values.reshape(*bytes.shape, length // wanted.itemsize if items else 0)


DecodePaddedRaw = define_op(
    "DecodePaddedRaw",
    "input_bytes: string, fixed_length: int32 -> output: out_type",
    "out_type: {half, float, double, int32, uint16, uint8, int16, int8, int64, bfloat16}, little_endian: bool = True",
    ranks={"fixed_length": 0},
)
DecodePaddedRaw.not_differentiable()


@DecodePaddedRaw.shape
def _(input_bytes: TensorShape, _: TensorShape, *, out_type: DType, ctx: ShapeContext) -> TensorShape:
    length = ctx.constant("fixed_length")
    known = None if length is None else max(int(length), 0) // np.dtype(out_type.as_numpy_dtype).itemsize
    return input_bytes.concatenate([known])


@DecodePaddedRaw.host_kernel
def _(input_bytes: Array, fixed_length: Array, *, out_type: DType, little_endian: bool, ctx: OperationContext) -> Any:
    wanted = np.dtype(out_type.as_numpy_dtype)
    length = int(fixed_length)
    ctx.check(length > 0, f"fixed_length must be greater than 0, got {length}")
    ctx.check(
        length % wanted.itemsize == 0,
        f"fixed_length ({length}) must be a multiple of the size of out_type ({wanted.itemsize})",
    )
    check_storable([*input_bytes.shape, length], np.uint8, ctx.op, "what is decoded")
    items = [item[:length].ljust(length, b"\0") for item in input_bytes.reshape(-1).tolist()]
    values = np.frombuffer(b"".join(items), wanted)
    values = values if little_endian else values.byteswap()
    return values.reshape(*input_bytes.shape, length // wanted.itemsize)


# ---------------------------------------------------------------------- one string in, one out
def _mapping(name: str, function: Callable[[bytes], bytes]) -> Any:
    op = define_op(name, "input: string -> output: string", sized_by=_BY_INPUT)
    op.shape(shape_rules.same_as_first)

    @op.host_kernel
    def _(input: Array) -> Any:
        return elementwise(function, input)

    return op.not_differentiable()


StringStrip = _mapping("StringStrip", bytes.strip)


def _casing(name: str, ascii_only: Callable[[bytes], bytes], unicode: Callable[[str], str]) -> Any:
    op = define_op(name, "input: string -> output: string", "encoding: string = ''", sized_by=_BY_INPUT)
    op.shape(shape_rules.same_as_first)

    @op.host_kernel
    def _(input: Array, *, encoding: bytes, ctx: OperationContext) -> Any:
        ctx.check(encoding in {b"", b"utf-8"}, f"only utf-8 and '' are supported encodings, got {encoding!r}")
        if not encoding:
            return elementwise(ascii_only, input)
        return elementwise(lambda s: unicode(s.decode("utf-8", "replace")).encode(), input)

    return op.not_differentiable()


StringLower = _casing("StringLower", bytes.lower, str.lower)
StringUpper = _casing("StringUpper", bytes.upper, str.upper)


_UNIT = "unit: {'BYTE', 'UTF8_CHAR'} = 'BYTE'"

StringLength = define_op("StringLength", "input: string -> output: int32", _UNIT, sized_by=_BY_INPUT)
StringLength.shape(shape_rules.same_as_first)
StringLength.not_differentiable()


@StringLength.host_kernel
def _(input: Array, *, unit: bytes) -> Any:
    return elementwise(len if unit == b"BYTE" else _utf8_length, input, dtype=np.int32)


def _utf8_length(text: bytes) -> int:
    return sum(byte & 0xC0 != 0x80 for byte in text)


Substr = define_op("Substr", "input: string, pos: T, len: T -> output: string", f"T: {{int32, int64}}, {_UNIT}")
Substr.not_differentiable()


@Substr.shape
def _(input: TensorShape, pos: TensorShape, len: TensorShape) -> TensorShape:
    return shape_rules.broadcast(input, pos.merge_with(len))


@Substr.host_kernel
def _(input: Array, pos: Array, len: Array, *, unit: bytes, ctx: OperationContext) -> Any:
    in_characters = unit == b"UTF8_CHAR"

    def part(text: bytes, start: int, length: int) -> bytes:
        offsets = _character_offsets(text) if in_characters else range(text.__len__() + 1)
        count = offsets.__len__() - 1
        # no characters before the end can be told from a negative number of them, as TensorFlow counts
        fits = -count <= start <= count and not (in_characters and start < 0 and length < 0)
        ctx.check(fits, f"pos {start} out of range for string {shown(text)!r} of length {count}")
        first = start + count if start < 0 else start
        if length < 0:
            # of bytes all that there are, of characters none
            return b"" if in_characters else text[first:]
        return text[offsets[first] : offsets[min(first + length, count)]]

    return elementwise(part, input, pos, len)


def _character_offsets(text: bytes) -> list[int]:
    """Where the UTF-8 characters of `text` begin, the first one with the text, and its end."""
    return [*(i for i, byte in enumerate(text) if i == 0 or byte & 0xC0 != 0x80), len(text)]


EncodeBase64 = define_op("EncodeBase64", "input: string -> output: string", "pad: bool = False", sized_by=_BY_INPUT)
EncodeBase64.shape(shape_rules.same_as_first)
EncodeBase64.not_differentiable()


@EncodeBase64.host_kernel
def _(input: Array, *, pad: bool) -> Any:
    def encode(text: bytes) -> bytes:
        encoded = base64.urlsafe_b64encode(text)
        return encoded if pad else encoded.rstrip(b"=")

    return elementwise(encode, input)


#: characters of six bits each, and what may fill the last four; Python's decoder takes those that are not web-safe too
_WEB_SAFE = re.compile(rb"(?P<bare>[A-Za-z0-9_-]*)={0,2}")

DecodeBase64 = define_op("DecodeBase64", "input: string -> output: string", sized_by=_BY_INPUT)
DecodeBase64.shape(shape_rules.same_as_first)
DecodeBase64.not_differentiable()


@DecodeBase64.host_kernel
def _(input: Array, *, ctx: OperationContext) -> Any:
    def decode(text: bytes) -> Any:
        match = _WEB_SAFE.fullmatch(text)
        bare = b"" if match is None else match["bare"]
        padded = len(text) > len(bare)
        ctx.check(
            match is not None and len(bare) % 4 != 1 and not (padded and len(text) % 4),
            f"not web-safe base64: {shown(text)!r}" + (", whose length is 1 modulo 4" if len(bare) % 4 == 1 else ""),
        )
        return base64.urlsafe_b64decode(bare + b"=" * (-len(bare) % 4))

    return elementwise(decode, input)


# ---------------------------------------------------------------------- joining and splitting
StringJoin = define_op("StringJoin", "inputs: N * string -> output: string", "N: int >= 1, separator: string = ''")
StringJoin.not_differentiable()


@StringJoin.shape
def _(inputs: list[TensorShape]) -> TensorShape:
    shape = TensorShape([])
    for other in inputs:
        if other.ndims is None:
            return TensorShape(None)
        if other.ndims:
            shape = other.merge_with(shape) if shape.ndims else other
    return shape


@StringJoin.host_kernel
def _(inputs: list[Any], *, separator: bytes) -> Any:
    return elementwise(lambda *parts: separator.join(parts), *inputs)


def _sparse(rows: list[list[bytes]]) -> tuple[Any, Any, Any]:
    """The sparse matrix whose row i begins with the strings of rows[i]."""
    indices = [(i, j) for i, row in enumerate(rows) for j in range(len(row))]
    values = np.empty(len(indices), np.object_)
    values[:] = [text for row in rows for text in row]
    shape = np.array([len(rows), max(map(len, rows), default=0)], np.int64)
    return np.array(indices, np.int64).reshape(-1, 2), values, shape


def _split_shapes(input: TensorShape, separator: TensorShape) -> tuple[TensorShape, ...]:
    shape_rules.with_rank(input, 1, "argument 'input'")
    return TensorShape([None, 2]), TensorShape([None]), TensorShape([2])


StringSplit = define_op(
    "StringSplit",
    "input: string, delimiter: string -> indices: int64, values: string, shape: int64",
    "skip_empty: bool = True",
    ranks={"delimiter": 0},
)
StringSplit.shape(_split_shapes)
StringSplit.not_differentiable()


@StringSplit.host_kernel
def _(input: Array, delimiter: Array, *, skip_empty: bool) -> Any:
    cuts = bytes(delimiter.item())

    def split(text: bytes) -> list[bytes]:
        if not cuts:
            return [text[i : i + 1] for i in range(len(text))]
        parts = re.split(b"[" + re.escape(cuts) + b"]", text) if text else []
        return [part for part in parts if part] if skip_empty else parts

    return _sparse([split(text) for text in input.tolist()])


StringSplitV2 = define_op(
    "StringSplitV2",
    "input: string, sep: string -> indices: int64, values: string, shape: int64",
    "maxsplit: int = -1",
    ranks={"sep": 0},
)
StringSplitV2.shape(_split_shapes)
StringSplitV2.not_differentiable()


@StringSplitV2.host_kernel
def _(input: Array, sep: Array, *, maxsplit: int) -> Any:
    separator = bytes(sep.item())
    return _sparse([_parts(text, separator, maxsplit) for text in input.tolist()])


def _parts(text: bytes, separator: bytes, most: int) -> list[bytes]:
    """As `bytes.split`, but that after `most` words a rest follows even where it is empty."""
    if separator or most < 0:
        return text.split(separator or None, most)
    if most == 0:
        return [text]
    words = text.split(None, most)
    return [*words, b""] if len(words) == most else words


ReduceJoin = define_op(
    "ReduceJoin",
    "inputs: string, reduction_indices: int32 -> output: string",
    "keep_dims: bool = False, separator: string = ''",
)
ReduceJoin.not_differentiable()


def _joined_axes(indices: Array, rank: int) -> tuple[int, ...]:
    """The axes in [0, rank) that are joined.

    Raises:
        ValueError: one is outside.
        LateShapeError: one is given twice, which TensorFlow does not look for before the operation runs.
    """
    axes = int_list(indices)
    for axis in axes:
        if not -rank <= axis < rank:
            raise ValueError(f"Invalid reduction dimension {axis} for input with {rank} dimension(s)")
    normal = tuple(axis % rank for axis in axes)
    for at, axis in enumerate(normal):
        if axis in normal[:at]:
            raise LateShapeError(f"Duplicate reduction dimension {axis} among {axes}")
    return normal


@ReduceJoin.shape
def _(inputs: TensorShape, reduction_indices: TensorShape, *, keep_dims: bool, ctx: ShapeContext) -> TensorShape:
    shape_rules.late(reduction_indices.with_rank_at_most, 1)
    known, dims = ctx.constant("reduction_indices"), inputs.dims_tuple
    if known is None or dims is None:
        return TensorShape(None)
    axes = _joined_axes(known, len(dims))
    if keep_dims:
        return TensorShape([1 if i in axes else d for i, d in enumerate(dims)])
    return TensorShape([d for i, d in enumerate(dims) if i not in axes])


@ReduceJoin.host_kernel
def _(inputs: Array, reduction_indices: Array, *, keep_dims: bool, separator: bytes) -> Any:
    axes = _joined_axes(reduction_indices, inputs.ndim)
    rest = [i for i in range(inputs.ndim) if i not in axes]
    rows = np.transpose(inputs, [*rest, *reversed(axes)])  # the first axis is joined first: it changes fastest
    kept = [inputs.shape[i] for i in rest]
    rows = rows.reshape(int(np.prod(kept)), -1) if rows.size else np.empty((int(np.prod(kept)), 0), np.object_)
    joined = np.empty(len(rows), np.object_)
    joined[:] = [separator.join(row) for row in rows.tolist()]
    return joined.reshape([1 if i in axes else inputs.shape[i] for i in range(inputs.ndim)] if keep_dims else kept)


UnsortedSegmentJoin = define_op(
    "UnsortedSegmentJoin",
    "inputs: string, segment_ids: Tindices, num_segments: Tnumsegments -> output: string",
    "separator: string = '', Tindices: {int32, int64}, Tnumsegments: {int32, int64} = int32",
    ranks={"num_segments": 0},
)
UnsortedSegmentJoin.not_differentiable()


@UnsortedSegmentJoin.shape
def _(inputs: TensorShape, segment_ids: TensorShape, num_segments: TensorShape, *, ctx: ShapeContext) -> TensorShape:
    count = ctx.constant("num_segments")
    if inputs.ndims is None or segment_ids.ndims is None:
        return TensorShape(None)
    segment_ids = shape_rules.late(segment_ids.with_rank_at_least, 1)
    inputs = shape_rules.merged(inputs, segment_ids.concatenate(inputs[segment_ids.ndims :]))
    return TensorShape([None if count is None else scalar_int(count), *inputs[segment_ids.ndims :]])


@UnsortedSegmentJoin.host_kernel
def _(inputs: Array, segment_ids: Array, num_segments: Array, *, separator: bytes, ctx: OperationContext) -> Any:
    count = scalar_int(num_segments)
    inside = (segment_ids >= 0) & (segment_ids < count)
    ctx.check(inside, f"segment_ids {{0}} must be at least 0 and less than num_segments = {count}", segment_ids)
    row = inputs.shape[segment_ids.ndim :]
    rows = inputs.reshape(segment_ids.size, math.prod(row))
    result = np.empty((count, rows.shape[1]), np.object_)
    for segment in range(count):
        members = rows[segment_ids.reshape(-1) == segment]
        for column in range(rows.shape[1]):
            result[segment, column] = _after_something(separator, members[:, column])
    return result.reshape(count, *row)


def _after_something(separator: bytes, strings: Iterable[bytes]) -> bytes:
    """Joins with a separator wherever something stands before it: empty strings at the beginning leave no trace."""
    joined = itertools.dropwhile(lambda string: not string, strings)
    return separator.join(joined)


# ---------------------------------------------------------------------- hashing
_BUCKETS = "num_buckets: int >= 1"


def _buckets(strings: Array, num_buckets: int, function: Callable[[list[bytes]], Any]) -> Any:
    """The hash of each string modulo the number of buckets, as int64."""
    hashes = function(strings.reshape(-1).tolist())
    return (hashes % np.uint64(num_buckets)).astype(np.int64).reshape(strings.shape)


def _hashing(name: str, argument: str, function: Callable[[list[bytes]], Any]) -> Any:
    op = define_op(name, f"{argument}: string -> output: int64", _BUCKETS, sized_by={argument: "shape"})
    op.shape(shape_rules.same_as_first)

    @op.host_kernel
    def _(strings: Array, *, num_buckets: int) -> Any:
        return _buckets(strings, num_buckets, function)

    return op.not_differentiable()


StringToHashBucket = _hashing("StringToHashBucket", "string_tensor", murmurs64)
StringToHashBucketFast = _hashing("StringToHashBucketFast", "input", fingerprints64)


StringToHashBucketStrong = define_op(
    "StringToHashBucketStrong",
    "input: string -> output: int64",
    f"{_BUCKETS}, key: list(int)",
    sized_by=_BY_INPUT,
)
StringToHashBucketStrong.shape(shape_rules.same_as_first)
StringToHashBucketStrong.not_differentiable()


@StringToHashBucketStrong.host_kernel
def _(input: Array, *, num_buckets: int, key: list[int]) -> Any:
    if len(key) != 2:
        raise ValueError(f"Key must have 2 elements, got {key}")
    secret = key[0] % 2**64, key[1] % 2**64
    return _buckets(input, num_buckets, lambda strings: siphashes(strings, secret))
