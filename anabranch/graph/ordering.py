"""In which order operations of a graph can run."""

from __future__ import annotations

import heapq
from collections.abc import Iterable

from anabranch.core.roles import Role
from anabranch.errors import InvalidArgumentError
from anabranch.graph.loop_structure import is_back_edge
from anabranch.graph.operation import Operation, Tensor


def in_execution_order(operations: Iterable[Operation], fed: set[Tensor]) -> list[Operation]:
    """Sorts topologically; among ready operations the one created first goes first.

    Raises:
        InvalidArgumentError: the operations form a cycle.
    """
    ordered = sorted(operations, key=lambda op: op._id)
    if all(_comes_after_inputs(op, fed) for op in ordered):
        return ordered
    return _kahn(ordered, fed)


def _comes_after_inputs(op: Operation, fed: set[Tensor]) -> bool:
    return all(t._op._id < op._id or t in fed or is_back_edge(op, t) for t in op._inputs) and all(
        c._id < op._id for c in (*op._control_inputs, *_last_iteration(op))
    )


def _last_iteration(op: Operation) -> list[Operation]:
    """What an Exit comes after besides its input: the iterations, whose NextIteration no other edge leads from."""
    if op.op_def.role is not Role.EXIT:
        return []
    switch = op._inputs[0]._op
    merges = [t._op for t in switch._inputs] if switch.op_def.role is Role.SWITCH else []
    return [t._op for merge in merges for t in merge._inputs if is_back_edge(merge, t)]


def _kahn(operations: list[Operation], fed: set[Tensor]) -> list[Operation]:
    members = set(operations)
    waiting: dict[Operation, int] = {}
    followers: dict[Operation, list[Operation]] = {op: [] for op in operations}
    for op in operations:
        before = {t.op for t in op.inputs if t not in fed and t.op in members and not is_back_edge(op, t)}
        before.update(c for c in (*op._control_inputs, *_last_iteration(op)) if c in members)
        waiting[op] = len(before)
        for earlier in before:
            followers[earlier].append(op)
    ready = [(op._id, op) for op in operations if waiting[op] == 0]
    heapq.heapify(ready)
    ordered = []
    while ready:
        _, op = heapq.heappop(ready)
        ordered.append(op)
        for later in followers[op]:
            waiting[later] -= 1
            if waiting[later] == 0:
                heapq.heappush(ready, (later._id, later))
    if len(ordered) < len(operations):
        stuck = sorted((op for op in operations if waiting[op] > 0), key=lambda op: op._id)
        raise InvalidArgumentError(
            None,
            stuck[0],
            f"the graph has a cycle through {', '.join(repr(op.name) for op in stuck[:5])}; "
            "only the edge from a NextIteration to a Merge may close one",
        )
    return ordered
