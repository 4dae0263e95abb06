"""What the master and the tasks of a cluster need of a network."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from anabranch.errors import OpError
from anabranch.runtime.messages import Frames, Transport
from anabranch.runtime.protocols import LinkTraffic
from anabranch.runtime.published_rows import ReadMemory
from anabranch.runtime.published_values import BoardMemory


class TaskConnection(Transport, Protocol):
    """The way to one task. Thread-safe.

    Attributes:
        address: the task's.
    """

    @property
    def address(self) -> str: ...

    @property
    def shares_memory(self) -> bool:
        """Whether the task has proved to be on this host."""

    def board(self, process: int, descriptor: int, number: int) -> memoryview | None:
        """Where the task shows values (`runtime.published_values`); None where that cannot be mapped."""

    def reader(self, process: int, number_at: int, number: int) -> ReadMemory | None:
        """Reads the memory of the task that shows a board of this number; None where that cannot be."""

    def on_lost(self, callback: Callable[[OpError], None]) -> Callable[[], None]:
        """Calls back whenever the task is given up as lost; returns what withdraws the callback."""


class TaskNetwork(Protocol):
    """Reaches tasks by their addresses."""

    def connect(self, address: str) -> TaskConnection:
        """The connection to a task; it need not be there yet."""

    def traffic(self) -> Sequence[LinkTraffic]:
        """What went between this process and each other that it knows."""

    def make_board(self) -> BoardMemory | None:
        """Memory that tasks of this host can map, to show values there; None where there is none."""

    def expect(self) -> None:
        """A thread of this process has nothing to do from now on but wait for what comes."""

    def has_left(self, name: str, address: str) -> bool:
        """Whether this process knows that a task has moved from an address: nobody there is heard as that task."""


class Timing(Protocol):
    """The time, and what happens at some."""

    def now(self) -> float:
        """Seconds of a clock that never goes back."""

    def call_at(self, when: float, function: Callable[[], None]) -> Callable[[], None]:
        """Calls a function, which must neither raise nor wait; returns what cancels that."""

    def pause(self, seconds: float) -> None:
        """Waits."""


class RequestHandler(Protocol):
    """What a task does with messages. Called in the order in which they come; must return at once."""

    def message(self, sender: str, frames: Frames) -> None:
        """Takes a message that is not answered. `sender` names the process that sent it."""

    def request(self, sender: str, frames: Frames, reply: Callable[[Frames], None]) -> None:
        """Takes a request; `reply` is called once, on any thread."""

    def lost(self, sender: str, task: str) -> None:
        """A process that has sent something is gone; what comes under its name from now on is from another.

        Args:
            task: what it calls itself: the full name of a task, or any other name.
        """
