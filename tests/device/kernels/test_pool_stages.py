"""Convolutions and pooling that XLA's threads compute in parts are those of the operations' own kernels.

What needs the extra `native` and a C compiler is skipped without them.
"""

from __future__ import annotations

import ctypes
import gc
import threading
import weakref
from dataclasses import replace
from typing import Any

import jax
import numpy as np
import pytest

import anabranch as tf
from anabranch.kernels import native_calls, native_convolutions, onednn, pool_convolutions, pool_handler, pool_stages
from anabranch.kernels.native_normalization import Normalization
from anabranch.kernels.native_pooling import GRADIENT_AT_PLACES, LARGEST, Pooling
from anabranch.ops.nn.conv import Geometry
from anabranch.ops.nn.pool import pool_window
from anabranch.xla.variants import compile_log
from tests.device.kernels import (
    test_fused_bias,
    test_fused_relu,
    test_native_convolutions,
    test_native_maxima,
    test_native_normalization,
    test_native_pooling,
)
from tests.device.kernels.conftest import need_bfloat16
from tests.device.kernels.test_convolutions import TOLERANCES, check_agreement, operations

FORWARD, TO_INPUT, TO_FILTER = range(3)


def text_of(direction: int, batch: int = 4, dtype: str = "float32", side: int = 9) -> str:
    """A convolution with 3x3 windows, of 8 channels to 16."""
    attrs = {"strides": [1, 1, 1, 1], "padding": b"SAME", "dilations": [1, 1, 1, 1], "data_format": b"NHWC"}
    geometry = Geometry(attrs, (batch, side, side, 8), (3, 3, 8, 16), False)
    return native_convolutions.described_of(geometry, direction, False, dtype)[1]


def parts_of(text: str) -> int:
    found = pool_stages.in_parts(text)
    return 0 if found is None else int(found.split()[1])


# ---------------------------------------------------------------------- agreement
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("kind", range(3))
def test_convolutions(parts: None, kind: int, dtype: str) -> None:
    test_native_convolutions.test_results_are_those_of_xla(None, kind, dtype)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize(
    ("size", "channels", "depth", "strides"),
    [(1, 260, 400, 1), (1, 2048, 96, 1), (3, 200, 330, 1), (1, 512, 512, 2), (3, 64, 1040, 2)],
)
def test_convolutions_with_large_filters(
    parts: None, size: int, channels: int, depth: int, strides: int, dtype: str
) -> None:
    """The filter is copied, and sums for it are added up, in parts, whose last one is another size; so are blocks."""
    if dtype == "bfloat16":
        need_bfloat16()
    attrs = {"strides": [1, strides, strides, 1], "padding": "SAME"}
    compared: set[tuple[str, str]] = set()
    with tf.Graph().as_default():
        for op, values in operations(0, (4, 5, 6, channels), (size, size, channels, depth), attrs, dtype):
            compared |= check_agreement(op, values, TOLERANCES[dtype])
    assert {op_type for op_type, name in compared if name == "onednn"} >= {"Conv2D", "Conv2DBackpropInput"}


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_large_filters_are_copied_in_parts(parts: None, dtype: str) -> None:
    """Before the convolution, and after its gradient to the filter: no phase but those has so few."""
    if dtype == "bfloat16":
        need_bfloat16()
    attrs = {"strides": [1, 1, 1, 1], "padding": b"SAME", "dilations": [1, 1, 1, 1], "data_format": b"NHWC"}
    geometry = Geometry(attrs, (4, 9, 9, 512), (1, 1, 512, 512), False)
    for direction in range(3):
        text = pool_stages.in_parts(native_convolutions.described_of(geometry, direction, False, dtype)[1])
        assert text is not None
        plan = pool_stages.plan_of(text.encode()).structure
        phases = [plan.phases[at].end - plan.phases[at].first for at in range(plan.phase_count)]
        assert phases == [2, 2, 2] if direction == TO_FILTER else [4, 4]


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("op_type", [*test_native_pooling.AVERAGES, *test_native_pooling.MAXIMA])
def test_pooling(parts: None, op_type: str, dtype: str) -> None:
    test_native_pooling.test_results_are_those_of_xla(None, op_type, dtype)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_maxima_and_their_places(parts: None, dtype: str) -> None:
    test_native_maxima.test_results_are_those_of_the_own_kernels(None, dtype)


@pytest.mark.parametrize("dtype", [np.float32, test_native_maxima.BFLOAT16])
@pytest.mark.parametrize("special", [np.inf, -np.inf, np.nan, -np.nan])
@pytest.mark.parametrize("layout", ["NHWC", "NCHW"])
def test_what_is_no_finite_number(parts: None, dtype: Any, special: float, layout: str) -> None:
    test_native_maxima.test_what_is_no_finite_number(None, dtype, special, layout)


@pytest.mark.parametrize("levels", [0, 2])
@pytest.mark.parametrize(
    ("size", "strides", "padding"),
    [((3, 3), (2, 2), b"SAME"), ((3, 3), (1, 1), b"SAME"), ((2, 3), (2, 1), b"VALID"), ((5, 1), (3, 2), b"SAME")],
)
@pytest.mark.parametrize("channels", [16, 48, 64])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_places_are_the_library_s(
    parts: None, dtype: str, channels: int, size: Any, strides: Any, padding: bytes, levels: int
) -> None:
    """So that either way computes the gradient from the other's; of equal maxima (`levels`) the first has it."""
    if dtype == "bfloat16":
        need_bfloat16()
    shape, of_type = (4, 11, 13, channels), tf.as_dtype(dtype).as_numpy_dtype
    rng = np.random.default_rng(1)
    x = (rng.integers(0, levels, shape) if levels else rng.normal(size=shape)).astype(of_type)
    attrs = {"ksize": [1, *size, 1], "strides": [1, *strides, 1], "padding": padding, "data_format": b"NHWC"}
    window = pool_window(list(shape), attrs)
    one = Pooling.of(LARGEST, onednn.TYPES[dtype], window, b"NHWC")
    assert one is not None
    assert parts_of(one.text) == 4
    results = [(tuple(window.outputs), of_type), ((int(np.prod(window.outputs)) + 1,), np.uint8)]
    placed = jax.jit(lambda v: native_calls.call_several("pool", one.text, [v], results))(x)
    wide = native_calls.call_several("pool", one.text, [x], results)
    for found, wanted in zip(placed, wide, strict=True):
        np.testing.assert_array_equal(np.asarray(found).astype(np.float32), wanted.astype(np.float32))
    back = replace(one, what=GRADIENT_AT_PLACES).text
    given = [rng.integers(-3, 4, window.outputs).astype(of_type), wide[1], wide[0]]
    in_parts = jax.jit(lambda *v: native_calls.call("pool", back, v, shape, of_type))(*given)
    wanted = native_calls.call("pool", back, given, shape, of_type)
    np.testing.assert_array_equal(np.asarray(in_parts).astype(np.float32), wanted.astype(np.float32))


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_normalization(parts: None, dtype: str) -> None:
    test_native_normalization.test_results_are_those_of_the_own_kernel(None, dtype)
    test_fused_relu.test_the_library_gives_what_the_own_kernels_give(None, dtype)


def test_normalization_passes_on_what_is_no_number(parts: None) -> None:
    test_native_normalization.test_no_number_is_passed_on(None)


def normalized(x: Any, grad: Any, relu: bool) -> tuple[list[Any], list[Any]]:
    """A normalization and its gradient, in parts, with scales of 1 and offsets of 0.5; and both in float64."""
    channels = x.shape[-1]
    scale, offset = np.ones(channels, np.float32), np.full(channels, 0.5, np.float32)
    attrs = {"data_format": b"NHWC", "is_training": True, "epsilon": 1e-3}
    texts = []
    for backward in (False, True):
        one = Normalization.of(attrs, x.shape, x.dtype, backward, relu)
        assert one is not None
        assert parts_of(one.text) == 4
        texts.append(one.text)
    vector, whole = ((channels,), np.float32), (x.shape, x.dtype)
    mask = [((x.size // 8,), np.uint8)] if relu else []
    forward = jax.jit(lambda *v: native_calls.call_several("norm", texts[0], v, [whole, vector, vector, *mask]))
    backward_of = jax.jit(lambda *v: native_calls.call_several("norm", texts[1], v, [whole, vector, vector]))
    y, mean, variance, *positive = forward(x, scale, offset)
    found = [y, mean, variance, *backward_of(x, grad, mean, variance, scale, *positive)]
    wide, given = x.astype(np.float64), grad.astype(np.float64)
    normal = (wide - wide.mean((0, 1, 2))) / np.sqrt(wide.var((0, 1, 2)) + 1e-3)
    passed = given * (normal + 0.5 > 0) if relu else given
    to_scale, to_offset = (passed * normal).sum((0, 1, 2)), passed.sum((0, 1, 2))
    count = x.size // channels
    to_data = (passed - to_offset / count - normal * to_scale / count) / np.sqrt(wide.var((0, 1, 2)) + 1e-3)
    result = np.maximum(normal + 0.5, 0) if relu else normal + 0.5
    if relu:
        bits = np.unpackbits(np.asarray(positive[0]), bitorder="little").reshape(x.shape)
        assert (bits == (np.asarray(y).astype(np.float32) > 0)).all()
    return found, [result, wide.mean((0, 1, 2)), wide.var((0, 1, 2)), to_data, to_scale, to_offset]


@pytest.mark.parametrize("relu", [False, True])
@pytest.mark.parametrize("channels", [16, 48, 2064])
def test_normalizations_are_exact(parts: None, channels: int, relu: bool) -> None:
    """Rows that are no multiple of the parts, and of the blocks in which they are summed up."""
    rng = np.random.default_rng(channels)
    shape = (3, 41, 27, channels) if channels < 2000 else (3, 5, 7, channels)
    x, grad = (rng.normal(2, 3, shape).astype(np.float32) for _ in range(2))
    for one, wanted in zip(*normalized(x, grad, relu), strict=True):
        np.testing.assert_allclose(np.asarray(one), wanted, rtol=0, atol=2e-5 * max(1, np.abs(wanted).max()))


def test_variances_beside_large_means(parts: None) -> None:
    """Nothing is lost: sums of squares are taken around means."""
    rng = np.random.default_rng(0)
    x = rng.normal(1e3, 1, (4, 30, 31, 16)).astype(np.float32)
    found, wanted = normalized(x, x, False)
    np.testing.assert_allclose(np.asarray(found[2]), wanted[2], rtol=1e-4)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_sums_of_parts_are_float32(parts: None, dtype: str) -> None:
    """A gradient to a filter is as near to the exact sum as that of the library's own threads, and rounded once."""
    if dtype == "bfloat16":
        need_bfloat16()
    text, of_type = text_of(TO_FILTER, 8, dtype, 33), tf.as_dtype(dtype).as_numpy_dtype
    assert parts_of(text) == 2
    rng = np.random.default_rng(0)
    x, grad = (rng.normal(size=shape).astype(of_type) for shape in ((8, 33, 33, 8), (8, 33, 33, 16)))
    found, wide = (np.asarray(one).astype(np.float64) for one in results(text, [x, grad], (3, 3, 8, 16), of_type))
    padded = np.pad(x.astype(np.float64), ((0, 0), (1, 1), (1, 1), (0, 0)))
    exact = np.stack(
        [
            np.einsum("nhwc,nhwd->cd", padded[:, i : i + 33, j : j + 33], grad.astype(np.float64))
            for i in range(3)
            for j in range(3)
        ]
    ).reshape(3, 3, 8, 16)
    error = np.abs(found - exact).max()
    assert error <= max(1.5 * np.abs(wide - exact).max(), 1e-6 * np.abs(exact).max())


def results(text: str, given: list[Any], shape: tuple[int, ...], dtype: Any) -> tuple[Any, Any]:
    """What a program gives in parts, and what the library's own threads give."""
    call = jax.jit(lambda *values: native_calls.call("layer/conv", text, values, shape, dtype))
    return call(*given), native_calls.call("layer/conv", text, given, shape, dtype)


# ---------------------------------------------------------------------- which are cut
def test_a_batch_is_cut_into_equal_parts(parts: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Up to two for each core, one for each where they have sums of their own; none where a core would have none."""
    assert [parts_of(text_of(FORWARD, batch)) for batch in (8, 6, 5, 1)] == [4, 3, 0, 0]
    assert [parts_of(text_of(TO_FILTER, batch)) for batch in (8, 6, 5, 1)] == [2, 2, 0, 0]
    # too little work for two: one part, of one thread
    monkeypatch.setattr(pool_convolutions, "LEAST_PRODUCTS", 1 << 30)
    pool_stages.in_parts.cache_clear()
    assert parts_of(text_of(FORWARD, 5)) == 1


def test_without_a_handler_nothing_is_cut(parts: None, monkeypatch: pytest.MonkeyPatch) -> None:
    pool_stages.in_parts.cache_clear()
    monkeypatch.setattr(pool_handler, "missing", lambda: "there is no C compiler")
    assert parts_of(text_of(FORWARD)) == 0
    pool_stages.in_parts.cache_clear()


def test_many_cores_are_left_to_the_library(parts: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool_stages, "core_count", lambda: 64)
    assert parts_of(text_of(FORWARD)) == 0


# ---------------------------------------------------------------------- in a session
def failing(*_: Any) -> int:
    return 5


FAILS = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int, ctypes.c_void_p)(failing)


def test_a_step_runs_explains_and_survives_a_failure(parts: None) -> None:
    fetch, fed, wanted = test_native_convolutions.small_convolution()
    library = onednn.library()
    assert library is not None
    execute, set_data = library.execution_functions
    use = pool_handler.loaded(library).anabranch_pool_stages_use
    with tf.Session() as session:
        np.testing.assert_allclose(session.run(fetch, fed), wanted, rtol=1e-5)
        assert compile_log.events[-1].kernels["layer/conv"].chosen.name == "onednn"
        # a process that finds the program in the compile cache has to make the plan when it is called
        pool_stages.forget()
        np.testing.assert_allclose(session.run(fetch, fed), wanted, rtol=1e-5)
        use(*map(pool_handler.address, (FAILS, set_data, pool_stages.MAKE_PLAN)))
        try:
            with pytest.raises(tf.errors.InternalError, match=r"'layer/conv'.*it failed while it ran") as failure:
                session.run(fetch, fed)
        finally:
            use(*map(pool_handler.address, (execute, set_data, pool_stages.MAKE_PLAN)))
        assert failure.value.op is fetch.op
        np.testing.assert_allclose(session.run(fetch, fed), wanted, rtol=1e-5)


def test_a_plan_that_cannot_be_made_is_an_error(parts: None, monkeypatch: pytest.MonkeyPatch) -> None:
    fetch, fed, _ = test_native_convolutions.small_convolution()

    def refused(text: bytes) -> Any:
        raise onednn.NativeError("there is no such layout")

    with tf.Session() as session:
        session.run(fetch, fed)
        pool_stages.forget()
        monkeypatch.setattr(pool_stages, "plan_of", refused)
        with pytest.raises(tf.errors.InternalError, match=r"'layer/conv'.*there is no such layout"):
            session.run(fetch, fed)


@pytest.mark.parametrize("special", [np.nan, np.inf])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_bias_and_relu_are_computed_in_parts(parts: None, dtype: str, special: float) -> None:
    """NaN stays, as it does where the library's own threads compute."""
    for at in range(3):
        test_fused_bias.test_what_is_no_number_is_not_lost(None, dtype, at, special)


def test_threads_may_call_at_the_same_time(parts: None) -> None:
    """One plan serves one call after the other; several serve at the same time."""
    rng = np.random.default_rng(0)
    text, other = text_of(FORWARD, 8), text_of(FORWARD, 4)
    x, w = (rng.normal(size=shape).astype(np.float32) for shape in ((8, 9, 9, 8), (3, 3, 8, 16)))
    calls = [
        (jax.jit(lambda *v: native_calls.call("conv", text, v, (8, 9, 9, 16), np.float32)), (x, w)),
        (jax.jit(lambda *v: native_calls.call("conv", other, v, (4, 9, 9, 16), np.float32)), (x[:4], w)),
    ]
    wanted = [np.asarray(call(*given)) for call, given in calls]
    agreed: list[bool] = []

    def work(at: int) -> None:
        call, given = calls[at % 2]
        agreed.extend(np.array_equal(np.asarray(call(*given)), wanted[at % 2]) for _ in range(50))

    threads = [threading.Thread(target=work, args=(at,)) for at in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert agreed == [True] * 200


def test_plans_are_bounded(parts: None, monkeypatch: pytest.MonkeyPatch) -> None:
    pool_stages.forget()
    monkeypatch.setattr(pool_stages, "_MOST_PLANS", 2)
    for batch in (2, 4, 6, 8):
        assert pool_stages.in_parts(text_of(FORWARD, batch)) is not None
    assert len(pool_stages._plans) == 2


def test_a_plan_that_the_handler_is_about_to_use_stays(parts: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """It asks for a plan, and writes down that it uses it a moment later; meanwhile other plans may take its place."""
    pool_stages.forget()
    monkeypatch.setattr(pool_stages, "_MOST_PLANS", 1)
    text, another = (str(pool_stages.in_parts(text_of(FORWARD, batch))) for batch in (2, 4))
    structure = weakref.ref(pool_stages.plan_of(text.encode()).structure)
    pool_stages.plan_of(another.encode())
    assert list(pool_stages._plans) == [another.encode()]
    gc.collect()
    assert structure() is not None


# ---------------------------------------------------------------------- bad calls
def called(given: list[Any], results: list[tuple[tuple[int, ...], Any]], **attributes: Any) -> Any:
    described = tuple(jax.ShapeDtypeStruct(*one) for one in results)  # type: ignore[no-untyped-call]
    call = jax.ffi.ffi_call(pool_handler.STAGES_TARGET, described)
    return jax.block_until_ready(jax.jit(lambda *values: call(*values, **attributes))(*given))


def test_a_bad_call_is_an_error(parts: None) -> None:
    """Never a crash; the error names the operation, if the call does."""
    text = text_of(FORWARD)
    plan = pool_stages.in_parts(text)
    x, w = np.ones((4, 9, 9, 8), np.float32), np.ones((3, 3, 8, 16), np.float32)
    y, memory = ((4, 9, 9, 16), np.float32), ((pool_stages.plan_of(str(plan).encode()).scratch_bytes,), np.uint8)
    results(text, [x, w], *y)  # which tells the handler what it calls
    failure = jax.errors.JaxRuntimeError
    with pytest.raises(failure, match=r"'conv'.*are others"):
        called([x[:2], w], [y, memory], node="conv", plan=plan)
    with pytest.raises(failure, match=r"'conv'.*are others"):
        called([x], [y, memory], node="conv", plan=plan)
    with pytest.raises(failure, match=r"'conv'.*are others"):
        called([x, w], [y], node="conv", plan=plan)
    with pytest.raises(failure, match="two attributes"):
        called([x, w], [y, memory], node="conv", numbers=np.arange(3))
    with pytest.raises(failure, match=r"'conv'.*convolutions"):
        called([x, w], [y, memory], node="conv", plan="convolutions 2 {}")


def test_a_program_that_brings_too_little_memory_is_served(parts: None) -> None:
    """It was compiled where the library wanted less."""
    text = text_of(TO_FILTER)
    plan = pool_stages.in_parts(text)
    rng = np.random.default_rng(0)
    x, grad = (rng.normal(size=shape).astype(np.float32) for shape in ((4, 9, 9, 8), (4, 9, 9, 16)))
    shape = (3, 3, 8, 16)
    wanted = np.asarray(results(text, [x, grad], shape, np.float32)[0])
    for _ in range(2):
        found, _memory = called([x, grad], [(shape, np.float32), ((1,), np.uint8)], node="conv", plan=plan)
        np.testing.assert_array_equal(np.asarray(found), wanted)
