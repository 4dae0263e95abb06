"""What gradients of operations that broadcast do: they sum over the axes along which an operand was repeated."""

from __future__ import annotations

from typing import Any

import numpy as np

from anabranch.core.arrays import Array, ArrayLibrary
from anabranch.core.shapes import Dims, TensorShape, broadcast_dims
from anabranch.graph.building import define_op
from anabranch.graph.constants import ShapeContext
from anabranch.graph.operation import Operation, Tensor
from anabranch.ops import raw

BroadcastGradientArgs = define_op(
    "BroadcastGradientArgs",
    "s0: T, s1: T -> r0: T, r1: T",
    "T: {int32, int64} = int32",
    static=("s0", "s1"),
    ranks={"s0": 1, "s1": 1},
)
BroadcastGradientArgs.not_differentiable()


@BroadcastGradientArgs.late_shape
def _(s0: TensorShape, s1: TensorShape, *, ctx: ShapeContext) -> list[TensorShape]:
    known = [ctx.constant("s0"), ctx.constant("s1")]
    if known[0] is None or known[1] is None:
        return [TensorShape([None]), TensorShape([None])]
    return [TensorShape([len(axes)]) for axes in _repeated_axes(known[0], known[1])]


def _repeated_axes(s0: Array, s1: Array) -> tuple[list[int], list[int]]:
    """Where each has length 1, unless they are equal: where both have, there is nothing to sum, but TensorFlow does so.

    Graphs that TensorFlow wrote say what shape the sum has.
    """
    rank = len(broadcast_dims(tuple(s0), tuple(s1)) or ())
    if tuple(s0) == tuple(s1):
        return [], []
    a, b = ([1] * (rank - len(s)) + [int(d) for d in s] for s in (s0, s1))
    return [i for i in range(rank) if a[i] == 1], [i for i in range(rank) if b[i] == 1]


@BroadcastGradientArgs.kernel
def _(s0: Array, s1: Array, *, xp: ArrayLibrary) -> Any:
    """Which axes of the broadcast result each operand's gradient must be summed over."""
    axes_a, axes_b = _repeated_axes(s0, s1)
    return np.array(axes_a, s0.dtype), np.array(axes_b, s0.dtype)


def sum_to_operands(op: Operation, grad_x: Tensor | None, grad_y: Tensor | None) -> tuple[Any, Any]:
    """Undoes broadcasting: sums each operand's gradient over the axes along which that operand was repeated.

    Args:
        op: a binary operation that broadcasts.
        grad_x, grad_y: gradients of the result's shape, or None.
    """
    x, y = op.inputs
    summed_x = None if grad_x is None else sum_to_shape(grad_x, x, y)
    summed_y = None if grad_y is None else sum_to_shape(grad_y, y, x)
    return summed_x, summed_y


def sum_to_shape(grad: Tensor, x: Tensor, other: Tensor | None = None) -> Tensor:
    """Undoes the broadcasting of `x` to the shape of `grad`, or against `other`."""
    other = grad if other is None else other
    static = _static_axes(x.shape.dims_tuple, other.shape.dims_tuple)
    if static is None:
        shape = raw.Shape(x)
        axes, _ = BroadcastGradientArgs(shape, raw.Shape(other))
        return raw.Reshape(raw.Sum(grad, axes), shape)  # type: ignore[no-any-return]
    leading, inner = static
    if leading:
        grad = raw.Sum(grad, leading)
    if inner:
        grad = raw.Sum(grad, inner, keep_dims=True)
    return grad


def _static_axes(x: Dims, other: Dims) -> tuple[list[int], list[int]] | None:
    """The axes to sum, as far as static shapes decide: those that `x` lacks, and those (of `x`) where it has size 1.

    To sum an axis that turns out to have size 1 is harmless; so only an unknown size of `x` leaves it open.
    """
    if x is None or other is None:
        return None
    inner = []
    for i, size in enumerate(x):
        j = i - len(x) + len(other)
        against = other[j] if j >= 0 else 1
        if size is None and against != 1:
            return None
        if size == 1 and against != 1:
            inner.append(i)
    return list(range(len(other) - len(x))), inner
