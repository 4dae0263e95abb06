"""Heads of `tf.contrib.learn`: what a model's last layer means, its loss, its predictions and its metrics.

They return `ModelFnOps`, where those of `tf.estimator` return an `EstimatorSpec`; a loss is the mean over a batch.
"""

from __future__ import annotations

import abc
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, TypeAlias

import anabranch as tf
from anabranch.contrib.arguments import PassedOn, ScopeLike, TensorLike
from anabranch.contrib.learn.keys import LearnMetricKey, LearnPredictionKey, LearnProblemType
from anabranch.contrib.learn.model_operations import ModelFnOps
from anabranch.contrib.mode_keys import LearnModeKeys

#: makes the operation of training out of a loss
TrainFunction: TypeAlias = Callable[[Any], Any]
#: the loss that is trained, and the one that is told
Losses: TypeAlias = tuple[Any, Any]
_MODES = (LearnModeKeys.TRAIN, LearnModeKeys.EVAL, LearnModeKeys.INFER)
#: of the one variable that is added to the logits; its gradient has few numbers, and the step may be large
_BIAS_RATE = 0.1


class LearnHead(abc.ABC):
    """Makes loss, predictions and metrics out of a model's logits."""

    #: ends the names of metrics and predictions; heads of a `multi_head` need one
    head_name: str | None = None

    @property
    @abc.abstractmethod
    def logits_dimension(self) -> int:
        """How many logits an example has."""

    @abc.abstractmethod
    def create_model_fn_ops(
        self,
        features: Mapping[str, TensorLike],
        mode: str,
        labels: TensorLike = None,
        train_op_fn: TrainFunction | None = None,
        logits: TensorLike = None,
        logits_input: TensorLike = None,
        scope: ScopeLike | None = None,
    ) -> ModelFnOps:
        """What a model function returns.

        Args:
            features: by name; a weight of examples is one of them.
            mode: of `ModeKeys`.
            labels: tensor, or tensors by name.
            train_op_fn: makes the operation of training out of the loss; needed to train.
            logits: float [batch, logits_dimension].
            logits_input: float [batch, n], the last layer, of which a dense layer "logits" makes them.
            scope: of variables; default: the head's name.

        Raises:
            ValueError: an unknown mode, both or neither of `logits` and `logits_input`, or none of `train_op_fn`.
        """


def check_mode(mode: str) -> None:
    """Refuses what is no mode of a model.

    Raises:
        ValueError: it is none.
    """
    if mode not in _MODES:
        raise ValueError(f"mode={mode} unrecognized: use tf.contrib.learn.ModeKeys.TRAIN, EVAL or INFER")


def no_op_train_fn(loss: TensorLike) -> tf.Operation:
    """An operation that does nothing, where a program trains by itself."""
    return tf.no_op()


def metric_name(head_name: str | None, key: str) -> str:
    """The name of a metric, or of a summary, of a head."""
    return f"{key}/{head_name}" if head_name else key


def mean_losses(losses: tf.Tensor, weights: TensorLike) -> Losses:
    """The means of a batch: of the weighted losses, which is trained, and by the weights, which is told.

    Args:
        losses: float [batch, n], of each example.
        weights: float, of the same shape, or one that is broadcast to it; None: all weigh the same.
    """
    if weights is None:
        mean = tf.reduce_mean(losses, name="loss")
        return mean, mean
    spread = weights * tf.ones_like(losses)
    weighted = losses * spread
    return tf.reduce_mean(weighted, name="loss"), tf.reduce_sum(weighted) / tf.reduce_sum(spread)


class SingleLearnHead(LearnHead):
    """A head of one kind of labels.

    Args:
        logits_dimension: how many logits an example has.
        label_name: of the labels, where there are several by name.
        weight_column_name: of the feature that weighs examples; None: all weigh the same.
        enable_centered_bias: whether a variable is added to the logits, and trained by itself.
        head_name: see `LearnHead`.
    """

    problem_type: ClassVar[int]
    #: of variables, where neither a scope nor a name is given
    _scope: ClassVar[str]

    def __init__(
        self,
        logits_dimension: int,
        label_name: str | None,
        weight_column_name: str | None,
        enable_centered_bias: bool,
        head_name: str | None,
    ) -> None:
        if logits_dimension is None or logits_dimension < 1:
            raise ValueError(f"Invalid logits_dimension {logits_dimension}: an example has at least one")
        self._logits_dimension = logits_dimension
        self.label_name, self.weight_column_name, self.head_name = label_name, weight_column_name, head_name
        self._is_centered = enable_centered_bias

    @property
    def logits_dimension(self) -> int:
        return self._logits_dimension

    @abc.abstractmethod
    def losses(self, labels: PassedOn, logits: tf.Tensor, weights: TensorLike) -> Losses:
        """The loss that is trained, and the one that is told."""

    @abc.abstractmethod
    def predictions(self, logits: tf.Tensor) -> dict[str, Any]:
        """What is said, by `PredictionKey`."""

    @abc.abstractmethod
    def metrics(
        self, predictions: Mapping[str, Any], labels: PassedOn, weights: TensorLike
    ) -> dict[str, tuple[Any, Any]]:
        """Metrics by `MetricKey`, beside the loss."""

    def create_model_fn_ops(
        self,
        features: Mapping[str, TensorLike],
        mode: str,
        labels: TensorLike = None,
        train_op_fn: TrainFunction | None = None,
        logits: TensorLike = None,
        logits_input: TensorLike = None,
        scope: ScopeLike | None = None,
    ) -> ModelFnOps:
        check_mode(mode)
        with tf.variable_scope(scope, self.head_name or self._scope):
            expected = None if mode == LearnModeKeys.INFER or labels is None else self.checked_labels(labels)
            given = self._logits(logits, logits_input)
            bias = self._centered_bias() if self._is_centered else None
            shifted = given if bias is None else tf.nn.bias_add(given, bias)
            with tf.name_scope("predictions"):
                predictions = self.predictions(shifted)
            alternatives = self.output_alternatives(predictions)
            if expected is None:
                return ModelFnOps(mode, predictions, output_alternatives=alternatives)
            weights = self._weights(features)
            loss, told = self.losses(expected, shifted, weights)
            with tf.name_scope(""):
                tf.summary.scalar(metric_name(self.head_name, LearnMetricKey.LOSS), tf.identity(told))
            train_op = None
            if mode == LearnModeKeys.TRAIN:
                train_op = self._train_op(loss, expected, shifted, weights, bias, train_op_fn)
            with tf.name_scope("metrics"):
                metrics = {LearnMetricKey.LOSS: tf.metrics.mean(told), **self.metrics(predictions, expected, weights)}
            named = {metric_name(self.head_name, key): metric for key, metric in metrics.items()}
            return ModelFnOps(mode, predictions, loss, train_op, named, alternatives)

    def checked_labels(self, labels: TensorLike) -> Any:
        """The labels as `losses` and `metrics` take them.

        Raises:
            ValueError: they are sparse, or none has the label's name.
        """
        dense = self._chosen_labels(labels)
        if isinstance(dense, tf.SparseTensor):
            raise ValueError(f"SparseTensor is not supported as labels of {type(self).__name__}: tf.sparse.to_dense")
        return dense

    def _chosen_labels(self, labels: TensorLike) -> Any:
        if isinstance(labels, Mapping):
            if self.label_name not in labels:
                raise ValueError(f"no label has the name {self.label_name!r}: there are {sorted(labels)}")
            labels = labels[self.label_name]
        return tf.convert_to_tensor_or_sparse_tensor(labels)

    def output_alternatives(self, predictions: Mapping[str, Any]) -> dict[Any, tuple[int, Mapping[str, Any]]]:
        """What an exported model gives."""
        return {self.head_name: (self.problem_type, predictions)}

    def _logits(self, logits: TensorLike, logits_input: TensorLike) -> tf.Tensor:
        if (logits is None) == (logits_input is None):
            some = "Neither" if logits is None else "Both"
            raise ValueError(f"{some} logits {'nor' if logits is None else 'and'} logits_input supplied.")
        if logits is None:
            return dense_logits(logits_input, self._logits_dimension)
        given: tf.Tensor = tf.convert_to_tensor(logits, name="logits")
        if given.shape.ndims:
            given.shape[-1].assert_is_compatible_with(self._logits_dimension)
        return given

    def _weights(self, features: Mapping[str, TensorLike]) -> Any:
        name = self.weight_column_name
        if not name:
            return None
        if name not in features:
            raise ValueError(f"Weights {name} missing from features, which are {sorted(features)}.")
        weights = tf.cast(features[name], tf.float32)
        return tf.reshape(weights, [-1, 1]) if weights.shape.ndims == 1 else weights

    def _centered_bias(self) -> tf.Variable:
        bias: tf.Variable = tf.Variable(tf.zeros([self._logits_dimension]), name="centered_bias_weight")
        for i in range(self._logits_dimension):
            tf.summary.scalar(metric_name(self.head_name, f"centered_bias/bias_{i}"), bias[i])
        return bias

    def _train_op(
        self,
        loss: tf.Tensor,
        labels: PassedOn,
        logits: tf.Tensor,
        weights: TensorLike,
        bias: tf.Variable | None,
        train_op_fn: TrainFunction | None,
    ) -> Any:
        if train_op_fn is None:
            raise ValueError("train_op_fn can not be None in TRAIN mode")
        with tf.name_scope(None, "train_op"):
            train_op = train_op_fn(loss)
            if bias is None:
                return train_op
            alone = tf.zeros_like(logits) + bias
            centered, _ = self.losses(labels, alone, weights)
            step = tf.train.AdagradOptimizer(_BIAS_RATE).minimize(tf.reduce_mean(centered), var_list=[bias])
            return tf.group(train_op, step)


def dense_logits(layer: TensorLike, units: int) -> tf.Tensor:
    """The logits of a layer, whose variables have the names that `tf.contrib.layers.linear` gives.

    Args:
        layer: float [batch, n].
        units: how many logits.
    """
    inputs = tf.convert_to_tensor(layer)
    with tf.variable_scope("logits"):
        size = inputs.shape.as_list()[-1]
        weights = tf.get_variable("weights", [size, units], initializer=tf.glorot_uniform_initializer())
        biases = tf.get_variable("biases", [units], initializer=tf.zeros_initializer())
        logits: tf.Tensor = tf.nn.bias_add(tf.matmul(inputs, weights), biases)
        return logits


# ---------------------------------------------------------------------- numbers
class _NumberHead(SingleLearnHead):
    """Numbers: `loss_fn` takes labels and logits of one shape, `link_fn` makes predictions of logits."""

    problem_type = LearnProblemType.LINEAR_REGRESSION
    _scope = "regression_head"

    def __init__(
        self, loss_fn: Callable[[Any, Any], Any], link_fn: Callable[[Any], Any], dimension: int, *further: PassedOn
    ) -> None:
        super().__init__(dimension, *further)
        self._loss_fn, self._link_fn = loss_fn, link_fn

    def losses(self, labels: PassedOn, logits: tf.Tensor, weights: TensorLike) -> Losses:
        columns = tf.expand_dims(labels, 1) if labels.shape.ndims == 1 else labels
        logits.shape.assert_is_compatible_with(columns.shape)
        return mean_losses(self._loss_fn(tf.cast(columns, logits.dtype), logits), weights)

    def predictions(self, logits: tf.Tensor) -> dict[str, Any]:
        if self._logits_dimension == 1:
            logits = tf.squeeze(logits, [1], name=LearnPredictionKey.SCORES)
        return {LearnPredictionKey.SCORES: self._link_fn(logits)}

    def metrics(
        self, predictions: Mapping[str, Any], labels: PassedOn, weights: TensorLike
    ) -> dict[str, tuple[Any, Any]]:
        return {}


def regression_head(
    label_name: str | None = None,
    weight_column_name: str | None = None,
    label_dimension: int = 1,
    enable_centered_bias: bool = False,
    head_name: str | None = None,
    link_fn: Callable[[Any], Any] | None = None,
) -> LearnHead:
    """A head for numbers, whose loss is the mean squared difference.

    Args:
        label_name: of the labels, where there are several by name.
        weight_column_name: of the feature that weighs examples; None: all weigh the same.
        label_dimension: how many numbers an example has.
        enable_centered_bias: whether a variable is added to the logits, and trained by itself.
        head_name: ends the names of metrics.
        link_fn: makes predictions of logits; None: they are the logits.

    Example:
        >>> tf.contrib.learn.regression_head(label_dimension=3).logits_dimension
        3
    """
    of_head = weight_column_name, enable_centered_bias, head_name
    link = tf.identity if link_fn is None else link_fn
    return _NumberHead(_squared_differences, link, label_dimension, label_name, *of_head)


def _squared_differences(labels: tf.Tensor, logits: tf.Tensor) -> Any:
    return tf.squared_difference(logits, labels)


def poisson_regression_head(
    label_name: str | None = None,
    weight_column_name: str | None = None,
    label_dimension: int = 1,
    enable_centered_bias: bool = False,
    head_name: str | None = None,
) -> LearnHead:
    """A head for counts, which are distributed as Poisson has it; predictions are the means, e to the logits.

    Args:
        label_name, weight_column_name, label_dimension, enable_centered_bias, head_name: as `regression_head` has them.
    """
    of_head = weight_column_name, enable_centered_bias, head_name
    return _NumberHead(_poisson_losses, tf.exp, label_dimension, label_name, *of_head)


def _poisson_losses(labels: tf.Tensor, logits: tf.Tensor) -> Any:
    return tf.nn.log_poisson_loss(labels, logits, compute_full_loss=True)


# ---------------------------------------------------------------------- several at once
class _LossOnlyHead(LearnHead):
    """A loss of its own, without labels."""

    def __init__(self, loss_fn: Callable[[], Any], head_name: str | None) -> None:
        self._loss_fn, self.head_name = loss_fn, head_name or "loss_only_head"

    @property
    def logits_dimension(self) -> int:
        return 0

    def create_model_fn_ops(
        self,
        features: Mapping[str, TensorLike],
        mode: str,
        labels: TensorLike = None,
        train_op_fn: TrainFunction | None = None,
        logits: TensorLike = None,
        logits_input: TensorLike = None,
        scope: ScopeLike | None = None,
    ) -> ModelFnOps:
        check_mode(mode)
        if mode == LearnModeKeys.INFER:
            return ModelFnOps(mode, {}, eval_metric_ops={})
        with tf.variable_scope(scope, self.head_name):
            loss = self._loss_fn()
            loss = tf.add_n(loss) if isinstance(loss, list) else loss
            with tf.name_scope(""):
                tf.summary.scalar(metric_name(self.head_name, LearnMetricKey.LOSS), tf.identity(loss))
            if mode == LearnModeKeys.EVAL:
                return ModelFnOps(mode, {}, loss, eval_metric_ops={})
            if train_op_fn is None:
                raise ValueError("train_op_fn can not be None in TRAIN mode")
            return ModelFnOps(mode, {}, loss, train_op_fn(loss), eval_metric_ops={})


def loss_only_head(loss_fn: Callable[[], Any], head_name: str | None = None) -> LearnHead:
    """A loss beside those of other heads, such as one of regularization.

    Args:
        loss_fn: gives a scalar, or a list of such, which are added.
        head_name: ends the names of metrics.
    """
    return _LossOnlyHead(loss_fn, head_name)


class _HeadsTogether(LearnHead):
    """Heads of one model, whose losses are added."""

    def __init__(self, heads: Sequence[LearnHead], loss_weights: Sequence[float] | None) -> None:
        if loss_weights and len(loss_weights) != len(heads):
            raise ValueError(f"heads and loss_weights must have same size: {len(heads)} and {len(loss_weights)}")
        if not all(head.head_name for head in heads):
            raise ValueError("Members of MultiHead must have names: give each a head_name")
        self._heads, self._factors = tuple(heads), tuple(loss_weights or ())

    @property
    def logits_dimension(self) -> int:
        return sum(head.logits_dimension for head in self._heads)

    def create_model_fn_ops(
        self,
        features: Mapping[str, TensorLike],
        mode: str,
        labels: TensorLike = None,
        train_op_fn: TrainFunction | None = None,
        logits: TensorLike = None,
        logits_input: TensorLike = None,
        scope: ScopeLike | None = None,
    ) -> ModelFnOps:
        check_mode(mode)
        if mode == LearnModeKeys.TRAIN and train_op_fn is None:
            raise ValueError("train_op_fn can not be None in TRAIN mode.")
        parts = self._of_heads(logits)
        made = {
            head: head.create_model_fn_ops(
                features, mode, labels, no_op_train_fn, part, logits_input if part is None else None, scope
            )
            for head, part in parts.items()
        }
        predictions = {
            (head.head_name, key): value for head, one in made.items() for key, value in one.predictions.items()
        }
        if mode == LearnModeKeys.INFER:
            outputs = {name: way for one in made.values() for name, way in (one.output_alternatives or {}).items()}
            return ModelFnOps(mode, predictions, output_alternatives=outputs)
        losses = [one.loss for one in made.values()]
        loss = tf.add_n([a * b for a, b in zip(losses, self._factors, strict=True)] if self._factors else losses)
        metrics = {name: metric for one in made.values() for name, metric in (one.eval_metric_ops or {}).items()}
        if mode == LearnModeKeys.EVAL:
            return ModelFnOps(mode, predictions, loss, eval_metric_ops=metrics)
        assert train_op_fn is not None
        train_op = tf.group(train_op_fn(loss), *(one.train_op for one in made.values()))
        return ModelFnOps(mode, None, loss, train_op, metrics)

    def _of_heads(self, logits: TensorLike) -> dict[LearnHead, Any]:
        """The logits of each head, which are side by side, or given by the heads' names."""
        if logits is None:
            return dict.fromkeys(self._heads)
        if isinstance(logits, Mapping):
            return {head: logits[head.head_name] if head.logits_dimension else None for head in self._heads}
        return dict(zip(self._heads, tf.split(logits, [head.logits_dimension for head in self._heads], 1), strict=True))


def multi_head(heads: Sequence[LearnHead], loss_weights: Sequence[float] | None = None) -> LearnHead:
    """Several heads of one model.

    Args:
        heads: each with a name.
        loss_weights: what the losses are multiplied with; None: with 1.

    Raises:
        ValueError: the two are not of one length, or a head has no name.
    """
    return _HeadsTogether(heads, loss_weights)
