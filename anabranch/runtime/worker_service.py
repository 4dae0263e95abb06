"""The worker protocol as messages: a service beside the worker, and what stands for the worker beside the master.

The two know nothing of each other but bytes (`runtime.messages.Frames`), so that whatever carries bytes carries steps.
One message opens a session, one registers a partition, one runs it; each is answered by one reply.
"""

from __future__ import annotations

import itertools
import json
import threading
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

import numpy as np
from google.protobuf.message import DecodeError

from anabranch.core.values import TensorValue
from anabranch.errors import NotFoundError, UnknownError
from anabranch.graph.step_nodes import StepNode
from anabranch.placement.policy import PlacementPolicy
from anabranch.proto.config_pb2 import ConfigProto
from anabranch.proto.step_plan_pb2 import OpenSession, RunPartition, WorkerReply, WorkerRequest
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
    value_from_proto,
    value_to_proto,
)
from anabranch.runtime.protocols import OnDone, RegisteredPartition, WorkerSession
from anabranch.xla.partition_codec import partition_from_proto, partition_to_proto
from anabranch.xla.partitions import Partition


class Transport(Protocol):
    """Carries a message to a worker's service, and its reply back."""

    def call(self, frames: Frames) -> Frames:
        """Sends a message, and waits for the reply."""

    def start(self, frames: Frames, on_reply: Callable[[Frames], None]) -> None:
        """Sends a message, and returns; `on_reply` gets the reply, on whichever thread."""


# ---------------------------------------------------------------------- beside the worker
class _ServedSession:
    """A session, and its partitions by the numbers that the master knows them by."""

    def __init__(self, session: WorkerSession) -> None:
        self.session = session
        self.partitions: dict[int, RegisteredPartition] = {}
        self.numbers = itertools.count(1)


class WorkerService:
    """Does what messages ask of the worker of this process. Thread-safe.

    #: A message that is malformed, or asks for what is not there, is answered by an error and changes nothing.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._sessions: dict[str, _ServedSession] = {}

    def handle(self, frames: Frames) -> Frames:
        """The reply to a message; what waits in a step waits here."""
        try:
            request = _request(frames)
            if request.WhichOneof("kind") == "run":
                return self._run(request, frames[1:])
            return _reply(self._do(request))
        except Exception as error:  # whatever it is, the master has to know
            return _reply(WorkerReply(error=error_to_proto(error)))

    def start(self, frames: Frames, on_reply: Callable[[Frames], None]) -> None:
        """Begins what a message asks for; a step that waits holds no thread."""
        try:
            request = _request(frames)
            run = request.run
            partition, feeds = self._partition(request.session, run.partition), _feeds(run, frames[1:])
        except Exception as error:
            on_reply(_reply(WorkerReply(error=error_to_proto(error))))
            return
        partition.start(run.number, feeds, lambda outcome: on_reply(_outcome(outcome, ())), run.timeout or None)

    def _do(self, request: WorkerRequest) -> WorkerReply:
        kind, reply = request.WhichOneof("kind"), WorkerReply()
        if kind == "open":
            self._open(request.session, request.open)
            return reply
        if kind == "close":
            self._close(request.session, request.close.forgotten)
            return reply
        served = self._served(request.session)
        if kind == "register":
            registered = served.session.register(partition_from_proto(request.register.partition))
            reply.partition = next(served.numbers)
            served.partitions[reply.partition] = registered
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

    def _open(self, name: str, asked: OpenSession) -> None:
        config, policy = ConfigProto(), PlacementPolicy.from_mapping(json.loads(asked.policy))
        config.MergeFromString(asked.config)
        task = LocalTask.named(asked.task) if asked.is_shared else None
        session = _ServedSession(LocalWorkerSession(name, task, placer_for(config, policy)))
        with self._lock:
            self._sessions[name] = session

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

    def _run(self, request: WorkerRequest, arrays: Frames) -> Frames:
        run, events = request.run, list[ItemEvent]()
        partition = self._partition(request.session, run.partition)
        record = events.append if run.recorded else None
        try:
            outcome: Sequence[TensorValue] | Exception = partition.run(
                run.number, _feeds(run, arrays), record, run.timeout or None
            )
        except Exception as error:
            # its frames hold what the step held, a lock for instance, and this one would hold them for long
            outcome = error.with_traceback(None)
        return _outcome(outcome, events)


def _request(frames: Frames) -> WorkerRequest:
    try:
        return WorkerRequest.FromString(bytes(frames[0]))
    except (DecodeError, IndexError) as error:
        raise malformed(error) from error


def _feeds(run: RunPartition, arrays: Frames) -> list[TensorValue]:
    try:
        rest = iter(arrays)
        return [value_from_proto(value, rest) for value in run.feed]
    except (TypeError, ValueError) as error:
        raise malformed(error) from error


def _outcome(outcome: Sequence[TensorValue] | BaseException, events: Sequence[ItemEvent]) -> Frames:
    reply, arrays = WorkerReply(event=[event_to_proto(event) for event in events]), Frames()
    if isinstance(outcome, BaseException):
        known = outcome if isinstance(outcome, Exception) else UnknownError(None, None, repr(outcome))
        reply.error.CopyFrom(error_to_proto(known))
        return [reply.SerializeToString()]
    try:
        reply.fetch.extend([value_to_proto(value, arrays) for value in outcome])
    except Exception as error:
        # a value that cannot be sent makes the reply an error, and those before it must not go along
        reply.ClearField("fetch")
        reply.error.CopyFrom(error_to_proto(error))
        arrays.clear()
    return [reply.SerializeToString(), *arrays]


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

    Raises (when made):
        OpError: the worker refuses the session.
    """

    def __init__(
        self, transport: Transport, name: str, task: str | None, policy: PlacementPolicy, config: ConfigProto
    ) -> None:
        self.transport = transport
        self.name = name
        asked = OpenSession(
            task=task or "",
            is_shared=task is not None,
            config=config.SerializeToString(),
            policy=json.dumps(policy.to_mapping()).encode(),
        )
        self._call(WorkerRequest(open=asked), {})

    def register(self, partition: Partition) -> RemotePartition:
        """Sends a partition to the worker, which binds it."""
        request = WorkerRequest()
        request.register.partition.CopyFrom(partition_to_proto(partition))
        nodes = nodes_by_origin(partition)
        number = self._call(request, nodes).partition
        remote = RemotePartition(self, number, nodes)
        # the worker forgets what no master holds any more
        weakref.finalize(remote, self.release, number, True).atexit = False
        return remote

    def close(self) -> None:
        """Cancels the steps that wait, and releases what belongs to the session alone."""
        self._close(False)

    def forget(self) -> None:
        """Ends what works for a session that nobody holds any more, and hence no step is running in."""
        self._close(True)

    def _close(self, forgotten: bool) -> None:
        request = WorkerRequest()
        request.close.forgotten = forgotten
        self._call(request, {})

    def release(self, partition: int, forgotten: bool) -> None:
        """Releases the executables of a partition; a session that is closed has none.

        Args:
            forgotten: whether it will not be run again.
        """
        request = WorkerRequest(session=self.name)
        request.release.partition, request.release.forgotten = partition, forgotten
        self.transport.call([request.SerializeToString()])

    def _call(self, request: WorkerRequest, nodes: Mapping[str, StepNode]) -> WorkerReply:
        request.session = self.name
        reply, _ = read_reply(self.transport.call([request.SerializeToString()]))
        if reply.HasField("error"):
            raise error_from_proto(reply.error, nodes)
        return reply


def read_reply(frames: Frames) -> tuple[WorkerReply, list[TensorValue]]:
    """A reply, and the values that came with it.

    Raises:
        InvalidArgumentError: it is malformed.
    """
    try:
        reply, arrays = WorkerReply.FromString(bytes(frames[0])), iter(frames[1:])
        values = [value_from_proto(value, arrays) for value in reply.fetch]
    except (DecodeError, IndexError, TypeError, ValueError) as error:
        raise malformed(error) from error
    return reply, values


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

    def start(self, number: int, feeds: Sequence[TensorValue], on_done: OnDone, timeout: float | None = None) -> None:
        """Likewise, but returns at once."""

        def done(frames: Frames) -> None:
            try:
                outcome: Sequence[TensorValue] | BaseException = self._outcome(*read_reply(frames))
            except Exception as error:
                outcome = error
            on_done(outcome)

        self._session.transport.start(self._request(number, feeds, timeout, False), done)

    def release(self) -> None:
        """Releases its executables; a run that comes later compiles anew."""
        self._session.release(self._number, False)

    def _request(self, number: int, feeds: Sequence[TensorValue], timeout: float | None, recorded: bool) -> Frames:
        arrays = Frames()
        run = RunPartition(
            partition=self._number,
            number=number,
            feed=[value_to_proto(value, arrays) for value in feeds],
            timeout=timeout or 0.0,
            recorded=recorded,
        )
        return [WorkerRequest(session=self._session.name, run=run).SerializeToString(), *arrays]

    def _outcome(self, reply: WorkerReply, values: list[TensorValue]) -> list[TensorValue]:
        if reply.HasField("error"):
            raise error_from_proto(reply.error, self._nodes)
        # what has no dimensions is given as a scalar, as `BoundPartition.run` gives it
        return [value[()] if isinstance(value, np.ndarray) and not value.ndim else value for value in values]
