"""oneDNN's pooling is XLA's: averages, and the gradients of averages and maxima, also of equal maxima and of NaN.

What needs the extra `native` is skipped without it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import anabranch as tf
from anabranch.core.kernels import OWN_KERNEL, alternates, candidates
from anabranch.kernels import MODULES, native_pooling
from anabranch.ops import raw
from anabranch.xla.variants import compile_log
from tests.device.kernels.conftest import need_bfloat16
from tests.device.kernels.test_convolutions import at_once, case_of, check_agreement, results_of_all

AVERAGES = ("AvgPool", "AvgPool3D")
MAXIMA = ("MaxPoolGrad", "MaxPoolGradV2")
#: how far results may lie from the own kernel's, as a share of the largest: sums of bfloat16 may be rounded on the way
TOLERANCES = {"float32": 1e-5, "bfloat16": 2e-2}


def test_the_kernels_are_announced() -> None:
    """What is not announced would never be loaded."""
    named = {operation.op_type for operation in native_pooling.OPERATIONS}
    assert set(MODULES[native_pooling.__name__]) == named
    for op_type in named:
        assert [one.name for one in alternates(op_type)] == ["onednn"]


# ---------------------------------------------------------------------- agreement
def operations(
    op_type: str, shape: tuple[int, ...], attrs: dict[str, Any], dtype: str, levels: int = 3
) -> list[tuple[Any, list[np.ndarray[Any, Any]]]]:
    """The average and its gradient, or the gradient of a maximum, with their operands.

    Args:
        levels: values are whole numbers from 0 to it, so that many maxima are equal; 0: they are real numbers.
    """
    rng = np.random.default_rng(sum(shape))
    of_type = tf.as_dtype(dtype).as_numpy_dtype

    def values(of: Any) -> np.ndarray[Any, Any]:
        numbers = rng.integers(0, levels + 1, of) if levels else rng.normal(size=tuple(of))
        return numbers.astype(of_type)

    x = values(shape)
    if op_type in AVERAGES:
        y = getattr(raw, op_type)(x, **attrs)
        grad = values(y.shape.as_list())
        sizes = np.array(shape, np.int32)
        return [(y.op, [x]), (getattr(raw, f"{op_type}Grad")(sizes, grad, **attrs).op, [sizes, grad])]
    y = raw.MaxPool(x, **attrs)
    with tf.Session() as session:
        maxima = session.run(y)
    grad = values(maxima.shape)
    if op_type == "MaxPoolGrad":
        return [(raw.MaxPoolGrad(x, maxima, grad, **attrs).op, [x, maxima, grad])]
    size, strides = (np.array(attrs[name], np.int32) for name in ("ksize", "strides"))
    rest = {name: attrs[name] for name in ("padding", "data_format")}
    return [(raw.MaxPoolGradV2(x, maxima, grad, size, strides, **rest).op, [x, maxima, grad, size, strides])]


@st.composite
def any_pooling(draw: Any, op_type: str) -> tuple[str, tuple[int, ...], dict[str, Any], int]:
    rank = 3 if "3D" in op_type else 2
    first = draw(st.booleans())
    order = (0, rank + 1, *range(1, rank + 1)) if first else tuple(range(rank + 2))
    size, strides = (draw(st.tuples(*[st.integers(1, 4)] * rank)) for _ in range(2))
    lengths = [draw(st.integers(n, 9 if rank == 2 else 5)) for n in size]
    shape = (draw(st.integers(1, 3)), *lengths, draw(st.sampled_from([1, 3, 8, 16, 17, 40])))
    attrs = {
        "ksize": [(1, *size, 1)[axis] for axis in order],
        "strides": [(1, *strides, 1)[axis] for axis in order],
        "padding": draw(st.sampled_from(["SAME", "VALID"])),
        "data_format": {2: ("NHWC", "NCHW"), 3: ("NDHWC", "NCDHW")}[rank][first],
    }
    return op_type, tuple(shape[axis] for axis in order), attrs, draw(st.sampled_from([0, 3]))


@pytest.mark.parametrize("dtype", TOLERANCES)
@pytest.mark.parametrize("op_type", [*AVERAGES, *MAXIMA])
def test_results_are_those_of_xla(native: None, op_type: str, dtype: str) -> None:
    """(The examples are the same in every run.)"""
    if dtype == "bfloat16":
        need_bfloat16()
    compared: set[tuple[str, str]] = set()

    @settings(max_examples=6)
    @given(any_pooling(op_type))
    def compare(drawn: Any) -> None:
        kind, shape, attrs, levels = drawn
        with tf.Graph().as_default():
            for op, values in operations(kind, shape, attrs, dtype, levels):
                compared.update(check_agreement(op, values, TOLERANCES[dtype]))

    compare()
    # (sums of bfloat16 that would be rounded too often are not offered)
    wanted = {op_type, f"{op_type}Grad"} if op_type in AVERAGES else {op_type}
    kernels = (OWN_KERNEL, "onednn", at_once(OWN_KERNEL), at_once("onednn"))
    assert compared == {(name, kernel) for name in wanted for kernel in kernels}


PLAIN: dict[str, Any] = {
    "ksize": [1, 3, 3, 1],
    "strides": [1, 2, 2, 1],
    "padding": "SAME",
    "data_format": "NHWC",
}


@pytest.mark.parametrize("odd", [np.nan, np.inf, -np.inf])
def test_what_is_no_finite_number(native: None, odd: float) -> None:
    """The gradient of a window whose maximum is no number is zero, by either kernel."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(2, 8, 8, 16)).astype(np.float32)
    x[rng.random(x.shape) < 0.2] = odd
    x[0, :4, :4] = odd
    with tf.Graph().as_default():
        y = raw.MaxPool(x, **PLAIN)
        with tf.Session() as session:
            maxima = session.run(y)
        grad = rng.normal(size=maxima.shape).astype(np.float32)
        results = results_of_all(raw.MaxPoolGrad(x, maxima, grad, **PLAIN).op, [x, maxima, grad])
    assert set(results) == {OWN_KERNEL, "onednn", at_once(OWN_KERNEL), at_once("onednn")}
    for found in results.values():
        np.testing.assert_allclose(found, results[OWN_KERNEL], rtol=1e-6)


# ---------------------------------------------------------------------- where they are offered
def offered(op_type: str, shape: tuple[int, ...], attrs: dict[str, Any], dtype: str = "float32") -> list[bool]:
    with tf.Graph().as_default():
        found = operations(op_type, shape, attrs, dtype)
        return ["onednn" in {one.name for one in candidates(case_of(op, values))} for op, values in found]


def test_what_the_library_cannot_do_is_not_offered(native: None) -> None:
    """Other types; windows along channels; windows that may lie in the padding alone."""
    assert offered("AvgPool", (2, 9, 9, 16), PLAIN) == [True, True]
    assert offered("AvgPool", (2, 9, 9, 16), PLAIN, "float64") == [False, False]
    assert offered("MaxPoolGrad", (2, 9, 9, 16), PLAIN) == [True]
    deep = {**PLAIN, "ksize": [1, 1, 1, 4], "strides": [1, 1, 1, 4]}
    assert offered("MaxPoolGrad", (2, 9, 9, 16), deep) == [False]
    outside = {**PLAIN, "padding": "EXPLICIT", "explicit_paddings": [0, 0, 3, 0, 0, 0, 0, 0]}
    assert offered("MaxPoolGrad", (2, 9, 9, 16), outside) == [False]


def test_sums_of_bfloat16_that_would_be_rounded_often_are_not_offered(native: None) -> None:
    need_bfloat16()
    wide = {**PLAIN, "ksize": [1, 7, 7, 1], "strides": [1, 1, 1, 1]}
    assert offered("AvgPool", (2, 14, 14, 16), wide, "bfloat16") == [True, False]
    assert offered("AvgPool", (2, 14, 14, 16), wide, "float32") == [True, True]
    assert offered("MaxPoolGrad", (2, 14, 14, 16), wide, "bfloat16") == [False]
    assert offered("MaxPoolGrad", (2, 14, 14, 16), PLAIN, "bfloat16") == [True]


def test_nothing_is_offered_where_it_is_turned_off() -> None:
    assert offered("AvgPool", (2, 9, 9, 16), PLAIN) == [False, False]


# ---------------------------------------------------------------------- in a session
def test_a_gradient_of_maxima_runs_so(native: None) -> None:
    """Of maxima that were not found in the same step."""
    value = np.random.default_rng(0).permutation(4 * 25 * 25 * 32).reshape(4, 25, 25, 32).astype(np.float32)
    attrs: dict[str, Any] = {"ksize": [1, 3, 3, 1], "strides": [1, 2, 2, 1], "padding": "VALID"}
    x, y = tf.placeholder(tf.float32, value.shape), tf.placeholder(tf.float32, (4, 12, 12, 32))
    gradient = raw.MaxPoolGrad(x, y, tf.ones_like(y), **attrs)
    windows = np.lib.stride_tricks.sliding_window_view(value, (3, 3), (1, 2))[:, ::2, ::2]
    with tf.Session() as session:
        found = session.run(gradient, {x: value, y: windows.max((-2, -1))})
    assert [one.chosen.name for one in compile_log.events[-1].kernels.values()] == ["onednn"]
    expected = np.zeros_like(value)
    for row, column in np.ndindex(12, 12):
        window = (slice(None), slice(2 * row, 2 * row + 3), slice(2 * column, 2 * column + 3))
        expected[window] += value[window] == value[window].max((1, 2), keepdims=True)
    np.testing.assert_array_equal(found, expected)


def test_windows_side_by_side_are_left_to_xla_unless_measured(native: None) -> None:
    """Where XLA's own kernel compares no element twice, it is estimated to be as fast."""
    side_by_side = {**PLAIN, "ksize": [1, 2, 2, 1]}
    with tf.Graph().as_default():
        ((op, values),) = operations("MaxPoolGrad", (8, 56, 56, 64), side_by_side, "float32")
        assert [one.name for one in candidates(case_of(op, values))] == [OWN_KERNEL, "onednn"]
        ((op, values),) = operations("MaxPoolGrad", (8, 56, 56, 64), PLAIN, "float32")
        assert [one.name for one in candidates(case_of(op, values))] == ["onednn", OWN_KERNEL]


@pytest.mark.parametrize("dtype", TOLERANCES)
@pytest.mark.parametrize("at", [0, 1])
def test_averages_of_windows_that_overlap_are_the_library_s(native: None, dtype: str, at: int) -> None:
    """XLA makes a padded copy for each tap in a program; measured alone its gradient is as quick. (`at`: gradient.)"""
    if dtype == "bfloat16":
        need_bfloat16()
    overlapping: dict[str, Any] = {**PLAIN, "strides": [1, 1, 1, 1], "padding": "SAME"}
    side_by_side = {**PLAIN, "ksize": [1, 2, 2, 1]}
    for attrs, first in ((overlapping, "onednn"), (side_by_side, OWN_KERNEL)):
        with tf.Graph().as_default():
            op, values = operations("AvgPool", (8, 36, 36, 256), attrs, dtype)[at]
            assert candidates(case_of(op, values))[0].name == first
