"""Which operation types profit from half precision, which stand it, and which need float32.

The categories are those of automatic mixed precision in the field (Micikevicius et al., 2018): products of matrices and
convolutions profit; what is linear or bounded stands it; exponentials, logarithms, powers and long sums need the range
or the bits of float32; and what only moves, compares or selects values loses nothing.
"""

from __future__ import annotations

import enum
from typing import Final

from anabranch.core.op_def import OpDef


class HalfPrecision(enum.Enum):
    """What half precision means for an operation type; the value is what explanations say."""

    #: computed in half precision always
    PROFITS = "profits from half precision"
    #: where its neighbours are
    STANDS = "stands half precision"
    #: never; nor is what stands it and works on the results
    NEEDS_FLOAT32 = "needs float32"
    #: in either
    INDIFFERENT = "moves, compares or selects values"
    #: left as it is
    UNKNOWN = "takes no part"


_PROFITS: Final = (
    *("MatMul", "BatchMatMul", "BatchMatMulV2", "Einsum"),
    *("Conv2D", "Conv2DBackpropInput", "Conv2DBackpropFilter"),
    *("Conv3D", "Conv3DBackpropInputV2", "Conv3DBackpropFilterV2"),
    *("DepthwiseConv2dNative", "DepthwiseConv2dNativeBackpropInput", "DepthwiseConv2dNativeBackpropFilter"),
)
_STANDS: Final = (
    *("Add", "AddV2", "AddN", "Sub", "Mul", "RealDiv", "Neg", "Square", "SquaredDifference", "Sqrt", "Rsqrt", "Inv"),
    *("BiasAdd", "BiasAddGrad", "BiasAddV1", "AvgPool", "AvgPoolGrad", "AvgPool3D", "AvgPool3DGrad"),
    *("FusedBatchNormV2", "FusedBatchNormGradV2", "FusedBatchNormV3", "FusedBatchNormGradV3"),
    *("Sigmoid", "SigmoidGrad", "Tanh", "TanhGrad", "Elu", "EluGrad", "Selu", "SeluGrad", "Softplus", "SoftplusGrad"),
    *("Softsign", "SoftsignGrad", "Prod", "Reciprocal", "ReciprocalGrad", "SqrtGrad", "RsqrtGrad"),
)
_NEEDS_FLOAT32: Final = (
    *("Exp", "Expm1", "Log", "Log1p", "Pow", "L2Loss", "Mean", "Sum", "Softmax", "LogSoftmax", "Cumsum", "Cumprod"),
    *("SoftmaxCrossEntropyWithLogits", "SparseSoftmaxCrossEntropyWithLogits"),
)
_INDIFFERENT: Final = (
    *("Abs", "Sign", "Ceil", "Floor", "Round", "Rint", "Relu", "ReluGrad", "Relu6", "Relu6Grad"),
    *("LeakyRelu", "LeakyReluGrad", "MaxPool", "MaxPoolGrad", "MaxPool3D", "MaxPool3DGrad", "Max", "Min"),
    *("Maximum", "Minimum", "Select", "SelectV2", "ZerosLike", "OnesLike", "StopGradient", "Snapshot"),
    *("Reshape", "Squeeze", "ExpandDims", "Transpose", "Tile", "BroadcastTo", "Fill", "ReverseV2"),
    *("ConcatV2", "Split", "SplitV", "Pack", "Unpack", "Pad", "PadV2", "MirrorPad", "Slice", "StridedSlice"),
    *("StridedSliceGrad", "DepthToSpace", "SpaceToDepth", "SpaceToBatchND", "BatchToSpaceND", "Identity"),
)


#: each category's types
TYPES_BY_CATEGORY: Final[dict[HalfPrecision, tuple[str, ...]]] = {
    HalfPrecision.PROFITS: _PROFITS,
    HalfPrecision.STANDS: _STANDS,
    HalfPrecision.NEEDS_FLOAT32: _NEEDS_FLOAT32,
    HalfPrecision.INDIFFERENT: _INDIFFERENT,
}
_CATEGORIES: Final = {name: category for category, names in TYPES_BY_CATEGORY.items() for name in names}


def half_precision_of(op_def: OpDef) -> HalfPrecision:
    """What half precision means for operations of a type."""
    return _CATEGORIES.get(op_def.name, HalfPrecision.UNKNOWN)
