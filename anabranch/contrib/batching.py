"""The batches of `tf.contrib.data`, which left `tf.data`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import anabranch as tf
from anabranch.contrib.arguments import TensorLike


def batch_and_drop_remainder(batch_size: TensorLike) -> Callable[[Any], Any]:
    """For `Dataset.apply`: batches, all of one size."""
    return lambda dataset: dataset.batch(batch_size, drop_remainder=True)


def padded_batch_and_drop_remainder(
    batch_size: TensorLike, padded_shapes: tf.nest.Structure, padding_values: tf.nest.Structure | None = None
) -> Callable[[Any], Any]:
    """For `Dataset.apply`: padded batches, all of one size."""
    return lambda dataset: dataset.padded_batch(batch_size, padded_shapes, padding_values, drop_remainder=True)
