"""A training whose process is told to end: it saves, and leaves."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

import anabranch as tf

ROOT = Path(__file__).resolve().parents[3]
DEADLINE = 60.0

_PROGRAM = """
import sys
import anabranch as tf

directory, how = sys.argv[1:]
step = tf.train.get_or_create_global_step()
more = tf.assign_add(step, 1)
options = {"save_checkpoint_secs": "auto"} if how == "auto" else {"hooks": [tf.train.PreemptionHook()]}
with tf.train.MonitoredTrainingSession(checkpoint_dir=directory, **options) as session:
    while how == "heedless" or not session.should_stop():
        print(session.run(more), flush=True)
print("left", flush=True)
"""


@pytest.mark.parametrize("how", ["asks", "heedless", "auto"])
def test_a_process_that_is_told_to_end_saves_and_leaves(tmp_path: Path, how: str) -> None:
    command = [sys.executable, "-c", _PROGRAM, str(tmp_path), how]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
        watchdog = threading.Timer(DEADLINE, process.kill)
        watchdog.start()
        assert process.stdout is not None
        steps = []
        for line in process.stdout:
            if line == "left\n":
                break
            steps.append(int(line))
            if len(steps) == 5:
                process.send_signal(signal.SIGTERM)
        status = process.wait()
        watchdog.cancel()
    assert status == 0
    assert line == "left\n"
    assert len(steps) >= 5
    # the last step is in the checkpoint, and it is the one after those that were told of
    assert tf.train.latest_checkpoint(str(tmp_path)) == str(tmp_path / f"model.ckpt-{steps[-1] + 1}")


_SHOWN = "        print(session.run(more), flush=True)"
_SLOW = _PROGRAM.replace(_SHOWN, f"{_SHOWN}\n        sys.stdin.read()")


def test_a_second_signal_ends_the_process(tmp_path: Path) -> None:
    command = [sys.executable, "-c", _SLOW, str(tmp_path), "asks"]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True, env=environment) as process:
        watchdog = threading.Timer(DEADLINE, process.kill)
        watchdog.start()
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline() == "1\n"
        process.send_signal(signal.SIGTERM)
        while "Told to end" not in process.stderr.readline():
            assert process.poll() is None
        process.send_signal(signal.SIGTERM)
        status = process.wait()
        watchdog.cancel()
    assert status == -signal.SIGTERM


def test_the_handler_of_a_program_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    numbers: list[int] = []
    before = signal.signal(signal.SIGTERM, lambda number, _: numbers.append(number))
    try:
        step = tf.assign_add(tf.train.get_or_create_global_step(), 1)
        with tf.train.MonitoredTrainingSession(hooks=[tf.train.PreemptionHook()]) as session:
            os.kill(os.getpid(), signal.SIGTERM)
            session.run(step)
            assert not session.should_stop()
    finally:
        signal.signal(signal.SIGTERM, before)
    assert numbers == [signal.SIGTERM]


def test_the_handler_goes_with_the_session() -> None:
    before = signal.getsignal(signal.SIGTERM)
    step = tf.assign_add(tf.train.get_or_create_global_step(), 1)
    hook = tf.train.PreemptionHook()
    with tf.train.MonitoredTrainingSession(hooks=[hook]) as session:
        session.run(step)
        assert (signal.getsignal(signal.SIGTERM) is before) == (before is not signal.SIG_DFL)
    assert signal.getsignal(signal.SIGTERM) is before
    assert not hook.is_told
