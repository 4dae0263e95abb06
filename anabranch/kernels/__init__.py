"""Alternate kernels of operations: other ways to compute the same, chosen by cost (docs/decisions/0033).

Each module registers its kernels with `core.kernels` when it is imported, which is when one of its operations is first
compiled: importing this package imports none of them.
"""

from __future__ import annotations

from typing import Final

from anabranch.core.kernels import load_kernels_from

_CONVOLUTIONS: Final = (
    *("Conv2D", "Conv2DBackpropInput", "Conv2DBackpropFilter"),
    *("Conv3D", "Conv3DBackpropInputV2", "Conv3DBackpropFilterV2"),
    *("DepthwiseConv2dNative", "DepthwiseConv2dNativeBackpropInput", "DepthwiseConv2dNativeBackpropFilter"),
)
_PRODUCTS: Final = ("MatMul", "BatchMatMul", "BatchMatMulV2", "BatchMatMulV3")
_POOLING: Final = ("AvgPool", "AvgPoolGrad", "AvgPool3D", "AvgPool3DGrad", "MaxPoolGrad", "MaxPoolGradV2")
#: module -> the operations of which it has kernels
MODULES: Final = {
    "anabranch.kernels.convolutions": _CONVOLUTIONS,
    "anabranch.kernels.native_convolutions": _CONVOLUTIONS,
    "anabranch.kernels.native_pooling": _POOLING,
    "anabranch.kernels.native_products": _PRODUCTS,
}
_ONEDNN: Final = "anabranch.kernels.onednn"
_HALF: Final = dict.fromkeys(("T", "Ta", "Tb", "Tout"), ("bfloat16",))

load_kernels_from("anabranch.kernels.convolutions", _CONVOLUTIONS)
load_kernels_from("anabranch.kernels.native_convolutions", _CONVOLUTIONS, needs=_ONEDNN)
load_kernels_from("anabranch.kernels.native_pooling", _POOLING, needs=_ONEDNN)
load_kernels_from("anabranch.kernels.native_products", _PRODUCTS, _HALF, _ONEDNN)
