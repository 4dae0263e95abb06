"""Which loops of a step need no bound of their iterations, although they were differentiated (docs/decisions/0014).

The bound says how much room the records of a loop take. A step that takes no record, as inference with a model that is
also trained, need not find it out: that would run a part of the loop first, and wait for the result.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from anabranch.graph.step_nodes import StepNode, StepTensor
from anabranch.passes.rewriting import Rewriting, needed_by_ends
from anabranch.passes.step_graph import StepGraph

#: what `_RecordingWhile` takes for "not known"
UNKNOWN_BOUND: Final = np.array(-1, np.int32)


def drop_unneeded_bounds(step: StepGraph) -> StepGraph:
    """A step that does not compute the bounds that only loops take of which it takes no record."""
    bounds = _unneeded_bounds(step)
    if not bounds:
        return step
    rewriting = Rewriting(step)
    for bound in bounds:
        rewriting.knows(bound, UNKNOWN_BOUND)
    for op in step.operations:
        rewriting.keep(op)
    rewritten = rewriting.result()
    needed = needed_by_ends(rewritten)
    return rewritten.with_operations([op for op in rewritten.operations if op in needed])


def _unneeded_bounds(step: StepGraph) -> set[StepTensor]:
    taken = {tensor for op in step.operations for tensor in op.inputs}.union(step.fetches)
    needed = {*step.fetches, *step.feeds}
    bounds: set[StepTensor] = set()
    for op in step.operations:
        if op.type == "_RecordingWhile" and taken.isdisjoint(_records(op)):
            # the bound is its first input
            bounds.add(op.inputs[0])
            needed.update(op.inputs[1:])
        else:
            needed.update(op.inputs)
    # one that is fed or fetched, or that anything else takes as well, stays
    return bounds - needed


def _records(loop: StepNode) -> list[StepTensor]:
    return loop.outputs[len(loop.inputs) :]
