"""What brings a gradient to the shape that it has is taken out of a step.

The gradient of a sum or a product is summed over the axes along which an operand was repeated, and brought to that
operand's shape. Which axes these are the shapes say; where they are open, the step finds it out: four operations for an
operand, mostly for nothing. In a compiled program they cost nothing. Where sizes keep gradients on the host, they are a
third of the operations.

But often it follows from the operations that two tensors have the same shape, whatever that is: what is computed
element by element has the shape of what it is computed from. So each tensor gets a *form*: tensors of one form have one
shape. Where two operands have one form, no axis is repeated; a sum over no axes, and a tensor that is brought to the
shape of one that has its form, are what they were.

Forms follow from operations that a step runs. One that refuses its inputs, whose shapes differ, fails the step.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Final

import numpy as np

from anabranch.core import dtypes
from anabranch.graph.step_nodes import StepNode, StepTensor
from anabranch.ops import shape_rules
from anabranch.passes.rewriting import Rewriting, needed_by_ends
from anabranch.passes.step_graph import StepGraph

#: the form of scalars
_NUMBER: Final = ()
_OBJECTS: Final = frozenset({dtypes.resource, dtypes.variant, dtypes.string})


def drop_reshapes_to_equal_shapes(step: StepGraph) -> StepGraph:
    """A step without sums and changes of shape that change nothing; itself where there are none."""
    if step.transfers or any(op.op_def.is_primitive for op in step.operations):
        return step
    forms = _Forms(step)
    #: whoever waits for one of these, or fetches it, would notice that it is gone
    noticed = {*step.targets, *(t.op for t in step.fetches), *(t.op for t in step.feeds)}
    noticed.update(earlier for op in step.operations for earlier in (*op.control_inputs, *op.after))
    rewriting = Rewriting(step)
    for op in step.operations:
        forms.find(op)
        if op in noticed or op.control_inputs or op.after:
            rewriting.keep(op)
        elif op.type == "BroadcastGradientArgs" and forms.are_shapes_of_one(op.inputs):
            for out in op.outputs:
                rewriting.knows(out, np.empty(0, out.dtype.as_numpy_dtype))
        elif _changes_nothing(op, rewriting, forms):
            rewriting.stand_for(op.outputs[0], rewriting.tensor(op.inputs[0]))
            forms.are_one(op.outputs[0], op.inputs[0])
        else:
            rewriting.keep(op)
    rewritten = rewriting.result()
    # the shapes that were compared, and what was computed for its shape alone, which is known by now
    needed = needed_by_ends(rewritten, (op for op in rewritten.operations if op.op_def.stateful))
    return rewritten.with_operations([op for op in rewritten.operations if op in needed])


def _changes_nothing(op: StepNode, rewriting: Rewriting, forms: _Forms) -> bool:
    """Whether an operation gives its first input as it is."""
    if not op.inputs or len(op.outputs) != 1 or rewriting.tensor(op.inputs[0]).is_known:
        return False
    value, result = op.inputs[0], op.outputs[0]
    if value.dtype is not result.dtype or value.dtype in _OBJECTS or op.op_def.stateful:
        return False
    if op.op_def.sums:
        axes = rewriting.tensor(op.inputs[1])
        return axes.is_known and not np.size(axes.known)
    shape = _shape_input(op)
    return shape is not None and shape is not value and forms.of(value) == forms.by_shape(shape)


def _shape_input(op: StepNode) -> StepTensor | None:
    """The input that holds the shape of an operation's output."""
    names = [arg.name for arg in op.op_def.inputs]
    return op.inputs[names.index(op.op_def.shaped_by)] if op.op_def.shaped_by else None


class _Forms:
    """The forms of a step's tensors; see the module docstring."""

    def __init__(self, step: StepGraph) -> None:
        self._members = set(step.operations)
        self._forms: dict[StepTensor, Hashable] = {}

    def find(self, op: StepNode) -> None:
        """Finds the forms of what an operation gives; those of what it takes were found before."""
        for out in op.outputs:
            self._forms[out] = self._found(op, out)

    def are_one(self, tensor: StepTensor, other: StepTensor) -> None:
        """Lets a tensor have the form of another one, which it was found to be."""
        self._forms[tensor] = self.of(other)

    def of(self, tensor: StepTensor) -> Hashable:
        """The form of a tensor; one of its own where nothing is known."""
        form = self._forms.get(tensor)
        return _stated(tensor) if form is None else form

    def by_shape(self, shape: StepTensor) -> Hashable:
        """The form of tensors whose shape is a tensor's values."""
        if shape.op.type == "Shape" and shape.op in self._members:
            return self.of(shape.op.inputs[0])
        if shape.is_known and np.ndim(shape.known) == 1 and (np.asarray(shape.known) >= 0).all():
            return tuple(np.asarray(shape.known).tolist())
        return _of_values(shape)

    def are_shapes_of_one(self, shapes: list[StepTensor]) -> bool:
        """Whether tensors hold the shapes of tensors of one form."""
        return len({self.by_shape(shape) for shape in shapes}) == 1

    def _found(self, op: StepNode, out: StepTensor) -> Hashable:
        stated = _stated(out)
        if isinstance(stated, tuple) or not op.inputs:
            return stated
        rule = op.op_def.shape_rule
        function = None if rule is None else rule.function
        forms = [self.of(tensor) for tensor in op.inputs]
        if op.op_def.passes_on and len(op.inputs) == len(op.outputs):
            return forms[out.value_index]
        if function in (shape_rules.same_as_first, shape_rules.merged):
            return forms[0]
        if function is shape_rules.chosen:
            return forms[1]
        if function is shape_rules.broadcast:
            # a number takes the form of what it meets
            others = {form for form in forms if form != _NUMBER}
            return others.pop() if len(others) == 1 else out
        shape = _shape_input(op)
        form = out if shape is None else self.by_shape(shape)
        # a -1 among values stands for another size in each tensor that is brought to that shape
        return out if form == _of_values(shape) else form


def _of_values(shape: StepTensor | None) -> Hashable:
    """The form of tensors whose shape are values of which nothing is known."""
    return "of values", shape


def _stated(tensor: StepTensor) -> Hashable:
    """The form of a tensor by its static shape: the shape, where that is known; else the tensor stands for it."""
    dims = tensor.shape.dims_tuple
    return tensor if dims is None or None in dims else dims
