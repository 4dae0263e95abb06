"""Products in packed blocks on XLA's threads are those of NumPy in float64, and are offered only where they can be.

What needs the extra `native` and a C compiler is skipped without them. Where the processor has no tiles (AMX), C does
what their instructions would do (`tiles.h`); that needs its instructions for bfloat16.
"""

from __future__ import annotations

import math
import threading
from dataclasses import replace
from typing import Any

import jax
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import anabranch as tf
from anabranch.core.kernels import alternates, candidates
from anabranch.kernels import MODULES, onednn, pool_blocks, pool_handler
from anabranch.kernels.pool_blocks import NAME, SIZES, BlockProduct
from anabranch.kernels.pool_factors import OPERATIONS, PoolProduct
from anabranch.ops import raw
from anabranch.xla import kernel_choice
from anabranch.xla.background import background
from anabranch.xla.variants import compile_log
from tests.device.kernels import tiles_in_c
from tests.device.kernels.test_convolutions import case_of

#: of the largest number of a result: half of what a number of bfloat16 leaves open, and sums of float32
TOLERANCE = 4e-3
HALF: Any = tf.bfloat16.as_numpy_dtype


@pytest.fixture
def handler(compiled: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """The handler, compiled and loaded; with tiles in C where the processor has none."""
    if not pool_blocks.can_multiply():
        if not tiles_in_c.target():
            pytest.skip("this processor has no instructions for bfloat16")
        tiles_in_c.use(monkeypatch.setattr)


@pytest.fixture(params=["as they are", "cut small"])
def cut(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Small products are cut as large ones are, into several spans, depths and blocks."""
    if request.param == "cut small":
        small = replace(SIZES, depth=64, block_rows=64, block_columns=64, span_bytes=1 << 15)
        monkeypatch.setattr(pool_blocks, "SIZES", small)


def test_the_kernels_are_announced() -> None:
    """What is not announced would never be loaded."""
    assert set(MODULES[pool_blocks.__name__]) == set(OPERATIONS)
    for op_type in OPERATIONS:
        assert NAME in [one.name for one in alternates(op_type)]


# ---------------------------------------------------------------------- agreement
def called(one: np.ndarray[Any, Any], other: np.ndarray[Any, Any], turned: tuple[bool, bool]) -> Any:
    """The handler's product, however small, as [batch * rows, columns]."""
    product = PoolProduct.of([one.shape, other.shape], turned)
    assert product is not None
    program = jax.jit(lambda x, y: pool_blocks.call("layer/product", x, y, product))
    return np.asarray(program(one, other)).reshape(-1, product.columns)


def factors(shapes: Any, seed: int = 0) -> list[np.ndarray[Any, Any]]:
    rng = np.random.default_rng(seed)
    return [rng.normal(size=shape).astype(HALF) for shape in shapes]


def product_in_float64(one: np.ndarray[Any, Any], other: np.ndarray[Any, Any], turned: tuple[bool, bool]) -> Any:
    wide = [array.astype(np.float64) for array in (one, other)]
    left, right = (array.swapaxes(-1, -2) if turn else array for array, turn in zip(wide, turned, strict=True))
    return left @ right


lengths = st.one_of(st.sampled_from([1, 2, 13, 14, 15, 16, 31, 32, 33, 64, 65, 130, 257, 300]), st.integers(1, 400))


@st.composite
def any_products(draw: Any) -> Any:
    rows, inner, columns = draw(st.tuples(lengths, lengths, lengths))
    turned = draw(st.tuples(st.booleans(), st.booleans()))
    batch = draw(st.sampled_from([(), (), (2,), (3, 2), (5,)]))
    shared = draw(st.sampled_from([None, 0, 1])) if batch else None
    one = (inner, rows) if turned[0] else (rows, inner)
    other = (columns, inner) if turned[1] else (inner, columns)
    return (one if shared == 0 else batch + one), (other if shared == 1 else batch + other), turned


def test_results_are_those_of_float64(handler: None, cut: None) -> None:
    """Single products and batches, with and without a factor that all have; lengths that nothing ends with."""

    @settings(max_examples=60)
    @given(any_products())
    def compare(drawn: Any) -> None:
        one_shape, other_shape, turned = drawn
        one, other = factors([one_shape, other_shape], math.prod(one_shape))
        expected = product_in_float64(one, other, turned)
        found = called(one, other, turned).reshape(expected.shape).astype(np.float64)
        assert np.abs(found - expected).max() <= TOLERANCE * max(1.0, np.abs(expected).max())

    compare()


def test_what_is_no_number_stays_none(handler: None, cut: None) -> None:
    """What memory held before does not matter, and NaN and infinity come through, into their rows alone."""
    one, other = (np.ones(shape, HALF) for shape in ((70, 150), (150, 90)))
    one[3, 7], one[5, 149] = np.nan, np.inf
    for _ in range(3):
        found = called(one, other, (False, False)).astype(np.float32)
        assert np.isnan(found[3]).all()
        assert np.isinf(found[5]).all()
        assert (np.delete(found, [3, 5], axis=0) == 150).all()


def test_threads_may_call_at_the_same_time(handler: None, cut: None) -> None:
    """And a result is the same, bit for bit, whichever threads compute its parts."""
    one, other = factors([(300, 300)] * 2)
    expected = called(one, other, (False, True))
    agreed: list[bool] = []

    def work() -> None:
        agreed.extend(np.array_equal(called(one, other, (False, True)), expected) for _ in range(20))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert agreed == [True] * 80


def test_a_result_does_not_depend_on_the_number_of_cores(handler: None, monkeypatch: pytest.MonkeyPatch) -> None:
    one, other = factors([(300, 700), (700, 260)])
    expected = called(one, other, (False, False))
    for cores in (1, 3, 100):
        monkeypatch.setattr(pool_blocks, "core_count", lambda cores=cores: cores)
        np.testing.assert_array_equal(called(one, other, (False, False)), expected)


def test_memory_to_work_in_is_bounded(handler: None) -> None:
    """However large the factors are; what all of a machine's threads sum up in comes on top."""
    for shapes in ([(16384, 16384), (16384, 16384)], [(1 << 20, 256), (256, 256)], [(256, 1 << 20), (1 << 20, 256)]):
        product = PoolProduct.of(shapes, [False, False])
        assert product is not None
        blocks = BlockProduct.of(product)
        sums = blocks.numbers[-1] * (SIZES.block_rows + 32) * (SIZES.block_columns + 32) * 4
        deepest = (SIZES.block_columns + 32) * 2 * product.inner
        assert blocks.scratch_bytes <= 2.2 * max(SIZES.span_bytes, deepest) + sums


# ---------------------------------------------------------------------- bad calls
GOOD = (4, 32, 32, 32, 1, 32, 1, 1, 0, 0, 32, 32, 32, 32, 32, 2)


def changed(**places: int) -> np.ndarray[Any, np.dtype[np.int64]]:
    numbers = np.array(GOOD, np.int64)
    for place, value in places.items():
        numbers[int(place[2:])] = value
    return numbers


@pytest.mark.parametrize(
    ("attributes", "scratch", "message"),
    [
        ({"numbers": np.arange(3, dtype=np.int64)}, 1 << 16, "sixteen numbers"),
        ({"numbers": changed(at0=-4)}, 1 << 16, "no length"),
        ({"numbers": changed(at0=1 << 40)}, 1 << 16, "no length"),
        ({"numbers": changed(at2=33)}, 1 << 16, "first factor lies"),
        ({"numbers": changed(at5=31)}, 1 << 16, "second factor lies"),
        ({"numbers": changed(at8=7)}, 1 << 16, "batch lie"),
        ({"numbers": changed(at0=1 << 24, at4=1)}, 1 << 16, "too large"),
        ({"numbers": changed(at14=1 << 20)}, 1 << 16, "other blocks"),
        ({"numbers": changed(at12=31)}, 1 << 16, "other blocks"),
        ({"numbers": changed(at15=65)}, 1 << 16, "other blocks"),
        ({"numbers": changed(at7=2)}, 1 << 16, "others than"),
        ({"numbers": changed()}, 64, "others than"),
        ({"numbers": changed(), "more": 1}, 1 << 16, "two attributes"),
    ],
)
def test_a_bad_call_is_an_error(handler: None, attributes: dict[str, Any], scratch: int, message: str) -> None:
    """Never a crash; the error names the operation, if the call does."""
    described = [jax.ShapeDtypeStruct((4, 32), HALF), jax.ShapeDtypeStruct((scratch,), np.uint8)]  # type: ignore[no-untyped-call]
    call = jax.ffi.ffi_call(pool_handler.BLOCKS_TARGET, described)
    one, other = np.ones((4, 32), HALF), np.ones((32, 32), HALF)
    with pytest.raises(jax.errors.JaxRuntimeError, match=message):
        jax.block_until_ready(jax.jit(lambda x, y: call(x, y, node="layer/product", **attributes))(one, other))


def test_the_good_call_is_none(handler: None) -> None:
    """Each of the calls above is wrong for one reason."""
    described = [jax.ShapeDtypeStruct((4, 32), HALF), jax.ShapeDtypeStruct((1 << 16,), np.uint8)]  # type: ignore[no-untyped-call]
    call = jax.ffi.ffi_call(pool_handler.BLOCKS_TARGET, described)
    one, other = np.ones((4, 32), HALF), np.ones((32, 32), HALF)
    found, _ = jax.jit(lambda x, y: call(x, y, node="layer/product", numbers=changed()))(one, other)
    assert (np.asarray(found) == 32).all()


# ---------------------------------------------------------------------- where they are offered
@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Products that tests can compute soon are offered as well."""
    monkeypatch.setattr(pool_blocks, "SIZES", replace(SIZES, least=1 << 18, least_length=64, least_depth=64))
    monkeypatch.setattr(pool_blocks, "_PACKING_PRODUCTS", 0.0)


def offered(one: tuple[int, ...], other: tuple[int, ...], dtype: Any = tf.bfloat16) -> bool:
    with tf.Graph().as_default():
        values = [np.zeros(shape, tf.as_dtype(dtype).as_numpy_dtype) for shape in (one, other)]
        op = raw.BatchMatMulV2(x=tf.placeholder(dtype, one), y=tf.placeholder(dtype, other)).op
        return NAME in {candidate.name for candidate in candidates(case_of(op, values))}


def test_what_packing_does_not_pay_for_is_not_offered(
    handler: None, small: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor what has another type, or is multiplied in another way; nor where the processor cannot."""
    assert offered((128, 128), (128, 128))
    assert offered((8, 128, 128), (8, 128, 128))
    assert not offered((63, 256), (256, 256))
    assert not offered((256, 32), (32, 256))
    assert not offered((64, 63), (63, 64))
    assert not offered((2, 1, 128, 128), (1, 2, 128, 128))
    for dtype in (tf.float16, tf.float32, tf.float64):
        assert not offered((128, 128), (128, 128), dtype)
    monkeypatch.setattr(pool_blocks, "can_multiply", lambda: False)
    assert not offered((128, 128), (128, 128))


def test_without_the_library_nothing_is_offered() -> None:
    onednn.loaded.cache_clear()
    assert not offered((4096, 4096), (4096, 4096))


# ---------------------------------------------------------------------- in a session
def test_layers_and_their_gradients_run_so(handler: None, small: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each product and its gradients, turned factors and batches included."""
    monkeypatch.setenv(kernel_choice.KERNELS_VARIABLE, "estimate")
    x_value, w_value, others_value = factors([(128, 256), (256, 192), (4, 160, 192)])
    with tf.Graph().as_default(), tf.Session() as session:
        x, w, others = (tf.placeholder(tf.bfloat16, value.shape) for value in (x_value, w_value, others_value))
        layer = tf.matmul(x, w, name="layer")
        batch = tf.matmul(tf.stack([layer] * 4), others, transpose_b=True)
        fetches = [layer, batch, *tf.gradients(batch, [x, w, others])]
        feeds = {x: x_value, w: w_value, others: others_value}
        for _ in range(4):
            found = session.run(fetches, feeds)
        background.wait(60)
        found = session.run(fetches, feeds)
    chosen = [choice.chosen.name for choice in compile_log.events[-1].kernels.values() if "MatMul" in choice.op_type]
    assert chosen == [NAME] * 6
    wide, weights, factor = (value.astype(np.float64) for value in (x_value, w_value, others_value))
    product = wide @ weights
    to_layer = factor.sum(axis=(0, 1)) * np.ones_like(product)
    to_others = np.broadcast_to(product.sum(0), factor.shape)
    expected = [product, product @ factor.swapaxes(1, 2), to_layer @ weights.T, wide.T @ to_layer, to_others]
    for mine, wanted in zip(found, expected, strict=True):
        assert np.abs(mine.astype(np.float64) - wanted).max() < 4 * TOLERANCE * np.abs(wanted).max()


def test_a_loop_runs_so(handler: None, small: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(kernel_choice.KERNELS_VARIABLE, "estimate")
    size = 128
    turning = np.eye(size).astype(HALF)[:, ::-1].copy()
    with tf.Graph().as_default(), tf.Session() as session:
        x = tf.placeholder(tf.bfloat16, [size, size])
        _, turned = tf.while_loop(lambda i, _: i < 3, lambda i, y: (i + 1, tf.matmul(y, turning)), [0, x])
        (value,) = factors([(size, size)])
        np.testing.assert_array_equal(session.run(turned, {x: value}), value[:, ::-1])
