"""oneDNN's products of float32 matrices on XLA's threads are those of NumPy, and are offered only where they can be.

What needs the extra `native` and a C compiler is skipped without them.
"""

from __future__ import annotations

import ctypes
import hashlib
import math
import threading
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import anabranch as tf
from anabranch.core.kernels import OWN_KERNEL, alternates, candidates, has_alternates
from anabranch.kernels import MODULES, onednn, pool_handler, pool_products
from anabranch.kernels.pool_factors import OPERATIONS, PoolProduct
from anabranch.kernels.pool_products import NAME, numbers_of
from anabranch.ops import raw
from anabranch.xla import kernel_choice
from anabranch.xla.background import background
from anabranch.xla.variants import compile_log
from tests.device.kernels.test_convolutions import case_of


@pytest.fixture
def handler(compiled: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """The handler, for a processor that has what it takes."""
    monkeypatch.setattr(pool_products, "has_wide_vectors", lambda: True)


def test_the_kernels_are_announced() -> None:
    """What is not announced would never be loaded."""
    assert set(MODULES[pool_products.__name__]) == set(OPERATIONS)
    for op_type in OPERATIONS:
        assert NAME in [one.name for one in alternates(op_type)]


# ---------------------------------------------------------------------- agreement
def called(one: np.ndarray[Any, Any], other: np.ndarray[Any, Any], turned: tuple[bool, bool]) -> Any:
    """The handler's product, however small."""
    product = PoolProduct.of([one.shape, other.shape], turned)
    assert product is not None
    shape = (product.batch * product.rows, product.columns)
    call = jax.ffi.ffi_call(pool_handler.TARGET, jax.ShapeDtypeStruct(shape, np.float32))  # type: ignore[no-untyped-call]
    return np.asarray(jax.jit(lambda x, y: call(x, y, node="layer/product", numbers=numbers_of(product)))(one, other))


lengths = st.sampled_from([1, 2, 3, 15, 16, 17, 33, 64, 130, 257])


@st.composite
def any_products(draw: Any) -> Any:
    rows, inner, columns = draw(st.tuples(lengths, lengths, lengths))
    turned = draw(st.tuples(st.booleans(), st.booleans()))
    batch = draw(st.sampled_from([(), (2,), (3, 2), (17,)]))
    shared = draw(st.sampled_from([None, 0, 1])) if batch else None
    one = (inner, rows) if turned[0] else (rows, inner)
    other = (columns, inner) if turned[1] else (inner, columns)
    return (one if shared == 0 else batch + one), (other if shared == 1 else batch + other), turned


def test_results_are_those_of_numpy(handler: None) -> None:
    """Single products and batches, with and without a factor that all have; lengths that no part ends with."""

    @settings(max_examples=60)
    @given(any_products())
    def compare(drawn: Any) -> None:
        one_shape, other_shape, turned = drawn
        rng = np.random.default_rng(math.prod(one_shape))
        one, other = (rng.normal(size=shape).astype(np.float32) for shape in (one_shape, other_shape))
        left, right = (
            value.astype(np.float64).swapaxes(-1, -2) if turn else value.astype(np.float64)
            for value, turn in zip((one, other), turned, strict=True)
        )
        expected = left @ right
        found = called(one, other, turned).reshape(expected.shape)
        assert np.abs(found - expected).max() <= 1e-5 * max(1.0, np.abs(expected).max())

    compare()


def test_what_is_no_number_stays_none(handler: None) -> None:
    """The library adds to nothing: what memory held before does not matter, and NaN and infinity come through."""
    one, other = np.ones((64, 300), np.float32), np.ones((300, 200), np.float32)
    one[3, 7], one[5, 9] = np.nan, np.inf
    for _ in range(3):
        found = called(one, other, (False, False))
        assert np.isnan(found[3]).all()
        assert np.isinf(found[5]).all()
        assert (np.delete(found, [3, 5], axis=0) == 300).all()


def test_threads_may_call_at_the_same_time(handler: None) -> None:
    rng = np.random.default_rng(0)
    one, other = (rng.normal(size=(300, 300)).astype(np.float32) for _ in range(2))
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


# ---------------------------------------------------------------------- bad calls
@pytest.mark.parametrize(
    ("attributes", "message"),
    [
        ({"node": "layer/product", "numbers": np.arange(3, dtype=np.int64)}, "eight numbers"),
        ({"node": "layer/product", "numbers": np.array([4, 4, 4, 0, 0, 1, 0, -1])}, "others than"),
        ({"node": "layer/product", "numbers": np.array([4, 4, 5, 0, 0, 1, 0, 0])}, "others than"),
        ({"node": "layer/product", "numbers": np.array([4, -4, 4, 0, 0, 1, 0, 0])}, "no length"),
        ({"node": "layer/product", "more": 1, "numbers": np.array([4, 4, 4, 0, 0, 1, 0, 0])}, "two attributes"),
    ],
)
def test_a_bad_call_is_an_error(handler: None, attributes: dict[str, Any], message: str) -> None:
    """Never a crash; the error names the operation, if the call does."""
    call = jax.ffi.ffi_call(pool_handler.TARGET, jax.ShapeDtypeStruct((4, 4), np.float32))  # type: ignore[no-untyped-call]
    matrix = np.ones((4, 4), np.float32)
    with pytest.raises(jax.errors.JaxRuntimeError, match=message):
        jax.block_until_ready(jax.jit(lambda x: call(x, x, **attributes))(matrix))


# ---------------------------------------------------------------------- where they are offered
@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Products that tests can compute soon are offered as well."""
    monkeypatch.setattr(pool_products, "LEAST_PRODUCTS", 1 << 18)


def offered(one: tuple[int, ...], other: tuple[int, ...], dtype: Any = tf.float32) -> bool:
    with tf.Graph().as_default():
        values = [np.zeros(shape, tf.as_dtype(dtype).as_numpy_dtype) for shape in (one, other)]
        op = raw.BatchMatMulV2(x=tf.placeholder(dtype, one), y=tf.placeholder(dtype, other)).op
        return NAME in {candidate.name for candidate in candidates(case_of(op, values))}


def test_what_is_small_or_of_another_type_is_not_offered(
    handler: None, small: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert offered((128, 128), (128, 128))
    assert offered((32, 64, 64), (32, 64, 64))
    assert not offered((63, 64), (64, 64))
    assert not offered((128, 128), (128, 128), tf.float64)
    assert not offered((4096, 4096), (4096, 1))
    assert not offered((2, 1, 128, 128), (1, 2, 128, 128))
    monkeypatch.setattr(pool_products, "has_wide_vectors", lambda: False)
    assert not offered((128, 128), (128, 128))


def test_without_the_library_nothing_is_offered() -> None:
    onednn.loaded.cache_clear()
    assert not offered((128, 128), (128, 128))


def test_without_a_compiler_nothing_is_offered(native: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """And people are told why; as where nothing may be kept."""
    monkeypatch.setattr(pool_products, "has_wide_vectors", lambda: True)
    monkeypatch.setenv("ANABRANCH_CACHE_DIR", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CC", raising=False)
    pool_handler.failure.cache_clear()
    assert "no C compiler" in pool_handler.missing()
    assert not offered((128, 128), (128, 128))
    monkeypatch.setenv("ANABRANCH_CACHE_DIR", "")
    pool_handler.failure.cache_clear()
    assert "nothing is kept" in pool_handler.missing()
    pool_handler.failure.cache_clear()


def test_a_compiler_that_fails_is_reported(native: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    compiler = tmp_path / "broken"
    compiler.write_text("#!/bin/sh\necho 'out of luck' >&2\nexit 3\n")
    compiler.chmod(0o755)
    monkeypatch.setenv("ANABRANCH_CACHE_DIR", str(tmp_path))
    monkeypatch.setenv("CC", str(compiler))
    with pytest.raises(pool_handler.HandlerError, match="out of luck"):
        pool_handler.compiled()


def test_a_damaged_file_is_compiled_anew(handler: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("ANABRANCH_CACHE_DIR", str(tmp_path))
    path = pool_handler.compiled()
    whole = path.read_bytes()
    path.unlink()  # a file that is loaded must not be written to
    path.write_bytes(whole[: len(whole) // 2])
    assert pool_handler.compiled() == path
    ctypes.CDLL(str(path))
    (sums,) = path.parent.glob("*.sha256")
    assert sums.read_text() == hashlib.sha256(path.read_bytes()).hexdigest()
    before = path.stat().st_mtime_ns
    assert pool_handler.compiled().stat().st_mtime_ns == before


def test_they_do_not_count_as_work_for_the_compiler(handler: None) -> None:
    """Programs with products are no longer to compile for them: first steps stay what they were."""
    attrs = {"T": tf.float32, "transpose_a": False, "transpose_b": False}
    assert has_alternates("MatMul", attrs)
    assert not has_alternates("MatMul", attrs, settled=False)


# ---------------------------------------------------------------------- in a session
def test_layers_and_their_gradients_run_so(handler: None, small: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each product and its gradients, turned factors included."""
    library = onednn.library()
    assert library is not None
    monkeypatch.setattr(library, "instruction_set", "AMX")  # whose estimates are clear
    monkeypatch.setenv(kernel_choice.KERNELS_VARIABLE, "estimate")
    rng = np.random.default_rng(0)
    shapes = ((128, 256), (256, 192), (4, 128, 192), (4, 160, 192))
    arrays = [rng.normal(size=shape).astype(np.float32) for shape in shapes]
    with tf.Graph().as_default(), tf.Session() as session:
        x, w, several, others = (tf.placeholder(tf.float32, shape) for shape in shapes)
        layer = tf.matmul(x, w, name="layer")
        batch = tf.matmul(several + layer, others, transpose_b=True)
        loss = tf.reduce_sum(batch * batch)
        feeds = dict(zip((x, w, several, others), arrays, strict=True))
        fetches = [layer, batch, *tf.gradients(loss, [x, w, others])]
        for _ in range(4):
            found = session.run(fetches, feeds)
        background.wait(60)
        found = session.run(fetches, feeds)
    chosen = [choice.chosen.name for choice in compile_log.events[-1].kernels.values() if "MatMul" in choice.op_type]
    assert chosen.count(NAME) == 6
    assert OWN_KERNEL not in chosen
    wide, weights, data, factors = (array.astype(np.float64) for array in arrays)
    product = wide @ weights
    sums = data + product
    result = sums @ factors.swapaxes(1, 2)
    to_layer = (2 * result @ factors).sum(0)
    to_factors = (2 * result).swapaxes(1, 2) @ sums
    expected = [product, result, to_layer @ weights.T, wide.T @ to_layer, to_factors]
    for mine, wanted in zip(found, expected, strict=True):
        assert np.abs(mine - wanted).max() < 2e-5 * np.abs(wanted).max()


def test_a_loop_runs_so(handler: None) -> None:
    size = 128
    turning = np.eye(size, dtype=np.float32)[:, ::-1].copy()
    with tf.Graph().as_default(), tf.Session() as session:
        x = tf.placeholder(tf.float32, [size, size])
        _, turned = tf.while_loop(lambda i, _: i < 3, lambda i, y: (i + 1, tf.matmul(y, turning)), [0, x])
        value = np.random.default_rng(0).normal(size=(size, size)).astype(np.float32)
        np.testing.assert_allclose(session.run(turned, {x: value}), value[:, ::-1], rtol=1e-6)
