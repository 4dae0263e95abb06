"""Control messages between processes of one host and one user, by a stream of the system's instead of by ZeroMQ.

ZeroMQ hands each message to a thread of its own, and that of the receiver's side to the thread that takes messages: two
wake-ups more, which take longer than all else that a small message takes. Where two processes have proved to be on one
host (`distributed.segments`), who sends connects to the other by a Unix socket:

    sender                                         receiver
    OFFER, when much has been said          ---->  reads the secret
                                            <----  TOKEN: the secret, and the address of a listener
    connects there, and writes a number
    STREAM (number), by ZeroMQ              ---->  accepts, and looks for the number
    all further control messages of this
    channel, by the stream                  ---->

What was sent by ZeroMQ before is read before the stream is: STREAM comes behind it. So the control lane stays in order,
and its numbers are counted as before. Addresses are names that the system makes up, and stand in no folder (abstract
sockets of Linux). Who connects must be a process of the same user, which the system tells, and know the number that
comes by the link.

#: A connection is written to under its own lock. While the receiving thread watches its descriptor, nobody else closes
#: it: another one could come to have the number.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import socket as sockets
import struct
import sys
import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final

from anabranch.distributed import wire
from anabranch.distributed.wire import STREAM_NUMBER_BYTES, Limits
from anabranch.runtime.messages import Buffer

#: bytes that are read at once: of small messages, and of a large one that has begun
_READ, _READ_LARGE = 1 << 16, 1 << 20
#: connections that wait to be accepted, or whose number was not asked for yet
_MOST_WAITING: Final = 128
_CREDENTIALS: Final = struct.Struct("3i")


class LocalListener:
    """Where processes of this host connect. Used by one thread, but for `address`.

    Attributes:
        address: what the others need to connect.

    Raises:
        OSError: there is no descriptor, or no such address.
    """

    def __init__(self) -> None:
        self._socket = sockets.socket(sockets.AF_UNIX, sockets.SOCK_STREAM)
        try:
            # an empty name: the system makes one up
            self._socket.bind("")
            self._socket.listen(_MOST_WAITING)
            self._socket.setblocking(False)
            self.address: bytes = self._socket.getsockname()
        except BaseException:
            self._socket.close()
            raise
        self._accepted: dict[bytes, sockets.socket] = {}

    def accept(self, number: bytes, limits: Limits) -> LocalReader | None:
        """The stream that begins with a number; None where there is none of this user's.

        Raises:
            OSError: no descriptor is left.
        """
        # strangers may connect as fast as they are sent away
        for _ in range(_MOST_WAITING):
            if number in self._accepted:
                break
            try:
                accepted, _ = self._socket.accept()
            except BlockingIOError:
                break
            self._keep(accepted)
        found = self._accepted.pop(number, None)
        return None if found is None else LocalReader(found, limits)

    def _keep(self, accepted: sockets.socket) -> None:
        """Keeps a stream until its number is asked for."""
        accepted.setblocking(False)
        try:
            begin = accepted.recv(STREAM_NUMBER_BYTES) if _is_own(accepted) else b""
        except OSError:  # nothing was written, or it is broken
            begin = b""
        if len(begin) < STREAM_NUMBER_BYTES:
            accepted.close()
            return
        self._accepted[begin] = accepted
        if len(self._accepted) > _MOST_WAITING:
            self._accepted.pop(next(iter(self._accepted))).close()

    def close(self) -> None:
        """Lets go of the address, and of what nobody asked for."""
        self._socket.close()
        while self._accepted:
            self._accepted.popitem()[1].close()


class LocalReader:
    """What another process writes to this one. Used by the receiving thread."""

    def __init__(self, socket: sockets.socket, limits: Limits) -> None:
        self._socket, self._limits = socket, limits
        #: what was read of a message that is not there whole
        self._begun = bytearray()
        #: how many bytes it has, as far as is known
        self._wanted = 0

    def fileno(self) -> int:
        return self._socket.fileno()

    def close(self) -> None:
        self._socket.close()

    def read(self) -> list[bytes] | None:
        """The messages that are there whole, each as `wire.split_joined` takes it; None: there will be no more.

        Raises:
            MalformedMessageError: what comes is no message, or one beyond the limits.
        """
        missing = self._wanted - len(self._begun)
        try:
            data = self._socket.recv(_READ if missing < _READ else min(missing, _READ_LARGE))
        except BlockingIOError:
            return []
        except OSError:
            return None
        if not data:
            return None
        if self._begun:
            self._begun += data
            if len(self._begun) < self._wanted:
                return []
            data = bytes(self._begun)
            self._begun.clear()
        self._wanted = 0
        return self._split(data)

    def _split(self, data: bytes) -> list[bytes]:
        messages: list[bytes] = []
        start, end = 0, len(data)
        while end - start >= wire.HEADER_BYTES:
            size = wire.joined_bytes(data, start, self._limits)
            if size > end - start:
                # a damaged size must not make one message of all that come; who has the rest looks at the header then
                wire.decode_header(data[start : start + wire.HEADER_BYTES], self._limits)
                self._wanted = size
                break
            # most reads are one message
            messages.append(data if size == end else data[start : start + size])
            start += size
        if start < end:
            self._begun += data[start:]
        return messages


class LocalWriter:
    """See `distributed.place.Connection`. It does not block: what the system does not take waits here.

    Args:
        address: of the listener.
        watch: is called when something waits, under the lock; from then on `flush` is to be called whenever the
            connection can be written to or has ended, and `let_go` when that says so.
        broken: is called once, when nobody reads any more what is sent.

    Attributes:
        number: what the stream begins with.

    Raises:
        OSError: nobody of this user listens there, or too many wait to be accepted.
    """

    def __init__(self, address: bytes, watch: Callable[[LocalWriter], None], broken: Callable[[], None]) -> None:
        self.number = secrets.token_bytes(STREAM_NUMBER_BYTES)
        self._watch, self._broken = watch, broken
        self._lock = threading.Lock()
        self._waiting: deque[memoryview] = deque()
        self._is_watched = self._is_over = self._is_closed = False
        self._socket = sockets.socket(sockets.AF_UNIX, sockets.SOCK_STREAM)
        try:
            self._socket.setblocking(False)
            self._socket.connect(address)
            if not _is_own(self._socket):
                raise PermissionError("another user listens there")
            self._socket.send(self.number)
        except BaseException:
            self._socket.close()
            raise

    def fileno(self) -> int:
        return self._socket.fileno()

    def send(self, parts: Sequence[Buffer]) -> None:
        """Sends one message; it does not block."""
        data = parts[0] if len(parts) == 1 else b"".join(wire.delimited(parts[0], parts[1:]))
        with self._lock:
            if self._is_over:
                return
            sent = 0 if self._waiting else self._write(data)
            if sent < len(data) and not self._is_over:
                self._waiting.append(memoryview(data)[sent:])
                if not self._is_watched:
                    self._is_watched = True
                    self._watch(self)

    def flush(self) -> bool:
        """Writes what waits, as far as that goes; whether nothing is left that it has to be watched for."""
        with self._lock:
            self._write_waiting()
            return not self._waiting

    def let_go(self) -> None:
        """Nobody watches it any more: it is closed now if that was to be, watched anew if something waits again."""
        with self._lock:
            if self._waiting:
                self._watch(self)
                return
            self._is_watched = False
            if self._is_closed:
                self._socket.close()

    def close(self, *, is_farewell: bool) -> None:
        """Closes it, without waiting; what was sent just before still leaves if it is a farewell, as far as the system
        takes it at once.
        """
        with self._lock:
            if is_farewell:
                self._write_waiting()
            self._is_over = self._is_closed = True
            self._waiting.clear()
            if self._is_watched:
                # its descriptor is somebody's still; the end makes it ready, and who watches it lets go
                with contextlib.suppress(OSError):
                    self._socket.shutdown(sockets.SHUT_RDWR)
            else:
                self._socket.close()

    def _write_waiting(self) -> None:
        while self._waiting:
            sent = self._write(self._waiting[0])
            if self._is_over:
                self._waiting.clear()
            elif sent < len(self._waiting[0]):
                self._waiting[0] = self._waiting[0][sent:]
                return
            else:
                self._waiting.popleft()

    def _write(self, data: Buffer) -> int:
        """Writes as much as the system takes; how much that was."""
        try:
            return self._socket.send(data)
        except BlockingIOError:
            return 0
        except OSError:
            if not self._is_over:
                self._is_over = True
                self._broken()
            return 0


def local_listener() -> LocalListener | None:
    """Where processes of this host connect to this one; None where that cannot be."""
    if sys.platform != "linux":
        return None
    try:
        return LocalListener()
    except OSError:  # no descriptor is left, or the system forbids it
        return None


def _is_own(socket: sockets.socket) -> bool:
    """Whether the process at the other end is this user's."""
    told = socket.getsockopt(sockets.SOL_SOCKET, sockets.SO_PEERCRED, _CREDENTIALS.size)
    _, user, _ = _CREDENTIALS.unpack(told)
    return bool(user == os.geteuid())
