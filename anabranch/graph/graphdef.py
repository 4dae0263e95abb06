"""Graphs to GraphDef messages, which TensorFlow and its tools read  (§3.1; design D2).

The way back is `graphdef_import`; bodies of functions are converted by `function_def`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from anabranch.core.attrs import FuncAttr
from anabranch.graph.graph import MIN_CONSUMER_VERSION, PRODUCER_VERSION, Graph
from anabranch.graph.operation import Operation, Tensor
from anabranch.proto import AttrValue, FunctionDefLibrary, GraphDef, NodeDef, VersionDef
from anabranch.proto.attr_values import attr_to_proto
from anabranch.proto.tensors import make_tensor_proto, shape_to_proto

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
    library = FunctionNames(graph)
    message = GraphDef(versions=graph_versions(graph))
    message.node.extend(
        node_to_proto(op, library.rename, add_shapes=add_shapes) for op in graph.get_operations()[from_version or 0 :]
    )
    if library.bodies:
        message.library.CopyFrom(library.to_proto(add_shapes))
        message.versions.min_consumer = max(message.versions.min_consumer, _MIN_CONSUMER_OF_FUNCTIONS)
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


class FunctionNames:
    """The functions that a graph and its function bodies hold, under names that are unique among all of them.

    Attributes:
        bodies: function graphs by the name that they have in the exported library.
    """

    def __init__(self, graph: Graph) -> None:
        self.bodies: dict[str, Graph] = {}
        self._names: dict[Graph, str] = {}
        self._collect(graph)

    def _collect(self, graph: Graph) -> None:
        for name, body in graph.functions.items():
            if body in self._names:
                continue
            unique, count = name, 0
            while unique in self.bodies:
                count += 1
                unique = f"{name}_{count}"
            self.bodies[unique], self._names[body] = body, unique
            self._collect(body)

    def rename(self, graph: Graph, value: FuncAttr) -> FuncAttr:
        """A function attribute of an operation of `graph`, under the exported name."""
        try:
            body = graph.get_function(value.name)
        except KeyError:
            return value  # a name that only another program can resolve stays as it is
        return FuncAttr(self._names.get(body, value.name), value.attrs)

    def to_proto(self, add_shapes: bool = False) -> FunctionDefLibrary:
        """The library; see `function_def.function_to_proto`."""
        write = WRITE_FUNCTION["function_to_proto"]
        return FunctionDefLibrary(
            function=[write(body, name, self.rename, add_shapes) for name, body in self.bodies.items()]
        )


#: filled by `function_def`, which needs this module
WRITE_FUNCTION: dict[str, Callable[..., Any]] = {}


def node_to_proto(
    op: Operation,
    rename: Callable[[Graph, FuncAttr], FuncAttr] = lambda _, value: value,
    *,
    input_name: Callable[[Tensor], str] | None = None,
    add_shapes: bool = False,
) -> NodeDef:
    """The message of one operation.

    Args:
        op: the operation.
        rename: (graph, function attribute) -> the attribute to write.
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
            node.attr[name].CopyFrom(_attr_message(op, name, value, rename))
        except (TypeError, ValueError) as error:
            problem = f"operation {op.name!r} ({op.type}): cannot write the attribute {name!r}: {error}"
            raise TypeError(problem) from error
    if add_shapes and op.outputs:
        shapes = AttrValue.ListValue(shape=[shape_to_proto(t.shape) for t in op.outputs])
        node.attr["_output_shapes"].CopyFrom(AttrValue(list=shapes))
    return node


def graph_input_name(tensor: Tensor) -> str:
    """A tensor as the input of a node of a GraphDef: output 0 goes by the name of its operation."""
    return tensor.op.name if tensor.value_index == 0 else tensor.name


def _attr_message(op: Operation, name: str, value: Any, rename: Callable[[Graph, FuncAttr], FuncAttr]) -> AttrValue:
    definition = op.op_def.attrs.get(name)
    kind = None if definition is None else definition.kind
    if kind == "tensor" and name == "value" and "dtype" in op.attrs:
        # an empty array of objects does not tell what it would hold
        return AttrValue(tensor=make_tensor_proto(value, op.attrs["dtype"]))
    if isinstance(value, FuncAttr):
        value = rename(op.graph, value)
    elif kind == "list(func)":
        value = [rename(op.graph, item) for item in value]
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
