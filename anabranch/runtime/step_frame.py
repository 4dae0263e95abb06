"""What the items of a step work on while it runs."""

from __future__ import annotations

from typing import Any


class StepFrame:
    """The values of one run of a step, or of one iteration of a loop in it, and what the items reach others by.

    Attributes:
        values: by slot; None where nothing has been computed yet, or nothing needs it any more.
        exchange: where tensors pass from device to device (`rendezvous.Exchange`); None where none does.
        waiting: who knows whether loops may go on (`waiting.StepWaiting`); None where nothing stops them.
    """

    __slots__ = ("exchange", "values", "waiting")

    def __init__(self, values: list[Any], exchange: Any = None, waiting: Any = None) -> None:
        self.values = values
        self.exchange = exchange
        self.waiting = waiting
