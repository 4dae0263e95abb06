"""Attribute values to and from messages."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from anabranch.core import dtypes
from anabranch.core.attrs import AttrPlaceholder, FuncAttr, same_attr_value
from anabranch.core.shapes import TensorShape
from anabranch.proto.attr_values import attr_from_proto, attr_to_proto
from anabranch.proto.graph_pb2 import AttrValue, GraphDef, NodeDef

FILES = Path(__file__).parents[2] / "fixtures" / "tensorflow"
FUNC = FuncAttr("body", {"T": dtypes.float32, "N": 3, "shapes": [TensorShape([None, 2])], "U": AttrPlaceholder("V")})
VALUES: list[tuple[str, Any]] = [
    ("int", -(2**63)),
    ("float", 0.25),
    ("float", float("-inf")),
    ("bool", True),
    ("string", b"\xff\x00"),
    ("type", dtypes.bfloat16),
    ("type", dtypes.float32_ref),
    ("shape", TensorShape(None)),
    ("shape", TensorShape([2, None])),
    ("tensor", np.array([[1.5, 2.5]], np.float64)),
    ("tensor", np.array([b"a", b""], np.object_)),
    ("func", FUNC),
    ("func", FuncAttr("plain")),
    ("list(int)", [1, 2]),
    ("list(float)", [0.5]),
    ("list(bool)", [True, False]),
    ("list(string)", [b"a", b""]),
    ("list(type)", [dtypes.int64, dtypes.string]),
    ("list(shape)", [TensorShape([]), TensorShape(None)]),
    ("list(tensor)", [np.array(1, np.int32), np.zeros((0, 2), np.float16)]),
    ("list(func)", [FUNC, FuncAttr("g")]),
    ("list(type)", []),
]


@pytest.mark.parametrize(("kind", "value"), VALUES, ids=[f"{k}-{i}" for i, (k, _) in enumerate(VALUES)])
def test_values_go_both_ways(kind: str, value: Any) -> None:
    proto = AttrValue.FromString(attr_to_proto(kind, value).SerializeToString())
    assert same_attr_value(attr_from_proto(proto, kind), value)
    assert same_attr_value(attr_from_proto(proto), value)
    assert attr_to_proto(None, value) == proto


def test_placeholders_are_of_every_kind() -> None:
    proto = attr_to_proto("type", AttrPlaceholder("T"))
    assert proto.placeholder == "T"
    assert attr_from_proto(proto, "list(int)") == AttrPlaceholder("T")


def test_text_and_names_are_taken_for_bytes_types_and_functions() -> None:
    assert attr_to_proto("string", "naïve").s == "naïve".encode()
    assert attr_to_proto("type", "float").type == dtypes.float32.as_datatype_enum
    assert attr_to_proto("func", "f").func.name == "f"
    assert attr_to_proto("tensor", [1, 2]).tensor.dtype == dtypes.int32.as_datatype_enum


def test_every_attribute_of_tensorflows_graphs_is_read_and_written_again() -> None:
    for name in ("conv_while", "functions", "ref_variables"):
        graph = GraphDef.FromString((FILES / f"{name}.pb").read_bytes())
        for node in [*graph.node, *(n for f in graph.library.function for n in f.node_def)]:
            check_node(node)


def check_node(node: NodeDef) -> None:
    for key, proto in node.attr.items():
        value = attr_from_proto(proto)
        again = attr_to_proto(None, value)
        if proto.WhichOneof("value") == "tensor":  # where an element that fills a tensor is written out
            assert same_attr_value(attr_from_proto(again), value), (node.name, key)
        else:
            assert again == proto, (node.name, key)


@pytest.mark.parametrize(
    ("proto", "kind", "message"),
    [
        (AttrValue(), "int", "has no value"),
        (AttrValue(i=1), "float", "Expected an attribute of kind float, got one of kind int"),
        (AttrValue(i=1), "list(int)", "Expected"),
        (AttrValue(list=AttrValue.ListValue(i=[1])), "list(type)", "Expected"),
        (AttrValue(list=AttrValue.ListValue()), "int", "Expected"),
        (AttrValue(list=AttrValue.ListValue(i=[1], f=[1.0])), None, "several kinds"),
        (AttrValue(type=0), "type", "type number 0"),  # type: ignore[arg-type]
        (AttrValue(type=99), "type", "type number 99"),  # type: ignore[arg-type]
    ],
)
def test_wrong_messages_are_refused(proto: AttrValue, kind: str | None, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        attr_from_proto(proto, kind)


@pytest.mark.parametrize(
    ("kind", "value", "error"),
    [
        ("int", 1.5, TypeError),
        ("int", 2**63, ValueError),
        ("float", "x", ValueError),
        ("string", 1, TypeError),
        ("type", "no type", TypeError),
        ("func", 3, TypeError),
        ("list(int)", 3, TypeError),
        ("number", 3, ValueError),
        (None, object(), TypeError),
    ],
)
def test_wrong_values_are_refused(kind: str | None, value: Any, error: type[Exception]) -> None:
    with pytest.raises(error):
        attr_to_proto(kind, value)
