"""Strings as rows of their parts: splits, bytes, characters and n-grams."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from anabranch.core import dtypes
from anabranch.core.values import TensorLike, TensorOrRagged
from anabranch.frontend.arguments import one_of
from anabranch.frontend.framework import name_scope
from anabranch.frontend.ragged.conversion import convert_to_ragged, is_ragged
from anabranch.frontend.ragged.rearranging import expand_dims
from anabranch.frontend.ragged.tensor import RaggedTensor
from anabranch.graph.composite import SparseTensor
from anabranch.graph.conversion import convert_to_tensor
from anabranch.graph.operation import Tensor
from anabranch.ops import raw

_REPLACEMENT = 0xFFFD


# ---------------------------------------------------------------------- splitting
def string_split(
    source: TensorLike,
    sep: TensorLike | None = None,
    skip_empty: bool = True,
    delimiter: TensorLike | None = None,
    result_type: str = "SparseTensor",
    name: str | None = None,
) -> TensorOrRagged:
    """The parts of each string of a vector, between any of the characters of `delimiter`.

    Args:
        sep, delimiter: two names of one argument; default: a space. "" splits between all bytes.
        skip_empty: whether to leave out empty parts.
        result_type: "SparseTensor" or "RaggedTensor".

    Returns:
        A sparse or ragged matrix: row i holds the parts of string i.

    Raises:
        ValueError: `result_type` is neither of them, or both names are given.
    """
    cuts = one_of("sep", sep, "delimiter", delimiter)
    with name_scope(name, "StringSplit", [source] if isinstance(source, Tensor) else None):
        strings = convert_to_tensor(source, dtypes.string, name="source")
        by = convert_to_tensor(" " if cuts is None else cuts, dtypes.string)
        parts = raw.StringSplit(strings, by, skip_empty=skip_empty)
        parts.indices.set_shape([None, 2])
        parts.shape.set_shape([2])
        if _is_ragged_type(result_type):
            return _rows(parts)
        return SparseTensor(parts.indices, parts.values, parts.shape)


def _is_ragged_type(result_type: str) -> bool:
    """Raises ValueError for a type that is neither sparse nor ragged."""
    if result_type not in ("SparseTensor", "RaggedTensor"):
        raise ValueError(f"result_type must be 'RaggedTensor' or 'SparseTensor', got {result_type!r}")
    return result_type == "RaggedTensor"


def _rows(parts: TensorLike) -> RaggedTensor:
    """What a splitting operation gives, as rows."""
    return RaggedTensor.from_value_rowids(parts.values, parts.indices[:, 0], parts.shape[0], validate=False)


def split(
    input: TensorLike | None = None,
    sep: TensorLike | None = None,
    maxsplit: int = -1,
    result_type: str = "SparseTensor",
    source: TensorLike | None = None,
    name: str | None = None,
) -> TensorOrRagged:
    """The parts of each string, between occurrences of `sep` (default: runs of white space).

    Args:
        input: strings of any known rank; a tensor or ragged tensor.
        maxsplit: at most so many cuts; -1: no limit.
        result_type: "SparseTensor" or "RaggedTensor".
        source: the older name of `input`.

    Returns:
        A sparse or ragged tensor of one rank more; of a scalar and for "RaggedTensor" a vector.

    Raises:
        ValueError: `result_type` is neither of them, or `input` is missing, or given under both names.

    Example:
        >>> sess.run(tf.strings.split(["a b", "c"], result_type="RaggedTensor")).to_list()
        [[b'a', b'b'], [b'c']]
    """
    text = one_of("input", input, "source", source)
    ragged = _is_ragged_type(result_type)
    with name_scope(name, "StringSplit", [text] if isinstance(text, Tensor) else None):
        strings = convert_to_ragged(text, dtypes.string, name="input")
        by = convert_to_tensor(sep or "" if not isinstance(sep, Tensor) else sep, dtypes.string)
        if not ragged and not is_ragged(strings) and strings.shape.ndims in (0, 1, None):
            rows = raw.Reshape(strings, [1]) if strings.shape.ndims == 0 else strings
            parts = raw.StringSplitV2(rows, by, maxsplit=maxsplit)
            return SparseTensor(parts.indices, parts.values, parts.shape)
        found = _each_split(strings, lambda vector: _rows(raw.StringSplitV2(vector, by, maxsplit=maxsplit)))
        return found if ragged else found.to_sparse()


def _each_split(strings: TensorLike, apply: Callable[[Tensor], Any]) -> Any:
    """`apply`, which makes rows of a vector of strings, of strings of any rank."""
    if is_ragged(strings):
        rows = _each_split(strings.flat_values, apply)
        return strings.with_flat_values(rows.with_row_splits_dtype(strings.row_splits.dtype))
    rank = strings.shape.ndims
    if rank == 0:
        return apply(raw.Reshape(strings, [1]))[0]
    if rank in (1, None):
        return apply(strings)
    nested = RaggedTensor.from_tensor(strings, ragged_rank=rank - 1)
    return nested.with_flat_values(apply(nested.flat_values))


def bytes_split(input: TensorLike, name: str | None = None) -> TensorOrRagged:
    """The bytes of each string.

    Args:
        input: strings of known rank; a tensor or ragged tensor.

    Returns:
        Strings of one byte each, of one rank more: ragged, a vector for a scalar.

    Raises:
        ValueError: the rank is not known.

    Example:
        >>> sess.run(tf.strings.bytes_split(["ab", "c"])).to_list()
        [[b'a', b'b'], [b'c']]
    """
    with name_scope(name, "StringsByteSplit"):
        strings = convert_to_ragged(input, dtypes.string, name="input")
        if strings.shape.ndims is None:
            raise ValueError("input must have a statically-known rank.")
        return _each_split(strings, lambda vector: _rows(raw.StringSplit(vector, "", skip_empty=False)))


# ---------------------------------------------------------------------- characters
def unicode_decode(
    input: TensorLike,
    input_encoding: str,
    errors: str = "replace",
    replacement_char: int = _REPLACEMENT,
    replace_control_characters: bool = False,
    name: str | None = None,
) -> TensorOrRagged:
    """The code points of each string.

    Args:
        input: strings of known rank; a tensor or ragged tensor.
        input_encoding: any encoding that Python knows, such as "UTF-8".
        errors: what becomes of bytes that are no character: "replace" by `replacement_char`, "ignore" them, or be
            "strict".
        replacement_char: a code point.
        replace_control_characters: whether to replace code points below 32 too.

    Returns:
        int32, of one rank more: ragged, a vector for a scalar.

    Raises:
        ValueError: the rank is not known.

    Raises (in the step):
        InvalidArgumentError: the encoding is not known, or bytes are no character and `errors` is "strict".

    Example:
        >>> sess.run(tf.strings.unicode_decode(["aß", ""], "UTF-8")).to_list()
        [[97, 223], []]
    """
    with name_scope(name, "UnicodeDecode"):
        policy = (errors, replacement_char, replace_control_characters)
        return _decoded(input, input_encoding, *policy, with_offsets=False)[0]


def unicode_decode_with_offsets(
    input: TensorLike,
    input_encoding: str,
    errors: str = "replace",
    replacement_char: int = _REPLACEMENT,
    replace_control_characters: bool = False,
    name: str | None = None,
) -> tuple[Any, Any]:
    """The code points of each string, and the byte at which each begins (int64); see `unicode_decode`."""
    with name_scope(name, "UnicodeDecodeWithOffsets"):
        policy = (errors, replacement_char, replace_control_characters)
        points, offsets = _decoded(input, input_encoding, *policy, with_offsets=True)
        return points, offsets


def unicode_split(
    input: TensorLike,
    input_encoding: str,
    errors: str = "replace",
    replacement_char: int = _REPLACEMENT,
    name: str | None = None,
) -> TensorOrRagged:
    """The characters of each string, as strings; see `unicode_decode`.

    Example:
        >>> [c.decode() for c in sess.run(tf.strings.unicode_split("aß", "UTF-8"))]
        ['a', 'ß']
    """
    with name_scope(name, "UnicodeSplit"):
        (points,) = _decoded(input, input_encoding, errors, replacement_char, False, with_offsets=False)
        return unicode_encode(expand_dims(points, -1), input_encoding, errors, replacement_char)


def unicode_split_with_offsets(
    input: TensorLike,
    input_encoding: str,
    errors: str = "replace",
    replacement_char: int = _REPLACEMENT,
    name: str | None = None,
) -> tuple[Any, Any]:
    """The characters of each string, and the byte at which each begins (int64); see `unicode_split`."""
    with name_scope(name, "UnicodeSplitWithOffsets"):
        points, offsets = _decoded(input, input_encoding, errors, replacement_char, False, with_offsets=True)
        return unicode_encode(expand_dims(points, -1), input_encoding, errors, replacement_char), offsets


def _decoded(
    input: TensorLike, encoding: str, errors: str, replacement: int, replace_control: bool, with_offsets: bool
) -> list[Any]:
    """Code points, and with `with_offsets` where they begin."""
    strings = convert_to_ragged(input, name="input")
    rank = strings.shape.ndims
    if rank is None:
        raise ValueError("Rank of `input` must be statically known.")
    outer = None
    if rank > 1:
        if not is_ragged(strings):
            strings = RaggedTensor.from_tensor(strings, ragged_rank=rank - 1)
        elif strings.flat_values.shape.ndims > 1:
            inner = strings.flat_values.shape.ndims - 1
            dtype = strings.row_splits.dtype
            rows_within = RaggedTensor.from_tensor(strings.flat_values, ragged_rank=inner, row_splits_dtype=dtype)
            strings = strings.with_flat_values(rows_within)
        outer, strings = strings, strings.flat_values
    op = raw.UnicodeDecodeWithOffsets if with_offsets else raw.UnicodeDecode
    found = op(
        raw.Reshape(strings, [1]) if rank == 0 else strings,
        input_encoding=encoding,
        errors=errors,
        replacement_char=replacement,
        replace_control_characters=replace_control,
        Tsplits=dtypes.int64 if outer is None else outer.row_splits.dtype,
    )
    parts = [found.char_values, found.char_to_byte_starts] if with_offsets else [found.char_values]
    if rank == 0:
        return parts
    rows = [RaggedTensor.from_row_splits(part, found.row_splits, validate=False) for part in parts]
    return rows if outer is None else [outer.with_flat_values(row) for row in rows]


def unicode_encode(
    input: TensorLike,
    output_encoding: str,
    errors: str = "replace",
    replacement_char: int = _REPLACEMENT,
    name: str | None = None,
) -> TensorOrRagged:
    """The string of each row of code points.

    Args:
        input: int32 of known rank 1 or more; a tensor or ragged tensor.
        output_encoding: "UTF-8", "UTF-16-BE" or "UTF-32-BE".
        errors: what becomes of numbers that are no code point: "replace" by `replacement_char`, "ignore" them, or be
            "strict".
        replacement_char: a code point.

    Returns:
        Strings, of one rank less.

    Raises:
        ValueError: the rank is 0, or not known.

    Raises (in the step):
        InvalidArgumentError: a number is no code point, and `errors` is "strict".

    Example:
        >>> sess.run(tf.strings.unicode_encode([72, 105], "UTF-8"))
        b'Hi'
    """
    with name_scope(name, "UnicodeEncode"):
        points = convert_to_ragged(input)
        rank = points.shape.ndims
        if rank is None:
            raise ValueError("Rank of input_tensor must be statically known.")
        if rank == 0:
            raise ValueError("input_tensor's rank must be at least 1.")

        def encoded(rows: RaggedTensor) -> Any:
            return raw.UnicodeEncode(
                rows.values,
                rows.row_splits,
                output_encoding=output_encoding,
                errors=errors,
                replacement_char=replacement_char,
            )

        return _each_encoded(points, encoded)


def _each_encoded(points: TensorLike, encoded: Callable[[RaggedTensor], Any]) -> Any:
    """`encoded`, which makes a vector of rows of numbers, of numbers of any rank."""
    if is_ragged(points):
        if points.flat_values.shape.ndims > 1:
            return points.with_flat_values(_each_encoded(points.flat_values, encoded))
        if points.ragged_rank > 1:
            return points.with_values(_each_encoded(points.values, encoded))
        return encoded(points)
    shape = raw.Shape(points)
    matrix = raw.Reshape(points, raw.Pack([-1, shape[-1]])) if points.shape.ndims != 2 else points
    if points.shape.ndims == 1:
        matrix = raw.ExpandDims(points, 0)
    strings = encoded(RaggedTensor.from_tensor(matrix))
    if points.shape.ndims == 2:
        return strings
    result = raw.Reshape(strings, shape[:-1])
    result.set_shape(points.shape[:-1])
    return result


# ---------------------------------------------------------------------- n-grams
def ngrams(
    data: TensorLike,
    ngram_width: int | Sequence[int],
    separator: str | bytes = " ",
    pad_values: str | bytes | Sequence[str | bytes] | None = None,
    padding_width: int | None = None,
    preserve_short_sequences: bool = False,
    name: str | None = None,
) -> TensorOrRagged:
    """The n-grams of each row: neighbouring strings, joined.

    Args:
        data: strings of known rank 1 or more; a tensor or ragged tensor, whose innermost dimension is the sequence.
        ngram_width: the number of strings in each; of several widths the n-grams follow each other.
        separator: what stands between the strings.
        pad_values: what to put before and behind each row: a string or a pair of them; default: nothing.
        padding_width: how many times; default: one less than the width.
        preserve_short_sequences: whether a row that is too short for any n-gram gives one, of all it has.

    Returns:
        Of the rank of `data`; ragged where `data` is.

    Raises:
        TypeError: `pad_values` are no strings.
        ValueError: a width is less than 1, there is a `padding_width` without `pad_values`, or the rank of `data` is 0
            or not known.

    Example:
        >>> sess.run(tf.strings.ngrams(["a", "b", "c"], 2))
        array([b'a b', b'b c'], dtype=object)
    """
    left, right = _pads(pad_values)
    if padding_width is not None and padding_width < 1:
        raise ValueError("padding_width must be greater than 0.")
    if padding_width is not None and pad_values is None:
        raise ValueError("pad_values must be provided if padding_width is set.")
    pads = 0 if pad_values is None else -1 if padding_width is None else padding_width
    widths = [ngram_width] if isinstance(ngram_width, int) else list(ngram_width)
    if any(width < 1 for width in widths):
        raise ValueError(f"All ngram_widths must be greater than 0. Got {ngram_width}")

    def joined(rows: RaggedTensor) -> RaggedTensor:
        strings, splits = raw.StringNGrams(
            rows.flat_values,
            rows.row_splits,
            separator=separator,
            ngram_widths=widths,
            left_pad=left,
            right_pad=right,
            pad_width=pads,
            preserve_short_sequences=preserve_short_sequences,
        )
        return RaggedTensor.from_row_splits(strings, splits, validate=False)

    with name_scope(name, "StringNGrams"):
        return _each_joined(convert_to_ragged(data, dtypes.string, name="data"), joined)


def _pads(pad_values: str | bytes | Sequence[str | bytes] | None) -> tuple[Any, Any]:
    pads = ("", "") if pad_values is None else pad_values
    left, right = (pads[0], pads[1]) if isinstance(pads, list | tuple) else (pads, pads)
    if not isinstance(left, str | bytes) or not isinstance(right, str | bytes):
        raise TypeError("pad_values must be a string, tuple of strings, or None.")
    return left, right


def _each_joined(data: TensorLike, joined: Callable[[RaggedTensor], RaggedTensor]) -> Any:
    """`joined`, which makes rows of rows of strings, of strings of any rank."""
    if is_ragged(data):
        levels = [data]
        while is_ragged(levels[-1].values):
            levels.append(levels[-1].values)
        result: Any = joined(levels.pop())
        for level in reversed(levels):
            result = level.with_values(result)
        return result
    rank = data.shape.ndims
    if rank is None:
        raise ValueError("Rank of data must be known.")
    if rank == 0:
        raise ValueError("Data must have rank>0")
    if rank == 1:
        return joined(RaggedTensor.from_row_starts(data, [0], validate=False))[0]
    found = _each_joined(RaggedTensor.from_tensor(data, ragged_rank=rank - 1), joined)
    outer = raw.Shape(data)[:-1]
    return raw.Reshape(found.flat_values, raw.ConcatV2([outer, np.array([-1], np.int32)], 0))
