"""What tasks say of themselves, and waiting until they do."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from anabranch.core.interrupts import admitted
from anabranch.core.pauses import Pauses
from anabranch.distributed.network import TaskConnection
from anabranch.errors import AbortedError, DeadlineExceededError, UnavailableError
from anabranch.proto.step_plan_pb2 import TaskDescription, WorkerRequest
from anabranch.runtime.messages import error_from_proto
from anabranch.runtime.worker_service import read_reply

_log = logging.getLogger(__name__)

#: how often (s) a session that is being made says whom it waits for
TELL_EVERY: Final = 10.0
#: the longest pause (s) between two attempts to reach a task
_LONGEST_PAUSE: Final = 1.0


class DescribableTask(NamedTuple):
    """How to ask a task what it is; it answers None while it cannot be reached."""

    address: str
    describe: Callable[[], TaskDescription | None]


class WaitingForTasks:
    """Waits until tasks answer.

    Args:
        deadline: when that is given up, on the monotonic clock; None: never.
    """

    def __init__(self, deadline: float | None) -> None:
        self._deadline = deadline
        self._told = time.monotonic()

    def describe(self, tasks: Sequence[DescribableTask]) -> list[TaskDescription]:
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
            with admitted():
                threading.Event().wait(pauses.next())

    def _check(self, missing: Sequence[str]) -> None:
        now = time.monotonic()
        if self._deadline is not None and now >= self._deadline:
            raise DeadlineExceededError(
                None,
                None,
                f"no session could be made: the tasks at {', '.join(missing)} did not answer; start them, or look at "
                "their addresses in the cluster's specification",
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
