"""Operations on the host whose other inputs are known are bound to these; what they refuse is said as before."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import anabranch as tf
from anabranch.core.registry import all_op_defs


def kept(values: Any, mask: Any) -> Any:
    """What a mask lets through, so that all after it runs on the host."""
    return tf.boolean_mask(values, mask)


@pytest.mark.parametrize(
    "index",
    [
        0,
        -1,
        slice(1, None),
        slice(None, None, -1),
        slice(-2, 100),
        slice(4, 2),
        (slice(None), 1),
        (slice(1, 3), slice(None, None, -2)),
        (..., 0),
        (tf.newaxis, slice(None), tf.newaxis, 2),
        (..., tf.newaxis),
    ],
)
def test_slices_are_numpys(index: Any) -> None:
    data = np.arange(18).reshape(6, 3)
    with tf.Graph().as_default(), tf.Session() as session:
        values, mask = tf.placeholder(tf.int64, [None, 3]), tf.placeholder(tf.bool, [None])
        part = kept(values, mask)[index]
        given = None if index is tf.newaxis else index
        for count in (6, 4, 5):
            chosen = np.arange(6) < count
            expected = data[chosen][given]
            result = session.run(part, {values: data, mask: chosen})
            np.testing.assert_array_equal(result, expected)
            assert result.dtype == np.int64
            assert np.shape(result) == expected.shape


def test_an_index_beyond_the_end_names_the_operation_and_the_dimension() -> None:
    with tf.Graph().as_default(), tf.Session() as session:
        values, mask = tf.placeholder(tf.float32, [None, 2]), tf.placeholder(tf.bool, [None])
        third = tf.strided_slice(kept(values, mask), [2, 0], [3, 2], shrink_axis_mask=1, name="third")
        feeds = {values: np.ones((4, 2)), mask: [True] * 4}
        for _ in range(2):
            assert session.run(third, feeds).tolist() == [1, 1]
            with pytest.raises(
                tf.errors.InvalidArgumentError, match="slice index 2 of dimension 0 out of bounds"
            ) as raised:
                session.run(third, {values: np.ones((4, 2)), mask: [True, True, False, False]})
            assert "third" in str(raised.value)


def test_fewer_dimensions_than_bounds() -> None:
    with tf.Graph().as_default(), tf.Session() as session:
        values, mask = tf.placeholder(tf.float32), tf.placeholder(tf.bool, [None])
        part = tf.strided_slice(kept(values, mask), [0, 0], [2, 1], name="part")
        assert session.run(part, {values: np.ones((3, 2)), mask: [True] * 3}).shape == (2, 1)
        with pytest.raises(tf.errors.InvalidArgumentError, match="part"):
            session.run(part, {values: np.ones(3), mask: [True] * 3})


@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "int64"])
def test_buckets(dtype: str) -> None:
    data = np.array([-5, 0, 1, 2, 10, 3]).astype(dtype)
    if data.dtype.kind == "f":
        data[-1] = np.nan
    boundaries = [-0.5, 0.0, 1.0, 2.5]
    with tf.Graph().as_default(), tf.Session() as session:
        values, mask = tf.placeholder(dtype, [None]), tf.placeholder(tf.bool, [None])
        on_host = tf.raw_ops.Bucketize(input=kept(values, mask), boundaries=boundaries)
        compiled = tf.raw_ops.Bucketize(input=values, boundaries=boundaries)
        for _ in range(3):  # the third call of a small program is a compiled one
            results = session.run([on_host, compiled], {values: data, mask: [True] * 6})
            assert results[0].tolist() == results[1].tolist()
            assert results[0].dtype == np.int32
        falling = tf.raw_ops.Bucketize(input=kept(values, mask), boundaries=[1.0, 0.0], name="falling")
        with pytest.raises(tf.errors.InvalidArgumentError, match=r"must be sorted.*"):
            session.run(falling, {values: data, mask: [True] * 6})


def test_who_states_it_has_one_result_and_a_portable_kernel() -> None:
    stated = [op_def for op_def in all_op_defs().values() if op_def.known_rule is not None]
    assert stated
    for op_def in stated:
        assert op_def.portable, op_def.name
        assert op_def.host_rule is None, op_def.name
        assert len(op_def.outputs) == 1, op_def.name
        assert not op_def.outputs[0].is_list, op_def.name
