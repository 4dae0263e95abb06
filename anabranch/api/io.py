"""`tf.io`."""

from __future__ import annotations

from anabranch.api import io_gfile as gfile
from anabranch.frontend.encodings import decode_compressed, decode_json_example, parse_tensor, serialize_tensor
from anabranch.frontend.graph_io import write_graph
from anabranch.frontend.image import decode_png, encode_png
from anabranch.frontend.image_codecs import (
    decode_and_crop_jpeg,
    decode_bmp,
    decode_gif,
    decode_image,
    decode_jpeg,
    encode_jpeg,
    extract_jpeg_shape,
    is_jpeg,
)
from anabranch.frontend.parsing import (
    FixedLenFeature,
    FixedLenSequenceFeature,
    VarLenFeature,
    decode_csv,
    matching_files,
    parse_example,
    parse_single_example,
    read_file,
    write_file,
)
from anabranch.frontend.queues import PaddingFIFOQueue, PriorityQueue, QueueBase, RandomShuffleQueue
from anabranch.frontend.sequence_examples import parse_sequence_example, parse_single_sequence_example
from anabranch.frontend.strings import decode_base64, decode_raw, encode_base64
from anabranch.io.records import TFRecordCompressionType, TFRecordOptions, TFRecordWriter, tf_record_iterator
from anabranch.train.input_producers import match_filenames_once

__all__ = [
    "FixedLenFeature",
    "FixedLenSequenceFeature",
    "PaddingFIFOQueue",
    "PriorityQueue",
    "QueueBase",
    "RandomShuffleQueue",
    "TFRecordCompressionType",
    "TFRecordOptions",
    "TFRecordWriter",
    "VarLenFeature",
    "decode_and_crop_jpeg",
    "decode_base64",
    "decode_bmp",
    "decode_compressed",
    "decode_csv",
    "decode_gif",
    "decode_image",
    "decode_jpeg",
    "decode_json_example",
    "decode_png",
    "decode_raw",
    "encode_base64",
    "encode_jpeg",
    "encode_png",
    "extract_jpeg_shape",
    "gfile",
    "is_jpeg",
    "match_filenames_once",
    "matching_files",
    "parse_example",
    "parse_sequence_example",
    "parse_single_example",
    "parse_single_sequence_example",
    "parse_tensor",
    "read_file",
    "serialize_tensor",
    "tf_record_iterator",
    "write_file",
    "write_graph",
]
