"""Files that TensorFlow wrote are read, and written again to the same bytes."""

from __future__ import annotations

import struct
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from google.protobuf import text_format
from google.protobuf.message import Message

from anabranch.proto.config_pb2 import RunMetadata
from anabranch.proto.example_pb2 import Example, SequenceExample
from anabranch.proto.graph_pb2 import GraphDef
from anabranch.proto.summary_pb2 import Event
from anabranch.proto.training_pb2 import CheckpointState, MetaGraphDef, SavedModel, VariableDef, WhileContextDef

FILES = Path(__file__).parents[2] / "fixtures" / "tensorflow"
BINARY: dict[str, type[Message]] = {
    "conv_while.meta": MetaGraphDef,
    "conv_while.pb": GraphDef,
    "example.pb": Example,
    "functions.pb": GraphDef,
    "ref_variables.pb": GraphDef,
    "saved_model.pb": SavedModel,
    "sequence_example.pb": SequenceExample,
}


def unknown_fields_removed(message: Any) -> Any:
    copy = type(message)()
    copy.CopyFrom(message)
    copy.DiscardUnknownFields()
    return copy


@pytest.mark.parametrize("name", BINARY)
def test_binary_file_is_understood_in_full(name: str) -> None:
    data = (FILES / name).read_bytes()
    message = BINARY[name].FromString(data)
    assert unknown_fields_removed(message) == message
    assert BINARY[name].FromString(message.SerializeToString(deterministic=True)) == message


@pytest.mark.parametrize("name", [name for name in BINARY if name != "saved_model.pb"])
def test_binary_file_is_written_again_to_the_same_bytes(name: str) -> None:
    data = (FILES / name).read_bytes()
    assert BINARY[name].FromString(data).SerializeToString(deterministic=True) == data


@pytest.mark.parametrize("name", ["conv_while", "functions"])
def test_text_file_is_the_binary_file(name: str) -> None:
    text = (FILES / f"{name}.pbtxt").read_text()
    graph = GraphDef.FromString((FILES / f"{name}.pb").read_bytes())
    assert text_format.Parse(text, GraphDef()) == graph
    assert text_format.MessageToString(graph) == text


def test_graph_has_the_control_flow_of_a_loop_and_its_gradient() -> None:
    graph = GraphDef.FromString((FILES / "conv_while.pb").read_bytes())
    ops = Counter(node.op for node in graph.node)
    assert ops["Enter"] == 18
    assert ops["StackPopV2"] == 5
    kernel = next(node for node in graph.node if node.name == "conv/kernel")
    assert [dim.size for dim in kernel.attr["shape"].shape.dim] == [3, 3, 1, 4]
    assert kernel.attr["shared_name"].s == b"conv/kernel"


def test_function_library_is_read() -> None:
    graph = GraphDef.FromString((FILES / "functions.pb").read_bytes())
    bodies = {function.signature.name: function for function in graph.library.function}
    loop = next(node for node in graph.node if node.op == "While")
    body = bodies[loop.attr["body"].func.name]
    assert len(body.signature.input_arg) == len(loop.input)
    assert set(body.ret) == {arg.name for arg in body.signature.output_arg}


def test_collections_of_a_meta_graph_are_read() -> None:
    meta = MetaGraphDef.FromString((FILES / "conv_while.meta").read_bytes())
    assert meta.meta_info_def.stripped_op_list.op
    variables = [VariableDef.FromString(v) for v in meta.collection_def["variables"].bytes_list.value]
    assert "conv/kernel:0" in {variable.variable_name for variable in variables}
    assert all(variable.is_resource for variable in variables)
    (loop,) = (WhileContextDef.FromString(v) for v in meta.collection_def["while_context"].bytes_list.value)
    assert loop.context_name == "mix/while_context"
    assert loop.parallel_iterations == 4


def test_object_graph_of_a_saved_model_is_read() -> None:
    (meta,) = SavedModel.FromString((FILES / "saved_model.pb").read_bytes()).meta_graphs
    objects = meta.object_graph_def.nodes
    assert [node.variable.name for node in objects if node.WhichOneof("kind") == "variable"] == ["factor"]
    assert meta.signature_def["serving_default"].inputs["x"].name == "serving_default_x:0"


def test_events_are_read() -> None:
    events = [Event.FromString(record) for record in records((FILES / "events.out.tfevents").read_bytes())]
    assert all(unknown_fields_removed(event) == event for event in events)
    kinds = [event.WhichOneof("what") for event in events]
    assert kinds[0] == "file_version"
    assert events[0].file_version == "brain.Event:2"
    assert Counter(kinds)["summary"] == 2
    graph = GraphDef.FromString(next(event.graph_def for event in events if event.graph_def))
    assert [node.name for node in graph.node] == ["one"]
    values = {value.tag: value for event in events for value in event.summary.value}
    assert values["loss_1"].simple_value > 1.0
    assert values["logits"].histo.num == 15
    assert sum(values["logits"].histo.bucket) == 15
    assert values["picture"].image.encoded_image_string == b"not a PNG"
    tagged = next(event.tagged_run_metadata for event in events if event.HasField("tagged_run_metadata"))
    assert RunMetadata.FromString(tagged.run_metadata) == RunMetadata()


def records(data: bytes) -> list[bytes]:
    """The records of a TFRecord file: length, its checksum, bytes, their checksum."""
    found, at = [], 0
    while at < len(data):
        (length,) = struct.unpack_from("<Q", data, at)
        found.append(data[at + 12 : at + 12 + length])
        at += 16 + length
    assert at == len(data)
    return found


def test_examples_are_read() -> None:
    features = Example.FromString((FILES / "example.pb").read_bytes()).features.feature
    assert list(features["image"].bytes_list.value) == [b"\x00\xff", b""]
    assert list(features["label"].int64_list.value) == [-1, 0, 2**62]
    assert features["nothing"].WhichOneof("kind") is None
    sequence = SequenceExample.FromString((FILES / "sequence_example.pb").read_bytes())
    words = sequence.feature_lists.feature_list["words"].feature
    assert [list(step.int64_list.value) for step in words] == [[], [1], [2, 2]]


def test_checkpoint_state_is_read() -> None:
    text = (FILES / "checkpoint").read_text()
    state = text_format.Parse(text, CheckpointState())
    assert state.model_checkpoint_path == "model.ckpt-20"
    assert list(state.all_model_checkpoint_timestamps) == [1.5, 2.5]
    assert text_format.MessageToString(state) == text
