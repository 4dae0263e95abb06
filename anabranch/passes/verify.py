"""What must hold of a step graph after every stage."""

from __future__ import annotations

from anabranch.errors import InternalError
from anabranch.graph.loop_structure import is_back_edge
from anabranch.passes.dependencies import Dependencies
from anabranch.passes.frames import find_frames
from anabranch.passes.step_graph import StepGraph


def verify(step: StepGraph, stage: str) -> None:
    """Raises InternalError unless every tensor that somebody needs is known, fed, or computed before it is needed.

    Only the back edges of loops may lead to what comes earlier. Malformed loops raise InvalidArgumentError.
    """
    available = set(step.known)
    available.update(step.feeds)
    for op in step.operations:
        for tensor in step.inputs_of(op):
            if tensor not in available and not is_back_edge(op, tensor):
                raise InternalError(
                    None, op, f"after stage {stage!r} operation {op.name!r} comes before its input {tensor.name!r}"
                )
        available.update(op._outputs)
    for tensor in step.fetches:
        if step.resolve(tensor) not in available:
            raise InternalError(None, tensor.op, f"after stage {stage!r} nothing computes the fetch {tensor.name!r}")
    find_frames(Dependencies(step))
