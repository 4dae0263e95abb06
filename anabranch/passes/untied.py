"""Untying: an operation that passes several tensors on becomes one for each of them.

The gradients of one operation pass through an `IdentityN`, so that none is available before all are. A pass that
decides for each tensor by itself sees them one by one: those to variables need not share the dtype of others.
Nothing may wait for the tie itself: the order of effects is what it was.
"""

from __future__ import annotations

from anabranch.core import dtypes
from anabranch.graph.step_nodes import StepNode
from anabranch.passes.added_nodes import added_node
from anabranch.passes.rewriting import Rewriting
from anabranch.passes.step_graph import StepGraph

_TIES = "IdentityN"


def untied(step: StepGraph) -> StepGraph:
    """A step in which tensors of float32 are passed on alone; the step itself where there is nothing to do."""
    awaited = {*step.targets, *(t.op for t in step.feeds)}
    for op in step.operations:
        awaited.update(op.control_inputs, op.after)
    ties = {op for op in step.operations if _ties_floats(op) and op not in awaited}
    if not ties:
        return step
    rewriting = Rewriting(step)
    for op in step.operations:
        if op not in ties:
            rewriting.keep(op)
            continue
        controls = rewriting.nodes((*op.control_inputs, *op.after))
        for at, (taken, given) in enumerate(zip(op.inputs, op.outputs, strict=True)):
            inputs = [rewriting.tensor(taken)]
            outputs = [(given.dtype, given.shape)]
            node = added_node("Identity", op, f"output_{at}", inputs, controls, op.device, outputs, T=given.dtype)
            rewriting.stand_for(given, rewriting.add(node).outputs[0])
    return rewriting.result()


def _ties_floats(op: StepNode) -> bool:
    return op.op_def.name == _TIES and len(op.inputs) > 1 and any(t.dtype is dtypes.float32 for t in op.inputs)
