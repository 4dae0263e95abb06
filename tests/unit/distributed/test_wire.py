"""The wire format: what was encoded is decoded, and whatever else comes raises one error."""

from __future__ import annotations

import struct
import tracemalloc
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, strategies as st

from anabranch.distributed import wire
from anabranch.distributed.wire import (
    Beat,
    Failure,
    Header,
    Hello,
    Lane,
    Limits,
    MalformedMessageError,
    MessageKind,
    Refusal,
)

LIMITS = Limits()
U64 = st.integers(0, 2**64 - 1)
IDS = st.integers(1, 2**64 - 1)
HEADERS = st.builds(
    Header,
    st.sampled_from(MessageKind),
    st.sampled_from(Lane),
    IDS,
    U64,
    IDS,
    U64,
    U64,
    st.integers(0, LIMITS.frames),
    st.integers(0, LIMITS.message_bytes),
    st.just(wire.VERSION),
)
TEXTS = st.text(st.characters(codec="utf-8").filter(str.isprintable), max_size=50)
HELLOS = st.builds(Hello, TEXTS, TEXTS, st.just("127.0.0.1:22"), st.integers(1, 65535), U64)

#: of each body: its encoder, its decoder, values
BODIES: list[tuple[Callable[[Any], bytes], Callable[[list[bytes]], Any], st.SearchStrategy[Any]]] = [
    (wire.encode_hello, wire.decode_hello, HELLOS),
    (wire.encode_refusal, wire.decode_refusal, st.builds(Refusal, U64, TEXTS)),
    (wire.encode_beat, wire.decode_beat, st.builds(Beat, U64, U64, U64)),
    (wire.encode_failure, wire.decode_failure, st.builds(Failure, st.integers(0, 2**32 - 1), TEXTS)),
]


def outcome(decode: Callable[[], object]) -> object:
    """What a decoder returns, or that the bytes are malformed; any other exception is a failure of the test."""
    try:
        return decode()
    except MalformedMessageError:
        return None


@given(HEADERS)
def test_a_header_is_decoded_as_it_was_encoded(header: Header) -> None:
    data = wire.encode_header(header)
    assert len(data) == wire.HEADER_BYTES == 64
    assert wire.decode_header(data, LIMITS) == header
    assert wire.decode_header(memoryview(data), LIMITS) == header


@given(HEADERS, st.integers(0, 63), st.integers(1, 255))
def test_a_changed_byte_of_a_header_is_noticed(header: Header, position: int, change: int) -> None:
    data = bytearray(wire.encode_header(header))
    data[position] ^= change
    with pytest.raises(MalformedMessageError):
        wire.decode_header(bytes(data), LIMITS)


@given(st.binary(max_size=200))
def test_random_bytes_are_no_header(data: bytes) -> None:
    assert outcome(lambda: wire.decode_header(data, LIMITS)) is None


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"sender": 0}, "does not name itself"),
        ({"channel": 0}, "does not name itself"),
        ({"kind": 0}, "no kind 0"),
        ({"kind": 200}, "no kind 200"),
        ({"lane": 2}, "no lane 2"),
        ({"frames": LIMITS.frames + 1}, "more than the limits"),
        ({"bytes": LIMITS.message_bytes + 1}, "more than the limits"),
        ({"bytes": 2**64 - 1}, "more than the limits"),
        ({"version": wire.VERSION + 1}, f"version {wire.VERSION + 1}"),
    ],
)
def test_fields_have_bounds(changes: dict[str, Any], says: str) -> None:
    header = Header(MessageKind.MESSAGE, Lane.BULK, 1, 2, 3, 4, 5, 6, 7)._replace(**changes)
    with pytest.raises(MalformedMessageError, match=says):
        wire.decode_header(wire.encode_header(header), LIMITS)


def test_a_hello_of_another_version_is_understood() -> None:
    header = Header(MessageKind.HELLO, Lane.CONTROL, 1, 0, 1, 0, 0, 1, 30, version=9)
    assert wire.decode_header(wire.encode_header(header), LIMITS) == header


def _joined(contents: list[bytes], **changes: int) -> tuple[Header, bytes]:
    header = Header(MessageKind.REQUEST, Lane.CONTROL, 1, 2, 3, 4, 5, len(contents), sum(map(len, contents)))
    header = header._replace(**changes)
    (part,) = wire.joined(wire.encode_header(header), contents)
    return header, bytes(part)


@given(st.lists(st.binary(max_size=50), max_size=20))
def test_a_small_message_is_one_part(frames: list[bytes]) -> None:
    header, part = _joined(frames)
    assert wire.split_joined(part, LIMITS) == (header, frames)
    assert wire.split_joined(memoryview(part), LIMITS) == (header, frames)


def test_a_message_of_more_bytes_is_not_copied() -> None:
    frames = [bytes(wire.JOINED_BYTES), b"x"]
    assert wire.joined(b"header", frames) == [b"header", *frames]
    assert len(wire.joined(b"", [bytes(wire.JOINED_BYTES - 4)])) == 1


@given(st.lists(st.binary(max_size=9), max_size=5), st.data())
def test_a_damaged_part_is_malformed_or_another_message_of_its_size(frames: list[bytes], data: st.DataObject) -> None:
    _, part = _joined(frames)
    damaged = bytearray(part)
    if len(part) > wire.HEADER_BYTES and data.draw(st.booleans()):
        damaged[data.draw(st.integers(wire.HEADER_BYTES, len(part) - 1))] ^= data.draw(st.integers(1, 255))
    else:
        del damaged[data.draw(st.integers(0, len(part) - 1)) :]
    try:
        header, read = wire.split_joined(bytes(damaged), LIMITS)
    except MalformedMessageError:
        return
    assert len(read) == header.frames == len(frames)
    assert sum(map(len, read)) == header.bytes == sum(map(len, frames))


def test_lengths_that_reach_beyond_their_part_are_refused() -> None:
    _, part = _joined([b"12", b"345"])
    at = wire.HEADER_BYTES
    for lengths in ((5, 1), (1, 2), (2, 4), (2**32 - 1, 6)):
        with pytest.raises(MalformedMessageError):
            wire.split_joined(part[:at] + struct.pack("<2I", *lengths) + part[at + 8 :], LIMITS)
    for changes in ({"frames": 3}, {"frames": 1}, {"bytes": 4}, {"frames": LIMITS.frames}):
        with pytest.raises(MalformedMessageError):
            wire.split_joined(_joined([b"12", b"345"], **changes)[1], LIMITS)


def test_frames_are_compared_with_the_header() -> None:
    header = Header(MessageKind.MESSAGE, Lane.BULK, 1, 2, 3, 4, 5, frames=2, bytes=5)
    wire.check_frames(header, [b"12", memoryview(b"345")])
    for frames in ([b"12345"], [b"12", b"34"], [b"12", b"345", b""], []):
        with pytest.raises(MalformedMessageError):
            wire.check_frames(header, frames)


@pytest.mark.parametrize(("encode", "decode", "values"), BODIES)
@given(st.data())
def test_bodies_are_decoded_as_they_were_encoded(encode: Any, decode: Any, values: Any, data: st.DataObject) -> None:
    value = data.draw(values)
    assert decode([encode(value)]) == value


@pytest.mark.parametrize(("encode", "decode", "values"), BODIES)
@given(st.data())
def test_mutated_bodies_raise_nothing_else(encode: Any, decode: Any, values: Any, data: st.DataObject) -> None:
    body = bytearray(encode(data.draw(values)))
    for _ in range(data.draw(st.integers(1, 4))):
        cut = data.draw(st.integers(0, len(body)))
        body[cut : cut + data.draw(st.integers(0, 3))] = data.draw(st.binary(max_size=3))
    outcome(lambda: decode([bytes(body)]))
    outcome(lambda: decode([bytes(body), b""]))


@pytest.mark.parametrize(("encode", "decode", "values"), BODIES)
@given(st.data())
def test_random_bodies_raise_nothing_else(encode: Any, decode: Any, values: Any, data: st.DataObject) -> None:
    outcome(lambda: decode(data.draw(st.lists(st.binary(max_size=60), max_size=3))))


def test_no_memory_is_taken_for_a_size_that_is_claimed() -> None:
    large = Header(MessageKind.MESSAGE, Lane.BULK, 1, 2, 3, 4, 5, LIMITS.frames, LIMITS.message_bytes)
    data = wire.encode_header(large)
    hello = wire.encode_hello(Hello("c", "n", "h:1", 1))
    claims = hello[:10] + b"\xff\xff" * 3 + hello[16:]
    tracemalloc.start()
    try:
        outcome(lambda: wire.check_frames(wire.decode_header(data, LIMITS), [b""]))
        outcome(lambda: wire.decode_hello([claims]))
        assert tracemalloc.get_traced_memory()[1] < 1 << 16
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    "address",
    ["", "here", ":1", "here:", "here:0", "here:65536", "here:x", "h:٣", "a b:1", "a;b:1", "*:1", "[::1:2", "::1:2"],
)
def test_a_hello_has_an_address(address: str) -> None:
    with pytest.raises(MalformedMessageError, match="host:port"):
        wire.decode_hello([wire.encode_hello(Hello("c", "n", address, 1))])


def test_addresses_are_split() -> None:
    assert wire.split_address("some-host.example_1:0") == ("some-host.example_1", 0)
    assert wire.split_address("[::1]:65535") == ("::1", 65535)


def test_texts_are_cut_and_can_be_printed() -> None:
    assert wire.decode_failure([wire.encode_failure(Failure(3, "é" * 5000))]).message == "é" * 2048
    with pytest.raises(MalformedMessageError, match="printed"):
        wire.decode_hello([wire.encode_hello(Hello("c", "\x1b[2J", "h:1", 1))])
    # the texts of errors have lines
    assert wire.decode_failure([wire.encode_failure(Failure(3, "one\ntwo"))]).message == "one\ntwo"


def test_a_buffer_is_flattened_without_a_copy() -> None:
    data = memoryview(bytes(24)).cast("q")
    assert len(wire.flat(data)) == 24
    assert wire.flat(b"abc") == b"abc"
    with pytest.raises(TypeError):
        wire.flat(data[::2])


@given(st.sampled_from(MessageKind), IDS, U64, IDS, U64, U64, st.binary(max_size=wire.BRIEF_BYTES))
def test_a_brief_message_is_one_that_is_joined(
    kind: MessageKind, sender: int, receiver: int, channel: int, sequence: int, request: int, frame: bytes
) -> None:
    header = Header(kind, Lane.CONTROL, sender, receiver, channel, sequence, request, 1, len(frame))
    part = wire.brief(kind, sender, receiver, channel, sequence, request, frame)
    assert [part] == wire.joined(wire.encode_header(header), [frame])
    assert wire.split_joined(part, LIMITS) == (header, [frame])
    # another length than the header says
    damaged = part[: wire.HEADER_BYTES] + struct.pack("<I", len(frame) + 1) + part[wire.HEADER_BYTES + 4 :]
    assert outcome(lambda: wire.split_joined(damaged, LIMITS)) is None
