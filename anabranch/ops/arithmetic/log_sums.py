"""Logarithms of sums of exponentials, one for each place along an axis."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

from anabranch.core.arrays import Array, ArrayLibrary
from anabranch.core.kernel_context import OperationContext
from anabranch.graph.building import define_op
from anabranch.graph.operation import Operation, Tensor
from anabranch.ops import raw, shape_rules

CumulativeLogsumexp = define_op(
    "CumulativeLogsumexp",
    "x: T, axis: Tidx -> out: T",
    "exclusive: bool = False, reverse: bool = False, T: floating, Tidx: index = int32",
    static=("axis",),
    ranks={"axis": 0},
)
CumulativeLogsumexp.shape(shape_rules.same_as_first)


@CumulativeLogsumexp.kernel
def _(x: Array, axis: Array, *, exclusive: bool, reverse: bool, xp: ArrayLibrary, ctx: OperationContext) -> Any:
    at = int(axis)
    ctx.check(-x.ndim <= at < x.ndim, f"Expected scan axis in the range [{-x.ndim}, {x.ndim}), but got {at}")
    at %= x.ndim
    x = xp.flip(x, at) if reverse else x
    if exclusive:  # the logarithm of an empty sum
        first = xp.full([1 if i == at else n for i, n in enumerate(x.shape)], -np.inf, x.dtype)
        x = xp.concatenate([first, x], at)[tuple(slice(-1) if i == at else slice(None) for i in range(x.ndim))]
    if x.shape[at] == 0:
        return x
    if xp is np:
        out: Array = np.logaddexp.accumulate(x.astype(np.promote_types(x.dtype, np.float32)), axis=at).astype(x.dtype)
    else:
        out = jax.lax.cumlogsumexp(x, axis=at)
    return xp.flip(out, at) if reverse else out


@CumulativeLogsumexp.gradient
def _(op: Operation, grad: Tensor) -> Any:
    """In logarithms, as the sums themselves would overflow; of the positive and the negative part."""
    x, axis = op.inputs
    least = raw.Fill(raw.Shape(grad), np.array(grad.dtype.min, grad.dtype.as_numpy_dtype))

    def part(sign: Tensor) -> Tensor:
        logarithm = raw.SelectV2(raw.Greater(sign, raw.ZerosLike(sign)), raw.Log(sign), least)
        flows = CumulativeLogsumexp(
            raw.Sub(logarithm, op.outputs[0]),
            axis,
            exclusive=op.attrs["exclusive"],
            reverse=not op.attrs["reverse"],
        )
        return raw.Exp(raw.Add(flows, x))  # type: ignore[no-any-return]

    return raw.Sub(part(grad), part(raw.Neg(grad))), None
