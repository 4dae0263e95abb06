"""Heads: from a network's logits and labels to a loss, metrics, predictions and what an exported model gives."""

from __future__ import annotations

import abc
import contextlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeAlias

import anabranch as tf
from anabranch.contrib.arguments import PassedOn, TensorLike
from anabranch.estimator.export_outputs import ExportOutput, PredictOutput
from anabranch.estimator.head_metrics import LabelMetric, Metric, ValueMetric, mean
from anabranch.estimator.model_functions import EstimatorSpec, ModeKeys, arguments_of
from anabranch.feature_column.columns import Transformed
from anabranch.feature_column.numeric import NumericColumn

DEFAULT: Final = tf.saved_model.signature_constants.DEFAULT_SERVING_SIGNATURE_DEF_KEY
#: the signature of the outputs as they are
PREDICT: Final = "predict"
WeightColumn: TypeAlias = "str | NumericColumn | None"
#: of labels, logits and, if it names them, features: the losses of examples, [batch, ..., n]
LossFunction: TypeAlias = "Callable[..., tf.Tensor] | None"
Tensors: TypeAlias = "Sequence[tf.Tensor] | None"
#: whichever metrics a head has, by name
Metrics: TypeAlias = dict[str, Any]
#: how the losses of a batch become one by default: their mean
BATCH_MEAN: Final = "sum_over_batch_size"
#: the reductions of Keras, by those of `tf.losses`
_REDUCTIONS: Final = {
    "auto": tf.losses.Reduction.SUM_OVER_BATCH_SIZE,
    BATCH_MEAN: tf.losses.Reduction.SUM_OVER_BATCH_SIZE,
    "sum": tf.losses.Reduction.SUM,
}
_LOSS_ARGUMENTS: Final = ("labels", "logits", "features", "loss_reduction")


class Head(abc.ABC):
    """One kind of prediction.

    A class of your own says the abstract properties and methods; `create_estimator_spec` is built on them.

    Example:
        >>> head = tf.estimator.RegressionHead()
        >>> head.logits_dimension
        1
    """

    @property
    @abc.abstractmethod
    def name(self) -> str | None:
        """The name of the head, which its metrics bear too; None: it has none."""

    @property
    @abc.abstractmethod
    def logits_dimension(self) -> int:
        """How many logits an example has."""

    @property
    @abc.abstractmethod
    def loss_reduction(self) -> str:
        """How the losses of a batch become one."""

    @abc.abstractmethod
    def loss(
        self,
        labels: TensorLike,
        logits: TensorLike,
        features: Mapping[str, TensorLike] | None = None,
        mode: str | None = None,
        regularization_losses: Tensors = None,
    ) -> tf.Tensor:
        """The loss of a batch.

        Args:
            labels: [batch, ..., n], or without the last dimension where n is 1.
            logits: [batch, ..., logits_dimension].
            features: by name; among them the weights of examples.
            mode: of `ModeKeys`.
            regularization_losses: scalars that are added.

        Returns:
            A scalar.

        Raises:
            ValueError: labels are missing, or something has another shape or dtype.
        """

    @abc.abstractmethod
    def predictions(self, logits: TensorLike, keys: Sequence[str] | None = None) -> dict[Any, tf.Tensor]:
        """What the head says.

        Args:
            logits: [batch, ..., logits_dimension].
            keys: which predictions; None: all.

        Returns:
            Tensors by name.

        Raises:
            ValueError: logits have another shape, or there is no prediction of a name.
        """

    @abc.abstractmethod
    def metrics(self, regularization_losses: Tensors = None) -> Metrics:
        """New metrics by name, which have no values yet; with `regularization_losses`, one for these."""

    @abc.abstractmethod
    def update_metrics(
        self,
        eval_metrics: Metrics,
        features: Mapping[str, TensorLike],
        logits: TensorLike,
        labels: TensorLike,
        mode: str | None = None,
        regularization_losses: Tensors = None,
    ) -> Metrics:
        """Gives a batch to metrics that `metrics` made.

        Args:
            eval_metrics: metrics by name.
            features, logits, labels, mode, regularization_losses: as for `loss`.

        Returns:
            The metrics, which `EstimatorSpec` takes as `eval_metric_ops`.
        """

    def create_estimator_spec(
        self,
        features: Mapping[str, TensorLike],
        mode: str,
        logits: TensorLike,
        labels: TensorLike = None,
        optimizer: PassedOn = None,
        trainable_variables: Sequence[tf.Variable] | None = None,
        train_op_fn: Callable[[tf.Tensor], tf.Operation | tf.Tensor] | None = None,
        update_ops: Sequence[tf.Operation | tf.Tensor] | None = None,
        regularization_losses: Tensors = None,
    ) -> EstimatorSpec:
        """What a model function returns.

        Args:
            features: by name; among them the weights of examples.
            mode: of `ModeKeys`.
            logits: [batch, ..., logits_dimension].
            labels: as for `loss`; not needed to predict.
            optimizer: a `tf.train.Optimizer`, or one of Keras' (which has `get_updates`): minimizes the loss.
            trainable_variables: which variables it changes; None: all of the graph's.
            train_op_fn: makes the training operation of the loss, where there is no optimizer.
            update_ops: operations that run in each step of training, such as those of batch normalization.
            regularization_losses: scalars that are added to the loss.

        Raises:
            ValueError: labels are missing, both or neither of `optimizer` and `train_op_fn` are given to train, or
                something has another shape or dtype.
        """
        with tf.name_scope(self.name, "head"):
            predictions = self.predictions(logits)
            if mode == ModeKeys.PREDICT:
                return EstimatorSpec(mode, predictions, export_outputs=self._export_outputs(predictions))
            loss, average = self._loss_and_average(labels, logits, features, mode, regularization_losses)
            if mode == ModeKeys.EVAL:
                metrics = self.update_metrics(
                    self.metrics(regularization_losses=regularization_losses),
                    features,
                    logits,
                    labels,
                    regularization_losses=regularization_losses,
                )
                return EstimatorSpec(mode, predictions, loss, eval_metric_ops=metrics)
        train_op = training_operation(loss, optimizer, trainable_variables, train_op_fn, update_ops)
        with tf.name_scope(""):
            tf.summary.scalar(self._key("loss"), loss)
            if average is not None:
                tf.summary.scalar(self._key("average_loss"), average)
            if regularization_losses:
                tf.summary.scalar(self._key("regularization_loss"), tf.add_n(list(regularization_losses)))
        return EstimatorSpec(mode, predictions, loss, train_op)

    def _loss_and_average(
        self,
        labels: TensorLike,
        logits: TensorLike,
        features: Mapping[str, TensorLike],
        mode: str,
        regularization_losses: Tensors,
    ) -> tuple[tf.Tensor, tf.Tensor | None]:
        """The loss of a batch, and its mean over the weights of the examples where training shows that too."""
        return self.loss(labels, logits, features, mode, regularization_losses), None

    def _key(self, metric: str) -> str:
        """A metric's name, with the head's."""
        return f"{metric}/{self.name}" if self.name else metric

    def _export_outputs(self, predictions: Mapping[Any, tf.Tensor]) -> dict[str, ExportOutput]:
        """What an exported model gives, by signature."""
        return {DEFAULT: PredictOutput(predictions), PREDICT: PredictOutput(predictions)}


def training_operation(
    loss: tf.Tensor,
    optimizer: PassedOn,
    trainable_variables: Sequence[tf.Variable] | None,
    train_op_fn: Callable[[tf.Tensor], tf.Operation | tf.Tensor] | None,
    update_ops: Sequence[tf.Operation | tf.Tensor] | None,
) -> tf.Operation | tf.Tensor:
    """The operation of a step of training; the arguments are those of `Head.create_estimator_spec`.

    Raises:
        ValueError: both or neither of `optimizer` and `train_op_fn` are given, or what is given is no optimizer.
    """
    if (optimizer is None) == (train_op_fn is None):
        raise ValueError("train_op_fn and optimizer: give exactly one of them to train")
    train_op: tf.Operation | tf.Tensor
    with tf.name_scope(""), tf.name_scope("training"):
        if train_op_fn is not None:
            train_op = train_op_fn(loss)
        elif isinstance(optimizer, tf.train.Optimizer):
            step = tf.train.get_or_create_global_step()
            train_op = optimizer.minimize(loss, global_step=step, var_list=trainable_variables)
        elif hasattr(optimizer, "get_updates"):
            train_op = _keras_step(loss, optimizer, trainable_variables)
        else:
            kind = type(optimizer).__name__
            raise ValueError(f"The given optimizer is neither a tf.train.Optimizer nor one of Keras. Given: {kind}")
        return tf.group(train_op, *update_ops) if update_ops else train_op


def _keras_step(
    loss: tf.Tensor, optimizer: PassedOn, trainable_variables: Sequence[tf.Variable] | None
) -> tf.Operation:
    """A step of an optimizer of Keras, which does not count steps."""
    variables = tf.trainable_variables() if trainable_variables is None else list(trainable_variables)
    updates = optimizer.get_updates(loss, variables)
    with tf.control_dependencies([tf.group(*updates)]):
        result: tf.Operation = tf.assign_add(tf.train.get_or_create_global_step(), 1).op
    return result


# ---------------------------------------------------------------------- heads of one kind
class SingleHead(Head):
    """What the heads of this library have in common.

    Args:
        weight_column: the feature of an example's weight; None: all weigh the same.
        loss_reduction: "sum_over_batch_size" (the mean over a batch), "sum", or one of `tf.losses.Reduction`.
        loss_fn: of labels, logits and, if it names them, features: the losses of examples; None: the head's own.
        name: of the head and its metrics.

    Raises:
        ValueError: an unknown reduction, or a function of other arguments.
        TypeError: the weights are no column of numbers.
    """

    #: the names of predictions, in their order
    _prediction_keys: tuple[str, ...]
    #: how many losses an example has
    _loss_dimension = 1
    #: whether each logit may have a weight of its own
    _has_weights_of_logits = False
    #: see `dual_loss`
    _dual_loss: str | None = None

    def __init__(
        self,
        logits_dimension: int,
        weight_column: WeightColumn,
        loss_reduction: str,
        loss_fn: LossFunction,
        name: str | None,
    ) -> None:
        if isinstance(weight_column, str):
            weight_column = tf.feature_column.numeric_column(weight_column)
        if weight_column is not None and not isinstance(weight_column, NumericColumn):
            raise TypeError(f"weight_column must be a string or a numeric_column, got {weight_column}")
        chosen = _REDUCTIONS.get(loss_reduction, loss_reduction)
        if chosen == tf.losses.Reduction.NONE or chosen not in tf.losses.Reduction.all():
            raise ValueError(
                f"Invalid loss_reduction: {loss_reduction!r}. Use 'sum_over_batch_size', 'sum', or one of "
                "tf.losses.Reduction but NONE."
            )
        if loss_fn is not None:
            _check_loss_function(loss_fn)
        self._dimension, self._weight_column, self._name = logits_dimension, weight_column, name
        self._reduction, self._tf_reduction, self._loss_fn = loss_reduction, chosen, loss_fn
        # The heads of ready-made models, and those of `tf.contrib.estimator`, are TensorFlow's older kind, which takes
        # `tf.losses.Reduction`: programs ask for their nodes by name (`head/weighted_loss/Sum`, `head/truediv`).
        self._is_former = loss_reduction in tf.losses.Reduction.all()

    @property
    def name(self) -> str | None:
        return self._name

    @property
    def logits_dimension(self) -> int:
        return self._dimension

    @property
    def loss_reduction(self) -> str:
        return self._reduction

    @property
    def dual_loss(self) -> str | None:
        """The loss of an example, as the operations of dual coordinate ascent call it; None: it is none of theirs."""
        return None if self._loss_fn is not None else self._dual_loss

    def targets_and_weights(
        self, labels: TensorLike, logits: tf.Tensor, features: Mapping[str, TensorLike]
    ) -> tuple[tf.Tensor, tf.Tensor | None]:
        """Labels as the loss takes them, and the weights of examples, or None where all weigh the same.

        Raises:
            ValueError: labels are missing, or something has another shape or dtype.
        """
        return self._targets(labels, logits), self._weights(logits, features)

    def loss(
        self,
        labels: TensorLike,
        logits: TensorLike,
        features: Mapping[str, TensorLike] | None = None,
        mode: str | None = None,
        regularization_losses: Tensors = None,
    ) -> tf.Tensor:
        with contextlib.nullcontext() if self._is_former else tf.name_scope("losses"):
            loss, _, _ = self._reduced(labels, logits, features or {})
            return tf.add_n([loss, *regularization_losses]) if regularization_losses else loss

    def _reduced(
        self, labels: TensorLike, logits: TensorLike, features: Mapping[str, TensorLike]
    ) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor | None]:
        """The loss of a batch, the losses of its examples and their weights."""
        checked = self._checked_logits(logits)
        losses, weights = self._losses_and_weights(checked, self._targets(labels, checked), features)
        loss: tf.Tensor = tf.losses.compute_weighted_loss(
            losses,
            1.0 if weights is None else weights,
            loss_collection=tf.GraphKeys.LOSSES if self._is_former else None,
            reduction=self._tf_reduction,
        )
        return loss, losses, weights

    def _loss_and_average(
        self,
        labels: TensorLike,
        logits: TensorLike,
        features: Mapping[str, TensorLike],
        mode: str,
        regularization_losses: Tensors,
    ) -> tuple[tf.Tensor, tf.Tensor | None]:
        shows_average = self._reduction == tf.losses.Reduction.SUM and mode == ModeKeys.TRAIN
        if not shows_average or type(self).loss is not SingleHead.loss:
            return super()._loss_and_average(labels, logits, features, mode, regularization_losses)
        loss, losses, weights = self._reduced(labels, logits, features)
        average = loss / tf.reduce_sum((1.0 if weights is None else weights) * tf.ones_like(losses))
        return tf.add_n([loss, *regularization_losses]) if regularization_losses else loss, average

    def predictions(self, logits: TensorLike, keys: Sequence[str] | None = None) -> dict[Any, tf.Tensor]:
        wanted = tuple(keys or self._prediction_keys)
        for key in wanted:
            if key not in self._prediction_keys:
                raise ValueError(f"there is no prediction {key!r}; there are {', '.join(self._prediction_keys)}")
        checked = self._checked_logits(logits)
        with tf.name_scope("predictions"):
            made = self._predictions(checked, wanted)
        return {key: made[key] for key in self._prediction_keys if key in wanted}

    def metrics(self, regularization_losses: Tensors = None) -> Metrics:
        made: list[Metric] = [mean("average_loss"), *self._own_metrics()]
        if regularization_losses is not None:
            made.append(mean("regularization_loss"))
        return {self._key(metric.name): metric for metric in made}

    def update_metrics(  # type: ignore[override]  # as in TensorFlow, whose heads take no mode here
        self,
        eval_metrics: Metrics,
        features: Mapping[str, TensorLike],
        logits: TensorLike,
        labels: TensorLike,
        regularization_losses: Tensors = None,
    ) -> Metrics:
        checked = self._checked_logits(logits)
        targets = self._targets(labels, checked)
        losses, weights = self._losses_and_weights(checked, targets, features)
        self._value(eval_metrics, "average_loss").update_state(losses, weights)
        self._update_own_metrics(eval_metrics, checked, targets, weights)
        if regularization_losses is not None:
            self._value(eval_metrics, "regularization_loss").update_state(tf.add_n(list(regularization_losses)))
        return eval_metrics

    # ------------------------------------------------------------------ what kinds of heads say
    @abc.abstractmethod
    def _targets(self, labels: TensorLike, logits: tf.Tensor) -> tf.Tensor:
        """Labels of the rank of the logits, checked, as the loss takes them."""

    @abc.abstractmethod
    def _losses(self, logits: tf.Tensor, targets: tf.Tensor) -> tf.Tensor:
        """The losses of the examples, [batch, ..., n]."""

    @abc.abstractmethod
    def _predictions(self, logits: tf.Tensor, wanted: Sequence[str]) -> dict[str, tf.Tensor]:
        """Predictions by name; at least those that are wanted."""

    @abc.abstractmethod
    def _own_metrics(self) -> list[Metric]:
        """New metrics besides those of losses; their names are without the head's."""

    @abc.abstractmethod
    def _update_own_metrics(
        self, metrics: Metrics, logits: tf.Tensor, targets: tf.Tensor, weights: tf.Tensor | None
    ) -> None:
        """Gives a batch to the metrics of `_own_metrics`."""

    def _value(self, metrics: Metrics, name: str) -> ValueMetric:
        metric: ValueMetric = metrics[self._key(name)]
        return metric

    def _comparison(self, metrics: Metrics, name: str) -> LabelMetric:
        metric: LabelMetric = metrics[self._key(name)]
        return metric

    # ------------------------------------------------------------------ checks
    def _checked_logits(self, logits: TensorLike) -> tf.Tensor:
        tensor: tf.Tensor = tf.cast(logits, tf.float32)
        rank, size = tensor.shape.ndims, self._dimension
        expected = f"logits shape must be [D0, D1, ... DN, {size}]"
        if rank is not None and rank < 2:
            raise ValueError(f"{expected}, got {tensor.shape}")
        last = None if rank is None else tensor.shape.as_list()[-1]
        if last is None:
            check = tf.assert_equal(tf.shape(tensor)[-1], size, data=[tf.shape(tensor)], message=expected)
            with tf.control_dependencies([check]):
                return tf.identity(tensor)
        if last != size:
            raise ValueError(f"{expected}, got {tensor.shape}")
        return tensor

    def _losses_and_weights(
        self, logits: tf.Tensor, targets: tf.Tensor, features: Mapping[str, TensorLike]
    ) -> tuple[tf.Tensor, tf.Tensor | None]:
        if self._loss_fn is None:
            losses = self._losses(logits, targets)
        else:
            given = {"features": features} if "features" in arguments_of(self._loss_fn) else {}
            losses = self._loss_fn(labels=targets, logits=logits, **given)
            losses = _of_shape(losses, _leading(logits, self._loss_dimension), "loss_fn must return a tensor of shape")
        return losses, self._weights(logits, features)

    def _weights(self, logits: tf.Tensor, features: Mapping[str, TensorLike]) -> tf.Tensor | None:
        if self._weight_column is None:
            return None
        weights: tf.Tensor = tf.cast(self._weight_column.get_dense_tensor(Transformed(features)), tf.float32)
        if _lacks_last(weights, logits):
            weights = tf.expand_dims(weights, -1)
        last = weights.shape.as_list()[-1] if weights.shape.ndims else None
        allowed = {1, self._dimension} if self._has_weights_of_logits else {1}
        if last is not None and last not in allowed:
            raise ValueError(
                f"weights of feature {self._weight_column.key!r} must have {' or '.join(map(str, sorted(allowed)))} "
                f"in their last dimension, got shape {weights.shape}"
            )
        return weights


def _check_loss_function(loss_fn: Callable[..., tf.Tensor]) -> None:
    names = arguments_of(loss_fn)
    for required in _LOSS_ARGUMENTS[:2]:
        if required not in names:
            raise ValueError(f"loss_fn must contain argument: {required}. Given arguments: {names}")
    if unknown := sorted(set(names) - set(_LOSS_ARGUMENTS)):
        raise ValueError(f"loss_fn has unexpected args: {unknown}")


def _leading(logits: tf.Tensor, size: int) -> tf.Tensor:
    """The shape of the logits with another last dimension."""
    shape: tf.Tensor = tf.concat([tf.shape(logits)[:-1], [size]], 0)
    return shape


def _lacks_last(tensor: tf.Tensor, logits: tf.Tensor) -> bool:
    """Whether the tensor has one dimension less than the logits."""
    rank, rank_of_logits = tensor.shape.ndims, logits.shape.ndims
    return rank is not None and rank_of_logits is not None and rank == rank_of_logits - 1


def _of_shape(tensor: tf.Tensor, shape: tf.Tensor, message: str) -> tf.Tensor:
    """The tensor, if it has that shape when it is computed."""
    actual = tf.shape(tensor)
    check = tf.assert_equal(actual, shape, data=["expected", shape, "got", actual], message=message)
    with tf.control_dependencies([check]):
        return tf.identity(tensor)


def dense_labels(labels: TensorLike, logits: tf.Tensor, size: int) -> tf.Tensor:
    """Labels as [batch, ..., size], checked against the logits.

    Raises:
        ValueError: there are none, they are sparse or of another shape.
    """
    if labels is None:
        raise ValueError("You must provide a labels Tensor. Given: None. Check that your input_fn returns it.")
    if isinstance(labels, Mapping):
        raise ValueError(f"labels must be one tensor, got {sorted(labels)}")
    if isinstance(labels, tf.SparseTensor):
        raise ValueError(
            f"SparseTensor labels are not supported: labels must be a tensor of shape [D0, ..., DN, {size}]; see "
            "tf.sparse.to_dense"
        )
    tensor: tf.Tensor = tf.convert_to_tensor(labels)
    if _lacks_last(tensor, logits):
        tensor = tf.expand_dims(tensor, -1)
    rank = tensor.shape.ndims
    if rank is not None and rank < 2:
        raise ValueError(f"labels must have shape [D0, ..., DN, {size}], got {tensor.shape} for logits {logits.shape}")
    last = None if rank is None else tensor.shape.as_list()[-1]
    if last not in (None, size):
        raise ValueError(f"Mismatched label shape: expected {size} labels of an example, got {last}, of {tensor}")
    return _of_shape(tensor, _leading(logits, size), f"labels shape must be [D0, D1, ... DN, {size}]")


def in_range(labels: tf.Tensor, n_classes: int, message: str) -> tf.Tensor:
    """The labels, if they are in [0, n_classes) when they are computed."""
    largest = tf.cast(n_classes - 1, labels.dtype.base_dtype)
    smallest = tf.zeros([], labels.dtype.base_dtype)
    with tf.control_dependencies(
        [
            tf.assert_less_equal(labels, largest, message=message),
            tf.assert_greater_equal(labels, smallest, message=message),
        ]
    ):
        result: tf.Tensor = tf.identity(labels)
    return result
