"""Reading text lines, fixed-length records and TFRecords from any place in a file, with the place of each.

A place is the offset of the next record in the file's (decompressed) bytes. In a compressed file it is reached by
reading up to it.
"""

from __future__ import annotations

from typing import Protocol

from anabranch import errors
from anabranch.io import records
from anabranch.io.byte_sources import open_source


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
        self._source = open_source(path, compression, buffer_size)

    def seek(self, offset: int) -> None:
        """Goes to a place further on.

        Raises:
            DataLossError: a compressed file ends before it.
        """
        self._source.seek(offset)
        self.offset = offset

    def close(self) -> None:
        """Closes the file."""
        self._source.close()


class LineFile(_File):
    r"""Lines of text, without the line feeds, and without any carriage returns."""

    def read(self) -> bytes | None:
        """The next line; None at the end."""
        line = self._source.readline()
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
        size = self._source.bound()
        if size is not None and (size < header + footer or (size - header - footer) % record):
            self.close()
            raise errors.InvalidArgumentError(
                None,
                None,
                f'Excluding the header ({header} bytes) and footer ({footer} bytes), input file "{path}" has body '
                f"length {size - header - footer} bytes, which is not an exact multiple of the record length "
                f"({record} bytes).",
            )
        self._source.read(header)
        self.offset = header
        self._ahead = self._source.read(footer)  # what may be the footer, or the next record's beginning

    def seek(self, offset: int) -> None:
        """Goes to a place further on."""
        passed = offset - self.offset
        if 0 <= passed <= self._footer:
            self._ahead = self._ahead[passed:] + self._source.read(passed)
        else:
            self._source.seek(offset)
            self._ahead = self._source.read(self._footer)
        self.offset = offset

    def read(self) -> bytes | None:
        """The next record; None at the end.

        Raises:
            DataLossError: the file ends within a record.
        """
        data = self._ahead + self._source.read(self._record)
        if len(data) == self._footer:
            return None
        if len(data) < self._record + self._footer:
            follow = f"{len(data) - self._footer} of {self._record} bytes follow"
            raise errors.DataLossError(
                None, None, f"File {self.path!r} at byte offset {self.offset}: truncated record: {follow}."
            )
        self.offset += self._record
        self._ahead = data[self._record :]
        return data[: self._record]


class TFRecordFile(_File):
    """Framed records with checksums; see `io.records`."""

    def read(self) -> bytes | None:
        """The next record; None at the end.

        Raises:
            DataLossError: the file is truncated or corrupt here; the message names the byte offset.
        """
        record = records.next_record(self._source, self.path, self.offset)
        if record is not None:
            self.offset += records.frame_size(record)
        return record
