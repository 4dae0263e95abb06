"""oneDNN's products of matrices in bfloat16 are those of XLA, and are offered only where the library can.

What needs the extra `native` is skipped without it.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import anabranch as tf
from anabranch.core.kernels import OWN_KERNEL, alternates, candidates
from anabranch.kernels import MODULES, native_products, onednn
from anabranch.ops import raw
from anabranch.xla import lowering
from anabranch.xla.kernel_choice import KernelChooser
from anabranch.xla.variants import compile_log
from tests.device.kernels.conftest import need_bfloat16
from tests.device.kernels.test_convolutions import TOLERANCES, at_once, case_of, check_agreement

BATCHED = sorted(set(native_products.OPERATIONS) - {"MatMul"})


def test_the_kernels_are_announced() -> None:
    """What is not announced would never be loaded."""
    assert set(MODULES[native_products.__name__]) == set(native_products.OPERATIONS)
    for op_type in native_products.OPERATIONS:
        assert "onednn" in [one.name for one in alternates(op_type)]


# ---------------------------------------------------------------------- agreement
def operation(
    op_type: str, shapes: tuple[tuple[int, ...], ...], turned: tuple[bool, bool], dtype: Any
) -> tuple[Any, list[np.ndarray[Any, Any]]]:
    """A product of arrays of these shapes, as they are before they are turned, and its operands."""
    rng = np.random.default_rng(sum(map(math.prod, shapes)))
    values = [rng.normal(size=shape).astype(tf.as_dtype(dtype).as_numpy_dtype) for shape in shapes]
    attrs: dict[str, Any] = dict(zip(native_products.OPERATIONS[op_type], turned, strict=True))
    if op_type == "BatchMatMulV3":
        attrs["Tout"] = dtype
    return getattr(raw, op_type)(*values, **attrs).op, values


@st.composite
def any_products(draw: Any, op_type: str) -> tuple[str, tuple[tuple[int, ...], ...], tuple[bool, bool]]:
    rows, inner, columns = draw(st.tuples(*[st.sampled_from([1, 2, 3, 16, 17, 40, 64, 130])] * 3))
    turned = draw(st.tuples(st.booleans(), st.booleans()))
    one = (inner, rows) if turned[0] else (rows, inner)
    other = (columns, inner) if turned[1] else (inner, columns)
    if op_type == "MatMul":
        return op_type, (one, other), turned
    batch = tuple(draw(st.lists(st.integers(1, 3), max_size=3)))
    if op_type == "BatchMatMul":
        return op_type, (batch + one, batch + other), turned
    # broadcast: some axes of either batch are 1, and leading ones are left out
    masks = [draw(st.lists(st.booleans(), min_size=len(batch), max_size=len(batch))) for _ in range(2)]
    first, second = (tuple(n if keep else 1 for n, keep in zip(batch, mask, strict=True)) for mask in masks)
    return op_type, (first + one, second[draw(st.integers(0, len(batch))) :] + other), turned


@pytest.mark.parametrize("op_type", native_products.OPERATIONS)
def test_results_are_those_of_xla(native: None, op_type: str) -> None:
    """Of single products, of batches, of batches that are broadcast. (The examples are the same in every run.)"""
    need_bfloat16()
    compared: set[tuple[str, str]] = set()

    @settings(max_examples=10)
    @given(any_products(op_type))
    def compare(drawn: Any) -> None:
        with tf.Graph().as_default():
            found = check_agreement(*operation(*drawn, tf.bfloat16), TOLERANCES["bfloat16"])
            assert (op_type, "onednn") in found
            compared.update(found)

    compare()
    kernels = (OWN_KERNEL, "onednn", at_once(OWN_KERNEL), at_once("onednn"))
    assert compared == {(op_type, kernel) for kernel in kernels}


# ---------------------------------------------------------------------- where they are offered
def offered(op_type: str, one: tuple[int, ...], other: tuple[int, ...], dtype: Any = tf.bfloat16) -> bool:
    with tf.Graph().as_default():
        op, values = operation(op_type, (one, other), (False, False), dtype)
        return "onednn" in {candidate.name for candidate in candidates(case_of(op, values))}


def test_what_the_library_does_no_better_is_not_offered(native: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Other types; what is empty; processors without the instructions."""
    need_bfloat16()
    assert offered("MatMul", (64, 64), (64, 64))
    assert not offered("MatMul", (64, 64), (64, 64), tf.float32)
    assert not offered("MatMul", (64, 0), (0, 64))
    assert not offered("BatchMatMulV2", (0, 4, 5), (5, 4))
    monkeypatch.setattr(onednn.library(), "instruction_set", "AVX512")
    assert not offered("MatMul", (64, 64), (64, 64))


def test_nothing_is_offered_where_it_is_turned_off() -> None:
    onednn.loaded.cache_clear()
    assert not offered("MatMul", (64, 64), (64, 64))


def test_a_batch_with_one_second_factor_is_a_single_product() -> None:
    product = native_products.Product.of([(3, 4, 5, 6), (7, 6)], [False, True])
    assert product is not None
    assert (product.first, product.second) == (((60, 6), (6, 1)), ((6, 7), (1, 6)))


# ---------------------------------------------------------------------- in a session
def test_a_dense_layer_and_its_gradients_run_so(native: None) -> None:
    """The half-precision rewrite makes the products of bfloat16; each of them and its gradients is the library's."""
    need_bfloat16()
    rng = np.random.default_rng(0)
    values = [rng.normal(size=shape).astype(tf.bfloat16.as_numpy_dtype) for shape in ((128, 512), (512, 256))]
    x, w = (tf.placeholder(tf.bfloat16, value.shape) for value in values)
    y = tf.matmul(x, w, name="layer/product")
    gradients = tf.gradients(y * y, [x, w])
    with tf.Session() as session:
        product, to_x, to_w = session.run([y, *gradients], {x: values[0], w: values[1]})
    kernels = [choice.chosen.name for choice in compile_log.events[-1].kernels.values() if choice.op_type == "MatMul"]
    assert kernels == ["onednn"] * 3
    wide, weights = (value.astype(np.float64) for value in values)
    expected = wide @ weights
    for found, wanted in ((product, expected), (to_x, 2 * expected @ weights.T), (to_w, wide.T @ (2 * expected))):
        assert np.abs(found.astype(np.float64) - wanted).max() < 0.02 * np.abs(wanted).max()


def test_a_product_in_a_loop_runs_so(native: None) -> None:
    need_bfloat16()
    size = 128
    turning = np.eye(size)[:, ::-1].astype(tf.bfloat16.as_numpy_dtype)
    x = tf.placeholder(tf.bfloat16, [size, size])
    _, turned = tf.while_loop(lambda i, _: i < 3, lambda i, y: (i + 1, tf.matmul(y, turning)), [0, x])
    value = np.random.default_rng(0).normal(size=(size, size)).astype(turning.dtype)
    with tf.Session() as session:
        np.testing.assert_array_equal(session.run(turned, {x: value}), value[:, ::-1])


# ---------------------------------------------------------------------- packed before a loop
def looped(rows: int, summed: int, columns: int, transposed: bool, narrowed: bool) -> tuple[Any, Any, Any]:
    """A loop's products of bfloat16 with one matrix (float32 if `narrowed`), feeds, and what it gives in float64."""
    half, rng = tf.bfloat16.as_numpy_dtype, np.random.default_rng(rows + summed)
    x = rng.normal(size=(3, rows, summed)).astype(half)
    w = (rng.normal(size=(columns, summed) if transposed else (summed, columns)) / math.sqrt(summed)).astype(half)
    given = w.astype(np.float32) if narrowed else w
    start, matrix = tf.placeholder(tf.bfloat16, x.shape), tf.placeholder(given.dtype, given.shape)

    def body(i: Any, total: Any) -> Any:
        product = tf.matmul(start[i], tf.cast(matrix, tf.bfloat16), transpose_b=transposed, name="looped")
        return i + 1, total + tf.cast(product, tf.float32)

    _, total = tf.while_loop(lambda i, _: i < 3, body, [0, tf.zeros([rows, columns])])
    factor = w.astype(np.float64)
    return total, {start: x, matrix: given}, x.astype(np.float64).sum(0) @ (factor.T if transposed else factor)


def run_and_choose(fetch: Any, feeds: Any, name: str = "looped") -> tuple[Any, str]:
    with tf.Session() as session:
        found = session.run(fetch, feeds)
    chosen = {key: choice.chosen.name for event in compile_log.events for key, choice in event.kernels.items()}
    return found, chosen[name]


@pytest.mark.parametrize("narrowed", [False, True])
@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize(("rows", "summed", "columns"), [(32, 512, 1024), (5, 1024, 512), (2, 1024, 2048)])
def test_a_matrix_that_a_loop_keeps_is_packed_before_it(
    native: None,
    monkeypatch: pytest.MonkeyPatch,
    rows: int,
    summed: int,
    columns: int,
    transposed: bool,
    narrowed: bool,
) -> None:
    """Where it is quicker, which is decided here by the estimates. Each product's rounding is that of bfloat16."""
    need_bfloat16()
    monkeypatch.setenv("ANABRANCH_KERNELS", "estimate")
    fetch, feeds, wanted = looped(rows, summed, columns, transposed, narrowed)
    found, chosen = run_and_choose(fetch, feeds)
    assert chosen == (native_products.PACKED_TRANSPOSED if transposed else native_products.PACKED)
    assert np.abs(found - wanted).max() < 0.02 * np.abs(wanted).max()


@pytest.mark.parametrize(
    ("rows", "summed", "columns"),
    [(32, 1000, 1000), (256, 512, 512), (32, 64, 64)],
    ids=["the packed one has gaps", "many rows", "small"],
)
def test_other_matrices_are_read_as_they_lie(
    native: None, monkeypatch: pytest.MonkeyPatch, rows: int, summed: int, columns: int
) -> None:
    need_bfloat16()
    monkeypatch.setenv("ANABRANCH_KERNELS", "estimate")
    for transposed in (False, True):
        with tf.Graph().as_default():
            fetch, feeds, wanted = looped(rows, summed, columns, transposed, narrowed=False)
            found, chosen = run_and_choose(fetch, feeds)
        assert chosen in ("onednn", OWN_KERNEL)
        assert np.abs(found - wanted).max() < 0.02 * np.abs(wanted).max()


def test_packing_is_measured_with_the_loop(native: None, monkeypatch: pytest.MonkeyPatch) -> None:
    need_bfloat16()
    kernels = iter([3.0, 1.0])
    shapes = []

    def measured(program: Any, inputs: Any, device: Any) -> Any:
        shapes.append([shape for shape, _ in inputs])
        seconds = next(kernels, 5.0)
        return lambda: seconds

    monkeypatch.setattr(lowering, "timed_run", measured)
    monkeypatch.setattr(lowering, "chooser", KernelChooser(lambda: None, lambda: "auto"))
    fetch, feeds, _ = looped(32, 512, 1024, False, narrowed=True)
    # what is expected to be quicker comes first, and proves to be slower
    assert run_and_choose(fetch, feeds)[1] == "onednn"
    assert len(shapes) > 1
    assert all(each == [(32, 32, 512), (512, 1024)] for each in shapes)


def test_operations_of_one_name_in_several_bodies_have_their_choices(native: None) -> None:
    """What calls back, as the library's kernels do, must be known of each of them."""
    need_bfloat16()
    x = tf.placeholder(tf.bfloat16, [256, 256])
    _, turned = tf.while_loop(lambda i, _: i < 3, lambda i, y: (i + 1, tf.matmul(y, x, name="product")), [0, x])
    again = tf.matmul(turned[:, :1], turned[:1], name="product")
    with tf.Session() as session:
        session.run(again, {x: np.zeros((256, 256), x.dtype.as_numpy_dtype)})
    kernels = compile_log.events[-1].kernels
    assert set(kernels) == {"product", "product (2)"}
    assert [one.candidates[0].name for one in kernels.values()] == ["onednn", OWN_KERNEL]
