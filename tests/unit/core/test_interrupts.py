"""When handlers of signals run inside a step."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest

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


def test_a_handler_that_the_work_sets_stays() -> None:
    uninterrupted(lambda: signal.signal(signal.SIGUSR1, signal.SIG_IGN))
    assert signal.getsignal(signal.SIGUSR1) is signal.SIG_IGN
