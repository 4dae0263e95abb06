"""Tasks say what they are, once they can be reached: how a session finds its cluster (§3.3)."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from anabranch.core.pauses import Pauses
from anabranch.distributed.addresses import address_map
from anabranch.distributed.cluster_spec import ClusterSpec
from anabranch.distributed.network import TaskConnection, TaskNetwork, Timing
from anabranch.errors import AbortedError, DeadlineExceededError, InvalidArgumentError, UnavailableError
from anabranch.proto.config_pb2 import ConfigProto
from anabranch.proto.step_plan_pb2 import TaskDescription, WorkerRequest
from anabranch.runtime.deadlines import deadlines
from anabranch.runtime.messages import error_from_proto
from anabranch.runtime.remote_worker import read_reply

_log = logging.getLogger(__name__)

#: how often (s) a session that is being made says whom it waits for
TELL_EVERY: Final = 10.0
#: how long (s) tasks may take to answer that are to empty containers
RESET_WITHIN: Final = 60.0
#: the longest pause (s) between two attempts to reach a task
_LONGEST_PAUSE: Final = 1.0


class Describing(NamedTuple):
    """How to ask a task what it is; it answers None while it cannot be reached."""

    address: str
    describe: Callable[[], TaskDescription | None]


class TasksToCome:
    """Waits until tasks answer.

    Args:
        timing: by which it waits.
        deadline: when that is given up; None: never.
    """

    def __init__(self, timing: Timing, deadline: float | None) -> None:
        self._timing = timing
        self._deadline = deadline
        self._told = timing.now()

    def describe(self, tasks: Sequence[Describing]) -> list[TaskDescription]:
        """What tasks say of themselves.

        Raises:
            DeadlineExceededError: they do not answer in time. It names those that did not.
            OpError: a task refuses to answer.
        """
        said: dict[str, TaskDescription] = {}
        pauses = Pauses(_LONGEST_PAUSE)
        while True:
            for task in tasks:
                if task.address not in said:
                    description = task.describe()
                    if description is not None:
                        said[task.address] = description
            missing = [task.address for task in tasks if task.address not in said]
            if not missing:
                return [said[task.address] for task in tasks]
            self._check(missing)
            self._timing.pause(pauses.next())

    def _check(self, missing: Sequence[str]) -> None:
        now = self._timing.now()
        if self._deadline is not None and now >= self._deadline:
            raise DeadlineExceededError(
                None,
                None,
                f"the tasks at {', '.join(missing)} did not answer; start them, or look at their addresses in the "
                "cluster's specification",
            )
        if now - self._told >= TELL_EVERY:
            self._told = now
            _log.warning("the session waits for the tasks at %s to answer", ", ".join(missing))


def described(connection: TaskConnection) -> TaskDescription | None:
    """What a task says of itself; None where it cannot be reached."""
    request = WorkerRequest()
    request.describe.SetInParent()
    try:
        reply, _ = read_reply(connection.call([request.SerializeToString()]))
    except (UnavailableError, AbortedError, DeadlineExceededError):
        return None
    if reply.HasField("error"):
        raise error_from_proto(reply.error, {})
    return reply.description


def check_task(name: str, address: str, said: TaskDescription) -> None:
    """Finds out whether it is the task that is meant who answers at its address.

    Raises:
        UnavailableError: it is another one: that one may have got the address, and the one that is meant another.
    """
    if said.task != name:
        raise UnavailableError(
            None,
            None,
            f"{said.task} answers at {address}, where {name} is expected; start that one there, or make the session "
            "anew where the cluster's addresses have changed",
        )


def tasks_of_session(config: ConfigProto, first: TaskDescription) -> dict[str, str]:
    """The addresses of the tasks that a session may use, by their full names, before its filters.

    Args:
        config: the session's. `cluster_def` says which tasks there are, also such as were started later than others,
            which do not know them; without it, they are those that the target knows.
        first: what the task at the session's target says of itself.

    Raises:
        ValueError: `cluster_def` is malformed.
        InvalidArgumentError: the target's task is not in it.
    """
    known = dict(first.address)
    if not config.cluster_def.job:
        return known
    spec = ClusterSpec(config.cluster_def)
    spec.check()
    real = address_map(os.environ)
    addresses = {name: str(spec.address_of(name, real)) for name in spec.task_names()}
    if first.task not in addresses:
        raise InvalidArgumentError(
            None,
            None,
            f"the session's target is {first.task}, which the cluster_def of its configuration does not name; it has "
            f"{', '.join(addresses)}",
        )
    return {**addresses, first.task: known[first.task]}


def reset_task(network: TaskNetwork, address: str, containers: Sequence[str]) -> None:
    """Empties containers of all tasks of a cluster, one of which has this address (`tf.Session.reset`).

    Raises:
        DeadlineExceededError: a task does not answer.
        OpError: one refuses.
    """
    connection = network.connect(address)
    (first,) = TasksToCome(deadlines, deadlines.now() + RESET_WITHIN).describe(
        [Describing(address, lambda: described(connection))]
    )
    for other in dict(first.address).values():
        request = WorkerRequest()
        request.reset.container.extend(containers)
        reply, _ = read_reply(network.connect(other).call([request.SerializeToString()]))
        if reply.HasField("error"):
            raise error_from_proto(reply.error, {})
