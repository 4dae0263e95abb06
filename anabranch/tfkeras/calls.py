"""Which layers are being called, from the outermost to the innermost, in this thread."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator

from anabranch.core.values import PassedOn


class _Calls(threading.local):
    def __init__(self) -> None:
        self.training: list[PassedOn] = []


_calls = _Calls()


def in_call() -> bool:
    """Whether a layer's `call` is running."""
    return bool(_calls.training)


def training() -> PassedOn:
    """What the innermost call that was told whether it trains was told; None where none was."""
    return next((value for value in reversed(_calls.training) if value is not None), None)


@contextlib.contextmanager
def entered(training: PassedOn) -> Iterator[None]:
    """While the block runs, a layer is being called, with that argument `training`."""
    _calls.training.append(training)
    try:
        yield
    finally:
        _calls.training.pop()
