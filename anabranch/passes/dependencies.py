"""What each operation of a step has to wait for: the tensors and the control inputs that are computed in the same step.

What is the same in every step is waited for by nobody: the passes that took its operation out of the step have handed
on what that one waited for (`passes.control_edges`). The handle of a resource is an exception. It is known, but may go
through a Switch or an Enter: the operation that takes it is then as dead or alive, and in the same loop, as these are.

What is received comes after what was sent. No edge says so, since the two may be on different tasks
(`StepGraph.transfers`).
"""

from __future__ import annotations

from anabranch.graph.loop_structure import is_back_edge
from anabranch.graph.step_nodes import StepNode, StepTensor
from anabranch.passes.step_graph import StepGraph


class Dependencies:
    """See the module docstring.

    Attributes:
        dynamic: whether the step contains primitives of control flow.
    """

    def __init__(self, step: StepGraph) -> None:
        self.step = step
        self.members = set(step.operations)
        self.dynamic = any(op.op_def.is_primitive for op in step.operations)

    def of(self, op: StepNode) -> tuple[list[StepTensor], list[StepNode]]:
        """The tensors and the operations of this step that `op` waits for, back edges left out."""
        tensors = dict.fromkeys(t for t in op.inputs if t.op in self.members and not is_back_edge(op, t))
        controls = dict.fromkeys(op.control_inputs)
        transfer = self.step.transfers.get(op)
        if transfer is not None:
            # also where the two are on different tasks: the step is looked at as a whole, and the cut leaves out what
            # is on another task (`xla.partitions`)
            controls[transfer.send] = None
        return list(tensors), list(controls)
