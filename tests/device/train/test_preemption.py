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
    # the last step is in the checkpoint, and the program has seen what came of it
    assert tf.train.latest_checkpoint(str(tmp_path)) == str(tmp_path / f"model.ckpt-{steps[-1]}")


_SHOWN = "        print(session.run(more), flush=True)"
# a signal that comes between the interpreter's look for one and a call that waits is handled when that returns
_WAITS = "while not select.select([sys.stdin], [], [], 0.1)[0]: pass"
_SLOW = "import select\n" + _PROGRAM.replace(_SHOWN, f"{_SHOWN}\n        {_WAITS}")


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


_RANGES = """
import sys
import numpy as np
import anabranch as tf

step = tf.train.get_or_create_global_step()
begin, end = tf.placeholder(tf.int32, []), tf.placeholder(tf.int32, [])
used = tf.get_variable("used", initializer=np.zeros(60, np.int32), use_resource=True)
places = tf.range(60)
train = tf.group(used.assign_add(tf.cast((places >= begin) & (places < end), tf.int32)), step.assign_add(1))
ranges = tf.train.replicas.InputRanges(60, 2, epochs=2)
with tf.train.MonitoredTrainingSession(checkpoint_dir=sys.argv[1], save_checkpoint_secs="auto") as session:
    for given in ranges.leased(session):
        session.run(train, {begin: given.begin, end: given.end})
        print(given.begin, flush=True)
        if len(sys.argv) > 2:
            sys.stdin.readline()
print("left", flush=True)
"""


def test_a_worker_that_is_told_to_end_has_done_the_range_of_its_last_step(tmp_path: Path) -> None:
    for round_ in range(3):
        is_last = round_ == 2
        command = [sys.executable, "-c", _RANGES, str(tmp_path), *([] if is_last else ["waits"])]
        pipe, environment = subprocess.PIPE, os.environ | {"PYTHONPATH": str(ROOT)}
        with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, env=environment) as process:
            watchdog = threading.Timer(DEADLINE, process.kill)
            watchdog.start()
            assert process.stdin is not None
            assert process.stdout is not None
            if not is_last:
                for _ in range(4):
                    process.stdout.readline()
                    process.stdin.write("on\n")
                    process.stdin.flush()
                process.stdout.readline()
                process.send_signal(signal.SIGTERM)
                process.stdin.close()
            assert process.stdout.read().endswith("left\n")
            assert process.wait() == 0
            watchdog.cancel()
        used = tf.train.load_variable(tf.train.latest_checkpoint(str(tmp_path)), "used")
        # no example was used again because a process ended in order
        assert used.sum() == (2 * 60 if is_last else (round_ + 1) * 5 * 2)
    assert set(used) == {2}


_ALONE = """
import sys
import anabranch as tf

step = tf.assign_add(tf.train.get_or_create_global_step(), 1)
hooks = [tf.train.replicas.MembershipHook(minimum=2)]
with tf.train.MonitoredTrainingSession(checkpoint_dir=sys.argv[1], save_checkpoint_secs="auto", hooks=hooks) as session:
    print("waits", flush=True)
    session.run(step)
print("left", flush=True)
"""


def test_a_worker_that_waits_for_others_leaves_when_it_is_told_to(tmp_path: Path) -> None:
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    command, pipe = [sys.executable, "-c", _ALONE, str(tmp_path)], subprocess.PIPE
    with subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True, env=environment) as process:
        watchdog = threading.Timer(DEADLINE, process.kill)
        watchdog.start()
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline() == "waits\n"
        while "This worker waits for others" not in process.stderr.readline():
            assert process.poll() is None
        process.send_signal(signal.SIGTERM)
        assert process.stdout.readline() == "left\n"
        assert process.wait() == 0
        watchdog.cancel()


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
