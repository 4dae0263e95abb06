"""Traces follow the Trace Event Format, as Perfetto reads it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from anabranch.proto.step_stats_pb2 import StepStats
from anabranch.runtime.timeline import Timeline

CPU = "/job:localhost/replica:0/task:0/device:CPU:0"
GPU = "/job:localhost/replica:0/task:0/device:GPU:0"
PHASES = {"X", "M", "s", "t", "C"}


def add(device: Any, label: str, start: int, length: int, thread: int = 7, size: int = 0, name: str = "") -> None:
    node = device.node_stats.add(
        node_name=name or label.split(" ", maxsplit=1)[0],
        all_start_micros=start,
        all_end_rel_micros=length,
        thread_id=thread,
        timeline_label=label,
    )
    allocation = node.output.add().tensor_description.allocation_description
    allocation.allocated_bytes, allocation.allocator_name = size, "cpu"


@pytest.fixture
def stats() -> Any:
    message = StepStats()
    cpu = message.dev_stats.add(device=CPU)
    cpu.thread_names[7] = "MainThread"
    add(cpu, "read = ReadFile()", 1000, 50, size=100)
    add(cpu, "model/loss = Island(read): model/dense, model/loss", 1100, 300, size=40)
    add(cpu, "h = HistogramSummary(model/loss)", 1400, 20, size=8)
    add(cpu, "other = Island(read, ^model/loss)", 1150, 10, thread=8)
    add(cpu, "late = Island(other:1)", 1155, 100, thread=8)
    gpu = message.dev_stats.add(device=GPU)
    add(gpu, "memcpy 12 bytes", 1200, 5, name="copy")
    return message


def trace_of(stats: Any, **kwargs: bool) -> list[dict[str, Any]]:
    trace = json.loads(Timeline(stats).generate_chrome_trace_format(**kwargs))
    events: list[dict[str, Any]] = trace["traceEvents"]
    check_schema(events)
    return events


def check_schema(events: list[dict[str, Any]]) -> None:
    """What the format asks of each kind of event, and what viewers assume beyond it."""
    named = {e["pid"] for e in events if e["ph"] == "M" and e["name"] == "process_name"}
    threads = {(e["pid"], e["tid"]) for e in events if e["ph"] == "M" and e["name"] == "thread_name"}
    for event in events:
        assert event["ph"] in PHASES
        assert isinstance(event["name"], str)
        assert event["pid"] in named
        if event["ph"] == "M":
            assert event["args"]
            continue
        assert event["ts"] >= 0
        assert isinstance(event["tid"], int)
        if event["ph"] == "X":
            assert event["dur"] >= 0
            assert (event["pid"], event["tid"]) in threads
        if event["ph"] == "C":
            assert all(isinstance(v, int) for v in event["args"].values())
    check_nesting([e for e in events if e["ph"] == "X"])
    check_arrows(events)


def check_nesting(slices: list[dict[str, Any]]) -> None:
    """Slices of one thread never overlap."""
    lanes: dict[tuple[int, int], float] = {}
    for event in sorted(slices, key=lambda e: e["ts"]):
        lane = event["pid"], event["tid"]
        assert event["ts"] >= lanes.get(lane, 0)
        lanes[lane] = event["ts"] + event["dur"]


def check_arrows(events: list[dict[str, Any]]) -> None:
    """Every arrow has one start and one end, each bound to a slice."""
    starts = {e["id"]: e for e in events if e["ph"] == "s"}
    ends = {e["id"]: e for e in events if e["ph"] == "t"}
    assert set(starts) == set(ends)
    slices = [e for e in events if e["ph"] == "X"]
    for arrow in [*starts.values(), *ends.values()]:
        lane = [s for s in slices if (s["pid"], s["tid"]) == (arrow["pid"], arrow["tid"])]
        assert any(s["ts"] <= arrow["ts"] <= s["ts"] + s["dur"] for s in lane)


def test_slices_tell_name_type_time_and_inputs(stats: Any) -> None:
    slices = {e["args"]["name"]: e for e in trace_of(stats) if e["ph"] == "X"}
    assert set(slices) == {"read", "model/loss", "h", "other", "late", "copy"}
    loss = slices["model/loss"]
    assert (loss["name"], loss["ts"], loss["dur"]) == ("Island", 1100, 300)
    assert loss["args"]["input0"] == "read"
    assert all(isinstance(event["args"]["bytes"], int) for event in slices.values())
    assert loss["args"]["operations"] == "model/dense, model/loss"
    assert slices["copy"]["name"] == "memcpy 12 bytes"


def test_devices_and_threads_have_names(stats: Any) -> None:
    names = [e["args"]["name"] for e in trace_of(stats) if e["ph"] == "M" and e["name"] == "process_name"]
    assert names == [f"{CPU} Compute", f"{GPU} Compute"]
    threads = [e["args"]["name"] for e in trace_of(stats) if e["ph"] == "M" and e["name"] == "thread_name"]
    assert threads.count("MainThread") == 1
    assert threads.count("thread 8") == 2  # two of its slices overlap


def test_arrows_follow_the_data(stats: Any) -> None:
    arrows = [e["name"] for e in trace_of(stats) if e["ph"] == "s"]
    assert sorted(arrows) == ["model/loss", "model/loss", "other", "read", "read"]
    assert not [e for e in trace_of(stats, show_dataflow=False) if e["ph"] in "st"]


def test_memory(stats: Any) -> None:
    assert not [e for e in trace_of(stats) if e["ph"] == "C"]
    points = [(e["ts"], e["args"]["bytes"]) for e in trace_of(stats, show_memory=True) if e["ph"] == "C"]
    assert points[0] == (1050, 100)
    assert points[-1] == (1420, 0)
    maximum = Timeline(stats).analyze_step_stats().allocator_maximums["cpu"]
    assert (maximum.timestamp, maximum.num_bytes) == (1400, 140)
    assert maximum.tensors == {"read", "model/loss"}


def test_nothing_gives_an_empty_trace() -> None:
    assert trace_of(StepStats(), show_memory=True) == []
