"""Workers that join, leave and die while training runs; their input is dealt out in ranges, each once in an epoch."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import anabranch as tf
from anabranch.testing.local_cluster import LocalCluster, local_cluster
from tests.cluster.places import until

#: seconds; no wait of a test lasts longer
DEADLINE = 30.0
EXAMPLES, SIZE = 23, 4


@pytest.fixture
def cluster() -> Iterator[LocalCluster]:
    with local_cluster(ps=1, worker=8) as tasks:
        yield tasks


class Worker:
    """Counts on the parameter server how often it has used each example."""

    def __init__(
        self,
        cluster: LocalCluster,
        index: int,
        directory: Path,
        epochs: int,
        minimum: int = 1,
        seconds: float = 60.0,
        there: float = 3.0,
    ) -> None:
        with tf.Graph().as_default():
            with tf.device(tf.train.replica_device_setter(1, worker_device=f"/job:worker/task:{index}")):
                self.begin, self.end = tf.placeholder(tf.int32, []), tf.placeholder(tf.int32, [])
                self.step = tf.train.get_or_create_global_step()
                self.counts = tf.get_variable("counts", initializer=np.zeros(EXAMPLES, np.int32), use_resource=True)
                places = tf.range(EXAMPLES)
                used = tf.cast((places >= self.begin) & (places < self.end), tf.int32)
                self.train = tf.group(self.counts.assign_add(used), self.step.assign_add(1))
            self.ranges = tf.train.replicas.InputRanges(EXAMPLES, SIZE, epochs, seconds=seconds)
            self.membership = tf.train.replicas.MembershipHook(minimum, seconds=there)
            self.session = tf.train.MonitoredTrainingSession(
                cluster.target("worker", index),
                index == 0,
                str(directory),
                hooks=[self.membership],
                save_checkpoint_secs="auto",
                config=tf.ConfigProto(operation_timeout_in_ms=int(DEADLINE * 1000)),
                log_step_count_steps=None,
                save_summaries_steps=None,
            )
        self.leased = self.ranges.leased(self.session)

    def use(self, times: int = 1000) -> int:
        """Uses ranges; how many there were for it."""
        for count in range(times):
            given = next(self.leased, None)
            if given is None:
                return count
            self.session.run(self.train, {self.begin: given.begin, self.end: given.end})
        return times

    def die(self) -> None:
        """Ends as a killed process does: nothing is given back, nothing renewed, and what waits is cancelled."""
        creator = self.session._coordinated_creator
        session, coord = creator.tf_sess, creator.coord
        assert coord is not None
        coord.request_stop()
        session.close()

    def values(self) -> list[int]:
        return [int(count) for count in self.session.run(self.counts)]


def test_each_example_is_used_once_in_an_epoch_while_workers_come_and_go(cluster: LocalCluster, tmp_path: Path) -> None:
    # what the third has for long, because it dies, goes to others
    dies = {"seconds": 0.2, "there": 1.0}
    first = [Worker(cluster, i, tmp_path, epochs=2, **(dies if i == 2 else {})) for i in range(4)]
    for i in (0, 1, 3):
        first[i].use(1)

    def are_there(*workers: Worker) -> Callable[[], bool]:
        names = {worker.membership._me for worker in workers}
        return lambda: names == set(first[0].membership.members)

    until(are_there(*first), "all four", DEADLINE)
    # one leaves, and one dies with a range that it has not used
    first[1].ranges.done(first[1].session)
    first[1].leased.close()
    first[1].session.close()
    taken = next(first[2].leased)
    assert taken.end > taken.begin
    first[2].die()
    cluster.lose("/job:worker/replica:0/task:2")
    until(are_there(first[0], first[3]), "the end of the time of the one that died", DEADLINE)
    # two are left of four, and four join
    later = [Worker(cluster, i, tmp_path, epochs=2) for i in (4, 5, 6, 7)]
    those_there = [first[0], first[3], *later]
    until(are_there(*those_there), "all six", DEADLINE)
    threads = [threading.Thread(target=worker.use) for worker in those_there]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(DEADLINE)
        assert not thread.is_alive()
    assert first[0].values() == [2] * EXAMPLES
    first[0].session.close()


def test_positions_go_back_with_the_model(cluster: LocalCluster, tmp_path: Path) -> None:
    worker = Worker(cluster, 0, tmp_path, epochs=1)
    worker.use(3)
    worker.session.close()  # which saves
    # the parameter server has lost everything, and the worker is another process
    cluster.lose("/job:ps/replica:0/task:0")
    cluster.begin("/job:ps/replica:0/task:0")
    other = Worker(cluster, 0, tmp_path, epochs=1)
    assert sum(other.values()) == 3 * SIZE
    # the last of the three was not said to be done, so that it is dealt out once more
    assert other.use() == (EXAMPLES + SIZE - 1) // SIZE - 2
    counts = other.values()
    assert counts == [1] * 2 * SIZE + [2] * SIZE + [1] * (EXAMPLES - 3 * SIZE)


def test_positions_are_read_before_what_ranges_were_used_for() -> None:
    """A worker may use a range, and say so, while a save reads: the range may be used again, and not be left out."""
    with tf.Graph().as_default() as graph:
        with tf.device(tf.train.replica_device_setter(2)):
            tf.train.get_or_create_global_step()
            for name in ("a", "b"):
                tf.get_variable(name, initializer=0.0, use_resource=True)
        tf.train.replicas.InputRanges(EXAMPLES, SIZE)
        tf.train.Saver(sharded=True)
    (export,) = (op for op in graph.get_operations() if op.type == "_ExportRanges")
    saves = [op for op in graph.get_operations() if op.type == "SaveV2"]
    assert {op.device for op in saves} == {"/job:ps/task:0", "/job:ps/task:1"}
    reads = [tensor.op.inputs[0].op for op in saves for tensor in op.inputs[3:] if tensor.op is not export]
    assert [op.type for op in reads] == ["ReadVariableOp"] * 3
    assert all(export in op.control_inputs for op in reads)


def test_fewer_workers_than_the_minimum_wait_and_say_so(
    cluster: LocalCluster, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    one: Any = Worker(cluster, 0, tmp_path, epochs=1, minimum=2)
    with caplog.at_level(logging.WARNING):
        waiting = threading.Thread(target=one.use, args=(1,))
        waiting.start()
        until(lambda: "1 of at least 2 are there" in caplog.text, "a word of the worker that waits", DEADLINE)
        assert waiting.is_alive()
        Worker(cluster, 1, tmp_path, epochs=1)
        waiting.join(DEADLINE)
        assert not waiting.is_alive()
    assert sum(one.values()) == SIZE
