"""Timings of a step, as the messages that tools read (WP9)."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Mapping
from typing import Any, Protocol

from anabranch.core.device import DeviceSpec
from anabranch.graph.graph import Graph
from anabranch.pipeline import Plan
from anabranch.proto.config_pb2 import RunMetadata, RunOptions
from anabranch.proto.step_stats_pb2 import DeviceStepStats
from anabranch.runtime.item_call import ItemEvent
from anabranch.runtime.kernel_profile import KernelEvent, profiled
from anabranch.runtime.partition_graphs import default_device, step_graph_defs

_UINT32 = 0xFFFFFFFF
_MAX_LABELLED = 50


def wants_trace(options: RunOptions) -> bool:
    """Whether a `RunOptions` asks for timings or for the partition graphs."""
    return bool(options.trace_level != RunOptions.NO_TRACE or options.output_partition_graphs)


class Planned(Protocol):
    """A step that was planned in this process."""

    @property
    def plan(self) -> Plan: ...


class StepRecord:
    """Collects what ran in a step; call it with each event."""

    def __init__(self) -> None:
        self.events: list[ItemEvent] = []
        self._kernels: list[KernelEvent] = []

    def profiling(self, options: RunOptions) -> contextlib.AbstractContextManager[None]:
        """A block in which what runs inside islands is recorded too, where a `RunOptions` asks for that."""
        if options.trace_level in (RunOptions.HARDWARE_TRACE, RunOptions.FULL_TRACE):
            return profiled(self._kernels)
        return contextlib.nullcontext()

    def __call__(self, event: ItemEvent) -> None:
        self.events.append(event)

    def fill(self, run_metadata: RunMetadata, graph: Graph, step: Planned, options: RunOptions) -> None:
        """Replaces the contents of a `RunMetadata` by the timings: one entry per island or host operation (see `_add`),
        by device.

        The partition graphs are what the step ran after all passes, one per device.
        """
        run_metadata.Clear()
        if options.trace_level != RunOptions.NO_TRACE:
            threads = {thread.ident: thread.name for thread in threading.enumerate()}
            item_of = {name: event.name for event in self.events for name in event.operations}
            default = default_device(step.plan)
            devices = {
                name: run_metadata.step_stats.dev_stats.add(device=name)
                for name in sorted({event.device or default for event in self.events} or {default})
            }
            for event in self.events:
                device = devices[event.device or default]
                self._add(device, event, item_of)
                device.thread_names[event.thread & _UINT32] = threads.get(event.thread, str(event.thread))
            for kernel in self._kernels:
                self._add_kernel(devices, kernel, default, graph)
        if options.output_partition_graphs:
            run_metadata.partition_graphs.extend(step_graph_defs(step.plan, graph))

    def _add(self, device: DeviceStepStats, event: ItemEvent, item_of: dict[str, str]) -> None:
        """One entry, labelled ``name = type(inputs)``; an island is named by its last operation.

        An operation inside an island has no time of its own, so that the label of an island goes on with the names of
        its operations. What the profiler tells of the kernels inside stands in entries of their own (`_add_kernel`).
        """
        start, end = int(event.start * 1e9), int(event.end * 1e9)
        sources = dict.fromkeys(item_of[name] for name in event.inputs if name in item_of)
        label = f"{event.name} = {event.kind}({', '.join(sources)})"
        if len(event.operations) > 1:
            label += f": {', '.join(event.operations[:_MAX_LABELLED])}"
            label += ", ..." if len(event.operations) > _MAX_LABELLED else ""
        stats = device.node_stats.add(
            node_name=event.name,
            all_start_micros=start // 1000,
            all_start_nanos=start,
            op_end_rel_micros=(end - start) // 1000,
            op_end_rel_nanos=end - start,
            all_end_rel_micros=(end - start) // 1000,
            all_end_rel_nanos=end - start,
            thread_id=event.thread & _UINT32,
            timeline_label=label,
        )
        allocation = stats.output.add().tensor_description.allocation_description
        allocation.requested_bytes = allocation.allocated_bytes = event.output_bytes
        allocation.allocator_name = _allocator(device.device)

    def _add_kernel(self, devices: Mapping[str, Any], kernel: KernelEvent, default: str, graph: Graph) -> None:
        """One entry, named after the operation whose result the kernel is; beside it what is fused into it."""
        device_of = {name: event.device for event in self.events for name in event.operations}
        operations = kernel.operations(device_of)
        # the profiler sees the whole process, other steps included; what runs during an island of this one is taken for
        # its
        island = next((event for event in self.events if event.start <= kernel.start <= event.end), None)
        if not operations and island is None:
            return  # of another step
        if not operations:  # made by XLA itself, or in a program that came from the disk, which has lost the names
            assert island is not None
            operations = (f"{island.name}/{kernel.kernel}",)
        device = devices[device_of.get(operations[0]) or (island.device if island else "") or default]
        start, end = int(kernel.start * 1e9), int(kernel.end * 1e9)
        lane = kernel.lane & _UINT32
        device.thread_names[lane] = f"XLA {kernel.lane_name.partition('/')[0]}"
        device.node_stats.add(
            node_name=operations[0],
            all_start_micros=start // 1000,
            all_start_nanos=start,
            op_end_rel_micros=(end - start) // 1000,
            op_end_rel_nanos=end - start,
            all_end_rel_micros=(end - start) // 1000,
            all_end_rel_nanos=end - start,
            thread_id=lane,
            timeline_label=f"{operations[0]} = {_type_of(operations[0], graph)}(): "
            f"{kernel.kernel} computes {', '.join(operations)}",
        )


def _type_of(name: str, graph: Graph) -> str:
    """An operation's type; "Kernel" for one that a pass made."""
    try:
        return graph.get_operation_by_name(name).type
    except KeyError:
        return "Kernel"


def _allocator(device: str) -> str:
    """Who gives a device its memory: all virtual CPUs share that of the host."""
    spec = DeviceSpec.from_string(device)
    return "cpu" if spec.device_type == "CPU" else f"{spec.device_type}_{spec.device_index}"
