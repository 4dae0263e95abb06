"""Steps cut by task, and partitions as bytes: whole, the same each time, and refused when they are damaged."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from google.protobuf.message import DecodeError
from hypothesis import given, strategies as st

import anabranch as tf
from anabranch.core.devices import Device
from anabranch.errors import InternalError, InvalidArgumentError
from anabranch.graph.graph import Graph
from anabranch.pipeline import Plan, lowering_everything, plan_step
from anabranch.placement.placer import Placer
from anabranch.placement.policy import PlacementPolicy
from anabranch.proto.step_plan_pb2 import PartitionDef
from anabranch.runtime.devices import XlaDevice
from anabranch.runtime.local_worker import LocalWorkerSession, placer_for
from anabranch.xla.islands import Island, runs_on_host
from anabranch.xla.partition_codec import partition_bytes, partition_from_proto, partition_to_proto
from anabranch.xla.partitions import Partition, verify_partitions


def _loop() -> Any:
    return tf.while_loop(
        lambda i, x: i < 3, lambda i, x: (i + 1, tf.exp(x) * 0.5), (0, tf.placeholder_with_default(1.0, []))
    )


def _branch_of_strings() -> Any:
    return tf.cond(
        tf.placeholder_with_default(True, []),
        lambda: tf.strings.join(["a", tf.as_string(tf.placeholder_with_default(1.0, []))]),
        lambda: tf.constant("b"),
    )


def _update() -> Any:
    v = tf.get_variable("v", initializer=np.arange(3, dtype=np.float32), use_resource=True)
    return tf.gradients(tf.reduce_sum(v * v), v) + [v.assign_add([1.0, 2.0, 3.0]).op]


def _array_in_a_loop() -> Any:
    array = tf.TensorArray(tf.float32, 4)
    _, array = tf.while_loop(lambda i, _: i < 4, lambda i, a: (i + 1, a.write(i, tf.cast(i, tf.float32))), (0, array))
    return array.stack()


def _mapped_dataset() -> Any:
    dataset = tf.data.Dataset.range(5).map(lambda i: tf.cond(i > 2, lambda: i * 2, lambda: i)).batch(2)
    return tf.data.make_one_shot_iterator(dataset).get_next()


def _random() -> Any:
    return tf.random.uniform([2], seed=7), tf.py_func(np.negative, [tf.constant([1.0])], tf.float32)


def _large_constant() -> Any:
    numbers = tf.constant(np.arange(1 << 15, dtype=np.float64))
    return tf.cast(numbers + tf.placeholder_with_default(np.float64(1.0), []), tf.float32)


def _branches_half_used() -> Any:
    """Conditionals that call the same functions, and of which different results are used: functions share nodes."""
    x, chosen = tf.placeholder_with_default(2.0, []), tf.placeholder_with_default(True, [])
    first = tf.cond(chosen, lambda: (tf.exp(x), tf.sqrt(x)), lambda: (x * 3.0, x - 1.0))
    op = first[0].op
    functions = {name: op.attrs[name] for name in ("Tout", "then_branch", "else_branch")}
    second = tf.raw_ops.StatelessIf(cond=chosen, input=list(op.inputs)[1:], **functions)
    return [first[0], *second]


PROGRAMS: dict[str, Callable[[], Any]] = {
    "loop": _loop,
    "branch of strings": _branch_of_strings,
    "branches half used": _branches_half_used,
    "update": _update,
    "array in a loop": _array_in_a_loop,
    "mapped dataset": _mapped_dataset,
    "random": _random,
    "large constant": _large_constant,
    "sparse": lambda: tf.sparse.to_dense(tf.SparseTensor([[0, 1]], [2.0], [2, 2])),
    "queue": lambda: tf.FIFOQueue(3, [tf.float32, tf.string], name="q").enqueue([1.0, "x"]),
    "bfloat16": lambda: tf.cast(tf.placeholder_with_default(np.ones(2, np.float32), [2]), tf.bfloat16) * 2,
}


def _planned(build: Callable[[], Any], placer: Placer | None = None) -> Plan:
    with Graph().as_default():
        fetched = tf.nest.flatten(build())
        tensors = [f for f in fetched if isinstance(f, tf.Tensor)]
        return plan_step(tensors, [f for f in fetched if isinstance(f, tf.Operation)], [], placer)


@pytest.mark.parametrize("lowered", [False, True])
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_partition_is_what_its_bytes_say(name: str, lowered: bool) -> None:
    def partition() -> Partition:
        if not lowered:
            return _planned(PROGRAMS[name]).partitions[0]
        with lowering_everything():
            return _planned(PROGRAMS[name]).partitions[0]

    first = partition()
    written = partition_bytes(first)
    read = partition_from_proto(PartitionDef.FromString(written))
    assert partition_bytes(read) == written
    assert str(read) == str(first)
    strangers = {id(op) for op in first.operations} & {id(op) for op in read.operations}
    assert not strangers
    assert _plain(partition_bytes(partition())) == _plain(written), "another plan of the same program"


def _plain(written: bytes) -> bytes:
    """Without what names a Python function of this process, or an anonymous iterator."""
    return re.sub(rb"pyfunc_\d+|_anonymous_\w+", b"", written)


@pytest.mark.parametrize("name", ["loop", "branches half used", "update", "array in a loop", "sparse", "bfloat16"])
def test_a_partition_that_was_read_runs(name: str) -> None:
    values = []
    for through_bytes in (False, True):
        (partition,) = _planned(PROGRAMS[name]).partitions
        if through_bytes:
            partition = partition_from_proto(partition_to_proto(partition))
        session = LocalWorkerSession("test", None, placer_for(None, PlacementPolicy()))
        with Graph().as_default():
            _initialize(session, partition)
        values.append(session.register(partition).run(1, []))
        session.close()
    for one, other in zip(*values, strict=True):
        np.testing.assert_array_equal(one, other)


def _initialize(session: LocalWorkerSession, partition: Partition) -> None:
    """Gives the variables of a partition values."""
    for item in partition.items:
        for handle in {*item.reads, *item.writes} if isinstance(item, Island) else ():
            state = session.containers.variable(handle)
            state.value = XlaDevice("CPU", 0).put(np.arange(3, dtype=np.float32))


# ---------------------------------------------------------------------- several tasks
def _tasks(*names: str) -> Placer:
    devices: list[Device] = [XlaDevice("CPU", 0, task=name) for name in names]
    return Placer(devices, runs_on_host)


WORKER, SERVER = "/job:worker/replica:0/task:0", "/job:ps/replica:0/task:1"


def _replicated() -> Any:
    with tf.device("/job:ps/task:1"):
        v = tf.get_variable("v", initializer=1.0, use_resource=True)
    with tf.device("/job:worker/task:0"):
        x = tf.placeholder_with_default(2.0, [])
        loss = tf.square(v * x)
        gradient = tf.gradients(loss, v)[0]
    with tf.device("/job:ps/task:1"):
        update = v.assign_sub(0.1 * gradient).op
    return [loss, update]


def test_a_step_is_cut_by_task_after_it_was_grouped() -> None:
    plan = _planned(_replicated, _tasks(WORKER, SERVER))
    server, worker = plan.partitions
    assert (server.task, worker.task) == (SERVER, WORKER)
    assert [end.tensor for end in server.sends] == [end.tensor for end in worker.receives] != []
    assert [end.tensor for end in worker.sends] == [end.tensor for end in server.receives] != []
    assert {(end.dtype, end.size) for end in (*server.sends, *worker.sends)} == {(tf.float32, 4)}
    assert (server.fetch_positions, worker.fetch_positions) == ([], [0])
    assert worker.feeds == server.feeds == []
    items = [item for part in plan.partitions for item in part.items]
    assert sorted(map(id, items)) == sorted(map(id, plan.items)), "nothing is grouped anew"
    # what is sent away and what needs the answer are in islands of their own, or neither could begin
    assert len([item for item in server.items if isinstance(item, Island)]) == 2
    for part in plan.partitions:
        assert partition_bytes(partition_from_proto(partition_to_proto(part))) == partition_bytes(part)


def test_a_variable_of_one_task_is_not_that_of_another() -> None:
    def build() -> Any:
        made = []
        for task in ("/job:worker/task:0", "/job:ps/task:1"):
            with tf.device(task):
                handle = tf.raw_ops.VarHandleOp(dtype=tf.float32, shape=[], shared_name="same")
                made.append(tf.raw_ops.ReadVariableOp(resource=handle, dtype=tf.float32))
        return made

    server, worker = _planned(build, _tasks(WORKER, SERVER)).partitions
    handles = [[h for item in part.items if isinstance(item, Island) for h in item.reads] for part in (server, worker)]
    assert [[(h.name, h.task) for h in found] for found in handles] == [[("same", SERVER)], [("same", WORKER)]]


def test_what_is_fed_goes_to_the_tasks_that_take_it() -> None:
    with Graph().as_default():
        x, y = tf.placeholder(tf.float32, []), tf.placeholder(tf.float32, [])
        with tf.device("/job:ps/task:1"):
            first = tf.exp(x)
        with tf.device("/job:worker/task:0"):
            second = x + y
        plan = plan_step([second, x, first], [], [y, x], _tasks(WORKER, SERVER))
    server, worker = plan.partitions
    assert server.feed_positions == [1]
    assert worker.feed_positions == [0, 1]
    assert (server.fetch_positions, worker.fetch_positions) == ([2], [0, 1])


def test_a_partition_tells_what_it_is() -> None:
    server, _ = _planned(_replicated, _tasks(WORKER, SERVER)).partitions
    told = str(server).splitlines()
    assert told[0] == f"partition of {SERVER}"
    assert any(
        re.fullmatch(r"  sends edge_\d+_\S+ float32\(\) \(4 bytes\) from .*ps.* to .*worker.*", line) for line in told
    )
    assert any("reads variable 'v' of /job:ps/replica:0/task:1" in line for line in told)


# ---------------------------------------------------------------------- damage
def _two() -> tuple[list[Partition], Plan]:
    plan = _planned(_replicated, _tasks(WORKER, SERVER))
    return plan.partitions, plan


def _without_item(parts: list[Partition]) -> list[Partition]:
    grouping = parts[0].grouping
    return [replace(parts[0], grouping=replace(grouping, items=grouping.items[:-1])), parts[1]]


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (_without_item, "is in no partition|does not have"),
        (lambda parts: [*parts, parts[0]], "is in the partitions of"),
        (lambda parts: [replace(parts[0], sends=[]), parts[1]], "are sent and"),
        (lambda parts: [parts[0], replace(parts[1], fetch_positions=[])], "the fetches"),
    ],
)
def test_partitions_that_are_not_the_step_are_found(
    damage: Callable[[list[Partition]], list[Partition]], message: str
) -> None:
    parts, plan = _two()
    verify_partitions(parts, plan.step, "cut")
    with pytest.raises(InternalError, match=message):
        verify_partitions(damage(parts), plan.step, "cut")


def test_a_partition_that_needs_another_tasks_values_is_found() -> None:
    (first, second), plan = _two()
    last = second.items[-1]
    with_it = replace(first, grouping=replace(first.grouping, items=[*first.items, last]))
    without = replace(second, grouping=replace(second.grouping, items=second.items[:-1]))
    with pytest.raises(InternalError, match=f"which its task {SERVER} does not have"):
        verify_partitions([with_it, without], plan.step, "cut")


WRITTEN = partition_bytes(_planned(_array_in_a_loop).partitions[0])


@given(st.data())
def test_damaged_bytes_are_refused(data: Any) -> None:
    damaged = bytearray(WRITTEN)
    for _ in range(data.draw(st.integers(1, 4))):
        damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    try:
        message = PartitionDef.FromString(bytes(damaged[: data.draw(st.integers(1, len(damaged)))]))
    except DecodeError:
        return
    try:
        read = partition_from_proto(message)
    except InvalidArgumentError:
        return
    partition_bytes(read)
    str(read)


def test_an_operation_type_that_is_not_there_is_named() -> None:
    message = partition_to_proto(_planned(_loop).partitions[0])
    message.node[0].op = "Nonsense"
    with pytest.raises(InvalidArgumentError, match=r"of type 'Nonsense', which is not registered here"):
        partition_from_proto(message)
