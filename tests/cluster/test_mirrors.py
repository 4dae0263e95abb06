"""Mirrors: parameter servers are lost at random, and no step that has ended is lost with them."""

from __future__ import annotations

import contextlib
import itertools
import json
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import anabranch as tf
from anabranch.distributed.shard_loading import load_shard
from anabranch.distributed.shard_recovery import DIRECTORY_VARIABLE
from anabranch.ops import raw
from anabranch.testing.local_cluster import LocalCluster, local_cluster
from anabranch.train import chief_lease
from anabranch.train.save_interval import SaveInterval
from anabranch.train.shard_mirrors import shard_mirrors
from tests.cluster.places import held_addresses
from tests.cluster.processes import DEADLINE, Process

PS = [f"/job:ps/replica:0/task:{i}" for i in range(3)]
ROWS = 6


@pytest.fixture(autouse=True)
def no_checkpoints(monkeypatch: pytest.MonkeyPatch) -> None:
    """There are none but those with which sessions begin."""
    monkeypatch.setattr(SaveInterval, "is_due", lambda *_: False)


@pytest.fixture
def cluster() -> Iterator[LocalCluster]:
    with local_cluster(ps=3, worker=2) as tasks:
        yield tasks


class Trainer:
    """A worker whose step adds 1 to `w`, to `b` and to the rows of `table` that are fed, each on another task."""

    def __init__(self, target: str, directory: Path, index: int = 0, ps: int = 3) -> None:
        self.graph = tf.Graph()
        #: steps that have ended, and what they have added to the rows
        self.ended, self.added = 0, np.zeros(ROWS)
        with self.graph.as_default():
            with tf.device(tf.train.replica_device_setter(ps, worker_device=f"/job:worker/task:{index}")):
                self.step = tf.train.get_or_create_global_step()
                self.w = tf.get_variable("w", initializer=np.zeros(3, np.float32))
                self.table = tf.get_variable("table", initializer=np.zeros((ROWS, 2), np.float32))
                self.b = tf.get_variable("b", initializer=np.zeros(2, np.float32), use_resource=True)
                self.rows = tf.placeholder(tf.int32, [None])
                # momentum of nothing: a slot beside each variable
                opt = tf.train.replicas.asynchronous(
                    tf.train.replicas.mirrored(tf.train.MomentumOptimizer(1.0, momentum=0.0))
                )
                loss = -tf.reduce_sum(self.w) - tf.reduce_sum(self.b) - tf.reduce_sum(tf.gather(self.table, self.rows))
                self.train = opt.minimize(loss, self.step)
                self.slot = opt.get_slot(self.table, "momentum")
            assert self.slot is not None
            self.session = tf.train.MonitoredTrainingSession(
                target,
                index == 0,
                str(directory),
                hooks=[opt.make_session_run_hook(index == 0)],
                save_checkpoint_secs="auto",
                config=tf.ConfigProto(operation_timeout_in_ms=int(DEADLINE * 1000)),
                log_step_count_steps=None,
                save_summaries_steps=None,
            )

    def run(self, *rows: int) -> None:
        self.session.run(self.train, {self.rows: rows})
        self.ended += 1
        np.add.at(self.added, list(rows), 1)

    def values(self) -> tuple[int, Any, Any, Any]:
        step, w, b, table = self.session.run([self.step, self.w, self.b, self.table])
        return int(step), w, b, table

    def mirrors_differ(self) -> list[str]:
        """The variables whose mirrors have another value; there is no step under way."""
        pairs = [m for shard in shard_mirrors[self.graph].shards.values() for m in shard.mirrors.values()]
        assert {m.variable.name for m in pairs} > {"w:0", "b:0", "table:0", "table/Momentum:0", "global_step:0"}
        assert all(m.copy.device != m.variable.device for m in pairs)
        values = self.session.run([(m.variable, m.copy) for m in pairs])
        return [
            m.variable.name for m, (one, other) in zip(pairs, values, strict=True) if not np.array_equal(one, other)
        ]


def test_rows_and_whole_variables_go_to_the_next_task(cluster: LocalCluster, tmp_path: Path) -> None:
    trainer = Trainer(cluster.target(), tmp_path)
    for rows in ((1, 2), (2,), (5, 5, 0), ()):
        trainer.run(*rows)
        assert trainer.mirrors_differ() == []
    by_rows = {m.variable.name for m in mirrors_of(trainer) if m.numbers.shape.ndims == 1}
    assert by_rows == {"table:0", "table/Momentum:0"}
    types = {op.type for op in trainer.graph.get_operations()}
    assert {"_ScatterNewer", "_AssignNewer"} <= types
    trainer.session.close()


def mirrors_of(trainer: Trainer) -> list[Any]:
    return [m for shard in shard_mirrors[trainer.graph].shards.values() for m in shard.mirrors.values()]


def test_steps_that_have_ended_survive_the_loss_of_any_parameter_server(cluster: LocalCluster, tmp_path: Path) -> None:
    trainers = [Trainer(cluster.target("worker", i), tmp_path, i) for i in range(2)]
    over = threading.Event()
    failed: list[BaseException] = []

    def train(trainer: Trainer, seed: int) -> None:
        random = np.random.default_rng(seed)
        try:
            while not over.is_set():
                trainer.run(*random.integers(0, ROWS, random.integers(0, 4)))
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=train, args=(t, i), daemon=True) for i, t in enumerate(trainers)]
    for thread in threads:
        thread.start()
    lost = 0
    for name in [*PS, *reversed(PS)]:
        wanted = [t.ended + 3 for t in trainers]
        deadline = time.monotonic() + DEADLINE
        while any(t.ended < count for t, count in zip(trainers, wanted, strict=True)):
            assert not failed, failed
            assert time.monotonic() < deadline
            over.wait(0.005)
        # in the midst of steps
        cluster.lose(name)
        task = cluster.begin(name)
        # what a checkpoint has is older than the mirrors: the task takes nothing by itself
        assert load_shard(task.state.containers, name, list(cluster.tasks), str(tmp_path)) is None
        lost += 1
    over.set()
    for thread in threads:
        thread.join(DEADLINE)
        assert not thread.is_alive()
    assert not failed, failed
    for trainer in trainers:
        trainer.run(0)
    ended, added = sum(t.ended for t in trainers), sum(t.added for t in trainers)
    step, w, b, table = trainers[0].values()
    # a step that failed has perhaps been applied in part, and was run again: each loss meets one of each worker
    most = lost * len(trainers)
    for got in (step, *w, *b):
        assert ended <= got <= ended + most
    assert (added <= table[:, 0]).all()
    assert np.array_equal(table[:, 0], table[:, 1])
    assert trainers[0].mirrors_differ() == []
    for trainer in trainers:
        trainer.session.close()


def test_two_neighbours_lost_at_once_go_back_to_the_checkpoint(cluster: LocalCluster, tmp_path: Path) -> None:
    trainer = Trainer(cluster.target(), tmp_path)
    for _ in range(4):
        trainer.run(1)
    homes = {v.name: v.device for v in (trainer.w, trainer.b, trainer.table)}
    assert len(set(homes.values())) == 3
    for name in (PS[1], PS[2]):
        cluster.lose(name)
        cluster.begin(name)
    trainer.run(1)
    values = dict(zip(("w:0", "b:0", "table:0"), (trainer.values()[i] for i in (1, 2, 3)), strict=True))
    first = {name: float(np.max(value)) for name, value in values.items()}
    # the mirrors of task 1 were on task 2; those of task 2 are on task 0, and those of task 0 were on task 1
    by_task = {homes[name].rpartition(":")[2]: value for name, value in first.items()}
    assert by_task == {"0": 5.0, "1": 1.0, "2": 5.0}
    assert trainer.mirrors_differ() == []
    trainer.session.close()


def test_a_killed_process_loses_nothing(tmp_path: Path) -> None:
    with contextlib.ExitStack() as stack:
        addresses = stack.enter_context(held_addresses("localhost", ps=2, worker=1))

        def started(index: int) -> Process:
            told = {DIRECTORY_VARIABLE: str(tmp_path)}
            process = Process("task_process.py", json.dumps(addresses), "ps", str(index), environment=told)
            stack.callback(process.kill)
            return process

        servers = [started(index) for index in range(2)]
        worker = stack.enter_context(tf.train.Server(addresses, "worker", 0))
        trainer = Trainer(worker.target, tmp_path, ps=2)
        for killed in (0, 1, 1):
            for _ in range(5):
                trainer.run(killed)
            servers[killed].kill()
            servers[killed] = started(killed)
        trainer.run(3)
        step, w, b, table = trainer.values()
        assert (step, w[0], b[0]) == (16, 16, 16)
        assert table[:, 0].tolist() == [5, 10, 0, 1, 0, 0]
        trainer.session.close()


def test_a_loss_of_which_another_thread_hears_first_loses_nothing(
    cluster: LocalCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told, asks = threading.Event(), threading.Lock()
    ask = chief_lease.ChiefLease.ask

    def noted(lease: chief_lease.ChiefLease, session: tf.Session) -> bool:
        with asks:
            try:
                return ask(lease, session)
            except tf.errors.AbortedError:
                told.set()
                raise

    monkeypatch.setattr(chief_lease.ChiefLease, "ask", noted)
    # asked for every second; a process that the machine leaves out for a moment keeps it
    monkeypatch.setattr(chief_lease, "LEASE_SECONDS", 3.0)
    trainer = Trainer(cluster.target(), tmp_path)
    for count in (1, 2, 3):
        trainer.run(1)
        # of the global step, and of the lease beside it; nobody asks for that while there is no such task
        with asks:
            cluster.lose(trainer.step.device.replace("/task", "/replica:0/task"))
            told.clear()
            cluster.begin(trainer.step.device.replace("/task", "/replica:0/task"))
        # the thread that renews the lease runs steps of the same session
        assert told.wait(DEADLINE)
        trainer.run(1)
        assert trainer.values()[0] == 2 * count
    assert trainer.mirrors_differ() == []
    trainer.session.close()


def test_what_cannot_be_mirrored_is_refused(cluster: LocalCluster, tmp_path: Path) -> None:
    with tf.Graph().as_default(), tf.device("/job:ps/task:0"):
        w = tf.get_variable("w", [])
        opt = tf.train.replicas.mirrored(tf.train.GradientDescentOptimizer(1.0))
        with pytest.raises(ValueError, match="two parameter servers at least, and .* changes variables of /job:ps"):
            opt.minimize(w * w)
    for kind, creates, message in (
        ("asynchronous", {"save_checkpoint_secs": None}, 'save_checkpoint_secs="auto"'),
        ("synchronous", {"save_checkpoint_secs": "auto"}, "leave tf.train.replicas.mirrored out"),
    ):
        with tf.Graph().as_default():
            with tf.device(tf.train.replica_device_setter(2, worker_device="/job:worker/task:0")):
                step = tf.train.get_or_create_global_step()
                v = tf.get_variable("v", [])
                opt = tf.train.replicas.mirrored(tf.train.GradientDescentOptimizer(1.0))
                made = {
                    "asynchronous": tf.train.replicas.asynchronous,
                    "synchronous": lambda inner: tf.train.replicas.synchronous(inner, aggregate=1),
                }[kind](opt)
                made.minimize(v * v, step)
            with pytest.raises(ValueError, match=message):
                tf.train.MonitoredTrainingSession(
                    cluster.target(), True, str(tmp_path), hooks=[made.make_session_run_hook(True)], **creates
                )


# ---------------------------------------------------------------------- the operations
@pytest.mark.parametrize("seed", range(3))
def test_the_newest_value_stays_in_whatever_order_values_come(seed: int) -> None:
    random = np.random.default_rng(seed)
    with tf.Graph().as_default(), tf.Session() as session:
        number, value = tf.placeholder(tf.int64, []), tf.placeholder(tf.float32, [4, 2])
        indices, rows = tf.placeholder(tf.int32, [None]), tf.placeholder(tf.float32, [None, 2])
        made = [tf.get_variable(f"v{i}", initializer=np.zeros((4, 2), np.float32), use_resource=True) for i in range(3)]
        one, each, both = (tf.Variable(np.zeros(n, np.int64), use_resource=True) for n in ((), 4, 4))
        whole = raw._AssignNewer(made[0].handle, one.handle, value, number)
        by_rows = raw._ScatterNewer(made[1].handle, each.handle, indices, rows, number)
        mixed = [
            raw._ScatterNewer(made[2].handle, both.handle, indices, rows, number),
            raw._AssignNewer(made[2].handle, both.handle, value, number),
        ]
        session.run(tf.global_variables_initializer())
        expected = [np.zeros((4, 2), np.float32) for _ in range(3)]
        last, of_each, of_both = 0, np.zeros(4, int), np.zeros(4, int)
        for n in random.permutation(np.repeat(np.arange(-1, 12), 2)).tolist():
            given = random.standard_normal((4, 2)).astype(np.float32)
            at = np.unique(random.integers(0, 4, random.integers(0, 4)))
            if n > last:
                last, expected[0] = n, given
            newer = at[n > of_each[at]]
            of_each[newer], expected[1][newer] = n, given[newer]
            whole_of_both = bool(random.integers(2))
            changed = np.arange(4) if whole_of_both else at
            newer = changed[n > of_both[changed]]
            of_both[newer], expected[2][newer] = n, given[newer]
            feeds = {number: n, value: given, indices: at, rows: given[at]}
            session.run([whole, by_rows, mixed[whole_of_both]], feeds)
            for variable, wanted in zip(made, expected, strict=True):
                assert np.array_equal(session.run(variable), wanted)
        assert session.run(one) == last
        assert session.run([each, both])[1].tolist() == of_both.tolist()
        for wrong in ({indices: [4], rows: np.ones((1, 2))}, {indices: [-1], rows: np.ones((1, 2))}):
            with pytest.raises(tf.errors.InvalidArgumentError):
                session.run(by_rows, {number: 99, **wrong})
        assert np.array_equal(session.run(made[1]), expected[1])


def test_every_order_of_three_workers_leaves_the_mirror_with_all_that_has_ended() -> None:
    """The argument of `train.shard_mirrors`: all interleavings of two workers, and some of three, in a model.

    Each applies an update, counts it, reads the value, and sends it with the count that it has read; its step has ended
    when that is at the mirror.
    """
    actions = ("apply", "count", "value", "arrive")
    for order in set(itertools.permutations([worker for worker in range(2) for _ in actions])):
        check_order(order, actions, workers=2)
    random = np.random.default_rng(0)
    three = np.repeat(np.arange(3), len(actions))
    for _ in range(3000):
        check_order(tuple(random.permutation(three).tolist()), actions, workers=3)


def check_order(order: tuple[int, ...], actions: tuple[str, ...], workers: int) -> None:
    applied: set[int] = set()
    counted, kept = 0, (0, frozenset[int]())
    number, value = [0] * workers, [frozenset[int]()] * workers
    done = [0] * workers
    ended: set[int] = set()
    for worker in order:
        match actions[done[worker]]:
            case "apply":
                applied.add(worker)
            case "count":
                counted += 1
                number[worker] = counted
            case "value":
                value[worker] = frozenset(applied)
            case "arrive":
                if number[worker] > kept[0]:
                    kept = (number[worker], value[worker])
                ended.add(worker)
        done[worker] += 1
        assert ended <= kept[1], order
