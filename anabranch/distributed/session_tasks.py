"""The tasks of a cluster as the master of one session knows them, and what is registered there (§3.3)."""

from __future__ import annotations

import functools
import logging
import threading
from collections.abc import Collection, Sequence
from typing import NamedTuple, Protocol

from anabranch.core.values import TensorValue
from anabranch.distributed.network import TaskConnection
from anabranch.errors import (
    AbortedError,
    CancelledError,
    DeadlineExceededError,
    NotFoundError,
    OpError,
    UnavailableError,
)
from anabranch.runtime.protocols import RegisteredPartition, WorkerSession
from anabranch.runtime.task_sessions import Watcher
from anabranch.xla.partitions import Partition

_log = logging.getLogger(__name__)


class MasterOfTasks(Protocol):
    """What a task needs of the master of its session.

    Attributes:
        reopens: whether the session is opened on a process that has taken a task over.
    """

    reopens: bool

    def open_on(self, address: str, watcher: Watcher) -> WorkerSession:
        """Opens the session on a task; the watcher is told of other tasks that were lost to it.

        Raises:
            OpError: the task does not answer, or refuses.
        """

    def find(self, name: str, address: str, left: Collection[int]) -> tuple[str, int]:
        """Where a task is now, and which process it is.

        Args:
            address: where it was.
            left: processes that it was before, and is no more, though they may answer.

        Raises:
            UnavailableError: it cannot be reached, or another task is at its address.
            OpError: whoever is there refuses this process.
        """

    def moved(self, name: str, address: str) -> None:
        """A task is at another address than where it was when the session was made."""

    def connection(self, address: str) -> TaskConnection | None:
        """The way to a task; None where it is this process."""

    def lost(self, task: str, error: OpError) -> None:
        """A task is lost."""

    def parted(self, task: str, others: Sequence[str]) -> None:
        """Tasks were lost to a task."""


class TaskOfSession:
    """A task as one session knows it: the session's part there, which is opened anew where the task has come back.

    A session learns once of each process that takes a task over, by an AbortedError: what the task held is gone, or is
    what a checkpoint had, so that the program should know before it goes on. Where several threads run steps, one of
    them hears it. So a session whose owner gives tasks their values back is never opened there: each step fails that
    needs the task, whoever runs it, until the owner has made another session.

    Attributes:
        epoch: grows whenever the task was lost: what was registered before is not there any more.
        is_here: whether the task is this process.
    """

    def __init__(self, master: MasterOfTasks, name: str, address: str, incarnation: int) -> None:
        self.name, self.address = name, address
        self._incarnation = incarnation
        self.epoch = 0
        self._master = master
        self._lock = threading.Lock()
        #: with the epoch that it belongs to: one that was opened too late for its epoch is never used
        self._opened: tuple[int, WorkerSession] | None = None
        connection = master.connection(address)
        self.is_here = connection is None
        # before the session is opened: a task that is lost right after that must be known to be
        self._withdraw = nothing if connection is None else connection.on_lost(self._lost)
        self._has_moved = False
        #: who were the task before: one may wake, and another task may know its address only
        self._left: set[int] = set()
        try:
            self.session()
        # who made it gets no object that could withdraw this later
        except BaseException:
            self._withdraw()
            raise

    def _lost(self, error: OpError) -> None:
        # without the lock: whoever opens a session holds it while it waits for an answer
        # first: whoever runs its step again because the master says so must not find what was open before
        self.epoch += 1
        self._master.lost(self.name, error)

    @property
    def _session(self) -> WorkerSession | None:
        """The session's part on the task, if it is open there."""
        opened = self._opened
        return opened[1] if opened is not None and opened[0] == self.epoch else None

    def session(self) -> tuple[int, WorkerSession]:
        """The session's part on the task, and the epoch that it belongs to.

        Raises:
            AbortedError: another process has become the task; what it is asked next, it does, if sessions are opened
                anew there.
            OpError: the task does not answer, or refuses.
        """
        # held while the task answers: whoever else needs the session waits for it, and does not open another
        with self._lock:
            # read once: the task may be lost at any time, which does not wait for the lock
            epoch, opened = self.epoch, self._opened
            if opened is None or opened[0] != epoch:
                if epoch > 0:
                    self._check_server()
                    self._check_incarnation()
                session = self._master.open_on(self.address, functools.partial(self._parted, epoch))
                opened = self._opened = epoch, session
            return opened

    def _check_server(self) -> None:
        if self.is_here and self._master.connection(self.address) is not None:
            raise self._stopped()

    def _stopped(self) -> CancelledError:
        return CancelledError(None, None, f"the server of {self.name}, one of this process, was stopped; make another")

    def _check_incarnation(self) -> None:
        address, now = self._master.find(self.name, self.address, self._left)
        if address != self.address:
            self._move(address)
        if self._has_moved:
            # each time: another task may have been lost when it was to be told
            self._master.moved(self.name, address)
        if now != self._incarnation:
            # noted before the error: the next attempt takes the new process as it is, since the program has been told
            if self._master.reopens:
                self._left.add(self._incarnation)
                self._incarnation = now
            raise AbortedError(
                None,
                None,
                f"{self.name} has come back as another process: its variables have no values, or those of a "
                "checkpoint. Restore them and run the step again (tf.train.MonitoredTrainingSession does)",
            )

    def _move(self, address: str) -> None:
        """Goes on with another address."""
        _log.info("%s is at %s now, and not at %s any more", self.name, address, self.address)
        connection = self._master.connection(address)
        self._withdraw()
        self.address, self._has_moved, self.is_here = address, True, connection is None
        self._withdraw = nothing if connection is None else connection.on_lost(self._lost)

    def _parted(self, epoch: int, others: Sequence[str]) -> None:
        """Tasks were lost to this one, or the session is over there."""
        if self.epoch != epoch:
            return
        if others:
            self._master.parted(self.name, others)
        elif self.is_here:
            # before others notice that it is gone: the step is cancelled, and must not be run again
            self._lost(self._stopped())

    @property
    def is_open(self) -> bool:
        """Whether the session is open there, as far as is known."""
        return self._session is not None

    def abort(self, number: int, error: OpError) -> None:
        """Gives a step up there."""
        session = self._session
        if session is None:
            return
        try:
            session.abort(number, error)
        # a task that cannot be told has lost the session, or loses it with the link, and the step with it
        except OpError:
            _log.debug("could not tell %s that step %d is given up", self.name, number, exc_info=True)

    def close(self) -> None:
        """Ends the session there; a task that is lost has none."""
        self._withdraw()
        session = self._session
        if session is None:
            return
        try:
            session.close()
            session.forget()
        # a task that is gone, or does not answer, has no session any more or ends it with the link; any other
        # error is one of closing
        except (UnavailableError, AbortedError, DeadlineExceededError, CancelledError):
            _log.debug("could not close the session on %s", self.name, exc_info=True)

    def forget(self) -> None:
        """Likewise, without waiting for an answer."""
        self._withdraw()
        session = self._session
        if session is not None:
            try:
                session.forget()
            except OpError:
                _log.debug("could not end the session on %s", self.name, exc_info=True)


def nothing() -> None:
    """Withdraws what was never given."""


class Part:
    """A partition of a step, where it is registered."""

    __slots__ = ("_known", "partition", "task")

    def __init__(self, task: TaskOfSession, partition: Partition) -> None:
        self.task, self.partition = task, partition
        self._known: Registered | None = None

    @property
    def registered(self) -> Registered | None:
        """The partition at the task, if it is registered there."""
        known = self._known
        # no lock: an epoch only grows, so that what is read too early is found out when the task answers
        # (`NotFoundError`)
        return known if known is not None and known.epoch == self.task.epoch else None

    def own_feeds(self, feeds: Sequence[TensorValue]) -> list[TensorValue]:
        """Those of a step's feeds that the partition takes; the others go to other tasks, or to none."""
        positions = self.partition.feed_positions
        return [feeds[i] for i in positions] if positions else []

    def ready(self) -> Registered:
        """The partition at the task; registered anew where the task has come back.

        Raises:
            AbortedError: the task was lost meanwhile, and another process, which knows no such session, has answered.
            OpError: the task refuses it, or does not answer.
        """
        known = self._known
        # `registered`, written out: each step asks this of each part
        if known is None or known.epoch != self.task.epoch:
            epoch, session = self.task.session()
            try:
                registered = session.register(self.partition)
            except NotFoundError as error:
                if epoch == self.task.epoch:
                    raise
                raise link_failed(self.task.name) from error
            # at once, for others that run the step: an epoch belongs to its registration
            known = self._known = Registered(epoch, registered)
        return known


def link_failed(task: str) -> AbortedError:
    """What a step fails with that reached the task after the session was lost there, which the task does not say."""
    return AbortedError(None, None, f"the link to {task} failed as the step began; run it again")


class Registered(NamedTuple):
    """What a task has registered, and the epoch that it belongs to."""

    epoch: int
    partition: RegisteredPartition
