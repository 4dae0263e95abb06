"""Rows of the op table: quantisation of types that genuine TensorFlow of today does not build any more."""

from __future__ import annotations

from typing import Any

import numpy as np

from anabranch.testing.op_cases import OpCase

Array = np.ndarray[Any, Any]

VALUES = np.array([-1.5, -0.26, 0.0, 0.3, 1.0, 2.25])


def nearest_sixteenths(x: Array) -> Array:
    """With five bits and a sign, a range of 15 / 16 to either side has multiples of one sixteenth."""
    return np.clip(np.rint(x * 16), -16, 15) / 16


def nearest_of_its_range(x: Array) -> Array:
    """The largest of 127 multiples is the largest number."""
    step = np.abs(x).max() / 127
    return np.rint(x / step) * step


CASES = [
    OpCase(
        "QuantizeAndDequantize",
        (VALUES,),
        {"num_bits": 5, "range_given": True, "input_min": -15 / 16, "input_max": 15 / 16},
        oracle=nearest_sixteenths,
        gradient=False,
        label="a given range",
    ),
    OpCase("QuantizeAndDequantize", (VALUES,), oracle=nearest_of_its_range, gradient=False, label="its own range"),
]
