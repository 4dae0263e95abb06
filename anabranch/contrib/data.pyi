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
from anabranch.frontend.data.experimental import (
    AUTOTUNE as AUTOTUNE,
    Counter as Counter,
    RandomDataset as RandomDataset,
    Reducer as Reducer,
    bucket_by_sequence_length as bucket_by_sequence_length,
    choose_from_datasets as choose_from_datasets,
    dense_to_sparse_batch as dense_to_sparse_batch,
    enumerate_dataset as enumerate_dataset,
    get_single_element as get_single_element,
    group_by_reducer as group_by_reducer,
    group_by_window as group_by_window,
    ignore_errors as ignore_errors,
    map_and_batch as map_and_batch,
    parallel_interleave as parallel_interleave,
    prefetch_to_device as prefetch_to_device,
    sample_from_datasets as sample_from_datasets,
    scan as scan,
    shuffle_and_repeat as shuffle_and_repeat,
    unbatch as unbatch,
    unique as unique,
)
from anabranch.frontend.data.iterators import Iterator as Iterator
from anabranch.train.iterator_saveables import make_saveable_from_iterator as make_saveable_from_iterator

Dataset = FormerDataset
FixedLengthRecordDataset = FormerFixedLengthRecordDataset
TextLineDataset = FormerTextLineDataset
TFRecordDataset = FormerTFRecordDataset
