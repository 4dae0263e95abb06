"""Which dtype an argument gets whose type attribute has a default."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from anabranch import raw_ops

WIDE = np.int64(2**40)


@pytest.mark.parametrize(
    ("start", "expected"),
    [
        (1, "int32"),
        (np.int32(1), "int32"),
        (np.int64(1), "int32"),  # as in TensorFlow 1: graphs hold 32 bits wherever they are enough
        (WIDE, "int64"),
        (-WIDE, "int64"),
        (0.5, "float32"),
        (np.float32(0.5), "float32"),
        (np.float32(1), "float32"),  # whatever the number: a graph's types do not follow from its values
        (np.float64(0.5), "float64"),
    ],
)
def test_no_number_loses_its_fraction_or_its_higher_bits(start: Any, expected: str) -> None:
    kind = type(start)
    assert raw_ops.Range(start=start, limit=kind(start + 2), delta=kind(1)).dtype.name == expected


@pytest.mark.parametrize("shape", [np.array([]), np.float32([]), np.int64([])])
def test_what_the_attribute_does_not_allow_becomes_the_default(shape: Any) -> None:
    assert raw_ops.Reshape(tensor=np.float32([7]), shape=shape).op.inputs[1].dtype.name == "int32"


def test_an_axis_beyond_32_bits_stays_what_it_is() -> None:
    assert raw_ops.Cumsum(x=np.float32([1]), axis=WIDE).op.inputs[1].dtype.name == "int64"
