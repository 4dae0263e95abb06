"""Operations on queues, tables, readers and the like: what they do depends on what was done before."""

from __future__ import annotations

from anabranch.testing.op_cases import OpCase

CASES: list[OpCase] = []

TESTED_ELSEWHERE = {
    **dict.fromkeys(
        (
            *("FIFOQueueV2", "PaddingFIFOQueueV2", "PriorityQueueV2", "RandomShuffleQueueV2", "_SelectHandle"),
            *("QueueEnqueueV2", "QueueEnqueueManyV2", "QueueDequeueV2", "QueueDequeueManyV2", "QueueDequeueUpToV2"),
            *("QueueSizeV2", "QueueIsClosedV2", "QueueCloseV2"),
            *("Barrier", "BarrierInsertMany", "BarrierTakeMany", "BarrierClose"),
            *("BarrierReadySize", "BarrierIncompleteSize"),
        ),
        "tests/device/ops/test_queues.py",
    ),
    **dict.fromkeys(
        (
            *("ConditionalAccumulator", "AccumulatorApplyGradient", "AccumulatorTakeGradient"),
            *("AccumulatorSetGlobalStep", "AccumulatorNumAccumulated"),
            *("ResourceConditionalAccumulator", "ResourceAccumulatorApplyGradient", "ResourceAccumulatorTakeGradient"),
            *("ResourceAccumulatorSetGlobalStep", "ResourceAccumulatorNumAccumulated"),
            *("SparseConditionalAccumulator", "SparseAccumulatorApplyGradient", "SparseAccumulatorTakeGradient"),
            *("Stage", "Unstage", "StagePeek", "StageSize", "StageClear"),
            *("MapStage", "MapUnstage", "MapUnstageNoKey", "MapPeek", "MapSize", "MapIncompleteSize", "MapClear"),
            *("OrderedMapStage", "OrderedMapUnstage", "OrderedMapUnstageNoKey", "OrderedMapPeek"),
            *("OrderedMapSize", "OrderedMapIncompleteSize", "OrderedMapClear"),
            *("MutexV2", "MutexLock", "ConsumeMutexLock"),
            *("Stack", "StackPush", "StackPop", "StackClose", "StackV2", "StackPushV2", "StackPopV2", "StackCloseV2"),
            *("AddSparseToTensorsMap", "AddManySparseToTensorsMap", "TakeManySparseFromTensorsMap"),
        ),
        "tests/device/ops/test_staging.py",
    ),
    **dict.fromkeys(
        (
            *("HashTableV2", "MutableHashTableV2", "MutableHashTableOfTensorsV2", "MutableDenseHashTableV2"),
            *("InitializeTableV2", "InitializeTableFromTextFileV2", "LookupTableFindV2", "LookupTableInsertV2"),
            *("LookupTableRemoveV2", "LookupTableImportV2", "LookupTableExportV2", "LookupTableSizeV2"),
        ),
        "tests/device/ops/test_table_operations.py",
    ),
    **dict.fromkeys(
        (
            *("WholeFileReaderV2", "IdentityReaderV2", "TextLineReaderV2", "TFRecordReaderV2"),
            *("FixedLengthRecordReaderV2", "ReaderReadV2", "ReaderReadUpToV2", "ReaderNumRecordsProducedV2"),
            *("ReaderNumWorkUnitsCompletedV2", "ReaderResetV2", "ReaderSerializeStateV2", "ReaderRestoreStateV2"),
        ),
        "tests/device/ops/test_reader_operations.py",
    ),
}
