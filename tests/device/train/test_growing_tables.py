"""Tables that get rows for keys when they come: beside a plain variable, evicted within steps, saved, restored."""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import anabranch as tf
from tests.example_checker import run_example

KEYS = 200
Make = Callable[[], Any]


def spread(keys: Any) -> Any:
    """Keys that no vector could be indexed with."""
    return np.asarray(keys, np.int64) * 10**15 - 7


OPTIMIZERS: dict[str, Make] = {
    "adagrad": lambda: tf.train.AdagradOptimizer(0.5),
    "adam": lambda: tf.train.AdamOptimizer(0.1),
}


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_it_trains_as_a_variable_with_a_row_for_each_key_does(name: str) -> None:
    rng = np.random.default_rng(3)
    keys = tf.placeholder(tf.int64, [4, 2])
    table = tf.train.GrowingTable("t", 3, initializer=tf.constant_initializer(0.5))
    plain = tf.get_variable("plain", [KEYS, 3], initializer=tf.constant_initializer(0.5))
    weights = tf.constant(rng.normal(size=(4, 2, 3)).astype(np.float32))
    rows, expected = table.lookup(spread(1) * keys), tf.nn.embedding_lookup(plain, keys)
    assert rows.shape.as_list() == [4, 2, 3]
    train = [OPTIMIZERS[name]().minimize(tf.reduce_sum(tf.square(r - weights))) for r in (rows, expected)]
    known = table.lookup(spread(1) * np.arange(KEYS, dtype=np.int64), training=False)
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        used = set[int]()
        for step in range(12):
            # Adam leaves rows without a gradient as they are: the same keys in each step
            batch = rng.integers(0, 20 * (step + 1), (4, 2)) % KEYS if name != "adam" else np.arange(8).reshape(4, 2)
            used |= set(batch.ravel().tolist())
            session.run(train, {keys: batch})
        known_rows, whole = session.run([known, plain])
        assert session.run(table.size()) == len(used)
    there = np.array(sorted(used))
    np.testing.assert_allclose(known_rows[there], whole[there], rtol=1e-5, atol=1e-6)
    gone = np.setdiff1d(np.arange(KEYS), there)
    assert not known_rows[gone].any()


def test_a_key_reads_the_default_and_learns_nothing_until_it_was_seen_often_enough() -> None:
    keys = tf.placeholder(tf.int64, [None])
    table = tf.train.GrowingTable("t", 1, initializer=tf.zeros_initializer(), default=[5.0], admission=3)
    rows = table.lookup(keys)
    train = tf.train.GradientDescentOptimizer(1.0).minimize(tf.reduce_sum(rows))
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        seen = [session.run([rows, train], {keys: [8, 8]})[0].tolist() for _ in range(5)]
        assert seen == [[[5.0]] * 2, [[5.0]] * 2, [[0.0]] * 2, [[-2.0]] * 2, [[-4.0]] * 2]
        assert session.run(table.lookup([8, 9], training=False)).tolist() == [[-6.0], [5.0]]
        assert session.run(table.size()) == 1


def test_what_a_running_step_has_looked_up_is_not_evicted_and_new_keys_have_fresh_rows() -> None:
    clock = tf.placeholder_with_default(tf.constant(0.0, tf.float64), [])
    table = tf.train.GrowingTable("t", 1, initializer=tf.ones_initializer(), clock=clock, grace=5.0)
    keys = tf.placeholder(tf.int64, [None])
    evict = table.evict(10.0)
    evicted, times = list[int](), iter([40.0, 100.0, 106.0])

    def in_the_midst(rows: Any) -> Any:
        evicted.append(int(session.run(evict, {clock: next(times)})))
        return rows

    rows = table.lookup(keys)
    through = tf.py_func(in_the_midst, [rows], tf.float32)
    with tf.control_dependencies([through]):
        loss = tf.reduce_sum(tf.identity(rows))
    train = tf.train.MomentumOptimizer(1.0, 0.9).minimize(loss)
    look = table.lookup(keys, training=False)
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        session.run(train, {keys: [1, 2], clock: 0.0})
        session.run(train, {keys: [2, 3], clock: 50.0})
        # at 40 the step held both; at 100 there was one that the step did not hold
        assert evicted == [0, 1]
        assert session.run(look, {keys: [1, 2, 3]}).ravel().tolist() == [0.0, pytest.approx(-1.9), 0.0]
        # a thread that ran a part of the step may still hold its rows for a moment after the step is over
        gone, deadline = 0, time.monotonic() + 60
        while gone < 2 and time.monotonic() < deadline:
            gone += int(session.run(evict, {clock: 103.0}))
        assert gone == 2
        # the row of the first is buried by now, those of the others are not; a new key begins with fresh values
        session.run(evict, {clock: 106.0})
        session.run(rows, {keys: [4, 5, 6], clock: 106.0})
        session.run(train, {keys: [4], clock: 106.0})
        assert session.run(look, {keys: [4, 5, 6]}).ravel().tolist() == [0.0, 1.0, 1.0]
        size, capacity = session.run([table.size(), tf.shape(table.variables[0])])
        assert (size, capacity[0]) == (3, 64)


def built(parts: int) -> tuple[Any, Any, Any, Any]:
    """A table, what trains it, what looks all keys up, and the slots of its first keys."""
    table = tf.train.GrowingTable("t", 2, parts=parts, admission=2, buckets=2)
    keys = tf.placeholder(tf.int64, [None])
    train = tf.train.AdagradOptimizer(0.5).minimize(tf.reduce_sum(table.lookup(keys)))
    return table, keys, train, table.lookup(spread(np.arange(32)), training=False)


def test_it_is_saved_and_restored_to_another_number_of_parts_with_its_slots(tmp_path: Path) -> None:
    many, few = spread(np.arange(16)), spread(np.arange(16, 32))
    with tf.Graph().as_default():
        table, keys, train, look = built(1)
        saver = tf.train.Saver(sharded=True)
        with tf.Session() as session:
            session.run(tf.global_variables_initializer())
            for batch in (many, many, few):
                session.run(train, {keys: batch})
            saved = session.run(look)
            path = saver.save(session, str(tmp_path / "model"))
            session.run(train, {keys: many})
            trained_on = session.run(look)
            # to give the variables initial values is to have no keys
            session.run(tf.global_variables_initializer())
            assert session.run(table.size()) == 0
            assert not session.run(look).any()
    with tf.Graph().as_default():
        table, keys, train, look = built(2)
        with tf.Session() as session:
            session.run(tf.global_variables_initializer())
            session.run(train, {keys: few})
            tf.train.Saver().restore(session, path)
            assert session.run(table.size()) == 16
            np.testing.assert_array_equal(session.run(look), saved)
            session.run(train, {keys: many})
            np.testing.assert_allclose(session.run(look), trained_on, rtol=1e-6)
            session.run(train, {keys: few})  # seen once before it was saved
            assert session.run(table.size()) == 32


def test_the_example_of_its_help_is_true() -> None:
    _, _, example = tf.train.GrowingTable.__doc__.partition("Example:\n")
    with tf.Session() as session:
        failed, said = run_example("GrowingTable", inspect.cleandoc(example), {"tf": tf, "sess": session})
    assert not failed, said


def test_its_variables_are_not_saved_by_themselves_and_bad_arguments_are_refused() -> None:
    table = tf.train.GrowingTable("t", 2)
    with pytest.raises(TypeError, match="saved as a whole"):
        tf.train.Saver(table.variables)
    for arguments in ({"dim": 0}, {"dim": 2, "parts": 3, "buckets": 2}, {"dim": 2, "default": [1.0]}):
        with pytest.raises(ValueError, match="growing table 'u'"):
            tf.train.GrowingTable("u", **arguments)
    scale = tf.constant(np.ones(1000))
    with pytest.raises(ValueError, match="uses .* which is outside"):
        tf.train.GrowingTable("u", 1000, initializer=lambda shape, dtype: tf.cast(scale, dtype) + tf.zeros(shape))
