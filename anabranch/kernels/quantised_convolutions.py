"""Convolutions of bytes by those of floats, where float32 has every sum: whole numbers, which no rounding changes.

XLA's convolution in float32 reads what the window sees where it lies, while the operation's own kernel writes it down
as a matrix. Which of them is quicker depends on shapes and processor: it is measured.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Final

import numpy as np

from anabranch.core.kernels import KernelCase, register_kernel
from anabranch.core.registry import find_op_def
from anabranch.ops.quantized import fused, nn, products, steps
from anabranch.ops.quantized.products import Bytes

#: the share of the time of the operation's own kernel, and that where images have fewer channels
_SHARE, _SHARE_OF_FEW, _FEW_CHANNELS = 0.9, 1.5, 16


#: operations whose factors have zeros of their own -> the attributes with their types; 0 is zero in all others
_TYPES: Final = {"QuantizedConv2D": ("Tinput", "Tfilter"), "QuantizedMatMul": ("T1", "T2")}


def factors_of(case: KernelCase) -> tuple[Bytes, Bytes]:
    """The factors of a product or convolution, without their values, and the steps that stand for zero."""
    one, other = (np.broadcast_to(np.zeros((), given.dtype), given.shape) for given in case.inputs[:2])
    types = [case.attrs[name] for name in _TYPES.get(case.op_type, ())]
    if not types:
        return Bytes(one), Bytes(other)
    least, most, least_other, most_other = (float(np.asarray(given.value)) for given in case.inputs[2:])
    zero, zero_other = steps.zero_of(least, most, types[0]), steps.zero_of(least_other, most_other, types[1])
    return Bytes(one, zero), Bytes(other, zero_other)


def are_bytes(case: KernelCase) -> bool:
    """Whether images, or rows, and filter, or columns, have 8 bits, and nothing is empty."""
    return all(given.dtype.itemsize == 1 and 0 not in given.shape for given in case.inputs[:2])


def _applies(case: KernelCase) -> bool:
    if not are_bytes(case):
        return False
    x, w = factors_of(case)
    return products.sums_are_floats(x, w, math.prod(w.array.shape[:3]))


def compiled(op_type: str, convolve: products.Convolve) -> Callable[..., Any]:
    """A kernel of one of these operations that convolves so."""
    if op_type == "QuantizedConv2D":
        return nn.compiled_convolution(convolve)
    op_def = find_op_def(op_type)
    assert op_def is not None  # it is one of `OPERATIONS`
    return fused.compiled_convolution(op_def, *fused.CONVOLUTIONS[op_type], convolve)


def _estimate(case: KernelCase) -> float:
    return _SHARE if case.inputs[0].shape[3] >= _FEW_CHANNELS else _SHARE_OF_FEW


#: convolutions whose channels are added up
OPERATIONS: Final = ("QuantizedConv2D", *(name for name, (_, depthwise) in fused.CONVOLUTIONS.items() if not depthwise))

for _op_type in OPERATIONS:
    register_kernel(_op_type, "floats", device_type="CPU", applies=_applies, cost=_estimate, rough=True)(
        compiled(_op_type, products.convolution_of_floats)
    )
