"""What an item of a plan is when it is bound to the resources of a task: something that can be run in a step."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax

from anabranch.graph.step_nodes import StepNode
from anabranch.runtime import trace_clock
from anabranch.runtime.step_frame import StepFrame


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


Recorder = Callable[[ItemEvent], None]
#: computes outputs from inputs among the values of a step, where NumPy's warnings are off already
Arithmetic = Callable[[list[Any]], None]


class ItemCall(ABC):
    """An island or host operation bound to the slots in which a step keeps its values.

    Attributes:
        op: the operation that stands for it in messages.
        kind: as of `ItemEvent`.
        operations: all that it runs.
        device: as of `ItemEvent`.
    """

    op: StepNode
    kind: str
    operations: Sequence[StepNode]
    device: str
    _outputs: Sequence[int]

    @abstractmethod
    def __call__(self, frame: StepFrame) -> None:
        """Runs it on the values of a step and stores its outputs there.

        Raises:
            OpError: it failed.
            NeedsPartsError: an island is not to run as one any more.
        """

    @property
    @abstractmethod
    def sources(self) -> list[str]:
        """The names of the operations whose results it takes."""

    def is_quick(self) -> bool:
        """Whether nothing is known now that would hold its thread: a program to compile, a lock, a user's function."""
        return False

    def is_quick_with(self, frame: StepFrame) -> bool:
        """The same, now that its inputs are there. Some calls are quick with inputs of shapes that they know."""
        return self.is_quick()

    def arithmetic(self) -> Arithmetic | None:
        """What a call does, if that is NumPy's arithmetic alone: of a short loop's time, what is around it is most."""
        return None

    def changes_at_once(self) -> bool:
        """Whether an exception that comes from outside while it runs finds what it changes unchanged or changed."""
        return False

    @abstractmethod
    def release(self) -> None:
        """Releases executables; a later run compiles what it needs anew."""

    def outputs_in(self, frame: StepFrame) -> list[Any]:
        """Its outputs among the values of a step."""
        return [frame.values[slot] for slot in self._outputs]

    def run_recorded(self, frame: StepFrame, record: Recorder) -> None:
        """As `__call__`; then waits for the outputs, and tells of it."""
        start = trace_clock.now()
        self(frame)
        # a device may still compute when the call returns; what is told is when the outputs are there
        jax.block_until_ready(self.outputs_in(frame))  # type: ignore[no-untyped-call]
        record(self.event(frame, start))

    def event(self, frame: StepFrame, start: float) -> ItemEvent:
        """Tells of a run that began at a time (s since the epoch) and has just ended."""
        names = tuple(op.name for op in self.operations)
        size = sum(getattr(value, "nbytes", 0) for value in self.outputs_in(frame))
        sources = tuple(dict.fromkeys(self.sources))
        thread = threading.get_ident()
        return ItemEvent(names[-1], self.kind, names, sources, start, trace_clock.now(), thread, size, self.device)
