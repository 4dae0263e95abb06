"""Summaries and event files, read back with TensorBoard's own reader."""

from __future__ import annotations

import gc
import io
import subprocess
import sys
import threading
from bisect import bisect_right
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from anabranch.errors import InvalidArgumentError, ResourceExhaustedError
from anabranch.frontend.storage import summary
from anabranch.frontend.storage.summary_writer import EventStream, FileWriter, FileWriterCache
from anabranch.graph.collections import GraphKeys
from anabranch.graph.conversion import convert_to_tensor
from anabranch.graph.graph import Graph, get_default_graph
from anabranch.io.event_files import summary_iterator
from anabranch.ops import raw
from anabranch.ops.storage.summary import bucket_limits, histogram_of
from anabranch.proto import summary_pb2
from anabranch.proto.config_pb2 import ConfigProto, RunMetadata, RunOptions
from anabranch.proto.graph_pb2 import GraphDef, NodeDef
from anabranch.proto.summary_pb2 import SessionLog, Summary
from anabranch.proto.training_pb2 import MetaGraphDef
from anabranch.session import Session


def read(logdir: Path) -> EventAccumulator:
    return EventAccumulator(str(logdir), size_guidance=dict.fromkeys(("scalars", "histograms", "images"), 0)).Reload()


def placeholder(dtype: str = "float32", shape: Any = None) -> Any:
    return raw.Placeholder(dtype=dtype, shape=shape)


def run(tensor: Any, feeds: Any = None) -> Any:
    with Session() as session:
        return Summary.FromString(session.run(tensor, feeds))


# ------------------------------------------------------------------------------------ through TensorBoard's reader
def test_curves(tmp_path: Path) -> None:
    loss = placeholder(shape=[])
    with get_default_graph().name_scope("train"):
        summary.scalar("loss", loss)
        summary.scalar("loss", raw.Mul(x=loss, y=2.0), family="sums")
    merged = summary.merge_all()
    values = np.random.default_rng(0).normal(size=20).astype(np.float32)
    with Session() as session, FileWriter(tmp_path) as writer:
        for step, value in enumerate(values):
            writer.add_summary(session.run(merged, {loss: value}), global_step=np.int64(step))
    found = read(tmp_path)
    assert sorted(found.Tags()["scalars"]) == ["sums/train/sums/loss", "train/loss"]
    events = found.Scalars("train/loss")
    assert [e.step for e in events] == list(range(20))
    np.testing.assert_array_equal([e.value for e in events], values)
    np.testing.assert_array_equal([e.value for e in found.Scalars("sums/train/sums/loss")], values * 2)


def test_histograms_and_images(tmp_path: Path) -> None:
    weights = np.random.default_rng(1).normal(size=1000)
    pixels = np.random.default_rng(2).integers(0, 256, (2, 4, 6, 3)).astype(np.uint8)
    summary.histogram("weights", weights)
    summary.image("digits", pixels, max_outputs=2)
    with Session() as session, FileWriter(str(tmp_path)) as writer:
        writer.add_summary(session.run(summary.merge_all()), 7)
    found = read(tmp_path)
    (event,) = found.Histograms("weights")
    histogram = event.histogram_value
    assert (event.step, histogram.num, histogram.min, histogram.max) == (7, 1000, weights.min(), weights.max())
    np.testing.assert_array_equal(histogram.bucket, np.histogram(weights, [-np.inf, *histogram.bucket_limit])[0])
    assert sorted(found.Tags()["images"]) == ["digits/image/0", "digits/image/1"]
    for i, wanted in enumerate(pixels):
        (shown,) = found.Images(f"digits/image/{i}")
        assert (shown.width, shown.height) == (6, 4)
        np.testing.assert_array_equal(np.asarray(Image.open(io.BytesIO(shown.encoded_image_string))), wanted)


def test_the_graph_is_shown_with_shapes(tmp_path: Path) -> None:
    x = placeholder(shape=[None, 3])
    with get_default_graph().name_scope("layer"):
        raw.MatMul(a=x, b=np.ones((3, 2), np.float32), name="product")
    FileWriter(tmp_path, get_default_graph()).close()
    found = read(tmp_path)
    assert found.Tags()["graph"]
    assert found.Tags()["meta_graph"]
    nodes = {node.name: node for node in found.Graph().node}
    assert nodes["layer/product"].op == "MatMul"
    (shape,) = nodes["layer/product"].attr["_output_shapes"].list.shape
    assert [dim.size for dim in shape.dim] == [-1, 2]
    assert {node.name for node in found.MetaGraph().graph_def.node} == set(nodes)


def test_step_timings(tmp_path: Path) -> None:
    y = raw.MatMul(a=placeholder(shape=[2, 2]), b=np.eye(2, dtype=np.float32), name="product")
    metadata = RunMetadata()
    with Session() as session, FileWriter(tmp_path, y.graph) as writer:
        feeds = {y.op.inputs[0]: np.ones((2, 2), np.float32)}
        session.run(y, feeds, RunOptions(trace_level=RunOptions.FULL_TRACE), metadata)
        writer.add_run_metadata(metadata, "step 1", 1)
        with pytest.raises(ValueError, match="already used"):
            writer.add_run_metadata(metadata, "step 1", 2)
    found = read(tmp_path)
    assert found.Tags()["run_metadata"] == ["step 1"]
    (device,) = found.RunMetadata("step 1").step_stats.dev_stats
    assert "product" in {stats.node_name for stats in device.node_stats}


def test_step_timings_of_two_devices(tmp_path: Path) -> None:
    """As TensorBoard reads them: devices, threads, times, bytes; the names are those of the graph."""
    x = placeholder(shape=[2, 2])
    with get_default_graph().device("/cpu:1"):
        far = raw.Exp(x, name="far")
    near = raw.Neg(far, name="near")
    metadata = RunMetadata()
    with Session(config=ConfigProto(device_count={"CPU": 2})) as session, FileWriter(tmp_path, near.graph) as writer:
        session.run(near, {x: np.ones((2, 2))}, RunOptions(trace_level=RunOptions.SOFTWARE_TRACE), metadata)
        writer.add_run_metadata(metadata, "step 1", 1)
    found = {
        stats.node_name: (device.device[-5:], stats, device.thread_names)
        for device in read(tmp_path).RunMetadata("step 1").step_stats.dev_stats
        for stats in device.node_stats
    }
    assert {name: device for name, (device, _, _) in found.items()} == {
        "far": "CPU:1", "far/send_CPU_1_to_CPU_0": "CPU:1", "far/recv_CPU_1_to_CPU_0": "CPU:0", "near": "CPU:0",
    }  # fmt: skip
    for _, stats, threads in found.values():
        assert threads[stats.thread_id]
        assert stats.all_start_micros > 0
        assert stats.all_start_micros == stats.all_start_nanos // 1000
        assert stats.all_end_rel_micros == stats.all_end_rel_nanos // 1000
        made = stats.output[0].tensor_description.allocation_description.allocated_bytes
        assert made == (0 if "send" in stats.node_name else 16)


def test_text_and_tensors(tmp_path: Path) -> None:
    summary.text("note", convert_to_tensor(["first", "second"]))
    summary.tensor_summary("values", np.arange(3.0), summary_description="three numbers", display_name="three")
    merged = summary.merge_all()
    with Session() as session, FileWriter(tmp_path) as writer:
        writer.add_summary(session.run(merged), 1)
        writer.add_summary(session.run(merged), 2)
    found = read(tmp_path)
    assert sorted(found.Tags()["tensors"]) == ["note", "values"]
    assert [list(e.tensor_proto.string_val) for e in found.Tensors("note")] == [[b"first", b"second"]] * 2
    assert found.SummaryMetadata("note").plugin_data.plugin_name == "text"
    assert found.SummaryMetadata("values").display_name == "three"
    # a tag's metadata is in its first value only
    (file,) = tmp_path.iterdir()
    described = [[v.HasField("metadata") for v in e.summary.value] for e in summary_iterator(file)]
    assert described == [[], [True, True], [False, False]]


# ------------------------------------------------------------------------------------------------------ names
@pytest.mark.parametrize(
    ("name", "family", "tag"),
    [
        ("loss", None, "outer/loss"),
        ("a b!/c", None, "outer/a_b_/c"),
        ("/loss", None, "outer/loss"),
        ("loss", "my group", "my_group/outer/my_group/loss"),
    ],
)
def test_tags_are_names(name: str, family: str | None, tag: str) -> None:
    with get_default_graph().name_scope("outer"):
        found = summary.scalar(name, 1.0, family=family)
    assert [v.tag for v in run(found).value] == [tag]
    assert found.op.name == (tag if family is None else tag.split("/", 1)[1])


def test_a_second_summary_of_one_name_gets_its_own_tag() -> None:
    tags = [run(summary.scalar("loss", 1.0)).value[0].tag for _ in range(3)]
    assert tags == ["loss", "loss_1", "loss_2"]


def test_collections() -> None:
    first = summary.scalar("a", 1.0)
    second = summary.histogram("b", [1.0], collections=["mine", "yours"])
    hidden = summary.scalar("c", 1.0, collections=[])
    graph = get_default_graph()
    assert graph.get_collection(GraphKeys.SUMMARIES) == [first]
    assert graph.get_collection("mine") == graph.get_collection("yours") == [second]
    merged = summary.merge([first, second, hidden], collections=["merged"], name="all")
    assert graph.get_collection("merged") == [merged]
    assert {v.tag for v in run(merged).value} == {"a", "b", "c"}


def test_merge_all_takes_a_scope_and_may_find_nothing() -> None:
    assert summary.merge_all() is None
    with get_default_graph().name_scope("one"):
        summary.scalar("x", 1.0)
    with get_default_graph().name_scope("two"):
        summary.scalar("x", 1.0)
    merged = summary.merge_all(scope="two")
    assert merged is not None
    assert [v.tag for v in run(merged).value] == ["two/x"]
    assert summary.merge_all("no such key") is None


def test_bad_values_are_errors() -> None:
    with Session() as session:
        with pytest.raises(InvalidArgumentError, match="'loss'"):
            session.run(summary.scalar("loss", [1.0, 2.0]))
        with pytest.raises(InvalidArgumentError, match="Nan in summary histogram for: grads"):
            session.run(summary.histogram("grads", [np.nan]))
        same = summary.scalar("same", 1.0)
        with pytest.raises(InvalidArgumentError, match="Duplicate tag same"):
            session.run(summary.merge([same, same]))
    with pytest.raises(ValueError, match="dtype string"):
        summary.text("note", convert_to_tensor(1.0))


def test_summary_description() -> None:
    node = NodeDef(op="TensorSummary")
    node.attr["description"].s = b'{"typeHint": "mesh"}'
    assert summary.get_summary_description(node).type_hint == "mesh"
    with pytest.raises(ValueError, match="NoOp"):
        summary.get_summary_description(NodeDef(op="NoOp"))


def test_there_is_no_writer_in_the_graph() -> None:
    with pytest.raises(RuntimeError, match="No default"):
        summary.initialize()
    assert summary.all_v2_summary_ops() == []


# ------------------------------------------------------------------------------------------------- the writer
def scalars(logdir: Path) -> list[float]:
    return [v.simple_value for f in sorted(logdir.iterdir()) for e in summary_iterator(f) for v in e.summary.value]


def one(value: float) -> Any:
    return Summary(value=[Summary.Value(tag="x", simple_value=value)])


def test_flush_makes_events_visible(tmp_path: Path) -> None:
    with FileWriter(tmp_path, flush_secs=3600) as writer:
        writer.add_summary(one(1.0))
        writer.add_summary(one(2.0).SerializeToString(), 2)
        writer.flush()
        assert scalars(tmp_path) == [1.0, 2.0]
        assert writer.get_logdir() == str(tmp_path)
        (file,) = tmp_path.iterdir()
        steps = [e.step for e in summary_iterator(file)]
        assert steps == [0, 0, 2]


def test_events_become_visible_without_flush(tmp_path: Path) -> None:
    stream = EventStream(str(tmp_path), 10, 0.01, "")
    flushed = threading.Event()
    plain_flush = stream._file.flush
    stream._file.flush = lambda: (plain_flush(), flushed.set())  # type: ignore[method-assign]
    stream.put(one_event(1.0))
    assert flushed.wait(30)
    assert scalars(tmp_path) == [1.0]
    stream.close()


def one_event(value: float) -> Any:
    return summary_pb2.Event(summary=one(value))


def test_a_closed_writer_warns_and_can_be_reopened(tmp_path: Path) -> None:
    writer = FileWriter(tmp_path, filename_suffix=".mine")
    writer.add_summary(one(1.0))
    writer.close()
    writer.close()
    with pytest.warns(UserWarning, match="closed FileWriter"):
        writer.add_summary(one(2.0))
    writer.reopen()
    writer.add_summary(one(3.0))
    writer.close()
    assert sorted(scalars(tmp_path)) == [1.0, 3.0]
    assert [p.name.endswith(".mine") for p in tmp_path.iterdir()] == [True, True]


def test_a_dropped_writer_loses_nothing(tmp_path: Path) -> None:
    writer = FileWriter(tmp_path, flush_secs=3600)
    writer.add_summary(one(5.0))
    del writer
    gc.collect()
    assert scalars(tmp_path) == [5.0]


def test_the_end_of_the_program_loses_nothing(tmp_path: Path) -> None:
    program = f"""
from anabranch.frontend.storage.summary_writer import FileWriter
from anabranch.proto.summary_pb2 import Summary
writer = FileWriter({str(tmp_path)!r}, max_queue=100)
for i in range(50):
    writer.add_summary(Summary(value=[Summary.Value(tag="x", simple_value=i)]), i)
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)
    assert scalars(tmp_path) == list(range(50))


def test_many_threads_write(tmp_path: Path) -> None:
    with FileWriter(tmp_path, max_queue=2) as writer:

        def write(first: int) -> None:
            for i in range(50):
                writer.add_summary(one(first + i))

        threads = [threading.Thread(target=write, args=(100 * i,)) for i in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert sorted(scalars(tmp_path)) == [100 * i + j for i in range(4) for j in range(50)]


def test_the_caller_waits_only_for_a_full_queue(tmp_path: Path) -> None:
    stream = EventStream(str(tmp_path), 3, 3600, "")
    blocked, written = threading.Event(), stream._file.write_event

    def slow(event: Any) -> None:
        blocked.wait()
        written(event)

    stream._file.write_event = slow  # type: ignore[method-assign]
    for i in range(4):  # one is with the thread
        stream.put(one_event(i))
    late = threading.Thread(target=stream.put, args=(one_event(4),))
    late.start()
    blocked.set()
    late.join()
    stream.close()
    assert scalars(tmp_path) == [0, 1, 2, 3, 4]


def test_a_call_that_comes_after_close_returns(tmp_path: Path) -> None:
    """As happens where one thread closes a writer while others add events and flush."""
    stream = EventStream(str(tmp_path), 1, 120, "")
    stream.put(one_event(1))
    stream.close()
    calls = [threading.Thread(target=stream.flush, daemon=True)]
    calls += [threading.Thread(target=stream.put, args=(one_event(2),), daemon=True) for _ in range(3)]
    for call in calls:
        call.start()
    for call in calls:
        call.join(timeout=30)
        assert not call.is_alive()
    assert scalars(tmp_path) == [1]


def test_an_error_of_the_thread_reaches_the_caller(tmp_path: Path) -> None:
    stream = EventStream(str(tmp_path), 3, 3600, "")

    def full(event: Any) -> None:
        raise ResourceExhaustedError(None, None, "the disk is full")

    stream._file.write_event = full  # type: ignore[method-assign]
    stream.put(one_event(1.0))
    with pytest.raises(ResourceExhaustedError, match="disk is full"):
        stream.flush()
    stream.close()


def test_arguments_are_checked(tmp_path: Path) -> None:
    graph = Graph()
    with FileWriter(tmp_path) as writer:
        with pytest.raises(TypeError, match="add_summary takes"):
            writer.add_summary("text")
        with pytest.raises(ValueError, match="not both"):
            writer.add_graph(graph, graph_def=GraphDef())
        with pytest.raises(TypeError, match="Graph"):
            writer.add_graph("graph")
        with pytest.raises(TypeError, match="MetaGraphDef"):
            writer.add_meta_graph(GraphDef())
        writer.add_meta_graph(MetaGraphDef(), 3)
        writer.add_graph(None, graph_def=GraphDef(node=[NodeDef(name="n", op="NoOp")]))
        writer.add_session_log(SessionLog(status=SessionLog.START, msg="go"), 1)
    (file,) = tmp_path.iterdir()
    kinds = [event.WhichOneof("what") for event in summary_iterator(file)]
    assert kinds == ["file_version", "meta_graph_def", "graph_def", "session_log"]


def test_the_cache_shares_writers(tmp_path: Path) -> None:
    raw.NoOp(name="n")
    writer = FileWriterCache.get(str(tmp_path))
    assert FileWriterCache.get(tmp_path) is writer
    FileWriterCache.clear()
    assert [node.name for node in read(tmp_path).Graph().node] == ["n"]
    assert FileWriterCache.get(tmp_path) is not writer
    FileWriterCache.clear()


@pytest.mark.parametrize("count", [0, 1, 2, 40, 63, 64, 65, 2000])
@pytest.mark.parametrize("kind", ["weights", "all sizes", "limits", "integers", "largest"])
def test_buckets_are_those_that_each_value_is_looked_up_in(count: int, kind: str) -> None:
    """However many values there are; a run of empty buckets is told by its last one."""
    limits = bucket_limits().tolist()
    rng = np.random.default_rng(count)
    values = {
        "weights": rng.normal(size=count).astype(np.float32),
        "all sizes": rng.choice([-1, 1], count) * 10.0 ** rng.integers(-15, 25, count),
        "limits": rng.choice(limits, count),
        "integers": rng.integers(-3, 4, count),
        "largest": rng.choice([limits[-1], -limits[-1], 0.0], count),
    }[kind]
    counts = [0] * len(limits)
    for value in values.tolist():
        counts[min(bisect_right(limits, value), len(limits) - 1)] += 1
    told = [i for i, n in enumerate(counts) if n or i + 1 == len(counts) or counts[i + 1]]
    with np.errstate(over="ignore", invalid="ignore"):
        found = histogram_of(values)
    assert found.bucket_limit == [limits[i] for i in told]
    assert found.bucket == [counts[i] for i in told]
    assert (found.num, found.min, found.max) == (
        count,
        min(values.tolist(), default=limits[-1]),
        max(values.tolist(), default=-limits[-1]),
    )
