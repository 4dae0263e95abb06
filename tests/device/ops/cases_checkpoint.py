"""Rows of the op table: names of shards. Saving and restoring have tests of their own."""

from __future__ import annotations

import numpy as np

from anabranch.testing.op_cases import OpCase


def _bytes(text: bytes) -> np.ndarray:
    array = np.empty((), np.object_)
    array[()] = text
    return array


CASES = [
    OpCase(
        "ShardedFilename",
        (_bytes(b"logs/model"), np.int32(3), np.int32(12)),
        expected=_bytes(b"logs/model-00003-of-00012"),
    ),
    OpCase("ShardedFilespec", (_bytes(b"logs/model"), np.int32(12)), expected=_bytes(b"logs/model-?????-of-00012")),
    OpCase(
        "ShardedFilename",
        (_bytes(b"\xff\xfem\0ore"), np.int32(-3), np.int32(1234567)),
        expected=_bytes(b"\xff\xfem--0003-of-1234567"),
        label="bytes",
    ),
    OpCase(
        "ShardedFilespec",
        (_bytes(b"\0more"), np.int32(12)),
        expected=_bytes(b"-?????-of-00012"),
        label="bytes",
    ),
]
