"""`tf.contrib.training`: examples by chance; `tf.contrib.reduce_slice_ops`."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import anabranch as tf

training, reductions = tf.contrib.training, tf.contrib.reduce_slice_ops
RNG = np.random.default_rng(3)


def batches(fetches: Any, count: int) -> list[Any]:
    with tf.Session() as session:
        session.run([tf.global_variables_initializer(), tf.local_variables_initializer()])
        coordinator = tf.train.Coordinator()
        threads = tf.train.start_queue_runners(session, coordinator)
        found = [session.run(fetches) for _ in range(count)]
        coordinator.request_stop()
        coordinator.join(threads, stop_grace_period_secs=5, ignore_live_threads=True)
    return found


@pytest.mark.parametrize("init_probs", [None, [0.5, 0.25, 0.25]])
def test_classes_come_as_often_as_wanted(init_probs: Any) -> None:
    tf.set_random_seed(4)
    labels = tf.constant([0, 0, 1, 2])
    data = tf.cast(labels, tf.float32)[:, tf.newaxis] * [1.0, 10.0]
    (values,), classes = training.stratified_sample([data], labels, [0.0, 0.8, 0.2], 50, init_probs, enqueue_many=True)
    found = batches([values, classes], 4)[1:]
    for value, got in found:
        np.testing.assert_array_equal(value, got[:, None] * np.array([1.0, 10.0]))
    shares = np.bincount(np.concatenate([got for _, got in found]), minlength=3) / 150
    assert shares[0] == 0.0
    assert shares[1] == pytest.approx(0.8, abs=0.12)


def test_examples_are_rejected() -> None:
    numbers = tf.constant([0.0, 1.0, 2.0])
    (taken,) = training.rejection_sample(
        [numbers], lambda x: tf.cast(x[0] > 0.5, tf.float32), 4, enqueue_many=True, runtime_checks=True
    )
    assert {*np.concatenate(batches(taken, 3)).tolist()} == {1.0, 2.0}
    with pytest.raises(TypeError, match="list of tensors"):
        training.rejection_sample(numbers, lambda x: 1.0, 4)
    with pytest.raises(ValueError, match="rank 1"):
        training.stratified_sample([numbers], [[0]], [1.0], 4, [1.0], enqueue_many=True)


def test_examples_come_at_rates() -> None:
    inputs = [tf.range(4), tf.one_hot(tf.range(4), 4)]
    rates = training.resample_at_rate(inputs, [0.0, 1.0, 2.0, 5.0], seed=1)
    taken, their = training.weighted_resample(inputs, tf.constant([0.0, 1.0, 2.0, 5.0]), 0.5, seed=2, mean_decay=0.5)
    counts, weighted = np.zeros(4), np.zeros(4)
    with tf.Session() as session:
        session.run(tf.local_variables_initializer())
        for _ in range(100):
            (which, rows), (picked, _), rate = session.run([rates, taken, their])
            np.testing.assert_array_equal(rows.argmax(1), which)
            counts += np.bincount(which, minlength=4)
            weighted += np.bincount(picked, minlength=4)
            np.testing.assert_allclose(rate, np.array([0.0, 0.25, 0.5, 1.25])[picked])
    np.testing.assert_allclose(counts / 100, [0.0, 1.0, 2.0, 5.0], atol=0.7)
    np.testing.assert_allclose(weighted / 100, [0.0, 0.25, 0.5, 1.25], atol=0.4)


@pytest.mark.parametrize("dtype", [np.float32, np.int32])
@pytest.mark.parametrize("axis", [0, 1])
def test_ranges_along_an_axis(axis: int, dtype: Any) -> None:
    data = RNG.integers(1, 5, size=(4, 5, 2)).astype(dtype)
    ranges = np.array([[0, 2], [1, 9], [3, 3], [2, 1]])
    info: Any = np.finfo(dtype) if dtype == np.float32 else np.iinfo(dtype)
    kinds: dict[str, tuple[Any, Any]] = {
        "sum": (np.sum, 0),
        "prod": (np.prod, 1),
        "max": (np.max, info.min),
        "min": (np.min, info.max),
    }
    moved = np.moveaxis(data, axis, 0)
    with tf.Session() as session:
        for kind, (reduce, of_nothing) in kinds.items():
            found = session.run(getattr(reductions, f"reduce_slice_{kind}")(data, ranges, axis))
            parts = [reduce(moved[a:b], 0) if b > a else np.full(moved.shape[1:], of_nothing) for a, b in ranges]
            np.testing.assert_array_equal(found, np.moveaxis(np.array(parts, dtype), 0, axis))
        given = tf.constant(data)
        following = session.run(reductions.reduce_slice_sum(given, np.array([0, 1, 4], np.int32), axis))
        np.testing.assert_array_equal(
            following,
            np.add.reduceat(data, [0, 1], axis)
            if axis == 0
            else np.stack([data[:, :1].sum(1), data[:, 1:4].sum(1)], 1),
        )
    with pytest.raises(ValueError, match="no axis 3"):
        reductions.reduce_slice_sum(data, ranges, 3)
    with pytest.raises(ValueError, match=r"ranges, 2"):
        reductions.reduce_slice_sum(data, np.zeros([2, 3], np.int32), 0)
