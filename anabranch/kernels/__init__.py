"""Alternate kernels of operations: other ways to compute the same, chosen by cost (docs/decisions/0033).

Each module registers its kernels with `core.kernels` when it is imported, which is when one of its operations is first
compiled: importing this package imports none of them.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final

from anabranch.core.kernel_chains import load_chains_from
from anabranch.core.kernels import load_kernels_from

_CONVOLUTIONS: Final = (
    *("Conv2D", "Conv2DBackpropInput", "Conv2DBackpropFilter", "_Conv2DBiasRelu"),
    *("Conv3D", "Conv3DBackpropInputV2", "Conv3DBackpropFilterV2"),
    *("DepthwiseConv2dNative", "DepthwiseConv2dNativeBackpropInput", "DepthwiseConv2dNativeBackpropFilter"),
)
_PRODUCTS: Final = ("MatMul", "BatchMatMul", "BatchMatMulV2", "BatchMatMulV3")
_POOLING: Final = ("AvgPool", "AvgPoolGrad", "AvgPool3D", "AvgPool3DGrad", "MaxPoolGrad", "MaxPoolGradV2")
_MAXIMA: Final = ("MaxPool", "_MaxPoolWithPlaces", "_MaxPoolGradAtPlaces")
_NORMALIZATIONS: Final = (
    *(f"FusedBatchNorm{way}{version}" for way in ("", "Grad") for version in ("", "V2", "V3")),
    *("_FusedBatchNormRelu", "_FusedBatchNormReluGrad"),
)
_RESIDUALS: Final = ("_FusedBatchNormAddRelu", "_FusedBatchNormAddReluGrad")
_BYTE_CONVOLUTIONS: Final = (
    *("QuantizedConv2D", "QuantizedConv2DPerChannel", "QuantizedConv2DAndRelu", "QuantizedConv2DAndRequantize"),
    *("QuantizedConv2DAndReluAndRequantize", "QuantizedConv2DWithBias", "QuantizedConv2DWithBiasAndRelu"),
    *("QuantizedConv2DWithBiasAndRequantize", "QuantizedConv2DWithBiasAndReluAndRequantize"),
    *("QuantizedConv2DWithBiasSumAndRelu", "QuantizedConv2DWithBiasSumAndReluAndRequantize"),
    "QuantizedConv2DWithBiasSignedSumAndReluAndRequantize",
)
_BYTE_PRODUCTS: Final = (
    *("QuantizedMatMul", "QuantizedMatMulWithBias", "QuantizedMatMulWithBiasAndRelu"),
    *("QuantizedMatMulWithBiasAndReluAndRequantize", "QuantizedMatMulWithBiasAndRequantize"),
)
#: module -> the operations of which it has kernels, or whose kernels it gives to XLA's threads
MODULES: Final = {
    "anabranch.kernels.convolutions": _CONVOLUTIONS,
    "anabranch.kernels.loop_products": ("MatMul",),
    "anabranch.kernels.native_bytes": (*_BYTE_PRODUCTS, *_BYTE_CONVOLUTIONS),
    "anabranch.kernels.native_convolutions": _CONVOLUTIONS,
    "anabranch.kernels.native_float_products": _PRODUCTS,
    "anabranch.kernels.native_halves": ("Add", "AddN", "AddV2", "BiasAdd", "Cast", "ReluGrad"),
    "anabranch.kernels.native_maxima": _MAXIMA,
    "anabranch.kernels.native_normalization": _NORMALIZATIONS,
    "anabranch.kernels.native_pooling": _POOLING,
    "anabranch.kernels.native_products": _PRODUCTS,
    "anabranch.kernels.native_residuals": _RESIDUALS,
    "anabranch.kernels.native_slices": ("Conv2DBackpropInput", "Conv2DBackpropFilter"),
    "anabranch.kernels.pool_blocks": _PRODUCTS,
    "anabranch.kernels.pool_convolutions": _CONVOLUTIONS,
    "anabranch.kernels.pool_filters": ("Conv2DBackpropFilter",),
    "anabranch.kernels.pool_normalization": (*_NORMALIZATIONS, *_RESIDUALS),
    "anabranch.kernels.pool_pooling": (*_POOLING, *_MAXIMA),
    "anabranch.kernels.pool_products": _PRODUCTS,
    "anabranch.kernels.pool_winograd": ("Conv2D", "Conv2DBackpropInput", "Conv2DBackpropFilter", "_Conv2DBiasRelu"),
    "anabranch.kernels.quantised_convolutions": _BYTE_CONVOLUTIONS,
}
#: those whose kernels call a library -> the module that knows whether it is there
_NEEDS: Final = {
    **{module: "anabranch.kernels.onednn" for module in MODULES if module.startswith("anabranch.kernels.native")},
    **{module: "anabranch.kernels.pool_handler" for module in MODULES if module.startswith("anabranch.kernels.pool")},
}
#: those that have kernels for some dtypes only
_TYPES: Final[Mapping[str, Mapping[str, Collection[str]]]] = {
    "anabranch.kernels.loop_products": {"T": ("float32", "float64")},
    "anabranch.kernels.native_float_products": dict.fromkeys(("T", "Ta", "Tb", "Tout"), ("float32",)),
    "anabranch.kernels.native_halves": {"T": ("bfloat16",), **dict.fromkeys(("SrcT", "DstT"), ("bfloat16", "float32"))},
    "anabranch.kernels.native_maxima": {"T": ("bfloat16", "float32")},
    "anabranch.kernels.native_products": dict.fromkeys(("T", "Ta", "Tb", "Tout"), ("bfloat16",)),
    "anabranch.kernels.native_residuals": {"T": ("float32", "bfloat16")},
    "anabranch.kernels.native_slices": {"T": ("float32", "bfloat16")},
    "anabranch.kernels.pool_blocks": dict.fromkeys(("T", "Ta", "Tb", "Tout"), ("bfloat16",)),
    "anabranch.kernels.pool_filters": {"T": ("float32", "bfloat16")},
    "anabranch.kernels.pool_products": dict.fromkeys(("T", "Ta", "Tb", "Tout"), ("float32",)),
    "anabranch.kernels.pool_winograd": {"T": ("float32", "bfloat16")},
}

#: those whose kernels serve loops alone
_FOR_LOOPS: Final = frozenset({"anabranch.kernels.loop_products"})
#: those whose kernels estimates choose, as a rule
_SETTLED: Final = frozenset({"anabranch.kernels.pool_products"})
#: those whose kernels are in no program
_AT_ONCE: Final = frozenset({"anabranch.kernels.native_float_products", "anabranch.kernels.native_halves"})

for _module, _op_types in MODULES.items():
    _flags = _module in _FOR_LOOPS, _module in _SETTLED, _module in _AT_ONCE
    load_kernels_from(_module, _op_types, _TYPES.get(_module), _NEEDS.get(_module), *_flags)

#: the chains of operations that a library computes together
_CHAINS: Final = (("Conv2D", "BiasAdd"), ("Cast", "BiasAddGrad"))
load_chains_from("anabranch.kernels.native_chains", _CHAINS, "anabranch.kernels.onednn")
