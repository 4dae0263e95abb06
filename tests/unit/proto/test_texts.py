"""Messages of type `Any` that are spelled out in text."""

from __future__ import annotations

import pytest
from google.protobuf import text_format
from google.protobuf.wrappers_pb2 import BoolValue

from anabranch.proto.texts import parse_text
from anabranch.proto.training_pb2 import AssetFileDef, MetaGraphDef, SavedModel

SPELLED_OUT = """
meta_graphs { collection_def { key: "assets" value { any_list {
  value { [type.googleapis.com/tensorflow.AssetFileDef] { filename: "words.txt" tensor_info { name: "x:0" } } }
  value { [type.googleapis.com/google.protobuf.BoolValue]: <value: true> }
  value { type_url: "type.googleapis.com/of.Others" value: "\\x08\\x01" }
} } } }
"""


def test_messages_that_are_spelled_out_are_read() -> None:
    message = parse_text(SPELLED_OUT, SavedModel())
    asset, truth, other = message.meta_graphs[0].collection_def["assets"].any_list.value
    assert asset.type_url == "type.googleapis.com/tensorflow.AssetFileDef"
    found = AssetFileDef.FromString(asset.value)
    assert (found.filename, found.tensor_info.name) == ("words.txt", "x:0")
    assert BoolValue.FromString(truth.value).value
    assert (other.type_url, other.value) == ("type.googleapis.com/of.Others", b"\x08\x01")


@pytest.mark.parametrize(
    "text",
    [
        "meta_info_def { any_info { [type.googleapis.com/of.Others] { value: 1 } } }",
        "meta_info_def { any_info { [type.googleapis.com/tensorflow.AssetFileDef] { nothing: 1 } } }",
        "meta_info_def { any_info { [type.googleapis.com/tensorflow.AssetFileDef] { filename: 'a' ",
        "nothing: 1",
    ],
)
def test_what_is_no_such_message_is_refused(text: str) -> None:
    with pytest.raises(text_format.ParseError):
        parse_text(text, MetaGraphDef())


def test_a_field_may_stand_twice_where_that_is_allowed() -> None:
    text = 'meta_info_def { meta_graph_version: "1" meta_graph_version: "2" }'
    assert parse_text(text, MetaGraphDef(), allow_repeats=True).meta_info_def.meta_graph_version == "2"
    with pytest.raises(text_format.ParseError):
        parse_text(text, MetaGraphDef())
