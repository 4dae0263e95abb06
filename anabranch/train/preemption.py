"""Leaving when told to: a process that gets SIGTERM finishes its step, saves and ends (§4.3).

Whoever takes machines away tells their processes so some time before: engines, batch systems and clouds send SIGTERM.
"""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Callable
from types import FrameType
from typing import Any

from anabranch import errors
from anabranch.frontend.platform import logging
from anabranch.session import Session
from anabranch.train.coordinator import Coordinator, SessionCoordinator, is_told_to_end
from anabranch.train.session_run_hook import SessionRunArgs, SessionRunContext, SessionRunHook


class PreemptionHook(SessionRunHook):
    """Ends a training in an orderly way when its process is told to end.

    The step that is under way is finished. The next one is not begun: there is an `OutOfRangeError`, as at the end of
    the data, also where the next range of `replicas.InputRanges` is asked for, after it was said that the last is done.
    A monitored session that is left by this error ends in the ordinary way: its hooks end, so that savers save. What
    comes after the session is run. A second signal ends the process at once. The training is not over for others: the
    token queue of `SyncReplicasOptimizer` stays open, and they wait for a chief that comes back.

    A hook that is made on another thread than the main one, or in a process that handles SIGTERM itself, does nothing.

    Example:
        >>> step = tf.assign_add(tf.train.get_or_create_global_step(), 1)
        >>> with tf.train.MonitoredTrainingSession(hooks=[tf.train.PreemptionHook()]) as session:
        ...     while not session.should_stop() and session.run(step) < 3:
        ...         pass
    """

    def __init__(self) -> None:
        self._told = False
        self._coord: Coordinator | None = None
        self._restore: Callable[[], Any] | None = None

    @property
    def is_told(self) -> bool:
        """Whether the process was told to end."""
        return self._told

    def begin(self) -> None:
        if signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
            return
        # on another thread than the main one Python cannot set a handler
        with contextlib.suppress(ValueError):
            before = signal.signal(signal.SIGTERM, self._note)
            self._restore = lambda: signal.signal(signal.SIGTERM, before)

    def after_create_session(self, session: Session, coord: Coordinator) -> None:
        self._coord = coord
        self._tell()

    def before_run(self, run_context: SessionRunContext) -> SessionRunArgs | None:
        # not after the step: whoever runs it is to see what came of it, and can say that its input was used
        end_if_told(self._coord)
        return None

    def end(self, session: Session) -> None:
        self._leave()

    def abandoned(self) -> None:
        self._leave()

    def _note(self, number: int, frame: FrameType | None) -> None:
        # it may interrupt anything: it only takes a note, and lets the next signal end the process
        self._told = True
        self._tell()
        self._leave()
        logging.warning("Told to end (SIGTERM): training ends after this step")

    def _tell(self) -> None:
        if self._told and isinstance(self._coord, SessionCoordinator):
            self._coord.is_told_to_end = True

    def _leave(self) -> None:
        restore, self._restore = self._restore, None
        if restore is not None:
            with contextlib.suppress(ValueError):
                restore()


def end_if_told(coord: Coordinator | None) -> None:
    """Ends the training of a session whose process was told to end.

    Raises:
        OutOfRangeError: it was.
    """
    if is_told_to_end(coord):
        assert isinstance(coord, SessionCoordinator)
        coord.ends(is_followed=True)
        # not `request_stop`: who does not ask whether to stop would get an error by which nothing is saved
        raise errors.OutOfRangeError(None, None, "the training ends here, for its process was told to end (SIGTERM)")
