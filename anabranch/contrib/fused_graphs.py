"""`tf.contrib.framework.fuse_op`: a part of a graph, as data, becomes one operation."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import anabranch as tf
from anabranch.contrib.arguments import PassedOn


def fuse_op(
    graph_def: tf.GraphDef,
    input_nodes: Sequence[str],
    output_nodes: Sequence[str],
    output_dtypes: Sequence[PassedOn],
    output_quantized: bool,
    op_name: str,
    op_type: str,
) -> tf.GraphDef:
    """A graph in which one operation stands for those between some nodes and others.

    Args:
        graph_def: the graph; it is not changed.
        input_nodes: names of the nodes that the new operation is given, which stay.
        output_nodes: names of nodes of one input each, which stay, and are given the new operation's outputs.
        output_dtypes: of the new operation's outputs, numbers of `tf.DType`s; kept in the attribute _output_types.
        output_quantized: kept in the attribute _output_quantized.
        op_name: the new operation's name.
        op_type: its type.

    Raises:
        TypeError: `graph_def` is none, names are not in a list, or a node between needs one before the inputs.
        ValueError: a name is in no node, or an output node has not one input.
    """
    if not isinstance(graph_def, tf.GraphDef):
        raise TypeError(f"graph_def must be a tf.GraphDef, got {type(graph_def)}.")
    for what, names in (("input_nodes", input_nodes), ("output_nodes", output_nodes)):
        if isinstance(names, str):
            raise TypeError(f"{what} must be a list of names, got {names!r}.")
    nodes = {node.name: node for node in graph_def.node}
    for name in (*input_nodes, *output_nodes):
        if name not in nodes:
            raise ValueError(f"{name} is not in graph")
    needs = {node.name: [_of_node(name) for name in node.input] for node in graph_def.node}
    before, up_to = _reachable(input_nodes, needs), _reachable(output_nodes, needs)
    between = up_to - before - {*output_nodes}
    for name in between:
        missing = {*needs[name]} & before - {*input_nodes}
        if missing:
            raise TypeError(f"Node {name} uses input {min(missing)} not in input_nodes.")
    fused = tf.GraphDef(library=graph_def.library, versions=graph_def.versions)
    fused.node.extend(node for node in graph_def.node if node.name in before)
    new = fused.node.add(name=op_name, op=op_type, input=input_nodes)
    new.attr["_output_types"].list.type.extend(output_dtypes)
    new.attr["_output_quantized"].b = output_quantized
    for index, name in enumerate(output_nodes):
        if len(nodes[name].input) != 1:
            raise ValueError(f"output node {name} must have one input, it has {len(nodes[name].input)}")
        given = fused.node.add()
        given.CopyFrom(nodes[name])
        given.input[0] = f"{op_name}:{index}" if index else op_name
    fused.node.extend(node for node in graph_def.node if node.name not in before | up_to)
    return fused


def _of_node(name: str) -> str:
    """The node of an input, which may be one of several outputs (a:1) or a control input (^a)."""
    return name.removeprefix("^").split(":")[0]


def _reachable(names: Iterable[str], needs: Mapping[str, Sequence[str]]) -> set[str]:
    """Some nodes and all that they need."""
    found: set[str] = set()
    waiting = list(names)
    while waiting:
        name = waiting.pop()
        if name not in found:
            found.add(name)
            waiting.extend(needs[name])
    return found
