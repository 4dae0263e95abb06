"""The mean of a loss over examples, as programs divide it that may have several replicas. Here there is one."""

from __future__ import annotations

from typing import Any

from anabranch.core import dtypes
from anabranch.core.values import TensorLike
from anabranch.frontend.control_flow.checks import assert_rank_at_least
from anabranch.frontend.framework import control_dependencies
from anabranch.frontend.measures.weights_broadcast import broadcast_weights, with_rank_changed
from anabranch.graph.conversion import convert_to_tensor
from anabranch.graph.operation import Tensor
from anabranch.ops import raw


def compute_average_loss(
    per_example_loss: TensorLike, sample_weight: TensorLike | None = None, global_batch_size: TensorLike | None = None
) -> Tensor:
    """The sum of the losses of examples over the number of examples.

    Args:
        per_example_loss: [examples, ...], of a floating dtype.
        sample_weight: what each loss is multiplied by, in single precision; a scalar, or of the shape of the losses, or
            with one dimension of size 1 more or less.
        global_batch_size: a scalar to divide by; default: how many examples there are.

    Returns:
        A scalar, of the dtype of the losses.

    Raises:
        ValueError: the losses are one number.
        InvalidArgumentError: the same, if only the step knows.
    """
    losses = convert_to_tensor(per_example_loss)
    dtype = losses.dtype
    if losses.shape.ndims == 0:
        raise ValueError(
            "Invalid value passed for `per_example_loss`. Expected a tensor with at least rank 1, "
            f"received: {losses}; pass the losses before they are summed"
        )
    checks = [] if losses.shape.ndims else [assert_rank_at_least(losses, 1, message="per_example_loss: ")]
    with control_dependencies(checks):
        if sample_weight is not None:
            losses = _weighted(losses, convert_to_tensor(sample_weight))
            losses = losses if losses.dtype == dtype else raw.Cast(losses, DstT=dtype)
        given = raw.GatherV2(raw.Shape(losses), 0, 0) if global_batch_size is None else global_batch_size
        count = convert_to_tensor(given)
        count = count if count.dtype == dtype else raw.Cast(count, DstT=dtype)
        result: Tensor = raw.RealDiv(_sum(losses), count)
        return result


def _weighted(losses: Tensor, weights: Tensor) -> Tensor:
    losses, weights = (t if t.dtype == dtypes.float32 else raw.Cast(t, DstT="float32") for t in (losses, weights))
    product: Tensor = raw.Mul(losses, broadcast_weights(_of_the_rank(weights, losses), losses))
    return product


def _of_the_rank(weights: Tensor, losses: Tensor) -> Tensor:
    """The weights with one dimension, the last, more or less, where that gives them the rank of the losses."""
    if weights.shape.ndims == 0:
        return weights
    if weights.shape.ndims is None or losses.shape.ndims is None:
        excess = raw.Sub(raw.Rank(weights), raw.Rank(losses))
        scalar = raw.Equal(raw.Rank(weights), 0)
        missing = raw.LogicalAnd(raw.Equal(excess, -1), raw.LogicalNot(scalar))
        return with_rank_changed(weights, drop=raw.Equal(excess, 1), add=missing)
    excess = weights.shape.ndims - losses.shape.ndims
    if excess == 1:
        weights = raw.Squeeze(weights, squeeze_dims=[-1])
    elif excess == -1:
        weights = raw.ExpandDims(weights, -1)
    return weights


def _sum(tensor: Tensor) -> Any:
    return raw.Sum(tensor, raw.Range(0, raw.Rank(tensor), 1))


def scale_regularization_loss(regularization_loss: TensorLike) -> Tensor:
    """The sum of losses by regularization, over the number of replicas, which is 1.

    Args:
        regularization_loss: of any shape and a floating dtype.

    Returns:
        A scalar of its dtype.
    """
    losses = convert_to_tensor(regularization_loss)
    result: Tensor = _sum(losses)
    return result
