"""Transposing, tiling, reversing, rolling; and what operations of layout ask of axes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from anabranch.core.arrays import Array, ArrayLibrary
from anabranch.core.kernel_context import OperationContext
from anabranch.core.shapes import LateShapeError, TensorShape
from anabranch.graph.building import define_op
from anabranch.graph.constants import ShapeContext, partial_vector
from anabranch.graph.operation import Operation, Tensor
from anabranch.ops import raw, shape_rules


def scalar_int(value: Array) -> int:
    """The Python int that a known array of one element holds."""
    if isinstance(value, np.ndarray) and value.size == 1:
        return int(value.item())
    if np.size(value) != 1:
        raise ValueError(f"the tensor must have exactly one element, got the shape {np.shape(value)}")
    return int(np.reshape(value, ()))


def int_list(value: Array) -> list[int]:
    """The Python ints that a known array holds."""
    return [int(v) for v in np.reshape(value, -1)]


def normal_axis(axis: int, rank: int, what: str = "axis") -> int:
    """`axis` in [0, rank), counted from the end where it is negative.

    Raises:
        ValueError: it is not in [-rank, rank).
    """
    if not -rank <= axis < rank:
        raise ValueError(f"{what} = {axis} is out of valid range: not in [{-rank}, {rank})")
    return axis % rank


def normal_axes(axes: Array | Sequence[int], rank: int, what: str = "axis") -> tuple[int, ...]:
    """The known axes in [0, rank), each once; raises ValueError for one outside or given twice."""
    normal = tuple(normal_axis(axis, rank, what) for axis in int_list(axes))
    for at, axis in enumerate(normal):
        if axis in normal[:at]:
            raise ValueError(f"{what} {axis} specified more than once: {int_list(axes)}, of {rank} dimensions")
    return normal


# ---------------------------------------------------------------------- transposing
def _transposed_shape(x: TensorShape, perm: TensorShape, *, ctx: ShapeContext) -> TensorShape:
    order = ctx.constant("perm")
    rank = x.ndims if x.ndims is not None else perm.num_elements()
    if perm.num_elements() not in (None, rank):
        raise ValueError(f"perm has {perm.num_elements()} elements, but the tensor has rank {rank}")
    if rank is None or order is None:
        return TensorShape(None if rank is None else [None] * rank)
    dims = x.with_rank(len(order)).dims_tuple or ()
    # one that comes twice is for the step to refuse, as in TensorFlow
    if any(not 0 <= i < rank for i in int_list(order)):
        raise ValueError(f"perm {int_list(order)} is no permutation of the {rank} dimensions")
    return TensorShape([dims[i] for i in int_list(order)])


def _transpose(x: Array, perm: Array, ctx: OperationContext, xp: ArrayLibrary) -> Any:
    order, rank = int_list(perm), len(np.shape(x))
    missing = [i for i in range(rank) if i not in order]
    why = f": {missing[0]} is missing" if missing else ""
    fits = sorted(order) == list(range(rank))
    ctx.check(fits, f"perm {order} is no permutation of the tensor's {rank} dimensions{why}")
    return xp.transpose(x, order)


_TRANSPOSE_ATTRS = "T: any, Tperm: {int32, int64} = int32"

Transpose = define_op("Transpose", "x: T, perm: Tperm -> y: T", _TRANSPOSE_ATTRS, static=("perm",), ranks={"perm": 1})
Transpose.shape(_transposed_shape)


@Transpose.kernel
def _(x: Array, perm: Array, *, ctx: OperationContext, xp: ArrayLibrary) -> Any:
    return _transpose(x, perm, ctx, xp)


@Transpose.gradient
def _(op: Operation, grad: Tensor) -> Any:
    return Transpose(grad, InvertPermutation(op.inputs[1])), None


ConjugateTranspose = define_op(
    "ConjugateTranspose", "x: T, perm: Tperm -> y: T", _TRANSPOSE_ATTRS, static=("perm",), ranks={"perm": 1}
)
ConjugateTranspose.shape(_transposed_shape)


@ConjugateTranspose.kernel
def _(x: Array, perm: Array, *, ctx: OperationContext, xp: ArrayLibrary) -> Any:
    return xp.conj(_transpose(x, perm, ctx, xp))


@ConjugateTranspose.gradient
def _(op: Operation, grad: Tensor) -> Any:
    return ConjugateTranspose(grad, InvertPermutation(op.inputs[1])), None


InvertPermutation = define_op("InvertPermutation", "x: T -> y: T", "T: {int32, int64} = int32")
InvertPermutation.not_differentiable()


@InvertPermutation.shape
def _(x: TensorShape) -> TensorShape:
    return shape_rules.with_rank(x, 1, "a permutation")


@InvertPermutation.kernel
def _(x: Array, *, ctx: OperationContext, xp: ArrayLibrary) -> Any:
    ctx.check(xp.sort(x) == np.arange(np.shape(x)[0]), "{0} is no permutation of the numbers from 0", x)
    return xp.argsort(x).astype(x.dtype)


# ---------------------------------------------------------------------- tiling, reversing, rolling
Tile = define_op(
    "Tile",
    "input: T, multiples: Tmultiples -> output: T",
    "T: any, Tmultiples: {int32, int64} = int32",
    static=("multiples",),
    ranks={"multiples": 1},
    rank_words={"multiples": "Expected multiples to be 1-D"},
    exact=True,
)


@Tile.shape
def _(input: TensorShape, multiples: TensorShape, *, ctx: ShapeContext) -> TensorShape:
    rank = input.ndims if input.ndims is not None else shape_rules.with_rank(multiples, 1, "multiples").num_elements()
    if rank is None:
        return TensorShape(None)
    dims = input.with_rank(rank).dims_tuple or ()
    counts = partial_vector(ctx.tensor("multiples")) or [None] * rank
    if len(counts) != rank:
        raise ValueError(f"{len(counts)} multiples are given for a tensor of rank {rank}")
    return TensorShape([None if d is None or n is None else d * n for d, n in zip(dims, counts, strict=True)])


@Tile.kernel
def _(input: Array, multiples: Array, *, ctx: OperationContext, xp: ArrayLibrary) -> Any:
    counts = int_list(multiples)
    rank = len(np.shape(input))
    ctx.check(len(counts) == rank, f"{len(counts)} multiples are given for a tensor of rank {rank}")
    ctx.check(min(counts, default=0) >= 0, f"expected multiples >= 0, got {counts}")
    return xp.tile(input, counts)


@Tile.gradient
def _(op: Operation, grad: Tensor) -> Any:
    source, multiples = op.inputs
    shape = raw.Shape(source, out_type=multiples.dtype)
    # [copies, size] for every dimension, one after the other: the sum over the copies is the gradient
    interleaved = raw.Reshape(Transpose(raw.Pack([multiples, shape]), [1, 0]), [-1])
    copies = raw.Range(0, raw.Size(interleaved), 2)
    return raw.Reshape(raw.Sum(raw.Reshape(grad, interleaved), copies), shape), None


TileGrad = define_op(
    "TileGrad",
    "input: T, multiples: int32 -> output: T",
    "T: any",
    static=("multiples",),
    late_ranks={"multiples": 1},
)


@TileGrad.shape
def _(input: TensorShape, multiples: TensorShape, *, ctx: ShapeContext) -> TensorShape:
    dims, counts = input.dims_tuple, partial_vector(ctx.tensor("multiples"))
    if dims is None or counts is None or len(counts) != len(dims):  # the latter is refused in a step
        return TensorShape(None if dims is None else [None] * len(dims))
    return TensorShape([None if d is None or not n else d // n for d, n in zip(dims, counts, strict=True)])


@TileGrad.kernel
def _(input: Array, multiples: Array, *, ctx: OperationContext, xp: ArrayLibrary) -> Any:
    """The sum over the copies: what the gradient of Tile was before it was made of other operations."""
    counts, dims = int_list(multiples), np.shape(input)
    ctx.check(len(counts) == len(dims), f"Expected size of multiples to be {len(dims)}, got {len(counts)}")
    fits = all(n > 0 and d % n == 0 for d, n in zip(dims, counts, strict=True))
    ctx.check(fits, f"each of multiples must be positive and divide its dimension: {counts} for the shape {list(dims)}")
    if not fits:
        return input
    interleaved = [size for d, n in zip(dims, counts, strict=True) for size in (n, d // n)]
    copies = tuple(range(0, len(interleaved), 2))
    return xp.sum(xp.reshape(input, interleaved), axis=copies, dtype=input.dtype)


@TileGrad.gradient
def _(op: Operation, grad: Tensor) -> Any:
    return Tile(grad, op.inputs[1]), None


_REVERSIBLE = "{floating, integers, complex, bool, string}"
Reverse = define_op(
    "Reverse", "tensor: T, dims: bool -> output: T", f"T: {_REVERSIBLE}", static=("dims",), ranks={"dims": 1}
)


@Reverse.shape
def _(tensor: TensorShape, dims: TensorShape) -> TensorShape:
    return tensor if dims.num_elements() is None else tensor.with_rank(dims.num_elements())


@Reverse.kernel
def _(tensor: Array, dims: Array, *, xp: ArrayLibrary) -> Any:
    return xp.flip(tensor, axis=tuple(np.flatnonzero(np.asarray(dims)).tolist()))


@Reverse.gradient
def _(op: Operation, grad: Tensor) -> Any:
    return Reverse(grad, op.inputs[1]), None


ReverseV2 = define_op(
    "ReverseV2",
    "tensor: T, axis: Tidx -> output: T",
    f"Tidx: {{int32, int64}} = int32, T: {_REVERSIBLE}",
    static=("axis",),
    ranks={"axis": 1},
)


@ReverseV2.shape
def _(tensor: TensorShape, axis: TensorShape, *, ctx: ShapeContext) -> TensorShape:
    axes = ctx.constant("axis")
    if tensor.ndims is not None and axes is not None:
        normal_axes(axes, tensor.ndims)
    return tensor


@ReverseV2.kernel
def _(tensor: Array, axis: Array, *, xp: ArrayLibrary) -> Any:
    return xp.flip(tensor, axis=normal_axes(axis, len(np.shape(tensor))))


@ReverseV2.gradient
def _(op: Operation, grad: Tensor) -> Any:
    return ReverseV2(grad, op.inputs[1]), None


ReverseSequence = define_op(
    "ReverseSequence",
    "input: T, seq_lengths: Tlen -> output: T",
    "seq_dim: int, batch_dim: int = 0, T: any, Tlen: {int32, int64} = int64",
)


@ReverseSequence.shape
def _(input: TensorShape, seq_lengths: TensorShape, *, seq_dim: int, batch_dim: int) -> TensorShape:
    lengths = shape_rules.with_rank(seq_lengths, 1, "argument 'seq_lengths'")
    dims = input.dims_tuple
    if dims is None:
        return input
    for name, axis in (("batch_dim", batch_dim), ("seq_dim", seq_dim)):
        if axis >= len(dims):
            raise ValueError(f"{name} must be < input rank, got {axis} for rank {len(dims)}")
    batch, steps = normal_axis(batch_dim, len(dims), "batch_dim"), normal_axis(seq_dim, len(dims), "seq_dim")
    if batch == steps:
        raise LateShapeError(f"batch_dim == seq_dim == {batch}: they must differ")
    size = lengths[0].merge_with(dims[batch])
    return TensorShape([size if i == batch else d for i, d in enumerate(dims)])


@ReverseSequence.kernel
def _(
    input: Array, seq_lengths: Array, *, seq_dim: int, batch_dim: int, ctx: OperationContext, xp: ArrayLibrary
) -> Any:
    shape = np.shape(input)
    rank, size = len(shape), shape[seq_dim]
    fits = (seq_lengths >= 0) & (seq_lengths <= size)
    ctx.check(fits, f"seq_lengths {{0}} must be in [0, {size}], the size of seq_dim", seq_lengths)
    steps = np.arange(size, dtype=np.int64).reshape([-1 if i == seq_dim % rank else 1 for i in range(rank)])
    lengths = seq_lengths.astype(np.int64).reshape([-1 if i == batch_dim % rank else 1 for i in range(rank)])
    source = xp.where(steps < lengths, lengths - 1 - steps, steps)
    return xp.take_along_axis(input, xp.broadcast_to(source, shape), axis=seq_dim)


@ReverseSequence.gradient
def _(op: Operation, grad: Tensor) -> Any:
    back = ReverseSequence(grad, op.inputs[1], seq_dim=op.attrs["seq_dim"], batch_dim=op.attrs["batch_dim"])
    return back, None


Roll = define_op(
    "Roll",
    "input: T, shift: Tshift, axis: Taxis -> output: T",
    "T: any, Tshift: {int32, int64}, Taxis: {int32, int64}",
    static=("axis",),
)


@Roll.shape
def _(input: TensorShape, shift: TensorShape, axis: TensorShape) -> TensorShape:
    for place, name in ((shift, "shift"), (axis, "axis")):
        if (place.ndims or 0) > 1:
            raise ValueError(
                f"Shape must be at most rank 1 but is rank {place.ndims} for the {name} of Roll: {name} must be a "
                "scalar or a 1-D vector"
            )
    if not shift.is_compatible_with(axis):
        raise ValueError(f"both shapes must be equal: shift and axis must have the same size, got {shift} and {axis}")
    if input.ndims == 0:
        raise ValueError("Shape must be at least rank 1 but is rank 0: input must be 1-D or higher")
    return input


@Roll.kernel
def _(input: Array, shift: Array, axis: Array, *, xp: ArrayLibrary, ctx: OperationContext) -> Any:
    rank = np.ndim(input)
    ctx.check(rank >= 1, "input must be 1-D or higher")
    ctx.check(np.ndim(shift) <= 1, "shift must be a scalar or a 1-D vector")
    ctx.check(np.ndim(axis) <= 1, "axis must be a scalar or a 1-D vector")
    ctx.check(np.size(shift) == np.size(axis), "shift and axis must have the same size")
    outside = [a for a in int_list(axis) if not -rank <= a < rank]
    ctx.check(not outside, f"axis {outside} is out of range [{-rank}, {rank})")
    axes = [a % rank for a in int_list(axis)]
    for i, at in enumerate(axes):
        input = xp.roll(input, xp.reshape(shift, (-1,))[i], axis=at)
    return input


@Roll.gradient
def _(op: Operation, grad: Tensor) -> Any:
    _, shift, axis = op.inputs
    return Roll(grad, raw.Neg(shift), axis), None, None
