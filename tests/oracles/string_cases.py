"""Random arguments of operations on strings. Drawn by `make_string_fixture.py`; no package but NumPy is needed."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

ATOMS = (
    *("a", "b", "é", ".", "^", "$", r"\b", r"\B", r"\w", r"\W", r"\d", r"\s", r"\pL", r"\PL", r"\C", r"\A", r"\z", ""),
    *(
        "[ab]",
        "[^a]",
        "[[:alpha:]]",
        "[[:^digit:]]",
        "[[:space:]]+",
        r"\Qa.b\E",
        r"\x61",
        "(?i)A",
        "(?:ab)",
        "(?s).",
        "(?m)^",
    ),
)
REPEATS = ("", "", "", "*", "+", "?", "*?", "+?", "??", "{2}", "{1,}", "{,2}", "{0,2}?")
MALFORMED = ("(", "[a", "a**", r"\1", "(?=a)", "a{1001}", r"\p{Nope}", "*", "(?P<n>a)(?P<n>b)", r"\Z", b"\xff")
REWRITES = ("", "x", r"<\0>", r"\1", r"[\1|\2]", r"\\", r"\q", "x\\", r"é\0", r"\9", "$1", "&")
TEXTS = ("", "a", "ab", "aab b", "a.b", "abABa", "é", "aéb", "a\nb", "a\nb\n", "1a 2b", "_a-b", "ÀÉ", "aaaa", "日本 a")
BYTES = (b"\xff", b"a\xffb", b"\xc3", b"\xe9t\xe9", b"\xed\xa0\x80", b"\0a", b"\xf4\x90\x80\x80")
SEPARATORS = ("", ",", ", ", " ", ",,", ";,", "é")
LISTS = ("", " ", ",", "a", "a,b", ",a,,b,", " a  b ", "a, b, c", "\ta\n b\v", "aéb", ";a,b;", ",,", ",,,")


def pattern(draw: random.Random, depth: int = 2) -> str:
    pieces = []
    for _ in range(draw.randint(1, 3)):
        atom = draw.choice(ATOMS)
        if depth and draw.random() < 0.3:
            atom = f"({pattern(draw, depth - 1)})"
        repeated = atom + draw.choice(REPEATS)
        pieces.append(repeated if atom and atom not in {"(?i)A", "(?m)^"} else atom)
    return ("|" if draw.random() < 0.2 else "").join(pieces)


def texts(draw: random.Random) -> list[bytes]:
    chosen = [draw.choice(TEXTS).encode() for _ in range(4)]
    return [*chosen, "".join(draw.choice("ab é1\n.") for _ in range(6)).encode(), draw.choice(BYTES)]


def as_bytes(value: str | bytes) -> bytes:
    return value if isinstance(value, bytes) else value.encode()


def cases(seed: int) -> Iterator[dict[str, Any]]:
    """{"op": raw operation, then its arguments by name}."""
    draw = random.Random(seed)
    patterns: list[str | bytes] = [*MALFORMED, *(pattern(draw) for _ in range(300))]
    for each in patterns:
        found = {"input": texts(draw), "pattern": as_bytes(each)}
        yield {"op": "RegexFullMatch", **found}
        for _ in range(2):
            rewrite, everywhere = draw.choice(REWRITES).encode(), draw.random() < 0.7
            yield {"op": "RegexReplace", **found, "rewrite": rewrite, "replace_global": everywhere}
    for _ in range(100):
        words = [draw.choice(LISTS).encode() for _ in range(3)]
        separator = draw.choice(SEPARATORS).encode()
        yield {"op": "StringSplit", "input": words, "delimiter": separator, "skip_empty": draw.random() < 0.5}
        yield {"op": "StringSplitV2", "input": words, "sep": separator, "maxsplit": draw.choice((-1, 0, 1, 2))}
    for _ in range(40):
        shape = [draw.randint(1, 3) for _ in range(3)]
        letters: Any = iter("abcdefghijklmnopqrstuvwxyz0")
        strings = [[[next(letters) for _ in range(shape[2])] for _ in range(shape[1])] for _ in range(shape[0])]
        axes = draw.sample(range(-3, 3), draw.randint(0, 3))
        attrs = {"keep_dims": draw.random() < 0.5, "separator": draw.choice(SEPARATORS).encode()}
        yield {"op": "ReduceJoin", "inputs": strings, "reduction_indices": axes, **attrs}
