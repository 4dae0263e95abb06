"""Moments, batch normalization, local response normalization."""

from __future__ import annotations

import numpy as np

from anabranch.core import dtypes
from anabranch.core.values import TensorLike
from anabranch.frontend.arguments import one_of
from anabranch.frontend.arrays.identities import stop_gradient
from anabranch.frontend.framework import name_scope
from anabranch.frontend.nn.activations import given_axes
from anabranch.graph.conversion import convert_to_tensor
from anabranch.graph.operation import Tensor
from anabranch.ops import raw

#: cuDNN refuses a smaller epsilon; TensorFlow therefore never uses one
LEAST_EPSILON = 1.001e-5


def _sum(x: TensorLike, axes: TensorLike, keep: bool, name: str) -> Tensor:
    result: Tensor = raw.Sum(x, axes, keep_dims=keep, name=name)
    return result


def _kept(keep_dims: bool | None, keepdims: bool | None) -> bool:
    return bool(one_of("keepdims", keepdims, "keep_dims", keep_dims))


# ---------------------------------------------------------------------- moments
def moments(
    x: TensorLike,
    axes: TensorLike,
    shift: TensorLike | None = None,
    name: str | None = None,
    keep_dims: bool | None = None,
    keepdims: bool | None = None,
) -> tuple[Tensor, Tensor]:
    """The mean and the (biased) variance of x along axes; half precision is summed in float32.

    Args:
        x: a floating tensor of any shape.
        axes: a list of axes.
        shift: not used.
        name: of the operation.
        keep_dims: deprecated name of `keepdims`.
        keepdims: whether the axes stay, with length 1.

    Returns:
        The mean and the variance, of the shape of `x` without the axes.

    Raises:
        ValueError: an axis is out of range, or an argument is given under both names.

    Example:
        >>> mean, variance = tf.nn.moments(tf.constant([[1.0, 2.0], [3.0, 6.0]]), axes=[0])
        >>> sess.run([mean, variance])
        [array([2., 4.], dtype=float32), array([1., 4.], dtype=float32)]
    """
    keep = _kept(keep_dims, keepdims)
    with name_scope(name, "moments", [x]):
        x, axes = convert_to_tensor(x, name="x"), given_axes(axes)
        half = x.dtype in (dtypes.float16, dtypes.bfloat16)
        y = raw.Cast(x, DstT=dtypes.float32) if half else x
        mean = raw.Mean(y, axes, keep_dims=True, name="mean")
        # The variance does not change with the mean to first order, so no gradient is lost.
        squared = raw.SquaredDifference(y, stop_gradient(mean))
        variance = raw.Mean(squared, axes, keep_dims=True, name="variance")
        if not keep:
            mean, variance = (raw.Squeeze(t, squeeze_dims=_positive(axes, y)) for t in (mean, variance))
        if half:
            mean, variance = (raw.Cast(t, DstT=x.dtype) for t in (mean, variance))
        return mean, variance


def _positive(axes: TensorLike, x: Tensor) -> list[int]:
    """Axes as numbers for an attribute; an empty list would mean all."""
    if isinstance(axes, Tensor):
        raise ValueError("moments needs axes that are known while the graph is built, unless keepdims is set")
    return [int(a) for a in np.reshape(axes, -1)]


def sufficient_statistics(
    x: TensorLike,
    axes: TensorLike,
    shift: TensorLike | None = None,
    keep_dims: bool | None = None,
    name: str | None = None,
    keepdims: bool | None = None,
) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
    """What the moments of x along axes follow from, and what can be added up over batches.

    Returns:
        The count (a scalar of x's dtype), the sum and the sum of squares of x - shift, and `shift` as a tensor or None.
    """
    keep = _kept(keep_dims, keepdims)
    axes = sorted(set(axes))
    with name_scope(name, "sufficient_statistics", [x, shift]):
        x = convert_to_tensor(x, name="x")
        dims = x.shape.dims_tuple
        lengths = None if dims is None else [dims[a] for a in axes]
        if lengths is not None and None not in lengths:
            size = int(np.prod([n for n in lengths if n is not None], dtype=np.int64))
            counts = convert_to_tensor(np.asarray(size, x.dtype.as_numpy_dtype), name="count")
        else:
            chosen = raw.GatherV2(raw.Shape(x), np.array(axes, np.int32), np.int32(0))
            counts = raw.Prod(raw.Cast(chosen, DstT=x.dtype), np.array([0], np.int32), name="count")
        if shift is None:
            first, second, offset = x, raw.Square(x), None
        else:
            offset = convert_to_tensor(shift, name="shift")
            first, second = raw.Sub(x, offset), raw.SquaredDifference(x, offset)
        where = given_axes(axes)
        return counts, _sum(first, where, keep, "mean_ss"), _sum(second, where, keep, "var_ss"), offset


def normalize_moments(
    counts: TensorLike, mean_ss: TensorLike, variance_ss: TensorLike, shift: TensorLike, name: str | None = None
) -> tuple[Tensor, Tensor]:
    """The mean and the variance that follow from sufficient statistics (`shift`: the one used there, or None)."""
    with name_scope(name, "normalize", [counts, mean_ss, variance_ss, shift]):
        divisor = raw.Reciprocal(convert_to_tensor(counts), name="divisor")
        shifted = raw.Mul(mean_ss, divisor, name="shifted_mean")
        mean = shifted if shift is None else raw.Add(shifted, shift, name="mean")
        variance = raw.Sub(raw.Mul(variance_ss, divisor), raw.Square(shifted), name="variance")
        return mean, variance


def weighted_moments(
    x: TensorLike,
    axes: TensorLike,
    frequency_weights: TensorLike,
    name: str | None = None,
    keep_dims: bool | None = None,
    keepdims: bool | None = None,
) -> tuple[Tensor, Tensor]:
    """The mean and the variance of x along axes, where each element counts with a weight.

    Args:
        frequency_weights: broadcasts to x.
    """
    keep = _kept(keep_dims, keepdims)
    with name_scope(name, "weighted_moments", [x, frequency_weights, axes]):
        x, axes = convert_to_tensor(x, name="x"), given_axes(axes)
        weights = convert_to_tensor(frequency_weights, name="frequency_weights")
        half = x.dtype in (dtypes.float16, dtypes.bfloat16)
        wide = raw.Cast(x, DstT=dtypes.float32) if half else x
        if weights.dtype is not wide.dtype:
            weights = raw.Cast(weights, DstT=wide.dtype)
        weighted = _sum(raw.Mul(weights, wide), axes, True, "weighted_input_sum")
        everywhere = raw.Add(weights, raw.ZerosLike(wide))
        total = _sum(everywhere, axes, True, "sum_of_weights")
        mean = raw.RealDiv(weighted, total)
        spread = _sum(raw.Mul(weights, raw.SquaredDifference(wide, mean)), axes, True, "weighted_distsq")
        variance = raw.RealDiv(spread, total)
        if not keep:
            mean, variance = (raw.Squeeze(t, squeeze_dims=_positive(axes, wide)) for t in (mean, variance))
        if half:
            mean, variance = (raw.Cast(t, DstT=x.dtype) for t in (mean, variance))
        return mean, variance


# ---------------------------------------------------------------------- batch normalization
def batch_normalization(
    x: TensorLike,
    mean: TensorLike,
    variance: TensorLike,
    offset: TensorLike,
    scale: TensorLike,
    variance_epsilon: TensorLike,
    name: str | None = None,
) -> Tensor:
    """(x - mean) / sqrt(variance + variance_epsilon) * scale + offset.

    Args:
        x: a floating tensor of any shape.
        mean, variance, offset, scale: broadcast to x; offset and scale may be None.
        variance_epsilon: a small number that keeps the root away from 0.
        name: of the operation.

    Returns:
        A tensor of the shape and dtype of `x`.

    Raises:
        ValueError: the shapes do not broadcast.

    Example:
        >>> x = tf.constant([1.0, 3.0])
        >>> sess.run(tf.nn.batch_normalization(x, 2.0, 1.0, offset=0.0, scale=10.0, variance_epsilon=0.0))
        array([-10.,  10.], dtype=float32)
    """
    with name_scope(name, "batchnorm", [x, mean, variance, scale, offset]):
        x, mean = convert_to_tensor(x, name="x"), convert_to_tensor(mean, name="mean")
        # the order and the names of the operations are TensorFlow's: programs look for them
        inverse = raw.Rsqrt(raw.Add(variance, variance_epsilon, name="add"))
        if scale is not None:
            inverse = raw.Mul(inverse, scale, name="mul")
        factor = inverse if inverse.dtype is x.dtype else raw.Cast(inverse, DstT=x.dtype)
        product = raw.Mul(x, factor, name="mul")
        moved = raw.Mul(mean, inverse, name="mul")
        moved = raw.Neg(moved) if offset is None else raw.Sub(offset, moved, name="sub")
        moved = moved if moved.dtype is x.dtype else raw.Cast(moved, DstT=x.dtype)
        result: Tensor = raw.Add(product, moved, name="add_1")
        return result


def fused_batch_norm(
    x: TensorLike,
    scale: TensorLike,
    offset: TensorLike,
    mean: TensorLike | None = None,
    variance: TensorLike | None = None,
    epsilon: float = 0.001,
    data_format: str = "NHWC",
    is_training: bool = True,
    name: str | None = None,
    exponential_avg_factor: float = 1.0,
) -> tuple[Tensor, Tensor, Tensor]:
    """Batch normalization of images in one operation.

    Args:
        x: [batch, height, width, channels] (or "NCHW"), half, bfloat16 or float32.
        scale, offset: float32, one number per channel.
        mean, variance: used (and needed) for inference, or as the running averages where
            `exponential_avg_factor` is not 1.
        is_training: normalize by the batch's own moments.

    Returns:
        The normalized x; the mean and the (unbiased) variance of the batch, or the running averages.

    Raises:
        ValueError: mean and variance are given in training, or missing for inference.
    """
    if is_training and exponential_avg_factor == 1.0 and not (mean is None and variance is None):
        raise ValueError(
            "Both 'mean' and 'variance' must be None if is_training is True and exponential_avg_factor == 1.0."
        )
    if not is_training and (mean is None or variance is None):
        raise ValueError("fused_batch_norm needs 'mean' and 'variance' for inference")
    x = convert_to_tensor(x, name="input")
    scale = convert_to_tensor(scale, name="scale")
    offset = convert_to_tensor(offset, name="offset")
    nothing = np.zeros(0, np.float32)
    outputs = raw.FusedBatchNormV3(
        x,
        scale,
        offset,
        nothing if mean is None else mean,
        nothing if variance is None else variance,
        epsilon=max(epsilon, LEAST_EPSILON),
        exponential_avg_factor=exponential_avg_factor,
        data_format=data_format,
        is_training=is_training,
        name=name,
    )
    return outputs[0], outputs[1], outputs[2]


def batch_norm_with_global_normalization(
    t: TensorLike | None = None,
    m: TensorLike | None = None,
    v: TensorLike | None = None,
    beta: TensorLike | None = None,
    gamma: TensorLike | None = None,
    variance_epsilon: TensorLike | None = None,
    scale_after_normalization: bool | None = None,
    name: str | None = None,
    input: TensorLike | None = None,
    mean: TensorLike | None = None,
    variance: TensorLike | None = None,
) -> Tensor:
    """`batch_normalization` with older names: input t, mean m, variance v, offset beta, scale gamma.

    Args:
        scale_after_normalization: whether gamma is used at all.
    """
    return batch_normalization(
        one_of("input", input, "t", t),
        one_of("mean", mean, "m", m),
        one_of("variance", variance, "v", v),
        beta,
        gamma if scale_after_normalization else None,
        variance_epsilon,
        name,
    )


# ---------------------------------------------------------------------- local response
def local_response_normalization(
    input: TensorLike,
    depth_radius: int = 5,
    bias: float = 1,
    alpha: float = 1,
    beta: float = 0.5,
    name: str | None = None,
) -> Tensor:
    """Divides by (bias + alpha * sum of squares over the 2 * depth_radius + 1 nearest channels) ** beta.

    Args:
        input: [batch, height, width, channels], half, bfloat16 or float32.
        depth_radius: an integer.
        bias, alpha, beta: numbers.
        name: of the operation.

    Returns:
        A tensor of the shape and dtype of `input`.

    Raises:
        ValueError: `input` has another rank.

    Example:
        >>> sess.run(tf.nn.lrn([[[[1.0, 2.0]]]], depth_radius=1, beta=1.0))
        array([[[[0.16666667, 0.33333334]]]], dtype=float32)
    """
    result: Tensor = raw.LRN(input, depth_radius=depth_radius, bias=bias, alpha=alpha, beta=beta, name=name)
    return result


lrn = local_response_normalization
