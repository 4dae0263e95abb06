"""Calling a function graph once per element of a dataset, cheaply (WP4.5).

Elements are small and many, and their shapes differ. Where every operation of a function has a kernel that works on
NumPy arrays, the kernels are called directly, one after the other: a few microseconds each, and no compilation for
each new shape. What large tensors of known shapes go through, and what has compiled kernels only (matrix products,
random numbers, loops), runs as a step of its own, which XLA compiles.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from anabranch.core import dtypes
from anabranch.core.op_def import OpDef, Rule
from anabranch.core.pending import Pending
from anabranch.core.values import TensorValue
from anabranch.errors import OpError
from anabranch.graph.constants import ShapeCheck, is_open, run_on_known_values
from anabranch.graph.kernel_binding import VALUE_ERRORS, BoundKernel, flatten_outputs, host_array, refusal
from anabranch.graph.kernel_contexts import StepHostContext
from anabranch.graph.step_nodes import StepFunction, StepNode, StepTensor
from anabranch.ops.object_values import boxed, unboxed
from anabranch.state.datasets import Element

#: a tensor of more elements is worth a compiled program
_LARGE: Final = 1 << 16
#: loops and matrix products run faster compiled; lists belong to loops
_COMPILED_ONLY: Final = ("While", "StatelessWhile", "RecordingWhile", "TensorList", "MatMul", "BatchMatMul", "Einsum")
#: known values of at most this many elements are computed once, when a function is prepared
_MAX_KNOWN: Final = 1 << 12


@dataclass(frozen=True, slots=True)
class _Instruction:
    """One kernel call: where its arguments lie (a list for a variadic one) and where its results go.

    Attributes:
        inputs: where all inputs lie.
        check_shapes: what looks at the shapes of the inputs first, where the graph does not know them.
        result, dtype: the only result's place and type, where there are no lists; else `result` is -1.
    """

    op: StepNode
    kernel: BoundKernel
    inputs: tuple[int, ...]
    check_shapes: ShapeCheck | None
    arguments: tuple[Any, ...]
    results: tuple[int, ...]
    dtypes: tuple[Any, ...]
    result: int
    dtype: Any


class FunctionOfElements:
    """A function with the values that it captured.

    Its random operations begin their sequences when it is made, which is when an iterator is initialized: those with a
    seed give the same numbers in each walk through the data, the others draw new ones.

    Args:
        ctx: the context of the operation that has the function as an attribute.
        body: the function.
        captured: the values of its last parameters.

    Raises (when called):
        OpError: as the function's operations; the message says whose function it is.
    """

    def __init__(self, ctx: StepHostContext, body: StepFunction, captured: Sequence[Any]) -> None:
        self._ctx = ctx
        self._body = body
        self._captured = list(captured)
        self._has_objects = any(t.dtype in (dtypes.resource, dtypes.variant) for t in body.inputs)
        self._program = _Program(ctx, body, self._captured) if _runs_directly(body.operations) else None
        self._stream = ctx.new_stream()

    def __call__(self, *element: TensorValue) -> Element:
        if self._has_objects:
            element = tuple(map(unboxed, element))
        try:
            if self._program is not None:
                return self._program.run(element)
            results = self._ctx.call(self._body, [*element, *self._captured], stream=self._stream)
        except OpError as error:
            op = self._ctx.op
            where = f"\n  in the function of {op.type} {op.name!r}, created at {op.creation_site}"
            if where not in error.message:
                error.add_context(where)
            raise
        return tuple([np.asarray(boxed(v)) for v in results])


def host_rule(op_def: OpDef) -> Rule | None:
    """The kernel of an operation that works on NumPy arrays."""
    return op_def.host_rule or (op_def.compiled_rule if op_def.portable else None)


def _runs_directly(operations: list[StepNode]) -> bool:
    for op in operations:
        rule = host_rule(op.op_def)
        if op.type.startswith(_COMPILED_ONLY) or op.op_def.object_positions(op):
            return False
        if op.type != "Const" and (rule is None or rule.asks_for("rng")):
            return False
    return not _is_large_arithmetic(operations)


def _is_large_arithmetic(operations: list[StepNode]) -> bool:
    """Whether everything compiles, shapes are known, and some tensor is large."""
    sizes = [t.shape.num_elements() for op in operations for t in op.outputs]
    if None in sizes or any(op.op_def.compiled_rule is None for op in operations):
        return False
    if any(t.dtype is dtypes.string for op in operations for t in op.outputs):
        return False
    return any(size > _LARGE for size in sizes if size is not None)


class _Program:
    """The kernel calls of a function graph, in order. Thread-safe. The caller silences NumPy's warnings."""

    def __init__(self, ctx: StepHostContext, body: StepFunction, captured: list[Any]) -> None:
        self._slots: dict[StepTensor, int] = {}
        self._template: list[Any] = []
        for parameter in body.inputs:
            self._new_slot(parameter)
        self._declared = len(body.inputs) - len(captured)
        for i, value in enumerate(captured):
            self._template[self._declared + i] = value
        self._known: set[StepTensor] = set()
        self._instructions: list[_Instruction] = []
        for op in body.operations:
            if not self._is_known(op):
                self._instructions.append(self._instruction(ctx, op))
        self._outputs = [self._slots[t] for t in body.outputs]

    def run(self, element: Element) -> Element:
        """The outputs for an element."""
        values = self._template.copy()
        values[: self._declared] = element
        instruction = None
        try:
            for instruction in self._instructions:
                if instruction.check_shapes is not None:
                    instruction.check_shapes([values[i] for i in instruction.inputs])
                if instruction.result < 0:
                    _execute(instruction, values)
                    continue
                value = instruction.kernel.on_arguments(*[values[i] for i in instruction.arguments])
                if value.__class__ is not np.ndarray or value.dtype is not instruction.dtype:
                    value = host_array(value.wait()[0] if isinstance(value, Pending) else value, instruction.dtype)
                values[instruction.result] = value
        except OpError as error:
            error.attribute_to(None if instruction is None else instruction.op)
            raise
        except VALUE_ERRORS as error:
            assert instruction is not None
            raise refusal(instruction.op, [values[i] for i in instruction.inputs], error) from error
        return tuple([values[slot] for slot in self._outputs])

    def _new_slot(self, tensor: StepTensor, value: TensorValue | None = None) -> int:
        slot = self._slots[tensor] = len(self._template)
        self._template.append(value)
        return slot

    def _is_known(self, op: StepNode) -> bool:
        """Whether the operation gives the same in every call; then its outputs are known from now on."""
        if op.type == "Const":
            values: list[Any] = [op.attrs["value"]]
        elif op.op_def.portable and not op.op_def.stateful and op.inputs and self._known.issuperset(op.inputs):
            values = run_on_known_values(op, [self._template[self._slots[t]] for t in op.inputs])
            if any(v is None or v.size > _MAX_KNOWN for v in values):
                return False
        else:
            return False
        for tensor, value in zip(op.outputs, values, strict=True):
            self._new_slot(tensor, value)
            self._known.add(tensor)
        return True

    def _instruction(self, ctx: StepHostContext, op: StepNode) -> _Instruction:
        rule = host_rule(op.op_def)
        assert rule is not None
        kernel = BoundKernel(op, rule, np, ctx.for_operation(op))
        inputs = [self._slots[t] for t in op.inputs]
        check = ShapeCheck(op) if is_open(op) else None
        arguments = kernel.grouped(inputs)
        results = tuple([self._new_slot(t) for t in op.outputs])
        kinds = tuple([np.dtype(t.dtype.as_numpy_dtype) for t in op.outputs])
        simple = not any(arg.is_list for arg in (*op.op_def.inputs, *op.op_def.outputs)) and len(results) == 1
        only = (results[0], kinds[0]) if simple else (-1, None)
        return _Instruction(op, kernel, tuple(inputs), check, tuple(arguments), results, kinds, *only)


def _execute(instruction: _Instruction, values: list[Any]) -> None:
    """Runs any instruction."""
    arguments = [[values[i] for i in a] if isinstance(a, list) else values[a] for a in instruction.arguments]
    result = instruction.kernel.on_arguments(*arguments)
    if isinstance(result, Pending):
        result = result.wait()
    # most kernels of lists give one array, or a list of arrays
    if result.__class__ is np.ndarray:
        result = (result,)
    elif result.__class__ is not list or any(value.__class__ is not np.ndarray for value in result):
        result = flatten_outputs(result)
    for slot, value, dtype in zip(instruction.results, result, instruction.dtypes, strict=True):
        same = value.__class__ is np.ndarray and value.dtype is dtype
        values[slot] = value if same else host_array(value, dtype)
