"""Large frames through memory that two processes of one host share: who may, when, and with how much (§3.3).

A frame that goes through a socket is copied into the kernel and out of it. Between processes of one host and one user
the sender copies it once, into a *segment* that the receiver has mapped, and the message says which segment it is in:

    sender                                         receiver
    OFFER, with the digest of a secret that
    stands in a file of its own memory      ---->  opens that file of that process, and reads the secret
                                            <----  TOKEN: the secret (and where it listens on this host, see
                                                   `distributed.local_streams`)
    it is the one: the receiver reads this
    process's memory, and so is on its host
    SHARED (segment, use), SHARED, ...      ---->  maps the segment, if it has not; its bytes are the frame
    the segment can be used again           <-...  writes the use into the segment when nobody holds the frame any more

What a sender may have lent at once is bounded; a frame for which there is nothing left goes in pieces
(`distributed.flows`), as all do before the TOKEN has come. Nothing is believed: a receiver on another host has another
file there or none, and one that only answers does not know the secret. A secret is told only to who knows its digest,
so that no offer makes a process tell what stands in its files.

#: A segment is written to only when its last use was released.
#: A pool belongs to one opening of one link, and ends with it.
"""

from __future__ import annotations

import struct
import threading
from collections.abc import Sequence
from typing import Final, NamedTuple, Protocol

from anabranch.distributed.flows import is_large
from anabranch.distributed.wire import MalformedMessageError
from anabranch.runtime.messages import Buffer

#: bytes of a secret, and of its digest
SECRET_BYTES: Final = 32
#: segments that one sender may have for one receiver, and their bytes
MAX_SEGMENTS: Final = 64
MAX_BYTES: Final = 2 << 30
#: segments have a multiple of that, so that frames of about the same size can follow each other in one
_GRAIN: Final = 1 << 20
_OFFER: Final = struct.Struct(f"<II{SECRET_BYTES}s")
_SHARED: Final = struct.Struct("<QIQQ")
_NUMBER: Final = struct.Struct("<Q")


class Block(Protocol):
    """A piece of this process's memory that others can map."""

    process: int
    #: by which other processes find it
    descriptor: int
    #: stands in it, so that it is not taken for another that has come to have the descriptor
    number: int

    @property
    def number_at(self) -> int:
        """Where the number stands in this process's memory."""

    @property
    def contents(self) -> memoryview:
        """All of it, for this process to write to."""

    @property
    def released(self) -> int:
        """The last use that the receiver has released; 0 before the first."""

    def write(self, frame: Buffer) -> None:
        """Copies a frame to its beginning."""

    def close(self) -> None:
        """Gives the memory back; a process that has mapped it keeps it."""


class View(Protocol):
    """Another process's block, mapped."""

    @property
    def contents(self) -> memoryview:
        """All of it, to be read while the other process writes."""

    def frame(self, size: int, use: int) -> Buffer:
        """Its first bytes; the use is released when nobody holds them any more."""


class Memory(Protocol):
    """What a place needs to share memory."""

    def offer(self) -> Offer:
        """What this process offers to all."""

    def is_secret(self, token: bytes) -> bool:
        """Whether a token is the secret that was offered."""

    def secret(self, offer: Offer) -> bytes | None:
        """The secret that another process offers; None where it cannot be read, or is not the one it should be."""

    def make(self, capacity: int) -> Block | None:
        """A new block; None where there is no memory for it."""

    def map(self, process: int, descriptor: int, number: int, capacity: int) -> View | None:
        """Another process's block; None where it cannot be mapped, or is not what it should be."""


class Offer(NamedTuple):
    """Where a process's secret stands, and what it must be."""

    process: int
    descriptor: int
    digest: bytes


class Shared(NamedTuple):
    """Where a frame stands."""

    number: int
    descriptor: int
    capacity: int
    use: int
    #: segments that come no more
    dropped: Sequence[int]


def encode_offer(offer: Offer) -> bytes:
    """The bytes of an offer."""
    return _OFFER.pack(*offer)


def decode_offer(frames: Sequence[Buffer]) -> Offer:
    """What an offer says.

    Raises:
        MalformedMessageError: it says something else.
    """
    if len(frames) != 1 or len(frames[0]) != _OFFER.size:
        raise MalformedMessageError("an offer of shared memory has one frame of a fixed size")
    return Offer(*_OFFER.unpack(frames[0]))


def encode_shared(shared: Shared) -> bytes:
    """The bytes that say where a frame stands."""
    *fields, dropped = shared
    return _SHARED.pack(*fields) + b"".join(map(_NUMBER.pack, dropped))


def decode_shared(frames: Sequence[Buffer]) -> Shared:
    """Where a frame stands.

    Raises:
        MalformedMessageError: it is not said.
    """
    size = len(frames[0]) - _SHARED.size if len(frames) == 1 else -1
    if size < 0 or size % _NUMBER.size or size > _NUMBER.size * MAX_SEGMENTS:
        raise MalformedMessageError("it is not said where in shared memory a frame stands")
    dropped = [number for (number,) in _NUMBER.iter_unpack(frames[0][_SHARED.size :])]
    number, descriptor, capacity, use = _SHARED.unpack_from(frames[0])
    return Shared(number, descriptor, capacity, use, dropped)


class _Segment:
    def __init__(self, capacity: int, block: Block) -> None:
        self.capacity, self.block = capacity, block
        self.use = 0

    @property
    def is_free(self) -> bool:
        return self.block.released == self.use


class Lent(NamedTuple):
    """A frame that was copied to a segment, for the receiver to use."""

    segment: _Segment
    use: int


class LentFrames(NamedTuple):
    """The large frames of a message that stand in shared memory, by their positions."""

    pool: Pool
    lent: dict[int, Lent]

    def give_back(self) -> None:
        """The message is not sent."""
        for one in self.lent.values():
            self.pool.give_back(one)


class Pool:
    """The segments of one sender for one receiver. Thread-safe: a frame is copied under no lock.

    Args:
        memory: makes them.
        limit: on the bytes of all of them.
    """

    def __init__(self, memory: Memory, limit: int = MAX_BYTES) -> None:
        self._memory, self._limit = memory, limit
        self._lock = threading.Lock()
        self._segments: list[_Segment] = []
        self._dropped: list[int] = []
        self._is_closed = False
        self._bytes = 0

    def lend_large(self, frames: Sequence[Buffer]) -> LentFrames:
        """Copies a message's large frames, as far as there is memory for them."""
        large = ((at, self.lend(frame)) for at, frame in enumerate(frames) if is_large(frame))
        return LentFrames(self, {at: one for at, one in large if one is not None})

    def lend(self, frame: Buffer) -> Lent | None:
        """Copies a frame to a free segment; None where there is none, and no room for another."""
        with self._lock:
            segment = None if self._is_closed else self._free(len(frame)) or self._new(len(frame))
            if segment is None:
                return None
            segment.use += 1
            lent = Lent(segment, segment.use)
        segment.block.write(frame)
        return lent

    def give_back(self, lent: Lent) -> None:
        """A frame that was lent is not sent."""
        with self._lock:
            lent.segment.use -= 1

    def described(self, lent: Lent) -> Shared:
        """What is sent in place of the frame, once."""
        with self._lock:
            dropped, self._dropped = self._dropped[:MAX_SEGMENTS], self._dropped[MAX_SEGMENTS:]
        segment = lent.segment
        return Shared(segment.block.number, segment.block.descriptor, segment.capacity, lent.use, dropped)

    def close(self) -> None:
        """Gives all memory back, also what is lent: what has mapped it keeps it."""
        with self._lock:
            self._is_closed = True
            for segment in self._segments:
                segment.block.close()
            self._segments.clear()

    def _free(self, size: int) -> _Segment | None:
        fitting = [one for one in self._segments if one.capacity >= size and one.is_free]
        return min(fitting, key=lambda one: one.capacity, default=None)

    def _new(self, size: int) -> _Segment | None:
        capacity = -(-size // _GRAIN) * _GRAIN
        # those that are free are too small, or `_free` had found one: the smallest is missed least
        for segment in sorted((one for one in self._segments if one.is_free), key=lambda one: one.capacity):
            if self._has_room(capacity):
                break
            self._drop(segment)
        block = self._memory.make(capacity) if self._has_room(capacity) else None
        if block is None:
            return None
        segment = _Segment(capacity, block)
        self._segments.append(segment)
        self._bytes += capacity
        return segment

    def _has_room(self, capacity: int) -> bool:
        return len(self._segments) < MAX_SEGMENTS and self._bytes + capacity <= self._limit

    def _drop(self, segment: _Segment) -> None:
        self._segments.remove(segment)
        self._bytes -= segment.capacity
        self._dropped.append(segment.block.number)
        segment.block.close()


class Mapped:
    """The segments of one sender, as the receiver has them. Not thread-safe.

    Args:
        process: the sender's number on this host.
        limit: on the bytes of all of them.
    """

    def __init__(self, memory: Memory, process: int, limit: int) -> None:
        self._memory, self._process, self._limit = memory, process, limit
        self._views: dict[int, tuple[int, View]] = {}

    def frame(self, shared: Shared, size: int) -> Buffer:
        """The frame of `size` bytes that stands there.

        Raises:
            MalformedMessageError: nothing can be there, or the limits are passed.
        """
        for number in shared.dropped:
            self._views.pop(number, None)
        if size > shared.capacity:
            raise MalformedMessageError("a frame is larger than the shared memory that it stands in")
        known = self._views.get(shared.number)
        if known is None:
            taken = sum(capacity for capacity, _ in self._views.values())
            if len(self._views) >= MAX_SEGMENTS or taken + shared.capacity > self._limit:
                raise MalformedMessageError(f"more shared memory than the limit of {self._limit} bytes")
            view = self._memory.map(self._process, shared.descriptor, shared.number, shared.capacity)
            if view is None:
                raise MalformedMessageError("shared memory cannot be mapped")
            known = self._views[shared.number] = shared.capacity, view
        capacity, view = known
        if capacity != shared.capacity:
            raise MalformedMessageError("shared memory has changed its size")
        return view.frame(size, shared.use)
