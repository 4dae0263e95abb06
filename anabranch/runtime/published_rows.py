"""Rows of a variable of another process of this host, which its indices' sender takes there itself (§4.2, §4.4).

A table is too large for a board (`runtime.published_values`), and a step needs a few of its rows only. So a board says
where the table stands in the memory of its process, and the system copies rows from there (`ReadMemory`). They are rows
of one moment if the table's version is the same, and even, before and after: whoever changes a table, gives its buffer
away or lets go of it has made the version odd before.
"""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from typing import Any, Final, Protocol

import numpy as np

from anabranch.runtime.published_values import ADDRESS, PublishedTensor, is_on_board, versions_of
from anabranch.xla.partitions import TransferEnd

#: bytes of rows that are taken so; more take so long that the table will change meanwhile
MOST_BYTES: Final = 1 << 20
#: so often it is looked while somebody writes: a small update takes less than a message and its answer
_LOOKS: Final = 4


class ReadMemory(Protocol):
    """Reads the memory of another process."""

    def __call__(self, pieces: np.ndarray[Any, Any], rows: np.ndarray[Any, Any]) -> bool:
        """Copies pieces of its memory one after the other.

        Args:
            pieces: uint64 [n, 2], contiguous: the address of each, and its bytes.
            rows: contiguous, of as many bytes as all pieces.

        Returns:
            Whether all could be read.
        """


class PublishedRows:
    """The rows of one variable that a partition of another process sends to this one.

    Args:
        number: which of the partition's they are.
        contents: the board of the process, mapped.
        variable: where the variable stands.
        end: the transfer of the rows.
        shape: of a row.
        is_alone: whether nobody there takes the indices for anything but such rows.
        read: reads the process's memory; only for a variable that stands there.

    Attributes:
        number, is_alone: see above.
        way: of the transfer: its source, its destination, its name.

    Raises:
        ValueError: that cannot be.
    """

    def __init__(
        self,
        number: int,
        contents: memoryview,
        variable: PublishedTensor,
        end: TransferEnd,
        shape: Sequence[int],
        is_alone: bool,
        read: ReadMemory | None,
    ) -> None:
        self._dtype = np.dtype(end.dtype.as_numpy_dtype)
        self._size = math.prod(shape) * self._dtype.itemsize
        is_known = not variable.is_address or (variable.size == ADDRESS.size and read is not None)
        if not (is_known and is_on_board(variable, contents) and min(shape, default=1) > 0 and self._size > 0):
            raise ValueError(f"{variable} is not where rows of dtype {self._dtype} and shape {list(shape)} can be")
        self.number, self.is_alone = number, is_alone
        self.way = end.source, end.destination, end.tensor
        self._shape = tuple(shape)
        self._slot, self._begin, self._end = variable.slot, variable.offset, variable.offset + variable.size
        self._contents, self._versions = contents, versions_of(contents)
        self._read = read if variable.is_address else None

    def take(self, indices: np.ndarray[Any, Any]) -> np.ndarray[Any, Any] | None:
        """The rows at some indices, of one moment.

        Args:
            indices: of any shape.

        Returns:
            [*indices.shape, *shape of a row]; None where the variable is not shown, an index is not one of its rows, or
            the rows are many: the partition is asked then.
        """
        if indices.size * self._size > MOST_BYTES or indices.dtype.kind != "i":
            return None
        # as numbers without sign: those below 0 are beyond any end
        flat = indices.reshape(-1).astype(np.int64, copy=False).view(np.uint64)
        rows = np.empty((*indices.shape, *self._shape), self._dtype)
        for _ in range(_LOOKS):
            version = self._versions[self._slot]
            if not version & 1:
                is_taken = self._copy(flat, rows)
                if self._versions[self._slot] == version:
                    return rows if is_taken else None
            # who writes may want this core
            os.sched_yield()
        return None

    def _copy(self, indices: np.ndarray[Any, Any], rows: np.ndarray[Any, Any]) -> bool:
        """Copies rows as the variable stands now."""
        content = bytes(self._contents[self._begin : self._end])
        at, size = ADDRESS.unpack(content) if self._read is not None else (0, len(content))
        # before an address is made of it, which must be one of the variable's
        if len(indices) and indices.max() >= size // self._size:
            return False
        if self._read is None:
            table = np.frombuffer(content, self._dtype).reshape(-1, *self._shape)
            table.take(indices.reshape(rows.shape[: rows.ndim - len(self._shape)]), 0, rows)
            return True
        pieces = np.empty((len(indices), 2), np.uint64)
        np.multiply(indices, self._size, pieces[:, 0])
        pieces[:, 0] += np.uint64(at)
        pieces[:, 1] = self._size
        return self._read(pieces, rows)
