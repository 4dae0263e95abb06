"""A prepared step: its plan bound to the resources of a task, ready to run any number of times, from any thread."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from anabranch.core.resources import ResourceHandle
from anabranch.graph.operation import Tensor
from anabranch.pipeline import Plan, plan_of_island
from anabranch.runtime.containers import Containers
from anabranch.runtime.host_call import HostKernelCall
from anabranch.runtime.host_context import BodyRunner
from anabranch.runtime.island_call import IslandCall
from anabranch.runtime.random_counters import RandomCounters
from anabranch.xla.islands import Island, PlanItem
from anabranch.xla.lowering import NeedsHostError


@dataclass(frozen=True, slots=True)
class ItemEvent:
    """When one island or host operation ran: times in seconds since the epoch.

    Attributes:
        kind: "Island", or the type of a host operation.
        operations: the names of what ran.
        inputs: the names of the operations whose results it took.
    """

    name: str
    kind: str
    operations: tuple[str, ...]
    inputs: tuple[str, ...]
    start: float
    end: float
    thread: int
    output_bytes: int


Recorder = Callable[[ItemEvent], None]
StepCall = Callable[[list[Any]], None]


class PreparedStep:
    """See the module docstring. `run` may be called by several threads at once."""

    def __init__(
        self, plan: Plan, containers: Containers, run_seed: int, counters: RandomCounters, run_body: BodyRunner
    ) -> None:
        self.plan = plan
        self._environment = (containers, run_seed, counters, run_body)
        self._slots = slots = _assign_slots(plan)
        self._size = len(slots)
        self._feed_slots = [slots[t] for t in plan.step.feeds]
        self._calls: list[StepCall] = [self._bind(item) for item in plan.items]
        resolved = [plan.step.resolve(t) for t in plan.step.fetches]
        self._known = {i: plan.step.known[t] for i, t in enumerate(resolved) if t in plan.step.known}
        self._fetch_slots = [-1 if i in self._known else slots[t] for i, t in enumerate(resolved)]

    def _bind(self, item: PlanItem) -> StepCall:
        containers, run_seed, counters, run_body = self._environment
        if isinstance(item, Island):
            return IslandCall(item, self._slots, containers, run_seed, counters)
        unfed = {**self._slots, **dict.fromkeys(self.plan.step.feeds, self._size)}  # a fed output is computed in vain
        outputs = [unfed[t] for t in item.operation.outputs]
        return HostKernelCall(item, self._slots, outputs, containers, run_seed, counters, run_body)

    def run(self, feeds: Sequence[Any], record: Recorder | None = None) -> list[Any]:
        """Runs one step.

        Args:
            feeds: one array per feed, of the right dtype and shape.
            record: told about every island and host operation when given (and then each is waited for).

        Returns:
            The fetched values: NumPy arrays and scalars that nobody else holds; resource handles as they are.
        """
        return [_fetched(value) for value in self.run_on_device(feeds, record)]

    def run_on_device(self, feeds: Sequence[Any], record: Recorder | None = None) -> list[Any]:
        """Like `run`, but the results stay what they are (device arrays)."""
        values: list[Any] = [None] * (self._size + 1)
        for slot, value in zip(self._feed_slots, feeds, strict=True):
            values[slot] = value
        for position, call in enumerate(self._calls):
            try:
                if record is None:
                    call(values)
                else:
                    _recorded(call, values, record)
            except NeedsHostError as refusal:
                self._calls[position] = parts = self._split(call, refusal)
                parts(values, record)
        return [self._known[i] if slot < 0 else values[slot] for i, slot in enumerate(self._fetch_slots)]

    def _split(self, call: StepCall, refusal: NeedsHostError) -> _Parts:
        """What runs in place of an island of which one operation turned out to be host work."""
        assert isinstance(call, IslandCall)
        plan = plan_of_island(call.island, frozenset({refusal.op}))
        step = PreparedStep(plan, *self._environment)
        inputs = [self._slots[t] for t in plan.step.feeds]
        outputs = [self._slots[t] for t in plan.step.fetches]
        return _Parts(step, inputs, outputs)


@dataclass(frozen=True, slots=True)
class _Parts:
    """A step that runs in place of an island, on the slots of the step around it."""

    step: PreparedStep
    inputs: list[int]
    outputs: list[int]

    def __call__(self, values: list[Any], record: Recorder | None = None) -> None:
        results = self.step.run_on_device([values[i] for i in self.inputs], record)
        for slot, value in zip(self.outputs, results, strict=True):
            values[slot] = value


def _assign_slots(plan: Plan) -> dict[Any, int]:
    slots: dict[Tensor, int] = {}
    for tensor in plan.step.feeds:
        slots.setdefault(tensor, len(slots))
    for item in plan.items:
        tensors = item.outputs if isinstance(item, Island) else item.operation.outputs
        for tensor in tensors:
            slots.setdefault(tensor, len(slots))
    return slots


def _fetched(value: Any) -> Any:
    if isinstance(value, ResourceHandle):
        return value
    array = np.asarray(value)
    if array.ndim == 0:
        return array[()]
    return array.copy()


def _recorded(call: StepCall, values: list[Any], record: Recorder) -> None:
    if isinstance(call, _Parts):
        call(values, record)
        return
    start = time.time()
    call(values)
    if isinstance(call, IslandCall):
        outputs = call.outputs_in(values)
        jax.block_until_ready(outputs)  # type: ignore[no-untyped-call]
        island = call.island
        names, kind, inputs = tuple(op.name for op in island.operations), "Island", island.inputs
    else:
        assert isinstance(call, HostKernelCall)
        outputs = call.outputs_in(values)
        names, kind, inputs = (call.op.name,), call.op.type, call.op.inputs
    sources = tuple(dict.fromkeys(t.op.name for t in inputs))
    size = sum(getattr(v, "nbytes", 0) for v in outputs)
    record(ItemEvent(names[-1], kind, names, sources, start, time.time(), threading.get_ident(), size))
