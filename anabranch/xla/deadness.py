"""Deadness: under which condition each operation of a step is alive (§3.4; TensorFlow's compiler asks the same).

A *condition* is a set of literals, all of which must hold: "this predicate is true", "this one is false", "this loop is
in an iteration". It is what can be known before the step runs: two operations with equal conditions are alive in the
same iterations. Two with different ones may be as well; then they are only kept apart in vain.

* The outputs of a Switch are alive when it is and its predicate is false or true.
* Other operations are alive when everything that they take and wait for is: their condition is the union.
* A Merge of two sides of one predicate is alive when both sides' common literals hold. Of any other Merge nothing is
  known: it is a literal of its own.
* The Merges with which the iterations of a loop begin are one literal if they enter under one condition and their
  next values are alive under one condition: then they are all alive in iteration k + 1 or none is. This is assumed of
  all Merges of a frame, and taken back where the conditions computed from it contradict it, until nothing changes.
* An Exit is alive after the loop when its variable entered it alive, provided that it takes what a Switch on the loop's
  condition lets through when it is false, while the next value is alive when it is true. Else it is a literal.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

from anabranch.core.roles import Role
from anabranch.graph.loop_structure import is_back_edge
from anabranch.graph.step_nodes import StepNode, StepTensor
from anabranch.passes.dependencies import Dependencies
from anabranch.passes.frames import Frames

#: a literal: a predicate and its truth, or what it is about and of which node
Fact = tuple[Hashable, Hashable]
Condition = frozenset[Fact]
ALWAYS: Condition = frozenset()


def find_conditions(dependencies: Dependencies, frames: Frames) -> dict[StepNode, Condition]:
    """The condition under which each operation of a step is alive."""
    if not dependencies.dynamic:
        return dict.fromkeys(dependencies.step.operations, ALWAYS)
    return _DeadnessAnalysis(dependencies, frames).run()


class _DeadnessAnalysis:
    def __init__(self, dependencies: Dependencies, frames: Frames) -> None:
        self.step, self.dependencies = dependencies.step, dependencies
        self.waits = {op: dependencies.of(op) for op in self.step.operations}
        self.conditions: dict[StepNode, Condition] = {}
        self.outputs: dict[StepNode, Condition] = {}
        self.loop_merges = [op for op in self.step.operations if self._back_edge(op) is not None]
        #: Merge -> the class of loop Merges that are assumed to be alive together
        self.classes: dict[StepNode, Fact] = {op: ("frame", frames.of[op].position) for op in self.loop_merges}
        #: Exits of which nothing is assumed
        self.plain_exits: set[StepNode] = set()

    def run(self) -> dict[StepNode, Condition]:
        # it ends: assumptions are only taken back, and there are finitely many
        while True:
            for op in self.step.operations:
                self._visit(op)
            if not self._refine():
                return self.conditions

    def _back_edge(self, op: StepNode) -> StepTensor | None:
        return next((t for t in op.inputs if is_back_edge(op, t)), None)

    # ---- one pass
    def _visit(self, op: StepNode) -> None:
        tensors, controls = self.waits[op]
        if op.op_def.role is Role.MERGE:
            condition = self._merge(op, tensors)
        elif op.op_def.role is Role.TRIGGER:
            condition = ALWAYS
        else:
            condition = ALWAYS.union(*(self.of_tensor(t) for t in tensors), *(self.outputs[c] for c in controls))
        self.conditions[op] = condition
        self.outputs[op] = self._exit(op, condition) if op.op_def.role is Role.EXIT else condition

    def of_tensor(self, tensor: StepTensor) -> Condition:
        condition = self.outputs[tensor.op]
        if tensor.op.op_def.role is Role.SWITCH:
            return condition | {(self._predicate(tensor.op), bool(tensor.value_index))}
        return condition

    def _predicate(self, switch: StepNode) -> Hashable:
        tensor = switch.inputs[1]
        # Switches that take one predicate by different ways agree, and must be seen to
        while tensor.op in self.dependencies.members and (tensor.op.op_def.passes_on or tensor.op.type == "ToBool"):
            tensor = tensor.op.inputs[tensor.value_index]
        return tensor

    def _merge(self, op: StepNode, tensors: list[StepTensor]) -> Condition:
        # the first input that is not a back edge is what enters the loop
        if op in self.classes:
            return self.of_tensor(tensors[0]) | {self.classes[op]}
        sides = [self.of_tensor(t) for t in tensors]
        if len(sides) == 2:
            differences = sides[0] ^ sides[1]
            if len(differences) == 2 and _opposite(*differences):
                return sides[0] & sides[1]
        if len(set(sides)) == 1:
            return sides[0]
        return frozenset([("merge", op)])

    def _exit(self, op: StepNode, condition: Condition) -> Condition:
        merge = self._variable_of(op)
        if op in self.plain_exits or merge is None:
            return frozenset([("exit", op)])
        return self.conditions[merge] - {self.classes[merge]}

    def _variable_of(self, op: StepNode) -> StepNode | None:
        """The Merge of the loop variable that an Exit takes from a Switch on it."""
        switch = op.inputs[0].op
        if switch.op_def.role is not Role.SWITCH:
            return None
        merge = switch.inputs[0].op
        return merge if merge in self.classes else None

    # ---- what was assumed
    def _refine(self) -> bool:
        """Gives up assumptions that the pass contradicts; whether there were any."""
        signatures = {op: (self.classes[op], self.conditions[op], self._next_condition(op)) for op in self.loop_merges}
        split = len(set(signatures.values())) > len(set(self.classes.values()))
        if split:
            names: dict[Any, Fact] = {}
            # the old class is part of a signature, so that classes are only split
            for op, signature in signatures.items():
                self.classes[op] = names.setdefault(signature, ("loop", op))
        wrong = {op for op in self.step.operations if op.op_def.role is Role.EXIT and not self._leaves_in_the_end(op)}
        new = wrong - self.plain_exits
        self.plain_exits |= wrong
        return split or bool(new)

    def _next_condition(self, merge: StepNode) -> Condition:
        back = self._back_edge(merge)
        assert back is not None
        return self.outputs[back.op]

    def _leaves_in_the_end(self, op: StepNode) -> bool:
        merge = self._variable_of(op)
        if merge is None:
            return False
        source = op.inputs[0]
        predicate = self._predicate(source.op)
        going_on = self.conditions[merge] | {(predicate, not source.value_index)}
        left = self.conditions[merge] | {(predicate, bool(source.value_index))}
        return self.conditions[op] == left and self._next_condition(merge) == going_on


def _opposite(one: Fact, other: Fact) -> bool:
    """Whether two literals say the contrary of one predicate."""
    return one[0] is other[0] and isinstance(one[1], bool) and isinstance(other[1], bool) and one[1] is not other[1]
