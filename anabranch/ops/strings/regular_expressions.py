"""Operations that match strings against regular expressions, in RE2's language and by RE2 itself.

RE2 takes time linear in the string for every pattern, so that no graph can keep a step busy with a short one. Strings
are bytes, which patterns see as UTF-8: of what is not UTF-8 only a single byte (RE2's escape C) matches anything.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from typing import Any, Final, TypeAlias

import numpy as np
import re2

from anabranch.core.arrays import Array
from anabranch.core.kernel_context import OperationContext
from anabranch.core.shapes import TensorShape
from anabranch.graph.building import define_op
from anabranch.ops import shape_rules
from anabranch.ops.strings.strings import elementwise, shown

#: how many compiled patterns are kept; each may take megabytes
_KEPT: Final = 64
#: a compiled pattern of RE2's, whose classes have no public names
_Pattern: TypeAlias = Any
#: what it found
_Match: TypeAlias = Any
_REWRITE_PARTS: Final = re.compile(rb"\\(.|\Z)|[^\\]+", re.DOTALL)


@functools.lru_cache(_KEPT)
def _compiled(source: bytes) -> Any:
    options = re2.Options()
    options.log_errors = False  # they are raised
    return re2.compile(source, options)


def _pattern(source: bytes, ctx: OperationContext) -> Any:
    try:
        return _compiled(bytes(source))
    except re2.error as error:
        ctx.check(False, f"Invalid pattern: {shown(source)}, error: {shown(_message(error))}")
        raise


def _message(error: Exception) -> bytes:
    message = error.args[0]
    return message if isinstance(message, bytes) else str(message).encode()


# ---------------------------------------------------------------------- replacing
def _rewrite_parts(rewrite: bytes) -> tuple[list[bytes | int], bool]:
    """Literal parts and numbers of groups, up to the first malformed escape; and whether there is none."""
    parts: list[bytes | int] = []
    for part in _REWRITE_PARTS.finditer(rewrite):
        escaped = part[1]
        if escaped is None:
            parts.append(part[0])
        elif escaped.isdigit():
            parts.append(int(escaped))
        elif escaped == b"\\":
            parts.append(escaped)
        else:
            return parts, False
    return parts, True


def _replacement(pattern: _Pattern, rewrite: bytes, replace_global: bool) -> Callable[[bytes], bytes]:
    """What replaces in a string. A rewrite that names a missing group replaces nothing, as RE2 has it.

    After a malformed escape RE2 drops the rest of the rewrite where it replaces all matches, and where it replaces the
    first one it replaces nothing.
    """
    parts, well_formed = _rewrite_parts(rewrite)
    named = [int(digit) for digit in re.findall(rb"\\(?:([0-9])|.)", rewrite, re.DOTALL) if digit]
    if max(named, default=0) > pattern.groups:
        return lambda text: text

    def expand(match: _Match) -> bytes:
        return b"".join([part if isinstance(part, bytes) else match.group(part) or b"" for part in parts])

    if replace_global:
        return lambda text: _replace_all(pattern, expand, text)
    return lambda text: _replace_first(pattern, expand, text) if well_formed else text


def _replace_first(pattern: _Pattern, expand: Callable[[_Match], bytes], text: bytes) -> bytes:
    match = pattern.search(text)
    return text if match is None else text[: match.start()] + expand(match) + text[match.end() :]


def _replace_all(pattern: _Pattern, expand: Callable[[_Match], bytes], text: bytes) -> bytes:
    """Replaces matches that do not overlap; an empty match counts unless it stands at the end of the one before."""
    result: list[bytes] = []
    at, last_end = 0, -1
    while at <= len(text):
        match = pattern.search(text, at)
        if match is None:
            break
        start, end = match.span()
        result.append(text[at:start])
        if start == end == last_end:
            after = at + _character_length(text, at)
            result.append(text[at:after])
            at = after
        else:
            result.append(expand(match))
            at = last_end = end
    return b"".join([*result, text[at:]])


def _character_length(text: bytes, at: int) -> int:
    """How many bytes the UTF-8 character at a place takes; 1 where there is none."""
    lead = text[at] if at < len(text) else 0
    length = 1 if lead < 0xC0 else 2 if lead < 0xE0 else 3 if lead < 0xF0 else 4
    try:
        text[at : at + length].decode("utf-8", "surrogatepass")
    except UnicodeDecodeError:
        return 1
    return length


def _replaced(input: Array, pattern: bytes, rewrite: bytes, replace_global: bool, ctx: OperationContext) -> Any:
    return elementwise(_replacement(_pattern(pattern, ctx), bytes(rewrite), replace_global), input)


RegexReplace = define_op(
    "RegexReplace",
    "input: string, pattern: string, rewrite: string -> output: string",
    "replace_global: bool = True",
)
RegexReplace.not_differentiable()


@RegexReplace.shape
def _(input: TensorShape, pattern: TensorShape, rewrite: TensorShape) -> TensorShape:
    shape_rules.with_rank(pattern, 0, "the pattern")
    shape_rules.with_rank(rewrite, 0, "the rewrite")
    return input


@RegexReplace.host_kernel
def _(input: Array, pattern: Array, rewrite: Array, *, replace_global: bool, ctx: OperationContext) -> Any:
    ctx.check(np.ndim(pattern) == 0, f"Pattern must be scalar, but received {list(np.shape(pattern))}")
    ctx.check(np.ndim(rewrite) == 0, f"Rewrite must be scalar, but received {list(np.shape(rewrite))}")
    return _replaced(input, pattern.item(), rewrite.item(), replace_global, ctx)


StaticRegexReplace = define_op(
    "StaticRegexReplace",
    "input: string -> output: string",
    "pattern: string, rewrite: string, replace_global: bool = True",
)
StaticRegexReplace.shape(shape_rules.same_as_first)
StaticRegexReplace.not_differentiable()


@StaticRegexReplace.host_kernel
def _(input: Array, *, pattern: bytes, rewrite: bytes, replace_global: bool, ctx: OperationContext) -> Any:
    return _replaced(input, pattern, rewrite, replace_global, ctx)


# ---------------------------------------------------------------------- matching
def _full_match(input: Array, pattern: bytes, ctx: OperationContext) -> Any:
    compiled = _pattern(pattern, ctx)
    return elementwise(lambda text: compiled.fullmatch(text) is not None, input, dtype=np.bool_)


RegexFullMatch = define_op("RegexFullMatch", "input: string, pattern: string -> output: bool")
RegexFullMatch.not_differentiable()


@RegexFullMatch.shape
def _(input: TensorShape, pattern: TensorShape) -> TensorShape:
    shape_rules.with_rank(pattern, 0, "the pattern")
    return input


@RegexFullMatch.host_kernel
def _(input: Array, pattern: Array, *, ctx: OperationContext) -> Any:
    ctx.check(np.ndim(pattern) == 0, f"Pattern must be scalar, but received {list(np.shape(pattern))}")
    return _full_match(input, pattern.item(), ctx)


StaticRegexFullMatch = define_op("StaticRegexFullMatch", "input: string -> output: bool", "pattern: string")
StaticRegexFullMatch.shape(shape_rules.same_as_first)
StaticRegexFullMatch.not_differentiable()


@StaticRegexFullMatch.host_kernel
def _(input: Array, *, pattern: bytes, ctx: OperationContext) -> Any:
    return _full_match(input, pattern, ctx)
