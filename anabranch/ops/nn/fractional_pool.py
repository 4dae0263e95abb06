"""Pooling by regions of different sizes, drawn at random, so that images shrink by a fraction (Graham 2014).

An axis of n elements becomes one of m: regions of n // m elements and of one more, in an order that is drawn in each
run, or, where it is `deterministic`, once for each operation. Regions that overlap share the element between them.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
from jax import numpy as jnp

from anabranch.core.arrays import Array, RandomSource
from anabranch.core.kernel_context import OperationContext
from anabranch.core.shapes import TensorShape
from anabranch.graph.building import OpFunction, define_op
from anabranch.graph.constants import ShapeContext
from anabranch.graph.operation import Operation, Tensor
from anabranch.ops import raw, shape_rules
from anabranch.ops.nn import windows

_TYPES = "T: {float, double, int32, int64}"
_ATTRS = (
    "pooling_ratio: list(float) >= 4, pseudo_random: bool = False, overlapping: bool = False, "
    f"deterministic: bool = False, seed: int = 0, seed2: int = 0, {_TYPES}"
)
_SEQUENCES = "row_pooling_sequence: int64, col_pooling_sequence: int64"


# ---------------------------------------------------------------------- regions
def _pooled_length(length: int, ratio: float) -> int:
    return int(np.floor(np.float32(length) / np.float32(ratio)))


def _pooled_shape(data: TensorShape, ratios: Sequence[float]) -> TensorShape:
    data = shape_rules.with_rank(data, 4, "the input of fractional pooling")
    if len(ratios) != 4 or min(ratios) < 1 or ratios[0] != 1 or ratios[3] != 1:
        raise ValueError(
            f"pooling_ratio must be [1, rows, columns, 1], with numbers of 1 or more, got {[float(r) for r in ratios]}"
        )
    dims = data.dims_tuple or (None,) * 4
    for length, ratio in zip(dims, ratios, strict=True):
        if length is not None and length < ratio:
            raise ValueError(f"a pooling ratio of {ratio} is higher than the {length} elements of its axis")
    return TensorShape([None if d is None else _pooled_length(d, r) for d, r in zip(dims, ratios, strict=True)])


def _sequence(length: int, count: int, pseudo_random: bool, rng: RandomSource) -> Any:
    """Where each of `count` regions begins, and where the last one ends: int64."""
    small = length // count
    if not pseudo_random:
        sizes = np.array([small + (i < length % count) for i in range(count)], np.int64)
        return jnp.concatenate([jnp.zeros(1, jnp.int64), jnp.cumsum(jax.random.permutation(rng, sizes))])
    alpha = length / count
    highest = min((small + 2) / alpha - 1, (length + 1 - small) / alpha - (count - 1))
    u = jax.random.uniform(rng, dtype=jnp.float64) * highest
    inner = jnp.ceil(alpha * (np.arange(1, count) + u)).astype(jnp.int64) - 1
    return jnp.concatenate([jnp.zeros(1, jnp.int64), inner, jnp.full(1, length, jnp.int64)])


def _sequences(shape: Sequence[int], rng: RandomSource, ctx: OperationContext) -> tuple[Any, Any]:
    """Those of rows and of columns."""
    attrs = ctx.op.attrs
    seeds = attrs["seed"], attrs["seed2"]
    if attrs["deterministic"]:
        words = (*seeds, zlib.crc32(ctx.op.name.encode()) if seeds == (0, 0) else 0)
        rng = jax.random.key(0)
        for word in words:
            rng = jax.random.fold_in(rng, word % 2**32)
    keys = jax.random.split(rng)
    ratios = attrs["pooling_ratio"]
    rows, columns = (
        _sequence(shape[a], _pooled_length(shape[a], ratios[a]), attrs["pseudo_random"], keys[a - 1]) for a in (1, 2)
    )
    return rows, columns


def _places(sequence: Array, length: int, overlapping: bool, ctx: OperationContext) -> tuple[Any, Any]:
    """The elements of each region, [regions, longest], and which of them are in it."""
    count = sequence.shape[0] - 1
    longest = min(length, length // max(1, count) + 1 + overlapping)
    start, end = sequence[:-1, None], jnp.minimum(sequence[1:, None] + overlapping, length)
    sizes = end - start
    ctx.check(
        (start >= 0) & (sizes > 0) & (sizes <= longest),
        f"a region of a sequence over {length} elements must have 1 to {longest} of them, got {{0}}",
        sizes,
    )
    at = start + np.arange(longest)
    return jnp.minimum(at, length - 1), at < end


def _region_values(x: Array, rows: tuple[Any, Any], columns: tuple[Any, Any], fill: Array) -> Any:
    """What each region has, [batch, rows, columns, channels, in a row of the region times in a column]."""
    (at_row, in_row), (at_column, in_column) = rows, columns
    seen = jnp.asarray(x)[:, at_row][:, :, :, at_column]
    inside = in_row[None, :, :, None, None, None] & in_column[None, None, None, :, :, None]
    seen = jnp.where(inside, seen, np.array(fill, x.dtype)).transpose(0, 1, 3, 5, 2, 4)
    return seen.reshape(*seen.shape[:4], seen.shape[4] * seen.shape[5])


# ---------------------------------------------------------------------- the operations
def _pooling(name: str) -> OpFunction:
    op = define_op(name, f"value: T -> output: T, {_SEQUENCES}", _ATTRS, stateful=True)

    @op.shape
    def _(value: TensorShape, *, pooling_ratio: list[float], deterministic: bool, seed: int, seed2: int) -> Any:
        if not deterministic and (seed or seed2):
            raise ValueError("both seed and seed2 must be 0 if deterministic is False; set deterministic=True")
        pooled = _pooled_shape(value, pooling_ratio)
        ends = [TensorShape([None if (d := pooled[a].value) is None else d + 1]) for a in (1, 2)]
        return [pooled, *ends]

    return op


FractionalMaxPool = _pooling("FractionalMaxPool")


@FractionalMaxPool.kernel
def _(value: Array, *, overlapping: bool, rng: RandomSource, ctx: OperationContext) -> Any:
    rows, columns = _sequences(value.shape, rng, ctx)
    at = [_places(s, value.shape[a], overlapping, ctx) for s, a in ((rows, 1), (columns, 2))]
    return _region_values(value, at[0], at[1], windows.lowest(value.dtype)).max(-1), rows, columns


@FractionalMaxPool.gradient
def _(op: Operation, grad: Tensor, *_: Tensor) -> Any:
    output, rows, columns = op.outputs
    return FractionalMaxPoolGrad(op.inputs[0], output, grad, rows, columns, overlapping=op.attrs["overlapping"])


FractionalMaxPoolGrad = define_op(
    "FractionalMaxPoolGrad",
    f"orig_input: T, orig_output: T, out_backprop: T, {_SEQUENCES} -> output: T",
    f"overlapping: bool = False, {_TYPES}",
)
FractionalMaxPoolGrad.not_differentiable()


@FractionalMaxPoolGrad.shape
def _(orig_input: TensorShape, *_: TensorShape) -> TensorShape:
    return shape_rules.with_rank(orig_input, 4, "the input of fractional pooling")


@FractionalMaxPoolGrad.kernel
def _(
    orig_input: Array,
    orig_output: Array,
    out_backprop: Array,
    row_pooling_sequence: Array,
    col_pooling_sequence: Array,
    *,
    overlapping: bool,
    ctx: OperationContext,
) -> Any:
    x = orig_input
    _check_pooled(out_backprop, row_pooling_sequence, col_pooling_sequence, ctx)
    rows = _places(row_pooling_sequence, x.shape[1], overlapping, ctx)
    columns = _places(col_pooling_sequence, x.shape[2], overlapping, ctx)
    first = _region_values(x, rows, columns, windows.lowest(x.dtype)).argmax(-1)
    wide = columns[0].shape[1]
    batch, down, across, channel = jnp.meshgrid(*(np.arange(n) for n in first.shape), indexing="ij")
    at = batch, rows[0][down, first // wide], columns[0][across, first % wide], channel
    return jnp.zeros(x.shape, x.dtype).at[at].add(out_backprop)


def _check_pooled(grad: Array, rows: Array, columns: Array, ctx: OperationContext) -> None:
    ctx.check(
        grad.ndim == 4 and grad.shape[1:3] == (rows.shape[0] - 1, columns.shape[0] - 1),
        f"out_backprop has shape {grad.shape}, but the sequences are those of {rows.shape[0] - 1} rows and "
        f"{columns.shape[0] - 1} columns",
    )


FractionalAvgPool = _pooling("FractionalAvgPool")


@FractionalAvgPool.kernel
def _(value: Array, *, overlapping: bool, rng: RandomSource, ctx: OperationContext) -> Any:
    rows, columns = _sequences(value.shape, rng, ctx)
    at = [_places(s, value.shape[a], overlapping, ctx) for s, a in ((rows, 1), (columns, 2))]
    total = _region_values(value, at[0], at[1], 0).sum(-1)
    count = (at[0][1].sum(-1)[:, None] * at[1][1].sum(-1))[None, :, :, None].astype(value.dtype)
    mean = total / count if value.dtype.kind == "f" else jnp.sign(total) * (jnp.abs(total) // count)
    return mean.astype(value.dtype), rows, columns


@FractionalAvgPool.gradient
def _(op: Operation, grad: Tensor, *_: Tensor) -> Any:
    rows, columns = op.outputs[1:]
    shape = raw.Shape(op.inputs[0], out_type="int64")
    return FractionalAvgPoolGrad(shape, grad, rows, columns, overlapping=op.attrs["overlapping"])


FractionalAvgPoolGrad = define_op(
    "FractionalAvgPoolGrad",
    f"orig_input_tensor_shape: int64, out_backprop: T, {_SEQUENCES} -> output: T",
    f"overlapping: bool = False, {_TYPES}",
    static=("orig_input_tensor_shape",),
    ranks={"orig_input_tensor_shape": 1},
)
FractionalAvgPoolGrad.not_differentiable()


@FractionalAvgPoolGrad.shape
def _(orig_input_tensor_shape: TensorShape, *_: TensorShape, ctx: ShapeContext) -> TensorShape:
    wanted: TensorShape = ctx.constant_as_shape("orig_input_tensor_shape")
    return wanted.with_rank(4)


@FractionalAvgPoolGrad.kernel
def _(
    orig_input_tensor_shape: Array,
    out_backprop: Array,
    row_pooling_sequence: Array,
    col_pooling_sequence: Array,
    *,
    overlapping: bool,
    ctx: OperationContext,
) -> Any:
    shape = [int(d) for d in orig_input_tensor_shape]
    _check_pooled(out_backprop, row_pooling_sequence, col_pooling_sequence, ctx)
    spread = []
    for axis, sequence in ((1, row_pooling_sequence), (2, col_pooling_sequence)):
        at, inside = _places(sequence, shape[axis], overlapping, ctx)
        part = jnp.where(inside, 1 / inside.sum(-1, keepdims=True), 0.0)
        regions = np.arange(at.shape[0])[:, None]
        spread.append(jnp.zeros((at.shape[0], shape[axis])).at[regions, at].add(part))
    grad = jnp.einsum("nrcd,rh,cw->nhwd", out_backprop.astype(jnp.float64), *spread)
    return grad.astype(out_backprop.dtype)
