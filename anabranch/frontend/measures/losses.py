"""Losses: one number that says how far predictions are from labels."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from anabranch.core import dtypes
from anabranch.core.dtypes import DType
from anabranch.core.values import TensorLike
from anabranch.frontend.framework import name_scope
from anabranch.frontend.measures.weights_broadcast import (
    assert_broadcastable,
    broadcast_weights,
    remove_squeezable_dimensions,
    with_rank_changed,
)
from anabranch.frontend.nn import cross_entropies as nn_losses
from anabranch.graph.collections import GraphKeys
from anabranch.graph.conversion import convert_to_tensor
from anabranch.graph.graph import get_default_graph
from anabranch.graph.operation import Tensor
from anabranch.ops import raw


class Reduction:
    """How the losses of all elements become one number.

    * `NONE`: they do not.
    * `SUM`: the weighted sum.
    * `SUM_OVER_BATCH_SIZE`: the weighted sum over the number of elements.
    * `MEAN`: the weighted sum over the sum of weights.
    * `SUM_BY_NONZERO_WEIGHTS`: the weighted sum over the number of weights that are not zero.
    """

    NONE = "none"
    SUM = "weighted_sum"
    SUM_OVER_BATCH_SIZE = "weighted_sum_over_batch_size"
    MEAN = "weighted_mean"
    SUM_BY_NONZERO_WEIGHTS = "weighted_sum_by_nonzero_weights"
    SUM_OVER_NONZERO_WEIGHTS = SUM_BY_NONZERO_WEIGHTS

    @classmethod
    def all(cls) -> tuple[str, ...]:
        """The ways, each once."""
        return (cls.NONE, cls.SUM, cls.MEAN, cls.SUM_OVER_BATCH_SIZE, cls.SUM_BY_NONZERO_WEIGHTS)

    @classmethod
    def validate(cls, key: str) -> None:
        """Raises ValueError for anything that is not one of these."""
        if key not in cls.all():
            raise ValueError(f"Invalid Reduction Key {key}; use one of {cls.all()}")


# ---------------------------------------------------------------------- collections
def add_loss(loss: TensorLike, loss_collection: str | None = GraphKeys.LOSSES) -> None:
    """Adds a loss to a collection (None: to none)."""
    if loss_collection:
        get_default_graph().add_to_collection(loss_collection, loss)


def get_losses(scope: str | None = None, loss_collection: str = GraphKeys.LOSSES) -> list[Any]:
    """The losses so far, those of regularizers excepted; `scope` is a prefix of their names."""
    return get_default_graph().get_collection(loss_collection, scope)


def get_regularization_losses(scope: str | None = None) -> list[Any]:
    """The losses of regularizers so far; `scope` is a prefix of their names."""
    return get_default_graph().get_collection(GraphKeys.REGULARIZATION_LOSSES, scope)


def get_regularization_loss(scope: str | None = None, name: str = "total_regularization_loss") -> Tensor:
    """The sum of all regularization losses; 0 where there is none."""
    losses = get_regularization_losses(scope)
    return _sum_of(losses, name) if losses else convert_to_tensor(0.0)


def get_total_loss(
    add_regularization_losses: bool = True, name: str = "total_loss", scope: str | None = None
) -> Tensor:
    """The sum of all losses.

    Raises:
        ValueError: there is none.
    """
    losses = get_losses(scope)
    if add_regularization_losses:
        losses += get_regularization_losses(scope)
    if not losses:
        raise ValueError(
            "there are no losses to sum: the collections GraphKeys.LOSSES and REGULARIZATION_LOSSES are empty"
        )
    return _sum_of(losses, name)


def _sum_of(losses: list[Any], name: str) -> Tensor:
    tensor: Tensor = raw.AddN(losses, name=name)
    return tensor


# ---------------------------------------------------------------------- weighting
def compute_weighted_loss(
    losses: TensorLike,
    weights: TensorLike = 1.0,
    scope: str | None = None,
    loss_collection: str | None = GraphKeys.LOSSES,
    reduction: str = Reduction.SUM_BY_NONZERO_WEIGHTS,
) -> Tensor:
    """Weights losses and makes one number of them.

    Args:
        losses: of any shape.
        weights: a scalar, or of the same rank with sizes that are 1 or those of `losses`.
        scope: name scope.
        loss_collection: where the result is added; None: nowhere.
        reduction: one of `Reduction`.

    Returns:
        A scalar of the dtype of `losses`; with `Reduction.NONE` the weighted losses.

    Raises:
        ValueError: the shapes do not go together, or an unknown reduction.
    """
    Reduction.validate(reduction)
    with name_scope(scope, "weighted_loss", [losses, weights]):
        with get_default_graph().control_dependencies([assert_broadcastable(weights, losses)]):
            losses = convert_to_tensor(losses)
            input_dtype = losses.dtype
            losses = _cast(losses, dtypes.float32)
            weight_tensor = _cast(convert_to_tensor(weights), dtypes.float32)
            weighted = raw.Mul(losses, weight_tensor)
            loss = weighted if reduction == Reduction.NONE else _sum_all(weighted)
            if reduction == Reduction.MEAN:
                loss = _safe_mean(loss, _sum_all(raw.Mul(raw.OnesLike(losses), weight_tensor)))
            elif reduction == Reduction.SUM_BY_NONZERO_WEIGHTS:
                loss = _safe_mean(loss, _num_present(losses, weights))
            elif reduction == Reduction.SUM_OVER_BATCH_SIZE:
                loss = _safe_mean(loss, _num_elements(losses))
            loss = _cast(loss, input_dtype)
        add_loss(loss, loss_collection)
        return loss


def _cast(tensor: Tensor, dtype: DType) -> Tensor:
    result: Tensor = tensor if tensor.dtype.base_dtype is dtype else raw.Cast(tensor, DstT=dtype)
    return result


def _every_axis(tensor: Tensor) -> Any:
    rank = tensor.shape.ndims
    return raw.Range(0, raw.Rank(tensor), 1) if rank is None else convert_to_tensor(list(range(rank)), dtypes.int32)


def _sum_all(tensor: Tensor) -> Tensor:
    result: Tensor = raw.Sum(tensor, _every_axis(tensor))
    return result


def _safe_mean(total: Tensor, count: Tensor) -> Tensor:
    result: Tensor = raw.DivNoNan(total, count, name="value")
    return result


def _num_elements(losses: Tensor) -> Tensor:
    with name_scope(None, "num_elements", [losses]) as scope:
        result: Tensor = raw.Cast(raw.Size(losses), DstT=losses.dtype, name=scope)
        return result


def _num_present(losses: Tensor, weights: TensorLike, per_batch: bool = False) -> Tensor:
    """How many elements have a weight that is not zero, in all or per example."""
    if isinstance(weights, float) and weights != 0.0 and not per_batch:
        return _num_elements(losses)
    with name_scope(None, "num_present", [losses, weights]):
        weights = _cast(convert_to_tensor(weights), dtypes.float32)
        counted = raw.Cast(raw.NotEqual(weights, 0.0), DstT=dtypes.float32)
        present = broadcast_weights(counted, losses)
        if not per_batch:
            return _sum_all(present)
        result: Tensor = raw.Sum(present, _inner_axes(present), keep_dims=True)
        return result


def _inner_axes(tensor: Tensor) -> Any:
    """All dimensions but the first."""
    rank = tensor.shape.ndims
    return raw.Range(1, raw.Rank(tensor), 1) if rank is None else convert_to_tensor(list(range(1, rank)), dtypes.int32)


def _require(**arguments: TensorLike) -> None:
    for name, value in arguments.items():
        if value is None:
            raise ValueError(f"{name} must not be None.")


def _elementwise(
    labels: TensorLike,
    predictions: TensorLike,
    weights: TensorLike,
    scope: str | None,
    default_scope: str,
    loss_collection: str | None,
    reduction: str,
    formula: Callable[[Any, Any], Any],
) -> Tensor:
    """The frame of losses of two floating-point tensors of one shape."""
    _require(labels=labels, predictions=predictions)
    with name_scope(scope, default_scope, [predictions, labels, weights]) as full_scope:
        predictions = _cast(convert_to_tensor(predictions), dtypes.float32)
        labels = _cast(convert_to_tensor(labels), dtypes.float32)
        predictions.shape.assert_is_compatible_with(labels.shape)
        return compute_weighted_loss(formula(labels, predictions), weights, full_scope, loss_collection, reduction)


# ---------------------------------------------------------------------- regression
def absolute_difference(
    labels: TensorLike,
    predictions: TensorLike,
    weights: TensorLike = 1.0,
    scope: str | None = None,
    loss_collection: str | None = GraphKeys.LOSSES,
    reduction: str = Reduction.SUM_BY_NONZERO_WEIGHTS,
) -> Tensor:
    """``|predictions - labels|``.

    Args:
        labels, predictions: of one shape.
        weights, scope, loss_collection, reduction: see `compute_weighted_loss`; the same in all losses.

    Raises:
        ValueError: shapes that do not go together, or a missing argument; the same in all losses.
    """

    def formula(labels: TensorLike, predictions: TensorLike) -> Any:
        return raw.Abs(raw.Sub(predictions, labels))

    arguments = (scope, "absolute_difference", loss_collection, reduction)
    return _elementwise(labels, predictions, weights, *arguments, formula)


def mean_squared_error(
    labels: TensorLike,
    predictions: TensorLike,
    weights: TensorLike = 1.0,
    scope: str | None = None,
    loss_collection: str | None = GraphKeys.LOSSES,
    reduction: str = Reduction.SUM_BY_NONZERO_WEIGHTS,
) -> Tensor:
    """``(predictions - labels) ** 2``; arguments and errors as in `absolute_difference`.

    Args:
        labels, predictions: numbers of one shape.
        weights: a scalar, or of the shape of `labels` with sizes 1 where they broadcast.
        scope: name scope of the operations.
        loss_collection: the collection that the loss joins.
        reduction: a `Reduction`: what to do with the losses of the elements.

    Returns:
        A float scalar; with `Reduction.NONE` of the shape of `labels`.

    Raises:
        ValueError: the shapes do not go together, or an argument is None.

    Example:
        >>> sess.run(tf.losses.mean_squared_error([1.0, 2.0], [1.0, 4.0]))
        np.float32(2.0)
    """

    def formula(labels: TensorLike, predictions: TensorLike) -> Any:
        return raw.SquaredDifference(predictions, labels)

    arguments = (scope, "mean_squared_error", loss_collection, reduction)
    return _elementwise(labels, predictions, weights, *arguments, formula)


def huber_loss(
    labels: TensorLike,
    predictions: TensorLike,
    weights: TensorLike = 1.0,
    delta: float = 1.0,
    scope: str | None = None,
    loss_collection: str | None = GraphKeys.LOSSES,
    reduction: str = Reduction.SUM_BY_NONZERO_WEIGHTS,
) -> Tensor:
    """Half the squared difference up to `delta`, and linear beyond: ``delta * |d| - delta ** 2 / 2``."""

    def formula(labels: TensorLike, predictions: TensorLike) -> Any:
        error = raw.Abs(raw.Sub(predictions, labels))
        quadratic = raw.Minimum(error, delta)
        linear = raw.Sub(error, quadratic)
        return raw.AddV2(raw.Mul(raw.Square(quadratic), 0.5), raw.Mul(linear, delta))

    arguments = (scope, "huber_loss", loss_collection, reduction)
    return _elementwise(labels, predictions, weights, *arguments, formula)


def log_loss(
    labels: TensorLike,
    predictions: TensorLike,
    weights: TensorLike = 1.0,
    epsilon: float = 1e-7,
    scope: str | None = None,
    loss_collection: str | None = GraphKeys.LOSSES,
    reduction: str = Reduction.SUM_BY_NONZERO_WEIGHTS,
) -> Tensor:
    """``-labels * log(predictions) - (1 - labels) * log(1 - predictions)``; `epsilon` keeps the logarithms finite."""

    def formula(labels: TensorLike, predictions: TensorLike) -> Any:
        one = convert_to_tensor(1.0, labels.dtype)
        positive = raw.Mul(labels, raw.Log(raw.AddV2(predictions, epsilon)))
        negative = raw.Mul(raw.Sub(one, labels), raw.Log(raw.AddV2(raw.Sub(one, predictions), epsilon)))
        return raw.Neg(raw.AddV2(positive, negative))

    arguments = (scope, "log_loss", loss_collection, reduction)
    return _elementwise(labels, predictions, weights, *arguments, formula)


def cosine_distance(
    labels: TensorLike,
    predictions: TensorLike,
    axis: int | None = None,
    weights: TensorLike = 1.0,
    scope: str | None = None,
    loss_collection: str | None = GraphKeys.LOSSES,
    reduction: str = Reduction.SUM_BY_NONZERO_WEIGHTS,
    dim: int | None = None,
) -> Tensor:
    """``1 - sum(labels * predictions)`` along `axis`; both are expected to have length 1 along it.

    Args:
        dim: the old name of `axis`.

    Raises:
        ValueError: no axis, or both names.
    """
    if axis is not None and dim is not None:
        raise ValueError("'axis' and 'dim' name the same argument; give one of them")
    axis = dim if axis is None else axis
    if axis is None:
        raise ValueError("You must specify 'axis'.")
    along = axis

    def formula(labels: TensorLike, predictions: TensorLike) -> Any:
        product = raw.Mul(predictions, labels)
        return raw.Sub(convert_to_tensor(1.0, product.dtype), raw.Sum(product, [along], keep_dims=True))

    arguments = (scope, "cosine_distance_loss", loss_collection, reduction)
    return _elementwise(labels, predictions, weights, *arguments, formula)


def mean_pairwise_squared_error(
    labels: TensorLike,
    predictions: TensorLike,
    weights: TensorLike = 1.0,
    scope: str | None = None,
    loss_collection: str | None = GraphKeys.LOSSES,
) -> Tensor:
    """The squared error of the differences between all pairs of elements of an example.

    Args:
        labels, predictions: of one shape [batch, ...].
        weights: a scalar, or one per example.
    """
    _require(labels=labels, predictions=predictions)
    with name_scope(scope, "mean_pairwise_squared_error", [predictions, labels, weights]):
        weights = _cast(convert_to_tensor(weights), dtypes.float32)
        labels = _cast(convert_to_tensor(labels), dtypes.float32)
        predictions = _cast(convert_to_tensor(predictions), dtypes.float32)
        predictions.shape.assert_is_compatible_with(labels.shape)
        with get_default_graph().control_dependencies([assert_broadcastable(weights, labels)]):
            differences = raw.Sub(predictions, labels)
            axes = _inner_axes(differences)
            count = _num_present(differences, weights, per_batch=True)
            others = raw.Sub(count, 1.0)
            squares = raw.Sum(raw.Square(differences), axes, keep_dims=True)
            term1 = raw.Mul(raw.DivNoNan(squares, raw.Maximum(others, 0.0), name="value"), 2.0)
            total = raw.Sum(differences, axes, keep_dims=True)
            pairs = raw.Maximum(raw.Mul(count, others), 0.0)
            term2 = raw.Mul(raw.DivNoNan(raw.Square(total), pairs, name="value"), 2.0)
            loss = _sum_all(raw.Mul(raw.Sub(term1, term2), weights))
            any_present = raw.Greater(_sum_all(count), 0.0)
            result: Tensor = raw.SelectV2(any_present, loss, raw.ZerosLike(loss), name="value")
        add_loss(result, loss_collection)
        return result


# ---------------------------------------------------------------------- classification
def hinge_loss(
    labels: TensorLike,
    logits: TensorLike,
    weights: TensorLike = 1.0,
    scope: str | None = None,
    loss_collection: str | None = GraphKeys.LOSSES,
    reduction: str = Reduction.SUM_BY_NONZERO_WEIGHTS,
) -> Tensor:
    """``max(0, 1 - sign * logits)``, where the sign is that of labels 0 and 1 brought to -1 and 1."""
    _require(labels=labels, logits=logits)

    def formula(labels: TensorLike, logits: TensorLike) -> Any:
        one = convert_to_tensor(1.0, labels.dtype)
        signs = raw.Sub(raw.Mul(labels, 2.0), one)
        return raw.Relu(raw.Sub(one, raw.Mul(signs, logits)))

    return _elementwise(labels, logits, weights, scope, "hinge_loss", loss_collection, reduction, formula)


def sigmoid_cross_entropy(
    multi_class_labels: TensorLike,
    logits: TensorLike,
    weights: TensorLike = 1.0,
    label_smoothing: float = 0,
    scope: str | None = None,
    loss_collection: str | None = GraphKeys.LOSSES,
    reduction: str = Reduction.SUM_BY_NONZERO_WEIGHTS,
) -> Tensor:
    """The cross entropy of independent yes-or-no decisions.

    Args:
        multi_class_labels: 0 or 1 (or between), shape [batch, classes].
        logits: of the same shape.
        label_smoothing: how far labels are moved towards 1/2, between 0 and 1.
    """
    _require(multi_class_labels=multi_class_labels, logits=logits)
    with name_scope(scope, "sigmoid_cross_entropy_loss", [logits, multi_class_labels, weights]) as full_scope:
        logits = convert_to_tensor(logits)
        labels = _cast(convert_to_tensor(multi_class_labels), logits.dtype)
        logits.shape.assert_is_compatible_with(labels.shape)
        if _is_positive(label_smoothing):
            smoothing = convert_to_tensor(label_smoothing, logits.dtype)
            one = convert_to_tensor(1.0, logits.dtype)
            labels = raw.AddV2(raw.Mul(labels, raw.Sub(one, smoothing)), raw.Mul(smoothing, 0.5))
        losses = nn_losses.sigmoid_cross_entropy_with_logits(labels=labels, logits=logits, name="xentropy")
        return compute_weighted_loss(losses, weights, full_scope, loss_collection, reduction)


def _is_positive(label_smoothing: float) -> bool:
    return isinstance(label_smoothing, Tensor) or label_smoothing > 0


def softmax_cross_entropy(
    onehot_labels: TensorLike,
    logits: TensorLike,
    weights: TensorLike = 1.0,
    label_smoothing: float = 0,
    scope: str | None = None,
    loss_collection: str | None = GraphKeys.LOSSES,
    reduction: str = Reduction.SUM_BY_NONZERO_WEIGHTS,
) -> Tensor:
    """The cross entropy of a choice among classes; labels are taken as constants.

    Args:
        onehot_labels: probabilities, shape [batch, classes].
        logits: of the same shape.
        weights: a scalar, or shape [batch].
        label_smoothing: how far labels are moved towards the uniform distribution, between 0 and 1.
        scope: name scope of the operations.
        loss_collection: the collection that the loss joins.
        reduction: a `Reduction`: what to do with the losses of the examples.

    Returns:
        A scalar; with `Reduction.NONE` of shape [batch].

    Raises:
        ValueError: the shapes of labels, logits and weights do not go together, or an argument is None.

    Example:
        >>> loss = tf.losses.softmax_cross_entropy([[1.0, 0.0]], [[0.0, 0.0]])
        >>> sess.run(loss)
        np.float32(0.6931472)
    """
    _require(onehot_labels=onehot_labels, logits=logits)
    with name_scope(scope, "softmax_cross_entropy_loss", [logits, onehot_labels, weights]) as full_scope:
        logits = convert_to_tensor(logits)
        labels = _cast(convert_to_tensor(onehot_labels), logits.dtype)
        logits.shape.assert_is_compatible_with(labels.shape)
        if _is_positive(label_smoothing):
            smoothing = convert_to_tensor(label_smoothing, logits.dtype)
            count = raw.StridedSlice(raw.Shape(labels), [-1], [0], [1], end_mask=1, shrink_axis_mask=1)
            share = raw.RealDiv(smoothing, raw.Cast(count, DstT=logits.dtype))
            labels = raw.AddV2(raw.Mul(labels, raw.Sub(convert_to_tensor(1.0, logits.dtype), smoothing)), share)
        losses = nn_losses.softmax_cross_entropy_with_logits(labels=labels, logits=logits, name="xentropy")
        return compute_weighted_loss(losses, weights, full_scope, loss_collection, reduction)


def sparse_softmax_cross_entropy(
    labels: TensorLike,
    logits: TensorLike,
    weights: TensorLike = 1.0,
    scope: str | None = None,
    loss_collection: str | None = GraphKeys.LOSSES,
    reduction: str = Reduction.SUM_BY_NONZERO_WEIGHTS,
) -> Tensor:
    """The cross entropy of a choice among classes, with labels given as class numbers.

    Args:
        labels: integers in [0, classes), shape [batch] or [batch, 1] (or with more dimensions before).
        logits: shape [batch, classes].
        weights: a scalar, or of the shape of `labels`.
        scope: name scope of the operations.
        loss_collection: the collection that the loss joins.
        reduction: a `Reduction`: what to do with the losses of the examples.

    Returns:
        A scalar; with `Reduction.NONE` of the shape of `labels`.

    Raises:
        ValueError: the shapes do not go together, or an argument is None.

    Example:
        >>> sess.run(tf.losses.sparse_softmax_cross_entropy([1, 0], [[0.0, 0.0], [0.0, 0.0]]))
        np.float32(0.6931472)
    """
    _require(labels=labels, logits=logits)
    with name_scope(scope, "sparse_softmax_cross_entropy_loss", [logits, labels, weights]) as full_scope:
        labels, logits = remove_squeezable_dimensions(labels, logits, expected_rank_diff=1)
        weights = _squeezed_weights(labels, weights)
        losses = nn_losses.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits, name="xentropy")
        return compute_weighted_loss(losses, weights, full_scope, loss_collection, reduction)


def _squeezed_weights(labels: Tensor, weights: TensorLike) -> Any:
    if isinstance(weights, int | float):
        return weights
    tensor = convert_to_tensor(weights)
    ranks = (tensor.shape.ndims, labels.shape.ndims)
    if None in ranks and ranks[0] != 0:
        return with_rank_changed(tensor, drop=raw.Equal(raw.Sub(raw.Rank(tensor), raw.Rank(labels)), 1))
    if None not in ranks and ranks[0] and ranks[0] == (ranks[1] or 0) + 1:
        return raw.Squeeze(tensor, squeeze_dims=[-1])
    return tensor
