"""Convolutions and matrix products together with what follows them: a bias, a sum, an activation, a smaller dtype.

TensorFlow computes these by oneDNN, and so these kernels follow it. Zero is the step 0 of both factors: unsigned steps
cover [0, largest], signed ones [-largest, largest], and where a range is not so, its larger end counts. What follows
the sum of products is computed in float32, and rounded once, to even.

`QuantizedMatMulWith...` takes an unsigned first factor whose range begins at its minimum, too (`MIN_FIRST`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from anabranch.core.arrays import Array
from anabranch.core.dtypes import DType, float32
from anabranch.core.kernel_context import OperationContext
from anabranch.core.op_def import OpDef
from anabranch.core.shapes import TensorShape
from anabranch.errors import InvalidArgumentError
from anabranch.graph.building import OpFunction, define_op
from anabranch.ops import shape_rules
from anabranch.ops.nn import windows
from anabranch.ops.quantized import products, steps
from anabranch.ops.quantized.arithmetic import check_bytes, check_matrices, matrix_product_shape
from anabranch.ops.quantized.nn import convolution_shape, convolved, convolved_per_channel

_T = steps.TYPES
_RANGES = "min_input: float, max_input: float, min_filter: float, max_filter: float"
_FROZEN = "min_freezed_output: float, max_freezed_output: float"
_CONV_ATTRS = "strides: list(int), padding: {'SAME', 'VALID'}, dilations: list(int) = [1, 1, 1, 1]"


#: the operations of this module -> what they do, and whether they convolve each channel alone
CONVOLUTIONS: Final[dict[str, tuple[Fusion, bool]]] = {}
MATRIX_PRODUCTS: Final[dict[str, Fusion]] = {}


@dataclass(frozen=True)
class Fusion:
    """What an operation does with a sum of products.

    Attributes:
        bias: whether a bias is added; `any_bias`: whether it may be quantised.
        relu: whether results below zero become zero.
        narrow: the dtype of 8 bits that results have if none is asked for; None: they have 32 bits.
        summand: what else is added: a float ("float"), or a quantised tensor with its range ("quantised").
    """

    bias: bool = False
    any_bias: bool = False
    relu: bool = False
    narrow: str | None = None
    summand: str | None = None


# ---------------------------------------------------------------------- what follows the sums
def _largest(least: Array, most: Array) -> Any:
    return np.maximum(np.abs(np.float32(least)), np.abs(np.float32(most)))


def _last(dtype: DType) -> Any:
    return np.float32(steps.limits(dtype)[1])


def _finished(
    total: Array, extras: Sequence[Any], scale: Array, fusion: Fusion, out_type: DType, summand: Array
) -> Any:
    """The results: sums and what is added to them, scaled, and a quantised summand, rounded to `out_type`."""
    if not extras and not fusion.relu and fusion.narrow is None:
        return steps.saturated(total, out_type)
    library = steps.library_of(total)
    numbers = total.astype(np.float32)
    for extra in extras:
        numbers = numbers + extra
    if fusion.narrow is not None:
        numbers = steps.rounded(numbers * scale)
    if summand is not None:
        numbers = numbers + summand
    if fusion.relu:
        numbers = library.maximum(numbers, np.float32(0))
    return steps.saturated(library.rint(numbers if library is not np else numbers.astype(np.float64)), out_type)


# ---------------------------------------------------------------------- convolutions
def _signature(fusion: Fusion, padded: bool) -> tuple[str, str]:
    """The inputs and outputs of a convolution, and its attributes."""
    attrs = [f"Tinput: {_T}, Tfilter: {_T}"]
    given = ["input: Tinput, filter: Tfilter"]
    if fusion.bias:
        given.append(f"bias: {'Tbias' if fusion.any_bias else 'float'}")
    if fusion.any_bias:
        attrs.append("Tbias: {float, qint32}")
    given.append(_RANGES)
    if fusion.narrow:
        given.append(_FROZEN)
    if fusion.summand == "quantised":
        given.append("summand: Tsummand, min_summand: float, max_summand: float")
        attrs.append(f"Tsummand: {_T}")
    elif fusion.summand:
        given.append("summand: float")
    attrs += [f"out_type: {_T} = {fusion.narrow or 'qint32'}", _CONV_ATTRS]
    if padded:
        attrs.append("padding_list: list(int) = []")
    return ", ".join(given) + " -> output: out_type, min_output: float, max_output: float", ", ".join(attrs)


def _convolution(name: str, fusion: Fusion, depthwise: bool = False, padded: bool = True) -> OpFunction:
    """A convolution of unsigned or signed bytes with a filter of signed ones, and what follows it.

    Args:
        padded: whether it has an attribute for paddings of any size.
    """
    signature, attrs = _signature(fusion, padded)
    op = define_op(
        name,
        signature,
        attrs,
        ranks={"input": 4, "filter": 4, "min_input": 0, "max_input": 0},
        static=re.findall(r"\bm(?:in|ax)_(?:input|filter|summand|freezed_output)\b", signature.partition("->")[0]),
        takes_quantised=True,
    )
    op.not_differentiable()
    ranges_at = 3 if fusion.bias else 2
    if fusion.narrow:
        op.early_outputs(steps.passed_on({1: ranges_at + 4, 2: ranges_at + 5}))

    def shape_of(shapes: Sequence[TensorShape], explicit: list[int], attrs: dict[str, Any]) -> list[TensorShape]:
        ends = shape_rules.SCALAR
        if fusion.narrow is None:
            ends = shape_rules.merged(*shapes[ranges_at + 2 : ranges_at + 4])
        data, filter = shapes[0], shapes[1]
        return [convolution_shape(data, filter, explicit=explicit, depthwise=depthwise, **attrs), ends, ends]

    (_attach_padded if padded else _attach_plain)(op, shape_of)

    op.host_kernel(compiled_convolution(op, fusion, depthwise))
    op.kernel(compiled_convolution(op, fusion, depthwise))
    CONVOLUTIONS[name] = fusion, depthwise
    return op


def compiled_convolution(
    op: OpDef, fusion: Fusion, depthwise: bool, convolve: products.Convolve = products.convolution
) -> Callable[..., Any]:
    """A kernel of one of these operations; in compiled programs it convolves bytes so."""

    def kernel(*inputs: Array, ctx: OperationContext) -> Any:
        values = dict(zip((arg.name for arg in op.inputs), inputs, strict=True))
        return _run_convolution(values, fusion, depthwise, ctx, convolve)

    return kernel


_ShapeOf = Callable[[Sequence[TensorShape], list[int], dict[str, Any]], list[TensorShape]]


def _attach_plain(op: OpFunction, shape_of: _ShapeOf) -> None:
    @op.shape
    def _(*shapes: TensorShape, strides: list[int], padding: bytes, dilations: list[int]) -> list[TensorShape]:
        return shape_of(shapes, [], {"strides": strides, "padding": padding, "dilations": dilations})


def _attach_padded(op: OpFunction, shape_of: _ShapeOf) -> None:
    @op.shape
    def _(
        *shapes: TensorShape, strides: list[int], padding: bytes, dilations: list[int], padding_list: list[int]
    ) -> list[TensorShape]:
        attrs = {"strides": strides, "padding": padding, "dilations": dilations}
        return shape_of(shapes, list(padding_list), attrs)


def _run_convolution(
    values: dict[str, Array], fusion: Fusion, depthwise: bool, ctx: OperationContext, convolve: products.Convolve
) -> Any:
    attrs = ctx.op.attrs
    types, out_type = (attrs["Tinput"], attrs["Tfilter"]), attrs["out_type"]
    check_bytes(ctx, *types)
    total = _sums(steps.integers_of(values["input"]), steps.integers_of(values["filter"]), depthwise, ctx, convolve)
    data = _largest(values["min_input"], values["max_input"])
    filter = np.atleast_1d(_largest(values["min_filter"], values["max_filter"]))
    if len(filter) not in (1, total.shape[-1]):
        raise InvalidArgumentError(
            None, ctx.op, f"the filter has {len(filter)} ranges, which must be 1 or {total.shape[-1]}, one per output"
        )
    per_unit = np.float32(float(_last(types[0]) * _last(types[1]))) / (data * filter)
    extras = []
    if fusion.bias:
        bias, quantised = values["bias"], attrs.get("Tbias", float32).is_quantized
        extras.append(steps.integers_of(bias).astype(np.float32) if quantised else steps.rounded(bias * per_unit))
    if fusion.summand == "float":
        extras.append(steps.rounded(values["summand"] * per_unit))
    if fusion.narrow is None:
        ends = _product_ends(values, types)
        return _finished(total, extras, None, fusion, out_type, None), *ends
    frozen = values["min_freezed_output"], values["max_freezed_output"]
    step = _last(out_type) / _largest(*frozen)
    summand = None
    if fusion.summand == "quantised":
        kind = attrs["Tsummand"]
        unit = _largest(values["min_summand"], values["max_summand"]) / _last(kind)
        summand = steps.rounded(steps.integers_of(values["summand"]).astype(np.float32) * (unit * step))
    return _finished(total, extras, step / per_unit, fusion, out_type, summand), *frozen


def _sums(x: Array, w: Array, depthwise: bool, ctx: OperationContext, convolve: products.Convolve) -> Any:
    window = window_of(x.shape, w.shape, ctx.op.attrs)
    if steps.library_of(x) is np:
        return convolved_per_channel(x, w, window) if depthwise else convolved(x, w, window)
    factors = products.Bytes(x), products.Bytes(w)
    if depthwise:
        return products.convolution_per_channel(*factors, window)
    return convolve(*factors, window, ctx.op.name)


def window_of(images: Sequence[int], filter: Sequence[int], attrs: Mapping[str, Any]) -> products.ByteWindow:
    """How a filter goes over images, of these shapes."""
    layout = windows.layout_of(b"NHWC")
    strides, dilations = layout.pick(attrs["strides"]), layout.pick(attrs["dilations"])
    explicit = layout.pick_pairs(attrs.get("padding_list", ()))
    mode = b"EXPLICIT" if attrs.get("padding_list") else attrs["padding"]
    pads = [
        windows.pad_amounts(images[a], filter[a - 1], strides[a - 1], mode, dilations[a - 1], explicit[a - 1])
        for a in layout.spatial
    ]
    return products.ByteWindow((strides[0], strides[1]), pads, (dilations[0], dilations[1]))


def _product_ends(values: dict[str, Array], types: tuple[DType, DType]) -> tuple[Any, Any]:
    """The range of the sums, one for each range of the filter."""
    x, w = (
        (np.float32(high) - np.float32(low)) / np.float32(_span(kind))
        for low, high, kind in (
            (values["min_input"], values["max_input"], types[0]),
            (values["min_filter"], values["max_filter"], types[1]),
        )
    )
    one = np.asarray(x * w, np.float32)
    return one * np.float32(-(2**31)), one * np.float32(2**31 - 1)


def _span(dtype: DType) -> int:
    """How many steps a range has, signed dtypes having as many below zero as above."""
    first, last = steps.limits(dtype)
    return last - max(first, -last)


QuantizedConv2DPerChannel = _convolution("QuantizedConv2DPerChannel", Fusion(), padded=False)
QuantizedConv2DAndRelu = _convolution("QuantizedConv2DAndRelu", Fusion(relu=True))
QuantizedConv2DAndRequantize = _convolution("QuantizedConv2DAndRequantize", Fusion(narrow="qint8"))
QuantizedConv2DAndReluAndRequantize = _convolution(
    "QuantizedConv2DAndReluAndRequantize", Fusion(relu=True, narrow="quint8")
)
QuantizedConv2DWithBias = _convolution("QuantizedConv2DWithBias", Fusion(bias=True))
QuantizedConv2DWithBiasAndRelu = _convolution("QuantizedConv2DWithBiasAndRelu", Fusion(bias=True, relu=True))
QuantizedConv2DWithBiasAndRequantize = _convolution(
    "QuantizedConv2DWithBiasAndRequantize", Fusion(bias=True, any_bias=True, narrow="qint8")
)
QuantizedConv2DWithBiasAndReluAndRequantize = _convolution(
    "QuantizedConv2DWithBiasAndReluAndRequantize", Fusion(bias=True, any_bias=True, relu=True, narrow="quint8")
)
QuantizedConv2DWithBiasSumAndRelu = _convolution(
    "QuantizedConv2DWithBiasSumAndRelu", Fusion(bias=True, relu=True, summand="float")
)
_SUMMED = Fusion(bias=True, any_bias=True, relu=True, narrow="quint8", summand="quantised")
QuantizedConv2DWithBiasSumAndReluAndRequantize = _convolution("QuantizedConv2DWithBiasSumAndReluAndRequantize", _SUMMED)
QuantizedConv2DWithBiasSignedSumAndReluAndRequantize = _convolution(
    "QuantizedConv2DWithBiasSignedSumAndReluAndRequantize", _SUMMED
)
QuantizedDepthwiseConv2D = _convolution("QuantizedDepthwiseConv2D", Fusion(), depthwise=True, padded=False)
QuantizedDepthwiseConv2DWithBias = _convolution(
    "QuantizedDepthwiseConv2DWithBias", Fusion(bias=True), depthwise=True, padded=False
)
QuantizedDepthwiseConv2DWithBiasAndRelu = _convolution(
    "QuantizedDepthwiseConv2DWithBiasAndRelu", Fusion(bias=True, relu=True), depthwise=True
)
QuantizedDepthwiseConv2DWithBiasAndReluAndRequantize = _convolution(
    "QuantizedDepthwiseConv2DWithBiasAndReluAndRequantize",
    Fusion(bias=True, any_bias=True, relu=True, narrow="quint8"),
    depthwise=True,
)


# ---------------------------------------------------------------------- products of matrices
def _matrix_product(name: str, fusion: Fusion) -> OpFunction:
    bias = "Tbias" if fusion.any_bias else "float"
    op = define_op(
        name,
        f"a: T1, b: T2, bias: {bias}, min_a: float, max_a: float, min_b: float, max_b: float"
        + (f", {_FROZEN}" if fusion.narrow else "")
        + " -> out: Toutput, min_out: float, max_out: float",
        f"T1: {_T}, T2: {_T}, "
        + ("Tbias: {float, qint32}, " if fusion.any_bias else "")
        + f"Toutput: {_T} = {fusion.narrow or 'qint32'}, transpose_a: bool = False, transpose_b: bool = False, "
        "input_quant_mode: {'MIN_FIRST', 'SCALED'} = 'MIN_FIRST'",
        ranks={"bias": 1, "min_a": 0, "max_a": 0, "min_b": 0, "max_b": 0},
        static=(
            *("min_a", "max_a", "min_b", "max_b"),
            *(("min_freezed_output", "max_freezed_output") if fusion.narrow else ()),
        ),
        takes_quantised=True,
    )
    op.not_differentiable()
    if fusion.narrow:
        op.early_outputs(steps.passed_on({1: 7, 2: 8}))

    @op.shape
    def _(
        a: TensorShape, b: TensorShape, bias: TensorShape, *_: TensorShape, transpose_a: bool, transpose_b: bool
    ) -> list[TensorShape]:
        product = matrix_product_shape(a, b, transpose_a, transpose_b)
        shape_rules.merged(product[1:], bias)
        return steps.with_scalars(product)

    op.host_kernel(compiled_product(op, fusion))
    op.kernel(compiled_product(op, fusion))
    MATRIX_PRODUCTS[name] = fusion
    return op


def compiled_product(op: OpDef, fusion: Fusion, multiply: products.Multiply = products.product) -> Callable[..., Any]:
    """A kernel of one of these operations; in compiled programs it multiplies bytes so."""

    def kernel(*inputs: Array, ctx: OperationContext) -> Any:
        values = dict(zip((arg.name for arg in op.inputs), inputs, strict=True))
        return _run_product(values, fusion, ctx, multiply)

    return kernel


def _run_product(values: dict[str, Array], fusion: Fusion, ctx: OperationContext, multiply: products.Multiply) -> Any:
    attrs = ctx.op.attrs
    types, out_type = (attrs["T1"], attrs["T2"]), attrs["Toutput"]
    check_bytes(ctx, *types)
    a, b = steps.integers_of(values["a"]), steps.integers_of(values["b"])
    a, b = a.T if attrs["transpose_a"] else a, b.T if attrs["transpose_b"] else b
    check_matrices(a, b, ctx)
    library, bias = steps.library_of(a), values["bias"]
    if bias.shape != b.shape[1:]:
        raise InvalidArgumentError(
            None, ctx.op, f"the bias must have a number for each column of {b.shape}: {bias.shape}"
        )
    least, most = np.float32(values["min_a"]), np.float32(values["max_a"])
    largest_b = _largest(values["min_b"], values["max_b"])
    per_step = _last(types[0]) * _last(types[1])
    if attrs.get("Tbias", float32).is_quantized:
        extra = steps.integers_of(bias).astype(np.float32)
    elif attrs["input_quant_mode"] == b"MIN_FIRST":
        # what is missing to each product because the steps begin at the minimum, and not at zero
        sums = b.astype(np.int64 if library is np else np.int32).sum(axis=0).astype(np.float32)
        missing = steps.rounded(sums * (_last(types[0]) * least / (most - least)))
        extra = steps.rounded(bias * np.float32(per_step / ((most - least) * largest_b))) + missing
    else:
        extra = steps.rounded(bias * np.float32(per_step / (_largest(least, most) * largest_b)))
    total = steps.product_of(a, b) if library is np else multiply(products.Bytes(a), products.Bytes(b), ctx.op.name)
    ends = _product_ends(
        {"min_input": least, "max_input": most, "min_filter": values["min_b"], "max_filter": values["max_b"]}, types
    )
    if fusion.narrow is None:
        return _finished(total, [extra], None, fusion, out_type, None), *ends
    frozen = values["min_freezed_output"], values["max_freezed_output"]
    # TensorFlow 1.15 has 256 and 128 for the last step, which the range that it gives contradicts; later ones this
    scale = np.float32(_largest(*ends) / _largest(*frozen) * (_last(out_type) / np.float32(2.0**31)))
    return _finished(total, [extra], scale, fusion, out_type, None), *frozen


QuantizedMatMulWithBias = _matrix_product("QuantizedMatMulWithBias", Fusion(bias=True, any_bias=True))
QuantizedMatMulWithBiasAndRelu = _matrix_product("QuantizedMatMulWithBiasAndRelu", Fusion(bias=True, relu=True))
QuantizedMatMulWithBiasAndReluAndRequantize = _matrix_product(
    "QuantizedMatMulWithBiasAndReluAndRequantize", Fusion(bias=True, any_bias=True, relu=True, narrow="quint8")
)
# What TensorFlow 2 writes.
QuantizedMatMulWithBiasAndRequantize = _matrix_product(
    "QuantizedMatMulWithBiasAndRequantize", Fusion(bias=True, any_bias=True, narrow="quint8")
)
