"""Lookup tables against dictionaries."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from anabranch.core import dtypes
from anabranch.core.shapes import TensorShape
from anabranch.errors import FailedPreconditionError, InvalidArgumentError
from anabranch.state.tables import (
    LINE_NUMBER,
    WHOLE_LINE,
    MutableDenseTable,
    MutableTable,
    StaticTable,
    entries_of_lines,
)


def text(*words: bytes) -> Any:
    return np.array(words, object)


def int64(*values: int) -> Any:
    return np.array(values, np.int64)


def test_a_table_is_filled_once() -> None:
    table = StaticTable("t", dtypes.string, dtypes.int64)
    with pytest.raises(FailedPreconditionError, match="Table not initialized: 't'"):
        table.find(text(b"a"), np.array(-1))
    table.initialize(text(b"a", b"b", b"a"), int64(1, 2, 1))
    table.initialize(text(b"b", b"a"), int64(2, 1))
    with pytest.raises(FailedPreconditionError, match="different data"):
        table.initialize(text(b"a"), int64(1))
    assert table.find(text(b"b", b"z").reshape(2, 1), np.array(-1)).tolist() == [[2], [-1]]
    assert table.find(text(b"y", b"z"), int64(7, 8)).tolist() == [7, 8]
    assert table.size() == 2
    keys, values = table.export()
    assert dict(zip(keys.tolist(), values.tolist(), strict=True)) == {b"a": 1, b"b": 2}


def test_a_value_may_be_no_number() -> None:
    table = StaticTable("t", dtypes.int64, dtypes.float32)
    for _ in range(2):
        table.initialize(int64(1, 2, 1), np.array([np.nan, 3, np.nan], np.float32))
    np.testing.assert_array_equal(table.find(int64(1, 2), np.array(0, np.float32)), [np.nan, 3])
    with pytest.raises(FailedPreconditionError, match="different data"):
        table.initialize(int64(1, 2), np.array([0, 3], np.float32))


def test_wrong_entries() -> None:
    table = StaticTable("t", dtypes.string, dtypes.int64)
    with pytest.raises(FailedPreconditionError, match=r"different value for same key. Key b'a' has 1 .* value 2"):
        table.initialize(text(b"a", b"a"), int64(1, 2))
    with pytest.raises(InvalidArgumentError, match="two vectors of one length"):
        table.initialize(text(b"a", b"b"), int64(1))
    with pytest.raises(InvalidArgumentError, match="string->int64, but the keys are int64"):
        table.initialize(int64(1), int64(1))
    assert not table.is_initialized


@pytest.mark.parametrize("dense", [False, True])
def test_a_table_that_changes_is_a_dictionary(dense: bool) -> None:
    chance = np.random.default_rng(3)
    table: MutableTable
    if dense:
        table = MutableDenseTable(
            "t", dtypes.int64, dtypes.float32, TensorShape([2]), np.array(-1), np.array(-2), 4, 0.8
        )
    else:
        table = MutableTable("t", dtypes.int64, dtypes.float32, TensorShape([2]))
    model: dict[int, Any] = {}
    default = np.array([9, 9], np.float32)
    for _ in range(60):
        keys = chance.integers(0, 12, chance.integers(1, 5))
        if chance.random() < 0.6:
            values = chance.normal(size=(len(keys), 2)).astype(np.float32)
            table.insert(keys, values)
            model.update(zip(keys.tolist(), values, strict=True))
        else:
            table.remove(keys)
            for key in keys.tolist():
                model.pop(key, None)
        asked = np.arange(12).reshape(12) if dense else np.arange(12).reshape(3, 4)
        wanted = np.array([model.get(k, default) for k in range(12)]).reshape(*asked.shape, 2)
        np.testing.assert_array_equal(table.find(asked, default), wanted)
        assert table.size() == len(model)
    keys, values = table.export()
    other = table.__class__.__new__(table.__class__)
    other.__dict__.update(table.__dict__, _values={})
    other.import_all(keys, values)
    np.testing.assert_array_equal(other.find(np.arange(12), default), table.find(np.arange(12), default))


def test_keys_that_are_vectors() -> None:
    table = MutableDenseTable("t", dtypes.int64, dtypes.int64, TensorShape([]), int64(0, 0), int64(-1, -1), 4, 0.8)
    table.insert(int64(1, 2, 3, 4).reshape(2, 2), int64(5, 6))
    assert table.find(int64(3, 4, 4, 3).reshape(2, 2), np.array(-1)).tolist() == [6, -1]
    keys, _ = table.export()
    assert keys.shape == (4, 2)
    with pytest.raises(InvalidArgumentError, match="Expected key shape"):
        table.find(int64(1), np.array(-1))
    with pytest.raises(InvalidArgumentError, match="empty_key as a table key"):
        table.insert(int64(0, 0).reshape(1, 2), int64(1))
    with pytest.raises(InvalidArgumentError, match="deleted_key as a table key"):
        table.remove(int64(-1, -1).reshape(1, 2))


def strings(*values: bytes) -> Any:
    return np.array(values, object)


@pytest.mark.parametrize(
    ("dtype", "empty", "deleted", "keys"),
    [
        (dtypes.int64, np.array(0), np.array(-1), int64(3, 4, 5)),
        (dtypes.int64, int64(0, 7), int64(-1, 7), int64(3, 4, 5, 6, 7, 8).reshape(3, 2)),
        (dtypes.string, np.array(b"", object), np.array(b"gone\0", object), strings(b"a", b"b\0", b"c")),
        (dtypes.string, strings(b"", b"\0"), strings(b"x", b""), strings(*(b"abcdef"[i : i + 1] for i in range(6)))),
    ],
)
def test_all_buckets_are_exported(dtype: Any, empty: Any, deleted: Any, keys: Any) -> None:
    keys = keys.reshape(3, *empty.shape)
    table = MutableDenseTable("t", dtype, dtypes.int64, TensorShape([]), empty, deleted, 8, 0.8)
    table.insert(keys, int64(10, 20, 30))
    table.remove(keys[1:2])
    found, values = table.export()
    # buckets hold vectors, as TensorFlow's do: of one element where keys or values are scalars
    wanted = [np.reshape(key, -1).tolist() for key in (*keys[[0, 2]], deleted, *([empty] * 5))]
    assert (found.tolist(), values.tolist()) == (wanted, [[10], [30], [20], [0], [0], [0], [0], [0]])
    other = MutableDenseTable("t", dtype, dtypes.int64, TensorShape([]), empty, deleted, 4, 0.8)
    other.import_all(found, values)
    assert [part.tolist() for part in other.export()] == [found.tolist(), values.tolist()]


def test_wrong_dense_tables() -> None:
    def make(empty: int, deleted: int, buckets: int, load: float) -> None:
        scalar = TensorShape([])
        MutableDenseTable("t", dtypes.int64, dtypes.int64, scalar, np.array(empty), np.array(deleted), buckets, load)

    for arguments, message in (
        ((0, 0, 4, 0.5), "cannot be equal"),
        ((0, 1, 12, 0.5), "power of 2, got: 12"),
        ((0, 1, 4, 1.5), "max_load_factor"),
    ):
        with pytest.raises(InvalidArgumentError, match=message):
            make(*arguments)


def test_shapes_are_checked() -> None:
    table = MutableTable("t", dtypes.int64, dtypes.float32, TensorShape([2]))
    with pytest.raises(InvalidArgumentError, match=r"Expected shape \[1,2\] for the values"):
        table.insert(int64(1), np.zeros((1, 3), np.float32))
    with pytest.raises(InvalidArgumentError, match=r"Expected shape \[2\] .* for default value"):
        table.find(int64(1), np.zeros(3, np.float32))


# ---------------------------------------------------------------------- files
def test_columns_of_a_file() -> None:
    lines = [b"0\tbrain\t5", b"1\tsalad\t6", b"2\tsurgery\t7"]
    types = (dtypes.string, dtypes.int64)
    keys, values = entries_of_lines(lines, "f", (1, 2), types)
    assert (keys.tolist(), values.tolist()) == ([b"brain", b"salad", b"surgery"], [5, 6, 7])
    keys, values = entries_of_lines(lines, "f", (WHOLE_LINE, LINE_NUMBER), types, vocab_size=2)
    assert (keys.tolist(), values.tolist()) == ([b"0\tbrain\t5", b"1\tsalad\t6"], [0, 1])


def test_wrong_files_are_named() -> None:
    types = (dtypes.string, dtypes.int64)
    for lines, columns, size, message in (
        ([b"a"], (0, 1), -1, r"Invalid number of columns in vocab.txt line 0 \(a\) : expected 1 got 1"),
        ([b"a\tx"], (0, 1), -1, "Field x in line 0 of vocab.txt is not a valid int64"),
        ([b"a"], (WHOLE_LINE, LINE_NUMBER), 3, "Invalid vocab_size in vocab.txt: expected 3 but got 1"),
        ([b"a", b""], (WHOLE_LINE, LINE_NUMBER), -1, "empty line found at position 1"),
    ):
        with pytest.raises(InvalidArgumentError, match=message):
            entries_of_lines(lines, "vocab.txt", columns, types, size)
