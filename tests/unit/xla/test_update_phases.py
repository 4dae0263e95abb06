"""A training step as look-ups, gradients and updates."""

from __future__ import annotations

from typing import Any

import pytest

import anabranch as tf
from anabranch.passes.rewriting import step_of_members
from anabranch.pipeline import plan_in_phases, plan_step
from anabranch.xla.islands import Island
from anabranch.xla.update_phases import UpdatePhases, update_phases


def island_of(target: Any, feeds: Any = (), fetches: Any = ()) -> Island:
    items = plan_step(list(fetches), [target], list(feeds)).items
    (island,) = (item for item in items if isinstance(item, Island))
    return island


def phases_of(island: Island) -> UpdatePhases | None:
    return update_phases(step_of_members(island.operations, island.outputs, island.inputs))


def table_and_weights() -> tuple[Any, Any, Any]:
    ids = tf.placeholder(tf.int32, [None])
    table = tf.get_variable("table", [50, 4], use_resource=True)
    w = tf.get_variable("w", [4, 3], use_resource=True)
    hidden = tf.tanh(tf.matmul(tf.nn.embedding_lookup(table, ids * 2), w))
    return ids, tf.reduce_sum(tf.square(hidden - 1.0)), [table, w]


def test_rows_are_looked_up_first_and_updates_come_last() -> None:
    ids, loss, _ = table_and_weights()
    island = island_of(tf.train.AdagradOptimizer(0.1).minimize(loss), [ids], [loss])
    paid: list[Any] = []
    plan = plan_in_phases(island, lambda pinned: paid.extend(pinned) or True, "", True)  # type: ignore[func-returns-value]
    assert plan is not None
    lookups, gradients, updates = plan.items
    assert isinstance(lookups, Island)
    assert isinstance(gradients, Island)
    assert isinstance(updates, Island)
    assert [op.type for op in lookups.operations if op.op_def.only_reads] == ["ResourceGather"]
    assert [h.name for h in lookups.reads] == ["table"]
    assert lookups.keeps_locks
    assert [h.name for h in gradients.reads] == ["w"]
    assert not gradients.keeps_locks
    assert not lookups.writes
    assert not gradients.writes
    # each thread computes gradients by a program of its own; what they read while others write stays as it is
    assert [island.has_own_clients for island in (lookups, gradients, updates)] == [False, True, False]
    assert all(island.is_alone for island in (lookups, gradients, updates))
    assert [h.name for h in updates.kept] == ["w"]
    assert sorted(h.name for h in updates.writes) == ["table", "table/Adagrad", "w", "w/Adagrad"]
    assert all(op.op_def.writes or not op.outputs for op in updates.operations)
    # the table is not among what is copied where updates meet gradients
    assert [h.name for h in paid] == ["w"]
    assert sum(len(item.operations) for item in plan.items) == len(island.operations)


def test_an_island_stays_whole_where_parts_do_not_pay() -> None:
    ids, loss, _ = table_and_weights()
    island = island_of(tf.train.AdagradOptimizer(0.1).minimize(loss), [ids], [loss])
    assert plan_in_phases(island, lambda pinned: False, "", True) is None


def test_a_look_up_that_needs_what_others_read_is_a_gradients() -> None:
    table = tf.get_variable("table", [50, 4], use_resource=True)
    which = tf.get_variable("which", [7], tf.int32, tf.zeros_initializer(), use_resource=True, trainable=False)
    loss = tf.reduce_sum(tf.square(tf.tanh(tf.nn.embedding_lookup(table, which.read_value() + 1)) - 1.0))
    island = island_of(tf.train.GradientDescentOptimizer(0.1).minimize(loss))
    phases = phases_of(island)
    assert phases is not None
    assert [h.name for h in phases.pinned] == ["table"]


@pytest.mark.parametrize("how", ["assigned", "only read", "updates alone"])
def test_what_has_no_parts(how: str) -> None:
    v = tf.get_variable("v", [3], use_resource=True)
    x = tf.placeholder(tf.float32, [3])
    if how == "assigned":  # what others added between the reading and the writing would be lost
        target = v.assign(tf.exp(tf.sin(v * x) + 1.0) * 2.0).op
    elif how == "only read":
        target = tf.group(tf.exp(tf.sin(v * x)))
    else:
        target = tf.group(v.assign_add(x), v.assign_sub(x))
    assert phases_of(island_of(target, [x])) is None


def test_what_comes_after_an_update_comes_after_it_in_parts_too() -> None:
    v = tf.get_variable("v", [3], use_resource=True)
    x = tf.placeholder(tf.float32, [3])
    gradient = tf.exp(tf.sin(tf.cos(v) * x)) + tf.square(v) - 1.0
    with tf.control_dependencies([v.assign_sub(gradient)]):
        after = v.read_value()
    island = island_of(tf.no_op(), [x], [after])
    phases = phases_of(island)
    assert phases is not None
    late = {op.type for op, phase in phases.of.items() if phase == 2}
    assert {"AssignSubVariableOp", "ReadVariableOp"} <= late


def test_what_replaces_a_variable_reads_it_among_the_updates() -> None:
    """As moving averages are assigned, and powers of Adam's decays."""
    average = tf.get_variable("average", [3], use_resource=True, trainable=False)
    v = tf.get_variable("v", [3], use_resource=True)
    x = tf.placeholder(tf.float32, [3])
    gradient = tf.exp(tf.sin(tf.cos(v) * x)) + tf.square(v) - 1.0
    target = tf.group(v.assign_sub(gradient), average.assign(average * 0.9 + gradient * 0.1))
    island = island_of(target, [x])
    phases = phases_of(island)
    assert phases is not None
    assert [h.name for h in phases.pinned] == ["v"]
    late = [op for op, phase in phases.of.items() if phase == 2]
    assert [h.name for op in late if op.op_def.only_reads for h in phase_reads(op)] == ["average"]
    # the product with the gradient waits for nothing of the average's
    computing = [op.type for op in late if op.outputs and not op.op_def.reads and not op.op_def.writes]
    assert sorted(computing) == ["AddV2", "Mul"]


def phase_reads(op: Any) -> Any:
    return [t.known for t in op.inputs if t.is_known]
