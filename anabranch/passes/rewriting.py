"""Making one step graph from another, operation by operation."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Unpack

from anabranch.core.roles import Role
from anabranch.core.values import TensorValue
from anabranch.graph.loop_structure import is_back_edge
from anabranch.graph.step_nodes import StepFunction, StepNode, StepTensor
from anabranch.passes.step_graph import StepChanges, StepGraph


class Rewriting:
    """A step graph in the making: the operations of another are taken over in their order, or something in their place.

    Where neither what an operation takes nor what it waits for has changed, both graphs share the node. A Merge with a
    back edge takes what comes only later, so that it is copied, and completed in the end.

    Attributes:
        operations: those of the new graph so far.
    """

    def __init__(self, step: StepGraph) -> None:
        self.step = step
        self.operations: list[StepNode] = []
        self._members = set(step.operations)
        self._tensors: dict[StepTensor, StepTensor] = {}
        self._nodes: dict[StepNode, StepNode] = {}
        self._unfinished: list[tuple[StepNode, list[StepTensor]]] = []
        self._names: set[str] | None = None

    def tensor(self, tensor: StepTensor) -> StepTensor:
        """What stands for a tensor of the old graph."""
        return self._tensors.get(tensor, tensor)

    def node(self, node: StepNode) -> StepNode:
        """What an operation of the old graph became."""
        return self._nodes.get(node, node)

    def nodes(self, nodes: Iterable[StepNode]) -> tuple[StepNode, ...]:
        """What operations of the old graph became."""
        return tuple([self._nodes.get(node, node) for node in nodes])

    def stand_for(self, old: StepTensor, new: StepTensor) -> None:
        """Lets everything that took a tensor of the old graph take one of the new graph."""
        if old is not new:
            self._tensors[old] = new

    def knows(self, tensor: StepTensor, value: TensorValue) -> StepTensor:
        """Lets a tensor be known; returns what stands for it. Who takes that does not need its operation any more."""
        # a copy without inputs lends its name (0032): the tensor is not one that an operation of the step computes
        op = tensor.op.copied([], ()) if tensor.op in self._members else tensor.op
        known = self._tensors[tensor] = StepTensor(op, tensor.value_index, tensor.dtype, tensor.shape, value)
        return known

    def keep(
        self,
        op: StepNode,
        *,
        inputs: list[StepTensor] | None = None,
        control_inputs: tuple[StepNode, ...] | None = None,
        after: tuple[StepNode, ...] | None = None,
        placed_on: str | None = None,
    ) -> StepNode:
        """Takes an operation over; returns its node in the new graph.

        Args:
            inputs, control_inputs, after, placed_on: what it has there, in terms of the new graph; default: what stands
                for what it had.
        """
        new_inputs = [self._tensors.get(t, t) for t in op.inputs] if inputs is None else inputs
        new_controls = self.nodes(op.control_inputs) if control_inputs is None else control_inputs
        new_after = self.nodes(op.after) if after is None else after
        same = new_inputs == op.inputs and new_controls == op.control_inputs and new_after == op.after
        # a Merge with a back edge gets its last input only in `result`, and the old graph must not see that
        if same and placed_on in (None, op.placed_on) and not _has_back_edge(op):
            self.operations.append(op)
            return op
        return self.replace(op, op.copied(new_inputs, new_controls, new_after, placed_on))

    def add(self, node: StepNode) -> StepNode:
        """Takes a node into the new graph that the old one does not have, under a name made unique; returns it."""
        # not before it is needed: a pass that adds nothing need not look at all names
        if self._names is None:
            self._names = {op.name for op in self.step.operations}
        name, count = node.name, 0
        # nobody else has seen the node, so that it may still be renamed
        while node.name in self._names:
            count += 1
            node.name = f"{name}_{count}"
        self._names.add(node.name)
        self.operations.append(node)
        return node

    def replace(self, op: StepNode, new: StepNode, left: Sequence[int] | None = None) -> StepNode:
        """Takes a node into the new graph in place of one of the old; returns it.

        Args:
            left: the positions of the old one's outputs that the new one has; default: all.
        """
        self.operations.append(new)
        self._nodes[op] = new
        outputs = op.outputs if left is None else [op.outputs[i] for i in left]
        for old, successor in zip(outputs, new.outputs, strict=True):
            # what a pass has put in place of one output before stays
            self._tensors.setdefault(old, successor)
        if _has_back_edge(new):
            self._unfinished.append((new, op.inputs))
        return new

    def take_in(self, op: StepNode, new: StepNode, outputs: Mapping[int, StepTensor]) -> None:
        """Lets a node of the new graph do what an operation of the old one did, among other things.

        Args:
            outputs: positions of the old one's outputs -> what stands for them; of the others nobody takes anything.
        """
        self._nodes[op] = new
        for position, tensor in outputs.items():
            self.stand_for(op.outputs[position], tensor)

    def result(self, **changes: Unpack[StepChanges]) -> StepGraph:
        """The new graph; `changes`: what differs besides its operations, in terms of the new graph."""
        # by now it is known what became of the operations after each Merge
        for merge, old in self._unfinished:
            merge.inputs = [
                self.tensor(before) if is_back_edge(merge, now) else now
                for before, now in zip(old, merge.inputs, strict=True)
            ]
        changes.setdefault("fetches", [self.tensor(t) for t in self.step.fetches])
        changes.setdefault("targets", [self.node(op) for op in self.step.targets])
        return self.step.with_operations(self.operations, **changes)


def _has_back_edge(op: StepNode) -> bool:
    return op.op_def.role is Role.MERGE and any(is_back_edge(op, t) for t in op.inputs)


def step_of_function(function: StepFunction, known: Mapping[int, Any]) -> StepGraph:
    """A call of a function as a step of its own, which is fed the parameters.

    Args:
        known: position of a parameter -> its value, where that is the same in every call; such a parameter is not fed.
    """
    feeds = [parameter for position, parameter in enumerate(function.inputs) if position not in known]
    rewriting = Rewriting(StepGraph(function.operations, function.outputs, [], feeds))
    for position, value in known.items():
        rewriting.knows(function.inputs[position], value)
    parameters = {parameter.op for parameter in function.inputs}
    for op in function.operations:
        # waiting for a parameter means waiting for the feed, which is there from the start
        rewriting.keep(op, control_inputs=rewriting.nodes(c for c in op.control_inputs if c not in parameters))
    return rewriting.result()


def step_of_members(operations: list[StepNode], fetches: list[StepTensor], feeds: list[StepTensor]) -> StepGraph:
    """Some operations of a step as a step of their own, which is fed what the others give.

    Args:
        operations: in step order.
        fetches: what they give to the others.
        feeds: what they take from the others.
    """
    members = set(operations)
    rewriting = Rewriting(StepGraph(operations, fetches, [], feeds))
    for op in operations:
        # what the others do was done before the first of these began: the members run as one, when all that they
        # wait for is
        controls = rewriting.nodes(c for c in op.control_inputs if c in members)
        rewriting.keep(op, control_inputs=controls, after=rewriting.nodes(a for a in op.after if a in members))
    return rewriting.result()


def needed_by_ends(step: StepGraph, also: Iterable[StepNode] = ()) -> set[StepNode]:
    """The operations that the fetches, the targets, and some others need.

    Args:
        also: operations that are to stay with what they need.
    """
    members = set(step.operations)
    needed: set[StepNode] = set()
    stack = [*(t.op for t in step.fetches), *step.targets, *also]
    while stack:
        op = stack.pop()
        if op in members and op not in needed:
            needed.add(op)
            stack.extend(t.op for t in op.inputs)
            stack.extend(op.control_inputs)
            # what it comes after has to be a part of the step as well (`verify`)
            stack.extend(op.after)
    return needed
