"""Text in an encoding, taken apart into code points by Python's codecs, with what is malformed marked.

How much of malformed UTF-8 counts as one mistake is what Unicode recommends (the longest beginning of a character),
which Python's codec and ICU's converter both follow.
"""

from __future__ import annotations

import codecs
from collections.abc import Iterator
from functools import cache
from importlib import resources
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

REPLACEMENT: Final = 0xFFFD
LAST: Final = 0x10FFFF
_CONTROL_LAST: Final = 0x1F
#: malformed text is decoded in pieces of so many bytes, since each mistake copies what is left of a piece
_PIECE: Final = 4096
#: encodings in which a character has at most four bytes, whatever came before it
_WITHOUT_STATE: Final = frozenset(("utf-8", "ascii", "iso8859-1", "utf-16-be", "utf-16-le", "utf-32-be", "utf-32-le"))
#: Python's codecs of what ICU means by a name
_MEANT: Final = {"shift_jis": "cp932"}
_MARKS: Final = {
    "utf-16": ((codecs.BOM_UTF16_LE, "utf-16-le"), (codecs.BOM_UTF16_BE, "utf-16-be")),
    "utf-32": ((codecs.BOM_UTF32_LE, "utf-32-le"), (codecs.BOM_UTF32_BE, "utf-32-be")),
}


class CodePoint(NamedTuple):
    """A character of a text.

    Attributes:
        value: the code point; `REPLACEMENT` for bytes that are none.
        size: how many bytes stand for it.
        malformed: whether they are none.
    """

    value: int
    size: int
    malformed: bool


class ErrorPolicy(NamedTuple):
    """What becomes of malformed bytes, and of control characters.

    Attributes:
        errors: "strict" (the step fails), "replace", or "ignore" (they are left out).
        replacement: the code point that "replace" puts there.
        replace_control: whether control characters (up to 0x1F) are replaced, or left out, as well.
        strict_control: whether "strict" makes a control character that is to be replaced a failure.
    """

    errors: str
    replacement: int
    replace_control: bool
    strict_control: bool = False


@cache
def codec_name(encoding: str) -> str | None:
    """Python's name of an encoding of text; None where there is no such encoding."""
    try:
        name = codecs.lookup(encoding).name
        name = _MEANT.get(name, name)
        b"a".decode(name, "replace")
    except (LookupError, UnicodeError, ValueError):
        return None
    return name


def code_points(text: bytes, codec: str) -> Iterator[CodePoint]:
    """The characters of a text; `codec` is a `codec_name`."""
    at = 0
    for mark, other in _MARKS.get(codec, ()):
        if text.startswith(mark):
            codec, at = other, len(mark)
    codec = f"{codec}-be" if codec in _MARKS else codec
    before = at  # a byte order mark counts as bytes of the first character
    piece_size = _PIECE if codec in _WITHOUT_STATE else max(len(text), 1)
    while at < len(text):
        piece = text[at : at + piece_size]
        rest = at + len(piece) < len(text)
        characters, bad, used = _decoded(piece, codec, rest)
        for character in characters:
            yield CodePoint(ord(character), before + _size(character, codec), False)
            before = 0
        if bad and codec == "cp1252":  # ICU reads its five bytes without a meaning as control characters
            yield CodePoint(piece[used - 1], before + bad, False)
        elif bad:
            yield CodePoint(REPLACEMENT, before + bad, True)
        before = 0 if used else before
        at += used


def _decoded(piece: bytes, codec: str, rest: bool) -> tuple[str, int, int]:
    """The characters at the beginning, how many malformed bytes follow them, and how many bytes that is in all."""
    try:
        return piece.decode(codec), 0, len(piece)
    except UnicodeDecodeError as error:
        good = piece[: error.start].decode(codec)
        if rest and error.end == len(piece) and error.start:
            return good, 0, error.start  # perhaps a character that the end of the piece cuts through
        return good, max(error.end - error.start, 1), max(error.end, error.start + 1)


def _size(character: str, codec: str) -> int:
    try:
        return len(character.encode(codec))
    except UnicodeEncodeError:  # a codec that reads several spellings of a character, and writes another one
        return 1


def handled(text: bytes, codec: str, policy: ErrorPolicy) -> Iterator[tuple[int, int]]:
    """The code points of a text and the bytes at which they begin, by the policy.

    Raises:
        ValueError: something is malformed, and the policy is "strict".
    """
    offset = 0
    for value, size, malformed in code_points(text, codec):
        if not malformed and not (policy.replace_control and value <= _CONTROL_LAST):
            yield value, offset
        elif policy.errors == "strict" and (malformed or policy.strict_control):
            raise ValueError("Invalid formatting on input string")
        elif policy.errors != "ignore":
            yield policy.replacement, offset
        offset += size


def is_character(value: int) -> bool:
    """Whether a number is a code point that text may hold: within the range, and no surrogate."""
    return 0 <= value <= LAST and not 0xD800 <= value <= 0xDFFF


@cache
def _script_table() -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int32]]:
    text = resources.files(__package__).joinpath("unicode_scripts.txt").read_text(encoding="ascii")
    rows = [line.split() for line in text.splitlines() if not line.startswith("#")]
    starts = np.array([int(start, 16) for start, _ in rows], np.int32)
    return starts, np.array([int(script) for _, script in rows], np.int32)


def scripts_of(values: npt.NDArray[np.int32]) -> npt.NDArray[np.int32]:
    """The numbers of the scripts of code points, -1 for what is none."""
    starts, scripts = _script_table()
    found = scripts[np.maximum(np.searchsorted(starts, values, side="right") - 1, 0)]
    return np.where((values >= 0) & (values <= LAST), found, np.int32(-1)).astype(np.int32)
