"""The worker protocol as messages: a service beside the worker, and what stands for the worker beside the master.

The two know nothing of each other but bytes (`runtime.messages.Frames`), so that whatever carries bytes carries steps.
One message opens a session, one registers a partition, one runs it; each is answered by one reply. Two are not: the one
that gives a step up, and the one that carries a tensor from task to task.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import logging
import threading
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from google.protobuf.message import DecodeError

from anabranch.core.devices import task_of
from anabranch.core.dtypes import bfloat16
from anabranch.core.values import TensorValue
from anabranch.errors import NotFoundError, OpError, UnavailableError, UnknownError
from anabranch.graph.step_nodes import StepNode
from anabranch.placement.policy import PlacementPolicy
from anabranch.proto.config_pb2 import ConfigProto
from anabranch.proto.step_plan_pb2 import (
    DeviceDef,
    OpenSession,
    TaskDescription,
    WorkerReply,
    WorkerRequest,
)
from anabranch.runtime.devices import session_devices
from anabranch.runtime.item_call import ItemEvent, Recorder
from anabranch.runtime.local_worker import LocalTask, LocalWorkerSession, placer_for
from anabranch.runtime.messages import (
    Frames,
    error_from_proto,
    error_to_proto,
    event_from_proto,
    event_to_proto,
    malformed,
    nodes_by_origin,
)
from anabranch.runtime.protocols import OnDone, RegisteredPartition
from anabranch.runtime.rendezvous import DEAD, Dead, Key
from anabranch.runtime.step_messages import (
    SentTensor,
    StepMessage,
    StepStart,
    decode_done,
    decode_start,
    decode_transfer,
    encode_done,
    encode_start,
    encode_transfer,
    kind_of,
)
from anabranch.runtime.worker_threads import worker_threads
from anabranch.xla.partition_codec import partition_from_proto, partition_to_proto
from anabranch.xla.partitions import Partition

_log = logging.getLogger(__name__)


#: of all sessions of this process, so that a worker that comes back knows none of those that it had
_partition_numbers = itertools.count(1)


class Transport(Protocol):
    """Carries a message to a worker's service, and its reply back."""

    def call(self, frames: Frames) -> Frames:
        """Sends a message, and waits for the reply."""

    def start(self, frames: Frames, on_reply: Callable[[Frames | OpError], None]) -> None:
        """Sends a message, and returns; `on_reply` gets the reply, or why there is none, on whichever thread."""

    def post(self, frames: Frames) -> None:
        """Sends a message that is not answered.

        Raises:
            OpError: it cannot be sent.
        """


# ---------------------------------------------------------------------- beside the worker
@dataclass(frozen=True, slots=True)
class ServedTask:
    """The task of a cluster that a process is.

    Attributes:
        name: its full name.
        state: what it holds.
        addresses: of all tasks of the cluster, by their full names.
        config: what sessions get that are opened without a configuration.
        incarnation: tells it from tasks that had the same name before.
    """

    name: str
    state: LocalTask
    addresses: Mapping[str, str]
    config: ConfigProto
    incarnation: int


class _ServedSession:
    """A session, and its partitions by the numbers that the master knows them by.

    Attributes:
        addresses: of the tasks that work for it, by their full names.
        owner: whose end is its end too.
        halves: whether float32 tensors go to other tasks as bfloat16.
    """

    def __init__(
        self, session: LocalWorkerSession, addresses: Mapping[str, str], owner: str = "", halves: bool = False
    ) -> None:
        self.session = session
        self.addresses = addresses
        self.owner = owner
        self.halves = halves
        self.partitions: dict[int, RegisteredPartition] = {}


class WorkerService:
    """Does what messages ask of the worker of this process. Thread-safe.

    #: A message that is malformed, or asks for what is not there, is answered by an error and changes nothing.

    Args:
        task: the task that this process is; None: sessions say of which local task they are.
        post: sends a message to a task with an address.
    """

    def __init__(self, task: ServedTask | None = None, post: Callable[[str, Frames], None] | None = None) -> None:
        self._lock = threading.Lock()
        self._sessions: dict[str, _ServedSession] = {}
        self._task, self._post = task, post

    def handle(self, frames: Frames) -> Frames:
        """The reply to a message; what waits in a step waits here."""
        try:
            if kind_of(frames) is StepMessage.START:
                return self._run(decode_start(frames))
            request = _request(frames)
            return _reply(self._do(request, ""))
        except Exception as error:  # whatever it is, the master has to know
            return _reply(WorkerReply(error=error_to_proto(error)))

    def _answered(self, request: WorkerRequest, owner: str) -> Frames:
        try:
            return _reply(self._do(request, owner))
        except Exception as error:  # whatever it is, the master has to know
            return _reply(WorkerReply(error=error_to_proto(error)))

    def lost(self, owner: str, task: str = "") -> None:
        """Ends the sessions of a process that is gone, if it was a master; what it shared with others stays.

        Args:
            task: the full name of the task that it was as well. Steps that wait for what it sends are given up.
        """
        with self._lock:
            containers = {id(one.session.containers): one.session.containers for one in self._sessions.values()}
        if task:
            error = UnavailableError(None, None, f"{task} was lost, or the link to it, and this step waits for it")
            for one in containers.values():
                one.rendezvous.abort_from(task, error)
        with self._lock:
            names = [name for name, served in self._sessions.items() if served.owner == owner]
            sessions = [self._sessions.pop(name) for name in names]
        if sessions:
            # who tells this must not wait: closing runs what waits for the steps that end
            worker_threads.submit(lambda: _close_all(sessions))

    def start(self, frames: Frames, on_reply: Callable[[Frames], None], owner: str = "") -> None:
        """Begins what a message asks for, and returns at once; a step that waits holds no thread.

        Args:
            owner: who asks. Its sessions end with it (`lost`).
        """
        try:
            if kind_of(frames) is not StepMessage.START:
                request = _request(frames)
                if request.WhichOneof("kind") == "release":
                    on_reply(self._answered(request, owner))
                else:
                    # it may take a while, and the caller may be the thread that receives
                    worker_threads.submit(lambda: on_reply(self._answered(request, owner)))
                return
            run, events = decode_start(frames), list[ItemEvent]()
            partition = self._partition(run.session, run.partition)
        except Exception as error:
            on_reply(_reply(WorkerReply(error=error_to_proto(error))))
            return
        partition.start(
            run.step,
            run.feeds,
            lambda outcome: on_reply(_outcome(outcome, events)),
            run.timeout,
            events.append if run.recorded else None,
        )

    def accept(self, frames: Frames) -> None:
        """Takes a message that is not answered; one that is malformed, or comes too late, is dropped."""
        try:
            if kind_of(frames) is StepMessage.TRANSFER:
                transfer = decode_transfer(frames)
                with self._lock:
                    served = self._sessions.get(transfer.key.step.session)
                if served is not None:
                    _deliver(served.session, transfer)
                return
            request = _request(frames)
            with self._lock:
                served = self._sessions.get(request.session)
            if served is not None and request.WhichOneof("kind") == "abort":
                error = error_from_proto(request.abort.error, {})
                known = error if isinstance(error, OpError) else UnknownError(None, None, str(error))
                served.session.abort(request.abort.number, known)
        except (OpError, TypeError, ValueError):
            _log.warning("dropped a message between tasks that is malformed, or came twice", exc_info=True)

    def open(
        self,
        name: str,
        config: ConfigProto,
        policy: PlacementPolicy,
        addresses: Mapping[str, str],
        owner: str = "",
    ) -> LocalWorkerSession:
        """Opens a session of the task that this process is.

        Args:
            addresses: of the tasks that work for it, by their full names.
            owner: see `start`.
        """
        assert self._task is not None
        placer = placer_for(config, policy, session_devices(config, self._task.name))
        task = None if config.isolate_session_state else self._task.state
        session = LocalWorkerSession(name, task, placer, is_shared=True)
        session.containers.rendezvous.outlet = self._send_away
        with self._lock:
            halves = config.graph_options.enable_bfloat16_sendrecv
            self._sessions[name] = _ServedSession(session, addresses, owner, halves)
        return session

    def _send_away(self, key: Key, value: TensorValue | Dead) -> None:
        """Sends a tensor to the task that its step's session knows by the name of its destination."""
        assert self._post is not None
        served = self._served(key.step.session)
        address = served.addresses[task_of(key.destination)]
        if isinstance(value, Dead):
            frames = encode_transfer(key, None)
        elif served.halves and getattr(value, "dtype", None) == np.float32:
            frames = encode_transfer(key, np.asarray(value).astype(bfloat16.as_numpy_dtype), is_halved=True)
        else:
            frames = encode_transfer(key, value)
        self._post(address, frames)

    def close(self) -> None:
        """Ends all sessions: their steps are cancelled."""
        with self._lock:
            sessions = list(self._sessions.values())
            self._sessions.clear()
        _close_all(sessions)

    def _do(self, request: WorkerRequest, owner: str) -> WorkerReply:
        kind, reply = request.WhichOneof("kind"), WorkerReply()
        if kind == "open":
            self._open(request.session, request.open, owner)
            return reply
        if kind == "close":
            self._close(request.session, request.close.forgotten)
            return reply
        if kind == "describe":
            reply.description.CopyFrom(self.description())
            return reply
        if kind == "reset":
            if self._task is not None:
                self._task.state.containers.reset(request.reset.container)
            return reply
        served = self._served(request.session)
        if kind == "register":
            registered = served.session.register(partition_from_proto(request.register.partition))
            served.partitions[request.register.number] = registered
        elif kind == "release":
            released = served.partitions.get(request.release.partition)
            if released is not None:
                released.release()
            # one that is only released is bound still, and compiles anew if it is run
            if request.release.forgotten:
                served.partitions.pop(request.release.partition, None)
        return reply

    def _close(self, name: str, forgotten: bool) -> None:
        """Ends a session. One that is closed is kept until it is forgotten, to refuse the steps that come late."""
        with self._lock:
            served = self._sessions.pop(name, None) if forgotten else self._sessions.get(name)
        if served is not None:
            served.session.forget() if forgotten else served.session.close()

    def _open(self, name: str, asked: OpenSession, owner: str) -> None:
        config, policy = ConfigProto(), PlacementPolicy.from_mapping(json.loads(asked.policy))
        config.MergeFromString(asked.config)
        if asked.address:
            self.open(name, config, policy, dict(asked.address), owner)
            return
        task = LocalTask.named(asked.task) if asked.is_shared else None
        session = _ServedSession(LocalWorkerSession(name, task, placer_for(config, policy)), {})
        with self._lock:
            self._sessions[name] = session

    def description(self) -> TaskDescription:
        """What the task that this process is says of itself.

        Raises:
            NotFoundError: it is none.
        """
        task = self._task
        if task is None:
            raise NotFoundError(None, None, "this process is no task of a cluster")
        devices = [
            DeviceDef(
                name=device.name,
                device_type=device.device_type,
                memory_limit=device.memory_limit_bytes,
                incarnation=task.incarnation,
            )
            for device in session_devices(task.config, task.name)
        ]
        return TaskDescription(task=task.name, address=task.addresses, device=devices, incarnation=task.incarnation)

    def _served(self, name: str) -> _ServedSession:
        with self._lock:
            served = self._sessions.get(name)
        if served is None:
            raise NotFoundError(None, None, f"this task does not work for a session {name!r}; open it first")
        return served

    def _partition(self, session: str, number: int) -> RegisteredPartition:
        partition = self._served(session).partitions.get(number)
        if partition is None:
            raise NotFoundError(None, None, f"session {session!r} has no partition {number} here; register it first")
        return partition

    def _run(self, run: StepStart) -> Frames:
        events = list[ItemEvent]()
        partition = self._partition(run.session, run.partition)
        record = events.append if run.recorded else None
        try:
            outcome: Sequence[TensorValue] | Exception = partition.run(run.step, run.feeds, record, run.timeout)
        except Exception as error:
            # its frames hold what the step held, a lock for instance, and this one would hold them for long
            outcome = error.with_traceback(None)
        return _outcome(outcome, events)


def _close_all(sessions: Sequence[_ServedSession]) -> None:
    for served in sessions:
        served.session.close()
        served.session.forget()


def _deliver(session: LocalWorkerSession, transfer: SentTensor) -> None:
    """Gives what another task sent to the step that it is for."""
    value = DEAD if transfer.value is None else transfer.value
    if transfer.is_halved:
        value = np.asarray(value).astype(np.float32)
    session.containers.rendezvous.arrive(transfer.key, value, transfer.size)


def _request(frames: Frames) -> WorkerRequest:
    try:
        return WorkerRequest.FromString(bytes(frames[0]))
    except (DecodeError, IndexError) as error:
        raise malformed(error) from error


def _outcome(outcome: Sequence[TensorValue] | BaseException, events: Sequence[ItemEvent]) -> Frames:
    reply = WorkerReply(event=[event_to_proto(event) for event in events])
    if not isinstance(outcome, BaseException):
        try:
            return encode_done(outcome, reply.SerializeToString() if events else b"")
        except Exception as error:  # a value that cannot be sent
            outcome = error
    known = outcome if isinstance(outcome, Exception) else UnknownError(None, None, repr(outcome))
    reply.error.CopyFrom(error_to_proto(known))
    return _reply(reply)


def _reply(reply: WorkerReply) -> Frames:
    return [reply.SerializeToString()]


# ---------------------------------------------------------------------- beside the master
class RemoteWorkerSession:
    """A session of a worker that messages reach. See `runtime.protocols.WorkerSession`.

    Args:
        transport: reaches the worker.
        name: the session's.
        task: the name under which the worker's process keeps the task; None: a task of the session's own.
        policy: how the worker places the functions that run as steps of their own.
        config: the session's.
        addresses: of the tasks that work for the session, by their full names; None: no other does.

    Raises (when made):
        OpError: the worker refuses the session.
    """

    def __init__(
        self,
        transport: Transport,
        name: str,
        task: str | None,
        policy: PlacementPolicy,
        config: ConfigProto,
        addresses: Mapping[str, str] | None = None,
    ) -> None:
        self.transport = transport
        self.name = name
        asked = OpenSession(
            task=task or "",
            is_shared=task is not None,
            config=config.SerializeToString(),
            policy=json.dumps(policy.to_mapping()).encode(),
            address=addresses or {},
        )
        self._call(WorkerRequest(open=asked), {})

    def register(self, partition: Partition) -> RemotePartition:
        """Sends a partition to the worker, which binds it."""
        request = WorkerRequest()
        request.register.partition.CopyFrom(partition_to_proto(partition))
        number = request.register.number = next(_partition_numbers)
        nodes = nodes_by_origin(partition)
        self._call(request, nodes)
        remote = RemotePartition(self, number, nodes)
        # the worker forgets what no master holds any more
        weakref.finalize(remote, self.release, number, True).atexit = False
        return remote

    def abort(self, number: int, error: OpError) -> None:
        """Gives up a step."""
        request = WorkerRequest(session=self.name)
        request.abort.number = number
        request.abort.error.CopyFrom(error_to_proto(error))
        self.transport.post([request.SerializeToString()])

    def close(self) -> None:
        """Cancels the steps that wait, and releases what belongs to the session alone."""
        reply, _ = read_reply(self.transport.call(self._closing(False)))
        if reply.HasField("error"):
            raise error_from_proto(reply.error, {})

    def forget(self) -> None:
        """Ends what works for a session that nobody holds any more, and hence no step is running in."""
        self._tell(self._closing(True))

    def _closing(self, forgotten: bool) -> Frames:
        request = WorkerRequest(session=self.name)
        request.close.forgotten = forgotten
        return [request.SerializeToString()]

    def release(self, partition: int, forgotten: bool) -> None:
        """Releases the executables of a partition; a session that is closed has none.

        Args:
            forgotten: whether it will not be run again.
        """
        request = WorkerRequest(session=self.name)
        request.release.partition, request.release.forgotten = partition, forgotten
        self._tell([request.SerializeToString()])

    def _tell(self, frames: Frames) -> None:
        """Tells the worker what it may drop; one that cannot be reached has nothing any more.

        Nobody waits for the answer: it may be the garbage collector that asks, on any thread.
        """
        with contextlib.suppress(OpError):
            self.transport.start(frames, _ignore)

    def _call(self, request: WorkerRequest, nodes: Mapping[str, StepNode]) -> WorkerReply:
        request.session = self.name
        reply, _ = read_reply(self.transport.call([request.SerializeToString()]))
        if reply.HasField("error"):
            raise error_from_proto(reply.error, nodes)
        return reply


def _ignore(_: Frames | OpError) -> None:
    """What is told here changes nothing: the worker forgets what it has with the session."""


def read_reply(frames: Frames) -> tuple[WorkerReply, list[TensorValue]]:
    """A reply, and the values that came with it.

    Raises:
        InvalidArgumentError: it is malformed.
    """
    try:
        if kind_of(frames) is None:
            return WorkerReply.FromString(bytes(frames[0])), []
        done = decode_done(frames)
        return WorkerReply.FromString(done.told), done.fetches
    except (DecodeError, IndexError) as error:
        raise malformed(error) from error


class RemotePartition:
    """A partition that a worker has bound. See `runtime.protocols.RegisteredPartition`.

    Args:
        nodes: those that errors may name, by their origin.
    """

    def __init__(self, session: RemoteWorkerSession, number: int, nodes: Mapping[str, StepNode]) -> None:
        self._session, self._number, self._nodes = session, number, nodes

    def run(
        self, number: int, feeds: Sequence[TensorValue], record: Recorder | None = None, timeout: float | None = None
    ) -> list[TensorValue]:
        """Runs it as part of the step of that number."""
        frames = self._request(number, feeds, timeout, record is not None)
        reply, values = read_reply(self._session.transport.call(frames))
        if record is not None:
            for event in reply.event:
                record(event_from_proto(event))
        return self._outcome(reply, values)

    def start(
        self,
        number: int,
        feeds: Sequence[TensorValue],
        on_done: OnDone,
        timeout: float | None = None,
        record: Recorder | None = None,
    ) -> None:
        """Likewise, but returns at once."""

        def done(frames: Frames | OpError) -> None:
            if isinstance(frames, OpError):
                on_done(frames)
                return
            try:
                reply, values = read_reply(frames)
                if record is not None:
                    for event in reply.event:
                        record(event_from_proto(event))
                outcome: Sequence[TensorValue] | BaseException = self._outcome(reply, values)
            except Exception as error:
                outcome = error
            on_done(outcome)

        self._session.transport.start(self._request(number, feeds, timeout, record is not None), done)

    def release(self) -> None:
        """Releases its executables; a run that comes later compiles anew."""
        self._session.release(self._number, False)

    def _request(self, number: int, feeds: Sequence[TensorValue], timeout: float | None, recorded: bool) -> Frames:
        return encode_start(self._session.name, self._number, number, timeout, recorded, feeds)

    def _outcome(self, reply: WorkerReply, values: list[TensorValue]) -> list[TensorValue]:
        if reply.HasField("error"):
            raise error_from_proto(reply.error, self._nodes)
        # what has no dimensions is given as a scalar, as `BoundPartition.run` gives it
        return [value[()] if isinstance(value, np.ndarray) and not value.ndim else value for value in values]
