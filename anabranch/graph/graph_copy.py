"""Copies of operations and of function graphs, which are all that a step knows of the graph of its user."""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from anabranch.core.attrs import FuncAttr
from anabranch.core.colocation import colocation_leader
from anabranch.core.shapes import TensorShape
from anabranch.errors import OpError
from anabranch.graph.function_graph import FunctionGraph
from anabranch.graph.graph import Graph, op_def_of
from anabranch.graph.inner_values import RECORDS, inner_tensor
from anabranch.graph.joined_nodes import FurtherResult, ValueUses, groups_of, joined_order, named_with
from anabranch.graph.loop_bodies import check_signatures
from anabranch.graph.operation import Operation, Tensor
from anabranch.graph.ordering import in_execution_order
from anabranch.graph.step_nodes import NOT_KNOWN, StepFunction, StepNode, StepTensor, called_names


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
        copied = self._given.get(tensor)
        if copied is None:
            copied = self._given[tensor] = self.node(tensor._op).outputs[tensor._value_index]
        return copied

    def node(self, op: Operation) -> StepNode:
        """The copy of an operation, which knows no inputs before `connect`."""
        copied = self._nodes.get(op)
        if copied is None:
            copied = self._nodes[op] = self._node(op)
            copied.outputs = [StepTensor(copied, i, t._dtype, t._shape) for i, t in enumerate(op._outputs)]
        return copied

    def connect(self, op: Operation, without: set[Operation]) -> StepNode:
        """Gives the copy of an operation its inputs, and its control inputs but for some."""
        node = self.node(op)
        node.inputs = [self.tensor(t) for t in op._inputs]
        if op._control_inputs:
            node.control_inputs = tuple([self.node(c) for c in op._control_inputs if c not in without])
        if "_class" in op.attrs:
            self._colocate(op)
        return node

    def connected(
        self, operations: list[Operation], without: set[Operation], results: Iterable[Tensor], unvalued: set[Tensor]
    ) -> list[StepNode]:
        """The copies of operations that can run in this order, each with its inputs.

        Args:
            without: what nobody waits for.
            results: tensors that leave the step or the function.
            unvalued: those of them whose values nobody uses.
        """
        groups = groups_of(operations)
        if not groups:
            return [self.connect(op, without) for op in operations]
        for owner, others in groups.items():
            self._join(owner, others)
        nodes = [self.connect(op, without) for op in joined_order(operations, groups)]
        uses = ValueUses(nodes, [self.tensor(t) for t in results if t not in unvalued])
        for owner, others in reversed(groups.items()):  # who uses records comes after who makes them
            node = self.node(owner)
            if others[0].type == RECORDS:
                bound = others[0]._inputs[0]
                if owner._inputs[0] is not bound:
                    node.inputs.insert(0, self.tensor(bound))
                self._record(node, owner, others, uses)
            else:
                self._give_values(node, owner, others)
        return nodes

    # ---- what stands beside loops and conditionals
    def _join(self, owner: Operation, others: list[Operation]) -> None:
        """Makes the copy of a loop or a conditional give what the operations beside it give, too."""
        node = self.node(owner)
        records = others[0].type == RECORDS
        if records and len(node.outputs) == len(owner.attrs["T"]):
            count = others[0]._outputs[0]
            node.outputs.append(StepTensor(node, len(node.outputs), count.dtype, count.shape))
        further: dict[tuple[int, bytes], StepTensor] = {}
        for other in others:
            self._nodes[other] = node
            outputs = other._outputs
            if records:
                self._given.setdefault(outputs[0], node.outputs[len(owner.attrs["T"])])
                outputs = outputs[1:]
            for key, tensor in zip(_inner_keys(other), outputs, strict=True):
                if key not in further:
                    further[key] = StepTensor(node, len(node.outputs), tensor.dtype, tensor.shape)
                    node.outputs.append(further[key])
                self._given.setdefault(tensor, further[key])

    def _record(self, node: StepNode, owner: Operation, others: list[Operation], uses: ValueUses) -> None:
        """Makes the copy of a loop one that records what the operations beside it name."""
        size = len(owner.attrs["T"])
        own = len(owner._outputs) - size - 1 if len(owner._outputs) > size else 0
        records = node.outputs[size + 1 :]
        valued = [uses.has_value(t) for t in records]
        kinds = {key: dtype for op in others for key, dtype in zip(_inner_keys(op), op.attrs["types"], strict=True)}
        further = [
            FurtherResult(name, matters, dtype, TensorShape(None))
            for ((_, name), dtype), matters in zip(kinds.items(), valued[own:], strict=True)
        ]
        body = owner.attrs["body"].name
        made = _with_further_results(owner._graph, body, tuple(further))
        start = len(made.outputs) - len(further)
        node.op_def = op_def_of("_RecordingWhile")
        node.functions = {**node.functions, made.name: made}
        node.attrs = {
            **node.attrs,
            "body": FuncAttr(made.name),
            "N": len(records),
            "recorded": [*node.attrs.get("recorded", ()), *range(start, len(made.outputs))],
            "only_shapes": [not matters for matters in valued],
        }

    def _give_values(self, node: StepNode, owner: Operation, others: list[Operation]) -> None:
        """Adds the tensors that operations beside a conditional name to the results of its copy's branches."""
        named = {key: t for op in others for key, t in zip(_inner_keys(op), op._outputs, strict=True)}
        changed = []
        for number, name in enumerate(called_names(owner.attrs, owner.op_def)):
            further = [
                FurtherResult(inner if which == number else b"", True, t.dtype, t.shape)
                for (which, inner), t in named.items()
            ]
            made = _with_further_results(owner._graph, name, tuple(further))
            node.functions = {**node.functions, made.name: made}
            changed.append(FuncAttr(made.name))
        functions = (
            {"branches": changed} if "branches" in owner.attrs else dict(zip(_IF_BRANCHES, changed, strict=True))
        )
        shapes = list(owner.attrs["output_shapes"]) or [t.shape for t in owner._outputs]
        node.attrs = {
            **node.attrs,
            **functions,
            "Tout": [*owner.attrs["Tout"], *(t.dtype for t in named.values())],
            "output_shapes": [*shapes, *(t.shape for t in named.values())],
        }

    def _node(self, op: Operation) -> StepNode:
        called = called_names(op.attrs, op.op_def) if op.op_def.calls_functions else ()
        if op.op_def.is_functional:
            check_signatures(op, [self._functions.get(name) for name in called])
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
                name = colocation_leader(group)
                other = op._graph._by_name.get(name) if name is not None else None
                if name is not None and other is not None and name not in self.colocated:
                    self.colocated[name] = self._node(other)
                    stack.append(other)


_IF_BRANCHES: Final = ("then_branch", "else_branch")


def _inner_keys(other: Operation) -> list[tuple[int, bytes]]:
    """The tensors that an operation beside another gives: the number of the branch, and the name."""
    names = other.attrs["tensors"]
    return list(zip(other.attrs.get("which", [0] * len(names)), names, strict=True))


def name_operation(error: OpError, graph: Graph) -> None:
    """Lets an error name the operation of a graph that a node was copied from, if there is one."""
    node = error.op
    if isinstance(node, StepNode) and node.origin == node.name:
        operation = graph._by_name.get(node.name)
        if operation is not None:
            error.replace_operation(operation)


_NO_FUNCTIONS: Final[Mapping[str, StepFunction]] = {}


# ---------------------------------------------------------------------- functions
@dataclass(slots=True)
class _Made:
    """A copy of a function graph: of which state of it, and the copies of the functions that it calls."""

    state: tuple[int, ...]
    called: dict[str, StepFunction]
    function: StepFunction


#: the last copies of each function graph, by their further results: steps that call the same function share what was
#: found out about it
_made: weakref.WeakKeyDictionary[FunctionGraph, dict[tuple[FurtherResult, ...], _Made]] = weakref.WeakKeyDictionary()


def functions_of(graph: Graph, operations: Iterable[Operation]) -> dict[str, StepFunction]:
    """Copies of the functions that operations of a graph call, directly or not, by name."""
    copies: dict[str, StepFunction] = {}
    library: Mapping[str, Graph] | None = None
    stack: list[tuple[str, bool]] = [(name, False) for name in _called_by(operations)]
    entered: set[str] = set()
    while stack:
        name, complete = stack.pop()
        if library is None:
            library = graph.functions
        body = library.get(name)
        if name in copies or not isinstance(body, FunctionGraph):
            continue  # a kernel that calls a function that is not there says so
        called = _called_by(body.get_operations())
        if complete:
            copies[name] = _copied(name, body, {other: copies[other] for other in called if other in copies})
        elif name not in entered:
            entered.add(name)
            stack.append((name, True))
            stack.extend((other, False) for other in called if other not in copies)
    return copies


def _called_by(operations: Iterable[Operation]) -> list[str]:
    names = (name for op in operations if op.op_def.calls_functions for name in called_names(op.attrs, op.op_def))
    return list(dict.fromkeys(names))


def _copied(
    name: str, body: FunctionGraph, called: dict[str, StepFunction], further: tuple[FurtherResult, ...] = ()
) -> StepFunction:
    # not the tensors themselves, which would keep the graph alive
    state = (body.version, body.structure_version, *map(id, body.inputs), *map(id, body.outputs))
    copies = _made.setdefault(body, {})
    made = copies.get(further)
    if made is None or made.state != state or made.called != called:
        copy = copy_of_function(name, body, called, further)
        made = copies[further] = _Made(state, called, copy)
    return made.function


def _with_further_results(graph: Graph, name: str, further: tuple[FurtherResult, ...]) -> StepFunction:
    """A function that was copied already, with more results."""
    body = graph.get_function(name)
    assert isinstance(body, FunctionGraph)
    return _copied(name, body, _made[body][()].called, further)


def copy_of_function(
    name: str, body: FunctionGraph, called: dict[str, StepFunction], further: tuple[FurtherResult, ...] = ()
) -> StepFunction:
    """A function as steps call it.

    Args:
        called: the copies of the functions that its operations call.
        further: what it is to give after its results.

    Raises:
        InvalidArgumentError: what the results need contains a cycle.
    """
    copy = GraphCopy(called, f"@{name}")
    parameters = {t._op for t in body.inputs}
    more = [inner_tensor(body, body.inputs, f.name) if f.name else None for f in further]
    all_results = [*body.outputs, *(t for t in more if t is not None)]
    unvalued = {t for t, f in zip(more, further, strict=True) if t is not None and not f.valued}
    needed = needed_operations([t._op for t in all_results], set(body.inputs), parameters)
    ordered = in_execution_order(needed, set(body.inputs))
    nodes = copy.connected(ordered, set(), all_results, unvalued - set(body.outputs))
    results = [copy.tensor(t) for t in body.outputs]
    for number, (tensor, wanted) in enumerate(zip(more, further, strict=True)):
        if tensor is None:
            nodes.append(_stand_in(nodes[-1] if nodes else results[0].op, number, wanted))
        results.append(nodes[-1].outputs[0] if tensor is None else copy.tensor(tensor))
    inputs = [copy.tensor(t) for t in body.inputs]
    return StepFunction(named_with(name, further), inputs, results, nodes, copy.colocated)


def _stand_in(beside: StepNode, number: int, wanted: FurtherResult) -> StepNode:
    """A node in the place of a result that a branch does not compute; nobody reads its value."""
    name, attrs = f"_FakeParam_{number}", {"dtype": wanted.dtype, "shape": wanted.shape}
    node = StepNode(op_def_of("FakeParam"), name, [], (), attrs, "", beside.number, beside.site, name, {})
    node.outputs = [StepTensor(node, 0, wanted.dtype, wanted.shape)]
    return node


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
