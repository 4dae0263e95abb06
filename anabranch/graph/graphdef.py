"""Graphs to GraphDef messages, which TensorFlow and its tools read  (§3.1; design D2).

The way back is `graphdef_import`; bodies of functions are converted by `function_def`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from anabranch.core.attrs import AttributeValue
from anabranch.core.roles import FUNCTIONAL_ROLES
from anabranch.graph.exchanged_loops import LOWERING, in_tensorflows_vocabulary
from anabranch.graph.graph import MIN_CONSUMER_VERSION, PRODUCER_VERSION, Graph
from anabranch.graph.operation import Operation
from anabranch.graph.step_nodes import AnyOperation, AnyTensor
from anabranch.proto.attr_values import attr_to_proto
from anabranch.proto.graph_pb2 import AttrValue, GraphDef, NodeDef, VersionDef
from anabranch.proto.tensors import attribute_tensor, shape_to_proto

#: The consumer that graphs with a function library ask for, as TensorFlow states it.
_MIN_CONSUMER_OF_FUNCTIONS = 12

#: A message of at least this size cannot be parsed again.
MAX_MESSAGE_BYTES = (1 << 31) - 1


def graph_to_proto(graph: Graph, from_version: int | None = None, add_shapes: bool = False) -> GraphDef:
    """The message of a graph: its operations in the order of creation, and its library of functions.

    Args:
        graph: what to export.
        from_version: leave out the operations that the graph had when its `version` was this number.
        add_shapes: give each node the annotation `_output_shapes` with the static shapes of its outputs.

    Raises:
        ValueError: the message would have 2 GiB or more.
        TypeError: an annotation of an operation cannot be written.
    """
    message = GraphDef(versions=graph_versions(graph))
    message.node.extend(node_to_proto(op, add_shapes=add_shapes) for op in graph.get_operations()[from_version or 0 :])
    functions = graph.functions
    if functions:
        write = WRITE_FUNCTION["function_to_proto"]
        message.library.function.extend(write(body, name, add_shapes) for name, body in functions.items())
        message.versions.min_consumer = max(message.versions.min_consumer, _MIN_CONSUMER_OF_FUNCTIONS)
    in_tensorflows_vocabulary(message)
    size = message.ByteSize()
    if size > MAX_MESSAGE_BYTES:
        raise ValueError(
            f"GraphDef cannot be larger than 2GB; this graph's has {size} bytes. Large constants are the usual cause: "
            "make them variables, or feed them."
        )
    return message


def graph_versions(graph: Graph) -> VersionDef:
    """What `Graph.graph_def_versions` returns."""
    return VersionDef(producer=PRODUCER_VERSION, min_consumer=MIN_CONSUMER_VERSION)


#: filled by `function_def`, which needs this module
WRITE_FUNCTION: dict[str, Callable[..., Any]] = {}


def node_to_proto(
    op: AnyOperation,
    *,
    input_name: Callable[[Any], str] | None = None,
    add_shapes: bool = False,
) -> NodeDef:
    """The message of one operation.

    Args:
        op: the operation.
        input_name: how inputs are written; by default as in a GraphDef: `node`, `node:1`.
        add_shapes: as in `graph_to_proto`.

    Raises:
        TypeError: an annotation cannot be written; the message names the operation.
    """
    name_of = input_name or graph_input_name
    node = NodeDef(name=op.name, op=op.type, device=op.device)
    node.input.extend(name_of(tensor) for tensor in op.inputs)
    node.input.extend(sorted(f"^{control.name}" for control in op.control_inputs))
    for name, value in op.attrs.items():
        try:
            node.attr[name].CopyFrom(_attr_message(op, name, value))
        except (TypeError, ValueError) as error:
            problem = f"operation {op.name!r} ({op.type}): cannot write the attribute {name!r}: {error}"
            raise TypeError(problem) from error
    if op.op_def.role in FUNCTIONAL_ROLES and LOWERING not in node.attr:
        node.attr[LOWERING].b = True
    if add_shapes and op.outputs:
        shapes = AttrValue.ListValue(shape=[shape_to_proto(t.shape) for t in op.outputs])
        node.attr["_output_shapes"].CopyFrom(AttrValue(list=shapes))
    return node


def graph_input_name(tensor: AnyTensor) -> str:
    """A tensor as the input of a node of a GraphDef: output 0 goes by the name of its operation."""
    return tensor.op.name if tensor.value_index == 0 else tensor.name


def _attr_message(op: AnyOperation, name: str, value: AttributeValue) -> AttrValue:
    definition = op.op_def.attrs.get(name)
    kind = None if definition is None else definition.kind
    if kind == "tensor" and name == "value" and "dtype" in op.attrs:
        # an empty array of objects does not tell what it would hold
        return AttrValue(tensor=attribute_tensor(value, op.attrs["dtype"]))
    return attr_to_proto(kind, value)


def function_attrs(node: NodeDef) -> Iterator[str]:
    """The names of the functions that a node's attributes mention."""
    for value in node.attr.values():
        if value.HasField("func"):
            yield value.func.name
        elif value.HasField("list"):
            for item in value.list.func:
                yield item.name


Graph.EXPORT.update(as_graph_def=graph_to_proto, graph_def_versions=graph_versions)
Operation.EXPORT["node_def"] = node_to_proto
