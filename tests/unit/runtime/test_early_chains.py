"""What follows from rows of one server leaves before the indices of the next, and nothing else is done early."""

from __future__ import annotations

import queue
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import pytest

import anabranch as tf
from anabranch.pipeline import plan_step
from anabranch.placement.policy import PlacementPolicy
from anabranch.runtime.bound_partition import BoundPartition
from anabranch.runtime.devices import session_devices
from anabranch.runtime.held_start import Offered
from anabranch.runtime.local_worker import LocalTask, LocalWorkerSession, placer_for
from anabranch.runtime.rendezvous_table import Key, StepId
from anabranch.xla.between_tasks import MAX_ELEMENTS
from anabranch.xla.islands import HostCall
from anabranch.xla.partitions import Partition
from tests.unit.xla.test_partitions import _tasks

WORKER = "/job:worker/replica:0/task:0"
SERVERS = [f"/job:ps/replica:0/task:{index}" for index in range(2)]
DEADLINE = 60.0
WIDTH = 8


def scaled(taken: Any) -> Any:
    return taken * 0.5


def workers_part(
    change: Callable[[Any], Any] = scaled,
    width: int = WIDTH,
    is_fetched: bool = False,
    servers: Sequence[str] = SERVERS,
) -> Partition:
    """The worker's part of a step that takes three rows of each of some servers and sends what is made of them."""
    with tf.Graph().as_default():
        updates, fed, changes = [], [], []
        for server in servers:
            with tf.device(server):
                table = tf.get_variable(f"t{server[-1]}", [100, width], use_resource=True)
            with tf.device(WORKER):
                fed.append(tf.placeholder(tf.int32, [3]))
                numbers = tf.negative(fed[-1])
            with tf.device(server):
                taken = tf.gather(table, numbers)
            with tf.device(WORKER):
                changes.append(change(taken))
            with tf.device(server):
                updates.append(tf.scatter_sub(table, numbers, changes[-1]).op)
        plan = plan_step(changes if is_fetched else [], updates, fed, _tasks(WORKER, *SERVERS))
    return next(part for part in plan.partitions if part.task == WORKER)


class Rows(NamedTuple):
    """Rows that were taken for a transfer."""

    way: tuple[str, str, str]


class Servers:
    """The other end of a worker's part: notes what comes, and lets rows of some servers be taken as indices come."""

    def __init__(self, part: Partition, takes: tuple[int, ...]) -> None:
        self.takes = takes
        self.seen: list[str] = []
        self.task = LocalTask(WORKER)
        placer = placer_for(None, PlacementPolicy(), session_devices(None, WORKER))
        self.session = LocalWorkerSession("s", self.task, placer, is_shared=True)
        self.bound: BoundPartition = self.session.register(part)
        self.rendezvous = self.task.containers.rendezvous
        self.rendezvous.outlet = self._note
        #: the transfers of rows, by the device from which they come
        self.rows = {end.source: (end.source, end.destination, end.tensor) for end in part.receives}
        self.kept: dict[str, Any] = {}

    def _note(self, key: Key, value: Any) -> bool:
        server = key.destination.partition("/device")[0][-1]
        is_indices = np.asarray(value).dtype == np.int32
        self.seen.append(f"{'indices' if is_indices else 'rows'} {server}")
        if not is_indices:
            self.kept[server] = np.asarray(value)
        return is_indices

    def offer(self, key: Key, value: Any) -> Offered:
        is_indices = self._note(key, value)
        way = self.rows[key.destination]
        if not is_indices or int(key.destination.partition("/device")[0][-1]) not in self.takes:
            return Offered(True, ())
        return Offered(True, [(Rows(way), self.table(np.asarray(value)))])  # type: ignore[list-item]

    @staticmethod
    def table(numbers: Any) -> Any:
        return np.repeat(numbers[:, None], WIDTH, 1).astype(np.float32)

    def run(self, number: int) -> list[str]:
        """A step; what came to the servers, in order."""
        step = StepId("s", number)
        self.seen.clear()
        ended: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self.rendezvous.hold(step, dict.fromkeys(self.rows, self))  # type: ignore[arg-type]
        feeds = [-np.arange(3, dtype=np.int32), -np.arange(3, 6, dtype=np.int32)]
        self.bound.start_here(number, feeds, ended.put)
        for device, way in self.rows.items():
            server = int(device.partition("/device")[0][-1])
            if server not in self.takes:
                rows = self.table(-feeds[server])
                self.rendezvous.arrive(Key(step, *way, "", 0), rows, rows.nbytes)
        assert ended.get(timeout=DEADLINE) == []
        for server, fed in enumerate(feeds):
            np.testing.assert_array_equal(self.kept[str(server)], 0.5 * self.table(-fed))
        return list(self.seen)


@pytest.mark.parametrize(
    ("takes", "seen"),
    [
        ((0, 1), ["indices 0", "rows 0", "indices 1", "rows 1"]),
        ((), ["indices 0", "indices 1", "rows 0", "rows 1"]),
        ((0,), ["indices 0", "rows 0", "indices 1", "rows 1"]),
        ((1,), ["indices 0", "indices 1", "rows 1", "rows 0"]),
    ],
)
def test_what_follows_from_rows_that_are_there_leaves_first(takes: tuple[int, ...], seen: list[str]) -> None:
    servers = Servers(workers_part(), takes)
    for number in (1, 2):
        assert servers.run(number) == seen


@pytest.mark.parametrize(
    ("part", "is_on_host"),
    [
        (workers_part, True),
        (lambda: workers_part(lambda taken: 2.0 * taken - taken), True),
        # one alone, more than one function, many numbers, somebody here who wants them
        (lambda: workers_part(servers=SERVERS[:1]), False),
        (lambda: workers_part(tf.exp), False),
        (lambda: workers_part(width=MAX_ELEMENTS), False),
        (lambda: workers_part(is_fetched=True), False),
    ],
)
def test_few_numbers_between_tasks_are_computed_on_the_host(part: Callable[[], Partition], is_on_host: bool) -> None:
    computed = [op for item in part().items if isinstance(item, HostCall) for op in item.operations]
    assert any(op.type == "Mul" for op in computed) is is_on_host
    assert not any(op.type == "Exp" for op in computed)
