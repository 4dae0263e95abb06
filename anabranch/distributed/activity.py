"""What the tasks of a cluster do: they are asked what they have done so far, and two answers make rates."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, NamedTuple, Self

import numpy.typing as npt

from anabranch.distributed.addresses import parse_address
from anabranch.distributed.server import client_endpoint, own_host
from anabranch.distributed.transport import Endpoint
from anabranch.errors import OpError
from anabranch.proto.step_plan_pb2 import TaskActivity, WorkerRequest
from anabranch.proto.tensors import make_ndarray
from anabranch.runtime.messages import Frames
from anabranch.runtime.remote_worker import read_reply

#: a rate over less time (s) would be made of a step more or less
_SHORTEST: Final = 0.2


class LinkRate(NamedTuple):
    """What goes between a task and another process.

    Attributes:
        name: what the other calls itself.
        address: its own.
        state: of the link to it, see `distributed.links`.
        sent, received: bytes per second; None where there is nothing to compare with.
    """

    name: str
    address: str
    state: str
    sent: float | None
    received: float | None


class TaskRate(NamedTuple):
    """What a task does.

    Attributes:
        steps: per second, that it had a part in; None where there is nothing to compare with.
        ended_steps: since it was started.
        running_steps: at this moment.
        links: to other processes.
        variables: the values that were asked for, by name.
    """

    steps: float | None
    ended_steps: int
    running_steps: int
    links: list[LinkRate]
    variables: dict[str, npt.NDArray[Any]]


def rates(before: TaskActivity | None, now: TaskActivity) -> TaskRate:
    """What a task does, from two of its answers.

    Counts that are less than before are those of a task that was started again: then there is no rate.
    """
    seconds = 0.0 if before is None else now.seconds - before.seconds
    if before is not None and (seconds < _SHORTEST or now.ended_steps < before.ended_steps):
        before = None

    def rate(count: int, count_before: int | None) -> float | None:
        return None if count_before is None or count < count_before else (count - count_before) / seconds

    known = {} if before is None else {link.address: link for link in before.link}
    links = []
    for link in now.link:
        other = known.get(link.address)
        sent = rate(link.sent_bytes, None if other is None else other.sent_bytes)
        received = rate(link.received_bytes, None if other is None else other.received_bytes)
        links.append(LinkRate(link.name, link.address, link.state, sent, received))
    return TaskRate(
        rate(now.ended_steps, None if before is None else before.ended_steps),
        now.ended_steps,
        now.running_steps,
        links,
        {variable.name: make_ndarray(variable.value) for variable in now.variable},
    )


class ActivityWatch:
    """Asks tasks what they have done. Thread-safe; a context.

    Args:
        variables: the last parts of the names of variables whose values are asked for as well.
    """

    def __init__(self, variables: Sequence[str] = ()) -> None:
        self._request = WorkerRequest()
        self._request.activity.variable.extend(variables)
        self._lock = threading.Lock()
        self._endpoints: dict[str, Endpoint] = {}
        self._before: dict[str, TaskActivity] = {}

    def look(self, addresses: Iterable[str], within: float) -> dict[str, TaskRate]:
        """What the tasks at these addresses have done since the last look, of those that answer.

        Args:
            within: how long (s) they may take, all together.

        Raises:
            UnauthenticatedError: an address is not of this machine, and there are no keys.
            UnavailableError: an address cannot be reached from this machine at all.
            CancelledError: the watch is closed.
        """
        with self._lock:
            answers = self._asked(list(addresses), within)
            seen = {address: rates(self._before.get(address), answer) for address, answer in answers.items()}
            self._before = answers
            return seen

    def close(self) -> None:
        """Says goodbye to the tasks."""
        with self._lock, contextlib.ExitStack() as stack:
            for endpoint in self._endpoints.values():
                stack.callback(endpoint.close)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _asked(self, addresses: Sequence[str], within: float) -> dict[str, TaskActivity]:
        deadline = time.monotonic() + within
        answers: dict[str, Frames] = {}
        all_answered = threading.Semaphore(0)
        frames = [self._request.SerializeToString()]
        peers = {address: self._endpoint(address).peer(address) for address in addresses}
        # all before any is waited for: one that is silent must not keep the others from being asked
        requests = [
            (peer, peer.request(frames, _noting(answers, address, all_answered))) for address, peer in peers.items()
        ]
        for _ in requests:
            if not all_answered.acquire(timeout=max(0.0, deadline - time.monotonic())):
                break
        for peer, number in requests:
            peer.forget(number)
        # a reply that comes late is noted in a table that nobody reads any more
        return {address: activity for address, reply in list(answers.items()) if (activity := _read(reply)) is not None}

    def _endpoint(self, address: str) -> Endpoint:
        host = own_host(parse_address(address))
        if host not in self._endpoints:
            self._endpoints[host] = client_endpoint(host)
        return self._endpoints[host]


def _noting(answers: dict[str, Frames], address: str, noted: threading.Semaphore) -> Callable[[Frames | OpError], None]:
    def on_reply(reply: Frames | OpError) -> None:
        if not isinstance(reply, OpError):
            answers[address] = reply
        noted.release()

    return on_reply


def _read(frames: Frames) -> TaskActivity | None:
    try:
        reply, _ = read_reply(frames)
    except OpError:
        return None
    # a process that is no task, or not yet, says so
    return reply.activity if reply.HasField("activity") else None
