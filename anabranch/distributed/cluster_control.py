"""How other processes of the user ask something of a cluster's supervisor: JSON lines through a socket of its folder.

Who may enter the folder (mode 0700) may ask. A request is an object with "do", the answer one with "error" or "done".
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final, TypeAlias

from anabranch.errors import InvalidArgumentError, OpError, UnavailableError

Request: TypeAlias = Mapping[str, Any]

_MAX_REQUEST: Final = 1 << 16
#: how long (s) one that has connected may take to say what it wants
_TALK_WITHIN: Final = 5.0
#: of the path of a socket, the zero at its end included (Linux; others take four less)
_MAX_PATH: Final = 104
#: where Linux has a process's open files
_DESCRIPTORS: Final = Path("/proc/self/fd")


class ControlSocket:
    """Answers requests, one at a time, on a thread of its own.

    Args:
        path: where it is made; there is nothing.
        answer: does what is asked, and says what the asker is told. An `OpError` is told as an error.

    Raises:
        InvalidArgumentError: the path is too long for a socket, on a system without /proc/self/fd.
    """

    def __init__(self, path: Path, answer: Callable[[Request], Mapping[str, Any]]) -> None:
        self._answer = answer
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            with _address(path) as address:
                self._socket.bind(address)
            self._socket.listen()
        except (OSError, OpError):
            self._socket.close()
            raise
        self._is_closing = False
        self._thread = threading.Thread(target=self._run, name="cluster control", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Answers no more; whoever waits for an answer is told that the supervisor has gone."""
        self._is_closing = True
        # wakes the thread in accept, which closing alone does not
        self._socket.shutdown(socket.SHUT_RDWR)
        if threading.current_thread() is not self._thread:
            self._thread.join()
        self._socket.close()

    def _run(self) -> None:
        while not self._is_closing:
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return
            with connection:
                self._serve(connection)

    def _serve(self, connection: socket.socket) -> None:
        connection.settimeout(_TALK_WITHIN)
        try:
            answer = self._answered(_line(connection))
            connection.sendall(json.dumps(answer).encode() + b"\n")
        except OSError:
            pass  # the asker has gone, or says nothing

    def _answered(self, line: bytes) -> Mapping[str, Any]:
        try:
            request = json.loads(line)
            if not isinstance(request, dict):
                return {"error": "a request is an object"}
            return {"done": self._answer(request)}
        except OpError as error:
            return {"error": error.message}
        except ValueError as error:
            return {"error": f"the request cannot be read: {error}"}


@contextlib.contextmanager
def _address(path: Path) -> Iterator[str]:
    """The address of the socket at `path`; where the path is too long for one, by way of its folder's descriptor.

    Raises:
        InvalidArgumentError: the path is too long, and the system has no /proc/self/fd.
        OSError: there is no such folder.
    """
    if len(os.fsencode(path)) < _MAX_PATH:
        yield os.fspath(path)
        return
    if not _DESCRIPTORS.is_dir():
        raise InvalidArgumentError(
            None, None, f"{path} is too long for a socket; let XDG_RUNTIME_DIR name a shorter folder"
        )
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield os.fspath(_DESCRIPTORS / str(folder) / path.name)
    finally:
        os.close(folder)


def ask(path: Path, request: Request, timeout: float) -> Any:
    """Asks a supervisor; returns what it says.

    Raises:
        UnavailableError: it does not answer, within `timeout` seconds.
        InvalidArgumentError: it says why it does not do that.
    """
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(timeout)
        try:
            with _address(path) as address:
                connection.connect(address)
            connection.sendall(json.dumps(request).encode() + b"\n")
            answer = json.loads(_line(connection) or b"null")
        except (OSError, ValueError) as error:
            raise UnavailableError(None, None, f"the supervisor at {path} does not answer: {error}") from None
    if not isinstance(answer, dict):
        raise UnavailableError(None, None, f"the supervisor at {path} ended before it answered")
    if "error" in answer:
        raise InvalidArgumentError(None, None, str(answer["error"]))
    return answer.get("done")


def _line(connection: socket.socket) -> bytes:
    data = b""
    while not data.endswith(b"\n") and len(data) <= _MAX_REQUEST:
        more = connection.recv(_MAX_REQUEST)
        if not more:
            break
        data += more
    return data
