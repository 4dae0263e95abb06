"""Threads that write the same variables take turns of several short steps, instead of handing these over at each step.

A thread that waits for a variable sleeps. To wake it takes 50 µs on a virtual machine, and as much processor time again
on either side; when it has the variable, it waits for Python's lock, which the other one gives away when it comes back
to the variable itself. So two threads that hand a variable over at each step of 0.2 ms take twice as long for a step as
one thread. Therefore whoever has the turn keeps it for some steps, as long as others wait for that alone, and they
sleep until it is theirs:

    whose turn it is  who comes, or has run                what happens
    ================  ===================================  =====================================================
    its own           comes                                it runs
    nobody's          comes, nobody runs                   it is its turn, it runs
    nobody's          comes, somebody runs                 it waits
    another's         comes; that one runs, or has run     it waits
                      less than `_AWAY` ago
    another's         comes; that one has been away for    it takes the turn, and runs
                      longer
    its own           has run, others wait; the turn has   the first of those gets the turn, and is woken
                      lasted `TURN`, or this thread stays
                      away for `_AWAY` between its runs
    its own           the same, otherwise                  it keeps the turn
    its own           has run, nobody waits                it keeps the turn, for `_ALONE`
    not its own       has run                              it is its turn from now on

**Nothing depends on it but time**: the variables' locks are taken all the same. So threads need not agree about whose
turn it is. One that was given the turn and has gone (an exception came) costs others one more look.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Final, NamedTuple

#: how long (s) a turn is, while others wait: as long as Python lets a thread run (`sys.getswitchinterval`)
TURN: Final = 5e-3
#: whoever does not come back for so long (s) does something else than to run steps. (With 0.15 ms, which a small step
#: takes to begin and to end, two threads of 256-256-10 made 0.67 times the steps of one; with 1 ms 1.0 to 1.1 times.)
_AWAY: Final = 1e-3
#: where nobody waits for so long (s) after a turn began, nobody is asked any more whose it is
_ALONE: Final = 1.0
#: one that waits looks again after so many seconds, and waits for the variables themselves after so many
_LOOK_AGAIN, _AT_MOST = 6e-3, 1.0


class Waiter(NamedTuple):
    """A thread that waits, and the lock that it is woken by."""

    thread: int
    woken: threading.Lock


class Turns:
    """See the module docstring.

    Args:
        is_locked: whether the variables are locked.
        clock: seconds, monotonic.

    Attributes:
        thread: whose turn it is; 0: nobody's.
        waiting: who waits, the first of all first.
        runs: whether one that takes turns has the variables; it says so itself, while it has their lock. Others lock
            them for moments, and wake nobody.
    """

    __slots__ = ("_away", "_began", "_clock", "_is_locked", "_left", "runs", "thread", "waiting")

    def __init__(self, is_locked: Callable[[], bool], clock: Callable[[], float] = time.perf_counter) -> None:
        self._is_locked, self._clock = is_locked, clock
        self.thread = 0
        self.runs = False
        self.waiting: deque[Waiter] = deque()
        #: when the turn began, when its thread has run last, and for how long that stayed away before
        self._began = self._left = self._away = 0.0

    def may_run(self, thread: int, now: float) -> bool:
        """A thread comes, or looks again; whether it runs now."""
        if self.thread == thread:
            self._away = now - self._left
            return True
        # an exception may have left a mark behind; the lock tells
        if (self.runs and self._is_locked()) or (self.thread and now - self._left < _AWAY):
            return False
        self._begin(thread, now)
        return True

    def has_run(self, thread: int, now: float) -> Waiter | None:
        """A thread has run; who is to be woken, since it is its turn."""
        if self.thread != thread:
            self._begin(thread, now)
        self._left = now
        if not self.waiting:
            if now - self._began > _ALONE:
                self.thread = 0
            return None
        if now - self._began < TURN and self._away < _AWAY:
            return None
        try:
            following = self.waiting.popleft()
        except IndexError:  # it has given up meanwhile
            return None
        self._begin(following.thread, now)
        return following

    def _begin(self, thread: int, now: float) -> None:
        self.thread, self._began, self._left, self._away = thread, now, now, 0.0

    def come(self) -> None:
        """Waits until it is this thread's turn, or for a second. Raises what a signal's handler raises."""
        thread, began = threading.get_ident(), self._clock()
        if self.may_run(thread, began):
            return
        waiter = Waiter(thread, threading.Lock())
        waiter.woken.acquire()
        self.waiting.append(waiter)
        # who has the turn may have gone without seeing this thread: so it looks again, but seldom, since whoever looks
        # takes Python's lock from the one who runs
        while not waiter.woken.acquire(timeout=_LOOK_AGAIN):
            now = self._clock()
            if self.may_run(thread, now) or now - began > _AT_MOST:
                break
        try:
            self.waiting.remove(waiter)
        except ValueError:  # whoever woke it took it out
            return

    def go(self) -> None:
        """This thread has run: the turn may be another's, who waits."""
        following = self.has_run(threading.get_ident(), self._clock())
        if following is not None:
            following.woken.release()
