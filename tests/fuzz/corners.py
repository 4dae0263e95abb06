"""Gradients that TensorFlow leaves open, or has another opinion of: by the operation that they go through.

docs/differences.md says why for each.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from tests.fuzz.undefined import has_other_maxima
from tests.fuzz.wire import Array


def _always(_: Sequence[Array]) -> bool:
    return True


def _has_zero(inputs: Sequence[Array]) -> bool:
    return bool((inputs[0] == 0).any())


def _picks_nothing(inputs: Sequence[Array]) -> bool:
    return inputs[1].size == 0


def _has_nan(inputs: Sequence[Array]) -> bool:
    return bool(np.isnan(inputs[0]).any())


def _has_open_maxima(inputs: Sequence[Array]) -> bool:
    return _has_nan(inputs) or has_other_maxima(inputs)


@dataclass(frozen=True)
class Corner:
    """When the gradient is open.

    Attributes:
        holds: whether it is for these inputs of the operation.
        order: the lowest order of gradients.
        by: the name of an input: gradients with respect to what it depends on; all of them where that is None.
        through: an output, through which a gradient of the first order counts as one of the second.
        nan: whether only those elements are open of which TensorFlow says NaN.
    """

    holds: Callable[[Sequence[Array]], bool] = _always
    order: int = 1
    by: str | None = None
    through: int | None = None
    nan: bool = False


CORNERS = {
    # the maxima that these are told may be others than those of their data
    "MaxPoolGrad": Corner(_has_open_maxima, order=2),
    "MaxPoolGradV2": Corner(_has_open_maxima, order=2),
    "MaxPoolGradGrad": Corner(_has_open_maxima),
    "MaxPoolGradGradV2": Corner(_has_open_maxima),
    # which of the numbers beside NaN is the largest, each library has as it happens
    **{name: Corner(_has_nan) for name in ("MaxPool", "MaxPoolV2", "MaxPool3D", "MaxPoolWithArgmax")},
    "MaxPool3DGrad": Corner(_has_nan),
    "MaxPool3DGradGrad": Corner(_has_nan),
    "BesselI1e": Corner(_has_zero, order=2, nan=True),
    "Pow": Corner(_has_zero, nan=True),
    "SegmentProd": Corner(_has_zero, order=2),
    "UnsortedSegmentProd": Corner(_has_zero, order=2),
    "SoftmaxCrossEntropyWithLogits": Corner(order=2, by="labels", through=1),
    "MatrixSolveLs": Corner(order=2, by="l2_regularizer"),
    **{
        f"SparseSegment{kind}{ids}": Corner(_picks_nothing)
        for kind in ("Sum", "Mean", "SqrtN")
        for ids in ("", "WithNumSegments")
    },
}
