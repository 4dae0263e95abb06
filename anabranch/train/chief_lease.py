"""Who is chief: a lease beside the global step, which any worker may take over (§4.3, §4.4).

The chief renews it. A chief that is not heard of loses it, and the first worker that asks then has the duties: saving,
applying means, issuing tokens, summaries. Each change of hands makes the session anew, of who wins as of who loses, so
that there is one way to become chief.

A chief that was stopped and woken knows by its own clock that its lease is over, before it does anything: what it
counts from is when it asked, which was before the answer counted.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import socket
import threading
import time
from typing import Final

import numpy as np

from anabranch import errors
from anabranch.frontend.platform import logging
from anabranch.graph.graph import get_default_graph
from anabranch.ops import raw
from anabranch.session import Session
from anabranch.train.coordinator import Coordinator
from anabranch.train.session_run_hook import SessionRunArgs, SessionRunContext, SessionRunHook, SessionRunValues

#: how long (s) a lease is good for; a third of that is how often it is renewed, and asked for
LEASE_SECONDS: Final = 10.0
#: how long (s) workers leave a lease that nobody has had yet to the one who is to be the first chief
_PATIENCE: Final = 60.0

_numbers = itertools.count(1)


class ChiefLease:
    """The lease as one worker sees it.

    Args:
        is_first: whether this worker is to be the first chief.
        seconds: how long the lease is good for; default: `LEASE_SECONDS`.

    Attributes:
        interrupts: whether a step of a worker may wait for a chief, so that it has to be ended when that changes.
        passes: whether a worker that is not to be the first chief can become chief.
        from_the_dead: whether it was taken from a chief that has not given it back, or a round of this one was cut off:
            nobody knows what was done last. Whoever has made that good sets it back.
    """

    def __init__(self, is_first: bool, seconds: float | None = None) -> None:
        self._is_first, self._seconds = is_first, LEASE_SECONDS if seconds is None else seconds
        self.passes, self.interrupts = True, False
        self._me = f"{socket.gethostname()}:{os.getpid()}.{next(_numbers)}"
        self._until = 0.0
        self._term = 0
        self._stop = threading.Event()
        self._born = time.monotonic()
        self.from_the_dead = False

    def build(self, device: str) -> None:
        """Adds the operations to the default graph.

        Args:
            device: of the global step.
        """
        graph = get_default_graph()
        with graph.name_scope("chief_lease"), graph.device(device or None), graph.control_dependencies(None):
            handle = raw._Lease(shared_name="chief_lease")
            self._wanted = raw.Placeholder(dtype=np.float64, shape=[])
            self._answer = raw._AskForLease(handle, self._me, self._wanted)

    @property
    def is_held(self) -> bool:
        """Whether this worker is chief, for sure."""
        return time.monotonic() < self._until

    def ask(self, session: Session) -> bool:
        """Takes the lease if it can be had, or renews it; whether this worker is chief.

        Raises:
            OpError: its task does not answer.
        """
        holder, term, remaining = self._run(session, 0.0) if not self.is_held else (self._me, self._term, 1.0)
        is_free = remaining <= 0
        is_early = term == 0 and time.monotonic() - self._born < _PATIENCE
        waits = not self._is_first and (is_early or not self.passes)
        if holder != self._me and (not is_free or waits):
            self._until = 0.0
            # who holds it now has not got it from this one, and makes good what has to be
            self.from_the_dead = self.from_the_dead and is_free
            return False
        before, asked = holder, time.monotonic()
        holder, term, _ = self._run(session, self._seconds)
        if holder != self._me:
            self._until = 0.0
            return False
        if term != self._term:
            is_from_the_dead = before not in ("", self._me)
            # until the model has gone back: this worker may have lost it meanwhile, having done nothing as chief
            self.from_the_dead = self.from_the_dead or is_from_the_dead
            if is_from_the_dead:
                logging.warning("The chief %s was not heard of for %.0f s: this worker is now", before, self._seconds)
        self._until, self._term = asked + self._seconds, term
        return True

    def give_back(self, session: Session) -> None:
        """Lets another have it at once; where nobody knows what was done last, when it is over, as that of the dead."""
        if self.is_held:
            self._until = 0.0
            if not self.from_the_dead:
                self._run(session, 0.0)

    def check(self) -> None:
        """Raises AbortedError if this worker has been chief in this session and is not sure any more that it is."""
        if not self.is_held:
            problem = "this worker is not chief any more: its lease was not renewed in time; it goes on as a worker"
            raise errors.AbortedError(None, None, problem)

    def keep(self, session: Session, coord: Coordinator | None = None) -> None:
        """Renews the lease, or asks for it, on a thread of its own, until the session ends or another is kept.

        Args:
            session: asks.
            coord: is told when this worker becomes chief, or is it no more; None: nobody is.
        """
        self.stop_keeping()
        self._stop = threading.Event()
        keeping = threading.Thread(
            target=self._keep, args=(session, coord, self.is_held, self._stop), name="chief lease"
        )
        keeping.daemon = True
        keeping.start()

    def stop_keeping(self) -> None:
        """Renews it no more."""
        self._stop.set()

    def _keep(self, session: Session, coord: Coordinator | None, was_held: bool, stop: threading.Event) -> None:
        while not stop.wait(self._seconds / 3) and not (coord is not None and coord.should_stop()):
            try:
                self.ask(session)
            except errors.OpError:
                logging.vlog(1, "The lease of the chief could not be asked for", exc_info=True)
            except RuntimeError:
                return  # the session was closed
            if coord is None or self.is_held == was_held or stop.is_set():
                continue
            if self.interrupts:
                with contextlib.suppress(errors.AbortedError):  # it has ended meanwhile, and its like asks anew
                    coord.request_stop(self._changed())
                session.close()  # it may be waiting in a step that only the chief can end
            return  # else the next step looks

    def _changed(self) -> errors.AbortedError:
        what = "is chief now" if self.is_held else "is not chief any more"
        return errors.AbortedError(None, None, f"this worker {what}; its session is made anew")

    def check_unchanged(self, was_held: bool) -> None:
        """Raises AbortedError if this worker has become chief since, or is it no more."""
        if self.is_held != was_held:
            raise self._changed()

    def _run(self, session: Session, seconds: float) -> tuple[str, int, float]:
        holder, term, remaining = session.run(self._answer, {self._wanted: seconds})
        return holder.decode(), int(term), float(remaining)


class WhileChief(SessionRunHook):
    """A hook that works in the sessions in which this worker is chief.

    Args:
        hook: what works.
        lease: says when.
    """

    def __init__(self, hook: SessionRunHook, lease: ChiefLease) -> None:
        self._hook, self._lease = hook, lease
        self._works = False

    def begin(self) -> None:
        self._hook.begin()

    def after_create_session(self, session: Session, coord: Coordinator) -> None:
        self._works = self._lease.is_held
        if self._works:
            self._hook.after_create_session(session, coord)

    def before_run(self, run_context: SessionRunContext) -> SessionRunArgs | None:
        if not self._works:
            return None
        self._lease.check()
        return self._hook.before_run(run_context)

    def after_run(self, run_context: SessionRunContext, run_values: SessionRunValues) -> None:
        if self._works:
            self._hook.after_run(run_context, run_values)

    def end(self, session: Session) -> None:
        if self._works:
            self._hook.end(session)

    def abandoned(self) -> None:
        if self._works:
            self._hook.abandoned()


class LeaseHook(SessionRunHook):
    """Keeps the lease while a session lives, and gives it back at the end; the last hook of a session."""

    def __init__(self, lease: ChiefLease) -> None:
        self._lease = lease

    def after_create_session(self, session: Session, coord: Coordinator) -> None:
        self._was_held = self._lease.is_held
        self._lease.keep(session, coord)

    def before_run(self, run_context: SessionRunContext) -> SessionRunArgs | None:
        self._lease.check_unchanged(self._was_held)
        return None

    def end(self, session: Session) -> None:
        self._lease.stop_keeping()
        self._lease.give_back(session)

    def abandoned(self) -> None:
        self._lease.stop_keeping()
