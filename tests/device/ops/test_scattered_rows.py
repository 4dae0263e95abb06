"""Rows that the host combines by their index: what NumPy's `at` gives, which takes far longer for rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import anabranch as tf
from anabranch.core.dtypes import as_dtype
from anabranch.ops.arrays.segment import scatter


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16", "int8", "int64", "complex64"])
@pytest.mark.parametrize("ufunc", [np.add, np.multiply, np.maximum])
@pytest.mark.parametrize("order", ["sorted", "any", "one", "none"])
def test_they_are_what_at_gives(dtype: str, ufunc: np.ufunc, order: str) -> None:
    rng, kind = np.random.default_rng(0), np.dtype(as_dtype(dtype).as_numpy_dtype)
    indices = {"any": rng.integers(0, 9, 60), "one": np.full(60, 3), "none": np.zeros(0, np.int64)}.get(
        order, np.sort(rng.integers(0, 9, 60))
    )
    rows = rng.integers(-2, 3, (len(indices), 4, 2)).astype(kind)
    expected = rng.integers(-1, 2, (9, 4, 2)).astype(kind)
    got: Any = scatter(np, expected.copy(), indices, rows, "", ufunc)
    for index, row in zip(indices, rows, strict=True):
        expected[index] = ufunc(expected[index], row)
    assert got.dtype == kind
    np.testing.assert_array_equal(got.astype(np.complex128), expected.astype(np.complex128))


def test_segments_of_masked_rows() -> None:
    """The number of rows is the data's, so that the host sums them."""
    x, ids = tf.placeholder(tf.float32, [None, 3]), tf.placeholder(tf.int32, [None])
    kept = ids >= 0
    sums = tf.math.unsorted_segment_sum(tf.boolean_mask(x, kept), tf.boolean_mask(ids, kept), 4)
    values, rows = np.arange(15, dtype=np.float32).reshape(5, 3), [3, -1, 0, 3, 0]
    with tf.Session() as session:
        assert session.run(sums, {x: values, ids: rows}).tolist() == [[18, 20, 22], [0] * 3, [0] * 3, [9, 11, 13]]
