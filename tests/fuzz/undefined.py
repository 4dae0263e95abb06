"""Which elements of a result nobody defines: what NaN or infinity among the inputs leaves to an algorithm.

A result falls into units that depend on one unit of each input: the matrices of a decomposition, the rows of a search,
the pixels of a change of colours. Only the units are left out of the comparison whose inputs are wild. So are the
whole numbers that are made of numbers too large for them: C++ does not say what they are, and TensorFlow gives several
answers, which depend on where in the tensor they stand.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tests.fuzz.comparison import TOLERANCE
from tests.fuzz.wire import Array


@dataclass(frozen=True)
class _Rule:
    """What is wild, and how many trailing axes of the inputs a unit has; all of them where that is None."""

    wild: Callable[[Array], Array]
    axes: int | None


def _not_finite(value: Array) -> Array:
    return ~np.isfinite(value)


def _not_finite_or_huge(value: Array) -> Array:
    """Elements whose squares leave nothing of numbers near 1."""
    return ~(np.abs(value.astype(np.float64)) < 1e8)


def _rules(names: str, wild: Callable[[Array], Array], axes: int | None) -> dict[str, _Rule]:
    return dict.fromkeys(names.split(), _Rule(wild, axes))


#: by operation type (docs/differences.md)
_RULES = {
    **_rules(
        "Qr Svd SelfAdjointEigV2 Lu Cholesky MatrixInverse MatrixSolve MatrixSolveLs MatrixTriangularSolve "
        "MatrixDeterminant LogMatrixDeterminant",
        _not_finite,
        2,
    ),
    **_rules("CholeskyGrad", _not_finite_or_huge, 2),
    **_rules("TopK TopKV2 NthElement", np.isnan, 1),
    **_rules("RGBToHSV AdjustHue AdjustSaturation", _not_finite, 1),
    **_rules(
        "MaxPool MaxPoolV2 MaxPool3D MaxPoolGrad MaxPoolGradV2 MaxPool3DGrad MaxPoolGradGrad MaxPool3DGradGrad "
        "MaxPoolWithArgmax SegmentMax SegmentMin UnsortedSegmentMax UnsortedSegmentMin "
        "SparseReduceMax SparseReduceMaxSparse SparseSparseMaximum SparseSparseMinimum",
        np.isnan,
        None,
    ),
}
#: operations that may multiply what is not finite by the zeros beside the border
_PADDED = re.compile(r"Conv[23]D|DepthwiseConv2dNative")
#: outputs that hold nothing where nothing is trained
RESERVED = {"FusedBatchNorm", "FusedBatchNormV2", "FusedBatchNormV3"}

#: operations that are told the maxima of their data, and of which TensorFlow computes them anew on processors alone
_OF_MAXIMA = {"MaxPoolGrad", "MaxPoolGradV2"}

#: "SAME", as programs have it
_SAME = base64.b64encode(b"SAME").decode()

#: sums of nothing, for which TensorFlow leaves the memory as it finds it
_SPARSE_GRADIENT = re.compile(r"SparseSegment(Sum|Mean|SqrtN)Grad")

#: transforms of nothing that is padded, for which it does so too
_REAL_TRANSFORM = re.compile(r"I?RFFT[23]?D?")

#: sums of which TensorFlow adds nine terms in single precision, which are not enough far below zero
_OF_NINE_TERMS = {"Zeta", "Polygamma"}

#: operations for which TensorFlow 2.21 gives no numbers where TensorFlow 1.15 refuses a matrix (docs/differences.md)
MAY_LACK_FACTOR = {"Cholesky"}


def undefined(
    operation: str, attrs: dict[str, Any], output: int, inputs: list[Array], result: Array, there: Array | None = None
) -> Array:
    """Which elements of an output are left out: an array of bools that broadcasts against the output, `result`.

    Args:
        there: what TensorFlow gave, where that is known; of the shape of `result`.
    """
    shape = result.shape
    if operation == "Cast" and result.dtype.kind in "iu":
        return _unrepresentable(inputs[0], np.iinfo(result.dtype))
    if operation == "CTCBeamSearchDecoder" and output < 3 * attrs["top_paths"] and _have_equals(inputs[0][..., :-1]):
        return np.array(True)
    if operation in _OF_MAXIMA and (has_other_maxima(inputs) or not _are_maxima(inputs, attrs)):
        return np.array(True)
    unlike = _unlike_there(operation, inputs)
    if unlike is not None:
        return unlike
    if operation in RESERVED and output >= 3 and not attrs.get("is_training", True):
        return np.array(True)
    if operation == "Lu" and inputs[0].dtype.kind == "c":
        several = _pivots_differ(inputs[0])
        return several.reshape(several.shape + (1,) * (result.ndim - several.ndim))
    if _PADDED.match(operation) and any(_not_finite(v).any() for v in inputs if v.dtype.name in TOLERANCE):
        return np.isnan(result) if there is None or there.shape != shape else np.isnan(result) | np.isnan(there)
    rule = _RULES.get(operation)
    if rule is None:
        return np.array(False)
    units = [_wild_units(value, rule) for value in inputs if value.dtype.name in TOLERANCE]
    leading = np.broadcast_shapes(*(unit.shape for unit in units)) if units else ()
    if leading != shape[: len(leading)]:
        return np.array(any(unit.any() for unit in units))
    wild = np.zeros(leading, bool)
    for unit in units:
        wild |= unit
    return wild.reshape(leading + (1,) * (len(shape) - len(leading)))


def _unlike_there(operation: str, inputs: list[Array]) -> Array | None:
    """The elements for which TensorFlow takes another way, or none."""
    if operation == "SigmoidGrad":  # it multiplies vectors in another order than single numbers
        with np.errstate(all="ignore"):
            return np.asarray(~np.isfinite(inputs[0] * (1 - inputs[0])))
    if _SPARSE_GRADIENT.fullmatch(operation) and inputs[1].size == 0:
        return np.array(True)
    if _REAL_TRANSFORM.fullmatch(operation) and inputs[0].size == 0:
        return np.array(True)
    if operation in _OF_NINE_TERMS and inputs[1].dtype == np.float32:
        return np.asarray(inputs[1] < -5)
    return None


def has_other_maxima(inputs: Sequence[Array]) -> bool:
    """Whether an operation that takes data and their maxima first is told maxima that are not among the data."""
    data, maxima = inputs[:2]
    return not np.isin(maxima, data).all()


def _are_maxima(inputs: Sequence[Array], attrs: dict[str, Any]) -> bool:
    """Whether each of the maxima that the operation is told is that of its own window of the data [N, H, W, C]."""
    data, told = inputs[:2]
    sizes, steps = (
        attrs.get(name, given) for name, given in zip(("ksize", "strides"), _fed_windows(inputs), strict=True)
    )
    padding = attrs.get("padding", {}).get("bytes")
    if sizes is None or steps is None or data.ndim != 4 or (sizes[0], sizes[3]) != (1, 1):
        return True  # not known: compared
    starts = [0, 0]
    if padding == _SAME:
        spans = ((-(-n // s) - 1) * s + k - n for n, s, k in zip(data.shape[1:3], steps[1:3], sizes[1:3], strict=True))
        starts = [-(max(span, 0) // 2) for span in spans]
    for n, y, x, c in np.ndindex(told.shape):
        top, left = y * steps[1] + starts[0], x * steps[2] + starts[1]
        window = data[n, max(top, 0) : top + sizes[1], max(left, 0) : left + sizes[2], c]
        if window.size == 0 or told[n, y, x, c] != window.max():
            return False
    return True


def _fed_windows(inputs: Sequence[Array]) -> list[list[int] | None]:
    """Sizes and steps where they are inputs, as the second versions have it."""
    return [[int(n) for n in value] for value in inputs[3:5]] if len(inputs) == 5 else [None, None]


def lacks_factor(matrices: Array) -> bool:
    """Whether TensorFlow says of one of the matrices that it has no factor: NaN on the diagonal, or complex zeros."""
    diagonals = np.diagonal(matrices, axis1=-2, axis2=-1)
    return bool(np.isnan(diagonals).any() or (diagonals == 0).any())


def repeated(keys: Sequence[object]) -> bool:
    """Whether one of them stands twice."""
    return len(set(keys)) < len(keys)


def two_zeros(op: str, inputs: Sequence[Array]) -> str:
    """Says of numbers of half precision that zeros of both signs are among them: two numbers to TensorFlow."""
    if not op.startswith("Unique") or not inputs or inputs[0].dtype.name not in {"float16", "bfloat16"}:
        return ""
    signs = np.signbit(inputs[0][inputs[0] == 0].astype(np.float32))
    return "; of zeros of both signs in half precision" if signs.any() and not signs.all() else ""


def _have_equals(labels: Array) -> bool:
    return bool((np.diff(np.sort(labels, axis=-1), axis=-1) == 0).any())


def _pivots_differ(matrices: Array) -> Array:
    """Of complex matrices [..., n, n], whether the sum of the parts chooses another pivot than the modulus does.

    A pivot that is not finite, or as large as another one up to rounding, is counted as well.
    """
    flat = matrices.reshape(-1, *matrices.shape[-2:]).astype(np.complex128)
    return np.array([_pivot_is_open(matrix) for matrix in flat], bool).reshape(matrices.shape[:-2])


def _pivot_is_open(matrix: Array) -> bool:
    left = matrix.copy()
    for k in range(len(left)):
        column = left[k:, k]
        sizes = np.abs(column), np.abs(column.real) + np.abs(column.imag)
        if not np.isfinite(sizes[0]).all() or any((size > size.max() * (1 - 1e-4)).sum() > 1 for size in sizes):
            return True
        first, second = (int(np.argmax(size)) for size in sizes)
        if first != second:
            return True
        left[[k, k + first]] = left[[k + first, k]]
        left[k + 1 :] -= np.outer(left[k + 1 :, k] / left[k, k], left[k])
    return False


def _unrepresentable(value: Array, limits: np.iinfo[Any]) -> Array:
    if value.dtype.name not in TOLERANCE:
        return np.array(False)
    whole = np.trunc(np.real(value).astype(np.float64))
    return ~((whole >= limits.min) & (whole < 2.0 ** round(np.log2(float(limits.max)))))


def _wild_units(value: Array, rule: _Rule) -> Array:
    axes = value.ndim if rule.axes is None else min(rule.axes, value.ndim)
    return np.asarray(rule.wild(value).any(axis=tuple(range(value.ndim - axes, value.ndim))))
