"""Free ports of this machine that stay free for those they were chosen for."""

from __future__ import annotations

import socket
import sys
from collections.abc import Sequence
from types import TracebackType
from typing import Final, Self

from anabranch.errors import UnavailableError

_LOOPBACK: Final = "127.0.0.1"


class HeldPorts:
    """Ports of an interface, the loopback one if no other is named, chosen by the system.

    A port that was only looked up may be given to somebody else before its task listens there, or while the task is
    started again. So a socket is kept bound to each, which does not listen: Linux then gives the port to nobody who
    asks for any port, and yet lets a task bind it that asks for this one (both with SO_REUSEADDR, as servers do). Other
    systems would refuse the task; there the sockets are closed at once.

    Args:
        count: how many.
        host: the interface whose ports they are; "": all.
        wanted: which ports; none: the system chooses.

    Attributes:
        ports: their numbers.

    Raises:
        UnavailableError: the system has none, or those that are wanted are taken.
    """

    def __init__(self, count: int, host: str = _LOOPBACK, wanted: Sequence[int] = ()) -> None:
        self._sockets: list[socket.socket] = []
        try:
            for port in wanted or [0] * count:
                self._sockets.append(_bound(host, port))
        except OSError as error:
            self.close()
            raise UnavailableError(None, None, f"no free port of this machine can be had: {error}") from error
        self.ports: list[int] = [held.getsockname()[1] for held in self._sockets]
        if sys.platform != "linux":
            self.close()

    def close(self) -> None:
        """Gives the ports back. Idempotent."""
        while self._sockets:
            self._sockets.pop().close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _bound(host: str, port: int) -> socket.socket:
    held = socket.socket()
    try:
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        held.bind((host, port))
    except OSError:
        held.close()
        raise
    return held
