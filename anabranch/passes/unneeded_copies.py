"""What only hands values on is taken out of a step: who takes the copy takes what was copied.

`tf.identity` and its like say where a value comes from, carry a gradient of their own, or have a name to be fetched or
fed by. None of this is left in a step. In a compiled program they cost nothing; each that runs on the host, between
operations on sparse tensors or on tensors whose sizes the data decides, costs as much as a small kernel.

They stay where somebody may notice: where one is fetched or asked for, waits for more than its values or is waited
for, in steps of several devices, and in steps with primitives of control flow, in which a copy may be dead.
"""

from __future__ import annotations

from anabranch.core import dtypes
from anabranch.core.roles import Role
from anabranch.graph.step_nodes import StepNode, StepTensor
from anabranch.passes.rewriting import Rewriting
from anabranch.passes.step_graph import StepGraph

#: values that are no arrays, and say of which resource or list they are
_OBJECTS = frozenset({dtypes.resource, dtypes.variant})


def drop_unneeded_copies(step: StepGraph) -> StepGraph:
    """A step without operations that only hand values on; itself where there are none."""
    if step.transfers or any(op.op_def.is_primitive for op in step.operations):
        return step
    noticed = {*step.targets, *(t.op for t in step.fetches), *(t.op for t in step.feeds)}
    noticed.update(earlier for op in step.operations for earlier in (*op.control_inputs, *op.after))
    copies = {op for op in step.operations if op not in noticed and _only_hands_on(op)}
    if not copies:
        return step
    rewriting = Rewriting(step)
    for op in step.operations:
        if op not in copies:
            rewriting.keep(op)
            continue
        for out, value in zip(op.outputs, op.inputs, strict=True):
            rewriting.stand_for(out, rewriting.tensor(value))
    return rewriting.result()


def _only_hands_on(op: StepNode) -> bool:
    op_def = op.op_def
    if not op_def.passes_on or op_def.role is not Role.COMPUTATION or op_def.stateful or not op.outputs:
        return False
    if op.control_inputs or op.after or len(op.inputs) != len(op.outputs):
        return False
    return all(map(_is_the_same, op.inputs, op.outputs))


def _is_the_same(value: StepTensor, copy: StepTensor) -> bool:
    """Whether a copy is an array, of which no more is known than of its value."""
    if value.dtype is not copy.dtype or value.dtype in _OBJECTS or value.is_known:
        return False
    return value.shape.dims_tuple == copy.shape.dims_tuple
