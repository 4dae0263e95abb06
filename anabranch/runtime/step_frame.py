"""What the items of a step work on while it runs."""

from __future__ import annotations

from typing import Any, Protocol

from anabranch.core.values import TensorValue
from anabranch.errors import OpError
from anabranch.xla.watched_loops import Watch


class NestedExchange(Protocol):
    """Where tensors pass from device to device in one iteration; see `rendezvous.Exchange`."""

    taken: dict[tuple[str, str, str], TensorValue]

    def within(self, frame: str, iteration: int) -> NestedExchange:
        """The same in an iteration of a frame that is entered in this iteration."""

    def send(self, source: str, destination: str, tensor: str, value: TensorValue) -> None:
        """Sends a value."""

    def send_away(self, source: str, destination: str, tensor: str, value: TensorValue) -> None:
        """Sends a value, or that it is dead, to another task."""

    def ask(self, source: str, destination: str, tensor: str) -> Any:
        """The value if it was sent already, else a `Pending` of it."""


class FrameWaiting(Watch, Protocol):
    """Who knows whether loops may go on; see `waiting.StepWaiting`.

    Attributes:
        stopped: why loops of the step were stopped.
    """

    stopped: OpError | None

    @property
    def seconds_left(self) -> float | None:
        """The time until the deadline (s); None where there is none."""


class StepFrame:
    """The values of one run of a step, or of one iteration of a loop in it, and what the items reach others by.

    Attributes:
        values: by slot; None where nothing has been computed yet, or nothing needs it any more.
        exchange: where tensors pass from device to device (`rendezvous.Exchange`); None where none does.
        waiting: who knows whether loops may go on (`waiting.StepWaiting`); None where nothing stops them.
    """

    __slots__ = ("exchange", "values", "waiting")

    def __init__(
        self, values: list[Any], exchange: NestedExchange | None = None, waiting: FrameWaiting | None = None
    ) -> None:
        self.values = values
        self.exchange = exchange
        self.waiting = waiting
