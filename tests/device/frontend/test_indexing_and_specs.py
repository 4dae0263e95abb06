"""Indexing by a mask, TensorSpec, tf.version, and messages of placeholders, ensure_shape, concat and roll."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest

import anabranch as tf
from anabranch.ops import raw

X = np.arange(6).reshape(2, 3)


def test_a_mask_as_index_takes_the_elements_where_it_is_true() -> None:
    x = tf.constant(X)
    with tf.Session() as session:
        assert session.run(x[x > 2]).tolist() == X[X > 2].tolist()
        assert session.run(x[np.array([False, True])]).tolist() == [[3, 4, 5]]


def test_a_spec_says_what_a_tensor_must_be() -> None:
    spec = tf.TensorSpec([None, 3], tf.int64, "x")
    assert spec.is_compatible_with(tf.constant(X))
    assert not spec.is_compatible_with(tf.TensorSpec([2, 3]))
    assert tf.TensorSpec.from_spec(spec) == spec
    assert pickle.loads(pickle.dumps(spec)) == spec  # noqa: S301
    assert tf.TensorSpec.from_tensor(tf.constant(1, name="one")).name == "one"
    assert repr(spec) == "TensorSpec(shape=(?, 3), dtype=tf.int64, name='x')"
    assert len({spec, tf.TensorSpec.from_spec(spec)}) == 1


def test_version() -> None:
    assert tf.version.VERSION == tf.__version__ == tf.VERSION
    assert tf.version.GRAPH_DEF_VERSION >= tf.version.GRAPH_DEF_VERSION_MIN_CONSUMER


def test_a_placeholder_that_is_not_fed_is_named_with_its_type() -> None:
    p = tf.placeholder(tf.float32, [2, None], name="p")
    message = r"must feed a value for placeholder tensor 'p' with dtype float and shape \[2,\?\]"
    with tf.Session() as session, pytest.raises(tf.errors.InvalidArgumentError, match=message):
        session.run(p + 1.0)


def test_ensure_shape_names_the_operation() -> None:
    p = tf.placeholder(tf.float32, name="p")
    message = r"Shape of tensor p \[2\] is not compatible with expected shape \[3\]"
    with tf.Session() as session, pytest.raises(tf.errors.InvalidArgumentError, match=message):
        session.run(tf.ensure_shape(p, [3]), {p: [1, 2]})


def test_functions_of_datasets_are_held_to_a_shape() -> None:
    elements = tf.data.Dataset.from_generator(lambda: iter([np.ones(2)]), tf.float64)
    element = elements.map(lambda x: tf.ensure_shape(x, [3])).make_one_shot_iterator().get_next()
    with tf.Session() as session, pytest.raises(tf.errors.InvalidArgumentError, match="not compatible with expected"):
        session.run(element)


def test_scalars_cannot_be_concatenated() -> None:
    with pytest.raises(ValueError, match="Can't concatenate scalars"):
        tf.concat([tf.constant(1), tf.constant(2)], tf.placeholder(tf.int32))


@pytest.mark.parametrize(
    ("dim", "shapes", "message"),
    [
        (4, [[2, 3, 5], [2, 7, 5]], "Concat dim is out of range: 4 vs. 3"),
        (1, [[2, 3, 5], [2, 7]], "should contain 3 elements"),
        (1, [[2, 3, 5], [2, 7, 6]], "All dimensions except 1 must match"),
    ],
)
def test_offsets_of_shapes_that_do_not_fit(dim: int, shapes: Any, message: str) -> None:
    offsets = raw.ConcatOffset(tf.constant(dim), [tf.constant(s) for s in shapes])
    with tf.Session() as session, pytest.raises(tf.errors.InvalidArgumentError, match=message):
        session.run(offsets)


@pytest.mark.parametrize(
    ("x", "shift", "axis", "message"),
    [
        (1, 1, 0, "at least rank 1"),
        ([1, 2], [[1]], 0, "at most rank 1 but is rank 2 for the shift"),
        ([1, 2], 1, [[0]], "at most rank 1 but is rank 2 for the axis"),
        ([1, 2], [1, 2], 0, "shapes must be equal"),
        ([1, 2], 1, 1, "out of range"),
    ],
)
def test_roll_says_what_is_wrong(x: Any, shift: Any, axis: Any, message: str) -> None:
    unknown = [tf.placeholder(tf.int32) for _ in range(3)]
    rolled = tf.roll(*unknown)
    with tf.Session() as session, pytest.raises(tf.errors.InvalidArgumentError, match=message):
        session.run(rolled, dict(zip(unknown, (x, shift, axis), strict=True)))
    if message == "shapes must be equal":
        with pytest.raises(ValueError, match="shapes must be equal"):
            tf.roll(x, shift, axis)


def test_padding_a_scalar_changes_nothing() -> None:
    with tf.Session() as session:
        assert session.run(tf.pad(tf.constant(7), np.zeros([0, 2], np.int32))) == 7


# ---------------------------------------------------------------------- the parts of sparse tensors
def test_a_sparse_spec_takes_values_apart_and_puts_them_together() -> None:
    spec = tf.SparseTensorSpec([5, None], tf.float32)
    assert spec._serialize() == (spec.shape, tf.float32)
    assert spec._component_specs == [
        tf.TensorSpec([None, 2], tf.int64),
        tf.TensorSpec([None], tf.float32),
        tf.TensorSpec([2], tf.int64),
    ]
    assert spec._flat_tensor_specs == [tf.TensorSpec(None, tf.variant)]
    assert spec._batch(32) == tf.SparseTensorSpec([32, 5, None])
    assert spec._batch(None)._unbatch() == spec
    with pytest.raises(ValueError, match="no dimension of a batch"):
        tf.SparseTensorSpec([])._unbatch()
    with tf.Graph().as_default(), tf.Session() as session:
        sparse = tf.SparseTensor([[0, 1]], [3.0], [5, 4])
        for again in (
            spec._from_components(spec._to_components(sparse)),
            spec._from_tensor_list(spec._to_tensor_list(sparse)),
        ):
            indices, values, shape = session.run(again)
            assert (indices.tolist(), values.tolist(), shape.tolist()) == ([[0, 1]], [3.0], [5, 4])
    assert isinstance(
        spec._from_components([np.array([[0, 1]]), np.array([3.0]), np.array([5, 4])]), tf.SparseTensorValue
    )


def test_who_takes_a_sparse_tensor() -> None:
    with tf.Graph().as_default():
        sparse = tf.SparseTensor([[0, 1]], [3.0], [5, 4])
        assert sparse.consumers() == []
        dense = tf.sparse_tensor_to_dense(sparse)
        assert sparse.consumers() == [dense.op]


def test_repeat_takes_what_has_no_known_rank() -> None:
    rows, counts = tf.placeholder(tf.float32), tf.placeholder(tf.int32)
    flat, along = tf.repeat(rows, counts), tf.repeat(rows, counts, axis=0)
    value = np.float32([[1, 2], [3, 4]])
    with tf.Session() as session:
        assert session.run(flat, {rows: value, counts: [1, 0, 2, 1]}).tolist() == [1, 3, 3, 4]
        assert session.run(flat, {rows: value, counts: 2}).tolist() == [1, 1, 2, 2, 3, 3, 4, 4]
        assert session.run(along, {rows: value, counts: [0, 2]}).tolist() == [[3, 4], [3, 4]]
        assert session.run(along, {rows: value, counts: [1]}).tolist() == value.tolist()
        assert session.run(tf.repeat(7, 3, axis=0)).tolist() == [7, 7, 7]
    with pytest.raises(ValueError, match="axis = -1 may be negative only where the input's rank is known"):
        tf.repeat(rows, counts, axis=-1)
