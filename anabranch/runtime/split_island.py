"""What runs in place of an island that is not to run as one any more."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from anabranch.graph.step_nodes import StepTensor
from anabranch.runtime.island_call import IslandCall
from anabranch.runtime.item_call import ItemCall, Recorder
from anabranch.runtime.step_frame import StepFrame
from anabranch.xla.one_thread import own_clients


class _BoundParts(Protocol):
    """The parts of an island, bound: see `runtime.bound_partition`."""

    def run_on_device(
        self, number: int, feeds: Sequence[Any], record: Recorder | None = None, timeout: float | None = None
    ) -> list[Any]: ...

    def release(self) -> None: ...

    def is_warm(self, threads: int) -> bool: ...


class SplitIsland(ItemCall):
    """A step that runs in place of an island, on the slots of the step around it."""

    def __init__(self, call: IslandCall, step: _BoundParts, slots: dict[StepTensor, int]) -> None:
        self.op, self.kind, self.operations, self.device = call.op, call.kind, call.operations, call.device
        self._step = step
        self._inputs = [slots[t] for t in call.island.inputs]
        self._outputs = [slots[t] for t in call.island.outputs]
        self._sources = call.sources

    def __call__(self, frame: StepFrame) -> None:
        self._run(frame, None)

    def run_recorded(self, frame: StepFrame, record: Recorder) -> None:
        """Tells of each of its own items."""
        self._run(frame, record)

    def _run(self, frame: StepFrame, record: Recorder | None) -> None:
        values = frame.values
        timeout = None if frame.waiting is None else frame.waiting.seconds_left
        # no other task knows of it, so that it needs no number
        results = self._step.run_on_device(0, [values[i] for i in self._inputs], record, timeout)
        for position, slot in enumerate(self._outputs):
            values[slot] = results[position]

    @property
    def sources(self) -> list[str]:
        return self._sources

    def release(self) -> None:
        self._step.release()

    def is_warm(self) -> bool:
        """Whether its programs are compiled, for all threads that have programs of their own."""
        return self._step.is_warm(own_clients.count)
