"""How the primitives of control flow form loops in a graph  (§3.4, WP4.4).

A loop of primitives is the only way in which a graph may have a cycle: a Merge takes the value of a NextIteration,
which is computed from the Merge, one iteration earlier. That edge is called a *back edge*.
"""

from __future__ import annotations

from anabranch.core.roles import Role
from anabranch.graph.step_nodes import AnyOperation, AnyTensor


def is_back_edge(op: AnyOperation, tensor: AnyTensor) -> bool:
    """Whether `op` takes `tensor` from the iteration before."""
    return op.op_def.role is Role.MERGE and tensor.op.op_def.role is Role.NEXT_ITERATION
