"""Rows that the host takes of a variable are those that it has now, however it was changed since the last time."""

from __future__ import annotations

import gc
from typing import Any

import numpy as np
import pytest

import anabranch as tf
from anabranch.runtime.worker_threads import worker_threads


class _Table:
    """A table of ten rows, and a look-up of rows whose number the data decides, so that the host makes it."""

    def __init__(self) -> None:
        self.table = tf.get_variable("table", initializer=np.zeros((10, 2), np.float32), use_resource=True)
        self.wanted = tf.placeholder(tf.bool, [10])
        ids = tf.reshape(tf.where(self.wanted), [-1])
        self.rows = tf.gather(self.table, ids, name="rows")
        self.at, self.given = tf.placeholder(tf.int64, [None]), tf.placeholder(tf.float32, [None, 2])
        self.added = tf.raw_ops.ResourceScatterAdd(resource=self.table.handle, indices=self.at, updates=self.given)

    def first_two(self, session: tf.Session) -> Any:
        return session.run(self.rows, {self.wanted: np.arange(10) < 2}).tolist()


def test_after_every_kind_of_change() -> None:
    with tf.Graph().as_default(), tf.Session() as session:
        table = _Table()
        doubled = table.table.assign(table.table * 2)
        session.run(table.table.initializer)
        assert table.first_two(session) == [[0, 0], [0, 0]]
        add = {table.at: [0, 1, 1], table.given: [[1, 2], [3, 4], [5, 6]]}
        worker_threads.call(lambda: session.run(table.added, add))  # in its memory
        assert table.first_two(session) == [[1, 2], [8, 10]]
        session.run(table.added, add)  # by a program
        assert table.first_two(session) == [[2, 4], [16, 20]]
        session.run(doubled)
        assert table.first_two(session) == [[4, 8], [32, 40]]
        kept = session.run(table.table)
        table.table.load(np.full((10, 2), 7, np.float32), session)
        gc.collect()
        assert table.first_two(session) == [[7, 7], [7, 7]]
        assert kept[:2].tolist() == [[4, 8], [32, 40]]
        session.run(tf.raw_ops.DestroyResourceOp(resource=table.table.handle))
        with pytest.raises(tf.errors.FailedPreconditionError, match="table"):
            table.first_two(session)


def test_what_was_looked_up_is_no_view_of_the_variable() -> None:
    with tf.Graph().as_default(), tf.Session() as session:
        table = _Table()
        session.run(table.table.initializer)
        before = session.run(table.rows, {table.wanted: np.ones(10, bool)})
        session.run(table.table.assign_add(np.ones((10, 2), np.float32)))
        worker_threads.call(lambda: session.run(table.added, {table.at: [0], table.given: [[1, 1]]}))
        assert not before.any()


def test_an_index_out_of_range_names_the_operation() -> None:
    with tf.Graph().as_default(), tf.Session() as session:
        table = _Table()
        ids = tf.placeholder(tf.int64, [None])
        rows = tf.gather(table.table, tf.unique(ids).y, name="beyond")
        session.run(table.table.initializer)
        for _ in range(2):
            assert session.run(rows, {ids: [3, 3, 9]}).shape == (2, 2)
            with pytest.raises(
                tf.errors.InvalidArgumentError, match=r"indices\[1\] = 10 is not in \[0, 10\)"
            ) as raised:
                session.run(rows, {ids: [3, 10]})
            assert "beyond" in str(raised.value)
