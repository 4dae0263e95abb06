"""Baselines: models that know labels alone, which every other model should beat."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

import anabranch as tf
from anabranch.contrib.arguments import PassedOn
from anabranch.estimator.class_heads import classification_head
from anabranch.estimator.estimators import Estimator
from anabranch.estimator.heads import Head, WeightColumn
from anabranch.estimator.model_functions import EstimatorSpec
from anabranch.estimator.model_parts import OptimizerLike, optimizer_of
from anabranch.estimator.regression_heads import RegressionHead
from anabranch.estimator.run_config import RunConfig

_Path: TypeAlias = "str | os.PathLike[str] | None"
_SUM = tf.losses.Reduction.SUM
_RATE = 0.3


def _model_function(head: Head, optimizer: OptimizerLike, weight_column: WeightColumn) -> Callable[..., EstimatorSpec]:
    """The model whose logits are a bias, the same for each example."""
    weight = weight_column if weight_column is None or isinstance(weight_column, str) else weight_column.key

    def model_fn(features: PassedOn, labels: PassedOn, mode: str) -> EstimatorSpec:
        size = _batch_size(features, weight)
        with tf.variable_scope("baseline"):
            bias = tf.get_variable("bias", [head.logits_dimension], initializer=tf.zeros_initializer())
            logits = bias * tf.ones([size, head.logits_dimension])

        def train_op_fn(loss: tf.Tensor) -> tf.Operation:
            return optimizer_of(optimizer, _RATE).minimize(loss, global_step=tf.train.get_or_create_global_step())

        return head.create_estimator_spec(features, mode, logits, labels, train_op_fn=train_op_fn)

    return model_fn


def _batch_size(features: PassedOn, weight: str | None) -> tf.Tensor:
    """How many examples a batch has, in which all features agree."""
    if not isinstance(features, Mapping):
        raise ValueError(f"features should be a dictionary of `Tensor`s. Given type: {type(features)}")
    sizes = [
        tf.cast(feature.dense_shape[0], tf.int32) if isinstance(feature, tf.SparseTensor) else tf.shape(feature)[0]
        for name, feature in features.items()
        if name != weight
    ]
    if not sizes:
        raise ValueError(
            f"features: there must be one besides the weight, to tell a batch's size; got {list(features)}"
        )
    checks = [tf.assert_equal(sizes[0], size, message="features have different numbers of rows") for size in sizes[1:]]
    with tf.control_dependencies(checks):
        size: tf.Tensor = tf.identity(sizes[0])
    return size


class BaselineClassifier(Estimator):
    """Says to each example how frequent the classes are, whatever its features.

    Args:
        model_dir, config: as for `Estimator`.
        n_classes: how many classes.
        weight_column: the feature of an example's weight; None: all weigh the same.
        label_vocabulary: the classes, if labels are strings; None: labels are integers in [0, n_classes).
        optimizer: a `tf.train.Optimizer`, a function that makes one, or "Adagrad", "Adam", "Ftrl", "RMSProp", "SGD"
            with a learning rate of 0.3.
        loss_reduction: of `tf.losses.Reduction`.
    """

    def __init__(
        self,
        model_dir: _Path = None,
        n_classes: int = 2,
        weight_column: WeightColumn = None,
        label_vocabulary: Sequence[str] | None = None,
        optimizer: OptimizerLike = "Ftrl",
        config: RunConfig | None = None,
        loss_reduction: str = _SUM,
    ) -> None:
        head = classification_head(n_classes, weight_column, label_vocabulary, loss_reduction)
        super().__init__(_model_function(head, optimizer, weight_column), model_dir, config)


class BaselineRegressor(Estimator):
    """Says the mean of the labels to each example; `label_dimension` numbers. See `BaselineClassifier`."""

    def __init__(
        self,
        model_dir: _Path = None,
        label_dimension: int = 1,
        weight_column: WeightColumn = None,
        optimizer: OptimizerLike = "Ftrl",
        config: RunConfig | None = None,
        loss_reduction: str = _SUM,
    ) -> None:
        head = RegressionHead(label_dimension, weight_column, loss_reduction)
        super().__init__(_model_function(head, optimizer, weight_column), model_dir, config)


class BaselineEstimator(Estimator):
    """Learns a bias for each logit of a head, whatever the features.

    Args:
        head: what the model says, such as `tf.estimator.MultiLabelHead`.
        model_dir, optimizer, config: as for `BaselineClassifier`.
    """

    def __init__(
        self,
        head: Head,
        model_dir: _Path = None,
        optimizer: OptimizerLike = "Ftrl",
        config: RunConfig | None = None,
    ) -> None:
        super().__init__(_model_function(head, optimizer, None), model_dir, config)
