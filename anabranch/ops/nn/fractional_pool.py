"""Pooling by a ratio that need not be whole (Graham, arXiv:1412.6071): regions of two sizes, in an order of chance.

The borders of the regions along an axis are a *sequence*: region i is from `sequence[i]` to before `sequence[i + 1]`,
or, if regions overlap, to that element. Which sequence is drawn is an output; the gradients know the regions from it.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from anabranch.core.arrays import HostArray, RandomSource
from anabranch.core.kernel_context import OperationContext
from anabranch.core.shapes import TensorShape
from anabranch.graph.building import OpFunction, define_op
from anabranch.graph.constants import ShapeContext
from anabranch.graph.operation import Operation, Tensor
from anabranch.ops import raw, shape_rules

_TYPES = "T: {float, double, int32, int64}"


# ---------------------------------------------------------------------- regions
def _sequence(length: int, parts: int, pseudo_random: bool, rng: RandomSource) -> HostArray:
    """The borders of so many regions, each as long as the quotient, or by one longer."""
    if pseudo_random:
        ratio, least = length / parts, length // parts
        # The first and the last region, too, must not be longer or shorter than that.
        limit = min((least + 2) / ratio - 1, (length + 1 - least) / ratio - (parts - 1))
        inner = np.ceil(ratio * (np.arange(1, parts) + rng.uniform() * limit)).astype(np.int64) - 1
        return np.concatenate([[0], inner, [length]])
    lengths = np.full(parts, length // parts, np.int64)
    lengths[: length % parts] += 1
    return np.concatenate([[0], np.cumsum(rng.permutation(lengths))])


def _regions(sequence: HostArray, length: int, overlapping: bool) -> Iterator[tuple[int, slice]]:
    """The number of each region that has elements, and its elements."""
    for number, (first, after) in enumerate(itertools.pairwise(sequence)):
        end = min(int(after) + overlapping, length)
        if end > first:
            yield number, slice(int(first), end)


def _checked(sequence: HostArray, length: int, parts: int, ctx: OperationContext) -> HostArray:
    """Borders that came as an input."""
    fits = sequence.shape == (parts + 1,) and sequence.min() >= 0 and sequence.max() <= length
    ctx.check(
        bool(fits) and bool((np.diff(sequence) >= 0).all()),
        f"a pooling sequence must have {parts + 1} borders, in order, from 0 to {length}; got {sequence.tolist()}",
    )
    return sequence


# ---------------------------------------------------------------------- pools
def _pooled_shape(value: TensorShape, *, pooling_ratio: Sequence[float]) -> list[TensorShape]:
    value = shape_rules.with_rank(value, 4, "value")
    if len(pooling_ratio) != 4:
        raise ValueError(f"pooling_ratio must have 4 elements, one for each dimension; got {list(pooling_ratio)}")
    if min(pooling_ratio) < 1:
        raise ValueError(f"pooling_ratio must be 1 or greater; got {list(pooling_ratio)}")
    sizes = [None if n is None else int(n / ratio) for n, ratio in zip(value.as_list(), pooling_ratio, strict=True)]
    borders = [TensorShape([None if n is None else n + 1]) for n in sizes[1:3]]
    return [TensorShape(sizes), *borders]


def _draws(attrs: dict[str, Any], rng: RandomSource, ctx: OperationContext) -> RandomSource:
    """What the regions are drawn with: the same in every step if the pool is deterministic."""
    seeds = (int(attrs["seed"]), int(attrs["seed2"]))
    ctx.check(
        bool(attrs["deterministic"]) or seeds == (0, 0),
        f"seed and seed2 must be 0 unless deterministic is set; got {seeds}",
    )
    if attrs["deterministic"] and any(seeds):
        return np.random.default_rng([n % (1 << 64) for n in seeds])
    return rng


def _pool(
    value: HostArray, reduce: Callable[[HostArray], HostArray], rng: RandomSource, ctx: OperationContext
) -> tuple[HostArray, HostArray, HostArray]:
    attrs = ctx.op.attrs
    ratio = attrs["pooling_ratio"]
    ctx.check(ratio[0] == 1 and ratio[3] == 1, f"the batch and the channels cannot be pooled; pooling_ratio is {ratio}")
    ctx.check(
        all(n >= r for n, r in zip(value.shape, ratio, strict=True)),
        f"pooling_ratio {ratio} is greater than the value's shape {value.shape}",
    )
    draws = _draws(attrs, rng, ctx)
    sizes = [int(n / r) for n, r in zip(value.shape, ratio, strict=True)]
    rows, columns = (_sequence(value.shape[i], sizes[i], attrs["pseudo_random"], draws) for i in (1, 2))
    result = np.empty(sizes, value.dtype)
    for i, row in _regions(rows, value.shape[1], attrs["overlapping"]):
        for j, column in _regions(columns, value.shape[2], attrs["overlapping"]):
            result[:, i, j] = reduce(value[:, row, column])
    return result, rows, columns


def _mean(window: HostArray) -> HostArray:
    total = window.sum((1, 2), dtype=window.dtype)
    count = window.shape[1] * window.shape[2]
    if window.dtype.kind == "f":
        return np.asarray(total / window.dtype.type(count))
    return np.asarray(np.sign(total) * (np.abs(total) // count))  # Cut off towards zero.


def _define(name: str) -> OpFunction:
    op = define_op(
        name,
        "value: T -> output: T, row_pooling_sequence: int64, col_pooling_sequence: int64",
        "pooling_ratio: list(float) >= 4, pseudo_random: bool = False, overlapping: bool = False, "
        f"deterministic: bool = False, seed: int = 0, seed2: int = 0, {_TYPES}",
        stateful=True,
    )
    op.shape(_pooled_shape)
    return op


FractionalMaxPool = _define("FractionalMaxPool")


@FractionalMaxPool.host_kernel
def _(value: HostArray, *, rng: RandomSource, ctx: OperationContext) -> Any:
    return _pool(value, lambda window: np.asarray(window.max((1, 2))), rng, ctx)


@FractionalMaxPool.gradient
def _(op: Operation, grad: Tensor, *_: Tensor | None) -> Any:
    output, rows, columns = op.outputs
    return raw.FractionalMaxPoolGrad(op.inputs[0], output, grad, rows, columns, overlapping=op.attrs["overlapping"])


FractionalMaxPoolGrad = define_op(
    "FractionalMaxPoolGrad",
    "orig_input: T, orig_output: T, out_backprop: T, row_pooling_sequence: int64, col_pooling_sequence: int64 "
    "-> output: T",
    f"overlapping: bool = False, {_TYPES}",
)
FractionalMaxPoolGrad.not_differentiable()


@FractionalMaxPoolGrad.shape
def _(
    orig_input: TensorShape,
    orig_output: TensorShape,
    out_backprop: TensorShape,
    row_pooling_sequence: TensorShape,
    col_pooling_sequence: TensorShape,
) -> TensorShape:
    return shape_rules.with_rank(orig_input, 4, "orig_input")


@FractionalMaxPoolGrad.host_kernel
def _(
    orig_input: HostArray,
    orig_output: HostArray,
    out_backprop: HostArray,
    row_pooling_sequence: HostArray,
    col_pooling_sequence: HostArray,
    *,
    overlapping: bool,
    ctx: OperationContext,
) -> Any:
    """A gradient goes to the first of the greatest elements of its region."""
    sizes = orig_input.shape
    ctx.check(
        orig_output.ndim == 4 and out_backprop.shape == orig_output.shape,
        f"out_backprop must have the shape of orig_output, {orig_output.shape}, and has {out_backprop.shape}",
    )
    rows = _checked(row_pooling_sequence, sizes[1], out_backprop.shape[1], ctx)
    columns = _checked(col_pooling_sequence, sizes[2], out_backprop.shape[2], ctx)
    result = np.zeros(sizes, orig_input.dtype)
    batch, depth = np.arange(sizes[0])[:, None], np.arange(sizes[3])
    for i, row in _regions(rows, sizes[1], overlapping):
        for j, column in _regions(columns, sizes[2], overlapping):
            window = orig_input[:, row, column]
            best = window.reshape(sizes[0], -1, sizes[3]).argmax(1)
            down, right = np.divmod(best, window.shape[2])
            np.add.at(result, (batch, row.start + down, column.start + right, depth), out_backprop[:, i, j])
    return result


FractionalAvgPool = _define("FractionalAvgPool")


@FractionalAvgPool.host_kernel
def _(value: HostArray, *, rng: RandomSource, ctx: OperationContext) -> Any:
    return _pool(value, _mean, rng, ctx)


@FractionalAvgPool.gradient
def _(op: Operation, grad: Tensor, *_: Tensor | None) -> Any:
    rows, columns = op.outputs[1:]
    shape = raw.Shape(op.inputs[0], out_type="int64")
    return raw.FractionalAvgPoolGrad(shape, grad, rows, columns, overlapping=op.attrs["overlapping"])


FractionalAvgPoolGrad = define_op(
    "FractionalAvgPoolGrad",
    "orig_input_tensor_shape: int64, out_backprop: T, row_pooling_sequence: int64, col_pooling_sequence: int64 "
    "-> output: T",
    f"overlapping: bool = False, {_TYPES}",
    ranks={"orig_input_tensor_shape": 1},
)
FractionalAvgPoolGrad.not_differentiable()


@FractionalAvgPoolGrad.shape
def _(
    orig_input_tensor_shape: TensorShape,
    out_backprop: TensorShape,
    row_pooling_sequence: TensorShape,
    col_pooling_sequence: TensorShape,
    *,
    ctx: ShapeContext,
) -> TensorShape:
    return shape_rules.with_rank(ctx.constant_as_shape("orig_input_tensor_shape"), 4, "orig_input_tensor_shape")


@FractionalAvgPoolGrad.host_kernel
def _(
    orig_input_tensor_shape: HostArray,
    out_backprop: HostArray,
    row_pooling_sequence: HostArray,
    col_pooling_sequence: HostArray,
    *,
    overlapping: bool,
    ctx: OperationContext,
) -> Any:
    """A gradient is shared by the elements of its region."""
    sizes = tuple(int(n) for n in orig_input_tensor_shape)
    ctx.check(
        len(sizes) == 4 and out_backprop.ndim == 4 and (sizes[0], sizes[3]) == out_backprop.shape[::3],
        f"out_backprop of shape {out_backprop.shape} is no gradient of a pool of the shape {sizes}",
    )
    rows = _checked(row_pooling_sequence, sizes[1], out_backprop.shape[1], ctx)
    columns = _checked(col_pooling_sequence, sizes[2], out_backprop.shape[2], ctx)
    total = np.zeros(sizes, np.float64)
    for i, row in _regions(rows, sizes[1], overlapping):
        for j, column in _regions(columns, sizes[2], overlapping):
            count = (row.stop - row.start) * (column.stop - column.start)
            total[:, row, column] += (out_backprop[:, i, j].astype(np.float64) / count)[:, None, None]
    return total.astype(out_backprop.dtype)
