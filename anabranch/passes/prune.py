"""Prune: keep only what the fetches and targets need, given the feeds (§3.2, WP4.2).

What is kept is copied: from here on a step has nodes of its own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from anabranch.core.roles import Role
from anabranch.graph.graph_copy import GraphCopy, functions_of, needed_operations
from anabranch.graph.operation import Operation, Tensor
from anabranch.graph.ordering import in_execution_order
from anabranch.passes.step_graph import StepGraph


def prune(
    fetches: Sequence[Tensor],
    targets: Sequence[Operation],
    feeds: Sequence[Tensor],
    known: Mapping[Tensor, Any] | None = None,
) -> StepGraph:
    """Walks back from the fetches and targets; a fed tensor ends the walk.

    Args:
        known: tensors that need not be computed because their values are the same in every such step.

    Raises:
        InvalidArgumentError: what is needed contains a cycle.
    """
    known = known or {}
    given_tensors = {*feeds, *known}
    # waiting for a placeholder that is fed means waiting for the feed, which is there from the start
    fed_placeholders = {t.op for t in given_tensors if t.op.op_def.role is Role.PLACEHOLDER}
    needed = needed_operations(
        [*(t.op for t in fetches if t not in given_tensors), *targets], given_tensors, fed_placeholders
    )
    ordered = in_execution_order(needed, given_tensors)
    # one copy for all: who shares a tensor or a function in the graph shares it in the step
    copy = GraphCopy(functions_of(ordered[0].graph, ordered) if ordered else {})
    # before anything is connected, so that consumers find these and not the outputs of the operations behind them
    fed = [copy.give(tensor) for tensor in feeds]
    for tensor, value in known.items():
        copy.give(tensor, value)
    operations = copy.connected(ordered, fed_placeholders, fetches, set())
    ends = [copy.node(op) for op in targets if op not in fed_placeholders]
    return StepGraph(operations, [copy.tensor(t) for t in fetches], ends, fed, copy.colocated)
