"""The dispatcher: threads and waiting for the executor, which has neither (§3.2, WP5.3; design D8).

A `StepRun` is one run of a step. The thread that called for the step owns it: only that thread talks to the executor,
runs islands and quick host operations, and, when there is nothing to run, waits for events. (A run that was started
without a thread is owned by one at a time, which each event brings: `runtime.started_runs`.) Asynchronous operations
are started by it and tell it by an event that they are settled. Operations that may hold a thread for long get one of
their own, unless nothing else could run meanwhile.

Every wait ends: by an event, by the deadline of the step, by an interrupt, or by `StepRun.cancel` from another thread.
A step that fails cancels what it started and waits for islands that run on other threads, since those end. It does
not wait for user functions, which may not.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from enum import Enum
from typing import Any, Protocol

from anabranch.core.interrupts import admit
from anabranch.core.pending import Pending
from anabranch.errors import OpError
from anabranch.graph.step_nodes import StepNode
from anabranch.runtime import trace_clock
from anabranch.runtime.executor import Executor, Instance
from anabranch.runtime.executor_graph import SEND, ExecutorGraph
from anabranch.runtime.item_call import Arithmetic, Recorder
from anabranch.runtime.step_frame import NestedExchange, StepFrame
from anabranch.runtime.waiting import ActiveSteps, StepWaiting, deadline_after, error_of
from anabranch.runtime.worker_threads import worker_threads


class Mode(Enum):
    """How a piece of work is run."""

    #: by the thread of the step
    HERE = "here"
    #: like `HERE`, and so quick that it comes before everything else
    AT_ONCE = "at once"
    #: by a thread of its own, which it may hold for long
    APART = "apart"
    #: like `APART`, but known to end
    APART_BRIEFLY = "apart, briefly"
    #: started by the thread of the step, and settled by somebody else
    ASYNCHRONOUS = "asynchronous"


class Work(Protocol):
    """What a work node of the graph has as its payload."""

    @property
    def mode(self) -> Mode:
        """How it is to be run."""

    @property
    def op(self) -> StepNode:
        """The operation that stands for it in messages."""

    def run(self, frame: StepFrame, record: Recorder | None) -> bool:
        """Computes outputs from inputs, in the slots of an iteration. `record`: who is told of it, or None.

        Returns:
            Whether it has not done all of it, and wants another turn: only work that runs `HERE`.
        """

    def arithmetic(self) -> Arithmetic | None:
        """What `run` does, if that is NumPy's arithmetic alone; see `ItemCall.arithmetic`."""

    def start(self, frame: StepFrame) -> Pending | None:
        """For asynchronous work: like `run`, but returns what to wait for if it is not done."""

    def finish(self, frame: StepFrame, pending: Pending, started: float, record: Recorder | None) -> bool:
        """For asynchronous work: stores the outputs of what `start` returned; raises what it failed with.

        Returns:
            Whether it received a dead value, so that its outputs are dead.
        """

    def send_dead(self, frame: StepFrame) -> None:
        """For what sends to another task: sends that its input is dead."""

    def release(self) -> None:
        """Releases executables; a later run compiles what it needs anew."""


class StepRun(StepWaiting):
    """One run of a step; see the module docstring.

    Args:
        graph: its work nodes have `Work` payloads.
        feeds: one value per feed.
        record: told about everything that runs, when given.
        timeout: seconds after which the step fails; None: never.
        exchange: as of `Executor`.
        wake, number: as of `StepWaiting`.
    """

    def __init__(
        self,
        graph: ExecutorGraph,
        feeds: Sequence[Any],
        record: Recorder | None,
        timeout: float | None,
        active: ActiveSteps,
        exchange: NestedExchange | None = None,
        wake: Callable[[], None] | None = None,
        number: int | None = None,
    ) -> None:
        super().__init__(timeout, deadline_after(timeout), active, wake)
        self.number = number
        self._has_loops = graph.has_loops
        self._executor = Executor(graph, feeds, exchange, self.watch)
        self._record = record
        self._here: deque[Instance] = deque()
        #: what ran on another thread and has ended, until its event is handled
        self._ended: set[Instance] = set()

    # ------------------------------------------------------------------ the thread of the step
    def run(self) -> list[Any]:
        """Runs the step; returns the fetched values.

        Raises:
            OpError: what an operation failed with; DeadlineExceededError; CancelledError.
            BaseException: an interrupt of this thread. The step is over then as well.
        """
        executor = self._executor
        # around `_give_up` as well, which waits for islands: a cancellation must still reach the loops in them
        with self.under_way():
            try:
                self._hand_out(executor.start())
                while not executor.done:
                    if executor.error is not None:
                        raise executor.error
                    if not self._run_next():
                        self._handle(*self._wait())
                return self._results()
            except BaseException as error:
                self._give_up(error)
                raise

    def begin(self) -> None:
        """Starts a run that nobody waits for: from now on `go_on` has something to do."""
        # before anything runs, so that a session that is closed meanwhile reaches it
        self._active.add(self)
        self._hand_out(self._executor.start())

    def go_on(self) -> list[Any] | None:
        """Runs what can be run; returns the fetched values, or None where the run waits for an event.

        Raises:
            OpError: as `run`; `give_up` follows.
        """
        executor = self._executor
        self.only_waits = False
        self._check_time()
        while not executor.done:
            if executor.error is not None:
                raise executor.error
            if self._run_next():
                continue
            if self._events.empty():
                # work of the step on other threads is no waiting: it ends by itself, and brings the next turn
                self.only_waits = not self._apart
                return None
            self._handle(*self._events.get())
        self._active.remove(self)
        return self._results()

    def _results(self) -> list[Any]:
        results = self._executor.fetches()
        self._executor.forget()
        return results

    def give_up(self, error: BaseException) -> None:
        """Ends a run that nobody waits for, and that failed."""
        self._active.remove(self)
        self._give_up(error)

    def _run_next(self) -> bool:
        """Runs something that is ready, and handles the events that have come meanwhile; False where nothing is."""
        if self._has_loops:
            admit()  # one that never ends must not keep an interrupt waiting
        if self._here:
            instance = self._here.popleft()
            node, iteration = instance
            if node.payload.run(iteration, self._record):
                self._here.append(instance)
            else:
                self._hand_out(self._executor.finished(instance))
        elif self._executor.paused:
            self._hand_out(self._executor.resume())
        else:
            return False
        # after every item, and not only where nothing is ready: a loop always has something ready
        self._check_time()
        while not self._events.empty():
            self._handle(*self._events.get())
        return True

    def _handle(self, instance: Instance | None, outcome: Pending | BaseException | None) -> None:
        # an event about nothing is `StepWaiting.cancel`'s
        if instance is None:
            assert isinstance(outcome, OpError)
            raise self._cancelled(outcome)
        node, iteration = instance
        dead = False
        if isinstance(outcome, Pending):
            _, _, started = self._pending.pop(instance)
            dead = node.payload.finish(iteration, outcome, started, self._record)
        else:
            del self._apart[instance]
            self._ended.discard(instance)
            if outcome is not None:
                raise outcome
        self._hand_out(self._executor.finished(instance, dead))

    # ---- starting
    def _hand_out(self, ready: list[Instance]) -> None:
        apart: list[Instance] = []
        # no recursion: what is done at once makes more ready at once, in chains of any length
        while ready:
            more: list[Instance] = []
            for instance in ready:
                mode = instance[0].payload.mode
                if mode is Mode.HERE:
                    self._here.append(instance)
                elif mode is Mode.ASYNCHRONOUS:
                    more += self._start(instance)
                elif mode is Mode.AT_ONCE:
                    node, iteration = instance
                    if node.kind == SEND and iteration.marks[node.index]:
                        node.payload.send_dead(iteration)
                    else:
                        node.payload.run(iteration, self._record)
                    more += self._executor.finished(instance)
                else:
                    apart.append(instance)
            ready = more
        # `running` counts what is handed out and not reported: nothing else is under way; a deadline must be able to
        # end the step while this runs
        if len(apart) == 1 and self._executor.running == 1 and self._deadline is None:
            self._here.append(apart.pop())  # a thread of its own would only take time
        for instance in apart:
            self._run_apart(instance)

    def _start(self, instance: Instance) -> list[Instance]:
        node, iteration = instance
        started = trace_clock.now()
        pending = node.payload.start(iteration)
        if pending is None:
            return self._executor.finished(instance)
        if pending.is_settled:
            return self._executor.finished(instance, node.payload.finish(iteration, pending, started, self._record))
        self._pending[instance] = node.payload.op, pending, started
        # an event and no more: any thread may settle the result, and the executor is for the thread of the step alone
        pending.when_settled(lambda settled: self._events.put((instance, settled)))
        return []

    def _run_apart(self, instance: Instance) -> None:
        node, iteration = instance

        def run() -> None:
            outcome = error_of(lambda: node.payload.run(iteration, self._record))
            # before the event: `_give_up` looks here whenever an event wakes it
            self._ended.add(instance)
            self._events.put((instance, outcome))

        worker_threads.submit(run)
        # not before it is sure to run: `_give_up` waits for it
        self._apart[instance] = node.payload.op, trace_clock.now()

    def _brief(self) -> set[Instance]:
        """What runs on other threads and is known to end."""
        return {i for i in self._apart if i[0].payload.mode is Mode.APART_BRIEFLY}

    def _may_be_left(self) -> bool:
        # what is brief is waited for in `_give_up` in any case: an interrupt could not end the step any earlier
        return not self._brief()

    # ---- ending
    def _give_up(self, error: BaseException) -> None:
        # first, so that nothing which ends from now on makes more ready
        self._executor.abort(error)
        for _, pending, _ in list(self._pending.values()):
            pending.cancel(error)
        brief = self._brief()
        while not brief <= self._ended:  # the event of one that has ended may have been drawn when the error came
            self._events.get()
        self._executor.forget()
