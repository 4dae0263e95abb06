"""Values of variables where other processes of the host read them, without a message (one-sided reads, §4.4).

A *board* is memory of a task that other processes map (`distributed.shared_memory`). It has a version for each of its
slots, and their contents behind them:

    offset              field     type
    0                   versions  u64 for each of `SLOTS`
    8 * SLOTS           contents  each at a multiple of 64: the value of a small variable; of any other, of which rows
                                  are read (`runtime.published_rows`), where it stands in the task's own memory:
                                  address u64, bytes u64

A version is odd while its slot does not show the variable's value: because it is just being written, or because nobody
has shown it there since (a *sequence lock*, as in Lameter, "Effective synchronization on Linux/NUMA systems", 2005). So
the one process that writes never waits, and who reads sees that it has to ask by a message instead:

    ======================  ================================  ==========================================
    the variable            the writer, under its lock        a reader
    ======================  ================================  ==========================================
    is about to change      version odd                       reads nothing
    has its new value       contents, then version even       takes contents between two equal, even versions
    lost its value          version odd                       reads nothing
    ======================  ================================  ==========================================

#: A slot is a variable's for as long as the task lives: no reader takes another variable's contents for this one's.
#: An exception between two of the writer's calls leaves the version odd, which is always true.
"""

from __future__ import annotations

import math
import platform
import struct
import threading
import weakref
from collections.abc import Callable, Sequence
from ctypes import string_at
from operator import itemgetter
from typing import Any, Final, NamedTuple, Protocol, TypeGuard

import jax
import numpy as np

from anabranch.xla.partitions import TransferEnd

#: a value of fewer bytes is small: quicker to copy than to pin, and shown on a board
SMALL_BELOW: Final = 1 << 14
SLOTS: Final = 4096
#: of all slots' contents
_CONTENT_BYTES: Final = 1 << 20
_CONTENTS_AT: Final = 8 * SLOTS
#: bytes of a board
BOARD_BYTES: Final = _CONTENTS_AT + _CONTENT_BYTES
_ALIGNED: Final = 64
#: where a value stands that is not small
ADDRESS: Final = struct.Struct("<QQ")
#: processors that show stores to others in the order in which a thread makes them, and loads likewise. Python has no
#: other means to order them
_IN_ORDER: Final = ("x86_64", "AMD64")


def keeps_order() -> bool:
    """Whether processes of this machine can read each other's boards."""
    return platform.machine() in _IN_ORDER


class BoardMemory(Protocol):
    """Memory of this process that others of the host can map.

    Attributes:
        process, descriptor, number: by which they find it.
    """

    process: int
    descriptor: int
    number: int

    @property
    def number_at(self) -> int:
        """Where the number stands in this process's memory: who reads it there has found this process."""

    @property
    def contents(self) -> memoryview:
        """It, zero at first; of `BOARD_BYTES`."""

    def close(self) -> None:
        """Nobody maps it from now on; who has, keeps it."""


class PublishedTensor(NamedTuple):
    """Where the value stands that a step sends under this name.

    Attributes:
        tensor: the name of the transfer.
        slot: whose version tells whether it is there.
        offset, size: of the contents, in bytes.
        is_address: whether the contents are where the value stands.
    """

    tensor: str
    slot: int
    offset: int
    size: int
    is_address: bool = False


class PublishedVariable(Protocol):
    """What a variable has for this; see `runtime.containers.VariableState`."""

    value: Any
    published: PublishedValue | None


class Board:
    """What a task shows. Thread-safe, but for the slots: a variable's is used under the variable's lock."""

    def __init__(self, memory: BoardMemory) -> None:
        self.memory = memory
        self._lock = threading.Lock()
        self._contents = memory.contents
        self._versions = self._contents[:_CONTENTS_AT].cast("Q")
        #: slots, and where the contents of the next begin
        self._used, self._end = 0, _CONTENTS_AT

    def publish(self, state: PublishedVariable, *, rows: bool = False) -> PublishedValue | None:
        """The slot of a variable, which is locked; made, and its value shown, if it has none yet.

        Args:
            rows: whether only rows of it are read, so that it need not be small.

        Returns:
            None where the variable has no such value in the host's memory, or the board is full.
        """
        published = state.published
        if published is None:
            content = small_content(state.value)
            is_address = content is None and rows
            if is_address:
                content = _address(state.value)
            published = None if content is None else self._new(len(content), is_address)
            if published is None:
                return None
            state.published = published
        if published.is_address and not rows:
            return None
        published.show(state.value)
        return published

    def _new(self, size: int, is_address: bool) -> PublishedValue | None:
        with self._lock:
            slot, at = self._used, self._end
            if slot >= SLOTS or at + size > BOARD_BYTES:
                return None
            self._used, self._end = slot + 1, at + -(-size // _ALIGNED) * _ALIGNED
        return PublishedValue(self._versions, self._contents, slot, at, size, is_address)


class PublishedValue:
    """The slot of one variable. All is done under the variable's lock."""

    __slots__ = ("_contents", "_shown", "_versions", "is_address", "offset", "size", "slot")

    def __init__(
        self, versions: memoryview, contents: memoryview, slot: int, offset: int, size: int, is_address: bool
    ) -> None:
        self._versions, self._contents = versions, contents
        self.slot, self.offset, self.size, self.is_address = slot, offset, size, is_address
        #: the value whose address was shown last
        self._shown: Callable[[], object] = _nothing
        versions[slot] = 1

    def described(self, tensor: str) -> PublishedTensor:
        """What is told to who reads it for a transfer of this name."""
        return PublishedTensor(tensor, self.slot, self.offset, self.size, self.is_address)

    def withdraw(self) -> None:
        """The variable is about to change, or to lose its value."""
        version = self._versions[self.slot]
        if not version & 1:
            self._versions[self.slot] = version + 1

    def show(self, value: object) -> None:
        """Shows the variable's value, unless it is shown already; one that is not small any more, or not there yet,
        is not.
        """
        version = self._versions[self.slot]
        if not version & 1:
            return
        if self.is_address:
            # one that was changed where it lies, as rows of tables are, is not asked again
            if value is not None and self._shown() is value:
                self._versions[self.slot] = version + 1
                return
            content = _address(value)
        else:
            content = _content(value, self.size) if _is_there(value) else None
        if content is not None and len(content) == self.size:
            self._contents[self.offset : self.offset + self.size] = content
            self._versions[self.slot] = version + 1
            if self.is_address:
                self._shown = weakref.ref(value)


class PublishedReads:
    """What another process shows of one partition's reads.

    Args:
        contents: its board, mapped.
        tensors: where the values stand, with their dtypes and shapes.
        ends: the transfers that they are, in the same order.

    Raises:
        ValueError: that cannot be.

    Attributes:
        ends: see above.
    """

    def __init__(
        self,
        contents: memoryview,
        tensors: Sequence[tuple[PublishedTensor, np.dtype[Any], Sequence[int]]],
        ends: Sequence[TransferEnd] = (),
    ) -> None:
        for published, dtype, shape in tensors:
            is_it = published.size == math.prod(shape) * dtype.itemsize and not published.is_address
            if not (is_it and is_on_board(published, contents)):
                raise ValueError(f"{published} is not where a value of dtype {dtype} and shape {list(shape)} can be")
        self._contents = contents
        self._versions = versions_of(contents)
        self.ends = ends
        slots = [published.slot for published, _, _ in tensors]
        #: the versions of all, and the first one's once more: of one alone it would be no tuple
        self._versions_now = itemgetter(*slots, slots[0]) if slots else _no_versions
        self._shown = [(one.offset, one.offset + one.size, dtype, shape) for one, dtype, shape in tensors]

    def values(self) -> list[np.ndarray[Any, Any]] | None:
        """The values of one moment, in the order of the tensors; None where one is not shown."""
        versions, contents, taken = self._versions, self._contents, []
        before = self._versions_now(versions)
        for version in before:
            if version & 1:
                return None
        for begin, end, dtype, shape in self._shown:
            taken.append(np.frombuffer(bytes(contents[begin:end]), dtype).reshape(shape))
        return taken if self._versions_now(versions) == before else None


def _nothing() -> None:
    return None


def _no_versions(_: memoryview) -> tuple[int, ...]:
    return ()


def is_on_board(published: PublishedTensor, contents: memoryview) -> bool:
    """Whether there can be something where another process says."""
    begin, end = published.offset, published.offset + published.size
    return 0 <= published.slot < SLOTS and _CONTENTS_AT <= begin <= end <= min(len(contents), BOARD_BYTES)


def versions_of(contents: memoryview) -> memoryview:
    """The versions of a board's slots."""
    return contents[:_CONTENTS_AT].cast("Q")


def small_content(value: object) -> bytes | None:
    """The bytes of a small value in the host's memory; None where it is another, or is computed still."""
    if not _is_there(value):
        return None
    size = math.prod(value.shape) * value.dtype.itemsize
    if not 0 < size < SMALL_BELOW:
        return None
    return _content(value, size)


def _content(value: jax.Array, size: int) -> bytes | None:
    """The bytes of a value that is there; None if there are not so many."""
    if value.on_device_size_in_bytes() != size:
        return None
    # by its address, as `pinned_read` shows it: an array that JAX gives would forbid the next writer to take the buffer
    return string_at(value.unsafe_buffer_pointer(), size)


def _address(value: object) -> bytes | None:
    """Where a value stands in the host's memory; None where it is not there, or is computed still."""
    if not _is_there(value):
        return None
    size = math.prod(value.shape) * value.dtype.itemsize
    return ADDRESS.pack(value.unsafe_buffer_pointer(), size) if size else None


def _is_there(value: object) -> TypeGuard[jax.Array]:
    """Whether a value is in the host's memory. One that is computed still would be waited for under its lock."""
    return is_on_host(value) and bool(value.is_ready())  # type: ignore[attr-defined]


#: where a value was that was found in the host's memory: parameters are there in all steps, and to ask takes several
#: calls of Python functions
_known_on_host: jax.sharding.Sharding | None = None


def is_on_host(value: object) -> TypeGuard[jax.Array]:
    """Whether a variable's value is in the host's memory, at one address."""
    global _known_on_host
    if not isinstance(value, jax.Array):
        return False
    sharding = value.sharding
    if sharding is not _known_on_host:
        # one of several devices' memories has no single address
        if [device.platform for device in value.devices()] != ["cpu"]:
            return False
        _known_on_host = sharding
    return True
