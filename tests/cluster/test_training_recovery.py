"""Trainings whose processes are all killed for real, the chief's too, two at once, again and again: they go on."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import anabranch as tf
from anabranch.distributed.shard_recovery import DIRECTORY_VARIABLE
from tests.cluster.places import held_addresses, until
from tests.cluster.processes import DEADLINE
from tests.cluster.training_worker import FEATURES, loss, undisturbed
from tests.cluster.trainings import Learned, Reader, Training, training

#: seconds; a chief that is not heard of for so long is replaced
LEASE = 1.0


@contextlib.contextmanager
def of_processes(directory: Path, ps: int, workers: int, **options: Any) -> Iterator[Training]:
    """A training with automatic checkpoints, all of whose tasks run."""
    options = {"directory": str(directory), "lease": LEASE} | options
    with (
        held_addresses(ps=ps, worker=workers) as addresses,
        training(addresses, options, {DIRECTORY_VARIABLE: str(directory)}) as trained,
    ):
        trained.start(*(f"{job}/{index}" for job, of_job in addresses.items() for index in range(len(of_job))))
        yield trained


def look(trained: Training) -> Learned:
    """What was learned, as a session sees it that was opened just now."""
    reader = Reader(f"grpc://{trained.addresses['ps'][0]}", trained.options)
    with reader.session:
        return reader.read()


def chief_of(trained: Training, *indices: int) -> int:
    """Which worker is chief; they take steps until one is."""
    found: list[int] = []

    def is_there() -> bool:
        trained.run(1, *indices)
        found[:] = [index for index in indices if trained.ask(index, "chief") == "chief"]
        return bool(found)

    until(is_there, "another chief", DEADLINE)
    (chief,) = found
    return chief


def saved(trained: Training, chief: int) -> int:
    """Has the chief save; the step of the checkpoint."""
    directory = str(trained.options["directory"])
    before = tf.train.latest_checkpoint(directory)
    trained.worker(chief).tell("save")

    def is_there() -> bool:
        trained.run(1, chief)
        return tf.train.latest_checkpoint(directory) != before

    until(is_there, "a checkpoint", DEADLINE)
    return int(tf.train.load_variable(tf.train.latest_checkpoint(directory), "global_step"))


@pytest.mark.parametrize("aggregate", [None, 1], ids=["asynchronous", "synchronous"])
def test_the_others_go_on_when_the_chief_is_killed(tmp_path: Path, aggregate: int | None) -> None:
    with of_processes(tmp_path, ps=1, workers=3, aggregate=aggregate) as trained:
        trained.run(2, 0, 1, 2)
        commit = saved(trained, 0)
        assert commit >= 2
        of_chief = tf.train.load_variable(tf.train.latest_checkpoint(str(tmp_path)), "counts0")[0, 0]
        before = look(trained)
        # in the midst of steps
        trained.begin(1000, 0)
        trained.begin(20, 1, 2)
        trained.kill("worker/0")
        assert trained.ended(1, 2) == [22, 22]
        chief = chief_of(trained, 1, 2)
        after = look(trained)
        # what the dead chief did last may be there, and not be counted
        uncounted = sum(after.counts[0]) - after.step
        assert uncounted == pytest.approx(0, abs=1e-3) or uncounted == pytest.approx(1)
        if aggregate is None:
            # of one server nothing is lost
            assert after.step >= before.step + 40
            assert after.counts[0][1:] == [after.workers[i].steps for i in (1, 2)]
        elif after.counts[0][0] < before.counts[0][0]:
            # a round was cut off: all went back to the checkpoint, and on from there
            assert (after.counts[0][0], uncounted) == (pytest.approx(of_chief), pytest.approx(0, abs=1e-3))
            assert after.step > commit
        else:
            # each step of a worker brought it to a later round, unless the model went back after all
            assert after.step >= before.step + 20 or (after.step > commit and of_chief == before.counts[0][0])
        assert saved(trained, chief) >= after.step
        # it comes back as a worker
        trained.start("worker/0")
        trained.run(1, 0, 1, 2)
        assert [trained.ask(index, "chief") == "chief" for index in range(3)] == [index == chief for index in range(3)]
        last = look(trained)
        assert sum(last.counts[0]) - last.step == pytest.approx(uncounted, abs=1e-3)


@pytest.mark.parametrize("ps", [1, 2])
def test_a_round_of_which_a_killed_chief_has_applied_a_part_is_in_no_variable(tmp_path: Path, ps: int) -> None:
    with of_processes(tmp_path, ps=ps, workers=2, aggregate=1, parts=2) as trained:
        trained.run(2, 0, 1)
        commit = saved(trained, 0)
        trained.run(2, 0, 1)
        before = look(trained)
        assert before.step > commit
        # between two rounds nothing is done by half, and nothing goes back
        trained.kill("worker/0")
        chief_of(trained, 1)
        between = look(trained)
        assert between.step > before.step
        assert [sum(counts) for counts in between.counts] == [between.step, between.step]
        trained.start("worker/0")
        trained.run(2, 0, 1)
        commit = saved(trained, 1)
        trained.run(2, 0, 1)
        # alone, so that it knows the latest round, and what it hands in then is not late
        trained.run(1, 0)
        rounds = look(trained).step
        assert rounds > commit
        # one variable's gradient is there and applied, the other's is not
        trained.hold(0, part=1)
        until(lambda: [sum(counts) for counts in look(trained).counts] == [rounds + 1, rounds], "a half", DEADLINE)
        trained.kill("worker/1")
        trained.worker(0).tell("go on")
        trained.ended(0)
        chief_of(trained, 0)
        after = look(trained)
        assert [sum(counts) for counts in after.counts] == [after.step, after.step]


def test_two_tasks_killed_at_once_again_and_again(tmp_path: Path) -> None:
    with of_processes(tmp_path, ps=2, workers=3, aggregate=1) as trained:
        chief = 0
        for victims in (("ps/0", "ps/1"), ("worker/0", "ps/1"), ("worker/1", "worker/2")):
            commit = saved(trained, chief)
            left = [index for index in range(3) if f"worker/{index}" not in victims]
            sessions = [trained.ask(index, "sessions") for index in left]
            trained.begin(1000, *(index for index in range(3) if index not in left))
            trained.begin(30, *left)
            trained.kill(*victims)
            trained.start(*victims)
            trained.ended(*left)
            if "ps/1" in victims:
                again = [trained.ask(index, "sessions") for index in left]
                assert all(now != before for now, before in zip(again, sessions, strict=True))
            trained.run(2, 0, 1, 2)
            chief = chief_of(trained, 0, 1, 2)
            learned = look(trained)
            assert learned.step > commit
            # whole rounds only, the same on both
            for counts in learned.counts:
                assert sum(counts) == pytest.approx(learned.step)


class Progress:
    """Watches a training of `training_worker.Regression`, also while tasks are killed."""

    def __init__(self, trained: Training) -> None:
        with tf.Graph().as_default():
            with tf.device("/job:ps/task:0"):
                self._step = tf.get_variable("global_step", [], tf.int64, use_resource=True)
            self._weights = []
            for shard in range(len(trained.addresses["ps"])):
                with tf.device(f"/job:ps/task:{shard}"):
                    self._weights.append(tf.get_variable(f"weights{shard}", [FEATURES], use_resource=True))
            config = tf.ConfigProto(operation_timeout_in_ms=int(1000 * DEADLINE), device_filters=["/job:ps"])
            self.session = tf.Session(f"grpc://{trained.addresses['ps'][0]}", config=config)

    def step(self) -> int:
        """The global step; -1 where it cannot be read now."""
        try:
            return int(self.session.run(self._step))
        except (tf.errors.UnavailableError, tf.errors.AbortedError, tf.errors.FailedPreconditionError):
            return -1

    def goes_on(self, steps: int) -> None:
        """Waits for so many steps more."""
        until(lambda: self.step() >= 0, "the parameter server", DEADLINE)
        begun = self.step()
        until(lambda: self.step() >= begun + steps, "steps", DEADLINE)

    def weights(self) -> tuple[int, list[Any]]:
        """What was learned, by which step; nobody trains."""
        step, weights = self.session.run([self._step, self._weights])
        return int(step), weights


def test_a_training_whose_tasks_are_killed_or_end_at_random_ends_as_if_undisturbed(tmp_path: Path) -> None:
    random, enough = np.random.default_rng(9), tmp_path / "enough"
    options = {"aggregate": 1, "regression": True, "save_every": 0.2}
    with contextlib.ExitStack() as stack:
        trained = stack.enter_context(of_processes(tmp_path / "saved", ps=2, workers=3, **options))
        victims = sorted(trained.running)
        workers = [name for name in victims if name.startswith("worker")]
        progress = Progress(trained)
        stack.enter_context(progress.session)
        pool = stack.enter_context(ThreadPoolExecutor())
        coming: list[Future[None]] = []

        def comes_back(name: str, is_killed: bool) -> None:
            if is_killed:
                trained.kill(name)
            else:
                trained.end(name)
            trained.start(name)
            if name in workers:
                trained.running[name].tell(f"train {enough}")

        for name in workers:
            trained.running[name].tell(f"train {enough}")
        # each, some before others have come back
        kills = random.permutation(np.arange(len(victims)) % 2 == 0).tolist()
        for name, is_killed in zip(random.permutation(victims).tolist(), kills, strict=True):
            progress.goes_on(int(random.integers(1, 50)))
            coming.append(pool.submit(comes_back, name, is_killed))
        for future in coming:
            future.result(DEADLINE)
        progress.goes_on(50)
        enough.touch()
        trained.ended(0, 1, 2)
        # another session: this one has to hear of each process that has come back
        last = Progress(trained)
        with last.session:
            step, weights = last.weights()
        for shard, learned in enumerate(weights):
            wanted = undisturbed(shard, step)
            assert learned == pytest.approx(wanted, abs=1e-4)
            assert loss(shard, learned) == pytest.approx(loss(shard, wanted), rel=1e-3)
            assert loss(shard, learned) < loss(shard, np.zeros(FEATURES))
            # what one update more or less would have made of them
            assert np.abs(undisturbed(shard, step + 1) - wanted).max() > 2e-4
