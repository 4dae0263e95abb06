"""Reading text lines, fixed-length records and TFRecords from any place in a file, and telling the place.

A place is the offset of the next record in the file's (decompressed) bytes. In a compressed file it is reached by
reading up to it.
"""

from __future__ import annotations

import gzip
import struct
import zlib
from typing import Any, BinaryIO, Final, Protocol, cast

from anabranch import errors
from anabranch.io import crc32c, os_errors, remote

_PIECE: Final = 1 << 16
_DEFAULT_BUFFER: Final = 1 << 18
_TFRECORD_HEADER: Final = struct.Struct("<QI")
_FOOTER: Final = struct.Struct("<I")


class _Inflated:
    """The decompressed bytes of a zlib file, as far as `open_bytes` needs a file."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._inflate = zlib.decompressobj()
        self._ready = bytearray()

    def read(self, count: int = -1) -> bytes:
        while (count < 0 or len(self._ready) < count) and self._refill():
            pass
        size = len(self._ready) if count < 0 else count
        taken = bytes(self._ready[:size])
        del self._ready[:size]
        return taken

    def readline(self) -> bytes:
        searched = 0
        while (end := self._ready.find(b"\n", searched)) < 0:
            searched = len(self._ready)
            if not self._refill():
                return self.read()
        return self.read(end + 1)

    def close(self) -> None:
        self._file.close()

    def _refill(self) -> bool:
        compressed = self._inflate.unconsumed_tail or self._file.read(_PIECE)
        if not compressed:
            return False
        self._ready += self._inflate.decompress(compressed, 16 * _PIECE)
        return True


def open_bytes(path: str, compression: str, buffer_size: int) -> Any:
    """A file opened for reading its decompressed bytes.

    Args:
        compression: "", "GZIP" or "ZLIB".

    Raises:
        NotFoundError: there is no such file.
        InvalidArgumentError: no such compression.
    """
    if compression not in ("", "GZIP", "ZLIB"):
        raise errors.InvalidArgumentError(
            None, None, f"Unsupported compression_type: {compression!r}; use 'GZIP', 'ZLIB' or ''."
        )
    with os_errors.translated("open", path):
        if compression == "GZIP" and not remote.is_remote(path):
            return gzip.GzipFile(path, mode="rb")
        file = remote.open_file(path, "rb", max(buffer_size, 2) if buffer_size > 0 else _DEFAULT_BUFFER)
    if compression == "GZIP":
        return gzip.GzipFile(fileobj=file, mode="rb")
    return _Inflated(file) if compression else file


class RecordFile(Protocol):
    """A file of records that is being read; `offset` is the place of the next record."""

    offset: int

    def read(self) -> bytes | None:
        """The next record; None at the end."""

    def seek(self, offset: int) -> None:
        """Goes to the place of a record."""

    def close(self) -> None:
        """Closes the file."""


class _File:
    def __init__(self, path: str, compression: str = "", buffer_size: int = 0) -> None:
        self.path = path
        self.offset = 0
        self._compressed = bool(compression)
        self._file = open_bytes(path, compression, buffer_size)

    def seek(self, offset: int) -> None:
        """Goes to a place further on.

        Raises:
            DataLossError: the file ends before it.
        """
        if not self._compressed:
            self._file.seek(offset)
        elif len(self._take(offset - self.offset)) < offset - self.offset:
            raise self._damage("the file ends before the saved position")
        self.offset = offset

    def close(self) -> None:
        """Closes the file."""
        self._file.close()

    def _take(self, count: int) -> bytes:
        try:
            return cast(bytes, self._file.read(count))
        except (OSError, zlib.error, EOFError) as error:
            raise self._unreadable(error) from error

    def _take_line(self) -> bytes:
        try:
            return cast(bytes, self._file.readline())
        except (OSError, zlib.error, EOFError) as error:
            raise self._unreadable(error) from error

    def _unreadable(self, error: Exception) -> errors.OpError:
        if self._compressed:
            return self._damage(f"cannot decompress it: {error}; check the compression type")
        assert isinstance(error, OSError)
        return os_errors.from_os_error(error, "read", self.path)

    def _damage(self, reason: str) -> errors.DataLossError:
        return errors.DataLossError(None, None, f"File {self.path!r} at byte offset {self.offset}: {reason}.")


class LineFile(_File):
    r"""Lines of text, without the line feeds, and without any carriage returns."""

    def read(self) -> bytes | None:
        """The next line; None at the end."""
        line = self._take_line()
        if not line:
            return None
        self.offset += len(line)
        if line[-1:] == b"\n":
            line = line[:-1]
        return line.replace(b"\r", b"") if b"\r" in line else line


class FixedLengthFile(_File):
    """Records of one length between a header and a footer.

    Raises:
        InvalidArgumentError: header, footer and the file's size leave no whole number of records.
    """

    def __init__(
        self, path: str, record: int, header: int, footer: int, buffer_size: int = 0, compression: str = ""
    ) -> None:
        super().__init__(path, compression, buffer_size)
        self._record, self._footer = record, footer
        self._ahead = b""
        if not self._compressed:
            body = remote.size_of(self._file) - header - footer
            if body < 0 or body % record:
                self.close()
                raise errors.InvalidArgumentError(
                    None,
                    None,
                    f'Excluding the header ({header} bytes) and footer ({footer} bytes), input file "{path}" has body '
                    f"length {body} bytes, which is not an exact multiple of the record length ({record} bytes).",
                )
        self._take(header)
        self.offset = header
        self._ahead = self._take(footer)

    def seek(self, offset: int) -> None:
        """Goes to a place further on."""
        if self._compressed:
            passed = self._ahead + self._take(offset - self.offset)
            self._ahead = passed[len(passed) - self._footer :]
        else:
            self._file.seek(offset)
            self._ahead = self._take(self._footer)
        self.offset = offset

    def read(self) -> bytes | None:
        """The next record; None at the end.

        Raises:
            DataLossError: the file ends within a record.
        """
        found = self._ahead + self._take(self._record)
        if len(found) == self._footer:
            return None
        if len(found) < self._record + self._footer:
            raise self._damage(f"truncated record: {len(found) - self._footer} of {self._record} bytes follow")
        self.offset += self._record
        self._ahead = found[self._record :]
        return found[: self._record]


class TFRecordFile(_File):
    """Framed records with checksums; see `io.records`."""

    def read(self) -> bytes | None:
        """The next record; None at the end.

        Raises:
            DataLossError: the file is truncated or corrupt here; the message names the byte offset.
        """
        header = self._take(_TFRECORD_HEADER.size)
        if not header:
            return None
        if len(header) < _TFRECORD_HEADER.size:
            raise self._damage(f"truncated record: only {len(header)} header bytes follow")
        length, length_crc = _TFRECORD_HEADER.unpack(header)
        if crc32c.masked_crc32c(header[:8]) != length_crc:
            raise self._damage("corrupted record: the checksum of its length does not match")
        body = self._take(length + _FOOTER.size)
        if len(body) < length + _FOOTER.size:
            raise self._damage(f"truncated record: its length is {length} bytes but {len(body)} bytes follow")
        record = body[:length]
        if crc32c.masked_crc32c(record) != _FOOTER.unpack_from(body, length)[0]:
            raise self._damage("corrupted record: the checksum of its data does not match")
        self.offset += _TFRECORD_HEADER.size + len(body)
        return record
