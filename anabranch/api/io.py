"""`tf.io`."""

from __future__ import annotations

from anabranch.api import io_gfile as gfile
from anabranch.frontend.graph_io import write_graph
from anabranch.frontend.image import decode_png, encode_png
from anabranch.frontend.image_codecs import decode_jpeg, encode_jpeg
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
from anabranch.frontend.strings import decode_base64, decode_raw, encode_base64
from anabranch.io.records import TFRecordCompressionType, TFRecordOptions, TFRecordWriter, tf_record_iterator

__all__ = [
    "FixedLenFeature",
    "FixedLenSequenceFeature",
    "TFRecordCompressionType",
    "TFRecordOptions",
    "TFRecordWriter",
    "VarLenFeature",
    "decode_base64",
    "decode_csv",
    "decode_jpeg",
    "decode_png",
    "decode_raw",
    "encode_base64",
    "encode_jpeg",
    "encode_png",
    "gfile",
    "matching_files",
    "parse_example",
    "parse_single_example",
    "read_file",
    "tf_record_iterator",
    "write_file",
    "write_graph",
]
