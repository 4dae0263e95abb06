"""How many floating-point operations the operations of a graph take, as TensorFlow counts them."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Final

from anabranch.graph.operation import Operation, Tensor

_Count = Callable[[Operation, int, int], int]


def _each(count: int) -> _Count:
    return lambda op, given, made: count * made


def _area(op: Operation) -> int:
    return math.prod(op.attrs["ksize"])


def _elements(tensor: Tensor) -> int:
    return tensor.shape.num_elements() or 0


#: by operation type: its numbers of floating-point operations as TensorFlow counts them; from the elements of the
#: first input and of the first output
_COUNTS: Final[dict[str, _Count]] = {
    **dict.fromkeys(("Reciprocal", "Square", "Log", "Neg", "AssignAdd", "AssignSub"), _each(1)),
    **dict.fromkeys(("Add", "AddV2", "Sub", "Mul", "RealDiv", "Maximum", "Minimum", "Pow"), _each(1)),
    **dict.fromkeys(("Equal", "NotEqual", "Less", "LessEqual", "Greater", "GreaterEqual"), _each(1)),
    **dict.fromkeys(("Rsqrt", "SquaredDifference"), _each(2)),
    "RsqrtGrad": _each(4),
    "Softmax": _each(5),
    "AddN": lambda op, given, made: (len(op.inputs) - 1) * made,
    "L2Loss": lambda op, given, made: 3 * given - 1,
    "BiasAdd": lambda op, given, made: given,
    "Mean": lambda op, given, made: given,
    **dict.fromkeys(("Sum", "ArgMax", "ArgMin", "BiasAddGrad"), lambda op, given, made: given - made),
    **dict.fromkeys(("AvgPool", "MaxPool"), lambda op, given, made: _area(op) * made),
    "MaxPoolGrad": lambda op, given, made: (_area(op) + 1) * _elements(op.inputs[1]),
    "AvgPoolGrad": lambda op, given, made: 2 * _area(op) * _elements(op.inputs[1]),
    "Dilation2D": lambda op, given, made: 2 * _elements(op.inputs[1]) // (op.inputs[1].shape[2].value or 1) * made,
}


def float_operations(op: Operation) -> int:
    """The floating-point operations of one run, as far as all shapes are known; 0 for types that are not counted."""
    shapes = [t.shape for t in (*op.inputs, *op.outputs)]
    if not op.outputs or not all(shape.is_fully_defined() for shape in shapes):
        return 0
    rule = op.op_def.flops_rule
    if rule is not None:
        given: list[Any] = [tuple(t.shape.as_list()) for t in op.inputs]
        made: list[Any] = [tuple(t.shape.as_list()) for t in op.outputs]
        return int(rule(given, made, op.attrs))
    count = _COUNTS.get(op.type)
    if count is None:
        return 0
    first = op.inputs[0].shape.num_elements() if op.inputs else 0
    return count(op, first or 0, op.outputs[0].shape.num_elements() or 0)
