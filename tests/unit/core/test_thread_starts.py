"""Threads begin, whatever is thrown at those who start them."""

from __future__ import annotations

import contextlib
import ctypes
import queue
import sys
import threading

import pytest

from anabranch.core import thread_starts
from anabranch.core.thread_starts import start_thread

#: how many threads are started under fire
_STARTS = 200
#: for what hangs (s)
_DEADLINE = 60.0


class ThrownError(Exception):
    """What is thrown at a thread."""


@pytest.mark.parametrize("anew", [False, True])
def test_exceptions_thrown_at_the_starter_end_no_thread(anew: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """`Thread.start` alone waits for ever here until Python 3.12, after some tens of starts.

    So does that of the package's own thread, if one who is thrown at starts it.
    """
    # what ends a short-lived thread of the package is told to the interpreter's hook
    ended: list[type[BaseException]] = []
    monkeypatch.setattr(sys, "unraisablehook", lambda told: ended.append(told.exc_type))
    ran: queue.SimpleQueue[int] = queue.SimpleQueue()
    begun, over = threading.Event(), threading.Event()

    def start_all() -> None:
        begun.set()
        for number in range(_STARTS):
            with contextlib.suppress(ThrownError):
                if anew:
                    monkeypatch.setattr(thread_starts, "_starter", thread_starts._Starter())
                start_thread(threading.Thread(target=ran.put, args=(number,), daemon=True))

    def throw(at: int) -> None:
        while not over.wait(0.0005):
            ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(at), ctypes.py_object(ThrownError))

    starter = threading.Thread(target=start_all, daemon=True)
    starter.start()
    assert begun.wait(_DEADLINE)
    assert starter.ident is not None
    thrower = threading.Thread(target=throw, args=(starter.ident,), daemon=True)
    thrower.start()
    starter.join(_DEADLINE)
    over.set()
    thrower.join(_DEADLINE)
    assert not starter.is_alive()
    assert not ran.empty()
    assert set(ended) <= {ThrownError}


def test_what_keeps_a_thread_from_starting_is_told() -> None:
    thread = threading.Thread(target=lambda: None)
    start_thread(thread)
    thread.join(_DEADLINE)
    with pytest.raises(RuntimeError, match="started once"):
        start_thread(thread)
