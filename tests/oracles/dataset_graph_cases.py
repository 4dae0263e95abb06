"""Datasets that TensorFlow and anabranch exchange as graphs: for `make_dataset_graphs_fixture.py` and a test."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

Case = Callable[[Any], Any]
CASES: dict[str, Case] = {}


def case(build: Case) -> Case:
    CASES[build.__name__] = build
    return build


@case
def mapped_and_batched(tf: Any) -> Any:
    return tf.data.Dataset.range(10).map(lambda x: x * x + 1).batch(4)


@case
def filtered_rows(tf: Any) -> Any:
    rows = np.arange(12, dtype=np.float32).reshape(6, 2)
    dataset = tf.data.Dataset.from_tensor_slices((rows, np.arange(6)))
    return dataset.filter(lambda x, y: tf.reduce_sum(x) > 4.0).map(lambda x, y: {"x": x / 2.0, "y": y})


@case
def joined_and_repeated(tf: Any) -> Any:
    numbers = tf.data.Dataset.range(3)
    pairs = tf.data.Dataset.zip((numbers, numbers.skip(1)))
    return pairs.repeat(2).take(3).concatenate(pairs).prefetch(1)


@case
def flattened_and_interleaved(tf: Any) -> Any:
    outer = tf.data.Dataset.range(1, 4)
    flat = outer.flat_map(lambda n: tf.data.Dataset.range(n + 1))
    mixed = outer.interleave(lambda n: tf.data.Dataset.from_tensors(n).repeat(3), cycle_length=2, block_length=2)
    return tf.data.Dataset.zip((flat, mixed))


@case
def padded_texts(tf: Any) -> Any:
    texts = tf.data.Dataset.from_tensor_slices([5, 2, 7])
    return texts.map(lambda n: tf.range(n) * 2).padded_batch(2, padded_shapes=[None])
