"""Event files of processes that end in all ways there are: killed, in an exception, on a full disk."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from anabranch.errors import DataLossError, NotFoundError
from anabranch.io.event_files import summary_iterator

ROOT = Path(__file__).parents[3]
COUNT = 552

WRITER = """
import resource, sys
from anabranch.errors import OpError
from anabranch.frontend.storage.summary_writer import FileWriter
from anabranch.proto.summary_pb2 import Summary

def curve(value):
    return Summary(value=[Summary.Value(tag="loss", simple_value=value)])

writer = FileWriter(sys.argv[1])
"""


def start(program: str, logdir: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", WRITER + program, str(logdir)],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def steps_in(logdir: Path) -> list[int]:
    """The steps of all curves in the one event file, as far as it can be read."""
    steps: list[int] = []
    try:
        for file in logdir.iterdir():
            steps.extend(event.step for event in summary_iterator(file) if event.HasField("summary"))
    except (FileNotFoundError, NotFoundError, DataLossError):
        pass  # there is none yet, or a record is being written
    return steps


@pytest.mark.parametrize("ending", [signal.SIGTERM, signal.SIGKILL])
def test_events_outlive_a_process_that_is_killed(tmp_path: Path, ending: signal.Signals) -> None:
    """Nobody flushes, and the process waits for ever: the events reach the file while it lives."""
    program = f"""
for step in range({COUNT}):
    writer.add_summary(curve(step), step)
sys.stdin.read()
"""
    with start(program, tmp_path) as process:
        deadline = time.monotonic() + 60
        try:
            while len(steps_in(tmp_path)) < COUNT and process.poll() is None and time.monotonic() < deadline:
                time.sleep(0.01)
        finally:
            process.send_signal(ending)
        process.communicate()
    assert process.returncode == -ending
    assert steps_in(tmp_path) == list(range(COUNT))


def test_events_are_written_when_a_process_fails(tmp_path: Path) -> None:
    program = """
for step in range(20):
    writer.add_summary(curve(step), step)
raise ValueError
"""
    with start(program, tmp_path) as process:
        process.communicate()
    assert process.returncode == 1
    assert steps_in(tmp_path) == list(range(20))


def test_a_disk_that_is_full_is_an_error_and_harms_no_event(tmp_path: Path) -> None:
    """A file that may not grow stands for the full disk: the system refuses in the same place."""
    program = """
_, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, hard))
for step in range(100):
    while True:
        try:
            writer.add_summary(curve(step), step)
        except OpError:  # an earlier event was refused; this one was not taken
            continue
        break
    if step == 60:
        try:
            writer.flush()
        except OpError as error:
            print(type(error).__name__, error.message)
resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
try:
    writer.flush()  # may tell of the last refusal
except OpError:
    writer.flush()
"""
    with start(program, tmp_path) as process:
        said, complained = process.communicate()
    assert (process.returncode, complained) == (0, "")
    assert said.startswith("OutOfRangeError Could not write")
    assert os.path.basename(str(next(tmp_path.iterdir()))) in said
    assert steps_in(tmp_path) == list(range(100))
