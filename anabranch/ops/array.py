"""Constants, placeholders, and operations on a tensor's shape and layout."""

from __future__ import annotations

from typing import Any

import numpy as np

from anabranch.core.shapes import TensorShape
from anabranch.graph.building import define_op
from anabranch.ops import shape_rules

Const = define_op("Const", "-> output: dtype", "value: tensor, dtype: any")
Const.not_differentiable()


@Const.shape
def _(*, value: Any) -> TensorShape:
    return TensorShape(value.shape)


@Const.kernel
def _(*, value: Any, xp: Any) -> Any:
    return value


Placeholder = define_op("Placeholder", "-> output: dtype", "dtype: any, shape: shape = unknown", stateful=True)
Placeholder.not_differentiable()


@Placeholder.shape
def _(*, shape: TensorShape) -> TensorShape:
    return shape


@Placeholder.host_kernel
def _(*, ctx: Any) -> Any:
    ctx.check(
        False,
        f"you must feed a value for placeholder {ctx.op.name!r} with dtype {ctx.op.attrs['dtype'].name} and shape "
        f"{ctx.op.attrs['shape']}; pass it in feed_dict",
    )


Identity = define_op("Identity", "input: T -> output: T", "T: any")
Identity.shape(shape_rules.same_as_first)


@Identity.kernel
def _(input: Any, *, xp: Any) -> Any:
    return input


@Identity.gradient
def _(op: Any, grad: Any) -> Any:
    return grad


NoOp = define_op("NoOp", "->")
NoOp.shape(shape_rules.no_outputs)
NoOp.not_differentiable()


@NoOp.kernel
def _(*, xp: Any) -> None:
    return None


Shape = define_op(
    "Shape", "input: T -> output: out_type", "T: any, out_type: {int32, int64} = int32", shape_valued=True
)
Shape.not_differentiable()


@Shape.shape
def _(input: TensorShape) -> TensorShape:
    return TensorShape([input.ndims])


@Shape.kernel
def _(input: Any, *, out_type: Any, xp: Any) -> Any:
    return np.array(np.shape(input), dtype=out_type.as_numpy_dtype)


Reshape = define_op(
    "Reshape", "tensor: T, shape: Tshape -> output: T", "T: any, Tshape: {int32, int64} = int32", static=("shape",)
)


@Reshape.shape
def _(tensor: TensorShape, shape: TensorShape, *, ctx: Any) -> TensorShape:
    target = ctx.constant_as_shape("shape")
    known = tensor.num_elements()
    dims = target.dims_tuple
    if dims is None or known is None or None not in dims:
        if dims is not None and known is not None and target.num_elements() not in (None, known):
            raise ValueError(f"cannot reshape a tensor with {known} elements to shape {target}")
        return target
    rest = int(np.prod([d for d in dims if d is not None], dtype=np.int64))
    if dims.count(None) > 1 or rest == 0:
        return target
    if known % rest:
        raise ValueError(f"cannot reshape a tensor with {known} elements to shape {target}: {known} is no multiple of {rest}")
    return TensorShape([known // rest if d is None else d for d in dims])


@Reshape.kernel
def _(tensor: Any, shape: Any, *, xp: Any, ctx: Any) -> Any:
    wanted = [int(d) for d in np.asarray(shape)]
    fixed = int(np.prod([d for d in wanted if d != -1], dtype=np.int64))
    size = int(np.prod(np.shape(tensor), dtype=np.int64))
    fits = size == fixed if -1 not in wanted else (fixed != 0 and size % fixed == 0)
    ctx.check(
        fits, f"input to reshape is a tensor of shape {tuple(np.shape(tensor))} with {size} values, which cannot take the "
        f"shape {wanted}",
    )
    return xp.reshape(tensor, wanted)


@Reshape.gradient
def _(op: Any, grad: Any) -> Any:
    return Reshape(grad, Shape(op.inputs[0])), None


Pack = define_op("Pack", "values: N * T -> output: T", "N: int >= 1, T: any, axis: int = 0")


@Pack.shape
def _(values: list[TensorShape], *, axis: int) -> TensorShape:
    shape = shape_rules.merged(*values)
    if shape.ndims is None:
        return shape
    if not -shape.ndims - 1 <= axis <= shape.ndims:
        raise ValueError(f"axis = {axis} not in [{-shape.ndims - 1}, {shape.ndims + 1})")
    at = axis % (shape.ndims + 1)
    dims = list(shape.dims_tuple or ())
    return TensorShape([*dims[:at], len(values), *dims[at:]])


@Pack.kernel
def _(values: list[Any], *, axis: int, xp: Any) -> Any:
    return xp.stack(values, axis=axis)


@Pack.gradient
def _(op: Any, grad: Any) -> Any:
    return list(Unpack(grad, num=op.attrs["N"], axis=op.attrs["axis"]))


Unpack = define_op("Unpack", "value: T -> output: num * T", "num: int >= 0, T: any, axis: int = 0")


@Unpack.shape
def _(value: TensorShape, *, num: int, axis: int) -> list[TensorShape]:
    dims = value.dims_tuple
    if dims is None:
        return [value] * num
    if not -len(dims) <= axis < len(dims):
        raise ValueError(f"axis = {axis} not in [{-len(dims)}, {len(dims)})")
    at = axis % len(dims)
    if dims[at] not in (None, num):
        raise ValueError(f"cannot unpack a dimension of size {dims[at]} into {num} tensors")
    return [TensorShape([*dims[:at], *dims[at + 1 :]])] * num


@Unpack.kernel
def _(value: Any, *, num: int, axis: int, xp: Any) -> Any:
    return [xp.take(value, i, axis=axis) for i in range(num)]


@Unpack.gradient
def _(op: Any, *grads: Any) -> Any:
    return Pack(list(grads), axis=op.attrs["axis"])
