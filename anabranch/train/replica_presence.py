"""Which replicas a round waits for: those that are there, and those that have not come yet. See `replicas`.

A worker that ends says so, and each that lives says so from time to time; of a worker that was killed nothing is heard.
Whoever is told that the number has changed tells the accumulators, so that a round that waits for a value which nobody
will hand in ends with those that are there.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Sequence
from typing import Final

import numpy as np

from anabranch import errors
from anabranch.frontend.control_flow.grouping import group
from anabranch.frontend.platform import logging
from anabranch.graph.graph import get_default_graph
from anabranch.ops import raw
from anabranch.proto.config_pb2 import RunOptions
from anabranch.session import Session
from anabranch.train.coordinator import Coordinator
from anabranch.train.replica_rounds import HandedIn

#: how long (s) a worker is waited for, at least, that is not heard of; a third of that is how often it is heard of
AWAY_AFTER: Final = 10.0
#: how long (ms) a worker tries to say that it ends
_LEFT_WITHIN_MS: Final = 5000


class Presence:
    """Of one worker. Adds operations to the default graph.

    Args:
        worker, workers: its number, and how many there are.
        needed: how many values make up a round where all are there.
        device: of what counts them.
        accumulators: that wait for their values.
        seconds: how long a worker is waited for that is not heard of.
    """

    def __init__(
        self, worker: int, workers: int, needed: int, device: str, accumulators: Sequence[HandedIn], seconds: float
    ) -> None:
        self._worker, self._needed = worker, needed
        self._seconds = max(seconds, AWAY_AFTER)
        graph = get_default_graph()
        with graph.device(device), graph.name_scope("presence"), graph.control_dependencies(None):
            handle = raw._Attendance(shared_name="replica_attendance")
            self._for_seconds = raw.Placeholder(dtype=np.float64, shape=[])
            self._anew = raw.Placeholder(dtype=np.bool_, shape=[])
            self._expected, version = raw._Attend(handle, self._for_seconds, self._anew, worker=worker, workers=workers)
            told = [part.expect(raw.Maximum(self._expected, np.int32(1)), version) for part in accumulators]
            self._told = group(*told)
        #: held while it is said, so that nothing follows the last word
        self._speaking = threading.Lock()
        self._has_left = threading.Event()
        self._last = workers

    def join(self, session: Session, coord: Coordinator, anew: bool) -> None:
        """Makes the worker one of those who are waited for, until it leaves or is not heard of any more.

        Args:
            session: says so; on a thread of its own as long as it lives.
            coord: ends that.
            anew: whether a training begins.
        """
        self._has_left.clear()
        self._say(session, self._seconds, anew)
        threading.Thread(target=self._stay, args=(session, coord), name="presence", daemon=True).start()

    def leave(self, session: Session) -> int | None:
        """Has nobody wait for it any more. Where the task is gone that counts, nobody does.

        Returns:
            How many are there still; None: nobody knows.
        """
        self._has_left.set()
        with contextlib.suppress(errors.OpError, RuntimeError):
            self._say(session, -self._seconds, False)
            return self._last
        return None

    def _stay(self, session: Session, coord: Coordinator) -> None:
        while not (coord.wait_for_stop(self._seconds / 3) or self._has_left.is_set()):
            with contextlib.suppress(errors.OpError):  # a session that is lost is made anew
                try:
                    self._say(session, self._seconds, False)
                except RuntimeError:
                    return  # the session was closed

    def _say(self, session: Session, seconds: float, anew: bool) -> None:
        with self._speaking:
            if self._has_left.is_set() and seconds > 0:
                return
            feeds = {self._for_seconds: seconds, self._anew: anew}
            limit = RunOptions(timeout_in_ms=_LEFT_WITHIN_MS) if seconds < 0 else None
            expected, _ = session.run([self._expected, self._told], feeds, options=limit)
        expected = int(expected)
        if expected < min(self._last, self._needed):
            logging.warning(
                "%d workers train: a round waits for no more than these, and not for %d", expected, self._needed
            )
        self._last = expected
