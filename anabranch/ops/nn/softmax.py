"""Softmax, and the cross-entropies whose gradients go through it."""

from __future__ import annotations

from typing import Any, TypeGuard

import numpy as np
from jax import lax, numpy as jnp

from anabranch.core.arrays import Array, ArrayLibrary, HostArray
from anabranch.core.kernel_context import OperationContext
from anabranch.core.shapes import TensorShape
from anabranch.graph.building import define_op
from anabranch.graph.operation import Operation, Tensor
from anabranch.ops import raw, shape_rules
from anabranch.ops.arithmetic.broadcast_gradients import sum_to_operands
from anabranch.ops.arrays.gather_scatter import are_below
from anabranch.ops.nn.sliding import wide


def last_axis(shape: TensorShape, least: int = 1) -> TensorShape:
    """`shape`, known to have at least `least` axes; ValueError otherwise."""
    return shape.with_rank_at_least(least)


# ---------------------------------------------------------------------- softmax
def _below_largest(xp: ArrayLibrary, logits: Array) -> Any:
    """The logits less their largest, which is then exactly zero; over the last axis.

    A product that is subtracted from may be computed without rounding it first, in one instruction, so that the largest
    less itself is the error of its own rounding: 1e22 where it is 1e30.
    """
    return _less(xp, logits, xp.max(logits, axis=-1, keepdims=True))


def _less(xp: ArrayLibrary, logits: Array, largest: Array) -> Any:
    """Logits, or some of them, less their row's largest."""
    return xp.where((logits == largest) & xp.isfinite(largest), xp.zeros_like(logits), logits - largest)


def _log_softmax(xp: ArrayLibrary, logits: Array) -> Any:
    """In float32 at least; over the last axis."""
    logits = wide(logits)
    if logits.shape[-1] == 0:
        return logits
    shifted = _below_largest(xp, logits)
    return shifted - xp.log(xp.sum(xp.exp(shifted), axis=-1, keepdims=True))


def _softmax(xp: ArrayLibrary, logits: Array) -> Any:
    logits = wide(logits)
    if logits.shape[-1] == 0:
        return logits
    powers = xp.exp(_below_largest(xp, logits))
    return powers / xp.sum(powers, axis=-1, keepdims=True)


def _last_axis_sum(x: Tensor) -> Tensor:
    summed: Tensor = raw.Sum(x, np.int32(-1), keep_dims=True)
    return summed


Softmax = define_op("Softmax", "logits: T -> softmax: T", "T: floating")
Softmax.shape(last_axis)


@Softmax.kernel
def _(logits: Array, *, xp: ArrayLibrary) -> Any:
    return _softmax(xp, logits).astype(logits.dtype)


@Softmax.gradient
def _(op: Operation, grad: Tensor) -> Any:
    return _through_softmax(grad, op.outputs[0])


def _through_softmax(grad: Tensor, softmax: Tensor) -> Tensor:
    product = raw.Mul(grad, softmax)
    through: Tensor = raw.Sub(product, raw.Mul(_last_axis_sum(product), softmax))
    return through


LogSoftmax = define_op("LogSoftmax", "logits: T -> logsoftmax: T", "T: floating")
LogSoftmax.shape(last_axis)


@LogSoftmax.kernel
def _(logits: Array, *, xp: ArrayLibrary) -> Any:
    return _log_softmax(xp, logits).astype(logits.dtype)


@LogSoftmax.gradient
def _(op: Operation, grad: Tensor) -> Any:
    return raw.Sub(grad, raw.Mul(_last_axis_sum(grad), raw.Exp(op.outputs[0])))


# ---------------------------------------------------------------------- losses
SoftmaxCrossEntropyWithLogits = define_op(
    "SoftmaxCrossEntropyWithLogits", "features: T, labels: T -> loss: T, backprop: T", "T: floating"
)


@SoftmaxCrossEntropyWithLogits.shape
def _(features: TensorShape, labels: TensorShape) -> tuple[TensorShape, TensorShape]:
    both = shape_rules.broadcast(features, labels)
    if both.ndims not in (None, 2):
        raise ValueError(f"Shape must be broadcasted with rank 2, but is rank {both.ndims}: logits with labels, {both}")
    both = both.with_rank(2)
    return both[:1], both


@SoftmaxCrossEntropyWithLogits.kernel
def _(features: Array, labels: Array, *, xp: ArrayLibrary) -> Any:
    features, labels = xp.broadcast_arrays(features, labels)
    logs, targets = _log_softmax(xp, features), wide(labels)
    # 0 * -inf counts as 0: a class of probability zero that has no label costs nothing.
    loss = -xp.sum(xp.where(targets == 0, targets * 0, targets * logs), axis=-1)
    return loss.astype(features.dtype), (xp.exp(logs) - targets).astype(features.dtype)


@SoftmaxCrossEntropyWithLogits.gradient
def _(op: Operation, grad_loss: Tensor | None, grad_backprop: Tensor | None) -> Any:
    to_labels = []
    if grad_loss is not None:
        to_labels.append(raw.Mul(raw.ExpandDims(grad_loss, np.int32(-1)), LogSoftmax(_all_features(op))))
    if _flows(grad_backprop):
        to_labels.append(grad_backprop)
    grads = _cross_entropy_gradient(op, grad_loss, grad_backprop), raw.Neg(raw.AddN(to_labels)) if to_labels else None
    return sum_to_operands(op, *grads)


def _flows(grad: Tensor | None) -> TypeGuard[Tensor]:
    """Whether a gradient is more than the zeros that stand in for a missing one."""
    return grad is not None and grad.op.type != "ZerosLike"


def _all_features(op: Operation) -> Tensor:
    """The logits of all classes, where they were broadcast to the shape of the labels."""
    features, whole = op.inputs[0], op.outputs[1]
    if features.shape.is_fully_defined() and features.shape.dims_tuple == whole.shape.dims_tuple:
        return features
    everywhere: Tensor = raw.BroadcastTo(features, raw.Shape(whole))
    return everywhere


def _cross_entropy_gradient(op: Operation, grad_loss: Tensor | None, grad_backprop: Tensor | None) -> Tensor | None:
    """What flows back to the logits: through the loss, and (second order) through the `backprop` output."""
    terms = []
    if grad_loss is not None:
        terms.append(raw.Mul(raw.ExpandDims(grad_loss, np.int32(-1)), op.outputs[1]))
    if _flows(grad_backprop):
        terms.append(_through_softmax(grad_backprop, Softmax(_all_features(op))))
    return raw.AddN(terms) if len(terms) > 1 else (terms[0] if terms else None)


SparseSoftmaxCrossEntropyWithLogits = define_op(
    "SparseSoftmaxCrossEntropyWithLogits",
    "features: T, labels: Tlabels -> loss: T, backprop: T",
    "T: floating, Tlabels: index = int64",
)


@SparseSoftmaxCrossEntropyWithLogits.shape
def _(features: TensorShape, labels: TensorShape) -> tuple[TensorShape, TensorShape]:
    features = shape_rules.with_rank(features, 2, "logits")
    batch = shape_rules.with_rank(labels, 1, "labels must be 1-D, and").merge_with(features[:1])
    return batch, batch.concatenate(features[1:])


@SparseSoftmaxCrossEntropyWithLogits.kernel
def _(features: Array, labels: Array, *, ctx: OperationContext, xp: ArrayLibrary) -> Any:
    classes = features.shape[1]
    if xp is np and labels.size and classes and are_below(labels, classes):
        return _known_cross_entropy(features, labels)
    valid = (labels >= 0) & (labels < classes)
    if labels.shape[0]:
        ctx.check(
            valid,
            f"Received a label value of {{1}} which is outside the valid range of [0, {classes}).  Label values: {{0}}",
            labels,
            xp.take(labels, xp.argmin(valid)),
        )
    logits = wide(features)
    if 0 in logits.shape:
        return xp.zeros(labels.shape, features.dtype), features
    largest = xp.max(logits, axis=-1, keepdims=True)
    shifted = _less(xp, logits, largest)
    log_sums = xp.log(xp.sum(xp.exp(shifted), axis=-1, keepdims=True))
    labels = xp.clip(labels, 0, classes - 1)
    # looked up: to add up a row of which all but one number are zeros, XLA would write all rows down
    at_labels = xp.expand_dims(xp.take(xp.reshape(logits, (-1,)), _places(labels, classes), mode="clip"), -1)
    loss = log_sums - _less(xp, at_labels, largest)
    backprop = _less_one_at(xp, xp.exp(shifted - log_sums), labels)
    return loss[:, 0].astype(features.dtype), backprop.astype(features.dtype)


def _known_cross_entropy(features: HostArray, labels: HostArray) -> tuple[HostArray, HostArray]:
    """The losses and the gradient of some logits [rows, classes], in NumPy; the labels are valid."""
    shifted = wide(features)
    # NumPy rounds a product before it subtracts from it, so that the largest less itself is zero
    shifted = shifted - np.maximum.reduce(shifted, axis=-1, keepdims=True)
    at_labels = np.arange(len(labels)), labels
    backprop = np.exp(shifted)
    sums = np.add.reduce(backprop, axis=-1, keepdims=True)
    loss = np.log(sums[:, 0]) - shifted[at_labels]
    backprop /= sums
    backprop[at_labels] -= 1
    return loss.astype(features.dtype, copy=False), backprop.astype(features.dtype, copy=False)


def _places(labels: Array, classes: int) -> Any:
    """Where the element of each row that its label [rows] is the number of stands among all elements."""
    return np.arange(labels.shape[0]) * classes + labels


def _less_one_at(xp: ArrayLibrary, shares: Array, labels: Array) -> Any:
    """`shares` [rows, classes], which are overwritten, less one at the label of each row."""
    rows = np.arange(shares.shape[0])
    if xp is np:
        shares[rows, labels] -= 1
        return shares

    def where_they_are(shares: Array, labels: Array) -> Any:
        return shares.at[rows, labels].add(-1, mode="promise_in_bounds", unique_indices=True)

    def everywhere(shares: Array, labels: Array) -> Any:
        hit = jnp.expand_dims(labels, -1) == jnp.arange(shares.shape[1], dtype=labels.dtype)
        return shares - hit.astype(shares.dtype)

    # on a processor the comparison, one element after the other, takes longer than all the rest of the gradient
    return lax.platform_dependent(shares, labels, cpu=where_they_are, default=everywhere)


@SparseSoftmaxCrossEntropyWithLogits.gradient
def _(op: Operation, grad_loss: Tensor | None, grad_backprop: Tensor | None) -> Any:
    return _cross_entropy_gradient(op, grad_loss, grad_backprop), None
