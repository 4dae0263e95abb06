"""Large frames in pieces, put together in memory that XLA takes as it is (WP3.3).

A frame of many megabytes that goes as one message is first gathered by ZeroMQ and then copied to where it is needed,
and nothing overlaps. In pieces it is copied to its place while the next piece comes. A message with large frames
therefore goes as

    PIECE, PIECE, ... of its first large frame; of its second; ...; and then the message, without those frames,
    and with one more: the positions at which they belong.

Between processes of one host a frame goes through shared memory in place of its pieces (`distributed.segments`).

All of them go by the bulk lane of one channel, where order holds, so that a piece needs no name. A receiver that is
slow takes few pieces at a time (a mark of its inbox), and TCP holds up the sender.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Sequence
from typing import Final

import numpy as np

from anabranch.distributed.wire import MalformedMessageError
from anabranch.runtime.messages import Buffer, Frames

#: bytes of a piece; a frame that has more than twice as many goes in pieces
PIECE_BYTES: Final = 1 << 20
#: of the memory in which frames are put together: XLA takes arrays that begin there without a copy
ALIGNMENT: Final = 64
_POSITION: Final = struct.Struct("<I")


def is_large(frame: Buffer) -> bool:
    """Whether a frame goes in pieces."""
    return len(frame) > 2 * PIECE_BYTES


def pieces_of(frame: Buffer) -> Iterator[Buffer]:
    """The pieces of a large frame, in order; nothing is copied."""
    # slices of a view share its memory, which the sender keeps as it is until it is answered
    whole = memoryview(frame)
    return (whole[start : start + PIECE_BYTES] for start in range(0, len(whole), PIECE_BYTES))


def without_large(frames: Sequence[Buffer]) -> Frames:
    """What goes after the pieces of a message's large frames."""
    positions = b"".join(_POSITION.pack(position) for position, frame in enumerate(frames) if is_large(frame))
    # the positions last, where `complete` takes them off before it puts the frames in
    return [*(frame for frame in frames if not is_large(frame)), positions]


class Assembly:
    """Puts the large frames of one channel together. Not thread-safe.

    Args:
        limit: the bytes that the large frames of one message may have.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._done: Frames = []
        self._bytes = 0
        self._target: memoryview | None = None
        self._filled = 0

    def take(self, total: int, pieces: Sequence[Buffer]) -> None:
        """Takes a piece of a frame that has `total` bytes.

        Raises:
            MalformedMessageError: the frame is too large, or the piece does not continue it.
        """
        # a wrong number of frames is refused below, as a piece without bytes
        (piece,) = pieces if len(pieces) == 1 else (b"",)
        if self._target is None:
            # memory is taken for what the frame says of itself: the limit is what keeps it from saying anything
            if self._bytes + total > self._limit:
                raise MalformedMessageError(f"large frames of more than the limit of {self._limit} bytes")
            self._target, self._filled = _aligned(total), 0
            self._bytes += total
        target, end = self._target, self._filled + len(piece)
        # each piece repeats the whole length, and brings at least one byte
        if len(target) != total or not self._filled < end <= total:
            raise MalformedMessageError("a piece does not continue its frame")
        # the one copy on the way, while ZeroMQ's thread receives the next piece
        target[self._filled : end] = piece
        self._filled = end
        if end == total:
            self._done.append(target)
            self._target = None

    def take_whole(self, total: int, frame: Callable[[], Buffer]) -> None:
        """Takes a frame of `total` bytes that came in one.

        Args:
            frame: gives it; is not called for one that is too large.

        Raises:
            MalformedMessageError: the frame is too large, or comes in the midst of another.
        """
        if self._target is not None or self._bytes + total > self._limit:
            raise MalformedMessageError(f"a large frame within another, or beyond the limit of {self._limit} bytes")
        self._done.append(frame())
        self._bytes += total

    def complete(self, frames: Frames) -> Frames:
        """The frames of a message, with the large ones that came before it.

        Raises:
            MalformedMessageError: it does not say where they belong, or one is not complete.
        """
        if self._target is not None:
            raise MalformedMessageError("a message came before its large frames were complete")
        if not self._done:
            return frames
        # before anything can be refused: the next message begins with nothing
        done, self._done, self._bytes = self._done, [], 0
        positions = bytes(frames.pop()) if frames else b""
        if len(positions) != _POSITION.size * len(done):
            raise MalformedMessageError("large frames came, and the message does not say where they belong")
        for (position,), frame in zip(_POSITION.iter_unpack(positions), done, strict=True):
            if position > len(frames):
                raise MalformedMessageError("a large frame belongs behind the end of its message")
            # in rising order, so that each position counts the frames that were put in before
            frames.insert(position, frame)
        return frames


def _aligned(size: int) -> memoryview:
    # room to begin at the next multiple; `empty` touches nothing, so that memory is taken only as pieces fill it
    memory = np.empty(size + ALIGNMENT, np.uint8)
    start = -memory.ctypes.data % ALIGNMENT
    return memory[start : start + size].data
