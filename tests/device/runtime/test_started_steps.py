"""Steps that nobody waits for: the same values and errors as steps that are run, and no thread while they wait."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

import anabranch as tf
from anabranch.pipeline import lowering_everything
from anabranch.runtime import bound_partition
from anabranch.runtime.local_master import LocalMaster, PlannedStep
from anabranch.runtime.pace import take_short_turns_here
from anabranch.runtime.worker_threads import worker_threads

DEADLINE = 60.0


class Outcomes:
    """What started steps are done with."""

    def __init__(self) -> None:
        self._queue: queue.SimpleQueue[Any] = queue.SimpleQueue()

    def __call__(self, outcome: Sequence[Any] | BaseException) -> None:
        self._queue.put(outcome)

    def next(self) -> Any:
        """Waits for the next; raises what a step failed with."""
        outcome = self._queue.get(timeout=DEADLINE)
        if isinstance(outcome, BaseException):
            raise outcome
        return outcome

    @property
    def empty(self) -> bool:
        return self._queue.empty()


def prepared(master: LocalMaster, *fetches: Any, feeds: Sequence[Any] = ()) -> PlannedStep:
    tensors = [f for f in fetches if isinstance(f, tf.Tensor)]
    return master.prepare(tensors, [f for f in fetches if isinstance(f, tf.Operation)], feeds)


def _straight(x: Any) -> Any:
    return tf.strings.length(tf.as_string(tf.exp(x))) + 1


def _branch(x: Any) -> Any:
    return tf.cond(x > 0, lambda: tf.py_func(np.exp, [x], tf.float32), lambda: x)


def _loop(x: Any) -> Any:
    return tf.while_loop(lambda i, y: i < 5, lambda i, y: (i + 1, y * 2), (0, x))[1]


PROGRAMS: dict[str, Callable[[Any], Any]] = {
    "island": lambda x: x * 2,
    "straight": _straight,
    "branch": _branch,
    "loop": _loop,
    "fed": lambda x: x,
    "known": lambda x: tf.constant(3.0),
}


@pytest.mark.parametrize("lowered", [False, True])
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_started_step_gives_what_a_run_gives(name: str, lowered: bool) -> None:
    x = tf.placeholder(tf.float32, [])
    y = PROGRAMS[name](x)
    master, outcomes = LocalMaster(), Outcomes()
    if lowered:
        with lowering_everything():
            step = prepared(master, y, feeds=[x])
    else:
        step = prepared(master, y, feeds=[x])
    for value in (1.5, -1.0):
        step.start([np.float32(value)], outcomes)
        assert outcomes.next() == step.run([np.float32(value)])
    master.close()


@pytest.mark.usefixtures("in_the_worker")
@pytest.mark.parametrize("branching", [False, True])
def test_steps_that_wait_hold_no_thread(branching: bool) -> None:
    q = tf.FIFOQueue(100, [tf.float32])
    taken = q.dequeue() * 2.0
    if branching:  # run by the executor
        taken = tf.cond(tf.placeholder_with_default(True, []), lambda: q.dequeue() * 2.0, lambda: 0.0)
    x = tf.placeholder(tf.float32, [])
    put = q.enqueue(x)
    master, outcomes = LocalMaster(), Outcomes()
    take, give = prepared(master, taken), prepared(master, put, feeds=[x])
    give.run([np.float32(0.0)])
    assert take.run([]) == [0.0]
    before = worker_threads.busy
    for _ in range(50):
        take.start([], outcomes)
    for value in range(50):
        give.run([np.float32(value)])
    assert sorted(outcomes.next()[0] for _ in range(50)) == [2.0 * value for value in range(50)]
    for _ in range(50):
        take.start([], outcomes)
    # each asks for an element, and then gives its thread back
    deadline = time.monotonic() + DEADLINE
    while waiting_runs(master) < 50 or worker_threads.busy > before:
        assert outcomes.empty
        assert time.monotonic() < deadline
        threading.Event().wait(0.001)
    master.close()
    for _ in range(50):
        with pytest.raises(tf.errors.CancelledError):
            outcomes.next()


@pytest.mark.usefixtures("in_the_worker")
@pytest.mark.parametrize("branching", [False, True])
def test_results_that_cannot_be_fetched_are_told(branching: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    x = tf.placeholder(tf.float32, [])
    y = PROGRAMS["branch" if branching else "straight"](x)
    master, outcomes = LocalMaster(), Outcomes()
    step = prepared(master, y, feeds=[x])

    def failing(values: Any) -> Any:
        raise MemoryError("no room for the results")

    with monkeypatch.context() as patches:
        patches.setattr(bound_partition, "fetched_values", failing)
        step.start([np.float32(1.0)], outcomes)
        with pytest.raises(MemoryError, match="no room"):
            outcomes.next()
    assert waiting_runs(master) == 0
    step.start([np.float32(1.0)], outcomes)
    assert len(outcomes.next()) == 1
    master.close()


def waiting_runs(master: LocalMaster) -> int:
    """How many runs of a session only wait."""
    worker: Any = master.worker
    active = worker._active
    with active._lock:
        return sum(run.only_waits for run in active._runs)


@pytest.mark.parametrize("branching", [False, True])
def test_a_deadline_ends_a_started_step(branching: bool) -> None:
    q = tf.FIFOQueue(1, [tf.float32])
    element = q.dequeue(name="element")
    if branching:
        element = tf.cond(tf.placeholder_with_default(True, []), lambda: q.dequeue(name="element"), lambda: 0.0)
    master, outcomes = LocalMaster(), Outcomes()
    step, put = prepared(master, element), prepared(master, q.enqueue(2.0))
    put.run([])
    assert step.run([]) == [2.0]
    step.start([], outcomes, 0.05)
    with pytest.raises(tf.errors.DeadlineExceededError, match=r"element.*waits for"):
        outcomes.next()
    # the step has left the queue: what comes now is not lost
    put.run([])
    assert step.run([]) == [2.0]
    master.close()


def test_a_deadline_stops_a_compiled_loop() -> None:
    forever = tf.while_loop(lambda i: i >= 0.0, lambda i: i * 0.5 + 1.0, [tf.placeholder_with_default(1.0, [])])
    master, outcomes = LocalMaster(), Outcomes()
    prepared(master, forever).start([], outcomes, 0.1)
    with pytest.raises(tf.errors.DeadlineExceededError, match="was running"):
        outcomes.next()
    master.close()


def test_errors_come_to_who_started_it() -> None:
    def fail() -> Any:
        raise ValueError("no luck")

    x = tf.placeholder(tf.int32, [])
    refused = tf.gather(tf.constant([1.0]), x, name="gathered")
    failing = tf.py_func(fail, [], tf.float32, name="failing")
    master, outcomes = LocalMaster(), Outcomes()
    prepared(master, refused, feeds=[x]).start([np.int32(7)], outcomes)
    with pytest.raises(tf.errors.InvalidArgumentError, match="gathered"):
        outcomes.next()
    prepared(master, failing).start([], outcomes)
    with pytest.raises(tf.errors.InvalidArgumentError, match="no luck"):
        outcomes.next()
    master.close()


def test_many_started_steps_update_one_variable() -> None:
    v = tf.get_variable("v", initializer=0.0, use_resource=True)
    master, outcomes = LocalMaster(), Outcomes()
    prepared(master, v.initializer).run([])
    update = prepared(master, v.assign_add(1.0).op)
    for _ in range(200):
        update.start([], outcomes)
    for _ in range(200):
        outcomes.next()
    assert prepared(master, v.read_value()).run([]) == [200.0]
    master.close()


def test_started_steps_pass_tensors_between_devices() -> None:
    config = tf.ConfigProto(device_count={"CPU": 2})
    with tf.device("/cpu:0"):
        x = tf.placeholder(tf.float32, [])
        first = tf.exp(x)
    with tf.device("/cpu:1"):
        second = first + 1.0
    master, outcomes = LocalMaster(config=config), Outcomes()
    step = prepared(master, second, feeds=[x])
    for value in range(20):
        step.start([np.float32(value / 10)], outcomes)
    found = sorted(outcomes.next()[0] for _ in range(20))
    np.testing.assert_allclose(found, [np.exp(np.float32(v / 10)) + 1 for v in range(20)], rtol=1e-6)
    master.close()


def test_inputs_of_new_shapes_are_computed_by_another_thread_than_the_one_that_receives() -> None:
    x = tf.placeholder(tf.float32, [None])
    master, outcomes = LocalMaster(), queue.SimpleQueue[tuple[int, Any]]()
    with lowering_everything():
        step = prepared(master, tf.reduce_sum(x * 2.0), feeds=[x])
    receiver: list[int] = []
    sizes: queue.SimpleQueue[int | None] = queue.SimpleQueue()

    def receive() -> None:
        take_short_turns_here()
        receiver.append(threading.get_ident())
        while (size := sizes.get(timeout=DEADLINE)) is not None:
            step.start([np.ones(size, np.float32)], lambda outcome: outcomes.put((threading.get_ident(), outcome)))

    thread = threading.Thread(target=receive)
    thread.start()

    def ran_on(size: int) -> int:
        sizes.put(size)
        number, outcome = outcomes.get(timeout=DEADLINE)
        assert outcome == [2.0 * size]
        return number

    deadline = time.monotonic() + DEADLINE
    # until a program for three elements is compiled, and the last runs were short
    while ran_on(3) not in receiver:
        assert time.monotonic() < deadline
    assert ran_on(3) in receiver
    assert ran_on(4) not in receiver
    sizes.put(None)
    thread.join(DEADLINE)
    master.close()
