"""What must hold of a step graph after every stage."""

from __future__ import annotations

from typing import NoReturn

from anabranch.errors import InternalError
from anabranch.graph.loop_structure import is_back_edge
from anabranch.graph.step_nodes import StepNode, StepTensor
from anabranch.passes.dependencies import Dependencies
from anabranch.passes.frames import find_frames
from anabranch.passes.step_graph import StepGraph


def verify(step: StepGraph, stage: str) -> None:
    """Raises InternalError unless the operations of a step can run in their order.

    Each has a name of its own and gives its own outputs. What it takes is known, fed, or given by an operation before
    it; only the back edges of loops may lead to what comes earlier. What it waits for is done before. The fetches are
    known, fed or computed, and the targets are operations of the step. Malformed loops raise InvalidArgumentError.
    """
    fed = set(step.feeds)
    members = set(step.operations)
    done: set[StepNode] = set()
    names: set[str] = set()
    for op in step.operations:
        if op.name in names:
            fail(stage, op, "has the name of another one")
        if any(output.op is not op for output in op.outputs):
            fail(stage, op, "gives outputs that belong to another")
        for tensor in op.inputs:
            # the other end of a back edge may come later, but it has to be in the step
            _check_input(stage, op, tensor, fed, members if is_back_edge(op, tensor) else done)
        for earlier in (*op.control_inputs, *op.after):
            if earlier not in done:
                fail(stage, op, f"does not come after {earlier.name!r}")
        names.add(op.name)
        done.add(op)
    for tensor in step.fetches:
        if not _is_available(tensor, fed, members):
            fail(stage, tensor.op, f"does not compute the fetch {tensor.name!r}, nor does anything else")
    for op in step.targets:
        if op not in members:
            fail(stage, op, "is a target, and is not part of the step")
    # finding the frames checks them
    find_frames(Dependencies(step))


def _check_input(stage: str, op: StepNode, tensor: StepTensor, fed: set[StepTensor], computed: set[StepNode]) -> None:
    if not _is_available(tensor, fed, computed):
        fail(stage, op, f"comes before its input {tensor.name!r}")
    # a pass that copied a node and forgot one of its consumers leaves it the old node's tensor, which has the same name
    if not tensor.is_known and tensor.op in computed and tensor.op.outputs[tensor.value_index] is not tensor:
        fail(stage, op, f"takes {tensor.name!r} as it was before the operation changed")


def _is_available(tensor: StepTensor, fed: set[StepTensor], computed: set[StepNode]) -> bool:
    return tensor.is_known or tensor.op in computed or tensor in fed


def fail(stage: str, op: StepNode, what: str) -> NoReturn:
    """Says what does not hold for an operation after a stage."""
    raise InternalError(None, op, f"after stage {stage!r} operation {op.name!r} ({op.type}) {what}")
