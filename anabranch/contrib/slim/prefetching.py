"""A queue of batches that are made while the program trains."""

from __future__ import annotations

from collections.abc import Mapping

import anabranch as tf


def prefetch_queue(
    tensors: tf.nest.Structure,
    capacity: int = 8,
    num_threads: int = 1,
    dynamic_pad: bool = False,
    shared_name: str | None = None,
    name: str | None = None,
) -> tf.FIFOQueue | tf.PaddingFIFOQueue:
    """A queue that threads of a `QueueRunner` fill with the values of `tensors`.

    Args:
        tensors: a list or dictionary of tensors, often one batch.
        capacity: how many of them the queue holds.
        num_threads: how many threads compute them.
        dynamic_pad: allow dimensions that are not known, which are padded.
        shared_name: under which several sessions share the queue.

    Raises:
        ValueError: `tensors` is empty.
    """
    keys = sorted(tensors) if isinstance(tensors, Mapping) else None
    values = [tf.convert_to_tensor(v) for v in (tensors if keys is None else [tensors[k] for k in keys])]
    if not values:
        raise ValueError("Expected at least one tensor in prefetch_queue().")
    with tf.name_scope(name, "prefetch_queue", values):
        kind = tf.PaddingFIFOQueue if dynamic_pad else tf.FIFOQueue
        shapes = [v.shape for v in values]
        queue = kind(capacity, [v.dtype for v in values], shapes=shapes, names=keys, shared_name=shared_name)
        enqueue = queue.enqueue(values if keys is None else dict(zip(keys, values, strict=True)))
        tf.train.add_queue_runner(tf.train.QueueRunner(queue, [enqueue] * num_threads))
        share = tf.cast(queue.size(), tf.float32) * (1.0 / capacity)
        tf.summary.scalar(f"fraction_of_{capacity}_full", share)
        return queue
