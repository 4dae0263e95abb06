from anabranch.frontend.data.csv import CsvDataset as CsvDataset, make_csv_dataset as make_csv_dataset
from anabranch.frontend.data.databases import SqlDataset as SqlDataset
from anabranch.frontend.data.examples import (
    DatasetRecordWriter,
    make_batched_features_dataset as make_batched_features_dataset,
)
from anabranch.frontend.data.experimental import (
    AUTOTUNE as AUTOTUNE,
    INFINITE_CARDINALITY as INFINITE_CARDINALITY,
    UNKNOWN_CARDINALITY as UNKNOWN_CARDINALITY,
    Counter as Counter,
    RandomDataset as RandomDataset,
    Reducer as Reducer,
    bucket_by_sequence_length as bucket_by_sequence_length,
    bytes_produced_stats as bytes_produced_stats,
    cardinality as cardinality,
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
    map_and_batch_with_legacy_function as map_and_batch_with_legacy_function,
    parallel_interleave as parallel_interleave,
    parse_example_dataset as parse_example_dataset,
    prefetch_to_device as prefetch_to_device,
    sample_from_datasets as sample_from_datasets,
    scan as scan,
    shuffle_and_repeat as shuffle_and_repeat,
    take_while as take_while,
    to_variant as to_variant,
    unbatch as unbatch,
    unique as unique,
)
from anabranch.frontend.data.optional import Optional as Optional, get_next_as_optional as get_next_as_optional
from anabranch.frontend.data.options import (
    DistributeOptions as DistributeOptions,
    MapVectorizationOptions as MapVectorizationOptions,
    OptimizationOptions as OptimizationOptions,
    StatsOptions as StatsOptions,
    ThreadingOptions as ThreadingOptions,
)
from anabranch.frontend.data.resampling import rejection_resample as rejection_resample
from anabranch.frontend.data.specs import (
    DatasetSpec,
    OptionalSpec,
    from_variant as from_variant,
    get_structure as get_structure,
    ragged_tensor_structure,
    sparse_tensor_structure,
    tensor_array_structure,
    tensor_structure,
)
from anabranch.frontend.data.statistics import StatsAggregator as StatsAggregator
from anabranch.frontend.specs import TypeSpec
from anabranch.train.iterator_saveables import (
    CheckpointInputPipelineHook as CheckpointInputPipelineHook,
    make_saveable_from_iterator as make_saveable_from_iterator,
)

DatasetStructure = DatasetSpec
OptionalStructure = OptionalSpec
RaggedTensorStructure = ragged_tensor_structure
SparseTensorStructure = sparse_tensor_structure
Structure = TypeSpec
TensorArrayStructure = tensor_array_structure
TensorStructure = tensor_structure
TFRecordWriter = DatasetRecordWriter
