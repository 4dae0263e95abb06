"""Chains of operations by oneDNN, of NumPy's arrays, where the extra `native` is installed (docs/decisions/0095).

* A convolution and its bias, channels last: the bias is added before the sums leave the registers.
* A cast of bfloat16 to float32 and the sums over all rows of it, as a bias's gradient is: a product with ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from anabranch.core.arrays import HostArray
from anabranch.core.kernel_chains import register_chain
from anabranch.core.kernel_context import KernelOperation
from anabranch.core.kernels import KernelCase
from anabranch.kernels import native_calls, native_convolutions, native_halves, onednn
from anabranch.kernels.convolutions import CONVOLUTIONS

Inputs = Sequence[Sequence[HostArray]]
Operations = Sequence[KernelOperation]

# ---------------------------------------------------------------------- a convolution and its bias
_CONVOLUTION: Final = CONVOLUTIONS[0][0]


def _adds_bias(cases: Sequence[KernelCase]) -> bool:
    convolution, bias = cases
    data = convolution.inputs[0]
    if not _computes(data.dtype) or {convolution.attrs["data_format"], bias.attrs["data_format"]} != {b"NHWC"}:
        return False
    geometry = _CONVOLUTION.fitting(convolution)
    if geometry is None or tuple(bias.inputs[1].shape) != geometry.out_shape[-1:]:
        return False
    return native_convolutions.can_add_bias(geometry, data.dtype)


@register_chain(("Conv2D", "BiasAdd"), device_type="CPU", applies=_adds_bias)
def _(inputs: Inputs, ops: Operations) -> list[list[Any]]:
    (data, filter), (bias,) = inputs
    geometry = _CONVOLUTION.geometry(ops[0].attrs, [data.shape, filter.shape], ())
    text = native_convolutions.text_with_bias(geometry, data.dtype)
    return [[], [native_calls.call(ops[0].name, text, [data, filter, bias], geometry.out_shape, data.dtype)]]


# ---------------------------------------------------------------------- sums over rows
def _sums_rows(cases: Sequence[KernelCase]) -> bool:
    cast, sums = cases
    shape = cast.inputs[0].shape
    types = (cast.attrs["SrcT"].name, cast.attrs["DstT"].name)
    if types != ("bfloat16", "float32") or sums.attrs["data_format"] != b"NHWC" or len(shape) < 2 or 0 in shape:
        return False
    return native_halves.can_sum_rows(shape)


@register_chain(("Cast", "BiasAddGrad"), device_type="CPU", applies=_sums_rows, main=1)
def _(inputs: Inputs, ops: Operations) -> list[list[Any]]:
    return [[], [native_halves.sum_of_rows(ops[1].name, inputs[0][0])]]


def _computes(dtype: object) -> bool:
    library = onednn.library()
    return library is not None and library.computes(str(dtype))
