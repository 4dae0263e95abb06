"""The secret that the processes of a cluster share (CURVE, over ZeroMQ), and where it is kept.

A cluster has one key pair. Who holds it may join the cluster, and so run graphs as the user of its tasks.
"""

from __future__ import annotations

import os
import secrets
import stat
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from anabranch.errors import InvalidArgumentError, NotFoundError, PermissionDeniedError

#: the environment variable with the secret itself, and the one with the path of a file that has it
SECRET_VARIABLE: Final = "ANABRANCH_CLUSTER_SECRET"
FILE_VARIABLE: Final = "ANABRANCH_CLUSTER_KEYS"
_BYTES: Final = 32


@dataclass(frozen=True, slots=True)
class CurveKeys:
    """A cluster's key pair, as the 32 bytes of its secret half; the public half follows from it."""

    secret: bytes = field(repr=False)

    def __post_init__(self) -> None:
        if len(self.secret) != _BYTES:
            raise InvalidArgumentError(None, None, f"the secret of a cluster has {_BYTES} bytes; {_WAY_OUT}")

    @staticmethod
    def generate() -> CurveKeys:
        """A new key pair."""
        return CurveKeys(secrets.token_bytes(_BYTES))

    @staticmethod
    def load(path: str | os.PathLike[str] | None = None) -> CurveKeys | None:
        """The keys that a file has, or else the environment; None if neither is named.

        Raises:
            NotFoundError: there is no such file.
            PermissionDeniedError: others than its owner may read the file.
            InvalidArgumentError: there is something else in it.
        """
        if path is None:
            secret = os.environ.get(SECRET_VARIABLE)
            if secret:
                return _parsed(secret, f"the environment variable {SECRET_VARIABLE}")
            path = os.environ.get(FILE_VARIABLE)
        return _read(Path(path)) if path else None

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the keys to a new file that only its owner may read.

        Raises:
            FileExistsError: there is such a file: the keys of a running cluster are not lost by accident.
        """
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w", encoding="ascii") as file:
            file.write(self.secret.hex() + "\n")


_WAY_OUT: Final = "make one with `anabranch cluster keys`"


def _read(path: Path) -> CurveKeys:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        raise NotFoundError(None, None, f"there is no file {path} with the keys of a cluster; {_WAY_OUT}") from None
    except PermissionError:
        raise PermissionDeniedError(None, None, f"this user may not read the keys of a cluster in {path}") from None
    with os.fdopen(descriptor, "rb") as file:
        # asked of what was opened, which nobody can exchange for another file meanwhile
        mode = stat.S_IMODE(os.fstat(file.fileno()).st_mode)
        if mode & 0o077:
            raise PermissionDeniedError(
                None, None, f"others may read the keys of a cluster in {path} (mode {mode:04o}); chmod 600 {path}"
            )
        return _parsed(file.read(1024).decode("ascii", "replace"), str(path))


def _parsed(text: str, where: str) -> CurveKeys:
    try:
        secret = bytes.fromhex(text.strip())
    except ValueError:
        secret = b""
    if len(secret) != _BYTES:
        # without the text: most of it may be the secret
        raise InvalidArgumentError(
            None, None, f"{where} does not hold the keys of a cluster ({2 * _BYTES} hexadecimal digits); {_WAY_OUT}"
        )
    return CurveKeys(secret)
