"""The three messages that each step sends, in a fixed layout: start a partition, a tensor between tasks, done.

All other messages between a master and its workers are protocol buffers, which take several times as long to write and
to read. A message is frames (`runtime.messages.Frames`). The first begins with

    offset  field   type  meaning
    0       mark    u8    0xff, with which no protocol buffer begins
    1       kind    u8    see `StepMessage`

and goes on, little-endian and without padding, with

    START       partition i64, step i64, first step i64 (those below have ended), timeout f64 (s; 0: any time),
                flags u8 (1: recorded, 2: the sender has read what it needs), rows that it has taken u64 (a bit for
                each number), tensors that come along u16, values u32, session (u16 and UTF-8)
    TRANSFER    step i64, iteration i64, flags u8 (1: dead, 2: float32 sent as bfloat16), values u32 (0 or 1),
                route (u16, and session, source, destination, tensor, frame in UTF-8, with zero bytes between)
    DONE        values u32, told (u32, and a `WorkerReply` with the events of a step that was recorded)

and the values; behind those of a START the tensors that come along, each as in a TRANSFER. Each value has its kind u8,
its dtype u8 and the number of its dimensions u16, its bytes u64, its dimensions i64; then the bytes themselves where
they are few, else they are the next frame. The bytes of an array of strings are a frame in any case, and the length u64
of each string stands in their place. A handle is a `HandleDef`.

What arrives is not believed: whatever is wrong with a message raises InvalidArgumentError, and no memory is taken for a
size that it states.
"""

from __future__ import annotations

import functools
import math
import struct
from collections.abc import Callable, Sequence
from enum import IntEnum
from typing import Any, Final, NamedTuple, TypeVar

import numpy as np
from google.protobuf.message import DecodeError

from anabranch.core.dtypes import DType, as_dtype, string
from anabranch.core.resources import ResourceHandle
from anabranch.core.values import TensorValue
from anabranch.errors import InvalidArgumentError, UnimplementedError
from anabranch.proto.step_plan_pb2 import HandleDef
from anabranch.proto.tensors import dtype_to_proto
from anabranch.runtime.messages import Buffer, Frames, malformed
from anabranch.runtime.rendezvous_table import Key, StepId
from anabranch.xla.partition_codec import handle_from_proto, handle_to_proto

Message = TypeVar("Message")
#: fields of a message, and the values behind them
_Piece = tuple[list[Buffer], Sequence[TensorValue]]

_MARK: Final = 0xFF
_PREFIX: Final = struct.Struct("<BB")
_START: Final = struct.Struct("<qqqdBQHIH")
_TRANSFER: Final = struct.Struct("<qqBIH")
_DONE: Final = struct.Struct("<II")
_VALUE: Final = struct.Struct("<BBHQ")

#: arrays of fewer bytes go in the first frame
_WITHIN_BELOW: Final = 1 << 14
#: arrays of fewer bytes are copied into their frames, which is quicker than to keep them alive
_COPIED_BELOW: Final = 1 << 16
#: routes that are known by their bytes: each transfer of a step has one, in all its steps
_KNOWN_ROUTES: Final = 4096


class StepMessage(IntEnum):
    """What a message of a step is."""

    START = 1
    TRANSFER = 2
    DONE = 3


_KINDS: Final = {int(kind): kind for kind in StepMessage}
_PREFIXES: Final = {kind: _PREFIX.pack(_MARK, kind) for kind in StepMessage}


#: what a value is, and where its bytes are
_WITHIN: Final = 1
_FRAME: Final = 2
_STRINGS: Final = 3
_HANDLE: Final = 4

#: flags of a start
_RECORDED: Final = 1
_READ_AHEAD: Final = 2

#: flags of a transfer
_DEAD: Final = 1
_HALVED: Final = 2


class StepStart(NamedTuple):
    """Run a partition as part of a step."""

    session: str
    partition: int
    step: int
    #: steps below have ended; 0: none is said to
    first_step: int
    #: in seconds; None: any time
    timeout: float | None
    recorded: bool
    #: whether the sender has read itself what the partition would read for it; see `runtime.one_sided_reads`
    read_ahead: bool
    feeds: list[TensorValue]
    #: for this step
    sent: Sequence[SentTensor] = ()
    #: the rows that the sender has taken itself, a bit for each number; see `runtime.published_rows`
    rows_taken: int = 0


class SentTensor(NamedTuple):
    """A tensor that goes from one task to another in a step."""

    key: Key
    #: None: the tensor is dead
    value: TensorValue | None
    #: whether it is a float32 tensor, sent as bfloat16
    is_halved: bool
    #: its bytes
    size: int


class StepDone(NamedTuple):
    """What a partition's step has fetched."""

    fetches: list[TensorValue]
    #: a `WorkerReply` with events, or nothing
    reply: bytes


# ---------------------------------------------------------------------- writing
def encode_start(
    session: str,
    partition: int,
    step: int,
    feeds: Sequence[TensorValue],
    *,
    timeout: float | None = None,
    recorded: bool = False,
    read_ahead: bool = False,
    first_step: int = 0,
    sent: Sequence[tuple[Key, TensorValue | None]] = (),
    rows_taken: int = 0,
) -> Frames:
    """The message that starts a partition's part of a step.

    Args:
        sent: tensors that come along; None in place of a value: it is dead.
        rows_taken: see `StepStart`.

    Raises:
        UnimplementedError: a value is neither an array of numbers or strings nor a handle.
    """
    name = session.encode()
    flags = (_RECORDED if recorded else 0) | (_READ_AHEAD if read_ahead else 0)
    fields = _START.pack(
        partition, step, first_step, timeout or 0.0, flags, rows_taken, len(sent), len(feeds), len(name)
    )
    return _message(StepMessage.START, ([fields, name], feeds), *(_transferred(*one) for one in sent))


def encode_transfer(key: Key, value: TensorValue | None, is_halved: bool = False) -> Frames:
    """The message that carries a tensor to another task; `value` is None where it is dead.

    Raises:
        UnimplementedError: see `encode_start`.
    """
    return _message(StepMessage.TRANSFER, _transferred(key, value, is_halved))


def _transferred(key: Key, value: TensorValue | None, is_halved: bool = False) -> _Piece:
    flags = (_DEAD if value is None else 0) | (_HALVED if is_halved else 0)
    values = [] if value is None else [value]
    route = _route(key.step.session, key.source, key.destination, key.tensor, key.frame)
    return [_TRANSFER.pack(key.step.number, key.iteration, flags, len(values), len(route)), route], values


def encode_done(fetches: Sequence[TensorValue], reply: bytes = b"") -> Frames:
    """The message that ends a partition's part of a step.

    Raises:
        UnimplementedError: see `encode_start`.
    """
    return _message(StepMessage.DONE, ([_DONE.pack(len(fetches), len(reply)), reply], fetches))


#: the message that ends the part of a partition of which nothing is fetched
NOTHING_FETCHED: Final[Frames] = [_PREFIXES[StepMessage.DONE] + _DONE.pack(0, 0)]


def _message(kind: StepMessage, *pieces: _Piece) -> Frames:
    parts: list[Buffer] = [_PREFIXES[kind]]
    frames = Frames()
    for fields, values in pieces:
        parts += fields
        for value in values:
            _write(value, parts, frames)
    return [b"".join(parts), *frames]


@functools.lru_cache(_KNOWN_ROUTES)
def _route(*names: str) -> bytes:
    return "\0".join(names).encode()


@functools.cache
def _code(dtype: np.dtype[Any]) -> int:
    return dtype_to_proto(as_dtype(dtype))


def _write(value: TensorValue, parts: list[Buffer], frames: Frames) -> None:
    if isinstance(value, ResourceHandle):
        described = handle_to_proto(value).SerializeToString()
        parts += [_VALUE.pack(_HANDLE, 0, 0, len(described)), described]
        return
    array = np.array(value, np.object_) if isinstance(value, bytes) else np.asarray(value)
    shape = struct.pack(f"<{array.ndim}q", *array.shape) if array.ndim else b""
    # an array of objects holds strings, or what has no bytes: functions, datasets, iterators
    if array.dtype == np.object_:
        strings = array.reshape(-1).tolist()
        if not all(isinstance(item, bytes) for item in strings):
            raise UnimplementedError(
                None,
                None,
                f"a value that holds a {type(strings[0]).__name__} cannot leave its task; fetch the tensors in it",
            )
        frames.append(b"".join(strings))
        header = _VALUE.pack(_STRINGS, dtype_to_proto(string), array.ndim, len(frames[-1]))
        parts += [header, shape, struct.pack(f"<{len(strings)}Q", *map(len, strings))]
        return
    code, size = _code(array.dtype), array.nbytes
    if size < _WITHIN_BELOW:
        parts += [_VALUE.pack(_WITHIN, code, array.ndim, size), shape, array.tobytes()]
        return
    parts += [_VALUE.pack(_FRAME, code, array.ndim, size), shape]
    frames.append(_bytes_of(array))


def _bytes_of(array: np.ndarray[Any, Any]) -> Buffer:
    """The bytes of an array; those of a large one where they are."""
    if array.nbytes < _COPIED_BELOW:
        return array.tobytes()
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8).data


# ---------------------------------------------------------------------- reading
def kind_of(frames: Frames) -> StepMessage | None:
    """Which message of a step it is; None where it is a protocol buffer, or nothing.

    Raises:
        InvalidArgumentError: it is neither.
    """
    if not frames or len(frames[0]) < _PREFIX.size or frames[0][0] != _MARK:
        return None
    kind = _KINDS.get(frames[0][1])
    if kind is None:
        raise malformed(ValueError(f"there is no message {frames[0][1]} of a step"))
    return kind


def decode_start(frames: Frames) -> StepStart:
    """What starts a partition; the values may keep frames alive, and cannot be written.

    Raises:
        InvalidArgumentError: it is malformed.
    """
    return _read(StepMessage.START, frames, _read_start)


def _read_start(reader: _Reader) -> StepStart:
    partition, step, first_step, timeout, flags, rows_taken, brought, count, length = reader.fields(_START)
    session = _text(reader.take(length))
    values = reader.values(count) if count else []
    sent = [_read_transfer(reader) for _ in range(brought)]
    recorded, read_ahead = bool(flags & _RECORDED), bool(flags & _READ_AHEAD)
    return StepStart(
        session, partition, step, first_step, timeout or None, recorded, read_ahead, values, sent, rows_taken
    )


def decode_transfer(frames: Frames) -> SentTensor:
    """A tensor of another task; it may keep a frame alive, and cannot be written.

    Raises:
        InvalidArgumentError: it is malformed.
    """
    return _read(StepMessage.TRANSFER, frames, _read_transfer)


def sizes_in_start(start: StepStart) -> tuple[int, list[int]]:
    """How many bytes of a message that starts a part stand between what is another in each step.

    Args:
        start: what it says: no feeds, and tensors of which `is_within` is true.

    Returns:
        The bytes between the time and the first tensor; for each tensor those between its step and its contents.
    """
    # without what stands before: the partition, two steps, the time; the step
    before = _START.size - 32 + len(start.session.encode())
    tensors = []
    for key, value, _, _ in start.sent:
        route = _route(key.step.session, key.source, key.destination, key.tensor, key.frame)
        tensors.append(_TRANSFER.size - 8 + len(route) + _VALUE.size + 8 * np.asarray(value).ndim)
    return before, tensors


def is_within(value: TensorValue | None) -> bool:
    """Whether the bytes of a value stand in the first frame, and are all that its dtype and shape do not say."""
    return isinstance(value, np.ndarray) and value.dtype != np.object_ and 0 < value.nbytes < _WITHIN_BELOW


def _read_transfer(reader: _Reader) -> SentTensor:
    step, iteration, flags, count, length = reader.fields(_TRANSFER)
    session, source, destination, tensor, frame = _names(reader.take(length))
    if count != (0 if flags & _DEAD else 1):
        raise ValueError(f"a transfer with the flags {flags} came with {count} values")
    value = reader.value() if count else None
    key = Key(StepId(session, step), source, destination, tensor, frame, iteration)
    return SentTensor(key, value, bool(flags & _HALVED), reader.size)


def decode_done(frames: Frames) -> StepDone:
    """What a partition has fetched: arrays that can be written, and keep no frame alive.

    Raises:
        InvalidArgumentError: it is malformed.
    """
    return _read(StepMessage.DONE, frames, _read_done)


def _read_done(reader: _Reader) -> StepDone:
    count, length = reader.fields(_DONE)
    reply = reader.take(length) if length else b""
    return StepDone([v.copy() if isinstance(v, np.ndarray) else v for v in reader.values(count)], reply)


def _read(kind: StepMessage, frames: Frames, read: Callable[[_Reader], Message]) -> Message:
    try:
        reader = _Reader(frames)
        if reader.fields(_PREFIX) != (_MARK, kind):
            raise ValueError(f"it is no {kind.name.lower()} message")
        message = read(reader)
        reader.check_end()
    except (DecodeError, IndexError, TypeError, ValueError, struct.error, InvalidArgumentError) as error:
        raise malformed(error) from error
    return message


@functools.lru_cache(_KNOWN_ROUTES)
def _text(name: bytes) -> str:
    return name.decode()


@functools.lru_cache(_KNOWN_ROUTES)
def _names(route: bytes) -> tuple[str, str, str, str, str]:
    session, source, destination, tensor, frame = route.decode().split("\0")
    return session, source, destination, tensor, frame


@functools.cache
def _dtype(code: int) -> DType:
    return as_dtype(code)


class _Reader:
    """Reads one message from its beginning."""

    __slots__ = ("_at", "_data", "_frames", "_next")

    def __init__(self, frames: Frames) -> None:
        self._data, self._frames = bytes(frames[0]), frames
        self._at, self._next = 0, 1

    def fields(self, layout: struct.Struct) -> tuple[Any, ...]:
        at = self._at
        self._at = at + layout.size
        # `struct.error` where the message ends before
        return layout.unpack_from(self._data, at)

    @property
    def size(self) -> int:
        """The bytes of all of it."""
        return sum(map(len, self._frames))

    def take(self, size: int) -> bytes:
        end = self._at + size
        if end > len(self._data):
            raise ValueError(f"it ends after {len(self._data)} bytes, and {end} are needed")
        taken = self._data[self._at : end]
        self._at = end
        return taken

    def frame(self) -> Buffer:
        frame = self._frames[self._next]
        self._next += 1
        return frame

    def values(self, count: int) -> list[TensorValue]:
        # a value has at least its header: the count takes no memory that did not come
        if count > len(self._data) // _VALUE.size:
            raise ValueError(f"{count} values are more than {len(self._data)} bytes hold")
        return [self.value() for _ in range(count)]

    def value(self) -> TensorValue:
        held, code, rank, size = self.fields(_VALUE)
        if held == _HANDLE:
            return handle_from_proto(HandleDef.FromString(self.take(size)))
        shape = self._shape(rank) if rank else ()
        dtype, count = _dtype(code), math.prod(shape)
        if held == _STRINGS and dtype is string:
            return self._strings(count, size).reshape(shape)
        if held not in (_WITHIN, _FRAME) or dtype.as_numpy_dtype is np.object_:
            raise ValueError(f"there is no value of kind {held} and dtype {dtype.name}")
        content = self.take(size) if held == _WITHIN else self.frame()
        if not len(content) == size == count * dtype.size:
            raise ValueError(f"an array of {count} elements of {dtype.name} came with {len(content)} bytes")
        return np.frombuffer(content, dtype.as_numpy_dtype).reshape(shape)

    def _shape(self, rank: int) -> tuple[int, ...]:
        shape = struct.unpack(f"<{rank}q", self.take(8 * rank))
        if min(shape) < 0:
            raise ValueError(f"an array cannot have the shape {list(shape)}")
        return shape

    def _strings(self, count: int, size: int) -> np.ndarray[tuple[int], np.dtype[np.object_]]:
        # the lengths are taken first: they show that there are as many strings as the shape says
        lengths = struct.unpack(f"<{count}Q", self.take(8 * count))
        content = bytes(self.frame())
        if not len(content) == size == sum(lengths):
            raise ValueError(f"{count} strings came with {len(content)} bytes")
        strings = np.empty(count, np.object_)
        start = 0
        for position, length in enumerate(lengths):
            strings[position] = content[start : start + length]
            start += length
        return strings

    def check_end(self) -> None:
        if self._at != len(self._data) or self._next != len(self._frames):
            raise ValueError("it goes on behind its end")
