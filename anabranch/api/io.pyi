from anabranch.api import io_gfile
from anabranch.frontend.arrays.strings import (
    decode_base64 as decode_base64,
    decode_raw as decode_raw,
    encode_base64 as encode_base64,
)
from anabranch.frontend.images.codecs import (
    decode_and_crop_jpeg as decode_and_crop_jpeg,
    decode_bmp as decode_bmp,
    decode_gif as decode_gif,
    decode_image as decode_image,
    decode_jpeg as decode_jpeg,
    encode_jpeg as encode_jpeg,
    extract_jpeg_shape as extract_jpeg_shape,
    is_jpeg as is_jpeg,
)
from anabranch.frontend.images.image import decode_png as decode_png, encode_png as encode_png
from anabranch.frontend.resources.queues import (
    PaddingFIFOQueue as PaddingFIFOQueue,
    PriorityQueue as PriorityQueue,
    QueueBase as QueueBase,
    RandomShuffleQueue as RandomShuffleQueue,
)
from anabranch.frontend.sparse.serialization import (
    deserialize_many_sparse as deserialize_many_sparse,
    serialize_many_sparse as serialize_many_sparse,
    serialize_sparse as serialize_sparse,
)
from anabranch.frontend.storage.encodings import (
    decode_compressed as decode_compressed,
    decode_json_example as decode_json_example,
    parse_tensor as parse_tensor,
    serialize_tensor as serialize_tensor,
)
from anabranch.frontend.storage.graph_io import write_graph as write_graph
from anabranch.frontend.storage.messages import decode_proto as decode_proto, encode_proto as encode_proto
from anabranch.frontend.storage.parsing import (
    FixedLenFeature as FixedLenFeature,
    FixedLenSequenceFeature as FixedLenSequenceFeature,
    SparseFeature as SparseFeature,
    VarLenFeature as VarLenFeature,
    decode_csv as decode_csv,
    matching_files as matching_files,
    parse_example as parse_example,
    parse_single_example as parse_single_example,
    read_file as read_file,
    write_file as write_file,
)
from anabranch.frontend.storage.sequence_examples import (
    parse_sequence_example as parse_sequence_example,
    parse_single_sequence_example as parse_single_sequence_example,
)
from anabranch.io.records import (
    TFRecordCompressionType as TFRecordCompressionType,
    TFRecordOptions as TFRecordOptions,
    TFRecordWriter as TFRecordWriter,
    tf_record_iterator as tf_record_iterator,
)
from anabranch.train.input_producers import match_filenames_once as match_filenames_once

gfile = io_gfile
