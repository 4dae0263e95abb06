"""Which operations run on the host since the sizes of what they take, or make, change from step to step."""

from __future__ import annotations

from typing import Any

import anabranch as tf
from anabranch.pipeline import plan_step
from anabranch.xla.islands import HostCall


def on_host(*fetches: Any, feeds: Any = ()) -> set[str]:
    plan = plan_step(list(fetches), [], list(feeds))
    return {item.operation.type for item in plan.items if isinstance(item, HostCall)}


def test_what_is_as_long_as_a_tensor_of_changing_size_is_made_beside_it() -> None:
    with tf.Graph().as_default():
        ids = tf.placeholder(tf.int64, [64])
        distinct = tf.unique(ids).y
        places = tf.range(tf.size(distinct))
        parts = tf.dynamic_partition(places, tf.cast(distinct % 2, tf.int32), 2)
        assert on_host(*parts, feeds=[ids]) >= {"Unique", "Size", "Range", "DynamicPartition"}


def test_sizes_that_are_fetched_or_compiled_with_stay_in_islands() -> None:
    with tf.Graph().as_default():
        ids = tf.placeholder(tf.int64, [64])
        distinct = tf.unique(ids).y
        assert on_host(tf.size(distinct), feeds=[ids]) == {"Unique"}
        mean = tf.reduce_sum(tf.ones([64])) / tf.cast(tf.size(distinct), tf.float32)
        assert on_host(mean, feeds=[ids]) == {"Unique"}


def test_what_is_as_long_as_something_fed_is_compiled() -> None:
    with tf.Graph().as_default():
        fed = tf.placeholder(tf.float32, [None])
        total = tf.reduce_sum(tf.cast(tf.range(tf.size(fed)), tf.float32) * fed)
        assert on_host(total, feeds=[fed]) == set()


def test_what_follows_elementwise_operations_on_strings_is_compiled() -> None:
    with tf.Graph().as_default():
        text = tf.placeholder(tf.string, [None])
        buckets = tf.string_to_hash_bucket_fast(tf.strings.lower(text), 10)
        strong = tf.string_to_hash_bucket_strong(text, 10, [1, 2])
        total = tf.reduce_sum(buckets + strong) + tf.reduce_max(tf.cast(tf.strings.length(text), tf.int64))
        found = {"StringToHashBucketFast", "StringToHashBucketStrong", "StringLower", "StringLength"}
        assert on_host(total, feeds=[text]) == found


def test_strings_of_which_data_decides_how_many_change_what_follows() -> None:
    with tf.Graph().as_default():
        text = tf.placeholder(tf.string, [None])
        chosen = tf.boolean_mask(text, tf.not_equal(text, ""))
        assert "Mul" in on_host(tf.string_to_hash_bucket_fast(chosen, 10) * 2, feeds=[text])
