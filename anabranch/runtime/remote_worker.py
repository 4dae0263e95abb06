"""What stands for a task's worker beside the master, where messages reach it; see `runtime.worker_service`."""

from __future__ import annotations

import contextlib
import itertools
import json
import weakref
from collections import deque
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Final

import numpy as np
from google.protobuf.message import DecodeError

from anabranch.core.values import TensorValue
from anabranch.errors import OpError
from anabranch.graph.step_nodes import StepNode
from anabranch.placement.policy import PlacementPolicy
from anabranch.proto.config_pb2 import ConfigProto
from anabranch.proto.step_plan_pb2 import OpenSession, PublishedPartition, WorkerReply, WorkerRequest
from anabranch.runtime.held_start import Sent
from anabranch.runtime.item_call import Recorder
from anabranch.runtime.messages import (
    Frames,
    Transport,
    error_from_proto,
    error_to_proto,
    event_from_proto,
    malformed,
    nodes_by_origin,
)
from anabranch.runtime.protocols import OnDone
from anabranch.runtime.start_layouts import StartLayout, has_layout
from anabranch.runtime.step_messages import NOTHING_FETCHED, decode_done, decode_start, encode_start, kind_of
from anabranch.runtime.task_sessions import Watcher
from anabranch.xla.partition_codec import partition_to_proto
from anabranch.xla.partitions import Partition

#: of all sessions of this process, so that a worker that comes back knows none of those that it had
_partition_numbers = itertools.count(1)
#: the reply of most steps; nobody writes into a reply
_EMPTY: Final = WorkerReply()
#: layouts of messages that are kept for a partition
_MOST_LAYOUTS: Final = 64


class RemoteWorkerSession:
    """A session of a worker that messages reach. See `runtime.protocols.WorkerSession`.

    Args:
        transport: reaches the worker.
        name: the session's.
        task: the name under which the worker's process keeps the task; None: a task of the session's own.
        policy: how the worker places the functions that run as steps of their own.
        config: the session's.
        addresses: of the tasks that work for the session, by their full names; None: no other does.
        first_step: the number below which steps have ended by now.

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
        first_step: Callable[[], int] = lambda: 0,
    ) -> None:
        self.transport = transport
        self.name = name
        self.first_step = first_step
        #: the numbers of partitions that nobody holds any more, which the worker has yet to forget
        self._collected: deque[int] = deque()
        asked = OpenSession(
            task=task or "",
            is_shared=task is not None,
            config=config.SerializeToString(),
            policy=json.dumps(policy.to_mapping()).encode(),
            address=addresses or {},
            first_step=first_step(),
        )
        self._call(WorkerRequest(open=asked), {})

    def register(self, partition: Partition) -> RemotePartition:
        """Sends a partition to the worker, which binds it."""
        self.forget_collected()
        request = WorkerRequest()
        request.register.partition.CopyFrom(partition_to_proto(partition))
        number = request.register.number = next(_partition_numbers)
        nodes = nodes_by_origin(partition)
        self._call(request, nodes)
        remote = RemotePartition(self, number, nodes)
        # The worker forgets what no master holds any more. The collector may come while this very thread sends, and so
        # holds a peer's lock: it only notes the number here, which the next request takes along.
        weakref.finalize(remote, self._collected.append, number).atexit = False
        return remote

    def abort(self, number: int, error: OpError) -> None:
        """Gives up a step."""
        request = WorkerRequest(session=self.name)
        request.abort.number = number
        request.abort.error.CopyFrom(error_to_proto(error))
        self.transport.post([request.SerializeToString()])

    def watch(self, watcher: Watcher) -> None:
        """Tells each time that tasks of the session were lost to the worker, until the session is over there."""

        def on_reply(reply: Frames | OpError) -> None:
            tasks = () if isinstance(reply, OpError) else tuple(read_reply(reply)[0].lost_task)
            if tasks:
                watcher(tasks)
                # the worker notes what happens in between
                ask()

        def ask() -> None:
            request = WorkerRequest(session=self.name)
            request.watch.SetInParent()
            # a worker that cannot be reached is lost itself
            with contextlib.suppress(OpError):
                self.transport.start([request.SerializeToString()], on_reply)

        ask()

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

    def forget_collected(self) -> None:
        """Has the worker forget the partitions that nobody holds any more."""
        while self._collected:
            # none is left for this thread if others do the same at once
            with contextlib.suppress(IndexError):
                self.release(self._collected.popleft(), True)

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

        Nobody waits for the answer, which changes nothing.
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
    # most parts of a step end so
    if len(frames) == 1 and frames[0] == NOTHING_FETCHED[0]:
        return _EMPTY, []
    try:
        if kind_of(frames) is None:
            return WorkerReply.FromString(bytes(frames[0])), []
        done = decode_done(frames)
        return WorkerReply.FromString(done.reply) if done.reply else _EMPTY, done.fetches
    except (DecodeError, IndexError) as error:
        raise malformed(error) from error


class RemotePartition:
    """A partition that a worker has bound. See `runtime.protocols.RegisteredPartition`.

    Args:
        nodes: those that errors may name, by their origin.
    """

    def __init__(self, session: RemoteWorkerSession, number: int, nodes: Mapping[str, StepNode]) -> None:
        self._session, self._number, self._nodes = session, number, nodes
        #: of messages that start it, by what they bring along; None: there was one such message
        self._layouts: dict[Hashable, StartLayout | None] = {}

    def run(
        self, number: int, feeds: Sequence[TensorValue], record: Recorder | None = None, timeout: float | None = None
    ) -> list[TensorValue]:
        """Runs it as part of the step of that number."""
        frames = self._request(number, feeds, timeout, recorded=record is not None)
        reply, values = read_reply(self._session.transport.call(frames))
        if record is not None:
            for event in reply.event:
                record(event_from_proto(event))
        return self._outcome(reply, values)

    def run_on_device(
        self, number: int, feeds: Sequence[TensorValue], record: Recorder | None = None, timeout: float | None = None
    ) -> list[TensorValue]:
        """Likewise: what comes by messages is on the host."""
        return self.run(number, feeds, record, timeout)

    def start(
        self,
        number: int,
        feeds: Sequence[TensorValue],
        on_done: OnDone,
        timeout: float | None = None,
        record: Recorder | None = None,
    ) -> None:
        """Likewise, but returns at once."""
        request = self._request(number, feeds, timeout, recorded=record is not None)
        self._session.transport.start(request, self._answered(on_done, record))

    def start_later(
        self,
        number: int,
        feeds: Sequence[TensorValue],
        on_done: OnDone,
        timeout: float | None,
    ) -> Callable[[Sequence[Sent], int], None]:
        """Like `start` where this process reads what it was shown (`publish`), but when it is told to, once.

        Returns:
            What is called then, with tensors that go along, and with the rows that were taken; see `HeldStart`.
        """
        answered = self._answered(on_done, None)

        def send(sent: Sequence[Sent], rows_taken: int) -> None:
            try:
                request = self._request_with(number, feeds, timeout, sent, rows_taken)
                self._session.transport.start(request, answered)
            except Exception as error:
                on_done(error)

        return send

    def publish(self, reader: str, on_published: Callable[[PublishedPartition], None]) -> None:
        """Asks the worker to show what it reads for `reader` in memory; one that cannot is not asked again.

        Args:
            reader: the full name of the task that this process is.
            on_published: told where that is, on whichever thread.
        """
        request = WorkerRequest(session=self._session.name)
        request.publish.partition, request.publish.reader = self._number, reader

        def on_reply(reply: Frames | OpError) -> None:
            # whatever is wrong there will be wrong for a step as well, which says so
            with contextlib.suppress(OpError):
                if not isinstance(reply, OpError):
                    told, _ = read_reply(reply)
                    if told.published.tensor or told.published.rows:
                        on_published(told.published)

        with contextlib.suppress(OpError):
            self._session.transport.start([request.SerializeToString()], on_reply)

    def _answered(self, on_done: OnDone, record: Recorder | None) -> Callable[[Frames | OpError], None]:
        """What tells the outcome when the worker's answer comes."""

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

        return done

    def release(self) -> None:
        """Releases its executables; a run that comes later compiles anew."""
        self._session.release(self._number, False)

    def _request(
        self,
        number: int,
        feeds: Sequence[TensorValue],
        timeout: float | None,
        *,
        recorded: bool = False,
        read_ahead: bool = False,
        sent: Sequence[Sent] = (),
        rows_taken: int = 0,
    ) -> Frames:
        session = self._session
        session.forget_collected()
        return encode_start(
            session.name,
            self._number,
            number,
            feeds,
            timeout=timeout,
            recorded=recorded,
            read_ahead=read_ahead,
            sent=sent,
            rows_taken=rows_taken,
            first_step=session.first_step(),
        )

    def _request_with(
        self, number: int, feeds: Sequence[TensorValue], timeout: float | None, sent: Sequence[Sent], rows_taken: int
    ) -> Frames:
        """What starts it, with tensors that go along."""
        # names, dtypes and shapes
        kind = rows_taken, *[(key[1:], getattr(v, "dtype", None), getattr(v, "shape", None)) for key, v in sent]
        layout = None if feeds else self._layouts.get(kind)
        if layout is not None:
            session = self._session
            session.forget_collected()
            return [layout.write(number, session.first_step(), timeout, [value for _, value in sent])]
        frames = self._request(number, feeds, timeout, read_ahead=True, sent=sent, rows_taken=rows_taken)
        # where shapes are others in each step, each message would be learnt in vain
        if kind in self._layouts:
            start = decode_start(frames)
            if has_layout(start):
                self._layouts[kind] = StartLayout(bytes(frames[0]), start)
        else:
            if len(self._layouts) >= _MOST_LAYOUTS:
                self._layouts.clear()
            self._layouts[kind] = None
        return frames

    def _outcome(self, reply: WorkerReply, values: list[TensorValue]) -> list[TensorValue]:
        if reply is not _EMPTY and reply.HasField("error"):
            raise error_from_proto(reply.error, self._nodes)
        # what has no dimensions is given as a scalar, as `BoundPartition.run` gives it
        return [value[()] if isinstance(value, np.ndarray) and not value.ndim else value for value in values]
