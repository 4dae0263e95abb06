"""Parameter servers that are told to end: the training saves, they leave, the others go on. Real processes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn

import numpy as np
import pytest

import anabranch as tf
from anabranch.distributed.held_ports import HeldPorts
from anabranch.train.save_interval import SaveInterval
from tests import quick_compilation
from tests.cluster.processes import DEADLINE


class Tasks:
    """Two parameter servers, `anabranch task` each, and a worker in this process."""

    def __init__(self, folder: Path) -> None:
        self.directory = folder / "checkpoints"
        self.directory.mkdir()
        self._held = HeldPorts(3)
        addresses = [f"127.0.0.1:{port}" for port in self._held.ports]
        cluster = {"ps": addresses[:2], "worker": addresses[2:]}
        self.file = folder / "cluster.json"
        self.file.write_text(json.dumps(cluster))
        self.processes = {index: self.started(index) for index in (0, 1)}
        self.worker = tf.train.Server(cluster, "worker", 0)

    def started(self, index: int, saves: bool = True) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "anabranch.tools.task", "--job", "ps", "--index", str(index)]
        options = ["--cluster", str(self.file), *(["--checkpoint", str(self.directory)] if saves else [])]
        environment = {**os.environ, **quick_compilation.environment(), "PYTHONPATH": os.pathsep.join(sys.path)}
        process = subprocess.Popen([*command, *options], stdout=subprocess.PIPE, text=True, env=environment)
        watchdog = threading.Timer(DEADLINE, process.kill)
        watchdog.start()
        assert process.stdout is not None
        assert "listens at" in process.stdout.readline()
        watchdog.cancel()
        return process

    def close(self) -> None:
        self.worker.stop()
        for process in self.processes.values():
            ends(process)
        self._held.close()


@pytest.fixture
def tasks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Tasks]:
    # nothing is saved but what a notice asks for
    monkeypatch.setattr(SaveInterval, "is_due", lambda *_: False)
    made = Tasks(tmp_path)
    try:
        yield made
    finally:
        made.close()


def test_a_parameter_server_that_is_told_to_end_has_the_training_saved(tasks: Tasks) -> None:
    with tf.Graph().as_default():
        with tf.device(tf.train.replica_device_setter(2, worker_device="/job:worker/task:0")):
            step = tf.train.get_or_create_global_step()
            a = tf.get_variable("a", initializer=np.zeros(3, np.float32), use_resource=True)
            loss = -tf.reduce_sum(a)
            train = tf.train.GradientDescentOptimizer(1.0).minimize(loss, step)
        assert (step.device, a.device) == ("/job:ps/task:0", "/job:ps/task:1")
        with tf.train.MonitoredTrainingSession(
            tasks.worker.target,
            True,
            str(tasks.directory),
            save_checkpoint_secs="auto",
            config=tf.ConfigProto(operation_timeout_in_ms=int(DEADLINE * 1000)),
            log_step_count_steps=None,
            save_summaries_steps=None,
        ) as session:
            steps = 7
            for _ in range(steps):
                session.run(train)
            first = tf.train.latest_checkpoint(str(tasks.directory))
            leaving = tasks.processes[1]
            leaving.send_signal(signal.SIGTERM)
            # it waits for the training, which saves after one of its next steps, and goes on while that is written
            while (saved := tf.train.latest_checkpoint(str(tasks.directory))) == first:
                assert leaving.poll() is None
                session.run(step)
            assert leaving.wait(DEADLINE) == 0
            assert saved == str(tasks.directory / f"model.ckpt-{steps}")
            assert tf.train.load_variable(saved, "a").tolist() == [steps] * 3
            assert leaving.stdout is not None
            leaving.stdout.close()
            tasks.processes[1] = tasks.started(1)
            session.run(train)
            assert session.run(step) == steps + 1
            assert session.run(a).tolist() == [steps + 1] * 3


def test_a_parameter_server_that_nobody_uses_leaves_at_once(tasks: Tasks) -> None:
    tasks.processes[1].send_signal(signal.SIGTERM)
    assert tasks.processes[1].wait(10) == 0


def test_steps_see_a_parameter_server_that_is_told_to_end_as_a_lost_one(tasks: Tasks) -> None:
    """Whenever they come: as it ends its sessions, a step must not fail by an error that no training survives."""
    with tf.Graph().as_default():
        with tf.device("/job:ps/task:1"):
            count = tf.get_variable("count", initializer=0, use_resource=True)
        with tf.device("/job:worker/task:0"):
            step = count.assign_add(1) + 1
        seen = []
        for _ in range(3):
            ends(tasks.processes[1])
            tasks.processes[1] = tasks.started(1, saves=False)
            config = tf.ConfigProto(operation_timeout_in_ms=int(DEADLINE * 1000))
            with tf.Session(tasks.worker.target, config=config) as session:
                session.run(count.initializer)
                assert session.run(step) == 2
                tasks.processes[1].send_signal(signal.SIGTERM)
                with pytest.raises(tf.errors.OpError) as error:
                    runs_on(session, step)
                seen.append(type(error.value))
                assert tasks.processes[1].wait(DEADLINE) == 0
        assert set(seen) <= {tf.errors.UnavailableError, tf.errors.AbortedError}


def runs_on(session: tf.Session, step: tf.Tensor) -> NoReturn:
    while True:
        session.run(step)


def ends(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.wait()
    assert process.stdout is not None
    process.stdout.close()
