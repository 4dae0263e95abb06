"""Workers that join and leave while training runs: who is there, and waiting for enough of them (§4.4)."""

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
from anabranch.core.interrupts import admitted
from anabranch.frontend.platform import logging
from anabranch.graph.graph import get_default_graph
from anabranch.ops import raw
from anabranch.session import Session
from anabranch.train.coordinator import Coordinator, is_told_to_end
from anabranch.train.session_run_hook import SessionRunArgs, SessionRunContext, SessionRunHook
from anabranch.train.training_util import get_or_create_global_step

#: how long (s) a worker counts that is not heard of; a third of that is how often it is heard of
MEMBER_SECONDS: Final = 10.0
#: how often (s) a worker that waits for others says so
_TELL_EVERY: Final = 10.0

_numbers = itertools.count(1)


class MembershipHook(SessionRunHook):
    """Makes a worker one of those that train, and waits before a step while there are fewer than a minimum.

    Args:
        minimum: how many workers have to be there, this one included.
        seconds: how long a worker counts that is not heard of; default: 10.

    Attributes:
        members: who is there, as far as is known: one name for each worker.

    Raises:
        ValueError: `minimum` is less than 1, or `seconds` not positive.

    Example:
        >>> train = tf.assign_add(tf.train.get_or_create_global_step(), 1)
        >>> hook = tf.train.replicas.MembershipHook(minimum=1)
        >>> with tf.train.MonitoredTrainingSession(hooks=[hook]) as session:
        ...     print(session.run(train), len(hook.members))
        1 1
    """

    def __init__(self, minimum: int = 1, seconds: float | None = None) -> None:
        if minimum < 1 or (seconds is not None and seconds <= 0):
            raise ValueError(f"minimum must be 1 or more and seconds positive, got {minimum} and {seconds}")
        self._minimum, self._seconds = minimum, MEMBER_SECONDS if seconds is None else seconds
        self._me = f"{socket.gethostname()}:{os.getpid()}.{next(_numbers)}"
        self._changed = threading.Condition()
        self.members: list[str] = []

    def begin(self) -> None:
        self._build(get_or_create_global_step().device, "membership")

    def _build(self, device: str, name: str) -> None:
        graph = get_default_graph()
        with graph.device(device or None), graph.name_scope("membership"), graph.control_dependencies(None):
            handle = raw._Membership(shared_name=name)
            self._for_seconds = raw.Placeholder(dtype=np.float64, shape=[])
            self._renewal = raw._RenewMembership(handle, self._me, self._for_seconds).members

    def after_create_session(self, session: Session, coord: Coordinator) -> None:
        self._coord = coord
        self._renew(session, self._seconds)
        threading.Thread(target=self._stay, args=(session, coord), name="membership", daemon=True).start()

    def before_run(self, run_context: SessionRunContext) -> SessionRunArgs | None:
        last_log = -_TELL_EVERY
        while len(self.members) < self._minimum and not (self._coord.should_stop() or is_told_to_end(self._coord)):
            if time.monotonic() - last_log >= _TELL_EVERY:
                last_log = time.monotonic()
                logging.warning(
                    "This worker waits for others: %d of at least %d are there: %s",
                    len(self.members),
                    self._minimum,
                    ", ".join(self.members),
                )
            # more often than it is heard of: who waits should notice soon who joins
            with admitted(), self._changed:
                self._changed.wait(min(self._seconds / 3, 0.2))
            self._renew(run_context.session, self._seconds)
        return None

    def end(self, session: Session) -> None:
        self._renew(session, 0.0)

    def _stay(self, session: Session, coord: Coordinator) -> None:
        while not coord.wait_for_stop(self._seconds / 3):
            with contextlib.suppress(errors.OpError, RuntimeError):  # a session that is lost is made anew
                self._renew(session, self._seconds)

    def _renew(self, session: Session, seconds: float) -> None:
        members = [name.decode() for name in session.run(self._renewal, {self._for_seconds: seconds})]
        with self._changed:
            if members != self.members:
                self.members = members
                self._changed.notify_all()
