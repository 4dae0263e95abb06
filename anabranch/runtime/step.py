"""A prepared step: its plan bound to the resources of a task, ready to run any number of times, from any thread."""

from __future__ import annotations

import contextlib
import itertools
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import jax
import numpy as np

from anabranch.core.bounded import LeastRecentlyUsed, limit_from, ticks
from anabranch.core.interrupts import uninterrupted
from anabranch.core.pending import Pending
from anabranch.core.resources import ResourceHandle
from anabranch.errors import ResourceExhaustedError
from anabranch.graph.loop_bodies import bodies_of
from anabranch.graph.loop_structure import PRIMITIVES
from anabranch.graph.operation import Operation
from anabranch.passes.prune import PLACEHOLDERS
from anabranch.pipeline import Plan, plan_of_island
from anabranch.runtime.containers import Containers
from anabranch.runtime.dispatcher import Mode, StepRun
from anabranch.runtime.executor_graph import Kind
from anabranch.runtime.host_call import HostKernelCall
from anabranch.runtime.host_context import BodyRunner
from anabranch.runtime.island_call import WATCH, IslandCall
from anabranch.runtime.plan_graph import PlanGraph, kind_of
from anabranch.runtime.random_counters import RandomCounters
from anabranch.runtime.transfer_call import EXCHANGE, TRANSFERS, TransferCall
from anabranch.runtime.waiting import ActiveSteps, StepWaiting, deadline_after, run_alone, wait_for
from anabranch.xla.islands import HostCall, Island, PlanItem
from anabranch.xla.lowering import NeedsHostError


@dataclass(frozen=True, slots=True)
class ItemEvent:
    """When one island or host operation ran: times in seconds since the epoch.

    Attributes:
        kind: "Island", or the type of a host operation.
        operations: the names of what ran.
        inputs: the names of the operations whose results it took.
        device: the full name of the device; empty: the default device.
    """

    name: str
    kind: str
    operations: tuple[str, ...]
    inputs: tuple[str, ...]
    start: float
    end: float
    thread: int
    output_bytes: int
    device: str = ""


#: environment variable that bounds the prepared steps that a process keeps, of all sessions together
PLANS_VARIABLE: Final = "ANABRANCH_MAX_PLANS"
DEFAULT_PLANS: Final = 256

#: the prepared steps of all sessions, and of the function bodies that they run
prepared_steps = LeastRecentlyUsed(lambda: limit_from(PLANS_VARIABLE, DEFAULT_PLANS))

Recorder = Callable[[ItemEvent], None]
StepCall = Callable[[list[Any]], None]


class PreparedStep:
    """See the module docstring. `run` may be called by several threads at once.

    A plan in which nothing dies, repeats, or waits or takes long beside something else runs straight through on the
    calling thread. Any other is run by the executor (docs/decisions/0015-executor.md).
    """

    def __init__(
        self,
        plan: Plan,
        containers: Containers,
        counters: RandomCounters,
        run_body: BodyRunner,
        active: ActiveSteps | None = None,
    ) -> None:
        self.plan = plan
        self.used = 0
        self._active = active = active or ActiveSteps()
        self._environment = (containers, counters, run_body, active)
        self._graph = PlanGraph(plan) if needs_executor(plan) else None
        self._slots = slots = _assign_slots(plan) if self._graph is None else self._graph.slots
        self._size = len(slots)
        self._has_transfers = any(isinstance(i, HostCall) and i.operation.type in TRANSFERS for i in plan.items)
        self._feed_slots = [slots[t] for t in plan.step.feeds]
        self._calls: list[StepCall] = []
        if self._graph is None:
            self._calls = [self._bind(item, position) for position, item in enumerate(plan.items)]
        else:
            self._bind_nodes(self._graph)
        #: positions of the calls that may wait, or hold their thread for long
        self._slow = frozenset(
            position for position, item in enumerate(plan.items) if isinstance(item, HostCall) and _is_slow(item)
        )
        resolved = [plan.step.resolve(t) for t in plan.step.fetches]
        self._known = {i: plan.step.known[t] for i, t in enumerate(resolved) if t in plan.step.known}
        self._fetch_slots = [-1 if i in self._known else slots[t] for i, t in enumerate(resolved)]
        #: whether an exception that comes from outside finds the step undone or done, wherever it enters
        self._is_whole = _is_whole(plan, self._calls) if self._graph is None else False
        #: for each call of a plan that runs straight through, the slots that nothing after it reads
        self._emptied = _last_readings(plan, slots, {*self._fetch_slots, *self._feed_slots}) if self._calls else []

    def _bind(self, item: PlanItem, position: int) -> StepCall:
        containers, counters, run_body, _ = self._environment
        devices = self.plan.devices
        if isinstance(item, Island):
            return IslandCall(item, self._slots, containers, counters, devices.get(item.device))
        if self._graph is None:
            unfed = {**self._slots, **dict.fromkeys(self.plan.step.feeds, self._size)}  # a fed output comes in vain
            outputs = [unfed[t] for t in item.operation.outputs]
        else:
            outputs = self._graph.output_slots(position)
        if item.operation.type in TRANSFERS:
            return TransferCall(item, self._slots, outputs, containers, counters, devices)
        return HostKernelCall(item, self._slots, outputs, containers, counters, run_body)

    def _bind_nodes(self, graph: PlanGraph) -> None:
        several = _uses_several_devices(self.plan)
        for position, item in enumerate(self.plan.items):
            if kind_of(item) is Kind.WORK:
                mode = _mode(item, several)
                work = _ItemWork(self._bind(item, position), mode, self._split)
                graph.graph.nodes[graph.node_number(position)].payload = work

    def release(self) -> None:
        """Lets the executables go; a run that is under way, or comes later, compiles what it needs anew."""
        for call in self._calls:
            if isinstance(call, IslandCall):
                call.executable.clear()
            elif isinstance(call, _SplitIsland):
                call.step.release()
        if self._graph is not None:
            for node in self._graph.graph.nodes:
                if isinstance(node.payload, _ItemWork):
                    node.payload.release()

    def run(self, feeds: Sequence[Any], record: Recorder | None = None, timeout: float | None = None) -> list[Any]:
        """Runs one step.

        Args:
            feeds: one array per feed, of the right dtype and shape.
            record: told about every island and host operation when given (and then each is waited for).
            timeout: seconds that operations may wait, and loops may run, in all; None: any time.

        Returns:
            The fetched values: NumPy arrays and scalars that nobody else holds; resource handles as they are.
        """
        return [_fetched(value) for value in self.run_on_device(feeds, record, timeout)]

    def run_on_device(
        self, feeds: Sequence[Any], record: Recorder | None = None, timeout: float | None = None
    ) -> list[Any]:
        """Like `run`, but the results stay what they are (device arrays)."""
        self.used = next(ticks)
        if self._is_whole:
            return self._run_straight(feeds, record, timeout)
        if self._graph is None:
            return uninterrupted(self._run_straight, feeds, record, timeout)
        return uninterrupted(self._run_graph, self._graph, feeds, record, timeout)

    def _run_straight(self, feeds: Sequence[Any], record: Recorder | None, timeout: float | None) -> list[Any]:
        values: list[Any] = [None] * (self._size + 3)
        for position, slot in enumerate(self._feed_slots):
            values[slot] = feeds[position]
        if timeout is None and not self._has_transfers:
            self._run_calls(values, record, None, None)
        else:
            self._run_calls_inside(values, record, timeout)
        if self._known:
            return [self._known[i] if slot < 0 else values[slot] for i, slot in enumerate(self._fetch_slots)]
        return [values[slot] for slot in self._fetch_slots]

    def _run_calls_inside(self, values: list[Any], record: Recorder | None, timeout: float | None) -> None:
        """Runs the calls where others can reach them: by the rendezvous, and to stop them at the deadline."""
        with contextlib.ExitStack() as stack:
            if self._has_transfers:
                values[EXCHANGE] = stack.enter_context(self._environment[0].rendezvous.step())
            deadline = deadline_after(timeout)
            if deadline is not None:
                watch = values[WATCH] = StepWaiting(timeout, deadline, self._active)
                stack.enter_context(watch.under_way())
            self._run_calls(values, record, timeout, deadline)

    def _run_calls(
        self, values: list[Any], record: Recorder | None, timeout: float | None, deadline: float | None
    ) -> None:
        for position, call in enumerate(self._calls):
            try:
                if position in self._slow:
                    self._run_slowly(call, values, record, timeout, deadline)
                elif record is None:
                    call(values)
                else:
                    _recorded(call, values, record)
            except NeedsHostError as refusal:
                self._calls[position] = parts = self._split(call, refusal)
                parts(values, record)
            for slot in self._emptied[position]:
                values[slot] = None

    def _run_slowly(
        self, call: StepCall, values: list[Any], record: Recorder | None, timeout: float | None, deadline: float | None
    ) -> None:
        """Runs what may wait or hold its thread, while nothing else of the step could run."""
        assert isinstance(call, HostKernelCall)
        if call.op.op_def.blocking:
            work = (lambda: call(values)) if record is None else (lambda: _recorded(call, values, record))
            run_alone(call.op, work, timeout, deadline, self._active)
            return
        started = 0.0 if record is None else time.time()
        pending = call.start(values)
        if pending is not None:
            if not pending.is_settled:
                wait_for(call.op, pending, timeout, deadline, self._active)
            call.finish(values, pending)
        if record is not None:
            record(_event(call, values, started))

    def _run_graph(
        self, graph: PlanGraph, feeds: Sequence[Any], record: Recorder | None, timeout: float | None
    ) -> list[Any]:
        with self._environment[0].rendezvous.step() if self._has_transfers else contextlib.nullcontext() as exchange:
            results = iter(StepRun(graph.graph, feeds, record, timeout, self._active, exchange).run())
        return [self._known[i] if slot < 0 else next(results) for i, slot in enumerate(self._fetch_slots)]

    def _split(self, call: StepCall, refusal: NeedsHostError) -> _SplitIsland:
        """What runs in place of an island of which one operation turned out to be host work."""
        assert isinstance(call, IslandCall)
        plan = plan_of_island(call.island, frozenset({refusal.op}), self.plan.devices)
        step = PreparedStep(plan, *self._environment)
        inputs = [self._slots[t] for t in plan.step.feeds]
        outputs = [self._slots[t] for t in plan.step.fetches]
        return _SplitIsland(step, inputs, outputs)


def needs_executor(plan: Plan) -> bool:
    """Whether something in a plan may die, repeat, run beside something else, or wait while something else should run.

    An operation that waits may do so in its place in the straight order, if whatever else may wait comes before or
    after it anyhow: nothing in the step is then needed for its wait to end. One that holds its thread for long may do
    so if besides all islands come before or after it: nothing in the step could then use the time.
    """
    calls = [item for item in plan.items if isinstance(item, HostCall)]
    if any(call.operation.type in PLACEHOLDERS for call in calls):
        return False  # one that is not fed: the step fails before anything has happened
    if _uses_several_devices(plan):
        return True
    if any(call.operation.type in PRIMITIVES for call in calls):
        return True
    slow = [call.operation for call in calls if _is_slow(call)]
    if any(one not in _before(plan, [other]) for one, other in itertools.pairwise(slow)):
        return True
    islands = [item for item in plan.items if isinstance(item, Island)]
    blocking = [op for op in slow if op.op_def.blocking]
    return any(not _are_ordered(plan, island, op) for island in islands for op in blocking)


def _is_whole(plan: Plan, calls: Sequence[StepCall]) -> bool:
    """Whether at most one item of a plan changes anything, and that one does so at once, or in a function of the user.

    (Signals are not put off inside functions of the user in any case.)
    """
    changing = [call for call, item in zip(calls, plan.items, strict=True) if _changes(item)]
    if len(changing) != 1:
        return not changing
    (call,) = changing
    return call.stores_at_once if isinstance(call, IslandCall) else call.op.type == "PyFunc"  # type: ignore[attr-defined]


def _changes(item: PlanItem) -> bool:
    """Whether anybody could tell that an item ran, or how far, from something other than its results."""
    if isinstance(item, Island):
        return bool(item.writes or item.random)
    op_def = item.operation.op_def
    return op_def.stateful or bool(op_def.writes) or op_def.asynchronous or bool(bodies_of(item.operation))


def _is_slow(call: HostCall) -> bool:
    return call.operation.op_def.asynchronous or call.operation.op_def.blocking


def _are_ordered(plan: Plan, island: Island, op: Operation) -> bool:
    return op in _before(plan, island.operations) or not _before(plan, [op]).isdisjoint(island.operations)


def _before(plan: Plan, later: Sequence[Operation]) -> set[Operation]:
    """The operations of a plan that must have ended before all of some others can begin; among them these."""
    grouping, seen, stack = plan.grouping, set[Operation](), list(later)
    while stack:
        op = stack.pop()
        if op in seen:
            continue
        seen.add(op)
        if op in grouping.waits:
            tensors, controls = grouping.waits[op]
            stack += [*(t.op for t in tensors), *controls, *grouping.order.get(op, ())]
    return seen


def _uses_several_devices(plan: Plan) -> bool:
    return len({item.device for item in plan.items if isinstance(item, Island)}) > 1


def _mode(item: PlanItem, several: bool) -> Mode:
    """How an item of a plan is run.

    Where islands run on several devices the thread of the step is kept free for what passes between them. That goes
    first: it is quick, and other devices may wait for it.
    """
    if isinstance(item, Island):
        return Mode.APART_BRIEFLY if several else Mode.HERE
    if item.operation.type in TRANSFERS:
        return Mode.AT_ONCE
    if item.operation.op_def.asynchronous:
        return Mode.ASYNCHRONOUS
    return Mode.APART if item.operation.op_def.blocking else Mode.HERE


class _ItemWork:
    """An item of a plan as the dispatcher runs it; see `runtime.dispatcher.Work`."""

    __slots__ = ("_call", "_split", "mode", "op")

    def __init__(self, call: StepCall, mode: Mode, split: Callable[[StepCall, NeedsHostError], _SplitIsland]) -> None:
        self._call, self.mode, self._split = call, mode, split
        self.op = call.island.operations[-1] if isinstance(call, IslandCall) else call.op  # type: ignore[attr-defined]

    def run(self, values: list[Any], record: Recorder | None) -> None:
        call = self._call
        try:
            if record is None:
                call(values)
            else:
                _recorded(call, values, record)
        except NeedsHostError as refusal:
            self._call = parts = self._split(call, refusal)
            parts(values, record)

    def release(self) -> None:
        if isinstance(self._call, IslandCall):
            self._call.executable.clear()
        elif isinstance(self._call, _SplitIsland):
            self._call.step.release()

    def start(self, values: list[Any]) -> Pending | None:
        return self._call.start(values)  # type: ignore[attr-defined, no-any-return]

    def finish(self, values: list[Any], pending: Pending, started: float, record: Recorder | None) -> None:
        call = self._call
        assert isinstance(call, HostKernelCall)
        call.finish(values, pending)
        if record is not None:
            record(_event(call, values, started))


@dataclass(frozen=True, slots=True)
class _SplitIsland:
    """A step that runs in place of an island, on the slots of the step around it."""

    step: PreparedStep
    inputs: list[int]
    outputs: list[int]

    def __call__(self, values: list[Any], record: Recorder | None = None) -> None:
        watch = values[WATCH]
        timeout = None if watch is None else watch.seconds_left
        results = self.step.run_on_device([values[i] for i in self.inputs], record, timeout)
        for position, slot in enumerate(self.outputs):
            values[slot] = results[position]


def _assign_slots(plan: Plan) -> dict[Any, int]:
    slots: dict[Any, int] = {}
    for tensor in plan.step.feeds:
        slots.setdefault(tensor, len(slots))
    for item in plan.items:
        tensors = item.outputs if isinstance(item, Island) else item.operation.outputs
        for tensor in tensors:
            slots.setdefault(tensor, len(slots))
    return slots


def _last_readings(plan: Plan, slots: dict[Any, int], kept: set[int]) -> list[tuple[int, ...]]:
    """Of each item of a plan, the slots that it is the last to read, those that are `kept` left out."""
    last: dict[int, int] = {}
    for position, item in enumerate(plan.items):
        last.update((slots[t], position) for t in item.inputs if t in slots)
    emptied: list[list[int]] = [[] for _ in plan.items]
    for slot in last.keys() - kept:
        emptied[last[slot]].append(slot)
    return [tuple(found) for found in emptied]


def _fetched(value: Any) -> Any:
    if isinstance(value, ResourceHandle):
        return value
    array = np.asarray(value)
    if array.ndim == 0:
        return array[()]
    try:
        return array.copy()
    except MemoryError as error:
        raise ResourceExhaustedError(
            None, None, f"the host is out of memory for a fetched value: {error}; fetch less of it"
        ) from error


def _recorded(call: StepCall, values: list[Any], record: Recorder) -> None:
    if isinstance(call, _SplitIsland):
        call(values, record)
        return
    start = time.time()
    call(values)
    if isinstance(call, IslandCall):
        jax.block_until_ready(call.outputs_in(values))  # type: ignore[no-untyped-call]
    record(_event(call, values, start))


def _event(call: StepCall, values: list[Any], start: float) -> ItemEvent:
    if isinstance(call, IslandCall):
        island = call.island
        names, kind = tuple(op.name for op in island.operations), "Island"
        inputs = [t.op.name for t in island.inputs]
        device = island.device
    else:
        assert isinstance(call, HostKernelCall)
        names, kind, inputs = (call.op.name,), call.op.type, call.sources
        device = call.device
    sources = tuple(dict.fromkeys(inputs))
    size = sum(getattr(v, "nbytes", 0) for v in call.outputs_in(values))
    return ItemEvent(names[-1], kind, names, sources, start, time.time(), threading.get_ident(), size, device)
