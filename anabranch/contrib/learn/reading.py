"""Batches of features out of files of records."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import anabranch as tf
from anabranch.contrib.arguments import PassedOn


def read_batch_features(
    file_pattern: str | Sequence[str],
    batch_size: int,
    features: Mapping[str, Any],
    reader: PassedOn = None,
    randomize_input: bool = True,
    num_epochs: int | None = None,
    queue_capacity: int = 10000,
    feature_queue_capacity: int = 100,
    reader_num_threads: int = 1,
    num_enqueue_threads: int = 2,
    parse_fn: PassedOn = None,
    name: str | None = None,
) -> dict[str, Any]:
    """Batches of examples out of files, parsed.

    Args:
        file_pattern: a path, a pattern or a list of such: files of `tf.train.Example`s.
        batch_size: of batches; the last one may be smaller.
        features: by name: how `tf.parse_example` finds it.
        reader: `tf.TFRecordReader`, which is the default.
        randomize_input: whether the order is another in each epoch.
        num_epochs: how often the files are read; None: again and again.
        queue_capacity: from how many records the next one is drawn.
        feature_queue_capacity, num_enqueue_threads: not used; there is no queue.
        reader_num_threads: how many files are read at once.
        parse_fn: changes each record before it is parsed.
        name: of the operations.

    Returns:
        Tensors by name, which a step takes a batch further.

    Raises:
        ValueError: another reader.
    """
    if reader not in (None, tf.TFRecordReader):
        raise ValueError(f"read_batch_features reads by tf.TFRecordReader, got {reader!r}: use tf.data for other files")
    patterns = [file_pattern] if isinstance(file_pattern, str) else list(file_pattern)
    with tf.name_scope(name, "read_batch_features"):
        files = tf.data.Dataset.list_files(patterns, shuffle=randomize_input)
        records = files.interleave(tf.data.TFRecordDataset, cycle_length=reader_num_threads)
        if randomize_input:
            records = records.shuffle(queue_capacity)
        if parse_fn is not None:
            records = records.map(parse_fn)
        batches = records.repeat(num_epochs).batch(batch_size)
        parsed = batches.map(lambda serialized: tf.parse_example(serialized, dict(features)))
        found: dict[str, Any] = parsed.prefetch(1).make_one_shot_iterator().get_next()
        return found
