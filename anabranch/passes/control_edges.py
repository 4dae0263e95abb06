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

from collections.abc import Iterable

from anabranch.graph.loop_structure import SWITCHES, is_back_edge
from anabranch.graph.operation import Operation, Tensor
from anabranch.passes.detached import detached_operation
from anabranch.passes.step_graph import StepGraph

#: control edges that each consumer of a removed operation gets for it at most
MAX_DIRECT = 4


class ControlEdges:
    """What operations wait for while a pass removes others, in step order.

    Attributes:
        controls: the control inputs in the new step, where they are not those of the graph.
    """

    def __init__(self, step: StepGraph) -> None:
        self._step = step
        self._fed = set(step.feeds)
        self._members = set(step.operations)
        self._instead: dict[Operation, tuple[Operation, ...]] = {}
        self._sides: dict[Tensor, Operation] = {}
        self.controls: dict[Operation, list[Operation]] = dict(step.controls)

    def replace(self, op: Operation, other: Operation) -> None:
        """Lets everything that waited for `op` wait for an operation that stays."""
        self._instead[op] = (other,)

    def behind(self, op: Operation) -> tuple[Operation, ...]:
        """What is waited for in place of an operation that was removed; nothing, if it stays."""
        return self._instead.get(op, ())

    def stands_for(self, op: Operation) -> tuple[Operation, ...]:
        """What is waited for in place of an operation: itself, if it stays."""
        return self._instead.get(op, (op,))

    def keep(self, op: Operation, taken: Iterable[Tensor] = ()) -> None:
        """Gives an operation that stays the edges that it inherits.

        Args:
            taken: inputs whose values are known where their operations were removed.
        """
        old = self._step.controls_of(op)
        taken = list(taken)
        removed = dict.fromkeys(t.op for t in taken if t.op in self._instead and t not in self._fed)
        if not removed and not any(c in self._instead for c in old):
            return
        found = dict.fromkeys(source for c in old for source in self.stands_for(c))
        inherited = dict.fromkeys(source for r in removed for source in self._instead[r])
        given = {t.op for t in taken if not is_back_edge(op, t)}
        found.update((source, None) for source in inherited if source not in given)
        self.controls[op] = list(found)

    def remove(self, op: Operation) -> list[Operation]:
        """Takes out an operation whose values are known; returns what comes into the step in its place."""
        added: list[Operation] = []
        sources: dict[Operation, None] = {}
        for tensor in self._step.inputs_of(op):
            sources.update(dict.fromkeys(self._behind(tensor, added)))
        for control in self._step.controls_of(op):
            sources.update(dict.fromkeys(self.stands_for(control)))
        if len(sources) > MAX_DIRECT:
            join = detached_operation("NoOp", op, "waits", [], list(sources), op.device)
            added.append(join)
            sources = {join: None}
        self._instead[op] = tuple(sources)
        return added

    def _behind(self, tensor: Tensor, added: list[Operation]) -> tuple[Operation, ...]:
        """The operations behind an input of one that is removed."""
        op = tensor.op
        if tensor in self._fed:
            return ()
        if op in self._instead:
            return self._instead[op]
        if op not in self._members:
            return ()
        if op.type not in SWITCHES:
            return (op,)
        if tensor not in self._sides:
            self._sides[tensor] = side_of(tensor)
            added.append(self._sides[tensor])
        return (self._sides[tensor],)


def side_of(tensor: Tensor) -> Operation:
    """An operation that is alive when one output of a Switch is."""
    return detached_operation("_Gate", tensor.op, f"side_{tensor.value_index}", [tensor], T=[tensor.dtype])
