"""Rows are picked by one operation where several did it together, and are the same."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import anabranch as tf
from anabranch.pipeline import plan_step

rng = np.random.default_rng(0)


def kinds(fetches: list[Any], feeds: list[Any]) -> Counter[str]:
    return Counter(op.type for item in plan_step(fetches, [], feeds).items for op in item.operations)


PLACES: list[Callable[[Any], Any]] = [
    lambda mask: tf.where(mask)[:, 0],
    lambda mask: tf.reshape(tf.where(mask), [-1]),
    lambda mask: tf.squeeze(tf.where(mask), [1]),
]


@pytest.mark.parametrize("places", PLACES)
@pytest.mark.parametrize("kept", [[1, 0, 1], [1, 1, 1], [0, 0, 0], []])
def test_rows_that_a_mask_keeps(places: Callable[[Any], Any], kept: list[int]) -> None:
    mask = tf.placeholder(tf.bool, [None])
    x, y = tf.placeholder(tf.float32, [None, 2]), tf.placeholder(tf.string, [None])
    at = places(mask)
    fetches = [tf.gather(x, at) * 2.0, tf.gather(y, at), at]
    counted = kinds(fetches, [mask, x, y])
    assert (counted["_KeptRows"], counted["Where"], counted["GatherV2"]) == (1, 0, 0)
    rows = rng.normal(size=(len(kept), 2)).astype(np.float32)
    words = np.array([b"a", b"b", b"c"][: len(kept)], object)
    with tf.Session() as session:
        values = session.run(fetches, {mask: kept, x: rows, y: words})
        values[0][...] = 7  # what was fetched belongs to the program
        again = session.run(fetches, {mask: kept, x: rows, y: words})
    chosen = np.flatnonzero(kept)
    np.testing.assert_array_equal(again[0], rows[chosen] * 2)
    assert again[1].tolist() == words[chosen].tolist()
    np.testing.assert_array_equal(again[2], chosen)
    assert again[2].dtype == np.int64


def test_the_rows_themselves_are_fetched() -> None:
    """Where a mask keeps all rows, they are what was fed; what is fetched is not."""
    mask, x = tf.placeholder(tf.bool, [None]), tf.placeholder(tf.float32, [None])
    fed = np.arange(3, dtype=np.float32)
    with tf.Session() as session:
        value = session.run(tf.boolean_mask(x, mask), {mask: [True] * 3, x: fed})
        value[...] = 7
    np.testing.assert_array_equal(fed, [0, 1, 2])


@pytest.mark.parametrize("rows", [2, 5])
def test_a_mask_of_another_length(rows: int) -> None:
    mask, x = tf.placeholder(tf.bool, [None]), tf.placeholder(tf.float32, [None])
    picked = tf.gather(x, tf.where(mask)[:, 0], name="picked")
    with tf.Session() as session:
        fed = {x: np.arange(rows)}
        assert session.run(picked, {mask: [1, 1, 0, 0], **fed}).tolist() == [0, 1]
        if rows == 2:
            with pytest.raises(tf.errors.InvalidArgumentError, match="picked"):
                session.run(picked, {mask: [0, 1, 1], **fed})
        else:
            assert session.run(picked, {mask: [1, 1, 1], **fed}).tolist() == [0, 1, 2]


def test_the_places_are_taken_by_others_too() -> None:
    mask, x = tf.placeholder(tf.bool, [None]), tf.placeholder(tf.float32, [None])
    places = tf.where(mask)
    picked = tf.gather(x, places[:, 0])
    scattered = tf.scatter_nd(places, picked * 10.0, tf.shape(x, out_type=tf.int64))
    with tf.Session() as session:
        values = session.run([scattered, places, picked], {mask: [1, 0, 1], x: [1, 2, 3]})
    assert [value.tolist() for value in values] == [[10, 0, 30], [[0], [2]], [1, 3]]


def test_what_is_computed_of_the_places_is_not_taken_in() -> None:
    mask, x = tf.placeholder(tf.bool, [None]), tf.placeholder(tf.float32, [None])
    at = tf.where(mask)[:, 0]
    twice = tf.gather(tf.gather(x, at) + 1.0, at)
    with tf.Session() as session:
        assert session.run(twice, {mask: [1, 1, 1], x: [1, 2, 3]}).tolist() == [2, 3, 4]


@pytest.mark.parametrize("ids", [[0, 2, 0], [0, -1, 1], [], [-1]])
def test_gradients_of_sums_over_segments(ids: list[int]) -> None:
    x, segments = tf.placeholder(tf.float64, [None, 2]), tf.placeholder(tf.int32, [None])
    factors = np.arange(1.0, 7.0).reshape(3, 2)
    gradient = tf.gradients(tf.unsorted_segment_sum(x, segments, 3) * factors, x)[0]
    assert kinds([gradient], [x, segments])["_RowsOrZeros"] == 1
    with tf.Session() as session:
        fed = {x: np.ones([len(ids), 2]), segments: ids}
        found = [session.run(gradient, fed) for _ in range(4)]
    expected = [factors[i] if i >= 0 else [0, 0] for i in ids]
    for value in found:
        np.testing.assert_array_equal(value, np.reshape(expected, (-1, 2)))
