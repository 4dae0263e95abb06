"""oneDNN's normalization of batches is the operation's own, in training, and so is its gradient.

What needs the extra `native` is skipped without it.
"""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from jax import numpy as jnp

import anabranch as tf
from anabranch.core.kernel_context import KernelContext
from anabranch.core.kernels import alternates, candidates
from anabranch.graph.kernel_binding import BoundKernel
from anabranch.kernels import MODULES, native_normalization
from anabranch.ops import raw
from anabranch.xla.jax_settings import in_wide_types
from anabranch.xla.variants import compile_log
from tests.device.kernels.conftest import need_bfloat16
from tests.device.kernels.test_convolutions import case_of

#: how far results may lie from the own kernel's, as a share of the largest
TOLERANCES = {"float32": 2e-5, "bfloat16": 1e-2}
#: numbers of results that are compared: the third reserved output of V3 is no result, nor are the gradient's spare ones
COMPARED = {"FusedBatchNorm": 5, "FusedBatchNormGrad": 3}


def test_the_kernels_are_announced() -> None:
    """What is not announced would never be loaded."""
    announced = MODULES[native_normalization.__name__]
    # and those with ReLU, which have one version
    assert len(announced) == 2 * len(native_normalization.VERSIONS) + 2
    for op_type in announced:
        assert [one.name for one in alternates(op_type)] == ["onednn"]


@st.composite
def any_batches(draw: Any) -> tuple[str, tuple[int, ...], dict[str, Any]]:
    version = draw(st.sampled_from(native_normalization.VERSIONS))
    rank = draw(st.integers(2, 3)) if version == "V3" else 2
    lengths = draw(st.tuples(*[st.integers(1, 7)] * rank))
    batch, channels = draw(st.integers(1, 4)), draw(st.sampled_from([1, 3, 8, 16, 17, 40, 64]))
    first = draw(st.booleans())
    formats = {2: ("NHWC", "NCHW"), 3: ("NDHWC", "NCDHW")}[rank]
    attrs = {
        "epsilon": draw(st.sampled_from([1e-3, 0.1])),
        "data_format": formats[first],
        "exponential_avg_factor": draw(st.sampled_from([1.0, 0.1])),
    }
    return version, (batch, channels, *lengths) if first else (batch, *lengths, channels), attrs


def results(op: Any, values: list[np.ndarray[Any, Any]]) -> dict[str, list[np.ndarray[Any, Any]]]:
    """What each kernel gives, in a compiled program and of NumPy's arrays."""
    found: dict[str, list[np.ndarray[Any, Any]]] = {}
    for one in candidates(case_of(op, values)):
        rule = op.op_def.compiled_rule if one.kernel is None else one.kernel.rule
        bound = BoundKernel(op, rule, jnp, KernelContext(op))
        found[one.name] = [
            np.asarray(array) for array in in_wide_types(jax.jit(lambda *v, b=bound: b(list(v))), *values)
        ]
        found[f"{one.name} at once"] = bound(values, xp=np)
    return found


def check(op: Any, values: list[np.ndarray[Any, Any]], tolerance: float) -> set[str]:
    """Compares; returns which kernels there were."""
    found = results(op, values)
    count = COMPARED[op.type.removesuffix("V2").removesuffix("V3")]
    for name, arrays in found.items():
        assert [array.shape for array in arrays] == [array.shape for array in found["own"]], name
        for got, wanted in zip(arrays[:count], found["own"][:count], strict=True):
            one, other = got.astype(np.float64), wanted.astype(np.float64)
            np.testing.assert_allclose(one, other, atol=tolerance * max(1.0, abs(other).max()), rtol=0, err_msg=name)
    return set(found)


def operations(
    version: str, shape: tuple[int, ...], attrs: dict[str, Any], dtype: str
) -> list[tuple[Any, list[np.ndarray[Any, Any]]]]:
    """The normalization and its gradient, with their operands."""
    rng = np.random.default_rng(sum(shape))
    channels = shape[1 if attrs["data_format"].startswith("NC") else -1]
    of_type = tf.as_dtype(dtype if version else "float32").as_numpy_dtype
    x, grad = (rng.normal(1, 2, shape).astype(of_type) for _ in range(2))
    scale, offset, mean, variance = (rng.uniform(0.5, 2, channels).astype(np.float32) for _ in range(4))
    forward = getattr(raw, f"FusedBatchNorm{version}")(x, scale, offset, mean, variance, **attrs)
    kept = {name: attrs[name] for name in ("epsilon", "data_format")}
    reserved = [mean, variance, *([np.zeros((), np.float32)] if version == "V3" else [])]
    backward = getattr(raw, f"FusedBatchNormGrad{version}")(grad, x, scale, *reserved, **kept)
    return [
        (forward[0].op, [x, scale, offset, mean, variance]),
        (backward[0].op, [grad, x, scale, *reserved]),
    ]


@pytest.mark.parametrize("dtype", TOLERANCES)
def test_results_are_those_of_the_own_kernel(native: None, dtype: str) -> None:
    """(The examples are the same in every run.) The gradient's mean and variance are the batch's, as in a step."""
    if dtype == "bfloat16":
        need_bfloat16()

    @settings(max_examples=4)
    @given(any_batches())
    def compare(drawn: Any) -> None:
        with tf.Graph().as_default():
            (forward, values), (backward, given_back) = operations(*drawn, dtype)
            names = check(forward, values, TOLERANCES[dtype])
            _, shape, attrs = drawn
            x = values[0].astype(np.float32)
            axes = tuple(
                a for a in range(len(shape)) if a != (1 if attrs["data_format"].startswith("NC") else x.ndim - 1)
            )
            given_back[3], given_back[4] = x.mean(axes), x.var(axes)
            assert names == check(backward, given_back, TOLERANCES[dtype])
            assert names == {"own", "own at once", "onednn", "onednn at once"}

    compare()


def test_no_number_is_passed_on(native: None) -> None:
    """Where a channel holds NaN or infinity, that channel of all results is NaN, and the others are what they were."""
    with tf.Graph().as_default():
        attrs = {"epsilon": 1e-3, "data_format": "NHWC", "exponential_avg_factor": 1.0}
        (forward, values), _ = operations("V3", (2, 3, 3, 16), attrs, "float32")
        values[0][0, 0, 0, 3], values[0][1, 2, 2, 7] = np.nan, np.inf
        with np.errstate(invalid="ignore"):  # as sessions do
            found = results(forward, values)
    for name, (y, mean, variance, *_) in found.items():
        lost = np.isnan(y).any(axis=(0, 1, 2))
        assert lost.nonzero()[0].tolist() == [3, 7], name
        assert np.isnan([mean[3], variance[3], variance[7]]).all(), name


def test_what_does_not_train_is_not_offered(native: None) -> None:
    with tf.Graph().as_default():
        attrs = {"epsilon": 1e-3, "data_format": "NHWC", "exponential_avg_factor": 1.0}
        for training, wanted in ((True, {"own", "onednn"}), (False, {"own"})):
            for op, values in operations("V3", (2, 3, 3, 16), {**attrs, "is_training": training}, "float32"):
                if op.type == "FusedBatchNormV3" or training:
                    assert {one.name for one in candidates(case_of(op, values))} == wanted


def test_a_step_uses_it(native: None) -> None:
    """In a training step, the estimates give it the normalization and its gradient."""
    rng = np.random.default_rng(0)
    x = tf.placeholder(tf.float32, [8, 14, 14, 64])
    scale, offset = (tf.get_variable(name, [64], initializer=tf.ones_initializer()) for name in ("scale", "offset"))
    y = tf.nn.fused_batch_norm(x, scale, offset)[0]
    grads = tf.gradients(tf.reduce_sum(y * y), [x, scale, offset])
    data = rng.normal(size=x.shape.as_list()).astype(np.float32)
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        found = [session.run([y, *grads], {x: data}) for _ in range(3)][-1]
    normal = (data - data.mean((0, 1, 2))) / np.sqrt(data.var((0, 1, 2)) + 1e-3)
    np.testing.assert_allclose(found[0], normal + 1, atol=1e-4)
    np.testing.assert_allclose(found[3], 2 * (normal + 1).sum((0, 1, 2)), rtol=1e-4)
    chosen = {choice.op_type: choice.chosen.name for choice in compile_log.events[-1].kernels.values()}
    assert chosen == {"FusedBatchNormV3": "onednn", "FusedBatchNormGradV3": "onednn"}
