"""Parts of steps that bring all tensors along: they run in one turn, and do what a run that may wait does."""

from __future__ import annotations

import math
import queue
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

import anabranch as tf
from anabranch.errors import CancelledError, InternalError, InvalidArgumentError
from anabranch.placement.policy import PlacementPolicy
from anabranch.runtime import pace
from anabranch.runtime.bound_partition import BoundPartition
from anabranch.runtime.devices import session_devices
from anabranch.runtime.local_worker import LocalTask, LocalWorkerSession, placer_for
from anabranch.runtime.one_turn import OneTurn
from anabranch.runtime.rendezvous_table import Key, StepId
from anabranch.xla import row_updates
from tests.unit.runtime.test_one_sided_reads import SERVER, WORKER, parameters, plain, servers_part
from tests.unit.runtime.test_published_values import Memory

DEADLINE = 60.0


class Part:
    """The server's part of a step, on a task of its own, as a worker starts it that reads ahead."""

    def __init__(self, build: Callable[[], Any]) -> None:
        self.planned = servers_part(build)
        self.task = LocalTask(SERVER)
        placer = placer_for(None, PlacementPolicy(), session_devices(None, SERVER))
        self.session = LocalWorkerSession("s", self.task, placer, is_shared=True, is_remote=True)
        for op in self.planned.operations:
            for tensor in op.inputs:
                if tensor.is_known and isinstance(tensor.known, tf.core.resources.ResourceHandle):
                    shape = tensor.known.shape.as_list()
                    self.task.containers.variable(tensor.known).value = jnp.zeros(shape, jnp.float32)
        self.bound: BoundPartition = self.session.register(self.planned)
        assert self.bound.publish(WORKER, Memory) is not None

    def sent(self, step: int, value: float) -> list[tuple[Key, Any]]:
        return [
            (
                Key(StepId("s", step), end.source, end.destination, end.tensor),
                np.full([size or 0 for size in end.shape.as_list()], value, end.dtype.as_numpy_dtype),
            )
            for end in self.planned.receives
        ]

    def run(self, step: int, value: float) -> Any:
        """Runs a step that may wait."""
        outcome: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self.bound.start_read_ahead(step, [], outcome.put, None, self.sent(step, value))
        return outcome.get(timeout=DEADLINE)

    def turn(self, value: float = 1.0) -> OneTurn | None:
        return self.bound.one_turn(self.sent(0, value), 0)

    def run_turn(self, step: int, value: float, first_step: int = 0) -> Any:
        """The outcome of a turn; None where there was none."""
        turn, outcomes = self.turn(), list[Any]()
        assert turn is not None
        is_run = turn.run(step, first_step, [one for _, one in self.sent(step, value)], outcomes.append)
        assert len(outcomes) == is_run
        return outcomes[0] if outcomes else None

    def values(self) -> dict[str, Any]:
        state = self.task.containers
        return {handle.name: np.array(state.variable(handle).value) for handle in self._handles()}

    def _handles(self) -> set[Any]:
        known = (t.known for op in self.planned.operations for t in op.inputs if t.is_known)
        return {one for one in known if isinstance(one, tf.core.resources.ResourceHandle)}

    @contextmanager
    def locked(self) -> Iterator[None]:
        lock = self.task.containers.variable(next(iter(self._handles()))).lock
        with lock:
            yield


@pytest.fixture
def part(monkeypatch: pytest.MonkeyPatch) -> Part:
    return part_in_turns(plain, monkeypatch)


def part_in_turns(build: Callable[[], Any], monkeypatch: pytest.MonkeyPatch) -> Part:
    """A part whose programs are compiled, and which is known to be short, for the thread of the test."""
    # how long a run takes is not the point: one that a collection of garbage met would be long
    monkeypatch.setattr(pace, "SHORT", math.inf)
    part = Part(build)
    for step in range(1, 90):
        monkeypatch.setattr(pace._threads, "takes_turns", False, raising=False)
        assert part.run(step, 0.0) == []
        monkeypatch.setattr(pace._threads, "takes_turns", True)
        if part.bound.is_short and part.run_turn(90, 0.0) is not None:
            return part
    pytest.fail("none of the steps makes a turn possible")


def test_a_turn_does_what_a_run_does(part: Part) -> None:
    assert part.run_turn(100, 1.0) == []
    assert part.run(101, 2.0) == []
    assert part.run_turn(102, 0.5) == []
    np.testing.assert_array_equal(part.values()["v"], [-3.5, -3.5])
    assert part.values()["w"] == -3.5
    assert part.task.containers.rendezvous.steps == 0


@pytest.mark.parametrize(
    ("tables", "rows", "is_in_place"), [(1, 32, True), (2, 16, True), (3, 16, False), (1, 64, False)]
)
def test_few_rows_are_changed_where_they_lie(
    tables: int, rows: int, is_in_place: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    counted: list[int] = []
    change = row_updates.RowUpdates.__call__

    def count(self: Any, inputs: Any, values: Any) -> None:
        counted.append(len(values))
        change(self, inputs, values)

    monkeypatch.setattr(row_updates.RowUpdates, "__call__", count)
    part = Part(lambda: scatters(tables, rows))
    before = part.values()
    assert part.run(1, 2.0) == []
    assert counted == ([tables] if is_in_place else [])
    for name, value in part.values().items():
        if name.startswith("t"):
            expected = before[name].copy()
            expected[2] -= 2.0 * rows
            np.testing.assert_array_equal(value, expected)


def scatters(tables: int, rows: int) -> Any:
    """Updates of so many rows of tables, which the worker sends; the number of rows is the same in all steps."""
    with tf.device(SERVER):
        scale = tf.get_variable("scale", [], initializer=tf.zeros_initializer(), use_resource=True)
    updates = []
    for number in range(tables):
        with tf.device(SERVER):
            table = tf.get_variable(f"t{number}", [100, 64], initializer=tf.zeros_initializer(), use_resource=True)
        with tf.device(WORKER):
            indices = tf.random.uniform([rows], 0, 100, tf.int32)
            gradient = tf.fill([rows, 64], scale.read_value())
        with tf.device(SERVER):
            changed = tf.raw_ops.ResourceScatterSub(resource=table.handle, indices=indices, updates=gradient)
        updates.append(changed)
    return tf.group(*updates)


def test_a_step_begins_once(part: Part) -> None:
    assert part.run_turn(100, 1.0) == []
    assert part.run_turn(100, 1.0) is None
    assert isinstance(part.run(100, 1.0), InternalError)
    assert part.run(101, 1.0) == []
    assert part.run_turn(101, 1.0) is None
    np.testing.assert_array_equal(part.values()["v"], [-2, -2])


def test_steps_below_the_first_that_runs_have_ended(part: Part) -> None:
    assert part.run_turn(200, 1.0, first_step=150) == []
    assert part.run_turn(149, 1.0) is None
    assert isinstance(part.run(149, 1.0), InternalError)


def test_a_step_that_was_given_up_before_it_began_does_not_begin(part: Part) -> None:
    part.session.abort(100, CancelledError(None, None, "given up"))
    assert part.run_turn(100, 1.0) is None
    assert isinstance(part.run(100, 1.0), CancelledError)
    np.testing.assert_array_equal(part.values()["v"], [0, 0])


def test_what_might_hold_the_thread_that_receives_is_no_turn(part: Part, monkeypatch: pytest.MonkeyPatch) -> None:
    with part.locked():
        assert part.run_turn(100, 1.0) is None
    monkeypatch.setattr(pace._threads, "takes_turns", False)
    assert part.run_turn(100, 1.0) is None
    monkeypatch.setattr(pace._threads, "takes_turns", True)
    part.bound.release()
    # what has to be compiled takes long; small updates need nothing compiled
    assert part.run_turn(100, 1.0) == []


def test_after_the_end_of_a_session_nothing_begins(part: Part) -> None:
    part.session.close()
    assert part.run_turn(100, 1.0) is None
    assert isinstance(part.run(100, 1.0), CancelledError)


def test_the_end_of_a_session_waits_for_a_turn(part: Part) -> None:
    """The end of a session is asked for, by another thread, while a turn is under way."""
    rendezvous, ended, told = part.task.containers.rendezvous, threading.Event(), list[bool]()
    assert rendezvous.begin_turn("s", 100, 0)
    rendezvous.when_idle("s", ended.set)
    told.append(ended.is_set())
    rendezvous.end_turn("s")
    assert [*told, ended.is_set()] == [False, True]


def failing() -> Any:
    v, w = parameters()
    with tf.device(WORKER):
        step = v.read_value() * w.read_value()
    with tf.device(SERVER):
        checked = tf.debugging.check_numerics(step, "not finite")
        return v.assign_sub(checked).op, w.assign_sub(tf.reduce_sum(checked)).op


def test_a_turn_that_fails_tells_why_and_has_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    part = part_in_turns(failing, monkeypatch)
    assert part.run_turn(100, 1.0) == []
    failed = part.run_turn(101, np.inf)
    assert isinstance(failed, InvalidArgumentError)
    assert "not finite" in str(failed)
    assert failed.op is not None
    assert part.run_turn(102, 1.0) == []
    np.testing.assert_array_equal(part.values()["v"], [-2, -2])
    assert part.task.containers.rendezvous.steps == 0


def test_what_does_not_bring_all_that_is_received_may_wait(part: Part) -> None:
    sent = part.sent(1, 1.0)
    assert part.bound.one_turn(sent[1:], 0) is None
    assert part.bound.one_turn([*sent, (sent[0][0]._replace(tensor="another"), sent[0][1])], 0) is None
    assert part.bound.one_turn([(key, value.astype(np.float64)) for key, value in sent], 0) is None
    assert part.bound.one_turn([(key._replace(frame="loop"), value) for key, value in sent], 0) is None


def test_a_reader_that_asks_anew_ends_what_was_bound(part: Part) -> None:
    turn = part.turn()
    assert turn is not None
    assert part.bound.publish(WORKER, Memory) is not None
    assert not turn.run(100, 0, [value for _, value in part.sent(100, 1.0)], lambda _: pytest.fail("it ran"))
    assert part.run_turn(100, 1.0) == []
