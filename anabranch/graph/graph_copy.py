"""Copies of operations and of function graphs, which are all that a step knows of the graph of its user."""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from anabranch.errors import OpError
from anabranch.graph.function_graph import FunctionGraph
from anabranch.graph.graph import Graph
from anabranch.graph.operation import Operation, Tensor
from anabranch.graph.ordering import in_execution_order
from anabranch.graph.step_nodes import NOT_KNOWN, StepFunction, StepNode, StepTensor, called_names

_COLOCATE: Final = b"loc:@"


class GraphCopy:
    """The nodes of some operations of one graph, made when they are first asked for.

    Attributes:
        colocated: the operations with which some are to share a device, whether they run or not: by name.

    Args:
        functions: the copies of the functions that the operations call, by name.
        scope: what the operations' names do not say: "" in a graph, ``@name`` in a function.
    """

    def __init__(self, functions: dict[str, StepFunction], scope: str = "") -> None:
        self._functions = functions
        self._scope = scope
        self._nodes: dict[Operation, StepNode] = {}
        self._given: dict[Tensor, StepTensor] = {}
        self.colocated: dict[str, StepNode] = {}

    def give(self, tensor: Tensor, value: object = NOT_KNOWN) -> StepTensor:
        """What stands for a tensor that is not computed: it is fed, or its value is known."""
        made = StepTensor(self._node(tensor._op), tensor._value_index, tensor._dtype, tensor._shape, value)
        self._given[tensor] = made
        return made

    def tensor(self, tensor: Tensor) -> StepTensor:
        """The copy of a tensor."""
        found = self._given.get(tensor)
        if found is None:
            found = self._given[tensor] = self.node(tensor._op).outputs[tensor._value_index]
        return found

    def node(self, op: Operation) -> StepNode:
        """The copy of an operation, which knows no inputs before `connect`."""
        found = self._nodes.get(op)
        if found is None:
            found = self._nodes[op] = self._node(op)
            found.outputs = [StepTensor(found, i, t._dtype, t._shape) for i, t in enumerate(op._outputs)]
        return found

    def connect(self, op: Operation, without: set[Operation]) -> StepNode:
        """Gives the copy of an operation its inputs, and its control inputs but for some."""
        node = self.node(op)
        node.inputs = [self.tensor(t) for t in op._inputs]
        if op._control_inputs:
            node.control_inputs = tuple([self.node(c) for c in op._control_inputs if c not in without])
        if "_class" in op.attrs:
            self._colocate(op)
        return node

    def _node(self, op: Operation) -> StepNode:
        called = called_names(op.attrs, op.op_def) if op.op_def.calls_functions else ()
        return StepNode(
            op.op_def,
            op._name,
            [],
            (),
            op.attrs,
            op.device,
            op._id,
            op.site,
            op._name + self._scope,
            {name: self._functions[name] for name in called if name in self._functions} if called else _NO_FUNCTIONS,
        )

    def _colocate(self, op: Operation) -> None:
        """Copies the operations whose devices one is to share, and those whose devices these are to share."""
        stack = [op]
        while stack:
            for group in stack.pop().attrs.get("_class", ()):
                name = group[len(_COLOCATE) :].decode()
                other = op._graph._by_name.get(name) if group.startswith(_COLOCATE) else None
                if other is not None and name not in self.colocated:
                    self.colocated[name] = self._node(other)
                    stack.append(other)


def name_operation(error: OpError, graph: Graph) -> None:
    """Lets an error name the operation of a graph that a node was copied from, if there is one."""
    node = error.op
    if isinstance(node, StepNode) and node.origin == node.name:
        found = graph._by_name.get(node.name)
        if found is not None:
            error.replace_operation(found)


_NO_FUNCTIONS: Final[Mapping[str, StepFunction]] = {}


# ---------------------------------------------------------------------- functions
@dataclass(slots=True)
class _Made:
    """A copy of a function graph: of which state of it, and the copies of the functions that it calls."""

    state: tuple[int, ...]
    called: dict[str, StepFunction]
    function: StepFunction


#: the last copy of each function graph: steps that call the same function share what was found out about it
_made: weakref.WeakKeyDictionary[FunctionGraph, _Made] = weakref.WeakKeyDictionary()


def functions_of(graph: Graph, operations: Iterable[Operation]) -> dict[str, StepFunction]:
    """Copies of the functions that operations of a graph call, directly or not, by name."""
    found: dict[str, StepFunction] = {}
    library: Mapping[str, Graph] | None = None
    stack: list[tuple[str, bool]] = [(name, False) for name in _called_by(operations)]
    entered: set[str] = set()
    while stack:
        name, complete = stack.pop()
        if library is None:
            library = graph.functions
        body = library.get(name)
        if name in found or not isinstance(body, FunctionGraph):
            continue  # a kernel that calls a function that is not there says so
        called = _called_by(body.get_operations())
        if complete:
            found[name] = _copied(name, body, {other: found[other] for other in called if other in found})
        elif name not in entered:
            entered.add(name)
            stack.append((name, True))
            stack.extend((other, False) for other in called if other not in found)
    return found


def _called_by(operations: Iterable[Operation]) -> list[str]:
    names = (name for op in operations if op.op_def.calls_functions for name in called_names(op.attrs, op.op_def))
    return list(dict.fromkeys(names))


def _copied(name: str, body: FunctionGraph, called: dict[str, StepFunction]) -> StepFunction:
    # not the tensors themselves, which would keep the graph alive
    state = (body.version, body.structure_version, *map(id, body.inputs), *map(id, body.outputs))
    made = _made.get(body)
    if made is None or made.state != state or made.called != called:
        made = _made[body] = _Made(state, called, copy_of_function(name, body.inputs, body.outputs, called))
    return made.function


def copy_of_function(
    name: str, inputs: Sequence[Tensor], outputs: Sequence[Tensor], called: dict[str, StepFunction]
) -> StepFunction:
    """A function as steps call it.

    Args:
        inputs: the parameters.
        outputs: the results.
        called: the copies of the functions that its operations call.

    Raises:
        InvalidArgumentError: what the results need contains a cycle.
    """
    copy = GraphCopy(called, f"@{name}")
    parameters = {t._op for t in inputs}
    needed = needed_operations([t._op for t in outputs], set(inputs), parameters)
    ordered = [copy.connect(op, set()) for op in in_execution_order(needed, set(inputs))]
    results = [copy.tensor(t) for t in outputs]
    return StepFunction(name, [copy.tensor(t) for t in inputs], results, ordered, copy.colocated)


def needed_operations(ends: Iterable[Operation], given: set[Tensor], passed_over: set[Operation]) -> set[Operation]:
    """The operations that some need, these among them.

    Args:
        given: tensors that need not be computed.
        passed_over: operations that are not needed whoever names them.
    """
    needed: set[Operation] = set()
    stack = list(ends)
    while stack:
        op = stack.pop()
        if op not in needed and op not in passed_over:
            needed.add(op)
            stack.extend(t._op for t in op._inputs if t not in given and t._op not in needed)
            stack.extend(c for c in op._control_inputs if c not in needed)
    return needed
