"""The bytes of files in order, decompressed where a file is compressed.

However many bytes are asked for, memory grows with what the file gives: a length that was read from the file can ask
for a terabyte. And what a compressed file gives for one request is bounded, since a megabyte of it can hold a gigabyte.
"""

from __future__ import annotations

import zlib
from typing import BinaryIO, Final, Protocol

from anabranch import errors
from anabranch.io import os_errors, remote

#: So many decompressed bytes may one record, line or string have.
MAX_INFLATED: Final = 1 << 31
_PIECE: Final = 1 << 20
_DEFAULT_BUFFER: Final = 1 << 18
#: zlib's number for the kind of frame around compressed data
WINDOW_BITS: Final = {"ZLIB": zlib.MAX_WBITS, "GZIP": 16 + zlib.MAX_WBITS}


class ByteSource(Protocol):
    """Bytes in order.

    Raises:
        DataLossError: compressed data are damaged; the message names the file.
        ResourceExhaustedError: one request would give more than `MAX_INFLATED` decompressed bytes.
        OpError: the class of the system's refusal.
    """

    def read(self, count: int) -> bytes:
        """The next bytes: fewer than `count` only at the end."""

    def readline(self) -> bytes:
        """The bytes up to and including the next line feed, or to the end."""

    def seek(self, offset: int) -> None:
        """Goes to an offset, which in compressed files must not lie behind.

        Raises:
            DataLossError: a compressed file ends before it.
        """

    def bound(self) -> int | None:
        """How many bytes can follow at most; None where only reading tells."""

    def close(self) -> None:
        """Closes the file."""


class PlainSource:
    """A file as it is."""

    def __init__(self, file: BinaryIO, path: str) -> None:
        self._file = file
        self._path = path

    def read(self, count: int) -> bytes:
        with os_errors.translated("read", self._path):
            if count <= _PIECE:
                return self._file.read(count)
            pieces = []
            while count and (piece := self._file.read(min(count, _PIECE))):
                pieces.append(piece)
                count -= len(piece)
            return b"".join(pieces)

    def readline(self) -> bytes:
        with os_errors.translated("read", self._path):
            return self._file.readline()

    def seek(self, offset: int) -> None:
        with os_errors.translated("read", self._path):
            self._file.seek(offset)

    def bound(self) -> int | None:
        """What remains of the file now: one that is being written may grow. The length of a pipe is not known."""
        size = remote.size_of(self._file)
        return None if size is None else size - self._file.tell()

    def close(self) -> None:
        self._file.close()


class InflatedSource:
    """The decompressed bytes of a file.

    Args:
        whole: whether the compressed data must end as such data do; else a file may end anywhere, as the file of a
            program does that was killed.
    """

    def __init__(
        self, file: BinaryIO, path: str, window_bits: int, *, whole: bool, take: int = _DEFAULT_BUFFER
    ) -> None:
        self._file = file
        self._path = path
        self._window_bits = window_bits
        self._whole = whole
        self._take = take
        self._inflate = zlib.decompressobj(window_bits)
        self._begun = False  # whether the current member has data
        self._ready = bytearray()
        self._offset = 0

    def read(self, count: int) -> bytes:
        while len(self._ready) < count and self._refill():
            pass
        return self._taken(count)

    def readline(self) -> bytes:
        searched = 0
        while (end := self._ready.find(b"\n", searched)) < 0:
            searched = len(self._ready)
            if not self._refill():
                return self._taken(searched)
        return self._taken(end + 1)

    def seek(self, offset: int) -> None:
        while self._offset < offset:
            if not self.read(min(offset - self._offset, _PIECE)):
                raise errors.DataLossError(
                    None, None, f"File {self._path!r} ends at byte offset {self._offset}, before the saved position."
                )

    def bound(self) -> int | None:
        return None

    def close(self) -> None:
        self._file.close()

    def _taken(self, count: int) -> bytes:
        taken = bytes(self._ready[:count])
        del self._ready[:count]
        self._offset += len(taken)
        return taken

    def _refill(self) -> bool:
        """Adds up to a piece of decompressed bytes. False at the end of the file."""
        if len(self._ready) >= MAX_INFLATED:
            raise errors.ResourceExhaustedError(
                None,
                None,
                f"Compressed file {self._path!r} holds a record of more than {MAX_INFLATED} bytes after byte offset "
                f"{self._offset}. Decompress the file first if that is right.",
            )
        compressed = self._compressed()
        if not compressed:
            return False
        self._begun = True
        try:
            self._ready += self._inflate.decompress(compressed, _PIECE)
        except zlib.error as error:
            raise self._damage(f"{error}; check the compression type") from error
        return True

    def _compressed(self) -> bytes:
        """More compressed bytes. Files that were concatenated follow one another as members, perhaps after zeros."""
        compressed = self._inflate.unconsumed_tail
        if self._inflate.eof:
            compressed = self._inflate.unused_data.lstrip(b"\0")
            self._inflate, self._begun = zlib.decompressobj(self._window_bits), False
        while not compressed:
            with os_errors.translated("read", self._path):
                compressed = self._file.read(self._take)
            if not compressed:
                if self._whole and self._begun:
                    raise self._damage("the file ends before its compressed data do")
                return b""
            compressed = compressed if self._begun else compressed.lstrip(b"\0")
        return compressed

    def _damage(self, reason: str) -> errors.DataLossError:
        at = self._offset + len(self._ready)
        return errors.DataLossError(
            None, None, f"Cannot decompress file {self._path!r} after byte offset {at}: {reason}."
        )


def open_source(path: str, compression: str, buffer_size: int = 0) -> ByteSource:
    """Opens a file for reading its (decompressed) bytes.

    Args:
        compression: "", "GZIP" or "ZLIB".
        buffer_size: how many bytes to take from the file at a time; 0: some.

    Raises:
        NotFoundError: there is no such file.
        InvalidArgumentError: no such compression.
    """
    if compression not in ("", *WINDOW_BITS):
        raise errors.InvalidArgumentError(
            None, None, f"Unsupported compression_type: {compression!r}; use 'GZIP', 'ZLIB' or ''."
        )
    with os_errors.translated("open", path):
        file = remote.open_file(path, "rb", max(buffer_size, 2) if buffer_size > 0 else _DEFAULT_BUFFER)
    if not compression:
        return PlainSource(file, path)
    return InflatedSource(file, path, WINDOW_BITS[compression], whole=True)


def inflated(data: bytes, compression: str) -> bytes:
    """The decompressed bytes of "GZIP" or "ZLIB" data.

    Raises:
        ValueError: the data are damaged, end early, or hold more than `MAX_INFLATED` bytes.
    """
    inflate = zlib.decompressobj(WINDOW_BITS[compression])
    try:
        result = inflate.decompress(data, MAX_INFLATED)
    except zlib.error as error:
        raise ValueError(str(error)) from error
    if inflate.unconsumed_tail:
        raise ValueError(f"they hold more than {MAX_INFLATED} bytes")
    if not inflate.eof:
        raise ValueError("they end too early")
    return result
