"""The worker protocol as messages: a service beside the worker; `runtime.remote_worker` is the other end.

The two know nothing of each other but bytes (`runtime.messages.Frames`), so that whatever carries bytes carries steps.
One message opens a session, one registers a partition, one runs it; each is answered by one reply. Two are not: the one
that gives a step up, and the one that carries a tensor from task to task.
"""

from __future__ import annotations

import functools
import json
import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from google.protobuf.message import DecodeError

from anabranch.core.dtypes import bfloat16
from anabranch.core.values import TensorValue
from anabranch.errors import (
    AbortedError,
    AlreadyExistsError,
    CancelledError,
    FailedPreconditionError,
    NotFoundError,
    OpError,
    UnavailableError,
    UnknownError,
)
from anabranch.placement.policy import PlacementPolicy
from anabranch.proto.config_pb2 import ConfigProto
from anabranch.proto.step_plan_pb2 import (
    OpenSession,
    TaskDescription,
    WorkerReply,
    WorkerRequest,
)
from anabranch.runtime.bound_partition import BoundPartition
from anabranch.runtime.item_call import ItemEvent
from anabranch.runtime.known_starts import KnownStarts
from anabranch.runtime.local_worker import LocalTask, LocalWorkerSession, placer_for
from anabranch.runtime.messages import (
    Frames,
    error_from_proto,
    error_to_proto,
    event_to_proto,
    malformed,
)
from anabranch.runtime.protocols import LinkTraffic, RegisteredPartition
from anabranch.runtime.published_messages import published_to_proto
from anabranch.runtime.published_values import BoardMemory
from anabranch.runtime.rendezvous import Rendezvous
from anabranch.runtime.rendezvous_table import DEAD, Dead, Key
from anabranch.runtime.served_sessions import Asked, ServedSession, ServedTask, SessionOpener, TaskSession, open_here
from anabranch.runtime.step_messages import (
    NOTHING_FETCHED,
    SentTensor,
    StepMessage,
    StepStart,
    decode_start,
    decode_transfer,
    encode_done,
    encode_transfer,
    kind_of,
)
from anabranch.runtime.task_reports import activity, described
from anabranch.runtime.task_sessions import (
    BeginLease,
    EndLease,
    Instruction,
    Refuse,
    SessionLease,
    TaskSessions,
    Tell,
    Watcher,
)
from anabranch.runtime.worker_threads import worker_threads
from anabranch.xla.partition_codec import partition_from_proto
from anabranch.xla.partitions import Partition

_log = logging.getLogger(__name__)


# ---------------------------------------------------------------------- beside the worker
#: runs what may take a while, not on the thread that calls
Submit = Callable[[Callable[[], None]], object]


class _Opening(NamedTuple):
    """What to do for a lease that is to begin.

    Attributes:
        open: opens the session.
        on_opened: told the session, or why there is none.
    """

    open: Callable[[], ServedSession]
    on_opened: Callable[[ServedSession | Exception], None]


class WorkerService:
    """Does what messages ask of the worker of this process. Thread-safe.

    #: A message that is malformed, or asks for what is not there, is answered by an error and changes nothing.
    #: The lock guards the table of sessions only; nothing is called under it.

    Args:
        task: the task that this process is; None: sessions say of which local task they are.
        post: sends a message to a task with an address.
        opener: opens the sessions of the task.
        submit: where sessions are opened and ended, and partitions bound.
        traffic: says what went between this process and others.
        make_board: makes memory that other processes of the host can map; None where there is none.
    """

    def __init__(
        self,
        task: ServedTask | None = None,
        post: Callable[[str, Frames], None] | None = None,
        opener: SessionOpener = open_here,
        submit: Submit = worker_threads.submit,
        traffic: Callable[[], Sequence[LinkTraffic]] = tuple,
        make_board: Callable[[], BoardMemory | None] = lambda: None,
    ) -> None:
        self._lock = threading.Lock()
        self._sessions: TaskSessions[ServedSession] = TaskSessions()
        self._openings: dict[SessionLease[ServedSession], _Opening] = {}
        self._task, self._post = task, post
        self._opener, self._submit = opener, submit
        self._traffic = traffic
        self._make_board = make_board
        #: Whether the task has ended, and nobody works for a session any more. Set once.
        self._is_closed = False
        self._known = KnownStarts()

    def handle(self, frames: Frames) -> Frames:
        """The reply to a message; what waits in a step waits here."""
        try:
            if kind_of(frames) is StepMessage.START:
                return self._run(decode_start(frames))
            request = _request(frames)
            if request.WhichOneof("kind") == "open":
                self._opened_here(SessionLease(request.session, "", {}), self._opening(request.session, request.open))
                return _reply(WorkerReply())
            return _reply(self._do(request))
        except Exception as error:  # whatever it is, the master has to know
            return self._refusal(error)

    def start(self, frames: Frames, on_reply: Callable[[Frames], None], owner: str = "") -> None:
        """Begins what a message asks for, and returns at once; a step that waits holds no thread.

        Args:
            owner: who asks. Its sessions end with it (`lost`).
        """
        try:
            if self._known.run(owner, frames, functools.partial(self._answer, on_reply, ())):
                return
            if kind_of(frames) is StepMessage.START:
                self._start(owner, frames, on_reply)
                return
            request = _request(frames)
            kind = request.WhichOneof("kind")
            if kind == "open":
                # the lease is known from now on: its owner may be lost before the session is opened
                lease: SessionLease[ServedSession] = SessionLease(request.session, owner, dict(request.open.address))
                opening = self._opening(request.session, request.open)
                self._ask(lease, _Opening(opening, lambda outcome: on_reply(_opened(outcome))))
            elif kind == "watch":
                self.watch(request.session, lambda tasks: on_reply(_reply(WorkerReply(lost_task=tasks))))
            elif kind == "release":
                on_reply(self._answered(request))
            else:
                # it may take a while, and the caller may be the thread that receives
                self._submit(lambda: on_reply(self._answered(request)))
        except Exception as error:
            on_reply(self._refusal(error))

    def _start(self, owner: str, frames: Frames, on_reply: Callable[[Frames], None]) -> None:
        run = decode_start(frames)
        served = self._served(run.session)
        partition = _registered(served, run.session, run.partition)
        rendezvous = served.session.rendezvous
        if run.first_step:
            rendezvous.end_below(run.session, run.first_step)
        if run.read_ahead:
            sent = [(one.key, _value_of(one)) for one in run.sent]
            answer = functools.partial(self._answer, on_reply, ())
            if not self._known.begin(owner, frames, run, served, sent, answer):
                _published(partition).start_read_ahead(run.step, run.feeds, answer, run.timeout, sent, run.rows_taken)
            return
        for one in run.sent:
            _deliver(rendezvous, one)
        events = list[ItemEvent]()
        partition.start(
            run.step,
            run.feeds,
            functools.partial(self._answer, on_reply, events),
            run.timeout,
            events.append if run.recorded else None,
        )

    def _answered(self, request: WorkerRequest) -> Frames:
        try:
            return _reply(self._do(request))
        except Exception as error:  # whatever it is, the master has to know
            return self._refusal(error)

    def _answer(
        self,
        on_reply: Callable[[Frames], None],
        events: Sequence[ItemEvent],
        outcome: Sequence[TensorValue] | BaseException,
    ) -> None:
        if self._is_closed and isinstance(outcome, Exception):
            on_reply(self._refusal(outcome, events))
        else:
            on_reply(_outcome(outcome, events))

    def _refusal(self, error: Exception, events: Sequence[ItemEvent] = ()) -> Frames:
        """The reply that says why; a task that has ended is lost to its masters, whatever its sessions say of that."""
        if self._is_closed and self._task is not None and isinstance(error, CancelledError | NotFoundError):
            error = UnavailableError(None, None, f"{self._task.name} has ended: its server was stopped")
        return _outcome(error, events)

    def accept(self, frames: Frames) -> None:
        """Takes a message that is not answered; one that is malformed, or comes too late, is dropped."""
        try:
            if kind_of(frames) is StepMessage.TRANSFER:
                transfer = decode_transfer(frames)
                with self._lock:
                    served = self._sessions.at(transfer.key.step.session)
                if served is not None:
                    _deliver(served.session.rendezvous, transfer)
                return
            request = _request(frames)
            with self._lock:
                served = self._sessions.at(request.session)
            if served is not None and request.WhichOneof("kind") == "abort":
                error = error_from_proto(request.abort.error, {})
                known = error if isinstance(error, OpError) else UnknownError(None, None, str(error))
                served.session.abort(request.abort.number, known)
        # nobody waits for an answer to such a message, so that the log is the only one who can be told
        except (OpError, TypeError, ValueError):
            _log.warning("dropped a message between tasks that is malformed, or came twice", exc_info=True)

    # ------------------------------------------------------------------ sessions
    def open(self, name: str, asked: Asked, addresses: Mapping[str, str]) -> TaskSession:
        """Opens a session of the task that this process is, for a master of this process.

        Args:
            addresses: of the tasks that work for it, by their full names.
        """
        served = self._opened_here(
            SessionLease(name, "", addresses), lambda: self._served_by_task(name, asked, addresses)
        )
        return served.session

    def lost(self, owner: str, task: str = "") -> None:
        """Ends the sessions of a process that is gone, if it was a master; what it shared with others stays.

        Args:
            owner: its address.
            task: the full name of the task that it was as well. Masters that watch are told.
        """
        with self._lock:
            instructions = self._sessions.lost(owner, task)
        self._follow(instructions)

    def watch(self, name: str, watcher: Watcher) -> None:
        """Tells the master of a session, once, when a task of it was lost to this one, or the session is over here."""
        with self._lock:
            instructions = self._sessions.watch(name, watcher)
        self._follow(instructions)

    def relocate(self, name: str, task: str, address: str) -> None:
        """What a session sends to a task goes to another address from now on."""
        with self._lock:
            served = self._sessions.relocate(name, task, address)
        if served is not None:
            served.relocate(task, address)

    def leaving(self) -> None:
        """Tells the masters that watch that this task is about to end."""
        if self._task is not None:
            with self._lock:
                instructions = self._sessions.leaving(self._task.name)
            self._follow(instructions)

    @property
    def has_sessions(self) -> bool:
        """Whether a session is open."""
        with self._lock:
            return bool(self._sessions.open)

    def close(self) -> None:
        """Ends all sessions: their steps are cancelled, which is a lost task to masters of other processes."""
        self._is_closed = True
        with self._lock:
            sessions = self._sessions.open
            instructions = [one for lease in sessions for one in self._sessions.give_up(lease.name)]
        for instruction in instructions:
            # on this thread: the steps have been cancelled when this returns
            self._end(instruction.lease) if isinstance(instruction, EndLease) else self._follow([instruction])

    def _ask(self, lease: SessionLease[ServedSession], opening: _Opening) -> None:
        with self._lock:
            self._openings[lease] = opening
            instructions = self._sessions.asked(lease)
        self._follow(instructions)

    def _follow(self, instructions: Sequence[Instruction[ServedSession]]) -> None:
        for instruction in instructions:
            match instruction:
                case BeginLease(lease):
                    self._submit(functools.partial(self._begin, lease))
                case EndLease(lease):
                    # who says so must not wait: closing runs what waits for the steps that end
                    self._submit(functools.partial(self._end, lease))
                case Refuse(lease):
                    error = AbortedError(
                        None, None, f"session {lease.name!r} was asked for anew, or its master is lost"
                    )
                    self._openings.pop(lease).on_opened(error)
                case Tell(watcher, tasks):
                    watcher(tasks)

    def _begin(self, lease: SessionLease[ServedSession]) -> None:
        # without the lock: a lease either begins or is refused, and that once, so that nobody else takes its entry
        opening = self._openings.pop(lease)
        try:
            served: ServedSession | Exception = opening.open()
        except Exception as error:  # whatever it is, the master has to know
            served = error
        with self._lock:
            instructions = (
                self._sessions.not_begun(lease)
                if isinstance(served, Exception)
                else self._sessions.begun(lease, served)
            )
        self._follow(instructions)
        opening.on_opened(served)

    def _end(self, lease: SessionLease[ServedSession]) -> None:
        # only a lease that was open is ended, or one that `begun` has just given what it holds
        assert lease.held is not None
        self._known.forget()
        lease.held.end(functools.partial(self._ended, lease))

    def _ended(self, lease: SessionLease[ServedSession]) -> None:
        with self._lock:
            instructions = self._sessions.ended(lease)
        self._follow(instructions)

    def _opened_here(self, lease: SessionLease[ServedSession], open_: Callable[[], ServedSession]) -> ServedSession:
        """Opens a session on this thread.

        Raises:
            AlreadyExistsError: there is one of that name.
        """
        outcome: list[ServedSession | Exception] = []
        with self._lock:
            instructions = self._sessions.asked(lease)
            self._openings[lease] = _Opening(open_, outcome.append)
            is_first = instructions == [BeginLease(lease)]
        if not is_first:
            self._follow(instructions)
            raise AlreadyExistsError(None, None, f"there is a session {lease.name!r} already; take another name")
        self._begin(lease)
        (served,) = outcome
        if isinstance(served, Exception):
            raise served
        return served

    def _opening(self, name: str, asked: OpenSession) -> Callable[[], ServedSession]:
        config, policy = ConfigProto(), PlacementPolicy.from_mapping(json.loads(asked.policy))
        config.MergeFromString(asked.config)
        addresses = dict(asked.address)
        if addresses:
            return lambda: self._served_by_task(
                name, Asked(config, policy, asked.first_step, is_remote=True), addresses
            )
        task = LocalTask.named(asked.task) if asked.is_shared else None
        return lambda: ServedSession(LocalWorkerSession(name, task, placer_for(config, policy)), {})

    def _served_by_task(self, name: str, asked: Asked, addresses: Mapping[str, str]) -> ServedSession:
        assert self._task is not None
        session = self._opener(name, self._task, asked)
        session.rendezvous.outlet = self._send_away
        return ServedSession(session, addresses, asked.config.graph_options.enable_bfloat16_sendrecv)

    def _send_away(self, key: Key, value: TensorValue | Dead) -> None:
        """Sends a tensor to the task that its step's session knows by the name of its destination."""
        assert self._post is not None
        served = self._served(key.step.session)
        address = served.address_of(key.destination)
        if isinstance(value, Dead):
            frames = encode_transfer(key, None)
        elif served.halves and getattr(value, "dtype", None) == np.float32:
            frames = encode_transfer(key, np.asarray(value).astype(bfloat16.as_numpy_dtype), is_halved=True)
        else:
            frames = encode_transfer(key, value)
        self._post(address, frames)

    def rendezvous_of(self, session: str) -> Rendezvous:
        """Where the tensors of a session's steps meet here.

        Raises:
            NotFoundError: this task does not work for it.
        """
        return self._served(session).session.rendezvous

    # ------------------------------------------------------------------ what messages ask for
    def _do(self, request: WorkerRequest) -> WorkerReply:
        kind, reply = request.WhichOneof("kind"), WorkerReply()
        if kind == "close":
            self._close(request.session, request.close.forgotten)
            return reply
        if kind == "describe":
            reply.description.CopyFrom(self.description())
            return reply
        if kind == "activity":
            reply.activity.CopyFrom(activity(self._task, self._traffic(), request.activity.variable))
            return reply
        if kind == "reset":
            if self._task is not None:
                self._task.state.containers.reset(request.reset.container)
            return reply
        self._do_in_session(kind, request, reply)
        return reply

    def _do_in_session(self, kind: str | None, request: WorkerRequest, reply: WorkerReply) -> None:
        served = self._served(request.session)
        if kind == "register":
            registered = served.session.register(self._own(partition_from_proto(request.register.partition)))
            served.partitions[request.register.number] = registered
            if served.is_closed:  # asked now, for it may have been closed while the partition was bound
                served.close()
                raise _closed(request.session)
        elif kind == "relocate":
            self.relocate(request.session, request.relocate.task, request.relocate.address)
        elif kind == "publish":
            partition = self._partition(request.session, request.publish.partition)
            # what goes as bfloat16 does not go as it is shown
            known = partition if isinstance(partition, BoundPartition) and not served.halves else None
            published = None if known is None else known.publish(request.publish.reader, self._make_board)
            if published is not None:
                reply.published.CopyFrom(published_to_proto(published))
        elif kind == "release":
            released = served.partitions.get(request.release.partition)
            if released is not None:
                released.release()
            # one that is only released is bound still, and compiles anew if it is run
            if request.release.forgotten:
                served.partitions.pop(request.release.partition, None)
                self._known.forget()

    def _own(self, partition: Partition) -> Partition:
        """The partition, if it is for the task that this process is."""
        # an address may have become another task's since the master asked who is there
        if self._task is not None and partition.task != self._task.name:
            raise UnavailableError(
                None,
                None,
                f"{self._task.name} was asked to do what {partition.task} is to do: it has that one's address; start "
                "that one there, or make the session anew where the cluster's addresses have changed",
            )
        return partition

    def _close(self, name: str, forgotten: bool) -> None:
        """Ends a session. One that is closed is kept until it is forgotten, to refuse the steps that come late."""
        with self._lock:
            served = self._sessions.at(name)
            instructions = self._sessions.give_up(name) if forgotten else []
        if forgotten:
            self._follow(instructions)
        elif served is not None:
            served.close()

    def description(self) -> TaskDescription:
        """What the task that this process is says of itself.

        Raises:
            NotFoundError: it is none.
        """
        return described(self._task)

    def _served(self, name: str) -> ServedSession:
        with self._lock:
            served = self._sessions.at(name)
        if served is None:
            raise NotFoundError(None, None, f"this task does not work for a session {name!r}; open it first")
        return served

    def _partition(self, session: str, number: int) -> RegisteredPartition:
        return _registered(self._served(session), session, number)

    def _run(self, run: StepStart) -> Frames:
        events = list[ItemEvent]()
        partition = self._partition(run.session, run.partition)
        if run.read_ahead or run.sent:
            raise FailedPreconditionError(None, None, "what is waited for here brings nothing along; start it instead")
        record = events.append if run.recorded else None
        try:
            outcome: Sequence[TensorValue] | Exception = partition.run(run.step, run.feeds, record, run.timeout)
        except Exception as error:
            # its frames hold what the step held, a lock for instance, and this one would hold them for long
            outcome = error.with_traceback(None)
        return _outcome(outcome, events)


def _registered(served: ServedSession, session: str, number: int) -> RegisteredPartition:
    partition = served.partitions.get(number)
    if partition is None and served.is_closed:
        raise _closed(session)
    if partition is None:
        raise NotFoundError(None, None, f"session {session!r} has no partition {number} here; register it first")
    return partition


def _published(partition: RegisteredPartition) -> BoundPartition:
    if not isinstance(partition, BoundPartition):
        raise FailedPreconditionError(None, None, "nobody reads for this partition; start it as it is")
    return partition


def _closed(session: str) -> CancelledError:
    return CancelledError(None, None, f"the step cannot begin: its session was closed ({session}); open another")


def _deliver(rendezvous: Rendezvous, transfer: SentTensor) -> None:
    """Gives what another task sent to the step that it is for."""
    rendezvous.arrive(transfer.key, _value_of(transfer), transfer.size)


def _value_of(transfer: SentTensor) -> TensorValue | Dead:
    value = DEAD if transfer.value is None else transfer.value
    return np.asarray(value).astype(np.float32) if transfer.is_halved else value


def _request(frames: Frames) -> WorkerRequest:
    try:
        return WorkerRequest.FromString(bytes(frames[0]))
    except (DecodeError, IndexError) as error:
        raise malformed(error) from error


def _outcome(outcome: Sequence[TensorValue] | BaseException, events: Sequence[ItemEvent]) -> Frames:
    if not events and isinstance(outcome, list) and not outcome:
        return NOTHING_FETCHED
    reply = WorkerReply(event=[event_to_proto(event) for event in events])
    if not isinstance(outcome, BaseException):
        try:
            return encode_done(outcome, reply.SerializeToString() if events else b"")
        except Exception as error:  # a value that cannot be sent
            outcome = error
    known = outcome if isinstance(outcome, Exception) else UnknownError(None, None, repr(outcome))
    reply.error.CopyFrom(error_to_proto(known))
    return _reply(reply)


def _opened(outcome: ServedSession | Exception) -> Frames:
    return _reply(WorkerReply(error=error_to_proto(outcome)) if isinstance(outcome, Exception) else WorkerReply())


def _reply(reply: WorkerReply) -> Frames:
    return [reply.SerializeToString()]
