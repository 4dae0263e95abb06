"""When handlers of signals run inside a step."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from anabranch.core import interrupts
from anabranch.core.interrupts import admit, admitted, uninterrupted


class HandlerError(Exception):
    """What the handler raises."""


def _raise(number: int, _: object) -> None:
    raise HandlerError(number)


@pytest.fixture(autouse=True)
def handlers() -> Iterator[None]:
    before = {number: signal.signal(number, _raise) for number in (signal.SIGUSR1, signal.SIGUSR2)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def test_a_signal_is_handled_when_the_work_is_done() -> None:
    done = []

    def work() -> None:
        signal.raise_signal(signal.SIGUSR1)
        done.append(1)

    with pytest.raises(HandlerError):
        uninterrupted(work)
    assert done == [1]
    assert signal.getsignal(signal.SIGUSR1) is _raise
    with pytest.raises(HandlerError):
        signal.raise_signal(signal.SIGUSR1)


def test_a_signal_that_came_is_handled_where_it_is_admitted() -> None:
    done = []

    def work() -> None:
        signal.raise_signal(signal.SIGUSR1)
        done.append(1)
        admit()
        done.append(2)

    with pytest.raises(HandlerError):
        uninterrupted(work)
    assert done == [1]


def test_a_signal_is_handled_at_once_inside_a_function_of_the_user_only() -> None:
    done = []

    def work() -> None:
        try:
            with admitted():
                signal.raise_signal(signal.SIGUSR1)
                done.append("never")
        except HandlerError:
            signal.raise_signal(signal.SIGUSR1)
            done.append("put off again")
            raise

    with pytest.raises(HandlerError):
        uninterrupted(work)
    assert done == ["put off again"]


def test_each_of_several_signals_is_handled_once() -> None:
    seen = []
    signal.signal(signal.SIGUSR2, lambda number, _: seen.append(number))

    def work() -> str:
        signal.raise_signal(signal.SIGUSR1)
        signal.raise_signal(signal.SIGUSR2)
        signal.raise_signal(signal.SIGUSR2)
        return "done"

    with pytest.raises(HandlerError):
        uninterrupted(work)
    assert seen == [signal.SIGUSR2]


def test_a_step_inside_a_step_puts_off_for_itself() -> None:
    done = []

    def inner() -> None:
        signal.raise_signal(signal.SIGUSR1)
        done.append("inner")

    def outer() -> None:
        with admitted():
            uninterrupted(inner)
        done.append("never")

    with pytest.raises(HandlerError):
        uninterrupted(outer)
    assert done == ["inner"]
    assert signal.getsignal(signal.SIGUSR1) is _raise


def test_what_a_section_has_left_in_place_is_gone_with_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    def unlucky(number: int, handler: Any) -> Any:
        if handler is _raise:
            raise HandlerError(number)
        return signal.signal(number, handler)

    with monkeypatch.context() as patch:
        patch.setattr(interrupts, "_set_handler", unlucky)
        with pytest.raises(HandlerError):
            uninterrupted(lambda: None)
    assert signal.getsignal(signal.SIGUSR1) is not _raise
    uninterrupted(lambda: None)
    assert signal.getsignal(signal.SIGUSR1) is _raise


def test_a_handler_that_the_work_sets_stays() -> None:
    uninterrupted(lambda: signal.signal(signal.SIGUSR1, signal.SIG_IGN))
    assert signal.getsignal(signal.SIGUSR1) is signal.SIG_IGN


def test_a_handler_that_the_program_sets_between_steps_is_put_off_too() -> None:
    seen = []
    uninterrupted(lambda: None)
    signal.signal(signal.SIGUSR2, lambda number, _: seen.append("second"))
    uninterrupted(lambda: None)
    signal.signal(signal.SIGUSR2, lambda number, _: seen.append("third"))

    def work() -> None:
        signal.raise_signal(signal.SIGUSR2)
        seen.append("work")

    uninterrupted(work)
    assert seen == ["work", "third"]


FORK = """
import os, signal, threading
from anabranch.core.interrupts import uninterrupted

seen = []
signal.signal(signal.SIGUSR1, lambda *_: seen.append("handler"))

def work():
    signal.raise_signal(signal.SIGUSR1)
    seen.append("work")

def fork():
    child = os.fork()
    if child == 0:
        uninterrupted(work)
        os._exit(0 if seen == ["work", "handler"] else 1)
    status.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))

status = []
thread = threading.Thread(target=fork)
thread.start()
thread.join()
assert status == [0]
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs processes that fork")
def test_the_thread_that_forks_is_the_main_one_of_the_new_process() -> None:
    done = subprocess.run([sys.executable, "-c", FORK], capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
