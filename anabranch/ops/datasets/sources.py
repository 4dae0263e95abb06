"""Datasets that begin a pipeline: tensors, ranges, generators, files (WP4.5).

The value of a variant tensor that stands for a dataset is a `state.datasets.Elements`. Kernels only make these objects;
elements are computed when an iterator asks for them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from anabranch.core.arrays import Array
from anabranch.core.attrs import FuncAttr
from anabranch.core.kernel_context import OperationContext
from anabranch.core.shapes import TensorShape
from anabranch.core.values import TensorValue
from anabranch.errors import InvalidArgumentError, OpError
from anabranch.graph.building import OpFunction, define_op
from anabranch.graph.kernel_contexts import StepHostContext
from anabranch.ops import shape_rules
from anabranch.ops.datasets.element_functions import FunctionOfElements
from anabranch.state import dataset_files
from anabranch.state.datasets import (
    Elements,
    GeneratorDataset as _Generator,
    ListDataset,
    RandomNumbers,
    RangeDataset as _Range,
    SparseTensorSliceDataset as _SparseSlices,
    TensorSliceDataset as _Slices,
)

TYPED = "output_types: list(type) >= 1, output_shapes: list(shape) >= 1"


#: arguments of datasets that are one number each
_NUMBERS: Final = frozenset(
    ("batch_size", "block_length", "buffer_size", "count", "cycle_length", "index", "num_parallel_calls", "num_shards")
    + ("seed", "seed2", "shift", "size", "start", "step", "stop", "stride")
)


def define_dataset(name: str, signature: str, attrs: str = TYPED, stateful: bool = False) -> OpFunction:
    """An operation whose result is a dataset."""
    op = define_op(name, f"{signature} -> handle: variant", attrs, stateful=stateful, defers_bodies=True)
    numbers = [(i, arg.name) for i, arg in enumerate(op.inputs) if arg.name in _NUMBERS]

    def scalar_of_scalars(*inputs: TensorShape) -> TensorShape:
        for i, argument in numbers:
            shape_rules.with_rank(inputs[i], 0, f"argument {argument!r}")
        return shape_rules.SCALAR

    op.shape(scalar_of_scalars)
    op.not_differentiable()
    return op


def dataset_of(value: TensorValue, ctx: OperationContext) -> Elements:
    """The dataset that a variant tensor holds.

    Raises:
        InvalidArgumentError: it holds something else.
    """
    dataset = value.item() if isinstance(value, np.ndarray) and value.shape == () else value
    if not isinstance(dataset, Elements):
        message = f"{ctx.op.type} takes a dataset, but its input holds {type(dataset).__name__}"
        raise InvalidArgumentError(None, ctx.op, message)
    return dataset


def made_by(dataset: Elements, ctx: OperationContext) -> Elements:
    """The dataset, which from now on names the operation that made it."""
    dataset.origin = ctx.op
    return dataset


def function_of(ctx: StepHostContext, function: FuncAttr, captured: Sequence[Any]) -> FunctionOfElements:
    """The function of an attribute, with the values of its captured inputs."""
    return FunctionOfElements(ctx, ctx.op.function(function.name), captured)


# ---------------------------------------------------------------------- tensors
_COMPONENTS = "Toutput_types: list(type) >= 1, output_shapes: list(shape) >= 1"
TensorDataset = define_dataset("TensorDataset", "components: Toutput_types", _COMPONENTS, stateful=True)
TensorSliceDataset = define_dataset("TensorSliceDataset", "components: Toutput_types", _COMPONENTS, stateful=True)
SparseTensorSliceDataset = define_dataset(
    "SparseTensorSliceDataset", "indices: int64, values: Tvalues, dense_shape: int64", "Tvalues: any", stateful=True
)


@TensorDataset.host_kernel
def _(components: list[Any], *, ctx: OperationContext) -> Elements:
    return made_by(ListDataset([tuple(components)]), ctx)


@TensorSliceDataset.host_kernel
def _(components: list[Any], *, ctx: OperationContext) -> Elements:
    return made_by(_Slices(components), ctx)


@SparseTensorSliceDataset.host_kernel
def _(indices: Array, values: Array, dense_shape: Array, *, ctx: OperationContext) -> Elements:
    return made_by(_SparseSlices(indices, values, dense_shape), ctx)


RangeDataset = define_dataset("RangeDataset", "start: int64, stop: int64, step: int64", stateful=True)


@RangeDataset.host_kernel
def _(start: Array, stop: Array, step: Array, *, output_types: list[Any], ctx: OperationContext) -> Elements:
    return made_by(_Range(int(start), int(stop), int(step), output_types[0].as_numpy_dtype), ctx)


def _random(seed: Array, seed2: Array, *, ctx: OperationContext) -> Elements:
    words = random_seeds(seed, seed2)
    return made_by(RandomNumbers(words[0] << 32 ^ words[1]), ctx)


def random_seeds(seed: Array, seed2: Array) -> tuple[int, int]:
    """Two seeds; where both are zero, ones that nobody knows."""
    if int(seed) == 0 and int(seed2) == 0:
        drawn = np.random.SeedSequence().generate_state(2)
        return int(drawn[0]), int(drawn[1])
    return int(seed), int(seed2)


for _name in ("RandomDataset", "ExperimentalRandomDataset"):
    define_dataset(_name, "seed: int64, seed2: int64", stateful=True).host_kernel(_random)


# ---------------------------------------------------------------------- generators
GeneratorDataset = define_dataset(
    "GeneratorDataset",
    "init_func_other_args: Tinit_func_args, next_func_other_args: Tnext_func_args, "
    "finalize_func_other_args: Tfinalize_func_args",
    "init_func: func, next_func: func, finalize_func: func, Tinit_func_args: list(type) >= 0, "
    f"Tnext_func_args: list(type) >= 0, Tfinalize_func_args: list(type) >= 0, {TYPED}",
    stateful=True,
)


@GeneratorDataset.host_kernel
def _(
    init_func_other_args: list[Any],
    next_func_other_args: list[Any],
    finalize_func_other_args: list[Any],
    *,
    init_func: FuncAttr,
    next_func: FuncAttr,
    finalize_func: FuncAttr,
    ctx: StepHostContext,
) -> Elements:
    start = function_of(ctx, init_func, init_func_other_args)
    step = function_of(ctx, next_func, next_func_other_args)
    finish = function_of(ctx, finalize_func, finalize_func_other_args)
    return made_by(_Generator(start, step, finish), ctx)


# ---------------------------------------------------------------------- files
TextLineDataset = define_dataset(
    "TextLineDataset", "filenames: string, compression_type: string, buffer_size: int64", "", stateful=True
)
TFRecordDataset = define_dataset(
    "TFRecordDataset", "filenames: string, compression_type: string, buffer_size: int64", "", stateful=True
)
CSVRowDataset = define_dataset(
    "_CSVRowDataset",
    "filenames: string, compression_type: string, buffer_size: int64",
    "field_delim: string = ','",
    stateful=True,
)
_FIXED = "filenames: string, header_bytes: int64, record_bytes: int64, footer_bytes: int64, buffer_size: int64"
FixedLengthRecordDataset = define_dataset("FixedLengthRecordDataset", _FIXED, "", stateful=True)
FixedLengthRecordDatasetV2 = define_dataset(
    "FixedLengthRecordDatasetV2", f"{_FIXED}, compression_type: string", "", stateful=True
)


def compression_of(value: TensorValue, ctx: OperationContext) -> str:
    """How files are compressed, by the name that a tensor holds."""
    compression: str = value.item().decode()
    if compression not in ("", "GZIP", "ZLIB"):
        raise InvalidArgumentError(
            None, ctx.op, f"Unsupported compression_type: {compression!r}; use 'GZIP', 'ZLIB' or ''."
        )
    return compression


@TextLineDataset.host_kernel
def _(filenames: Array, compression_type: Array, buffer_size: Array, *, ctx: OperationContext) -> Elements:
    names, compression = dataset_files.file_names(filenames), compression_of(compression_type, ctx)
    return made_by(dataset_files.line_dataset(names, compression, int(buffer_size)), ctx)


@CSVRowDataset.host_kernel
def _(
    filenames: Array, compression_type: Array, buffer_size: Array, *, field_delim: bytes, ctx: OperationContext
) -> Elements:
    names, compression = dataset_files.file_names(filenames), compression_of(compression_type, ctx)
    return made_by(dataset_files.row_dataset(names, field_delim, compression, int(buffer_size)), ctx)


@TFRecordDataset.host_kernel
def _(filenames: Array, compression_type: Array, buffer_size: Array, *, ctx: OperationContext) -> Elements:
    names, compression = dataset_files.file_names(filenames), compression_of(compression_type, ctx)
    return made_by(dataset_files.record_dataset(names, compression, int(buffer_size)), ctx)


def _fixed(
    filenames: Array,
    header: Array,
    record: Array,
    footer: Array,
    buffer_size: Array,
    compression: str,
    ctx: OperationContext,
) -> Any:
    for name, value, least in (("header_bytes", header, 0), ("record_bytes", record, 1), ("footer_bytes", footer, 0)):
        if int(value) < least:
            raise InvalidArgumentError(None, ctx.op, f"`{name}` must be at least {least}, got {int(value)}")
    names = dataset_files.file_names(filenames)
    return made_by(
        dataset_files.fixed_length_dataset(names, int(record), int(header), int(footer), int(buffer_size), compression),
        ctx,
    )


@FixedLengthRecordDataset.host_kernel
def _(
    filenames: Array,
    header_bytes: Array,
    record_bytes: Array,
    footer_bytes: Array,
    buffer_size: Array,
    *,
    ctx: OperationContext,
) -> Any:
    return _fixed(filenames, header_bytes, record_bytes, footer_bytes, buffer_size, "", ctx)


@FixedLengthRecordDatasetV2.host_kernel
def _(
    filenames: Array,
    header_bytes: Array,
    record_bytes: Array,
    footer_bytes: Array,
    buffer_size: Array,
    compression_type: Array,
    *,
    ctx: OperationContext,
) -> Any:
    compression = compression_of(compression_type, ctx)
    return _fixed(filenames, header_bytes, record_bytes, footer_bytes, buffer_size, compression, ctx)


def _matching_files(patterns: Array, *, ctx: OperationContext) -> Elements:
    try:
        return made_by(dataset_files.matching_files([p.decode() for p in patterns.reshape(-1).tolist()]), ctx)
    except OpError as error:
        error.attribute_to(ctx.op)
        raise


for _name in ("MatchingFilesDataset", "ExperimentalMatchingFilesDataset"):
    define_dataset(_name, "patterns: string", "", stateful=True).host_kernel(_matching_files)
