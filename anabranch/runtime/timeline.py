"""Step timings as a trace that Perfetto and chrome://tracing open (WP9.2).

The format is the Trace Event Format's JSON: "X" events are slices (`ts` and `dur` in µs), "M" events name the processes
(devices) and threads, "s" and "t" events are the arrows of the dataflow, "C" events are curves of memory in use.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from anabranch.proto.step_stats_pb2 import DeviceStepStats, NodeExecStats, StepStats

#: ``name = Type(input, input): members``, as sessions label what ran
_LABEL = re.compile(r"(?P<name>\S+) = (?P<type>[^(\s]+)\((?P<inputs>[^)]*)\)(?:: (?P<members>.*))?", re.DOTALL)


class AllocationMaximum(NamedTuple):
    """The moment (µs) at which an allocator held most, how much that was (bytes), and by which nodes."""

    timestamp: int
    num_bytes: int
    tensors: frozenset[str]


class StepStatsAnalysis(NamedTuple):
    """A trace, and the most memory that each allocator held."""

    chrome_trace: ChromeTrace
    allocator_maximums: dict[str, AllocationMaximum]


class ChromeTrace:
    """The events of a trace."""

    def __init__(self) -> None:
        self.metadata: list[dict[str, Any]] = []
        self.events: list[dict[str, Any]] = []

    def name_process(self, pid: int, name: str) -> None:
        self.metadata.append({"name": "process_name", "ph": "M", "pid": pid, "args": {"name": name}})
        self.metadata.append({"name": "process_sort_index", "ph": "M", "pid": pid, "args": {"sort_index": pid}})

    def name_thread(self, pid: int, tid: int, name: str) -> None:
        self.metadata.append({"name": "thread_name", "ph": "M", "pid": pid, "tid": tid, "args": {"name": name}})

    def format_to_string(self, pretty: bool = False) -> str:
        """The JSON text."""
        trace = {"traceEvents": self.metadata + self.events, "displayTimeUnit": "ms"}
        return json.dumps(trace, indent=4 if pretty else None, separators=(",", ": ") if pretty else (",", ":"))


@dataclass(slots=True)
class _Slice:
    """One execution of one node; times in µs."""

    name: str
    type: str
    inputs: tuple[str, ...]
    members: str
    start: float
    end: float
    thread: int
    pid: int
    outputs: dict[str, int]
    tid: int = 0


@dataclass(slots=True)
class _Process:
    """A device of the trace."""

    pid: int
    device: str
    thread_names: dict[int, str]
    slices: list[_Slice] = field(default_factory=list)


class Timeline:
    """Turns the timings of a step into a trace.

    Args:
        step_stats: the `StepStats` of a `RunMetadata`.
        graph: accepted for compatibility: the labels tell the dataflow.
    """

    def __init__(self, step_stats: StepStats, graph: object = None) -> None:
        self._step_stats = step_stats

    def generate_chrome_trace_format(self, show_dataflow: bool = True, show_memory: bool = False) -> str:
        """The trace as JSON text, to be written to a file.

        Args:
            show_dataflow: adds an arrow from each node to those that take its results.
            show_memory: adds a curve of the bytes that each allocator holds.
        """
        return self.analyze_step_stats(show_dataflow, show_memory).chrome_trace.format_to_string(pretty=True)

    def analyze_step_stats(self, show_dataflow: bool = True, show_memory: bool = True) -> StepStatsAnalysis:
        """The trace, and the memory that the allocators held at most."""
        trace = ChromeTrace()
        processes = [_read_device(pid, stats) for pid, stats in enumerate(self._step_stats.dev_stats)]
        for process in processes:
            _add_slices(trace, process)
        slices = sorted((s for process in processes for s in process.slices), key=lambda s: (s.start, s.end))
        if show_dataflow:
            _add_arrows(trace, slices)
        curves = _memory_curves(slices)
        if show_memory:
            _add_memory(trace, curves, len(processes))
        return StepStatsAnalysis(trace, {name: _maximum(points) for name, points in curves.items()})


# ---------------------------------------------------------------------- reading
def _read_device(pid: int, stats: DeviceStepStats) -> _Process:
    process = _Process(pid, stats.device, dict(stats.thread_names))
    process.slices.extend(_read_node(pid, node) for node in stats.node_stats)
    process.slices.sort(key=lambda s: (s.start, s.end))
    return process


def _read_node(pid: int, node: NodeExecStats) -> _Slice:
    start = node.all_start_nanos / 1e3 if node.all_start_nanos else float(node.all_start_micros)
    length = node.all_end_rel_nanos / 1e3 if node.all_end_rel_nanos else float(node.all_end_rel_micros)
    outputs: dict[str, int] = defaultdict(int)
    for output in node.output:
        allocation = output.tensor_description.allocation_description
        outputs[allocation.allocator_name or "memory"] += allocation.allocated_bytes or allocation.requested_bytes
    label = _LABEL.match(node.timeline_label)
    if label is None:
        return _Slice(node.node_name, node.timeline_label or node.node_name, (), "", start, start + length,
                      node.thread_id, pid, dict(outputs))  # fmt: skip
    inputs = tuple(i.strip().lstrip("^").split(":")[0] for i in label["inputs"].split(",") if i.strip())
    return _Slice(node.node_name, label["type"], inputs, label["members"] or "", start, start + length,
                  node.thread_id, pid, dict(outputs))  # fmt: skip


# ---------------------------------------------------------------------- slices
def _add_slices(trace: ChromeTrace, process: _Process) -> None:
    trace.name_process(process.pid, f"{process.device} Compute")
    lanes: dict[int, list[float]] = {}
    numbers: dict[tuple[int, int], int] = {}
    for item in process.slices:
        lane = _free_lane(lanes.setdefault(item.thread, []), item)
        item.tid = numbers.setdefault((item.thread, lane), len(numbers))
        args: dict[str, Any] = {"name": item.name, "op": item.type, "bytes": sum(item.outputs.values())}
        args.update({f"input{i}": name for i, name in enumerate(item.inputs)})
        if item.members:
            args["operations"] = item.members
        trace.events.append(
            {"name": item.type, "cat": "Op", "ph": "X", "ts": item.start, "dur": item.end - item.start,
             "pid": item.pid, "tid": item.tid, "args": args}
        )  # fmt: skip
    for (thread, _), tid in numbers.items():
        trace.name_thread(process.pid, tid, process.thread_names.get(thread, f"thread {thread}"))


def _free_lane(ends: list[float], item: _Slice) -> int:
    """The first lane of a thread that is idle when a slice starts: slices of one lane must not overlap."""
    for lane, end in enumerate(ends):
        if end <= item.start:
            ends[lane] = item.end
            return lane
    ends.append(item.end)
    return len(ends) - 1


def _add_arrows(trace: ChromeTrace, slices: Iterable[_Slice]) -> None:
    producers: dict[str, _Slice] = {}
    count = 0
    for item in slices:
        for name in item.inputs:
            source = producers.get(name)
            if source is None or source is item:
                continue
            arrow = {"name": name, "cat": "DataFlow", "id": count}
            trace.events.append({**arrow, "ph": "s", "ts": source.end, "pid": source.pid, "tid": source.tid})
            trace.events.append({**arrow, "ph": "t", "ts": item.start, "pid": item.pid, "tid": item.tid})
            count += 1
        # in the order of time: of a name that runs many times, the latest run so far made what comes next
        producers[item.name] = item


# ---------------------------------------------------------------------- memory
@dataclass(frozen=True, slots=True)
class _HeldMemory:
    """What an allocator holds from a moment (µs) on."""

    time: float
    num_bytes: int
    holders: frozenset[str]


def _memory_curves(slices: list[_Slice]) -> dict[str, list[_HeldMemory]]:
    """Bytes in use per allocator: a node's results live from its end to the end of the last node that takes them."""
    last_use = {item.name: item.end for item in slices}
    for item in slices:
        for name in item.inputs:
            if name in last_use:
                last_use[name] = max(last_use[name], item.end)
    finish = max((item.end for item in slices), default=0.0)
    changes: dict[str, list[tuple[float, int, str]]] = defaultdict(list)
    for item in slices:
        for allocator, size in item.outputs.items():
            # what nobody in the step takes is fetched, and lives to the end of the step
            end = last_use[item.name] if last_use[item.name] > item.end else finish
            changes[allocator] += [(item.end, size, item.name), (end, -size, item.name)]
    return {allocator: _accumulated(entries) for allocator, entries in changes.items()}


def _accumulated(changes: list[tuple[float, int, str]]) -> list[_HeldMemory]:
    points: list[_HeldMemory] = []
    held, holders = 0, frozenset[str]()
    # of what happens at one moment, allocations first: the maximum must not be told too small
    for time, size, name in sorted(changes, key=lambda change: (change[0], change[1] < 0)):
        held += size
        holders = holders | {name} if size > 0 else holders - {name}
        points.append(_HeldMemory(time, held, holders))
    return points


def _maximum(points: list[_HeldMemory]) -> AllocationMaximum:
    highest = max(points, key=lambda point: point.num_bytes)
    return AllocationMaximum(int(highest.time), highest.num_bytes, highest.holders)


def _add_memory(trace: ChromeTrace, curves: dict[str, list[_HeldMemory]], first_pid: int) -> None:
    for pid, (allocator, points) in enumerate(sorted(curves.items()), start=first_pid):
        trace.name_process(pid, f"{allocator} Memory")
        for point in points:
            trace.events.append(
                {"name": allocator, "cat": "Memory", "ph": "C", "ts": point.time, "pid": pid, "tid": 0,
                 "args": {"bytes": point.num_bytes}}
            )  # fmt: skip
