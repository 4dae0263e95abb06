"""Neural network operations: biases, activations, ranking."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np
from jax import lax, numpy as jnp

from anabranch.core.arrays import Array, ArrayLibrary, HostArray
from anabranch.core.dtypes import DType
from anabranch.core.kernel_context import OperationContext
from anabranch.core.shapes import TensorShape
from anabranch.graph.building import OpFunction, define_op
from anabranch.graph.constants import ShapeContext
from anabranch.graph.operation import Operation, Tensor
from anabranch.ops import raw, shape_rules
from anabranch.ops.nn import host_halves, ordered_bits
from anabranch.ops.nn.sliding import wide


# ---------------------------------------------------------------------- bias
def _bias_axis(rank: int, data_format: bytes) -> int:
    return rank - 1 if data_format == b"NHWC" else 1


def _least_rank(data_format: bytes) -> int:
    """With the channels in the middle there is something behind them."""
    return 2 if data_format == b"NHWC" else 3


def bias_shape(value: TensorShape, bias: TensorShape, data_format: bytes) -> TensorShape:
    """The shape of a value to which a number for each channel is added."""
    value, bias = value.with_rank_at_least(_least_rank(data_format)), shape_rules.with_rank(bias, 1, "the bias")
    if value.dims_tuple is None:
        return value
    axis = _bias_axis(len(value.dims_tuple), data_format)
    dims = list(value.dims_tuple)
    if not bias[0].is_compatible_with(dims[axis]):
        raise ValueError(f"the bias has {bias[0]} elements, but the value has {dims[axis]} channels (axis {axis})")
    dims[axis] = bias[0].value if dims[axis] is None else dims[axis]
    return TensorShape(dims)


def add_bias(value: Array, bias: Array, data_format: bytes, xp: ArrayLibrary, ctx: OperationContext) -> Any:
    """A number for each channel added; NumPy may write over the operation's first input."""
    shape = [1] * value.ndim
    shape[_bias_axis(value.ndim, data_format)] = bias.shape[0]
    memory = ctx.memory(value.shape, value.dtype, 0) if xp is np else None
    bias = xp.reshape(bias, shape)
    return xp.add(value, bias) if memory is None else np.add(value, bias, out=memory)


BiasAdd = define_op("BiasAdd", "value: T, bias: T -> output: T", "T: numbers, data_format: {'NHWC', 'NCHW'} = 'NHWC'")


@BiasAdd.shape
def _(value: TensorShape, bias: TensorShape, *, data_format: bytes) -> TensorShape:
    return bias_shape(value, bias, data_format)


@BiasAdd.kernel
def _(value: Array, bias: Array, *, data_format: bytes, xp: ArrayLibrary, ctx: OperationContext) -> Any:
    return add_bias(value, bias, data_format, xp, ctx)


@BiasAdd.gradient
def _(op: Operation, grad: Tensor) -> Any:
    return grad, BiasAddGrad(grad, data_format=op.attrs["data_format"])


BiasAddV1 = define_op("BiasAddV1", "value: T, bias: T -> output: T", "T: numbers")


@BiasAddV1.shape
def _(value: TensorShape, bias: TensorShape) -> TensorShape:
    return bias_shape(value, bias, b"NHWC")


@BiasAddV1.kernel
def _(value: Array, bias: Array, *, xp: ArrayLibrary, ctx: OperationContext) -> Any:
    return add_bias(value, bias, b"NHWC", xp, ctx)


@BiasAddV1.gradient
def _(op: Operation, grad: Tensor) -> Any:
    return grad, BiasAddGrad(grad)


#: the types of which many rows are added up by blocks, and how many rows have a block
_SUMMED_BY_ROWS: Final = (np.float32, np.float64)
_ROWS_OF_BLOCK: Final = 1024

BiasAddGrad = define_op(
    "BiasAddGrad", "out_backprop: T -> output: T", "T: numbers, data_format: {'NHWC', 'NCHW'} = 'NHWC'"
)


@BiasAddGrad.shape
def _(out_backprop: TensorShape, *, data_format: bytes) -> TensorShape:
    known = out_backprop.with_rank_at_least(_least_rank(data_format)).dims_tuple
    return TensorShape([None if known is None else known[_bias_axis(len(known), data_format)]])


def _sum_of_rows(rows: HostArray) -> HostArray:
    """Many rows of a few columns added up, in blocks, so that long sums stay exact.

    `einsum` takes half as long as `sum`. A product with ones would take a third, and leave threads of its library
    behind that look out for more work for a tenth of a second, which convolutions beside them would lose.
    """
    count = len(rows) // _ROWS_OF_BLOCK
    whole = count * _ROWS_OF_BLOCK
    rest: HostArray = np.einsum("rc->c", rows[whole:])
    blocks = rows[:whole].reshape(count, _ROWS_OF_BLOCK, rows.shape[1])
    return np.add.reduce(np.einsum("brc->bc", blocks), axis=0) + rest if count else rest


@BiasAddGrad.kernel
def _(out_backprop: Array, *, data_format: bytes, xp: ArrayLibrary) -> Any:
    kept = _bias_axis(out_backprop.ndim, data_format)
    axes = tuple(a for a in range(out_backprop.ndim) if a != kept)
    if xp is np and axes == tuple(range(kept)) and out_backprop.dtype in _SUMMED_BY_ROWS:
        return _sum_of_rows(np.reshape(out_backprop, (math.prod(out_backprop.shape[:-1]), out_backprop.shape[-1])))
    return xp.sum(wide(out_backprop), axis=axes).astype(out_backprop.dtype)


@BiasAddGrad.gradient
def _(op: Operation, grad: Tensor) -> Any:
    return BiasAdd(raw.ZerosLike(op.inputs[0]), grad, data_format=op.attrs["data_format"])


# ---------------------------------------------------------------------- activations
#: (xp, constant, x) -> y; constant(number) is a scalar of x's dtype (NumPy would widen bfloat16 for a plain float).
Elementwise = Callable[..., Any]
SELU_SCALE = 1.0507009873554804934193349852946
SELU_SCALE_ALPHA = 1.7580993408473768599402175208123


def _activation(name: str, function: Elementwise, types: str, gradient: Callable[..., Any]) -> OpFunction:
    op = define_op(name, "features: T -> activations: T", f"T: {types}")
    op.shape(shape_rules.same_as_first)
    op.kernel(lambda features, *, xp: function(xp, features.dtype.type, features))
    op.gradient(gradient)
    return op


def _activation_grad(
    name: str, function: Elementwise, types: str, gradient: Callable[..., Any], of: str = "features"
) -> OpFunction:
    """(gradients, the activation's input or output) -> gradients with respect to the activation's input."""
    op = define_op(name, f"gradients: T, {of}: T -> backprops: T", f"T: {types}")
    op.shape(shape_rules.merged)

    def kernel(gradients: Array, known: Array, *, xp: ArrayLibrary) -> Any:
        return function(xp, gradients.dtype.type, gradients, known)

    op.kernel(kernel)
    op.gradient(gradient)
    return op


def _zero_where_flat(op: Operation, grad: Tensor) -> tuple[Tensor, Tensor]:
    """For gradients that are piecewise linear: linear in the incoming gradient, and flat in the activation."""
    return getattr(raw, op.type)(grad, op.inputs[1], **_alpha(op)), raw.ZerosLike(op.inputs[1])


def _alpha(op: Operation) -> dict[str, Any]:
    return {"alpha": op.attrs["alpha"]} if "alpha" in op.attrs else {}


def _through_negative_part(op: Operation, grad: Tensor) -> tuple[Tensor, Tensor]:
    """For elu and selu: in the negative part the slope is the output plus a constant."""
    incoming, outputs = op.inputs
    zeros = raw.ZerosLike(outputs)
    return getattr(raw, op.type)(grad, outputs), raw.Select(raw.Less(outputs, zeros), raw.Mul(grad, incoming), zeros)


Relu = define_op("Relu", "features: T -> activations: T", "T: real")
Relu.shape(shape_rules.same_as_first)
Relu.gradient(lambda op, grad: raw.ReluGrad(grad, op.outputs[0]))


@Relu.kernel
def _(features: Array, *, xp: ArrayLibrary, ctx: OperationContext) -> Any:
    return positive_part(features, xp, ctx)


def positive_part(features: Array, xp: ArrayLibrary, ctx: OperationContext) -> Any:
    """What is positive, and what is no number, elsewhere zero; NumPy may write over the operation's first input."""
    if xp is not np:
        return xp.maximum(features, features.dtype.type(0))
    memory = ctx.memory(features.shape, features.dtype, 0)
    if host_halves.is_worthwhile(features):
        return host_halves.positive_part(features, memory)
    return np.maximum(features, features.dtype.type(0), out=memory)


def _where_not_flat(xp: ArrayLibrary, gradients: Array, steep: Array, memory: HostArray | None = None) -> Any:
    """The gradients where an activation is the identity, elsewhere zero times the gradient.

    No plain zero: NaN there is seen, as in TensorFlow, wherever it stands.
    """
    if xp is np and gradients.dtype.kind != "V":
        # the same in one pass over the data instead of three
        return np.multiply(gradients, steep, out=memory)
    return xp.where(steep, gradients, gradients * gradients.dtype.type(0))


ReluGrad = define_op("ReluGrad", "gradients: T, features: T -> backprops: T", "T: real")
ReluGrad.shape(shape_rules.merged)
ReluGrad.gradient(_zero_where_flat)


@ReluGrad.kernel
def _(gradients: Array, features: Array, *, xp: ArrayLibrary, ctx: OperationContext) -> Any:
    return where_positive(xp, gradients, features, ctx, (0, 1))


def where_positive(
    xp: ArrayLibrary, gradients: Array, features: Array, ctx: OperationContext, reused: Sequence[int]
) -> Any:
    """The gradients where the features are positive; elsewhere zero times the gradient, so that NaN there is seen.

    Args:
        reused: where both stand among the operation's inputs; NumPy may write over them if nobody else reads them.
    """
    memory = None
    alike = np.shape(gradients) == np.shape(features) and gradients.dtype == features.dtype
    if xp is not np and alike and ordered_bits.has_16_bits(gradients):
        return ordered_bits.where_positive(gradients, features)
    if xp is np and alike:
        memory = ctx.memory(gradients.shape, gradients.dtype, *reused)
        if host_halves.is_worthwhile(gradients, features):
            return host_halves.where_positive(gradients, features, memory)
    return _where_not_flat(xp, gradients, features > features.dtype.type(0), memory)


Relu6 = _activation(
    "Relu6", lambda xp, c, x: xp.clip(x, c(0), c(6)), "real", lambda op, grad: raw.Relu6Grad(grad, op.outputs[0])
)
Relu6Grad = _activation_grad(
    "Relu6Grad", lambda xp, c, g, x: _where_not_flat(xp, g, (x > c(0)) & (x < c(6))), "real", _zero_where_flat
)
Elu = _activation(
    "Elu",
    lambda xp, c, x: xp.where(x < c(0), xp.expm1(xp.minimum(x, c(0))), x),
    "floating",
    lambda op, grad: raw.EluGrad(grad, op.outputs[0]),
)
EluGrad = _activation_grad(
    "EluGrad", lambda xp, c, g, y: xp.where(y < c(0), g * (y + c(1)), g), "floating", _through_negative_part, "outputs"
)
Selu = _activation(
    "Selu",
    lambda xp, c, x: xp.where(x < c(0), c(SELU_SCALE_ALPHA) * xp.expm1(xp.minimum(x, c(0))), c(SELU_SCALE) * x),
    "floating",
    lambda op, grad: raw.SeluGrad(grad, op.outputs[0]),
)
SeluGrad = _activation_grad(
    "SeluGrad",
    lambda xp, c, g, y: xp.where(y < c(0), g * (y + c(SELU_SCALE_ALPHA)), g * c(SELU_SCALE)),
    "floating",
    _through_negative_part,
    "outputs",
)


def _softplus(xp: ArrayLibrary, c: Array, x: Array) -> Any:
    """log(1 + exp(x)), as max(x, 0) + log1p(exp(-|x|)), which cannot overflow."""
    return xp.maximum(x, c(0)) + xp.log1p(xp.exp(-xp.abs(x)))


def _softplus_grad_gradient(op: Operation, grad: Tensor) -> tuple[Tensor, Tensor]:
    incoming, x = op.inputs
    slope = raw.Sigmoid(x)
    curvature = raw.Mul(slope, raw.Sigmoid(raw.Neg(x)))
    return SoftplusGrad(grad, x), raw.Mul(raw.Mul(grad, incoming), curvature)


def _softsign_grad_gradient(op: Operation, grad: Tensor) -> tuple[Tensor, Tensor]:
    """The second derivative of x / (1 + |x|) is -2 sign(x) / (1 + |x|)^3."""
    incoming, x = op.inputs
    one = raw.OnesLike(x)
    inverse = raw.Div(one, raw.Add(one, raw.Abs(x)))
    curvature = raw.Mul(raw.Mul(raw.Sign(x), raw.Square(inverse)), raw.Neg(raw.Add(inverse, inverse)))
    return SoftsignGrad(grad, x), raw.Mul(raw.Mul(grad, incoming), curvature)


Softplus = _activation("Softplus", _softplus, "floating", lambda op, grad: raw.SoftplusGrad(grad, op.inputs[0]))
SoftplusGrad = _activation_grad(
    "SoftplusGrad", lambda xp, c, g, x: g / (c(1) + xp.exp(-x)), "floating", _softplus_grad_gradient
)
Softsign = _activation(
    "Softsign",
    lambda xp, c, x: x / (c(1) + xp.abs(x)),
    "floating",
    lambda op, grad: raw.SoftsignGrad(grad, op.inputs[0]),
)
SoftsignGrad = _activation_grad(
    "SoftsignGrad", lambda xp, c, g, x: g / xp.square(c(1) + xp.abs(x)), "floating", _softsign_grad_gradient
)

LeakyRelu = define_op("LeakyRelu", "features: T -> activations: T", "alpha: float = 0.2, T: floating = float32")
LeakyRelu.shape(shape_rules.same_as_first)


@LeakyRelu.kernel
def _(features: Array, *, alpha: float, xp: ArrayLibrary) -> Any:
    c = features.dtype.type
    return xp.where(features > c(0), features, c(alpha) * features)


@LeakyRelu.gradient
def _(op: Operation, grad: Tensor) -> Any:
    return LeakyReluGrad(grad, op.inputs[0], alpha=op.attrs["alpha"])


LeakyReluGrad = define_op(
    "LeakyReluGrad", "gradients: T, features: T -> backprops: T", "alpha: float = 0.2, T: floating = float32"
)
LeakyReluGrad.shape(shape_rules.merged)
LeakyReluGrad.gradient(_zero_where_flat)


@LeakyReluGrad.kernel
def _(gradients: Array, features: Array, *, alpha: float, xp: ArrayLibrary) -> Any:
    c = features.dtype.type
    return xp.where(features > c(0), gradients, c(alpha) * gradients)


# ---------------------------------------------------------------------- a loss
L2Loss = define_op("L2Loss", "t: T -> output: T", "T: floating")
L2Loss.shape(shape_rules.scalar)


@L2Loss.kernel
def _(t: Array, *, xp: ArrayLibrary) -> Any:
    x = wide(t)
    return (xp.sum(x * x) / x.dtype.type(2)).astype(t.dtype)


@L2Loss.gradient
def _(op: Operation, grad: Tensor) -> Any:
    return raw.Mul(op.inputs[0], grad)


# ---------------------------------------------------------------------- ranking
def _top_k_shape(shape: TensorShape, k: int | None) -> tuple[TensorShape, TensorShape]:
    shape = shape.with_rank_at_least(1)
    if shape.dims_tuple is None:
        return shape, shape
    last = shape.dims_tuple[-1]
    if k is not None and last is not None and last < k:
        raise ValueError(f"input must have last dimension >= k = {k} but is {last}")
    result = TensorShape([*shape.dims_tuple[:-1], k])
    return result, result


def _top_k(input: Array, k: int, xp: ArrayLibrary) -> tuple[Any, Any]:
    """The k largest of each row; of equals, among which are both zeros, the first."""
    if xp is np:
        # the order of the last from the last is that of the first from the first: a stable sort keeps equals in order
        rising = np.argsort(input[..., ::-1], axis=-1, kind="stable")
        chosen = input.shape[-1] - 1 - rising[..., ::-1][..., :k]
        return np.take_along_axis(input, chosen, axis=-1), chosen
    if np.dtype(input.dtype).kind in "iu":
        values, indices = lax.top_k(input, k)
        return values, indices
    _, indices = lax.top_k(jnp.where(input == 0, jnp.zeros_like(input), input), k)
    return jnp.take_along_axis(jnp.asarray(input), indices, axis=-1), indices


def _last_length(x: Tensor) -> Any:
    """The length of the last axis, as a scalar tensor unless it is known."""
    if x.shape.dims_tuple is not None and x.shape.dims_tuple[-1] is not None:
        return np.int32(x.shape.dims_tuple[-1])
    return raw.GatherV2(raw.Shape(x), raw.Sub(raw.Rank(x), np.int32(1)), np.int32(0))


def _top_k_gradient(op: Operation, grad: Tensor, _: Tensor | None = None) -> list[Tensor | None]:
    """Each row's gradients go to the places its largest elements came from."""
    x, chosen = op.inputs[0], raw.Cast(op.outputs[1], DstT=np.int32)
    length, zero, minus_one = _last_length(x), np.int32(0), np.array([-1], np.int32)
    outer = raw.Slice(raw.Shape(x), np.array([0], np.int32), raw.Pack([raw.Sub(raw.Rank(x), np.int32(1))]))
    row_count = raw.Prod(outer, zero)
    rows = raw.Reshape(chosen, raw.Pack([row_count, _last_length(chosen)]))
    row_starts = raw.Mul(raw.Range(zero, row_count, np.int32(1)), length)
    places = raw.Reshape(raw.Add(rows, raw.ExpandDims(row_starts, minus_one[0])), np.array([-1, 1], np.int32))
    flat = raw.ScatterNd(places, raw.Reshape(grad, minus_one), raw.Pack([raw.Size(x)]))
    return [raw.Reshape(flat, raw.Shape(x)), *([None] * (len(op.inputs) - 1))]


TopK = define_op("TopK", "input: T -> values: T, indices: int32", "k: int >= 0, sorted: bool = True, T: real")
TopK.gradient(_top_k_gradient)


@TopK.shape
def _(input: TensorShape, *, k: int) -> tuple[TensorShape, TensorShape]:
    return _top_k_shape(input, k)


@TopK.kernel
def _(input: Array, *, k: int, xp: ArrayLibrary) -> Any:
    values, indices = _top_k(input, k, xp)
    return values, indices.astype(np.int32)


TopKV2 = define_op(
    "TopKV2",
    "input: T, k: Tk -> values: T, indices: index_type",
    "sorted: bool = True, T: real, Tk: {int16, int32, int64} = int32, index_type: {int16, int32, int64} = int32",
    static=("k",),
    late_ranks={"k": 0},
)
TopKV2.gradient(_top_k_gradient)


@TopKV2.shape
def _(input: TensorShape, k: TensorShape, *, ctx: ShapeContext) -> tuple[TensorShape, TensorShape]:
    known = ctx.constant("k")
    if known is not None and known < 0:
        raise ValueError(f"k must be >= 0, got {known}")
    return _top_k_shape(input, None if known is None else int(known))


@TopKV2.kernel
def _(input: Array, k: Array, *, index_type: DType, ctx: OperationContext, xp: ArrayLibrary) -> Any:
    count = int(k)
    ctx.check(count >= 0, f"Need k >= 0, got {count}")
    ctx.check(count <= input.shape[-1], f"input must have at least k = {count} columns, got {input.shape[-1]}")
    values, indices = _top_k(input, max(0, min(count, input.shape[-1])), xp)
    return values, indices.astype(index_type.as_numpy_dtype)


def _in_top_k(predictions: Array, targets: Array, k: Array, xp: ArrayLibrary) -> Any:
    """Whether fewer than k classes are strictly more probable; false for a bad target or a row that is not finite."""
    classes = predictions.shape[1]
    if classes == 0:
        return xp.zeros(np.shape(targets), bool)
    valid = (targets >= 0) & (targets < classes)
    place = xp.where(valid, targets, xp.zeros_like(targets))
    own = xp.take_along_axis(predictions, xp.expand_dims(place, 1), axis=1)
    better = xp.sum((predictions > own).astype(np.int32), axis=1)
    return valid & xp.all(xp.isfinite(predictions), axis=1) & (better < k)


def _in_top_k_shape(predictions: TensorShape, targets: TensorShape) -> TensorShape:
    predictions = shape_rules.with_rank(predictions, 2, "predictions")
    return shape_rules.with_rank(targets, 1, "targets").merge_with(predictions[:1])


InTopK = define_op("InTopK", "predictions: float32, targets: T -> precision: bool", "k: int, T: index = int32")
InTopK.shape(_in_top_k_shape)
InTopK.not_differentiable()


@InTopK.kernel
def _(predictions: Array, targets: Array, *, k: int, xp: ArrayLibrary) -> Any:
    return _in_top_k(predictions, targets, k, xp)


InTopKV2 = define_op(
    "InTopKV2", "predictions: float32, targets: T, k: T -> precision: bool", "T: index = int32", late_ranks={"k": 0}
)
InTopKV2.not_differentiable()


@InTopKV2.shape
def _(predictions: TensorShape, targets: TensorShape, k: TensorShape) -> TensorShape:
    return _in_top_k_shape(predictions, targets)


@InTopKV2.kernel
def _(predictions: Array, targets: Array, k: Array, *, xp: ArrayLibrary) -> Any:
    return _in_top_k(predictions, targets, k, xp)


NthElement = define_op(
    "NthElement", "input: T, n: int32 -> values: T", "reverse: bool = False, T: real", late_ranks={"n": 0}
)


@NthElement.shape
def _(input: TensorShape, n: TensorShape, *, ctx: ShapeContext) -> TensorShape:
    input, place = input.with_rank_at_least(1), ctx.constant("n")
    if input.ndims is not None and place is not None and np.ndim(place) == 0:
        size = input[-1].value
        if place < 0 or (size is not None and place >= size):
            raise ValueError(f"Input must have last dimension > n = {place} but is {size}")
    return input[:-1]


@NthElement.kernel
def _(input: Array, n: Array, *, reverse: bool, ctx: OperationContext, xp: ArrayLibrary) -> Any:
    size = input.shape[-1]
    ctx.check((n >= 0) & (n < size), f"n must be in [0, {size}), got {{0}}", n)
    place = xp.clip(size - 1 - n if reverse else n, 0, size - 1)
    return xp.take(xp.sort(input, axis=-1), place, axis=-1)


@NthElement.gradient
def _(op: Operation, grad: Tensor) -> Any:
    """Elements that tie for the n-th place share its gradient."""
    x = op.inputs[0]
    chosen = raw.Cast(raw.Equal(raw.ExpandDims(op.outputs[0], np.int32(-1)), x), DstT=grad.dtype)
    share = raw.Div(raw.ExpandDims(grad, np.int32(-1)), raw.Sum(chosen, np.int32(-1), keep_dims=True))
    return raw.Mul(chosen, share), None
