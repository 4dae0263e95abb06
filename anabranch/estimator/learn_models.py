"""The models of `tf.contrib.learn` that take a head, and those that are made of such."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, TypeAlias

import numpy as np

import anabranch as tf
from anabranch.contrib.arguments import PassedOn
from anabranch.contrib.clustering import KMeansClustering
from anabranch.contrib.feature_columns import THE_FEATURE
from anabranch.contrib.learn.class_heads import binary_svm_head
from anabranch.contrib.learn.estimators import LearnEstimator, LearnsFromArrays, Predictions, stacked
from anabranch.contrib.learn.heads import LearnHead
from anabranch.contrib.learn.keys import LearnMetricKey, LearnPredictionKey, LearnProblemType
from anabranch.contrib.learn.model_operations import ModelFnOps
from anabranch.contrib.learn.ready_made import clipped
from anabranch.contrib.mode_keys import LearnModeKeys
from anabranch.estimator.model_parts import Deep, ModelPart, Wide, optimizer_of, train_parts

#: changes features and labels
Engineered: TypeAlias = Callable[[Any, Any], tuple[Any, Any]] | None
_DEEP_RATE: Final = 0.05
_WIDE_RATE: Final = 0.2
#: what dual coordinate ascent has at the least
_LEAST_L2: Final = 1.0


def _model_function(head: LearnHead, parts: Sequence[ModelPart]) -> Callable[..., ModelFnOps]:
    """The model function of some parts, whose logits are added."""

    def model_fn(features: PassedOn, labels: PassedOn, mode: str) -> ModelFnOps:
        named = features if isinstance(features, Mapping) else {THE_FEATURE: features}
        tensors = [part.logits(named, mode, head.logits_dimension) for part in parts]
        return head.create_model_fn_ops(
            named,
            mode,
            labels,
            lambda loss: train_parts(loss, parts),
            tensors[0] if len(tensors) == 1 else tf.add_n(tensors),
        )

    return model_fn


def _optimizer(given: PassedOn, default: str, rate: float, norm: float | None) -> Any:
    return clipped(given or (default if norm is None else optimizer_of(default, rate)), norm)


def _deep(
    units: Iterable[int], columns: Iterable[Any], optimizer: PassedOn, activation: PassedOn, dropout: float | None
) -> Deep:
    return Deep(tuple(units), tuple(columns), optimizer, _DEEP_RATE, activation, dropout, False, None)


class LearnDNNEstimator(LearnEstimator):
    """A network of dense layers with a head.

    Args:
        head: of `tf.contrib.learn`, such as `multi_label_head`.
        hidden_units: the sizes of the layers.
        feature_columns: what examples are made of.
        model_dir, config, feature_engineering_fn: as for `Estimator`.
        optimizer: None: Adagrad.
        activation_fn: of the layers.
        dropout: the part of a layer's outputs that training leaves out; None: nothing.
        gradient_clip_norm: the greatest norm of all gradients together.
        embedding_lr_multipliers: not supported.
        input_layer_min_slice_size: not used: variables are whole.

    Raises:
        ValueError: `embedding_lr_multipliers` are given.
    """

    def __init__(
        self,
        head: LearnHead,
        hidden_units: Iterable[int],
        feature_columns: Iterable[Any],
        model_dir: str | None = None,
        optimizer: PassedOn = None,
        activation_fn: PassedOn = tf.nn.relu,
        dropout: float | None = None,
        gradient_clip_norm: float | None = None,
        config: tf.estimator.RunConfig | None = None,
        feature_engineering_fn: Engineered = None,
        embedding_lr_multipliers: Mapping[Any, float] | None = None,
        input_layer_min_slice_size: int | None = None,
    ) -> None:
        _check_multipliers(embedding_lr_multipliers)
        trains = _optimizer(optimizer, "Adagrad", _DEEP_RATE, gradient_clip_norm)
        part = _deep(hidden_units, feature_columns, trains, activation_fn, dropout)
        model_fn = _model_function(head, [part])
        super().__init__(model_fn, model_dir, config, feature_engineering_fn=feature_engineering_fn)


class LearnLinearEstimator(LearnEstimator):
    """A linear model with a head.

    Args:
        feature_columns, head, model_dir, gradient_clip_norm, config, feature_engineering_fn: as for `DNNEstimator`.
        weight_column_name: not used: the head has it.
        optimizer: None: Ftrl.
    """

    def __init__(
        self,
        feature_columns: Iterable[Any],
        head: LearnHead,
        model_dir: str | None = None,
        weight_column_name: str | None = None,
        optimizer: PassedOn = None,
        gradient_clip_norm: float | None = None,
        _joint_weights: bool = False,
        config: tf.estimator.RunConfig | None = None,
        feature_engineering_fn: Engineered = None,
    ) -> None:
        part = _wide(feature_columns, optimizer, gradient_clip_norm)
        model_fn = _model_function(head, [part])
        super().__init__(model_fn, model_dir, config, feature_engineering_fn=feature_engineering_fn)


def _wide(columns: Iterable[Any], optimizer: PassedOn, norm: float | None) -> Wide:
    part = Wide(tuple(columns), "Ftrl", _WIDE_RATE, "sum", None)
    trains = _optimizer(optimizer, "Ftrl", part.learning_rate, norm)
    return Wide(part.columns, trains, _WIDE_RATE, "sum", None)


class LearnDNNLinearCombinedEstimator(LearnEstimator):
    """A linear model and a network of dense layers, whose logits are added, with a head.

    Args:
        head, model_dir, gradient_clip_norm, config, feature_engineering_fn, embedding_lr_multipliers: as for
            `DNNEstimator`.
        linear_feature_columns, linear_optimizer: of the linear model; no columns: there is none.
        dnn_feature_columns, dnn_optimizer, dnn_hidden_units, dnn_activation_fn, dnn_dropout: of the network.
        fix_global_step_increment_bug, input_layer_partitioner, dnn_input_layer_partitioner: not used: a step counts
            once, and variables are whole.

    Raises:
        ValueError: there are columns of neither, or `embedding_lr_multipliers`.
    """

    def __init__(
        self,
        head: LearnHead,
        model_dir: str | None = None,
        linear_feature_columns: Iterable[Any] | None = None,
        linear_optimizer: PassedOn = None,
        _joint_linear_weights: bool = False,
        dnn_feature_columns: Iterable[Any] | None = None,
        dnn_optimizer: PassedOn = None,
        dnn_hidden_units: Iterable[int] | None = None,
        dnn_activation_fn: PassedOn = tf.nn.relu,
        dnn_dropout: float | None = None,
        gradient_clip_norm: float | None = None,
        config: tf.estimator.RunConfig | None = None,
        feature_engineering_fn: Engineered = None,
        embedding_lr_multipliers: Mapping[Any, float] | None = None,
        fix_global_step_increment_bug: bool = False,
        input_layer_partitioner: PassedOn = None,
        **_further: PassedOn,
    ) -> None:
        _check_multipliers(embedding_lr_multipliers)
        parts: list[ModelPart] = []
        if wide := tuple(linear_feature_columns or ()):
            parts.append(_wide(wide, linear_optimizer, gradient_clip_norm))
        if deep := tuple(dnn_feature_columns or ()):
            trains = _optimizer(dnn_optimizer, "Adagrad", _DEEP_RATE, gradient_clip_norm)
            parts.append(_deep(dnn_hidden_units or (), deep, trains, dnn_activation_fn, dnn_dropout))
        if not parts:
            raise ValueError("Either linear_feature_columns or dnn_feature_columns must be defined.")
        model_fn = _model_function(head, parts)
        super().__init__(model_fn, model_dir, config, feature_engineering_fn=feature_engineering_fn)


def _check_multipliers(given: Mapping[Any, float] | None) -> None:
    if given:
        raise ValueError(
            "embedding_lr_multipliers are not supported: give an optimizer whose compute_gradients multiplies them "
            "(tf.contrib.training.multiply_gradients)"
        )


# ---------------------------------------------------------------------- made of a program's own model
def LogisticRegressor(
    model_fn: Callable[..., Any],
    thresholds: Sequence[float] | None = None,
    model_dir: str | None = None,
    config: tf.estimator.RunConfig | None = None,
    feature_engineering_fn: Engineered = None,
) -> LearnEstimator:
    """A model of one of two classes, with metrics.

    Args:
        model_fn: takes features, labels and mode, and returns predictions (probabilities, [batch] or [batch, 1]), loss
            and training operation.
        thresholds: of probabilities, for metrics; None: 0.5.
        model_dir, config, feature_engineering_fn: as for `Estimator`.
    """

    def with_metrics(features: PassedOn, labels: PassedOn, mode: str) -> ModelFnOps:
        said, loss, train_op = model_fn(features, labels, mode)
        metrics = None if mode != LearnModeKeys.EVAL else _logistic_metrics(said, labels, thresholds or [0.5])
        outputs = {"head": (LearnProblemType.LOGISTIC_REGRESSION, {"predictions": said})}
        return ModelFnOps(mode, said, loss, train_op, metrics, outputs)

    return LearnEstimator(with_metrics, model_dir, config, feature_engineering_fn=feature_engineering_fn)


def _logistic_metrics(said: PassedOn, labels: PassedOn, thresholds: Sequence[float]) -> dict[str, Any]:
    expected = next(iter(labels.values())) if isinstance(labels, Mapping) and len(labels) == 1 else labels
    found = {
        LearnMetricKey.PREDICTION_MEAN: tf.metrics.mean(said),
        LearnMetricKey.LABEL_MEAN: tf.metrics.mean(expected),
        LearnMetricKey.ACCURACY_BASELINE: tf.metrics.mean(expected),
        LearnMetricKey.AUC: tf.metrics.auc(tf.cast(expected, tf.bool), said),
    }
    for one in thresholds:
        chosen = tf.cast(tf.greater_equal(said, one), tf.float32)
        found[LearnMetricKey.ACCURACY_MEAN % one] = tf.metrics.accuracy(expected, chosen)
        found[LearnMetricKey.PRECISION_MEAN % one] = tf.metrics.precision(expected, chosen)
        found[LearnMetricKey.RECALL_MEAN % one] = tf.metrics.recall(expected, chosen)
    return found


# ---------------------------------------------------------------------- a support vector machine
class LearnSVM(LearnEstimator):
    """A linear support vector machine for two classes, trained by dual coordinate ascent.

    Args:
        example_id_column: the feature of an example's id, string [batch].
        feature_columns: what examples are made of.
        weight_column_name: the feature of an example's weight; None: all weigh the same.
        model_dir, config, feature_engineering_fn: as for `Estimator`.
        l1_regularization: what the absolute value of a weight costs.
        l2_regularization: what half its square costs; 1 at the least.
        num_loss_partitions: how many workers train at once.
        kernels: None: machines are linear.

    Raises:
        ValueError: kernels are given.
    """

    def __init__(
        self,
        example_id_column: str,
        feature_columns: Iterable[Any],
        weight_column_name: str | None = None,
        model_dir: str | None = None,
        l1_regularization: float = 0.0,
        l2_regularization: float = 0.0,
        num_loss_partitions: int = 1,
        kernels: PassedOn = None,
        config: tf.estimator.RunConfig | None = None,
        feature_engineering_fn: Engineered = None,
    ) -> None:
        if kernels is not None:
            raise ValueError("Kernel SVMs are not currently supported.")
        ascent = tf.estimator.experimental.LinearSDCA(
            example_id_column,
            num_loss_partitions,
            symmetric_l1_regularization=l1_regularization,
            symmetric_l2_regularization=max(l2_regularization, _LEAST_L2),
        )
        columns = tuple(feature_columns)
        head = binary_svm_head(weight_column_name=weight_column_name)

        def model_fn(features: PassedOn, labels: PassedOn, mode: str) -> ModelFnOps:
            made: dict[Any, Any] = {}
            with tf.variable_scope("linear"):
                logits = tf.feature_column.linear_model(features, columns, cols_to_vars=made)
            if mode != LearnModeKeys.TRAIN:
                return head.create_model_fn_ops(features, mode, labels, logits=logits)
            model, train_op = ascent.get_train_step(
                _WeightsOfColumns(made),
                weight_column_name,
                "hinge_loss",
                columns,
                features,
                labels,
                made["bias"],
                tf.train.get_or_create_global_step(),
            )
            spec = head.create_model_fn_ops(features, mode, labels, lambda loss: train_op, logits)
            return spec._replace(training_chief_hooks=[_NewWeights(model.update_weights(train_op))])

        super().__init__(model_fn, model_dir, config, feature_engineering_fn=feature_engineering_fn)

    def predict_classes(
        self, x: PassedOn = None, input_fn: PassedOn = None, batch_size: int | None = None, as_iterable: bool = True
    ) -> Predictions:
        """The class of each example."""
        key = LearnPredictionKey.CLASSES
        values = (each[key] for each in self.predict(x, input_fn, batch_size, [key]))
        return values if as_iterable else stacked(values)


class _WeightsOfColumns:
    """The variables of a linear model's columns."""

    def __init__(self, by_column: Mapping[Any, Any]) -> None:
        self._by_column = by_column

    def get_variable(self, feature_column: PassedOn, name: str) -> Any:
        return self._by_column[feature_column]


class _NewWeights(tf.train.SessionRunHook):
    """Gives the model its new weights in each step."""

    def __init__(self, update: tf.Operation) -> None:
        self._update = update

    def before_run(self, run_context: tf.train.SessionRunContext) -> tf.train.SessionRunArgs:
        return tf.train.SessionRunArgs(self._update)


# ---------------------------------------------------------------------- clusters
class LearnKMeansClustering(LearnsFromArrays, KMeansClustering):  # type: ignore[misc]
    """`tf.contrib.factorization.KMeansClustering` with `fit`, and the names of outputs that it had before."""

    SCORES = "scores"
    CLUSTER_IDX = "cluster_idx"
    CLUSTERS = "clusters"
    ALL_SCORES = "all_scores"

    def _call_model_fn(
        self, features: PassedOn, labels: PassedOn, mode: str, config: PassedOn, exporting: bool = False
    ) -> tf.estimator.EstimatorSpec:
        spec = super()._call_model_fn(features, labels, mode, config, exporting)
        said = spec.predictions
        named = {self.CLUSTER_IDX: said[self.CLUSTER_INDEX], self.ALL_SCORES: said[self.ALL_DISTANCES]}
        metrics = {self.SCORES: spec.eval_metric_ops[self.SCORE]}
        return spec._replace(predictions=named, eval_metric_ops=metrics)

    def predict_cluster_idx(self, input_fn: PassedOn = None) -> Predictions:
        """The number of each example's cluster."""
        return (each[self.CLUSTER_IDX] for each in self.predict(input_fn=input_fn, outputs=[self.CLUSTER_IDX]))

    def score(self, input_fn: PassedOn = None, steps: int | None = None) -> float:  # type: ignore[override]
        """The sum of the distances of examples from their centres."""
        return float(self.evaluate(input_fn=input_fn, steps=steps)[self.SCORES])

    def transform(self, input_fn: PassedOn = None, as_iterable: bool = False) -> Predictions:
        """The distances of each example from all centres; squared, if they are Euclidean."""
        said = self.predict(input_fn=input_fn, outputs=[self.ALL_SCORES])
        values = (each[self.ALL_SCORES] for each in said)
        return values if as_iterable else stacked(values)

    def clusters(self) -> np.ndarray[Any, Any]:
        """The centres, [num_clusters, n]."""
        return self.cluster_centers()
