from anabranch.compat.contributed_summaries import (
    audio as audio,
    generic as generic,
    graph as graph,
    histogram as histogram,
    image as image,
    scalar as scalar,
)
from anabranch.compat.recorded_summaries import (
    SummaryWriter as SummaryWriter,
    all_summary_ops as all_summary_ops,
    always_record_summaries as always_record_summaries,
    create_file_writer as create_file_writer,
    create_summary_file_writer as create_summary_file_writer,
    flush as flush,
    initialize as initialize,
    never_record_summaries as never_record_summaries,
    record_summaries_every_n_global_steps as record_summaries_every_n_global_steps,
    should_record_summaries as should_record_summaries,
    summary_writer_initializer_op as summary_writer_initializer_op,
)
