"""Activations, biases, softmax, dropout, ranking."""

from __future__ import annotations

import numbers
from typing import Any, NamedTuple

import numpy as np

from anabranch.core import dtypes
from anabranch.core.values import TensorLike
from anabranch.errors import InvalidArgumentError
from anabranch.frontend.arguments import one_of
from anabranch.frontend.arithmetic.random import random_uniform
from anabranch.frontend.arrays.identities import stop_gradient
from anabranch.frontend.arrays.joining import concat
from anabranch.frontend.arrays.shapes import shape as shape_of, size
from anabranch.frontend.framework import name_scope
from anabranch.graph.constants import constant_value
from anabranch.graph.conversion import convert_to_tensor
from anabranch.graph.operation import Tensor
from anabranch.ops import raw


# ---------------------------------------------------------------------- activations
def relu(features: TensorLike, name: str | None = None) -> Tensor:
    """max(features, 0), for any real dtype.

    Args:
        features: a tensor of real numbers of any shape.
        name: of the operation.

    Returns:
        A tensor of the shape and dtype of `features`.

    Raises:
        TypeError: `features` is not real.

    Example:
        >>> sess.run(tf.nn.relu([-1.0, 2.0]))
        array([0., 2.], dtype=float32)
    """
    result: Tensor = raw.Relu(features, name=name)
    return result


def relu6(features: TensorLike, name: str | None = None) -> Tensor:
    """min(max(features, 0), 6), for any real dtype.

    Args:
        features: a tensor of real numbers of any shape.
        name: of the operation.

    Returns:
        A tensor of the shape and dtype of `features`.

    Raises:
        TypeError: `features` is not real.

    Example:
        >>> sess.run(tf.nn.relu6([-1.0, 2.0, 9.0]))
        array([0., 2., 6.], dtype=float32)
    """
    with name_scope(name, "Relu6", [features]) as scope:
        result: Tensor = raw.Relu6(convert_to_tensor(features, name="features"), name=scope)
        return result


def crelu(features: TensorLike, name: str | None = None, axis: int = -1) -> Tensor:
    """The positive and the negative part side by side: relu of [features, -features] along `axis`."""
    with name_scope(name, "CRelu", [features]) as scope:
        features = convert_to_tensor(features, name="features")
        return relu(concat([features, raw.Neg(features)], axis, name=scope))


def elu(features: TensorLike, name: str | None = None) -> Tensor:
    """exp(features) - 1 where negative, else features.

    Args:
        features: a floating tensor of any shape.
        name: of the operation.

    Returns:
        A tensor of the shape and dtype of `features`.

    Raises:
        TypeError: `features` is not floating.

    Example:
        >>> sess.run(tf.nn.elu([-1.0, 2.0]))
        array([-0.63212055,  2.        ], dtype=float32)
    """
    result: Tensor = raw.Elu(features, name=name)
    return result


def selu(features: TensorLike, name: str | None = None) -> Tensor:
    """Like `elu`, with the slopes that keep mean 0 and variance 1 from layer to layer (self-normalizing networks)."""
    result: Tensor = raw.Selu(features, name=name)
    return result


def leaky_relu(features: TensorLike, alpha: TensorLike = 0.2, name: str | None = None) -> Tensor:
    """The leaky rectifier: alpha * features where negative, else features; integers become float32.

    Args:
        features: a tensor of real numbers of any shape.
        alpha: a number, or a tensor that broadcasts.
        name: of the operation.

    Returns:
        A tensor of the shape of `features`.

    Raises:
        TypeError: `features` is not real.

    Example:
        >>> sess.run(tf.nn.leaky_relu([-10.0, 2.0]))
        array([-2.,  2.], dtype=float32)
    """
    with name_scope(name, "LeakyRelu", [features, alpha]) as scope:
        features = convert_to_tensor(features, name="features")
        if features.dtype.is_integer:
            features = raw.Cast(features, DstT=dtypes.float32)
        if isinstance(alpha, int | float | np.number) or (isinstance(alpha, np.ndarray) and alpha.size == 1):
            result: Tensor = raw.LeakyRelu(features, alpha=np.asarray(alpha).item(), name=scope)
        else:
            result = raw.Maximum(raw.Mul(alpha, features), features, name=scope)
        return result


def swish(features: TensorLike, beta: TensorLike = 1.0) -> Tensor:
    """The features times their sigmoid: features * sigmoid(beta * features)."""
    features = convert_to_tensor(features, name="features")
    gate = features if isinstance(beta, numbers.Real) and beta == 1 else raw.Mul(features, beta)
    result: Tensor = raw.Mul(features, raw.Sigmoid(gate))
    return result


silu = swish


def softplus(features: TensorLike, name: str | None = None) -> Tensor:
    """log(1 + exp(features)).

    Args:
        features: a floating tensor of any shape.
        name: of the operation.

    Returns:
        A tensor of the shape and dtype of `features`.

    Raises:
        TypeError: `features` is not floating.

    Example:
        >>> sess.run(tf.nn.softplus([0.0, 1.0]))
        array([0.6931472, 1.3132617], dtype=float32)
    """
    result: Tensor = raw.Softplus(features, name=name)
    return result


def softsign(features: TensorLike, name: str | None = None) -> Tensor:
    """The soft sign, features / (1 + |features|)."""
    result: Tensor = raw.Softsign(features, name=name)
    return result


# ---------------------------------------------------------------------- softmax
def softmax(
    logits: TensorLike, axis: TensorLike | None = None, name: str | None = None, dim: TensorLike | None = None
) -> Tensor:
    """exp(logits) / sum(exp(logits)) along an axis.

    Args:
        logits: half, bfloat16, float32 or float64, of shape [..., classes], not empty.
        axis: the dimension that is summed over, a number or an integer scalar tensor; default: the last.
        name: of the operation.
        dim: deprecated name of `axis`.

    Returns:
        A tensor of the shape and dtype of `logits`, which sums to 1 along `axis`.

    Raises:
        InvalidArgumentError: `logits` is empty, or has no such axis.

    Example:
        >>> sess.run(tf.nn.softmax([[1.0, 1.0], [0.0, 1.0]]))
        array([[0.5      , 0.5      ],
               [0.2689414, 0.7310586]], dtype=float32)
    """
    return _along_axis("Softmax", logits, one_of("axis", axis, "dim", dim), name)


def log_softmax(
    logits: TensorLike, axis: TensorLike | None = None, name: str | None = None, dim: TensorLike | None = None
) -> Tensor:
    """The logarithm of `softmax`, logits - log(sum(exp(logits))) along an axis; arguments as for `softmax`.

    Args:
        logits: half, bfloat16, float32 or float64, of shape [..., classes], not empty.
        axis: the dimension that is summed over; default: the last.
        name: of the operation.
        dim: deprecated name of `axis`.

    Returns:
        A tensor of the shape and dtype of `logits`.

    Raises:
        InvalidArgumentError: `logits` is empty, or has no such axis.

    Example:
        >>> sess.run(tf.nn.log_softmax([[1.0, 1.0]]))
        array([[-0.6931472, -0.6931472]], dtype=float32)
    """
    return _along_axis("LogSoftmax", logits, one_of("axis", axis, "dim", dim), name)


def _along_axis(op_type: str, logits: TensorLike, axis: TensorLike | None, name: str | None) -> Tensor:
    """The operations themselves work on the last axis: another one is moved there and back."""
    logits = convert_to_tensor(logits, name="logits")
    operation = getattr(raw, op_type)
    if isinstance(axis, Tensor):
        known = constant_value(axis)
        axis = axis if known is None else int(known)
    else:
        axis = -1 if axis is None else int(axis)
    rank = logits.shape.ndims
    # the last axis of a scalar is for the operation's own rule to refuse
    if isinstance(axis, int) and rank is not None and axis != -1 and not -rank <= axis < rank:
        raise InvalidArgumentError(
            None, None, f"`axis` must be in the range [{-rank}, {rank}) for logits of shape {logits.shape}, got {axis}"
        )
    if isinstance(axis, int) and (axis == -1 or (rank is not None and axis == rank - 1)):
        result: Tensor = operation(logits, name=name)
        return result
    with name_scope(name, op_type, [logits]) as scope:
        order = swapped_with_last(logits, axis)
        moved = operation(raw.Transpose(logits, order))
        result = raw.Transpose(moved, order, name=scope)
        result.set_shape(logits.shape)
        return result


def swapped_with_last(x: Tensor, axis: int | Tensor) -> Any:
    """The permutation of x's axes that exchanges `axis` and the last one; it is its own inverse."""
    rank = x.shape.ndims
    if rank is not None and isinstance(axis, int):
        order = np.arange(rank, dtype=np.int32)
        order[[axis, -1]] = order[[-1, axis]]
        return order
    last = raw.Sub(raw.Rank(x), np.int32(1))
    if isinstance(axis, int):
        at = np.int32(axis) if axis >= 0 else raw.Add(raw.Rank(x), np.int32(axis))
    else:
        given = raw.Cast(axis, DstT=dtypes.int32)
        at = raw.SelectV2(raw.GreaterEqual(given, np.int32(0)), given, raw.Add(raw.Rank(x), given))
    axes = raw.Range(np.int32(0), raw.Rank(x), np.int32(1))
    return raw.SelectV2(raw.Equal(axes, at), last, raw.SelectV2(raw.Equal(axes, last), at, axes))


# ---------------------------------------------------------------------- biases
def bias_add(value: TensorLike, bias: TensorLike, data_format: str | None = None, name: str | None = None) -> Tensor:
    """Adds a vector to every position's channels.

    Args:
        value: numbers of shape [..., channels].
        bias: a vector of shape [channels], of value's dtype.
        data_format: "N...C" (channels last, the default) or "NC..." (channels second).
        name: of the operation.

    Returns:
        A tensor of the shape and dtype of `value`.

    Raises:
        ValueError: another format, or the numbers of channels differ.

    Example:
        >>> sess.run(tf.nn.bias_add([[1, 2], [3, 4]], [10, 20]))
        array([[11, 22],
               [13, 24]], dtype=int32)
    """
    with name_scope(name, "BiasAdd", [value, bias]) as scope:
        if data_format is not None and not data_format.startswith("NC") and not data_format.startswith("N"):
            raise ValueError(f"data_format must be of the form `N...C` or `NC...`, got {data_format!r}")
        format_2d = "NCHW" if data_format is not None and data_format.startswith("NC") else "NHWC"
        value = convert_to_tensor(value, name="input")
        bias = convert_to_tensor(bias, dtype=value.dtype, name="bias")
        result: Tensor = raw.BiasAdd(value, bias, data_format=format_2d, name=scope)
        return result


def xw_plus_b(x: TensorLike, weights: TensorLike, biases: TensorLike, name: str | None = None) -> Tensor:
    """The linear layer x @ weights + biases, of shapes [batch, in], [in, out] and [out].

    Args:
        x: numbers of shape [batch, in].
        weights: [in, out].
        biases: [out].
        name: of the operation.

    Returns:
        A tensor of shape [batch, out].

    Raises:
        ValueError: the shapes do not go together.

    Example:
        >>> sess.run(tf.nn.xw_plus_b([[1.0, 2.0]], [[1.0], [10.0]], [100.0]))
        array([[121.]], dtype=float32)
    """
    with name_scope(name, "xw_plus_b", [x, weights, biases]) as scope:
        result: Tensor = raw.BiasAdd(*_product(x, weights, biases), name=scope)
        return result


def relu_layer(x: TensorLike, weights: TensorLike, biases: TensorLike, name: str | None = None) -> Tensor:
    """relu(x @ weights + biases)."""
    with name_scope(name, "relu_layer", [x, weights, biases]) as scope:
        return relu(raw.BiasAdd(*_product(x, weights, biases)), name=scope)


def _product(x: TensorLike, weights: TensorLike, biases: TensorLike) -> tuple[Tensor, Tensor]:
    x = convert_to_tensor(x, name="x")
    weights = convert_to_tensor(weights, name="weights")
    return raw.MatMul(x, weights), convert_to_tensor(biases, name="biases")


# ---------------------------------------------------------------------- dropout
def dropout(
    x: TensorLike,
    keep_prob: TensorLike | None = None,
    noise_shape: TensorLike | None = None,
    seed: int | None = None,
    name: str | None = None,
    rate: TensorLike | None = None,
) -> Tensor:
    """Sets elements to zero at random and scales the others by 1 / (1 - rate), so that the expected sum stays.

    Args:
        x: a floating tensor of any shape.
        keep_prob: deprecated: 1 - rate.
        noise_shape: shape of the random mask, which broadcasts; None as an entry stands for x's own length.
        seed: of the mask.
        name: of the operation.
        rate: the probability that an element is dropped, a scalar in [0, 1).

    Returns:
        A tensor of the shape and dtype of `x`.

    Raises:
        ValueError: neither or both of `rate` and `keep_prob`, a value outside [0, 1), x is not floating.

    Example:
        >>> kept = sess.run(tf.nn.dropout(tf.ones([100]), rate=0.5))
        >>> sorted(set(kept.tolist()))
        [0.0, 2.0]
    """
    if keep_prob is not None:
        if rate is not None:
            raise ValueError("Cannot specify both 'keep_prob' and 'rate'")
        rate = 1 - keep_prob if isinstance(keep_prob, numbers.Real) else None
    if rate is None and keep_prob is None:
        raise ValueError("You must provide a rate to dropout.")
    with name_scope(name, "dropout", [x]):
        x = convert_to_tensor(x, name="x")
        if not x.dtype.is_floating:
            raise ValueError(
                f"x has to be a floating point tensor since it's going to be scaled. Got a {x.dtype} tensor instead."
            )
        if rate is None:
            rate = raw.Sub(np.asarray(1, x.dtype.as_numpy_dtype), convert_to_tensor(keep_prob, x.dtype, "keep_prob"))
        if isinstance(rate, int | float | np.number) and not 0 <= rate < 1:
            raise ValueError(f"rate must be a scalar tensor or a float in the range [0, 1), got {rate:g}")
        rate = convert_to_tensor(rate, x.dtype, name="rate")
        rate.shape.assert_is_compatible_with([])
        kept: Tensor = x if constant_value(rate) == 0 else _drop(x, rate, noise_shape, seed)
        return kept


def _drop(x: Tensor, rate: Tensor, noise_shape: TensorLike, seed: int | None) -> Tensor:
    numbers_ = random_uniform(_noise_shape(x, noise_shape), seed=seed, dtype=x.dtype)
    one = np.asarray(1, x.dtype.as_numpy_dtype)
    scaled = raw.Mul(x, raw.RealDiv(one, raw.Sub(one, rate)), name="mul")
    kept = raw.GreaterEqual(numbers_, rate)
    result: Tensor = raw.Mul(scaled, raw.Cast(kept, DstT=x.dtype), name="mul")
    result.set_shape(x.shape)
    return result


def _noise_shape(x: Tensor, noise_shape: TensorLike) -> Any:
    if noise_shape is None:
        return shape_of(x)
    if isinstance(noise_shape, Tensor):
        return noise_shape
    dims = [getattr(d, "value", d) for d in noise_shape]
    own = x.shape.dims_tuple
    if own is not None and len(own) == len(dims):
        return [own[i] if d is None and own[i] is not None else d for i, d in enumerate(dims)]
    return dims


# ---------------------------------------------------------------------- norms and counts
def l2_loss(t: TensorLike, name: str | None = None) -> Tensor:
    """Half the sum of the squares, sum(t ** 2) / 2.

    Args:
        t: a floating tensor of any shape.
        name: of the operation.

    Returns:
        A scalar of the dtype of `t`.

    Raises:
        TypeError: `t` is not floating.

    Example:
        >>> sess.run(tf.nn.l2_loss([3.0, 4.0]))
        np.float32(12.5)
    """
    result: Tensor = raw.L2Loss(t, name=name)
    return result


def l2_normalize(
    x: TensorLike,
    axis: TensorLike | None = None,
    epsilon: float = 1e-12,
    name: str | None = None,
    dim: TensorLike | None = None,
) -> Tensor:
    """Scales x to length 1 along `axis`: x / sqrt(max(sum(x ** 2), epsilon)).

    Args:
        x: a floating tensor of any shape.
        axis: one or several dimensions; all by default.
        epsilon: the least squared length to divide by.
        name: of the operation.
        dim: deprecated name of `axis`.

    Returns:
        A tensor of the shape and dtype of `x`.

    Raises:
        ValueError: an axis is out of range.

    Example:
        >>> sess.run(tf.nn.l2_normalize([3.0, 4.0]))
        array([0.6, 0.8], dtype=float32)
    """
    axis = one_of("axis", axis, "dim", dim)
    with name_scope(name, "l2_normalize", [x]) as scope:
        x = convert_to_tensor(x, name="x")
        axes = all_axes(x) if axis is None else given_axes(axis)
        total = raw.Sum(raw.Square(x), axes, keep_dims=True)
        inverse = raw.Rsqrt(raw.Maximum(total, np.asarray(epsilon, x.dtype.as_numpy_dtype)))
        result: Tensor = raw.Mul(x, inverse, name=scope)
        return result


def given_axes(axes: TensorLike) -> Any:
    """Axes that a program gives: a tensor, or an array."""
    return axes if isinstance(axes, Tensor) else np.asarray(axes, np.int32)


def all_axes(x: Tensor) -> Any:
    """The axes of x, as an array where the rank is known."""
    if x.shape.ndims is not None:
        return np.arange(x.shape.ndims, dtype=np.int32)
    return raw.Range(np.int32(0), raw.Rank(x), np.int32(1))


def zero_fraction(value: TensorLike, name: str | None = None) -> Tensor:
    """How large a part of the elements is zero, float32; NaN for an empty tensor.

    Args:
        value: numbers of any shape.
        name: of the operation.

    Returns:
        A float32 scalar.

    Raises:
        TypeError: `value` is not numeric.

    Example:
        >>> sess.run(tf.nn.zero_fraction([0.0, 1.0, 0.0, 2.0]))
        np.float32(0.5)
    """
    with name_scope(name, "zero_fraction", [value]):
        value = convert_to_tensor(value, name="value")
        zeros = raw.Equal(value, np.zeros((), value.dtype.as_numpy_dtype))
        count = raw.Sum(raw.Cast(zeros, DstT=dtypes.int64), all_axes(value))
        whole = size(value, out_type=dtypes.int64)
        fraction = raw.RealDiv(*(raw.Cast(stop_gradient(n), DstT=dtypes.float32) for n in (count, whole)))
        result: Tensor = raw.Identity(fraction, name="fraction")
        return result


# ---------------------------------------------------------------------- ranking
class TopValues(NamedTuple):
    """The largest elements of each row, and their positions (int32)."""

    values: Tensor
    indices: Tensor


def top_k(input: TensorLike, k: TensorLike = 1, sorted: bool = True, name: str | None = None) -> TopValues:
    """The k largest elements of each row (along the last axis), the largest first, the first of equals first.

    Args:
        input: real numbers, shape [..., n].
        k: a scalar integer, known when the step is compiled.
        sorted: whether the largest come first.
        name: of the operation.

    Returns:
        A named tuple: `values` and `indices` (int32), both of shape [..., k].

    Raises:
        ValueError: `input` is a scalar, or n is known to be less than `k`.

    Raises (in the step):
        InvalidArgumentError: n is less than `k`.

    Example:
        >>> best = tf.nn.top_k([[1.0, 5.0, 3.0]], k=2)
        >>> sess.run([best.values, best.indices])
        [array([[5., 3.]], dtype=float32), array([[1, 2]], dtype=int32)]
    """
    return TopValues(*raw.TopKV2(input, k, sorted=sorted, name=name))


def in_top_k(predictions: TensorLike, targets: TensorLike, k: TensorLike, name: str | None = None) -> Tensor:
    """Whether each row's target is among its k best classes; ties at the border count as in.

    Args:
        predictions: float32, [batch, classes].
        targets: int32 or int64, [batch].
        k: an integer scalar.
        name: of the operation.

    Returns:
        A boolean vector of shape [batch].

    Raises:
        ValueError: the shapes do not go together.

    Example:
        >>> sess.run(tf.nn.in_top_k([[0.1, 0.9], [0.8, 0.2]], [1, 1], k=1))
        array([ True, False])
    """
    with name_scope(name, "in_top_k"):
        result: Tensor = raw.InTopKV2(predictions, targets, k)
        return result


def nth_element(input: TensorLike, n: TensorLike, reverse: bool = False, name: str | None = None) -> Tensor:
    """The element that would stand at place n of each sorted row; `reverse` counts from the largest."""
    result: Tensor = raw.NthElement(input, n, reverse=reverse, name=name)
    return result
