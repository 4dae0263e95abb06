"""Reductions along axes, cumulative operations, positions of extremes, sequences, counting."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from anabranch.core import dtypes
from anabranch.core.dtypes import DTypeLike, as_dtype
from anabranch.core.values import TensorLike
from anabranch.frontend.arguments import one_of
from anabranch.frontend.control_flow.checks import assert_less, assert_non_negative
from anabranch.frontend.framework import control_dependencies, name_scope
from anabranch.graph.building import OpFunction
from anabranch.graph.conversion import convert_to_tensor
from anabranch.graph.dispatch import dispatched
from anabranch.graph.operation import Tensor
from anabranch.ops import raw
from anabranch.ops.arithmetic import logic, math as arithmetic, reduction as ops
from anabranch.ops.arrays import sequence


# ---------------------------------------------------------------------- along axes
def _axes(x: Tensor, axis: TensorLike) -> Any:
    """`axis`, or all axes of `x`."""
    if axis is not None:
        return axis
    if x.shape.ndims is not None:
        return np.arange(x.shape.ndims, dtype=np.int32)
    return sequence.Range(0, raw.Rank(x), 1)


def _reduce(op: OpFunction, x: TensorLike, axis: TensorLike, keepdims: bool, name: str | None) -> Tensor:
    logical = op in (ops.All, ops.Any_)
    x = convert_to_tensor(x, name="input", dtype_hint=dtypes.bool if logical else None)
    result: Tensor = op(x, _axes(x, axis), keep_dims=bool(keepdims), name=name)
    if axis is None and not keepdims:
        result.set_shape([])
    return result


def _reduction(name: str, op: OpFunction, what: str, kinds: str, example: str) -> Callable[..., Tensor]:
    def function(
        input_tensor: TensorLike,
        axis: TensorLike | None = None,
        keepdims: bool | None = None,
        name: str | None = None,
        reduction_indices: TensorLike | None = None,
        keep_dims: bool | None = None,
    ) -> Tensor:
        keepdims = one_of("keepdims", keepdims, "keep_dims", keep_dims)
        axis = one_of("axis", axis, "reduction_indices", reduction_indices)
        return _reduce(op, input_tensor, axis, keepdims, name)

    along, over_all = example.split("; ")
    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"""{what}

    Args:
        input_tensor: a tensor of any shape; {kinds}.
        axis: an axis or a list of them, counted from the end where negative; default: all.
        keepdims: whether the reduced dimensions stay, of size 1.
        name: of the operation.
        reduction_indices, keep_dims: deprecated names of `axis` and `keepdims`.

    Returns:
        A tensor of the dtype of `input_tensor`, and of its shape without the reduced dimensions.

    Raises:
        TypeError: `input_tensor` is of another dtype.
        ValueError: an axis is out of range, or an argument is given under both names.

    Example:
        >>> x = tf.constant({"[[True, False], [True, True]]" if kinds == "bool" else "[[1.0, 2.0], [3.0, 6.0]]"})
        >>> sess.run(tf.{name}(x, axis=0))
        {along}
        >>> sess.run(tf.{name}(x))
        {over_all}
    """
    return dispatched(function)


_NUMBERS = "numbers"
reduce_sum = _reduction(
    "reduce_sum",
    ops.Sum,
    "The sum of the elements along axes.",
    _NUMBERS,
    "array([4., 8.], dtype=float32); np.float32(12.0)",
)
reduce_mean = _reduction(
    "reduce_mean",
    ops.Mean,
    "The mean of the elements along axes; truncated for integers.",
    _NUMBERS,
    "array([2., 4.], dtype=float32); np.float32(3.0)",
)
reduce_prod = _reduction(
    "reduce_prod",
    ops.Prod,
    "The product of the elements along axes.",
    _NUMBERS,
    "array([ 3., 12.], dtype=float32); np.float32(36.0)",
)
reduce_max = _reduction(
    "reduce_max",
    ops.Max,
    "The greatest element along axes.",
    "real numbers",
    "array([3., 6.], dtype=float32); np.float32(6.0)",
)
reduce_min = _reduction(
    "reduce_min",
    ops.Min,
    "The smallest element along axes.",
    "real numbers",
    "array([1., 2.], dtype=float32); np.float32(1.0)",
)
reduce_all = _reduction(
    "reduce_all",
    ops.All,
    "Whether all elements along axes are true.",
    "bool",
    "array([ True, False]); np.False_",
)
reduce_any = _reduction(
    "reduce_any",
    ops.Any_,
    "Whether any element along axes is true.",
    "bool",
    "array([ True,  True]); np.True_",
)


def reduce_euclidean_norm(
    input_tensor: TensorLike, axis: TensorLike | None = None, keepdims: bool = False, name: str | None = None
) -> Tensor:
    """The square root of the sum of the squares along axes; see `reduce_sum`."""
    return _reduce(ops.EuclideanNorm, input_tensor, axis, keepdims, name)


def reduce_logsumexp(
    input_tensor: TensorLike,
    axis: TensorLike | None = None,
    keepdims: bool | None = None,
    name: str | None = None,
    reduction_indices: TensorLike | None = None,
    keep_dims: bool | None = None,
) -> Tensor:
    """log(sum(exp(elements))) along axes, computed without overflow; see `reduce_sum`."""
    keepdims = bool(one_of("keepdims", keepdims, "keep_dims", keep_dims))
    axis = one_of("axis", axis, "reduction_indices", reduction_indices)
    with name_scope(name, "ReduceLogSumExp", [input_tensor]) as scope:
        x = convert_to_tensor(input_tensor, name="input")
        greatest = _reduce(ops.Max, x, axis, True, None)
        finite = raw.Select(logic.IsFinite(greatest), greatest, raw.ZerosLike(greatest))
        offset = raw.StopGradient(finite)
        total = _reduce(ops.Sum, arithmetic.Exp(arithmetic.Sub(x, offset)), axis, keepdims, None)
        log = arithmetic.Log(total)
        if not keepdims:
            offset = raw.Reshape(offset, raw.Shape(log))
        result: Tensor = arithmetic.AddV2(log, offset, name=scope)
        return result


def reduce_variance(
    input_tensor: TensorLike, axis: TensorLike | None = None, keepdims: bool = False, name: str | None = None
) -> Tensor:
    """The mean of the squared differences from the mean along axes; see `reduce_sum`.

    Raises:
        TypeError: the elements are not floating or complex.
    """
    with name_scope(name or "reduce_variance"):
        x = convert_to_tensor(input_tensor, name="input")
        if not (x.dtype.is_floating or x.dtype.is_complex):
            raise TypeError(f"Input must be either real or complex floating point, got {x.dtype.name}")
        difference = arithmetic.Sub(x, _reduce(ops.Mean, x, axis, True, None))
        if x.dtype.is_complex:
            parts = raw.Real(raw.Mul(difference, raw.Conj(difference)), Tout=x.dtype.real_dtype)
            return _reduce(ops.Mean, parts, axis, keepdims, None)
        return _reduce(ops.Mean, arithmetic.Square(difference), axis, keepdims, None)


def reduce_std(
    input_tensor: TensorLike, axis: TensorLike | None = None, keepdims: bool = False, name: str | None = None
) -> Tensor:
    """The square root of `reduce_variance`."""
    with name_scope(name or "reduce_std"):
        result: Tensor = arithmetic.Sqrt(reduce_variance(input_tensor, axis, keepdims))
        return result


def count_nonzero(
    input_tensor: TensorLike | None = None,
    axis: TensorLike | None = None,
    keepdims: bool | None = None,
    dtype: DTypeLike = dtypes.int64,
    name: str | None = None,
    reduction_indices: TensorLike | None = None,
    keep_dims: bool | None = None,
    input: TensorLike | None = None,
) -> Tensor:
    """How many elements along axes are not zero (strings: not empty), of `dtype`; see `reduce_sum`.

    Args:
        input_tensor: numbers, bool or strings of any shape.
        axis: an axis or a list of them; default: all.
        keepdims: whether the counted dimensions stay, of size 1.
        dtype: of the result.
        name: of the operation.
        reduction_indices, keep_dims, input: deprecated names of `axis`, `keepdims` and `input_tensor`.

    Returns:
        The shape of `input_tensor` without the counted dimensions.

    Raises:
        ValueError: an axis is out of range, or an argument is given under both names.

    Example:
        >>> sess.run(tf.count_nonzero([[0, 1], [2, 0], [3, 4]], axis=0))
        array([2, 2])
    """
    keepdims = one_of("keepdims", keepdims, "keep_dims", keep_dims)
    input_tensor = one_of("input", input, "input_tensor", input_tensor)
    axis = one_of("axis", axis, "reduction_indices", reduction_indices)
    with name_scope(name, "count_nonzero", [input_tensor]):
        x = convert_to_tensor(input_tensor, name="input")
        zero: Any = b"" if x.dtype is dtypes.string else np.zeros((), x.dtype.as_numpy_dtype)
        present = logic.NotEqual(x, convert_to_tensor(zero, x.dtype))
        counts = _reduce(ops.Sum, arithmetic.Cast(present, DstT=dtypes.int64), axis, keepdims, None)
        target = as_dtype(dtype)
        result: Tensor = counts if target is dtypes.int64 else arithmetic.Cast(counts, DstT=target)
        return result


def cumsum(
    x: TensorLike, axis: TensorLike = 0, exclusive: bool = False, reverse: bool = False, name: str | None = None
) -> Tensor:
    """The sums of the elements up to each along an axis.

    Args:
        x: numbers of any shape.
        axis: a scalar.
        exclusive: whether an element itself is left out of its sum.
        reverse: whether to start from the end.
        name: of the operation.

    Returns:
        A tensor of the shape and dtype of `x`.

    Raises (in the step):
        InvalidArgumentError: `axis` is out of range.

    Example:
        >>> sess.run(tf.cumsum([1, 2, 3]))
        array([1, 3, 6], dtype=int32)
        >>> sess.run(tf.cumsum([1, 2, 3], exclusive=True))
        array([0, 1, 3], dtype=int32)
    """
    result: Tensor = ops.Cumsum(x, axis, exclusive=exclusive, reverse=reverse, name=name)
    return result


def cumprod(
    x: TensorLike, axis: TensorLike = 0, exclusive: bool = False, reverse: bool = False, name: str | None = None
) -> Tensor:
    """The products of the elements up to each along an axis; see `cumsum`."""
    result: Tensor = ops.Cumprod(x, axis, exclusive=exclusive, reverse=reverse, name=name)
    return result


def cumulative_logsumexp(
    x: TensorLike, axis: TensorLike = 0, exclusive: bool = False, reverse: bool = False, name: str | None = None
) -> Tensor:
    """The logarithms of the sums of exponentials up to each element along an axis; see `cumsum`.

    The logarithm of an empty sum is minus infinity.
    """
    result: Tensor = raw.CumulativeLogsumexp(x, axis, exclusive=exclusive, reverse=reverse, name=name)
    return result


def argmax(
    input: TensorLike,
    axis: TensorLike | None = None,
    name: str | None = None,
    dimension: TensorLike | None = None,
    output_type: DTypeLike = dtypes.int64,
) -> Tensor:
    """The index of the first greatest element along an axis.

    Args:
        input: a tensor of real numbers of any shape.
        axis: a number (int32 or int64 []), counted from the end where negative; default: 0.
        name: of the operation.
        dimension: deprecated name of `axis`.
        output_type: int32 or int64.

    Returns:
        The shape of `input` without `axis`.

    Raises:
        ValueError: the axis is out of range, or given under both names.

    Example:
        >>> sess.run(tf.argmax([[1, 9, 3], [7, 5, 7]], axis=1))
        array([1, 0])
    """
    axis = one_of("axis", axis, "dimension", dimension)
    result: Tensor = ops.ArgMax(input, 0 if axis is None else axis, output_type=output_type, name=name)
    return result


def argmin(
    input: TensorLike,
    axis: TensorLike | None = None,
    name: str | None = None,
    dimension: TensorLike | None = None,
    output_type: DTypeLike = dtypes.int64,
) -> Tensor:
    """The index of the first smallest element along an axis.

    Args:
        input: numbers.
        axis: a number (int32 or int64 []), counted from the end where negative; default: 0.
        dimension: deprecated name of `axis`.
        output_type: int32 or int64.

    Returns:
        The shape of `input` without `axis`.

    Raises:
        ValueError: the axis is out of range, or given under both names.
    """
    axis = one_of("axis", axis, "dimension", dimension)
    result: Tensor = ops.ArgMin(input, 0 if axis is None else axis, output_type=output_type, name=name)
    return result


def arg_max(
    input: TensorLike, dimension: TensorLike, output_type: DTypeLike = dtypes.int64, name: str | None = None
) -> Tensor:
    """The index of the first greatest element along `dimension` (deprecated: `argmax` in another order)."""
    return argmax(input, dimension, name, output_type=output_type)


def arg_min(
    input: TensorLike, dimension: TensorLike, output_type: DTypeLike = dtypes.int64, name: str | None = None
) -> Tensor:
    """The index of the first smallest element along `dimension` (deprecated: `argmin` in another order)."""
    return argmin(input, dimension, name, output_type=output_type)


# ---------------------------------------------------------------------- sequences
_RANGE_TYPES = (dtypes.int32, dtypes.int64, dtypes.float32, dtypes.float64)


def range(
    start: TensorLike,
    limit: TensorLike | None = None,
    delta: TensorLike = 1,
    dtype: DTypeLike | None = None,
    name: str = "range",
) -> Tensor:
    """The numbers start, start + delta, ... before `limit`; `range(limit)` starts at 0.

    Args:
        start, limit, delta: scalars.
        dtype: default: the widest among the arguments' of int32, int64, float32, float64.
        name: of the operation.

    Returns:
        A vector of ``ceil((limit - start) / delta)`` numbers.

    Raises:
        ValueError: `delta` is 0, or leads away from `limit`.

    Example:
        >>> sess.run(tf.range(3))
        array([0, 1, 2], dtype=int32)
        >>> sess.run(tf.range(1.0, 2.0, delta=0.5))
        array([1. , 1.5], dtype=float32)
    """
    if limit is None:
        start, limit = 0, start
    with name_scope(name, "Range", [start, limit, delta]) as scope:
        target = None if dtype is None else as_dtype(dtype)
        ends = [convert_to_tensor(v, target, name=n) for v, n in ((start, "start"), (limit, "limit"), (delta, "delta"))]
        if target is None:
            target = max((t.dtype.base_dtype for t in ends), key=_RANGE_TYPES.index)
        cast = [t if t.dtype.base_dtype is target else arithmetic.Cast(t, DstT=target) for t in ends]
        result: Tensor = sequence.Range(*cast, name=scope)
        return result


def linspace(start: TensorLike, stop: TensorLike, num: TensorLike, name: str | None = None) -> Tensor:
    """`num` numbers at equal distances from `start` to `stop`, both included; floating.

    Args:
        start, stop: scalars of one dtype, float32 or float64.
        num: an integer scalar, at least 1.
        name: of the operation.

    Returns:
        A vector of `num` numbers.

    Raises:
        TypeError: the dtypes differ or are not floating.

    Raises (in the step):
        InvalidArgumentError: `num` is less than 1.

    Example:
        >>> sess.run(tf.linspace(0.0, 1.0, 5))
        array([0.  , 0.25, 0.5 , 0.75, 1.  ], dtype=float32)
    """
    result: Tensor = sequence.LinSpace(start, stop, num, name=name)
    return result


lin_space = linspace


# ---------------------------------------------------------------------- counting
def bincount(
    arr: TensorLike,
    weights: TensorLike | None = None,
    minlength: TensorLike | None = None,
    maxlength: TensorLike | None = None,
    dtype: DTypeLike = dtypes.int32,
) -> Tensor:
    """How often each of 0, 1, ... stands in `arr`; or the sum of the weights there.

    Args:
        arr: int32, not negative, any shape.
        weights: of the shape of `arr`; default: 1 each.
        minlength, maxlength: bounds of the length of the result, which is else the greatest value + 1.
        dtype: of the result where `weights` is not given.
    """
    with name_scope(None, "bincount"):
        arr = convert_to_tensor(arr, dtypes.int32, name="arr")
        greatest = _reduce(ops.Max, raw.ConcatV2([raw.Reshape(arr, [-1]), [-1]], 0), None, False, None)
        size = arithmetic.AddV2(greatest, 1)
        if minlength is not None:
            size = arithmetic.Maximum(convert_to_tensor(minlength, dtypes.int32, name="minlength"), size)
        if maxlength is not None:
            size = arithmetic.Minimum(convert_to_tensor(maxlength, dtypes.int32, name="maxlength"), size)
        each = np.zeros(0, as_dtype(dtype).as_numpy_dtype) if weights is None else weights
        result: Tensor = sequence.Bincount(arr, size, each)
        return result


def histogram_fixed_width(
    values: TensorLike,
    value_range: TensorLike,
    nbins: TensorLike = 100,
    dtype: DTypeLike = dtypes.int32,
    name: str | None = None,
) -> Tensor:
    """How many values fall into each of `nbins` bins of equal width.

    Args:
        values: numbers.
        value_range: shape [2], of the same dtype; what lies outside is counted in the first and the last bin.
        nbins: a scalar.
        dtype: of the counts, int32 or int64.
    """
    with name_scope(name, "histogram_fixed_width", [values, value_range, nbins]) as scope:
        values = convert_to_tensor(values, name="values")
        edges = convert_to_tensor(value_range, values.dtype.base_dtype, name="value_range")
        result: Tensor = sequence.HistogramFixedWidth(values, edges, nbins, dtype=dtype, name=scope)
        return result


def histogram_fixed_width_bins(
    values: TensorLike,
    value_range: TensorLike,
    nbins: TensorLike = 100,
    dtype: DTypeLike = dtypes.int32,
    name: str | None = None,
) -> Tensor:
    """The bin that each value falls into, of the shape of `values`; int32 whatever `dtype` asks for.

    See `histogram_fixed_width`.
    """
    with name_scope(name, "histogram_fixed_width_bins", [values, value_range, nbins]):
        values = convert_to_tensor(values, name="values")
        edges = convert_to_tensor(value_range, values.dtype.base_dtype, name="value_range")
        wide = dtypes.float32 if values.dtype.base_dtype is dtypes.float32 else dtypes.float64
        values, edges = (arithmetic.Cast(t, DstT=wide) for t in (values, edges))
        count = convert_to_tensor(nbins, dtypes.int32, name="nbins")
        low, high = (raw.StridedSlice(edges, [i], [i + 1], [1], shrink_axis_mask=1) for i in (0, 1))
        scaled = arithmetic.RealDiv(arithmetic.Sub(values, low), arithmetic.Sub(high, low))
        bins = arithmetic.Floor(arithmetic.Mul(arithmetic.Cast(count, DstT=wide), scaled))
        last = arithmetic.Cast(arithmetic.Sub(count, 1), DstT=wide)
        clipped = arithmetic.ClipByValue(bins, np.zeros((), wide.as_numpy_dtype), last)
        result: Tensor = arithmetic.Cast(clipped, DstT=dtypes.int32)
        return result


def confusion_matrix(
    labels: TensorLike,
    predictions: TensorLike,
    num_classes: TensorLike | None = None,
    dtype: DTypeLike = dtypes.int32,
    name: str | None = None,
    weights: TensorLike | None = None,
) -> Tensor:
    """How often each class (row) was taken for each class (column).

    Args:
        labels, predictions: classes, shape [n] (or with one more dimension of size 1 in one of them).
        num_classes: default: the greatest class + 1.
        dtype: of the counts.
        weights: what each pair counts, shape [n]; default 1.

    Returns:
        Shape [num_classes, num_classes]. The step fails where a class is negative or not below `num_classes`.
    """
    with name_scope(name, "confusion_matrix", [predictions, labels]):
        rows, columns = _same_rank(
            convert_to_tensor(labels, name="labels"), convert_to_tensor(predictions, name="predictions")
        )
        rows, columns = (
            t if t.dtype is dtypes.int64 else arithmetic.Cast(t, DstT=dtypes.int64) for t in (rows, columns)
        )
        target = as_dtype(dtype)
        rows = _checked(assert_non_negative, rows, message="`labels` contains negative values")
        columns = _checked(assert_non_negative, columns, message="`predictions` contains negative values")
        if num_classes is None:
            greatest = [_reduce(ops.Max, t, None, False, None) for t in (rows, columns)]
            count = arithmetic.AddV2(arithmetic.Maximum(*greatest), 1)
        else:
            count = arithmetic.Cast(num_classes, DstT=dtypes.int64)
            rows = _checked(assert_less, rows, count, message="`labels` out of bound")
            columns = _checked(assert_less, columns, count, message="`predictions` out of bound")
        if weights is None:
            each = raw.OnesLike(arithmetic.Cast(rows, DstT=target))
        else:
            weights = convert_to_tensor(weights)
            rows.shape.assert_is_compatible_with(weights.shape)
            each = arithmetic.Cast(weights, DstT=target)
        result: Tensor = raw.ScatterNd(raw.Pack([rows, columns], axis=1), each, raw.Pack([count, count]))
        return result


def _checked(check: Callable[..., Any], x: Tensor, *others: Tensor, message: str) -> Tensor:
    """`x`, behind a check of it."""
    with control_dependencies([check(x, *others, message=message)]):
        result: Tensor = raw.Identity(x)
        return result


def _same_rank(labels: Tensor, predictions: Tensor) -> tuple[Tensor, Tensor]:
    """Squeezes the last dimension of the one whose rank is one greater."""
    if labels.shape.ndims is not None and predictions.shape.ndims is not None:
        difference = predictions.shape.ndims - labels.shape.ndims
        if difference == 1:
            predictions = raw.Squeeze(predictions, squeeze_dims=[-1])
        elif difference == -1:
            labels = raw.Squeeze(labels, squeeze_dims=[-1])
    return labels, predictions
