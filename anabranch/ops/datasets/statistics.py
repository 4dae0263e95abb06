"""Statistics of datasets: what gathers them, and the datasets that record some (WP4.5)."""

from __future__ import annotations

import bisect
import threading
import time
from collections import defaultdict
from typing import Final, Protocol

import numpy as np

from anabranch.core.arrays import Array
from anabranch.core.kernel_context import OperationContext
from anabranch.core.resources import ResourceHandle
from anabranch.graph.building import define_op
from anabranch.graph.kernel_contexts import StepHostContext
from anabranch.ops import shape_rules
from anabranch.ops.datasets.sources import dataset_of, define_dataset, made_by
from anabranch.ops.resources.shared_objects import object_behind, open_object
from anabranch.ops.storage.summary import bucket_limits
from anabranch.ops.storage.summary_writers import SUMMARY_WRITER
from anabranch.proto.summary_pb2 import Event, HistogramProto, Summary
from anabranch.state.dataset_stats import MeasuredDataset, RecordedDataset, TaggedRecorder
from anabranch.state.datasets import Elements

_KIND: Final = "statistics of datasets"


class _EventSink(Protocol):
    def write(self, event: Event) -> bool: ...


class _Distribution:
    """A histogram that grows."""

    def __init__(self) -> None:
        self._limits: list[float] = bucket_limits().tolist()
        self._counts: defaultdict[int, int] = defaultdict(int)
        self._least, self._most = self._limits[-1], -self._limits[-1]
        self._number, self._sum, self._squares = 0, 0.0, 0.0

    def add(self, value: float) -> None:
        self._counts[min(bisect.bisect_right(self._limits, value), len(self._limits) - 1)] += 1
        self._least, self._most = min(self._least, value), max(self._most, value)
        self._number, self._sum, self._squares = self._number + 1, self._sum + value, self._squares + value * value

    def as_proto(self) -> HistogramProto:
        """Runs of empty buckets are one bucket."""
        counts = np.zeros(len(self._limits))
        for at, count in self._counts.items():
            counts[at] = count
        empty = counts == 0
        shown = np.flatnonzero(~empty | ~np.append(empty[1:], False))
        return HistogramProto(
            min=self._least,
            max=self._most,
            num=float(self._number),
            sum=self._sum,
            sum_squares=self._squares,
            bucket_limit=[self._limits[i] for i in shown],
            bucket=counts[shown].tolist(),
        )


class Statistics:
    """Distributions by name. Thread-safe.

    Args:
        pushes: whether each number is written to the summary writer that was set (version 2), or all wait to be asked.
    """

    def __init__(self, pushes: bool) -> None:
        self._lock = threading.Lock()
        self._pushes = pushes
        self._distributions: dict[str, _Distribution] = {}
        self._writer: _EventSink | None = None

    def record(self, name: str, value: float, step: int) -> None:
        with self._lock:
            distribution = self._distributions.setdefault(name, _Distribution())
            distribution.add(value)
            writer = self._writer
            if writer is None:
                return
            event = Event(step=step, wall_time=time.time())
            event.summary.value.add(tag=name).histo.CopyFrom(distribution.as_proto())
        writer.write(event)

    def write_to(self, writer: _EventSink) -> None:
        if self._pushes:
            with self._lock:
                self._writer = writer

    def summary(self) -> bytes:
        summary = Summary()
        if not self._pushes:
            with self._lock:
                for name, distribution in self._distributions.items():
                    summary.value.add(tag=name).histo.CopyFrom(distribution.as_proto())
        return bytes(summary.SerializeToString())


def _handle(*, ctx: StepHostContext) -> ResourceHandle:
    pushes = ctx.op.type.endswith("V2")
    return open_object(ctx, _KIND, lambda _: ({"pushes": pushes}, lambda: Statistics(pushes)))


def _statistics(ctx: StepHostContext, handle: ResourceHandle) -> Statistics:
    found: Statistics = object_behind(ctx, handle, _KIND)
    return found


def _summary(iterator: ResourceHandle, *, ctx: StepHostContext) -> bytes:
    return _statistics(ctx, iterator).summary()


for _name in ("StatsAggregatorHandle", "ExperimentalStatsAggregatorHandle", "StatsAggregatorHandleV2"):
    _op = define_op(_name, "-> handle: resource", "container: string = '', shared_name: string = ''", stateful=True)
    _op.shape(shape_rules.scalar)
    _op.host_kernel(_handle)
    _op.not_differentiable()
for _name in ("StatsAggregatorSummary", "ExperimentalStatsAggregatorSummary"):
    _op = define_op(_name, "iterator: resource -> summary: string", stateful=True)
    _op.shape(shape_rules.scalar)
    _op.host_kernel(_summary)
    _op.not_differentiable()

StatsAggregatorSetSummaryWriter = define_op(
    "StatsAggregatorSetSummaryWriter", "stats_aggregator: resource, summary: resource ->", stateful=True
)
StatsAggregatorSetSummaryWriter.shape(shape_rules.no_outputs)
StatsAggregatorSetSummaryWriter.not_differentiable()


@StatsAggregatorSetSummaryWriter.host_kernel
def _(stats_aggregator: ResourceHandle, summary: ResourceHandle, *, ctx: StepHostContext) -> None:
    _statistics(ctx, stats_aggregator).write_to(object_behind(ctx, summary, SUMMARY_WRITER))


# ---------------------------------------------------------------------- datasets
def _recorded(
    input_dataset: Array, stats_aggregator: ResourceHandle, tag: Array, counter_prefix: Array, *, ctx: StepHostContext
) -> Elements:
    recorder = TaggedRecorder(_statistics(ctx, stats_aggregator), tag.item().decode())
    return made_by(RecordedDataset(dataset_of(input_dataset, ctx), recorder), ctx)


def _measured(input_dataset: Array, tag: Array, *, ctx: OperationContext) -> Elements:
    measures_time = "Latency" in ctx.op.type
    return made_by(MeasuredDataset(dataset_of(input_dataset, ctx), tag.item().decode(), measures_time), ctx)


_RECORDED: Final = "input_dataset: variant, stats_aggregator: resource, tag: string, counter_prefix: string"
_MEASURED: Final = "input_dataset: variant, tag: string"
for _prefix in ("", "Experimental"):
    define_dataset(f"{_prefix}SetStatsAggregatorDataset", _RECORDED, stateful=True).host_kernel(_recorded)
    define_dataset(f"{_prefix}LatencyStatsDataset", _MEASURED).host_kernel(_measured)
    define_dataset(f"{_prefix}BytesProducedStatsDataset", _MEASURED).host_kernel(_measured)
