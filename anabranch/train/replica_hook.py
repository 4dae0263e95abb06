"""What every worker does around its steps, by a hook of its monitored session. See `replicas`.

As a session begins, it makes the worker one who is waited for, and the chief the one who ends rounds; after a step it
runs what is due after so many; at the end it hands in what is left, and says that the worker leaves.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Sequence
from typing import Protocol

from anabranch.errors import OpError
from anabranch.frontend.control_flow.grouping import group
from anabranch.frontend.platform import logging
from anabranch.frontend.variables.variables import Variable
from anabranch.graph.operation import Operation, Tensor
from anabranch.session import Session
from anabranch.train.coordinator import Coordinator, is_followed
from anabranch.train.replica_presence import Presence
from anabranch.train.replica_rounds import AwaitedRound, RoundsRunner
from anabranch.train.session_run_hook import SessionRunContext, SessionRunHook, SessionRunValues
from anabranch.train.shard_mirrors import check_mirrors_are_served


class HookedOptimizer(Protocol):
    """What the hook uses of `replicas.ReplicaOptimizer`; all but the first is there once that is true.

    Attributes:
        _built: whether gradients are applied.
        _worker_init: what a worker runs as its session begins; `_chief_init`: the chief too.
        _chief_runner: ends rounds, where there are some.
        _presence: says that this worker is there, where others wait for it.
        _count: counts this worker's steps, where there is something to run after some of them.
        _global_step: that of the training.
        _is_awaited: whether a worker waits, and no token is there for it.
        _reissue_after: seconds that one waits after which `reissue_op` is run.
        reissue_op, finish_op: give those who wait a token once more; tell them that no round follows.
    """

    _built: bool
    _worker_init: list[Operation]
    _chief_init: Operation | None
    _chief_runner: RoundsRunner | None
    _presence: Presence | None
    _count: Variable | None
    _global_step: Variable
    _is_awaited: Tensor | None
    _reissue_after: float
    reissue_op: Operation | None
    finish_op: Operation | None

    def _after_steps(self, count: int) -> Sequence[Operation]:
        """What a worker runs, in this order, after that many steps."""

    def _at_end(self, count: int) -> Sequence[Operation]:
        """What a worker runs that ends after that many steps."""


class ReplicaHook(SessionRunHook):
    """See `ReplicaOptimizer.make_session_run_hook`; its arguments, with the optimizer before them."""

    def __init__(self, optimizer: HookedOptimizer, is_chief: bool) -> None:
        self._optimizer, self._is_chief, self._count = optimizer, is_chief, 0
        self._session: Session | None = None
        self._coord: Coordinator | None = None

    def begin(self) -> None:
        if not self._optimizer._built:
            raise ValueError("apply_gradients should be called before using the hook")
        self._init = group(*self._optimizer._worker_init)

    def after_create_session(self, session: Session, coord: Coordinator) -> None:
        optimizer = self._optimizer
        check_mirrors_are_served(session.graph)
        is_first, self._session, self._coord = self._session is None, session, coord
        runner = optimizer._chief_runner
        is_chief = self._is_chief if runner is None or runner.lease is None else runner.lease.is_held
        if optimizer._presence is not None:
            # before it takes the number of a round: whoever is in one is waited for
            optimizer._presence.join(session, coord, anew=is_chief and is_first)
        session.run(self._init)
        if optimizer._count is not None:
            self._count = int(session.run(optimizer._count))
        if runner is None or not is_chief:
            return
        session.run(optimizer._chief_init)
        runner.create_threads(session, coord=coord, daemon=True, start=True)
        threading.Thread(target=self._watch, args=(session, coord), daemon=True).start()

    def after_run(self, run_context: SessionRunContext, run_values: SessionRunValues) -> None:
        if self._optimizer._count is None:
            return
        count = int(run_context.session.run(self._optimizer._count))
        if count != self._count:
            self._count = count
            for operation in self._optimizer._after_steps(count):
                run_context.session.run(operation)

    def before_end(self, session: Session) -> None:
        try:
            for operation in self._optimizer._at_end(self._count):
                session.run(operation)
        except OpError as error:
            logging.warning("What this worker has added up since its last push is lost: %s", error)
        runner, presence = self._optimizer._chief_runner, self._optimizer._presence
        if runner is not None and presence is not None:
            runner.leave = lambda: presence.leave(session)

    def end(self, session: Session) -> None:
        runner = self._optimizer._chief_runner
        presence = self._optimizer._presence
        # with a lease another worker becomes chief; a process that was told to end is one that comes back
        if runner is not None and runner.lease is None and self._is_chief and not is_followed(self._coord):
            # It does not leave: its thread, which goes on until the session ends, would end a round with the others
            # alone, who are told here that none follows. Where their task is gone, they hear of that.
            with contextlib.suppress(OpError):
                session.run(self._optimizer.finish_op)
        elif presence is not None:
            presence.leave(session)

    def abandoned(self) -> None:
        if self._optimizer._presence is not None and self._session is not None:
            self._optimizer._presence.leave(self._session)

    def _watch(self, session: Session, coord: Coordinator) -> None:
        """Hands tokens out once more where a step does not end."""
        optimizer = self._optimizer
        round_ = AwaitedRound(optimizer._reissue_after)
        with contextlib.suppress(OpError, RuntimeError):  # the session has ended, and so does this
            while not coord.wait_for_stop(optimizer._reissue_after / 4):
                number, is_awaited = session.run([optimizer._global_step, optimizer._is_awaited])
                if round_.is_overdue(int(number), bool(is_awaited), time.monotonic()):
                    session.run(optimizer.reissue_op)
