"""What must hold of a step graph after every stage."""

from __future__ import annotations

from typing import NoReturn

from anabranch.errors import InternalError
from anabranch.graph.loop_structure import is_back_edge
from anabranch.graph.step_nodes import StepNode
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
            _fail(stage, op, "has the name of another one")
        for tensor in op.inputs:
            if is_back_edge(op, tensor):
                if tensor.op not in members:
                    _fail(stage, op, f"takes {tensor.name!r} of the iteration before, which is not computed")
            elif tensor not in fed and not tensor.is_known and tensor.op not in done:
                _fail(stage, op, f"comes before its input {tensor.name!r}")
            elif tensor.op in members and tensor.op.outputs[tensor.value_index] is not tensor:
                _fail(stage, op, f"takes {tensor.name!r} as it was before the operation changed")
        for earlier in (*op.control_inputs, *op.after):
            if earlier not in done:
                _fail(stage, op, f"does not come after {earlier.name!r}")
        if any(output.op is not op for output in op.outputs):
            _fail(stage, op, "gives outputs that belong to another")
        names.add(op.name)
        done.add(op)
    for tensor in step.fetches:
        if tensor not in fed and not tensor.is_known and tensor.op not in members:
            _fail(stage, tensor.op, f"does not compute the fetch {tensor.name!r}, nor does anything else")
    for op in step.targets:
        if op not in members:
            _fail(stage, op, "is a target, and is not part of the step")
    find_frames(Dependencies(step))


def _fail(stage: str, op: StepNode, what: str) -> NoReturn:
    raise InternalError(None, op, f"after stage {stage!r} operation {op.name!r} ({op.type}) {what}")
