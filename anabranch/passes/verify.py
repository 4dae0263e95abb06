"""What must hold of a step graph after every stage."""

from __future__ import annotations

from anabranch.errors import InternalError
from anabranch.graph.loop_structure import is_back_edge
from anabranch.graph.operation import Operation
from anabranch.passes.dependencies import Dependencies
from anabranch.passes.frames import find_frames
from anabranch.passes.step_graph import StepGraph


def verify(step: StepGraph, stage: str) -> None:
    """Raises InternalError unless all tensors that somebody needs are known, fed, or computed before they are needed,
    and what an operation waits for is done before.

    Only the back edges of loops may lead to what comes earlier. Malformed loops raise InvalidArgumentError.
    """
    available = set(step.known)
    available.update(step.feeds)
    done: set[Operation] = set()
    for op in step.operations:
        for tensor in step.inputs_of(op):
            if tensor not in available and not is_back_edge(op, tensor):
                raise InternalError(
                    None, op, f"after stage {stage!r} operation {op.name!r} comes before its input {tensor.name!r}"
                )
        for control in step.controls_of(op):
            if control not in done:
                raise InternalError(
                    None, op, f"after stage {stage!r} operation {op.name!r} does not come after {control.name!r}"
                )
        available.update(op._outputs)
        done.add(op)
    for tensor in step.fetches:
        if step.resolve(tensor) not in available:
            raise InternalError(None, tensor.op, f"after stage {stage!r} nothing computes the fetch {tensor.name!r}")
    find_frames(Dependencies(step))
