"""Trainings that go on when parameter servers come back, saves that fail or are interrupted, and who is chief then."""

from __future__ import annotations

import errno
import json
import os
import re
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import anabranch as tf
from anabranch.distributed.shard_loading import load_shard
from anabranch.distributed.shard_recovery import DIRECTORY_VARIABLE
from anabranch.io import checkpoint_manifest, checkpoint_writer, durable
from anabranch.testing.local_cluster import LocalCluster, local_cluster
from anabranch.train import chief_lease
from anabranch.train.model_shards import ModelShards
from anabranch.train.replica_status import TABLE_NAME, WAITS_IN
from anabranch.train.replicas import MAX_WORKERS
from anabranch.train.save_interval import SaveInterval
from tests.cluster.places import until
from tests.cluster.processes import DEADLINE, Process, one_ps

PS = [f"/job:ps/replica:0/task:{i}" for i in range(2)]


@pytest.fixture
def cluster() -> Iterator[LocalCluster]:
    with local_cluster(ps=2, worker=2) as tasks:
        yield tasks


class Trainer:
    """A worker whose step adds 1 to `a` on one parameter server, to `b` on the other, and to the global step."""

    def __init__(
        self, cluster: LocalCluster, directory: Path, index: int = 0, in_rounds: bool = False, backups: int = 1
    ) -> None:
        self.graph = tf.Graph()
        hooks = []
        with self.graph.as_default():
            with tf.device(tf.train.replica_device_setter(2, worker_device=f"/job:worker/task:{index}")):
                self.step = tf.train.get_or_create_global_step()
                self.a = tf.get_variable("a", initializer=np.zeros(3, np.float32), use_resource=True)
                self.b = tf.get_variable("b", initializer=np.zeros(2, np.float32), use_resource=True)
                optimizer: Any = tf.train.GradientDescentOptimizer(1.0)
                if in_rounds:
                    optimizer = tf.train.replicas.synchronous(optimizer, 1, backups, reissue_after=0.5)
                loss = -tf.reduce_sum(self.a) - tf.reduce_sum(self.b)
                self.train = optimizer.minimize(loss, self.step)
                if in_rounds:
                    hooks = [optimizer.make_session_run_hook(index == 0)]
            self.session = tf.train.MonitoredTrainingSession(
                cluster.target("worker", index),
                index == 0,
                str(directory),
                hooks=hooks,
                save_checkpoint_secs="auto",
                config=tf.ConfigProto(operation_timeout_in_ms=int(DEADLINE * 1000)),
                log_step_count_steps=None,
                save_summaries_steps=None,
            )

    def run(self, times: int = 1) -> None:
        for _ in range(times):
            self.session.run(self.train)

    def run_until_told(self, seconds: float) -> None:
        """Steps go on while a checkpoint is written; one of them says that it could not be."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            self.run()

    def values(self) -> list[float]:
        step, a, b = self.session.run([self.step, self.a, self.b])
        return [int(step), float(a[0]), float(b[0])]

    def close(self) -> None:
        self.session.close()

    def is_chief(self) -> bool:
        return any(isinstance(hook, chief_lease.LeaseHook) and hook._lease.is_held for hook in self.session._hooks)

    def die(self) -> None:
        """Ends as a killed process does: nothing is given back, and what its steps wait for is cancelled."""
        creator = self.session._coordinated_creator
        session, coord = creator.tf_sess, creator.coord
        assert coord is not None
        coord.request_stop()
        session.close()


@pytest.fixture(autouse=True)
def when_asked(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Checkpoints are saved when a test puts something into this list."""
    wanted: list[bool] = []
    monkeypatch.setattr(SaveInterval, "is_due", lambda *_: bool(wanted) and wanted.pop())
    return wanted


def saved(trainer: Trainer, directory: Path, when_asked: list[bool]) -> int:
    """Has a checkpoint saved; what it has of `a`, whose shard may have been read some steps after the other."""
    when_asked.append(True)
    latest = committed(trainer, directory, tf.train.latest_checkpoint(str(directory)))
    return int(tf.train.load_variable(latest, "a")[0])


def committed(trainer: Trainer, directory: Path, before: str | None) -> str:
    """Trains on until there is another checkpoint than one that was there; which."""
    deadline = time.monotonic() + DEADLINE
    while (latest := tf.train.latest_checkpoint(str(directory))) == before:
        assert time.monotonic() < deadline
        trainer.run()
    assert latest is not None
    return latest


def comes_back(cluster: LocalCluster, name: str, directory: Path | None) -> None:
    """A parameter server is killed, and another process takes its place, as `tf.train.Server` does."""
    cluster.lose(name)
    started_again(cluster, name, directory)


def started_again(cluster: LocalCluster, name: str, directory: Path | None) -> None:
    task = cluster.begin(name)
    if directory is not None:
        assert load_shard(task.state.containers, name, list(cluster.tasks), str(directory))


def test_a_shard_comes_back_and_the_others_keep_what_they_learned(
    cluster: LocalCluster, tmp_path: Path, when_asked: list[bool]
) -> None:
    chief, other = Trainer(cluster, tmp_path), Trainer(cluster, tmp_path, 1)
    chief.run(3)
    commit = saved(chief, tmp_path, when_asked)
    other.run(4)
    step = chief.values()[0]
    assert step > commit + 3
    # by the task itself: nobody needs the chief
    comes_back(cluster, PS[1], tmp_path)
    other.run(2)
    assert other.values() == [step + 2, commit + 2, step + 2]
    # by the chief, where the task was not told where checkpoints are
    comes_back(cluster, PS[1], None)
    chief.run(3)
    assert chief.values() == other.values() == [step + 5, commit + 3, step + 5]
    chief.close()
    assert tf.train.latest_checkpoint(str(tmp_path)) == str(tmp_path / f"model.ckpt-{step + 5}")


def test_no_step_of_the_chief_is_in_a_checkpoint_by_half(
    cluster: LocalCluster, tmp_path: Path, when_asked: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    trained, real = threading.Event(), ModelShards.save

    def save(*args: Any) -> str | None:
        # on purpose: time for the chief's next step, which would be in it by half if it did not wait for the reading
        trained.wait(0.2)
        return real(*args)

    monkeypatch.setattr(ModelShards, "save", save)
    trainer = Trainer(cluster, tmp_path)
    trainer.run(2)
    for _ in range(2):
        before = tf.train.latest_checkpoint(str(tmp_path))
        trained.clear()
        when_asked.append(True)
        trainer.run(2)
        trained.set()
        latest = committed(trainer, tmp_path, before)
        reader = tf.train.load_checkpoint(latest)
        assert reader.get_tensor("global_step") == reader.get_tensor("b")[0] == int(latest.rpartition("-")[2])
    trainer.close()


def test_replicas_in_rounds_go_back_to_one_commit_together(
    cluster: LocalCluster, tmp_path: Path, when_asked: list[bool]
) -> None:
    chief, other = Trainer(cluster, tmp_path, 0, True), Trainer(cluster, tmp_path, 1, True)
    chief.run(2)
    other.run(2)
    for _ in range(2):
        commit = saved(chief, tmp_path, when_asked)
        # it is of one round, while rounds went on
        path = tf.train.latest_checkpoint(str(tmp_path))
        assert path == str(tmp_path / f"model.ckpt-{commit}")
        reader = tf.train.load_checkpoint(path)
        assert reader.get_tensor("global_step") == reader.get_tensor("b")[0] == commit
    other.run(3)
    assert chief.values()[0] >= commit + 3
    cluster.lose(PS[1])
    # it takes nothing by itself: the others would be rounds ahead of it
    task = cluster.begin(PS[1])
    assert load_shard(task.state.containers, PS[1], list(cluster.tasks), str(tmp_path)) is None
    late = threading.Thread(target=other.run, args=(2,))
    late.start()
    chief.run(2)
    late.join(DEADLINE)
    assert not late.is_alive()
    step, a, b = chief.values()
    assert commit + 2 <= step == a == b <= commit + 4
    assert other.values() == [step, a, b]
    chief.close()


def test_a_save_that_was_to_follow_a_round_is_not_begun_in_the_next_session(
    cluster: LocalCluster, tmp_path: Path, when_asked: list[bool]
) -> None:
    chief = Trainer(cluster, tmp_path, 0, True)
    chief.run(2)
    when_asked.append(True)
    chief.run()
    assert not when_asked, "it is asked for, and no round ends any more"
    comes_back(cluster, PS[1], None)
    chief.run(3)
    assert chief.values() == [3, 3, 3]
    assert saved(chief, tmp_path, when_asked) >= 3
    chief.close()


@pytest.mark.parametrize("in_rounds", [True, False])
def test_the_duties_of_a_dead_chief_pass_to_a_worker(
    cluster: LocalCluster, tmp_path: Path, when_asked: list[bool], monkeypatch: pytest.MonkeyPatch, in_rounds: bool
) -> None:
    monkeypatch.setattr(chief_lease, "LEASE_SECONDS", 1.5)
    chief, other = Trainer(cluster, tmp_path, 0, in_rounds), Trainer(cluster, tmp_path, 1, in_rounds)
    chief.run(2)
    commit = saved(chief, tmp_path, when_asked)
    other.run(2)
    before = chief.values()
    chief.die()
    # in rounds, nobody ends the round until another is chief
    other.run(3)
    deadline = time.monotonic() + DEADLINE
    while not other.is_chief():
        assert time.monotonic() < deadline
        other.run()
    now = other.values()
    assert now[0] == now[1] == now[2]
    if in_rounds:
        # the dead chief may have been in the midst of an update: back to the last checkpoint
        assert commit + 3 <= now[0]
    else:
        assert now[0] >= before[0] + 3
    later = saved(other, tmp_path, when_asked)
    assert later >= now[0]
    other.close()
    assert not other.is_chief()


def test_a_worker_that_waits_as_the_model_goes_back_goes_on(
    tmp_path: Path, when_asked: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its token is dropped then, and the table of who waits is that of the checkpoint."""
    monkeypatch.setattr(chief_lease, "LEASE_SECONDS", 1.5)
    with local_cluster(ps=2, worker=3) as cluster:
        chief, other, waits = (Trainer(cluster, tmp_path, index, True, backups=2) for index in range(3))
        for trainer in (chief, other, waits):
            trainer.run(2)
        saved(chief, tmp_path, when_asked)
        lease = next(hook._lease for hook in waits.session._hooks if isinstance(hook, chief_lease.LeaseHook))
        lease.passes = False  # what made it chief would end its step
        waits.run()  # it has tokens of the rounds that the chief has ended
        chief.die()
        late = threading.Thread(target=waits.run, daemon=True)
        late.start()
        deadline = time.monotonic() + DEADLINE
        while waiting_in(cluster)[2] < 0:
            assert time.monotonic() < deadline
        # it takes no step, which would hand out tokens
        while not other.is_chief():
            assert time.monotonic() < deadline
            other.values()
        # in a session that was made anew
        other.values()
        late.join(DEADLINE)
        assert not late.is_alive()
        assert lease.is_held is False
        step, a, b = other.values()
        assert step == a == b
        other.close()


def waiting_in(cluster: LocalCluster) -> list[float]:
    """The rounds whose ends workers wait for."""
    with tf.Graph().as_default(), tf.device("/job:ps/task:0"):
        table = tf.get_variable(TABLE_NAME, [MAX_WORKERS, WAITS_IN + 1], tf.float64, use_resource=True)
        with tf.Session(cluster.target("worker", 0)) as session:
            return [float(number) for number in session.run(table)[:, WAITS_IN]]


class Fault:
    """Happens once in a save: at its beginning, or as files are written, made durable, renamed, or merged."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, stage: str, happens: Callable[[], None]) -> None:
        self.has_happened = False
        owner, name = STAGES[stage]
        real = getattr(owner, name)

        def wrapped(*args: Any, **kwargs: Any) -> Any:
            if not self.has_happened:
                self.has_happened = True
                happens()
            return real(*args, **kwargs)

        monkeypatch.setattr(owner, name, wrapped)


STAGES: dict[str, tuple[Any, str]] = {
    "begin": (checkpoint_writer, "write_checkpoint"),
    "write": (durable, "write_all"),
    "sync": (os, "fsync"),
    "rename": (os, "replace"),
    "part": (checkpoint_manifest, "save"),
    "merge": (checkpoint_writer, "merge_checkpoints"),
    "link": (checkpoint_writer, "_link_locked"),
}


def files(directory: Path) -> set[str]:
    return {path.name for path in directory.iterdir() if path.is_file()}


def test_a_save_that_fails_raises_and_leaves_the_last_one(
    cluster: LocalCluster, tmp_path: Path, when_asked: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    trainer = Trainer(cluster, tmp_path)
    trainer.run(2)
    before = files(tmp_path)
    for stage, number in [*((stage, errno.ENOSPC) for stage in STAGES), ("write", errno.EIO), ("sync", errno.EIO)]:
        with monkeypatch.context() as patched:

            def fails(number: int = number) -> None:
                raise OSError(number, os.strerror(number))

            fault = Fault(patched, stage, fails)
            when_asked.append(True)
            with pytest.raises((tf.errors.OpError, OSError)) as raised:
                trainer.run_until_told(DEADLINE)
            assert fault.has_happened, stage
            if stage in ("write", "sync"):
                full = isinstance(raised.value, tf.errors.ResourceExhaustedError)
                assert full == (number == errno.ENOSPC), raised.value
            assert tf.train.latest_checkpoint(str(tmp_path)) == str(tmp_path / "model.ckpt-0")
            assert files(tmp_path) == before, stage
    # who trains on can save the next one
    step = trainer.values()[0]
    trainer.close()
    assert tf.train.latest_checkpoint(str(tmp_path)) == str(tmp_path / f"model.ckpt-{step}")


def test_a_parameter_server_killed_in_a_save_comes_back_to_the_last_one(
    cluster: LocalCluster, tmp_path: Path, when_asked: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    def dies() -> None:
        cluster.lose(PS[1])
        # on purpose later than the save fails, as a supervisor would: not before anybody has heard of its end
        threading.Timer(0.02, lambda: started_again(cluster, PS[1], tmp_path)).start()
        # nothing that it was doing is finished
        raise OSError(errno.EIO, "the process is gone")

    trainer = Trainer(cluster, tmp_path)
    trainer.run(2)
    for deaths, stage in enumerate(("write", "part", "merge"), start=1):
        with monkeypatch.context() as patched:
            fault = Fault(patched, stage, dies)
            when_asked.append(True)
            while not fault.has_happened:
                trainer.run()
            trainer.run(2)
        step, now, b = trainer.values()
        # `a` was on the one that died, and is behind by what came after the first checkpoint
        assert now < step
        # a save goes on beside the training: each death may have met a step that had updated `b` already
        assert step <= b <= step + deaths
    trainer.close()
    latest = tf.train.latest_checkpoint(str(tmp_path))
    assert latest == str(tmp_path / f"model.ckpt-{step}")
    reader = tf.train.load_checkpoint(latest)
    assert [reader.get_tensor("a")[0], reader.get_tensor("b")[0]] == [now, b]
    unfinished = [name for name in files(tmp_path) if "aside" in name or re.search(r"ckpt-\d+-\d{5}-of", name)]
    assert not unfinished


def test_a_killed_parameter_server_goes_on_from_its_last_checkpoint(
    tmp_path: Path, when_asked: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    # both in one update, so that a half of one would show
    told = {DIRECTORY_VARIABLE: str(tmp_path)}
    monkeypatch.setenv(DIRECTORY_VARIABLE, str(tmp_path))
    with one_ps(told) as (addresses, worker, processes):
        with tf.device(tf.train.replica_device_setter(1, worker_device="/job:worker/task:0")):
            step = tf.train.get_or_create_global_step()
            learned = tf.get_variable("learned", initializer=0.0, use_resource=True)
            train = tf.group(learned.assign_add(1.0), step.assign_add(1))
        config = tf.ConfigProto(operation_timeout_in_ms=int(DEADLINE * 1000))
        with tf.train.MonitoredTrainingSession(worker.target, config=config, log_step_count_steps=None) as session:

            def trained(times: int) -> int:
                for _ in range(times):
                    session.run(train)
                values = session.run([step, learned])
                assert values[0] == values[1]
                return int(values[0])

            def commit() -> int:
                path = tf.train.latest_checkpoint(str(tmp_path))
                assert path is not None
                return int(path.rpartition("-")[2])

            trained(5)
            when_asked.append(True)
            trained(1)
            while commit() == 0:
                trained(1)

            def killed_and_started_again() -> None:
                processes[-1].kill()
                processes.append(Process("task_process.py", json.dumps(addresses), "ps", "0", environment=told))

            highest = trained(3)
            # on purpose at any moment: in the midst of updates
            supervisor = threading.Timer(0.05, killed_and_started_again)
            supervisor.start()
            deadline = time.monotonic() + DEADLINE
            while (now := trained(1)) > highest:
                assert time.monotonic() < deadline, "it was not killed"
                highest = now
            # what came after the commit is lost, and nothing else; what was repeated may be a read
            assert commit() <= now <= commit() + 1
            supervisor.join(DEADLINE)


def test_a_parameter_server_killed_in_the_midst_of_an_update_has_no_half_of_it(
    tmp_path: Path, when_asked: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    told = {DIRECTORY_VARIABLE: str(tmp_path)}
    monkeypatch.setenv(DIRECTORY_VARIABLE, str(tmp_path))
    config = tf.ConfigProto(operation_timeout_in_ms=int(DEADLINE * 1000))
    with one_ps(told) as (addresses, worker, processes):
        with tf.device(tf.train.replica_device_setter(1, worker_device="/job:worker/task:0")):
            step = tf.train.get_or_create_global_step()
            a, b = (tf.get_variable(name, initializer=0.0, use_resource=True) for name in "ab")
        with tf.device("/job:ps/task:0"):
            gate = tf.FIFOQueue(10, [tf.int32], shapes=[[]], shared_name="gate")
            opens = gate.enqueue(0)
            with tf.control_dependencies([a.assign_add(1.0)]), tf.control_dependencies([gate.dequeue()]):
                train = tf.group(b.assign_add(1.0), step.assign_add(1))
        target = f"grpc://{addresses['ps'][0]}"
        with tf.train.MonitoredTrainingSession(worker.target, config=config, log_step_count_steps=None) as session:
            trained = threading.Thread(target=session.run, args=(train,))
            with tf.Session(target, config=config) as other:
                other.run(opens)
                session.run(train)
                commit = other.run([a, b, step])
                assert commit == [1, 1, 1]
                when_asked.append(True)
                other.run(opens)
                session.run(train)
                until(lambda: tf.train.latest_checkpoint(str(tmp_path)) == str(tmp_path / "model.ckpt-2"), "a save")
                trained.start()
                until(lambda: other.run(a) == 3, "the first half of an update")
                assert other.run([b, step]) == [2, 2]
                processes[-1].kill()
            processes.append(Process("task_process.py", json.dumps(addresses), "ps", "0", environment=told))
            # the worker does its step again
            with tf.Session(target, config=config) as other:
                until(lambda: other.run(a) == 3, "the first half of an update once more")
                assert other.run([b, step]) == [2, 2]
                other.run(opens)
            trained.join(DEADLINE)
            assert not trained.is_alive()
            assert session.run([a, b, step]) == [3, 3, 3]


def test_a_parameter_server_killed_while_it_writes_a_part_of_a_checkpoint_goes_on_from_the_one_before(
    tmp_path: Path, when_asked: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    directory, hold = tmp_path / "checkpoints", tmp_path / "hold"
    told = {DIRECTORY_VARIABLE: str(directory), "HOLD_SAVES": str(hold)}
    monkeypatch.setenv(DIRECTORY_VARIABLE, str(directory))
    with one_ps(told) as (addresses, worker, processes):
        with tf.device(tf.train.replica_device_setter(1, worker_device="/job:worker/task:0")):
            step = tf.train.get_or_create_global_step()
            learned = tf.get_variable("learned", initializer=0.0, use_resource=True)
            train = tf.group(learned.assign_add(1.0), step.assign_add(1))
        config = tf.ConfigProto(operation_timeout_in_ms=int(DEADLINE * 1000))
        with tf.train.MonitoredTrainingSession(worker.target, config=config, log_step_count_steps=None) as session:

            def begin_save() -> None:
                when_asked.append(True)
                while when_asked:
                    session.run(train)

            def saved(before: str | None) -> str:
                begin_save()
                until(lambda: tf.train.latest_checkpoint(str(directory)) != before, "a checkpoint", DEADLINE)
                return str(tf.train.latest_checkpoint(str(directory)))

            first = saved(tf.train.latest_checkpoint(str(directory)))
            commit = int(tf.train.load_variable(first, "learned"))
            hold.touch()
            begin_save()
            # it is in the midst of it, and the training goes on
            assert processes[0].line() == "saves"
            session.run(train)
            now = session.run([step, learned])
            assert now[0] == now[1] > commit + 1
            processes[0].kill()
            hold.unlink()
            processes.append(Process("task_process.py", json.dumps(addresses), "ps", "0", environment=told))
            session.run(train)
            assert tf.train.latest_checkpoint(str(directory)) == first
            assert session.run([step, learned]) == [commit + 1] * 2
            # what it had written by half is no checkpoint, and the next one is whole
            second = saved(first)
            assert tf.train.load_variable(second, "learned") > commit + 1
    assert not [name for name in files(directory) if "aside" in name or re.search(r"ckpt-\d+-\d{5}-of", name)]
