"""Sums of linear operators, which libraries ask of a private module of TensorFlow."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

import anabranch as tf
from anabranch.compat.private.linear_operator_sums import add_operators
from anabranch.tools import deferred_modules, tensorflow_alias

_FULL = np.array([[4.0, 1.0], [1.0, 3.0]], np.float32)


def _operators() -> list[Any]:
    """From the simplest form to the least simple one; batches of one and of two."""
    linalg = tf.linalg
    return [
        linalg.LinearOperatorIdentity(2),
        linalg.LinearOperatorScaledIdentity(2, np.float32([3.0, -2.0])),
        linalg.LinearOperatorDiag(np.float32([[1.0, 2.0], [3.0, 4.0]])),
        linalg.LinearOperatorLowerTriangular(_FULL),
        linalg.LinearOperatorFullMatrix(_FULL),
        linalg.LinearOperatorAdjoint(linalg.LinearOperatorFullMatrix(_FULL + np.float32([[0, 7], [0, 0]]))),
    ]


def test_the_sum_has_the_simplest_form() -> None:
    built, forms = [], []
    for one, other in itertools.product(_operators(), repeat=2):
        (total,) = add_operators([one, other])
        forms.append(type(total).__name__.removeprefix("LinearOperator"))
        built.append((total.to_dense(), one.to_dense() + other.to_dense()))
    with tf.Session() as session:
        for found, expected in session.run(built):
            np.testing.assert_array_equal(found, expected)
    expected_row = ["ScaledIdentity"] * 2 + ["Diag", "LowerTriangular", "FullMatrix", "FullMatrix"]
    assert forms[:6] == expected_row
    assert forms[12:18] == ["Diag"] * 3 + expected_row[3:]


def test_several_operators_and_sizes_that_only_the_step_knows() -> None:
    size = tf.placeholder(tf.int32, [])
    diagonal = tf.placeholder(tf.float32, [None])
    parts = [
        tf.linalg.LinearOperatorDiag(diagonal),
        tf.linalg.LinearOperatorScaledIdentity(size, 2.0),
        tf.linalg.LinearOperatorIdentity(size),
    ]
    (total,) = add_operators(parts, operator_name="total")
    assert total.name == "total"
    with tf.Session() as session:
        found = session.run([total.to_dense(), add_operators(parts[1:])[0].to_dense()], {size: 2, diagonal: [4.0, 5.0]})
    np.testing.assert_array_equal(found, [[[7, 0], [0, 8]], [[3, 0], [0, 3]]])


def test_what_is_known_of_the_parts_is_known_of_the_sum() -> None:
    definite = tf.linalg.LinearOperatorFullMatrix(_FULL, is_self_adjoint=True, is_positive_definite=True)
    (total,) = add_operators([definite, tf.linalg.LinearOperatorIdentity(2)])
    assert total.is_self_adjoint
    assert total.is_positive_definite
    assert total.is_non_singular
    (unknown,) = add_operators([definite, tf.linalg.LinearOperatorFullMatrix(-_FULL)])
    assert unknown.is_positive_definite is None
    assert unknown.is_non_singular is None


def test_what_cannot_be_added() -> None:
    with pytest.raises(ValueError, match="at least one"):
        add_operators([])
    with pytest.raises(TypeError, match="adds linear operators, not 3"):
        add_operators([3])  # type: ignore[list-item]
    with pytest.raises(ValueError, match="cannot be added"):
        add_operators([tf.linalg.LinearOperatorIdentity(2), tf.linalg.LinearOperatorIdentity(3)])


def test_it_is_found_below_a_module_that_is_not_there() -> None:
    package = deferred_modules.find_module("python.ops.linalg")
    assert package is not None
    assert package.linear_operator_addition.add_operators is add_operators
    found = tensorflow_alias.counterpart("tensorflow.python.ops.linalg.linear_operator_addition")
    assert found is not None
    assert found[0][0].add_operators is add_operators
