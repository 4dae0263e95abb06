"""`tf.contrib.deprecated`: summaries as they were before `tf.summary`: the tag is what it is given, without scopes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import anabranch as tf
from anabranch.contrib.arguments import TensorLike


def _joined(summary: tf.Tensor, collections: Iterable[str] | None) -> tf.Tensor:
    tf.add_to_collections([tf.GraphKeys.SUMMARIES] if collections is None else list(collections), summary)
    return summary


def scalar_summary(
    tags: TensorLike, values: TensorLike, collections: Iterable[str] | None = None, name: str | None = None
) -> tf.Tensor:
    """A summary of numbers.

    Args:
        tags: a string for each of `values`.
        values: a number, or a tensor of any shape.
        collections: what the summary joins; default: `GraphKeys.SUMMARIES`.
        name: of the operation.

    Returns:
        A string, a serialized `Summary`.
    """
    with tf.name_scope(name, "ScalarSummary", [tags, values]) as scope:
        return _joined(tf.raw_ops.ScalarSummary(tags=tags, values=values, name=scope), collections)


def histogram_summary(
    tag: TensorLike, values: TensorLike, collections: Iterable[str] | None = None, name: str | None = None
) -> tf.Tensor:
    """A summary of how numbers are spread; see `scalar_summary`.

    Args:
        tag: a string.
        values: a tensor of any shape.
    """
    with tf.name_scope(name, "HistogramSummary", [tag, values]) as scope:
        return _joined(tf.raw_ops.HistogramSummary(tag=tag, values=values, name=scope), collections)


def image_summary(
    tag: TensorLike,
    tensor: TensorLike,
    max_images: int = 3,
    collections: Iterable[str] | None = None,
    name: str | None = None,
) -> tf.Tensor:
    """A summary of pictures; see `scalar_summary`.

    Args:
        tag: a string, behind which the pictures get a number.
        tensor: uint8 or float32 [batch, height, width, channels], of 1, 3 or 4 channels.
        max_images: how many pictures are kept.
    """
    with tf.name_scope(name, "ImageSummary", [tag, tensor]) as scope:
        summary = tf.raw_ops.ImageSummary(tag=tag, tensor=tensor, max_images=max_images, name=scope)
        return _joined(summary, collections)


def audio_summary(
    tag: TensorLike,
    tensor: TensorLike,
    sample_rate: TensorLike,
    max_outputs: int = 3,
    collections: Iterable[str] | None = None,
    name: str | None = None,
) -> tf.Tensor:
    """A summary of sounds; see `scalar_summary`.

    Args:
        tag: a string, behind which the sounds get a number.
        tensor: float32 [batch, frames, channels] or [batch, frames], between -1 and 1.
        sample_rate: frames in a second.
        max_outputs: how many sounds are kept.
    """
    with tf.name_scope(name, "AudioSummary", [tag, tensor]) as scope:
        rate = tf.convert_to_tensor(sample_rate, tf.float32, name="sample_rate")
        summary = tf.raw_ops.AudioSummaryV2(
            tag=tag, tensor=tensor, sample_rate=rate, max_outputs=max_outputs, name=scope
        )
        return _joined(summary, collections)


def merge_summary(
    inputs: Sequence[TensorLike], collections: Iterable[str] | None = None, name: str | None = None
) -> tf.Tensor:
    """One summary of several.

    Args:
        inputs: strings, serialized summaries.
        collections: what the summary joins; default: none.
        name: of the operation.
    """
    with tf.name_scope(name, "MergeSummary", inputs) as scope:
        merged: tf.Tensor = tf.raw_ops.MergeSummary(inputs=inputs, name=scope)
        return _joined(merged, collections or [])


def merge_all_summaries(key: str = tf.GraphKeys.SUMMARIES) -> tf.Tensor | None:
    """One summary of all in a collection; None where there are none.

    Args:
        key: the collection.
    """
    found = tf.get_collection(key)
    return merge_summary(found) if found else None
