"""What replicas share where they go in rounds: accumulators, and a queue of tokens for each worker. See `replicas`."""

from __future__ import annotations

import contextlib
import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple, TypeAlias
from weakref import WeakKeyDictionary

import numpy as np

from anabranch import errors
from anabranch.core import nest
from anabranch.core.compat import as_text
from anabranch.core.interrupts import admitted
from anabranch.core.nest import Structure
from anabranch.core.values import PassedOn, TensorLike
from anabranch.frontend.platform import logging
from anabranch.frontend.resources.accumulators import ConditionalAccumulator, SparseConditionalAccumulator
from anabranch.frontend.resources.queues import FIFOQueue
from anabranch.frontend.variables.variables import Variable
from anabranch.graph.composite import Gradient, IndexedSlices
from anabranch.graph.graph import Graph, get_default_graph
from anabranch.graph.operation import FeedDict, Operation, StepRunner, Tensor
from anabranch.ops import raw
from anabranch.proto.config_pb2 import RunOptions
from anabranch.session import BaseSession, Session
from anabranch.train.checkpoint_management import remove_checkpoint
from anabranch.train.chief_lease import ChiefLease
from anabranch.train.coordinator import Coordinator, SessionCoordinator
from anabranch.train.queue_runner import QueueRunner

#: seconds that the hooks of a session have to begin it, before rounds go on all the same
_BEGINS_WITHIN: Final = 60.0
#: seconds that a chief which ends waits for the end of a round: of one that nobody may hand anything in for any more,
#: and of one that has changed a part of the model, whose other gradients may be on their way
_ROUND_THAT_WAITS: Final = 0.25
_HALF_A_ROUND: Final = 2.0
#: seconds that whoever runs steps has to hear that the chief's thread lost a task
_DECIDED_WITHIN: Final = 5.0
_TAKEN_WITHIN_MS: Final = 1000

#: the one key of a table
_THE_ROUND: Final = np.zeros(1, np.int64)

AnyAccumulator: TypeAlias = ConditionalAccumulator | SparseConditionalAccumulator


class BetweenRounds:
    """What `RoundsRunner.between_rounds` was asked for.

    Attributes:
        ended: whether it was called, and has returned or raised.
    """

    def __init__(self, action: Callable[[], object]) -> None:
        self._action = action
        self._result: object = None
        self._error: Exception | None = None
        self.ended = threading.Event()

    def call(self) -> None:
        """Calls it, and keeps what it raises for those who asked."""
        try:
            self._result = self._action()
        except Exception as error:
            self._error = error
        finally:
            self.ended.set()

    def result(self) -> object:
        """What it returned, once it has ended.

        Raises:
            Exception: what it raised.
        """
        if self._error is not None:
            raise self._error
        return self._result


class RoundWentOn(Exception):
    """A round has begun, or ended, while a model was saved: that checkpoint might have a half of it, and is gone."""


class WhileARoundWaits:
    """A session in which a save succeeds only where no round has changed the model until all of it was read.

    A round moves the time of an accumulator on before it updates that variable. So if, after the save, all times are
    what was counted before it, nothing had been updated. A `StepRunner`, for `Saver.save` alone.

    Args:
        session: what runs the save.
        counted: the time of all accumulators, and of the model, before anything was read.
        times: reads those of the accumulators.
    """

    def __init__(self, session: StepRunner, counted: int, times: Sequence[Tensor]) -> None:
        self._session, self._counted, self._times = session, counted, list(times)

    @property
    def graph(self) -> Graph:
        """The graph of the session."""
        return self._session.graph

    def run(self, fetches: Structure, feed_dict: FeedDict | None = None) -> Structure:
        """What the session's `run` gives: of a save, the prefix of the checkpoint first.

        Raises:
            RoundWentOn: a round has begun meanwhile; the checkpoint is removed before any file names it as the latest.
        """
        saved = self._session.run(fetches, feed_dict)
        if any(int(time) != self._counted for time in self._session.run(self._times)):
            remove_checkpoint(as_text(np.asarray(nest.flatten(saved)[0]).item()))
            raise RoundWentOn
        return saved


class RoundsRunner(QueueRunner):
    """The chief's: its one thread ends one round after the other; between two of them nothing changes the model.

    It waits for values, which no longer come when the workers have stopped: it ends with the session. Its first round
    begins when all hooks have begun the session: one of them may save the model.
    """

    _ends_with_session = True
    _emptied: list[tuple[Tensor, Tensor, Operation]] | None = None
    _began: tuple[Operation, Operation] | None = None
    _times: tuple[Tensor, list[Tensor]] | None = None

    def __init__(self, *args: PassedOn, **kwargs: PassedOn) -> None:
        super().__init__(*args, **kwargs)
        self._wanted: deque[BetweenRounds] = deque()
        self._is_to_rest, self._rests = threading.Event(), threading.Event()

    def create_threads(self, *args: PassedOn, **kwargs: PassedOn) -> list[threading.Thread]:
        """See `QueueRunner`."""
        self._is_to_rest.clear()
        self._rests.clear()
        return super().create_threads(*args, **kwargs)

    def starts_anew(
        self, begin: Operation, set_times: Operation, time: Tensor, accumulators: Sequence[tuple[AnyAccumulator, str]]
    ) -> None:
        """Adds what `begin_anew` and `may_be_cut_off` run.

        Args:
            begin: makes what was handed in so far too late, in any accumulator whose time is set after it.
            set_times: sets the time of all accumulators.
            time: to what.
            accumulators: with their devices.
        """
        self._began, self._emptied = (begin, set_times), []
        self._times = time, []
        for accumulator, device in accumulators:
            with get_default_graph().device(device):
                self._times[1].append(raw._AccumulatorTime(accumulator.accumulator_ref))
                count = raw.Placeholder(dtype=np.int32, shape=[])
                taken = accumulator.take_grad(count)
                values = taken if isinstance(taken, Tensor) else taken[1]
                self._emptied.append((accumulator.num_accumulated(), count, values.op))

    def begin_anew(self, session: Session) -> None:
        """Drops what was handed in: the model went back to an earlier round, and nobody computes for that yet."""
        if self._began is None or self._emptied is None:
            return
        begin, set_times = self._began
        _run_to_its_end(session, begin)
        # first the time, so that nothing late joins while they are emptied; taking a mean moves it on
        session.run(set_times)
        counts = session.run([number for number, _, _ in self._emptied])
        for count, (_, wanted, take) in zip(counts, self._emptied, strict=True):
            if count:
                session.run(take, {wanted: count})
        session.run(set_times)

    def may_be_cut_off(self, session: Session) -> bool:
        """Whether a round was begun that is not counted, though nobody works on one: its update may be there by half.

        A round takes a mean from each accumulator, which moves that one's time on; then it updates the variables, some
        as soon as their own means are there; and last it counts itself. So when no time is ahead of what is counted,
        nothing was updated since, on one task or several.
        """
        return self.while_it_waits(session) is None

    def while_it_waits(self, session: Session) -> WhileARoundWaits | None:
        """What saves the model while a round waits for gradients; None where it may have begun (`may_be_cut_off`)."""
        if self._times is None:
            return None
        counted, times = session.run(self._times)
        if any(int(time) != int(counted) for time in times):
            return None
        return WhileARoundWaits(session, int(counted), self._times[1])

    #: Whether the queue outlives the session: a queue cannot be opened again, and the next session has the same.
    leaves_queue_open = False

    def _cancel_on_stop(self, sess: BaseSession, coord: Coordinator) -> None:
        if self.leaves_queue_open:
            return
        coord.wait_for_stop()
        is_followed = coord.is_followed(_DECIDED_WITHIN) if isinstance(coord, SessionCoordinator) else False
        if is_followed is None:
            # whoever runs steps waits for a token that nobody hands out any more
            sess.close()
        elif not is_followed:
            super()._cancel_on_stop(sess, coord)

    def between_rounds(self, action: Callable[[], object]) -> BetweenRounds:
        """Has something called before the next round, by the thread that would begin it."""
        asked = BetweenRounds(action)
        self._wanted.append(asked)
        return asked

    def withdraw(self, asked: BetweenRounds) -> None:
        """Has it not called any more; waits for its end where it is being called."""
        try:
            self._wanted.remove(asked)
        except ValueError:
            with admitted():
                asked.ended.wait()

    def ends_rounds_of(self, session: Session) -> bool:
        """Whether its thread runs in a session."""
        with self._lock:
            return self._runs.get(session, 0) > 0

    #: says whether this worker is chief, where that can change
    lease: ChiefLease | None = None
    #: has no round wait for this worker any more; how many others are there, None: nobody knows
    leave: Callable[[], int | None] = staticmethod(lambda: 0)

    def _run(self, sess: BaseSession, enqueue_op: Operation | Tensor, coord: Coordinator | None) -> None:
        if isinstance(coord, SessionCoordinator):
            coord.wait_until_begun(_BEGINS_WITHIN)
        super()._run(sess, enqueue_op, coord)

    def _enqueued(self) -> bool:
        if self.lease is not None:
            self.lease.check()
        while self._wanted:
            self._wanted.popleft().call()
        if self._is_to_rest.is_set():
            self._rests.set()
        return not self._rests.is_set()

    def _failed(self) -> None:
        # a round updates variables one after the other, on several tasks: some may have it, and others not
        if self.lease is not None:
            self.lease.from_the_dead = True

    def rest(self, within: float) -> bool:
        """Has no round begin any more in this session; whether the last one has ended within so many seconds.

        Else it waits for values that nobody hands in.
        """
        self._is_to_rest.set()
        with admitted():
            return self._rests.wait(within)

    def save_last(self, session: Session, save: Callable[[StepRunner], None]) -> None:
        """Has no round begin any more, and saves the model as the last one left it.

        A round that waits for gradients has changed nothing, but it may get them while the model is saved: then that
        checkpoint is dropped, and the model saved when the round has ended.

        Args:
            session: runs the rounds.
            save: saves the model by the steps of what it is given. Where that raises `RoundWentOn`, it is to do nothing
                more.
        """
        if self.rest(_ROUND_THAT_WAITS):
            save(session)
            return
        waits = self.while_it_waits(session)
        if waits is not None:
            with contextlib.suppress(RoundWentOn):
                save(waits)
                return
        if self.rest(_HALF_A_ROUND):
            save(session)
        else:
            logging.warning(
                "The last round has changed a part of the model and waits for gradients of the rest; the last "
                "checkpoint is the one of a round before it"
            )


class AwaitedRound:
    """Tells when a round has been waited for too long. Pure.

    A training that rests between two rounds (a checkpoint is read, nobody has examples) is not overdue: a token that is
    handed out once more, to a worker that has just begun to wait, would have it count twice in the round.

    Args:
        seconds: how long a round may be waited for.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        #: the round that is waited for, and since when that has been known
        self._number: int | None = None
        self._since = 0.0

    def is_overdue(self, number: int, is_awaited: bool, now: float) -> bool:
        """Whether the round has been waited for so long; the time then begins anew.

        Args:
            number: of the round that runs.
            is_awaited: whether a worker waits for its end.
            now: seconds, monotonic.
        """
        awaited = number if is_awaited else None
        if awaited != self._number:
            self._number, self._since = awaited, now
        if awaited is None or now - self._since < self._seconds:
            return False
        self._since = now
        return True


def _run_to_its_end(session: Session, operation: Operation) -> None:
    """Runs what takes as many tokens as a queue holds: a worker may take one after they were counted."""
    while True:
        try:
            session.run(operation, options=RunOptions(timeout_in_ms=_TAKEN_WITHIN_MS))
            return
        except errors.DeadlineExceededError:
            continue


#: of the optimizer of a graph that works in rounds
rounds_runners: Final[WeakKeyDictionary[Graph, RoundsRunner]] = WeakKeyDictionary()


class HandedIn(NamedTuple):
    """The accumulator of a variable.

    Attributes:
        handed_in: the time by which the accumulator finds what is handed in to be late, once it has it.
        mean: of what was handed in, once there is enough.
    """

    accumulator: AnyAccumulator
    device: str
    handed_in: Tensor
    mean: Any

    def set_time(self, number: TensorLike) -> Operation:
        with get_default_graph().device(self.device):
            return self.accumulator.set_global_step(number)

    def expect(self, workers: Tensor, version: Tensor) -> Operation:
        with get_default_graph().device(self.device):
            told: Operation = raw._ExpectGradients(self.accumulator.accumulator_ref, workers, version)
            return told


def accumulated(scope: str, value: Gradient | None, var: Variable, local: Tensor, m: int) -> HandedIn | None:
    """The accumulator of a variable, on its device, for means of m values; None if there is nothing to hand in."""
    if value is None:
        return None
    name = f"{var.op.name}/{scope}_accumulator"
    with get_default_graph().device(var.device):
        if isinstance(value, IndexedSlices):
            rows = SparseConditionalAccumulator(value.dtype, shape=(), shared_name=name)
            return HandedIn(rows, var.device, _hand_in_rows(rows, value, local, m), rows.take_indexed_slices_grad(m))
        dense = ConditionalAccumulator(value.dtype, shape=var.shape, shared_name=name)
        time = raw._HandInGradient(dense.accumulator_ref, local, value, most=m)
        return HandedIn(dense, var.device, time, dense.take_grad(m))


def _hand_in_rows(rows: SparseConditionalAccumulator, value: IndexedSlices, local: Tensor, m: int) -> Tensor:
    has_shape = value.dense_shape is not None
    shape: Any = raw.Cast(value.dense_shape, DstT=np.int64) if has_shape else np.zeros(0, np.int64)
    indices = raw.Cast(value.indices, DstT=np.int64)
    time: Tensor = raw._HandInSparseGradient(
        rows.accumulator_ref, local, indices, value.values, shape, has_known_shape=has_shape, most=m
    )
    return time


def token_queue(number: Variable, worker: int) -> FIFOQueue:
    name = f"replica_tokens_{worker}"
    with get_default_graph().device(number.device), get_default_graph().name_scope(""):
        return FIFOQueue(-1, np.int64, shapes=[()], name=name, shared_name=name)


class Begun:
    """The round of which everybody has been told: beside the one that is counted, which may not be told of yet.

    Between the update that ends a round and the tokens of the next, a token is on its way. Who took the number that is
    counted then, would take that token for the end of the round that just begins, and count twice in it.

    Args:
        device: where rounds are counted. What stands here is lost with its task, and in no checkpoint.
    """

    def __init__(self, device: str) -> None:
        self._device = device
        with get_default_graph().device(device), get_default_graph().control_dependencies(None):
            self._table = raw.MutableHashTableV2(
                key_dtype=np.int64, value_dtype=np.int64, shared_name="replica_round_begun"
            )

    def tell(self, token: TensorLike) -> Operation:
        """Notes that the round of a token was told of."""
        with get_default_graph().device(self._device):
            told: Operation = raw.LookupTableInsertV2(self._table, _THE_ROUND, raw.Reshape(token, [1]))
            return told

    def token(self, otherwise: TensorLike) -> Tensor:
        """The token of the round that was told of last; `otherwise` where none was since the task came."""
        with get_default_graph().device(self._device):
            found: Tensor = raw.Reshape(
                raw.LookupTableFindV2(self._table, _THE_ROUND, otherwise), np.zeros(0, np.int32)
            )
            return found


def hand_out(queue: FIFOQueue, token: TensorLike, condition: Tensor) -> Operation:
    """Puts a token into a queue, or none."""
    count = raw.Reshape(raw.Cast(condition, DstT=np.int32), [1])
    handed_out: Operation = queue.enqueue_many((raw.Fill(count, token),))
    return handed_out
