"""Constants, placeholders, identities, and operations on a tensor's shape."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from jax import lax, numpy as jnp

from anabranch.core.arrays import Array, ArrayLibrary
from anabranch.core.attrs import AttributeValue
from anabranch.core.dtypes import DType
from anabranch.core.kernel_context import KernelOperation, OperationContext
from anabranch.core.roles import Role
from anabranch.core.shapes import TensorShape, in_brackets
from anabranch.graph.building import define_op
from anabranch.graph.constants import ShapeContext
from anabranch.graph.operation import Operation, Tensor
from anabranch.graph.step_nodes import AnyTensor
from anabranch.ops import shape_rules

# ---------------------------------------------------------------------- constants and placeholders
Const = define_op("Const", "-> output: dtype", "value: tensor, dtype: any", role=Role.CONSTANT)
Const.not_differentiable()


@Const.shape
def _(*, value: AttributeValue) -> TensorShape:
    return TensorShape(value.shape)


@Const.kernel
def _(*, value: AttributeValue, xp: ArrayLibrary) -> Any:
    return value


def _proto_name(op: KernelOperation) -> str:
    """A dtype as TensorFlow's messages name it: after the C type."""
    name: str = op.attrs["dtype"].name
    return {"float32": "float", "float64": "double", "float16": "half"}.get(name, name)


def _placeholder(name: str, attrs: str) -> Any:
    op = define_op(name, "-> output: dtype", attrs, stateful=True, role=Role.PLACEHOLDER, unnoticed=True)

    @op.shape
    def _(*, shape: TensorShape) -> TensorShape:
        return shape

    @op.host_kernel
    def _(*, ctx: OperationContext) -> Any:
        ctx.check(
            False,
            f"You must feed a value for placeholder tensor {ctx.op.name!r} with dtype {_proto_name(ctx.op)} and shape "
            f"{in_brackets(ctx.op.attrs['shape'].dims_tuple)}; pass it in feed_dict",
        )

    return op.not_differentiable()


Placeholder = _placeholder("Placeholder", "dtype: any, shape: shape = unknown")
PlaceholderV2 = _placeholder("PlaceholderV2", "dtype: any, shape: shape")


PlaceholderWithDefault = define_op(
    "PlaceholderWithDefault",
    "input: dtype -> output: dtype",
    "dtype: any, shape: shape",
    knows_objects=True,
    takes_numpy=True,
)


@PlaceholderWithDefault.shape
def _(input: TensorShape, *, shape: TensorShape) -> TensorShape:
    input.assert_is_compatible_with(shape)
    return shape


# Not portable, although it could be: a value that may be fed must never be taken for a constant.
@PlaceholderWithDefault.kernel
def _(input: Array) -> Any:
    return input


@PlaceholderWithDefault.host_kernel
def _(input: Array) -> Any:
    return input


@PlaceholderWithDefault.gradient
def _(op: Operation, grad: Tensor) -> Any:
    return grad


# ---------------------------------------------------------------------- identities
def identity(
    name: str,
    gradient: Callable[..., Any] | None = lambda op, grad: grad,
    inputs: str = "input",
    outputs: str = "output",
) -> Any:
    """An operation that passes its input on."""
    op = define_op(name, f"{inputs}: T -> {outputs}: T", "T: any", knows_objects=True, passes_on=True)
    op.shape(shape_rules.same_as_first)

    @op.kernel
    def _(value: Array, *, xp: ArrayLibrary) -> Any:
        return value

    if gradient is None:
        return op.not_differentiable()
    op.gradient(gradient)
    return op


Identity = identity("Identity")
StopGradient = identity("StopGradient", gradient=None)
Snapshot = identity("Snapshot")
GuaranteeConst = identity("GuaranteeConst", gradient=None)


IdentityN = define_op("IdentityN", "input: T -> output: T", "T: list(any) >= 1", knows_objects=True, passes_on=True)


@IdentityN.shape
def _(input: list[TensorShape]) -> list[TensorShape]:
    return input


@IdentityN.kernel
def _(input: list[Any], *, xp: ArrayLibrary) -> Any:
    return input


@IdentityN.gradient
def _(op: Operation, *grads: Tensor | None) -> Any:
    return list(grads)


PreventGradient = define_op(
    "PreventGradient", "input: T -> output: T", "T: any, message: string = ''", knows_objects=True
)
PreventGradient.shape(shape_rules.same_as_first)


@PreventGradient.kernel
def _(input: Array, *, xp: ArrayLibrary) -> Any:
    return input


@PreventGradient.gradient
def _(op: Operation, grad: Tensor) -> Any:
    raise LookupError(
        f"Gradient explicitly disabled through {op.name!r} (created at {op.site}). Reason: "
        f"{op.attrs['message'].decode(errors='replace')}"
    )


EnsureShape = define_op("EnsureShape", "input: T -> output: T", "shape: shape, T: any")


@EnsureShape.shape
def _(input: TensorShape, *, shape: TensorShape, ctx: ShapeContext) -> TensorShape:
    if not input.is_compatible_with(shape):
        raise ValueError(
            f"Shape of tensor {ctx.tensor('input').op.name} {in_brackets(input.dims_tuple)} is not compatible with "
            f"expected shape {in_brackets(shape.dims_tuple)}."
        )
    return input.merge_with(shape)


@EnsureShape.kernel
def _(input: Array, *, xp: ArrayLibrary) -> Any:
    return input


@EnsureShape.gradient
def _(op: Operation, grad: Tensor) -> Any:
    return grad


NoOp = define_op("NoOp", "->", passes_on=True)
NoOp.shape(shape_rules.no_outputs)
NoOp.not_differentiable()


@NoOp.kernel
def _(*, xp: ArrayLibrary) -> None:
    return None


# ---------------------------------------------------------------------- shapes as values
_OUT_TYPE = "out_type: {int32, int64} = int32"

Shape = define_op("Shape", "input: T -> output: out_type", f"T: any, {_OUT_TYPE}", shape_valued=True)
Shape.not_differentiable()


@Shape.shape
def _(input: TensorShape) -> TensorShape:
    return TensorShape([input.ndims])


@Shape.partial_value
def _partial_shape(tensor: AnyTensor, depth: int) -> list[int | None] | None:
    dims = tensor.op.inputs[tensor.value_index].shape.dims_tuple
    return None if dims is None else list(dims)


@Shape.kernel
def _(input: Array, *, out_type: DType, xp: ArrayLibrary) -> Any:
    return np.array(np.shape(input), dtype=out_type.as_numpy_dtype)


ShapeN = define_op(
    "ShapeN", "input: N * T -> output: N * out_type", f"N: int >= 1, T: any, {_OUT_TYPE}", shape_valued=True
)
ShapeN.not_differentiable()
ShapeN.partial_value(_partial_shape)


@ShapeN.shape
def _(input: list[TensorShape]) -> list[TensorShape]:
    return [TensorShape([shape.ndims]) for shape in input]


@ShapeN.kernel
def _(input: list[Any], *, out_type: DType, xp: ArrayLibrary) -> Any:
    return [np.array(np.shape(value), dtype=out_type.as_numpy_dtype) for value in input]


Size = define_op("Size", "input: T -> output: out_type", f"T: any, {_OUT_TYPE}", shape_valued=True)
Size.shape(shape_rules.scalar)
Size.not_differentiable()


@Size.kernel
def _(input: Array, *, out_type: DType, xp: ArrayLibrary) -> Any:
    return np.array(np.prod(np.shape(input), dtype=np.int64), dtype=out_type.as_numpy_dtype)


Rank = define_op("Rank", "input: T -> output: int32", "T: any", shape_valued=True, rank_valued=True)
Rank.shape(shape_rules.scalar)
Rank.not_differentiable()


@Rank.kernel
def _(input: Array, *, xp: ArrayLibrary) -> Any:
    return np.array(len(np.shape(input)), np.int32)


# ---------------------------------------------------------------------- the same elements in another shape
Reshape = define_op(
    "Reshape",
    "tensor: T, shape: Tshape -> output: T",
    "T: any, Tshape: {int32, int64} = int32",
    static=("shape",),
    ranks={"shape": 1},
    rank_words={"shape": "sizes input must be 1-D"},
    sized_by={"shape": "sizes"},
    shaped_by="shape",
    exact=True,
)


@Reshape.shape
def _(tensor: TensorShape, shape: TensorShape, *, ctx: ShapeContext) -> TensorShape:
    target: TensorShape = ctx.constant_as_shape("shape")
    known = tensor.num_elements()
    dims = target.dims_tuple
    if dims is None or known is None or None not in dims:
        if dims is not None and known is not None and target.num_elements() not in (None, known):
            return _not_that_shape(f"Cannot reshape a tensor with {known} elements to shape {target}", dims, ctx)
        return target
    rest = math.prod(d for d in dims if d is not None)
    if dims.count(None) > 1:
        return target
    if rest == 0:
        if known:
            words = f"Cannot reshape a tensor with {known} elements to shape {target} (0 elements)"
            return _not_that_shape(words, dims, ctx)
        wanted = ctx.constant("shape")
        inputs = tuple(d for d in tensor.dims_tuple or () if d is not None)
        return target if wanted is None else TensorShape(_closed(inputs, 0, [int(d) for d in wanted]))
    if known % rest:
        words = f"Dimension size must be evenly divisible by {rest} but is {known}, to get shape {target}"
        return _not_that_shape(words, dims, ctx)
    return TensorShape([known // rest if d is None else d for d in dims])


def _not_that_shape(words: str, dims: tuple[int | None, ...], ctx: ShapeContext) -> TensorShape:
    """Refuses the shape, but in a branch that takes it from outside: the branch may be the one that is not taken."""
    if ctx.is_from_outside("shape"):
        return TensorShape([None] * len(dims))
    raise ValueError(words)


def _closed(shape: tuple[int, ...], size: int, wanted: list[int]) -> list[int]:
    """The sizes with what -1 stands for. Where nothing is wanted of nothing, the sizes that are not 0 are compared."""
    rest = [d for d in wanted if d != -1]
    if size == 0 and 0 in rest:
        count, fixed = (math.prod(d for d in sizes if d) for sizes in (shape, rest))
        return [count // fixed if d == -1 else d for d in wanted]
    fixed = math.prod(rest)
    return wanted if fixed == 0 or size % fixed else [size // fixed if d == -1 else d for d in wanted]


@Reshape.kernel
def _(tensor: Array, shape: Array, *, xp: ArrayLibrary, ctx: OperationContext) -> Any:
    wanted: list[int] = np.asarray(shape).tolist()
    if xp is np and isinstance(tensor, np.ndarray):
        if min(wanted, default=0) >= 0 and tensor.size == math.prod(wanted):
            return tensor.reshape(wanted)
        if wanted == [-1]:
            return tensor.reshape(-1)
    ctx.check(wanted.count(-1) < 2, f"only one size of the shape {wanted} may be -1")
    ctx.check(min(wanted, default=0) >= -1, f"the sizes of the shape {wanted} must be -1 or not negative")
    shape = tuple(np.shape(tensor))
    size = math.prod(shape)
    wanted = _closed(shape, size, wanted)
    fits = size == math.prod(wanted) and -1 not in wanted
    needed = "requires a multiple of" if -1 in wanted else "has"
    count = math.prod(d for d in wanted if d != -1)
    ctx.check(
        fits,
        f"Input to reshape is a tensor with {size} values, but the requested shape {needed} {count}: {list(shape)} "
        f"cannot take the shape {wanted}",
    )
    return xp.reshape(tensor, wanted)


@Reshape.gradient
def _(op: Operation, grad: Tensor) -> Any:
    return Reshape(grad, Shape(op.inputs[0])), None


ExpandDims = define_op(
    "ExpandDims",
    "input: T, dim: Tdim -> output: T",
    "T: any, Tdim: {int32, int64} = int32",
    static=("dim",),
    exact=True,
)


def _new_axis(dim: Array, rank: int) -> int:
    """Where a new dimension goes in a tensor of `rank`; raises ValueError outside [-rank - 1, rank]."""
    if np.size(dim) != 1:
        raise ValueError(f"'dim' must be a tensor with a single value, got {np.shape(dim)}")
    at = int(dim.item()) if isinstance(dim, np.ndarray) else int(np.reshape(dim, ()))
    if not -rank - 1 <= at <= rank:
        raise ValueError(f"dim {at} not in the interval [{-rank - 1}, {rank}] for a tensor of rank {rank}")
    return at % (rank + 1)


@ExpandDims.shape
def _(input: TensorShape, dim: TensorShape, *, ctx: ShapeContext) -> TensorShape:
    dims, value = input.dims_tuple, ctx.constant("dim")
    if dims is None or value is None:
        return TensorShape(None if dims is None else [None] * (len(dims) + 1))
    at = _new_axis(value, len(dims))
    return TensorShape([*dims[:at], 1, *dims[at:]])


@ExpandDims.kernel
def _(input: Array, dim: Array, *, xp: ArrayLibrary) -> Any:
    shape = np.shape(input)
    axis = _new_axis(dim, len(shape))
    if xp is np and isinstance(input, np.ndarray):
        return input.reshape((*shape[:axis], 1, *shape[axis:]))
    return xp.expand_dims(input, axis)


@ExpandDims.gradient
def _(op: Operation, grad: Tensor) -> Any:
    return Reshape(grad, Shape(op.inputs[0])), None


Squeeze = define_op("Squeeze", "input: T -> output: T", "T: any, squeeze_dims: list(int) >= 0 = []", exact=True)


def _squeezed_axes(dims: Sequence[int | None], squeeze_dims: list[int]) -> set[int]:
    """The axes to drop, in [0, rank); raises ValueError for one that is known not to have size 1."""
    rank = len(dims)
    for axis in squeeze_dims:
        if not -rank <= axis < rank:
            raise ValueError(f"squeeze dimension {axis} not in [{-rank}, {rank})")
    axes = {axis % rank for axis in squeeze_dims}
    for axis in axes:
        if dims[axis] not in (None, 1):
            raise ValueError(f"Can not squeeze dim[{axis}], expected a dimension of 1, got {dims[axis]}")
    return axes or {axis for axis in range(rank) if dims[axis] == 1}


@Squeeze.shape
def _(input: TensorShape, *, squeeze_dims: list[int]) -> TensorShape:
    dims = input.dims_tuple
    if dims is None or (not squeeze_dims and None in dims):
        return TensorShape(None)
    axes = _squeezed_axes(dims, squeeze_dims)
    return TensorShape([d for axis, d in enumerate(dims) if axis not in axes])


@Squeeze.kernel
def _(input: Array, *, squeeze_dims: list[int], xp: ArrayLibrary) -> Any:
    return xp.squeeze(input, axis=tuple(_squeezed_axes(np.shape(input), squeeze_dims)))


@Squeeze.gradient
def _(op: Operation, grad: Tensor) -> Any:
    return Reshape(grad, Shape(op.inputs[0]))


# ---------------------------------------------------------------------- reinterpretation
_BIT_TYPES = (
    "{bfloat16, half, float, double, int64, int32, uint8, uint16, uint32, uint64, int8, int16, complex64, complex128, "
    "qint8, quint8, qint16, quint16, qint32}"
)
Bitcast = define_op("Bitcast", "input: T -> output: type", f"T: {_BIT_TYPES}, type: {_BIT_TYPES}")
Bitcast.not_differentiable()


@Bitcast.shape
def _(input: TensorShape, *, type: DType, ctx: ShapeContext) -> TensorShape:
    source: Tensor = ctx.tensor("input")
    dims, old, new = input.dims_tuple, source.dtype.size, type.size
    if dims is None or old == new:
        return input
    if old > new:
        return TensorShape([*dims, old // new])
    if not dims or dims[-1] not in (None, new // old):
        raise ValueError(
            f"cannot bitcast {source.dtype.name} of shape {input} to {type.name}: "
            f"the last dimension must be {new // old}"
        )
    return TensorShape(dims[:-1])


@Bitcast.kernel
def _(input: Array, *, type: DType, xp: ArrayLibrary) -> Any:
    wanted = np.dtype(type.as_numpy_dtype)
    old, new = np.dtype(input.dtype).itemsize, wanted.itemsize
    shape = input.shape if old == new else (*input.shape, old // new) if old > new else input.shape[:-1]
    if xp is np:
        return np.frombuffer(np.ascontiguousarray(input).tobytes(), wanted).reshape(shape)
    if "c" in (wanted.kind, np.dtype(input.dtype).kind):
        return _bitcast_complex(input, wanted).reshape(shape)
    return lax.bitcast_convert_type(input, wanted)


def _bitcast_complex(input: Array, wanted: np.dtype[Any]) -> Any:
    """The elements in a row. XLA casts real numbers only, so complex ones are taken apart and put together."""
    row = input.reshape(-1)
    if np.dtype(input.dtype).kind == "c":
        row = jnp.stack([row.real, row.imag], axis=-1).reshape(-1)
    real = np.dtype(f"f{wanted.itemsize // 2}") if wanted.kind == "c" else wanted
    if real.itemsize > row.dtype.itemsize:
        row = row.reshape(-1, real.itemsize // row.dtype.itemsize)
    row = lax.bitcast_convert_type(row, real).reshape(-1)
    return lax.complex(row[::2], row[1::2]) if wanted.kind == "c" else row
