"""What a traced step reports: timings, a trace, and the graph that ran."""

from __future__ import annotations

import json
from typing import Any

import numpy as np

from anabranch.graph.operation import Tensor
from anabranch.ops import raw
from anabranch.proto.config_pb2 import RunMetadata, RunOptions
from anabranch.proto.tensors import make_ndarray
from anabranch.runtime.timeline import Timeline
from anabranch.session import Session


def build() -> tuple[Tensor, list[Tensor]]:
    """One island (a product, then exp) and a host call that takes a value from its middle."""
    x = raw.Placeholder(dtype="float32", shape=[None, 3], name="x")
    weights = raw.Mul(x=np.ones((3, 2), np.float32), y=np.float32(3), name="weights")
    product = raw.MatMul(a=x, b=weights, name="product")
    text = raw.HistogramSummary(tag="h", values=product, name="text")
    return x, [text, raw.Exp(x=product, name="exp")]


def traced(**options: Any) -> Any:
    x, fetches = build()
    metadata = RunMetadata()
    with Session() as session:
        for count in (2, 3):
            feeds = {x: np.ones((count, 3), np.float32)}
            session.run(fetches, feeds, options=RunOptions(**options), run_metadata=metadata)
    return metadata


def test_each_island_and_host_call_is_timed() -> None:
    metadata = traced(trace_level=RunOptions.FULL_TRACE)
    (device,) = metadata.step_stats.dev_stats  # of the last step alone
    assert device.device.endswith("/device:CPU:0")
    own = [stats for stats in device.node_stats if not device.thread_names[stats.thread_id].startswith("XLA ")]
    labels = {stats.node_name: stats.timeline_label for stats in own}
    assert labels == {"exp": "exp = Island(): product, exp", "text": "text = HistogramSummary(exp)"}
    island, host = own
    assert island.all_start_nanos + island.all_end_rel_nanos <= host.all_start_nanos
    # product and exp leave the island: 3 rows of 2 floats each
    assert island.output[0].tensor_description.allocation_description.allocated_bytes == 2 * 3 * 2 * 4
    assert [name for name in device.thread_names.values() if not name.startswith("XLA ")] == ["MainThread"]
    assert not metadata.partition_graphs


def test_a_trace_can_be_made_of_it() -> None:
    stats = traced(trace_level=RunOptions.FULL_TRACE).step_stats
    events = json.loads(Timeline(stats).generate_chrome_trace_format(show_memory=True))["traceEvents"]
    slices = [e for e in events if e["ph"] == "X"]
    names = [e["name"] for e in slices]
    assert {"Island", "HistogramSummary"} < set(names), "and what runs inside the island"
    assert [e["name"] for e in events if e["ph"] == "s"] == ["exp"]


def test_the_partition_graph_is_what_ran() -> None:
    metadata = traced(output_partition_graphs=True)
    assert not metadata.step_stats.dev_stats
    (graph,) = metadata.partition_graphs
    nodes = {node.name: node for node in graph.node}
    assert list(nodes) == ["x", "weights", "product", "exp", "text/tag", "text"]
    assert nodes["x"].op == "Placeholder"
    assert nodes["weights"].op == "Const"  # folded
    np.testing.assert_array_equal(make_ndarray(nodes["weights"].attr["value"].tensor), np.full((3, 2), 3))
    assert list(nodes["product"].input) == ["x", "weights"]
    assert nodes["product"].attr["_island"].s == b"exp"
    assert "_island" not in nodes["text"].attr
    assert {node.device for node in graph.node} == {"/job:localhost/replica:0/task:0/device:CPU:0"}
