"""Tokens of `SyncReplicasOptimizer` that a replica took with it, which is gone for good: handed out again  (§4.4).

A replica takes a token at the end of a step, and hands in a gradient for it in the next. If it ends or is killed in
between, the step lacks that gradient: the others hand in theirs and wait for tokens, which come when the step ends. So
the chief looks whether all replicas that are there wait, and none of them gets a token: then each gets one of the step
that lacks gradients, and computes another batch. A replica that is there and does not wait has its token still, however
long it takes.

| replicas that are there | tokens | for | what follows |
|---|---|---|---|
| one does not wait | | | nothing: it computes, saves, evaluates |
| all wait | some are left | | nothing: they are on their way |
| all wait | none | less than `STUCK_AFTER` in one step | nothing: the step may end just now |
| all wait | none | longer | as many tokens of this step as replicas wait |
"""

from __future__ import annotations

import contextlib
import threading
import time
from typing import Final

from anabranch.errors import OpError
from anabranch.frontend.arrays.constants import fill
from anabranch.frontend.platform import logging
from anabranch.frontend.resources.queues import FIFOQueue
from anabranch.frontend.variables.variables import Variable
from anabranch.graph.graph import get_default_graph
from anabranch.graph.operation import Operation, Tensor
from anabranch.ops import raw
from anabranch.session import Session
from anabranch.train.coordinator import Coordinator
from anabranch.train.membership import MembershipHook
from anabranch.train.replica_rounds import AwaitedRound

#: how long (s) all replicas have to wait in one step; a few seconds more than a step takes from its last gradient on
STUCK_AFTER: Final = 3.0


class ReplicaMembership(MembershipHook):
    """Says that a replica is there, as long as its session lives.

    Args:
        device: of the queue of tokens.
    """

    def __init__(self, device: str) -> None:
        super().__init__()
        self._device = device
        self._session: Session | None = None

    def begin(self) -> None:
        self._build(self._device, "sync_replicas")

    def after_create_session(self, session: Session, coord: Coordinator) -> None:
        self._session = session
        super().after_create_session(session, coord)

    def end(self, session: Session) -> None:
        # where its task does not answer, the others hear nothing of it, and find it gone
        with contextlib.suppress(OpError, RuntimeError):
            super().end(session)

    def abandoned(self) -> None:
        if self._session is not None:
            self.end(self._session)

    @property
    def renewal(self) -> tuple[Tensor, dict[Tensor, float]]:
        """What says once more that it is there; its value is who is, and what it has to be fed with."""
        return self._renewal, {self._for_seconds: self._seconds}


class LostTokens:
    """Hands out again what is lost; for the chief. Adds operations to the default graph.

    Args:
        queue: of the tokens.
        global_step: whose value a token has.
    """

    def __init__(self, queue: FIFOQueue, global_step: Variable) -> None:
        with get_default_graph().device(global_step.device):
            self._step: Tensor = global_step.read_value()
            self._waiting: Tensor = raw._DequeuesWaiting(queue.queue_ref)
            self._left: Tensor = queue.size()
            self._count = raw.Placeholder(dtype="int32", shape=[])
            self._again: Operation = queue.enqueue_many((fill([self._count], global_step.read_value()),))

    def watch(self, session: Session, coord: Coordinator, membership: ReplicaMembership) -> None:
        """Looks after them on a thread of its own, until the session ends."""
        arguments = session, coord, membership
        threading.Thread(target=self._watch, args=arguments, name="lost tokens", daemon=True).start()

    def _watch(self, session: Session, coord: Coordinator, membership: ReplicaMembership) -> None:
        members, feeds = membership.renewal
        look = [self._step, self._waiting, self._left, members]
        awaited = AwaitedRound(STUCK_AFTER)
        with contextlib.suppress(OpError, RuntimeError):  # the session has ended, and so does this
            while not coord.wait_for_stop(STUCK_AFTER / 3):
                step, waiting, left, there = session.run(look, feeds)
                if awaited.is_overdue(int(step), 0 < len(there) <= waiting and not left, time.monotonic()):
                    logging.warning(
                        "All %d replicas that are there wait for tokens, and step %d lacks gradients: those who took a "
                        "token for them are gone. %d tokens are handed out again",
                        len(there),
                        step,
                        waiting,
                    )
                    session.run(self._again, {self._count: waiting})
