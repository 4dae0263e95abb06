"""`tf.data.experimental`: databases, files of examples, resampling by classes, options within options."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import anabranch as tf

experimental = tf.data.experimental


def taken(dataset: tf.data.Dataset, most: int = 10**6) -> list[Any]:
    following = tf.data.make_one_shot_iterator(dataset.take(most)).get_next()
    found = []
    with tf.Session() as session:
        while True:
            try:
                found.append(session.run(following))
            except tf.errors.OutOfRangeError:
                return found


def test_rows_of_a_database(tmp_path: Path) -> None:
    path = str(tmp_path / "people.db")
    with sqlite3.connect(path) as connection:
        connection.execute("create table people(name text, age int)")
        connection.executemany("insert into people values(?, ?)", [("Ann", 42), ("Bob", 7)])
    connection.close()
    rows = experimental.SqlDataset("sqlite", path, "select * from people order by age", (tf.string, tf.int32))
    assert rows.output_types == (tf.string, tf.int32)
    assert taken(rows.repeat(2)) == [(b"Bob", 7), (b"Ann", 42)] * 2


# ---------------------------------------------------------------------- examples
def example(number: int) -> bytes:
    made = tf.train.Example()
    made.features.feature["number"].int64_list.value.append(number)
    made.features.feature["halves"].float_list.value.extend([number / 2] * (number % 3))
    return bytes(made.SerializeToString())


FEATURES = {"number": tf.FixedLenFeature([], tf.int64), "halves": tf.VarLenFeature(tf.float32)}


def written(tmp_path: Path, count: int = 10) -> str:
    for part in range(2):
        records = tf.data.Dataset.from_tensor_slices([example(i) for i in range(part, count, 2)])
        with tf.Session() as session:
            session.run(experimental.TFRecordWriter(str(tmp_path / f"{part}.records"), "GZIP").write(records))
    return str(tmp_path / "*.records")


def test_files_of_examples_in_batches(tmp_path: Path) -> None:
    pattern = written(tmp_path)
    options: dict[str, Any] = {"reader_args": ["GZIP"], "shuffle": False}
    batches = experimental.make_batched_features_dataset(pattern, 4, FEATURES, num_epochs=1, **options)
    found = taken(batches)
    assert [f["number"].tolist() for f in found] == [[0, 2, 4, 6], [8, 1, 3, 5], [7, 9]]
    assert found[2]["halves"].indices.tolist() == [[0, 0]]
    assert found[2]["halves"].values.tolist() == [3.5]
    labelled = experimental.make_batched_features_dataset(
        pattern, 4, FEATURES, label_key="number", num_epochs=1, drop_final_batch=True, reader_num_threads=2, **options
    )
    rows = taken(labelled)
    assert [label.tolist() for _, label in rows] == [[0, 1, 2, 3], [4, 5, 6, 7]]
    assert [list(features) for features, _ in rows] == [["halves"]] * 2
    endless = experimental.make_batched_features_dataset(pattern, 3, FEATURES, reader_args=["GZIP"], shuffle_seed=1)
    assert endless.output_shapes["number"].as_list() == [3]
    many = np.concatenate([f["number"] for f in taken(endless, 20)])
    assert set(many.tolist()) == set(range(10))
    with pytest.raises(ValueError, match="label_key"):
        experimental.make_batched_features_dataset(pattern, 4, FEATURES, label_key="other")


def test_what_a_writer_takes(tmp_path: Path) -> None:
    writer = experimental.TFRecordWriter(str(tmp_path / "records"))
    with pytest.raises(TypeError, match="must be a"):
        writer.write([b"one"])
    with pytest.raises(TypeError, match="scalar"):
        writer.write(tf.data.Dataset.range(3))


# ---------------------------------------------------------------------- sparse features
def sparse_example(places: list[int], others: list[int], values: list[float]) -> bytes:
    made = tf.train.Example()
    made.features.feature["at"].int64_list.value.extend(places)
    made.features.feature["then"].int64_list.value.extend(others)
    made.features.feature["val"].float_list.value.extend(values)
    return bytes(made.SerializeToString())


def test_sparse_tensors_of_places_and_values() -> None:
    records = [sparse_example([3, 20], [1, 0], [0.5, -1.0]), sparse_example([7, 2], [2, 0], [2.0, 4.0])]
    features = {
        "flat": tf.io.SparseFeature("at", "val", tf.float32, 100),
        "deep": tf.SparseFeature(["at", "then"], "val", tf.float32, [100, 3]),
        "val": tf.VarLenFeature(tf.float32),
    }
    with tf.Session() as session:
        parsed = session.run(tf.io.parse_example(records, features))
        assert sorted(parsed) == ["deep", "flat", "val"]
        assert parsed["flat"].indices.tolist() == [[0, 3], [0, 20], [1, 2], [1, 7]]
        assert parsed["flat"].values.tolist() == [0.5, -1, 4, 2]
        assert parsed["flat"].dense_shape.tolist() == [2, 100]
        assert parsed["deep"].indices.tolist() == [[0, 3, 1], [0, 20, 0], [1, 2, 0], [1, 7, 2]]
        assert parsed["deep"].dense_shape.tolist() == [2, 100, 3]
        single = session.run(tf.io.parse_single_example(records[1], {"flat": features["flat"]})["flat"])
        assert single.indices.tolist() == [[2], [7]]
        assert single.values.tolist() == [4, 2]


@pytest.mark.parametrize(
    ("features", "match"),
    [
        ({"a": tf.io.SparseFeature("", "val", tf.float32, 9)}, "Missing index_key"),
        ({"a": tf.io.SparseFeature("at", "", tf.float32, 9)}, "Missing value_key"),
        ({"a": tf.io.SparseFeature("at", "at", tf.float32, 9)}, "Conflicting type int64 vs float32"),
    ],
)
def test_sparse_features_that_cannot_be(features: dict[str, Any], match: str) -> None:
    with pytest.raises(ValueError, match=match):
        tf.io.parse_example([b""], features)


# ---------------------------------------------------------------------- classes
@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize(
    ("target", "initial"), [([0.6, 0.4, 0.0], [0.2, 0.3, 0.5]), ([0.2, 0.5, 0.3], [0.3, 0.3, 0.4])]
)
def test_classes_come_as_wanted(known: bool, target: list[float], initial: list[float]) -> None:
    classes = np.random.default_rng(3).choice(3, 6000, p=initial).astype(np.int32)
    dataset = tf.data.Dataset.from_tensor_slices(classes).repeat().map(lambda c: (c, 10 * c))
    resampled = dataset.apply(
        experimental.rejection_resample(
            lambda c, _: c, np.float32(target), np.float32(initial) if known else None, seed=27
        )
    )
    pairs = taken(resampled, 1500)
    assert all(number == element[0] and element[1] == 10 * number for number, element in pairs)
    found = np.bincount([number for number, _ in pairs], minlength=3) / len(pairs)
    np.testing.assert_allclose(found, target, atol=0.05)


def test_classes_that_are_right_already() -> None:
    dataset = tf.data.Dataset.from_tensor_slices(np.int32([0, 1, 0, 1]))
    same = dataset.apply(experimental.rejection_resample(lambda c: c, [0.5, 0.5], [0.5, 0.5]))
    assert taken(same) == [(0, 0), (1, 1)] * 2


# ---------------------------------------------------------------------- options
def test_options_within_options() -> None:
    one, other = tf.data.Options(), tf.data.Options()
    one.experimental_optimization.map_vectorization.enabled = True
    other.experimental_optimization.map_vectorization.use_choose_fastest = False
    merged = one.merge(other).experimental_optimization.map_vectorization
    assert isinstance(merged, experimental.MapVectorizationOptions)
    assert (merged.enabled, merged.use_choose_fastest) == (True, False)
    other.experimental_optimization.map_vectorization.enabled = False
    with pytest.raises(ValueError, match="incompatible"):
        one.merge(other)
