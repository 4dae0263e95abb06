"""What starts a part of a step on another task, kept until there is a tensor to go along (§4.4)."""

from __future__ import annotations

from collections.abc import Callable

from anabranch.core.values import TensorValue
from anabranch.runtime.rendezvous import Key


class HeldStart:
    """What starts a partition elsewhere, once, along with the first tensor for it."""

    __slots__ = ("_left", "_send")

    def __init__(self, send: Callable[[tuple[Key, TensorValue | None] | None], None]) -> None:
        self._send = send
        #: taken out by who sends it: threads may come at once
        self._left = [None]

    def send(self, key: Key | None = None, value: TensorValue | None = None) -> bool:
        """Sends it, with a tensor where a key is given (without a value: a dead one); False if it was sent before."""
        try:
            self._left.pop()
        except IndexError:
            return False
        self._send(None if key is None else (key, value))
        return True
