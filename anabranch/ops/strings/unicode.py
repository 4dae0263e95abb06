"""Text and code points: decoding, encoding, changing the encoding, scripts of characters."""

from __future__ import annotations

import itertools
import math
from typing import Any, Final

import numpy as np

from anabranch.core.arrays import Array
from anabranch.core.dtypes import DType
from anabranch.core.kernel_context import OperationContext
from anabranch.core.shapes import TensorShape
from anabranch.errors import InvalidArgumentError
from anabranch.graph.building import define_op
from anabranch.ops import shape_rules
from anabranch.ops.ragged.parts import check_splits
from anabranch.ops.strings.code_points import LAST, ErrorPolicy, codec_name, handled, is_character, scripts_of
from anabranch.ops.strings.strings import elementwise

_POLICY = "replacement_char: int = 65533, replace_control_characters: bool = False"
_DECODING = (
    f"input_encoding: string, errors: {{'strict', 'replace', 'ignore'}} = 'replace', {_POLICY}, "
    "Tsplits: {int32, int64} = int64"
)
#: the encodings that are written -> Python's codecs; what no text may hold is kept, as UTF-16 keeps it
_WRITTEN: Final = {b"UTF-8": "utf-8", b"UTF-16-BE": "utf-16-be", b"UTF-32-BE": "utf-32-be"}

UnicodeDecode = define_op("UnicodeDecode", "input: string -> row_splits: Tsplits, char_values: int32", _DECODING)
UnicodeDecodeWithOffsets = define_op(
    "UnicodeDecodeWithOffsets",
    "input: string -> row_splits: Tsplits, char_values: int32, char_to_byte_starts: int64",
    _DECODING,
)
UnicodeDecode.not_differentiable()
UnicodeDecodeWithOffsets.not_differentiable()


def _row_splits(input: TensorShape) -> TensorShape:
    dims = input.dims_tuple
    known = [] if dims is None else [d for d in dims if d is not None]
    return TensorShape([math.prod(known) + 1 if dims is not None and len(known) == len(dims) else None])


@UnicodeDecode.shape
def _(input: TensorShape) -> Any:
    return _row_splits(input), TensorShape([None])


@UnicodeDecodeWithOffsets.shape
def _(input: TensorShape) -> Any:
    return _row_splits(input), TensorShape([None]), TensorShape([None])


def _codec(encoding: bytes, ctx: OperationContext) -> str:
    name = codec_name(encoding.decode("ascii", "replace"))
    if name is None:
        shown = encoding.decode("utf-8", "replace")
        raise InvalidArgumentError(None, ctx.op, f"Could not create converter for input encoding: {shown}")
    return name


def _policy(errors: bytes, replacement: int, replace_control: bool, ctx: OperationContext) -> ErrorPolicy:
    if not 0 <= replacement <= LAST:
        message = f"replacement_char out of unicode codepoint range: {replacement} is not in [0, {LAST:#x}]"
        raise InvalidArgumentError(None, ctx.op, message)
    return ErrorPolicy(errors.decode(), replacement, replace_control)


def _decoded(input: Array, encoding: bytes, policy: ErrorPolicy, splits: DType, ctx: OperationContext) -> list[Any]:
    codec = _codec(encoding, ctx)
    values: list[int] = []
    starts: list[int] = []
    row_splits = [0]
    for text in input.reshape(-1).tolist():
        try:
            found = list(handled(text, codec, policy))
        except ValueError as error:
            raise InvalidArgumentError(None, ctx.op, f"{error}: {text[:40]!r} in {codec}") from None
        values.extend(value for value, _ in found)
        starts.extend(start for _, start in found)
        row_splits.append(len(values))
    return [np.array(row_splits, splits.as_numpy_dtype), np.array(values, np.int32), np.array(starts, np.int64)]


@UnicodeDecode.host_kernel
def _(
    input: Array,
    *,
    input_encoding: bytes,
    errors: bytes,
    replacement_char: int,
    replace_control_characters: bool,
    Tsplits: DType,
    ctx: OperationContext,
) -> Any:
    policy = _policy(errors, replacement_char, replace_control_characters, ctx)
    return _decoded(input, input_encoding, policy, Tsplits, ctx)[:2]


@UnicodeDecodeWithOffsets.host_kernel
def _(
    input: Array,
    *,
    input_encoding: bytes,
    errors: bytes,
    replacement_char: int,
    replace_control_characters: bool,
    Tsplits: DType,
    ctx: OperationContext,
) -> Any:
    policy = _policy(errors, replacement_char, replace_control_characters, ctx)
    return _decoded(input, input_encoding, policy, Tsplits, ctx)


# ---------------------------------------------------------------------- encoding
def _written(values: list[int], encoding: bytes) -> bytes:
    return "".join(map(chr, values)).encode(_WRITTEN[encoding], "surrogatepass")


UnicodeTranscode = define_op(
    "UnicodeTranscode",
    "input: string -> output: string",
    "input_encoding: string, output_encoding: {'UTF-8', 'UTF-16-BE', 'UTF-32-BE'}, "
    f"errors: {{'strict', 'replace', 'ignore'}} = 'replace', {_POLICY}",
)
UnicodeTranscode.shape(shape_rules.same_as_first)
UnicodeTranscode.not_differentiable()


@UnicodeTranscode.host_kernel
def _(
    input: Array,
    *,
    input_encoding: bytes,
    output_encoding: bytes,
    errors: bytes,
    replacement_char: int,
    replace_control_characters: bool,
    ctx: OperationContext,
) -> Any:
    codec = _codec(input_encoding, ctx)
    policy = _policy(errors, replacement_char, replace_control_characters, ctx)._replace(strict_control=True)

    def transcoded(text: bytes) -> bytes:
        try:
            return _written([value for value, _ in handled(text, codec, policy)], output_encoding)
        except ValueError as error:
            raise InvalidArgumentError(None, ctx.op, f"{error}: {text[:40]!r} in {codec}") from None

    return elementwise(transcoded, input)


UnicodeEncode = define_op(
    "UnicodeEncode",
    "input_values: int32, input_splits: Tsplits -> output: string",
    "errors: {'ignore', 'replace', 'strict'} = 'replace', output_encoding: {'UTF-8', 'UTF-16-BE', 'UTF-32-BE'}, "
    "replacement_char: int = 65533, Tsplits: {int32, int64} = int64",
    ranks={"input_values": 1, "input_splits": 1},
)
UnicodeEncode.not_differentiable()


@UnicodeEncode.shape
def _(input_values: TensorShape, input_splits: TensorShape) -> TensorShape:
    dims = input_splits.dims_tuple
    return TensorShape([None if dims is None or dims[0] is None else dims[0] - 1])


@UnicodeEncode.host_kernel
def _(
    input_values: Array,
    input_splits: Array,
    *,
    errors: bytes,
    output_encoding: bytes,
    replacement_char: int,
    ctx: OperationContext,
) -> Any:
    policy = _policy(errors, replacement_char, False, ctx)
    check_splits(input_splits, len(input_values), ctx, "input_splits")
    out = np.empty(len(input_splits) - 1, np.object_)
    cuts = input_splits.tolist()
    for i, (start, limit) in enumerate(itertools.pairwise(cuts)):
        values = []
        for value in input_values[start:limit].tolist():
            if is_character(value):
                values.append(value)
                continue
            ctx.check(policy.errors != "strict", f"Code point is out of range for Unicode, or a surrogate: {value:#x}")
            if policy.errors == "replace":
                values.append(replacement_char)
        out[i] = _written(values, output_encoding)
    return out


# ---------------------------------------------------------------------- scripts
UnicodeScript = define_op("UnicodeScript", "input: int32 -> output: int32")
UnicodeScript.shape(shape_rules.same_as_first)
UnicodeScript.not_differentiable()


@UnicodeScript.host_kernel
def _(input: Array) -> Any:
    return scripts_of(input)
