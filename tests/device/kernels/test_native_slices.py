"""Gradients of convolutions with one tap and strides by oneDNN, of what the window sees, are those of XLA.

What needs the extra `native` is skipped without it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import anabranch as tf
from anabranch.core.kernels import candidates
from anabranch.kernels.native_slices import NAME
from tests.device.kernels.conftest import need_bfloat16
from tests.device.kernels.test_convolutions import (
    TOLERANCES,
    case_of,
    check_agreement,
    operations,
    results_of_all,
)

GRADIENTS = {("Conv2DBackpropInput", NAME), ("Conv2DBackpropFilter", NAME)}


@st.composite
def strided(draw: Any) -> tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]:
    """Shapes of data and filter, and attributes."""
    lengths, strides = (draw(st.tuples(st.integers(1, most), st.integers(1, most))) for most in (13, 4))
    channels, depth = (draw(st.sampled_from([8, 16, 17, 24, 64])) for _ in range(2))
    attrs = {"strides": [1, *strides, 1], "padding": draw(st.sampled_from(["SAME", "VALID"]))}
    return (draw(st.integers(1, 4)), *lengths, channels), (1, 1, channels, depth), attrs


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_results_are_those_of_xla(parts: None, dtype: str) -> None:
    """(The examples are the same in every run.)"""
    if dtype == "bfloat16":
        need_bfloat16()
    compared: set[tuple[str, str]] = set()

    @settings(max_examples=8)
    @given(strided())
    def compare(drawn: Any) -> None:
        shape, filter_shape, attrs = drawn
        with tf.Graph().as_default():
            for op, values in operations(0, shape, filter_shape, attrs, dtype):
                compared.update(check_agreement(op, values, TOLERANCES[dtype]))

    compare()
    assert compared >= GRADIENTS


@pytest.mark.parametrize(
    ("shape", "size", "attrs"),
    [
        ((2, 8, 8, 16), 1, {"strides": [1, 1, 1, 1], "padding": "SAME"}),  # sees all places
        ((2, 8, 8, 16), 2, {"strides": [1, 2, 2, 1], "padding": "SAME"}),  # has more than one tap
        ((2, 16, 8, 8), 1, {"strides": [1, 1, 2, 2], "padding": "SAME", "data_format": "NCHW"}),
        ((2, 8, 8, 32), 1, {"strides": [1, 2, 2, 1], "padding": "SAME"}),  # of two groups
        (
            (2, 8, 8, 16),
            1,
            {
                "strides": [1, 2, 2, 1],
                "padding": "EXPLICIT",
                "explicit_paddings": [0, 0, 1, 0, 1, 0, 0, 0],
            },
        ),
    ],
)
def test_what_is_another_convolution_is_left_to_others(
    native: None, shape: tuple[int, ...], size: int, attrs: dict[str, Any]
) -> None:
    with tf.Graph().as_default():
        for op, values in operations(0, shape, (size, size, 16, 16), attrs, "float32"):
            assert NAME not in {one.name for one in candidates(case_of(op, values))}


def test_what_the_window_does_not_see_is_not_read(native: None) -> None:
    """And has no gradient."""
    x, w = np.full((2, 5, 7, 16), np.nan, np.float32), np.ones((1, 1, 16, 32), np.float32)
    x[:, ::3, ::2] = 1
    with tf.Graph().as_default():
        attrs = {"strides": [1, 3, 2, 1], "padding": "SAME"}
        _, (to_input, given), (to_filter, read) = operations(0, x.shape, w.shape, attrs, "float32")
        grad = given[2]
        found = results_of_all(to_input, [given[0], w, grad])[NAME]
        wanted = np.zeros(x.shape, np.float32)
        wanted[:, ::3, ::2] = grad.sum(-1, keepdims=True)
        np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-5)
        found = results_of_all(to_filter, [x, read[1], grad])[NAME]
        np.testing.assert_allclose(found, np.broadcast_to(grad.sum((0, 1, 2)), w.shape), rtol=1e-4, atol=1e-4)
