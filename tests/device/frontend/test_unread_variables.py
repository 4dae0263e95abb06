"""What an update of a variable returns: the variable after it, read where it is used."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import anabranch as tf


@pytest.fixture(autouse=True)
def _graph_of_its_own() -> Any:
    with tf.Graph().as_default():
        yield


def started() -> tf.Session:
    session = tf.Session()
    session.run(tf.global_variables_initializer())
    return session


def test_its_operation_is_the_update_whose_second_input_can_be_fed() -> None:
    v = tf.get_variable("v", initializer=[1.0, 2.0])
    setter = tf.assign(v, tf.placeholder(tf.float32, [2]), name="setter")
    assert setter.op.type == "AssignVariableOp"
    assert (setter.name, setter.op.name) == ("setter", "setter")
    assert setter.op.inputs[0] is v.handle
    with started() as session:
        np.testing.assert_array_equal(session.run(setter, {setter.op.inputs[1]: [3.0, 4.0]}), [3.0, 4.0])
        assert session.run(setter.op, {setter.op.inputs[1]: [5.0, 6.0]}) is None
        np.testing.assert_array_equal(session.run(v), [5.0, 6.0])


_UPDATES: dict[str, tuple[Callable[[Any], Any], list[float]]] = {
    "AssignAddVariableOp": (lambda v: tf.assign_add(v, [10.0, 10.0]), [11.0, 12.0]),
    "AssignSubVariableOp": (lambda v: v.assign_sub([1.0, 1.0]), [0.0, 1.0]),
    "ResourceScatterAdd": (lambda v: tf.scatter_add(v, [1], [5.0]), [1.0, 7.0]),
    "ResourceScatterUpdate": (
        lambda v: v.scatter_update(tf.IndexedSlices(tf.constant([8.0]), tf.constant([0]))),
        [8, 2],
    ),
    "ResourceScatterNdUpdate": (lambda v: tf.scatter_nd_update(v, [[1]], [9.0]), [1.0, 9.0]),
}


@pytest.mark.parametrize("kind", _UPDATES)
def test_every_update_returns_it(kind: str) -> None:
    v = tf.get_variable("v", initializer=[1.0, 2.0])
    update, after = _UPDATES[kind]
    result = update(v)
    assert result.op.type == kind
    assert (result.dtype, result.shape.as_list(), result.graph) == (tf.float32, [2], v.graph)
    with started() as session:
        np.testing.assert_array_equal(session.run(result), after)


def test_it_stands_for_a_tensor() -> None:
    v = tf.get_variable("v", initializer=[1.0, 2.0])
    moved = v.assign_add([1.0, 1.0])
    assert tf.contrib.framework.is_tensor(moved)
    with started() as session:
        assert session.run(2.0 * moved[1] - tf.reduce_sum([moved, moved])) == 2.0 * 3 - 10
        with session.as_default():
            np.testing.assert_array_equal(moved.eval(), [3.0, 4.0])
    with pytest.raises(ValueError, match=r"float32, but int32 is needed"):
        tf.convert_to_tensor(moved, tf.int32)


def test_waiting_for_it_is_waiting_for_the_update() -> None:
    v = tf.get_variable("v", initializer=1.0)
    moved = v.assign_add(1.0)
    with tf.control_dependencies([moved]):
        waits = tf.no_op()
    assert waits.control_inputs == [moved.op]
    assert tf.group(moved).control_inputs == [moved.op]
    with started() as session:
        session.run([tf.group(moved), waits])
        assert session.run(v) == 2.0
        assert session.run(tf.tuple([moved, tf.constant(7.0)])) == [3.0, 7.0]


def test_it_is_read_after_what_its_use_waits_for() -> None:
    v = tf.get_variable("v", initializer=1.0)
    first = v.assign(2.0)
    with tf.control_dependencies([first]):
        second = v.assign_add(10.0)
    with tf.control_dependencies([second]):
        late = tf.identity(first)
    with started() as session:
        assert session.run([late, tf.identity(first)]) == [12.0, 2.0]


def test_further_updates_come_after_it() -> None:
    v = tf.get_variable("v", initializer=1.0)
    chain = tf.assign_add(tf.assign(v, 5.0).assign_sub(2.0), 10.0)
    with started() as session:
        assert session.run(chain) == 13.0
        assert session.run(v) == 13.0


def test_it_is_fed_without_the_update_and_without_other_reads() -> None:
    v = tf.get_variable("v", initializer=1.0)
    moved = v.assign(5.0)
    with started() as session:
        assert session.run([moved + 1.0, v + 1.0], {moved: 9.0}) == [10.0, 2.0]
        assert session.run(v) == 1.0


def test_branches_and_loops_take_it() -> None:
    v = tf.get_variable("v", initializer=1.0)
    grows = tf.placeholder(tf.bool, [])
    either = tf.cond(grows, lambda: tf.assign_add(v, 10.0), lambda: tf.assign(v, 0.5))
    counted = tf.while_loop(lambda i, _: i < 3, lambda i, _: (i + 1, v.assign_add(1.0)), [0, tf.constant(0.0)])
    outside = v.assign(100.0)
    inside = tf.cond(grows, lambda: outside + 1.0, lambda: tf.constant(0.0))
    with started() as session:
        assert session.run(either, {grows: True}) == 11.0
        assert session.run(either, {grows: False}) == 0.5
        assert session.run(counted) == (3, 3.5)
        assert session.run(inside, {grows: True}) == 101.0


def test_a_finished_graph_is_fetched_from() -> None:
    v = tf.get_variable("v", initializer=1.0)
    moved = v.assign_add(1.0)
    with started() as session:
        tf.get_default_graph().finalize()
        assert session.run({"moved": moved}) == {"moved": 2.0}
        run = session.make_callable(moved)
        assert run() == 3.0


def test_collections_of_a_graph_name_the_update() -> None:
    v = tf.get_variable("v", initializer=1.0)
    tf.add_to_collection(tf.GraphKeys.UPDATE_OPS, tf.assign(v, 3.0, name="update"))
    meta_graph = tf.train.export_meta_graph()
    with tf.Graph().as_default():
        tf.train.import_meta_graph(meta_graph)
        (update,) = tf.get_collection(tf.GraphKeys.UPDATE_OPS)
        assert isinstance(update, tf.Operation)
        with started() as session:
            session.run(update)
            assert session.run("v/Read/ReadVariableOp:0") == 3.0


def test_gradients_go_to_what_was_assigned() -> None:
    v = tf.get_variable("v", initializer=1.0)
    moved = v.assign(3.0)
    (gradient,) = tf.gradients(moved * moved, moved)
    with started() as session:
        assert session.run(gradient) == 6.0
