"""Checkpoints that nobody asks for: saved beside the training, as often as it pays  (§4.3).

The chief saves when `SaveInterval` says so, on a thread: each task that has variables reads them, which pins their
buffers, and writes its shard, while steps go on. One manifest commits all shards. Where replicas train in rounds, the
next round waits until all tasks have read, not until they have written: the checkpoint is of one round. Where they
train asynchronously, each task's shard is of one instant, but these are not the same on all.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from typing import Final

from anabranch.core.interrupts import admitted
from anabranch.distributed.shard_recovery import Continue, RecoveryAction
from anabranch.frontend.platform import logging
from anabranch.io import checkpoint_writer
from anabranch.session import Session
from anabranch.train.basic_session_run_hooks import global_step_for
from anabranch.train.checkpoint_management import latest_checkpoint
from anabranch.train.coordinator import Coordinator, is_followed
from anabranch.train.model_shards import ModelShards
from anabranch.train.replica_rounds import BetweenRounds, RoundsRunner, RoundWentOn, WhileARoundWaits
from anabranch.train.save_interval import ASSUMED_TASK_LIFE, SaveInterval
from anabranch.train.session_run_hook import SessionRunArgs, SessionRunContext, SessionRunHook, SessionRunValues

_NAME: Final = "model.ckpt"
#: how long (s) the last save of a training waits for the end of a round that may never come
_LAST_ROUND: Final = 2.0
#: the same, where nobody is there who hands anything in; it may have been enough before
_LOOK_AGAIN: Final = 0.25
#: how long (s) a session that ends by an exception waits for the save that its end cancels
_CANCELLED: Final = 30.0


class _SaveUnderWay:
    """A save under way.

    Attributes:
        error: what it failed with; looked at when `ended` is set.
    """

    def __init__(self, began: float, step: int, steps: int) -> None:
        self.began, self.step, self.steps = began, step, steps
        self.read = threading.Event()
        self.ended = threading.Event()
        self.pause = 0.0
        self.ended_at = began
        self.error: BaseException | None = None


class AutomaticCheckpointHook(SessionRunHook):
    """Saves checkpoints of a model beside its training; for the chief.

    An error of a save is raised by the next run; the checkpoint before it is as it was.

    Args:
        shards: of the model.
        task_life: how long a task lives on average, in seconds, as long as nothing is known of that.
    """

    def __init__(self, shards: ModelShards, task_life: float = ASSUMED_TASK_LIFE) -> None:
        self._shards = shards
        self._path = os.path.join(shards.directory, _NAME)
        self._task_life = task_life
        self._interval: SaveInterval | None = None
        self._current: _SaveUnderWay | None = None
        #: the save that is to begin after the round
        self._asked: BetweenRounds | None = None
        #: in which the training runs; a save that another has begun, or was to begin, is of no use
        self._session: Session | None = None
        self._coord: Coordinator | None = None
        #: the tasks that leave for whose sake was saved
        self._saved_for: frozenset[str] = frozenset()
        self._steps = 0
        self._steps_at_end = 0
        self._last_step: int | None = None

    def begin(self) -> None:
        self._global_step = global_step_for(self)

    def recovered(self, action: RecoveryAction) -> None:
        """Takes note of what a new session had to do: what had to be restored had been lost."""
        if self._interval is not None and not isinstance(action, Continue):
            self._interval.failed()

    def after_create_session(self, session: Session, coord: Coordinator) -> None:
        # first: what was asked for in the session before finds that it is over, also on another thread
        self._session, self._coord = session, coord
        self._current, self._asked, self._saved_for = None, None, frozenset()
        tasks = {device.name.rpartition("/device:")[0] for device in session.list_devices()}
        if self._interval is None:
            self._interval = SaveInterval(time.monotonic(), max(len(tasks), 1), self._task_life)
        step = int(session.run(self._global_step))
        if latest_checkpoint(self._shards.directory) != f"{self._path}-{step}":
            # before anything is learned, so that there is something to return to
            save = _SaveUnderWay(time.monotonic(), step, self._steps)
            self._write(session, save)
            self._took(save)
        self._last_step = step

    def before_run(self, run_context: SessionRunContext) -> SessionRunArgs:
        return SessionRunArgs(self._global_step)

    def after_run(self, run_context: SessionRunContext, run_values: SessionRunValues) -> None:
        self._steps += 1
        assert self._interval is not None
        if self._asked is not None:
            if not self._asked.ended.is_set():
                return
            self._asked = None
        save = self._current
        if save is not None:
            if not save.ended.is_set():
                return
            self._current = None
            self._took(save)
        elif self._has_notice(run_context.session) or self._interval.is_due(time.monotonic()):
            self._ask(run_context.session)

    def _has_notice(self, session: Session) -> bool:
        """Whether a task is about to leave for which nothing was saved yet; it waits for that."""
        leaving = session._leaving()
        if leaving <= self._saved_for:
            return False
        logging.warning("%s is about to leave: saving before that", ", ".join(sorted(leaving - self._saved_for)))
        self._saved_for = leaving
        return True

    def end(self, session: Session) -> None:
        self._finish()
        rounds = self._shards.rounds
        if rounds is not None:
            # what was asked for has been done then, or is not to be done any more
            rests = rounds.rest(_LAST_ROUND)
            if self._asked is not None:
                rounds.withdraw(self._asked)
        self._finish()
        if rounds is None or rests:
            self._save_last(session)
        else:
            waits = rounds.while_it_waits(session)
            if waits is not None:
                # one that begins meanwhile is looked at below, as if it had begun before
                with contextlib.suppress(RoundWentOn):
                    self._save_last(session, waits)
            self._end_last_round(session, rounds)
        if not is_followed(self._coord):
            self._shards.finish(session)

    def _save_last(self, session: Session, waits: WhileARoundWaits | None = None) -> None:
        if int(session.run(self._global_step)) != self._last_step:
            self._begin(session, waits)
            self._finish()

    def _end_last_round(self, session: Session, rounds: RoundsRunner) -> None:
        """Leaves a round that waits for this worker, and perhaps for others.

        It ends at once where it waits for this worker alone, and else at any time: also as the session does, by which
        it would be cut off. Then the next chief goes back to what was saved.
        """
        is_alone = rounds.leave() == 0
        if rounds.rest(_LOOK_AGAIN if is_alone else _LAST_ROUND):
            self._save_last(session)
        elif not is_alone and rounds.lease is not None:
            rounds.lease.from_the_dead = True

    def abandoned(self) -> None:
        save = self._current
        if save is not None:
            save.ended.wait(_CANCELLED)

    # ------------------------------------------------------------------ a save
    def _ask(self, session: Session) -> None:
        """Begins a save, now or after the round."""
        rounds = self._shards.rounds
        if rounds is None:
            self._begin(session)
            return

        def begin() -> None:
            if session is self._session:
                self._begin(session)

        self._asked = rounds.between_rounds(begin)

    def _begin(self, session: Session, waits: WhileARoundWaits | None = None) -> None:
        """Begins a save, and waits until it has read the model.

        If `waits` is given, the save fails where a round begins meanwhile.

        A step may update variables one after the other, and a save that reads in between would have a half of it. So
        whoever calls this (the chief's training, or what ends a round) goes on when all is read; the writing, which
        takes much longer, goes on beside it.
        """
        save = _SaveUnderWay(time.monotonic(), 0, self._steps)
        try:
            save.step = int(session.run(self._global_step))
        except Exception as error:  # the thread that trains raises it
            save.error = error
            save.ended.set()
            self._has_begun(session, save)
            return
        threading.Thread(target=self._write, args=(session, save, waits), name="checkpoint", daemon=True).start()
        with admitted():
            save.read.wait()
        save.pause = time.monotonic() - save.began
        self._has_begun(session, save)

    def _has_begun(self, session: Session, save: _SaveUnderWay) -> None:
        # a round may end, and fail, as another session is made
        if session is self._session:
            self._current = save

    def _write(self, session: Session, save: _SaveUnderWay, waits: WhileARoundWaits | None = None) -> None:
        # what saves have left that failed while a task was still writing; nobody else saves here
        checkpoint_writer.sweep_uncommitted(self._path)
        try:
            self._shards.save(session, self._path, save.step, save.read.set, waits)
        except Exception as error:
            save.error = error
        finally:
            save.read.set()
            save.ended_at = time.monotonic()
            save.ended.set()

    def _took(self, save: _SaveUnderWay) -> None:
        """Takes note of a save that has ended.

        Raises:
            OpError: what it failed with.
            RoundWentOn: it is none, for the sake of a round.
        """
        if isinstance(save.error, RoundWentOn):
            raise save.error
        if save.error is not None:
            logging.error("The checkpoint of step %d could not be saved; the one before it is as it was", save.step)
            raise save.error
        assert self._interval is not None
        now, self._last_step = save.ended_at, save.step
        self._interval.saved(save.began, now, save.pause, self._steps - save.steps, save.steps - self._steps_at_end)
        self._steps_at_end = self._steps
        logging.info(
            "Saved step %d in %.2f s, which cost %.2f s; the next checkpoint follows after %.0f s",
            save.step,
            now - save.began,
            self._interval.cost,
            self._interval.seconds(now),
        )

    def _finish(self) -> None:
        """Waits for the save that is under way."""
        save, self._current = self._current, None
        if save is not None:
            with admitted():
                save.ended.wait()
            self._took(save)
