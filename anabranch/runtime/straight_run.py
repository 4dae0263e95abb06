"""A run of a partition that goes straight through its calls, and holds no thread where one of them waits."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from anabranch.core.pending import Pending
from anabranch.core.values import TensorValue
from anabranch.errors import OpError
from anabranch.runtime import trace_clock
from anabranch.runtime.early_chains import Chains, Way
from anabranch.runtime.host_call import HostKernelCall
from anabranch.runtime.item_call import ItemCall, Recorder
from anabranch.runtime.pace import takes_short_turns_here
from anabranch.runtime.rendezvous import Exchange
from anabranch.runtime.step_frame import StepFrame
from anabranch.runtime.waiting import ActiveSteps, StepWaiting, deadline_after
from anabranch.xla.lowering import NeedsPartsError


class StraightCalls:
    """The calls of a partition that runs straight through.

    Attributes:
        calls: in order; an island that is not to run as one any more is replaced by its parts.
        slow: by position, those that may wait, or hold their thread for long.
        emptied: for each call, the slots that nothing after it reads.
        holding: positions of the calls that may hold the thread that takes a turn, now or ever.
        chains: what is run early, see `runtime.early_chains`.
    """

    __slots__ = ("_split", "calls", "chains", "emptied", "holding", "slow")

    def __init__(
        self,
        calls: list[ItemCall],
        slow: Mapping[int, HostKernelCall],
        emptied: list[tuple[int, ...]],
        holding: Sequence[int],
        split: Callable[[ItemCall, NeedsPartsError], ItemCall],
        chains: Chains,
    ) -> None:
        self.calls, self.slow, self.emptied, self.holding = calls, slow, emptied, holding
        self._split, self.chains = split, chains

    def without(self, left_out: Collection[int]) -> StraightCalls:
        """The same, without the calls at these positions."""
        kept = [position for position in range(len(self.calls)) if position not in left_out]
        now_at = {position: now for now, position in enumerate(kept)}
        return StraightCalls(
            [self.calls[position] for position in kept],
            {now: self.slow[position] for now, position in enumerate(kept) if position in self.slow},
            [self.emptied[position] for position in kept],
            [now for now, position in enumerate(kept) if position in self.holding],
            self._split,
            {
                way: [now_at[position] for position in chain]
                for way, chain in self.chains.items()
                if all(position in now_at for position in chain)
            },
        )

    def is_quick(self) -> bool:
        """Whether nothing is known that would hold the thread that takes a turn."""
        return all(self.calls[position].is_quick() for position in self.holding)

    def release(self) -> None:
        """Releases the executables."""
        for call in self.calls:
            call.release()

    def replace(self, position: int, refusal: NeedsPartsError) -> ItemCall:
        """What runs from now on in place of an island that is not to run as one any more."""
        parts = self.calls[position] = self._split(self.calls[position], refusal)
        return parts


class StraightRun(StepWaiting):
    """One run; see the module docstring and `runtime.started_runs.Advancing`.

    Args:
        values: those of the partition's slots; the feeds are there.
        results: takes what is fetched out of the values.
        exchange: opens where tensors pass from device to device while it runs; None where none does.
    """

    def __init__(
        self,
        straight: StraightCalls,
        values: list[Any],
        results: Callable[[list[Any]], list[Any]],
        exchange: Callable[[], Exchange] | None,
        timeout: float | None,
        active: ActiveSteps,
        wake: Callable[[], None],
        number: int,
        record: Recorder | None,
    ) -> None:
        super().__init__(timeout, deadline_after(timeout), active, wake)
        self.number = number
        self._record = record
        self._straight, self._results = straight, results
        self._exchange = exchange
        self._opened: Exchange | None = None
        self._frame = StepFrame(values, None, self.watch)
        self._position = 0
        #: positions of what has run before its turn
        self._early: set[int] = set()
        self.is_to_change_threads = False

    def begin(self) -> None:
        """Lets others know of the run."""
        # before anything can go wrong or wait, so that a session that is closed meanwhile reaches it
        self._active.add(self)
        if self._exchange is not None:
            self._frame.exchange = self._opened = self._exchange()

    def go_on(self) -> list[Any] | None:
        """Runs call after call; returns the fetched values, or None where one waits.

        Raises:
            OpError: a call failed, the time is over, or the step was cancelled.
        """
        self.only_waits = False
        self._check_time()
        # a result that has come belongs to the call at which this run stands
        while not self._events.empty():
            self._handle(*self._events.get())
        holding = self._straight.holding if takes_short_turns_here() else ()
        self.is_to_change_threads = False
        while not self._pending and self._position < len(self._straight.calls):
            if self._position in holding and not self._straight.calls[self._position].is_quick_with(self._frame):
                self.is_to_change_threads = True
                return None
            if self._position in self._early:
                self._position += 1
                continue
            self._run_call()
            if self._opened is not None and self._opened.taken and self._straight.chains:
                self._run_early(self._opened.taken)
        if self._pending:
            self.only_waits = True
            return None
        # before the run ends: what it fetches may still be computed, and fail
        results = self._results(self._frame.values)
        if self._opened is not None:
            self._opened.finish()
        self._active.remove(self)
        return results

    def give_up(self, error: BaseException) -> None:
        """Ends a run that failed."""
        self._active.remove(self)
        for _, pending, _ in list(self._pending.values()):
            pending.cancel(error)
        if self._opened is not None:
            # before it is closed, so that other devices learn of this error and not only that nobody sent
            self._opened.abort(error)
            self._opened.finish()

    def _run_call(self) -> None:
        straight, position, frame = self._straight, self._position, self._frame
        slow = straight.slow.get(position)
        try:
            if slow is not None:
                if self._starts(slow):
                    return
            elif self._record is None:
                straight.calls[position](frame)
            else:
                straight.calls[position].run_recorded(frame, self._record)
        except NeedsPartsError as refusal:
            self._run(straight.replace(position, refusal))
        # as `_pass_on`, without the call of a Python function
        for slot in straight.emptied[position]:
            frame.values[slot] = None
        self._position = position + 1

    def _run_early(self, taken: Mapping[Way, TensorValue]) -> None:
        """Runs what follows from tensors that are there already. A recorded run has none: it is told of each task."""
        straight, frame = self._straight, self._frame
        for way in list(taken):
            for position in straight.chains.get(way, ()):
                straight.calls[position](frame)
                for slot in straight.emptied[position]:
                    frame.values[slot] = None
                self._early.add(position)

    def _run(self, call: ItemCall) -> None:
        if self._record is None:
            call(self._frame)
        else:
            call.run_recorded(self._frame, self._record)

    def _starts(self, call: HostKernelCall) -> bool:
        """Runs what may be slow; True where its result is not there yet."""
        if call.op.op_def.blocking:  # nothing can take the thread away from a function that holds it
            self._run(call)
            return False
        started = 0.0 if self._record is None else trace_clock.now()
        pending = call.start(self._frame)
        if pending is None or pending.is_settled:
            if pending is not None or self._record is not None:
                self._finish(call, pending, started)
            return False
        if self._record is None:
            # who waits long is told since when; what is there at once need not know
            started = trace_clock.now()
        # before its callback is set, which may make the event at once
        self._pending[call] = call.op, pending, started
        pending.when_settled(lambda settled: self._events.put((call, settled)))
        return True

    def _handle(self, call: HostKernelCall | None, outcome: Pending | OpError) -> None:
        # an event without a call is `StepWaiting.cancel`'s
        if call is None:
            assert isinstance(outcome, OpError)
            raise self._cancelled(outcome)
        assert isinstance(outcome, Pending)
        _, _, started = self._pending.pop(call)
        self._finish(call, outcome, started)
        self._pass_on()

    def _finish(self, call: HostKernelCall, pending: Pending | None, started: float) -> None:
        if pending is not None:
            call.finish(self._frame, pending)
        if self._record is not None:
            self._record(call.event(self._frame, started))

    def _pass_on(self) -> None:
        # a value goes as soon as nothing later reads it, not with the step, so that its memory can be used again
        for slot in self._straight.emptied[self._position]:
            self._frame.values[slot] = None
        self._position += 1
