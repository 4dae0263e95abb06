from anabranch.frontend.storage.summary import (
    all_v2_summary_ops as all_v2_summary_ops,
    audio as audio,
    get_summary_description as get_summary_description,
    histogram as histogram,
    image as image,
    initialize as initialize,
    merge as merge,
    merge_all as merge_all,
    scalar as scalar,
    tensor_summary as tensor_summary,
    text as text,
)
from anabranch.frontend.storage.summary_writer import FileWriter as FileWriter, FileWriterCache as FileWriterCache
from anabranch.proto.summary_pb2 import (
    Event as Event,
    SessionLog as SessionLog,
    Summary as Summary,
    SummaryDescription as SummaryDescription,
    TaggedRunMetadata as TaggedRunMetadata,
)
