"""Weights of losses and metrics: one number, or one per element, where dimensions of size 1 are repeated."""

from __future__ import annotations

from typing import Any

from anabranch.core import dtypes
from anabranch.core.shapes import TensorShape
from anabranch.core.values import TensorLike
from anabranch.frontend.framework import name_scope
from anabranch.graph.conversion import convert_to_tensor
from anabranch.graph.graph import get_default_graph
from anabranch.graph.operation import Operation, Tensor
from anabranch.ops import raw

_PROBLEM = "weights can not be broadcast to values"


def assert_broadcastable(weights: TensorLike, values: TensorLike) -> Operation:
    """An operation that fails with `InvalidArgumentError` unless `weights` are a scalar or have the rank of `values`.

    Each dimension of weights of that rank must be 1 or that of `values`.

    Raises:
        ValueError: it is known already that they do not.
    """
    with name_scope(None, "assert_broadcastable", [weights, values]):
        weights, values = convert_to_tensor(weights, name="weights"), convert_to_tensor(values, name="values")
        if _is_certain(weights.shape, values.shape):
            op: Operation = raw.NoOp(name="static_check_success")
            return op
        return _dynamic_assertion(weights, values)


def _is_certain(weights: TensorShape, values: TensorShape) -> bool:
    """Whether broadcasting is known to be possible; ValueError where it is known not to be."""
    if weights.ndims == 0:
        return True
    if weights.ndims is None or values.ndims is None:
        return False
    shapes = f"values.shape={values}. weights.shape={weights}"
    if weights.ndims != values.ndims:
        raise ValueError(f"{_PROBLEM}. values.rank={values.ndims}. weights.rank={weights.ndims}. {shapes}.")
    # of shapes that are known in part, TensorFlow leaves it to the step
    certain, known = True, weights.is_fully_defined() and values.is_fully_defined()
    for i, (weight, value) in enumerate(zip(weights.as_list(), values.as_list(), strict=True)):
        if weight == 1:
            continue
        if weight is None or (weight != value and not known):
            certain = False
        elif weight != value:
            raise ValueError(f"{_PROBLEM}. Mismatch at dim {i}. {shapes}.")
    return certain


def _dynamic_assertion(weights: Tensor, values: Tensor) -> Operation:
    """Both shapes are brought to one length by ones on the left, so that they can be compared in any case."""
    weight_rank, value_rank = raw.Rank(weights), raw.Rank(values)
    rank = raw.Maximum(weight_rank, value_rank)
    weight_shape = _padded_shape(weights, raw.Sub(rank, weight_rank))
    value_shape = _padded_shape(values, raw.Sub(rank, value_rank))
    fits = raw.LogicalOr(raw.Equal(weight_shape, 1), raw.Equal(weight_shape, value_shape))
    same_rank = raw.LogicalAnd(raw.Equal(weight_rank, value_rank), raw.All(fits, [0]))
    ok = raw.LogicalOr(raw.Equal(weight_rank, 0), same_rank)
    data = [f"{_PROBLEM}. values.shape=", raw.Shape(values), "weights.shape=", raw.Shape(weights)]
    op: Operation = raw.Assert(ok, data)
    return op


def _padded_shape(tensor: Tensor, missing: TensorLike) -> Any:
    ones = raw.Fill(raw.Reshape(missing, [1]), convert_to_tensor(1, dtypes.int32))
    return raw.ConcatV2([ones, raw.Shape(tensor)], axis=0)


def broadcast_weights(weights: TensorLike, values: TensorLike) -> Tensor:
    """`weights` in the shape of `values`; checks as in `assert_broadcastable`."""
    with name_scope(None, "broadcast_weights", [weights, values]) as scope:
        values = convert_to_tensor(values, name="values")
        tensor = convert_to_tensor(weights, values.dtype.base_dtype, name="weights")
        if tensor.shape.is_fully_defined() and values.shape.is_fully_defined() and tensor.shape == values.shape:
            return tensor
        with get_default_graph().control_dependencies([assert_broadcastable(tensor, values)]):
            repeated: Tensor = raw.Mul(tensor, raw.OnesLike(values), name=scope)
            return repeated


def remove_squeezable_dimensions(
    labels: TensorLike, predictions: TensorLike, expected_rank_diff: int = 0, name: str | None = None
) -> tuple[Tensor, Tensor]:
    """Drops a last dimension of size 1 from the one whose rank is too large by one.

    Args:
        expected_rank_diff: rank of `predictions` minus rank of `labels` when they match.

    Where a rank is not known, the step finds out.
    """
    with name_scope(name, "remove_squeezable_dimensions", [labels, predictions]):
        predictions, labels = convert_to_tensor(predictions), convert_to_tensor(labels)
        if predictions.shape.ndims is None or labels.shape.ndims is None:
            excess = raw.Sub(raw.Sub(raw.Rank(predictions), raw.Rank(labels)), expected_rank_diff)
            shorter = with_rank_changed(predictions, drop=raw.Equal(excess, 1))
            return with_rank_changed(labels, drop=raw.Equal(excess, -1)), shorter
        difference = predictions.shape.ndims - labels.shape.ndims
        if difference == expected_rank_diff + 1 and predictions.shape.dims_tuple[-1] in (1, None):
            predictions = raw.Squeeze(predictions, squeeze_dims=[-1])
        elif difference == expected_rank_diff - 1 and labels.shape.dims_tuple[-1] in (1, None):
            labels = raw.Squeeze(labels, squeeze_dims=[-1])
        return labels, predictions


def with_rank_changed(tensor: Tensor, drop: Tensor | None = None, add: Tensor | None = None) -> Tensor:
    """`tensor` without its last dimension, of size 1, where `drop` is true; with one more where `add` is true.

    Args:
        tensor: of any shape; where its last dimension is known not to be 1, none is dropped.
        drop, add: bool, scalars.

    Raises (in the step):
        InvalidArgumentError: the dimension to drop is not 1.
    """
    dims = tensor.shape.dims_tuple
    if dims is not None and (dims == () or dims[-1] not in (1, None)):
        drop = None
    sizes = raw.Shape(tensor)
    if drop is not None:
        kept = raw.Sub(raw.Size(sizes), raw.Cast(drop, DstT="int32"))
        sizes = raw.StridedSlice(sizes, [0], raw.Reshape(kept, [1]), [1])
    if add is not None:
        sizes = raw.ConcatV2([sizes, raw.Fill(raw.Reshape(raw.Cast(add, DstT="int32"), [1]), 1)], 0)
    if drop is None and add is None:
        return tensor
    changed: Tensor = raw.Reshape(tensor, sizes)
    return changed
