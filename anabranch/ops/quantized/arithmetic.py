"""Products, sums and activations of quantised tensors: integers of 8 bits in, sums of 32 bits out."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from anabranch.core.arrays import Array, HostArray
from anabranch.core.dtypes import DType, qint8, quint8
from anabranch.core.kernel_context import OperationContext
from anabranch.core.shapes import TensorShape
from anabranch.errors import InvalidArgumentError
from anabranch.graph.building import OpFunction, define_op
from anabranch.ops import shape_rules
from anabranch.ops.arithmetic.matmul import MatMul
from anabranch.ops.quantized import products, steps

_T = steps.TYPES

# ---------------------------------------------------------------------- products of matrices
QuantizedMatMul = define_op(
    "QuantizedMatMul",
    "a: T1, b: T2, min_a: float, max_a: float, min_b: float, max_b: float -> "
    "out: Toutput, min_out: float, max_out: float",
    f"T1: {_T}, T2: {_T}, Toutput: {_T} = qint32, transpose_a: bool = False, transpose_b: bool = False, "
    f"Tactivation: {_T} = quint8",
    ranks={"min_a": 0, "max_a": 0, "min_b": 0, "max_b": 0},
    static=("min_a", "max_a", "min_b", "max_b"),
    takes_quantised=True,
)
QuantizedMatMul.not_differentiable()


def matrix_product_shape(a: TensorShape, b: TensorShape, transpose_a: bool, transpose_b: bool) -> TensorShape:
    """That of a product of matrices.

    Raises:
        ValueError: they do not fit.
    """
    rule = MatMul.shape_rule
    assert rule is not None
    shape: TensorShape = rule.function(a, b, transpose_a=transpose_a, transpose_b=transpose_b)
    return shape


@QuantizedMatMul.shape
def _(a: TensorShape, b: TensorShape, *_: TensorShape, transpose_a: bool, transpose_b: bool) -> list[TensorShape]:
    return steps.with_scalars(matrix_product_shape(a, b, transpose_a, transpose_b))


def check_matrices(a: Array, b: Array, ctx: OperationContext) -> None:
    """Raises InvalidArgumentError unless two matrices, turned as they are multiplied, fit."""
    if a.ndim != 2 or b.ndim != 2 or a.shape[1] != b.shape[0]:
        raise InvalidArgumentError(
            None, ctx.op, f"Matrix size-incompatible: {a.shape} by {b.shape}; transpose_a and transpose_b turn a matrix"
        )


def check_bytes(ctx: OperationContext, *types: DType) -> None:
    """Raises InvalidArgumentError where the factors of a product are not of 8 bits."""
    for dtype in types:
        if dtype not in (qint8, quint8):
            raise InvalidArgumentError(
                None,
                ctx.op,
                f"factors must be qint8 or quint8, got {dtype.name}; tf.raw_ops.Requantize makes bytes of 32 bits",
            )


@QuantizedMatMul.host_kernel
def _(
    a: Array,
    b: Array,
    min_a: Array,
    max_a: Array,
    min_b: Array,
    max_b: Array,
    *,
    T1: DType,
    T2: DType,
    Toutput: DType,
    transpose_a: bool,
    transpose_b: bool,
    ctx: OperationContext,
) -> Any:
    ranges = _checked_factors(min_a, max_a, min_b, max_b, ctx)
    x, y = steps.from_zero(a, *ranges[0]), steps.from_zero(b, *ranges[1])
    x, y = x.T if transpose_a else x, y.T if transpose_b else y
    check_matrices(x, y, ctx)
    return steps.saturated(wide_product(x, y), Toutput), *steps.product_range(*ranges, Toutput)


def _checked_factors(
    min_a: Array, max_a: Array, min_b: Array, max_b: Array, ctx: OperationContext
) -> tuple[steps.Range, steps.Range]:
    """The ranges of the factors of a `QuantizedMatMul`, which are of bytes."""
    T1, T2 = ctx.op.attrs["T1"], ctx.op.attrs["T2"]
    check_bytes(ctx, T1, T2)
    steps.check_range(float(min_a), float(max_a), "a", ctx)
    steps.check_range(float(min_b), float(max_b), "b", ctx)
    return (float(min_a), float(max_a), T1), (float(min_b), float(max_b), T2)


def compiled_matrix_product(multiply: products.Multiply) -> Callable[..., Any]:
    """A compiled kernel of `QuantizedMatMul` that multiplies bytes so."""

    def kernel(
        a: Array, b: Array, min_a: Array, max_a: Array, min_b: Array, max_b: Array, *, ctx: OperationContext
    ) -> Any:
        ranges = _checked_factors(min_a, max_a, min_b, max_b, ctx)
        attrs = ctx.op.attrs
        x, y = a.T if attrs["transpose_a"] else a, b.T if attrs["transpose_b"] else b
        check_matrices(x, y, ctx)
        one, other = (products.Bytes(v, steps.zero_of(*ends)) for v, ends in zip((x, y), ranges, strict=True))
        total = multiply(one, other, ctx.op.name)
        return steps.saturated(total, attrs["Toutput"]), *steps.product_range(*ranges, attrs["Toutput"])

    return kernel


QuantizedMatMul.kernel(compiled_matrix_product(products.product))
QuantizedMatMul.early_outputs(steps.product_ends("T1", "T2", "Toutput"))


def wide_product(x: HostArray, y: HostArray) -> HostArray:
    """The matrix product of integers as int32; zero may be far outside a range, which makes them large."""
    if all(v.min(initial=0) >= -255 and v.max(initial=0) <= 255 for v in (x, y)):
        return steps.product_of(x, y)
    return steps.wrapped(x.astype(np.int64) @ y.astype(np.int64))


# ---------------------------------------------------------------------- sums and products of elements
def _elementwise(name: str) -> OpFunction:
    op = define_op(
        name,
        "x: T1, y: T2, min_x: float, max_x: float, min_y: float, max_y: float -> "
        "z: Toutput, min_z: float, max_z: float",
        f"T1: {_T}, T2: {_T}, Toutput: {_T} = qint32",
        ranks={"min_x": 0, "max_x": 0, "min_y": 0, "max_y": 0},
    )
    op.not_differentiable()

    @op.shape
    def _(x: TensorShape, y: TensorShape, *_: TensorShape) -> list[TensorShape]:
        return steps.with_scalars(shape_rules.broadcast(x, y))

    return op


def _check_operands(x: Array, y: Array, ranges: tuple[float, float, float, float], ctx: OperationContext) -> None:
    steps.check_range(*ranges[:2], "x", ctx)
    steps.check_range(*ranges[2:], "y", ctx)
    try:
        np.broadcast_shapes(x.shape, y.shape)
    except ValueError:
        raise InvalidArgumentError(None, ctx.op, f"Incompatible shapes: {x.shape} vs. {y.shape}") from None


QuantizedAdd = _elementwise("QuantizedAdd")


@QuantizedAdd.host_kernel
def _(
    x: Array,
    y: Array,
    min_x: Array,
    max_x: Array,
    min_y: Array,
    max_y: Array,
    *,
    T1: DType,
    T2: DType,
    Toutput: DType,
    ctx: OperationContext,
) -> Any:
    ranges = float(min_x), float(max_x), float(min_y), float(max_y)
    _check_operands(x, y, ranges, ctx)
    largest = max(abs(min(ranges[0], ranges[2])), abs(max(ranges[1], ranges[3])))
    most = np.float32(largest * (1 << 14))
    # A single number is moved with its own rounding, whole tensors by multiples of the first step.
    a = _in_wide_range(x, ranges[:2], T1, float(most), Toutput, by_step=x.size != 1)
    b = _in_wide_range(y, ranges[2:], T2, float(most), Toutput, by_step=y.size != 1 or x.size == 1)
    return steps.quantised(a + b, Toutput), -most, most


def _in_wide_range(x: Array, ends: tuple[float, float], dtype: DType, most: float, wide: DType, by_step: bool) -> Any:
    """The same floats as steps of the range from -most to most: int64."""
    integers = steps.integers_of(x).astype(np.int64)
    if by_step:
        zero, one = (int(steps.steps_of(steps.floats_of(i, *ends, dtype), -most, most, wide)) for i in (0, 1))
        moved = zero + integers * (one - zero)
    else:
        moved = steps.steps_of(steps.floats_of(integers, *ends, dtype), -most, most, wide)
    return np.clip(moved, *steps.limits(wide))


QuantizedMul = _elementwise("QuantizedMul")


@QuantizedMul.host_kernel
def _(
    x: Array,
    y: Array,
    min_x: Array,
    max_x: Array,
    min_y: Array,
    max_y: Array,
    *,
    T1: DType,
    T2: DType,
    Toutput: DType,
    ctx: OperationContext,
) -> Any:
    ranges = float(min_x), float(max_x), float(min_y), float(max_y)
    _check_operands(x, y, ranges, ctx)
    product = steps.from_zero(x, *ranges[:2], T1).astype(np.int64) * steps.from_zero(y, *ranges[2:], T2)
    least, most = steps.product_range((*ranges[:2], T1), (*ranges[2:], T2), Toutput)
    return steps.quantised(product, Toutput), least, most


QuantizedBiasAdd = define_op(
    "QuantizedBiasAdd",
    "input: T1, bias: T2, min_input: float, max_input: float, min_bias: float, max_bias: float -> "
    "output: out_type, min_out: float, max_out: float",
    f"T1: {_T}, T2: {_T}, out_type: {_T}",
    ranks={"bias": 1, "min_input": 0, "max_input": 0, "min_bias": 0, "max_bias": 0},
    static=("min_input", "max_input", "min_bias", "max_bias"),
    takes_quantised=True,
)
QuantizedBiasAdd.not_differentiable()


@QuantizedBiasAdd.shape
def _(input: TensorShape, bias: TensorShape, *_: TensorShape) -> list[TensorShape]:
    input = input.with_rank_at_least(2)
    if input.ndims is None:
        return steps.with_scalars(input)
    channels = shape_rules.merged(input[-1:], bias)
    return steps.with_scalars(input[:-1].concatenate(channels))


@QuantizedBiasAdd.early_outputs
def _(attrs: Mapping[str, Any], inputs: Sequence[Any]) -> Mapping[int, Any]:
    if any(end is None for end in inputs[2:]):
        return {}
    most = _widest(*map(float, inputs[2:]))
    return {1: np.asarray(-most), 2: np.asarray(most)}


def _widest(min_input: float, max_input: float, min_bias: float, max_bias: float) -> Any:
    """The upper end of the range of a sum with a bias: many times the larger of both."""
    return np.float32(max(max_input, -min_input, max_bias, -min_bias) * (1 << 17))


@steps.everywhere(QuantizedBiasAdd)
def _(
    input: Array,
    bias: Array,
    min_input: Array,
    max_input: Array,
    min_bias: Array,
    max_bias: Array,
    *,
    T1: DType,
    T2: DType,
    out_type: DType,
    ctx: OperationContext,
) -> Any:
    if input.ndim < 2 or bias.shape != input.shape[-1:]:
        raise InvalidArgumentError(
            None,
            ctx.op,
            f"Must provide as many biases as the last dimension of the input tensor: {bias.shape} vs. {input.shape}",
        )
    ranges = float(min_input), float(max_input), float(min_bias), float(max_bias)
    most = _widest(*ranges)
    wide = -most, most, out_type
    x = steps.moved(steps.integers_of(input), (*ranges[:2], T1), wide)
    b = steps.moved(steps.integers_of(bias), (*ranges[2:], T2), wide)
    zero = steps.step_of(0.0, float(-most), float(most), out_type)
    # sums wrap around, in 32 bits or later
    total = x + (b + zero).astype(x.dtype)
    return steps.quantised(total, out_type), -most, most


# ---------------------------------------------------------------------- activations
def _rectified(name: str, given: str = "") -> OpFunction:
    op = define_op(
        name,
        f"features: Tinput, {given}min_features: float, max_features: float -> "
        "activations: out_type, min_activations: float, max_activations: float",
        f"Tinput: {_T}, out_type: {_T} = quint8",
        ranks={**({"max_value": 0} if given else {}), "min_features": 0, "max_features": 0},
        static=(*(("max_value",) if given else ()), "min_features", "max_features"),
        takes_quantised=True,
    )
    op.not_differentiable()
    first = 2 if given else 1
    op.early_outputs(steps.passed_on({1: first, 2: first + 1}))

    @op.shape
    def _(features: TensorShape, *_: TensorShape) -> list[TensorShape]:
        return steps.with_scalars(features)

    return op


def _between(x: Array, least: Array, most: Array, dtype: DType, ceiling: float | None) -> Any:
    """The steps not below that of zero, nor above that of the ceiling; the range stays."""
    low = steps.step_of(0.0, float(least), float(most), dtype)
    high = None if ceiling is None else steps.step_of(ceiling, float(least), float(most), dtype)
    integers = steps.integers_of(x)
    library = steps.library_of(integers)
    integers = library.maximum(integers, low)
    return steps.quantised(integers if high is None else library.minimum(integers, high), dtype), least, most


QuantizedRelu = _rectified("QuantizedRelu")


@steps.everywhere(QuantizedRelu)
def _(
    features: Array,
    min_features: Array,
    max_features: Array,
    *,
    Tinput: DType,
    out_type: DType,
    ctx: OperationContext,
) -> Any:
    steps.same_type(Tinput, out_type, ctx)
    return _between(features, min_features, max_features, Tinput, None)


QuantizedRelu6 = _rectified("QuantizedRelu6")


@steps.everywhere(QuantizedRelu6)
def _(
    features: Array,
    min_features: Array,
    max_features: Array,
    *,
    Tinput: DType,
    out_type: DType,
    ctx: OperationContext,
) -> Any:
    steps.same_type(Tinput, out_type, ctx)
    return _between(features, min_features, max_features, Tinput, 6.0)


QuantizedReluX = _rectified("QuantizedReluX", "max_value: float, ")


@steps.everywhere(QuantizedReluX)
def _(
    features: Array,
    max_value: Array,
    min_features: Array,
    max_features: Array,
    *,
    Tinput: DType,
    out_type: DType,
    ctx: OperationContext,
) -> Any:
    steps.same_type(Tinput, out_type, ctx)
    return _between(features, min_features, max_features, Tinput, float(max_value))
