"""Passes over numbers of 16 bits by oneDNN, of NumPy's arrays, where the extra `native` is installed.

NumPy handles one bfloat16 at a time; the library 32 of them, in float32 between. 9,600,000 elements took, in ms: a sum
11.4 and 2.3, a bias 12.3 and 1.5, from float32 19 and 2.3, the gradient of ReLU 10.9 and 6.5, a sum over rows in
float32, with the cast that NumPy needs, 6 and 1.4. Compiled programs gain nothing by it. Numbers below the least normal
one become zero, as they do in XLA's programs.

A primitive is made for one size. So that a network's many sizes need few, a large array is handled in pieces whose
lengths are powers of two; what is left is NumPy's.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Iterator, Sequence
from typing import Any, Final

import numpy as np

from anabranch.core import dtypes
from anabranch.core.arrays import Array, HostArray
from anabranch.core.host_memory import aligned_empty
from anabranch.core.kernel_context import OperationContext
from anabranch.core.kernels import KernelCase, register_kernel
from anabranch.kernels import native_calls, onednn
from anabranch.kernels.onednn import BFLOAT16, FLOAT32, NativeError, Strided
from anabranch.kernels.onednn_stages import Stages
from anabranch.ops.nn.host_halves import all_finite, where_positive
from anabranch.ops.nn.ordered_bits import has_numbers_alone

#: what the texts of these computations begin with
_KIND: Final = "halves"
_SUM, _BIAS, _NARROWER, _WIDER, _RELU_GRADIENT, _ROWS = "sum", "bias", "narrower", "wider", "relu gradient", "rows"
#: elements of the shortest and the longest piece, and of an array that has any
_SHORTEST, _LONGEST = 1 << 15, 1 << 24
_LEAST: Final = 1 << 17
#: the same of an array that a bias is added to, which is one piece
_LEAST_WITH_BIAS: Final = 1 << 18


# ---------------------------------------------------------------------- computations
def _make(text: str) -> native_calls.Prepared:
    """What `native_calls` calls."""
    library = onednn.library()
    if library is None:
        raise NativeError(f"oneDNN is not there: {onednn.library_state().missing}")
    what, *lengths = json.loads(text)
    if what in {_NARROWER, _WIDER}:
        types = (FLOAT32, BFLOAT16) if what == _NARROWER else (BFLOAT16, FLOAT32)
        described = [library.described(Strided(tuple(lengths), (1,), type)) for type in types]
        primitive = library.reorder(described[0].value, described[1].value)
        arguments = {onednn.SOURCE: 0, onednn.DESTINATION: 1}
        return native_calls.Prepared(Stages(library, described, [], [(primitive, arguments)]), (*lengths, *lengths))
    if what == _RELU_GRADIENT:
        described = [library.described(Strided(tuple(lengths), (1,), BFLOAT16))] * 3
        arguments = {onednn.DESTINATION_GRADIENT: 0, onednn.SOURCE: 1, onednn.SOURCE_GRADIENT: 2}
        stages = Stages(library, described, [], [(library.relu_gradient(described[0]), arguments)])
        return native_calls.Prepared(stages, tuple(lengths * 3))
    if what == _ROWS:
        rows, columns = lengths
        shapes = ((1, rows), BFLOAT16), ((rows, columns), BFLOAT16), ((1, columns), FLOAT32)
        described = [library.described(Strided(one, tuple(onednn.row_strides(one)), type)) for one, type in shapes]
        arguments = {onednn.SOURCE: 0, onednn.WEIGHTS: 1, onednn.DESTINATION: 2}
        stages = Stages(library, described, [], [(library.product(*described), arguments)])
        return native_calls.Prepared(stages, (rows, rows * columns, columns))
    sizes = [int(np.prod(lengths)), lengths[-1], int(np.prod(lengths))]
    given = [lengths, [1] * (len(lengths) - 1) + lengths[-1:], lengths]
    described = [library.described(Strided(tuple(one), tuple(onednn.row_strides(one)), BFLOAT16)) for one in given]
    arguments = {onednn.SOURCE: 0, onednn.SECOND_SOURCE: 1, onednn.DESTINATION: 2}
    stages = Stages(library, described, [], [(library.sum(*described), arguments)])
    return native_calls.Prepared(stages, tuple(sizes))


native_calls.register_maker(_KIND, _make)


def _text(what: str, *lengths: int) -> str:
    return f"{_KIND} {json.dumps([what, *lengths])}"


@functools.lru_cache(1024)
def _usable(text: str) -> bool:
    return native_calls.can_prepare(text)


def _pieces(size: int) -> Iterator[slice]:
    """Slices of a flat array whose lengths are powers of two; what is left at its end is shorter than `_SHORTEST`."""
    start, length = 0, _LONGEST
    while length >= _SHORTEST:
        if size - start >= length:
            yield slice(start, start + length)
            start += length
        else:
            length //= 2


def _in_pieces(node: str, what: str, inputs: Sequence[HostArray], result: HostArray) -> slice:
    """Computes what pieces cover, elementwise; gives back the slice that is left."""
    flat, written, end = [np.ascontiguousarray(value).reshape(-1) for value in inputs], result.reshape(-1), 0
    for piece in _pieces(result.size):
        native_calls.compute(
            node, _text(what, piece.stop - piece.start), [one[piece] for one in flat], [written[piece]]
        )
        end = piece.stop
    return slice(end, result.size)


def _memory(ctx: OperationContext, like: HostArray, dtype: np.dtype[Any], *reused: int) -> HostArray:
    found = ctx.memory(like.shape, dtype, *reused)
    return aligned_empty(like.shape, dtype) if found is None else found


# ---------------------------------------------------------------------- sums
def _is_large(case: KernelCase) -> bool:
    """Whether there are large arrays of bfloat16, all of one shape."""
    library = onednn.library()
    if library is None or not library.computes("bfloat16"):
        return False
    shape = case.inputs[0].shape
    same = len(case.inputs) > 1 and all(one.shape == shape for one in case.inputs)
    return same and int(np.prod(shape)) >= _LEAST


def _adds(case: KernelCase) -> bool:
    return _is_large(case) and _usable(_text(_SUM, _SHORTEST))


def _sum(inputs: Sequence[HostArray], ctx: OperationContext) -> HostArray:
    total = _memory(ctx, inputs[0], inputs[0].dtype, 0, 1)
    one = inputs[0]
    for other in inputs[1:]:
        one = sum_of_two(ctx.op.name, one, other, total)
    return total


def sum_of_two(node: str, one: HostArray, other: HostArray, memory: HostArray) -> HostArray:
    """The sum of two arrays of one shape, of any type; by the library where that is bfloat16.

    Args:
        node: the operation, for errors.
        memory: where it is written, which may be one of the two.
    """
    left = slice(0, memory.size)
    if str(memory.dtype) == "bfloat16" and memory.size >= _LEAST and _usable(_text(_SUM, _SHORTEST)):
        left = _in_pieces(node, _SUM, [one, other], memory)
    np.add(one.reshape(-1)[left], other.reshape(-1)[left], out=memory.reshape(-1)[left])
    return memory


for _op_type in ("Add", "AddV2"):

    @register_kernel(_op_type, "onednn", device_type="CPU", types={"T": [dtypes.bfloat16]}, applies=_adds, at_once=True)
    def _(x: Array, y: Array, *, ctx: OperationContext) -> Any:
        return _sum([x, y], ctx)


@register_kernel("AddN", "onednn", device_type="CPU", types={"T": [dtypes.bfloat16]}, applies=_adds, at_once=True)
def _(inputs: list[Array], *, ctx: OperationContext) -> Any:
    return _sum(inputs, ctx)


# ---------------------------------------------------------------------- the gradient of ReLU
def _is_relu_gradient(case: KernelCase) -> bool:
    return _is_large(case) and _usable(_text(_RELU_GRADIENT, _SHORTEST))


@register_kernel(
    "ReluGrad", "onednn", device_type="CPU", types={"T": [dtypes.bfloat16]}, applies=_is_relu_gradient, at_once=True
)
def _(gradients: Array, features: Array, *, ctx: OperationContext) -> Any:
    result = _memory(ctx, gradients, gradients.dtype, 0, 1)
    # zero times what is not finite is NaN, and the library's zero is not; and to it NaN is positive
    left = slice(0, result.size)
    if all_finite(gradients) and has_numbers_alone(features):
        left = _in_pieces(ctx.op.name, _RELU_GRADIENT, [gradients, features], result)
    grads, known = (np.ascontiguousarray(one).reshape(-1)[left] for one in (gradients, features))
    if grads.size:
        where_positive(grads, known, result.reshape(-1)[left])
    return result


# ---------------------------------------------------------------------- biases
def _adds_bias(case: KernelCase) -> bool:
    library = onednn.library()
    if library is None or not library.computes(case.inputs[0].dtype) or case.attrs["data_format"] != b"NHWC":
        return False
    shape = case.inputs[0].shape
    fits = len(shape) > 1 and case.inputs[1].shape == shape[-1:] and int(np.prod(shape)) >= _LEAST_WITH_BIAS
    return fits and _usable(_bias_text(shape))


def _bias_text(shape: Sequence[int]) -> str:
    return _text(_BIAS, int(np.prod(shape[:-1])), int(shape[-1]))


@register_kernel(
    "BiasAdd", "onednn", device_type="CPU", types={"T": [dtypes.bfloat16]}, applies=_adds_bias, at_once=True
)
def _(value: Array, bias: Array, *, ctx: OperationContext) -> Any:
    result = _memory(ctx, value, value.dtype, 0)
    return native_calls.compute(ctx.op.name, _bias_text(value.shape), [value, bias], [result])[0]


# ---------------------------------------------------------------------- sums over rows
def can_sum_rows(shape: Sequence[int]) -> bool:
    """Whether numbers of bfloat16 of this shape are summed over all axes but the last, in float32."""
    library = onednn.library()
    if library is None or not library.computes("bfloat16"):
        return False
    return _LEAST <= int(np.prod(shape)) <= onednn.MOST_ELEMENTS and _usable(_rows_text(shape))


def sum_of_rows(node: str, x: HostArray) -> HostArray:
    """The sums, [last axis] of float32: a product with ones. For errors `node` is named."""
    ones, result = _ones(int(np.prod(x.shape[:-1]))), np.empty(x.shape[-1], np.float32)
    return native_calls.compute(node, _rows_text(x.shape), [ones, x], [result])[0]


def _rows_text(shape: Sequence[int]) -> str:
    return _text(_ROWS, int(np.prod(shape[:-1])), int(shape[-1]))


@functools.lru_cache(64)
def _ones(count: int) -> HostArray:
    return np.ones(count, dtypes.bfloat16.as_numpy_dtype)


# ---------------------------------------------------------------------- casts
_CASTS: Final = {("float32", "bfloat16"): _NARROWER, ("bfloat16", "float32"): _WIDER}


def _casts(case: KernelCase) -> bool:
    library = onednn.library()
    if library is None or not library.computes("bfloat16") or case.attrs["Truncate"]:
        return False
    what = _CASTS.get((case.attrs["SrcT"].name, case.attrs["DstT"].name))
    if what is None or int(np.prod(case.inputs[0].shape)) < _LEAST:
        return False
    return _usable(_text(what, _SHORTEST))


@register_kernel("Cast", "onednn", device_type="CPU", applies=_casts, at_once=True)
def _(x: Array, *, ctx: OperationContext) -> Any:
    dtype = np.dtype(ctx.output_dtype())
    result = _memory(ctx, x, dtype)
    left = _in_pieces(ctx.op.name, _CASTS[str(x.dtype), str(dtype)], [x], result)
    np.copyto(result.reshape(-1)[left], x.reshape(-1)[left], casting="unsafe")
    return result
