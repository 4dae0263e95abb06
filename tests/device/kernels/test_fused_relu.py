"""Normalization of batches with ReLU behind it gives what the two operations give, by whichever kernel.

What needs the extra `native` is skipped without it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import anabranch as tf
from anabranch import pipeline
from anabranch.core.kernels import candidates
from anabranch.kernels import pool_stages
from anabranch.ops import raw
from anabranch.xla import executable
from anabranch.xla.background import background
from anabranch.xla.variants import compile_log
from tests.device.kernels.conftest import need_bfloat16
from tests.device.kernels.test_convolutions import case_of
from tests.device.kernels.test_native_normalization import TOLERANCES, any_batches, results

SHAPE = (4, 6, 6, 32)


def layer(dtype: str, shape: tuple[int, ...] = SHAPE, added: bool = False) -> tuple[list[Any], Any]:
    """A layer's result, its mean and variance, and its gradients; and the placeholder of its data.

    Args:
        added: whether something is added before the ReLU, as in a residual network.
    """
    channels = shape[-1]
    x = tf.placeholder(dtype, shape)
    scale = tf.get_variable("scale", [channels], initializer=tf.random_uniform_initializer(0.5, 2, seed=1))
    offset = tf.get_variable("offset", [channels], initializer=tf.random_uniform_initializer(-1, 1, seed=2))
    side = x * tf.constant(0.5, dtype)
    y, mean, variance = tf.nn.fused_batch_norm(x, scale, offset)
    y = tf.nn.relu(y + side if added else y)
    weights = tf.constant(np.random.default_rng(3).normal(size=shape), dtype)
    return [y, mean, variance, *tf.gradients(tf.reduce_sum(y * weights), [x, scale, offset])], x


def run(dtype: str, data: np.ndarray[Any, Any], directly: bool, added: bool) -> list[np.ndarray[Any, Any]]:
    with tf.Graph().as_default(), tf.Session(config=tf.ConfigProto(device_count={"GPU": 0})) as session:
        fetches, x = layer(dtype, data.shape, added)
        session.run(tf.global_variables_initializer())
        if directly:
            return session.run(fetches, {x: data})
        for _ in range(3):
            found = session.run(fetches, {x: data})
            background.wait(60)
        return found


def data_of(dtype: str, *strange: float, shape: tuple[int, ...] = SHAPE) -> np.ndarray[Any, Any]:
    data = np.random.default_rng(0).normal(1, 2, shape).astype(np.float32)
    for channel, number in enumerate(strange):
        data[1, 2, 3, 5 * channel] = number
    return data.astype(tf.as_dtype(dtype).as_numpy_dtype)


def compare(found: list[Any], wanted: list[Any], tolerance: float) -> None:
    for one, other in zip(found, wanted, strict=True):
        one, other = one.astype(np.float64), other.astype(np.float64)
        most = abs(other[np.isfinite(other)]).max(initial=1.0)
        np.testing.assert_allclose(one, other, atol=tolerance * most, rtol=0)


@pytest.mark.parametrize("strange", [(), (np.nan, np.inf, -np.inf, 3e38)])
@pytest.mark.parametrize("directly", [True, False])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
@pytest.mark.parametrize("added", [False, True])
def test_a_step_gives_what_the_operations_give(
    added: bool, dtype: str, directly: bool, strange: tuple[float, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """In each of the ways in which a step runs; where a number is none, or infinite, too."""
    if not directly:
        monkeypatch.setattr(executable, "FIRST_DIRECT_CALLS", 0)
    with np.errstate(all="ignore"):
        data = data_of(dtype, *strange)
        fused = run(dtype, data, directly, added)
        monkeypatch.setattr(pipeline, "fuse_relu", lambda step: step)
        apart = run(dtype, data, directly, added)
    if strange:
        assert np.isnan(apart[0].astype(np.float32)).any()
    for one, other in zip(fused, apart, strict=True):
        assert one.dtype == other.dtype
    compare(fused, apart, TOLERANCES.get(dtype, 1e-2))


@pytest.mark.parametrize("special", [np.nan, np.inf])
@pytest.mark.parametrize("at", ["scale", "offset"])
@pytest.mark.parametrize("directly", [True, False])
def test_what_is_no_number_comes_from_a_scale_or_an_offset(
    at: str, special: float, directly: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not directly:
        monkeypatch.setattr(executable, "FIRST_DIRECT_CALLS", 0)
    found = []
    for fuse in (pipeline.fuse_relu, lambda step: step):
        monkeypatch.setattr(pipeline, "fuse_relu", fuse)
        with tf.Graph().as_default(), tf.Session(config=tf.ConfigProto(device_count={"GPU": 0})) as session:
            fetches, x = layer("float32")
            session.run(tf.global_variables_initializer())
            (variable,) = (v for v in tf.global_variables() if v.op.name == at)
            changed = session.run(variable)
            changed[3] = special
            variable.load(changed, session)
            with np.errstate(all="ignore"):
                found.append(session.run(fetches[:3], {x: data_of("float32")}))
            background.wait(60)
    assert not np.isfinite(found[1][0][..., 3]).all()
    compare(*found, TOLERANCES["float32"])


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("directly", [True, False])
def test_large_residual_layers_are_summed_as_elsewhere(
    dtype: str, directly: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where a first step takes other ways through large arrays of bfloat16."""
    if not directly:
        monkeypatch.setattr(executable, "FIRST_DIRECT_CALLS", 0)
    data = data_of(dtype, shape=(4, 28, 28, 64))
    fused = run(dtype, data, directly, added=True)
    monkeypatch.setattr(pipeline, "fuse_relu", lambda step: step)
    compare(fused, run(dtype, data, directly, added=True), TOLERANCES.get(dtype, 1e-2))


@pytest.mark.parametrize(("added", "name"), [(False, "_FusedBatchNormRelu"), (True, "_FusedBatchNormAddRelu")])
def test_a_step_uses_the_library_both_ways(
    added: bool, name: str, native: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANABRANCH_KERNELS", "estimate")
    shape = (8, 28, 28, 64)
    with tf.Session(config=tf.ConfigProto(device_count={"GPU": 0})) as session:
        fetches, x = layer("float32", shape, added)
        session.run(tf.global_variables_initializer())
        for _ in range(3):
            session.run(fetches, {x: np.random.default_rng(0).normal(size=shape)})
            background.wait(60)
    chosen = {choice.op_type: choice.chosen.name for choice in compile_log.events[-1].kernels.values()}
    assert chosen == {name: "onednn", f"{name}Grad": "onednn"}


@pytest.mark.parametrize("dtype", TOLERANCES)
def test_the_library_gives_what_the_own_kernels_give(native: None, dtype: str) -> None:
    """(The examples are the same in every run.)"""
    if dtype == "bfloat16":
        need_bfloat16()
    numpy_type = tf.as_dtype(dtype).as_numpy_dtype

    @settings(max_examples=6)
    @given(any_batches().filter(lambda drawn: drawn[0] == "V3"), st.integers(0, 1000))
    def check(drawn: Any, seed: int) -> None:
        _, shape, attrs = drawn
        rng = np.random.default_rng(seed)
        channel = 1 if attrs["data_format"].startswith("NC") else len(shape) - 1
        x, grad = (rng.normal(1, 2, shape).astype(numpy_type) for _ in range(2))
        scale, offset, mean, variance = (rng.uniform(-1, 2, shape[channel]).astype(np.float32) for _ in range(4))
        with tf.Graph().as_default():
            forward = raw._FusedBatchNormRelu(x, scale, offset, mean, variance, **attrs)[0].op
            found = results(forward, [x, scale, offset, mean, variance])
            assert set(found) >= {"own", "own at once"}
            for name, arrays in found.items():
                compare(arrays[:5], found["own"][:5], TOLERANCES[dtype])
                if not name.startswith("onednn"):
                    continue
                # the gradient by the library takes what the library has written down
                y, positive = arrays[0], arrays[-1]
                assert positive.shape == (-(-x.size // 8),)
                kept = {key: attrs[key] for key in ("epsilon", "data_format")}
                given_back = [grad, x, scale, arrays[3], arrays[4], y, positive]
                backward = raw._FusedBatchNormReluGrad(*given_back, **kept)[0].op
                gradients = results(backward, given_back)
                assert set(gradients) == {"own", "own at once", "onednn", "onednn at once"}
                for others in gradients.values():
                    compare(others[:3], gradients["own"][:3], TOLERANCES[dtype])

    check()


def test_what_the_own_kernel_computed_the_library_does_not_go_on_with(native: None) -> None:
    x = np.ones(SHAPE, np.float32)
    vector = np.ones(SHAPE[-1], np.float32)
    nothing = np.zeros(0, np.uint8)
    backward = raw._FusedBatchNormReluGrad(x, x, vector, vector, vector, x, nothing)[0].op
    assert [one.name for one in candidates(case_of(backward, [x, x, vector, vector, vector, x, nothing]))] == ["own"]


def test_what_is_added_may_be_repeated() -> None:
    """Where lengths were open when the step was rewritten."""
    with tf.Graph().as_default(), tf.Session(config=tf.ConfigProto(device_count={"GPU": 0})) as session:
        x, side = (tf.placeholder(tf.float32, [None, 4, 4, 3]) for _ in range(2))
        ones = tf.ones([3])
        y = tf.nn.relu(tf.raw_ops.FusedBatchNormV3(x=x, scale=ones, offset=ones, mean=[], variance=[])[0] + side)
        data = np.random.default_rng(0).normal(size=(2, 4, 4, 3)).astype(np.float32)
        for one, other in ((data, data[:1]), (data[:1], data), (data, data)):
            normal = (one - one.mean((0, 1, 2))) / np.sqrt(one.var((0, 1, 2)) + 1e-4) + 1
            for _ in range(3):
                found = session.run(y, {x: one, side: other})
                np.testing.assert_allclose(found, np.maximum(normal + other, 0), atol=1e-5)
                background.wait(60)


@pytest.mark.parametrize("dtype", TOLERANCES)
@pytest.mark.parametrize("in_c", [False, True])
def test_with_a_sum_the_library_gives_what_the_own_kernels_give(
    in_c: bool, dtype: str, native: None, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a C compiler, and without."""
    if dtype == "bfloat16":
        need_bfloat16()
    if in_c:
        request.getfixturevalue("compiled")
    else:
        monkeypatch.setattr(pool_stages, "in_parts", lambda text: None)
    numpy_type = tf.as_dtype(dtype).as_numpy_dtype

    @settings(max_examples=6)
    @given(any_batches().filter(lambda drawn: drawn[0] == "V3"), st.integers(0, 1000))
    def check(drawn: Any, seed: int) -> None:
        _, shape, attrs = drawn
        rng = np.random.default_rng(seed)
        channel = 1 if attrs["data_format"].startswith("NC") else len(shape) - 1
        x, side, grad = (rng.normal(1, 2, shape).astype(numpy_type) for _ in range(3))
        scale, offset, mean, variance = (rng.uniform(-1, 2, shape[channel]).astype(np.float32) for _ in range(4))
        with tf.Graph().as_default():
            forward = raw._FusedBatchNormAddRelu(x, scale, offset, mean, variance, side, **attrs)[0].op
            found = results(forward, [x, scale, offset, mean, variance, side])
            assert set(found) == {"own", "own at once", "onednn", "onednn at once"}
            for arrays in found.values():
                compare(arrays[:5], found["own"][:5], TOLERANCES[dtype])
                y, positive = arrays[0], arrays[-1]
                kept = {key: attrs[key] for key in ("epsilon", "data_format")}
                given_back = [grad, x, scale, arrays[3], arrays[4], y, positive]
                backward = raw._FusedBatchNormAddReluGrad(*given_back, **kept)[0].op
                gradients = results(backward, given_back)
                assert {"own", "onednn"} <= set(gradients)
                for others in gradients.values():
                    for at in (slice(0, 3), slice(5, 6)):
                        compare(others[at], gradients["own"][at], TOLERANCES[dtype])

    check()


def test_a_gradient_without_a_compiler_goes_on_with_what_was_written_down(
    compiled: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The normalization may have run in another process, which has one."""
    shape = (4, 14, 14, 64)
    rng = np.random.default_rng(0)
    x, side, grad = (rng.normal(size=shape).astype(np.float32) for _ in range(3))
    vectors = [rng.uniform(0.5, 1, shape[-1]).astype(np.float32) for _ in range(4)]
    with tf.Graph().as_default():
        forward = raw._FusedBatchNormAddRelu(x, *vectors, side)[0].op
        found = results(forward, [x, *vectors, side])
        if "onednn" not in found:
            pytest.skip("oneDNN does not normalize here")
        y, *_, mean, variance, _, positive = found["onednn"]
        given_back = [grad, x, vectors[0], mean, variance, y, positive]
        backward = raw._FusedBatchNormAddReluGrad(*given_back)[0].op
        with_it = results(backward, given_back)
        monkeypatch.setattr(pool_stages, "in_parts", lambda text: None)
        without = results(backward, given_back)
    for name in ("onednn", "onednn at once"):
        for gradients in (with_it[name], without[name]):
            for at in (slice(0, 3), slice(5, 6)):
                compare(gradients[at], with_it["own"][at], TOLERANCES["float32"])
