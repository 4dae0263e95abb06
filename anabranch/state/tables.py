"""Lookup tables: from keys to values  (WP4.6).

Keys are numbers or strings, of a dense table also vectors; values are tensors of one shape. Nothing waits: a table that
is used before it is filled is an error.

The lock is inside: every call is one transition, in which nothing waits and nobody is called. What is checked of the
arguments alone is checked before it is taken.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Sequence
from typing import Any

import numpy as np

from anabranch.core.arrays import HostArray
from anabranch.core.dtypes import DType, string
from anabranch.core.shapes import TensorShape, in_brackets
from anabranch.core.values import TensorValue
from anabranch.errors import FailedPreconditionError, InvalidArgumentError

Array = np.ndarray[Any, Any]


class LookupTable:
    """What all tables share. Thread-safe.

    #: `_values` maps each key, as a Python value, to its value: a Python value where values are scalars, else an array.

    Args:
        name: of the resource.
        key_dtype, value_dtype: of keys and values.
        value_shape: of one value.
        key_shape: of one key.
    """

    title = "table"

    def __init__(
        self,
        name: str,
        key_dtype: DType,
        value_dtype: DType,
        value_shape: TensorShape | None = None,
        key_shape: tuple[int, ...] = (),
    ) -> None:
        self.name = name
        self.key_dtype = key_dtype
        self.value_dtype = value_dtype
        self.value_shape = (TensorShape([]) if value_shape is None else value_shape).sizes()
        self.key_shape = key_shape
        self._lock = threading.Lock()
        self._values: dict[Any, Any] = {}

    # ------------------------------------------------------------------ reading
    def find(self, keys: HostArray, default: HostArray) -> Array:
        """The value of each key, `default` for those not there: shape of `keys` + shape of a value.

        Raises:
            InvalidArgumentError: types or shapes are not the table's.
            FailedPreconditionError: the table was not filled yet.
        """
        self.check_types(keys, default)
        self._check_default(keys, default)
        looked_up = self._keys(keys)
        # all keys under one lock, so that the values are of one moment
        with self._lock:
            self._check_ready()
            get = self._values.get
            shape = self._shape_of_keys(keys)
            if not self.value_shape:
                # all at once, which is quicker than row by row where values are numbers or strings
                values = self._array(
                    [get(k, d) for k, d in zip(looked_up, self._defaults(default, len(looked_up)), strict=True)]
                )
                return values.reshape(shape)
            result = np.empty((len(looked_up), *self.value_shape), self.value_dtype.as_numpy_dtype)
            for row, (key, missing) in enumerate(zip(looked_up, self._defaults(default, len(looked_up)), strict=True)):
                result[row] = get(key, missing)
            return result.reshape((*shape, *self.value_shape))

    def size(self) -> int:
        """How many keys there are; none before the table is filled."""
        with self._lock:
            return len(self._values)

    def export(self) -> tuple[Array, Array]:
        """All keys and their values, in one order."""
        with self._lock:
            self._check_ready()
            return self._exported()

    def _exported(self) -> tuple[Array, Array]:
        keys, values = list(self._values), list(self._values.values())
        key_array = np.empty((len(keys), *self.key_shape), self.key_dtype.as_numpy_dtype)
        for row, key in enumerate(keys):
            # keys that are vectors are kept as flat tuples, which can be looked up
            key_array[row] = np.array(key, key_array.dtype).reshape(self.key_shape) if self.key_shape else key
        value_array = np.empty((len(keys), *self.value_shape), self.value_dtype.as_numpy_dtype)
        for row, value in enumerate(values):
            value_array[row] = value
        return key_array, value_array

    # ------------------------------------------------------------------ checks
    def check_types(self, keys: HostArray, values: HostArray | None) -> None:
        """Raises InvalidArgumentError unless arrays are of the table's types."""
        for what, array, dtype in (("keys", keys, self.key_dtype), ("values", values, self.value_dtype)):
            if array is not None and array.dtype != dtype.as_numpy_dtype:
                raise InvalidArgumentError(
                    None,
                    None,
                    f"Conflicting key/value dtypes: table {self.name!r} is {self.key_dtype.name}->"
                    f"{self.value_dtype.name}, but the {what} are {array.dtype}",
                )

    def _check_default(self, keys: HostArray, default: HostArray) -> None:
        shape = self._shape_of_keys(keys)
        if default.shape not in {self.value_shape, (*shape, *self.value_shape)}:
            raise InvalidArgumentError(
                None,
                None,
                f"Expected shape {in_brackets(self.value_shape)} or "
                f"{in_brackets((*shape, *self.value_shape))} for default value of table {self.name!r}, got "
                f"{in_brackets(default.shape)}",
            )

    def _check_ready(self) -> None:
        """Raises FailedPreconditionError while the table cannot be used."""

    def _shape_of_keys(self, keys: HostArray) -> tuple[int, ...]:
        depth = len(self.key_shape)
        if keys.shape[keys.ndim - depth :] != self.key_shape:
            raise InvalidArgumentError(
                None,
                None,
                f"Expected key shape {in_brackets(self.key_shape)} at the end of the keys of table "
                f"{self.name!r}, got {in_brackets(keys.shape)}",
            )
        return tuple(keys.shape[: keys.ndim - depth])

    # ------------------------------------------------------------------ forms
    def _keys(self, keys: HostArray) -> list[Any]:
        if not self.key_shape:
            return keys.reshape(-1).tolist()
        self._shape_of_keys(keys)
        return [tuple(row) for row in keys.reshape(-1, int(np.prod(self.key_shape))).tolist()]

    def _rows(self, keys: HostArray, values: HostArray) -> list[Any]:
        expected = (*self._shape_of_keys(keys), *self.value_shape)
        if values.shape != expected:
            raise InvalidArgumentError(
                None,
                None,
                f"Expected shape {in_brackets(expected)} for the values of table {self.name!r}, got "
                f"{in_brackets(values.shape)}",
            )
        if not self.value_shape:
            return values.reshape(-1).tolist()
        # a copy: the rows are views of it for as long as they are in the table, and the argument belongs to its step
        return list(np.array(values).reshape(-1, *self.value_shape))

    def _defaults(self, default: HostArray, count: int) -> list[Any]:
        if default.shape == self.value_shape:
            return [default if self.value_shape else default.item()] * count
        flat = default.reshape(-1, *self.value_shape)
        return list(flat) if self.value_shape else flat.tolist()

    def _array(self, values: list[Any]) -> Array:
        result = np.empty(len(values), self.value_dtype.as_numpy_dtype)
        result[:] = values
        return result


class StaticTable(LookupTable):
    """A table that is filled once."""

    def __init__(self, name: str, key_dtype: DType, value_dtype: DType) -> None:
        super().__init__(name, key_dtype, value_dtype)
        self._initialized = False

    @property
    def is_initialized(self) -> bool:
        with self._lock:
            return self._initialized

    def initialize(self, keys: HostArray, values: HostArray) -> None:
        """Fills the table; filling it again with the same changes nothing.

        Raises:
            InvalidArgumentError: types or shapes are not the table's.
            FailedPreconditionError: a key has two values, or the table was filled with others.
        """
        self.check_types(keys, values)
        if keys.ndim != 1 or keys.shape != values.shape:
            raise InvalidArgumentError(
                None,
                None,
                f"Table {self.name!r} is filled from two vectors of one length, got keys of shape {list(keys.shape)} "
                f"and values of shape {list(values.shape)}",
            )
        entries: dict[Any, Any] = {}
        for key, value in zip(keys.tolist(), values.tolist(), strict=True):
            if not _same(entries.setdefault(key, value), value):
                raise FailedPreconditionError(
                    None,
                    None,
                    f"HashTable has different value for same key. Key {key!r} has {entries[key]!r} and trying to add "
                    f"value {value!r} (table {self.name!r})",
                )
        with self._lock:
            if self._initialized and not self._holds(entries):
                raise FailedPreconditionError(
                    None, None, f"Table was already initialized with different data: {self.name!r}"
                )
            # made before and put in as a whole, so that a table that is refused is as it was
            self._values, self._initialized = entries, True

    def _holds(self, entries: dict[Any, Any]) -> bool:
        mine = self._values
        return mine.keys() == entries.keys() and all(_same(mine[key], value) for key, value in entries.items())

    def _check_ready(self) -> None:
        if not self._initialized:
            raise FailedPreconditionError(
                None, None, f"Table not initialized: {self.name!r}; run tf.tables_initializer() first"
            )


def _same(a: TensorValue, b: TensorValue) -> bool:
    # a NaN differs from itself, and what is written twice in a file or a graph is the same all the same
    return bool(a == b or (a != a and b != b))


class MutableTable(LookupTable):
    """A table that steps change."""

    def insert(self, keys: HostArray, values: HostArray) -> None:
        """Gives keys their values, in place of those they may have.

        Raises:
            InvalidArgumentError: types or shapes are not the table's.
        """
        self.check_types(keys, values)
        entries = list(zip(self._checked_keys(keys), self._rows(keys, values), strict=True))
        with self._lock:
            self._values.update(entries)

    def remove(self, keys: HostArray) -> None:
        """Forgets keys; those not there are no mistake."""
        self.check_types(keys, None)
        removed = self._checked_keys(keys)
        with self._lock:
            for key in removed:
                self._values.pop(key, None)

    def import_all(self, keys: HostArray, values: HostArray) -> None:
        """Replaces all that is in the table."""
        self.check_types(keys, values)
        entries = dict(zip(self._keys(keys), self._rows(keys, values), strict=True))
        with self._lock:
            # one assignment, and no table in between: all was checked before the lock
            self._values = entries

    def _checked_keys(self, keys: HostArray) -> list[Any]:
        return self._keys(keys)


class MutableDenseTable(MutableTable):
    """A table whose keys live in buckets, of which one key marks the empty and another the deleted ones.

    The two special keys cannot be used. What is exported are the buckets, empty ones included: keys and values are
    matrices [buckets, length], of length 1 for scalars.

    Args:
        empty_key, deleted_key: the special keys.
        buckets: how many at first, a power of two.
        max_load_factor: how full they may get before they are doubled.
    """

    def __init__(
        self,
        name: str,
        key_dtype: DType,
        value_dtype: DType,
        value_shape: TensorShape,
        empty_key: HostArray,
        deleted_key: HostArray,
        buckets: int,
        max_load_factor: float,
    ) -> None:
        super().__init__(name, key_dtype, value_dtype, value_shape, tuple(empty_key.shape))
        if empty_key.shape != deleted_key.shape:
            raise InvalidArgumentError(
                None, None, f"Empty and deleted keys must have same shape, got {empty_key.shape}, {deleted_key.shape}"
            )
        if buckets < 4 or buckets & (buckets - 1):
            raise InvalidArgumentError(
                None, None, f"Number of buckets must be at least 4 and a power of 2, got: {buckets}"
            )
        if not 0 < max_load_factor < 1:
            raise InvalidArgumentError(
                None, None, f"max_load_factor must be between 0 and 1 (non-inclusive), got: {max_load_factor}"
            )
        self._empty, self._deleted = self._keys(empty_key)[0], self._keys(deleted_key)[0]
        if self._empty == self._deleted:
            raise InvalidArgumentError(None, None, "Empty and deleted keys cannot be equal")
        self._buckets = buckets
        self._load = max_load_factor
        self._graves: list[Any] = []  # what deleted keys had as values: their buckets are free after the next growth

    def find(self, keys: HostArray, default: HostArray) -> Array:
        self.check_types(keys, default)
        # for its refusals: the special keys are no keys in questions, either
        self._checked_keys(keys)
        return super().find(keys, default)

    def insert(self, keys: HostArray, values: HostArray) -> None:
        self.check_types(keys, values)
        entries = list(zip(self._checked_keys(keys), self._rows(keys, values), strict=True))
        with self._lock:
            # before they are in, as TensorFlow's does: what it exports afterwards shows how many buckets it has
            self._grow(len(entries))
            self._values.update(entries)

    def remove(self, keys: HostArray) -> None:
        self.check_types(keys, None)
        removed = self._checked_keys(keys)
        with self._lock:
            # a bucket of a deleted key cannot be used until the table grows, and is exported with its value
            self._graves.extend(self._values.pop(key) for key in removed if key in self._values)

    def import_all(self, keys: HostArray, values: HostArray) -> None:
        """Replaces all buckets; special keys mark those that are empty or deleted."""
        self.check_types(keys, values)
        special = {self._empty, self._deleted}
        # as they are exported: scalars in vectors of one element
        keys = keys if self.key_shape or keys.shape[1:] != (1,) else keys[:, 0]
        values = values if self.value_shape or values.shape[1:] != (1,) else values[:, 0]
        pairs = list(zip(self._keys(keys), self._rows(keys, values), strict=True))
        with self._lock:
            self._values = {k: v for k, v in pairs if k not in special}
            self._graves = [v for k, v in pairs if k == self._deleted]
            # as many buckets as the exported table had, if that is a number that a table can have
            if len(pairs) >= 4 and not len(pairs) & (len(pairs) - 1):
                self._buckets = len(pairs)
            self._grow(0)

    def _grow(self, coming: int) -> None:
        # `coming` is the most that may be needed: keys that are in the table already take no new bucket
        if len(self._values) + coming <= self._load * self._buckets and self._used() + coming < self._buckets:
            return
        # a larger table is filled anew, and has no place for what was deleted
        self._graves = []
        while len(self._values) + coming > self._load * self._buckets:
            self._buckets *= 2

    def _used(self) -> int:
        return len(self._values) + len(self._graves)

    def _checked_keys(self, keys: HostArray) -> list[Any]:
        checked = self._keys(keys)
        if keys.ndim > 1 + len(self.key_shape) and keys.size != len(keys) * math.prod(self.key_shape):
            raise InvalidArgumentError(
                None,
                None,
                f"Expected key shape {in_brackets((None, *self.key_shape))} for table {self.name!r}, got "
                f"{in_brackets(keys.shape)}",
            )
        for special, what in ((self._empty, "empty_key"), (self._deleted, "deleted_key")):
            if special in checked:
                raise InvalidArgumentError(
                    None, None, f"Using the {what} as a table key is not allowed: {special!r} in table {self.name!r}"
                )
        return checked

    def _exported(self) -> tuple[Array, Array]:
        keys, values = super()._exported()
        free = self._buckets - self._used()
        deleted = len(self._graves)
        # most buckets of a new table are empty: all at once, not one by one
        more_keys = np.empty((deleted + free, *self.key_shape), keys.dtype)
        more_keys[:deleted] = np.array(self._deleted, keys.dtype).reshape(self.key_shape)
        more_keys[deleted:] = np.array(self._empty, keys.dtype).reshape(self.key_shape)
        more_values = np.zeros((len(more_keys), *self.value_shape), values.dtype)
        if self.value_dtype is string:
            more_values[...] = b""
        for row, value in enumerate(self._graves):
            more_values[row] = value
        keys, values = np.concatenate([keys, more_keys]), np.concatenate([values, more_values])
        # TensorFlow's buckets hold vectors, of one element where keys or values are scalars, and are exported as such
        return keys if self.key_shape else keys[:, None], values if self.value_shape else values[:, None]


# ---------------------------------------------------------------------- text files
WHOLE_LINE = -2
LINE_NUMBER = -1


def entries_of_lines(
    lines: Sequence[bytes],
    path: str,
    columns: tuple[int, int],
    dtypes: tuple[DType, DType],
    vocab_size: int = -1,
    delimiter: bytes = b"\t",
    offset: int = 0,
) -> tuple[Array, Array]:
    """Keys and values from the lines of a text file.

    Args:
        path: of the file, in messages.
        columns: where the key and the value stand: `WHOLE_LINE`, `LINE_NUMBER`, or a column between delimiters.
        dtypes: of keys and values.
        vocab_size: how many lines to take; -1: all.
        offset: the first line to take.

    Raises:
        InvalidArgumentError: a line is empty, lacks a column or holds no number, or there are too few lines.
    """
    taken = lines[offset:] if vocab_size < 0 else lines[offset : offset + vocab_size]
    if 0 <= vocab_size != len(taken):
        raise InvalidArgumentError(
            None, None, f"Invalid vocab_size in {path}: expected {vocab_size} but got {len(taken)}"
        )
    keys: list[Any] = []
    values: list[Any] = []
    for number, line in enumerate(taken):
        if not line:
            raise InvalidArgumentError(None, None, f"Invalid content in {path}: empty line found at position {number}.")
        fields = line.split(delimiter) if max(columns) >= 0 else []
        if max(columns) >= len(fields) and max(columns) >= 0:
            raise InvalidArgumentError(
                None,
                None,
                f"Invalid number of columns in {path} line {number} ({line.decode(errors='replace')}) : expected "
                f"{max(columns)} got {len(fields)}",
            )
        for column, dtype, column_values in zip(columns, dtypes, (keys, values), strict=True):
            column_values.append(_field(line, fields, number, column, dtype, path))
    return _vector(keys, dtypes[0]), _vector(values, dtypes[1])


def _field(line: bytes, fields: list[bytes], number: int, column: int, dtype: DType, path: str) -> Any:
    if column == LINE_NUMBER:
        return number
    text = line if column == WHOLE_LINE else fields[column]
    if dtype is string:
        return text
    try:
        return float(text) if dtype.is_floating else int(text)
    except ValueError:
        shown_text = text.decode(errors="replace")
        raise InvalidArgumentError(
            None, None, f"Field {shown_text} in line {number} of {path} is not a valid {dtype.name}."
        ) from None


def _vector(values: list[Any], dtype: DType) -> Array:
    result = np.empty(len(values), dtype.as_numpy_dtype)
    result[:] = values
    return result
