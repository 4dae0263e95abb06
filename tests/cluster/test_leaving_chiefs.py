"""A chief of rounds that ends while the others wait in one: that round ends with those who are left, whole."""

from __future__ import annotations

import contextlib
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import anabranch as tf
from anabranch.testing.local_cluster import LocalCluster, local_cluster
from anabranch.train import chief_lease
from anabranch.train.model_shards import ModelShards
from anabranch.train.replica_rounds import RoundsRunner
from tests.cluster.places import until

DEADLINE = 30.0


class Gate:
    """Stops an update between its variables and the number of the round."""

    def __init__(self) -> None:
        self.is_shut, self.begun, self.opened = False, threading.Event(), threading.Event()

    def pass_through(self) -> np.int32:
        if self.is_shut:
            self.begun.set()
            self.opened.wait(DEADLINE)
        return np.int32(0)


class GatedBeforeTheCount(tf.train.GradientDescentOptimizer):  # type: ignore[misc]
    """An update that passes through a gate."""

    def __init__(self, gate: Gate) -> None:
        super().__init__(1.0)
        self._gate = gate

    def apply_gradients(self, grads_and_vars: Any, global_step: Any = None, name: str | None = None) -> Any:
        with tf.control_dependencies([super().apply_gradients(grads_and_vars)]), tf.device(global_step.device):
            passed = tf.py_func(self._gate.pass_through, [], tf.int32)
        with tf.control_dependencies([passed]):
            return global_step.assign_add(1).op


class Trainer:
    """One of two workers whose mean adds 1 to `w`."""

    def __init__(self, cluster: LocalCluster, index: int, gate: Gate, directory: Path) -> None:
        with tf.Graph().as_default():
            with tf.device(tf.train.replica_device_setter(2, worker_device=f"/job:worker/task:{index}")):
                self.step = tf.train.get_or_create_global_step()
                self.w = tf.get_variable("w", initializer=0.0, use_resource=True)
                self.optimizer = tf.train.replicas.synchronous(GatedBeforeTheCount(gate), aggregate=2)
                self.train = self.optimizer.minimize(-self.w, self.step)
            self.session = tf.train.MonitoredTrainingSession(
                cluster.target("worker", index),
                index == 0,
                str(directory),
                hooks=[self.optimizer.make_session_run_hook(index == 0)],
                save_checkpoint_secs="auto",
                config=tf.ConfigProto(operation_timeout_in_ms=int(DEADLINE * 1000)),
                log_step_count_steps=None,
                save_summaries_steps=None,
            )

    def begin(self) -> threading.Thread:
        thread = threading.Thread(target=self.session.run, args=(self.train,), daemon=True)
        thread.start()
        return thread

    def steps_of(self, worker: int) -> int:
        """How many gradients a worker has handed in."""
        table = self.session.run_step_fn(lambda step_context: step_context.session.run(self.optimizer.status_tensor))
        return int(table[worker, 0])

    def state(self) -> tuple[int, float]:
        step, w = self.session.run_step_fn(lambda step_context: step_context.session.run([self.step, self.w]))
        return int(step), float(w)


def waiting(cluster: LocalCluster, gate: Gate, directory: Path) -> tuple[Trainer, Trainer, threading.Thread]:
    """A chief, and another who waits for it in the third round."""
    trainers = [Trainer(cluster, index, gate, directory) for index in range(2)]
    for _ in range(2):
        for thread in [trainer.begin() for trainer in trainers]:
            thread.join(DEADLINE)
            assert not thread.is_alive()
    chief, other = trainers
    step = other.begin()
    until(lambda: chief.steps_of(1) == 3, "the other's gradient", DEADLINE)
    return chief, other, step


def saved(directory: Path) -> tuple[int, float]:
    checkpoint = tf.train.load_checkpoint(tf.train.latest_checkpoint(str(directory)))
    return int(checkpoint.get_tensor("global_step")), float(checkpoint.get_tensor("w"))


def has_time(monkeypatch: pytest.MonkeyPatch, gate: Gate, first: float, last: float) -> None:
    """How long (s) the chief that ends waits for a round: before it leaves, and after, from when that is at the gate.

    How soon it comes there is not the point.
    """
    waits, rests = iter((first, last)), RoundsRunner.rest

    def rest(rounds: RoundsRunner, within: float) -> bool:
        within = next(waits, within)
        if within == last:
            assert gate.begun.wait(DEADLINE)
        return rests(rounds, within)

    monkeypatch.setattr(RoundsRunner, "rest", rest)


def test_the_round_in_which_others_wait_for_a_chief_that_ends_is_not_cut_off(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = Gate()
    has_time(monkeypatch, gate, 0.3, DEADLINE)
    with local_cluster(ps=2, worker=2) as cluster:
        chief, other, step = waiting(cluster, gate, tmp_path)
        gate.is_shut = True
        closing = threading.Thread(target=chief.session.close, daemon=True)
        closing.start()
        # as soon as it is not waited for any more, there is enough for a round
        assert gate.begun.wait(DEADLINE)
        closing.join(1.0)
        gate.opened.set()
        closing.join(DEADLINE)
        step.join(DEADLINE)
        assert not closing.is_alive()
        assert not step.is_alive()
        assert saved(tmp_path) == other.state() == (3, 3.0)
        other.session.close()


def test_a_round_that_does_not_end_is_made_good_by_the_next_chief(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chief_lease, "LEASE_SECONDS", 3.0)
    gate = Gate()
    has_time(monkeypatch, gate, 0.3, 0.5)
    with local_cluster(ps=2, worker=2) as cluster:
        chief, other, step = waiting(cluster, gate, tmp_path)
        gate.is_shut = True
        chief.session.close()
        # the variable has it, and the number has not; and it is cut off
        assert saved(tmp_path) == (2, 2.0)
        gate.is_shut = False
        gate.opened.set()
        # who takes the lease over, as that of a dead chief, goes back to what was saved
        step.join(DEADLINE)
        assert not step.is_alive()
        assert other.state() == (3, 3.0)
        other.session.close()
        assert saved(tmp_path) == (3, 3.0)


def test_a_round_that_begins_while_the_chief_saves_is_not_saved_by_half(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chief_lease, "LEASE_SECONDS", 3.0)
    gate = Gate()
    has_time(monkeypatch, gate, 0.3, 0.5)
    with local_cluster(ps=2, worker=2) as cluster:
        chief, other, step = waiting(cluster, gate, tmp_path)
        beside = chief.session._tf_sess()
        save = ModelShards.save

        def saves_after_the_round_has_begun(*args: Any) -> Any:
            if not gate.begun.is_set():
                gate.is_shut = True

                def hand_in() -> None:
                    # it waits for a token, and ends with the session
                    with contextlib.suppress(tf.errors.OpError, RuntimeError):
                        beside.run(chief.train)

                threading.Thread(target=hand_in, daemon=True).start()
                assert gate.begun.wait(DEADLINE)
            return save(*args)

        monkeypatch.setattr(ModelShards, "save", saves_after_the_round_has_begun)
        chief.session.close()
        steps, w = saved(tmp_path)
        assert steps == w
        gate.is_shut = False
        gate.opened.set()
        step.join(DEADLINE)
        assert not step.is_alive()
        # the next chief has gone back to what was saved
        steps, w = other.state()
        assert steps == w
        other.session.close()
        assert saved(tmp_path) == (steps, w)
