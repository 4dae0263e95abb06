"""Rows for operations on ragged tensors, code points and n-grams; what is expected was recorded from TensorFlow."""

from __future__ import annotations

from typing import Any

import numpy as np

from anabranch import errors
from anabranch.testing.op_cases import OpCase

INVALID = errors.InvalidArgumentError


def text(*values: Any) -> Any:
    return np.array(values, np.object_)


def longs(*values: Any) -> Any:
    return np.array(values, np.int64)


def ints(*values: Any) -> Any:
    return np.array(values, np.int32)


def floats(*values: Any) -> Any:
    return np.array(values, np.float32)


def scalar(value: int) -> Any:
    return np.array(value, np.int64)


_VALUES = floats(1.0, 2.0, 3.0, 4.0)
#: ranges of more numbers than are computed at once, some of them empty
_MANY = ints(0, 5, 0, 900_000, 7), ints(0, 6, 1_200_000, -900_000, 3), ints(3, 1, 1, -1, 1)
ROWS = [
    OpCase(
        "RaggedRange",
        (ints(2, 5, 8), ints(3, 5, 12), ints(1, 1, 2)),
        {"Tsplits": "int32"},
        expected=[ints(0, 1, 1, 3), ints(2, 8, 10)],
    ),
    OpCase("RaggedRange", (floats(0.5), floats(2.0), floats(0.5)), expected=[longs(0, 3), floats(0.5, 1.0, 1.5)]),
    OpCase(
        "RaggedRange",
        (
            floats(8, 8, np.inf, 1, np.inf, 0),
            floats(-np.inf, np.inf, 3, 2, -1, np.inf),
            floats(2, -2, 1, *[np.inf] * 2, -np.inf),
        ),
        expected=[longs(0, 0, 0, 0, 0, 0, 0), floats()],
        label="infinite",
    ),
    OpCase(
        "RaggedRange",
        _MANY,
        expected=[longs(0, 0, 1, 1_200_001, 3_000_001, 3_000_001), np.concatenate([*map(np.arange, *_MANY)])],
        label="many",
    ),
    OpCase("RaggedRange", (floats(-np.inf), floats(3), floats(1)), error=INVALID, label="without end"),
    OpCase("RaggedRange", (floats(np.nan), floats(3), floats(1)), error=INVALID, label="NaN"),
    OpCase("RaggedRange", (floats(0), floats(3), floats(np.nan)), error=INVALID, label="a step of NaN"),
    OpCase("RaggedRange", (floats(np.inf), floats(np.inf), floats(np.inf)), error=INVALID, label="all infinite"),
    OpCase("RaggedRange", (ints(1), ints(2), ints(0)), error=INVALID, label="no step"),
    OpCase("RaggedRange", (ints(1, 2), ints(2), ints(1)), error=INVALID, label="sizes"),
    OpCase(
        "RaggedGather",
        ([longs(0, 2, 2, 3)], floats(1.0, 2.0, 3.0), ints(2, 0, 0)),
        {"OUTPUT_RAGGED_RANK": 1},
        expected=[longs(0, 1, 3, 5), floats(3.0, 1.0, 2.0, 1.0, 2.0)],
        static_shape=False,
    ),
    OpCase(
        "RaggedGather",
        ([longs(0, 2, 2, 3)], floats(1.0, 2.0, 3.0), ints(3)),
        {"OUTPUT_RAGGED_RANK": 1},
        error=INVALID,
        label="outside",
    ),
    OpCase(
        "RaggedTensorToSparse",
        ([longs(0, 2, 2, 3)], ints([1, 2], [3, 4], [5, 6])),
        expected=[
            longs([0, 0, 0], [0, 0, 1], [0, 1, 0], [0, 1, 1], [2, 0, 0], [2, 0, 1]),
            ints(1, 2, 3, 4, 5, 6),
            longs(3, 2, 2),
        ],
    ),
    OpCase("RaggedTensorToSparse", ([longs(1, 2)], ints(1, 2)), error=INVALID, label="splits that begin with 1"),
    OpCase(
        "RaggedTensorToTensor",
        (longs(-1, 3), _VALUES, np.float32(9.0), [longs(0, 1, 1, 4)]),
        {"row_partition_types": ["ROW_SPLITS"]},
        expected=floats([1.0, 9.0, 9.0], [9.0, 9.0, 9.0], [2.0, 3.0, 4.0]),
        static_shape=False,
    ),
    OpCase(
        "RaggedTensorToTensor",
        (longs(-1, 2), _VALUES, np.float32(9.0), [scalar(3), longs(0, 2, 2, 2)]),
        {"row_partition_types": ["FIRST_DIM_SIZE", "VALUE_ROWIDS"]},
        expected=floats([1.0, 9.0], [9.0, 9.0], [2.0, 3.0]),
        static_shape=False,
        label="row numbers, cut",
    ),
    OpCase(
        "RaggedTensorToTensor",
        (longs(-1, 3), _VALUES, floats(9.0, 8.0), [longs(0, 1, 1, 4)]),
        {"row_partition_types": ["ROW_SPLITS"]},
        error=INVALID,
        label="a default value of as many dimensions as the values",
    ),
]

_TEXT = text(b"a\xc3\xa9\xff", b"", b"\xf0\x9f\x98\x8a\x01")
_UTF8 = {"input_encoding": "UTF-8"}
CHARACTERS = [
    OpCase(
        "UnicodeDecode",
        (_TEXT,),
        {**_UTF8, "replacement_char": 63, "replace_control_characters": True},
        expected=[longs(0, 3, 3, 5), ints(97, 233, 63, 128522, 63)],
    ),
    OpCase(
        "UnicodeDecode",
        (_TEXT,),
        {**_UTF8, "errors": "ignore"},
        expected=[longs(0, 2, 2, 4), ints(97, 233, 128522, 1)],
        label="left out",
    ),
    OpCase("UnicodeDecode", (_TEXT,), {**_UTF8, "errors": "strict"}, error=INVALID, label="strict"),
    OpCase("UnicodeDecode", (_TEXT,), {"input_encoding": "no-such"}, error=INVALID, label="encoding"),
    OpCase(
        "UnicodeDecodeWithOffsets",
        (_TEXT,),
        _UTF8,
        expected=[longs(0, 3, 3, 5), ints(97, 233, 65533, 128522, 1), longs(0, 1, 3, 0, 4)],
    ),
    OpCase(
        "UnicodeTranscode",
        (_TEXT,),
        {**_UTF8, "output_encoding": "UTF-16-BE"},
        expected=text(b"\x00a\x00\xe9\xff\xfd", b"", b"\xd8=\xde\n\x00\x01"),
    ),
    OpCase(
        "UnicodeEncode",
        (ints(72, 0x110000, 233, 0x1F60A), longs(0, 2, 2, 4)),
        {"output_encoding": "UTF-8"},
        expected=text(b"H\xef\xbf\xbd", b"", b"\xc3\xa9\xf0\x9f\x98\x8a"),
    ),
    OpCase(
        "UnicodeEncode",
        (ints(72, 0x110000), longs(0, 2)),
        {"output_encoding": "UTF-8", "errors": "strict"},
        error=INVALID,
        label="strict",
    ),
    OpCase("UnicodeScript", (ints(97, 945, 0x4E00, -1, 32),), expected=ints(25, 14, 17, -1, 0)),
    OpCase(
        "DecodePaddedRaw",
        (text(b"\1\2\3", b"\4"), np.int32(4)),
        {"out_type": "int16"},
        expected=np.array([[513, 3], [4, 0]], np.int16),
        static_shape=False,
    ),
    OpCase(
        "DecodePaddedRaw",
        (text(b"\1\2\3\5\6"), np.int32(4)),
        {"out_type": "int16", "little_endian": False},
        expected=np.array([[258, 773]], np.int16),
        static_shape=False,
        label="big endian, cut",
    ),
    OpCase("DecodePaddedRaw", (text(b"ab"), np.int32(3)), {"out_type": "int16"}, error=INVALID, label="remainder"),
]

_GRAMS = (text(b"a", b"b", b"c", b"d"), longs(0, 3, 3, 4))


def _grams(separator: str, widths: list[int], left: str, right: str, pads: int, short: bool) -> dict[str, Any]:
    return {
        "separator": separator,
        "ngram_widths": widths,
        "left_pad": left,
        "right_pad": right,
        "pad_width": pads,
        "preserve_short_sequences": short,
    }


NGRAMS = [
    OpCase(
        "StringNGrams",
        _GRAMS,
        _grams("|", [2], "L", "R", -1, False),
        expected=[text(b"L|a", b"a|b", b"b|c", b"c|R", b"L|R", b"L|d", b"d|R"), longs(0, 4, 5, 7)],
    ),
    OpCase(
        "StringNGrams",
        _GRAMS,
        _grams(" ", [2, 3], "", "", 0, True),
        expected=[text(b"a b", b"b c", b"a b c", b"d"), longs(0, 3, 3, 4)],
        label="short rows",
    ),
    OpCase("StringNGrams", _GRAMS, _grams(" ", [0], "", "", 0, False), error=INVALID, label="no width"),
    *(
        OpCase(
            "StringNGrams",
            (_GRAMS[0], longs(*splits)),
            _grams(" ", [2], "", "", 0, False),
            error=INVALID,
            label=f"splits {splits}",
        )
        for splits in ((0, 2), (1, len(_GRAMS[0])), (0, 3, 2, len(_GRAMS[0])), (0, 99))
    ),
]

CASES = [*ROWS, *CHARACTERS, *NGRAMS]
