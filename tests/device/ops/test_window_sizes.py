"""Windows over axes: numbers that TensorFlow's kernels, which count in int32, cannot hold."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import anabranch as tf

IMAGES, VOLUMES = np.ones((1, 5, 5, 2), np.float32), np.ones((1, 5, 5, 5, 2), np.float32)
HUGE = 2**31 + 1
SPREAD = [1, 1, HUGE, 1]
#: operation, the name of its images or volumes, and its other arguments, of which one number is huge
CASES: tuple[tuple[str, str, dict[str, Any]], ...] = (
    ("Conv2D", "input", {"filter": np.ones((2, 2, 2, 3), np.float32), "strides": SPREAD}),
    ("Conv2D", "input", {"filter": np.ones((2, 2, 2, 3), np.float32), "strides": [1] * 4, "dilations": SPREAD}),
    ("Conv3D", "input", {"filter": np.ones((2, 2, 2, 2, 3), np.float32), "strides": [1, *SPREAD]}),
    ("DepthwiseConv2dNative", "input", {"filter": np.ones((2, 2, 2, 3), np.float32), "strides": SPREAD}),
    ("Dilation2D", "input", {"filter": np.ones((2, 2, 2), np.float32), "strides": SPREAD, "rates": [1] * 4}),
    ("MaxPool", "input", {"ksize": [1, 2, 2, 1], "strides": SPREAD}),
    ("MaxPool", "input", {"ksize": SPREAD, "strides": [1] * 4}),
    ("AvgPool", "value", {"ksize": [1, 2, 2, 1], "strides": SPREAD}),
    ("AvgPool3D", "input", {"ksize": [1, 2, 2, 2, 1], "strides": [1, *SPREAD]}),
    ("ExtractImagePatches", "images", {"ksizes": [1, 2, 2, 1], "strides": SPREAD, "rates": [1] * 4}),
    ("ExtractImagePatches", "images", {"ksizes": [1, 2, 2, 1], "strides": [1] * 4, "rates": SPREAD}),
    ("ExtractImagePatches", "images", {"ksizes": SPREAD, "strides": [1] * 4, "rates": [1] * 4}),
    ("ExtractVolumePatches", "input", {"ksizes": [1, 2, 2, 2, 1], "strides": [1, *SPREAD]}),
)


@pytest.mark.parametrize("padding", ["SAME", "VALID"])
@pytest.mark.parametrize("sizes_known", [True, False])
@pytest.mark.parametrize(("op", "images", "rest"), CASES, ids=lambda value: value if isinstance(value, str) else "")
def test_no_number_is_above_int32(op: str, images: str, rest: dict[str, Any], sizes_known: bool, padding: str) -> None:
    value = VOLUMES if "3D" in op or "Volume" in op else IMAGES
    with tf.Graph().as_default():
        x = tf.placeholder(tf.float32, value.shape if sizes_known else [None] * value.ndim)
        with pytest.raises(ValueError, match=r"int32|Negative dimension"):
            getattr(tf.raw_ops, op)(**{images: x}, **rest, padding=padding)
