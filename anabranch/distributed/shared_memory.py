"""Memory that processes of one host and one user share, as files of Linux that have no name (memfd).

Such a file stands in no folder: other processes open it as a descriptor of the process that made it, which the system
allows to the same user only, and it is gone when the last process that holds it ends, however that ends. Nothing is to
be swept, and /dev/shm may be small or missing. Where there are no such files, nothing is shared.
"""

from __future__ import annotations

import fcntl
import hashlib
import hmac
import mmap
import os
import secrets
import stat
import sys
from typing import Any, Final

import numpy as np

from anabranch.distributed.segments import SECRET_BYTES, Offer
from anabranch.runtime.messages import Buffer

_NAME: Final = "anabranch"
#: where a frame begins in its block: a page, so that it is aligned; before it its use and number stand
_HEAD: Final = mmap.PAGESIZE
#: numbers of Linux (include/uapi/linux/fcntl.h), which `fcntl` has on Linux only
_ADD_SEALS, _GET_SEALS = 1033, 1034
_SEAL_SEAL, _SEAL_SHRINK, _SEAL_GROW = 1, 2, 4


def shared_memory() -> ProcessMemory | None:
    """What this process shares memory with; None where that cannot be."""
    if sys.platform != "linux":
        return None
    try:
        return ProcessMemory()
    except OSError:  # no descriptor is left, or the system forbids it
        return None


class ProcessMemory:
    """See `distributed.segments.Memory`. Thread-safe.

    Raises:
        OSError: there is no memory or descriptor for the secret.
    """

    def __init__(self) -> None:
        self._secret = secrets.token_bytes(SECRET_BYTES)
        self._descriptor = _sealed_file(SECRET_BYTES)
        os.pwrite(self._descriptor, self._secret, 0)

    def close(self) -> None:
        """Lets go of the secret."""
        os.close(self._descriptor)

    def offer(self) -> Offer:
        """What this process offers to all."""
        return Offer(os.getpid(), self._descriptor, hashlib.sha256(self._secret).digest())

    def is_secret(self, token: bytes) -> bool:
        """Whether a token is the secret that was offered."""
        return hmac.compare_digest(token, self._secret)

    def secret(self, offer: Offer) -> bytes | None:
        """The secret that another process offers; None where it is not the one that it should be."""
        try:
            descriptor = _opened(offer.process, offer.descriptor, SECRET_BYTES)
        except OSError:
            return None
        try:
            secret = os.pread(descriptor, SECRET_BYTES, 0)
        finally:
            os.close(descriptor)
        return secret if hmac.compare_digest(hashlib.sha256(secret).digest(), offer.digest) else None

    def make(self, capacity: int) -> MadeBlock | None:
        """A new block; None where there is no memory for it."""
        try:
            return MadeBlock(capacity)
        except OSError:
            return None

    def map(self, process: int, descriptor: int, number: int, capacity: int) -> MappedBlock | None:
        """Another process's block; None where it is not what it should be."""
        try:
            opened = _opened(process, descriptor, _HEAD + capacity)
        except OSError:
            return None
        try:
            block = MappedBlock(opened, capacity)
        except OSError:
            return None
        finally:
            os.close(opened)
        return block if block.number == number else None


class MadeBlock:
    """See `distributed.segments.Block`."""

    def __init__(self, capacity: int) -> None:
        self.process = os.getpid()
        self.descriptor = _sealed_file(_HEAD + capacity)
        try:
            self._bytes, self._head = _mapped(self.descriptor, _HEAD + capacity)
        except BaseException:
            os.close(self.descriptor)
            raise
        self.number = secrets.randbits(64)
        self._head[1] = self.number

    @property
    def number_at(self) -> int:
        """Where the number stands in this process's memory."""
        return int(self._head.ctypes.data) + self._head.itemsize

    @property
    def released(self) -> int:
        """The last use that was released."""
        return int(self._head[0])

    @property
    def contents(self) -> memoryview:
        """All of it, for this process to write to."""
        return memoryview(self._bytes.data)[_HEAD:]

    def write(self, frame: Buffer) -> None:
        """Copies a frame to its beginning."""
        # NumPy copies without Python's lock, which a memoryview keeps
        np.copyto(self._bytes[_HEAD : _HEAD + len(frame)], np.frombuffer(frame, np.uint8))

    def close(self) -> None:
        """Lets go of it; who writes to it still, on another thread, keeps the mapping until then."""
        os.close(self.descriptor)


class MappedBlock:
    """See `distributed.segments.View`."""

    def __init__(self, descriptor: int, capacity: int) -> None:
        self._bytes, self._head = _mapped(descriptor, _HEAD + capacity)
        self.number = int(self._head[1])

    @property
    def contents(self) -> memoryview:
        """All of it, to be read while the other process writes."""
        return memoryview(self._bytes.data)[_HEAD:].toreadonly()

    def frame(self, size: int, use: int) -> Buffer:
        """Its first bytes; the use is released when nobody holds them any more."""
        return np.asarray(_Use(self._bytes[_HEAD : _HEAD + size], self._head, use)).data


class _Use:
    """Releases a use of a block when no array shows it any more."""

    __slots__ = ("__array_interface__", "_bytes", "_head", "_use")

    def __init__(self, shown: np.ndarray[Any, Any], head: np.ndarray[Any, Any], use: int) -> None:
        self._bytes, self._head, self._use = shown, head, use
        # by its address: an array made of another's would be kept by that one's owner, and not by this object
        self.__array_interface__ = shown.__array_interface__

    def __del__(self) -> None:
        # no lock and no message: this may run on any thread, in the midst of anything
        self._head[0] = self._use


def _sealed_file(size: int) -> int:
    """A file in memory whose size nobody can change: who has mapped it is never killed for reading what is gone."""
    descriptor = os.memfd_create(_NAME, os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    try:
        os.fchmod(descriptor, 0o600)
        # the memory is taken now: where it is missing that is an error here, and would be a signal later
        os.posix_fallocate(descriptor, 0, size)
        fcntl.fcntl(descriptor, _ADD_SEALS, _SEAL_SEAL | _SEAL_SHRINK | _SEAL_GROW)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def _opened(process: int, descriptor: int, size: int) -> int:
    """Another process's file in memory, which must have exactly that size.

    Raises:
        OSError: there is none, it is another user's, or its size can change.
    """
    path = f"/proc/{process}/fd/{descriptor}"
    # before it is opened: to open a device or a pipe may do something
    if not os.readlink(path).startswith(f"/memfd:{_NAME}"):
        raise FileNotFoundError(path)
    opened = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY)
    try:
        status = os.fstat(opened)
        is_own = stat.S_ISREG(status.st_mode) and status.st_uid == os.geteuid() and status.st_size == size
        if not is_own or not fcntl.fcntl(opened, _GET_SEALS) & _SEAL_SHRINK:
            raise FileNotFoundError(path)
    except BaseException:
        os.close(opened)
        raise
    return opened


def _mapped(descriptor: int, size: int) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """All bytes of a file, and the two numbers at their beginning."""
    memory = mmap.mmap(descriptor, size)
    return np.frombuffer(memory, np.uint8), np.frombuffer(memory, np.uint64, 2)
