"""A step that is prepared stands by itself: the user's graph may grow, change or go."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import numpy as np
import pytest

import anabranch as tf
from anabranch.errors import InvalidArgumentError
from anabranch.pipeline import lowering_everything
from anabranch.runtime.local_master import LocalMaster
from anabranch.runtime.local_worker import LocalTask


def _model() -> tuple[Any, Any, Any]:
    """A graph with variables, bodies in bodies, and work for the host."""
    x = tf.placeholder(tf.float32, [3], name="x")
    v = tf.get_variable("v", initializer=[1.0, 2.0, 3.0])

    def body(i: Any, total: Any) -> Any:
        more = tf.cond(i > 1, lambda: total * v, lambda: total + x)
        return i + 1, more

    _, looped = tf.while_loop(lambda i, _: i < 4, body, [0, x])
    words = tf.strings.length(tf.as_string(looped[0]))
    return x, [looped, words, v], tf.global_variables_initializer()


@pytest.mark.parametrize("lowered", [False, True])
def test_a_prepared_step_needs_nothing_of_the_graph(lowered: bool) -> None:
    def prepare(master: LocalMaster) -> tuple[Any, weakref.ref[Any]]:
        with tf.Graph().as_default() as graph:
            x, fetches, initializer = _model()
            master.prepare([], [initializer], []).run([])
            tensors = [tf.convert_to_tensor(fetch) for fetch in fetches]
            step = master.prepare(tensors, [], [x])
        return step, weakref.ref(graph)

    master = LocalMaster()
    if lowered:
        with lowering_everything():
            step, graph = prepare(master)
    else:
        step, graph = prepare(master)
    gc.collect()
    assert graph() is None
    looped, length, value = step.run([np.ones(3, np.float32)])
    assert looped.tolist() == [3.0, 12.0, 27.0]
    assert length == len("3.000000")
    assert value.tolist() == [1.0, 2.0, 3.0]
    master.close()


def test_an_error_names_the_operation_of_the_graph() -> None:
    x = tf.placeholder(tf.float32, [None], name="x")
    y = tf.reshape(x, [2, 2], name="y")
    inside = tf.cond(tf.shape(x)[0] > 5, lambda: tf.reshape(x, [2, 2], name="inner"), lambda: tf.zeros([2, 2]))
    with tf.Session() as session:
        with pytest.raises(InvalidArgumentError) as failure:
            session.run(y, {x: [1.0, 2.0]})
        assert failure.value.op is y.op
        with pytest.raises(InvalidArgumentError, match="inner.*was created at") as failure:
            session.run(inside, {x: np.ones(7)})
        assert failure.value.op is not None
        assert failure.value.op.name.endswith("inner")


def test_random_numbers_go_on_where_an_earlier_plan_left_off() -> None:
    """The place in a sequence belongs to the operation of the session, not to a plan, nor to how it runs."""
    drawn = tf.random_uniform([], seed=7, name="drawn")
    with tf.Session() as one, tf.Session() as other:
        expected = [one.run(drawn) for _ in range(4)]
        found = [other.run(drawn), other.run(tf.identity(drawn))]
        with lowering_everything():
            found.append(other.run(tf.cond(tf.placeholder_with_default(True, []), lambda: drawn, lambda: drawn + 1.0)))
        found.append(other.run(drawn))
    assert found == expected


def test_objects_without_a_shared_name_belong_to_an_operation_of_a_session() -> None:
    queue = tf.FIFOQueue(5, tf.int32)
    put, size = queue.enqueue(1), queue.size()
    with tf.Session("local://private") as one, tf.Session("local://private") as other:
        one.run(put)
        one.run(put)
        other.run(put)
        again = tf.identity(size)  # another plan
        assert one.run([size, again]) == [2, 2]
        assert other.run(size) == 1
        one.close()
        assert other.run(size) == 1


def test_a_task_keeps_no_private_objects_of_sessions_that_have_ended() -> None:
    containers = LocalTask.named("kept").containers
    queue, shared = tf.FIFOQueue(5, tf.int32), tf.FIFOQueue(5, tf.int32, shared_name="shared")
    handles = []
    for _ in range(3):
        with tf.Session("local://kept") as session:
            session.run([queue.enqueue(1), shared.enqueue(1)])
            handles.append(session.run([queue.queue_ref, shared.queue_ref]))
    assert len({private for private, _ in handles}) == 3
    assert [containers.find_object(private) for private, _ in handles] == [None] * 3
    with tf.Session("local://kept") as session:
        assert session.run(shared.size()) == 3
