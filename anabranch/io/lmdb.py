"""Reads databases of the library LMDB, which are one file each: a tree of pages (H. Chu, "MDB", 2011).

page:      uint64 number | uint16 | uint16 kind | uint16 end of places | uint16 | uint16 places of entries | entries
meta page: the first two pages; uint32 magic, uint32 version, uint64 address, uint64 size, two trees (the pages that are
           free, and the database), uint64 last page, uint64 number of the transaction: the larger one counts
tree:      uint32 (of the first: the size of a page), uint16 flags, uint16 depth, 4 * uint64 numbers, uint64 root page
entry:     uint16, uint16, uint16, uint16 length of the key | key | value; of a leaf the first two say how long the
           value is, in a branch the first three which page it leads to. A long value stands on pages of its own.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from types import TracebackType
from typing import BinaryIO, Final, Self

from anabranch.errors import DataLossError, InvalidArgumentError, UnimplementedError
from anabranch.io import gfile, os_errors, remote

_FILE: Final = "data.mdb"
_MAGIC: Final = 0xBEEFC0DE
_VERSION: Final = 1
_PAGE: Final = struct.Struct("<QHHHH")
_META: Final = struct.Struct("<IIQQ")
_TREE: Final = struct.Struct("<IHHQQQQQ")
_NODE: Final = struct.Struct("<HHHH")
_BRANCH, _LEAF, _OVERFLOW, _META_PAGE = 1, 2, 4, 8
_KEPT_APART, _SEVERAL = 1, 4
_NOWHERE: Final = (1 << 64) - 1
_SMALLEST, _LARGEST, _USUAL = 512, 1 << 16, 4096
#: deeper no tree of 2^48 pages can be
_DEEPEST: Final = 48


class LmdbFile:
    """The records of a database, in the order of their keys. A context manager.

    Args:
        path: the file, or the folder in which it is `data.mdb`.

    Raises:
        NotFoundError: there is none.
        InvalidArgumentError, DataLossError: it is none, or damaged.
    """

    def __init__(self, path: str) -> None:
        self._path = os.path.join(path, _FILE) if gfile.isdir(path) else path
        with os_errors.translated("open", self._path):
            self._file: BinaryIO = remote.open_file(self._path, "rb", _USUAL)
        try:
            self._size = self._file.seek(0, os.SEEK_END)
            self._page_size, self._root = self._read_meta()
            self._left = 0
        except BaseException:
            self._file.close()
            raise

    def close(self) -> None:
        """Closes the file."""
        self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __iter__(self) -> Iterator[tuple[bytes, bytes]]:
        self._left = self._size // self._page_size
        if self._root != _NOWHERE:
            yield from self._below(self._root, 0)

    # ------------------------------------------------------------------ the beginning
    def _read_meta(self) -> tuple[int, int]:
        """The size of a page, and the page of the root."""
        size = self._tree_of(self._bytes(0, _LARGEST, exactly=False), 0)
        if size is None:
            message = f"{self._path!r} is no database of LMDB: it does not begin as one does"
            raise InvalidArgumentError(None, None, message)
        page_size = size[0]
        if not (_SMALLEST <= page_size <= _LARGEST and page_size & page_size - 1 == 0):
            raise self._damaged(f"its pages would have {page_size} bytes")
        other = self._tree_of(self._bytes(page_size, page_size, exactly=False), 0)
        newest = size if other is None or other[2] <= size[2] else other
        return page_size, newest[1]

    def _tree_of(self, page: bytes, at: int) -> tuple[int, int, int] | None:
        """Of a meta page the size of a page, the root of the database, and the transaction; None if it is none."""
        if len(page) < at + _PAGE.size + _META.size + 2 * _TREE.size + 16:
            return None
        at += _PAGE.size
        magic, version, _, _ = _META.unpack_from(page, at)
        if magic != _MAGIC:
            return None
        if version != _VERSION:
            message = f"{self._path!r} is a database of LMDB's version {version}; version {_VERSION} is read here"
            raise UnimplementedError(None, None, message)
        free, main = (_TREE.unpack_from(page, at + _META.size + i * _TREE.size) for i in range(2))
        (transaction,) = struct.unpack_from("<Q", page, at + _META.size + 2 * _TREE.size + 8)
        return free[0], main[-1], transaction

    # ------------------------------------------------------------------ pages
    def _bytes(self, at: int, size: int, exactly: bool = True) -> bytes:
        if exactly and (at < 0 or at + size > self._size):
            raise self._damaged(f"it has {self._size} bytes, and those from {at} to {at + size} are asked for")
        with os_errors.translated("read", self._path):
            self._file.seek(at)
            return self._file.read(size)

    def _damaged(self, how: str) -> DataLossError:
        return DataLossError(None, None, f"the LMDB database {self._path!r} is damaged: {how}")

    def _page(self, number: int) -> tuple[bytes, int, list[int]]:
        """The bytes of a page, its kind, and the places of its entries."""
        page = self._bytes(number * self._page_size, self._page_size)
        stands, _, kind, lower, _ = _PAGE.unpack_from(page)
        count = lower - _PAGE.size >> 1
        if stands != number or not _PAGE.size <= lower <= self._page_size:
            raise self._damaged(f"page {number} says that it is page {stands}, with places up to byte {lower}")
        places = list(struct.unpack_from(f"<{count}H", page, _PAGE.size))
        if any(not lower <= place <= self._page_size - _NODE.size for place in places):
            raise self._damaged(f"an entry of page {number} lies outside of it")
        return page, kind, places

    def _below(self, number: int, depth: int) -> Iterator[tuple[bytes, bytes]]:
        self._left -= 1  # no page is in the tree twice
        if depth > _DEEPEST or self._left < 0:
            raise self._damaged("its tree has circles")
        page, kind, places = self._page(number)
        if kind & _LEAF:
            for place in places:
                yield self._record(page, place)
        elif kind & _BRANCH:
            for place in places:
                low, high, top, _ = _NODE.unpack_from(page, place)
                yield from self._below(low | high << 16 | top << 32, depth + 1)
        else:
            raise self._damaged(f"page {number} is of kind {kind}, where a page of the tree is expected")

    def _record(self, page: bytes, place: int) -> tuple[bytes, bytes]:
        low, high, flags, length = _NODE.unpack_from(page, place)
        if flags & _SEVERAL:
            message = f"the LMDB database {self._path!r} has several values for one key, which is not read here"
            raise UnimplementedError(None, None, message)
        begin, size = place + _NODE.size + length, low | high << 16
        end = begin + (8 if flags & _KEPT_APART else size)
        if end > len(page):
            raise self._damaged(f"an entry at byte {place} of a page is longer than the page")
        key = page[place + _NODE.size : begin]
        if not flags & _KEPT_APART:
            return key, page[begin:end]
        (number,) = struct.unpack_from("<Q", page, begin)
        head = self._bytes(number * self._page_size, _PAGE.size)
        if not _PAGE.unpack(head)[2] & _OVERFLOW:
            raise self._damaged(f"page {number} does not hold the value of {size} bytes that it should")
        return key, self._bytes(number * self._page_size + _PAGE.size, size)
