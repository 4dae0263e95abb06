"""Graphs without what only training needs."""

from __future__ import annotations

from anabranch.frontend.storage.graph_util import remove_training_nodes
from anabranch.proto.graph_pb2 import GraphDef


def graph(**nodes: tuple[str, list[str]]) -> GraphDef:
    found = GraphDef()
    for name, (op, inputs) in nodes.items():
        found.node.add(name=name, op=op, input=inputs)
    return found


def test_checks_go_even_where_something_waits_for_them() -> None:
    training = graph(
        a=("Const", []),
        check=("CheckNumerics", ["a"]),
        copy=("Identity", ["a", "^check"]),
        b=("Const", []),
        add=("Add", ["copy", "b"]),
        checked=("CheckNumerics", ["add:0", "^b"]),
        out=("Neg", ["checked"]),
    )
    slim = graph(a=("Const", []), b=("Const", []), add=("Add", ["a", "b"]), out=("Neg", ["add:0"]))
    assert remove_training_nodes(training) == slim


def test_what_orders_the_step_or_is_protected_stays() -> None:
    ordered = graph(
        a=("Const", []),
        waiting=("Identity", ["a", "^a"]),
        awaited=("Identity", ["a"]),
        mine=("CheckNumerics", ["awaited"]),
        out=("Neg", ["waiting", "^awaited", "^mine"]),
    )
    assert remove_training_nodes(ordered, protected_nodes=["mine"]) == ordered
