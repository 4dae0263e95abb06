"""Maxima of pooling by oneDNN, where the extra `native` is installed, and their gradient from where they were found.

In float32 and bfloat16. The library passes over NaN, and over minus infinity where there is nothing else. So each call
looks at the data, which takes one pass over it; where it finds either, the maxima are computed as the operation's own
kernel computes them. A last byte behind the places says so: the gradient of a window whose maximum is no number is
zero, as by the own kernel. Where the places are not known, the library finds the maxima again.

Programs have maxima alone from XLA, which takes less time for them in bfloat16, and in float32 where strides leave few
windows to each element.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

import numpy as np

from anabranch.core import dtypes
from anabranch.core.arrays import Array
from anabranch.core.kernel_context import OperationContext
from anabranch.core.kernels import KernelCase, KernelInput, register_kernel
from anabranch.kernels import native_calls, native_pooling, onednn
from anabranch.kernels.native_pooling import GRADIENT_AT_PLACES, LARGEST, MAXIMUM_GRADIENT, Pooled, Pooling

_TYPES: Final = {"T": [dtypes.float32, dtypes.bfloat16]}
_MAXIMA: Final = Pooled("MaxPool", LARGEST, (0,), 0)
_PLACED: Final = Pooled("_MaxPoolWithPlaces", LARGEST, (0,), 0)
_GRADIENT: Final = Pooled("_MaxPoolGradAtPlaces", MAXIMUM_GRADIENT, (0, 2), 0, (1, 2))
#: elements that all positions of the window see; of fewer maxima alone are no work for the library
_LEAST_SEEN: Final = 1 << 17
#: what share of XLA's time maxima take, and their gradient where the places are known
_SHARES: Final = {onednn.FLOAT32: (0.5, 0.2), onednn.BFLOAT16: (0.5, 0.1)}
#: the same where windows stand side by side, of which XLA compares each element once. (Maxima in bfloat16 take longer
#: than XLA's there; their gradient is spared more than that.)
_DISJOINT_SHARES: Final = {onednn.FLOAT32: (1.3, 0.9), onednn.BFLOAT16: (0.5, 0.3)}
#: elements that XLA's kernels see in a second
_SEEN_PER_SECOND: Final = (3e9, 3e8)
_CALL_SECONDS: Final = 25e-6


def _described(operation: Pooled, case: KernelCase) -> Pooling | None:
    """What is computed, if the library can."""
    library = onednn.library()
    if library is None or not library.computes(case.inputs[0].dtype):
        return None
    pooling = operation.pooling(case.attrs, case.inputs)
    return pooling if pooling is not None and native_pooling.usable(pooling) else None


def _estimate(pooling: Pooling, at: int) -> float:
    share = (_DISJOINT_SHARES if pooling.size == pooling.strides else _SHARES)[pooling.type][at]
    return share + _CALL_SECONDS * _SEEN_PER_SECOND[at] / pooling.seen


def _bytes_of_places(pooling: Pooling) -> int:
    """How much memory the places of maxima take, with what says whether all data are numbers."""
    return native_calls.sizes(replace(pooling, what=LARGEST).text)[2]


# ---------------------------------------------------------------------- maxima
def _largest(operation: Pooled, input: Array, ctx: OperationContext) -> list[Any]:
    """Maxima and their places."""
    pooling = operation.pooling(ctx.op.attrs, [KernelInput(tuple(input.shape), input.dtype)])
    assert pooling is not None  # the kernel takes it
    shape = native_pooling.result_shape(pooling, ctx.op.attrs["data_format"])
    results = (shape, input.dtype), ((_bytes_of_places(pooling),), np.uint8)
    return native_calls.call_several(ctx.op.name, pooling.text, [input], results)


def _takes_maxima(case: KernelCase) -> bool:
    pooling = _described(_MAXIMA, case)
    return pooling is not None and pooling.seen >= _LEAST_SEEN


@register_kernel("MaxPool", "onednn", device_type="CPU", types=_TYPES, applies=_takes_maxima, at_once=True)
def _(input: Array, *, ctx: OperationContext) -> Any:
    return _largest(_MAXIMA, input, ctx)[0]


def _cost_of_placed(case: KernelCase) -> float:
    pooling = _described(_PLACED, case)
    assert pooling is not None  # the kernel takes it
    return _estimate(pooling, 0)


@register_kernel(
    _PLACED.op_type,
    "onednn",
    device_type="CPU",
    types=_TYPES,
    applies=lambda case: _described(_PLACED, case) is not None,
    # not rough: what the gradient gains by the places, measurements of maxima alone would not show
    cost=_cost_of_placed,
    calls_back=True,
    takes_numpy=True,
)
def _(input: Array, *, ctx: OperationContext) -> Any:
    return _largest(_PLACED, input, ctx)


# ---------------------------------------------------------------------- their gradient
def _knows_places(pooling: Pooling, places: tuple[int, ...]) -> bool:
    """Whether the library has written down the places."""
    return native_pooling.usable(replace(pooling, what=LARGEST)) and places == (_bytes_of_places(pooling),)


def _cost_of_gradient(case: KernelCase) -> float:
    pooling = _described(_GRADIENT, case)
    assert pooling is not None  # the kernel takes it
    if _knows_places(pooling, tuple(case.inputs[3].shape)):
        return _estimate(pooling, 1)
    return native_pooling.cost(pooling)


@register_kernel(
    _GRADIENT.op_type,
    "onednn",
    device_type="CPU",
    types=_TYPES,
    applies=lambda case: _described(_GRADIENT, case) is not None,
    cost=_cost_of_gradient,
    rough=True,
    calls_back=True,
    takes_numpy=True,
)
def _(orig_input: Array, orig_output: Array, grad: Array, places: Array, *, ctx: OperationContext) -> Any:
    given = [orig_input, orig_output, grad]
    pooling = _GRADIENT.pooling(ctx.op.attrs, [KernelInput(tuple(one.shape), one.dtype) for one in given])
    assert pooling is not None  # the kernel takes it
    given, text = [orig_input, native_pooling.where_a_number(orig_output, grad)], pooling.text
    if _knows_places(pooling, tuple(places.shape)):
        given, text = [grad, places, orig_output], replace(pooling, what=GRADIENT_AT_PLACES).text
    shape = native_pooling.result_shape(pooling, ctx.op.attrs["data_format"])
    return native_calls.call(ctx.op.name, text, given, shape, grad.dtype)
