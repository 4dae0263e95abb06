"""`tf.contrib.summary`: operations that write summaries themselves, when they run, to the default writer."""

from __future__ import annotations

from collections.abc import Callable

import anabranch as tf
from anabranch.compat.recorded_summaries import default_writer, record
from anabranch.core.values import PassedOn, TensorLike


def _record(name: str, family: str | None, step: TensorLike | None, make: Callable[[str], TensorLike]) -> tf.Operation:
    """An operation that writes what `make` gives for a tag, if summaries are recorded."""
    scope = tf.get_default_graph().get_name_scope()
    tag = "/".join(part for part in (scope, family, name) if part)
    written = record(step, lambda: make(tag))
    return tf.no_op() if written is None else written.op


def scalar(name: str, tensor: TensorLike, family: str | None = None, step: TensorLike | None = None) -> tf.Operation:
    """Writes a number.

    Args:
        name: of the summary, after the name scope and `family`.
        tensor: any real scalar.
        family: stands before the name.
        step: int64 scalar; default: the global step.

    Returns:
        The operation.
    """
    return _record(name, family, step, lambda tag: tf.raw_ops.ScalarSummary(tags=tag, values=tensor))


def histogram(name: str, tensor: TensorLike, family: str | None = None, step: TensorLike | None = None) -> tf.Operation:
    """Writes a histogram of a tensor's elements; arguments as of `scalar`."""
    return _record(name, family, step, lambda tag: tf.raw_ops.HistogramSummary(tag=tag, values=tensor))


def image(
    name: str,
    tensor: TensorLike,
    bad_color: TensorLike | None = None,
    max_images: int = 3,
    family: str | None = None,
    step: TensorLike | None = None,
) -> tf.Operation:
    """Writes images [batch, height, width, 1 | 3 | 4]; not a number is shown red. Other arguments as of `scalar`."""
    if bad_color is not None:
        raise NotImplementedError("contrib.summary.image shows what is not a number red; bad_color cannot be chosen")
    return _record(
        name, family, step, lambda tag: tf.raw_ops.ImageSummary(tag=tag, tensor=tensor, max_images=max_images)
    )


def audio(
    name: str,
    tensor: TensorLike,
    sample_rate: TensorLike,
    max_outputs: int,
    family: str | None = None,
    step: TensorLike | None = None,
) -> tf.Operation:
    """Writes sounds [batch, frames] or [batch, frames, channels] in [-1, 1]. Other arguments as of `scalar`."""

    def make(tag: str) -> TensorLike:
        return tf.raw_ops.AudioSummaryV2(
            tag=tag, tensor=tensor, sample_rate=tf.cast(sample_rate, tf.float32), max_outputs=max_outputs
        )

    return _record(name, family, step, make)


def generic(
    name: str,
    tensor: TensorLike,
    metadata: PassedOn = None,
    family: str | None = None,
    step: TensorLike | None = None,
) -> tf.Operation:
    """Writes a tensor, with a `SummaryMetadata` or its bytes. Other arguments as of `scalar`."""
    data = b"" if metadata is None else metadata if isinstance(metadata, bytes) else metadata.SerializeToString()
    return _record(
        name,
        family,
        step,
        lambda tag: tf.raw_ops.TensorSummaryV2(tag=tag, tensor=tensor, serialized_summary_metadata=data),
    )


def graph(param: PassedOn, step: TensorLike | None = None, name: str | None = None) -> tf.Operation:
    """Writes a graph: a `GraphDef`, its bytes, or a string tensor of them.

    Raises:
        TypeError: `param` is none of these.
    """
    if isinstance(param, tf.GraphDef):
        param = param.SerializeToString()
    if not isinstance(param, bytes | tf.Tensor):
        raise TypeError(f"param must be a GraphDef, or bytes of one, got {type(param).__name__}")
    writer = default_writer()
    if writer is None:
        return tf.no_op()
    at = tf.train.get_or_create_global_step() if step is None else step
    return writer.write_graph(param, tf.cast(at, tf.int64))
