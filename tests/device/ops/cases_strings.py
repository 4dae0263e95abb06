"""Rows for operations on strings."""

from __future__ import annotations

from typing import Any

import numpy as np

from anabranch import errors
from anabranch.testing.op_cases import OpCase

INVALID = errors.InvalidArgumentError


def text(*values: Any) -> Any:
    return np.array(values, np.object_)


def scalar(value: bytes) -> Any:
    return np.array(value, np.object_)


def longs(*values: Any) -> Any:
    return np.array(values, np.int64)


WORDS = text(b"One two", b"  x\t", b"", b"\xc3\xa9t\xc3\xa9")
MATRIX = text([b"a", b"b", b"c"], [b"d", b"e", b"f"])
#: lengths at which the hash functions change their ways
HASHED = text(b"", b"a", b"hello", b"0123456789abcdef", b"0123456789abcdefg" * 2, b"x" * 64, b"y" * 65, b"z" * 200)

NUMBERS = [
    OpCase("AsString", (np.array([1.5, -2.0], np.float32),), expected=text(b"1.500000", b"-2.000000")),
    OpCase("AsString", (np.array([1, -20]),), {"width": 4, "fill": "0"}, expected=text(b"0001", b"-020"), label="int"),
    OpCase("AsString", (np.array([True, False]),), expected=text(b"true", b"false"), label="bool"),
    OpCase("AsString", (np.array([1e-7, 2.5]),), {"shortest": True}, expected=text(b"1e-07", b"2.5"), label="short"),
    OpCase("AsString", (np.array([1234.5]),), {"scientific": True, "precision": 2}, expected=text(b"1.23e+03")),
    OpCase(
        "AsString",
        (np.array([np.inf, np.nan, 1.5]),),
        {"fill": "+", "precision": 1},
        expected=text(b"+inf", b"+nan", b"+1.5"),
        label="filled without a width",
    ),
    OpCase(
        "AsString",
        (np.array([np.inf, np.nan, 1.5]),),
        {"fill": "0", "width": 5, "precision": 1},
        expected=text(b"  inf", b"  nan", b"001.5"),
        label="filled with zeros",
    ),
    OpCase("AsString", (np.array([1 + 2j]),), {"precision": 1}, expected=text(b"(1.0,2.0)"), label="complex"),
    OpCase("StringToNumber", (text(b"1.5", b" -2", b"inf"),), oracle=lambda s: [1.5, -2, np.inf]),
    OpCase(
        "StringToNumber", (text(b"0xF", b"-0x1.8p1"),), expected=np.array([15, -3], np.float32), label="hexadecimal"
    ),
    OpCase("StringToNumber", (text(b"7", b"-9"),), {"out_type": "int64"}, expected=longs(7, -9), label="int64"),
    OpCase("StringToNumber", (text(b"3000000000"),), {"out_type": "int32"}, error=INVALID, label="range"),
    OpCase("StringToNumber", (text(b"1{0}"),), error=INVALID, label="no number"),
    OpCase(
        "DecodeRaw",
        (text(b"\1\0\2\0", b"\3\0\4\1"),),
        {"out_type": "int16"},
        expected=np.array([[1, 2], [3, 260]], np.int16),
    ),
    OpCase(
        "DecodeRaw",
        (scalar(b"\0\0\0\1"),),
        {"out_type": "int32", "little_endian": False},
        label="big endian",
        expected=np.array([1], np.int32),
    ),
    OpCase("DecodeRaw", (text(b"ab", b"c"),), {"out_type": "uint8"}, error=INVALID, label="lengths"),
    OpCase("DecodeRaw", (text(b"abc"),), {"out_type": "int16"}, error=INVALID, label="remainder"),
]

SINGLE = [
    OpCase("StringStrip", (WORDS,), expected=text(b"One two", b"x", b"", WORDS[3])),
    OpCase("StringLower", (WORDS,), expected=text(b"one two", *WORDS[1:])),
    OpCase("StringUpper", (WORDS,), expected=text(b"ONE TWO", b"  X\t", b"", b"\xc3\xa9T\xc3\xa9")),
    OpCase("StringUpper", (WORDS[3:],), {"encoding": "utf-8"}, expected=text("ÉTÉ".encode()), label="utf-8"),
    OpCase("Fact", (), expected=np.array(b"0! == 1", object)),
    OpCase("StringLength", (WORDS,), expected=np.array([7, 4, 0, 5], np.int32)),
    OpCase(
        "StringLength", (WORDS,), {"unit": "UTF8_CHAR"}, expected=np.array([7, 4, 0, 3], np.int32), label="characters"
    ),
    OpCase("Substr", (text(b"hello", b"world"), np.int32(1), np.int32(3)), expected=text(b"ell", b"orl")),
    OpCase(
        "Substr",
        (text(b"hello"), np.array([-3], np.int32), np.array([9], np.int32)),
        expected=text(b"llo"),
        label="end",
    ),
    OpCase(
        "Substr",
        (WORDS[3:], np.int32(1), np.int32(2)),
        {"unit": "UTF8_CHAR"},
        expected=text("té".encode()),
        label="characters",
    ),
    *(
        OpCase(
            "Substr",
            (text(b"\x89PNG", b"\x89\x89PN", b"a\x89PN"), np.int32(start), np.int32(2)),
            {"unit": "UTF8_CHAR"},
            expected=text(*parts),
            label=f"trailing bytes without a first one, from {start}",
        )
        for start, parts in (
            (0, (b"\x89P", b"\x89\x89P", b"a\x89P")),
            (1, (b"PN", b"PN", b"PN")),
            (-3, (b"PN", b"\x89\x89P", b"a\x89P")),
        )
    ),
    OpCase("Substr", (text(b"ab"), np.int32(3), np.int32(1)), error=INVALID, label="range"),
    OpCase("Substr", (text(b"hello"), np.int32(-3), np.int32(-1)), expected=text(b"llo"), label="negative length"),
    OpCase(
        "Substr",
        (text(b"hello"), np.int32(1), np.int32(-1)),
        {"unit": "UTF8_CHAR"},
        expected=text(b""),
        label="negative number of characters",
    ),
    OpCase(
        "Substr",
        (text(b"hello"), np.int32(-3), np.int32(-1)),
        {"unit": "UTF8_CHAR"},
        error=INVALID,
        label="negative number of characters before the end",
    ),
    OpCase("EncodeBase64", (text(b"\xfb\xff", b"a"),), expected=text(b"-_8", b"YQ")),
    OpCase("EncodeBase64", (text(b"a"),), {"pad": True}, expected=text(b"YQ=="), label="pad"),
    OpCase("DecodeBase64", (text(b"-_8", b"YQ=="),), expected=text(b"\xfb\xff", b"a")),
    *(
        OpCase("DecodeBase64", (text(wrong),), error=INVALID, label=f"wrong: {wrong!r}")
        for wrong in (
            b"?",
            b"a/bc",
            b"+bcd",
            b"A",
            b"AAAAA",
            b"=",
            b"==",
            b"====",
            b"A===",
            b"AA=",
            b"AA==AAAA",
            b"AA\n=",
        )
    ),
    OpCase("DecodeBase64", (text(b"", b"AB", b"AAAAAAF=", b"AAF"),), expected=text(b"", b"\0", b"\0\0\0\0\1", b"\0\1")),
    OpCase(
        "RegexReplace",
        (WORDS, scalar(rb"(\w)(\w)"), scalar(rb"\2\1\\")),
        expected=text(b"nO\\e wt\\o", b"  x\t", b"", b"\xc3\xa9t\xc3\xa9"),  # \w is ASCII
    ),
    OpCase(
        "StaticRegexReplace",
        (text(b"aaa"),),
        {"pattern": "a", "rewrite": r"<\0>", "replace_global": False},
        expected=text(b"<a>aa"),
    ),
    OpCase("StaticRegexReplace", (text(b"a"),), {"pattern": "(", "rewrite": ""}, error=INVALID, label="pattern"),
    OpCase("StaticRegexReplace", (text(b"a"),), {"pattern": "a", "rewrite": r"\1"}, expected=text(b"a"), label="group"),
    OpCase("RegexFullMatch", (text(b"ab", b"abc", b"ab\n"), scalar(b"a.$")), expected=np.array([True, False, False])),
    OpCase("StaticRegexFullMatch", (text(b"a$", b"ab"),), {"pattern": r"a[$]"}, expected=np.array([True, False])),
]

JOINED = [
    OpCase(
        "StringJoin",
        ([text(b"a", b"b"), scalar(b"x"), text(b"c", b"d")],),
        {"separator": "-"},
        expected=text(b"a-x-c", b"b-x-d"),
    ),
    OpCase("ReduceJoin", (MATRIX, np.array([0], np.int32)), expected=text(b"ad", b"be", b"cf")),
    OpCase(
        "ReduceJoin",
        (MATRIX, np.array([-1, 0], np.int32)),
        {"separator": " "},
        expected=scalar(b"a b c d e f"),
        label="order",
    ),
    OpCase(
        "ReduceJoin",
        (MATRIX, np.array([1], np.int32)),
        {"keep_dims": True},
        expected=text([b"abc"], [b"def"]),
        label="keep",
    ),
    OpCase("ReduceJoin", (MATRIX, np.zeros(0, np.int32)), expected=MATRIX, label="none"),
    OpCase(
        "UnsortedSegmentJoin",
        (text(b"a", b"b", b"c"), longs(1, 0, 1), np.int32(3)),
        {"separator": ":"},
        expected=text(b"b", b"a:c", b""),
    ),
    OpCase(
        "UnsortedSegmentJoin",
        (text(b"", b"", b"a", b"", b"b", b""), longs(1, 1, 1, 1, 1, 0), np.int32(2)),
        {"separator": ":"},
        expected=text(b"", b"a::b"),
        label="empty strings",
    ),
    OpCase("UnsortedSegmentJoin", (text(), longs(), np.int32(2)), expected=text(b"", b""), label="no strings"),
    *(
        OpCase(
            "UnsortedSegmentJoin",
            (text(b"a", b"b"), longs(1, outside), np.int32(3)),
            error=errors.InvalidArgumentError,
            label=f"segment {outside}",
        )
        for outside in (-1, 3)
    ),
    OpCase(
        "StringSplit",
        (text(b"a b  c", b"", b" d"), scalar(b" ")),
        expected=[longs([0, 0], [0, 1], [0, 2], [2, 0]), text(b"a", b"b", b"c", b"d"), longs(3, 3)],
    ),
    OpCase(
        "StringSplit",
        (text(b"a;b,", b"c"), scalar(b",;")),
        {"skip_empty": False},
        label="empty parts",
        expected=[longs([0, 0], [0, 1], [0, 2], [1, 0]), text(b"a", b"b", b"", b"c"), longs(2, 3)],
    ),
    OpCase(
        "StringSplit",
        (text(b"ab"), scalar(b"")),
        expected=[longs([0, 0], [0, 1]), text(b"a", b"b"), longs(1, 2)],
        label="bytes",
    ),
    OpCase(
        "StringSplitV2",
        (text(b" a  b c "), scalar(b"")),
        {"maxsplit": 1},
        label="white space",
        expected=[longs([0, 0], [0, 1]), text(b"a", b"b c "), longs(1, 2)],
    ),
    OpCase(
        "StringSplitV2",
        (text(b"a<>b<>", b"x"), scalar(b"<>")),
        expected=[longs([0, 0], [0, 1], [0, 2], [1, 0]), text(b"a", b"b", b"", b"x"), longs(2, 3)],
    ),
]

# Computed once with TensorFlow.
HASHES = [
    OpCase(
        "StringToHashBucketFast",
        (HASHED,),
        {"num_buckets": 2**62},
        expected=longs(
            1936946117179621455,
            3694432073954588131,
            3786372426573024488,
            1493332391325024359,
            3320059666727582264,
            2304502108871267256,
            4023130470993650268,
            4117204190001636188,
        ),
    ),
    OpCase(
        "StringToHashBucketStrong",
        (HASHED,),
        {"num_buckets": 2**62, "key": [1, 2]},
        expected=longs(
            443797209252341627,
            546566331822570742,
            2957200328589801622,
            2696401170605352036,
            2166469540610938973,
            3027194603663531933,
            3504868468111526113,
            4323632881856609534,
        ),
    ),
    OpCase(
        "StringToHashBucket",
        (HASHED,),
        {"num_buckets": 2**62},
        expected=longs(
            105434511174508091,
            2996632905371535868,
            1331861223480393034,
            1490712428580208486,
            3516829592022092458,
            4406794248521735754,
            3145566749894467938,
            3858736535569438550,
        ),
    ),
]

CASES = [*NUMBERS, *SINGLE, *JOINED, *HASHES]
