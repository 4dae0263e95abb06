"""What is known of each operation of a graph for tf.profiler: counts, and the times and sizes of traced steps.

A trace (`RunMetadata.step_stats`) has an entry for each island and each host operation, and with
`RunOptions.FULL_TRACE` one for each kernel in an island. A kernel's time is that of the operation it is named after;
what an island takes beyond its kernels is its last operation's, after which the island is named. So all times together
are those of the step.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from anabranch.core.device import DeviceSpec
from anabranch.frontend.platform.float_operations import float_operations
from anabranch.graph.graph import Graph
from anabranch.graph.operation import Operation
from anabranch.proto.config_pb2 import RunMetadata
from anabranch.proto.step_stats_pb2 import NodeExecStats
from anabranch.proto.tfprof_pb2 import OpLogProto

TRAINABLE = "_trainable_variables"


@dataclass
class StepMeasure:
    """What one operation did in one step.

    Attributes:
        micros: the microseconds by device.
        start, end: of the first and of the last run (µs since the epoch of the trace).
    """

    runs: int = 0
    micros: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    output_bytes: int = 0
    start: int = 0
    end: int = 0

    def add(self, device: str, micros: int, stats: NodeExecStats) -> None:
        """One more run."""
        self.runs += 1
        self.micros[device] += micros
        self.output_bytes += sum(
            output.tensor_description.allocation_description.requested_bytes for output in stats.output
        )
        start, end = stats.all_start_micros, stats.all_start_micros + stats.all_end_rel_micros
        self.start, self.end = min(self.start or start, start), max(self.end, end)

    def micros_on(self, accelerator: bool) -> int:
        """The time on processors, or on all other devices."""
        return sum(time for device, time in self.micros.items() if is_accelerator(device) == accelerator)


def is_accelerator(device: str) -> bool:
    """Whether a device is none of the processors of the host."""
    return DeviceSpec.from_string(device).device_type not in ("CPU", None)


def measured(run_meta: RunMetadata) -> dict[str, StepMeasure]:
    """By the names of operations, what the trace of a step tells."""
    found: dict[str, StepMeasure] = defaultdict(StepMeasure)
    for device in run_meta.step_stats.dev_stats:
        kernels = [stats for stats in device.node_stats if _is_kernel(stats)]
        for stats in device.node_stats:
            inside = () if _is_kernel(stats) else (k for k in kernels if _is_within(k, stats))
            rest = max(0, stats.all_end_rel_micros - sum(k.all_end_rel_micros for k in inside))
            found[stats.node_name].add(device.device, rest, stats)
    return dict(found)


def _is_kernel(stats: NodeExecStats) -> bool:
    return " computes " in stats.timeline_label


def _is_within(kernel: NodeExecStats, island: NodeExecStats) -> bool:
    start, end = island.all_start_nanos, island.all_start_nanos + island.all_end_rel_nanos
    return start <= kernel.all_start_nanos < end


@dataclass
class OperationMeasure:
    """What is known of one operation.

    Attributes:
        kinds: its type, the types that a log gives it, and whether it is a trainable variable.
        steps: by step, what it did.
    """

    op: Operation
    kinds: list[str]
    float_ops: int
    parameters: int
    steps: Mapping[int, StepMeasure]


def measures(
    graph: Graph, op_log: OpLogProto | None, steps: Mapping[int, Mapping[str, StepMeasure]]
) -> Iterable[OperationMeasure]:
    """Every operation of a graph with what is known of it.

    Args:
        op_log: further types of operations, and numbers of floating-point operations.
        steps: what `measured` gave, by step.
    """
    trainable = {v.op: v.shape.num_elements() or 0 for v in graph.get_collection("trainable_variables")}
    logged = {entry.name: entry for entry in op_log.log_entries} if op_log is not None else {}
    for op in graph.get_operations():
        entry = logged.get(op.name)
        kinds = [op.type, *([TRAINABLE] if op in trainable else [])]
        kinds += [kind for kind in (entry.types if entry is not None else ()) if kind not in kinds]
        counted = float_operations(op) or (entry.float_ops if entry is not None else 0)
        ran = {step: by_name[op.name] for step, by_name in steps.items() if op.name in by_name}
        yield OperationMeasure(op, kinds, counted, trainable.get(op, 0), ran)
