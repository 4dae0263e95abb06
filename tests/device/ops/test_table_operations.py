"""The operations on lookup tables, run by sessions.

HashTableV2, MutableHashTableV2, MutableHashTableOfTensorsV2, MutableDenseHashTableV2; InitializeTableV2,
InitializeTableFromTextFileV2; LookupTableFindV2, LookupTableInsertV2, LookupTableRemoveV2, LookupTableImportV2,
LookupTableExportV2, LookupTableSizeV2.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import anabranch as tf
from anabranch.contrib import lookup as contrib_lookup
from anabranch.ops import raw


@pytest.fixture
def vocabulary(tmp_path: Path) -> str:
    path = tmp_path / "vocabulary.txt"
    path.write_text("brain\nsalad\nsurgery\n", "utf-8")
    return str(path)


def ready() -> Any:
    session = tf.Session()
    session.run([tf.tables_initializer(), tf.global_variables_initializer()])
    return session


def test_a_table_from_tensors() -> None:
    table = tf.lookup.StaticHashTable(tf.lookup.KeyValueTensorInitializer(["a", "b"], [1.5, 2.5]), -1.0)
    found = table.lookup(tf.constant([["b", "x"]]))
    assert found.shape.as_list() == [1, 2]
    sparse = table.lookup(tf.SparseTensor([[0, 1], [2, 0]], ["a", "x"], [3, 2]))
    with tf.Session() as session:
        with pytest.raises(tf.errors.FailedPreconditionError, match=r"not initialized.*tables_initializer"):
            session.run(found)
        session.run(tf.tables_initializer())
        session.run(table.initializer)
        assert session.run(found).tolist() == [[2.5, -1]]
        assert session.run(sparse).values.tolist() == [1.5, -1]
        assert session.run(table.size()) == 2
        keys, values = session.run(table.export())
        assert sorted(zip(keys, values, strict=True)) == [(b"a", 1.5), (b"b", 2.5)]


def test_tables_from_files(vocabulary: str) -> None:
    index = contrib_lookup.index_table_from_file(vocabulary, num_oov_buckets=2)
    words = contrib_lookup.index_to_string_table_from_file(vocabulary, default_value="?")
    ids = index.lookup(tf.constant(["surgery", "brain", "toccata"]))
    assert [p.op.type for p in tf.get_collection(tf.GraphKeys.ASSET_FILEPATHS)] == ["Const", "Const"]
    with ready() as session:
        first, second, beyond = session.run(ids)
        assert (first, second) == (2, 0)
        assert beyond in {3, 4}
        assert session.run(words.lookup(np.array([1, 9]))).tolist() == [b"salad", b"?"]
        assert session.run(index.size()) == 5


def test_wrong_files(vocabulary: str, tmp_path: Path) -> None:
    short = contrib_lookup.index_table_from_file(vocabulary, vocab_size=7)
    missing = contrib_lookup.index_table_from_file(str(tmp_path / "missing"))
    with tf.Session() as session:
        with pytest.raises(tf.errors.InvalidArgumentError, match="vocabulary.txt: expected 7 but got 3"):
            session.run(short.initializer)
        with pytest.raises(tf.errors.NotFoundError, match="missing"):
            session.run(missing.initializer)
    with pytest.raises(ValueError, match="must be dtype"):
        tf.lookup.TextFileInitializer("f", tf.string, tf.lookup.TextFileIndex.LINE_NUMBER, tf.int64, 0)


def test_a_vocabulary() -> None:
    initializer = tf.lookup.KeyValueTensorInitializer(["a", "b"], np.array([0, 1]))
    table = tf.lookup.StaticVocabularyTable(initializer, 3)
    strong = contrib_lookup.IdTableWithHashBuckets(None, 4, contrib_lookup.StrongHashSpec([1, 2]))
    with ready() as session:
        known, beyond = session.run(table.lookup(tf.constant(["b", "z"])))
        assert known == 1
        assert beyond in {2, 3, 4}
        assert 0 <= session.run(strong.lookup(tf.constant("z"))) < 4
    with pytest.raises(TypeError, match="expected <dtype: 'int64'>"):
        tf.lookup.StaticVocabularyTable(tf.lookup.KeyValueTensorInitializer(["a"], [1]), 3)


@pytest.mark.parametrize("kind", ["scalar", "tensors", "dense"])
def test_tables_that_steps_change(kind: str) -> None:
    default: Any = -1 if kind == "scalar" else [-1, -1]
    if kind == "dense":
        table: Any = tf.lookup.experimental.DenseHashTable(tf.int64, tf.int32, default, 0, -1, 8)
    else:
        table = contrib_lookup.MutableHashTable(tf.int64, tf.int32, default)
    values: Any = [10, 20, 30] if kind == "scalar" else [[10, 1], [20, 2], [30, 3]]
    found = table.lookup(np.array([2, 7]))
    with tf.Session() as session:
        session.run(table.insert(np.array([1, 2, 3]), values))
        session.run(table.remove(np.array([3, 9])))
        assert session.run(table.size()) == 2
        assert session.run(found).tolist() == ([20, -1] if kind == "scalar" else [[20, 2], [-1, -1]])
        keys, _ = session.run(table.export())
        assert keys.shape[1:] == ((1,) if kind == "dense" else ())  # TensorFlow's dense tables keep vectors
        assert {1, 2} <= set(keys.reshape(-1).tolist())
        replaced = raw.LookupTableImportV2(table.resource_handle, *table.export())
        session.run(replaced)
        assert session.run(table.size()) == 2


def test_dense_tables_of_scalars_hold_vectors() -> None:
    table: Any = tf.lookup.experimental.DenseHashTable(tf.int64, tf.int64, 0, -1, -2, 8)
    keys, values = table.export()
    assert (keys.shape.as_list(), values.shape.as_list()) == ([None, 1], [None, 1])
    with tf.Session() as session:
        session.run(table.insert(np.array([1]), np.array([5])))
        session.run(table.insert(np.array([[2], [3]]), np.array([[6], [7]])))  # as another table exports them
        assert session.run(table.lookup(np.array([[3], [1]]))).tolist() == [[7], [5]]
        found = session.run([keys, values])
        assert [part.shape for part in found] == [(8, 1), (8, 1)]
        with pytest.raises(tf.errors.InvalidArgumentError, match="for the values"):
            session.run(table.insert(np.array([2, 3]), np.array([[6], [7]])))
        with pytest.raises(tf.errors.InvalidArgumentError, match="Expected key shape"):
            session.run(table.insert(np.array([[2, 3]]), np.array([[6, 7]])))


def test_tables_are_saved(tmp_path: Path) -> None:
    table = contrib_lookup.MutableHashTable(tf.string, tf.int64, -1)
    weights = tf.Variable(1.0)
    saver = tf.train.Saver()
    with tf.Session() as session:
        session.run([weights.initializer, table.insert(["a", "b"], np.array([1, 2]))])
        path = saver.save(session, str(tmp_path / "model"))
    with tf.Session() as session:
        session.run(table.insert(["z"], np.array([9])))
        saver.restore(session, path)
        assert session.run(table.lookup(tf.constant(["b", "z"]))).tolist() == [2, -1]


def test_a_shared_table_is_one() -> None:
    initializer = tf.lookup.KeyValueTensorInitializer(["a"], [1])
    one = contrib_lookup.HashTable(initializer, -1, shared_name="t")
    other = contrib_lookup.HashTable(initializer, -2, shared_name="t")
    with tf.Session() as session:
        session.run(one.init)
        assert session.run(other.lookup(tf.constant(["a", "b"]))).tolist() == [1, -2]


def test_a_table_is_made_outside_the_loop_that_uses_it() -> None:
    def look_up(x: Any) -> Any:
        table = tf.lookup.StaticHashTable(tf.lookup.KeyValueTensorInitializer([1, 2], [5, 6]), -1)
        return table.lookup(x)

    found = tf.map_fn(look_up, np.array([2, 3, 1], np.int32))
    with ready() as session:
        assert session.run(found).tolist() == [6, -1, 5]


def test_wrong_uses() -> None:
    table = tf.lookup.StaticHashTable(tf.lookup.KeyValueTensorInitializer(["a", "a"], [1, 2]), -1)
    with pytest.raises(TypeError, match="Signature mismatch"):
        table.lookup(tf.constant([1]))
    insert = raw.LookupTableInsertV2(table.resource_handle, ["a"], [1])
    with tf.Session() as session:
        with pytest.raises(tf.errors.FailedPreconditionError, match="different value for same key"):
            session.run(table.initializer)
        with pytest.raises(tf.errors.InvalidArgumentError, match="filled once and cannot be changed"):
            session.run(insert)
