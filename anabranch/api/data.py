"""`tf.data`."""

from __future__ import annotations

from anabranch.api import data_experimental as experimental
from anabranch.frontend.data.datasets import Dataset
from anabranch.frontend.data.iterators import (
    Iterator,
    get_legacy_output_classes as get_output_classes,
    get_legacy_output_shapes as get_output_shapes,
    get_legacy_output_types as get_output_types,
    make_initializable_iterator,
    make_one_shot_iterator,
)
from anabranch.frontend.data.options import Options
from anabranch.frontend.data.readers import FixedLengthRecordDataset, TextLineDataset, TFRecordDataset

__all__ = [
    "Dataset",
    "FixedLengthRecordDataset",
    "Iterator",
    "Options",
    "TFRecordDataset",
    "TextLineDataset",
    "experimental",
    "get_output_classes",
    "get_output_shapes",
    "get_output_types",
    "make_initializable_iterator",
    "make_one_shot_iterator",
]
