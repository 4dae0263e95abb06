"""Which loops of a step need no bound of their iterations, although they were differentiated (docs/decisions/0014).

The bound says how much room the records of a loop take. A step that takes no record, as inference with a model that is
also trained, need not find it out: that would run a part of the loop first, and wait for the result.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from anabranch.graph.operation import Operation, Tensor
from anabranch.passes.step_graph import StepGraph

#: what `_RecordingWhile` takes for "not known"
UNKNOWN_BOUND: Final = np.array(-1, np.int32)


def unneeded_bounds(step: StepGraph) -> set[Tensor]:
    """The bounds that only loops take of which the step takes no record."""
    taken = {tensor for op in step.operations for tensor in op._inputs}.union(step.fetches)
    needed = set(step.fetches)
    bounds: set[Tensor] = set()
    for op in step.operations:
        if op.type == "_RecordingWhile" and taken.isdisjoint(_records(op)):
            bounds.add(op._inputs[0])
            needed.update(op._inputs[1:])
        else:
            needed.update(op._inputs)
    return bounds - needed


def _records(loop: Operation) -> list[Tensor]:
    return loop._outputs[len(loop._inputs) :]
