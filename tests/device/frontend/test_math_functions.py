"""What users call of mathematics: argument names, dtypes, names of operations, operators; values against NumPy."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.special as sp

import anabranch as tf
from anabranch import errors
from anabranch.core import dtypes
from anabranch.frontend.arithmetic import clipping, contraction, elementwise, linalg, math as tfm, reduction, spectral
from anabranch.frontend.arrays import casting, segments
from anabranch.frontend.arrays.constants import constant, placeholder
from anabranch.graph.composite import IndexedSlices, SparseTensor
from anabranch.session import Session
from anabranch.testing.op_cases import assert_close

RANDOM = np.random.default_rng(5)
X = RANDOM.normal(size=(3, 4)).astype(np.float32)
Y = RANDOM.normal(size=(3, 4)).astype(np.float32)
SQUARE = RANDOM.normal(size=(2, 3, 3)) + 3 * np.eye(3)


def run(fetches: Any, feeds: Any = None) -> Any:
    with Session() as session:
        return session.run(fetches, feeds)


def check(result: Any, expected: Any, tolerance: float | None = None) -> None:
    assert_close(run(result), expected, tolerance)


# ---------------------------------------------------------------------- operators
@pytest.mark.parametrize(
    ("symbol", "name", "type_"),
    [
        (operator.add, "add", "AddV2"),
        (operator.sub, "sub", "Sub"),
        (operator.mul, "mul", "Mul"),
        (operator.truediv, "truediv", "RealDiv"),
        (operator.floordiv, "floordiv", "FloorDiv"),
        (operator.mod, "mod", "FloorMod"),
        (operator.pow, "pow", "Pow"),
    ],
)
def test_arithmetic_operators(symbol: Callable[[Any, Any], Any], name: str, type_: str) -> None:
    a, b = constant(np.abs(X)), constant(np.abs(Y))
    both, left, right = symbol(a, b), symbol(a, 2.0), symbol(2.0, a)
    assert [t.op.name for t in (both, left, right)] == [name, f"{name}_1", f"{name}_2"]
    assert {t.op.type for t in (both, left, right)} == {type_}
    assert left.op.inputs[1].op.name == f"{name}_1/y"
    assert right.op.inputs[0].op.name == f"{name}_2/x"
    for got, wanted in zip(
        run([both, left, right]), [(np.abs(X), np.abs(Y)), (np.abs(X), 2), (2, np.abs(X))], strict=True
    ):
        assert_close(got, symbol(*wanted), 1e-4)


@pytest.mark.parametrize(
    ("symbol", "type_"), [(operator.lt, "Less"), (operator.le, "LessEqual"), (operator.gt, "Greater")]
)
def test_comparison_operators(symbol: Callable[[Any, Any], Any], type_: str) -> None:
    result = symbol(constant(X), 0.25)
    assert (result.op.type, result.op.name) == (type_, type_)
    check(result, symbol(X, 0.25))
    check(symbol(0.25, constant(X)), symbol(0.25, X))


def test_logical_operators() -> None:
    a, b = np.array([True, True, False]), np.array([True, False, False])
    p, q = constant(a), constant(b)
    for got, wanted in zip(run([p & q, p | q, p ^ q, ~p, True ^ p]), [a & b, a | b, a ^ b, ~a, ~a], strict=True):
        assert_close(got, wanted)


def test_unary_operators_and_matmul() -> None:
    check(-constant(X), -X)
    check(abs(constant(X)), np.abs(X))
    check(constant(X) @ constant(Y.T), X @ Y.T)
    check(X @ constant(Y.T), X @ Y.T)
    check(constant(X)[1:, ::2], X[1:, ::2])


def test_integers_divide_into_floating_numbers() -> None:
    assert (constant([7, 8]) / 2).dtype is dtypes.float64
    assert (constant(np.int8([7, 8])) / constant(np.int8(2))).dtype is dtypes.float32
    check(constant([7, -7]) / 2, [3.5, -3.5])
    check(constant([7, -7]) // 2, [3, -4])
    check(tfm.div(constant([7, -7]), 2), [3, -4])


def test_a_float_beside_an_integer_tensor_is_an_error() -> None:
    with pytest.raises(TypeError, match="int32"):
        1.0 + constant([1, 2])
    with pytest.raises(TypeError, match="int32"):
        constant([1, 2]) * 1.5
    with pytest.raises(TypeError, match="float64"):
        constant(X) + constant(X.astype(np.float64))
    with pytest.raises(TypeError):
        constant(X) + object()


def test_python_and_numpy_values_follow_the_tensor() -> None:
    assert (constant(X) + 1).dtype is dtypes.float32
    assert (constant(X) * np.float64(2)).dtype is dtypes.float32
    assert (np.ones((3, 4)) - constant(X)).dtype is dtypes.float32
    assert ([1.0, 2.0, 3.0, 4.0] * constant(X)).dtype is dtypes.float32
    check(2 ** constant([1, 2]), [2, 4])


def test_strings_are_joined() -> None:
    result = constant([b"a", b"b"]) + b"!"
    assert result.op.type == "Add"
    check(result, [b"a!", b"b!"])


def test_another_type_may_answer() -> None:
    class Answer:
        def __radd__(self, other: Any) -> str:
            return "mine"

    assert constant(X) + Answer() == "mine"


def test_a_dense_times_a_sparse_tensor() -> None:
    sparse = SparseTensor([[0, 1], [1, 0]], [3.0, 4.0], [2, 2])
    result = constant(np.float32([[1, 2], [5, 6]])) * sparse
    assert_close(run(result.values), np.float32([6, 20]))
    with pytest.raises(TypeError, match="sparse"):
        constant(X) - sparse


# ---------------------------------------------------------------------- elementwise
def test_abs_of_complex_numbers_is_real() -> None:
    z = X + 1j * Y
    assert tfm.abs(z).dtype is dtypes.float32
    check(tfm.abs(constant(z)), np.abs(z))
    check(tfm.complex(X, Y), z)
    check(tfm.real(z), X)
    check(tfm.imag(z), Y)
    check(tfm.imag(X), np.zeros_like(X))
    check(tfm.angle(z), np.angle(z))
    check(tfm.angle(X), np.angle(X))
    check(tfm.conj(z), np.conj(z))
    assert tfm.conj(constant(X)).op.type == "Const"
    with pytest.raises(TypeError, match="float64"):
        tfm.complex(X, Y.astype(np.float64))


def test_functions_of_sparse_tensors_act_on_the_values() -> None:
    sparse = SparseTensor([[0], [2]], [-4.0, 9.0], [3])
    assert_close(run(tfm.abs(sparse).values), np.float32([4, 9]))
    assert_close(run(elementwise.square(sparse).values), np.float32([16, 81]))
    assert casting.cast(sparse, "int32").dtype is dtypes.int32


def test_compositions() -> None:
    check(tfm.log_sigmoid(X), np.log(1 / (1 + np.exp(-X))), 1e-4)
    check(tfm.bessel_i0(X), sp.i0(X), 1e-4)
    check(tfm.bessel_i1(X), sp.i1(X), 1e-4)
    check(tfm.lbeta(np.abs(X)), np.sum(sp.gammaln(np.abs(X)), -1) - sp.gammaln(np.abs(X).sum(-1)), 1e-4)
    check(tfm.polyval([1.0, -2.0, constant(3.0)], X), np.polyval([1, -2, 3], X), 1e-4)
    check(tfm.reciprocal_no_nan(np.float32([0, 2])), [0, 0.5])
    check(tfm.logical_xor([True, False], [True, True]), [False, True])
    check(tfm.divide(7, 2), 3.5)
    check(tfm.round([0.5, 1.5, -2.5]), [0, 2, -2])
    check(tfm.scalar_mul(2, constant(X)), 2 * X)


def test_sums_of_lists() -> None:
    slices = IndexedSlices(constant(X[:1]), constant([2]), constant([3, 4]))
    dense = np.zeros_like(X)
    dense[2] = X[0]
    check(tfm.add_n([constant(X), slices]), X + dense, 1e-6)
    check(tfm.accumulate_n([constant(X), constant(Y)]), X + Y)
    with pytest.raises(ValueError, match="dtype"):
        tfm.add_n([constant(X), constant([1])])
    with pytest.raises(ValueError, match="list"):
        tfm.add_n([])


def test_names_may_be_given() -> None:
    assert elementwise.add(1, 2, "three").op.name == "three"
    assert elementwise.multiply(constant(X), Y, name="times").op.name == "times"
    assert reduction.reduce_sum(X, name="total").op.name == "total"
    assert reduction.reduce_sum(X).op.name == "Sum"


# ---------------------------------------------------------------------- conversions
def test_cast() -> None:
    x = constant(X)
    assert casting.cast(x, "float32") is x
    assert casting.cast(x, np.int32).op.name == "Cast"
    assert casting.to_float([1, 2]).op.name == "ToFloat"
    check(casting.cast([1.7, -1.7], "int32"), [1, -1])
    slices = IndexedSlices(constant(X), constant([0, 1, 2]), None)
    assert casting.cast(slices, "float64").values.dtype is dtypes.float64


def test_saturate_cast() -> None:
    check(casting.saturate_cast([-5.0, 3.0, 900.0], "uint8"), [0, 3, 255])
    check(casting.saturate_cast([-(2**31), 100, 2**31 - 1], "int8"), [-128, 100, 127])


# ---------------------------------------------------------------------- reductions
def test_deprecated_names_of_reductions() -> None:
    check(reduction.reduce_sum(X, reduction_indices=1), X.sum(1), 1e-6)
    check(reduction.reduce_mean(X, 0, keep_dims=True), X.mean(0, keepdims=True), 1e-6)
    check(reduction.reduce_max(X, [], name="same"), X)
    check(reduction.argmax(X, dimension=1), X.argmax(1))
    for wrong in ({"axis": 0, "reduction_indices": 1}, {"keepdims": True, "keep_dims": False}):
        with pytest.raises(ValueError, match="both"):
            reduction.reduce_sum(X, **wrong)


def test_reductions_of_unknown_rank_give_scalars() -> None:
    x = placeholder(dtypes.float32)
    total = reduction.reduce_sum(x)
    assert total.shape.as_list() == []
    assert_close(run(total, {x: X}), X.sum(), 1e-5)


def test_composed_reductions() -> None:
    check(reduction.reduce_logsumexp(X, 1), np.log(np.exp(X).sum(1)), 1e-5)
    check(reduction.reduce_logsumexp(X), np.log(np.exp(X).sum()), 1e-5)
    check(reduction.reduce_logsumexp(np.float32([1000, 1000])), 1000 + np.log(2), 1e-5)
    check(reduction.reduce_logsumexp(np.float32([-np.inf, -np.inf])), -np.inf)
    check(reduction.reduce_variance(X, 0), X.var(0), 1e-5)
    check(reduction.reduce_std(X, keepdims=True), X.std(keepdims=True), 1e-5)
    check(reduction.reduce_euclidean_norm(X, 1), np.linalg.norm(X, axis=1), 1e-5)
    check(reduction.count_nonzero([[0, 1], [2, 3]], 0), [1, 2])
    check(reduction.count_nonzero([b"", b"a"], dtype="int32"), 1)
    assert reduction.count_nonzero(X).dtype is dtypes.int64
    with pytest.raises(TypeError, match="floating"):
        reduction.reduce_variance([1, 2])


def test_ranges() -> None:
    check(reduction.range(4), [0, 1, 2, 3])
    check(reduction.range(1, 8, 3), [1, 4, 7])
    assert reduction.range(3).op.name == "range_2"
    assert reduction.range(3.0).dtype is dtypes.float32
    assert reduction.range(np.int64(0), 3).dtype is dtypes.int64
    assert reduction.range(3, dtype="float64").dtype is dtypes.float64
    check(reduction.linspace(0.0, 1.0, 5), [0, 0.25, 0.5, 0.75, 1])
    limit = placeholder(dtypes.int32, [])
    assert_close(run(reduction.range(limit), {limit: 3}), [0, 1, 2])


def test_segments() -> None:
    ids = np.int32([0, 0, 2])
    check(segments.segment_sum(X, ids), np.stack([X[:2].sum(0), np.zeros(4), X[2]]), 1e-6)
    check(segments.unsorted_segment_mean(X, ids, 3), np.stack([X[:2].mean(0), np.zeros(4), X[2]]), 1e-6)
    check(segments.unsorted_segment_sqrt_n(X, ids, 3), np.stack([X[:2].sum(0) / 2**0.5, np.zeros(4), X[2]]), 1e-6)
    check(segments.sparse_segment_mean(X, [2, 0], [0, 0]), [(X[2] + X[0]) / 2], 1e-6)
    check(segments.sparse_segment_sum(X, [2, 0], [0, 0], num_segments=2), [X[2] + X[0], np.zeros(4)], 1e-6)


def test_counting() -> None:
    values = np.int32([1, 1, 3])
    check(reduction.bincount(values), [0, 2, 0, 1])
    check(reduction.bincount(values, maxlength=2), [0, 2])
    check(reduction.bincount(values, [0.5, 1.0, 2.0], minlength=5), [0, 1.5, 0, 2, 0])
    check(reduction.bincount(np.zeros(0, np.int32)), np.zeros(0, np.int32))
    fed = placeholder(dtypes.int32, [None])
    assert_close(run(reduction.bincount(fed), {fed: [2, 2]}), [0, 0, 2])
    check(reduction.histogram_fixed_width([-1.0, 0.0, 1.5, 2.0, 5.0, 15.0], [0.0, 5.0], 5), [2, 1, 1, 0, 2])
    check(reduction.histogram_fixed_width_bins([-1.0, 0.0, 1.5, 2.0, 5.0, 15.0], [0.0, 5.0], 5), [0, 0, 1, 2, 4, 4])


def test_confusion_matrix() -> None:
    labels, predictions = [1, 2, 2, 0], [1, 0, 2, 0]
    check(reduction.confusion_matrix(labels, predictions), [[1, 0, 0], [0, 1, 0], [1, 0, 1]])
    check(
        reduction.confusion_matrix(labels, predictions, 4, dtype="float32", weights=[0.5, 1, 1, 1])[1], [0, 0.5, 0, 0]
    )
    with pytest.raises(errors.InvalidArgumentError):
        run(reduction.confusion_matrix(labels, predictions, 2))


# ---------------------------------------------------------------------- clipping
def test_clip_by_value() -> None:
    check(clipping.clip_by_value(X, -0.5, 0.25), np.clip(X, -0.5, 0.25))
    slices = clipping.clip_by_value(IndexedSlices(constant(X), constant([0, 1, 2]), None), -0.5, 0.5)
    assert_close(run(slices.values), np.clip(X, -0.5, 0.5))
    with pytest.raises(ValueError, match="shape|incompatible"):
        clipping.clip_by_value(X[0], np.zeros((3, 4), np.float32), 1.0)


def test_clip_by_norm() -> None:
    check(clipping.clip_by_norm(X, 0.5), X * 0.5 / np.linalg.norm(X), 1e-6)
    check(clipping.clip_by_norm(X, 100.0), X)
    norms = np.linalg.norm(X, axis=1, keepdims=True)
    check(clipping.clip_by_norm(X, 1.0, axes=[1]), X / np.maximum(norms, 1), 1e-6)
    check(clipping.clip_by_norm(np.zeros(3, np.float32), 1.0), np.zeros(3))
    average = np.linalg.norm(X) / X.size
    check(clipping.clip_by_average_norm(X, average / 2), X / 2, 1e-5)


def test_clip_by_global_norm() -> None:
    slices = IndexedSlices(constant(Y), constant([0, 1, 2]), None)
    norm = np.sqrt((X**2).sum() + (Y**2).sum())
    clipped, found = clipping.clip_by_global_norm([constant(X), None, slices], 1.0)
    assert clipped[1] is None
    values = run([found, clipped[0], clipped[2].values])
    for got, wanted in zip(values, [norm, X / norm, Y / norm], strict=True):
        assert_close(got, wanted, 1e-6)
    check(clipping.clip_by_global_norm([constant(X)], 100.0)[0][0], X, 1e-6)
    assert np.isnan(run(clipping.clip_by_global_norm([constant([np.inf, 1.0])], 1.0)[0][0])).all()
    with pytest.raises(TypeError, match="sequence"):
        clipping.clip_by_global_norm(constant(X), 1.0)


# ---------------------------------------------------------------------- linear algebra
def test_matmul_chooses_the_operation() -> None:
    z = X + 1j * Y
    plain = linalg.matmul(X, Y, transpose_b=True)
    assert (plain.op.type, plain.op.name) == ("MatMul", "MatMul")
    check(plain, X @ Y.T, 1e-5)
    check(linalg.matmul(z, z, adjoint_a=True), z.conj().T @ z, 1e-5)
    batch = linalg.matmul(SQUARE, SQUARE, transpose_a=True, adjoint_b=True)
    assert batch.op.type == "BatchMatMulV2"
    check(batch, np.swapaxes(SQUARE, 1, 2) @ np.swapaxes(SQUARE, 1, 2))
    check(linalg.matmul(SQUARE, np.eye(3)), SQUARE)
    assert linalg.matmul(X, Y.T, a_is_sparse=True).op.type == "SparseMatMul"
    check(linalg.matvec(X, Y[0]), X @ Y[0], 1e-5)
    unknown = placeholder(dtypes.float32)
    assert_close(run(linalg.matmul(unknown, unknown, adjoint_b=True), {unknown: X}), X @ X.T, 1e-5)
    with pytest.raises(ValueError, match="Only one"):
        linalg.matmul(X, Y, transpose_a=True, adjoint_a=True)
    with pytest.raises(ValueError, match="inner dimensions"):
        linalg.matmul(X, Y)


@pytest.mark.parametrize("equation", ["ij,kj->ik", "ij,ij", "ij, kj -> ki", "ij,ij->j", "...j,kj->...k"])
def test_einsum(equation: str) -> None:
    check(contraction.einsum(equation, X, Y), np.einsum(equation, X, Y), 1e-5)


def test_einsum_refuses_what_it_cannot_read() -> None:
    for wrong in ("ij", "ij,jk->il", "i-j,jk", "i.j,kj->ik"):
        with pytest.raises(ValueError, match="equation"):
            contraction.einsum(wrong, X, Y)
    with pytest.raises(TypeError, match="keyword"):
        contraction.einsum("ij,jk", X, Y, nme="x")


@pytest.mark.parametrize("axes", [0, 1, 2, [[1], [0]], [[0, 1], [1, 2]], [1, 2], [[-1, 0], [0, -1]]])
def test_tensordot(axes: Any) -> None:
    a = RANDOM.normal(size=(3, 3, 3))
    check(contraction.tensordot(a, a, axes), np.tensordot(a, a, axes))


@pytest.mark.parametrize(
    ("ord", "axis"),
    [
        ("euclidean", None),
        (1, 1),
        (2, 0),
        (3, -1),
        (np.inf, 1),
        ("fro", (0, 1)),
        (1, (0, 1)),
        (2, (-2, -1)),
        (np.inf, [1, 0]),
    ],
)
@pytest.mark.parametrize("keepdims", [False, True])
def test_norm(ord: Any, axis: Any, keepdims: bool) -> None:
    axes = tuple(axis) if isinstance(axis, list) else axis
    numpy_ord = None if ord == "euclidean" else ord
    check(linalg.norm(X, ord, axis, keepdims), np.linalg.norm(X, numpy_ord, axes, keepdims), 1e-5)


def test_norm_refuses() -> None:
    for ord, axis in (("fro", 0), (0, 0), (3, (0, 1)), (2, (1, 1)), (2, (0, 1, 2))):
        with pytest.raises(ValueError, match="ord|axis"):
            linalg.norm(SQUARE, ord, axis)


def test_decompositions() -> None:
    positive = SQUARE @ np.swapaxes(SQUARE, 1, 2)
    s, u, v = linalg.svd(SQUARE)
    check(linalg.matmul(u * s[:, None, :], v, adjoint_b=True), SQUARE)
    check(linalg.svd(SQUARE, compute_uv=False), np.linalg.svd(SQUARE, compute_uv=False))
    e, w = linalg.self_adjoint_eig(positive)
    check(linalg.matmul(w * e[:, None, :], w, adjoint_b=True), positive)
    check(linalg.self_adjoint_eigvals(positive), np.linalg.eigvalsh(positive))
    q, r = linalg.qr(SQUARE)
    check(linalg.matmul(q, r), SQUARE)
    check(linalg.cholesky_solve(linalg.cholesky(positive), SQUARE), np.linalg.solve(positive, SQUARE), 1e-8)
    check(linalg.logdet(positive), np.linalg.slogdet(positive)[1])
    check(linalg.slogdet(SQUARE).log_abs_determinant, np.linalg.slogdet(SQUARE)[1])
    check(linalg.trace(SQUARE), np.trace(SQUARE, axis1=1, axis2=2))
    check(linalg.adjoint(X + 1j * Y), (X + 1j * Y).conj().T)
    check(linalg.pinv(X), np.linalg.pinv(X), 1e-4)
    check(linalg.matrix_rank(np.float32([[1, 2], [2, 4]])), 1)
    check(linalg.matrix_solve_ls(X.T, Y.T, 0.0), np.linalg.lstsq(X.T, Y.T)[0], 1e-3)
    check(linalg.expm(np.zeros((2, 2))), np.eye(2))
    check(linalg.normalize(X, axis=1)[0], X / np.linalg.norm(X, axis=1, keepdims=True), 1e-5)
    check(linalg.matrix_inverse(SQUARE), np.linalg.inv(SQUARE))


# ---------------------------------------------------------------------- Fourier transforms
def test_fourier_transforms() -> None:
    z = (X + 1j * Y).astype(np.complex64)
    check(spectral.fft(z), np.fft.fft(z), 1e-4)
    check(spectral.ifft2d(z), np.fft.ifft2(z), 1e-4)
    check(spectral.rfft(X), np.fft.rfft(X), 1e-4)
    check(spectral.rfft2d(X, [2, 6]), np.fft.rfft2(X, [2, 6]), 1e-4)
    check(spectral.irfft(z), np.fft.irfft(z), 1e-4)
    assert spectral.rfft(X.astype(np.float64)).dtype is dtypes.complex128
    assert spectral.rfft(X, name="transform").op.name == "transform"
    unknown = placeholder(dtypes.complex64, [None, None])
    assert_close(run(spectral.irfft(unknown), {unknown: z}), np.fft.irfft(z), 1e-4)


@pytest.mark.parametrize(("shape", "axis"), [([], 0), ([3], 1), ([3], -2)])
def test_positions_along_a_dimension_that_a_scalar_or_vector_has_not(shape: list[int], axis: int) -> None:
    """They are scalars while the graph is built, as in TensorFlow; the step refuses."""
    for find in (tf.argmin, tf.argmax):
        found = find(tf.zeros(shape), axis)
        assert found.shape.as_list() == []
        refused = pytest.raises(tf.errors.InvalidArgumentError, match=f"dimension {axis} is not in")
        with tf.Session() as session, refused:
            session.run(found)


def test_a_permutation_that_lacks_a_dimension_is_refused_by_the_step() -> None:
    turned = tf.transpose(tf.zeros([2, 3, 5]), [0, 1, 1])
    with tf.Session() as session, pytest.raises(tf.errors.InvalidArgumentError, match="2 is missing"):
        session.run(turned)
    with pytest.raises(ValueError, match="no permutation"):
        tf.transpose(tf.zeros([2, 3, 5]), [0, 1, 3])
