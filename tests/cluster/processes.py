"""Processes of tests, which are killed and stopped for real."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path

import anabranch as tf
from tests import quick_compilation
from tests.cluster.forks import Forked
from tests.cluster.places import held_addresses

HERE = Path(__file__).parent
#: seconds; no wait of a test lasts longer
DEADLINE = 60.0


class Process:
    """A process that has said that it is ready."""

    def __init__(self, script: str, *arguments: str, environment: Mapping[str, str] | None = None) -> None:
        whole = {**os.environ, **quick_compilation.environment(), **(environment or {})}
        self._process = Forked(HERE / script, *arguments, environment=whole)
        try:
            assert self.line() == "ready"
        except BaseException:
            self.kill()
            raise

    def line(self) -> str:
        """The next line that it writes."""
        lines: list[str] = []
        reading = threading.Thread(target=lambda: lines.append(self._process.stdout.readline()), daemon=True)
        reading.start()
        reading.join(DEADLINE)
        assert lines, "the process says nothing"
        return lines[0].strip()

    def tell(self, *lines: str) -> None:
        """Writes lines that it reads."""
        self._process.stdin.writelines(f"{line}\n" for line in lines)
        self._process.stdin.flush()

    @property
    def is_running(self) -> bool:
        return self._process.poll() is None

    def signal(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    def wait(self) -> int:
        """Waits until it has ended; its exit status."""
        return self._process.wait(DEADLINE)

    def kill(self) -> None:
        self._process.kill()
        self._process.wait(DEADLINE)
        self._process.close()


@contextlib.contextmanager
def one_ps(
    environment: Mapping[str, str] | None = None,
) -> Iterator[tuple[dict[str, list[str]], tf.train.Server, list[Process]]]:
    """A parameter server as a process, the last of a list that a test may add to, and a worker in this process."""
    with held_addresses("localhost", ps=1, worker=1) as addresses:
        processes = [Process("task_process.py", json.dumps(addresses), "ps", "0", environment=environment)]
        try:
            with tf.train.Server(addresses, "worker", 0) as worker:
                yield addresses, worker, processes
        finally:
            for process in processes:
                process.kill()
