"""Slices: `Slice`, `StridedSlice` with its five masks, their gradients, and assignment to a slice of a variable.

Where a slice begins may be computed on the device, as long as its size does not depend on it: `x[i]` with a computed
`i` is one executable for all `i`. So is `x[i:i + 20]` after `set_shape` has promised that it has 20 elements, which the
step checks. Which inputs have to be known is decided per operation (`OpDef.static_when`).
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

import jax.numpy as jnp
import numpy as np
from jax import lax

from anabranch.core.arrays import Array, ArrayLibrary, HostArray
from anabranch.core.resources import ResourceHandle
from anabranch.core.shapes import Dims, TensorShape
from anabranch.graph.building import define_op
from anabranch.graph.constants import ShapeContext, constant_value, partial_vector
from anabranch.graph.kernel_contexts import GraphContext, StepHostContext
from anabranch.graph.operation import Operation, Tensor
from anabranch.graph.step_nodes import AnyOperation, AnyTensor, StepNode
from anabranch.ops import raw, shape_rules
from anabranch.ops.arrays.layout import int_list
from anabranch.ops.arrays.slice_pieces import MASK_NAMES, SlicePiece, index_of, pieces_of

_BOUNDS = ("begin", "end", "strides")
#: tensors of fewer dimensions than this are those of nearly all programs
_USUAL_RANKS: Final = 8
_STRIDED_ATTRS = "T: any, Index: {int32, int64}, " + ", ".join(f"{name}: int = 0" for name in MASK_NAMES)


def _elements(value: Array, tensor: AnyTensor) -> list[Any]:
    """The elements of an index vector: Python ints where they are known, else traced scalars."""
    if isinstance(value, np.ndarray):
        return list(int_list(value))
    known = partial_vector(tensor) or [None] * value.shape[0]
    return [value[i] if element is None else element for i, element in enumerate(known)]


def _one_type(starts: list[Any]) -> list[Any]:
    """Starts of one integer type, as XLA wants them."""
    return [lax.convert_element_type(start, np.int64) for start in starts]


# ---------------------------------------------------------------------- Slice
Slice = define_op(
    "Slice",
    "input: T, begin: Index, size: Index -> output: T",
    "T: any, Index: {int32, int64}",
    static=("begin", "size"),
    ranks={"begin": 1, "size": 1},
    rank_words=dict.fromkeys(("begin", "size"), "Expected begin and size arguments to be 1-D tensors"),
)


@Slice.static_when
def _(op: Operation) -> frozenset[int]:
    begin, size = partial_vector(op.inputs[1]), partial_vector(op.inputs[2])
    if begin is None or size is None:
        return frozenset((1, 2))
    reaches_end = any(b is None and s in (None, -1) for b, s in zip(begin, size, strict=True))
    return frozenset((1, 2)) if reaches_end else frozenset((2,))


@Slice.shape
def _(input: TensorShape, begin: TensorShape, size: TensorShape, *, ctx: ShapeContext) -> TensorShape:
    rank = next((r for r in (input.ndims, begin.num_elements(), size.num_elements()) if r is not None), None)
    if rank is None:
        return TensorShape(None)
    dims = input.with_rank(rank).dims_tuple or ()
    starts = partial_vector(ctx.tensor("begin")) or [None] * rank
    sizes = partial_vector(ctx.tensor("size")) or [None] * rank
    if len(starts) != rank or len(sizes) != rank:
        raise ValueError(f"begin has {len(starts)} and size {len(sizes)} elements for a tensor of rank {rank}")
    return TensorShape([_slice_length(*entry) for entry in zip(dims, starts, sizes, strict=True)])


def _slice_length(dim: int | None, start: int | None, size: int | None) -> int | None:
    if size != -1:
        return size
    if dim is None or start is None:
        return None
    if start > dim:
        raise ValueError(f"a slice from {start} to the end does not lie within a dimension of size {dim}")
    # the kernel refuses a negative start, and what ends too late, as in TensorFlow: it may never run
    return dim - max(start, 0)


@Slice.kernel
def _(input: Array, begin: Array, size: Array, *, ctx: GraphContext, xp: ArrayLibrary) -> Any:
    dims = np.shape(input)
    starts = _elements(begin, ctx.op.inputs[1])
    sizes = [d - b if s == -1 else s for d, b, s in zip(dims, starts, int_list(size), strict=True)]
    for i, (dim, start, length) in enumerate(zip(dims, starts, sizes, strict=True)):
        fits = (length >= 0) & (start >= 0) & (start + length <= dim)
        ctx.check(fits, f"slice [{{0}}, {{0}} + {length}) does not lie within dimension {i} of size {dim}", start)
    if all(isinstance(start, int) for start in starts):
        return input[tuple(slice(b, b + n) for b, n in zip(starts, sizes, strict=True))]
    return lax.dynamic_slice(input, _one_type(starts), sizes)


@Slice.gradient
def _(op: Operation, grad: Tensor) -> Any:
    source, begin, _ = op.inputs
    if None in (partial_vector(begin) or [None]):
        return raw.XlaDynamicUpdateSlice(raw.ZerosLike(source), grad, begin), None, None
    whole, part = raw.ShapeN([source, grad], out_type=begin.dtype)
    after = raw.Sub(raw.Sub(whole, part), begin)
    return raw.Pad(grad, raw.Pack([begin, after], axis=1)), None, None


XlaDynamicUpdateSlice = define_op(
    "XlaDynamicUpdateSlice",
    "input: T, update: T, indices: Tindices -> output: T",
    "T: any, Tindices: {int32, int64}",
)
XlaDynamicUpdateSlice.shape(shape_rules.same_as_first)


@XlaDynamicUpdateSlice.kernel
def _(input: Array, update: Array, indices: Array) -> Any:
    return lax.dynamic_update_slice(input, update, list(indices))


@XlaDynamicUpdateSlice.gradient
def _(op: Operation, grad: Tensor) -> Any:
    _, update, indices = op.inputs
    rest = XlaDynamicUpdateSlice(grad, raw.ZerosLike(update), indices)
    return rest, Slice(grad, indices, raw.Shape(update, out_type=indices.dtype)), None


# ---------------------------------------------------------------------- what a strided slice takes
def _range_of(piece: SlicePiece, begin: Array, end: Array, stride: int, dim: int, masks: dict[str, int]) -> range:
    """The positions that a range piece takes from a dimension of size `dim`."""
    if stride == 0:
        raise ValueError(f"strides[{piece.entry}] must be non-zero")
    start = None if masks["begin_mask"] >> piece.entry & 1 else begin
    stop = None if masks["end_mask"] >> piece.entry & 1 else end
    return range(*slice(start, stop, stride).indices(dim))


def _strided_shape(dims: Dims, bounds: list[list[int | None] | None], masks: dict[str, int]) -> TensorShape:
    """The shape of a strided slice, as far as what is known of begin, end and strides tells it."""
    entries = next((len(b) for b in bounds if b is not None), None)
    if dims is None or entries is None:
        return TensorShape(None)
    begin, end, strides = (b or [None] * entries for b in bounds)
    lengths: list[int | None] = []
    for piece in pieces_of(len(dims), entries, masks):
        dim = None if piece.axis < 0 else dims[piece.axis]
        if piece.kind == "new":
            lengths.append(1)
        elif piece.kind == "all":
            lengths.append(dim)
        elif piece.kind == "index":
            _check_index(piece, begin[piece.entry], strides[piece.entry], dim)
        else:
            entry = begin[piece.entry], end[piece.entry], strides[piece.entry]
            needed = [
                masks["begin_mask"] >> piece.entry & 1 or entry[0],
                masks["end_mask"] >> piece.entry & 1 or entry[1],
            ]
            unknown = dim is None or entry[2] is None or any(n is None for n in needed)
            lengths.append(None if unknown else len(_range_of(piece, *entry, dim, masks)))  # type: ignore[arg-type]
    return TensorShape(lengths)


def _check_index(piece: SlicePiece, index: int | None, stride: int | None, dim: int | None) -> None:
    if stride is not None and stride <= 0:
        raise ValueError("only stride 1 allowed on non-range indexing")
    if index is not None and dim is not None and not -dim <= index < dim:
        raise ValueError(f"slice index {index} of dimension {piece.axis} out of bounds: its size is {dim}")


def _static_bounds(op: Operation) -> frozenset[int]:
    """Begin and end must be known where the length of a range depends on them; strides always.

    The length does not where the static shape of the slice says it, for steps of one element.
    """
    begin, end, strides = (partial_vector(t) for t in op.inputs[1:4])
    everything = frozenset((1, 2, 3))
    if begin is None or end is None or strides is None or not len(begin) == len(end) == len(strides):
        return everything
    masks = {name: op.attrs[name] for name in MASK_NAMES}
    promised = _promised_lengths(op, len(begin), masks)
    for i in range(len(begin)):
        if strides[i] == 1 and promised.get(i) is not None:
            continue
        if (masks["ellipsis_mask"] | masks["new_axis_mask"] | masks["shrink_axis_mask"]) >> i & 1:
            continue
        begins = masks["begin_mask"] >> i & 1 or begin[i] is not None
        ends = masks["end_mask"] >> i & 1 or end[i] is not None
        if not (begins and ends):
            return everything
    return frozenset((3,))


def _promised_lengths(op: AnyOperation, entries: int, masks: dict[str, int]) -> dict[int, int | None]:
    """The lengths of the ranges, by element of begin and end, as far as the static shape of the slice says them."""
    source, part = _whole_and_part(op)
    if source is None or part is None:
        return {}
    try:
        pieces = [piece for piece in pieces_of(source, entries, masks) if piece.kind != "index"]
    except ValueError:  # which the kernel says where it has the operation's name
        return {}
    if len(pieces) != len(part):  # a gradient of another rank, which the kernel refuses
        return {}
    return {piece.entry: length for piece, length in zip(pieces, part, strict=True) if piece.kind == "range"}


def _whole_and_part(op: AnyOperation) -> tuple[int | None, Dims]:
    """The rank of the tensor and the dimensions of the slice, as far as they are known."""
    if op.type == "StridedSlice":
        return op.inputs[0].shape.ndims, op.outputs[0].shape.dims_tuple
    if op.type == "StridedSliceGrad":
        return op.outputs[0].shape.ndims, op.inputs[4].shape.dims_tuple
    return None, None


@dataclass(slots=True)
class _Region:
    """The part of a tensor that a strided slice takes.

    Attributes:
        ranges: per dimension the positions taken; for a traced index or begin the whole dimension.
        traced: axis -> the traced index or begin there (in [0, dim] when the checks hold).
        lengths: axis -> how many elements are taken from the traced begin; 1 for an index.
        shape: of the slice: without the indexed dimensions, with the new ones.
    """

    ranges: list[range]
    traced: dict[int, Any] = field(default_factory=dict)
    lengths: dict[int, int] = field(default_factory=dict)
    shape: list[int] = field(default_factory=list)

    @property
    def sizes(self) -> list[int]:
        """The slice's size along each dimension of the tensor; 1 where it has an index."""
        return [self.lengths[axis] if axis in self.traced else len(r) for axis, r in enumerate(self.ranges)]


def _region(ctx: GraphContext, dims: tuple[int, ...], begin: Array, end: Array, strides: Array) -> _Region:
    masks = {name: ctx.op.attrs[name] for name in MASK_NAMES}
    starts, stops = _elements(begin, ctx.op.inputs[1]), _elements(end, ctx.op.inputs[2])
    steps = int_list(strides)
    region = _Region([range(d) for d in dims])
    for piece in pieces_of(len(dims), len(steps), masks):
        if piece.kind == "new":
            region.shape.append(1)
        elif piece.kind == "index":
            _take_index(region, piece, starts[piece.entry], steps[piece.entry], dims[piece.axis], ctx)
        else:
            if piece.kind == "range":
                entry = starts[piece.entry], stops[piece.entry], steps[piece.entry]
                _take_range(region, piece, *entry, dims[piece.axis], masks, ctx)
            region.shape.append(region.sizes[piece.axis])
    return region


def _take_range(
    region: _Region,
    piece: SlicePiece,
    begin: Array,
    end: Array,
    stride: int,
    dim: int,
    masks: dict[str, int],
    ctx: GraphContext,
) -> None:
    entries = ctx.op.inputs[1].shape.num_elements() or 0  # one at least, and known: the lists have been gone through
    # where the slice begins at an end of the dimension, or ends at one, nobody knows the number, and it does not matter
    begin = 0 if masks["begin_mask"] >> piece.entry & 1 else begin
    end = dim if masks["end_mask"] >> piece.entry & 1 else end
    if isinstance(begin, int) and isinstance(end, int):
        region.ranges[piece.axis] = _range_of(piece, begin, end, stride, dim, masks)
        return
    length = _promised_lengths(ctx.op, entries, masks)[piece.entry]
    first, last = (jnp.clip(jnp.where(v < 0, v + dim, v), 0, dim) for v in (jnp.asarray(begin), jnp.asarray(end)))
    message = f"slice [{{0}}, {{1}}) of dimension {piece.axis} does not have the {length} elements that its shape says"
    ctx.check(last - first == length, message, first, last)
    region.traced[piece.axis], region.lengths[piece.axis] = first, length or 0


def _take_index(region: _Region, piece: SlicePiece, index: Array, stride: int, dim: int, ctx: GraphContext) -> None:
    _check_index(piece, None, stride, dim)
    ctx.check(
        (index >= -dim) & (index < dim),
        f"slice index {{0}} of dimension {piece.axis} out of bounds: its size is {dim}",
        index,
    )
    if isinstance(index, int):
        region.ranges[piece.axis] = range(index % max(dim, 1), index % max(dim, 1) + 1)
    else:
        region.traced[piece.axis], region.lengths[piece.axis] = jnp.where(index < 0, index + dim, index), 1


def _as_slice(positions: range) -> slice:
    """The slice that takes these positions; a stop before the first element cannot be written as a number."""
    if not positions:  # the start of an empty range may lie before the first element, where it would count from the end
        return slice(0, 0)
    stop = None if positions.step < 0 and positions.stop < 0 else positions.stop
    return slice(positions.start, stop, positions.step)


# ---------------------------------------------------------------------- StridedSlice
StridedSlice = define_op(
    "StridedSlice",
    "input: T, begin: Index, end: Index, strides: Index -> output: T",
    _STRIDED_ATTRS.replace("{int32, int64}", "{int16, int32, int64}"),
    static=_BOUNDS,
    ranks=dict.fromkeys(_BOUNDS, 1),
)
StridedSlice.static_when(_static_bounds)


@StridedSlice.shape
def _(
    input: TensorShape,
    begin: TensorShape,
    end: TensorShape,
    strides: TensorShape,
    *,
    begin_mask: int,
    end_mask: int,
    ellipsis_mask: int,
    new_axis_mask: int,
    shrink_axis_mask: int,
    ctx: ShapeContext,
) -> TensorShape:
    shape_rules.merged(begin, end, strides)
    masks = dict(zip(MASK_NAMES, (begin_mask, end_mask, ellipsis_mask, new_axis_mask, shrink_axis_mask), strict=True))
    bounds = [partial_vector(ctx.tensor(name)) for name in ("begin", "end", "strides")]
    return _strided_shape(input.dims_tuple, bounds, masks)


@StridedSlice.partial_value
def _(tensor: AnyTensor, depth: int) -> list[int | None] | None:
    op = tensor.op
    source = partial_vector(op.inputs[0], depth) if op.inputs[0].shape.ndims == 1 else None
    bounds = [constant_value(t) for t in op.inputs[1:4]]
    if source is None or any(b is None or b.size != 1 for b in bounds):
        return None
    if op.attrs["ellipsis_mask"] or op.attrs["new_axis_mask"]:
        return None
    begin, end, stride = (int(b.reshape(-1)[0]) for b in bounds if b is not None)
    if op.attrs["shrink_axis_mask"]:
        return [source[begin]] if -len(source) <= begin < len(source) else None
    return source[slice(None if op.attrs["begin_mask"] else begin, None if op.attrs["end_mask"] else end, stride)]


@StridedSlice.kernel
def _(input: Array, begin: Array, end: Array, strides: Array, *, ctx: GraphContext, xp: ArrayLibrary) -> Any:
    if isinstance(input, np.ndarray) and all(isinstance(bound, np.ndarray) for bound in (begin, end, strides)):
        bounds = tuple(begin.tolist()), tuple(end.tolist()), tuple(strides.tolist())
        index = index_of(input.ndim, *bounds, *[ctx.op.attrs[name] for name in MASK_NAMES])
        # what it refuses, or NumPy, is refused below, where there are words for it
        with contextlib.suppress(IndexError):
            if index is not None:
                return input[index]
    region = _region(ctx, np.shape(input), begin, end, strides)
    part = xp.asarray(input)[tuple(_as_slice(r) for r in region.ranges)]
    for axis, index in region.traced.items():
        part = lax.dynamic_slice_in_dim(part, index, region.lengths[axis], axis)
    return xp.reshape(part, region.shape)


@StridedSlice.when_known
def _(op: StepNode) -> Callable[[HostArray], HostArray] | None:
    begin, end, strides = (tuple(np.asarray(t.known).reshape(-1).tolist()) for t in op.inputs[1:])
    if not len(begin) == len(end) == len(strides):
        return None
    masks = [op.attrs[name] for name in MASK_NAMES]
    index_by_rank = {rank: index_of(rank, begin, end, strides, *masks) for rank in range(_USUAL_RANKS)}

    def sliced(array: HostArray) -> HostArray:
        index = index_by_rank.get(array.ndim)
        if index is None:
            raise IndexError
        part: HostArray = array[index]
        return part

    return sliced


def _mask_attrs(op: Operation) -> dict[str, Any]:
    return {name: op.attrs[name] for name in MASK_NAMES}


@StridedSlice.gradient
def _(op: Operation, grad: Tensor) -> Any:
    source, begin, end, strides = op.inputs
    if begin.dtype.name == "int16":
        begin, end, strides = (raw.Cast(t, DstT="int32") for t in (begin, end, strides))
    shape = raw.Shape(source, out_type=begin.dtype)
    return StridedSliceGrad(shape, begin, end, strides, grad, **_mask_attrs(op)), None, None, None


StridedSliceGrad = define_op(
    "StridedSliceGrad",
    "shape: Index, begin: Index, end: Index, strides: Index, dy: T -> output: T",
    _STRIDED_ATTRS,
    static=("shape", *_BOUNDS),
    ranks={"shape": 1},
    late_ranks=dict.fromkeys(_BOUNDS, 1),
)


@StridedSliceGrad.static_when
def _(op: Operation) -> frozenset[int]:
    return _static_bounds(op) | {0}


@StridedSliceGrad.late_shape
def _(
    shape: TensorShape,
    begin: TensorShape,
    end: TensorShape,
    strides: TensorShape,
    dy: TensorShape,
    *,
    ctx: ShapeContext,
) -> TensorShape:
    shape_rules.merged(begin, end, strides)
    dims: TensorShape = ctx.constant_as_shape("shape")
    return dims


@StridedSliceGrad.kernel
def _(shape: Array, begin: Array, end: Array, strides: Array, dy: Array, *, ctx: GraphContext, xp: ArrayLibrary) -> Any:
    dims = tuple(int_list(shape))
    region = _region(ctx, dims, begin, end, strides)
    if list(np.shape(dy)) != region.shape:
        raise ValueError(f"the slice has shape {region.shape}, the gradient {list(np.shape(dy))}")
    if xp is np and not region.traced:
        grown = np.zeros(dims, dy.dtype)
        grown[tuple(map(_as_slice, region.ranges))] = np.reshape(dy, region.sizes)
        return grown
    part = jnp.reshape(dy, region.sizes)
    back = [axis for axis, r in enumerate(region.ranges) if r.step < 0]
    part = lax.rev(part, back) if back else part
    whole = lax.pad(part, jnp.zeros((), part.dtype), [_padding(region, axis, dims[axis]) for axis in range(len(dims))])
    if not region.traced:
        return whole
    starts = [region.traced.get(axis, 0) for axis in range(len(dims))]
    return lax.dynamic_update_slice(jnp.zeros(dims, whole.dtype), whole, _one_type(starts))


def _padding(region: _Region, axis: int, dim: int) -> tuple[int, int, int]:
    """Zeros before, after and between the slice's elements that bring them to their places in the dimension."""
    positions = region.ranges[axis]
    if axis in region.traced:
        return 0, 0, 0
    if not positions:
        return dim, 0, 0
    lowest, highest = min(positions[0], positions[-1]), max(positions[0], positions[-1])
    return lowest, dim - 1 - highest, abs(positions.step) - 1


@StridedSliceGrad.gradient
def _(op: Operation, grad: Tensor) -> Any:
    _, begin, end, strides, dy = op.inputs
    sliced = StridedSlice(grad, begin, end, strides, **_mask_attrs(op))
    # what does not fit is refused when the operation runs, and not where it stands on a branch that is never taken
    fits = sliced.shape.is_compatible_with(dy.shape)
    return None, None, None, None, sliced if fits else raw.ZerosLike(dy)


ResourceStridedSliceAssign = define_op(
    "ResourceStridedSliceAssign",
    "ref: resource, begin: Index, end: Index, strides: Index, value: T ->",
    _STRIDED_ATTRS,
    stateful=True,
    static=_BOUNDS,
    ranks=dict.fromkeys(_BOUNDS, 1),
    reads=("ref",),
    writes=("ref",),
)
ResourceStridedSliceAssign.static_when(_static_bounds)
ResourceStridedSliceAssign.shape(shape_rules.no_outputs)
ResourceStridedSliceAssign.not_differentiable()


@ResourceStridedSliceAssign.kernel
def _(ref: ResourceHandle, begin: Array, end: Array, strides: Array, value: Array, *, ctx: GraphContext) -> None:
    old = ctx.read(ref)
    region = _region(ctx, old.shape, begin, end, strides)
    ctx.write(ref, _with_part(old, region, _fitting(value, region, jnp)))


@ResourceStridedSliceAssign.host_kernel
def _(ref: ResourceHandle, begin: Array, end: Array, strides: Array, value: Array, *, ctx: StepHostContext) -> None:
    whole = np.array(ctx.read(ref))
    region = _region(ctx, whole.shape, begin, end, strides)
    part = np.reshape(_fitting(value, region, np), region.sizes)
    whole[np.ix_(*(np.array(positions, np.intp) for positions in region.ranges))] = part
    ctx.write(ref, whole)


def _fitting(value: Array, region: _Region, xp: ArrayLibrary) -> Any:
    """The value as large as the slice, as TensorFlow has it.

    A slice without elements takes none, whatever there are. A value of a higher rank fits where it has but one element
    along what comes first.
    """
    if 0 in region.shape:
        return xp.zeros(region.shape, value.dtype)
    shape = np.shape(value)
    more = max(0, len(shape) - len(region.shape))
    if more and set(shape[:more]) == {1}:
        value = xp.reshape(value, shape[more:])
    return xp.broadcast_to(value, region.shape)


def _with_part(whole: Array, region: _Region, part: Array) -> Any:
    """A tensor with another slice."""
    new = jnp.reshape(part, region.sizes)
    if all(r.step == 1 for r in region.ranges):
        starts = [region.traced.get(axis, r.start) for axis, r in enumerate(region.ranges)]
        return lax.dynamic_update_slice(whole, new, _one_type(starts))
    positions = [
        jnp.reshape(region.traced[axis], 1) if axis in region.traced else np.array(r, np.int64)
        for axis, r in enumerate(region.ranges)
    ]
    return jnp.asarray(whole).at[jnp.ix_(*positions)].set(new)


TensorStridedSliceUpdate = define_op(
    "TensorStridedSliceUpdate",
    "input: T, begin: Index, end: Index, strides: Index, value: T -> output: T",
    _STRIDED_ATTRS,
    static=_BOUNDS,
    late_ranks=dict.fromkeys(_BOUNDS, 1),
)
TensorStridedSliceUpdate.static_when(_static_bounds)


@TensorStridedSliceUpdate.late_shape
def _(
    input: TensorShape, begin: TensorShape, end: TensorShape, strides: TensorShape, value: TensorShape
) -> TensorShape:
    shape_rules.merged(begin, end, strides)
    return input


@TensorStridedSliceUpdate.kernel
def _(
    input: Array, begin: Array, end: Array, strides: Array, value: Array, *, ctx: GraphContext, xp: ArrayLibrary
) -> Any:
    region = _region(ctx, np.shape(input), begin, end, strides)
    if xp is np and not region.traced:
        changed = np.array(input)
        changed[tuple(map(_as_slice, region.ranges))] = _fitting(value, region, np).reshape(region.sizes)
        return changed
    return _with_part(jnp.asarray(input), region, _fitting(value, region, jnp))


@TensorStridedSliceUpdate.gradient
def _(op: Operation, grad: Tensor) -> Any:
    _, begin, end, strides, value = op.inputs
    mask = _mask_attrs(op)
    kept = raw.TensorStridedSliceUpdate(grad, begin, end, strides, raw.Cast(0, DstT=grad.dtype), **mask)
    part = StridedSlice(grad, begin, end, strides, **mask)
    if part.shape.num_elements() == 0:
        return kept, None, None, None, raw.ZerosLike(value)
    # where the value was broadcast, each of its elements has a part in several
    of_value, of_part = raw.Shape(value), raw.Shape(part)
    axes = raw.BroadcastGradientArgs(of_value, of_part)[0]
    spread = raw.Reshape(part, raw.BroadcastArgs(of_value, of_part))  # of the value's rank, where that is the higher
    return kept, None, None, None, raw.Reshape(raw.Sum(spread, axes), of_value)
