"""`tf.io`."""

from __future__ import annotations

from anabranch.api import io_gfile as gfile
from anabranch.frontend.graph_io import write_graph
from anabranch.frontend.image import decode_png, encode_png
from anabranch.frontend.strings import decode_base64, decode_raw, encode_base64
from anabranch.io.records import TFRecordCompressionType, TFRecordOptions, TFRecordWriter, tf_record_iterator

__all__ = [
    "TFRecordCompressionType",
    "TFRecordOptions",
    "TFRecordWriter",
    "decode_base64",
    "decode_png",
    "decode_raw",
    "encode_base64",
    "encode_png",
    "gfile",
    "tf_record_iterator",
    "write_graph",
]
