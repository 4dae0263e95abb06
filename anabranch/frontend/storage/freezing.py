"""Nodes that read variables, rewritten for constants in the place of these: at the top of a graph and in functions.

The handle of a variable goes from node to node, and into the bodies of loops, conditionals and calls. Wherever it goes,
a value takes its place: reads become identities, and functions that take a handle are copied with a parameter of the
value's type. A function that is called with other handles elsewhere stays as it was beside its copy.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple, TypeAlias

from anabranch.core.registry import find_op_def
from anabranch.proto.graph_pb2 import (
    DT_INT32,
    DT_RESOURCE,
    AttrValue,
    FunctionDef,
    FunctionDefLibrary,
    NameAttrList,
    NodeDef,
    TensorShapeProto,
)
from anabranch.proto.node_inputs import data_inputs
from anabranch.proto.tensors import make_tensor_proto

_PASSING: Final = frozenset({"Identity", "Enter", "Switch", "Merge", "Exit", "NextIteration"})
_LOOPS: Final = frozenset({"While", "StatelessWhile"})
#: types of nodes that call functions: how many inputs come before the arguments, and the attribute of their types
_CALLS: Final = {
    **dict.fromkeys(_LOOPS, (0, "T")),
    **dict.fromkeys(("If", "StatelessIf", "Case", "StatelessCase"), (1, "Tin")),
    **dict.fromkeys(("PartitionedCall", "StatefulPartitionedCall"), (0, "Tin")),
}
#: reads of variables: what they become, and what their attributes are called there
_READS: Final = {
    "ReadVariableOp": ("Identity", {"dtype": "T"}),
    "VariableShape": ("Shape", {"out_type": "out_type"}),
    "ResourceGather": ("GatherV2", {"dtype": "Tparams", "Tindices": "Tindices", "batch_dims": "batch_dims"}),
    "ResourceGatherNd": ("GatherNd", {"dtype": "Tparams", "Tindices": "Tindices"}),
}

#: an output: the node, or the parameter of a function, and a number
_Output: TypeAlias = tuple[str, int]


class FrozenValue(NamedTuple):
    """What stands in the place of a handle: the type of the variable's value, and its shape."""

    dtype: int
    shape: TensorShapeProto


def _output(text: str) -> _Output:
    """What an input says it takes: "node", "node:1", and "parameter", "node:output:1" in functions."""
    name, _, rest = text.partition(":")
    return name, int(rest.rpartition(":")[2] or 0)


class Freezer:
    """Freezes nodes and the functions that they call.

    Args:
        library: the functions of the graph; those that are copied are added to it.
    """

    def __init__(self, library: FunctionDefLibrary) -> None:
        self._library = library
        self._functions: dict[str, FunctionDef] = {}
        for function in library.function:
            self._functions[function.signature.name] = copied = FunctionDef()
            copied.CopyFrom(function)
        self._copies: dict[tuple[str, tuple[tuple[int, int, bytes], ...]], str] = {}

    def freeze(self, nodes: Iterable[NodeDef], handles: Mapping[str, FrozenValue]) -> list[NodeDef]:
        """The nodes in their order, with those that they need more of.

        Args:
            nodes: of one graph; they are changed.
            handles: by the names of the nodes that were variables, and are constants.

        Raises:
            ValueError: a node writes into a variable, or does with a handle what cannot be done with a value.
        """
        frozen = self._freeze(list(nodes), {(name, 0): value for name, value in handles.items()}, "")
        self._leave_out_the_copied(frozen)
        return frozen

    def _freeze(self, nodes: list[NodeDef], values: dict[_Output, FrozenValue], suffix: str) -> list[NodeDef]:
        """`suffix` is what a function's nodes write after the name of a constant that they take."""
        grown = True
        while grown:
            known = len(values)
            for node in nodes:
                self._hand_on(node, values)
            grown = len(values) > known
        result: list[NodeDef] = []
        for node in nodes:
            taken = _taken(node, values)
            if taken and node.op in _READS:
                if node.op == "ResourceGather":
                    result.append(_axis(node, suffix))
                _read(node, taken[0])
            elif taken and node.op in _CALLS:
                self._call(node, taken)
            elif taken and node.op in _PASSING:
                value = next(iter(taken.values()))
                node.attr["T"].type = value.dtype  # type: ignore[assignment]
                _set_shape(node, 0, value)
            elif taken:
                _refuse(node, next(_output(text)[0] for text in data_inputs(node) if _output(text) in values))
            result.append(node)
        return result

    def _hand_on(self, node: NodeDef, values: dict[_Output, FrozenValue]) -> None:
        """Adds the outputs of the node that turn out to be handles that values stand for."""
        taken = _taken(node, values)
        if node.op in _LOOPS:
            values.update({(node.name, number): value for number, value in taken.items()})
        elif taken and node.op in _PASSING and node.attr["T"].type == DT_RESOURCE:
            count = 2 if node.op == "Switch" else 1
            values.update({(node.name, number): next(iter(taken.values())) for number in range(count)})

    def _call(self, node: NodeDef, taken: Mapping[int, FrozenValue]) -> None:
        before, types = _CALLS[node.op]
        arguments = {number - before: value for number, value in taken.items()}
        for number, value in arguments.items():
            node.attr[types].list.type[number] = value.dtype  # type: ignore[call-overload]
            if node.op in _LOOPS:
                _set_shape(node, number, value)
        for function in _called(node):
            function.name = self._function(function.name, arguments)

    def _function(self, name: str, arguments: Mapping[int, FrozenValue]) -> str:
        """The name of the copy of a function whose parameters of these numbers are values."""
        key = name, tuple((n, v.dtype, v.shape.SerializeToString()) for n, v in sorted(arguments.items()))
        if key not in self._copies:
            self._copies[key] = copied = self._unused(f"{name}_frozen")
            function = FunctionDef()
            function.CopyFrom(self._functions[name])
            function.signature.name = copied
            self._functions[copied] = function
            self._freeze_function(function, arguments)
        return self._copies[key]

    def _leave_out_the_copied(self, nodes: Iterable[NodeDef]) -> None:
        """Takes those functions out of the library that nothing calls any more."""
        waiting = [call.name for node in nodes for call in _called(node)]
        waiting += [name for name in self._functions if name not in {original for original, _ in self._copies}]
        kept: set[str] = set()
        while waiting:
            if (name := waiting.pop()) in self._functions and name not in kept:
                kept.add(name)
                waiting += [call.name for node in self._functions[name].node_def for call in _called(node)]
        functions = [self._functions[name] for name in self._functions if name in kept]
        del self._library.function[:]
        self._library.function.extend(functions)

    def _unused(self, name: str) -> str:
        number, found = 0, name
        while found in self._functions:
            number += 1
            found = f"{name}_{number}"
        return found

    def _freeze_function(self, function: FunctionDef, arguments: Mapping[int, FrozenValue]) -> None:
        values: dict[_Output, FrozenValue] = {}
        for number, value in arguments.items():
            parameter = function.signature.input_arg[number]
            parameter.type = value.dtype  # type: ignore[assignment]
            parameter.ClearField("handle_data")
            values[parameter.name, 0] = value
            shapes = AttrValue(list=AttrValue.ListValue(shape=[value.shape]))
            function.arg_attr[number].attr["_output_shapes"].CopyFrom(shapes)
        reads = {n.name for n in function.node_def if n.op == "ReadVariableOp"}
        nodes = self._freeze(list(function.node_def), values, ":output:0")
        # a read gives its "value", the identity that it has become its "output"
        renamed = {f"{node.name}:value:": f"{node.name}:output:" for node in nodes if node.op == "Identity"}
        renamed = {before: after for before, after in renamed.items() if before.partition(":")[0] in reads}
        for node in nodes:
            node.input[:] = [_renamed(text, renamed) for text in node.input]
        for output in function.signature.output_arg:
            text = function.ret[output.name] = _renamed(function.ret[output.name], renamed)
            if _output(text) in values:
                output.type = values[_output(text)].dtype  # type: ignore[assignment]
        copies = [NodeDef.FromString(node.SerializeToString()) for node in nodes]
        del function.node_def[:]
        function.node_def.extend(copies)


def _called(node: NodeDef) -> list[NameAttrList]:
    """What a node names the functions with that it calls."""
    return [call for attr in node.attr.values() for call in ([attr.func] if attr.HasField("func") else attr.list.func)]


def _taken(node: NodeDef, values: Mapping[_Output, FrozenValue]) -> dict[int, FrozenValue]:
    """The inputs of a node that values stand for."""
    return {n: values[_output(text)] for n, text in enumerate(data_inputs(node)) if _output(text) in values}


def _set_shape(node: NodeDef, output: int, value: FrozenValue) -> None:
    """Where a node says of which shapes its outputs are, lets it say so of the value."""
    for name in ("output_shapes", "_output_shapes"):
        shapes = node.attr[name].list.shape if name in node.attr else []
        if output < len(shapes):
            shapes[output].CopyFrom(value.shape)


def _read(node: NodeDef, value: FrozenValue) -> None:
    """Makes the read of a variable one of a value."""
    attrs = {key: AttrValue.FromString(attr.SerializeToString()) for key, attr in node.attr.items()}
    node.attr.clear()
    read = node.op
    node.op, renamed = _READS[read]
    for key, attr in attrs.items():
        if key in renamed or key.startswith("_"):
            node.attr[renamed.get(key, key)].CopyFrom(attr)
    if read == "VariableShape":
        node.attr["T"].type = value.dtype  # type: ignore[assignment]
    if read == "ResourceGather":
        node.attr["Taxis"].type = DT_INT32


def _axis(node: NodeDef, suffix: str) -> NodeDef:
    """The constant 0, which a gather takes as the axis in the place of none; the node takes it from now on."""
    axis = NodeDef(name=f"{node.name}/axis", op="Const", device=node.device)
    axis.attr["dtype"].type = DT_INT32
    axis.attr["value"].tensor.CopyFrom(make_tensor_proto(0, "int32"))
    data = data_inputs(node)
    controls = list(node.input)[len(data) :]
    node.input[:] = [*data, f"{axis.name}{suffix}", *controls]
    return axis


def _renamed(text: str, renamed: Mapping[str, str]) -> str:
    beginning, _, number = text.rpartition(":")
    return f"{renamed[f'{beginning}:']}{number}" if f"{beginning}:" in renamed else text


def _refuse(node: NodeDef, variable: str) -> None:
    op_def = find_op_def(node.op)
    if op_def is not None and op_def.writes:
        raise ValueError(f"node {node.name!r} ({node.op}) changes the variable {variable!r}; name other outputs")
    raise ValueError(
        f"node {node.name!r} ({node.op}) takes the variable {variable!r}, and no constant in its place; name other "
        "outputs, or leave the variable alone with variable_names_blacklist"
    )
