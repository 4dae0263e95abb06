"""oneDNN's maxima and their gradients from places are XLA's, also of equal maxima, of NaN and of infinities.

What needs the extra `native` is skipped without it.
"""

from __future__ import annotations

import math
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from jax import numpy as jnp

import anabranch as tf
from anabranch import pipeline
from anabranch.core.kernel_context import KernelContext
from anabranch.core.kernels import OWN_KERNEL, alternates, candidates, immediate
from anabranch.graph.kernel_binding import BoundKernel
from anabranch.kernels import MODULES, native_maxima
from anabranch.ops import raw
from anabranch.xla import executable
from anabranch.xla.background import background
from anabranch.xla.variants import compile_log
from tests.device.kernels.conftest import need_bfloat16
from tests.device.kernels.test_convolutions import at_once, case_of, results_of_all
from tests.device.kernels.test_native_normalization import results
from tests.device.kernels.test_native_pooling import TOLERANCES, any_pooling

BFLOAT16 = ml_dtypes.bfloat16
KERNELS = {OWN_KERNEL, "onednn", at_once(OWN_KERNEL), at_once("onednn")}
CPU = tf.ConfigProto(device_count={"GPU": 0})
PLAIN: dict[str, Any] = {"ksize": [1, 3, 3, 1], "strides": [1, 2, 2, 1], "padding": "SAME"}


def values(shape: tuple[int, ...], seed: int, dtype: Any = np.float32, special: float | None = None) -> Any:
    found = np.random.default_rng(seed).normal(size=shape).astype(dtype)
    if special is not None:
        found.flat[[0, found.size // 2, found.size - 1]] = special
        found[0, :5, :5] = special  # windows that see nothing else
    return found


def test_the_kernels_are_announced() -> None:
    """What is not announced would never be loaded."""
    for op_type in MODULES[native_maxima.__name__]:
        assert [one.name for one in alternates(op_type)] == ["onednn"]


def check(x: Any, grad: Any, attrs: dict[str, Any], tolerance: float) -> None:
    """Compares all kernels of both operations, the gradients with places as each kernel gives them."""
    first = attrs.get("data_format") == "NCHW"
    sums = math.prod(-(-size // stride) for size, stride in zip(attrs["ksize"], attrs["strides"], strict=True))
    is_exact = x.dtype != BFLOAT16 or first or sums <= 9
    with tf.Graph().as_default():
        placed = results(raw._MaxPoolWithPlaces(x, **attrs)[0].op, [x])
        assert set(placed) == KERNELS
        maxima = placed[OWN_KERNEL][0]
        for found, _ in placed.values():
            assert found.dtype == x.dtype
            np.testing.assert_array_equal(found.astype(np.float32), maxima.astype(np.float32))
        gradients = []
        for _, places in placed.values():
            given_back = [x, maxima, grad, places]
            op = raw._MaxPoolGradAtPlaces(*given_back, **attrs).op
            found = results_of_all(op, given_back)
            # (sums of bfloat16 that would be rounded too often are not offered)
            assert set(found) == (KERNELS if is_exact else {OWN_KERNEL, at_once(OWN_KERNEL)})
            gradients += found.values()
    wanted = gradients[0].astype(np.float64)
    for found in gradients:
        bound = tolerance * np.abs(wanted).max(initial=1.0)
        np.testing.assert_allclose(found.astype(np.float64), wanted, rtol=0, atol=bound)


@pytest.mark.parametrize("dtype", TOLERANCES)
def test_results_are_those_of_the_own_kernels(native: None, dtype: str) -> None:
    """(The examples are the same in every run.)"""
    if dtype == "bfloat16":
        need_bfloat16()
    of_type = tf.as_dtype(dtype).as_numpy_dtype

    @settings(max_examples=4)
    @given(any_pooling("MaxPool"), st.integers(0, 1000))
    def compare(drawn: Any, seed: int) -> None:
        _, shape, attrs, levels = drawn
        rng = np.random.default_rng(seed)
        x = (rng.integers(0, levels + 1, shape) if levels else rng.normal(size=shape)).astype(of_type)
        with tf.Graph().as_default():
            pooled = raw.MaxPool(x, **attrs).shape.as_list()
        check(x, rng.normal(size=pooled).astype(of_type), attrs, TOLERANCES[dtype])

    compare()


@pytest.mark.parametrize("dtype", [np.float32, BFLOAT16])
@pytest.mark.parametrize("special", [np.inf, -np.inf, np.nan, -np.nan])
@pytest.mark.parametrize("layout", ["NHWC", "NCHW"])
def test_what_is_no_finite_number(native: None, dtype: Any, special: float, layout: str) -> None:
    """The gradient of a window whose maximum is no number is zero."""
    if dtype == BFLOAT16:
        need_bfloat16()
    if layout == "NHWC":
        check(values((2, 17, 16, 32), 1, dtype, special), values((2, 9, 8, 32), 2, dtype), PLAIN, 1e-2)
    else:
        first = {"ksize": [1, 1, 3, 3], "strides": [1, 1, 2, 2], "padding": "SAME", "data_format": "NCHW"}
        check(values((2, 32, 17, 16), 1, dtype, special), values((2, 32, 9, 8), 2, dtype), first, 1e-2)


def trained(x: Any, directly: bool) -> tuple[list[Any], dict[str, str]]:
    """Maxima and their gradient in a step; and which kernels a compiled one has chosen."""
    with tf.Graph().as_default(), tf.Session(config=CPU) as session:
        fed = tf.placeholder(x.dtype, x.shape)
        y = raw.MaxPool(fed, **PLAIN)
        fetches = [y, *tf.gradients(y * y, fed)]
        for _ in range(1 if directly else 3):
            found = session.run(fetches, {fed: x})
            background.wait(60)
        chosen = {}
        if not directly:
            chosen = {one.op_type: one.chosen.name for one in compile_log.events[-1].kernels.values()}
    return found, chosen


@pytest.mark.parametrize("directly", [True, False])
@pytest.mark.parametrize("dtype", [np.float32, BFLOAT16])
@pytest.mark.parametrize("special", [None, np.nan])
def test_a_step_gives_what_the_operations_give(
    native: None, dtype: Any, special: float | None, directly: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if dtype == BFLOAT16:
        need_bfloat16()
    monkeypatch.setenv("ANABRANCH_KERNELS", "estimate")
    if not directly:
        monkeypatch.setattr(executable, "FIRST_DIRECT_CALLS", 0)
    x = values((8, 41, 40, 64), 1, dtype, special)
    placed, chosen = trained(x, directly)
    if not directly:
        assert chosen == {"_MaxPoolWithPlaces": "onednn", "_MaxPoolGradAtPlaces": "onednn"}
    monkeypatch.setattr(pipeline, "place_maxima", lambda step: step)
    monkeypatch.setenv("ANABRANCH_NATIVE", "0")
    apart, _ = trained(x, directly)
    for found, wanted in zip(placed, apart, strict=True):
        np.testing.assert_allclose(found.astype(np.float64), wanted.astype(np.float64), rtol=2e-2, atol=1e-2)


def test_without_the_library_a_step_gives_the_same() -> None:
    x = values((2, 9, 9, 8), 1)
    found = []
    for place in (pipeline.place_maxima, lambda step: step):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(pipeline, "place_maxima", place)
            found += [trained(x, directly)[0] for directly in (True, False)]
    for one in found[1:]:
        for a, b in zip(one, found[0], strict=True):
            np.testing.assert_array_equal(a, b)


def offered(op_type: str, x: Any, **changed: Any) -> bool:
    with tf.Graph().as_default():
        op = getattr(raw, op_type)(x, **{**PLAIN, **changed})
        op = op[0].op if op_type == "_MaxPoolWithPlaces" else op.op
    return "onednn" in {one.name for one in candidates(case_of(op, [x]))}


def test_what_the_library_cannot_do_is_not_offered(native: None) -> None:
    """Windows along channels; windows that may lie in the padding alone; and maxima alone are XLA's in programs."""
    x, placed = values((2, 9, 9, 16), 1), "_MaxPoolWithPlaces"
    assert offered(placed, x)
    assert not offered(placed, x, ksize=[1, 1, 1, 4], strides=[1, 1, 1, 4])
    assert not offered(placed, x, padding="EXPLICIT", explicit_paddings=[0, 0, 3, 0, 0, 0, 0, 0])
    assert not offered("MaxPool", values((8, 41, 40, 64), 1))


@pytest.mark.parametrize("dtype", [np.float32, BFLOAT16])
@pytest.mark.parametrize("special", [None, np.inf, -np.inf, np.nan])
@pytest.mark.parametrize("padding", ["SAME", "VALID"])
def test_maxima_alone_at_once(native: None, dtype: Any, special: float | None, padding: str) -> None:
    if dtype == BFLOAT16:
        need_bfloat16()
    x = values((2, 40, 41, 32), 1, dtype, special)
    with tf.Graph().as_default():
        op = raw.MaxPool(x, **{**PLAIN, "padding": padding}).op
    kernel = immediate(case_of(op, [x]))
    assert kernel is not None
    found, wanted = (
        BoundKernel(op, rule, jnp, KernelContext(op))([x], xp=np) for rule in (kernel.rule, op.op_def.compiled_rule)
    )
    assert found.dtype == x.dtype
    np.testing.assert_array_equal(found.astype(np.float32), wanted.astype(np.float32))


def test_places_of_another_window_are_not_taken(native: None) -> None:
    """The maxima are found again."""
    x, grad = values((2, 9, 9, 16), 1), values((2, 5, 5, 16), 3)
    with tf.Graph().as_default():
        maxima = results(raw._MaxPoolWithPlaces(x, **PLAIN)[0].op, [x])[OWN_KERNEL][0]
        for length in (0, 2 * 5 * 5 * 16, 2 * 5 * 5 * 16 + 2):
            given_back = [x, maxima, grad, np.zeros(length, np.uint8)]
            found = results_of_all(raw._MaxPoolGradAtPlaces(*given_back, **PLAIN).op, given_back)
            assert set(found) == KERNELS
            for one in found.values():
                np.testing.assert_allclose(one, found[OWN_KERNEL], rtol=1e-6, atol=1e-6)
