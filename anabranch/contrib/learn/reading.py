"""Batches of features out of files of records."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import anabranch as tf
from anabranch.contrib.arguments import PassedOn

#: a batch of serialized records, or tensors by name that a program's function made of each
Records: TypeAlias = Any


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


def read_keyed_batch_examples(
    file_pattern: str | Sequence[str],
    batch_size: int,
    reader: Callable[[], Any],
    randomize_input: bool = True,
    num_epochs: int | None = None,
    queue_capacity: int = 10000,
    num_threads: int = 1,
    read_batch_size: int = 1,
    parse_fn: Callable[[Any], Any] | None = None,
    name: str | None = None,
    seed: int | None = None,
    shared_name: str | None = None,
) -> tuple[tf.Tensor, Records]:
    """Batches of records and their keys out of files, by a reader and a queue that runners fill.

    Args:
        file_pattern: a path, a pattern or a list of such.
        batch_size: of batches; the last one may be smaller.
        reader: makes a reader, such as `tf.TFRecordReader`.
        randomize_input: whether the order is another in each epoch.
        num_epochs: how often the files are read, which a local variable counts; None: again and again.
        queue_capacity: how many records the queue holds.
        num_threads: how many read.
        read_batch_size: not used: a thread reads one record after the other.
        parse_fn: changes each record: to a tensor, or tensors by name.
        name: of the operations.
        seed: of the order.
        shared_name: of the queue of files, which workers of a cluster share then.

    Returns:
        The keys of the records, [batch], and the records, [batch] of strings or what `parse_fn` made of them.

    Raises:
        ValueError: no file is there, or sizes that do not fit.
    """
    patterns = [file_pattern] if isinstance(file_pattern, str) else list(file_pattern)
    files = sorted({path for pattern in patterns for path in tf.gfile.Glob(pattern)})
    if not files:
        raise ValueError(f"No files match {file_pattern}.")
    if batch_size <= 0 or queue_capacity <= batch_size:
        raise ValueError(f"Invalid batch_size {batch_size}, with queue_capacity {queue_capacity}.")
    with tf.name_scope(name, "read_batch_examples"):
        names = tf.train.string_input_producer(
            files, num_epochs, shuffle=randomize_input, seed=seed, shared_name=shared_name
        )
        key, record = reader().read(names)
        read: Any = record if parse_fn is None else parse_fn(record)
        of_one = {"key": key, **(read if isinstance(read, Mapping) else {"record": read})}
        if randomize_input:
            kept = min(queue_capacity - batch_size, 1000) if num_epochs is None else queue_capacity // 4
            batch = tf.train.shuffle_batch(
                of_one, batch_size, queue_capacity, kept, num_threads, seed, allow_smaller_final_batch=True
            )
        else:
            batch = tf.train.batch(of_one, batch_size, num_threads, queue_capacity, allow_smaller_final_batch=True)
        keys = batch.pop("key")
        return keys, batch if isinstance(read, Mapping) else batch["record"]


def read_keyed_batch_examples_shared_queue(
    file_pattern: str | Sequence[str],
    batch_size: int,
    reader: Callable[[], Any],
    randomize_input: bool = True,
    num_epochs: int | None = None,
    queue_capacity: int = 10000,
    num_threads: int = 1,
    read_batch_size: int = 1,
    parse_fn: Callable[[Any], Any] | None = None,
    name: str | None = None,
    seed: int | None = None,
) -> tuple[tf.Tensor, Records]:
    """`read_keyed_batch_examples` whose files the workers of a cluster share: each file is read by one of them."""
    return read_keyed_batch_examples(
        *(file_pattern, batch_size, reader, randomize_input, num_epochs, queue_capacity, num_threads, read_batch_size),
        parse_fn=parse_fn,
        name=name,
        seed=seed,
        shared_name="file_name_queue",
    )


def read_batch_examples(
    file_pattern: str | Sequence[str],
    batch_size: int,
    reader: Callable[[], Any],
    randomize_input: bool = True,
    num_epochs: int | None = None,
    queue_capacity: int = 10000,
    num_threads: int = 1,
    read_batch_size: int = 1,
    parse_fn: Callable[[Any], Any] | None = None,
    name: str | None = None,
    seed: int | None = None,
) -> Records:
    """The records of `read_keyed_batch_examples`, whose arguments it takes, without their keys."""
    return read_keyed_batch_examples(
        *(file_pattern, batch_size, reader, randomize_input, num_epochs, queue_capacity, num_threads, read_batch_size),
        parse_fn=parse_fn,
        name=name,
        seed=seed,
    )[1]


def read_keyed_batch_features(
    file_pattern: str | Sequence[str],
    batch_size: int,
    features: Mapping[str, Any],
    reader: Callable[[], Any],
    randomize_input: bool = True,
    num_epochs: int | None = None,
    queue_capacity: int = 10000,
    reader_num_threads: int = 1,
    feature_queue_capacity: int = 100,
    num_enqueue_threads: int = 2,
    parse_fn: Callable[[Any], Any] | None = None,
    name: str | None = None,
    shared_name: str | None = None,
) -> tuple[tf.Tensor, dict[str, Any]]:
    """Batches of examples out of files, parsed, and their keys.

    Args:
        features: by name: how `tf.parse_example` finds it.
        feature_queue_capacity, num_enqueue_threads: not used: what is parsed is in no further queue.
        file_pattern, batch_size, reader, randomize_input, num_epochs, queue_capacity, reader_num_threads, parse_fn,
            name, shared_name: as for `read_keyed_batch_examples`.
    """
    with tf.name_scope(name, "read_batch_features"):
        keys, records = read_keyed_batch_examples(
            *(file_pattern, batch_size, reader, randomize_input, num_epochs, queue_capacity, reader_num_threads),
            parse_fn=parse_fn,
            shared_name=shared_name,
        )
        return keys, tf.parse_example(records, dict(features))


def read_keyed_batch_features_shared_queue(
    file_pattern: str | Sequence[str],
    batch_size: int,
    features: Mapping[str, Any],
    reader: Callable[[], Any],
    randomize_input: bool = True,
    num_epochs: int | None = None,
    queue_capacity: int = 10000,
    reader_num_threads: int = 1,
    feature_queue_capacity: int = 100,
    num_queue_runners: int = 2,
    parse_fn: Callable[[Any], Any] | None = None,
    name: str | None = None,
) -> tuple[tf.Tensor, dict[str, Any]]:
    """`read_keyed_batch_features` whose files the workers of a cluster share: each file is read by one of them."""
    return read_keyed_batch_features(
        *(file_pattern, batch_size, features, reader, randomize_input, num_epochs, queue_capacity, reader_num_threads),
        parse_fn=parse_fn,
        name=name,
        shared_name="file_name_queue",
    )


def read_batch_record_features(
    file_pattern: str | Sequence[str],
    batch_size: int,
    features: Mapping[str, Any],
    randomize_input: bool = True,
    num_epochs: int | None = None,
    queue_capacity: int = 10000,
    reader_num_threads: int = 1,
    name: str = "dequeue_record_examples",
) -> dict[str, Any]:
    """`read_batch_features` of TFRecord files."""
    return read_batch_features(
        *(file_pattern, batch_size, features, tf.TFRecordReader, randomize_input, num_epochs, queue_capacity),
        reader_num_threads=reader_num_threads,
        name=name,
    )
