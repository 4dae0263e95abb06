"""How the primitives of control flow form loops in a graph  (§3.4, WP4.4).

A loop of primitives is the only way in which a graph may have a cycle: a Merge takes the value of a NextIteration,
which is computed from the Merge, one iteration earlier. That edge is called a *back edge*.
"""

from __future__ import annotations

from typing import Final

from anabranch.core.roles import Role
from anabranch.graph.operation import Tensor
from anabranch.graph.step_nodes import AnyOperation, AnyTensor

#: the attribute of an Exit's output that names what stands for it, where its loop was made anew for a gradient
LIFTED: Final = "lifted"


def is_back_edge(op: AnyOperation, tensor: AnyTensor) -> bool:
    """Whether `op` takes `tensor` from the iteration before."""
    return op.op_def.role is Role.MERGE and tensor.op.op_def.role is Role.NEXT_ITERATION


def lifted(tensor: Tensor) -> Tensor:
    """What stands for a tensor: itself, or the result of the loop that was made anew."""
    found: Tensor = tensor.get_attribute(LIFTED, tensor)
    return found
