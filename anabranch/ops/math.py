"""Elementwise arithmetic with NumPy-style broadcasting, and matrix multiplication."""

from __future__ import annotations

from typing import Any

import numpy as np

from anabranch.core.shapes import TensorShape
from anabranch.graph.building import define_op
from anabranch.graph.operation import Tensor
from anabranch.ops import raw, shape_rules
from anabranch.ops.factories import binary, unary

BroadcastGradientArgs = define_op("BroadcastGradientArgs", "s0: T, s1: T -> r0: T, r1: T", "T: {int32, int64} = int32")
BroadcastGradientArgs.not_differentiable()


@BroadcastGradientArgs.shape
def _(s0: TensorShape, s1: TensorShape) -> tuple[TensorShape, TensorShape]:
    return TensorShape([None]), TensorShape([None])


@BroadcastGradientArgs.kernel
def _(s0: Any, s1: Any, *, xp: Any) -> Any:
    """Which axes of the broadcast result each operand's gradient must be summed over."""
    rank = max(len(s0), len(s1))
    a, b = ([1] * (rank - len(s)) + [int(d) for d in s] for s in (s0, s1))
    axes_a = [i for i in range(rank) if a[i] == 1 and (b[i] != 1 or i < rank - len(s0))]
    axes_b = [i for i in range(rank) if b[i] == 1 and (a[i] != 1 or i < rank - len(s1))]
    return np.array(axes_a, s0.dtype), np.array(axes_b, s0.dtype)


def sum_to_operands(op: Any, grad_x: Any, grad_y: Any) -> tuple[Any, Any]:
    """Undoes broadcasting: sums each operand's gradient over the axes along which that operand was repeated.

    Args:
        op: a binary operation that broadcasts.
        grad_x, grad_y: gradients of the result's shape, or None.
    """
    x, y = op.inputs
    if x.shape.is_fully_defined() and y.shape.is_fully_defined() and x.shape.dims_tuple == y.shape.dims_tuple:
        return grad_x, grad_y
    shape_x, shape_y = raw.Shape(x), raw.Shape(y)
    axes_x, axes_y = BroadcastGradientArgs(shape_x, shape_y)
    summed_x = None if grad_x is None else raw.Reshape(raw.Sum(grad_x, axes_x), shape_x)
    summed_y = None if grad_y is None else raw.Reshape(raw.Sum(grad_y, axes_y), shape_y)
    return summed_x, summed_y


def _add_gradient(op: Any, grad: Tensor) -> Any:
    return sum_to_operands(op, grad, grad)


Add = binary("Add", lambda xp, x, y: xp.add(x, y), "numbers", _add_gradient)
AddV2 = binary("AddV2", lambda xp, x, y: xp.add(x, y), "numbers", _add_gradient, commutative=True)
Sub = binary(
    "Sub", lambda xp, x, y: xp.subtract(x, y), "numbers", lambda op, grad: sum_to_operands(op, grad, Neg(grad))
)
Mul = binary(
    "Mul",
    lambda xp, x, y: xp.multiply(x, y),
    "numbers",
    lambda op, grad: sum_to_operands(op, Mul(grad, raw.Conj(op.inputs[1])), Mul(raw.Conj(op.inputs[0]), grad)),
    commutative=True,
)
Neg = unary("Neg", lambda xp, x: xp.negative(x), "numbers", lambda op, grad: Neg(grad))


MatMul = define_op(
    "MatMul",
    "a: T, b: T -> product: T",
    "transpose_a: bool = False, transpose_b: bool = False, "
    "T: {bfloat16, half, float, double, int32, int64, complex64, complex128}",
)


@MatMul.shape
def _(a: TensorShape, b: TensorShape, *, transpose_a: bool, transpose_b: bool) -> TensorShape:
    a, b = shape_rules.with_rank(a, 2, "argument 'a'"), shape_rules.with_rank(b, 2, "argument 'b'")
    rows, inner_a = (a[1], a[0]) if transpose_a else (a[0], a[1])
    inner_b, columns = (b[1], b[0]) if transpose_b else (b[0], b[1])
    if not inner_a.is_compatible_with(inner_b):
        raise ValueError(f"the inner dimensions {inner_a} and {inner_b} must be equal")
    return TensorShape([rows, columns])


@MatMul.kernel
def _(a: Any, b: Any, *, transpose_a: bool, transpose_b: bool, xp: Any) -> Any:
    return xp.matmul(a.T if transpose_a else a, b.T if transpose_b else b)


@MatMul.gradient
def _(op: Any, grad: Tensor) -> Any:
    a, b = (raw.Conj(t) for t in op.inputs)
    ta, tb = op.attrs["transpose_a"], op.attrs["transpose_b"]
    if ta:
        grad_a = MatMul(b, grad, transpose_a=tb, transpose_b=True)
    else:
        grad_a = MatMul(grad, b, transpose_b=not tb)
    if tb:
        grad_b = MatMul(grad, a, transpose_a=True, transpose_b=ta)
    else:
        grad_b = MatMul(a, grad, transpose_a=not ta)
    return grad_a, grad_b
