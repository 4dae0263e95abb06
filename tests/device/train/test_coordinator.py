"""Coordinators: threads that are stopped and joined, and what becomes of their errors."""

from __future__ import annotations

import threading

import pytest

from anabranch import errors
from anabranch.train.coordinator import Coordinator, LooperThread


def test_coordinator_stops_its_threads() -> None:
    coord = Coordinator()
    running = threading.Barrier(3)

    def loop() -> None:
        running.wait(10)
        while not coord.should_stop():
            coord.wait_for_stop(10)

    threads = [threading.Thread(target=loop) for _ in range(2)]
    for thread in threads:
        thread.start()
    running.wait(10)
    assert not coord.should_stop()
    assert not coord.wait_for_stop(0.0)
    coord.request_stop()
    coord.join(threads, stop_grace_period_secs=10)
    assert coord.should_stop()
    assert coord.joined
    assert not any(thread.is_alive() for thread in threads)
    coord.clear_stop()
    assert not coord.should_stop()
    assert not coord.joined


def test_join_returns_when_all_threads_have_ended_by_themselves() -> None:
    coord = Coordinator()
    thread = threading.Thread(target=lambda: None)
    coord.register_thread(thread)
    thread.start()
    coord.join()
    assert coord.joined
    assert not coord.should_stop()  # TFLearn joins the threads of one evaluation after another


def test_join_does_not_wait_for_threads_that_were_never_started() -> None:
    coord = Coordinator()
    coord.join([threading.Thread(target=lambda: None)])
    assert coord.joined


def test_join_raises_the_first_exception() -> None:
    coord = Coordinator()

    def fail() -> None:
        with coord.stop_on_exception():
            raise errors.InvalidArgumentError(None, None, "first")

    thread = threading.Thread(target=fail)
    thread.start()
    thread.join(10)
    coord.request_stop(ValueError("second"))
    with pytest.raises(errors.InvalidArgumentError, match="first"):
        coord.raise_requested_exception()
    with pytest.raises(errors.InvalidArgumentError, match="first"):
        coord.join([thread])
    with pytest.raises(KeyError):
        coord.request_stop(KeyError("after join"))


def test_clean_stops_are_not_raised() -> None:
    coord = Coordinator()
    coord.request_stop(errors.OutOfRangeError(None, None, "end of the data"))
    coord.join([])
    other = Coordinator(clean_stop_exception_types=[KeyError])
    try:
        raise KeyError("x")
    except KeyError as error:
        other.request_stop((KeyError, error, error.__traceback__))
    other.join([])
    strict = Coordinator(clean_stop_exception_types=[])
    strict.request_stop(errors.OutOfRangeError(None, None, "end of the data"))
    with pytest.raises(errors.OutOfRangeError):
        strict.join([])


def test_threads_that_do_not_stop_are_named() -> None:
    coord = Coordinator()
    release = threading.Event()
    thread = threading.Thread(target=release.wait, args=(10,), name="stubborn")
    thread.start()
    coord.request_stop()
    try:
        with pytest.raises(RuntimeError, match="threads still running: stubborn"):
            coord.join([thread], stop_grace_period_secs=0.01)
        coord.join([thread], stop_grace_period_secs=0.01, ignore_live_threads=True)
    finally:
        release.set()
        thread.join(10)


def test_looper_thread_calls_until_the_coordinator_stops() -> None:
    coord = Coordinator()
    calls: list[int] = []

    def target(limit: int, *, step: int) -> None:
        calls.append(step)
        if len(calls) == limit:
            coord.request_stop()

    LooperThread.loop(coord, None, target, args=(3,), kwargs={"step": 7})
    coord.join(stop_grace_period_secs=10)
    assert calls == [7, 7, 7]
    with pytest.raises(ValueError, match="must be a Coordinator"):
        LooperThread(None, 1.0)  # type: ignore[arg-type]


def test_looper_thread_with_a_timer_prepares_cleans_up_and_reports() -> None:
    coord = Coordinator()

    class Looper(LooperThread):
        log: list[str] = []

        def start_loop(self) -> None:
            self.log.append("start")

        def run_loop(self) -> None:
            self.log.append("run")
            if len(self.log) > 3:
                coord.request_stop()

        def stop_loop(self) -> None:
            self.log.append("stop")

    Looper(coord, 0.001).start()
    coord.join(stop_grace_period_secs=10)
    assert Looper.log == ["start", "run", "run", "run", "stop"]

    failing = Coordinator()
    LooperThread.loop(failing, 0.001, lambda: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        failing.join(stop_grace_period_secs=10)
