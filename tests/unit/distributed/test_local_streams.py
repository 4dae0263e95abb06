"""Streams between processes of this host: their framing, what is held up, who is let in. (Here: of this process.)"""

from __future__ import annotations

import select
import socket
import sys
from collections.abc import Iterator

import pytest
from hypothesis import given, settings, strategies as st

from anabranch.distributed import local_streams, wire
from anabranch.distributed.local_streams import LocalListener, LocalReader, LocalWriter
from anabranch.distributed.wire import Header, Lane, Limits, MalformedMessageError, MessageKind

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="addresses without a folder are Linux's")
LIMITS = Limits()


def message(number: int, *frames: bytes) -> list[bytes]:
    """The parts of a message, as lanes give them to a connection."""
    header = Header(MessageKind.MESSAGE, Lane.CONTROL, 1, 2, 3, number, 0, len(frames), sum(map(len, frames)))
    return [bytes(part) for part in wire.joined(wire.encode_header(header), frames)]


class Stream:
    """Both ends of a stream."""

    def __init__(self, listener: LocalListener) -> None:
        self.watched: list[LocalWriter] = []
        self.broken = 0
        self.writer = LocalWriter(listener.address, self.watched.append, self._note_broken)
        reader = listener.accept(self.writer.number, LIMITS)
        assert reader is not None
        self.reader: LocalReader = reader

    def _note_broken(self) -> None:
        self.broken += 1

    def read(self, count: int) -> list[tuple[int, list[bytes]]]:
        """So many messages: their numbers and frames."""
        found: list[tuple[int, list[bytes]]] = []
        while len(found) < count:
            messages = self.reader.read()
            assert messages is not None
            for data in messages:
                header, frames = (
                    wire.split_joined(data, LIMITS)
                    if len(data) > wire.HEADER_BYTES
                    else (wire.decode_header(data, LIMITS), [])
                )
                found.append((header.sequence, [bytes(frame) for frame in frames]))
            if not messages and self.watched and self.writer.flush():
                self.writer.let_go()
        assert len(found) == count
        return found

    def close(self) -> None:
        self.writer.close(is_farewell=False)
        if self.writer.fileno() != -1:
            self.writer.let_go()
        self.reader.close()


@pytest.fixture
def listener() -> Iterator[LocalListener]:
    made = LocalListener()
    yield made
    made.close()


@pytest.fixture
def stream(listener: LocalListener) -> Iterator[Stream]:
    made = Stream(listener)
    yield made
    made.close()


def test_messages_come_one_by_one_and_several_at_once(stream: Stream) -> None:
    assert stream.reader.read() == []
    stream.writer.send(message(0, b"a", b"", b"bc"))
    assert stream.read(1) == [(0, [b"a", b"", b"bc"])]
    for number in range(1, 50):
        stream.writer.send(message(number, b"%d" % number))
    stream.writer.send(message(50))
    assert stream.read(50) == [*((n, [b"%d" % n]) for n in range(1, 50)), (50, [])]
    assert stream.reader.read() == []


def test_what_the_system_does_not_take_waits_and_stays_in_order(stream: Stream) -> None:
    large = bytes(range(256)) * 20_000
    sent = [message(0, b"first"), message(1, large, b"x", large), *(message(n, b"%d" % n) for n in range(2, 100))]
    for parts in sent:
        stream.writer.send(parts)
    # it is to be watched, and that is said once
    assert stream.watched == [stream.writer]
    assert not stream.writer.flush()
    found = stream.read(100)
    assert found[:2] == [(0, [b"first"]), (1, [large, b"x", large])]
    assert found[2:] == [(n, [b"%d" % n]) for n in range(2, 100)]
    assert stream.writer.flush()
    stream.writer.send(message(100, large))
    assert stream.read(1) == [(100, [large])]
    assert stream.watched == [stream.writer] * 2


def test_who_is_let_go_with_something_to_write_is_watched_again(stream: Stream) -> None:
    large = bytes(1 << 21)
    stream.writer.send(message(0, large))
    while not stream.writer.flush():
        stream.reader.read()
    stream.writer.send(message(1, large))
    assert len(stream.watched) == 1
    stream.writer.let_go()
    assert len(stream.watched) == 2


@pytest.mark.parametrize("is_farewell", [True, False])
def test_one_that_is_watched_is_closed_by_who_watches_it(stream: Stream, is_farewell: bool) -> None:
    stream.writer.send(message(0, bytes(1 << 22)))
    descriptor = stream.writer.fileno()
    stream.writer.close(is_farewell=is_farewell)
    stream.writer.send(message(1, b"lost"))
    # nobody else has come to have its descriptor, which is ready
    assert stream.writer.fileno() == descriptor
    poll = select.poll()
    poll.register(descriptor, select.POLLOUT)
    assert len(poll.poll(10_000)) == 1
    assert stream.writer.flush()
    stream.writer.let_go()
    assert stream.writer.fileno() == -1
    while (messages := stream.reader.read()) is not None:
        assert messages == []
    assert stream.broken == 0


@settings(max_examples=40, deadline=None)
@given(st.lists(st.lists(st.binary(max_size=3000), max_size=4), min_size=1, max_size=12), st.data())
def test_however_the_bytes_are_cut_the_same_messages_come(messages: list[list[bytes]], data: st.DataObject) -> None:
    one, other = socket.socketpair()
    with one, other:
        other.setblocking(False)
        reader = LocalReader(other, LIMITS)
        parts = [message(n, *frames) for n, frames in enumerate(messages)]
        whole = b"".join(
            bytes(part)
            for given in parts
            for part in (given if len(given) == 1 else wire.delimited(given[0], given[1:]))
        )
        cuts = sorted({*data.draw(st.lists(st.integers(0, len(whole)), max_size=20)), len(whole)})
        found, start = [], 0
        for cut in cuts:
            one.sendall(whole[start:cut])
            start = cut
            got = reader.read()
            assert got is not None
            found += got
        assert b"".join(found) == whole
        assert len(found) == len(messages)


def test_the_end_of_the_writer_is_the_end_of_the_stream(stream: Stream) -> None:
    stream.writer.send(message(0, b"last"))
    stream.writer.close(is_farewell=True)
    stream.writer.send(message(1, b"lost"))
    assert stream.read(1) == [(0, [b"last"])]
    assert stream.reader.read() is None
    assert stream.broken == 0


def test_the_end_of_the_reader_is_told_once(stream: Stream) -> None:
    stream.reader.close()
    for number in range(3):
        stream.writer.send(message(number, b"x"))
    assert stream.broken == 1
    assert not stream.watched


def test_a_writer_that_is_held_up_learns_of_the_end_when_it_goes_on(stream: Stream) -> None:
    for number in range(3):
        stream.writer.send(message(number, bytes(1 << 20)))
    stream.reader.close()
    assert stream.broken == 0
    assert stream.writer.flush()
    assert stream.broken == 1


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(bytes(200), id="nonsense"),
        pytest.param(message(0, bytes(10))[0].replace(b"anab", b"bana"), id="another's"),
    ],
)
def test_what_is_no_message_is_an_error(listener: LocalListener, data: bytes) -> None:
    with socket.socket(socket.AF_UNIX) as stranger:
        stranger.connect(listener.address)
        stranger.sendall(b"n" * wire.STREAM_NUMBER_BYTES)
        reader = listener.accept(b"n" * wire.STREAM_NUMBER_BYTES, LIMITS)
        assert reader is not None
        stranger.sendall(data)
        with pytest.raises(MalformedMessageError, match="no message"):
            reader.read()
        reader.close()


def test_a_size_that_is_too_large_is_not_believed(listener: LocalListener) -> None:
    small = Limits(message_bytes=1000)
    writer = LocalWriter(listener.address, lambda _: None, lambda: None)
    reader = listener.accept(writer.number, small)
    assert reader is not None
    writer.send(message(0, bytes(2000)))
    with pytest.raises(MalformedMessageError, match="limits"):
        reader.read()
    writer.close(is_farewell=False)
    reader.close()


def split(reader: LocalReader) -> None:
    for data in reader.read() or ():
        wire.split_joined(data, LIMITS)


def test_a_damaged_size_is_found_before_what_it_claims_has_come(stream: Stream) -> None:
    (data,) = message(0, b"abc")
    for position in range(48, wire.HEADER_BYTES - 4):
        damaged = bytearray(data)
        damaged[position] |= 1 << 4
        reader = LocalReader(stream.reader._socket, LIMITS)
        stream.writer.send([bytes(damaged)])
        with pytest.raises(MalformedMessageError):
            split(reader)


def test_a_stream_is_found_by_its_number(listener: LocalListener) -> None:
    writers = [LocalWriter(listener.address, lambda _: None, lambda: None) for _ in range(5)]
    silent = socket.socket(socket.AF_UNIX)
    silent.connect(listener.address)
    assert listener.accept(bytes(wire.STREAM_NUMBER_BYTES), LIMITS) is None
    # who has not said a number by then is sent away
    assert silent.recv(1) == b""
    silent.close()
    for number, writer in reversed(list(enumerate(writers))):
        reader = listener.accept(writer.number, LIMITS)
        assert reader is not None
        writer.send(message(number))
        (data,) = reader.read() or []
        assert wire.decode_header(data, LIMITS).sequence == number
        assert listener.accept(writer.number, LIMITS) is None
        reader.close()
        writer.close(is_farewell=False)


def test_streams_that_nobody_asks_for_are_bounded(listener: LocalListener, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local_streams, "_MOST_WAITING", 3)
    writers = [LocalWriter(listener.address, lambda _: None, lambda: None) for _ in range(5)]
    for _ in range(2):
        assert listener.accept(bytes(wire.STREAM_NUMBER_BYTES), LIMITS) is None
    found = [listener.accept(writer.number, LIMITS) for writer in writers]
    assert [reader is not None for reader in found] == [False, False, True, True, True]
    for writer in writers:
        writer.close(is_farewell=False)
    for reader in filter(None, found):
        reader.close()


def test_another_users_processes_are_not_let_in_nor_written_to(
    listener: LocalListener, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine = LocalWriter(listener.address, lambda _: None, lambda: None)
    monkeypatch.setattr(local_streams.os, "geteuid", lambda: 12345)
    assert listener.accept(mine.number, LIMITS) is None
    with pytest.raises(PermissionError, match="another user"):
        LocalWriter(listener.address, lambda _: None, lambda: None)
    monkeypatch.undo()
    assert listener.accept(mine.number, LIMITS) is None
    mine.close(is_farewell=False)


def test_nobody_listens_where_one_has_closed(listener: LocalListener) -> None:
    listener.close()
    with pytest.raises(OSError):
        LocalWriter(listener.address, lambda _: None, lambda: None)
