"""What an exception from outside of a step leaves: a signal's, or one that another thread throws."""

from __future__ import annotations

import contextlib
import dis
import itertools
import os
import subprocess
import sys
import threading
from pathlib import Path
from types import FrameType
from typing import Any, Self

import numpy as np
import pytest

import anabranch as tf
from anabranch.runtime import island_call
from tests.device.shared_task import SharedTask

DEADLINE = 300


class ThrownError(Exception):
    """Comes from outside."""


class Thrower:
    """Throws at one of the points at which CPython takes notice of exceptions from outside.

    These are the entry of a function, a jump backwards, and the end of a call; only those in the code of islands count.

    Args:
        point: at which of them, from 1 on.
    """

    def __init__(self, point: int) -> None:
        self.left = point
        self._last: dict[FrameType, str] = {}

    def __enter__(self) -> Self:
        sys.settrace(self)
        return self

    def __exit__(self, *_: object) -> None:
        sys.settrace(None)
        self._last.clear()

    def __call__(self, frame: FrameType, event: str, _: Any) -> Any:
        if frame.f_code.co_filename != island_call.__file__ or self.left <= 0:
            return None
        frame.f_trace_opcodes = True
        if event == "opcode":
            last = self._last.get(frame, "")
            self._last[frame] = dis.opname[frame.f_code.co_code[frame.f_lasti]]
            if last.startswith(("RESUME", "CALL", "JUMP_BACKWARD")):
                self.left -= 1
                if self.left == 0:
                    raise ThrownError
        return self


def _island(kind: str, first: Any, second: Any) -> Any:
    """A step of one island that gives both variables the same value."""
    one = tf.constant(1.0)
    if kind == "checked":
        one = tf.gather(tf.constant([1.0, 1.0]), tf.placeholder_with_default(0, []))
    if kind == "reading":
        one = tf.get_variable("one", initializer=1.0, use_resource=True).read_value()
    updated = [first.assign_add(one), second.assign_add(one)]
    return updated if kind == "fetched" else tf.group(updated)


@pytest.mark.parametrize("kind", ["plain", "fetched", "reading", "checked"])
def test_no_point_of_an_island_loses_a_variable_or_keeps_a_lock(kind: str) -> None:
    first = tf.get_variable("first", initializer=0.0, use_resource=True)
    second = tf.get_variable("second", initializer=0.0, use_resource=True)
    step = _island(kind, first, second)
    task = SharedTask()
    with task.session() as session:
        session.run(tf.global_variables_initializer())
        states = task.variables(session, *tf.global_variables())
        for _ in range(2):
            session.run(step)
        for point in itertools.count(1):
            with contextlib.suppress(ThrownError), Thrower(point) as thrower:
                session.run(step)
            assert not any(state.lock.locked() or state.pins for state in states), point
            one, other = session.run([first, second])
            assert one == other, point
            if thrower.left > 0:
                break
        assert point > 10
        assert one > 2


def test_a_thread_that_is_thrown_at_while_it_waits_for_a_variable_takes_no_lock() -> None:
    first = tf.get_variable("first", initializer=0.0, use_resource=True)
    second = tf.get_variable("second", initializer=0.0, use_resource=True)
    step = _island("plain", first, second)
    task = SharedTask()
    with task.session() as session:
        session.run(tf.global_variables_initializer())
        session.run(step)
        states = task.variables(session, first, second)
        last = max(states, key=lambda state: state.handle.name)
        done = threading.Event()

        def run() -> None:
            session.run(step)
            done.set()

        with last.lock:
            thread = threading.Thread(target=run)
            thread.start()
            assert not done.is_set()
        thread.join(DEADLINE)
        assert done.is_set()
        assert not any(state.lock.locked() for state in states)
        np.testing.assert_array_equal(*session.run([first, second]))


@pytest.mark.skipif(os.name != "posix", reason="needs POSIX signals")
@pytest.mark.parametrize(("fuzzer", "seconds"), [("interrupts", "2"), ("kills", "0")])
def test_a_short_run_of_the_fuzzer(fuzzer: str, seconds: str) -> None:
    root = Path(__file__).parents[3]
    command = [sys.executable, "-m", f"tests.fuzz.{fuzzer}", "--seconds", seconds, "--seed", "1"]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, timeout=DEADLINE, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("seed 1: ")
