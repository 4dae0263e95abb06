"""What a task shows to the reader of a partition, where not all of it can be shown."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

import anabranch as tf
from anabranch.runtime.containers import Containers
from anabranch.runtime.one_sided_reads import left_out, one_sided_reads
from anabranch.runtime.published_calls import PublishedCalls
from anabranch.runtime.published_values import Board
from tests.unit.runtime.test_one_sided_reads import WORKER, indices, servers_part, tables, taken_at
from tests.unit.runtime.test_published_values import Memory


class Straight:
    """In place of `StraightCalls`: what is left out."""

    def without(self, positions: Any) -> Any:
        return positions


def two_tables() -> Any:
    at = indices()
    rows = [taken_at(table, at) for table in tables("tu")]
    with tf.device(WORKER):
        change = tf.add_n([tf.reduce_sum(one) for one in rows])
    with tf.device("/job:ps/task:0"):
        return tf.get_variable("total", [], initializer=tf.zeros_initializer(), use_resource=True).assign_add(change).op


@pytest.mark.parametrize("without", ["", "t", "u"])
def test_rows_of_a_variable_that_is_not_shown_may_be_waited_for(without: str) -> None:
    part, containers = servers_part(two_tables), Containers()
    ahead = one_sided_reads(part, WORKER)
    assert ahead is not None
    for rows in ahead.rows:
        if rows.variable.name != without:
            containers.variable(rows.variable).value = jnp.asarray(np.zeros((100, 4)), jnp.float32)
    published = PublishedCalls(part, Straight(), [], ahead, containers)  # type: ignore[arg-type]
    told = published.describe(Board(Memory()))
    assert told is not None
    names = [rows.variable.name for rows in ahead.rows if rows.variable.name != without]
    assert len(told.rows) == len(names)
    assert told.answers == bool(without)
    # indices of both have to come for the one that is not shown
    assert [rows.is_alone for rows in told.rows] == ([False] if without else [True, True])
    shown = ahead._replace(rows=[rows for rows in ahead.rows if rows.variable.name != without])
    out: Any = published.without(1)
    assert out == left_out(part, shown, [0])


def test_where_nothing_can_be_shown_nothing_is() -> None:
    part = servers_part(two_tables)
    ahead = one_sided_reads(part, WORKER)
    assert ahead is not None
    published = PublishedCalls(part, Straight(), [], ahead, Containers())  # type: ignore[arg-type]
    assert published.describe(Board(Memory())) is None
