"""Padding, and the rearrangements of blocks between batch, space and depth."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from anabranch.core.arrays import Array, ArrayLibrary, HostArray
from anabranch.core.kernel_context import OperationContext
from anabranch.core.shapes import Dims, TensorShape
from anabranch.core.sizes import check_countable
from anabranch.graph.building import define_op
from anabranch.graph.constants import ShapeContext
from anabranch.graph.operation import Operation, Tensor
from anabranch.ops import raw, shape_rules
from anabranch.ops.arrays.filling import zero_of
from anabranch.ops.arrays.layout import int_list

Pairs = list[tuple[int, int]]
#: of rows and columns
_TWO_PAIRS = TensorShape([2, 2])


def _pairs(paddings: Array) -> Pairs:
    """(before, after) per dimension, from a known [rank, 2] array; raises ValueError for another one."""
    shape_rules.with_rank(TensorShape(np.shape(paddings)), 2, "paddings").merge_with([None, 2])
    return [(int(before), int(after)) for before, after in np.asarray(paddings)]


def _check_padded(input: Array, pairs: Pairs) -> None:
    """Refuses a result that cannot be counted: the array libraries add sizes up in 64 bits."""
    if len(pairs) == len(np.shape(input)):
        check_countable([n + sum(pair) for n, pair in zip(np.shape(input), pairs, strict=True)], input.dtype.itemsize)


# ---------------------------------------------------------------------- padding
def _padded_shape(input: TensorShape, paddings: TensorShape, amounts: HostArray | None, sign: int = 1) -> TensorShape:
    rank = input.ndims if input.ndims is not None else shape_rules.with_rank(paddings, 2, "paddings")[0].value
    if rank is None:
        return TensorShape(None)
    if not paddings.is_compatible_with([rank, 2]):
        raise ValueError(
            f"The first dimension of paddings must be the rank of inputs, and the second 2: Shapes {paddings} and "
            f"({rank}, 2) are incompatible"
        )
    dims = input.with_rank(rank).dims_tuple or ()
    if amounts is None:
        return TensorShape([None] * rank)
    pairs = _pairs(amounts)
    if any(min(pair) < 0 for pair in pairs):
        raise ValueError(f"paddings must be non-negative, got {pairs}")
    return TensorShape([None if d is None else d + sign * sum(p) for d, p in zip(dims, pairs, strict=True)])


def _known_amounts(ctx: ShapeContext) -> HostArray | None:
    """The paddings where they are known; not negative ones of a branch that takes them from outside.

    That branch may be the one that is not taken; a step that takes it refuses them.
    """
    amounts = ctx.constant("paddings")
    is_refused = amounts is not None and amounts.size > 0 and amounts.min() < 0
    return None if is_refused and ctx.is_from_outside("paddings") else amounts


def _pad(input: Array, paddings: Array, value: Array, ctx: OperationContext, xp: ArrayLibrary) -> Any:
    pairs = _pairs(paddings)
    ctx.check(all(min(pair) >= 0 for pair in pairs), f"paddings must be non-negative, got {pairs}")
    _check_padded(input, pairs)
    return xp.pad(input, pairs, constant_values=value) if pairs else input


def _unpadded(op: Operation, grad: Tensor) -> Any:
    """The part of a padded tensor's gradient that belongs to the tensor itself."""
    source, paddings = op.inputs[:2]
    before = raw.StridedSlice(paddings, [0, 0], [0, 1], [1, 1], begin_mask=1, end_mask=1, shrink_axis_mask=2)
    return raw.Slice(grad, before, raw.Shape(source, out_type=paddings.dtype))


_PAD_ATTRS = "T: any, Tpaddings: {int32, int64} = int32"

Pad = define_op("Pad", "input: T, paddings: Tpaddings -> output: T", _PAD_ATTRS, static=("paddings",))


@Pad.shape
def _(input: TensorShape, paddings: TensorShape, *, ctx: ShapeContext) -> TensorShape:
    return _padded_shape(input, paddings, _known_amounts(ctx))


@Pad.kernel
def _(input: Array, paddings: Array, *, ctx: OperationContext, xp: ArrayLibrary) -> Any:
    return _pad(input, paddings, zero_of(input.dtype), ctx, xp)


@Pad.gradient
def _(op: Operation, grad: Tensor) -> Any:
    return _unpadded(op, grad), None


PadV2 = define_op(
    "PadV2",
    "input: T, paddings: Tpaddings, constant_values: T -> output: T",
    _PAD_ATTRS,
    static=("paddings",),
    late_ranks={"constant_values": 0},
)


@PadV2.shape
def _(input: TensorShape, paddings: TensorShape, constant_values: TensorShape, *, ctx: ShapeContext) -> TensorShape:
    return _padded_shape(input, paddings, _known_amounts(ctx))


@PadV2.kernel
def _(input: Array, paddings: Array, constant_values: Array, *, ctx: OperationContext, xp: ArrayLibrary) -> Any:
    value = constant_values[()] if xp is np else constant_values
    return _pad(input, paddings, value, ctx, xp)


@PadV2.gradient
def _(op: Operation, grad: Tensor) -> Any:
    inner = _unpadded(op, grad)
    axes = [raw.Range(0, raw.Rank(g), 1) for g in (grad, inner)]
    return inner, None, raw.Sub(raw.Sum(grad, axes[0]), raw.Sum(inner, axes[1]))


_MIRROR_ATTRS = f"{_PAD_ATTRS}, mode: {{'REFLECT', 'SYMMETRIC'}}"


def check_mirror(dims: Sequence[int | None], pairs: Pairs, mode: bytes) -> None:
    """Raises ValueError where there is less to mirror than the padding asks for."""
    edge = 1 if mode == b"REFLECT" else 0
    for axis, (dim, pair) in enumerate(zip(dims, pairs, strict=True)):
        if dim is not None and max(pair) > dim - edge:
            raise ValueError(f"paddings {pair} of dimension {axis} must be no greater than {dim - edge}")


MirrorPad = define_op("MirrorPad", "input: T, paddings: Tpaddings -> output: T", _MIRROR_ATTRS, static=("paddings",))


def mirrored_shape(input: TensorShape, paddings: TensorShape, amounts: HostArray | None, mode: bytes) -> TensorShape:
    """That of a tensor padded by its mirror image; `amounts`: the value of `paddings`, where it is known.

    Raises:
        ValueError: there is less to mirror than the padding asks for.
    """
    if amounts is not None and input.dims_tuple is not None and len(amounts) == len(input.dims_tuple):
        check_mirror(input.dims_tuple, _pairs(amounts), mode)
    return _padded_shape(input, paddings, amounts)


@MirrorPad.shape
def _(input: TensorShape, paddings: TensorShape, *, mode: bytes, ctx: ShapeContext) -> TensorShape:
    return mirrored_shape(input, paddings, ctx.constant("paddings"), mode)


@MirrorPad.kernel
def _(input: Array, paddings: Array, *, mode: bytes, xp: ArrayLibrary) -> Any:
    check_mirror(np.shape(input), _pairs(paddings), mode)
    if np.ndim(input) == 0:  # which NumPy does not mirror
        return input
    pairs = _pairs(paddings)
    _check_padded(input, pairs)
    return xp.pad(input, pairs, mode=mode.decode().lower())


@MirrorPad.gradient
def _(op: Operation, grad: Tensor) -> Any:
    return MirrorPadGrad(grad, op.inputs[1], mode=op.attrs["mode"]), None


MirrorPadGrad = define_op(
    "MirrorPadGrad", "input: T, paddings: Tpaddings -> output: T", _MIRROR_ATTRS, static=("paddings",)
)


@MirrorPadGrad.shape
def _(input: TensorShape, paddings: TensorShape, *, ctx: ShapeContext) -> TensorShape:
    return _padded_shape(input, paddings, ctx.constant("paddings"), sign=-1)


@MirrorPadGrad.kernel
def _(input: Array, paddings: Array, *, mode: bytes) -> Any:
    pairs = _pairs(paddings)
    if np.ndim(input) == 0:
        return input
    shape = tuple(d - sum(p) for d, p in zip(input.shape, pairs, strict=True))
    source: Any = jax.ShapeDtypeStruct(shape, input.dtype)  # type: ignore[no-untyped-call]
    transposed = jax.linear_transpose(lambda x: jnp.pad(x, pairs, mode=mode.decode().lower()), source)
    return transposed(input)[0]


@MirrorPadGrad.gradient
def _(op: Operation, grad: Tensor) -> Any:
    return MirrorPad(grad, op.inputs[1], mode=op.attrs["mode"]), None


# ---------------------------------------------------------------------- space and batch
def _blocks_shape(
    dims: Dims, count: int | None, blocks: list[int] | None, amounts: Pairs | None, to_batch: bool
) -> TensorShape:
    """The shape after moving blocks of space into the batch, or back."""
    if amounts is not None and any(min(pair) < 0 for pair in amounts):
        raise ValueError(f"{'paddings' if to_batch else 'crops'} cannot be negative, got {amounts}")
    if dims is None or count is None:
        return TensorShape(None if dims is None else [None] * len(dims))
    if len(dims) < count + 1:
        raise ValueError(
            f"the rank must be at least {count + 1} for {count} block sizes, got shape {TensorShape(dims)}"
        )
    if blocks is None:
        return TensorShape([*[None] * (count + 1), *dims[count + 1 :]])
    if min(blocks, default=1) < 1:
        raise ValueError(f"block sizes must be positive, got {blocks}")
    batch, total = dims[0], math.prod(map(int, blocks))
    if not to_batch and batch is not None and batch % total:
        raise ValueError(f"the batch size {batch} is no multiple of the {total} elements of a block")
    new_batch = None if batch is None else batch * total if to_batch else batch // total
    space: list[int | None] = [None] * count
    if amounts is not None:
        space = [_block_size(*entry, to_batch) for entry in zip(dims[1:], blocks, amounts, strict=False)]
    return TensorShape([new_batch, *space, *dims[count + 1 :]])


def _block_size(size: int | None, block: int, pair: tuple[int, int], to_batch: bool) -> int | None:
    if size is None:
        return None
    if not to_batch:
        if size * block < sum(pair):
            raise ValueError(f"crops {pair} exceed the size {size * block}")
        return size * block - sum(pair)
    if (size + sum(pair)) % block:
        raise ValueError(f"the padded size {size + sum(pair)} is no multiple of the block size {block}")
    return (size + sum(pair)) // block


def _space_to_batch(input: Array, blocks: list[int], pairs: Pairs, xp: ArrayLibrary) -> Any:
    count, shape = len(blocks), np.shape(input)
    result = _blocks_shape(shape, len(blocks), blocks, pairs, to_batch=True).dims_tuple
    whole = [(0, 0), *pairs, *[(0, 0)] * (len(shape) - count - 1)]
    _check_padded(input, whole)
    padded = xp.pad(input, whole, constant_values=zero_of(input.dtype))
    split = [n for d, b in zip(np.shape(padded)[1:], blocks, strict=False) for n in (d // b, b)]
    parts = xp.reshape(padded, (shape[0], *split, *shape[count + 1 :]))
    inner, outer = range(2, 2 * count + 1, 2), range(1, 2 * count + 1, 2)
    order = [*inner, 0, *outer, *range(2 * count + 1, len(np.shape(parts)))]
    return xp.reshape(xp.transpose(parts, order), result)


def _batch_to_space(input: Array, blocks: list[int], pairs: Pairs, xp: ArrayLibrary) -> Any:
    count, shape = len(blocks), np.shape(input)
    result = _blocks_shape(shape, len(blocks), blocks, pairs, to_batch=False).dims_tuple or ()
    parts = xp.reshape(input, (*blocks, shape[0] // math.prod(map(int, blocks)), *shape[1:]))
    space = [axis for i in range(count) for axis in (count + 1 + i, i)]
    parts = xp.transpose(parts, [count, *space, *range(2 * count + 1, len(np.shape(parts)))])
    grown = [d * b for d, b in zip(shape[1:], blocks, strict=False)]
    whole = xp.reshape(parts, (result[0], *grown, *shape[count + 1 :]))
    return whole[(slice(None), *(slice(p[0], d - p[1]) for d, p in zip(grown, pairs, strict=True)))]


SpaceToBatchND = define_op(
    "SpaceToBatchND",
    "input: T, block_shape: Tblock_shape, paddings: Tpaddings -> output: T",
    "T: any, Tblock_shape: {int32, int64} = int32, Tpaddings: {int32, int64} = int32",
    static=("block_shape", "paddings"),
    ranks={"block_shape": 1},
)


def _count(block_shape: TensorShape) -> int | None:
    """How many dimensions are divided into blocks, where that is known."""
    return None if block_shape.dims_tuple is None else block_shape.dims_tuple[0]


def _known_blocks(ctx: ShapeContext, amounts: str) -> tuple[Any, Any]:
    blocks, pairs = ctx.constant("block_shape"), ctx.constant(amounts)
    return None if blocks is None else int_list(blocks), None if pairs is None else _pairs(pairs)


@SpaceToBatchND.shape
def _(input: TensorShape, block_shape: TensorShape, paddings: TensorShape, *, ctx: ShapeContext) -> TensorShape:
    shape_rules.merged(paddings, TensorShape([_count(block_shape), 2]))
    return _blocks_shape(input.dims_tuple, _count(block_shape), *_known_blocks(ctx, "paddings"), to_batch=True)


@SpaceToBatchND.kernel
def _(input: Array, block_shape: Array, paddings: Array, *, xp: ArrayLibrary) -> Any:
    return _space_to_batch(input, int_list(block_shape), _pairs(paddings), xp)


@SpaceToBatchND.gradient
def _(op: Operation, grad: Tensor) -> Any:
    return BatchToSpaceND(grad, op.inputs[1], op.inputs[2]), None, None


BatchToSpaceND = define_op(
    "BatchToSpaceND",
    "input: T, block_shape: Tblock_shape, crops: Tcrops -> output: T",
    "T: any, Tblock_shape: {int32, int64} = int32, Tcrops: {int32, int64} = int32",
    static=("block_shape", "crops"),
    ranks={"block_shape": 1},
)


@BatchToSpaceND.shape
def _(input: TensorShape, block_shape: TensorShape, crops: TensorShape, *, ctx: ShapeContext) -> TensorShape:
    shape_rules.merged(crops, TensorShape([_count(block_shape), 2]))
    return _blocks_shape(input.dims_tuple, _count(block_shape), *_known_blocks(ctx, "crops"), to_batch=False)


@BatchToSpaceND.kernel
def _(input: Array, block_shape: Array, crops: Array, *, xp: ArrayLibrary) -> Any:
    return _batch_to_space(input, int_list(block_shape), _pairs(crops), xp)


@BatchToSpaceND.gradient
def _(op: Operation, grad: Tensor) -> Any:
    return SpaceToBatchND(grad, op.inputs[1], op.inputs[2]), None, None


SpaceToBatch = define_op(
    "SpaceToBatch",
    "input: T, paddings: Tpaddings -> output: T",
    "T: any, Tpaddings: {int32, int64} = int32, block_size: int >= 2",
    static=("paddings",),
)


@SpaceToBatch.shape
def _(input: TensorShape, paddings: TensorShape, *, block_size: int, ctx: ShapeContext) -> TensorShape:
    shape_rules.merged(paddings, _TWO_PAIRS)
    pairs = ctx.constant("paddings")
    dims = shape_rules.with_rank(input, 4, "argument 'input'").dims_tuple
    return _blocks_shape(dims, 2, [block_size] * 2, None if pairs is None else _pairs(pairs), to_batch=True)


@SpaceToBatch.kernel
def _(input: Array, paddings: Array, *, block_size: int, xp: ArrayLibrary) -> Any:
    return _space_to_batch(input, [block_size] * 2, _pairs(paddings), xp)


@SpaceToBatch.gradient
def _(op: Operation, grad: Tensor) -> Any:
    return BatchToSpace(grad, op.inputs[1], block_size=op.attrs["block_size"]), None


BatchToSpace = define_op(
    "BatchToSpace",
    "input: T, crops: Tidx -> output: T",
    "T: any, block_size: int >= 2, Tidx: {int32, int64} = int32",
    static=("crops",),
)


@BatchToSpace.shape
def _(input: TensorShape, crops: TensorShape, *, block_size: int, ctx: ShapeContext) -> TensorShape:
    shape_rules.merged(crops, _TWO_PAIRS)
    pairs = ctx.constant("crops")
    dims = shape_rules.with_rank(input, 4, "argument 'input'").dims_tuple
    return _blocks_shape(dims, 2, [block_size] * 2, None if pairs is None else _pairs(pairs), to_batch=False)


@BatchToSpace.kernel
def _(input: Array, crops: Array, *, block_size: int, xp: ArrayLibrary) -> Any:
    return _batch_to_space(input, [block_size] * 2, _pairs(crops), xp)


@BatchToSpace.gradient
def _(op: Operation, grad: Tensor) -> Any:
    return SpaceToBatch(grad, op.inputs[1], block_size=op.attrs["block_size"]), None


# ---------------------------------------------------------------------- space and depth
_DEPTH_ATTRS = "T: any, block_size: int >= 2, data_format: {'NHWC', 'NCHW', 'NCHW_VECT_C'} = 'NHWC'"


def _format(data_format: bytes) -> bool:
    """Whether channels come last; raises ValueError for the format that only quantised GPU kernels use."""
    if data_format == b"NCHW_VECT_C":
        raise ValueError("data_format NCHW_VECT_C exists for quantised tensors on GPUs only; use NHWC or NCHW")
    return data_format == b"NHWC"


def _depth_shape(input: TensorShape, block: int, data_format: bytes, to_depth: bool) -> TensorShape:
    last = _format(data_format)
    dims = shape_rules.with_rank(input, 4, "argument 'input'").dims_tuple or ()
    height, width, depth = (dims[1], dims[2], dims[3]) if last else (dims[2], dims[3], dims[1])
    if to_depth:
        height, width = (_quotient(n, block, "height and width") for n in (height, width))
        depth = None if depth is None else depth * block * block
    else:
        height, width = (None if n is None else n * block for n in (height, width))
        depth = _quotient(depth, block * block, "the depth")
    return TensorShape([dims[0], height, width, depth] if last else [dims[0], depth, height, width])


def _quotient(size: int | None, divisor: int, what: str) -> int | None:
    if size is None:
        return None
    if size % divisor:
        raise ValueError(f"{what} must be multiples of {divisor}, got {size}")
    return size // divisor


SpaceToDepth = define_op("SpaceToDepth", "input: T -> output: T", _DEPTH_ATTRS)


@SpaceToDepth.shape
def _(input: TensorShape, *, block_size: int, data_format: bytes) -> TensorShape:
    return _depth_shape(input, block_size, data_format, to_depth=True)


@SpaceToDepth.kernel
def _(input: Array, *, block_size: int, data_format: bytes, xp: ArrayLibrary) -> Any:
    result = _depth_shape(TensorShape(np.shape(input)), block_size, data_format, to_depth=True).dims_tuple
    if data_format == b"NHWC":
        n, h, w, c = np.shape(input)
        parts = xp.reshape(input, (n, h // block_size, block_size, w // block_size, block_size, c))
        return xp.reshape(xp.transpose(parts, (0, 1, 3, 2, 4, 5)), result)
    n, c, h, w = np.shape(input)
    parts = xp.reshape(input, (n, c, h // block_size, block_size, w // block_size, block_size))
    return xp.reshape(xp.transpose(parts, (0, 3, 5, 1, 2, 4)), result)


@SpaceToDepth.gradient
def _(op: Operation, grad: Tensor) -> Any:
    return DepthToSpace(grad, block_size=op.attrs["block_size"], data_format=op.attrs["data_format"])


DepthToSpace = define_op("DepthToSpace", "input: T -> output: T", _DEPTH_ATTRS)


@DepthToSpace.shape
def _(input: TensorShape, *, block_size: int, data_format: bytes) -> TensorShape:
    return _depth_shape(input, block_size, data_format, to_depth=False)


@DepthToSpace.kernel
def _(input: Array, *, block_size: int, data_format: bytes, xp: ArrayLibrary) -> Any:
    result = _depth_shape(TensorShape(np.shape(input)), block_size, data_format, to_depth=False).dims_tuple
    if data_format == b"NHWC":
        n, h, w, c = np.shape(input)
        parts = xp.reshape(input, (n, h, w, block_size, block_size, c // block_size**2))
        return xp.reshape(xp.transpose(parts, (0, 1, 3, 2, 4, 5)), result)
    n, c, h, w = np.shape(input)
    parts = xp.reshape(input, (n, block_size, block_size, c // block_size**2, h, w))
    return xp.reshape(xp.transpose(parts, (0, 3, 4, 1, 5, 2)), result)


@DepthToSpace.gradient
def _(op: Operation, grad: Tensor) -> Any:
    return SpaceToDepth(grad, block_size=op.attrs["block_size"], data_format=op.attrs["data_format"])
