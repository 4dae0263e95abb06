"""Prune: keep only what the fetches and targets need, given the feeds (§3.2, WP4.2)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from anabranch.graph.operation import Operation, Tensor
from anabranch.passes.step_graph import StepGraph, in_execution_order

#: types whose tensors have no value but the one that is fed
PLACEHOLDERS = frozenset({"Placeholder", "PlaceholderV2"})


def prune(fetches: Sequence[Tensor], targets: Sequence[Operation], feeds: Sequence[Tensor]) -> StepGraph:
    """Walks back from the fetches and targets; a fed tensor ends the walk.

    Raises:
        InvalidArgumentError: what is needed contains a cycle.
    """
    fed = set(feeds)
    # waiting for a placeholder that is fed means waiting for the feed, which is there from the start
    there = {t.op for t in fed if t.op.type in PLACEHOLDERS}
    needed: set[Operation] = set()
    stack = [t.op for t in fetches if t not in fed] + list(targets)
    while stack:
        op = stack.pop()
        if op in needed or op in there:
            continue
        needed.add(op)
        stack.extend(t.op for t in op._inputs if t not in fed and t.op not in needed)
        stack.extend(c for c in op._control_inputs if c not in needed)
    controls = {
        op: [c for c in op._control_inputs if c not in there]
        for op in needed
        if op._control_inputs and not there.isdisjoint(op._control_inputs)
    }
    return StepGraph(in_execution_order(needed, fed), list(fetches), list(targets), list(feeds), controls=controls)


def operations_of_body(body: Any) -> list[Operation]:
    """The operations that a call of a function graph runs: what its outputs need, without its parameters.

    As everywhere, an operation that nothing depends on does not run; use control dependencies to make it run.
    """
    key = (body.version, body.structure_version, len(body.outputs))
    cached = body.run_order
    if cached is None or cached[0] != key:
        parameters = {t.op for t in body.inputs}
        step = prune(body.outputs, [], [])
        cached = body.run_order = (key, [op for op in step.operations if op not in parameters])
    operations: list[Operation] = cached[1]
    return operations
