"""Timings of a step, as the messages that tools read (WP9)."""

from __future__ import annotations

from typing import Any

from anabranch.graph.graph import Graph
from anabranch.proto import RunOptions
from anabranch.runtime.step import ItemEvent, PreparedStep

HOST_DEVICE = "/job:localhost/replica:0/task:0/device:CPU:0"


def wants_trace(options: Any) -> bool:
    """Whether a `RunOptions` asks for timings or for the partition graphs."""
    return options.trace_level != RunOptions.NO_TRACE or options.output_partition_graphs


class StepRecord:
    """Collects what ran in a step; call it with each event."""

    def __init__(self) -> None:
        self.events: list[ItemEvent] = []

    def __call__(self, event: ItemEvent) -> None:
        self.events.append(event)

    def fill(self, run_metadata: Any, graph: Graph, step: PreparedStep, options: Any) -> None:
        """Writes the timings (µs) into a `RunMetadata`: one entry per island or host operation.

        An operation inside an island has no time of its own; the island's label names all of them.
        """
        if options.trace_level != RunOptions.NO_TRACE:
            device = run_metadata.step_stats.dev_stats.add(device=HOST_DEVICE)
            for event in self.events:
                self._add(device, event)
        if options.output_partition_graphs:
            run_metadata.partition_graphs.append(graph.as_graph_def())

    def _add(self, device: Any, event: ItemEvent) -> None:
        start, end = int(event.start * 1e6), int(event.end * 1e6)
        names = event.operations if event.kind == "host" else (event.operations[-1],)
        stats = device.node_stats.add(
            node_name=names[0],
            all_start_micros=start,
            op_end_rel_micros=end - start,
            all_end_rel_micros=end - start,
            thread_id=event.thread & 0xFFFFFFFF,
            timeline_label=f"{event.kind}: {', '.join(event.operations[:50])}",
        )
        stats.output.add().tensor_description.allocation_description.requested_bytes = event.output_bytes
