"""Messages between processes as bytes: one header of a fixed layout, then frames that are passed on as they are.

What arrives is not believed: every field is compared with its bounds before anything is done for it, and no memory is
taken for a size that a message states. Whatever is wrong with a message raises `MalformedMessageError`, nothing else.

    offset  field     type   meaning
    0       magic     4 s    b"anab"
    4       version   u16    of the format; the layout of headers, hellos and refusals is the same in all versions
    6       kind      u8     see `MessageKind`
    7       lane      u8     see `Lane`
    8       sender    u64    the incarnation of the process that sends; never 0
    16      receiver  u64    the incarnation that it is meant for; 0 in a hello to a process that is not known yet
    24      channel   u64    the sender's number for this opening of its link to the receiver; grows, never 0
    32      sequence  u64    counts the messages of a channel and lane from 0
    40      request   u64    what a request is answered by; 0 where there is none
    48      frames    u32    how many frames follow
    52      bytes     u64    their bytes, all together
    60      checksum  u32    CRC-32 of what stands before

The header and each frame are parts of a message of ZeroMQ's. A message of few bytes is one part instead (`joined`): its
header, the lengths of its frames (u32 each), the frames. So is each message of a stream (`distributed.local_streams`).
Each part costs both processes a call that gives up Python's lock, and a message of 200 bytes has three to five. By
ZeroMQ a link's own messages are never joined: what processes of different versions understand of each other stays as it
is.
"""

from __future__ import annotations

import functools
import re
import struct
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Final, NamedTuple

from anabranch.runtime.messages import Buffer, Frames

VERSION: Final = 4
_MAGIC: Final = b"anab"
_FIELDS: Final = struct.Struct("<4sHBBQQQQQIQ")
_CHECKSUM: Final = struct.Struct("<I")
_CHECKED_FIELDS: Final = struct.Struct(_FIELDS.format + "I")
#: the end of a header, and the length of the one frame of a message
_CHECKSUM_AND_LENGTH: Final = struct.Struct("<II")
_new: Final = tuple.__new__
HEADER_BYTES: Final = _FIELDS.size + _CHECKSUM.size
#: of what a stream begins with (`distributed.local_streams`)
STREAM_NUMBER_BYTES: Final = 16
#: what a message of one part has at most
JOINED_BYTES: Final = 1 << 14
_LENGTH: Final = struct.Struct("<I")
#: what the one frame of a message has at most that is `brief`
BRIEF_BYTES: Final = JOINED_BYTES - HEADER_BYTES - _LENGTH.size
#: frames and bytes, as they stand in a header
_SIZES: Final = struct.Struct("<48xIQ")


class MalformedMessageError(ValueError):
    """Bytes that are no message of this format, or break its bounds. Its text has nothing of what the message held."""


class MessageKind(IntEnum):
    """What a message is."""

    #: who the sender is; the first of a channel, to be answered by a welcome
    HELLO = 1
    #: who the sender is, and which channel of the receiver it has heard; may be the first of a channel as well
    WELCOME = 2
    #: why a hello is not answered by a welcome
    REFUSAL = 3
    #: that the sender lives, and what it has taken from the receiver's channel
    BEAT = 4
    #: that the sender stops
    GOODBYE = 5
    #: to a handler, without an answer
    MESSAGE = 6
    #: to a handler, to be answered by a reply or a failure
    REQUEST = 7
    REPLY = 8
    #: that a request was not answered, as an error's code and text
    FAILURE = 9
    #: of a large frame of a message to come; `request` is the bytes of the whole frame (`distributed.flows`)
    PIECE = 10
    #: of shared memory, and the answer of who can map it, with where it listens on this host (`distributed.segments`)
    OFFER = 11
    TOKEN = 12
    #: where a large frame of a message to come stands in shared memory; `request` is its bytes
    SHARED = 13
    #: that all further control messages of the channel come by a stream (`distributed.local_streams`)
    STREAM = 14


class Lane(IntEnum):
    """Messages keep their order within a lane. Those of the control lane do not wait for those of the bulk lane."""

    CONTROL = 0
    BULK = 1


@dataclass(frozen=True, slots=True)
class Limits:
    """What a message may take, and what may wait for one peer."""

    message_bytes: int = 2 << 30
    frames: int = 1 << 16
    #: sent, or kept until the link is up, and not yet taken by the peer
    waiting_bytes: int = 4 << 30


class Header(NamedTuple):
    """The fields of a message's header; see the module docstring."""

    kind: MessageKind
    lane: Lane
    sender: int
    receiver: int
    channel: int
    sequence: int
    request: int
    frames: int
    bytes: int
    version: int = VERSION


_KINDS: Final = {int(kind): kind for kind in MessageKind}
_LANES: Final = {int(lane): lane for lane in Lane}
#: what processes of different versions understand of each other
_OF_ALL_VERSIONS: Final = (MessageKind.HELLO, MessageKind.REFUSAL)


def encode_header(header: Header) -> bytes:
    """The bytes of a header."""
    return packed_header(*header)


def packed_header(
    kind: MessageKind,
    lane: Lane,
    sender: int,
    receiver: int,
    channel: int,
    sequence: int,
    request: int,
    frames: int,
    size: int,
    version: int = VERSION,
) -> bytes:
    """The bytes of the header with these fields."""
    packed = _FIELDS.pack(_MAGIC, version, kind, lane, sender, receiver, channel, sequence, request, frames, size)
    return packed + _CHECKSUM.pack(zlib.crc32(packed))


def decode_header(data: Buffer, limits: Limits) -> Header:
    """The header that bytes hold.

    Raises:
        MalformedMessageError: they are none, or its fields break their bounds.
    """
    if len(data) != HEADER_BYTES:
        raise MalformedMessageError(f"a header has {HEADER_BYTES} bytes, and this one {len(data)}")
    return _header_of(data, limits)


def _header_of(data: Buffer, limits: Limits) -> Header:
    """The header that bytes begin with, of which there are enough."""
    magic, version, kind, lane, sender, receiver, channel, sequence, request, frames, size, checksum = (
        _CHECKED_FIELDS.unpack_from(data)
    )
    if magic != _MAGIC:
        raise MalformedMessageError("this is no message of anabranch")
    if checksum != zlib.crc32(data[: _FIELDS.size]):
        raise MalformedMessageError("the header's checksum is not that of its bytes")
    known_kind, known_lane = _KINDS.get(kind), _LANES.get(lane)
    if known_kind is None or known_lane is None:
        raise MalformedMessageError(f"there is no kind {kind} or no lane {lane}")
    if version != VERSION and kind not in _OF_ALL_VERSIONS:
        raise MalformedMessageError(f"it has version {version} of the format, and this process speaks {VERSION}")
    if sender == 0 or channel == 0:
        raise MalformedMessageError("the sender does not name itself")
    if frames > limits.frames or size > limits.message_bytes:
        raise MalformedMessageError(
            f"{frames} frames of {size} bytes are more than the limits of {limits.frames} and {limits.message_bytes}"
        )
    # as `Header(...)`, without the call of a Python function
    return _new(Header, (known_kind, known_lane, sender, receiver, channel, sequence, request, frames, size, version))


@functools.lru_cache(64)
def _lengths(count: int) -> struct.Struct:
    return struct.Struct(f"<{count}I")


def joined(header: bytes, frames: Sequence[Buffer]) -> Sequence[Buffer]:
    """The parts of a message: one, if they are few bytes together, and else as many as there are."""
    lengths = list(map(len, frames))
    if len(header) + sum(lengths) + _LENGTH.size * len(lengths) > JOINED_BYTES:
        return [header, *frames]
    return [b"".join([header, _lengths(len(lengths)).pack(*lengths), *frames])]


def brief(
    kind: MessageKind, sender: int, receiver: int, channel: int, sequence: int, request: int, frame: bytes
) -> bytes:
    """The one part of a message of the control lane that has one frame of few bytes, as most messages of steps."""
    size = len(frame)
    packed = _FIELDS.pack(_MAGIC, VERSION, kind, 0, sender, receiver, channel, sequence, request, 1, size)
    return b"".join((packed, _CHECKSUM_AND_LENGTH.pack(zlib.crc32(packed), size), frame))


def delimited(header: Buffer, frames: Sequence[Buffer]) -> Sequence[Buffer]:
    """What the one part of a message is made of, whatever its size."""
    return [header, _lengths(len(frames)).pack(*map(len, frames)), *frames]


def joined_bytes(data: bytes, start: int, limits: Limits) -> int:
    """How many bytes a message of one part has that begins there, and of which the header is there whole.

    Raises:
        MalformedMessageError: it is no message, or one beyond the limits. (The rest is for `split_joined` to judge.)
    """
    frames, size = _SIZES.unpack_from(data, start)
    if not data.startswith(_MAGIC, start) or frames > limits.frames or size > limits.message_bytes:
        raise MalformedMessageError("what comes by a stream is no message of anabranch, or one beyond the limits")
    return int(HEADER_BYTES + _LENGTH.size * frames + size)


def split_joined(part: Buffer, limits: Limits) -> tuple[Header, Frames]:
    """The header and the frames of a message of one part.

    Raises:
        MalformedMessageError: its lengths are not those of what came.
    """
    if len(part) < HEADER_BYTES:
        raise MalformedMessageError(f"a header has {HEADER_BYTES} bytes, and this part {len(part)}")
    header = _header_of(part, limits)
    count = header.frames
    start = HEADER_BYTES + _LENGTH.size * count
    # before the lengths are read: there may be fewer of them than the header says
    if start + header.bytes != len(part):
        raise MalformedMessageError(f"a part of {len(part)} bytes does not hold what its header says")
    if count == 1 and _LENGTH.unpack_from(part, HEADER_BYTES)[0] == header.bytes:
        return header, [part[start:]]
    frames = Frames()
    for length in _lengths(count).unpack_from(part, HEADER_BYTES):
        frames.append(part[start : start + length])
        start += length
    if start != len(part):
        raise MalformedMessageError(f"the lengths of {count} frames are not {header.bytes} bytes together")
    return header, frames


def check_frames(header: Header, frames: Sequence[Buffer]) -> None:
    """Compares what came with what the header says.

    Raises:
        MalformedMessageError: they differ.
    """
    size = sum(map(len, frames))
    if len(frames) != header.frames or size != header.bytes:
        raise MalformedMessageError(
            f"the header says {header.frames} frames of {header.bytes} bytes, and {len(frames)} of {size} came"
        )


def flat(buffer: Buffer) -> Buffer:
    """A buffer whose length is its number of bytes; a memoryview must be contiguous.

    Raises:
        TypeError: it is not contiguous.
    """
    if isinstance(buffer, memoryview) and (buffer.ndim != 1 or buffer.itemsize != 1 or not buffer.c_contiguous):
        return buffer.cast("B")
    return buffer


# ---------------------------------------------------------------------- what the link's own messages hold
_HELLO: Final = struct.Struct("<QHHHH")
_REFUSAL: Final = struct.Struct("<QH")
_BEAT: Final = struct.Struct("<QQQ")
_FAILURE: Final = struct.Struct("<IH")
_HOST: Final = re.compile(r"[A-Za-z0-9._-]{1,255}")
_HOST_6: Final = re.compile(r"\[[0-9A-Fa-f:.]{2,45}\]")
#: of a cluster's or a task's name, an address, a reason; in bytes of UTF-8
MAX_TEXT: Final = 4096


class Hello(NamedTuple):
    """Who a process is."""

    cluster: str
    name: str
    #: "host:port" of its control inbox
    address: str
    #: of its bulk inbox, on the same host
    bulk_port: int
    #: in a welcome, the channel that it answers; else 0
    answers: int = 0


class Refusal(NamedTuple):
    """Why a process does not take a hello."""

    answers: int
    reason: str


class Beat(NamedTuple):
    """A sign of life."""

    #: counts what the sender has done, so that one that lives and one that gets on can be told apart
    progress: int
    #: the receiver's channel, and how many bytes of it the sender has taken
    channel: int
    taken: int


class Failure(NamedTuple):
    """An error in place of a reply."""

    code: int
    message: str


def encode_hello(hello: Hello) -> bytes:
    """The bytes of a hello or a welcome."""
    texts = [_text(text) for text in (hello.cluster, hello.name, hello.address)]
    return b"".join((_HELLO.pack(hello.answers, hello.bulk_port, *map(len, texts)), *texts))


def decode_hello(frames: Sequence[Buffer]) -> Hello:
    """What a hello or a welcome says.

    Raises:
        MalformedMessageError: it says something else.
    """
    data = _only(frames, _HELLO.size)
    answers, port, *lengths = _HELLO.unpack_from(data)
    cluster, name, address = _texts(data[_HELLO.size :], lengths)
    if split_address(address)[1] == 0:
        raise MalformedMessageError("its sender's address is not host:port")
    if not port:
        raise MalformedMessageError("its sender has no bulk inbox")
    return Hello(cluster, name, address, port, answers)


def split_address(address: str) -> tuple[str, int]:
    """The host and the port of "host:port"; a host with colons stands in brackets.

    Raises:
        MalformedMessageError: it is something else. A host has letters, digits and `._-` only, and so cannot be read as
            anything else by whatever it is given to.
    """
    host, _, port = address.rpartition(":")
    is_number = port.isascii() and port.isdigit() and len(port) < 6 and int(port) < 1 << 16
    if not (is_number and (_HOST.fullmatch(host) or _HOST_6.fullmatch(host))):
        raise MalformedMessageError("its sender's address is not host:port")
    return host.removeprefix("[").removesuffix("]"), int(port)


def encode_refusal(refusal: Refusal) -> bytes:
    """The bytes of a refusal."""
    reason = _text(refusal.reason)
    return _REFUSAL.pack(refusal.answers, len(reason)) + reason


def decode_refusal(frames: Sequence[Buffer]) -> Refusal:
    """What a refusal says.

    Raises:
        MalformedMessageError: it says something else.
    """
    data = _only(frames, _REFUSAL.size)
    answers, length = _REFUSAL.unpack_from(data)
    (reason,) = _texts(data[_REFUSAL.size :], [length])
    return Refusal(answers, reason)


def encode_beat(beat: Beat) -> bytes:
    """The bytes of a sign of life."""
    return _BEAT.pack(*beat)


def decode_beat(frames: Sequence[Buffer]) -> Beat:
    """What a sign of life says.

    Raises:
        MalformedMessageError: it says something else.
    """
    data = _only(frames, _BEAT.size)
    if len(data) != _BEAT.size:
        raise MalformedMessageError("a sign of life has too many bytes")
    return Beat(*_BEAT.unpack(data))


def encode_failure(failure: Failure) -> bytes:
    """The bytes of an error in place of a reply."""
    message = _text(failure.message)
    return _FAILURE.pack(failure.code, len(message)) + message


def decode_failure(frames: Sequence[Buffer]) -> Failure:
    """The error in place of a reply.

    Raises:
        MalformedMessageError: it is none.
    """
    data = _only(frames, _FAILURE.size)
    code, length = _FAILURE.unpack_from(data)
    (message,) = _texts(data[_FAILURE.size :], [length])
    return Failure(code, message)


def _text(text: str) -> bytes:
    return text.encode("utf-8", "replace")[:MAX_TEXT].decode("utf-8", "ignore").encode()


def _only(frames: Sequence[Buffer], least: int) -> bytes:
    if len(frames) != 1 or not least <= len(frames[0]) <= least + 3 * MAX_TEXT:
        raise MalformedMessageError("the link's own messages have one small frame")
    return bytes(frames[0])


def _texts(data: bytes, lengths: Sequence[int]) -> list[str]:
    if sum(lengths) != len(data) or max(lengths) > MAX_TEXT:
        raise MalformedMessageError("its texts have not the lengths that it states")
    texts, start = [], 0
    for length in lengths:
        try:
            text = data[start : start + length].decode("utf-8")
        except UnicodeDecodeError:
            raise MalformedMessageError("a text is not UTF-8") from None
        # what is printed on terminals and in logs must not steer them; errors have lines
        if not text.replace("\n", "").isprintable():
            raise MalformedMessageError("a text has characters that cannot be printed")
        texts.append(text)
        start += length
    return texts
