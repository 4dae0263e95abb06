"""Timings of a step, as the messages that tools read (WP9)."""

from __future__ import annotations

import threading
from typing import Any

from anabranch.core.device import DeviceSpec
from anabranch.graph.graph import Graph
from anabranch.proto import RunOptions
from anabranch.runtime.partition_graphs import default_device, step_graph_defs
from anabranch.runtime.step import ItemEvent

_UINT32 = 0xFFFFFFFF
_MAX_LABELLED = 50


def wants_trace(options: Any) -> bool:
    """Whether a `RunOptions` asks for timings or for the partition graphs."""
    return bool(options.trace_level != RunOptions.NO_TRACE or options.output_partition_graphs)


class StepRecord:
    """Collects what ran in a step; call it with each event."""

    def __init__(self) -> None:
        self.events: list[ItemEvent] = []

    def __call__(self, event: ItemEvent) -> None:
        self.events.append(event)

    def fill(self, run_metadata: Any, graph: Graph, step: Any, options: Any) -> None:
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
        if options.output_partition_graphs:
            run_metadata.partition_graphs.extend(step_graph_defs(step.plan, graph))

    def _add(self, device: Any, event: ItemEvent, item_of: dict[str, str]) -> None:
        """One entry, labelled ``name = type(inputs)``; an island is named by its last operation.

        An operation inside an island has no time of its own, so that the label of an island goes on with the names of
        its operations.
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


def _allocator(device: str) -> str:
    """Who gives a device its memory: all virtual CPUs share that of the host."""
    spec = DeviceSpec.from_string(device)
    return "cpu" if spec.device_type == "CPU" else f"{spec.device_type}_{spec.device_index}"
