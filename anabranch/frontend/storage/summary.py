"""Summaries: named values that a step reports, for event files and TensorBoard (WP9.1).

Each function adds an operation whose output is a serialised `Summary`, and puts that output into collections
(`GraphKeys.SUMMARIES` by default, from where `merge_all` takes it). A value is shown under its operation's full name,
preceded by the family where one is given.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Sequence
from typing import Any

from google.protobuf import json_format

from anabranch.core import dtypes
from anabranch.core.values import TensorLike
from anabranch.frontend.framework import name_scope
from anabranch.frontend.platform import logging
from anabranch.graph.collections import GraphKeys
from anabranch.graph.conversion import convert_to_tensor
from anabranch.graph.graph import Graph, get_default_graph
from anabranch.graph.operation import StepRunner, Tensor
from anabranch.ops import raw
from anabranch.ops.storage import summary as _summary_ops  # the vocabulary behind `raw`  # noqa: F401
from anabranch.proto.graph_pb2 import NodeDef
from anabranch.proto.summary_pb2 import (
    SummaryDescription,
    SummaryMetadata,
)

_INVALID_IN_TAG = re.compile(r"[^-/\w\.]")
_TEXT_PLUGIN = "text"


# ---------------------------------------------------------------------- one value
def scalar(
    name: str, tensor: TensorLike, collections: Sequence[str] | None = None, family: str | None = None
) -> Tensor:
    """Reports a number; TensorBoard draws it as a curve.

    Args:
        name: the summary's name; characters that a name cannot have become "_".
        tensor: real, a scalar.
        collections: where to put the summary; default: `[GraphKeys.SUMMARIES]`.
        family: prefix of the tag: summaries of one family are shown together.

    Returns:
        A string scalar: a serialised `Summary`.

    Raises:
        InvalidArgumentError: (by the step) the tensor is not a scalar.

    Example:
        >>> loss = tf.summary.scalar("loss", tf.constant(0.5))
        >>> tf.Summary.FromString(sess.run(loss)).value[0].simple_value
        0.5
    """
    with summary_scope(name, family, values=[tensor]) as (tag, scope):
        result = raw.ScalarSummary(tags=tag, values=tensor, name=scope)
        return _collected(result, collections)


def histogram(
    name: str, values: TensorLike, collections: Sequence[str] | None = None, family: str | None = None
) -> Tensor:
    """Reports the distribution of the elements of a tensor.

    Args:
        name, collections, family: as in `scalar`.
        values: real, any shape.

    Returns:
        A string scalar: a serialised `Summary` with a histogram of exponentially growing buckets.

    Raises:
        InvalidArgumentError: (by the step) a value is NaN or infinite.

    Example:
        >>> weights = tf.summary.histogram("weights", tf.constant([1.0, 2.0, 3.0]))
        >>> tf.Summary.FromString(sess.run(weights)).value[0].histo.num
        3.0
    """
    with summary_scope(name, family, values=[values], default_name="HistogramSummary") as (tag, scope):
        values = convert_to_tensor(values, name="values")  # an array keeps its dtype
        return _collected(raw.HistogramSummary(tag=tag, values=values, name=scope), collections)


def image(
    name: str,
    tensor: TensorLike,
    max_outputs: int = 3,
    collections: Sequence[str] | None = None,
    family: str | None = None,
) -> Tensor:
    """Reports images, as PNG.

    Args:
        name, collections, family: as in `scalar`.
        tensor: uint8, or float, of shape [batch, height, width, channels] with 1 (grey), 3 (RGB) or 4 (RGBA) channels.
            Float images are scaled, each for itself: to [0, 255] where no value is negative, else so that 0 is 128.
        max_outputs: how many images of the batch are reported: as ``<tag>/image/0``, ... or, for 1, ``<tag>/image``.

    Returns:
        A string scalar: a serialised `Summary`.

    Raises:
        InvalidArgumentError: (by the step) another shape.

    Example:
        >>> image = tf.summary.image("digit", tf.zeros([1, 4, 4, 1]))
        >>> shown = tf.Summary.FromString(sess.run(image)).value[0]
        >>> shown.tag, shown.image.height
        ('digit/image/0', 4)
    """
    with summary_scope(name, family, values=[tensor]) as (tag, scope):
        tensor = convert_to_tensor(tensor, name="tensor")  # an array of bytes stays one
        result = raw.ImageSummary(tag=tag, tensor=tensor, max_images=max_outputs, name=scope)
        return _collected(result, collections)


def audio(
    name: str,
    tensor: TensorLike,
    sample_rate: TensorLike,
    max_outputs: int = 3,
    collections: Sequence[str] | None = None,
    family: str | None = None,
) -> Tensor:
    """Reports sound, as 16-bit WAV.

    Args:
        name, collections, family: as in `scalar`.
        tensor: float32 in [-1, 1], shape [batch, frames, channels] or [batch, frames].
        sample_rate: float32 scalar: frames per second (hertz).
        max_outputs: how many clips of the batch are reported: as ``<tag>/audio/0``, ... or, for 1, ``<tag>/audio``.

    Returns:
        A string scalar: a serialised `Summary`.

    Raises:
        InvalidArgumentError: (by the step) another shape, or a sample rate that is not positive.
    """
    with summary_scope(name, family, values=[tensor]) as (tag, scope):
        result = raw.AudioSummaryV2(
            tag=tag, tensor=tensor, sample_rate=sample_rate, max_outputs=max_outputs, name=scope
        )
        return _collected(result, collections)


def text(name: str, tensor: TensorLike, collections: Sequence[str] | None = None) -> Tensor:
    """Reports strings, which TensorBoard shows as Markdown; a matrix becomes a table.

    Args:
        name, collections: as in `scalar`.
        tensor: string, any shape.

    Raises:
        ValueError: the tensor has another dtype.
    """
    if tensor.dtype is not dtypes.string:
        raise ValueError(f"Expected tensor {tensor.name} to have dtype string, got {tensor.dtype}; use tf.as_string")
    metadata = SummaryMetadata(plugin_data=SummaryMetadata.PluginData(plugin_name=_TEXT_PLUGIN))
    return tensor_summary(name, tensor, summary_metadata=metadata, collections=collections)


def tensor_summary(
    name: str,
    tensor: TensorLike,
    summary_description: str | None = None,
    collections: Sequence[str] | None = None,
    summary_metadata: SummaryMetadata | None = None,
    family: str | None = None,
    display_name: str | None = None,
) -> Tensor:
    """Reports a tensor as it is, for the TensorBoard plugin that its metadata names.

    Args:
        name, collections, family: as in `scalar`.
        tensor: any dtype and shape.
        summary_description: Markdown that explains the values.
        summary_metadata: a `SummaryMetadata`: which plugin shows the values, and how.
        display_name: what to show in place of the tag.
    """
    metadata = SummaryMetadata()
    if summary_metadata is not None:
        metadata.CopyFrom(summary_metadata)
    if summary_description is not None:
        metadata.summary_description = summary_description
    if display_name is not None:
        metadata.display_name = display_name
    with summary_scope(name, family, values=[tensor]) as (tag, scope):
        result = raw.TensorSummaryV2(
            tensor=tensor, tag=tag, name=scope, serialized_summary_metadata=metadata.SerializeToString()
        )
        return _collected(result, collections)


# ---------------------------------------------------------------------- many values
def merge(inputs: Sequence[Any], collections: Sequence[str] | None = None, name: str | None = None) -> Tensor:
    """One summary with the values of several.

    Args:
        inputs: string tensors with serialised `Summary` messages.
        collections: where to put the result; default: nowhere.
        name: of the operation.

    Returns:
        A string scalar: a serialised `Summary`.

    Raises:
        InvalidArgumentError: (by the step) two of them have a value under the same tag.

    Example:
        >>> a, b = tf.summary.scalar("a", tf.constant(1.0)), tf.summary.scalar("b", tf.constant(2.0))
        >>> both = tf.summary.merge([a, b])
        >>> len(tf.Summary.FromString(sess.run(both)).value)
        2
    """
    with name_scope(name, "Merge", inputs):
        merged: Tensor = raw.MergeSummary(inputs=list(inputs), name=name)
        get_default_graph().add_to_collections(collections or (), merged)
    return merged


def merge_all(key: str = GraphKeys.SUMMARIES, scope: str | None = None, name: str | None = None) -> Tensor | None:
    """`merge` of a collection of the default graph, or None where that is empty.

    Args:
        key: the collection.
        scope: only those whose name matches this prefix (a regular expression).
        name: of the operation.

    Returns:
        A string scalar: a serialised `Summary`; None where the collection is empty.

    Raises:
        nothing

    Example:
        >>> _ = tf.summary.scalar("loss", tf.constant(0.5)), tf.summary.scalar("rate", tf.constant(0.1))
        >>> [value.tag for value in tf.Summary.FromString(sess.run(tf.summary.merge_all())).value]
        ['loss', 'rate']
    """
    summaries = get_default_graph().get_collection(key, scope=scope)
    return merge(summaries, name=name) if summaries else None


def get_summary_description(node_def: NodeDef) -> SummaryDescription:
    """The `SummaryDescription` of a node of type `TensorSummary`.

    Raises:
        ValueError: the node is of another type.
    """
    if node_def.op != "TensorSummary":
        raise ValueError(f"Can't get_summary_description on {node_def.op}; it takes a node of type TensorSummary")
    return json_format.Parse(node_def.attr["description"].s.decode("utf-8") or "{}", SummaryDescription())


def initialize(graph: Graph | None = None, session: StepRunner | None = None) -> None:
    """Prepares the summary writer that is part of the default graph.

    Only `tf.contrib.summary` has such writers, which are not part of anabranch; `FileWriter` needs no preparation.

    Raises:
        RuntimeError: no such writer is the default one.
    """
    raise RuntimeError("No default tf.contrib.summary.SummaryWriter found; tf.summary.FileWriter needs no initialize()")


def all_v2_summary_ops() -> list[Any]:
    """The operations of the default graph that write to a summary writer in the graph: none here (see `initialize`)."""
    return get_default_graph().get_collection("_SUMMARY_V2")


# ---------------------------------------------------------------------- names
def clean_tag(name: str | None) -> str | None:
    """`name` with everything that a name cannot have replaced by "_", and without leading slashes."""
    if name is None:
        return None
    cleaned = _INVALID_IN_TAG.sub("_", name).lstrip("/")
    if cleaned != name:
        logging.info("Summary name %s is illegal; using %s instead.", name, cleaned)
    return cleaned


@contextlib.contextmanager
def summary_scope(
    name: str, family: str | None = None, default_name: str | None = None, values: Sequence[Any] | None = None
) -> Iterator[tuple[str, str]]:
    """Opens the name scope of a summary; yields the tag under which it is shown, and the scope's name.

    The tag is the scope's name. A family is part of the scope and of the tag, and also the tag's first part, by which
    TensorBoard groups.

    Args:
        default_name: the name where `name` is None.
        values: the tensors that the summary is made of.
    """
    name, family = clean_tag(name) or "", clean_tag(family)
    base = name if family is None else f"{family}/{name}"
    with name_scope(base or None, default_name, values) as scope:
        tag = scope.rstrip("/")
        yield (tag if family is None else f"{family}/{tag}"), scope


def _collected(summary: Tensor, collections: Sequence[str] | None) -> Tensor:
    chosen = [GraphKeys.SUMMARIES] if collections is None else collections
    get_default_graph().add_to_collections(chosen, summary)
    return summary
