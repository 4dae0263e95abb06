"""What each operation of a step has to wait for.

Where nothing can die or repeat these are the tensors and control inputs that are computed in the same step; what was
folded away is waited for by nobody. With primitives of control flow in the step there is more to an edge than a value:
a constant in a branch is dead when the branch is not taken, and takes place once per iteration in a loop. So an
operation that takes a folded value waits, in place of the folded operation, for what that one waited for.
"""

from __future__ import annotations

from anabranch.graph.loop_structure import PRIMITIVES, is_back_edge
from anabranch.graph.operation import Operation, Tensor
from anabranch.passes.step_graph import StepGraph


class Dependencies:
    """See the module docstring.

    Attributes:
        dynamic: whether the step contains primitives of control flow.
    """

    def __init__(self, step: StepGraph) -> None:
        self.step = step
        self.members = set(step.operations)
        self.fed = set(step.feeds)
        self.dynamic = any(op.op_def.name in PRIMITIVES for op in step.operations)

    def of(self, op: Operation) -> tuple[list[Tensor], list[Operation]]:
        """The tensors and the operations of this step that `op` waits for, back edges left out."""
        tensors: dict[Tensor, None] = {}
        controls: dict[Operation, None] = {}
        for raw_input, tensor in zip(op._inputs, self.step.inputs_of(op), strict=True):
            if is_back_edge(op, tensor) or tensor in self.fed:
                continue
            if tensor not in self.step.known:
                tensors[tensor] = None
            elif self.dynamic:
                self._behind(raw_input, tensors, controls)
        for control in self.step.controls_of(op):
            self._add_control(control, tensors, controls)
        return list(tensors), list(controls)

    def _add_control(self, control: Operation, tensors: dict[Tensor, None], controls: dict[Operation, None]) -> None:
        control = self.step.resolve_control(control)
        if control in self.members:
            controls[control] = None
        elif self.dynamic:
            self._behind_operation(control, tensors, controls)

    def _behind(self, tensor: Tensor, tensors: dict[Tensor, None], controls: dict[Operation, None]) -> None:
        """What a known value stands for: an operation that still runs, or what the folded one waited for."""
        if tensor.op in self.members:
            tensors[tensor] = None
        else:
            self._behind_operation(tensor.op, tensors, controls)

    def _behind_operation(self, op: Operation, tensors: dict[Tensor, None], controls: dict[Operation, None]) -> None:
        seen: set[Operation] = set()
        stack = [op]
        while stack:
            folded = stack.pop()
            if folded in seen or not all(t in self.step.known for t in folded._outputs):
                continue
            seen.add(folded)
            for tensor in folded._inputs:
                source = self.step.resolve(tensor)
                if tensor.op in self.step.replaced:
                    controls[self.step.replaced[tensor.op][0]] = None  # only whether it is alive matters
                elif tensor in self.step.known:
                    self._behind_one(tensor, tensors, stack)
                elif source.op in self.members and source not in self.fed:
                    tensors[source] = None
            for control in folded._control_inputs:
                control = self.step.resolve_control(control)
                if control in self.members:
                    controls[control] = None
                else:
                    stack.append(control)

    def _behind_one(self, tensor: Tensor, tensors: dict[Tensor, None], stack: list[Operation]) -> None:
        if tensor.op in self.members:
            tensors[tensor] = None
        else:
            stack.append(tensor.op)
