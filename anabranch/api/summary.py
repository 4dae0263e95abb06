"""`tf.summary`."""

from __future__ import annotations

from anabranch.frontend.summary import (
    Event,
    FileWriter,
    FileWriterCache,
    SessionLog,
    Summary,
    SummaryDescription,
    TaggedRunMetadata,
    all_v2_summary_ops,
    audio,
    get_summary_description,
    histogram,
    image,
    initialize,
    merge,
    merge_all,
    scalar,
    tensor_summary,
    text,
)

__all__ = [
    "Event",
    "FileWriter",
    "FileWriterCache",
    "SessionLog",
    "Summary",
    "SummaryDescription",
    "TaggedRunMetadata",
    "all_v2_summary_ops",
    "audio",
    "get_summary_description",
    "histogram",
    "image",
    "initialize",
    "merge",
    "merge_all",
    "scalar",
    "tensor_summary",
    "text",
]
