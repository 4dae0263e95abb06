"""The dispatcher with work that is nothing but Python functions: threads, waiting, ends."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from anabranch.core.pending import Pending
from anabranch.errors import AbortedError, CancelledError, DeadlineExceededError, InternalError
from anabranch.runtime import worker_threads
from anabranch.runtime.dispatcher import Mode, StepRun
from anabranch.runtime.executor_graph import ExecutorGraph, Kind, Known, NodeSpec, Output
from anabranch.runtime.rendezvous import Rendezvous
from anabranch.runtime.rendezvous_table import StepId
from anabranch.runtime.step_frame import StepFrame
from anabranch.runtime.waiting import ActiveSteps
from anabranch.runtime.worker_threads import WorkerThreads

DEADLINE = 60.0


class FunctionWork:
    """A function of no arguments as work; asynchronous if it returns a `Pending`."""

    def __init__(self, name: str, function: Callable[[], Any], mode: Mode) -> None:
        self.mode, self._function = mode, function
        self.op: Any = SimpleNamespace(name=name, type="Function", creation_site="here.py:1")
        self.slot = -1

    def run(self, frame: StepFrame, record: Any) -> None:
        frame.values[self.slot] = self._function()

    def start(self, frame: StepFrame) -> Pending | None:
        result = self._function()
        if isinstance(result, Pending):
            return result
        frame.values[self.slot] = result
        return None

    def finish(self, frame: StepFrame, pending: Pending, started: float, record: Any) -> None:
        (frame.values[self.slot],) = pending.wait()


def step(*works: FunctionWork, inputs: dict[int, Sequence[Output]] | None = None) -> ExecutorGraph:
    """A graph of works, all of which are fetched."""
    specs = [NodeSpec(w.op.name, inputs=(inputs or {}).get(i, ()), payload=w) for i, w in enumerate(works)]
    graph = ExecutorGraph(specs, [(i, 0) for i in range(len(works))])
    for i, work in enumerate(works):
        work.slot = graph.slot((i, 0))
    return graph


def run(graph: ExecutorGraph, timeout: float | None = None, active: ActiveSteps | None = None) -> list[Any]:
    return StepRun(graph, [], None, timeout, active or ActiveSteps()).run()


@pytest.mark.parametrize("mode", [Mode.APART, Mode.APART_BRIEFLY])
def test_work_apart_runs_at_the_same_time_as_work_here(mode: Mode) -> None:
    barrier = threading.Barrier(3, timeout=DEADLINE)
    threads: dict[str, int] = {}

    def meet(name: str) -> Callable[[], str]:
        def function() -> str:
            threads[name] = threading.get_ident()
            barrier.wait()
            return name

        return function

    works = [FunctionWork(n, meet(n), m) for n, m in (("one", mode), ("other", mode), ("here", Mode.HERE))]
    assert run(step(*works)) == ["one", "other", "here"]
    assert len(set(threads.values())) == 3
    assert threads["here"] == threading.get_ident()


class ThrownError(BaseException):
    """What another thread throws into that of a step."""


class InterruptedRun(StepRun):
    """A run whose thread is hit by an exception right after it has taken an event."""

    def _wait(self) -> tuple[Any, Any]:
        super()._wait()
        raise ThrownError


def test_an_event_that_an_exception_loses_is_not_waited_for() -> None:
    works = [FunctionWork(n, lambda: 1, Mode.APART_BRIEFLY) for n in ("one", "other", "third")]
    ended: list[BaseException] = []

    def run_it() -> None:
        try:
            InterruptedRun(step(*works), [], None, None, ActiveSteps()).run()
        except ThrownError as error:
            ended.append(error)

    thread = threading.Thread(target=run_it, daemon=True)
    thread.start()
    thread.join(DEADLINE)
    assert ended


class InterruptedLock:
    """A lock whose taker is hit by an exception right after it has taken it for the second time, and then no more."""

    def __init__(self) -> None:
        self._lock, self._taken = threading.Lock(), 0
        self.release = self._lock.release

    def acquire(self, blocking: bool = True) -> bool:
        if not self._lock.acquire(blocking):
            return False
        self._taken += 1
        if self._taken == 2:
            raise ThrownError
        return True


def test_a_call_that_an_exception_ends_is_not_waited_for_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    threads = WorkerThreads("interrupted")
    ended: list[BaseException] = []

    def call_it() -> None:
        try:
            threads.call(lambda: 1)
        except ThrownError as error:
            ended.append(error)

    thread = threading.Thread(target=call_it, daemon=True)
    kept = {name: getattr(threading, name) for name in ("Thread", "current_thread", "enumerate")}
    monkeypatch.setattr(worker_threads, "threading", SimpleNamespace(Lock=InterruptedLock, **kept))
    thread.start()
    thread.join(DEADLINE)
    assert ended


def test_work_that_would_run_alone_needs_no_thread() -> None:
    work = FunctionWork("alone", threading.get_ident, Mode.APART)
    assert run(step(work)) == [threading.get_ident()]


def test_asynchronous_work_that_is_done_at_once_and_later() -> None:
    later = Pending()
    works = [
        FunctionWork("plain", lambda: 1, Mode.ASYNCHRONOUS),
        FunctionWork("settled", lambda: Pending.completed([2]), Mode.ASYNCHRONOUS),
        FunctionWork("later", lambda: later, Mode.ASYNCHRONOUS),
        FunctionWork("settles", lambda: later.complete([3]), Mode.HERE),
    ]
    assert run(step(*works)) == [1, 2, 3, True]


def test_a_failing_step_waits_for_brief_work_and_not_for_other_work() -> None:
    ended, begun, free = threading.Event(), threading.Event(), threading.Event()

    def brief() -> bool:
        begun.wait(DEADLINE)
        ended.set()
        return True

    def fail() -> None:
        begun.set()
        raise AbortedError(None, None, "enough")

    works = [
        FunctionWork("brief", brief, Mode.APART_BRIEFLY),
        FunctionWork("endless", lambda: free.wait(DEADLINE), Mode.APART),
        FunctionWork("fails", fail, Mode.HERE),
    ]
    with pytest.raises(AbortedError, match="enough"):
        run(step(*works))
    assert ended.is_set()
    free.set()


def test_a_deadline() -> None:
    never = Pending(waiting_for="Godot")
    with pytest.raises(DeadlineExceededError, match=r"'wait' \(Function, created at here.py:1\) waits for Godot"):
        run(step(FunctionWork("wait", lambda: never, Mode.ASYNCHRONOUS)), timeout=0.02)
    assert never.is_settled


def test_a_deadline_tells_which_tensor_does_not_come() -> None:
    told = "'wait' .* waits for x:0 from /cpu:0 to /cpu:1 in step 1"
    with Rendezvous().step(StepId("s", 1)) as exchange:
        receive = FunctionWork("wait", lambda: exchange.receive("/cpu:0", "/cpu:1", "x:0"), Mode.ASYNCHRONOUS)
        with pytest.raises(DeadlineExceededError, match=told):
            run(step(receive), timeout=0.02)


def test_a_step_that_begins_after_all_were_cancelled() -> None:
    active, never = ActiveSteps(), Pending(waiting_for="Godot")
    active.cancel_all("closing time")
    with pytest.raises(CancelledError, match="closing time: 'wait' .* waits for Godot"):
        run(step(FunctionWork("wait", lambda: never, Mode.ASYNCHRONOUS)), active=active)
    assert never.is_settled


def test_cancelling_all_steps() -> None:
    active, asked, never = ActiveSteps(), threading.Event(), Pending(waiting_for="Godot")

    def wait() -> Pending:
        asked.set()
        return never

    def cancel() -> None:
        assert asked.wait(DEADLINE)
        active.cancel_all("closing time")

    thread = threading.Thread(target=cancel)
    thread.start()
    with pytest.raises(CancelledError, match="closing time: 'wait' .* waits for Godot"):
        run(step(FunctionWork("wait", wait, Mode.ASYNCHRONOUS)), active=active)
    thread.join(DEADLINE)
    assert active.all_wait(), "nothing runs any more"


def test_a_step_in_which_nothing_can_run_any_more() -> None:
    graph = ExecutorGraph([NodeSpec("stuck", Kind.PASS, inputs=[Known(1)], controls=[0])])
    with pytest.raises(InternalError, match="'stuck' waits for 1 inputs"):
        run(graph)


def test_threads_are_made_when_all_others_are_busy_and_used_again() -> None:
    threads = WorkerThreads("test")
    barrier, seen = threading.Barrier(5, timeout=DEADLINE), set()
    for _ in range(4):
        threads.submit(lambda: (seen.add(threading.get_ident()), barrier.wait()))  # type: ignore[arg-type, return-value]
    barrier.wait()
    deadline = time.monotonic() + DEADLINE
    while len(threads._idle) < 4:
        assert time.monotonic() < deadline, "the threads do not become idle"
    done = threading.Event()
    threads.submit(lambda: (seen.add(threading.get_ident()), done.set()))  # type: ignore[arg-type, return-value]
    assert done.wait(DEADLINE)
    assert len(seen) == 4
