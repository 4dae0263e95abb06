"""Rows of comma-separated values (RFC 4180): taken apart, and found in files (where quotes may hold line ends)."""

from __future__ import annotations

from typing import AnyStr, Final

from anabranch.io.positioned_records import LineFile

_QUOTE: Final = '"'
_LINE_ENDS: Final = ("\n", "\r")


def split_row(row: str, delimiter: str, quoted: bool = True, last: int | None = None) -> list[str]:
    """The fields of a row, without its line end; none for an empty row. Line ends before a field are left out.

    Args:
        quoted: whether a field may stand in double quotes, in which a double quote is written twice.
        last: the last field that is wanted: what follows it is not looked at. None: all are.

    Raises:
        ValueError: a quote or a line end within a field, or a quote that is not closed.
    """
    row = row.rstrip("\r\n")
    special = (_QUOTE, *_LINE_ENDS) if quoted else _LINE_ENDS
    if not any(letter in row for letter in special):
        return row.split(delimiter) if row else []
    fields: list[str] = []
    at = 0
    while last is None or len(fields) <= last:
        while row.startswith(_LINE_ENDS, at):
            at += 1
        is_quoted = quoted and row.startswith(_QUOTE, at)
        field, at = _quoted_field(row, at, delimiter) if is_quoted else _bare_field(row, at, delimiter, special)
        fields.append(field)
        if at == len(row):
            break
        at += len(delimiter)
    return fields


def _bare_field(row: str, at: int, delimiter: str, special: tuple[str, ...]) -> tuple[str, int]:
    """The field that begins at a place, and where it ends."""
    end = row.find(delimiter, at)
    end = len(row) if end < 0 else end
    if any(letter in row[at:end] for letter in special):
        raise ValueError("Unquoted fields cannot have quotes/CRLFs inside")
    return row[at:end], end


def _quoted_field(row: str, at: int, delimiter: str) -> tuple[str, int]:
    end = _closing_quote(row, at)
    if end < 0 or not (end + 1 == len(row) or row.startswith(delimiter, end + 1)):
        raise ValueError("Quoted field has to end with quote followed by delim or end")
    return row[at + 1 : end].replace(_QUOTE * 2, _QUOTE), end + 1


def _closing_quote(row: AnyStr, at: int) -> int:
    """Where the quoted field that begins at a place has its last quote; -1: nowhere. Takes strings or bytes."""
    quote: AnyStr = _QUOTE if isinstance(row, str) else _QUOTE.encode()
    end = row.find(quote, at + 1)
    while end >= 0 and row.startswith(quote, end + 1):
        end = row.find(quote, end + 2)
    return int(end)


def _is_open(row: bytes, delimiter: bytes) -> bool:
    """Whether a row ends within quotes."""
    at = 0
    while 0 <= at < len(row):
        if row.startswith(b'"', at):
            at = _closing_quote(row, at)
            if at < 0:
                return True
        at = row.find(delimiter, at)
        at = at if at < 0 else at + len(delimiter)
    return False


class RowFile(LineFile):
    """The rows of a CSV file: lines without their ends, of which a quoted field may hold some."""

    def __init__(self, path: str, delimiter: bytes, compression: str = "", buffer_size: int = 0) -> None:
        super().__init__(path, compression, buffer_size)
        self._delimiter = delimiter

    def read(self) -> bytes | None:
        """The next row; None at the end."""
        line = self._source.readline()
        row = [line]
        while line and b'"' in line and _is_open(b"".join(row), self._delimiter):
            line = self._source.readline()
            row.append(line)
            while line and b'"' not in line:
                line = self._source.readline()
                row.append(line)
        whole = b"".join(row)
        self.offset += len(whole)
        return whole.rstrip(b"\r\n") if whole else None
