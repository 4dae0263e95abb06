"""Functions on strings (`tf.strings`, and their older names)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np

from anabranch.core import dtypes
from anabranch.core.compat import as_text
from anabranch.core.dtypes import DTypeLike
from anabranch.core.values import PassedOn, TensorLike
from anabranch.graph.conversion import convert_to_tensor
from anabranch.graph.dispatch import dispatched
from anabranch.graph.operation import Tensor
from anabranch.ops import raw


def _renamed(name: str, value: PassedOn, old_name: str, old_value: PassedOn) -> Any:
    """The value of an argument that also has a deprecated name; raises ValueError where both or none are given."""
    if (value is None) == (old_value is None):
        raise ValueError(f"exactly one of {name!r} and {old_name!r} must be given")
    return old_value if value is None else value


# ---------------------------------------------------------------------- numbers and bytes
@dispatched
def as_string(
    input: TensorLike,
    precision: int = -1,
    scientific: bool = False,
    shortest: bool = False,
    width: int = -1,
    fill: str = "",
    name: str | None = None,
) -> Tensor:
    """Numbers as text.

    Args:
        precision: digits after the decimal point; default: 6.
        scientific: whether to write an exponent.
        shortest: whether to choose the shorter of both notations.
        width: the least number of characters.
        fill: what to pad with: a space, "0", "+", "-" or "#".
    """
    result: Tensor = raw.AsString(
        input, precision=precision, scientific=scientific, shortest=shortest, width=width, fill=fill, name=name
    )
    return result


@dispatched
def string_to_number(
    string_tensor: TensorLike | None = None,
    out_type: DTypeLike = dtypes.float32,
    name: str | None = None,
    input: TensorLike | None = None,
) -> Tensor:
    """Converts strings to numbers; the step fails with InvalidArgumentError at a string that is no number.

    Args:
        input: the newer name of `string_tensor`.
        out_type: float32, float64, int32 or int64.
    """
    text = _renamed("string_tensor", string_tensor, "input", input)
    result: Tensor = raw.StringToNumber(text, out_type=out_type, name=name)
    return result


@dispatched
def unicode_script(input: TensorLike, name: str | None = None) -> Tensor:
    """The number of the script of each code point, as ICU counts scripts; -1 for what is no code point.

    Args:
        input: int32, any shape.

    Returns:
        int32, of the shape of `input`.

    Example:
        >>> sess.run(tf.strings.unicode_script([ord("a"), ord("α")]))
        array([25, 14], dtype=int32)
    """
    result: Tensor = raw.UnicodeScript(convert_to_tensor(input, dtypes.int32, "input"), name=name)
    return result


@dispatched
def unicode_transcode(
    input: TensorLike,
    input_encoding: str,
    output_encoding: str,
    errors: str = "replace",
    replacement_char: int = 0xFFFD,
    replace_control_characters: bool = False,
    name: str | None = None,
) -> Tensor:
    r"""Text in another encoding.

    Args:
        input: strings, any shape.
        input_encoding: any encoding that Python knows, such as "UTF-8" or "SHIFT-JIS".
        output_encoding: "UTF-8", "UTF-16-BE" or "UTF-32-BE".
        errors: what becomes of bytes that are no character: "replace" by `replacement_char`, "ignore" them, or be
            "strict".
        replacement_char: a code point.
        replace_control_characters: whether to replace code points below 32 too.

    Raises (in the step):
        InvalidArgumentError: the encoding is not known, or bytes are no character and `errors` is "strict".

    Example:
        >>> sess.run(tf.strings.unicode_transcode("aß", "UTF-8", "UTF-16-BE"))
        b'\x00a\x00\xdf'
    """
    result: Tensor = raw.UnicodeTranscode(
        input,
        input_encoding=input_encoding,
        output_encoding=output_encoding,
        errors=errors,
        replacement_char=replacement_char,
        replace_control_characters=replace_control_characters,
        name=name,
    )
    return result


def decode_raw(
    input_bytes: TensorLike | None = None,
    out_type: DTypeLike | None = None,
    little_endian: bool = True,
    name: str | None = None,
    bytes: TensorLike | None = None,
) -> Tensor:
    """The bytes of strings of one length, read as numbers.

    Args:
        input_bytes: a string tensor of any shape, whose strings have one length.
        out_type: the type of the numbers.
        little_endian: the order of the bytes of a number.
        name: of the operation.
        bytes: the older name of `input_bytes`.

    Returns:
        shape input_bytes.shape + [numbers per string].

    Raises:
        ValueError: `input_bytes` is missing, or given under both names.

    Raises (in the step):
        InvalidArgumentError: the length is no multiple of a number's, or the lengths differ.

    Example:
        >>> sess.run(tf.decode_raw(np.array([1, 2], np.int16).tobytes(), tf.int16))
        array([1, 2], dtype=int16)
    """
    text = _renamed("input_bytes", input_bytes, "bytes", bytes)
    if out_type is None:
        raise ValueError("decode_raw needs the argument 'out_type'")
    result: Tensor = raw.DecodeRaw(text, out_type=out_type, little_endian=little_endian, name=name)
    return result


@dispatched
def encode_base64(input: TensorLike, pad: bool = False, name: str | None = None) -> Tensor:
    """Web-safe base64 of strings; with `pad` filled up with = signs."""
    result: Tensor = raw.EncodeBase64(input, pad=pad, name=name)
    return result


@dispatched
def decode_base64(input: TensorLike, name: str | None = None) -> Tensor:
    """Undoes `encode_base64`."""
    result: Tensor = raw.DecodeBase64(input, name=name)
    return result


# ---------------------------------------------------------------------- one string at a time
@dispatched
def string_length(input: TensorLike, name: str | None = None, unit: str = "BYTE") -> Tensor:
    """The lengths of strings, int32, in bytes or ("UTF8_CHAR") in characters."""
    result: Tensor = raw.StringLength(input, unit=unit, name=name)
    return result


@dispatched
def string_lower(input: TensorLike, encoding: str = "", name: str | None = None) -> Tensor:
    """Upper-case letters to lower case: ASCII letters, or with encoding "utf-8" all."""
    result: Tensor = raw.StringLower(input, encoding=encoding, name=name)
    return result


@dispatched
def string_upper(input: TensorLike, encoding: str = "", name: str | None = None) -> Tensor:
    """Lower-case letters to upper case: ASCII letters, or with encoding "utf-8" all."""
    result: Tensor = raw.StringUpper(input, encoding=encoding, name=name)
    return result


@dispatched
def string_strip(input: TensorLike, name: str | None = None) -> Tensor:
    """Strings without white space at their ends."""
    result: Tensor = raw.StringStrip(input, name=name)
    return result


@dispatched
def substr(input: TensorLike, pos: TensorLike, len: TensorLike, name: str | None = None, unit: str = "BYTE") -> Tensor:
    """The parts of strings that begin at `pos` (negative: from the end) and have at most `len` units."""
    result: Tensor = raw.Substr(input, pos, len, unit=unit, name=name)
    return result


@dispatched
def regex_replace(
    input: TensorLike, pattern: TensorLike, rewrite: TensorLike, replace_global: bool = True, name: str | None = None
) -> Tensor:
    r"""Replaces what matches a regular expression.

    Args:
        rewrite: the replacement; \1 stands for the first group, \0 for the whole match.
        replace_global: whether to replace all matches or the first.
    """
    result: Tensor
    if isinstance(pattern, str | bytes) and isinstance(rewrite, str | bytes):
        result = raw.StaticRegexReplace(
            input, pattern=pattern, rewrite=rewrite, replace_global=replace_global, name=name
        )
    else:
        result = raw.RegexReplace(input, pattern, rewrite, replace_global=replace_global, name=name)
    return result


@dispatched
def regex_full_match(input: TensorLike, pattern: TensorLike, name: str | None = None) -> Tensor:
    """Whether each string as a whole matches a regular expression."""
    result: Tensor
    if isinstance(pattern, str | bytes):
        result = raw.StaticRegexFullMatch(input, pattern=pattern, name=name)
    else:
        result = raw.RegexFullMatch(input, pattern, name=name)
    return result


# ---------------------------------------------------------------------- joining and splitting
@dispatched
def string_join(inputs: TensorLike, separator: str = "", name: str | None = None) -> Tensor:
    """Joins the strings at the same place of several tensors of one shape (scalars go with any)."""
    result: Tensor = raw.StringJoin(list(inputs), separator=separator, name=name)
    return result


@dispatched
def reduce_join(
    inputs: TensorLike,
    axis: TensorLike | None = None,
    keep_dims: bool | None = None,
    separator: str = "",
    name: str | None = None,
    reduction_indices: TensorLike | None = None,
    keepdims: bool | None = None,
) -> Tensor:
    """Joins all strings along dimensions.

    Args:
        axis: the dimensions, in the order in which to join: `[0, 1]` joins the columns of a matrix, then the results;
            default: all, from the last to the first.
        keepdims: whether the dimensions stay, with size 1; `keep_dims` is its older name.
        reduction_indices: the older name of `axis`.
    """
    keep = keep_dims if keepdims is None else keepdims
    axes = reduction_indices if axis is None else axis
    strings = convert_to_tensor(inputs, dtypes.string, name="inputs")
    if axes is None:
        known = strings.shape.ndims
        if known is not None:
            axes = np.arange(known, dtype=np.int32)[::-1]
        else:
            axes = raw.Range(raw.Sub(raw.Rank(strings), 1), -1, -1)
    result: Tensor = raw.ReduceJoin(strings, axes, keep_dims=bool(keep), separator=separator, name=name)
    return result


def unsorted_segment_join(
    inputs: TensorLike, segment_ids: TensorLike, num_segments: TensorLike, separator: str = "", name: str | None = None
) -> Tensor:
    """Joins the strings of each segment; strings with a negative segment id are dropped."""
    result: Tensor = raw.UnsortedSegmentJoin(inputs, segment_ids, num_segments, separator=separator, name=name)
    return result


def string_format(
    template: str, inputs: TensorLike, placeholder: str = "{}", summarize: int = 3, name: str | None = None
) -> Tensor:
    """Text with the values of tensors in it.

    Args:
        template: the text, with a `placeholder` for each tensor.
        inputs: a tensor, or a list of them.
        summarize: how many first and last elements of each dimension are shown; -1: all.

    Raises:
        ValueError: there are more or fewer placeholders than tensors.
    """
    tensors = list(inputs) if isinstance(inputs, list | tuple) else [inputs]
    count = len(re.findall(re.escape(as_text(placeholder)), as_text(template)))
    if count != len(tensors):
        raise ValueError(
            f"{count} placeholder(s) in template does not match {len(tensors)} tensor(s) provided as input"
        )
    result: Tensor = raw.StringFormat(
        tensors, template=template, placeholder=placeholder, summarize=summarize, name=name
    )
    return result


# ---------------------------------------------------------------------- hashing
@dispatched
def string_to_hash_bucket(
    string_tensor: TensorLike | None = None,
    num_buckets: int | None = None,
    name: str | None = None,
    input: TensorLike | None = None,
) -> Tensor:
    """Deprecated: a bucket in [0, num_buckets) for each string, int64; the hash function may change."""
    text = _renamed("string_tensor", string_tensor, "input", input)
    result: Tensor = raw.StringToHashBucket(text, num_buckets=num_buckets, name=name)
    return result


@dispatched
def string_to_hash_bucket_fast(input: TensorLike, num_buckets: int, name: str | None = None) -> Tensor:
    """A bucket in [0, num_buckets) for each string, int64, by FarmHash's fingerprint."""
    result: Tensor = raw.StringToHashBucketFast(input, num_buckets=num_buckets, name=name)
    return result


@dispatched
def string_to_hash_bucket_strong(
    input: TensorLike, num_buckets: int, key: Sequence[int], name: str | None = None
) -> Tensor:
    """A bucket in [0, num_buckets) for each string, int64, by SipHash with a secret key of two integers."""
    result: Tensor = raw.StringToHashBucketStrong(input, num_buckets=num_buckets, key=list(key), name=name)
    return result


# ---------------------------------------------------------------------- the names in `tf.strings`
format = string_format
join = string_join
length = string_length
lower = string_lower
strip = string_strip
to_hash_bucket = string_to_hash_bucket
to_hash_bucket_fast = string_to_hash_bucket_fast
to_hash_bucket_strong = string_to_hash_bucket_strong
to_number = string_to_number
upper = string_upper
