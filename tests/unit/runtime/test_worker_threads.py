"""Calls on worker threads that are interrupted: the work ends before the caller goes on, or never begins."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from anabranch.runtime.worker_threads import WorkerThreads


class Interrupted(WorkerThreads):
    """Threads whose caller is interrupted while it hands work over."""

    def __init__(self, before: bool) -> None:
        super().__init__("interrupted")
        self.before = before
        self.begun = threading.Event()
        self.kept: list[Callable[[], None]] = []

    def submit(self, work: Callable[[], None]) -> None:
        if self.before:
            self.kept.append(work)
        else:
            super().submit(work)
            self.begun.wait()
        raise KeyboardInterrupt


def test_work_that_has_begun_ends_before_the_caller_goes_on() -> None:
    threads = Interrupted(before=False)
    ended = []

    def work() -> None:
        threads.begun.set()
        threading.Event().wait(0.05)  # time in which a caller that does not wait would go on
        ended.append(True)

    with pytest.raises(KeyboardInterrupt):
        threads.call(work)
    assert ended


def test_work_that_has_not_begun_never_does() -> None:
    threads = Interrupted(before=True)
    ran: list[None] = []
    with pytest.raises(KeyboardInterrupt):
        threads.call(lambda: ran.append(None))
    (late,) = threads.kept
    late()
    assert not ran


def test_results_and_errors_come_back() -> None:
    threads = WorkerThreads("plain")
    assert threads.call(lambda: 3) == 3
    with pytest.raises(ZeroDivisionError):
        threads.call(lambda: 1 // 0)


def test_the_end_of_a_process_can_wait_for_what_they_run() -> None:
    threads, begun, over = WorkerThreads("busy"), threading.Event(), threading.Event()
    assert threads.rest(0.0)
    threads.submit(lambda: (begun.set(), over.wait(30))[0])
    assert begun.wait(30)
    assert not threads.rest(0.01)
    threading.Timer(0.05, over.set).start()
    assert threads.rest(30.0)
    assert threads.busy == 0
