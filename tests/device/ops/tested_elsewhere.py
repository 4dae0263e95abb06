"""Operations that a row of the op table cannot hold, and the file of tests that runs each.

They have effects, call functions, or depend on what was done before. `tests/operations_run.py` holds each file to it.
"""

from __future__ import annotations

#: file of tests -> the operation types that it runs
_BY_FILE = {
    "tests/cluster/test_clock_jumps.py": "_MonotonicSeconds",
    "tests/device/data/test_record_input.py": "RecordInput",
    "tests/device/ops/test_copies_ahead.py": "_CopyToDeviceDataset",
    "tests/device/ops/test_batching.py": "Batch BatchFunction Unbatch UnbatchGrad",
    "tests/device/serving/test_saved_model.py": "DisableCopyOnRead",
    "tests/cluster/test_lasting.py": "_AccumulatorTime",
    "tests/cluster/test_sync_replicas.py": "_DequeuesWaiting",
    "tests/cluster/test_replicas.py": """
        _Attend _Attendance _ExpectGradients _HandInGradient _HandInSparseGradient _LatestToken
    """,
    "tests/device/ops/test_growing_loops.py": "_DeviceLoopCount",
    "tests/unit/passes/test_fused_rows.py": "_KeptRows _RowsOrZeros",
    "tests/device/kernels/test_fused_relu.py": "_FusedBatchNormRelu _FusedBatchNormReluGrad "
    "_FusedBatchNormAddRelu _FusedBatchNormAddReluGrad",
    "tests/device/kernels/test_fused_bias.py": "_Conv2DBiasRelu",
    "tests/device/kernels/test_native_maxima.py": "_MaxPoolWithPlaces _MaxPoolGradAtPlaces",
    "tests/cluster/test_mirrors.py": "_AssignNewer _ScatterNewer",
    "tests/cluster/test_elastic.py": """
        _Lease _AskForLease _RangeLeases _AskForRange _ExportRanges _ImportRanges _Membership _RenewMembership
    """,
    "tests/device/data/test_adjustments.py": """
        AnonymousMemoryCache AnonymousRandomSeedGenerator AutoShardDataset CacheDatasetV2 ChooseFastestDataset
        ChooseFastestBranchDataset
        ExperimentalIteratorGetDevice ExperimentalMapDataset FilterByLastComponentDataset IteratorGetDevice MapDefun
        DeleteMemoryCache DeleteRandomSeedGenerator ExperimentalAutoShardDataset ExperimentalChooseFastestDataset
        ExperimentalGroupByReducerDataset ExperimentalMaxIntraOpParallelismDataset
        ExperimentalNonSerializableDataset ExperimentalPrivateThreadPoolDataset ExperimentalRebatchDataset
        ExperimentalSleepDataset ExperimentalSlidingWindowDataset ExperimentalThreadPoolDataset
        ExperimentalThreadPoolHandle GroupByReducerDataset MaxIntraOpParallelismDataset NonSerializableDataset
        PrivateThreadPoolDataset RebatchDataset SamplingDataset ShuffleDatasetV2 SleepDataset
        SlidingWindowDataset ThreadPoolDataset ThreadPoolHandle UnwrapDatasetVariant WrapDatasetVariant
    """,
    "tests/device/data/test_walks_and_statistics.py": """
        AnonymousMultiDeviceIterator AssertNextDataset BytesProducedStatsDataset DeleteMultiDeviceIterator
        ExperimentalAssertNextDataset ExperimentalBytesProducedStatsDataset ExperimentalLatencyStatsDataset
        ExperimentalSetStatsAggregatorDataset ExperimentalStatsAggregatorHandle ExperimentalStatsAggregatorSummary
        LatencyStatsDataset MultiDeviceIterator MultiDeviceIteratorFromStringHandle
        MultiDeviceIteratorGetNextFromShard MultiDeviceIteratorInit MultiDeviceIteratorToStringHandle
        SetStatsAggregatorDataset SnapshotDataset StatsAggregatorHandle StatsAggregatorHandleV2
        StatsAggregatorSetSummaryWriter StatsAggregatorSummary
    """,
    "tests/device/ops/test_collectives.py": """
        CollectiveBcastRecv CollectiveBcastSend CollectiveGather CollectiveReduce
    """,
    "tests/device/ops/test_rare_operations.py": """
        DecodeProtoV2 EncodeProto KMC2ChainInitialization KmeansPlusPlusInitialization NearestNeighbors SdcaFprint
        SdcaOptimizer SdcaOptimizerV2 TensorListPushBackBatch
    """,
    "tests/device/ops/test_stacked_rnn.py": """
        CudnnRNN CudnnRNNBackprop CudnnRNNBackpropV2 CudnnRNNBackpropV3 CudnnRNNCanonicalToParams
        CudnnRNNCanonicalToParamsV2 CudnnRNNParamsSize CudnnRNNParamsToCanonical CudnnRNNParamsToCanonicalV2
        CudnnRNNV2 CudnnRNNV3
    """,
    "tests/device/data/test_record_datasets.py": """
        CSVDataset DatasetToTFRecord ExperimentalCSVDataset ExperimentalDatasetToTFRecord ExperimentalLMDBDataset
        ExperimentalParseExampleDataset ExperimentalSqlDataset LMDBDataset ParseExampleDataset SqlDataset
    """,
    "tests/device/data/test_dataset_ops.py": """
        TensorDataset TensorSliceDataset SparseTensorSliceDataset RangeDataset RandomDataset
        ExperimentalRandomDataset GeneratorDataset TextLineDataset _CSVRowDataset TFRecordDataset
        FixedLengthRecordDataset FixedLengthRecordDatasetV2 MatchingFilesDataset
        ExperimentalMatchingFilesDataset TakeDataset SkipDataset RepeatDataset ShardDataset CacheDataset
        ConcatenateDataset ZipDataset DirectedInterleaveDataset ExperimentalDirectedInterleaveDataset
        ShuffleDataset ShuffleAndRepeatDataset BatchDataset BatchDatasetV2 PaddedBatchDataset
        PaddedBatchDatasetV2 WindowDataset DenseToSparseBatchDataset ExperimentalDenseToSparseBatchDataset
        UnbatchDataset ExperimentalUnbatchDataset UniqueDataset ExperimentalUniqueDataset IgnoreErrorsDataset
        ExperimentalIgnoreErrorsDataset ModelDataset OptimizeDataset DatasetCardinality
        ExperimentalDatasetCardinality DatasetToSingleElement MapDataset ParallelMapDataset MapAndBatchDataset
        ExperimentalMapAndBatchDataset FilterDataset TakeWhileDataset ExperimentalTakeWhileDataset
        FlatMapDataset InterleaveDataset ParallelInterleaveDatasetV2 ParallelInterleaveDataset
        ExperimentalParallelInterleaveDataset GroupByWindowDataset ExperimentalGroupByWindowDataset ScanDataset
        ExperimentalScanDataset ReduceDataset PrefetchDataset Iterator IteratorV2 AnonymousIterator
        AnonymousIteratorV2 DeleteIterator OneShotIterator MakeIterator IteratorGetNext IteratorGetNextSync
        IteratorToStringHandle IteratorFromStringHandle IteratorFromStringHandleV2 SerializeIterator
        DeserializeIterator _IteratorPosition _RestoreIterator OptionalFromValue OptionalNone OptionalHasValue
        OptionalGetValue IteratorGetNextAsOptional SerializeSparse SerializeManySparse DeserializeSparse
        DeserializeManySparse
    """,
    "tests/device/frontend/test_jpeg_quality.py": "EncodeJpegVariableQuality",
    "tests/device/frontend/test_random_generators.py": """
        NonDeterministicInts RngSkip StatefulRandomBinomial StatefulStandardNormal StatefulStandardNormalV2
        StatefulTruncatedNormal StatefulUniform StatefulUniformFullInt StatefulUniformInt
    """,
    "tests/device/frontend/test_ragged.py": "RaggedTensorToVariant RaggedTensorFromVariant",
    "tests/device/frontend/test_recorded_functions.py": """
        CombinedNonMaxSuppression CumulativeLogsumexp NonMaxSuppressionWithOverlaps
        Dequantize FakeQuantWithMinMaxArgs FakeQuantWithMinMaxArgsGradient FakeQuantWithMinMaxVars
        FakeQuantWithMinMaxVarsGradient FakeQuantWithMinMaxVarsPerChannel FakeQuantWithMinMaxVarsPerChannelGradient
        QuantizeAndDequantizeV2 QuantizeAndDequantizeV3 QuantizeV2
    """,
    "tests/device/frontend/test_scaled_images.py": """
        ExtractVolumePatches Fingerprint ScaleAndTranslate ScaleAndTranslateGrad
    """,
    "tests/device/frontend/test_sounds.py": "AudioSpectrogram DecodeWav EncodeWav Mfcc",
    "tests/device/frontend/test_switch_case.py": "Case StatelessCase _DeviceLoopBound",
    "tests/device/frontend/test_while_loop.py": "While StatelessWhile",
    "tests/device/ops/test_boosted_trees.py": """
        BoostedTreesCenterBias BoostedTreesCreateEnsemble BoostedTreesCreateQuantileStreamResource
        BoostedTreesDeserializeEnsemble BoostedTreesEnsembleResourceHandleOp BoostedTreesExampleDebugOutputs
        BoostedTreesFlushQuantileSummaries BoostedTreesGetEnsembleStates BoostedTreesPredict
        BoostedTreesQuantileStreamResourceAddSummaries BoostedTreesQuantileStreamResourceDeserialize
        BoostedTreesQuantileStreamResourceFlush BoostedTreesQuantileStreamResourceGetBucketBoundaries
        BoostedTreesQuantileStreamResourceHandleOp BoostedTreesSerializeEnsemble BoostedTreesTrainingPredict
        BoostedTreesUpdateEnsemble BoostedTreesUpdateEnsembleV2 IsBoostedTreesEnsembleInitialized
        IsBoostedTreesQuantileStreamResourceInitialized
    """,
    "tests/device/ops/test_checkpoint.py": "SaveV2 RestoreV2 MergeV2Checkpoints _SaveTensorBundle",
    "tests/device/ops/test_quantised.py": """
        QuantizeDownAndShrinkRange QuantizedAdd QuantizedAvgPool QuantizedBatchNormWithGlobalNormalization
        QuantizedBiasAdd QuantizedConcat QuantizedConcatV2 QuantizedConv2D QuantizedConv2DAndRelu
        QuantizedConv2DAndReluAndRequantize QuantizedConv2DAndRequantize QuantizedConv2DPerChannel
        QuantizedConv2DWithBias QuantizedConv2DWithBiasAndRelu QuantizedConv2DWithBiasAndReluAndRequantize
        QuantizedConv2DWithBiasAndRequantize QuantizedConv2DWithBiasSignedSumAndReluAndRequantize
        QuantizedConv2DWithBiasSumAndRelu QuantizedConv2DWithBiasSumAndReluAndRequantize
        QuantizedDepthwiseConv2D QuantizedDepthwiseConv2DWithBias QuantizedDepthwiseConv2DWithBiasAndRelu
        QuantizedDepthwiseConv2DWithBiasAndReluAndRequantize QuantizedInstanceNorm QuantizedMatMul
        QuantizedMatMulWithBias QuantizedMatMulWithBiasAndRelu QuantizedMatMulWithBiasAndReluAndRequantize
        QuantizedMatMulWithBiasAndRequantize QuantizedMaxPool QuantizedMul QuantizedRelu QuantizedRelu6
        QuantizedReluX QuantizedReshape QuantizedResizeBilinear RequantizationRange
        RequantizationRangePerChannel Requantize RequantizePerChannel
    """,
    "tests/device/ops/test_recorded_nn.py": """
        BlockLSTM BlockLSTMGrad BlockLSTMGradV2 BlockLSTMV2 GRUBlockCell GRUBlockCellGrad LSTMBlockCell
        LSTMBlockCellGrad FractionalAvgPoolGrad FractionalMaxPoolGrad
        FusedPadConv2D FusedResizeAndPadConv2D
    """,
    "tests/device/ops/test_fractional_pool.py": """
        Conv3DBackpropFilter Conv3DBackpropInput FractionalAvgPool FractionalMaxPool
    """,
    "tests/device/ops/test_control_flow.py": "If StatelessIf _BranchValues FakeParam",
    "tests/device/ops/test_memory_regions.py": """
        ImmutableConst LearnedUnigramCandidateSampler ThreadUnsafeUnigramCandidateSampler
    """,
    "tests/device/ops/test_queues.py": """
        FIFOQueueV2 PaddingFIFOQueueV2 PriorityQueueV2 RandomShuffleQueueV2 _SelectHandle QueueEnqueueV2
        QueueEnqueueManyV2 QueueDequeueV2 QueueDequeueManyV2 QueueDequeueUpToV2 QueueSizeV2 QueueIsClosedV2
        QueueCloseV2 Barrier BarrierInsertMany BarrierTakeMany BarrierClose BarrierReadySize
        BarrierIncompleteSize
    """,
    "tests/device/ops/test_reader_operations.py": """
        _LMDBReader WholeFileReaderV2 IdentityReaderV2 TextLineReaderV2 TFRecordReaderV2 FixedLengthRecordReaderV2
        ReaderReadV2 ReaderReadUpToV2 ReaderNumRecordsProducedV2 ReaderNumWorkUnitsCompletedV2 ReaderResetV2
        ReaderSerializeStateV2 ReaderRestoreStateV2
    """,
    "tests/device/ops/test_script.py": "EagerPyFunc PyFunc PyFuncStateless",
    "tests/device/ops/test_staging.py": """
        ConditionalAccumulator AccumulatorApplyGradient AccumulatorTakeGradient AccumulatorSetGlobalStep
        AccumulatorNumAccumulated ResourceConditionalAccumulator ResourceAccumulatorApplyGradient
        ResourceAccumulatorTakeGradient ResourceAccumulatorSetGlobalStep ResourceAccumulatorNumAccumulated
        SparseConditionalAccumulator SparseAccumulatorApplyGradient SparseAccumulatorTakeGradient Stage Unstage
        StagePeek StageSize StageClear MapStage MapUnstage MapUnstageNoKey MapPeek MapSize MapIncompleteSize
        MapClear OrderedMapStage OrderedMapUnstage OrderedMapUnstageNoKey OrderedMapPeek OrderedMapSize
        OrderedMapIncompleteSize OrderedMapClear MutexV2 MutexLock ConsumeMutexLock Stack StackPush StackPop
        StackClose StackV2 StackPushV2 StackPopV2 StackCloseV2 AddSparseToTensorsMap AddManySparseToTensorsMap
        TakeManySparseFromTensorsMap
    """,
    "tests/device/ops/test_state.py": """
        VarHandleOp ReadVariableOp AssignVariableOp AssignAddVariableOp AssignSubVariableOp VarIsInitializedOp
        VariableShape DestroyResourceOp ResourceCountUpTo ResourceGather ResourceGatherNd ResourceScatterUpdate
        ResourceScatterAdd ResourceScatterSub ResourceScatterMul ResourceScatterDiv ResourceScatterMin
        ResourceScatterMax ResourceScatterNdUpdate ResourceScatterNdAdd ResourceScatterNdSub
        ResourceScatterNdMin ResourceScatterNdMax
    """,
    "tests/device/test_session_tensors.py": "GetSessionHandle GetSessionHandleV2 GetSessionTensor DeleteSessionTensor",
    "tests/device/train/test_older_checkpoints.py": "Save SaveSlices Restore RestoreSlice",
    "tests/device/ops/test_summary_writers.py": """
        CreateSummaryDbWriter SummaryWriter CreateSummaryFileWriter FlushSummaryWriter CloseSummaryWriter WriteSummary
        WriteScalarSummary
        WriteHistogramSummary WriteImageSummary WriteAudioSummary WriteGraphSummary WriteRawProtoSummary ImportEvent
    """,
    "tests/device/ops/test_table_operations.py": """
        HashTableV2 MutableHashTableV2 MutableHashTableOfTensorsV2 MutableDenseHashTableV2 InitializeTableV2
        InitializeTableFromTextFileV2 LookupTableFindV2 LookupTableInsertV2 LookupTableRemoveV2
        LookupTableImportV2 LookupTableExportV2 LookupTableSizeV2
    """,
    "tests/device/ops/test_tensor_arrays.py": """
        TensorArrayV3 TensorArrayGradV3 TensorArrayGradWithShape TensorArrayWriteV3 TensorArrayReadV3
        TensorArrayGatherV3 TensorArrayScatterV3 TensorArrayConcatV3 TensorArraySplitV3 TensorArraySizeV3
        TensorArrayCloseV3
    """,
    "tests/device/ops/test_tensor_list.py": "_RecordingWhile _LoopRecords _LoopBound",
    "tests/device/ops/test_training.py": """
        ResourceApplyAdadelta ResourceApplyAdagrad ResourceApplyAdagradDA ResourceApplyAdagradV2
        ResourceApplyCenteredRMSProp ResourceApplyFtrl ResourceApplyFtrlV2 ResourceApplyKerasMomentum
        ResourceApplyMomentum ResourceApplyProximalAdagrad ResourceApplyProximalGradientDescent
        ResourceApplyRMSProp ResourceApplyAdaMax ResourceApplyAdam ResourceApplyAdamWithAmsgrad
        ResourceApplyAddSign ResourceApplyGradientDescent ResourceApplyPowerSign ResourceSparseApplyAdadelta
        ResourceSparseApplyAdagrad ResourceSparseApplyAdagradDA ResourceSparseApplyAdagradV2
        ResourceSparseApplyCenteredRMSProp ResourceSparseApplyFtrl ResourceSparseApplyFtrlV2
        ResourceSparseApplyKerasMomentum ResourceSparseApplyMomentum ResourceSparseApplyProximalAdagrad
        ResourceSparseApplyProximalGradientDescent ResourceSparseApplyRMSProp
    """,
    "tests/device/runtime/test_control_flow_primitives.py": """
        Switch Merge Enter Exit NextIteration LoopCond ControlTrigger Abort RefSwitch RefMerge RefEnter RefExit
        RefNextIteration _Gate _RecordStart _RecordAdd _RecordEnd
    """,
    "tests/device/test_devices.py": "_Send _Recv",
    "tests/device/test_session.py": "Placeholder",
    "tests/device/test_slices.py": "ResourceStridedSliceAssign",
    "tests/device/train/test_growing_tables.py": """
        _RowDirectory _SplitKeys _FindRows _GatherFoundRows _AttachSlot _EvictRows _CountRows _ExportRows _ImportRows
        _ResourceSparseApplyAdam
    """,
    "tests/device/train/test_warm_start.py": "GenerateVocabRemapping LoadAndRemapMatrix",
    "tests/unit/frontend/test_array.py": "PlaceholderV2 PlaceholderWithDefault",
    "tests/device/train/test_optimizers.py": "NoOp",
    "tests/device/contrib/test_devices.py": "_BytesInUse _BytesLimit _MaxBytesInUse",
    "tests/unit/frontend/test_checks.py": "Print PrintV2 Timestamp",
}

#: operation type -> the file of tests that runs it
TESTED_ELSEWHERE = {name: path for path, names in _BY_FILE.items() for name in names.split()}
