"""Taking tensors apart and putting them together along an axis: `Pack`, `Concat`, `Split` and their like."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from jax import lax

from anabranch.core import dtypes
from anabranch.core.arrays import Array, ArrayLibrary, HostArray
from anabranch.core.kernel_context import OperationContext
from anabranch.core.shapes import TensorShape
from anabranch.graph.building import define_op
from anabranch.graph.constants import ShapeContext, constant_value, partial_vector
from anabranch.graph.operation import Operation, Tensor
from anabranch.graph.step_nodes import AnyTensor
from anabranch.ops import raw, shape_rules
from anabranch.ops.arrays.layout import int_list, normal_axis, scalar_int

# ---------------------------------------------------------------------- a new axis
Pack = define_op("Pack", "values: N * T -> output: T", "N: int >= 1, T: any, axis: int = 0", exact=True)


@Pack.shape
def _(values: list[TensorShape], *, axis: int) -> TensorShape:
    shape = shape_rules.merged(*values)
    if shape.dims_tuple is None:
        return shape
    at = normal_axis(axis, len(shape.dims_tuple) + 1)
    return TensorShape([*shape.dims_tuple[:at], len(values), *shape.dims_tuple[at:]])


@Pack.partial_value
def _(tensor: AnyTensor, depth: int) -> list[int | None] | None:
    # what describes a shape is a vector: a part of unknown rank (a placeholder without a shape) is a number too
    if any(t.shape.ndims not in (0, None) for t in tensor.op.inputs):
        return None
    parts = [partial_vector(t, depth) for t in tensor.op.inputs]
    return [None if part is None or len(part) != 1 else part[0] for part in parts]


@Pack.kernel
def _(values: list[Any], *, axis: int, xp: ArrayLibrary) -> Any:
    # a few numbers, of an element of a dataset, say: 0.3 instead of 8 µs for eight
    if xp is np and values and values[0].dtype.kind in "biufc" and not any(value.ndim for value in values):
        return np.array(values)
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
    if rank == 0:
        raise ValueError(
            "Can't concatenate scalars (use tf.stack instead): Expected concatenating dimensions in the range [0, 0)"
        )
    values = [_of_rank(v, rank, at) for at, v in enumerate(values)]
    if rank is None or axis is None:
        return TensorShape(None if rank is None else [None] * rank)
    at = normal_axis(scalar_int(axis), rank, "concat_dim")
    rows = [v.dims_tuple or () for v in values]
    total = None if any(row[at] is None for row in rows) else sum(row[at] or 0 for row in rows)
    rest = shape_rules.merged(*(TensorShape([None if i == at else d for i, d in enumerate(row)]) for row in rows))
    return TensorShape([total if i == at else d for i, d in enumerate(rest.dims_tuple or ())])


def _of_rank(shape: TensorShape, rank: int | None, at: int) -> TensorShape:
    """The shape of the tensor at a position, which is to have the rank of the others."""
    if None not in (rank, shape.ndims) and shape.ndims != rank:
        raise ValueError(
            f"Shapes must be equal rank, but are {rank} and {shape.ndims}: Ranks of all input tensors should match, "
            f"and shape[{at}] = {shape}"
        )
    return shape.with_rank(rank)


_HALVES: Final = (dtypes.float16.as_numpy_dtype, dtypes.bfloat16.as_numpy_dtype)


def _concat(values: list[Any], axis: Array, xp: ArrayLibrary) -> Any:
    rank = len(np.shape(values[0]))
    along = normal_axis(scalar_int(axis), rank, "concat_dim")
    dtype = values[0].dtype
    if xp is np or dtype not in _HALVES:
        return xp.concatenate(values, axis=along)
    # where neighbours compute in float32, XLA would join that for processors, and make halves of it again
    bits = xp.concatenate([lax.bitcast_convert_type(value, np.int16) for value in values], axis=along)
    return lax.bitcast_convert_type(bits, dtype)


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
    rank_words={"concat_dim": "concat_dim tensor should be a scalar integer"},
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
    rank_words={"axis": "axis tensor should be a scalar integer"},
    keeps_all=True,
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
