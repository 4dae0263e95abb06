"""Loops and conditionals of a step with what stands beside them, as one operation  (docs/decisions/0034).

What a gradient needs of the inside of a loop or a conditional becomes further outputs of it when a step is planned: a
`While` and its `_LoopRecords` one `_RecordingWhile`, an `If` and its `_BranchValues` an `If` with more results. So the
body runs once, whatever is taken of it, and a step that takes nothing from the inside is that of the plain operation.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from anabranch.core.dtypes import DType
from anabranch.core.roles import Role
from anabranch.core.shapes import TensorShape
from anabranch.graph.inner_values import RECORDS, owner_of
from anabranch.graph.loop_bodies import fixed_parameters, remembered
from anabranch.graph.operation import Operation
from anabranch.graph.step_nodes import StepFunction, StepNode, StepTensor

_ITEM: Final = "TensorListGetItem"


@dataclass(frozen=True, slots=True)
class FurtherResult:
    """What a function gives besides its own results.

    Attributes:
        name: the tensor (`graph.inner_values`); empty: the function does not compute it, and something stands there.
        valued: whether its value is used, and not its shape only.
        dtype, shape: what is known of it.
    """

    name: bytes
    valued: bool
    dtype: DType
    shape: TensorShape

    def __hash__(self) -> int:
        return hash((self.name, self.valued, self.dtype))


def named_with(name: str, further: Sequence[FurtherResult]) -> str:
    """The name of a function with further results."""
    texts = [(f.name.decode() or "-") + ("" if f.valued else "~") for f in further]
    return f"{name}({', '.join(texts)})" if further else name


def groups_of(operations: Sequence[Operation]) -> dict[Operation, list[Operation]]:
    """The loops and conditionals beside which some of the operations stand, with these."""
    groups: dict[Operation, list[Operation]] = {}
    for op in operations:
        if op.op_def.role is Role.BESIDE:
            groups.setdefault(owner_of(op), []).append(op)
    return groups


def joined_order(operations: Sequence[Operation], groups: dict[Operation, list[Operation]]) -> list[Operation]:
    """Operations in the order in which they run when those that stand beside others are one with these.

    The bound of a loop, which may have been made much later, comes right before it: all that it takes the loop takes as
    well, and both are to find the same values of variables.
    """
    place = {op: number for number, op in enumerate(operations)}
    bounds: dict[Operation, Operation] = {}
    for owner, others in groups.items():
        bound = others[0]._inputs[0]._op
        if others[0].type == RECORDS and place.get(bound, -1) > place[owner]:
            bounds[owner] = bound
    left_out = {*bounds.values(), *(op for others in groups.values() for op in others)}
    ordered: list[Operation] = []
    for op in operations:
        if op in bounds:
            ordered.append(bounds[op])
        if op not in left_out:
            ordered.append(op)
    return ordered


# ---------------------------------------------------------------------- what matters of a record
class ValueUses:
    """Which tensors of a step, or of a function, are used for their values, and not for their shapes only.

    Args:
        results: what leaves the step or the function with its value.
    """

    def __init__(self, operations: Iterable[StepNode], results: Iterable[StepTensor]) -> None:
        self._users: dict[StepTensor, list[tuple[StepNode, int]]] = {}
        for node in operations:
            for position, tensor in enumerate(node.inputs):
                self._users.setdefault(tensor, []).append((node, position))
        self._results = set(results)

    def has_value(self, tensor: StepTensor) -> bool:
        """Whether a value is used, of a list that of an element."""
        return tensor in self._results or any(self._takes_value(*use) for use in self._users.get(tensor, ()))

    def _takes_value(self, node: StepNode, position: int) -> bool:
        if node.op_def.shape_valued or node.op_def.ignores_values:
            return False
        if node.op_def.name == _ITEM and position == 0:
            return self.has_value(node.outputs[0])
        if node.op_def.role is not Role.LOOP:
            return True
        number = position - (len(node.inputs) - len(node.attrs["T"]))
        if number < 0:
            return True
        functions = [node.function(node.attrs[key].name) for key in ("cond", "body")]
        if not fixed_parameters(functions[1])[number] or any(number in _valued_parameters(f) for f in functions):
            return True
        return self.has_value(node.outputs[number])


@remembered
def _valued_parameters(function: StepFunction) -> frozenset[int]:
    """The parameters of which operations of a function use the value; not those that are only results of it."""
    uses = ValueUses(function.operations, ())
    passed = {t for position, t in enumerate(function.outputs) if t not in function.inputs[position : position + 1]}
    return frozenset(i for i, t in enumerate(function.inputs) if t in passed or uses.has_value(t))
