"""Graphs as messages, from lines of text."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from google.protobuf import text_format

from anabranch.graph.graph import Graph
from anabranch.graph.graphdef_import import import_graph_def
from anabranch.proto.graph_pb2 import GraphDef

#: what TensorFlow wrote
FIXTURES = Path(__file__).resolve().parents[2] / "fixtures" / "tensorflow"


def parsed(text: str) -> GraphDef:
    """A graph from lines ``name op input,input key=value`` (values in text format)."""
    graph = GraphDef()
    for line in filter(None, map(str.strip, text.splitlines())):
        name, op, inputs, *attrs = line.split(" ")
        node = graph.node.add(name=name, op=op, input=[i for i in inputs.split(",") if i != "-"])
        for attr in attrs:
            key, _, value = attr.partition("=")
            text_format.Parse(value.replace("~", " "), node.attr[key])
    return graph


FLOAT = "T=type:DT_FLOAT"
DTYPE = "dtype=type:DT_FLOAT"
SIZED = "{} Placeholder - dtype=type:DT_FLOAT shape=shape{{dim{{size:{}}}}}"
X = "x Placeholder - dtype=type:DT_FLOAT shape=shape{unknown_rank:true}"


def imported(graph_def: GraphDef, **kwargs: Any) -> Graph:
    graph = Graph()
    with graph.as_default():
        import_graph_def(graph_def, **{"name": "", **kwargs})
    return graph
