"""Slices of every form (ranges, negative strides, indices, new axes, an ellipsis) against NumPy's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import anabranch as tf
from anabranch.graph.constants import constant_value
from anabranch.graph.graph import Graph

SHAPE = (3, 4, 2)
X = np.arange(24.0, dtype=np.float32).reshape(SHAPE)
#: forms in one program of the tests that compile
FORMS = 40


def bound(size: int) -> st.SearchStrategy[int | None]:
    return st.none() | st.integers(-size - 3, size + 3)


def entry(size: int) -> st.SearchStrategy[Any]:
    steps = st.none() | st.sampled_from([1, 2, 3, -1, -2, -3])
    return st.integers(-size, size - 1) | st.builds(slice, bound(size), bound(size), steps)


@st.composite
def items(draw: st.DrawFn) -> tuple[Any, ...]:
    """An expression that NumPy and the package take for a tensor of `SHAPE`."""
    first = draw(st.integers(0, 3))
    last = draw(st.integers(0, 3 - first))
    found = [draw(entry(size)) for size in SHAPE[:first]]
    found += [Ellipsis] if last or draw(st.booleans()) else []
    found += [draw(entry(size)) for size in SHAPE[3 - last :]]
    for _ in range(draw(st.integers(0, 2))):
        found.insert(draw(st.integers(0, len(found))), None)
    return tuple(found)


@settings(max_examples=50, deadline=None)
@given(items())
def test_of_a_constant(item: tuple[Any, ...]) -> None:
    with Graph().as_default():
        part = tf.constant(X)[item]
        assert part.shape.as_list() == list(X[item].shape)
        np.testing.assert_array_equal(constant_value(part), X[item])


@settings(max_examples=2, deadline=None)
@given(forms=st.lists(items(), min_size=FORMS, max_size=FORMS), known=st.booleans())
def test_in_a_program_with_gradients(forms: list[tuple[Any, ...]], known: bool) -> None:
    forms = [*forms, np.s_[-5::-1], np.s_[-4:-4:-1], np.s_[-4::-2], np.s_[::-1, -9:9]]
    with Graph().as_default(), tf.Session() as session:
        x = tf.placeholder(tf.float32, SHAPE if known else [None] * 3)
        parts = [x[item] for item in forms]
        weights = [np.arange(1.0, X[item].size + 1, dtype=np.float32).reshape(X[item].shape) for item in forms]
        gradients = [tf.gradients(part, x, weight)[0] for part, weight in zip(parts, weights, strict=True)]
        values, slopes = session.run([parts, gradients], {x: X})
    for item, value, slope, weight in zip(forms, values, slopes, weights, strict=True):
        np.testing.assert_array_equal(value, X[item], err_msg=str(item))
        wanted = np.zeros_like(X)
        wanted[item] = weight
        np.testing.assert_array_equal(slope, wanted, err_msg=str(item))


@settings(max_examples=1, deadline=None)
@given(st.lists(items(), min_size=FORMS, max_size=FORMS))
def test_assignment(forms: list[tuple[Any, ...]]) -> None:
    forms = [*forms, np.s_[-5::-1], np.s_[-4::-2], np.s_[-1:-9:-2]]
    with Graph().as_default(), tf.Session() as session:
        results, wanted = [], []
        for item in forms:
            value = -1 - np.arange(X[item].size, dtype=np.float32).reshape(X[item].shape)
            variable = tf.Variable(X, use_resource=True)
            results.append(variable[item].assign(value))
            expected = X.copy()
            expected[item] = value
            wanted.append(expected)
        session.run(tf.global_variables_initializer())
        for item, got, expected in zip(forms, session.run(results), wanted, strict=True):
            np.testing.assert_array_equal(got, expected, err_msg=str(item))


@pytest.mark.parametrize("fed_shape", [False, True])
def test_of_fed_bounds(fed_shape: bool) -> None:
    bounds = [(-5, -9, -1), (-4, -4, -1), (-4, -9, -2), (5, -9, -2), (-9, 9, 3), (2, 0, 1), (0, 2, -1), (-1, -9, -1)]
    with Graph().as_default(), tf.Session() as session:
        x = tf.placeholder(tf.float32, [None] if fed_shape else [3])
        begin, end, stride = (tf.placeholder(tf.int32, []) for _ in range(3))
        part = x[begin:end:stride]
        gradient = tf.gradients(part, x)[0]
        for b, e, s in bounds:  # the first two are compiled, the others not
            value, slope = session.run([part, gradient], {x: X[:, 0, 0], begin: b, end: e, stride: s})
            np.testing.assert_array_equal(value, X[b:e:s, 0, 0])
            taken = np.zeros(3, np.float32)
            taken[b:e:s] = 1
            np.testing.assert_array_equal(slope, taken)
