"""A convolution with bias and ReLU behind it gives what the three operations give, by whichever kernel.

What needs the extra `native` is skipped without it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings

import anabranch as tf
from anabranch import pipeline
from anabranch.core.kernels import candidates
from anabranch.ops import raw
from anabranch.xla import executable
from anabranch.xla.background import background
from anabranch.xla.variants import compile_log
from tests.device.kernels.conftest import need_bfloat16
from tests.device.kernels.test_convolutions import (
    TOLERANCES,
    case_of,
    check_agreement,
    convolutions_for,
    results_of_all,
)

SHAPE, FILTER = (2, 9, 8, 32), (3, 3, 32, 16)
CPU = tf.ConfigProto(device_count={"GPU": 0})


def values(shape: tuple[int, ...], seed: int, dtype: Any = np.float32) -> np.ndarray[Any, Any]:
    return np.random.default_rng(seed).normal(size=shape).astype(dtype)


def run(
    operands: list[np.ndarray[Any, Any]], directly: bool, layout: str = "NHWC", stride: int = 1
) -> list[np.ndarray[Any, Any]]:
    """A layer's result, and its gradients."""
    with tf.Graph().as_default(), tf.Session(config=CPU) as session:
        x, w, b = given = [tf.placeholder(one.dtype, one.shape) for one in operands]
        strides = [1, stride, stride, 1] if layout == "NHWC" else [1, 1, stride, stride]
        y = raw.BiasAdd(raw.Conv2D(x, w, strides=strides, padding="SAME", data_format=layout), b, data_format=layout)
        y = tf.nn.relu(y)
        weights = tf.constant(values(tuple(y.shape.as_list()), 3), y.dtype)
        fetches, fed = [y, *tf.gradients(y * weights, given)], dict(zip(given, operands, strict=True))
        for _ in range(1 if directly else 3):
            found = session.run(fetches, fed)
            background.wait(60)
        return found


def compare(found: list[Any], wanted: list[Any], tolerance: float) -> None:
    for one, other in zip(found, wanted, strict=True):
        assert one.dtype == other.dtype
        one, other = one.astype(np.float64), other.astype(np.float64)
        most = abs(other[np.isfinite(other)]).max(initial=1.0)
        np.testing.assert_allclose(one, other, atol=tolerance * most, rtol=0)


@pytest.mark.parametrize("is_native", [False, True])
@pytest.mark.parametrize("directly", [True, False])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16", "float64"])
@pytest.mark.parametrize(("layout", "stride"), [("NHWC", 2), ("NCHW", 1)])
def test_a_step_gives_what_the_three_operations_give(
    dtype: str,
    directly: bool,
    layout: str,
    stride: int,
    is_native: bool,
    monkeypatch: pytest.MonkeyPatch,
    request: pytest.FixtureRequest,
) -> None:
    if is_native:
        request.getfixturevalue("native")
    if not directly:
        monkeypatch.setattr(executable, "FIRST_DIRECT_CALLS", 0)
    of_type = tf.as_dtype(dtype).as_numpy_dtype
    shape = SHAPE if layout == "NHWC" else (2, 32, 9, 8)
    operands = [values(shape, 0, of_type), values(FILTER, 1, of_type), values(FILTER[-1:], 2, of_type)]
    fused = run(operands, directly, layout, stride)
    monkeypatch.setattr(pipeline, "fuse_bias", lambda step: step)
    apart = run(operands, directly, layout, stride)
    compare(fused, apart, TOLERANCES[dtype])


@pytest.mark.parametrize("special", [np.nan, np.inf])
@pytest.mark.parametrize("at", range(3))
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_what_is_no_number_is_not_lost(native: None, dtype: str, at: int, special: float) -> None:
    """In the data, the filter and the bias; by each kernel. Plain ReLU of the library makes zero of NaN."""
    if dtype == "bfloat16":
        need_bfloat16()
    of_type = tf.as_dtype(dtype).as_numpy_dtype
    operands = [abs(values(shape, seed)).astype(of_type) for seed, shape in enumerate((SHAPE, FILTER, FILTER[-1:]))]
    operands[at].flat[[3, operands[at].size // 2]] = special
    with tf.Graph().as_default(), np.errstate(all="ignore"):
        # (what of a filter multiplies padding alone, the library leaves out)
        op = raw._Conv2DBiasRelu(*operands, strides=[1, 1, 1, 1], padding="VALID").op
        results = results_of_all(op, operands)
    assert {"own", "onednn", "own at once", "onednn at once"} <= set(results)
    wanted = results["own"].astype(np.float32)
    assert not np.isfinite(wanted).all()
    for name, found in results.items():
        if name != "winograd":  # whose sums hold what the window does not see
            np.testing.assert_array_equal(np.isnan(found.astype(np.float32)), np.isnan(wanted), name)
            np.testing.assert_array_equal(np.isinf(found.astype(np.float32)), np.isinf(wanted), name)


def test_minus_infinity_becomes_no_number(native: None) -> None:
    """The library multiplies it by zero; a sum that has overflowed is lost either way."""
    operands = [values(SHAPE, 0), values(FILTER, 1), values(FILTER[-1:], 2)]
    operands[2][5] = -np.inf
    with tf.Graph().as_default():
        op = raw._Conv2DBiasRelu(*operands, strides=[1, 1, 1, 1], padding="SAME").op
        results = results_of_all(op, operands)
    assert (results["own"][..., 5] == 0).all()
    assert np.isnan(results["onednn"][..., 5]).all()
    assert np.isfinite(np.delete(results["onednn"], 5, -1)).all()


def test_what_is_negative_becomes_zero_without_a_sign(native: None) -> None:
    operands = [values(SHAPE, 0), values(FILTER, 1), values(FILTER[-1:], 2)]
    with tf.Graph().as_default():
        op = raw._Conv2DBiasRelu(*operands, strides=[1, 1, 1, 1], padding="SAME").op
        for found in results_of_all(op, operands).values():
            assert (found == 0).mean() > 0.3
            assert not np.signbit(found).any()


@pytest.mark.parametrize("kernel", ["product", "winograd", "onednn"])
def test_all_kernels_agree(native: None, kernel: str) -> None:
    """(The examples are the same in every run.)"""
    compared: set[tuple[str, str]] = set()

    @settings(max_examples=6)
    @given(convolutions_for(kernel).filter(lambda drawn: drawn[0] == 0))
    def compare_all(drawn: Any) -> None:
        _, shape, filter_shape, attrs, dtype = drawn
        of_type = tf.as_dtype(dtype).as_numpy_dtype
        operands = [values(one, 1, of_type) for one in (shape, filter_shape, filter_shape[-1:])]
        with tf.Graph().as_default():
            try:
                result = raw._Conv2DBiasRelu(*operands, **attrs)
            except ValueError:  # a VALID window larger than the data
                return
            if result.shape.num_elements():
                compared.update(check_agreement(result.op, operands, TOLERANCES[dtype]))

    compare_all()
    assert ("_Conv2DBiasRelu", kernel) in compared


def test_a_step_uses_the_library(native: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANABRANCH_KERNELS", "estimate")
    run([values((8, 28, 28, 64), 0), values((7, 7, 64, 64), 1), values((64,), 2)], directly=False)
    chosen = {choice.op_type: choice.chosen.name for choice in compile_log.events[-1].kernels.values()}
    assert chosen["_Conv2DBiasRelu"] == "onednn"


def test_a_bias_of_another_length_is_left_to_the_own_kernel(native: None) -> None:
    operands = [values(SHAPE, 0), values(FILTER, 1), values((1,), 2)]
    with tf.Graph().as_default():
        placeholders = [tf.placeholder(tf.float32) for _ in operands]
        op = raw._Conv2DBiasRelu(*placeholders, strides=[1, 1, 1, 1], padding="SAME").op
    assert [one.name for one in candidates(case_of(op, operands))] == ["own"]


def test_a_layer_in_a_loop() -> None:
    """A body that is compiled whole, and one that runs on the host, iteration by iteration; and the gradients."""
    x, w, b = values((1, 6, 6, 8), 0), values((3, 3, 8, 8), 1) / 8, values((8,), 2)
    found = []
    for fuse in (pipeline.fuse_bias, lambda step: step):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(pipeline, "fuse_bias", fuse)
            for host in (False, True):
                with tf.Graph().as_default(), tf.Session(config=CPU) as session:
                    filter = tf.constant(w)

                    def body(i: Any, y: Any, filter: Any = filter, host: bool = host) -> Any:
                        y = tf.nn.relu(tf.nn.bias_add(tf.nn.conv2d(y, filter, [1, 1, 1, 1], "SAME"), b))
                        if host:
                            shape, y = y.shape, tf.py_func(lambda z: z, [y], tf.float32)
                            y.set_shape(shape)
                        return i + 1, y

                    _, y = tf.while_loop(lambda i, y: i < 3, body, [0, tf.constant(x)])
                    fetches = [y] if host else [y, *tf.gradients(y, filter)]
                    found.append(session.run(fetches))
    for fused, apart in zip(found[:2], found[2:], strict=True):
        compare(fused, apart, 1e-5)
