"""Control edges of operations that a pass takes out of a step (§3.2): those who waited for them wait for what they did.

In TensorFlow an operation that is created under `control_dependencies` gets no control edge if one of its inputs was
created there as well: it waits through that input. Often that is a constant, ``tf.write_file('name', 'text')``, whose
value is known and which therefore never runs. So whatever waited for a removed operation, by a data edge or a control
edge, waits for the operations that the removed one waited for, directly or through others that were removed.

A chain of removed operations could hand on ever longer lists. One that waits for more than `MAX_DIRECT` operations is
replaced by a `NoOp` that does so, and hands on that one alone: the number of edges grows by a fixed factor at most. Of
the two outputs of a Switch only one is alive, which a control edge from it could not tell apart; a `_Gate` that takes
the output stands between.

Example: of ``a = py_func(...); c = Const(^a); d = c + 1; write(d)`` the step keeps ``a`` and ``write(^a)``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from anabranch.core.roles import Role
from anabranch.graph.loop_structure import is_back_edge
from anabranch.graph.step_nodes import StepNode, StepTensor
from anabranch.passes.added_nodes import added_node
from anabranch.passes.rewriting import Rewriting
from anabranch.passes.step_graph import StepGraph

#: control edges that each consumer of a removed operation gets for it at most
MAX_DIRECT = 4


class RemovingOperations(Rewriting):
    """A step graph in the making of which some operations are taken out."""

    def __init__(self, step: StepGraph) -> None:
        super().__init__(step)
        self._instead: dict[StepNode, tuple[StepNode, ...]] = {}
        self._sides: dict[StepTensor, StepNode] = {}

    def stands_for(self, op: StepNode) -> tuple[StepNode, ...]:
        """What is waited for in place of an operation of the old graph: what it became, if it stays."""
        sources = self._instead.get(op)
        return (self.node(op),) if sources is None else sources

    def ends(self) -> list[StepNode]:
        """The targets of the new graph: those of the old, and what removed targets and fetches waited for."""
        ends = dict.fromkeys(source for op in self.step.targets for source in self.stands_for(op))
        for tensor in self.step.fetches:
            ends.update(dict.fromkeys(self._instead.get(tensor.op, ())))
        return list(ends)

    def inherit(self, op: StepNode) -> tuple[StepNode, ...]:
        """The control inputs of an operation that stays, with those that it inherits."""
        removed = dict.fromkeys(t.op for t in op.inputs if t.op in self._instead)
        controls = dict.fromkeys(source for c in op.control_inputs for source in self.stands_for(c))
        if removed:
            # what it takes a value from it waits for anyhow; along a back edge it waits for nothing
            direct = {self.tensor(t).op for t in op.inputs if not is_back_edge(op, t)}
            inherited = dict.fromkeys(source for r in removed for source in self._instead[r])
            controls.update((source, None) for source in inherited if source not in direct)
        return tuple(controls)

    def merge(self, op: StepNode, first: StepNode) -> None:
        """Takes out an operation; another one of the new graph, which computes the same, stands for it."""
        # both wait for the same (`cse` compares that), so that to wait for `first` is to wait for all that this
        # one waited for
        for out, same in zip(op.outputs, first.outputs, strict=True):
            self.stand_for(out, same)
        self._instead[op] = (first,)

    def remove(self, op: StepNode, values: Sequence[Any]) -> None:
        """Takes out an operation whose values are known."""
        sources: dict[StepNode, None] = {}
        for tensor in op.inputs:
            sources.update(dict.fromkeys(self._behind(tensor)))
        for control in op.control_inputs:
            sources.update(dict.fromkeys(self.stands_for(control)))
        if len(sources) > MAX_DIRECT:
            sources = {self.add(added_node("NoOp", op, "waits", [], list(sources), op.device)): None}
        # in terms of the new graph, and of operations that stay: a removed one among the sources was replaced by
        # its own
        self._instead[op] = tuple(sources)
        for out, value in zip(op.outputs, values, strict=True):
            self.stand_for(out, StepTensor(op, out.value_index, out.dtype, out.shape, value))

    def _behind(self, tensor: StepTensor) -> tuple[StepNode, ...]:
        """The operations behind an input of one that is removed."""
        op = tensor.op
        if op in self._instead:
            # all before this one in step order was decided about already, so that no chain has to be followed further
            return self._instead[op]
        # what is fed is there from the start
        if op not in self._members:
            return ()
        if op.op_def.role is not Role.SWITCH:
            return (self.node(op),)
        if tensor not in self._sides:
            # one for each side, whoever waits for it: it stands behind the Switch, which comes before all of them
            self._sides[tensor] = self.add(side_of(self.tensor(tensor)))
        return (self._sides[tensor],)


def side_of(tensor: StepTensor) -> StepNode:
    """A node that is alive when one output of a Switch is."""
    return added_node("_Gate", tensor.op, f"side_{tensor.value_index}", [tensor], T=[tensor.dtype])
