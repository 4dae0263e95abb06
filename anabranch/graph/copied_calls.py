"""Calls in a GraphDef: each is replaced by a copy of the function that it calls  (docs/decisions/0055).

`PartitionedCall` and `StatefulPartitionedCall`, and nodes whose type is the name of a function of the library. The
nodes of the function come before the call, as `call/node`; the call itself becomes an IdentityN of the results, under
its own name, so that all that takes its outputs, waits for it or fetches it stays as it is. It waits for what the
function does besides (`control_ret`); what the call waits for is waited for by the first nodes of the copy.

In a function's body inputs are written otherwise than in a graph (`node:argument:index`); copies are written as the
place that they are copied to has it. How many nodes there will be is counted before the first one is copied.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from anabranch.core.colocation import colocation_group, colocation_leader
from anabranch.core.registry import find_op_def
from anabranch.errors import InvalidArgumentError, ResourceExhaustedError, UnimplementedError
from anabranch.graph.node_plans import NodeError
from anabranch.proto.graph_pb2 import AttrValue, DataType, FunctionDef, NodeDef
from anabranch.proto.node_inputs import control_inputs, data_inputs

#: nodes that all copies of one GraphDef may make up
MOST_NODES: Final = 2_000_000
_CALLS: Final = ("PartitionedCall", "StatefulPartitionedCall", "RemoteCall")


class CopiedCalls:
    """Copies the functions of a library into nodes that call them.

    Args:
        functions: of the library, by name.

    Attributes:
        functions: the same, where they take results of nodes that call a function by their type.
        copied: those that were copied so far.
    """

    def __init__(self, functions: Mapping[str, FunctionDef]) -> None:
        self.functions = {name: _with_numbered_results(function, functions) for name, function in functions.items()}
        self._sizes: dict[str, int] = {}
        self._bodies: dict[str, list[NodeDef]] = {}
        self.copied: set[str] = set()

    def in_graph(self, nodes: Sequence[NodeDef]) -> list[NodeDef]:
        """The nodes of a graph without calls.

        Raises:
            UnimplementedError: a function calls itself.
            ResourceExhaustedError: the copies would be more than `MOST_NODES`.
            InvalidArgumentError: a call does not fit its function.
        """
        self._check_size(nodes)
        self._copy_measured()
        return self._copied(nodes, in_function=False)

    def in_function(self, name: str) -> list[NodeDef]:
        """The nodes of a function without calls, in the notation of functions; raises as `in_graph`."""
        self._check_size(self.functions[name].node_def)
        self._copy_measured()
        if name not in self._bodies:
            self._bodies[name] = self._copied(self.functions[name].node_def, in_function=True)
        return self._bodies[name]

    def _copy_measured(self) -> None:
        """Makes the bodies of the functions that are called, innermost first: they may be nested deeply."""
        for name in self._sizes:
            if name not in self._bodies:
                self._bodies[name] = self._copied(self.functions[name].node_def, in_function=True)

    # ------------------------------------------------------------------ what is called
    def _called(self, node: NodeDef) -> str | None:
        """The function that a node calls."""
        if node.op in _CALLS:
            return node.attr["f"].func.name
        return node.op if node.op in self.functions and find_op_def(node.op) is None else None

    def _function(self, node: NodeDef) -> FunctionDef:
        name = self._called(node) or ""
        if name not in self.functions:
            raise InvalidArgumentError(
                node, None, f"node {node.name!r} calls the function {name!r}, which the library does not have"
            )
        return self.functions[name]

    def _check_size(self, nodes: Iterable[NodeDef]) -> None:
        total = sum(self._size_of(node) for node in nodes)
        if total > MOST_NODES:
            raise ResourceExhaustedError(
                None,
                None,
                f"the functions that are called make up {total} nodes, and {MOST_NODES} is the limit; a function that "
                "calls others twice, and these others twice, doubles with each level",
            )

    def _size_of(self, node: NodeDef) -> int:
        if self._called(node) is None:
            return 1
        self._measure(self._function(node))
        return 1 + self._sizes[self._function(node).signature.name]

    def _measure(self, root: FunctionDef) -> None:
        """Fills in the sizes of a function and of those that it calls, which may be nested deeply."""
        waiting, active = [root], set[str]()
        while waiting:
            function = waiting[-1]
            name = function.signature.name
            if name in self._sizes:
                waiting.pop()
                continue
            active.add(name)
            callees = [self._function(node) for node in function.node_def if self._called(node) is not None]
            missing = [callee for callee in callees if callee.signature.name not in self._sizes]
            for callee in missing:
                if callee.signature.name in active:
                    raise UnimplementedError(
                        None, None, f"function {callee.signature.name!r} calls itself; write the recursion as a loop"
                    )
            if missing:
                waiting.append(missing[0])
                continue
            waiting.pop()
            active.discard(name)
            self._sizes[name] = len(function.node_def) + sum(self._sizes[c.signature.name] for c in callees)

    # ------------------------------------------------------------------ copying
    def _copied(self, nodes: Sequence[NodeDef], in_function: bool) -> list[NodeDef]:
        if all(self._called(node) is None for node in nodes):
            return list(nodes)
        taken = {node.name for node in nodes}
        copied: list[NodeDef] = []
        for node in nodes:
            copied += [node] if self._called(node) is None else self._copy(node, taken, in_function)
        return copied

    def _copy(self, call: NodeDef, taken: set[str], in_function: bool) -> list[NodeDef]:
        function = self._function(call)
        signature = function.signature
        self.copied.add(signature.name)
        body = self._bodies[signature.name]
        given = data_inputs(call)
        controls = control_inputs(call)
        if call.op == "RemoteCall" and given:  # where it runs is for placement to say
            controls = [*controls, f"^{_producer(given.pop(0))}"]
        attrs = {key: value for source in (call.attr["f"].func.attr, call.attr) for key, value in source.items()}
        arguments = _bound(call, function, given, attrs)
        prefix = _free_prefix(call.name, [node.name for node in body], taken)
        inner = _CopiedBody(prefix, arguments, {node.name: node for node in body}, in_function)
        copies = []
        for node in body:
            copy = NodeDef()
            copy.CopyFrom(node)
            copy.name = prefix + node.name
            copy.device = node.device or call.device
            inner.write_attrs(copy, attrs)
            before = [inner.text(node, text) for text in node.input]
            # what the call waits for comes before all of the copy: those wait for it that wait for none of the copy
            if not any(inner.is_of_body(text) for text in node.input):
                before += controls
            del copy.input[:]
            copy.input.extend(_in_order(before))
            copies.append(copy)
        return [*copies, _end_of(call, function, inner, controls)]


class _CopiedBody:
    """How inputs of a function's nodes are written where they are copied to."""

    def __init__(
        self, prefix: str, arguments: Mapping[str, list[str]], body: Mapping[str, NodeDef], in_function: bool
    ) -> None:
        self._prefix, self._arguments, self._body, self._in_function = prefix, arguments, body, in_function

    def is_of_body(self, text: str) -> bool:
        """Whether an input is of a node of the function, and not a parameter."""
        return text.removeprefix("^").split(":")[0] in self._body

    def text(self, node: NodeDef, text: str) -> str:
        """An input; "" for an edge that says nothing."""
        if text.startswith("^"):
            name = text[1:]
            if name in self._body:
                return f"^{self._prefix}{name}"
            given = self._arguments.get(name, [])
            # parameters of a function are always there
            return f"^{_producer(given[0])}" if given and not self._is_parameter(given[0]) else ""
        name, _, rest = text.partition(":")
        if name in self._body:
            if self._in_function:
                return self._prefix + text
            return f"{self._prefix}{name}:{_flat_index(node, self._body[name], rest)}"
        argument, _, index = text.partition(":")
        given = self._arguments.get(argument, [])
        position = int(index) if index.isdigit() else 0
        if position >= len(given):
            raise NodeError(node, f"its input {text!r} is neither a parameter nor a node of the function")
        return given[position]

    def _is_parameter(self, text: str) -> bool:
        return self._in_function and ":" not in text

    def write_attrs(self, copy: NodeDef, attrs: Mapping[str, AttrValue]) -> None:
        """Fills in what depends on the call, and names of nodes."""
        for key, value in copy.attr.items():
            if value.placeholder:
                if value.placeholder not in attrs:
                    raise NodeError(copy, f"its attribute {key!r} is {value.placeholder!r} of the call, which has none")
                copy.attr[key].CopyFrom(attrs[value.placeholder])
        groups = copy.attr["_class"].list.s if "_class" in copy.attr else []
        kept = []
        for group in groups:
            leader = colocation_leader(group)
            if leader is None:
                kept.append(group)
            elif leader in self._body:
                kept.append(colocation_group(self._prefix + leader))
        if groups:
            copy.attr["_class"].list.s[:] = kept
            if not kept:
                del copy.attr["_class"]


def _bound(
    call: NodeDef, function: FunctionDef, given: Sequence[str], attrs: Mapping[str, AttrValue]
) -> dict[str, list[str]]:
    """What is given for each parameter; several where it is a list."""
    arguments, start = {}, 0
    for parameter in function.signature.input_arg:
        count = 1
        if parameter.number_attr:
            count = attrs[parameter.number_attr].i if parameter.number_attr in attrs else 0
        elif parameter.type_list_attr:
            count = len(attrs[parameter.type_list_attr].list.type) if parameter.type_list_attr in attrs else 0
        arguments[parameter.name] = list(given[start : start + count])
        start += count
    if start != len(given) or any(
        not texts and not _is_list(p) for p, texts in zip(function.signature.input_arg, arguments.values(), strict=True)
    ):
        raise InvalidArgumentError(
            call,
            None,
            f"node {call.name!r} gives {len(given)} inputs to the function {function.signature.name!r}, which takes "
            f"{len(function.signature.input_arg)}",
        )
    return arguments


def _is_list(parameter: object) -> bool:
    return bool(getattr(parameter, "number_attr", "") or getattr(parameter, "type_list_attr", ""))


def _end_of(call: NodeDef, function: FunctionDef, inner: _CopiedBody, controls: Sequence[str]) -> NodeDef:
    """What takes the place of a call: its results, after all that it does."""
    results = []
    for result in function.signature.output_arg:
        if result.name not in function.ret:
            raise InvalidArgumentError(
                call, None, f"the result {result.name!r} of function {function.signature.name!r} has no entry in 'ret'"
            )
        results.append(inner.text(call, function.ret[result.name]))
    effects = [
        inner.text(call, f"^{function.control_ret[name]}")
        for name in function.signature.control_output
        if name in function.control_ret
    ]
    # a result may be a parameter, and then nothing else waits for what the call waits for
    end = NodeDef(name=call.name, device=call.device, op="IdentityN" if results else "NoOp")
    end.input.extend([*results, *dict.fromkeys(text for text in [*effects, *controls] if text)])
    if results:
        types = _result_types(call, function)
        end.attr["T"].CopyFrom(AttrValue(list=AttrValue.ListValue(type=types)))
    for key, value in call.attr.items():
        if key == "_class" or (key == "_output_shapes" and results):
            end.attr[key].CopyFrom(value)
    return end


def _result_types(call: NodeDef, function: FunctionDef) -> list[DataType.ValueType]:
    if call.op in _CALLS:
        return list(call.attr["Tout"].list.type)
    return [
        call.attr[result.type_attr].type if result.type_attr else result.type
        for result in function.signature.output_arg
    ]


def _with_numbered_results(function: FunctionDef, functions: Mapping[str, FunctionDef]) -> FunctionDef:
    """A function that takes results of its calls by number: functions name theirs, an IdentityN has them in a list."""
    results_of = {
        node.name: [result.name for result in functions[node.op].signature.output_arg]
        for node in function.node_def
        if node.op in functions and find_op_def(node.op) is None
    }
    if not results_of:
        return function

    def numbered(text: str) -> str:
        name, _, rest = text.partition(":")
        result = rest.split(":")[0]
        is_result = name in results_of and result in results_of[name]
        return f"{name}:output:{results_of[name].index(result)}" if is_result else text

    copied = FunctionDef()
    copied.CopyFrom(function)
    for node in copied.node_def:
        node.input[:] = map(numbered, node.input)
    for result, text in function.ret.items():
        copied.ret[result] = numbered(text)
    return copied


def _flat_index(node: NodeDef, source: NodeDef, rest: str) -> int:
    """The number of an output among all of its node's, of the argument's name and the number within that."""
    wanted, _, index = rest.partition(":")
    op_def = find_op_def(source.op)
    start = 0
    for argument in op_def.outputs if op_def is not None else ():
        count = 1
        if argument.number_attr is not None:
            count = source.attr[argument.number_attr].i
        elif argument.type_list_attr is not None:
            count = len(source.attr[argument.type_list_attr].list.type)
        if argument.name == wanted:
            return start + int(index or 0)
        start += count
    if op_def is not None:
        raise NodeError(node, f"its input {source.name + ':' + rest!r} does not exist: {source.op} has no such output")
    # the type is refused later, with all others that are not known
    return int(index or 0)


def _free_prefix(name: str, inner: Iterable[str], taken: set[str]) -> str:
    """What the names of a copy begin with, so that none of them is taken; takes them."""
    names, prefix, number = list(inner), f"{name}/", 0
    while any(prefix + each in taken for each in names):
        number += 1
        prefix = f"{name}_{number}/"
    taken.update(prefix + each for each in names)
    return prefix


def _producer(text: str) -> str:
    return text.split(":")[0]


def _in_order(inputs: Sequence[str]) -> list[str]:
    """Data first, as they are; then the nodes that are waited for, each once."""
    data = [text for text in inputs if text and not text.startswith("^")]
    return [*data, *dict.fromkeys(text for text in inputs if text.startswith("^"))]
