"""Maxima of pooling by oneDNN, of NumPy's arrays, where the extra `native` is installed: in float32 and bfloat16.

The places of the maxima are kept, for their gradient. The library passes over NaN, and over minus infinity where there
is nothing else. So it is asked where a look at the data finds neither, which takes one pass over it; elsewhere the
operation's own kernel computes. A program that is compiled before there are data cannot ask.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from anabranch.core import dtypes
from anabranch.core.arrays import Array
from anabranch.core.kernel_context import OperationContext
from anabranch.core.kernels import KernelCase, KernelInput, register_kernel
from anabranch.kernels import native_calls, native_pooling, onednn
from anabranch.kernels.native_pooling import LARGEST, Pooled, places_of_maxima
from anabranch.ops.nn.ordered_bits import has_numbers_alone
from anabranch.ops.nn.pool import largest_seen, pool_window

_OPERATION: Final = Pooled("MaxPool", LARGEST, (0,), 0)
#: elements that all positions of the window see; fewer are no work for the library
_LEAST_SEEN: Final = 1 << 17


def _takes(case: KernelCase) -> bool:
    library = onednn.library()
    if library is None or not library.computes(case.inputs[0].dtype):
        return False
    pooling = _OPERATION.pooling(case.attrs, case.inputs)
    return pooling is not None and pooling.seen >= _LEAST_SEEN and native_pooling.usable(pooling)


@register_kernel(
    "MaxPool",
    "onednn",
    device_type="CPU",
    types={"T": [dtypes.float32, dtypes.bfloat16]},
    applies=_takes,
    at_once=True,
)
def _(input: Array, *, ctx: OperationContext) -> Any:
    if not has_numbers_alone(input, bounded=True):
        return largest_seen(np, input, pool_window(input.shape, ctx.op.attrs))
    pooling = _OPERATION.pooling(ctx.op.attrs, [KernelInput(tuple(input.shape), input.dtype)])
    assert pooling is not None  # `_takes` has said so
    shape = native_pooling.result_shape(pooling, ctx.op.attrs["data_format"])
    given = (shape, input.dtype), ((native_pooling.bytes_of_places(pooling),), np.uint8)
    maxima, places = native_calls.call_several(ctx.op.name, pooling.text, [input], given)
    places_of_maxima.keep(ctx.op, pooling, maxima, places)
    return maxima
