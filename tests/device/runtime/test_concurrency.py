"""Steps that wait: for each other, for user functions, for a deadline, for an interrupt (§3.2, WP5.3)."""

from __future__ import annotations

import itertools
import logging
import os
import re
import signal
import subprocess
import sys
import textwrap
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import anabranch as tf
from anabranch import errors
from anabranch.core.pending import Pending
from anabranch.core.registry import find_op_def
from anabranch.graph.building import define_op
from anabranch.graph.graph import get_default_graph
from anabranch.ops import raw
from anabranch.pipeline import plan_step
from anabranch.runtime import waiting
from anabranch.runtime.local_master import LocalMaster
from anabranch.runtime.run_order import needs_executor
from anabranch.runtime.step_stats import StepRecord

DEADLINE = 60.0


class Mailbox:
    """What the test operation `_TestReceive` waits for."""

    def __init__(self) -> None:
        self.waiting: list[Pending] = []
        self.cancelled: list[Pending] = []
        self.asked = threading.Event()

    def receive(self) -> Pending:
        pending = Pending(self.cancelled.append, waiting_for="the postman")
        self.waiting.append(pending)
        self.asked.set()
        return pending


_box = Mailbox()


@pytest.fixture
def box() -> Mailbox:
    global _box
    _box = Mailbox()
    return _box


def receive(after: Any = 0.0) -> Any:
    """A float32 scalar that arrives when the test says so; waits for `after` first."""
    op = find_op_def("_TestReceive")
    if op is None:
        op = define_op("_TestReceive", "after: float32 -> value: float32", stateful=True, asynchronous=True)
        op.shape(lambda after: after)
        op.host_kernel(lambda after: _box.receive())
        op.not_differentiable()
    return op(after)  # type: ignore[operator]


def in_thread(function: Any) -> Any:
    """Runs a function on a thread; returns a function that waits for its result, or raises what it raised."""
    found: list[Any] = []

    def run() -> None:
        try:
            found.append((function(), None))
        except BaseException as error:
            found.append((None, error))

    thread = threading.Thread(target=run)
    thread.start()

    def result() -> Any:
        thread.join(DEADLINE)
        assert not thread.is_alive(), "the step does not end"
        value, error = found[0]
        if error is not None:
            raise error
        return value

    return result


# ---------------------------------------------------------------------- functions and threads
def test_two_functions_that_wait_for_each_other() -> None:
    barrier = threading.Barrier(2, timeout=DEADLINE)

    def meet(x: Any) -> Any:
        barrier.wait()
        return np.float32(x + 1)

    one, other = (tf.py_func(meet, [float(i)], tf.float32) for i in (1, 2))
    with tf.Session() as session:
        assert session.run(one + other) == 5.0


def test_a_compiled_operation_does_not_wait_for_a_function_that_it_does_not_need() -> None:
    """One function waits for what another computes through an island."""
    told = threading.Event()
    x = tf.placeholder(tf.float32, [])
    first = tf.py_func(lambda v: v, [x], tf.float32)
    last = tf.py_func(lambda v: told.set() or v, [tf.exp(first)], tf.float32)
    waits = tf.py_func(lambda v: np.float32(told.wait(DEADLINE)), [x], tf.float32)
    with tf.Session() as session:
        assert session.run([waits + 1.0, last], {x: 0.0}) == [2.0, 1.0]


def test_a_function_runs_in_place_where_nothing_can_run_beside_it() -> None:
    x = tf.placeholder(tf.float32, [])
    function = tf.py_func(lambda v: v, [tf.exp(x)], tf.float32)
    queue = tf.FIFOQueue(2, [tf.float32], shapes=[[]])
    first, again = tf.py_func(lambda v: v, [x], tf.float32), tf.py_func(lambda v: v, [function], tf.float32)
    straight = [[function + 1.0], [function, tf.sin(x)], [queue.enqueue(function)], [again]]
    beside = [[first, tf.exp(x)], [function, queue.dequeue()], [function, first]]
    for fetches in straight + beside:
        tensors = [f for f in fetches if isinstance(f, tf.Tensor)]
        targets = [f for f in fetches if isinstance(f, tf.Operation)]
        assert needs_executor(plan_step(tensors, targets, [x]).partitions[0]) == (fetches in beside)


def test_functions_see_numpy_as_their_program_set_it() -> None:
    ratio = tf.py_func(lambda x: np.float32(1) / x, [0.0], tf.float32)
    with tf.Session() as session, np.errstate(divide="raise"):
        with pytest.raises(errors.UnknownError, match="FloatingPointError"):
            session.run(ratio)
        assert session.run(tf.constant(1.0) / 0.0) == np.inf


def test_eight_threads_run_steps_of_one_session() -> None:
    x = tf.placeholder(tf.float32, [])
    total = tf.Variable(0.0, use_resource=True)
    counted = total.assign_add(1.0)
    y = tf.py_func(lambda v: np.float32(2 * v), [x], tf.float32) + 1.0
    with tf.Session() as session:
        session.run(total.initializer)
        work = [in_thread(lambda i=i: [session.run([y, counted], {x: i})[0] for _ in range(20)]) for i in range(8)]
        assert [result() for result in work] == [[2.0 * i + 1] * 20 for i in range(8)]
        assert session.run(total) == 160.0


def test_an_exception_in_a_function_comes_with_its_traceback() -> None:
    def broken_in_a_strange_way(x: Any) -> Any:
        raise KeyError("no such thing")

    barrier = threading.Event()
    bad = tf.py_func(broken_in_a_strange_way, [1.0], tf.float32, name="bad")
    beside = tf.py_func(lambda x: np.float32(barrier.wait(DEADLINE)), [1.0], tf.float32)
    with tf.Session() as session:
        with pytest.raises(errors.UnknownError, match="no such thing") as caught:
            session.run([bad, beside])
        barrier.set()
        assert "broken_in_a_strange_way" in str(caught.value)
        assert caught.value.op is bad.op
        assert session.run(tf.constant(1.0)) == 1.0


def test_a_trace_shows_functions_on_threads_of_their_own() -> None:
    barrier = threading.Barrier(2, timeout=DEADLINE)
    results = [tf.py_func(lambda x: (barrier.wait(), x)[1], [float(i)], tf.float32) for i in (1, 2)]
    record = StepRecord()
    LocalMaster().prepare([results[0] + results[1]], [], []).run([], record)
    functions = [e for e in record.events if e.kind == "PyFunc"]
    assert len(functions) == 2
    assert functions[0].thread != functions[1].thread
    assert max(e.start for e in functions) <= min(e.end for e in functions)
    assert [e.kind for e in record.events][-1] == "Island"


# ---------------------------------------------------------------------- waiting without a thread
def test_a_blocked_operation_holds_no_thread(box: Mailbox) -> None:
    values = [receive(float(i)) for i in range(50)]
    before = threading.active_count()
    with tf.Session() as session:
        result = in_thread(lambda: session.run(tf.add_n(values)))
        assert box.asked.wait(DEADLINE)
        while len(box.waiting) < 50:
            assert threading.active_count() <= before + 1
        for pending in box.waiting:
            assert pending.complete([np.float32(1)])
        assert result() == 50.0


def test_an_island_does_not_wait_for_another_ones_input(box: Mailbox) -> None:
    """What sets the waiting operation free is computed from the same feed as what waits."""
    x = tf.placeholder(tf.float32, [])
    waited = tf.exp(receive(x))

    def deliver(v: Any) -> Any:
        assert box.asked.wait(DEADLINE)
        box.waiting[0].complete([np.float32(0)])
        return v

    other = tf.py_func(deliver, [tf.py_func(lambda v: v, [x], tf.float32) * 2.0], tf.float32)
    with tf.Session() as session:
        assert session.run([waited, other], {x: 3.0}) == [1.0, 6.0]


TOO_LATE = (
    "Timed out waiting for notification: the step did not end within 0.05 s: "
    "'TestReceive' .*created at .*waits for the postman"
)


def test_a_deadline_names_who_waits(box: Mailbox) -> None:
    value = receive()
    options = tf.RunOptions(timeout_in_ms=50)
    with tf.Session() as session:
        with pytest.raises(errors.DeadlineExceededError, match=TOO_LATE):
            session.run(value, options=options)
        assert [p.is_settled for p in box.waiting] == [True]
        assert box.cancelled == box.waiting
        assert not box.waiting[0].complete([np.float32(1)]), "what comes too late still belongs to the giver"
    config = tf.ConfigProto(operation_timeout_in_ms=50)
    with tf.Session(config=config) as session, pytest.raises(errors.DeadlineExceededError):
        session.run(value)


def test_a_deadline_ends_a_step_whose_function_does_not_return() -> None:
    never = threading.Event()
    value = tf.py_func(lambda x: np.float32(never.wait(DEADLINE)), [1.0], tf.float32, name="sleeper")
    with tf.Session() as session, pytest.raises(errors.DeadlineExceededError, match="'sleeper' .* runs"):
        session.run(value, options=tf.RunOptions(timeout_in_ms=50))
    never.set()


def test_closing_a_session_cancels_its_steps(box: Mailbox) -> None:
    value = receive()
    session = tf.Session()
    result = in_thread(lambda: session.run(value))
    assert box.asked.wait(DEADLINE)
    session.close()
    with pytest.raises(errors.CancelledError, match="its session was closed .*waits for the postman"):
        result()
    assert box.cancelled == box.waiting
    with pytest.raises(RuntimeError, match="closed"):
        session.run(value)


def test_what_begins_to_wait_after_its_session_was_closed_is_cancelled() -> None:
    """A thread may have been about to run its step when another one closed the session."""
    queue = tf.FIFOQueue(1, [tf.float32], shapes=[[]])
    taken, put = queue.dequeue(), queue.enqueue(1.0)
    master = LocalMaster()
    master.prepare([taken], [put], []).run([])
    waits = master.prepare([taken], [], [])
    both = master.prepare([receive()], [put], [])
    master.close()
    with pytest.raises(errors.CancelledError, match="session was closed"):
        waits.run([])
    with pytest.raises(errors.CancelledError, match="session was closed"):
        both.run([])


def test_a_function_that_closes_its_session() -> None:
    queue = tf.FIFOQueue(1, [tf.float32], shapes=[[]])
    session = tf.Session()
    last = tf.py_func(lambda: (session.close(), np.float32(1))[1], [], tf.float32)
    with pytest.raises(errors.CancelledError, match="session was closed"):
        session.run(queue.enqueue(last))


def test_a_failure_cancels_what_waits(box: Mailbox) -> None:
    def fail(x: Any) -> Any:
        assert box.asked.wait(DEADLINE)
        raise ValueError("enough")

    with tf.Session() as session, pytest.raises(errors.InvalidArgumentError, match="enough"):
        session.run([receive(), tf.py_func(fail, [1.0], tf.float32)])
    assert box.cancelled == box.waiting


def test_what_a_pending_result_fails_with_is_told_with_its_operation(box: Mailbox) -> None:
    value = receive()
    with tf.Session() as session:
        result = in_thread(lambda: session.run(value))
        assert box.asked.wait(DEADLINE)
        box.waiting[0].fail(errors.OutOfRangeError(None, None, "the end"))
        with pytest.raises(errors.OutOfRangeError, match="the end") as caught:
            result()
        assert caught.value.op is value.op


class _Told(logging.Handler):
    """Knows whether something was told."""

    def __init__(self) -> None:
        super().__init__()
        self.told = threading.Event()

    def emit(self, record: logging.LogRecord) -> None:
        self.told.set()


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    monkeypatch.setattr(waiting, "STALL_SECONDS", 0.05)
    monkeypatch.setattr(waiting, "LONELY_SECONDS", 0.01)
    handler = _Told()
    logger = logging.getLogger(waiting.__name__)
    logger.addHandler(handler)
    yield handler.told
    logger.removeHandler(handler)


def test_a_stalled_task_is_told_of(box: Mailbox, told: threading.Event, caplog: pytest.LogCaptureFixture) -> None:
    value = receive()
    with tf.Session() as session:
        result = in_thread(lambda: session.run(value))
        assert told.wait(DEADLINE)
        box.waiting[0].complete([np.float32(4)])
        assert result() == 4.0
    assert "waits for the postman" in caplog.text


def test_a_task_that_works_is_not_stalled(box: Mailbox, told: threading.Event, monkeypatch: pytest.MonkeyPatch) -> None:
    """Steps that wait beside it may wait for it: a training step that is being compiled, say."""
    value, looked, over = receive(), threading.Semaphore(0), threading.Event()
    seconds = itertools.count()

    def worked() -> float:
        looked.release()
        return 0.0 if over.is_set() else float(next(seconds))

    with tf.Session() as session:
        monkeypatch.setattr(waiting.time, "process_time", worked)
        result = in_thread(lambda: session.run(value))
        for _ in range(7):  # two for each time that it is looked
            assert looked.acquire(timeout=DEADLINE)
        assert not told.is_set()
        over.set()
        assert told.wait(DEADLINE)
        box.waiting[0].complete([np.float32(4)])
        assert result() == 4.0


# ---------------------------------------------------------------------- queues
def test_a_step_that_puts_in_what_it_takes_out() -> None:
    """Compiled work before the one and after the other would be one island if nothing could wait."""
    x = tf.placeholder(tf.float32, [])
    queue = tf.FIFOQueue(1, [tf.float32], shapes=[[]])
    put, taken = queue.enqueue(tf.exp(x)), tf.log(queue.dequeue())
    with tf.Session() as session:
        assert session.run([put, taken], {x: 2.0})[1] == pytest.approx(2.0)


def test_a_loop_takes_elements_as_a_producer_makes_them() -> None:
    queue = tf.FIFOQueue(2, [tf.float32], shapes=[[]])
    value = tf.placeholder(tf.float32, [])
    put = queue.enqueue(value)
    loop = tf.while_loop(lambda i, _: i < 20, lambda i, total: (i + 1, total + queue.dequeue()), (0, 0.0))
    with tf.Session() as session:
        result = in_thread(lambda: session.run(loop))
        for i in range(20):
            session.run(put, {value: i})
        assert result() == (20, 190.0)


def test_a_branch_that_is_not_taken_takes_nothing() -> None:
    queue = tf.FIFOQueue(2, [tf.float32], shapes=[[]])
    p = tf.placeholder(tf.bool, [])
    value = tf.cond(p, queue.dequeue, lambda: tf.constant(-1.0))
    put = queue.enqueue(5.0)
    with tf.Session() as session:
        assert session.run(value, {p: False}) == -1.0
        session.run(put)
        assert session.run(value, {p: False}) == -1.0
        assert session.run(value, {p: True}) == 5.0
        with pytest.raises(errors.DeadlineExceededError, match="waits for 1 elements of FIFOQueue .*, which holds 0"):
            session.run(value, {p: True}, tf.RunOptions(timeout_in_ms=30))


def test_the_branch_of_a_case_waits_without_keeping_others_from_running() -> None:
    queue = tf.FIFOQueue(2, [tf.float32], shapes=[[]])
    number, x = tf.placeholder(tf.int32, []), tf.placeholder(tf.float32, [])
    branches = [lambda: x, queue.dequeue, lambda: queue.dequeue() + tf.py_func(lambda v: v, [x], tf.float32)]
    value = tf.switch_case(number, branches)
    put = queue.enqueue(x * 2.0)
    with tf.Session() as session:
        assert session.run(value, {number: 0, x: 3.0}) == 3.0
        assert session.run([value, put], {number: 1, x: 3.0})[0] == 6.0
        assert session.run([value, put], {number: 7, x: 3.0})[0] == 9.0
        with pytest.raises(errors.DeadlineExceededError, match="waits for 1 elements of FIFOQueue"):
            session.run(value, {number: 1, x: 3.0}, tf.RunOptions(timeout_in_ms=30))


INTERRUPTED = """
    import os, signal, threading
    import numpy as np
    import anabranch as tf

    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell may have told its children to ignore it
    x = tf.placeholder(tf.float32, [])
    waiting, never = threading.Event(), threading.Event()

    def wait(v):
        waiting.set()
        while not never.wait(0.05):  # a thread that has just begun to wait may not see a signal that came before
            pass
        return v

    slow = [tf.py_func(wait, [x], tf.float32), tf.py_func(wait, [x], tf.float32)]
    session = tf.Session()

    def interrupt():
        assert waiting.wait({deadline})
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=interrupt).start()
    try:
        session.run({fetches}, {{x: 1.0}})
    except KeyboardInterrupt as error:
        print("interrupted", *getattr(error, "__notes__", []), flush=True)
    print("then", session.run(x * 2.0, {{x: 4.0}}), flush=True)
    os._exit(0)
"""


@pytest.mark.skipif(not hasattr(signal, "SIGINT") or os.name != "posix", reason="needs POSIX signals")
@pytest.mark.parametrize("fetches", ["slow", "slow[0]"])
def test_an_interrupt_ends_a_blocked_step_and_leaves_the_session_usable(fetches: str) -> None:
    program = textwrap.dedent(INTERRUPTED).format(deadline=DEADLINE, fetches=fetches)
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=DEADLINE, check=False
    )
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0].startswith("interrupted the step was interrupted: ")
    assert lines[1] == "then 8.0"


BLOCKED = """
    import os, signal, threading
    import anabranch as tf
    from anabranch.runtime.local_worker import LocalTask

    signal.signal(signal.SIGINT, signal.default_int_handler)
    queue = tf.FIFOQueue(3, tf.int32, shapes=[[]])
    x = tf.placeholder(tf.int32, [None])
    put, three, up_to, size = queue.enqueue_many(x), queue.dequeue_many(3), queue.dequeue_up_to(3), queue.size()
    session = tf.Session("local://watched")
    session.run(put, {{x: {before}}})
    entry = LocalTask.named("watched").containers.find_object(session.run(queue.queue_ref))

    def tell():
        while not entry.object.waiting():
            os.sched_yield()
        print("waiting", flush=True)

    threading.Thread(target=tell).start()
    try:
        session.run({fetches}, {feeds})
    except KeyboardInterrupt as error:
        print(*error.__notes__, flush=True)
    print(session.run(size), flush=True)
    session.run(queue.close())
    print(*session.run(up_to), flush=True)
"""


@pytest.mark.skipif(os.name != "posix", reason="needs POSIX signals")
@pytest.mark.parametrize(
    ("before", "fetches", "feeds", "what", "left"),
    [
        ([1, 2], "three", "{}", "'fifo_queue_DequeueMany' .* waits for 3 elements", [1, 2]),
        ([1, 2], "[three, x + 1]", "{x: [5]}", "'fifo_queue_DequeueMany' .* waits for 3 elements", [1, 2]),
        ([1, 2, 3], "put", "{x: [4]}", "'fifo_queue_EnqueueMany' .* waits for room", [1, 2, 3]),
    ],
)
def test_ctrl_c_ends_a_blocked_queue_operation_and_leaves_its_elements(
    before: list[int], fetches: str, feeds: str, what: str, left: list[int]
) -> None:
    program = textwrap.dedent(BLOCKED).format(before=before, fetches=fetches, feeds=feeds)
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            assert process.stdout.readline() == "waiting\n"
            process.send_signal(signal.SIGINT)
            assert re.match(f"the step was interrupted: {what}", process.stdout.readline())
            assert process.stdout.read().split() == [str(len(left)), *map(str, left)]
        finally:
            process.kill()


ALONE = """
    import anabranch as tf
    from anabranch.core.pending import Pending
    from anabranch.graph.building import define_op

    op = define_op("_TestReceive", "-> value: float32", stateful=True, asynchronous=True)
    op.shape(lambda: tf.TensorShape([]))
    op.host_kernel(lambda: Pending(waiting_for="the postman"))
    value = op(name="letter")
    try:
        tf.Session().run(value)
    except tf.errors.FailedPreconditionError as error:
        print(error)
"""


def test_a_step_that_waits_in_a_program_without_other_threads_is_a_deadlock() -> None:
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(ALONE)], capture_output=True, text=True, timeout=DEADLINE, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("deadlock: the step waits, and no other thread")
    assert "'letter' (_TestReceive, created at <string>:" in done.stdout
    assert "waits for the postman" in done.stdout


def test_what_waits_in_a_loop_runs_in_each_iteration_whether_its_value_is_used_or_not(box: Mailbox) -> None:
    def body(i: Any, unused: Any) -> Any:
        with get_default_graph().control_dependencies([receive(tf.cast(i, tf.float32))]):
            return i + 1, raw.Identity(unused)

    count, _ = tf.while_loop(lambda i, _: i < 3, body, (0, 0.0), parallel_iterations=3)
    with tf.Session() as session:
        result = in_thread(lambda: session.run(count))
        given = 0
        while given < 3:
            assert box.asked.wait(DEADLINE)
            while given < len(box.waiting):
                box.waiting[given].complete([np.float32(1)])
                given += 1
        assert result() == 3
    assert len(box.waiting) == 3


def test_control_dependencies_on_waiting_operations(box: Mailbox) -> None:
    value = receive()
    with get_default_graph().control_dependencies([value]):
        after = raw.Identity(tf.constant(1.0))
    with tf.Session() as session:
        result = in_thread(lambda: session.run(after))
        assert box.asked.wait(DEADLINE)
        box.waiting[0].complete([np.float32(1)])
        assert result() == 1.0
