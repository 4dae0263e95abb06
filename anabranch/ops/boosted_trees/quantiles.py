"""Quantiles of features, by whose boundaries features become numbers of buckets. The objects: `state.quantiles`."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from anabranch.core.arrays import Array, HostArray
from anabranch.core.kernel_context import OperationContext
from anabranch.core.resources import ResourceHandle
from anabranch.core.shapes import TensorShape
from anabranch.graph.building import define_op
from anabranch.graph.constants import ShapeContext
from anabranch.graph.kernel_contexts import StepHostContext
from anabranch.ops import shape_rules
from anabranch.ops.resources.shared_objects import is_made, make_object, named_handle, object_behind
from anabranch.state.quantiles import QuantileStream, QuantileStreams

_KIND: Final = "quantile stream resource"
_SUMMARY: Final = TensorShape([None, 4])
#: how many features there can be, before memory is asked for
_MOST_STREAMS: Final = 2**24


def _streams(ctx: StepHostContext, handle: ResourceHandle) -> QuantileStreams:
    streams: QuantileStreams = object_behind(ctx, handle, _KIND)
    return streams


def _ranked(shapes: list[TensorShape], rank: int, name: str) -> list[TensorShape]:
    return [shape_rules.with_rank(shape, rank, f"argument {name!r}[{i}]") for i, shape in enumerate(shapes)]


# ---------------------------------------------------------------------- the resource
BoostedTreesQuantileStreamResourceHandleOp = define_op(
    "BoostedTreesQuantileStreamResourceHandleOp",
    "-> resource: resource",
    "container: string = '', shared_name: string = ''",
    stateful=True,
)
BoostedTreesQuantileStreamResourceHandleOp.shape(shape_rules.scalar)
BoostedTreesQuantileStreamResourceHandleOp.not_differentiable()


@BoostedTreesQuantileStreamResourceHandleOp.host_kernel
def _(*, ctx: StepHostContext) -> ResourceHandle:
    return named_handle(ctx, _KIND)


IsBoostedTreesQuantileStreamResourceInitialized = define_op(
    "IsBoostedTreesQuantileStreamResourceInitialized",
    "quantile_stream_resource_handle: resource -> is_initialized: bool",
    stateful=True,
    ranks={"quantile_stream_resource_handle": 0},
)
IsBoostedTreesQuantileStreamResourceInitialized.shape(shape_rules.scalar)
IsBoostedTreesQuantileStreamResourceInitialized.not_differentiable()


@IsBoostedTreesQuantileStreamResourceInitialized.host_kernel
def _(quantile_stream_resource_handle: ResourceHandle, *, ctx: StepHostContext) -> bool:
    return is_made(ctx, quantile_stream_resource_handle, _KIND)


BoostedTreesCreateQuantileStreamResource = define_op(
    "BoostedTreesCreateQuantileStreamResource",
    "quantile_stream_resource_handle: resource, epsilon: float, num_streams: int64 ->",
    "max_elements: int = 1099511627776",
    stateful=True,
    ranks={"quantile_stream_resource_handle": 0, "epsilon": 0, "num_streams": 0},
)
BoostedTreesCreateQuantileStreamResource.shape(shape_rules.no_outputs)
BoostedTreesCreateQuantileStreamResource.not_differentiable()


@BoostedTreesCreateQuantileStreamResource.host_kernel
def _(
    quantile_stream_resource_handle: ResourceHandle,
    epsilon: Array,
    num_streams: Array,
    *,
    max_elements: int,
    ctx: StepHostContext,
) -> None:
    count = int(num_streams)
    ctx.check(0 <= count <= _MOST_STREAMS, f"num_streams must be between 0 and {_MOST_STREAMS}, got {count}")
    made = QuantileStreams(float(epsilon), max_elements, count)
    make_object(ctx, quantile_stream_resource_handle, _KIND, lambda: made)


# ---------------------------------------------------------------------- summaries
BoostedTreesMakeQuantileSummaries = define_op(
    "BoostedTreesMakeQuantileSummaries",
    "float_values: num_features * float, example_weights: float, epsilon: float -> summaries: num_features * float",
    "num_features: int >= 0",
    ranks={"example_weights": 1, "epsilon": 0},
)
BoostedTreesMakeQuantileSummaries.not_differentiable()


@BoostedTreesMakeQuantileSummaries.shape
def _(float_values: list[TensorShape], example_weights: TensorShape, epsilon: TensorShape) -> list[list[TensorShape]]:
    return [[_SUMMARY for _ in _ranked(float_values, 1, "float_values")]]


@BoostedTreesMakeQuantileSummaries.host_kernel
def _(float_values: list[Array], example_weights: Array, epsilon: Array, *, ctx: OperationContext) -> Any:
    if not float_values:
        return [[]]
    batch = float_values[0].size
    fits = example_weights.size in (1, batch)
    ctx.check(fits, f"Weights should be a single value or same size as features: {example_weights.size}, not {batch}.")
    same = all(values.size == batch for values in float_values)
    ctx.check(same, f"float_values must have one size, got {[values.size for values in float_values]}")
    weights = np.broadcast_to(example_weights.reshape(-1), (batch,))
    summaries = []
    for values in float_values:
        stream = QuantileStream(float(epsilon), batch + 1)
        stream.push(values.reshape(-1), weights)
        summaries.append(stream.finished().matrix())
    return [summaries]


BoostedTreesFlushQuantileSummaries = define_op(
    "BoostedTreesFlushQuantileSummaries",
    "quantile_stream_resource_handle: resource -> summaries: num_features * float",
    "num_features: int >= 0",
    stateful=True,
)
BoostedTreesFlushQuantileSummaries.not_differentiable()


@BoostedTreesFlushQuantileSummaries.shape
def _(quantile_stream_resource_handle: TensorShape, *, num_features: int) -> list[list[TensorShape]]:
    return [[_SUMMARY] * num_features]


def _check_count(ctx: StepHostContext, streams: QuantileStreams, count: int, what: str) -> None:
    ctx.check(streams.count == count, f"the resource has {streams.count} streams, but {what} is {count}")


@BoostedTreesFlushQuantileSummaries.host_kernel
def _(quantile_stream_resource_handle: ResourceHandle, *, num_features: int, ctx: StepHostContext) -> Any:
    streams = _streams(ctx, quantile_stream_resource_handle)
    with streams.lock:
        _check_count(ctx, streams, num_features, "num_features")
        return [[summary.matrix() for summary in streams.take()]]


BoostedTreesQuantileStreamResourceAddSummaries = define_op(
    "BoostedTreesQuantileStreamResourceAddSummaries",
    "quantile_stream_resource_handle: resource, summaries: num_features * float ->",
    "num_features: int >= 0",
    stateful=True,
    ranks={"quantile_stream_resource_handle": 0},
)
BoostedTreesQuantileStreamResourceAddSummaries.not_differentiable()


@BoostedTreesQuantileStreamResourceAddSummaries.shape
def _(quantile_stream_resource_handle: TensorShape, summaries: list[TensorShape]) -> tuple[()]:
    _ranked(summaries, 2, "summaries")
    return ()


@BoostedTreesQuantileStreamResourceAddSummaries.host_kernel
def _(quantile_stream_resource_handle: ResourceHandle, summaries: list[HostArray], *, ctx: StepHostContext) -> None:
    streams = _streams(ctx, quantile_stream_resource_handle)
    for i, summary in enumerate(summaries):
        fits = summary.ndim == 2 and summary.shape[1] == 4
        ctx.check(fits, f"summaries[{i}] must have four columns, got shape {list(summary.shape)}")
    with streams.lock:
        _check_count(ctx, streams, len(summaries), "the number of summaries")
        streams.add(summaries)


# ---------------------------------------------------------------------- boundaries
BoostedTreesQuantileStreamResourceFlush = define_op(
    "BoostedTreesQuantileStreamResourceFlush",
    "quantile_stream_resource_handle: resource, num_buckets: int64 ->",
    "generate_quantiles: bool = False",
    stateful=True,
    ranks={"quantile_stream_resource_handle": 0, "num_buckets": 0},
)
BoostedTreesQuantileStreamResourceFlush.shape(shape_rules.no_outputs)
BoostedTreesQuantileStreamResourceFlush.not_differentiable()


@BoostedTreesQuantileStreamResourceFlush.host_kernel
def _(
    quantile_stream_resource_handle: ResourceHandle,
    num_buckets: Array,
    *,
    generate_quantiles: bool,
    ctx: StepHostContext,
) -> None:
    buckets = int(num_buckets)
    ctx.check(0 < buckets < 2**31, f"num_buckets must be positive and fit in 32 bits, got {buckets}")
    streams = _streams(ctx, quantile_stream_resource_handle)
    with streams.lock:
        streams.flush(buckets, generate_quantiles)


BoostedTreesQuantileStreamResourceGetBucketBoundaries = define_op(
    "BoostedTreesQuantileStreamResourceGetBucketBoundaries",
    "quantile_stream_resource_handle: resource -> bucket_boundaries: num_features * float",
    "num_features: int >= 0",
    stateful=True,
    ranks={"quantile_stream_resource_handle": 0},
)
BoostedTreesQuantileStreamResourceGetBucketBoundaries.not_differentiable()


@BoostedTreesQuantileStreamResourceGetBucketBoundaries.shape
def _(quantile_stream_resource_handle: TensorShape, *, num_features: int) -> list[list[TensorShape]]:
    return [[TensorShape([None])] * num_features]


@BoostedTreesQuantileStreamResourceGetBucketBoundaries.host_kernel
def _(quantile_stream_resource_handle: ResourceHandle, *, num_features: int, ctx: StepHostContext) -> Any:
    streams = _streams(ctx, quantile_stream_resource_handle)
    with streams.lock:
        _check_count(ctx, streams, num_features, "num_features")
        return [streams.boundaries]


BoostedTreesQuantileStreamResourceDeserialize = define_op(
    "BoostedTreesQuantileStreamResourceDeserialize",
    "quantile_stream_resource_handle: resource, bucket_boundaries: num_streams * float ->",
    "num_streams: int >= 1",
    stateful=True,
    ranks={"quantile_stream_resource_handle": 0},
)
BoostedTreesQuantileStreamResourceDeserialize.not_differentiable()


@BoostedTreesQuantileStreamResourceDeserialize.shape
def _(quantile_stream_resource_handle: TensorShape, bucket_boundaries: list[TensorShape]) -> tuple[()]:
    _ranked(bucket_boundaries, 1, "bucket_boundaries")
    return ()


@BoostedTreesQuantileStreamResourceDeserialize.host_kernel
def _(
    quantile_stream_resource_handle: ResourceHandle, bucket_boundaries: list[HostArray], *, ctx: StepHostContext
) -> None:
    streams = _streams(ctx, quantile_stream_resource_handle)
    with streams.lock:
        _check_count(ctx, streams, len(bucket_boundaries), "num_streams")
        streams.set_boundaries(bucket_boundaries)


BoostedTreesBucketize = define_op(
    "BoostedTreesBucketize",
    "float_values: num_features * float, bucket_boundaries: num_features * float -> buckets: num_features * int32",
    "num_features: int >= 0",
)
BoostedTreesBucketize.not_differentiable()


@BoostedTreesBucketize.shape
def _(
    float_values: list[TensorShape], bucket_boundaries: list[TensorShape], *, ctx: ShapeContext
) -> list[list[TensorShape]]:
    ranked = _ranked(float_values, 1, "float_values")
    shape_rules.merged(*ranked) if ranked else None
    return [ranked]


@BoostedTreesBucketize.host_kernel
def _(float_values: list[HostArray], bucket_boundaries: list[HostArray]) -> Any:
    return [[_buckets(v, b.reshape(-1)) for v, b in zip(float_values, bucket_boundaries, strict=True)]]


def _buckets(values: HostArray, boundaries: HostArray) -> HostArray:
    """The index of the first boundary that is not less than each value; of the last where all are."""
    if not boundaries.size:
        return np.zeros(values.shape, np.int32)
    found = np.minimum(np.searchsorted(boundaries, values), boundaries.size - 1)
    # what is not a number is less than nothing
    return np.where(np.isnan(values), 0, found).astype(np.int32)
