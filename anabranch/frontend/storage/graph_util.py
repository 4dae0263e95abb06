"""Cutting and freezing graphs as GraphDef messages: `tf.graph_util`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from anabranch.core.colocation import colocation_leader
from anabranch.core.registry import find_op_def
from anabranch.core.shapes import TensorShape
from anabranch.core.values import TensorLike
from anabranch.frontend.platform import logging
from anabranch.frontend.storage.freezing import Freezer, FrozenValue
from anabranch.graph.graph import Graph
from anabranch.graph.operation import StepRunner
from anabranch.proto.graph_pb2 import DT_INT32, DT_INT64, DT_STRING, AttrValue, GraphDef, NodeDef
from anabranch.proto.node_inputs import producer_of
from anabranch.proto.tensors import make_tensor_proto

_VARIABLES = frozenset({"Variable", "VariableV2", "VarHandleOp"})
_HOST_DTYPES = frozenset({DT_INT32, DT_INT64, DT_STRING})


def must_run_on_cpu(node: NodeDef, pin_variables_on_cpu: bool = False) -> bool:
    """Whether a node works on types that TensorFlow keeps in a processor's memory.

    Args:
        node: an Operation or a NodeDef.
        pin_variables_on_cpu: count variables among them.
    """
    definition = node if isinstance(node, NodeDef) else node.node_def
    if definition.op in {"Variable", "VariableV2"}:
        return pin_variables_on_cpu
    if definition.op == "Const":
        return definition.attr["dtype"].type in _HOST_DTYPES
    return definition.op in {"DynamicStitch", "ParallelDynamicStitch"} and definition.attr["T"].type in _HOST_DTYPES


# ---------------------------------------------------------------------- cutting
def extract_sub_graph(graph_def: GraphDef, dest_nodes: Sequence[str]) -> GraphDef:
    """The part of a graph that some nodes need.

    Args:
        graph_def: a GraphDef.
        dest_nodes: names of nodes.

    Raises:
        TypeError: an argument is of the wrong type.
        AssertionError: a name is not in the graph.
    """
    if not isinstance(graph_def, GraphDef):
        raise TypeError("graph_def must be a graph_pb2.GraphDef proto.")
    if isinstance(dest_nodes, str):
        raise TypeError("dest_nodes must be a list.")
    by_name = {node.name: node for node in graph_def.node}
    for name in dest_nodes:
        if name not in by_name:
            raise AssertionError(f"{name} is not in graph")
    needed = _reachable(by_name, dest_nodes)
    result = GraphDef()
    for node in graph_def.node:
        if node.name in needed:
            _without_dangling_colocation(result.node.add(), node, needed)
    result.library.CopyFrom(graph_def.library)
    result.versions.CopyFrom(graph_def.versions)
    return result


def _reachable(by_name: dict[str, NodeDef], targets: Iterable[str]) -> set[str]:
    stack, seen = list(targets), set(targets)
    while stack:
        for text in by_name[stack.pop()].input:
            name = producer_of(text)
            if name not in seen and name in by_name:
                seen.add(name)
                stack.append(name)
    return seen


def _without_dangling_colocation(copy: NodeDef, node: NodeDef, kept: set[str]) -> None:
    """Copies a node; groups of nodes that are left out have no meaning any more."""
    copy.CopyFrom(node)
    if "_class" not in node.attr:
        return
    groups = node.attr["_class"].list.s
    left = [g for g in groups if (leader := colocation_leader(g)) is None or leader in kept]
    if left:
        copy.attr["_class"].list.s[:] = left
    else:
        del copy.attr["_class"]


def remove_training_nodes(input_graph: GraphDef, protected_nodes: Sequence[str] | None = None) -> GraphDef:
    """A graph without the nodes that only training needs: checks of numbers, and copies of tensors.

    Nothing waits for a check any more. A copy that has control inputs, or that something waits for, stays: it orders
    the step.

    Args:
        input_graph: a GraphDef.
        protected_nodes: names of nodes to keep.
    """
    protected = set(protected_nodes or ())
    unchecked = _without(input_graph, _bypassable(input_graph, "CheckNumerics", protected))
    waited_for = {producer_of(t) for node in unchecked.node for t in node.input if t.startswith("^")}
    waiting = {node.name for node in unchecked.node if len(node.input) > 1}
    return _without(unchecked, _bypassable(unchecked, "Identity", protected | waited_for | waiting))


def _bypassable(graph_def: GraphDef, op: str, kept: set[str]) -> dict[str, str]:
    """The nodes of a type whose result is their input, and that input."""
    return {
        node.name: node.input[0]
        for node in graph_def.node
        if node.op == op and node.name not in kept and node.input and not node.input[0].startswith("^")
    }


def _without(graph_def: GraphDef, bypassed: dict[str, str]) -> GraphDef:
    """A graph whose nodes take the inputs of those that are left out, and do not wait for them."""
    result = GraphDef()
    result.CopyFrom(graph_def)
    del result.node[:]
    for node in graph_def.node:
        if node.name not in bypassed:
            copy = result.node.add()
            copy.CopyFrom(node)
            inputs = [text for text in node.input if not (text.startswith("^") and producer_of(text) in bypassed)]
            copy.input[:] = [_bypass(text, bypassed) for text in inputs]
    return result


def _bypass(text: str, bypassed: dict[str, str]) -> str:
    """What to take instead of an input that comes from a node which is left out."""
    followed: set[str] = set()
    while producer_of(text) in bypassed and text not in followed:
        followed.add(text)
        text = bypassed[producer_of(text)]
    return text


# ---------------------------------------------------------------------- freezing
def convert_variables_to_constants(
    sess: StepRunner,
    input_graph_def: GraphDef,
    output_node_names: Sequence[str],
    variable_names_whitelist: Sequence[str] | None = None,
    variable_names_blacklist: Sequence[str] | None = None,
) -> GraphDef:
    """A graph in which variables are replaced by constants with the values that they have in a session.

    Args:
        sess: the session; its graph has the variables.
        input_graph_def: the GraphDef to freeze.
        output_node_names: what the frozen graph has to compute.
        variable_names_whitelist: variables to freeze; default: all.
        variable_names_blacklist: variables to leave alone.

    Raises:
        FailedPreconditionError: a variable is not initialized.
        AssertionError: an output is not in the graph.
    """
    inference = extract_sub_graph(input_graph_def, output_node_names)
    frozen = [n.name for n in inference.node if n.op in _VARIABLES]
    if variable_names_whitelist is not None:
        frozen = [name for name in frozen if name in set(variable_names_whitelist)]
    frozen = [name for name in frozen if name not in set(variable_names_blacklist or ())]
    values = _values_of(sess, frozen)
    result = GraphDef()
    result.library.CopyFrom(inference.library)
    result.versions.CopyFrom(inference.versions)
    nodes: list[NodeDef] = []
    handles: dict[str, FrozenValue] = {}
    for node in inference.node:
        _check_unwritten(node, frozen)
        nodes.append(NodeDef.FromString(node.SerializeToString()))
        if node.name in values:
            nodes[-1].Clear()
            _constant(nodes[-1], node, values[node.name])
            if node.op == "VarHandleOp":
                constant = nodes[-1].attr["value"].tensor
                handles[node.name] = FrozenValue(constant.dtype, constant.tensor_shape)
    result.node.extend(Freezer(result.library).freeze(nodes, handles))
    logging.info("Froze %d variables.", len(values))
    return result


def _check_unwritten(node: NodeDef, variables: Iterable[str]) -> None:
    source = producer_of(node.input[0]) if node.input else ""
    op_def = find_op_def(node.op)
    if source in variables and op_def is not None and op_def.writes:
        raise ValueError(f"node {node.name!r} ({node.op}) changes the variable {source!r}; name other outputs")


def _values_of(sess: StepRunner, names: Sequence[str]) -> dict[str, Any]:
    """The values of variables, by the names of their nodes."""
    by_handle = {variable.op.name: variable for variable in sess.graph.get_collection("variables")}
    by_handle |= {variable.op.name: variable for variable in sess.graph.get_collection("local_variables")}
    fetches: list[Any] = []
    for name in names:
        if name in by_handle:
            fetches.append(by_handle[name])
        else:
            fetches.append(_read_of(sess.graph, name))
    return dict(zip(names, sess.run(fetches), strict=True)) if names else {}


def _read_of(graph: Graph, name: str) -> Any:
    """A tensor with the value of the variable whose node is `name`; no operation is added."""
    tensor = graph.get_operation_by_name(name).outputs[0]
    if tensor.op.type != "VarHandleOp":
        return tensor  # the read that stands for a reference variable
    reads = [op for op in tensor.consumers() if op.type == "ReadVariableOp" and not op.control_inputs]
    if not reads:
        raise ValueError(f"variable {name!r} is not read anywhere in the session's graph; make a Variable of it first")
    return reads[0].outputs[0]


def _constant(copy: NodeDef, node: NodeDef, value: TensorLike) -> None:
    copy.op, copy.name = "Const", node.name
    copy.attr["dtype"].CopyFrom(node.attr["dtype"])
    copy.attr["value"].CopyFrom(AttrValue(tensor=make_tensor_proto(value)))


def tensor_shape_from_node_def_name(graph: Graph, input_name: str) -> TensorShape:
    """The static shape of a tensor of a graph, named as nodes name their inputs: "node", "node:1" or "^node"."""
    name = input_name.removeprefix("^")
    shape: TensorShape = graph.get_tensor_by_name(name if ":" in name else f"{name}:0").shape
    return shape
