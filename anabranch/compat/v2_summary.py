"""`tf.compat.v2.summary`: operations that write summaries of TensorFlow 2 themselves, when they run.

A graph's writers are opened by `tf.compat.v1.summary.initialize` or `SummaryWriter.init`; sessions run
`tf.compat.v1.summary.all_v2_summary_ops`. Each summary is a tensor with the name of TensorBoard's plugin that shows it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any, Final

import anabranch as tf
from anabranch.compat import recorded_summaries, v2_summary_experimental
from anabranch.compat.v2_summary_experimental import step_of, summary_scope, written
from anabranch.core.values import PassedOn, TensorLike
from anabranch.proto.summary_pb2 import SummaryMetadata

experimental = v2_summary_experimental
SummaryWriter = recorded_summaries.SummaryWriter
flush = recorded_summaries.flush
#: how TensorBoard's plugin is told that sounds are WAV files
_WAV: Final = b"\x10\x0b"
_BUCKETS: Final = 30


def create_file_writer(
    logdir: str,
    max_queue: int | None = None,
    flush_millis: float | None = None,
    filename_suffix: str | None = None,
    name: str | None = None,
) -> SummaryWriter:
    """A writer of event files in a directory; see `tf.contrib.summary.create_file_writer`."""
    return recorded_summaries.create_file_writer(logdir, max_queue, flush_millis, filename_suffix or ".v2", name)


def create_noop_writer() -> SummaryWriter:
    """A writer that writes nothing."""
    return recorded_summaries.create_file_writer(None)


def record_if(condition: TensorLike | Callable[[], TensorLike]) -> contextlib.AbstractContextManager[None]:
    """Inside, summaries are recorded where the condition is true.

    Args:
        condition: bool scalar, or a function that gives one, which is called for each summary.
    """
    return recorded_summaries.recording(condition)


def write(
    tag: str,
    tensor: TensorLike | Callable[[], TensorLike],
    step: TensorLike | None = None,
    metadata: PassedOn = None,
    name: str | None = None,
) -> tf.Tensor:
    """Writes a tensor.

    Args:
        tag: of the summary.
        tensor: of any type and shape, or a function that gives one, whose operations run where it is recorded.
        step: int64 scalar; default: that of `experimental.set_step`.
        metadata: a `SummaryMetadata` or its bytes.
        name: of the operations.

    Returns:
        Whether it was written, bool scalar.

    Raises:
        ValueError: there is no step.
    """
    data = b"" if metadata is None else metadata if isinstance(metadata, bytes) else metadata.SerializeToString()

    def make() -> tf.Tensor:
        value = tensor() if callable(tensor) and not isinstance(tensor, tf.Tensor | tf.Variable) else tensor
        summary: tf.Tensor = tf.raw_ops.TensorSummaryV2(tag=tag, tensor=value, serialized_summary_metadata=data)
        return summary

    with tf.name_scope(name, "write_summary"):
        return written(recorded_summaries.record(step_of(step), make, otherwise=True))


def _summary(
    plugin: str,
    name: str,
    step: TensorLike | None,
    description: str | None,
    make: Callable[[], TensorLike],
    content: bytes = b"",
) -> tf.Tensor:
    """Writes what one of TensorBoard's plugins shows."""
    shown_by = SummaryMetadata.PluginData(plugin_name=plugin, content=content)
    metadata = SummaryMetadata(plugin_data=shown_by, summary_description=description or "")
    with summary_scope(name, f"{plugin.removesuffix('s')}_summary") as (tag, _):
        return write(tag, make, step, metadata)


def scalar(name: str, data: TensorLike, step: TensorLike | None = None, description: str | None = None) -> tf.Tensor:
    """Writes a number.

    Args:
        name: of the summary; its tag has the name scopes before it.
        data: any real scalar.
        step: int64 scalar; default: that of `experimental.set_step`.
        description: for who looks at it, in Markdown.

    Returns:
        Whether it was written, bool scalar.

    Raises:
        ValueError: there is no step, or `data` is no scalar.
    """
    with tf.control_dependencies([tf.debugging.assert_scalar(data)]):
        return _summary("scalars", name, step, description, lambda: tf.cast(data, tf.float32))


def histogram(
    name: str,
    data: TensorLike,
    step: TensorLike | None = None,
    buckets: int | None = None,
    description: str | None = None,
) -> tf.Tensor:
    """Writes a histogram: its buckets' left and right ends and counts, float64 [buckets, 3].

    Args:
        name, step, description: as of `scalar`.
        data: real numbers of any shape.
        buckets: how many (30); of equal numbers there is one alone.

    Returns:
        Whether it was written, bool scalar.

    Raises:
        ValueError: there is no step.
    """
    return _summary(
        "histograms", name, step, description, lambda: _counted(data, _BUCKETS if buckets is None else buckets)
    )


def _counted(data: TensorLike, buckets: int) -> tf.Tensor:
    values: tf.Tensor = tf.cast(tf.reshape(data, [-1]), tf.float64)
    size = tf.size(values)

    def of_several(low: tf.Tensor, high: tf.Tensor) -> tf.Tensor:
        width = (high - low) / buckets
        at = tf.minimum(tf.cast(tf.floor((values - low) / width), tf.int32), buckets - 1)
        counts = tf.cast(tf.bincount(at, minlength=buckets, maxlength=buckets), tf.float64)
        edges = low + width * tf.cast(tf.range(buckets + 1), tf.float64)
        return tf.stack([edges[:-1], tf.concat([edges[1:-1], [high]], 0), counts], 1)

    def of_one(value: tf.Tensor) -> tf.Tensor:
        return tf.stack([[value - 0.5, value + 0.5, tf.cast(size, tf.float64)]])

    def of_any() -> tf.Tensor:
        low, high = tf.reduce_min(values), tf.reduce_max(values)
        counted: tf.Tensor = tf.cond(tf.equal(low, high), lambda: of_one(low), lambda: of_several(low, high))
        return counted

    result: tf.Tensor = tf.cond(tf.equal(size, 0), lambda: tf.zeros([0, 3], tf.float64), of_any)
    return result


def image(
    name: str,
    data: TensorLike,
    step: TensorLike | None = None,
    max_outputs: int = 3,
    description: str | None = None,
) -> tf.Tensor:
    """Writes images: width and height, then each as PNG, string [2 + n].

    Args:
        name, step, description: as of `scalar`.
        data: [batch, height, width, channels], uint8, or floats in [0, 1].
        max_outputs: at most so many images.

    Returns:
        Whether it was written, bool scalar.

    Raises:
        ValueError: there is no step, or `data` is no batch of images.
    """
    with tf.control_dependencies([tf.assert_rank(data, 4)]):
        images = tf.image.convert_image_dtype(tf.identity(data), tf.uint8, saturate=True)

    def make() -> tf.Tensor:
        encoded = tf.map_fn(tf.image.encode_png, images[:max_outputs], dtype=tf.string, name="encode_each_image")
        sizes: Any = tf.shape(images)
        dimensions = tf.as_string(tf.stack([sizes[2], sizes[1]]))
        result: tf.Tensor = tf.concat([dimensions, tf.reshape(encoded, [-1])], 0)
        return result

    return _summary("images", name, step, description, make)


def audio(
    name: str,
    data: TensorLike,
    sample_rate: TensorLike,
    step: TensorLike | None = None,
    max_outputs: int = 3,
    encoding: str | None = None,
    description: str | None = None,
) -> tf.Tensor:
    """Writes sounds: each as WAV and a label that is empty, string [n, 2].

    Args:
        name, step, description: as of `scalar`.
        data: float32 [batch, frames, channels] in [-1, 1].
        sample_rate: of frames, per second.
        max_outputs: at most so many sounds.
        encoding: "wav" or None.

    Returns:
        Whether it was written, bool scalar.

    Raises:
        ValueError: there is no step, another encoding, or `data` is no batch of sounds.
    """
    if encoding not in (None, "wav"):
        raise ValueError(f"Unknown encoding: {encoding!r}; 'wav' is there")
    with tf.control_dependencies([tf.assert_rank(data, 3)]):
        sounds = tf.identity(data)

    def make() -> tf.Tensor:
        def encoded(sound: tf.Tensor) -> tf.Tensor:
            return tf.audio.encode_wav(sound, sample_rate)

        waves = tf.map_fn(encoded, sounds[:max_outputs], dtype=tf.string, name="encode_each_audio")
        result: tf.Tensor = tf.stack([waves, tf.fill(tf.shape(waves), "")], 1)
        return result

    return _summary("audio", name, step, description, make, _WAV)


def text(name: str, data: TensorLike, step: TensorLike | None = None, description: str | None = None) -> tf.Tensor:
    """Writes texts, a string tensor of any shape; arguments, result and errors as of `scalar`."""
    return _summary("text", name, step, description, lambda: tf.convert_to_tensor(data, tf.string))


# ---------------------------------------------------------------------- traces, of eager execution
def trace_on(graph: bool = True, profiler: bool = False) -> None:
    """Traces nothing, and says so: it traces eager execution; `tf.RunOptions.FULL_TRACE` is there for steps."""
    tf.logging.warn("Must enable trace in eager mode; sessions trace steps with tf.RunOptions.FULL_TRACE.")


def trace_off() -> None:
    """Nothing is traced; see `trace_on`."""


def trace_export(name: str, step: TensorLike | None = None, profiler_outdir: str | None = None) -> None:
    """Exports nothing, and says so; see `trace_on`."""
    tf.logging.warn("Can only export trace while executing eagerly.")
