"""The inputs of nodes as messages write them: `node`, `node:1`, and `^node` for a control input."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeAlias

from anabranch.proto.graph_pb2 import GraphDef, NodeDef

#: a tensor by its node and output index
Slot: TypeAlias = tuple[str, int]


def data_inputs(node: NodeDef) -> list[str]:
    """The inputs that are tensors."""
    return [text for text in node.input if not text.startswith("^")]


def control_inputs(node: NodeDef) -> list[str]:
    """The inputs that are waited for only, each with its caret."""
    return [text for text in node.input if text.startswith("^")]


def producer_of(text: str) -> str:
    """The node that an input, or the name of a tensor, refers to."""
    return text.removeprefix("^").partition(":")[0]


def slot_of(text: str) -> Slot:
    """The tensor that an input refers to, which is no control input."""
    name, colon, index = text.rpartition(":")
    return (name, int(index)) if colon and index.isdigit() else (text, 0)


def all_nodes(graph_def: GraphDef) -> Iterator[NodeDef]:
    """The nodes of a graph, and of the functions in its library."""
    yield from graph_def.node
    for function in graph_def.library.function:
        yield from function.node_def
