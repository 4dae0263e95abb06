"""How the primitives of control flow form loops in a graph  (§3.4, WP4.4).

A loop of primitives is the only way in which a graph may have a cycle: a Merge takes the value of a NextIteration,
which is computed from the Merge, one iteration earlier. That edge is called a *back edge*.
"""

from __future__ import annotations

from typing import Final

from anabranch.core.registry import find_op_def
from anabranch.core.roles import PRIMITIVE_ROLES, Role
from anabranch.graph.step_nodes import AnyOperation, AnyTensor


class TypesByRole:
    """The operation types that play one of some roles, to ask by name. Of a type at hand, ask `OpDef.role`."""

    def __init__(self, roles: frozenset[Role]) -> None:
        self._roles = roles

    def __contains__(self, name: str) -> bool:
        op_def = find_op_def(name)
        return op_def is not None and op_def.role in self._roles


SWITCHES: Final = TypesByRole(frozenset({Role.SWITCH}))
#: what the executor runs by itself
PRIMITIVES: Final = TypesByRole(PRIMITIVE_ROLES)


def is_back_edge(op: AnyOperation, tensor: AnyTensor) -> bool:
    """Whether `op` takes `tensor` from the iteration before."""
    return op.op_def.role is Role.MERGE and tensor.op.op_def.role is Role.NEXT_ITERATION
