"""Taking tensors apart and putting them together along an axis; transposing, tiling, reversing, rolling."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from anabranch.core.arrays import Array, ArrayLibrary, HostArray
from anabranch.core.kernel_context import OperationContext
from anabranch.core.shapes import TensorShape
from anabranch.graph.building import define_op
from anabranch.graph.constants import ShapeContext, constant_value, partial_vector
from anabranch.graph.operation import Operation, Tensor
from anabranch.graph.step_nodes import AnyTensor
from anabranch.ops import raw, shape_rules


def scalar_int(value: Array) -> int:
    """The Python int that a known array of one element holds."""
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


# ---------------------------------------------------------------------- a new axis
Pack = define_op("Pack", "values: N * T -> output: T", "N: int >= 1, T: any, axis: int = 0")


@Pack.shape
def _(values: list[TensorShape], *, axis: int) -> TensorShape:
    shape = shape_rules.merged(*values)
    if shape.dims_tuple is None:
        return shape
    at = normal_axis(axis, len(shape.dims_tuple) + 1)
    return TensorShape([*shape.dims_tuple[:at], len(values), *shape.dims_tuple[at:]])


@Pack.partial_value
def _(tensor: AnyTensor, depth: int) -> list[int | None] | None:
    if any(t.shape.ndims != 0 for t in tensor.op.inputs):
        return None
    parts = [partial_vector(t, depth) for t in tensor.op.inputs]
    return [None if part is None else part[0] for part in parts]


@Pack.kernel
def _(values: list[Any], *, axis: int, xp: ArrayLibrary) -> Any:
    return xp.stack(values, axis=axis)


@Pack.gradient
def _(op: Operation, grad: Tensor) -> Any:
    return list(Unpack(grad, num=op.attrs["N"], axis=op.attrs["axis"]))


Unpack = define_op("Unpack", "value: T -> output: num * T", "num: int >= 0, T: any, axis: int = 0")


@Unpack.shape
def _(value: TensorShape, *, num: int, axis: int) -> list[TensorShape]:
    dims = value.dims_tuple
    if dims is None:
        return [value] * num
    at = normal_axis(axis, len(dims))
    if dims[at] not in (None, num):
        raise ValueError(f"cannot unpack a dimension of size {dims[at]} into {num} tensors")
    return [TensorShape([*dims[:at], *dims[at + 1 :]])] * num


@Unpack.kernel
def _(value: Array, *, num: int, axis: int, xp: ArrayLibrary, ctx: OperationContext) -> Any:
    at = normal_axis(axis, len(np.shape(value)))
    size = np.shape(value)[at]
    ctx.check(size == num, f"input shape axis {axis} must equal {num}, got shape {tuple(np.shape(value))}")
    if xp is np:
        return [np.take(value, i, axis=at) for i in range(num)]
    return [value[(slice(None),) * at + (i,)] for i in range(num)]


@Unpack.gradient
def _(op: Operation, *grads: Tensor | None) -> Any:
    return Pack(list(grads), axis=op.attrs["axis"])


ParallelConcat = define_op("ParallelConcat", "values: N * T -> output: T", "N: int >= 1, T: any, shape: shape")
ParallelConcat.not_differentiable()


@ParallelConcat.shape
def _(values: list[TensorShape], *, shape: TensorShape) -> TensorShape:
    if not shape.is_fully_defined():
        raise ValueError(f"the shape of a parallel concatenation must be fully known, got {shape}")
    shape_rules.merged(TensorShape([1, *shape[1:]]), *values)
    return shape.merge_with([len(values), *shape[1:]])


@ParallelConcat.kernel
def _(values: list[Any], *, xp: ArrayLibrary) -> Any:
    return xp.concatenate(values, axis=0)


# ---------------------------------------------------------------------- along an axis that exists
def concat_shape(values: list[TensorShape], axis: HostArray | None) -> TensorShape:
    rank = next((v.ndims for v in values if v.ndims is not None), None)
    values = [v.with_rank(rank) for v in values]
    if rank == 0:
        raise ValueError("Can't concatenate scalars (use tf.stack instead)")
    if rank is None or axis is None:
        return TensorShape(None if rank is None else [None] * rank)
    at = normal_axis(scalar_int(axis), rank, "concat_dim")
    rows = [v.dims_tuple or () for v in values]
    total = None if any(row[at] is None for row in rows) else sum(row[at] or 0 for row in rows)
    rest = shape_rules.merged(*(TensorShape([None if i == at else d for i, d in enumerate(row)]) for row in rows))
    return TensorShape([total if i == at else d for i, d in enumerate(rest.dims_tuple or ())])


def _concat(values: list[Any], axis: Array, xp: ArrayLibrary) -> Any:
    rank = len(np.shape(values[0]))
    return xp.concatenate(values, axis=normal_axis(scalar_int(axis), rank, "concat_dim"))


def _concat_gradient(values: list[Tensor], axis: Tensor, grad: Tensor) -> list[Any]:
    """The pieces of `grad` that belong to each concatenated tensor."""
    known = constant_value(axis)
    if known is not None and all(_size_along(v, scalar_int(known)) is not None for v in values):
        sizes: Any = [_size_along(v, scalar_int(known)) for v in values]
        return list(raw.SplitV(grad, np.array(sizes, np.int64), axis, num_split=len(values)))
    shapes = list(raw.ShapeN(values, out_type="int64"))
    at = raw.FloorMod(raw.Cast(axis, DstT="int64"), raw.Cast(raw.Rank(values[0]), DstT="int64"))
    sizes = raw.Pack([raw.GatherV2(shape, at, 0) for shape in shapes])
    return list(raw.SplitV(grad, sizes, raw.Cast(axis, DstT="int32"), num_split=len(values)))


def _size_along(tensor: Tensor, axis: int) -> int | None:
    dims = tensor.shape.dims_tuple
    return None if dims is None else dims[axis]


Concat = define_op(
    "Concat",
    "concat_dim: int32, values: N * T -> output: T",
    "N: int >= 2, T: any",
    static=("concat_dim",),
    ranks={"concat_dim": 0},
)


@Concat.shape
def _(concat_dim: TensorShape, values: list[TensorShape], *, ctx: ShapeContext) -> TensorShape:
    return concat_shape(values, ctx.constant("concat_dim"))


@Concat.kernel
def _(concat_dim: Array, values: list[Any], *, xp: ArrayLibrary) -> Any:
    return _concat(values, concat_dim, xp)


@Concat.gradient
def _(op: Operation, grad: Tensor) -> Any:
    return [None, *_concat_gradient(op.inputs[1:], op.inputs[0], grad)]


ConcatV2 = define_op(
    "ConcatV2",
    "values: N * T, axis: Tidx -> output: T",
    "N: int >= 2, T: any, Tidx: {int32, int64} = int32",
    static=("axis",),
    ranks={"axis": 0},
)


@ConcatV2.shape
def _(values: list[TensorShape], axis: TensorShape, *, ctx: ShapeContext) -> TensorShape:
    return concat_shape(values, ctx.constant("axis"))


@ConcatV2.partial_value
def _(tensor: AnyTensor, depth: int) -> list[int | None] | None:
    elements: list[int | None] = []
    for source in tensor.op.inputs[:-1]:
        part = partial_vector(source, depth) if source.shape.ndims == 1 else None
        if part is None:
            return None
        elements.extend(part)
    return elements


@ConcatV2.kernel
def _(values: list[Any], axis: Array, *, xp: ArrayLibrary) -> Any:
    return _concat(values, axis, xp)


@ConcatV2.gradient
def _(op: Operation, grad: Tensor) -> Any:
    return [*_concat_gradient(op.inputs[:-1], op.inputs[-1], grad), None]


ConcatOffset = define_op(
    "ConcatOffset",
    "concat_dim: int32, shape: N * shape_type -> offset: N * shape_type",
    "N: int >= 2, shape_type: {int32, int64} = int32",
    static=("concat_dim",),
    late_ranks={"concat_dim": 0},
)
ConcatOffset.not_differentiable()


@ConcatOffset.shape
def _(concat_dim: TensorShape, shape: list[TensorShape]) -> list[TensorShape]:
    return shape


@ConcatOffset.kernel
def _(concat_dim: Array, shape: list[Any], *, xp: ArrayLibrary, ctx: OperationContext) -> Any:
    for i, part in enumerate(shape):
        ctx.check(np.ndim(part) == 1, f"input {i} should be a vector, got shape {list(np.shape(part))}")
    rank, at = np.shape(shape[0])[0], scalar_int(concat_dim)
    ctx.check(-rank <= at < rank, f"Concat dim is out of range: {at} vs. {rank}")
    ctx.check(all(np.shape(part)[0] == rank for part in shape), f"all inputs should contain {rank} elements")
    unit = (np.arange(rank) == at % rank).astype(shape[0].dtype)
    for i, part in enumerate(shape[1:], 1):
        same = (part == shape[0]) | (unit == 1)
        ctx.check(
            same,
            f"All dimensions except {at} must match. Input {i} has shape {{0}} and doesn't match input 0 with "
            "shape {1}.",
            part,
            shape[0],
        )
    offsets = [shape[0] * 0]
    for before in shape[:-1]:
        offsets.append(offsets[-1] + before * unit)
    return offsets


def _split_gradient(axis: Tensor, grads: Sequence[Tensor | None]) -> Any:
    return ConcatV2(list(grads), axis) if len(grads) > 1 else grads[0]


Split = define_op(
    "Split",
    "split_dim: int32, value: T -> output: num_split * T",
    "num_split: int >= 1, T: any",
    static=("split_dim",),
    late_ranks={"split_dim": 0},
)


def _uneven(axis: int, size: int, ways: int) -> str:
    return (
        f"Number of ways to split should evenly divide the split dimension, but axis {axis} has the size {size} and "
        f"there are {ways} ways"
    )


@Split.shape
def _(split_dim: TensorShape, value: TensorShape, *, num_split: int, ctx: ShapeContext) -> list[TensorShape]:
    dims, axis = value.dims_tuple, ctx.constant("split_dim")
    if dims is None or axis is None:
        return [TensorShape(None if dims is None else [None] * len(dims))] * num_split
    at = normal_axis(scalar_int(axis), len(dims), "split_dim")
    size = dims[at]
    if size is not None and size % num_split:
        raise ValueError(_uneven(at, size, num_split))
    return [TensorShape([*dims[:at], None if size is None else size // num_split, *dims[at + 1 :]])] * num_split


@Split.kernel
def _(split_dim: Array, value: Array, *, num_split: int, ctx: OperationContext, xp: ArrayLibrary) -> Any:
    at = normal_axis(scalar_int(split_dim), len(np.shape(value)), "split_dim")
    size = np.shape(value)[at]
    ctx.check(size % num_split == 0, _uneven(at, size, num_split))
    return xp.split(value, num_split, axis=at)


@Split.gradient
def _(op: Operation, *grads: Tensor | None) -> Any:
    return None, _split_gradient(op.inputs[0], grads)


SplitV = define_op(
    "SplitV",
    "value: T, size_splits: Tlen, split_dim: int32 -> output: num_split * T",
    "num_split: int >= 1, T: any, Tlen: {int8, int32, int64} = int64",
    static=("size_splits", "split_dim"),
    late_ranks={"size_splits": 1},
)


def _piece_sizes(sizes: list[int | None], total: int | None) -> list[int | None]:
    """The sizes of all pieces: the one given as -1 takes the rest. Raises ValueError where they do not add up."""
    for at, size in enumerate(sizes):
        if size is not None and size < -1:
            raise ValueError(f"Split size at index {at} must be >= 0. Got: {size}")
    if sizes.count(-1) > 1:
        raise ValueError(f"only one of the sizes {sizes} may be -1")
    if None in sizes or total is None:
        return [None if s == -1 else s for s in sizes]
    given = sum(s for s in sizes if s is not None and s != -1)
    if given > total or (-1 not in sizes and given != total):
        raise ValueError(f"can't split axis of size {total} into pieces of sizes {sizes}, which do not add up to it")
    return [total - given if s == -1 else s for s in sizes]


@SplitV.shape
def _(
    value: TensorShape, size_splits: TensorShape, split_dim: TensorShape, *, num_split: int, ctx: ShapeContext
) -> list[TensorShape]:
    dims, axis = value.dims_tuple, ctx.constant("split_dim")
    if dims is None or axis is None:
        return [TensorShape(None if dims is None else [None] * len(dims))] * num_split
    at = normal_axis(scalar_int(axis), len(dims), "split_dim")
    sizes = partial_vector(ctx.tensor("size_splits")) or [None] * num_split
    if len(sizes) != num_split:
        raise ValueError(f"{len(sizes)} sizes are given for {num_split} pieces")
    return [TensorShape([*dims[:at], size, *dims[at + 1 :]]) for size in _piece_sizes(sizes, dims[at])]


@SplitV.kernel
def _(value: Array, size_splits: Array, split_dim: Array, *, xp: ArrayLibrary) -> Any:
    at = normal_axis(scalar_int(split_dim), len(np.shape(value)), "split_dim")
    sizes = _piece_sizes(list(int_list(size_splits)), np.shape(value)[at])
    return xp.split(value, np.cumsum([s or 0 for s in sizes])[:-1].tolist(), axis=at)


@SplitV.gradient
def _(op: Operation, *grads: Tensor | None) -> Any:
    return _split_gradient(op.inputs[2], grads), None, None


# ---------------------------------------------------------------------- transposing
def _transposed_shape(x: TensorShape, perm: TensorShape, *, ctx: ShapeContext) -> TensorShape:
    order = ctx.constant("perm")
    rank = x.ndims if x.ndims is not None else perm.num_elements()
    if perm.num_elements() not in (None, rank):
        raise ValueError(f"perm has {perm.num_elements()} elements, but the tensor has rank {rank}")
    if rank is None or order is None:
        return TensorShape(None if rank is None else [None] * rank)
    dims = x.with_rank(len(order)).dims_tuple or ()
    if sorted(int_list(order)) != list(range(rank)):
        raise ValueError(f"perm {int_list(order)} is no permutation of the {rank} dimensions")
    return TensorShape([dims[i] for i in int_list(order)])


def _transpose(x: Array, perm: Array, ctx: OperationContext, xp: ArrayLibrary) -> Any:
    order, rank = int_list(perm), len(np.shape(x))
    ctx.check(sorted(order) == list(range(rank)), f"perm {order} is no permutation of the tensor's {rank} dimensions")
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
    interleaved = raw.Reshape(Transpose(Pack([multiples, shape]), [1, 0]), [-1])
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
        raise ValueError(f"seq_dim and batch_dim must differ, both are {batch}")
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
