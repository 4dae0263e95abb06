"""Factories that make the easy operations one line each."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from anabranch.core.arrays import Array, ArrayLibrary
from anabranch.core.host_memory import ALIGNED_FROM
from anabranch.core.kernel_context import OperationContext
from anabranch.graph.building import OpFunction, define_op
from anabranch.ops import shape_rules

ArrayFunction = Callable[..., Any]
GradientFunction = Callable[..., Any]


def attach_gradient(op: OpFunction, gradient: GradientFunction | None) -> OpFunction:
    """Attaches `gradient`, or states that the operation has none."""
    if gradient is None:
        op.not_differentiable()
    else:
        op.gradient(gradient)
    return op


def unary(
    name: str,
    function: ArrayFunction,
    types: str = "numbers",
    gradient: GradientFunction | None = None,
    inputs: str = "x",
) -> OpFunction:
    """An elementwise operation of one argument: `function(xp, x)` with xp NumPy or jax.numpy."""
    op = define_op(name, f"{inputs}: T -> y: T", f"T: {types}")
    op.shape(shape_rules.same_as_first)
    op.kernel(_with_xp(function))
    return attach_gradient(op, gradient)


def unary_compiled(
    name: str,
    function: ArrayFunction,
    types: str = "floating",
    gradient: GradientFunction | None = None,
    inputs: str = "x",
) -> OpFunction:
    """Like `unary`, for a `function(x)` that exists for jax arrays only."""
    op = define_op(name, f"{inputs}: T -> y: T", f"T: {types}")
    op.shape(shape_rules.same_as_first)
    op.kernel(lambda x: function(x))  # noqa: PLW0108 - hides keywords of the function's own
    return attach_gradient(op, gradient)


def binary(
    name: str,
    function: ArrayFunction | str,
    types: str = "numbers",
    gradient: GradientFunction | None = None,
    commutative: bool = False,
    arguments: str = "x: T, y: T -> z: T",
    adds: bool = False,
) -> OpFunction:
    """An elementwise operation of two arguments that broadcast: `function(xp, x, y)`, or the name of a ufunc.

    By name only what every library computes to the last bit: sums, differences, products.
    """
    is_ufunc = isinstance(function, str)
    op = define_op(name, arguments, f"T: {types}", commutative=commutative, adds=adds, one_function=is_ufunc)
    op.shape(shape_rules.broadcast)
    op.kernel(ufunc(function) if isinstance(function, str) else _with_xp(function))
    return attach_gradient(op, gradient)


def ufunc(name: str) -> ArrayFunction:
    """The kernel of an operation that is one function of two arguments, of NumPy's and JAX's alike, elementwise.

    NumPy writes large results over an operand that nothing else reads.
    """

    def kernel(x: Array, y: Array, *, xp: ArrayLibrary, ctx: OperationContext) -> Any:
        # of small operands no result is large; to find its shape takes several times as long as to compute it
        if xp is np and x.size * y.size * x.itemsize >= ALIGNED_FROM:
            memory = ctx.memory(np.broadcast_shapes(np.shape(x), np.shape(y)), x.dtype, 0, 1)
            if memory is not None:
                return getattr(np, name)(x, y, out=memory)
        return getattr(xp, name)(x, y)

    return kernel


def comparison(name: str, function: ArrayFunction, types: str = "real", commutative: bool = False) -> OpFunction:
    """Like `binary`, with a boolean result and no gradient."""
    op = define_op(name, "x: T, y: T -> z: bool", f"T: {types}", commutative=commutative)
    op.shape(shape_rules.broadcast)
    op.kernel(_with_xp(function))
    return op.not_differentiable()


def _with_xp(function: ArrayFunction) -> ArrayFunction:
    def kernel(*arrays: Array, xp: ArrayLibrary) -> Any:
        return function(xp, *arrays)

    return kernel
