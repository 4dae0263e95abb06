"""Tasks and clients in processes of their own, which are killed, stopped and started again for real."""

from __future__ import annotations

import contextlib
import json
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import anabranch as tf

HERE = Path(__file__).parent
#: seconds; no wait of a test lasts longer
DEADLINE = 60.0


class Process:
    """A process that has said that it is ready."""

    def __init__(self, script: str, *arguments: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, str(HERE / script), *arguments], stdout=subprocess.PIPE, text=True
        )
        assert self.line() == "ready"

    def line(self) -> str:
        """The next line that it writes."""
        lines: list[str] = []
        assert self._process.stdout is not None
        reading = threading.Thread(target=lambda: lines.append(self._process.stdout.readline()), daemon=True)  # type: ignore[union-attr]
        reading.start()
        reading.join(DEADLINE)
        assert lines, "the process says nothing"
        return lines[0].strip()

    def signal(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    def kill(self) -> None:
        self._process.kill()
        self._process.wait(DEADLINE)
        assert self._process.stdout is not None
        self._process.stdout.close()


@contextlib.contextmanager
def one_ps() -> Iterator[tuple[dict[str, list[str]], tf.train.Server, list[Process]]]:
    """A parameter server as a process, the last of a list that a test may add to, and a worker in this process."""
    with tf.train.Server.create_local_server() as one, tf.train.Server.create_local_server() as other:
        addresses = {"ps": [one.target.removeprefix("grpc://")], "worker": [other.target.removeprefix("grpc://")]}
    processes = [Process("task_process.py", json.dumps(addresses), "ps", "0")]
    try:
        with tf.train.Server(addresses, "worker", 0) as worker:
            yield addresses, worker, processes
    finally:
        for process in processes:
            process.kill()


def config() -> Any:
    return tf.ConfigProto(operation_timeout_in_ms=int(DEADLINE * 1000))


def test_a_killed_parameter_server_fails_steps_and_serves_again_when_it_is_back() -> None:
    with one_ps() as (addresses, worker, processes):
        with tf.device("/job:ps/task:0"):
            v = tf.get_variable("v", initializer=3.0, use_resource=True)
            element = tf.FIFOQueue(1, [tf.float32], shapes=[[]]).dequeue()
        with tf.device("/job:worker/task:0"):
            doubled, waits = v * 2, element * 2
        with tf.Session(worker.target, config=config()) as session:
            session.run(v.initializer)
            assert session.run(doubled) == 6
            killing = threading.Timer(0.3, processes[0].kill)
            killing.start()
            with pytest.raises((tf.errors.UnavailableError, tf.errors.AbortedError), match="ps"):
                session.run(waits)
            killing.join(DEADLINE)
            processes.append(Process("task_process.py", json.dumps(addresses), "ps", "0"))
            # it is another incarnation: what it held is gone, which the session learns at the latest by its next step
            with contextlib.suppress(
                tf.errors.UnavailableError, tf.errors.AbortedError, tf.errors.FailedPreconditionError
            ):
                session.run(doubled)
            session.run(v.initializer)
            assert session.run(doubled) == 6


def test_what_a_killed_client_waited_for_goes_to_others() -> None:
    with one_ps() as (_, worker, processes):
        processes.append(Process("waiting_client.py", worker.target))
        processes.append(Process("waiting_client.py", worker.target))
        with tf.device("/job:ps/task:0"):
            queue = tf.FIFOQueue(10, [tf.float32], shapes=[[]], shared_name="shared")
            put, size = queue.enqueue(7.0), queue.size()
        with tf.Session(worker.target, config=config()) as session:
            processes[1].kill()
            # two elements at most can be lost to steps of the dead client: one, which waits, and that is cancelled
            session.run(put)
            assert processes[2].line() == "7.0"
            assert session.run(size) == 0


def test_a_stopped_parameter_server_is_named_and_goes_on_when_it_is_woken() -> None:
    with one_ps() as (_, worker, processes):
        with tf.device("/job:ps/task:0"):
            v = tf.get_variable("v", initializer=3.0, use_resource=True)
        with tf.device("/job:worker/task:0"):
            doubled = v * 2
        with tf.Session(worker.target, config=config()) as session:
            session.run(v.initializer)
            assert session.run(doubled) == 6
            processes[0].signal(signal.SIGSTOP)
            with pytest.raises(tf.errors.DeadlineExceededError, match="/job:ps/replica:0/task:0"):
                session.run(doubled, options=tf.RunOptions(timeout_in_ms=500))
            processes[0].signal(signal.SIGCONT)
            assert session.run(doubled) == 6
