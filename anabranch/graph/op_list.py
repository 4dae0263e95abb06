"""Operation types as OpDef messages, by which other programs learn what the attributes of exported nodes default to."""

from __future__ import annotations

from typing import Any

from anabranch.core.dtypes import DType
from anabranch.core.op_def import ArgDef, AttrDef, OpDef
from anabranch.core.registry import find_op_def
from anabranch.proto.attr_values import attr_to_proto
from anabranch.proto.graph_pb2 import AttrValue, GraphDef, NodeDef, OpDef as OpDefProto, OpList
from anabranch.proto.node_inputs import all_nodes


def op_def_to_proto(op_def: OpDef) -> OpDefProto:
    """The signature of an operation type as a message."""
    message = OpDefProto(name=op_def.name, is_stateful=op_def.stateful, is_commutative=op_def.commutative)
    message.input_arg.extend(_arg(arg) for arg in op_def.inputs)
    message.output_arg.extend(_arg(arg) for arg in op_def.outputs)
    message.attr.extend(_attr(attr) for attr in op_def.attrs.values())
    return message


def _arg(arg: ArgDef) -> OpDefProto.ArgDef:
    message = OpDefProto.ArgDef(
        name=arg.name,
        type_attr=arg.type_attr or "",
        number_attr=arg.number_attr or "",
        type_list_attr=arg.type_list_attr or "",
    )
    if arg.dtype is not None:
        message.type = arg.dtype.as_datatype_enum  # type: ignore[assignment]
    return message


def _attr(attr: AttrDef) -> OpDefProto.AttrDef:
    message = OpDefProto.AttrDef(name=attr.name, type=attr.kind)
    if attr.has_default:
        message.default_value.CopyFrom(attr_to_proto(attr.kind, attr.default))
    if attr.minimum is not None:
        message.has_minimum, message.minimum = True, attr.minimum
    if attr.allowed is not None:
        values: list[Any] = sorted(attr.allowed, key=lambda v: v.as_datatype_enum if isinstance(v, DType) else v)
        kind = "list(type)" if isinstance(values[0], DType) else "list(string)"
        message.allowed_values.CopyFrom(attr_to_proto(kind, values))
    return message


def op_names_of(graph_def: GraphDef) -> list[str]:
    """The names of the types of a graph's nodes, and of those of the functions that it calls; not those of functions.

    Args:
        graph_def: the graph.
    """
    functions = {function.signature.name: function for function in graph_def.library.function}
    names: set[str] = set()
    nodes = list(graph_def.node)
    while nodes:
        node = nodes.pop()
        for name in (node.op, *_called(node)):
            if name not in names:
                names.add(name)
                nodes += functions[name].node_def if name in functions else []
    return sorted(names - functions.keys())


def _called(node: NodeDef) -> list[str]:
    """The functions that attributes name."""
    return [func.name for attr in node.attr.values() for func in (attr.func, *attr.list.func) if func.name]


def op_list_of(graph_def: GraphDef) -> OpList:
    """The types of all nodes of a graph and its functions, sorted by name.

    Args:
        graph_def: the graph.
    """
    names = {node.op for node in all_nodes(graph_def)}
    op_defs = [op_def for name in sorted(names) if (op_def := find_op_def(name)) is not None]
    return OpList(op=[op_def_to_proto(op_def) for op_def in op_defs])


def strip_default_attrs(graph_def: GraphDef) -> None:
    """Removes attributes that have their default, so that programs that do not know them yet can read the graph."""
    defaults: dict[str, dict[str, AttrValue]] = {}
    for node in all_nodes(graph_def):
        if node.op not in defaults:
            op_def = find_op_def(node.op)
            attrs = () if op_def is None else op_def.attrs.values()
            defaults[node.op] = {a.name: attr_to_proto(a.kind, a.default) for a in attrs if a.has_default}
        for name, default in defaults[node.op].items():
            if name in node.attr and node.attr[name] == default:
                del node.attr[name]
