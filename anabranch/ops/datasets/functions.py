"""Datasets that call functions, or compute ahead: map, filter, interleave, scan, reduce, prefetch, ... (WP4.5)."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np

from anabranch.core.arrays import Array, boxed
from anabranch.core.attrs import FuncAttr
from anabranch.core.dtypes import DType
from anabranch.core.kernel_context import OperationContext
from anabranch.core.shapes import TensorShape
from anabranch.errors import InvalidArgumentError
from anabranch.graph.building import define_op
from anabranch.graph.kernel_contexts import StepHostContext
from anabranch.ops import shape_rules
from anabranch.ops.datasets.sources import TYPED, dataset_of, define_dataset, function_of, made_by
from anabranch.ops.datasets.threads import ThreadBackground
from anabranch.state import dataset_background as background, dataset_functions as functions
from anabranch.state.dataset_batches import BatchDataset, stacked
from anabranch.state.datasets import ElementFunction, Elements

#: what a user writes to leave a size or a degree of parallelism to the system
AUTOTUNE: Final = -1
#: how many elements are computed ahead where that is left to us
_AHEAD: Final = 8

_BACKGROUND = ThreadBackground()
_INPUT = "input_dataset: variant, other_arguments: Targuments"
_FUNCTION = f"f: func, Targuments: list(type) >= 0, {TYPED}"


def _parallelism(value: Array, ctx: OperationContext, name: str = "num_parallel_calls") -> int:
    """How many calls may run at once."""
    if int(value) == AUTOTUNE:
        return os.cpu_count() or 1
    if int(value) < 1:
        raise InvalidArgumentError(None, ctx.op, f"{name} must be greater than zero, got {int(value)}.")
    return int(value)


# ---------------------------------------------------------------------- map
_SYNCHRONOUS = (
    f"{_FUNCTION}, use_inter_op_parallelism: bool = True, preserve_cardinality: bool = False, "
    "force_synchronous: bool = False"
)
MapDataset = define_dataset("MapDataset", _INPUT, _SYNCHRONOUS)
ExperimentalMapDataset = define_dataset("ExperimentalMapDataset", _INPUT, _SYNCHRONOUS)
ParallelMapDataset = define_dataset(
    "ParallelMapDataset",
    f"{_INPUT}, num_parallel_calls: int32",
    f"{_FUNCTION}, use_inter_op_parallelism: bool = True, sloppy: bool = False, preserve_cardinality: bool = False",
)


def _one_by_one(input_dataset: Array, other_arguments: list[Any], *, f: FuncAttr, ctx: StepHostContext) -> Elements:
    return _mapped(input_dataset, other_arguments, 1, f, ctx)


MapDataset.host_kernel(_one_by_one)
ExperimentalMapDataset.host_kernel(_one_by_one)


def _mapped(input_dataset: Array, captured: list[Any], calls: int, f: FuncAttr, ctx: StepHostContext) -> Elements:
    source, preserve = dataset_of(input_dataset, ctx), ctx.op.attrs["preserve_cardinality"]
    function: ElementFunction = function_of(ctx, f, captured)
    function = functions.kept_going(function) if preserve else function
    if calls == 1:
        return made_by(functions.MapDataset(source, function), ctx)
    made = background.ParallelMapDataset(source, function, calls, _BACKGROUND)
    return made_by(made, ctx)


@ParallelMapDataset.host_kernel
def _(
    input_dataset: Array, other_arguments: list[Any], num_parallel_calls: Array, *, f: FuncAttr, ctx: StepHostContext
) -> Elements:
    calls = _parallelism(num_parallel_calls, ctx)
    return _mapped(input_dataset, other_arguments, calls, f, ctx)


def _map_and_batch(
    input_dataset: Array,
    other_arguments: list[Any],
    batch_size: Array,
    num_parallel_calls: Array,
    drop_remainder: Array,
    *,
    f: FuncAttr,
    ctx: StepHostContext,
) -> Elements:
    calls = _parallelism(num_parallel_calls, ctx)
    mapped = _mapped(input_dataset, other_arguments, calls, f, ctx)
    return made_by(BatchDataset(mapped, int(batch_size), bool(drop_remainder), fixed=True), ctx)


for _name in ("MapAndBatchDataset", "ExperimentalMapAndBatchDataset"):
    define_dataset(
        _name,
        f"{_INPUT}, batch_size: int64, num_parallel_calls: int64, drop_remainder: bool",
        f"{_FUNCTION}, preserve_cardinality: bool = False",
    ).host_kernel(_map_and_batch)

# ---------------------------------------------------------------------- filter
FilterDataset = define_dataset("FilterDataset", _INPUT, f"predicate: func, Targuments: list(type) >= 0, {TYPED}")


@FilterDataset.host_kernel
def _(input_dataset: Array, other_arguments: list[Any], *, predicate: FuncAttr, ctx: StepHostContext) -> Elements:
    function = function_of(ctx, predicate, other_arguments)
    return made_by(functions.FilterDataset(dataset_of(input_dataset, ctx), function), ctx)


FilterByLastComponentDataset = define_op(
    "FilterByLastComponentDataset", "input_dataset: variant -> output: variant", TYPED
)
FilterByLastComponentDataset.shape(lambda input_dataset: shape_rules.SCALAR)
FilterByLastComponentDataset.not_differentiable()


@FilterByLastComponentDataset.host_kernel
def _(input_dataset: Array, *, ctx: StepHostContext) -> Elements:
    """The elements whose last component is true, without it."""
    kept = functions.FilterDataset(dataset_of(input_dataset, ctx), lambda *element: element[-1:])
    return made_by(functions.MapDataset(kept, lambda *element: element[:-1]), ctx)


def _take_while(
    input_dataset: Array, other_arguments: list[Any], *, predicate: FuncAttr, ctx: StepHostContext
) -> Elements:
    function = function_of(ctx, predicate, other_arguments)
    return made_by(functions.FilterDataset(dataset_of(input_dataset, ctx), function, until_false=True), ctx)


for _name in ("TakeWhileDataset", "ExperimentalTakeWhileDataset"):
    define_dataset(_name, _INPUT, f"predicate: func, Targuments: list(type) >= 0, {TYPED}").host_kernel(_take_while)

# ---------------------------------------------------------------------- functions that return datasets
FlatMapDataset = define_dataset("FlatMapDataset", _INPUT, _FUNCTION)
InterleaveDataset = define_dataset(
    "InterleaveDataset", f"{_INPUT}, cycle_length: int64, block_length: int64", _FUNCTION
)
ParallelInterleaveDatasetV2 = define_dataset(
    "ParallelInterleaveDatasetV2",
    f"{_INPUT}, cycle_length: int64, block_length: int64, num_parallel_calls: int64",
    f"{_FUNCTION}, sloppy: bool = False",
)


@FlatMapDataset.host_kernel
def _(input_dataset: Array, other_arguments: list[Any], *, f: FuncAttr, ctx: StepHostContext) -> Elements:
    source = dataset_of(input_dataset, ctx)
    return made_by(functions.InterleaveDataset(source, function_of(ctx, f, other_arguments)), ctx)


def _interleaved(
    source: Array,
    captured: Sequence[Array],
    cycle: Array,
    block: Array,
    f: FuncAttr,
    ctx: StepHostContext,
    ahead: int = 0,
    carries: bool = False,
) -> Elements:
    """Datasets that take turns; with `ahead`, each computes that many elements before its turn."""
    taking_turns = _parallelism(cycle, ctx, "cycle_length")
    wrap = _prefetched(ahead) if ahead else _itself
    function = function_of(ctx, f, captured)
    dataset = functions.InterleaveDataset(dataset_of(source, ctx), function, taking_turns, int(block), wrap, carries)
    return made_by(dataset, ctx)


def _itself(dataset: Elements) -> Elements:
    return dataset


def _prefetched(ahead: int) -> Callable[[Elements], Elements]:
    return lambda dataset: background.PrefetchDataset(dataset, ahead, _BACKGROUND)


@InterleaveDataset.host_kernel
def _(
    input_dataset: Array,
    other_arguments: list[Any],
    cycle_length: Array,
    block_length: Array,
    *,
    f: FuncAttr,
    ctx: StepHostContext,
) -> Elements:
    return _interleaved(input_dataset, other_arguments, cycle_length, block_length, f, ctx)


@ParallelInterleaveDatasetV2.host_kernel
def _(
    input_dataset: Array,
    other_arguments: list[Any],
    cycle_length: Array,
    block_length: Array,
    num_parallel_calls: Array,
    *,
    f: FuncAttr,
    ctx: StepHostContext,
) -> Elements:
    calls = _parallelism(num_parallel_calls, ctx)
    ahead = max(_AHEAD, 2 * int(block_length)) if calls > 1 else 0
    return _interleaved(input_dataset, other_arguments, cycle_length, block_length, f, ctx, ahead)


def _parallel_interleave(
    input_dataset: Array,
    other_arguments: list[Any],
    cycle_length: Array,
    block_length: Array,
    sloppy: Array,
    buffer_output_elements: Array,
    prefetch_input_elements: Array,
    *,
    f: FuncAttr,
    ctx: StepHostContext,
) -> Elements:
    ahead = max(1, int(buffer_output_elements))
    return _interleaved(input_dataset, other_arguments, cycle_length, block_length, f, ctx, ahead, carries=True)


for _name in ("ParallelInterleaveDataset", "ExperimentalParallelInterleaveDataset"):
    define_dataset(
        _name,
        f"{_INPUT}, cycle_length: int64, block_length: int64, sloppy: bool, buffer_output_elements: int64, "
        "prefetch_input_elements: int64",
        _FUNCTION,
    ).host_kernel(_parallel_interleave)


ChooseFastestBranchDataset = define_dataset(
    "ChooseFastestBranchDataset",
    "input_dataset: variant, ratio_numerator: int64, ratio_denominator: int64, other_arguments: Targuments",
    "Targuments: list(type) >= 0, num_elements_per_branch: int >= 1, branches: list(func) >= 1, "
    f"other_arguments_lengths: list(int) >= 1, {TYPED}",
)


@ChooseFastestBranchDataset.host_kernel
def _(
    input_dataset: Array,
    ratio_numerator: Array,
    ratio_denominator: Array,
    other_arguments: list[Any],
    *,
    branches: list[FuncAttr],
    other_arguments_lengths: list[int],
    ctx: StepHostContext,
) -> Elements:
    """What the first branch makes of the input: all make the same, and which is fastest is measured by nobody."""
    for name, number in (("ratio_numerator", ratio_numerator), ("ratio_denominator", ratio_denominator)):
        if int(number) <= 0:
            raise InvalidArgumentError(None, ctx.op, f"`{name}` must be greater than 0, got {int(number)}")
    counts = other_arguments_lengths
    if len(counts) != len(branches) or min(counts) < 0 or sum(counts) != len(other_arguments):
        raise InvalidArgumentError(
            None,
            ctx.op,
            f"other_arguments_lengths {counts} must say for each of {len(branches)} branches how many of "
            f"{len(other_arguments)} other arguments it takes",
        )
    source = dataset_of(input_dataset, ctx)
    (made,) = function_of(ctx, branches[0], other_arguments[: counts[0]])(boxed(source))
    return made_by(dataset_of(made, ctx), ctx)


def _group_by_window(
    input_dataset: Array,
    key_func_other_arguments: list[Any],
    reduce_func_other_arguments: list[Any],
    window_size_func_other_arguments: list[Any],
    *,
    key_func: FuncAttr,
    reduce_func: FuncAttr,
    window_size_func: FuncAttr,
    ctx: StepHostContext,
) -> Elements:
    key = function_of(ctx, key_func, key_func_other_arguments)
    size = function_of(ctx, window_size_func, window_size_func_other_arguments)
    reduce = function_of(ctx, reduce_func, reduce_func_other_arguments)
    return made_by(functions.GroupByWindowDataset(dataset_of(input_dataset, ctx), key, size, reduce), ctx)


for _name in ("GroupByWindowDataset", "ExperimentalGroupByWindowDataset"):
    define_dataset(
        _name,
        "input_dataset: variant, key_func_other_arguments: Tkey_func_other_arguments, "
        "reduce_func_other_arguments: Treduce_func_other_arguments, "
        "window_size_func_other_arguments: Twindow_size_func_other_arguments",
        "key_func: func, reduce_func: func, window_size_func: func, Tkey_func_other_arguments: list(type) >= 0, "
        "Treduce_func_other_arguments: list(type) >= 0, Twindow_size_func_other_arguments: list(type) >= 0, " + TYPED,
    ).host_kernel(_group_by_window)

# ---------------------------------------------------------------------- functions with a state
_STATE = "input_dataset: variant, initial_state: Tstate, other_arguments: Targuments"
_STATE_ATTRS = f"f: func, Tstate: list(type) >= 1, Targuments: list(type) >= 0, {TYPED}"


def _scan(
    input_dataset: Array, initial_state: list[Any], other_arguments: list[Any], *, f: FuncAttr, ctx: StepHostContext
) -> Elements:
    function = function_of(ctx, f, other_arguments)
    return made_by(functions.ScanDataset(dataset_of(input_dataset, ctx), tuple(initial_state), function), ctx)


define_dataset(
    "ScanDataset", _STATE, f"{_STATE_ATTRS}, preserve_cardinality: bool = False, use_default_device: bool = True"
).host_kernel(_scan)
define_dataset("ExperimentalScanDataset", _STATE, f"{_STATE_ATTRS}, preserve_cardinality: bool = False").host_kernel(
    _scan
)

ReduceDataset = define_op(
    "ReduceDataset",
    f"{_STATE} -> components: output_types",
    f"{_STATE_ATTRS}, use_inter_op_parallelism: bool = True",
    stateful=True,
    defers_bodies=True,
)
ReduceDataset.not_differentiable()


@ReduceDataset.shape
def _(
    input_dataset: TensorShape,
    initial_state: list[TensorShape],
    other_arguments: list[TensorShape],
    *,
    output_shapes: list[TensorShape],
) -> list[TensorShape]:
    return output_shapes


@ReduceDataset.host_kernel
def _(
    input_dataset: Array, initial_state: list[Any], other_arguments: list[Any], *, f: FuncAttr, ctx: StepHostContext
) -> list[Any]:
    function = function_of(ctx, f, other_arguments)
    iterator = dataset_of(input_dataset, ctx).iterator()
    state = tuple(initial_state)
    try:
        while (element := iterator.next()) is not None:
            state = function(*state, *element)
    finally:
        iterator.close()
    return list(state)


MapDefun = define_op(
    "MapDefun",
    "arguments: Targuments, captured_inputs: Tcaptured -> output: output_types",
    "Targuments: list(type) >= 1, Tcaptured: list(type) >= 0 = [], output_types: list(type) >= 1, "
    "output_shapes: list(shape) >= 1, f: func, max_intra_op_parallelism: int = 1",
    defers_bodies=True,
    repeats_bodies=True,
)
MapDefun.not_differentiable()


@MapDefun.shape
def _(
    arguments: list[TensorShape], captured_inputs: list[TensorShape], *, output_shapes: list[TensorShape]
) -> list[TensorShape]:
    rows = TensorShape([None])
    for i, shape in enumerate(arguments):
        if shape.rank == 0:
            raise ValueError(f"All inputs must have rank at least 1. Input {i} has a rank of 0.")
        if shape.rank is not None:
            rows = rows.merge_with(shape[:1])
    return [rows.concatenate(shape) for shape in output_shapes]


@MapDefun.host_kernel
def _(
    arguments: list[Any],
    captured_inputs: list[Any],
    *,
    f: FuncAttr,
    output_types: list[DType],
    output_shapes: list[TensorShape],
    ctx: StepHostContext,
) -> list[Any]:
    function = function_of(ctx, f, captured_inputs)
    rows = [function(*(argument[i, ...] for argument in arguments)) for i in range(len(arguments[0]))]
    if rows:
        return [stacked(column, i) for i, column in enumerate(zip(*rows, strict=True))]
    dims = [[0, *(d or 0 for d in shape.as_list())] if shape.rank is not None else [0] for shape in output_shapes]
    return [np.zeros(d, dtype.as_numpy_dtype) for d, dtype in zip(dims, output_types, strict=True)]


# ---------------------------------------------------------------------- ahead of time
PrefetchDataset = define_dataset(
    "PrefetchDataset",
    "input_dataset: variant, buffer_size: int64",
    f"{TYPED}, slack_period: int = 0, legacy_autotune: bool = True, buffer_size_min: int = 0",
)


@PrefetchDataset.host_kernel
def _(input_dataset: Array, buffer_size: Array, *, ctx: OperationContext) -> Elements:
    size = int(buffer_size)
    if size < AUTOTUNE:
        raise InvalidArgumentError(None, ctx.op, f"buffer_size must be >= 0 or set to be auto-tuned, got {size}.")
    ahead = _AHEAD if size == AUTOTUNE else size
    return made_by(background.PrefetchDataset(dataset_of(input_dataset, ctx), ahead, _BACKGROUND), ctx)


CopyToDeviceDataset = define_dataset(
    "_CopyToDeviceDataset", "input_dataset: variant", f"{TYPED}, target_device: string"
)


@CopyToDeviceDataset.host_kernel
def _(input_dataset: Array, *, target_device: bytes, ctx: StepHostContext) -> Elements:
    """The same elements, in the memory of a device; where there is no such device, in the host's."""
    source = dataset_of(input_dataset, ctx)
    move = ctx.mover(target_device.decode())
    if move is None:
        return source
    return made_by(functions.MapDataset(source, lambda *element: tuple(map(move, element))), ctx)
