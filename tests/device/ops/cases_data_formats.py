"""Rows for orders of dimensions."""

from __future__ import annotations

import numpy as np

from anabranch.errors import InvalidArgumentError
from anabranch.testing.op_cases import OpCase

FIVE = {"src_format": "NDHWC", "dst_format": "NCDHW"}
PAIRS = np.arange(8, dtype=np.int32).reshape(4, 2)

CASES = [
    OpCase("DataFormatDimMap", (np.int32([0, 1, 2, 3, -1, -4]),), expected=np.int32([0, 2, 3, 1, 1, 0])),
    OpCase("DataFormatDimMap", (np.int64([[0, 4]]),), FIVE, expected=np.int64([[0, 1]]), label="five, int64"),
    OpCase("DataFormatDimMap", (np.int32(3),), expected=np.int32(1), label="scalar"),
    OpCase("DataFormatDimMap", (np.zeros((0, 2), np.int32),), oracle=lambda x: x, label="empty"),
    OpCase("DataFormatDimMap", (np.int32([4, -5, 7]),), expected=np.int32([0, 1, 1]), label="no such dimension"),
    OpCase(
        "DataFormatDimMap", (np.int32([0]),), {"dst_format": "ABCD"}, error=InvalidArgumentError, label="formats differ"
    ),
    OpCase("DataFormatVecPermute", (np.int32([1, 2, 3, 4]),), expected=np.int32([1, 4, 2, 3])),
    OpCase("DataFormatVecPermute", (PAIRS,), expected=PAIRS[[0, 3, 1, 2]], label="pairs"),
    OpCase(
        "DataFormatVecPermute", (np.int64([1, 2, 3, 4, 5]),), FIVE, expected=np.int64([1, 5, 2, 3, 4]), label="five"
    ),
    OpCase(
        "DataFormatVecPermute",
        (np.int32([1, 2]),),
        {"dst_format": "WHCN"},
        expected=np.int32([2, 1]),
        label="spatial dimensions",
    ),
    OpCase("DataFormatVecPermute", (np.int32([1, 2, 3]),), error=InvalidArgumentError, label="three of four"),
    OpCase("DataFormatVecPermute", (np.ones((4, 3), np.int32),), error=InvalidArgumentError, label="triples"),
    OpCase("DataFormatVecPermute", (np.int32(5),), error=InvalidArgumentError, label="scalar"),
]
