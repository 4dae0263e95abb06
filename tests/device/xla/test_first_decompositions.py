"""Decompositions of matrices in the first calls of a new graph: by LAPACK, and not yet compiled."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import anabranch as tf
from anabranch.xla import executable
from anabranch.xla.variants import CompileEvent


def test_small_systems_of_equations_are_not_compiled_at_first(compilations: list[CompileEvent]) -> None:
    numbers = np.random.default_rng(0).normal(size=(2, 4, 4))
    a = tf.placeholder(tf.float64, [2, 4, 4])
    symmetric = a @ tf.matrix_transpose(a) + tf.eye(4, dtype=tf.float64)
    factor = tf.cholesky(symmetric)
    fetches = [
        tf.matrix_inverse(a),
        tf.matrix_solve(a, symmetric, adjoint=True),
        tf.matrix_triangular_solve(factor, symmetric, adjoint=True),
        tf.matrix_determinant(a),
        *tf.linalg.slogdet(a),
        tf.linalg.expm(a * 9.0),
        tf.gradients(factor, a)[0],
    ]
    with tf.Session() as session:
        values = []
        for step in range(1, 4):
            values.append(session.run(fetches, {a: numbers}))
            assert bool(compilations) == (step > executable.FIRST_DIRECT_CALLS)
        for direct, compiled in zip(values[0], values[-1], strict=True):
            np.testing.assert_allclose(direct, compiled, rtol=1e-9)


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.complex64, np.complex128])
@pytest.mark.parametrize("full", [True, False])
def test_singular_vectors_are_those_of_compiled_programs(
    dtype: Any, full: bool, compilations: list[CompileEvent]
) -> None:
    """To the last bit: they may be turned round, and the third call must not turn them."""
    rng = np.random.default_rng(0)
    for shape in ((1, 1), (2, 5), (5, 2), (3, 2, 4, 4), (40, 30), (0, 3, 3), (2, 0, 3)):
        numbers = rng.normal(size=shape).astype(dtype)
        if np.iscomplexobj(numbers):
            numbers += 1j * rng.normal(size=shape)
        a = tf.placeholder(dtype, shape)
        with tf.Session() as session:
            for fetches in (list(tf.linalg.svd(a, full_matrices=full)), [tf.linalg.svd(a, compute_uv=False)]):
                compilations.clear()
                values = []
                for step in range(1, 4):
                    values.append(session.run(fetches, {a: numbers}))
                    assert bool(compilations) == (step > executable.FIRST_DIRECT_CALLS)
                for direct, compiled in zip(values[0], values[-1], strict=True):
                    assert direct.dtype == compiled.dtype
                    np.testing.assert_array_equal(direct, compiled)


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.complex64, np.complex128])
def test_qr_and_eigenvectors_are_those_of_compiled_programs(dtype: Any, compilations: list[CompileEvent]) -> None:
    """To the last bit, as above; float16 is computed as float32."""
    rng = np.random.default_rng(1)
    for shape in ((1, 1), (2, 5), (5, 2), (3, 2, 4, 4), (40, 30), (33, 33), (0, 3, 3), (2, 0, 3), (3, 0), (0, 0)):
        numbers = rng.normal(size=shape).astype(dtype)
        if np.iscomplexobj(numbers):
            numbers += 1j * rng.normal(size=shape)
        a = tf.placeholder(dtype, shape)
        found = [*tf.linalg.qr(a), *tf.linalg.qr(a, full_matrices=True)]
        if shape[-1] == shape[-2]:
            found += [*tf.linalg.eigh(a), tf.linalg.eigvalsh(a)]
        with tf.Session() as session:
            compilations.clear()
            values = []
            for step in range(1, 4):
                values.append(session.run(found, {a: numbers}))
                assert bool(compilations) == (step > executable.FIRST_DIRECT_CALLS)
        for direct, compiled, tensor in zip(values[0], values[-1], found, strict=True):
            assert direct.dtype == compiled.dtype
            assert direct.shape == tensor.shape
            np.testing.assert_array_equal(direct, compiled)
        q, r, whole, rest = values[0][:4]
        np.testing.assert_allclose(q @ r, numbers, atol=1e-5)
        np.testing.assert_allclose(whole @ rest, numbers, atol=1e-5)
        np.testing.assert_allclose(
            np.swapaxes(q.conj(), -1, -2) @ q,
            np.broadcast_to(np.eye(q.shape[-1]), (*q.shape[:-2], *q.shape[-1:] * 2)),
            atol=1e-5,
        )


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_gradients_of_decompositions_before_they_are_compiled(dtype: Any, compilations: list[CompileEvent]) -> None:
    rng = np.random.default_rng(2)
    for shape in ((4, 4), (2, 5, 3), (2, 3, 5)):
        numbers = rng.normal(size=shape).astype(dtype)
        a = tf.placeholder(dtype, shape)
        q, r = tf.linalg.qr(a)
        weights = [tf.constant(rng.normal(size=part.shape).astype(dtype)) for part in (q, r)]
        losses = [tf.reduce_sum(q * weights[0]) + tf.reduce_sum(tf.square(r) * weights[1])]
        square = tf.matmul(a, a, transpose_b=True)
        e, v = tf.linalg.eigh(square)
        weight = tf.constant(rng.normal(size=v.shape).astype(dtype))
        losses.append(tf.reduce_sum(tf.square(v) * weight) if shape != (2, 5, 3) else tf.reduce_sum(tf.square(e)))
        fetches = [tf.gradients(loss, a)[0] for loss in losses]
        with tf.Session() as session:
            compilations.clear()
            values = []
            for step in range(1, 4):
                values.append(session.run(fetches, {a: numbers}))
                assert bool(compilations) == (step > executable.FIRST_DIRECT_CALLS)
        for direct, compiled in zip(values[0], values[-1], strict=True):
            scale = np.abs(compiled).max()
            np.testing.assert_allclose(direct / scale, compiled / scale, atol=1e-3 if dtype == np.float32 else 1e-9)


@pytest.mark.parametrize("direct", [True, False])
def test_eigenvectors_of_what_is_no_number(direct: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the lower triangle is looked at."""
    monkeypatch.setattr(executable, "FIRST_DIRECT_CALLS", 2 if direct else 0)
    a = tf.placeholder(tf.float32, [2, 2])
    e, _ = tf.linalg.eigh(a, name="decomposed")
    with tf.Session() as session:
        np.testing.assert_allclose(session.run(e, {a: [[1.0, np.nan], [0.0, 2.0]]}), [1.0, 2.0])
        with pytest.raises(tf.errors.InvalidArgumentError, match=r"decomposition was not successful"):
            session.run(e, {a: [[1.0, 0.0], [np.nan, 2.0]]})


def test_singular_values_of_what_is_no_number(compilations: list[CompileEvent]) -> None:
    a = tf.placeholder(tf.float32, [2, 3, 3])
    fed = {a: np.stack([np.eye(3), np.full((3, 3), np.nan)])}
    with tf.Session() as session:
        values = [session.run(tf.linalg.svd(a, compute_uv=False), fed) for _ in range(3)]
    np.testing.assert_array_equal(values[0], values[2])
    np.testing.assert_array_equal(values[0], [[1, 1, 1], [np.nan] * 3])


@pytest.mark.parametrize("direct", [True, False])
def test_matrices_that_are_singular_or_not_finite(direct: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(executable, "FIRST_DIRECT_CALLS", 2 if direct else 0)
    a = tf.placeholder(tf.float32, [2, 2, 2])
    identity = np.eye(2)
    refused = {
        "Cholesky decomposition was not successful": (tf.cholesky(a), [[1, 2], [2, 1]]),
        "Input is not invertible": (tf.matrix_inverse(a), [[1, 2], [2, 4]]),
        "Input matrix is not invertible": (tf.matrix_solve(a, a), [[np.nan, 2], [np.nan, 4]]),
        "Input is not invertible.": (tf.matrix_triangular_solve(a, a), [[0, 2], [2, 4]]),
    }
    with tf.Session() as session:
        for message, (result, matrix) in refused.items():
            with pytest.raises(tf.errors.InvalidArgumentError, match=message):
                session.run(result, {a: [identity, matrix]})
        not_finite = {a: [identity, [[1, np.nan], [np.nan, 1]]]}
        good, bad = session.run(tf.cholesky(a), not_finite)
        np.testing.assert_array_equal(good, identity)
        np.testing.assert_array_equal(bad, [[1, 0], [np.nan, np.nan]])
        sign, logarithm = session.run(list(tf.linalg.slogdet(a)), not_finite)
        np.testing.assert_array_equal([sign, logarithm], [[1, np.nan], [0, np.nan]])
        assert np.isnan(session.run(tf.linalg.expm(a), not_finite)[1]).all()
