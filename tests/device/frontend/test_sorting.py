"""sort, argsort, eye, arg_max, tables_initializer."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import anabranch as tf

VALUES = np.array([[3, 1, 2], [-5, 9, 4]])


@pytest.mark.parametrize("dtype", ["int32", "uint8", "float32", "float16"])
@pytest.mark.parametrize("axis", [-1, 0])
@pytest.mark.parametrize("direction", ["ASCENDING", "DESCENDING"])
def test_sort(dtype: str, axis: int, direction: str) -> None:
    values = np.abs(VALUES).astype(dtype) if dtype == "uint8" else VALUES.astype(dtype)
    expected = np.sort(values, axis)
    with tf.Session() as session:
        found, order = session.run([tf.sort(values, axis, direction), tf.argsort(values, axis, direction)])
    assert np.array_equal(found, expected if direction == "ASCENDING" else np.flip(expected, axis))
    assert np.array_equal(np.take_along_axis(values, order, axis), found)


def test_the_order_of_axes_is_a_constant_with_a_name() -> None:
    tf.sort(tf.zeros([2, 3, 4]), axis=0, name="sorted")
    order = tf.get_default_graph().get_tensor_by_name("sorted/transposition:0")
    assert tf.get_static_value(order).tolist() == [2, 1, 0]


def test_sort_names_what_is_wrong() -> None:
    with pytest.raises(ValueError, match="direction"):
        tf.sort([1, 2], direction="up")
    with pytest.raises(ValueError, match="axis"):
        tf.sort([1, 2], axis=tf.placeholder("int32", []))
    with pytest.raises(ValueError, match="not in"):
        tf.sort([1, 2], axis=3)


@pytest.mark.parametrize(("rows", "columns", "batch"), [(2, None, None), (2, 3, [2]), (0, 2, [1, 2])])
def test_eye(rows: int, columns: Any, batch: Any) -> None:
    tensor = tf.eye(rows, columns, batch, dtype="float64")
    wanted = np.broadcast_to(np.eye(rows, columns), [*(batch or []), rows, columns or rows])
    assert tensor.shape.as_list() == list(wanted.shape)
    with tf.Session() as session:
        assert np.array_equal(session.run(tensor), wanted)


def test_arg_max_takes_the_dimension_second() -> None:
    with tf.Session() as session:
        assert session.run([tf.arg_max(VALUES, 1), tf.arg_min(VALUES, 0)])[0].tolist() == [0, 1]


def test_tables_initializer_stands_for_the_collection() -> None:
    table = tf.no_op()
    tf.add_to_collection(tf.GraphKeys.TABLE_INITIALIZERS, table)
    assert table in tf.tables_initializer().control_inputs
