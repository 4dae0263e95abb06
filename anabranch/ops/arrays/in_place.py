"""Rows of a tensor replaced, or added to, by their numbers.

TensorFlow's kernels write into the memory of `x`; here `y` is a tensor of its own, and `x` keeps its values.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np

from anabranch.core.arrays import Array, ArrayLibrary, HostArray
from anabranch.core.kernel_context import OperationContext
from anabranch.core.shapes import TensorShape
from anabranch.graph.building import OpFunction, define_op
from anabranch.ops import shape_rules

#: (y, rows, v): puts the rows `v` into `y`, an array of NumPy's
_OnHost = Callable[[HostArray, HostArray, HostArray], None]
#: the same for arrays of JAX's
_Compiled = Callable[[Array, Array, Array], Any]


def _shape(x: TensorShape, i: TensorShape, v: TensorShape) -> TensorShape:
    rows = shape_rules.with_rank(i, 1, "argument 'i'")
    if x.ndims is None or v.ndims is None:
        return x
    if x.ndims != v.ndims or x.ndims == 0 or not x[1:].is_compatible_with(v[1:]):
        raise ValueError(f"x and v shape doesn't match: {x} and {v}")
    if not rows.is_compatible_with(v[:1]):
        raise ValueError(f"i and v shape doesn't match at index 0: {rows} and {v}")
    return x


def _in_place(name: str, on_host: _OnHost, compiled: _Compiled) -> OpFunction:
    op = define_op(name, "x: T, i: int32, v: T -> y: T", "T: any")
    op.late_shape(_shape)
    op.not_differentiable()

    @op.kernel
    def _(x: Array, i: Array, v: Array, *, ctx: OperationContext, xp: ArrayLibrary) -> Any:
        count = x.shape[0]
        ctx.check(count > 0 or i.shape[0] == 0, "a tensor without rows has none to write into")
        if count == 0:
            return xp.asarray(x)
        rows = xp.mod(i, np.int32(count))  # as in TensorFlow every number stands for a row: they go round
        if xp is not np:
            return compiled(jnp.asarray(x), rows, jnp.asarray(v))
        y = np.array(x)
        on_host(y, rows, v)
        return y

    return op


def _replace(y: HostArray, rows: HostArray, v: HostArray) -> None:
    y[rows] = v


def _replaced(y: Array, rows: Array, v: Array) -> Any:
    """Of several values for one row the last one stays, which a scatter of XLA's does not promise."""
    if rows.shape[0] == 0:
        return y
    last = jnp.full(y.shape[0], -1, jnp.int32).at[rows].max(jnp.arange(rows.shape[0], dtype=jnp.int32))
    written = (last >= 0).reshape(-1, *[1] * (y.ndim - 1))
    return jnp.where(written, v[jnp.maximum(last, 0)], y)


InplaceUpdate = _in_place("InplaceUpdate", _replace, _replaced)
InplaceAdd = _in_place("InplaceAdd", np.add.at, lambda y, rows, v: y.at[rows].add(v))
InplaceSub = _in_place("InplaceSub", np.subtract.at, lambda y, rows, v: y.at[rows].subtract(v))
