"""How the primitives of control flow form loops in a graph  (§3.4, WP4.4).

A loop of primitives is the only way in which a graph may have a cycle: a Merge takes the value of a NextIteration,
which is computed from the Merge, one iteration earlier. That edge is called a *back edge*.
"""

from __future__ import annotations

from typing import Final

from anabranch.graph.step_nodes import AnyOperation, AnyTensor

SWITCHES: Final = frozenset({"Switch", "RefSwitch"})
MERGES: Final = frozenset({"Merge", "RefMerge"})
ENTERS: Final = frozenset({"Enter", "RefEnter"})
EXITS: Final = frozenset({"Exit", "RefExit"})
NEXT_ITERATIONS: Final = frozenset({"NextIteration", "RefNextIteration"})
#: what the executor runs by itself
PRIMITIVES: Final = SWITCHES | MERGES | ENTERS | EXITS | NEXT_ITERATIONS | {"LoopCond", "ControlTrigger", "_Gate"}


def is_back_edge(op: AnyOperation, tensor: AnyTensor) -> bool:
    """Whether `op` takes `tensor` from the iteration before."""
    return op.op_def.name in MERGES and tensor.op.op_def.name in NEXT_ITERATIONS
