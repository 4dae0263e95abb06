"""Datasets that tune how elements are computed, or which: pauses, samples, pools of threads, caches, seeds (WP4.5)."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any, Final

from anabranch.core.arrays import Array, boxed
from anabranch.core.attrs import FuncAttr
from anabranch.core.kernel_context import OperationContext
from anabranch.core.resources import ResourceHandle
from anabranch.core.shapes import TensorShape
from anabranch.errors import InvalidArgumentError
from anabranch.graph.building import OpFunction, define_op
from anabranch.graph.kernel_contexts import StepHostContext
from anabranch.ops import shape_rules
from anabranch.ops.datasets.sources import TYPED, dataset_of, define_dataset, function_of, made_by, random_seeds
from anabranch.ops.resources.shared_objects import Plan, make_object, object_behind, open_object
from anabranch.state import dataset_batches as batches, dataset_files as files, dataset_transforms as transforms
from anabranch.state.dataset_functions import GroupByReducerDataset as _GroupByReducer
from anabranch.state.dataset_resources import SeedGenerator, ShuffledBySeeds, ThreadPool
from anabranch.state.dataset_sampling import SamplingDataset as _Sampling, SleepDataset as _Sleep
from anabranch.state.datasets import Elements

_INPUT: Final = "input_dataset: variant"


# ---------------------------------------------------------------------- which elements
def _sliding_window(
    input_dataset: Array, window_size: Array, window_shift: Array, window_stride: Array, *, ctx: OperationContext
) -> Elements:
    source, drop = dataset_of(input_dataset, ctx), ctx.op.attrs.get("drop_remainder", True)
    sizes = int(window_size), int(window_shift), int(window_stride)
    return made_by(batches.SlidingWindowDataset(source, *sizes, drop), ctx)


def _rebatched(input_dataset: Array, num_replicas: Array, *, ctx: OperationContext) -> Elements:
    return made_by(batches.RebatchDataset(dataset_of(input_dataset, ctx), int(num_replicas)), ctx)


def _sharded(input_dataset: Array, num_workers: Array, index: Array, *, ctx: OperationContext) -> Elements:
    """By elements, whatever the sources are; policy -1 asks for all."""
    source = dataset_of(input_dataset, ctx)
    if ctx.op.attrs.get("auto_shard_policy", 0) == -1:
        return source
    return made_by(transforms.ShardDataset(source, int(num_workers), int(index)), ctx)


def _slept(input_dataset: Array, sleep_microseconds: Array, *, ctx: OperationContext) -> Elements:
    return made_by(_Sleep(dataset_of(input_dataset, ctx), max(0, int(sleep_microseconds)) / 1e6), ctx)


def _fastest(input_datasets: list[Any], *, ctx: OperationContext) -> Elements:
    """The first: they have the same elements, and which is fastest is measured by nobody."""
    sources = [dataset_of(dataset, ctx) for dataset in input_datasets]
    counts = {source.cardinality() for source in sources}
    if len(counts) > 1:
        message = f"the datasets must have the same elements, but their cardinalities are {sorted(counts)}"
        raise InvalidArgumentError(None, ctx.op, message)
    return sources[0]


_SLIDING = f"{_INPUT}, window_size: int64, window_shift: int64, window_stride: int64"
_REPLICAS = f"{_INPUT}, num_replicas: int64"
_WORKERS = f"{_INPUT}, num_workers: int64, index: int64"
_SLEEP = f"{_INPUT}, sleep_microseconds: int64"
_FASTEST = f"N: int >= 2, num_experiments: int, {TYPED}"
define_dataset("SlidingWindowDataset", _SLIDING, f"drop_remainder: bool = True, {TYPED}").host_kernel(_sliding_window)
define_dataset("ExperimentalSlidingWindowDataset", _SLIDING).host_kernel(_sliding_window)
for _prefix in ("", "Experimental"):
    _policy = "auto_shard_policy: int = 0"
    define_dataset(f"{_prefix}RebatchDataset", _REPLICAS, f"{TYPED}, use_fallback: bool = True").host_kernel(_rebatched)
    define_dataset(
        f"{_prefix}AutoShardDataset", _WORKERS, f"{_policy}, {TYPED}" + ("" if _prefix else ", num_replicas: int = 0")
    ).host_kernel(_sharded)
    define_dataset(f"{_prefix}SleepDataset", _SLEEP).host_kernel(_slept)
    define_dataset(f"{_prefix}ChooseFastestDataset", "input_datasets: N * variant", _FASTEST).host_kernel(_fastest)

SamplingDataset = define_dataset("SamplingDataset", f"{_INPUT}, rate: float, seed: int64, seed2: int64")


@SamplingDataset.host_kernel
def _(input_dataset: Array, rate: Array, seed: Array, seed2: Array, *, ctx: OperationContext) -> Elements:
    return made_by(_Sampling(dataset_of(input_dataset, ctx), float(rate), random_seeds(seed, seed2)), ctx)


# ---------------------------------------------------------------------- the same elements
def _as_it_is(input_dataset: Array, *, ctx: OperationContext) -> Elements:
    return dataset_of(input_dataset, ctx)


def _with_threads(input_dataset: Array, num_threads: Array, *, ctx: OperationContext) -> Elements:
    if int(num_threads) < 0:
        raise InvalidArgumentError(None, ctx.op, f"`num_threads` must be >= 0, got {int(num_threads)}")
    return dataset_of(input_dataset, ctx)


def _with_parallelism(input_dataset: Array, max_intra_op_parallelism: Array, *, ctx: OperationContext) -> Elements:
    if int(max_intra_op_parallelism) < 0:
        value = int(max_intra_op_parallelism)
        raise InvalidArgumentError(None, ctx.op, f"`max_intra_op_parallelism` must be >= 0, got {value}")
    return dataset_of(input_dataset, ctx)


_POOL: Final = "thread pool"


def _thread_pool(*, num_threads: int, display_name: bytes, ctx: StepHostContext) -> ResourceHandle:
    if num_threads <= 0:
        raise InvalidArgumentError(None, ctx.op, f"`num_threads` must be greater than zero, got {num_threads}.")

    def plan(handle: ResourceHandle) -> Plan:
        return {"num_threads": num_threads}, lambda: ThreadPool(num_threads, display_name.decode())

    return open_object(ctx, _POOL, plan)


def _with_pool(input_dataset: Array, thread_pool: ResourceHandle, *, ctx: StepHostContext) -> Elements:
    object_behind(ctx, thread_pool, _POOL)
    return dataset_of(input_dataset, ctx)


_POOL_ATTRS = (
    "num_threads: int, max_intra_op_parallelism: int = 1, display_name: string, container: string = '', "
    "shared_name: string = ''"
)
for _prefix in ("", "Experimental"):
    define_dataset(f"{_prefix}NonSerializableDataset", _INPUT).host_kernel(_as_it_is)
    define_dataset(f"{_prefix}PrivateThreadPoolDataset", f"{_INPUT}, num_threads: int64").host_kernel(_with_threads)
    define_dataset(f"{_prefix}MaxIntraOpParallelismDataset", f"{_INPUT}, max_intra_op_parallelism: int64").host_kernel(
        _with_parallelism
    )
    define_dataset(f"{_prefix}ThreadPoolDataset", f"{_INPUT}, thread_pool: resource", stateful=True).host_kernel(
        _with_pool
    )
    _op = define_op(f"{_prefix}ThreadPoolHandle", "-> handle: resource", _POOL_ATTRS, stateful=True)
    _op.shape(shape_rules.scalar)
    _op.host_kernel(_thread_pool)
    _op.not_differentiable()


def _passed_on(name: str, argument: str, result: str) -> OpFunction:
    """A variant in a variant: datasets have no other form here."""
    op = define_op(name, f"{argument}: variant -> {result}: variant")
    op.shape(shape_rules.scalar)
    return op.not_differentiable()


WrapDatasetVariant = _passed_on("WrapDatasetVariant", "input_handle", "output_handle")
UnwrapDatasetVariant = _passed_on("UnwrapDatasetVariant", "input_handle", "output_handle")


@WrapDatasetVariant.host_kernel
def _(input_handle: Array, *, ctx: OperationContext) -> Elements:
    return dataset_of(input_handle, ctx)


@UnwrapDatasetVariant.host_kernel
def _(input_handle: Array, *, ctx: OperationContext) -> Elements:
    return dataset_of(input_handle, ctx)


# ---------------------------------------------------------------------- what passes share
_SEEDS: Final = "generator of seeds"
_CACHE: Final = "memory cache"
_anonymous = itertools.count()


def _anonymous_object(ctx: StepHostContext, kind: str, make: Callable[[], Any]) -> Any:
    handle = ResourceHandle("", f"_anonymous_{kind}_{next(_anonymous)}", kind, task=ctx.task)
    make_object(ctx, handle, kind, make)
    return handle, boxed(handle)


def _two_scalars(*_: TensorShape) -> list[TensorShape]:
    return [shape_rules.SCALAR, shape_rules.SCALAR]


AnonymousRandomSeedGenerator = define_op(
    "AnonymousRandomSeedGenerator",
    "seed: int64, seed2: int64 -> handle: resource, deleter: variant",
    stateful=True,
    ranks={"seed": 0, "seed2": 0},
)
AnonymousMemoryCache = define_op("AnonymousMemoryCache", "-> handle: resource, deleter: variant", stateful=True)
for _op in (AnonymousRandomSeedGenerator, AnonymousMemoryCache):
    _op.shape(_two_scalars)
    _op.not_differentiable()


@AnonymousRandomSeedGenerator.host_kernel
def _(seed: Array, seed2: Array, *, ctx: StepHostContext) -> Any:
    seeds = random_seeds(seed, seed2)
    return _anonymous_object(ctx, _SEEDS, lambda: SeedGenerator(*seeds))


@AnonymousMemoryCache.host_kernel
def _(*, ctx: StepHostContext) -> Any:
    return _anonymous_object(ctx, _CACHE, transforms.MemoryCache)


def _deleted(handle: ResourceHandle, deleter: Array, *, ctx: StepHostContext) -> None:
    ctx.containers.remove_object(handle)


for _name in ("DeleteRandomSeedGenerator", "DeleteMemoryCache"):
    _op = define_op(_name, "handle: resource, deleter: variant ->", stateful=True)
    _op.shape(shape_rules.no_outputs)
    _op.host_kernel(_deleted)
    _op.not_differentiable()

ShuffleDatasetV2 = define_dataset(
    "ShuffleDatasetV2",
    f"{_INPUT}, buffer_size: int64, seed_generator: resource",
    f"{TYPED}, metadata: string = ''",
    stateful=True,
)
CacheDatasetV2 = define_dataset(
    "CacheDatasetV2",
    f"{_INPUT}, filename: string, cache: resource",
    f"{TYPED}, metadata: string = ''",
    stateful=True,
)


@ShuffleDatasetV2.host_kernel
def _(input_dataset: Array, buffer_size: Array, seed_generator: ResourceHandle, *, ctx: StepHostContext) -> Elements:
    seeds: SeedGenerator = object_behind(ctx, seed_generator, _SEEDS)
    return made_by(ShuffledBySeeds(dataset_of(input_dataset, ctx), int(buffer_size), seeds), ctx)


@CacheDatasetV2.host_kernel
def _(input_dataset: Array, filename: Array, cache: ResourceHandle, *, ctx: StepHostContext) -> Elements:
    source, name = dataset_of(input_dataset, ctx), filename.item().decode()
    if name:
        return made_by(files.FileCacheDataset(source, name), ctx)
    return made_by(transforms.CacheDataset(source, object_behind(ctx, cache, _CACHE)), ctx)


# ---------------------------------------------------------------------- groups
def _group_by_reducer(
    input_dataset: Array,
    key_func_other_arguments: list[Any],
    init_func_other_arguments: list[Any],
    reduce_func_other_arguments: list[Any],
    finalize_func_other_arguments: list[Any],
    *,
    key_func: FuncAttr,
    init_func: FuncAttr,
    reduce_func: FuncAttr,
    finalize_func: FuncAttr,
    ctx: StepHostContext,
) -> Elements:
    functions = (
        function_of(ctx, key_func, key_func_other_arguments),
        function_of(ctx, init_func, init_func_other_arguments),
        function_of(ctx, reduce_func, reduce_func_other_arguments),
        function_of(ctx, finalize_func, finalize_func_other_arguments),
    )
    return made_by(_GroupByReducer(dataset_of(input_dataset, ctx), *functions), ctx)


_PARTS = ("key_func", "init_func", "reduce_func", "finalize_func")
for _name in ("GroupByReducerDataset", "ExperimentalGroupByReducerDataset"):
    define_dataset(
        _name,
        ", ".join([_INPUT, *(f"{part}_other_arguments: T{part}_other_arguments" for part in _PARTS)]),
        ", ".join([*(f"{part}: func" for part in _PARTS), *(f"T{p}_other_arguments: list(type) >= 0" for p in _PARTS)])
        + f", {TYPED}",
        stateful=True,
    ).host_kernel(_group_by_reducer)
