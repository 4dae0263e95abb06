"""Timings of a step in the trace format that Perfetto and chrome://tracing open."""

from __future__ import annotations

import json
from typing import Any

from anabranch.proto import StepStats


def chrome_trace(step_stats: StepStats) -> str:
    """JSON with one complete event (times in µs) per island or host operation, one process per device.

    Args:
        step_stats: from a `RunMetadata` that a run with a trace level filled in.
    """
    events: list[dict[str, Any]] = []
    for process, device in enumerate(step_stats.dev_stats):
        events.append({"ph": "M", "name": "process_name", "pid": process, "args": {"name": device.device}})
        for node in device.node_stats:
            label = node.timeline_label or node.node_name
            events.append(
                {
                    "ph": "X",
                    "name": node.node_name,
                    "cat": label.partition(":")[0] or "Op",
                    "pid": process,
                    "tid": node.thread_id,
                    "ts": node.all_start_micros,
                    "dur": max(node.all_end_rel_micros, 1),
                    "args": {"name": node.node_name, "label": label},
                }
            )
    return json.dumps({"traceEvents": events})
