"""Which reads another task can do itself, so that a part of a step may start with the first tensor for it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import anabranch as tf
from anabranch.graph.graph import Graph
from anabranch.pipeline import plan_step
from anabranch.placement.policy import PlacementPolicy
from anabranch.runtime.devices import RemoteDevice
from anabranch.runtime.local_worker import placer_for
from anabranch.runtime.one_sided_reads import is_alone, left_out, one_sided_reads, sent_under
from anabranch.xla.partitions import Partition

WORKER, OTHER, SERVER = (f"/job:{job}/replica:0/task:{i}" for job, i in (("worker", 0), ("worker", 1), ("ps", 0)))


def servers_part(build: Callable[[], Any]) -> Partition:
    devices = [RemoteDevice("CPU", 0, 0, task) for task in (WORKER, OTHER, SERVER)]
    with Graph().as_default():
        fetched = tf.nest.flatten(build())
        tensors = [f for f in fetched if isinstance(f, tf.Tensor)]
        targets = [f for f in fetched if isinstance(f, tf.Operation)]
        plan = plan_step(tensors, targets, [], placer_for(None, PlacementPolicy(), devices))
    return next(part for part in plan.partitions if part.task == SERVER)


def parameters() -> tuple[Any, Any]:
    with tf.device(SERVER):
        return (
            tf.get_variable("v", [2], initializer=tf.zeros_initializer(), use_resource=True),
            tf.get_variable("w", [], initializer=tf.zeros_initializer(), use_resource=True),
        )


def plain() -> Any:
    v, w = parameters()
    with tf.device(WORKER):
        step = tf.reduce_sum(v.read_value()) * w.read_value()
    return tf.group(v.assign_sub(tf.fill([2], step)), w.assign_sub(step))


def only_read() -> Any:
    v, _ = parameters()
    with tf.device(WORKER):
        return v.read_value() * 2.0


def read_by_two() -> Any:
    v, _ = parameters()
    with tf.device(OTHER):
        elsewhere = v.read_value() * 3.0
    with tf.device(WORKER):
        step = v.read_value() * 2.0
    return elsewhere, v.assign_sub(step).op


def read_after_an_update() -> Any:
    v, w = parameters()
    with tf.device(WORKER):
        step = v.read_value() * 2.0
    update = v.assign_sub(step)
    with tf.control_dependencies([update.op]), tf.device(SERVER):
        later = w.read_value()
    with tf.device(WORKER):
        return later * 2.0


def sends_something_else() -> Any:
    v, w = parameters()
    with tf.device(SERVER):
        computed = tf.exp(w.read_value())
    with tf.device(WORKER):
        return v.assign_sub(v.read_value() * computed).op


def fetched_too() -> Any:
    v, _ = parameters()
    with tf.device(SERVER):
        value = v.read_value()
    with tf.device(WORKER):
        step = value * 2.0
    return value, v.assign_sub(step).op


def test_reads_at_the_beginning_of_a_step_can_be_done_by_who_starts_it() -> None:
    part = servers_part(plain)
    ahead = one_sided_reads(part, WORKER)
    assert ahead is not None
    assert not ahead.answers
    items = [part.items[i] for i in ahead.reads]
    assert sorted(op.type for item in items for op in item.operations) == ["ReadVariableOp"] * 2 + ["_Send"] * 2
    names = {sent_under(item) for item in items if item.operations[0].type == "_Send"}
    assert names == {end.tensor for end in part.sends}
    assert one_sided_reads(part, OTHER) is None


def test_a_read_that_waits_for_an_update_stays_where_it_is() -> None:
    part = servers_part(read_after_an_update)
    ahead = one_sided_reads(part, WORKER)
    assert ahead is not None
    assert ahead.answers, "the worker waits for the value of w"
    reads = [op for i in ahead.reads for op in part.items[i].operations if op.type == "ReadVariableOp"]
    assert [op.inputs[0].op.attrs["shared_name"] for op in reads] == [b"v"]


@pytest.mark.parametrize("build", [only_read, read_by_two, sends_something_else, fetched_too])
def test_others_can_not(build: Callable[[], Any]) -> None:
    assert one_sided_reads(servers_part(build), WORKER) is None


def test_who_waits_for_other_tasks_and_for_whom_nobody_waits_is_not_told_that_they_have_ended() -> None:
    part = servers_part(plain)
    # the parameters and nothing else: the group at the end has no part in the step
    assert len(part.sends) == 2


def test_who_waits_for_other_tasks_and_does_something_then_is_told() -> None:
    def build() -> Any:
        v, _ = parameters()
        with tf.device(WORKER):
            count = tf.get_variable("count", [], initializer=tf.zeros_initializer(), use_resource=True)
            step = v.read_value() * 2.0
        with tf.control_dependencies([tf.group(v.assign_sub(step).op)]), tf.device(WORKER):
            return count.assign_add(1.0).op

    assert len(servers_part(build).sends) == 2


# ---------------------------------------------------------------------- rows
def tables(names: str = "t") -> list[Any]:
    with tf.device(SERVER):
        return [
            tf.get_variable(name, [100, 4], initializer=tf.zeros_initializer(), use_resource=True) for name in names
        ]


def indices() -> Any:
    with tf.device(WORKER):
        return tf.random.uniform([8], 0, 100, tf.int32)


def taken_at(table: Any, at: Any) -> Any:
    with tf.device(SERVER):
        return tf.gather(table, at)


def update(table: Any, at: Any, rows: Any) -> Any:
    with tf.device(WORKER):
        change = rows * 0.5
    with tf.device(SERVER):
        return tf.raw_ops.ResourceScatterSub(resource=table.handle, indices=at, updates=change)


def sparse() -> Any:
    (table,), at = tables(), indices()
    return update(table, at, taken_at(table, at))


def of_two_tables() -> Any:
    at = indices()
    return [update(table, at, taken_at(table, at)) for table in tables("tu")]


def only_looked_up() -> Any:
    (table,), at = tables(), indices()
    rows = taken_at(table, at)
    with tf.device(WORKER):
        return rows * 2.0


def computed_there() -> Any:
    (table,), at = tables(), indices()
    with tf.device(SERVER):
        rows = tf.gather(table, at) * 3.0
    return update(table, at, rows)


def indices_computed_there() -> Any:
    (table,), at = tables(), indices()
    with tf.device(SERVER):
        moved = at + 1
    return update(table, at, taken_at(table, moved))


def rows_after_an_update() -> Any:
    (table,), at = tables(), indices()
    with tf.control_dependencies([update(table, at, tf.ones([8, 4]))]):
        rows = taken_at(table, at)
    return update(table, at, rows)


def rows_used_there_too() -> Any:
    (table,), at = tables(), indices()
    rows = taken_at(table, at)
    with tf.device(SERVER):
        kept = tf.get_variable("kept", [8, 4], initializer=tf.zeros_initializer(), use_resource=True)
        return update(table, at, rows), kept.assign(rows).op


def test_rows_at_indices_that_the_worker_sends_can_be_taken_by_it() -> None:
    part = servers_part(sparse)
    ahead = one_sided_reads(part, WORKER)
    assert ahead is not None
    ((variable, tensor, indices_name, operations),) = ahead.rows
    assert variable.name == "t"
    assert {tensor} == {end.tensor for end in part.sends}
    assert indices_name in {end.tensor for end in part.receives}
    assert {"ResourceGather", "_Send"} <= {op.type for op in operations}
    assert not ahead.answers
    # the update needs the indices too
    assert not is_alone(part, ahead, indices_name)
    assert left_out(part, ahead, []) == set()
    out = left_out(part, ahead, [0])
    assert {op for i in out for op in part.items[i].operations} == set(operations)
    assert one_sided_reads(part, OTHER) is None


def test_indices_that_nothing_else_takes_need_not_be_sent() -> None:
    def build() -> Any:
        (table,), at, others = tables(), indices(), indices()
        return update(table, others, taken_at(table, at))

    part = servers_part(build)
    ahead = one_sided_reads(part, WORKER)
    assert ahead is not None
    (rows,) = ahead.rows
    assert is_alone(part, ahead, rows.indices)
    out = left_out(part, ahead, [0])
    received = {op for i in out for op in part.items[i].operations} - set(rows.operations)
    assert [op.type for op in received] == ["_Recv"]


def test_a_choice_of_rows_is_left_out_and_the_others_are_not() -> None:
    part = servers_part(of_two_tables)
    ahead = one_sided_reads(part, WORKER)
    assert ahead is not None
    assert [rows.variable.name for rows in ahead.rows] == ["t", "u"]
    # one island takes the rows of both
    one, both = (
        [op for i in left_out(part, ahead, taken) for op in part.items[i].operations] for taken in ([1], [0, 1])
    )
    assert [op.type for op in one] == ["_Send"]
    assert set(one) < set(ahead.rows[1].operations)
    assert set(both) == {*ahead.rows[0].operations, *ahead.rows[1].operations}


@pytest.mark.parametrize(
    "build", [only_looked_up, computed_there, indices_computed_there, rows_after_an_update, rows_used_there_too]
)
def test_other_rows_can_not(build: Callable[[], Any]) -> None:
    ahead = one_sided_reads(servers_part(build), WORKER)
    assert ahead is None or not ahead.rows
