"""`tf.contrib.data.Dataset`: what programs of 2017 say, beside the same in Python."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import anabranch as tf


def elements(dataset: tf.data.Dataset) -> list[Any]:
    following = dataset.make_one_shot_iterator().get_next()
    found: list[Any] = []
    with tf.Session() as sess:
        while True:
            try:
                found.append(sess.run(following))
            except tf.errors.OutOfRangeError:
                return found


@pytest.mark.parametrize(
    "counts",
    [
        {},
        {"num_threads": 3},
        {"num_threads": 3, "output_buffer_size": 4},
        {"output_buffer_size": 4},
        {"num_parallel_calls": 2},
    ],
)
def test_map_counts_threads(counts: dict[str, int]) -> None:
    pictures, labels = np.arange(6.0).reshape(6, 1), np.arange(6)
    dataset = tf.contrib.data.Dataset.from_tensor_slices((tf.constant(pictures), tf.constant(labels)))
    mapped = dataset.map(lambda picture, label: (picture / 2, tf.one_hot(label, 6)), **counts)
    found = elements(mapped)
    np.testing.assert_array_equal([picture for picture, _ in found], pictures / 2)
    np.testing.assert_array_equal([row for _, row in found], np.eye(6))


def test_what_is_made_of_it_has_the_same_methods() -> None:
    dataset: Any = tf.contrib.data.Dataset.range(6)
    made = [
        dataset.repeat(2),
        dataset.batch(2),
        dataset.padded_batch(2, []),
        dataset.shuffle(3).take(2),
        dataset.filter(lambda x: x > 2),
        dataset.flat_map(tf.contrib.data.Dataset.from_tensors),
        dataset.interleave(tf.contrib.data.Dataset.from_tensors, cycle_length=2),
        dataset.concatenate(dataset).cache(),
        dataset.enumerate(),
        dataset.batch(2).unbatch(),
        dataset.map(tf.negative, 2, 2).map(tf.negative, 2, 2),
        dataset.with_options(tf.data.Options()),
        dataset.apply(tf.data.experimental.unique()),
        tf.contrib.data.Dataset.zip((dataset, dataset)),
        tf.contrib.data.Dataset.from_generator(lambda: iter([1]), tf.int32),
    ]
    assert all(type(one) is tf.contrib.data.Dataset for one in made)
    assert all(isinstance(one, tf.data.Dataset) for one in made)
    again: Any = made[2]
    batches = elements(again.map(lambda x: x + 1, num_threads=2))
    np.testing.assert_array_equal(batches, [[1, 2], [3, 4], [5, 6]])


def test_methods_that_became_functions() -> None:
    dataset = tf.contrib.data.Dataset.range(6)
    grouped = dataset.group_by_window(lambda x: x % 2, lambda key, window: window.batch(3), 3)
    assert sorted(map(list, elements(grouped))) == [[0, 2, 4], [1, 3, 5]]
    checked = dataset.map(lambda x: tf.check_numerics(1 / tf.cast(x - 2, tf.float32), "no"), 2, 2).ignore_errors()
    assert len(elements(checked)) == 5
    rows = dataset.map(lambda x: tf.fill([x], x)).dense_to_sparse_batch(6, [6])
    (sparse,) = elements(rows)
    assert tuple(sparse.dense_shape) == (6, 6)
    assert sparse.values.tolist() == [number for number in range(6) for _ in range(number)]
    assert elements(dataset.enumerate(5))[0] == (5, 0)


def test_an_iterator_of_a_structure_walks_it() -> None:
    training = tf.contrib.data.Dataset.range(3).map(lambda x: x * 2, num_threads=2, output_buffer_size=10).batch(2)
    iterator = tf.contrib.data.Iterator.from_structure(training.output_types, training.output_shapes)
    following = iterator.get_next()
    with tf.Session() as sess:
        sess.run(iterator.make_initializer(training))
        assert sess.run(following).tolist() == [0, 2]


def test_files(tmp_path: Path) -> None:
    (tmp_path / "lines").write_text("one\ntwo\n")
    lines = tf.contrib.data.TextLineDataset([str(tmp_path / "lines")]).map(tf.strings.length, num_threads=2)
    assert elements(lines) == [3, 3]
    records = tf.contrib.data.FixedLengthRecordDataset(str(tmp_path / "lines"), 4)
    assert elements(records.map(lambda r: r, num_threads=1)) == [b"one\n", b"two\n"]
    with tf.python_io.TFRecordWriter(str(tmp_path / "records")) as writer:
        writer.write(b"record")
    assert elements(tf.contrib.data.TFRecordDataset(str(tmp_path / "records")).map(lambda r: r, 2, 2)) == [b"record"]
    (name,) = elements(tf.contrib.data.Dataset.list_files(str(tmp_path / "li*")))
    assert name.endswith(b"lines")
