"""Datasets and iterators, whose values a row of the op table cannot hold: the tests of `tf.data` test them."""

from __future__ import annotations

from anabranch.testing.op_cases import OpCase

CASES: list[OpCase] = []

_SOURCES = """
TensorDataset TensorSliceDataset SparseTensorSliceDataset RangeDataset RandomDataset ExperimentalRandomDataset
GeneratorDataset TextLineDataset _CSVRowDataset TFRecordDataset FixedLengthRecordDataset FixedLengthRecordDatasetV2
MatchingFilesDataset ExperimentalMatchingFilesDataset
"""
_TRANSFORMS = """
TakeDataset SkipDataset RepeatDataset ShardDataset CacheDataset ConcatenateDataset ZipDataset
DirectedInterleaveDataset ExperimentalDirectedInterleaveDataset ShuffleDataset ShuffleAndRepeatDataset BatchDataset
BatchDatasetV2 PaddedBatchDataset PaddedBatchDatasetV2 WindowDataset DenseToSparseBatchDataset
ExperimentalDenseToSparseBatchDataset UnbatchDataset ExperimentalUnbatchDataset UniqueDataset
ExperimentalUniqueDataset IgnoreErrorsDataset ExperimentalIgnoreErrorsDataset ModelDataset OptimizeDataset
DatasetCardinality ExperimentalDatasetCardinality DatasetToSingleElement
"""
_FUNCTIONS = """
MapDataset ParallelMapDataset MapAndBatchDataset ExperimentalMapAndBatchDataset FilterDataset TakeWhileDataset
ExperimentalTakeWhileDataset FlatMapDataset InterleaveDataset ParallelInterleaveDatasetV2 ParallelInterleaveDataset
ExperimentalParallelInterleaveDataset GroupByWindowDataset ExperimentalGroupByWindowDataset ScanDataset
ExperimentalScanDataset ReduceDataset PrefetchDataset
"""
_ITERATORS = """
Iterator IteratorV2 AnonymousIterator AnonymousIteratorV2 DeleteIterator OneShotIterator MakeIterator
IteratorGetNext IteratorGetNextSync IteratorToStringHandle IteratorFromStringHandle IteratorFromStringHandleV2
SerializeIterator DeserializeIterator _IteratorPosition _RestoreIterator OptionalFromValue OptionalNone
OptionalHasValue OptionalGetValue IteratorGetNextAsOptional
"""
_SPARSE = "SerializeSparse SerializeManySparse DeserializeSparse DeserializeManySparse"

TESTED_ELSEWHERE = {
    name: "tests/device/data/test_dataset_ops.py"
    for names in (_SOURCES, _TRANSFORMS, _FUNCTIONS, _ITERATORS, _SPARSE)
    for name in names.split()
}
