"""Tensors to save, and a comparison to the last bit, for tests of checkpoints."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import numpy.typing as npt

from anabranch.io.checkpoint_writer import write_checkpoint
from anabranch.io.slices import SliceInfo

Array = npt.NDArray[Any]
WHOLE = np.arange(40, dtype=np.float32).reshape(10, 4)


def write_partitioned(prefix: str, bounds: list[int]) -> None:
    tensors, boxes = {}, {}
    for begin, end in itertools.pairwise(bounds):
        tensors[f"w/part_{begin}"] = WHOLE[begin:end]
        boxes[f"w/part_{begin}"] = SliceInfo("w", (10, 4), (begin, 0), (end - begin, 4))
    write_checkpoint(prefix, tensors, slices=boxes)


def assert_same(actual: Array, expected: Array) -> None:
    """Same dtype, shape and bits, NaNs and negative zeros included."""
    assert actual.dtype == expected.dtype
    assert actual.shape == expected.shape
    if expected.dtype == object:
        assert actual.tolist() == expected.tolist()
    else:
        assert actual.tobytes() == expected.tobytes()
