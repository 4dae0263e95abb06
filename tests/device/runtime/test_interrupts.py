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
from types import FrameType, ModuleType
from typing import Any, Self

import jax
import numpy as np
import pytest

import anabranch as tf
from anabranch.runtime import bound_partition as step_module, island_call, worker_threads
from anabranch.xla import jax_settings
from tests.device.shared_task import SharedTask

DEADLINE = 300


class ThrownError(BaseException):
    """Comes from outside, as KeyboardInterrupt does: no worker takes it for what a step failed with."""


class Thrower:
    """Throws at one of the points at which CPython takes notice of exceptions from outside.

    These are the entry of a function, a jump backwards, and the end of a call.

    Args:
        point: at which of them, from 1 on.
        modules: whose code counts.
    """

    def __init__(self, point: int, modules: tuple[ModuleType, ...] = (island_call, jax_settings)) -> None:
        self.left = point
        self._files = [module.__file__ for module in modules]
        self._last: dict[FrameType, str] = {}

    def __enter__(self) -> Self:
        # Python 3.12 tells of bytecodes only where a frame has asked for them before tracing begins
        sys._getframe().f_trace_opcodes = True
        sys.settrace(self)
        return self

    def __exit__(self, *_: object) -> None:
        sys.settrace(None)
        self._last.clear()

    def __call__(self, frame: FrameType, event: str, _: Any) -> Any:
        if frame.f_code.co_filename not in self._files or self.left <= 0:
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
        types = jax.enable_x64.get_local()
        for point in itertools.count(1):
            with contextlib.suppress(ThrownError), Thrower(point) as thrower:
                session.run(step)
            assert not any(state.lock.locked() or state.pins for state in states), point
            assert jax.enable_x64.get_local() is types, point
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


def test_no_point_of_a_call_on_another_thread_waits_for_ever() -> None:
    points = []

    def call() -> None:
        for point in itertools.count(1):
            with contextlib.suppress(ThrownError), Thrower(point, (worker_threads,)) as thrower:
                worker_threads.WorkerThreads("test").call(lambda: None)  # all runs start a thread
            points.append(point)
            if thrower.left > 0:
                break

    thread = threading.Thread(target=call, daemon=True)
    thread.start()
    thread.join(DEADLINE)
    assert not thread.is_alive(), points
    assert len(points) > 10


def _text_and_update(first: Any, second: Any) -> Any:
    text = tf.strings.join([tf.placeholder_with_default("a", []), "b"])
    return [text, first.assign_add(tf.cast(tf.strings.length(text), tf.float32))]


def _called(function: Any = lambda: np.float32(1.0), count: int = 1) -> list[Any]:
    return [tf.py_func(function, [], tf.float32) for _ in range(count)]


def _enqueued() -> Any:
    return tf.FIFOQueue(100, [tf.float32]).enqueue([1.0])


def _branching_on_the_host(first: Any) -> Any:
    """Two updates, in a branch that the host runs since it makes texts."""
    return tf.cond(
        tf.placeholder_with_default(True, []),
        lambda: tf.strings.join([tf.as_string(first.assign_add(1.0)), tf.as_string(first.assign_add(1.0))]),
        lambda: tf.constant(""),
    )


#: steps, and whether signals have to be put off while they run: whether several items of theirs change something, or
#: one does so in several calls
STEPS: dict[str, tuple[Any, bool]] = {
    "island": (lambda first, second: [first.assign_add(1.0), second.assign_add(1.0)], False),
    "text": (lambda first, second: tf.strings.join([tf.placeholder_with_default("a", []), "b"]), False),
    "text and update": (_text_and_update, False),
    "function": (lambda first, second: _called(), False),
    "function of readings": (lambda first, second: tf.py_func(np.add, [first, second], tf.float32) * 2.0, False),
    "function and update": (lambda first, second: first.assign_add(_called()[0]), True),
    "two functions": (lambda first, second: _called(count=2), True),
    "queue": (lambda first, second: _enqueued(), True),
    "branch": (lambda first, second: _branching_on_the_host(first), True),
}


@pytest.mark.parametrize("kind", STEPS)
def test_signals_are_put_off_where_several_items_change_something(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    put_off = []

    def uninterrupted(work: Any, *args: Any) -> Any:
        put_off.append(work)
        return work(*args)

    build, expected = STEPS[kind]
    variables = [tf.get_variable(name, initializer=0.0, use_resource=True) for name in ("first", "second")]
    fetches = build(*variables)
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        session.run(fetches)
        monkeypatch.setattr(step_module, "uninterrupted", uninterrupted)
        session.run(fetches)
    assert bool(put_off) == expected


@pytest.mark.skipif(os.name != "posix", reason="needs POSIX signals")
@pytest.mark.parametrize(("fuzzer", "seconds"), [("interrupts", "2"), ("kills", "0")])
def test_a_short_run_of_the_fuzzer(fuzzer: str, seconds: str) -> None:
    root = Path(__file__).parents[3]
    command = [sys.executable, "-m", f"tests.fuzz.{fuzzer}", "--seconds", seconds, "--seed", "1"]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, timeout=DEADLINE, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("seed 1: ")
