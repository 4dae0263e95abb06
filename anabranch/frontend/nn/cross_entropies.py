"""Losses of one example each: cross entropies and the Poisson loss."""

from __future__ import annotations

from typing import Any

import numpy as np

from anabranch.core import dtypes
from anabranch.core.values import TensorLike
from anabranch.frontend.arguments import one_of
from anabranch.frontend.arrays.identities import stop_gradient
from anabranch.frontend.framework import name_scope
from anabranch.frontend.nn.activations import swapped_with_last
from anabranch.graph.conversion import convert_to_tensor
from anabranch.graph.operation import Tensor
from anabranch.ops import raw


def _check_named(function: str, sentinel: object, labels: TensorLike, logits: TensorLike) -> None:
    """Labels and logits are easily exchanged: they must be given by name."""
    if sentinel is not None:
        raise ValueError(f"Only call `{function}` with named arguments (labels=..., logits=..., ...)")
    if labels is None or logits is None:
        raise ValueError("Both labels and logits must be provided.")


# ---------------------------------------------------------------------- softmax
def softmax_cross_entropy_with_logits(
    _sentinel: object = None,
    labels: TensorLike | None = None,
    logits: TensorLike | None = None,
    dim: int = -1,
    name: str | None = None,
    axis: int | None = None,
) -> Tensor:
    """Like `softmax_cross_entropy_with_logits_v2`, but no gradient flows into the labels.

    Args:
        labels: probabilities that sum to 1 along the classes, of logits' shape.
        logits: unscaled log probabilities, floating, [..., classes].
        dim: the dimension of the classes.
        name: of the operation.
        axis: another name of `dim`.

    Returns:
        A tensor of logits' dtype and shape, without the dimension of the classes.

    Raises:
        ValueError: arguments not given by name, or `labels` or `logits` missing.

    Example:
        >>> losses = tf.nn.softmax_cross_entropy_with_logits(labels=[[1.0, 0.0]], logits=[[0.0, 0.0]])
        >>> sess.run(losses)
        array([0.6931472], dtype=float32)
    """
    axis = axis if axis is not None else dim
    _check_named("softmax_cross_entropy_with_logits", _sentinel, labels, logits)
    with name_scope(name, "softmax_cross_entropy_with_logits_sg", [logits, labels]) as scope:
        fixed = stop_gradient(convert_to_tensor(labels, name="labels"), name="labels_stop_gradient")
        return softmax_cross_entropy_with_logits_v2(labels=fixed, logits=logits, axis=axis, name=scope)


def softmax_cross_entropy_with_logits_v2(
    labels: TensorLike, logits: TensorLike, axis: int | None = None, name: str | None = None, dim: int | None = None
) -> Tensor:
    """-sum(labels * log(softmax(logits))) along an axis.

    Args:
        labels: probabilities that sum to 1 along the axis, of logits' shape.
        logits: unscaled log probabilities; half precision is computed in float32.
        axis: the dimension of the classes; default: the last.
        name: of the operation.
        dim: deprecated name of `axis`.

    Returns:
        A tensor of logits' dtype and shape, without the axis.

    Raises:
        ValueError: `labels` or `logits` is missing, or the shapes differ.

    Example:
        >>> losses = tf.nn.softmax_cross_entropy_with_logits_v2(labels=[[0.5, 0.5]], logits=[[0.0, 0.0]])
        >>> sess.run(losses)
        array([0.6931472], dtype=float32)
    """
    axis = one_of("axis", axis, "dim", dim)
    axis = -1 if axis is None else int(axis)
    if labels is None or logits is None:
        raise ValueError("Both labels and logits must be provided.")
    with name_scope(name, "softmax_cross_entropy_with_logits", [logits, labels]) as scope:
        logits = convert_to_tensor(logits, name="logits")
        labels = convert_to_tensor(labels, name="labels")
        precise = dtypes.float32 if logits.dtype in (dtypes.float16, dtypes.bfloat16) else logits.dtype
        wide = logits if logits.dtype is precise else raw.Cast(logits, DstT=precise)
        targets = labels if labels.dtype is precise else raw.Cast(labels, DstT=precise)
        rank = wide.shape.ndims
        if axis != -1 and axis + 1 != rank:
            order = swapped_with_last(wide, axis)
            wide, targets = raw.Transpose(wide, order), raw.Transpose(targets, order)
        outer_shape = wide.shape[:-1]
        if wide.shape.ndims == 2 and targets.shape.ndims == 2:
            cost = raw.SoftmaxCrossEntropyWithLogits(wide, targets, name=scope).loss
        else:
            cost = raw.SoftmaxCrossEntropyWithLogits(*(_as_matrix(t) for t in (wide, targets)), name=scope).loss
            cost = raw.Reshape(cost, _outer_shape(wide))
        if axis == -1 or axis + 1 == rank:
            cost.set_shape(outer_shape)
        elif axis != -1:
            cost = _axes_in_order(cost, axis, rank)
        result: Tensor = cost if cost.dtype is logits.dtype else raw.Cast(cost, DstT=logits.dtype)
        return result


def _as_matrix(x: Tensor) -> Tensor:
    """All axes but the last flattened into one."""
    matrix: Tensor = raw.Reshape(x, raw.Pack([np.int32(-1), _classes(x)]))
    return matrix


def _classes(x: Tensor) -> Any:
    dims = x.shape.dims_tuple
    if dims is not None and dims[-1] is not None:
        return np.int32(dims[-1])
    return raw.GatherV2(raw.Shape(x), raw.Sub(raw.Rank(x), np.int32(1)), np.int32(0))


def _outer_shape(x: Tensor) -> Tensor:
    shape = raw.Shape(x)
    outer: Tensor = raw.Slice(shape, np.array([0], np.int32), raw.Pack([raw.Sub(raw.Rank(x), np.int32(1))]))
    return outer


def _axes_in_order(cost: Tensor, axis: int, rank: int | None) -> Tensor:
    """The last axis took the place of `axis` when they were exchanged; of what is left it belongs at the end."""
    if rank is None:
        raise ValueError("logits must have a known rank for an axis other than the last")
    at = axis % rank
    order = [a for a in range(rank - 1) if a != at]
    order.append(at)
    if order == list(range(rank - 1)):
        return cost
    moved: Tensor = raw.Transpose(cost, np.array(order, np.int32))
    return moved


def sparse_softmax_cross_entropy_with_logits(
    _sentinel: object = None,
    labels: TensorLike | None = None,
    logits: TensorLike | None = None,
    name: str | None = None,
) -> Tensor:
    """-log(softmax(logits)[label]), where each example has exactly one class.

    Args:
        labels: int32 or int64, logits' shape without the last axis, in [0, classes); others make the step fail.
        logits: [..., classes]; half precision is computed in float32.
        name: of the operation.

    Returns:
        A tensor of the shape of `labels` and of logits' dtype.

    Raises:
        ValueError: arguments not given by name, or shapes that do not go together.

    Raises (in the step):
        InvalidArgumentError: a label is out of range.

    Example:
        >>> losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=[1, 0], logits=[[0.0, 0.0], [0.0, 0.0]])
        >>> sess.run(losses)
        array([0.6931472, 0.6931472], dtype=float32)
    """
    _check_named("sparse_softmax_cross_entropy_with_logits", _sentinel, labels, logits)
    with name_scope(name, "SparseSoftmaxCrossEntropyWithLogits", [labels, logits]) as scope:
        labels, logits = convert_to_tensor(labels), convert_to_tensor(logits)
        _check_label_shape(labels, logits)
        precise = dtypes.float32 if logits.dtype in (dtypes.float16, dtypes.bfloat16) else logits.dtype
        wide = logits if logits.dtype is precise else raw.Cast(logits, DstT=precise)
        if wide.shape.ndims == 2:
            cost = raw.SparseSoftmaxCrossEntropyWithLogits(wide, labels, name=scope).loss
        else:
            flat = raw.Reshape(labels, np.array([-1], np.int32))
            cost = raw.SparseSoftmaxCrossEntropyWithLogits(_as_matrix(wide), flat, name=scope).loss
            cost = raw.Reshape(cost, raw.Shape(labels))
            cost.set_shape(labels.shape)
        result: Tensor = cost if cost.dtype is logits.dtype else raw.Cast(cost, DstT=logits.dtype)
        return result


def _check_label_shape(labels: Tensor, logits: Tensor) -> None:
    if logits.shape.ndims == 0:
        raise ValueError(f"Logits cannot be scalars - received shape {logits.shape}.")
    if logits.shape.ndims is None or labels.shape.ndims is None:
        return
    if labels.shape.ndims != logits.shape.ndims - 1:
        raise ValueError(
            f"Rank mismatch: Rank of labels (received {labels.shape.ndims}) should equal rank of logits minus 1 "
            f"(received {logits.shape.ndims})."
        )
    if not labels.shape.is_compatible_with(logits.shape[:-1]):
        raise ValueError(
            f"Shape mismatch: The shape of labels (received {labels.shape}) should equal the shape of logits except "
            f"for the last dimension (received {logits.shape})."
        )


# ---------------------------------------------------------------------- sigmoid
def sigmoid_cross_entropy_with_logits(
    _sentinel: object = None,
    labels: TensorLike | None = None,
    logits: TensorLike | None = None,
    name: str | None = None,
) -> Tensor:
    """-labels * log(sigmoid(logits)) - (1 - labels) * log(1 - sigmoid(logits)), elementwise.

    Computed as max(x, 0) - x * labels + log(1 + exp(-|x|)), which does not overflow.

    Args:
        labels: numbers in [0, 1], of the dtype and shape of `logits`.
        logits: a floating tensor of any shape.
        name: of the operation.

    Returns:
        A tensor of the shape and dtype of `logits`.

    Raises:
        ValueError: arguments not given by name, or shapes that differ.

    Example:
        >>> losses = tf.nn.sigmoid_cross_entropy_with_logits(labels=[1.0, 0.0], logits=[0.0, 2.0])
        >>> sess.run(losses)
        array([0.6931472, 2.126928 ], dtype=float32)
    """
    _check_named("sigmoid_cross_entropy_with_logits", _sentinel, labels, logits)
    with name_scope(name, "logistic_loss", [logits, labels]) as scope:
        logits = convert_to_tensor(logits, name="logits")
        # a hint: a tensor of another type is refused by the product below, as TensorFlow does it
        labels = convert_to_tensor(labels, dtype_hint=logits.dtype, name="labels")
        _check_same(labels, logits, "labels")
        # Written with conditions, so that its derivatives are right at 0 as well.
        zeros = raw.ZerosLike(logits)
        positive = raw.GreaterEqual(logits, zeros)
        rectified = raw.Select(positive, logits, zeros)
        minus_abs = raw.Select(positive, raw.Neg(logits), logits)
        result: Tensor = raw.Add(raw.Sub(rectified, raw.Mul(logits, labels)), raw.Log1p(raw.Exp(minus_abs)), name=scope)
        return result


def _check_same(labels: Tensor, logits: Tensor, what: str) -> None:
    if not labels.shape.is_compatible_with(logits.shape):
        raise ValueError(f"logits and {what} must have the same shape ({logits.shape} vs {labels.shape})")


def weighted_cross_entropy_with_logits(
    labels: TensorLike | None = None,
    logits: TensorLike | None = None,
    pos_weight: TensorLike | None = None,
    name: str | None = None,
    targets: TensorLike | None = None,
) -> Tensor:
    """Sigmoid cross entropy in which the positive term counts `pos_weight` times.

    Args:
        labels: of logits' shape and dtype; `targets` is its deprecated name.
        pos_weight: broadcasts to logits.

    Raises:
        ValueError: shapes that differ.
    """
    labels = one_of("labels", labels, "targets", targets)
    with name_scope(name, "logistic_loss", [logits, labels]) as scope:
        logits = convert_to_tensor(logits, name="logits")
        labels = convert_to_tensor(labels, dtype=logits.dtype, name="labels")
        _check_same(labels, logits, "labels")
        one = np.asarray(1, logits.dtype.as_numpy_dtype)
        weight = convert_to_tensor(pos_weight, dtype=logits.dtype, name="pos_weight")
        factor = raw.Add(one, raw.Mul(raw.Sub(weight, one), labels))
        softened = raw.Add(raw.Log1p(raw.Exp(raw.Neg(raw.Abs(logits)))), raw.Relu(raw.Neg(logits)))
        result: Tensor = raw.Add(raw.Mul(raw.Sub(one, labels), logits), raw.Mul(factor, softened), name=scope)
        return result


def log_poisson_loss(
    targets: TensorLike, log_input: TensorLike, compute_full_loss: bool = False, name: str | None = None
) -> Tensor:
    """exp(log_input) - log_input * targets, elementwise: the Poisson negative log likelihood up to a constant.

    Args:
        compute_full_loss: adds Stirling's approximation of log(targets!), zero for targets in [0, 1].

    Raises:
        ValueError: shapes that differ.
    """
    with name_scope(name, "log_poisson_loss", [log_input, targets]):
        log_input = convert_to_tensor(log_input, name="log_input")
        targets = convert_to_tensor(targets, dtype=log_input.dtype, name="targets")
        _check_same(targets, log_input, "targets")
        loss: Tensor = raw.Sub(raw.Exp(log_input), raw.Mul(log_input, targets))
        if not compute_full_loss:
            return loss
        dtype = targets.dtype.as_numpy_dtype
        half_log = raw.Mul(np.asarray(0.5, dtype), raw.Log(raw.Mul(np.asarray(2 * np.pi, dtype), targets)))
        stirling = raw.Add(raw.Sub(raw.Mul(targets, raw.Log(targets)), targets), half_log)
        zeros, ones = raw.ZerosLike(targets), raw.OnesLike(targets)
        small = raw.LogicalAnd(raw.GreaterEqual(targets, zeros), raw.LessEqual(targets, ones))
        result: Tensor = raw.Add(loss, raw.Select(small, zeros, stirling))
        return result
