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


@pytest.mark.parametrize(
    ("op", "images", "ksizes", "strides", "rest"),
    [
        ("ExtractImagePatches", "images", [1, 2, 3, 1], [1, 2, 1, 1], {"rates": [1, 1, 2, 1]}),
        ("ExtractImagePatches", "images", [1, 3, 9, 1], [1, 1, 2, 1], {"rates": [1, 1, 1, 1]}),
        ("ExtractVolumePatches", "input", [1, 2, 3, 2, 1], [1, 2, 1, 2, 1], {}),
    ],
)
@pytest.mark.parametrize("padding", ["SAME", "VALID"])
@pytest.mark.parametrize("fed", [True, False])
def test_patches_by_index_are_those_by_slices(
    op: str, images: str, ksizes: list[int], strides: list[int], rest: Any, padding: str, fed: bool, monkeypatch: Any
) -> None:
    shape = (2, 7, 9, 3) if len(ksizes) == 4 else (2, 4, 5, 6, 2)
    value = np.random.RandomState(1).normal(size=shape).astype(np.float32)
    found = []
    for most in (1 << 10, 0):
        monkeypatch.setattr("anabranch.ops.nn.patches._MOST_SLICES", most)
        with tf.Graph().as_default(), tf.Session() as session:
            x = tf.placeholder(tf.float32, [None] * len(shape)) if fed else tf.constant(value)
            y = getattr(tf.raw_ops, op)(**{images: x}, ksizes=ksizes, strides=strides, padding=padding, **rest)
            found.append(session.run(y, {x: value} if fed else {}))
    np.testing.assert_array_equal(*found)


def test_patches_of_millions_of_places_end() -> None:
    with tf.Session() as session:
        x = tf.constant(IMAGES[:, :1, :1])
        arguments: Any = {"strides": [1] * 4, "rates": [1] * 4, "padding": "SAME"}
        y = tf.raw_ops.ExtractImagePatches(images=x, ksizes=[1, 2**20, 3, 1], **arguments)
        assert session.run(tf.shape(y)).tolist() == [1, 1, 1, 3 * 2**20 * 2]
        assert session.run(tf.reduce_sum(y)) == 2
        with pytest.raises(NotImplementedError, match="of which 3145728 are too many"):
            tf.gradients(y, x)
