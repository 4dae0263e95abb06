"""Datasets of the rows that a query of a SQLite database gives (WP4.5)."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from anabranch.core.arrays import boxed
from anabranch.core.dtypes import DType, bool as bool_, string
from anabranch.core.values import TensorValue
from anabranch.errors import (
    CancelledError,
    DataLossError,
    FailedPreconditionError,
    InvalidArgumentError,
    OpError,
    ResourceExhaustedError,
    UnavailableError,
    UnknownError,
)
from anabranch.state.datasets import DatasetIterator, Element, Elements, Path
from anabranch.state.positions import Position

#: the errors of SQLite by their primary codes
_ERRORS: Final[dict[int, type[OpError]]] = {
    sqlite3.SQLITE_READONLY: FailedPreconditionError,
    sqlite3.SQLITE_MISMATCH: FailedPreconditionError,
    sqlite3.SQLITE_CANTOPEN: InvalidArgumentError,
    sqlite3.SQLITE_CONSTRAINT: InvalidArgumentError,
    sqlite3.SQLITE_NOTADB: InvalidArgumentError,
    sqlite3.SQLITE_CORRUPT: DataLossError,
    sqlite3.SQLITE_FULL: ResourceExhaustedError,
    sqlite3.SQLITE_TOOBIG: ResourceExhaustedError,
    sqlite3.SQLITE_BUSY: UnavailableError,
    sqlite3.SQLITE_LOCKED: UnavailableError,
    sqlite3.SQLITE_INTERRUPT: CancelledError,
}


def _error(error: sqlite3.Error) -> OpError:
    code = getattr(error, "sqlite_errorcode", None)
    kind = UnknownError if code is None else _ERRORS.get(code & 0xFF, UnknownError)
    return kind(None, None, f"SQLite: {error}")


class SqlRows(Elements):
    """The rows of a query; each column is a scalar.

    Args:
        path: of the database file.
        query: one statement.
        types: of the columns: strings, truth values, integers, float64. Values of other types are converted as SQLite
            does it.
    """

    def __init__(self, path: str, query: str, types: Sequence[DType]) -> None:
        self.path, self.query, self.types = path, query, list(types)

    def iterator(self, path: Path = ()) -> DatasetIterator:
        return _SqlIterator(self)


class _SqlIterator(DatasetIterator):
    def __init__(self, dataset: SqlRows) -> None:
        self._dataset = dataset
        self._connection: sqlite3.Connection | None = None
        self._rows: sqlite3.Cursor | None = None
        self._count = 0

    def next(self) -> Element | None:
        try:
            if self._rows is None:
                self._open()
            assert self._rows is not None
            row = self._rows.fetchone()
            if row is None:
                return None
            self._count += 1
            return tuple([self._value(v, t) for v, t in zip(row, self._dataset.types, strict=True)])
        except sqlite3.Error as error:
            raise self._dataset.attribute(_error(error)) from error

    def _open(self) -> None:
        dataset = self._dataset
        if self._connection is None:
            # steps run in several threads, one after the other
            self._connection = sqlite3.connect(dataset.path, check_same_thread=False, isolation_level=None)
            self._connection.text_factory = bytes
        rows = self._connection.execute(dataset.query)
        columns = len(rows.description or ())
        if columns != len(dataset.types):
            message = f"The number of columns in query ({columns}) must match the number of elements in output_types "
            raise dataset.attribute(InvalidArgumentError(None, None, f"{message}({len(dataset.types)})."))
        self._rows = rows

    def _value(self, value: TensorValue, dtype: DType) -> Any:
        if dtype is string:
            if value is None:
                return boxed(b"")
            return boxed(value if isinstance(value, bytes) else self._cast(value, "TEXT"))
        if dtype.is_floating:
            exact = float(value) if isinstance(value, int | float) else self._cast(value, "REAL")
            return np.array(exact or 0.0, dtype.as_numpy_dtype)
        whole = value if isinstance(value, int) else self._cast(value, "INTEGER")
        if dtype is bool_:
            return np.array(bool(whole))
        # what does not fit loses its upper bits
        return np.array(whole or 0, np.int64).astype(dtype.as_numpy_dtype)

    def _cast(self, value: TensorValue, kind: str) -> Any:
        """A value of another type; SQLite knows best how it converts (the numbers that texts begin with, ...)."""
        assert self._connection is not None
        return self._connection.execute(
            f"SELECT CAST(CAST(? AS {self._stored(value)}) AS {kind})", (value,)
        ).fetchone()[0]

    @staticmethod
    def _stored(value: TensorValue) -> str:
        return "TEXT" if isinstance(value, bytes) else "REAL" if isinstance(value, float) else "INTEGER"

    def position(self) -> Any:
        return self._count

    def restore(self, position: Position) -> None:
        """The query runs anew; the rows that were taken are skipped."""
        for _ in range(int(position)):
            if self.next() is None:
                return

    def close(self) -> None:
        connection, self._connection, self._rows = self._connection, None, None
        if connection is not None:
            connection.close()

    def __del__(self) -> None:
        self.close()
