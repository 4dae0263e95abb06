"""Input producers, batches and buckets."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import anabranch as tf
from anabranch.contrib import training
from tests.device.pipelines import counted, drained, ended, started


def all_steps(fetches: Any) -> list[Any]:
    with tf.Session() as session:
        coord, threads = started(session)
        found = list(drained(session, fetches))
        ended(coord, threads)
    return found


# ---------------------------------------------------------------------- producers
def test_an_epoch_is_a_permutation() -> None:
    queue = tf.train.range_input_producer(10, num_epochs=3, seed=5)
    found = np.array(all_steps(queue.dequeue())).reshape(3, 10)
    assert np.sort(found, 1).tolist() == [list(range(10))] * 3
    assert len({tuple(row) for row in found.tolist()}) == 3


def test_without_shuffling_the_order_is_kept() -> None:
    queue = tf.train.string_input_producer(["b", "a", "c"], num_epochs=2, shuffle=False)
    assert all_steps(queue.dequeue()) == [b"b", b"a", b"c"] * 2


def test_rows_of_several_tensors_stay_together() -> None:
    numbers, words = np.arange(5), np.array(list("abcde"))
    found = all_steps(tf.train.slice_input_producer([numbers, words], num_epochs=2))
    assert sorted(found) == sorted([[n, w.encode()] for n, w in zip(numbers, words, strict=True)] * 2)


def test_wrong_producers() -> None:
    with pytest.raises(ValueError, match="non-null input tensor"):
        tf.train.string_input_producer([])
    with pytest.raises(ValueError, match="fully defined shape"):
        tf.train.input_producer(tf.placeholder(tf.float32, [3, None]))
    with pytest.raises(ValueError, match="num_epochs must be > 0"):
        tf.train.limit_epochs(tf.constant(1), 0)
    empty = tf.train.string_input_producer(tf.placeholder_with_default(np.array([], object), [None]))
    with tf.Session() as session:
        coord, threads = started(session)
        with pytest.raises(tf.errors.OutOfRangeError):
            session.run(empty.dequeue())
        with pytest.raises(tf.errors.InvalidArgumentError, match="non-null input tensor"):
            coord.join(threads, stop_grace_period_secs=30)


# ---------------------------------------------------------------------- batches
def test_batches_of_a_list_and_of_a_dictionary() -> None:
    n = counted(10)
    listed = tf.train.batch([n, tf.cast(n, tf.float32) / 2], 4)
    assert [t.shape.as_list() for t in listed] == [[4], [4]]
    found = all_steps(listed)
    assert [one[0].tolist() for one in found] == [[0, 1, 2, 3], [4, 5, 6, 7]]
    with tf.Graph().as_default():
        n = counted(6)
        named = tf.train.batch({"n": n, "s": tf.as_string(n)}, 4, allow_smaller_final_batch=True)
        assert [{k: v.tolist() for k, v in one.items()} for one in all_steps(named)] == [
            {"n": [0, 1, 2, 3], "s": [b"0", b"1", b"2", b"3"]},
            {"n": [4, 5], "s": [b"4", b"5"]},
        ]


def test_a_single_tensor() -> None:
    found = all_steps(tf.train.batch([counted(4)], 2))
    assert [one.tolist() for one in found] == [[0, 1], [2, 3]]


def test_padding() -> None:
    n = counted(6)
    batch = tf.train.batch([tf.ones([n, 2])], 3, dynamic_pad=True)
    assert batch.shape.as_list() == [3, None, 2]
    assert [one.sum((1, 2)).tolist() for one in all_steps(batch)] == [[0, 2, 4], [6, 8, 10]]


def test_several_examples_at_once() -> None:
    n = counted(3)
    batch = tf.train.batch([tf.stack([n, n + 10, n + 20])], 4, enqueue_many=True, allow_smaller_final_batch=True)
    found = all_steps(batch)
    assert np.concatenate(found).tolist() == [0, 10, 20, 1, 11, 21, 2, 12, 22]


def test_sparse_components() -> None:
    n = counted(5)
    index = tf.cast(tf.reshape(n, [1, 1]), tf.int64)
    sparse = tf.SparseTensor(index, tf.reshape(n * 10, [1]), tf.constant([8], tf.int64))
    number, rows = tf.train.batch([n, sparse], 2, allow_smaller_final_batch=True)
    found = all_steps([number, rows])
    assert [one[1].values.tolist() for one in found] == [[0, 10], [20, 30], [40]]
    assert found[1][1].indices.tolist() == [[0, 2], [1, 3]]
    assert found[2][1].dense_shape.tolist() == [1, 8]


def test_some_examples_only() -> None:
    n = counted(9)
    kept = tf.train.maybe_batch([n], tf.equal(n % 3, 0), 2, allow_smaller_final_batch=True)
    assert np.concatenate(all_steps(kept)).tolist() == [0, 3, 6]
    with tf.Graph().as_default():
        n = counted(4)
        pair = tf.stack([n, n + 10])
        kept = tf.train.maybe_batch([pair], tf.equal(pair % 2, 0), 2, enqueue_many=True, allow_smaller_final_batch=True)
        assert np.concatenate(all_steps(kept)).tolist() == [0, 10, 2, 12]


def test_examples_from_several_places() -> None:
    places = [[counted(7, f"c{i}"), tf.constant(i)] for i in range(3)]
    found = all_steps(tf.train.batch_join(places, 4, allow_smaller_final_batch=True))
    numbers, origins = (np.concatenate([one[k] for one in found]) for k in (0, 1))
    for i in range(3):
        assert numbers[origins == i].tolist() == list(range(7))


def test_shuffled_batches() -> None:
    found = all_steps(tf.train.shuffle_batch([counted(40)], 8, capacity=30, min_after_dequeue=10, seed=3))
    numbers = np.concatenate(found).tolist()
    assert sorted(numbers) == list(range(40))
    assert numbers != sorted(numbers)
    with tf.Graph().as_default():
        places = [[counted(20, "a")], [counted(20, "b")]]
        found = all_steps(tf.train.shuffle_batch_join(places, 8, capacity=30, min_after_dequeue=10, seed=3))
        assert sorted(np.concatenate(found).tolist()) == sorted([*range(20)] * 2)


def test_a_summary_tells_how_full_a_queue_is() -> None:
    queue = tf.train.range_input_producer(3, capacity=4)
    (tag,) = tf.get_collection(tf.GraphKeys.SUMMARIES)
    put = queue.enqueue(1)
    with tf.Session() as session:
        session.run(put)
        summary = tf.Summary.FromString(session.run(tag))
    assert summary.value[0].tag == "input_producer/fraction_of_4_full"
    assert summary.value[0].simple_value == 0.25


def test_wrong_batches() -> None:
    with pytest.raises(ValueError, match="at least one tensor"):
        tf.train.batch([], 2)
    with pytest.raises(ValueError, match="Cannot infer Tensor's rank"):
        tf.train.batch([tf.placeholder(tf.float32)], 2)
    with pytest.raises(TypeError, match="consistent"):
        tf.train.batch_join([[tf.constant(1)], [tf.constant(1.0)]], 2)
    with pytest.raises(ValueError, match="cannot be a vector"):
        tf.train.maybe_batch([tf.constant(1)], [True], 2)


# ---------------------------------------------------------------------- buckets
def test_examples_of_like_length_share_a_batch() -> None:
    n = counted(16)
    length = 1 + n % 8
    lengths, batch = training.bucket_by_sequence_length(
        length, [tf.fill([length], n)], 2, [3, 6], dynamic_pad=True, allow_smaller_final_batch=True
    )
    found = all_steps([lengths, batch])
    assert sorted(v for one in found for v in one[0].tolist()) == sorted([*range(1, 9)] * 2)
    for sizes, rows in found:
        assert len({int(np.searchsorted([3, 6], s, "right")) for s in sizes}) == 1
        assert rows.shape[1] == sizes.max()
    numbers = [row[0] for one in found for row in one[1].tolist()]
    assert sorted(numbers) == list(range(16))


def test_buckets_by_number() -> None:
    n = counted(12)
    which, batch = training.bucket({"n": n}, n % 2, 3, 2, num_threads=1)
    for bucket, values in all_steps([which, batch]):
        assert {int(v) % 2 for v in values["n"]} == {int(bucket)}
    with pytest.raises(ValueError, match="num_buckets must be >= 2"):
        training.bucket([n], n, 3, 1)
    with pytest.raises(ValueError, match="increasing"):
        training.bucket_by_sequence_length(n, [n], 2, [3, 3])
