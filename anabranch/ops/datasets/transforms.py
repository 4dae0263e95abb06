"""Datasets made from other datasets: take, repeat, shuffle, batch, ... (WP4.5)."""

from __future__ import annotations

from typing import Any

from anabranch.core.arrays import Array
from anabranch.core.kernel_context import OperationContext
from anabranch.core.shapes import TensorShape
from anabranch.errors import InvalidArgumentError
from anabranch.graph.building import define_op
from anabranch.ops import shape_rules
from anabranch.ops.datasets.sources import TYPED, dataset_of, define_dataset, made_by, random_seeds
from anabranch.state import dataset_batches as batches, dataset_files as files, dataset_transforms as transforms
from anabranch.state.datasets import Elements

TakeDataset = define_dataset("TakeDataset", "input_dataset: variant, count: int64")


@TakeDataset.host_kernel
def _(input_dataset: Array, count: Array, *, ctx: OperationContext) -> Elements:
    source = dataset_of(input_dataset, ctx)
    return made_by(transforms.TakeDataset(source, int(count)), ctx)


SkipDataset = define_dataset("SkipDataset", "input_dataset: variant, count: int64")


@SkipDataset.host_kernel
def _(input_dataset: Array, count: Array, *, ctx: OperationContext) -> Elements:
    source = dataset_of(input_dataset, ctx)
    return made_by(transforms.SkipDataset(source, int(count)), ctx)


RepeatDataset = define_dataset("RepeatDataset", "input_dataset: variant, count: int64")


@RepeatDataset.host_kernel
def _(input_dataset: Array, count: Array, *, ctx: OperationContext) -> Elements:
    source = dataset_of(input_dataset, ctx)
    return made_by(transforms.RepeatDataset(source, int(count)), ctx)


ShardDataset = define_dataset("ShardDataset", "input_dataset: variant, num_shards: int64, index: int64")


@ShardDataset.host_kernel
def _(input_dataset: Array, num_shards: Array, index: Array, *, ctx: OperationContext) -> Elements:
    source = dataset_of(input_dataset, ctx)
    return made_by(transforms.ShardDataset(source, int(num_shards), int(index)), ctx)


CacheDataset = define_dataset("CacheDataset", "input_dataset: variant, filename: string")


@CacheDataset.host_kernel
def _(input_dataset: Array, filename: Array, *, ctx: OperationContext) -> Elements:
    source, name = dataset_of(input_dataset, ctx), filename.item().decode()
    return made_by(files.FileCacheDataset(source, name) if name else transforms.CacheDataset(source), ctx)


# ---------------------------------------------------------------------- several datasets
ConcatenateDataset = define_dataset("ConcatenateDataset", "input_dataset: variant, another_dataset: variant")


@ConcatenateDataset.host_kernel
def _(input_dataset: Array, another_dataset: Array, *, ctx: OperationContext) -> Elements:
    sources = [dataset_of(input_dataset, ctx), dataset_of(another_dataset, ctx)]
    return made_by(transforms.ConcatenateDataset(sources), ctx)


ZipDataset = define_dataset("ZipDataset", "input_datasets: N * variant", f"{TYPED}, N: int >= 1")


@ZipDataset.host_kernel
def _(input_datasets: list[Any], *, ctx: OperationContext) -> Elements:
    return made_by(transforms.ZipDataset([dataset_of(d, ctx) for d in input_datasets]), ctx)


def _directed(selector_input_dataset: Array, data_input_datasets: list[Any], *, ctx: OperationContext) -> Elements:
    selector, sources = dataset_of(selector_input_dataset, ctx), [dataset_of(d, ctx) for d in data_input_datasets]
    stop = ctx.op.attrs.get("stop_on_empty_dataset", False)
    return made_by(transforms.DirectedInterleaveDataset(selector, sources, stop), ctx)


_DIRECTED = "selector_input_dataset: variant, data_input_datasets: N * variant"
DirectedInterleaveDataset = define_dataset(
    "DirectedInterleaveDataset", _DIRECTED, f"{TYPED}, N: int >= 1, stop_on_empty_dataset: bool = False"
)
ExperimentalDirectedInterleaveDataset = define_dataset(
    "ExperimentalDirectedInterleaveDataset", _DIRECTED, f"{TYPED}, N: int >= 1"
)
DirectedInterleaveDataset.host_kernel(_directed)
ExperimentalDirectedInterleaveDataset.host_kernel(_directed)

# ---------------------------------------------------------------------- order
ShuffleDataset = define_dataset(
    "ShuffleDataset",
    "input_dataset: variant, buffer_size: int64, seed: int64, seed2: int64",
    f"reshuffle_each_iteration: bool = True, {TYPED}",
)
ShuffleAndRepeatDataset = define_dataset(
    "ShuffleAndRepeatDataset",
    "input_dataset: variant, buffer_size: int64, seed: int64, seed2: int64, count: int64",
    f"{TYPED}, reshuffle_each_iteration: bool = True",
)


def _shuffled(
    input_dataset: Array, buffer_size: Array, seed: Array, seed2: Array, reshuffle: bool, ctx: OperationContext
) -> Elements:
    source, seeds = dataset_of(input_dataset, ctx), random_seeds(seed, seed2)
    return made_by(transforms.ShuffleDataset(source, int(buffer_size), seeds, reshuffle), ctx)


@ShuffleDataset.host_kernel
def _(
    input_dataset: Array,
    buffer_size: Array,
    seed: Array,
    seed2: Array,
    *,
    reshuffle_each_iteration: bool,
    ctx: OperationContext,
) -> Elements:
    return _shuffled(input_dataset, buffer_size, seed, seed2, reshuffle_each_iteration, ctx)


@ShuffleAndRepeatDataset.host_kernel
def _(
    input_dataset: Array,
    buffer_size: Array,
    seed: Array,
    seed2: Array,
    count: Array,
    *,
    reshuffle_each_iteration: bool,
    ctx: OperationContext,
) -> Elements:
    if int(count) < 1 and int(count) != -1:
        raise InvalidArgumentError(None, ctx.op, f"count must be greater than zero or equal to -1, got {int(count)}.")
    shuffled = _shuffled(input_dataset, buffer_size, seed, seed2, reshuffle_each_iteration, ctx)
    return made_by(transforms.RepeatDataset(shuffled, int(count)), ctx)


# ---------------------------------------------------------------------- together and apart
BatchDataset = define_dataset("BatchDataset", "input_dataset: variant, batch_size: int64")
BatchDatasetV2 = define_dataset(
    "BatchDatasetV2",
    "input_dataset: variant, batch_size: int64, drop_remainder: bool",
    f"parallel_copy: bool = False, {TYPED}",
)


@BatchDataset.host_kernel
def _(input_dataset: Array, batch_size: Array, *, ctx: OperationContext) -> Elements:
    return made_by(batches.BatchDataset(dataset_of(input_dataset, ctx), int(batch_size), False), ctx)


@BatchDatasetV2.host_kernel
def _(input_dataset: Array, batch_size: Array, drop_remainder: Array, *, ctx: OperationContext) -> Elements:
    source = dataset_of(input_dataset, ctx)
    return made_by(batches.BatchDataset(source, int(batch_size), bool(drop_remainder)), ctx)


_PADDED = (
    "input_dataset: variant, batch_size: int64, padded_shapes: N * int64, padding_values: Toutput_types",
    "Toutput_types: list(type) >= 1, output_shapes: list(shape) >= 1, N: int >= 1",
)
PaddedBatchDataset = define_dataset("PaddedBatchDataset", *_PADDED)
PaddedBatchDatasetV2 = define_dataset(
    "PaddedBatchDatasetV2", f"{_PADDED[0]}, drop_remainder: bool", f"parallel_copy: bool = False, {_PADDED[1]}"
)


def _padded(
    source: Array, size: Array, shapes: list[Any], padding: list[Any], drop_remainder: bool, ctx: OperationContext
) -> Elements:
    for value in padding:
        if value.shape != ():
            message = f"All padding values must be scalars, but there is one of shape {list(value.shape)}"
            raise InvalidArgumentError(None, ctx.op, message)
    fill = [value[()] for value in padding]
    dataset = batches.PaddedBatchDataset(dataset_of(source, ctx), int(size), shapes, fill, drop_remainder)
    return made_by(dataset, ctx)


@PaddedBatchDataset.host_kernel
def _(
    input_dataset: Array,
    batch_size: Array,
    padded_shapes: list[Any],
    padding_values: list[Any],
    *,
    ctx: OperationContext,
) -> Elements:
    return _padded(input_dataset, batch_size, padded_shapes, padding_values, False, ctx)


@PaddedBatchDatasetV2.host_kernel
def _(
    input_dataset: Array,
    batch_size: Array,
    padded_shapes: list[Any],
    padding_values: list[Any],
    drop_remainder: Array,
    *,
    ctx: OperationContext,
) -> Elements:
    return _padded(input_dataset, batch_size, padded_shapes, padding_values, bool(drop_remainder), ctx)


WindowDataset = define_dataset(
    "WindowDataset", "input_dataset: variant, size: int64, shift: int64, stride: int64, drop_remainder: bool"
)


@WindowDataset.host_kernel
def _(
    input_dataset: Array, size: Array, shift: Array, stride: Array, drop_remainder: Array, *, ctx: OperationContext
) -> Elements:
    source = dataset_of(input_dataset, ctx)
    return made_by(batches.WindowDataset(source, int(size), int(shift), int(stride), bool(drop_remainder)), ctx)


def _dense_to_sparse(input_dataset: Array, batch_size: Array, row_shape: Array, *, ctx: OperationContext) -> Elements:
    source = dataset_of(input_dataset, ctx)
    return made_by(batches.DenseToSparseBatchDataset(source, int(batch_size), row_shape.tolist()), ctx)


def _unbatch(input_dataset: Array, *, ctx: OperationContext) -> Elements:
    return made_by(batches.UnbatchDataset(dataset_of(input_dataset, ctx)), ctx)


def _unique(input_dataset: Array, *, ctx: OperationContext) -> Elements:
    return made_by(transforms.UniqueDataset(dataset_of(input_dataset, ctx)), ctx)


def _ignore_errors(input_dataset: Array, *, ctx: OperationContext) -> Elements:
    return made_by(transforms.IgnoreErrorsDataset(dataset_of(input_dataset, ctx)), ctx)


def _as_it_is(input_dataset: Array, *, ctx: OperationContext) -> Elements:
    """What only tunes TensorFlow's own runtime leaves the elements as they are."""
    return dataset_of(input_dataset, ctx)


_LOG = f"{TYPED}, log_warning: bool = False"
for _prefix in ("", "Experimental"):
    define_dataset(
        f"{_prefix}DenseToSparseBatchDataset", "input_dataset: variant, batch_size: int64, row_shape: int64"
    ).host_kernel(_dense_to_sparse)
    define_dataset(f"{_prefix}UnbatchDataset", "input_dataset: variant").host_kernel(_unbatch)
    define_dataset(f"{_prefix}UniqueDataset", "input_dataset: variant").host_kernel(_unique)
    define_dataset(f"{_prefix}IgnoreErrorsDataset", "input_dataset: variant", _LOG).host_kernel(_ignore_errors)

define_dataset(
    "ModelDataset",
    "input_dataset: variant",
    f"algorithm: int = 0, cpu_budget: int = 0, ram_budget: int = 0, {TYPED}",
).host_kernel(_as_it_is)


@define_dataset(
    "OptimizeDataset",
    "input_dataset: variant, optimizations: string",
    f"{TYPED}, optimization_configs: list(string) = []",
).host_kernel
def _(input_dataset: Array, optimizations: Array, *, ctx: OperationContext) -> Elements:
    return dataset_of(input_dataset, ctx)


# ---------------------------------------------------------------------- questions
def _cardinality(input_dataset: Array, *, ctx: OperationContext) -> int:
    return dataset_of(input_dataset, ctx).cardinality()


for _name in ("DatasetCardinality", "ExperimentalDatasetCardinality"):
    _op = define_op(_name, "input_dataset: variant -> cardinality: int64")
    _op.shape(shape_rules.scalar)
    _op.host_kernel(_cardinality)
    _op.not_differentiable()

DatasetToSingleElement = define_op(
    "DatasetToSingleElement", "dataset: variant -> components: output_types", TYPED, stateful=True
)
DatasetToSingleElement.not_differentiable()


@DatasetToSingleElement.shape
def _(dataset: TensorShape, *, output_shapes: list[TensorShape]) -> list[TensorShape]:
    return output_shapes


@DatasetToSingleElement.host_kernel
def _(dataset: Array, *, ctx: OperationContext) -> Any:
    iterator = dataset_of(dataset, ctx).iterator()
    try:
        first = iterator.next()
        if first is None:
            raise InvalidArgumentError(None, ctx.op, "Dataset was empty.")
        if iterator.next() is not None:
            raise InvalidArgumentError(None, ctx.op, "Dataset had more than one element.")
    finally:
        iterator.close()
    return list(first)
