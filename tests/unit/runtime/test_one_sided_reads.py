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
from anabranch.runtime.one_sided_reads import one_sided_reads, sent_under
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
    left_out = one_sided_reads(part, WORKER)
    assert left_out is not None
    items = [part.items[i] for i in left_out]
    assert sorted(op.type for item in items for op in item.operations) == ["ReadVariableOp"] * 2 + ["_Send"] * 2
    names = {sent_under(item) for item in items if item.operations[0].type == "_Send"}
    assert names == {end.tensor for end in part.sends}
    assert one_sided_reads(part, OTHER) is None


def test_a_read_that_waits_for_an_update_stays_where_it_is() -> None:
    part = servers_part(read_after_an_update)
    left_out = one_sided_reads(part, WORKER)
    assert left_out is not None
    reads = [op for i in left_out for op in part.items[i].operations if op.type == "ReadVariableOp"]
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
