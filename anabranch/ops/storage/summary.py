"""Summaries: operations whose result is a serialised `Summary`, for event files (WP9.1).

All of them are host work: a step that is asked for a summary hands the summarised values over and formats them here.
"""

from __future__ import annotations

import functools
from bisect import bisect_right
from collections.abc import Iterator
from typing import Any

import numpy as np
from google.protobuf.message import DecodeError

from anabranch.core.dtypes import DType
from anabranch.core.kernel_context import KernelTensor, OperationContext
from anabranch.errors import InvalidArgumentError
from anabranch.graph.building import define_op
from anabranch.io.png import encode_png
from anabranch.io.sstable import varint
from anabranch.ops import shape_rules
from anabranch.ops.audio.wav import encode_wav
from anabranch.proto.summary_pb2 import HistogramProto, Summary, SummaryMetadata
from anabranch.proto.tensors import make_tensor_proto

Array = np.ndarray[Any, Any]

#: float images below this are drawn black, not stretched to the full range
_NO_RANGE = 1e-6
#: what says in a message that one of the repeated fields of a `HistogramProto` follows: its number, and 2
_BUCKET_LIMIT, _BUCKET = bytes([6 << 3 | 2]), bytes([7 << 3 | 2])
_LARGEST = float(np.finfo(np.float64).max)
_LAST_LIMIT, _NO_COUNT = np.array([_LARGEST], "<f8").tobytes(), bytes(8)


def _invalid(ctx: OperationContext, message: str) -> InvalidArgumentError:
    return InvalidArgumentError(None, ctx.op, message)


def _scalar_text(value: Array, what: str, ctx: OperationContext) -> str:
    """A scalar string input as a Python string."""
    if value.ndim:
        raise _invalid(ctx, f"{what} of {ctx.op.name} must be a scalar, got shape {value.shape}")
    return str(value.item().decode("utf-8", "replace"))


# ---------------------------------------------------------------------- scalars
ScalarSummary = define_op("ScalarSummary", "tags: string, values: T -> summary: string", "T: real")
ScalarSummary.shape(shape_rules.scalar)
ScalarSummary.not_differentiable()


@ScalarSummary.host_kernel
def scalar_summary(tags: Array, values: Array, *, ctx: OperationContext) -> bytes:
    """A Summary message with a number for each tag."""
    if tags.shape != values.shape:
        shown = f" (tag {tags.item().decode('utf-8', 'replace')!r})" if not tags.ndim else ""
        raise _invalid(
            ctx,
            f"tags and values of {ctx.op.name} are not the same shape: {list(tags.shape)} != "
            f"{list(values.shape)}{shown}; a scalar summary takes a scalar (tf.reduce_mean makes one)",
        )
    summary = Summary()
    for tag, value in zip(tags.ravel().tolist(), values.ravel().astype(np.float32).tolist(), strict=True):
        summary.value.add(tag=tag.decode("utf-8", "replace"), simple_value=value)
    return bytes(summary.SerializeToString())


# ---------------------------------------------------------------------- histograms
HistogramSummary = define_op("HistogramSummary", "tag: string, values: T -> summary: string", "T: real = float")
HistogramSummary.shape(shape_rules.scalar)
HistogramSummary.not_differentiable()


@HistogramSummary.host_kernel
def histogram_summary(tag: Array, values: Array, *, ctx: OperationContext) -> bytes:
    """A Summary message with the histogram of all values."""
    name = _scalar_text(tag, "the tag", ctx)
    flat = np.ravel(values)
    if not np.isfinite(flat).all():
        kind = "Nan" if np.isnan(flat).any() else "Infinity"
        raise _invalid(ctx, f"{kind} in summary histogram for: {name}; tf.check_numerics finds where it comes from")
    summary = Summary()
    summary.value.add(tag=name).histo.CopyFrom(histogram_of(flat))
    return bytes(summary.SerializeToString())


@functools.cache
def bucket_limits() -> Array:
    """The upper limits of a histogram's buckets, ascending: ± 1e-12 · 1.1^k up to 1e20, 0, and the largest number."""
    positive = []
    limit = 1e-12
    while limit < 1e20:
        positive.append(limit)
        limit *= 1.1
    positive.append(_LARGEST)
    return np.array([*(-v for v in reversed(positive)), 0.0, *positive], "<f8")


def histogram_of(values: Array) -> Any:
    """The histogram of a flat array of finite values; runs of empty buckets are one bucket."""
    # sorted in their own dtype, which is quicker
    ordered = np.sort(values).astype(np.float64)
    histogram = HistogramProto(
        min=float(ordered[0]) if ordered.size else _LARGEST,
        max=float(ordered[-1]) if ordered.size else -_LARGEST,
        num=float(ordered.size),
        sum=float(ordered.sum()),
        # not np.dot: its threads wait for each other by spinning, for milliseconds where other threads want the cores
        sum_squares=float(np.einsum("i,i->", ordered, ordered)),
    )
    limits, counts = _buckets(ordered)
    # as they are serialised: of lists the library would look at each number
    length = varint(len(limits))
    histogram.MergeFromString(b"".join((_BUCKET_LIMIT, length, limits, _BUCKET, length, counts)))
    return histogram


def _buckets(ordered: Array) -> tuple[bytes, bytes]:
    """Upper limits and counts of the buckets of ascending values, of a run of empty ones those of the last; both as the
    bytes of numbers of 8 bytes.

    Limits are looked up in the values, which takes a twentieth of the time that the other way takes; those only that
    lie among them.
    """
    limits, listed = bucket_limits(), _listed_limits()
    last = len(listed) - 1
    if not ordered.size:
        return _LAST_LIMIT, _NO_COUNT
    # the last bucket takes the largest number as well
    begin, end = (min(bisect_right(listed, value), last) for value in (float(ordered[0]), float(ordered[-1])))
    # with the empty one before, which tells of all that are before
    begin = max(begin - 1, 0)
    counts = ordered.searchsorted(limits[begin : end + 1])
    counts[-1] = ordered.size
    counts[1:] -= counts[:-1].copy()
    told = counts > 0
    told[:-1] |= told[1:]
    upper, numbers = limits[begin : end + 1][told].tobytes(), counts[told].astype("<f8").tobytes()
    return (upper + _LAST_LIMIT, numbers + _NO_COUNT) if end < last else (upper, numbers)


@functools.cache
def _listed_limits() -> list[float]:
    limits: list[float] = bucket_limits().tolist()
    return limits


# ---------------------------------------------------------------------- images
ImageSummary = define_op(
    "ImageSummary",
    "tag: string, tensor: T -> summary: string",
    "max_images: int >= 1 = 3, T: {uint8, float, half, double} = float, bad_color: tensor = uint8[255, 0, 0, 255]",
)
ImageSummary.shape(shape_rules.scalar)
ImageSummary.not_differentiable()


@ImageSummary.host_kernel
def image_summary(tag: Array, tensor: Array, *, max_images: int, bad_color: Array, ctx: OperationContext) -> bytes:
    """A Summary message with the first images of a batch, as PNG files."""
    name = _scalar_text(tag, "the tag", ctx)
    if tensor.ndim != 4 or tensor.shape[3] not in (1, 3, 4) or 0 in tensor.shape[1:]:
        raise _invalid(
            ctx,
            f"the images of {ctx.op.name} must be 4-D [batch, height, width, channels] with 1, 3 or 4 channels and at "
            f"least one pixel, got shape {list(tensor.shape)}",
        )
    depth = tensor.shape[3]
    if bad_color.dtype != np.uint8 or bad_color.ndim != 1 or bad_color.size < depth:
        raise _invalid(
            ctx, f"bad_color of {ctx.op.name} must be a uint8 vector of at least {depth} elements, got {bad_color!r}"
        )
    summary = Summary()
    for label, image in zip(_numbered(f"{name}/image", max_images), tensor, strict=False):
        pixels = image if image.dtype == np.uint8 else _to_uint8(image, bad_color[:depth])
        value = summary.value.add(tag=label)
        value.image.height, value.image.width, value.image.colorspace = image.shape
        value.image.encoded_image_string = encode_png(pixels)
    return bytes(summary.SerializeToString())


def _numbered(tag: str, count: int) -> Iterator[str]:
    """The tags of the items of a batch: only where there may be several, they are numbered."""
    if count == 1:
        yield tag
    else:
        yield from (f"{tag}/{i}" for i in range(count))


def _to_uint8(image: Array, bad_color: Array) -> Array:
    """Stretches a float image over 0 .. 255: zero stays black, or becomes 128 where there are negative values."""
    kind: Any = np.float64 if image.dtype == np.float64 else np.float32
    work = image.astype(kind)
    finite = np.isfinite(work).all(axis=2)
    seen = work[finite]
    largest = float(np.abs(seen).max(initial=0.0))
    signed = seen.size > 0 and seen.min() < 0
    span, offset = (127.0, 128.0) if signed else (255.0, 0.0)
    scale = kind(0.0 if largest < _NO_RANGE else span) / kind(largest or 1.0)
    pixels = np.empty(work.shape, np.uint8)
    pixels[finite] = (seen * scale + offset).astype(np.uint8)
    pixels[~finite] = bad_color
    return pixels


# ---------------------------------------------------------------------- audio
AudioSummaryV2 = define_op(
    "AudioSummaryV2", "tag: string, tensor: float, sample_rate: float -> summary: string", "max_outputs: int >= 1 = 3"
)
AudioSummaryV2.shape(shape_rules.scalar)
AudioSummaryV2.not_differentiable()


@AudioSummaryV2.host_kernel
def _(tag: Array, tensor: Array, sample_rate: Array, *, max_outputs: int, ctx: OperationContext) -> bytes:
    return audio_summary(tag, tensor, float(sample_rate), max_outputs, ctx)


AudioSummary = define_op(
    "AudioSummary", "tag: string, tensor: float -> summary: string", "sample_rate: float, max_outputs: int >= 1 = 3"
)
AudioSummary.shape(shape_rules.scalar)
AudioSummary.not_differentiable()


@AudioSummary.host_kernel
def _(tag: Array, tensor: Array, *, sample_rate: float, max_outputs: int, ctx: OperationContext) -> bytes:
    return audio_summary(tag, tensor, sample_rate, max_outputs, ctx)


def audio_summary(tag: Array, tensor: Array, sample_rate: float, max_outputs: int, ctx: OperationContext) -> bytes:
    """A Summary message with the first clips of a batch, as WAVE files."""
    name = _scalar_text(tag, "the tag", ctx)
    if tensor.ndim not in (2, 3):
        raise _invalid(
            ctx, f"the audio of {ctx.op.name} must be [batch, frames(, channels)], got shape {list(tensor.shape)}"
        )
    if not 0 < sample_rate < 1 << 32:
        raise _invalid(ctx, f"the sample rate of {ctx.op.name} must be > 0 (hertz), got {sample_rate}")
    clips = tensor if tensor.ndim == 3 else tensor[:, :, np.newaxis]
    summary = Summary()
    for label, clip in zip(_numbered(f"{name}/audio", max_outputs), clips, strict=False):
        audio = summary.value.add(tag=label).audio
        audio.sample_rate = sample_rate
        audio.length_frames, audio.num_channels = clip.shape
        audio.encoded_audio_string = encode_wav(clip, int(sample_rate + 0.5))
        audio.content_type = "audio/wav"
    return bytes(summary.SerializeToString())


# ---------------------------------------------------------------------- tensors
TensorSummaryV2 = define_op(
    "TensorSummaryV2", "tag: string, tensor: T, serialized_summary_metadata: string -> summary: string", "T: any"
)
TensorSummaryV2.shape(shape_rules.scalar)
TensorSummaryV2.not_differentiable()


@TensorSummaryV2.host_kernel
def _(tag: Array, tensor: Array, serialized_summary_metadata: Array, *, ctx: OperationContext) -> bytes:
    return tensor_summary(tag, tensor, serialized_summary_metadata, ctx.op.inputs[1].dtype, ctx)


def tensor_summary(tag: Array, tensor: Array, metadata: Array, dtype: DType, ctx: OperationContext) -> bytes:
    """A Summary message with a tensor, and what a plugin knows of it."""
    summary = Summary()
    value = summary.value.add(tag=_scalar_text(tag, "the tag", ctx))
    value.tensor.CopyFrom(make_tensor_proto(tensor, dtype))
    try:
        value.metadata.CopyFrom(SummaryMetadata.FromString(metadata.item()))
    except DecodeError as error:
        raise _invalid(ctx, f"the summary metadata of {ctx.op.name} is not a SummaryMetadata: {error}") from error
    return bytes(summary.SerializeToString())


TensorSummary = define_op(
    "TensorSummary",
    "tensor: T -> summary: string",
    "T: any, description: string = '', labels: list(string) = [], display_name: string = ''",
)
TensorSummary.shape(shape_rules.scalar)
TensorSummary.not_differentiable()


@TensorSummary.host_kernel
def _(tensor: Array, *, ctx: OperationContext) -> bytes:
    summary = Summary()
    value = summary.value.add(node_name=ctx.op.name)
    value.tensor.CopyFrom(make_tensor_proto(tensor, ctx.op.inputs[0].dtype))
    return bytes(summary.SerializeToString())


# ---------------------------------------------------------------------- merging
MergeSummary = define_op("MergeSummary", "inputs: N * string -> summary: string", "N: int >= 1")
MergeSummary.shape(shape_rules.scalar)
MergeSummary.not_differentiable()


@MergeSummary.host_kernel
def _(inputs: list[Array], *, ctx: OperationContext) -> bytes:
    tags: set[str] = set()
    merged: list[bytes] = []
    for source, array in zip(ctx.op.inputs, inputs, strict=True):
        for serialized in array.ravel().tolist():
            for value in _parsed(serialized, source, ctx).value:
                # the values of TensorSummary have no tags
                if value.tag and value.tag in tags:
                    raise _invalid(
                        ctx,
                        f"Duplicate tag {value.tag} found in summary inputs of {ctx.op.name}; give the summaries "
                        "different names, and merge each once",
                    )
                tags.add(value.tag)
            # messages one behind the other are one message, of all that they hold
            merged.append(serialized)
    return b"".join(merged)


def _parsed(serialized: bytes, source: KernelTensor, ctx: OperationContext) -> Any:
    try:
        return Summary.FromString(serialized)
    except DecodeError as error:
        raise _invalid(
            ctx, f"Could not parse one of the summary inputs of {ctx.op.name}: {source.name} is no summary"
        ) from error
