from anabranch.contrib.batching import (
    batch_and_drop_remainder as batch_and_drop_remainder,
    padded_batch_and_drop_remainder as padded_batch_and_drop_remainder,
)
from anabranch.contrib.former_datasets import (
    FormerDataset,
    FormerFixedLengthRecordDataset,
    FormerTextLineDataset,
    FormerTFRecordDataset,
)
from anabranch.contrib.older_pipelines import (
    assert_element_shape as assert_element_shape,
    read_batch_features as read_batch_features,
    reduce_dataset as reduce_dataset,
    sliding_window_batch as sliding_window_batch,
    sloppy_interleave as sloppy_interleave,
)
from anabranch.frontend.data.csv import CsvDataset as CsvDataset, make_csv_dataset as make_csv_dataset
from anabranch.frontend.data.databases import SqlDataset as SqlDataset
from anabranch.frontend.data.examples import (
    DatasetRecordWriter,
    make_batched_features_dataset as make_batched_features_dataset,
)
from anabranch.frontend.data.experimental import (
    AUTOTUNE as AUTOTUNE,
    Counter as Counter,
    RandomDataset as RandomDataset,
    Reducer as Reducer,
    bucket_by_sequence_length as bucket_by_sequence_length,
    choose_from_datasets as choose_from_datasets,
    copy_to_device as copy_to_device,
    dense_to_sparse_batch as dense_to_sparse_batch,
    enumerate_dataset as enumerate_dataset,
    get_single_element as get_single_element,
    group_by_reducer as group_by_reducer,
    group_by_window as group_by_window,
    ignore_errors as ignore_errors,
    latency_stats as latency_stats,
    map_and_batch as map_and_batch,
    parallel_interleave as parallel_interleave,
    parse_example_dataset as parse_example_dataset,
    prefetch_to_device as prefetch_to_device,
    sample_from_datasets as sample_from_datasets,
    scan as scan,
    shuffle_and_repeat as shuffle_and_repeat,
    unbatch as unbatch,
    unique as unique,
)
from anabranch.frontend.data.iterators import Iterator as Iterator
from anabranch.frontend.data.optional import Optional as Optional, get_next_as_optional as get_next_as_optional
from anabranch.frontend.data.resampling import rejection_resample as rejection_resample
from anabranch.frontend.data.statistics import StatsAggregator as StatsAggregator
from anabranch.train.iterator_saveables import (
    CheckpointInputPipelineHook as CheckpointInputPipelineHook,
    make_saveable_from_iterator as make_saveable_from_iterator,
)

Dataset = FormerDataset
FixedLengthRecordDataset = FormerFixedLengthRecordDataset
TextLineDataset = FormerTextLineDataset
TFRecordDataset = FormerTFRecordDataset
TFRecordWriter = DatasetRecordWriter
