"""What the branches of `tf.cond` may return, and what comes back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest

import anabranch as tf


class Single(NamedTuple):
    value: Any


def run(fetches: Any, feeds: Any) -> Any:
    with tf.Session() as session:
        return session.run(fetches, feeds)


@pytest.mark.parametrize("kind", [lambda v: [v], lambda v: (v,), Single])
def test_a_single_result_is_unpacked_unless_told_otherwise(kind: Callable[[Any], Any]) -> None:
    p = tf.placeholder(tf.bool, [])
    unpacked = tf.cond(p, lambda: kind(tf.constant(1)), lambda: kind(tf.constant(2)))
    kept = tf.cond(p, lambda: kind(tf.constant(1)), lambda: kind(tf.constant(2)), strict=True)
    assert isinstance(unpacked, tf.Tensor)
    assert type(kept) is type(kind(0))
    assert run([unpacked, kept[0]], {p: False}) == [2, 2]


@pytest.mark.parametrize(
    ("one", "other", "error"),
    [
        (lambda: tf.constant(1), lambda: [tf.constant(2)], ValueError),
        (lambda: [tf.constant(1)], lambda: (tf.constant(2),), TypeError),
        (lambda: {"a": tf.constant(1)}, lambda: {"b": tf.constant(1)}, ValueError),
    ],
)
def test_structures_that_differ(one: Any, other: Any, error: type[Exception]) -> None:
    with pytest.raises(error, match="Incompatible return (values|types) of true_fn and false_fn"):
        tf.cond(tf.placeholder(tf.bool, []), one, other, strict=True)


def test_tensor_arrays() -> None:
    p = tf.placeholder(tf.bool, [])
    given = tf.TensorArray(tf.float32, size=2).unstack([1.0, 2.0])

    def written() -> Any:
        return given.write(0, 5.0), tf.constant(1)

    array, number = tf.cond(p, written, lambda: (given, tf.constant(0)))
    assert isinstance(array, tf.TensorArray)
    for taken, wanted in ((True, [5.0, 2.0]), (False, [1.0, 2.0])):
        values, which = run([array.stack(), number], {p: taken})
        np.testing.assert_array_equal(values, wanted)
        assert which == taken


def test_sparse_tensors_and_slices() -> None:
    p = tf.placeholder(tf.bool, [])
    sparse = tf.SparseTensor([[0, 1]], [3.0], [2, 2])
    slices = tf.IndexedSlices(tf.ones([1, 2]), tf.constant([1]), tf.constant([3, 2]))
    found = tf.cond(p, lambda: (sparse, slices), lambda: (sparse * 2.0, slices))
    assert isinstance(found[0], tf.SparseTensor)
    assert isinstance(found[1], tf.IndexedSlices)
    assert run(found[0].values, {p: False}).tolist() == [6.0]
    assert run(found[1].indices, {p: True}).tolist() == [1]


@pytest.mark.parametrize("number", [0, 1, 2])
def test_slices_with_indices_of_two_types(number: int) -> None:
    n = tf.placeholder(tf.int32, [])

    def branch(at: int, dtype: Any) -> Callable[[], Any]:
        return lambda: [tf.constant(at), tf.IndexedSlices(tf.constant([1.0 + at]), tf.constant([at], dtype))]

    first, slices = tf.switch_case(n, [branch(0, tf.int32), branch(1, tf.int64), branch(2, tf.int32)])
    assert slices.indices.dtype is tf.int64
    found = run([first, slices.values, slices.indices], {n: number})
    assert [np.ravel(one).tolist() for one in found] == [[number], [1.0 + number], [number]]


@pytest.mark.parametrize("taken", [True, False])
def test_an_operation_stands_for_whether_it_is_the_first_branchs(taken: bool) -> None:
    ran: list[bool] = []
    p = tf.placeholder(tf.bool, [])

    def work(which: bool) -> Callable[[], Any]:
        return lambda: tf.py_func(lambda: ran.append(which), [], [], name="work")

    assert run(tf.cond(p, work(True), work(False)), {p: taken}) == taken
    assert ran == [taken]


def test_what_no_result_of_a_branch_needs_is_not_waited_for() -> None:
    """An operation that nothing depends on does not run, so that what it waits for need not be fed."""
    unfed = tf.placeholder(tf.float32, [])

    def branch() -> Any:
        with tf.control_dependencies([unfed]):
            tf.add(tf.constant(1), 1)
        return tf.constant(2) + 3

    def waiting() -> Any:
        with tf.control_dependencies([unfed]):
            return tf.constant(2) + 3

    truth = tf.placeholder(tf.bool, [])
    with tf.Session() as session:
        assert session.run(tf.cond(truth, branch, lambda: tf.constant(1)), {truth: True}) == 5
        waits = tf.cond(truth, waiting, lambda: tf.constant(1))
        with pytest.raises(tf.errors.InvalidArgumentError, match="must feed"):
            session.run(waits, {truth: True})
        assert session.run(waits, {truth: True, unfed: 0.0}) == 5


def test_what_no_result_of_a_loop_needs_is_not_waited_for() -> None:
    unfed = tf.placeholder(tf.float32, [])

    def body(i: Any) -> Any:
        with tf.control_dependencies([unfed]):
            tf.identity(i)
        return i + 1

    with tf.Session() as session:
        assert session.run(tf.while_loop(lambda i: i < 3, body, [0])) == 3


def test_a_branch_that_is_not_taken_may_have_a_shape_that_cannot_be() -> None:
    with tf.Graph().as_default(), tf.Session() as session:
        masks, size = tf.placeholder(tf.float32, [3, 2, 2]), tf.stack([4, 5])  # 12 numbers are no rows of 20

        def resized() -> tf.Tensor:
            return tf.squeeze(tf.image.resize_nearest_neighbor(masks[..., tf.newaxis], size), -1)

        def reshaped() -> tf.Tensor:
            return tf.reshape(masks, [-1, size[0], size[1]])

        chosen = tf.cond(tf.shape(masks)[0] > 0, resized, reshaped)
        assert session.run(chosen, {masks: np.ones([3, 2, 2])}).shape == (3, 4, 5)
        with pytest.raises(ValueError, match="evenly divisible"):
            tf.cond(tf.constant(True), lambda: masks, lambda: tf.reshape(masks, [-1, 20]))  # its own size


def test_such_a_shape_is_refused_where_its_branch_is_taken() -> None:
    with tf.Graph().as_default(), tf.Session() as session:
        wanted, size, x = tf.placeholder(tf.bool, []), tf.constant([-1, 5]), tf.ones([12])
        chosen = tf.cond(wanted, lambda: tf.reshape(x, size), lambda: tf.zeros([1, 5]))
        assert session.run(chosen, {wanted: False}).tolist() == [[0.0] * 5]
        with pytest.raises(tf.errors.InvalidArgumentError):
            session.run(chosen, {wanted: True})


def test_a_branch_that_is_not_taken_may_cut_off_where_it_pads() -> None:
    with tf.Graph().as_default(), tf.Session() as session:
        x, length = tf.ones([2, 5]), tf.constant(3)
        missing = length - tf.shape(x)[1]
        fitting = tf.cond(missing > 0, lambda: tf.pad(x, [[0, 0], [0, missing]]), lambda: x[:, :length])
        assert session.run(fitting).shape == (2, 3)
        with pytest.raises(ValueError, match="must be non-negative"):
            tf.pad(x, [[0, 0], [0, -2]])


def test_a_branch_returns_to_the_root_of_names() -> None:
    with tf.Graph().as_default():
        names = []

        def named() -> tf.Tensor:
            with tf.name_scope("/") as scope:
                names.append(scope)
                return tf.constant(1.0)

        tf.cond(tf.placeholder(tf.bool, []), named, named)
        assert names == ["", ""]
        with pytest.raises(ValueError, match="not a valid scope name"), tf.name_scope("/"):
            pass


def test_wrong_predicates_and_branches_without_results_are_refused() -> None:
    x = tf.placeholder(tf.float32, [])
    with pytest.raises(TypeError, match=r"pred must be a boolean tensor, and .*:0 is of float32"):
        tf.cond(x, lambda: x, lambda: x)
    with pytest.raises(ValueError, match=r"true_fn must have a return value\."):
        tf.cond(x > 0.0, lambda: None, lambda: x)
    with pytest.raises(ValueError, match=r"false_fn must have a return value\."):
        tf.cond(x > 0.0, tf.no_op, lambda: None)
