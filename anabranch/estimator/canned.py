"""Ready-made estimators: linear models, networks of dense layers, and both side by side ("wide and deep")."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import anabranch as tf
from anabranch.contrib.arguments import PassedOn
from anabranch.estimator.estimators import Estimator
from anabranch.estimator.heads import Head, RegressionHead, WeightColumn, classification_head
from anabranch.estimator.model_functions import EstimatorSpec, ModeKeys, WarmStartSettings
from anabranch.estimator.run_config import RunConfig
from anabranch.feature_column.columns import FeatureColumn

#: an optimizer, the name of one, or a function that makes one
OptimizerLike: TypeAlias = "str | tf.train.Optimizer | Callable[[], tf.train.Optimizer]"
#: a function of tensors
Activation: TypeAlias = "Callable[[tf.Tensor], tf.Tensor] | None"
_Path: TypeAlias = "str | os.PathLike[str] | None"
_SUM = tf.losses.Reduction.SUM
_OPTIMIZERS: dict[str, Callable[..., tf.train.Optimizer]] = {
    "Adagrad": tf.train.AdagradOptimizer,
    "Adam": tf.train.AdamOptimizer,
    "Ftrl": tf.train.FtrlOptimizer,
    "RMSProp": tf.train.RMSPropOptimizer,
    "SGD": tf.train.GradientDescentOptimizer,
}
_DNN_RATE, _LINEAR_RATE = 0.05, 0.2
#: where both parts are trained together
_DEEP_RATE, _WIDE_RATE = 0.001, 0.005


def _optimizer(given: OptimizerLike, learning_rate: float) -> tf.train.Optimizer:
    if isinstance(given, str):
        if given not in _OPTIMIZERS:
            raise ValueError(f"Unsupported optimizer name: {given}. Supported names are: {sorted(_OPTIMIZERS)}")
        return _OPTIMIZERS[given](learning_rate=learning_rate)
    made = given if isinstance(given, tf.train.Optimizer) else given()
    if not isinstance(made, tf.train.Optimizer):
        raise ValueError(f"The given object is not an Optimizer instance. Given: {made}")
    return made


@dataclass(frozen=True)
class _Deep:
    """A part of dense layers."""

    hidden_units: tuple[int, ...]
    columns: tuple[FeatureColumn, ...]
    optimizer: OptimizerLike
    learning_rate: float
    activation_fn: Activation
    dropout: float | None
    batch_norm: bool
    partitioner: PassedOn
    scope = "dnn"

    def logits(self, features: Mapping[str, PassedOn], mode: str, units: int) -> tf.Tensor:
        with tf.variable_scope(self.scope, values=list(features.values()), partitioner=self.partitioner):
            with tf.variable_scope("input_from_feature_columns"):
                net = tf.feature_column.input_layer(features, self.columns)
            for i, size in enumerate(self.hidden_units):
                net = self._layer(net, f"hiddenlayer_{i}", size, mode)
            return tf.layers.dense(net, units, kernel_initializer=tf.glorot_uniform_initializer(), name="logits")

    def _layer(self, net: tf.Tensor, name: str, size: int, mode: str) -> tf.Tensor:
        is_training = mode == ModeKeys.TRAIN
        net = tf.layers.dense(
            net, size, activation=self.activation_fn, kernel_initializer=tf.glorot_uniform_initializer(), name=name
        )
        if self.dropout is not None and is_training:
            net = tf.layers.dropout(net, rate=self.dropout, training=True)
        if self.batch_norm:
            net = tf.layers.batch_normalization(
                net, momentum=0.999, training=is_training, name=name.replace("hiddenlayer", "batchnorm")
            )
        tf.summary.scalar(f"dnn/{name}/fraction_of_zero_values", tf.nn.zero_fraction(net))
        tf.summary.histogram(f"dnn/{name}/activation", net)
        return net


@dataclass(frozen=True)
class _Wide:
    """A linear part."""

    columns: tuple[FeatureColumn, ...]
    optimizer: OptimizerLike
    largest_rate: float
    sparse_combiner: str
    partitioner: PassedOn
    scope = "linear"

    @property
    def learning_rate(self) -> float:
        return min(self.largest_rate, 1 / math.sqrt(len(self.columns)))

    def logits(self, features: Mapping[str, PassedOn], mode: str, units: int) -> tf.Tensor:
        with tf.variable_scope(self.scope, values=list(features.values()), partitioner=self.partitioner):
            return tf.feature_column.linear_model(
                features, self.columns, units=units, sparse_combiner=self.sparse_combiner
            )


def _model_function(head: Head, parts: Sequence[_Deep | _Wide]) -> Callable[..., EstimatorSpec]:
    """The model function of some parts, whose logits are added; each part is trained by its own optimizer."""

    def model_fn(features: PassedOn, labels: PassedOn, mode: str) -> EstimatorSpec:
        if not isinstance(features, Mapping):
            raise ValueError(f"features should be a dictionary of `Tensor`s. Given type: {type(features)}")
        tensors = [part.logits(features, mode, head.logits_dimension) for part in parts]
        logits = tensors[0] if len(tensors) == 1 else tf.add_n(tensors)

        def train_op_fn(loss: tf.Tensor) -> tf.Operation:
            return _train(loss, parts)

        return head.spec(features, mode, logits, labels, train_op_fn)

    return model_fn


def _train(loss: tf.Tensor, parts: Sequence[_Deep | _Wide]) -> tf.Operation:
    step = tf.train.get_or_create_global_step()
    updates = tf.get_collection(tf.GraphKeys.UPDATE_OPS)
    with tf.control_dependencies(updates):
        steps = [
            _optimizer(part.optimizer, part.learning_rate).minimize(
                loss, var_list=tf.get_collection(tf.GraphKeys.TRAINABLE_VARIABLES, f"{part.scope}/")
            )
            for part in parts
        ]
    with tf.control_dependencies(steps):
        result: tf.Operation = tf.assign_add(step, 1).op
    return result


def _columns(given: Iterable[FeatureColumn] | None, what: str) -> tuple[FeatureColumn, ...]:
    columns = tuple(given or ())
    if not columns:
        raise ValueError(f"{what} must not be empty.")
    return columns


def _units(hidden_units: Iterable[int]) -> tuple[int, ...]:
    units = tuple(hidden_units or ())
    if not units:
        raise ValueError("hidden_units must be defined: the sizes of the layers")
    return units


class _DNN(Estimator):
    def __init__(self, head: Head, part: _Deep, model_dir: _Path, config: RunConfig | None, warm: PassedOn) -> None:
        super().__init__(_model_function(head, [part]), model_dir, config, warm_start_from=warm)


class DNNClassifier(_DNN):
    """A network of dense layers that says which class an example is of.

    Args:
        hidden_units: the sizes of the layers.
        feature_columns: dense ones, as for `tf.feature_column.input_layer`.
        model_dir, config, warm_start_from: as for `Estimator`.
        n_classes: how many classes.
        weight_column: the feature of an example's weight; None: all weigh the same.
        label_vocabulary: the classes, if labels are strings; None: labels are integers in [0, n_classes).
        optimizer: a `tf.train.Optimizer`, a function that makes one, or "Adagrad", "Adam", "Ftrl", "RMSProp", "SGD"
            with a learning rate of 0.05.
        activation_fn: of the layers.
        dropout: the part of each layer's outputs that is left out while training; None: nothing.
        input_layer_partitioner: of the variables.
        loss_reduction: of `tf.losses.Reduction`.
        batch_norm: whether to normalize after each layer.
    """

    def __init__(
        self,
        hidden_units: Iterable[int],
        feature_columns: Iterable[FeatureColumn],
        model_dir: _Path = None,
        n_classes: int = 2,
        weight_column: WeightColumn = None,
        label_vocabulary: Sequence[str] | None = None,
        optimizer: OptimizerLike = "Adagrad",
        activation_fn: Activation = tf.nn.relu,
        dropout: float | None = None,
        input_layer_partitioner: PassedOn = None,
        config: RunConfig | None = None,
        warm_start_from: str | WarmStartSettings | None = None,
        loss_reduction: str = _SUM,
        batch_norm: bool = False,
    ) -> None:
        head = classification_head(n_classes, weight_column, label_vocabulary, loss_reduction)
        columns = _columns(feature_columns, "feature_columns")
        part = _Deep(
            _units(hidden_units),
            columns,
            optimizer,
            _DNN_RATE,
            activation_fn,
            dropout,
            batch_norm,
            input_layer_partitioner,
        )
        super().__init__(head, part, model_dir, config, warm_start_from)


class DNNRegressor(_DNN):
    """A network of dense layers that says a number, or `label_dimension` of them; see `DNNClassifier`."""

    def __init__(
        self,
        hidden_units: Iterable[int],
        feature_columns: Iterable[FeatureColumn],
        model_dir: _Path = None,
        label_dimension: int = 1,
        weight_column: WeightColumn = None,
        optimizer: OptimizerLike = "Adagrad",
        activation_fn: Activation = tf.nn.relu,
        dropout: float | None = None,
        input_layer_partitioner: PassedOn = None,
        config: RunConfig | None = None,
        warm_start_from: str | WarmStartSettings | None = None,
        loss_reduction: str = _SUM,
        batch_norm: bool = False,
    ) -> None:
        head = RegressionHead(label_dimension, weight_column, loss_reduction)
        columns = _columns(feature_columns, "feature_columns")
        part = _Deep(
            _units(hidden_units),
            columns,
            optimizer,
            _DNN_RATE,
            activation_fn,
            dropout,
            batch_norm,
            input_layer_partitioner,
        )
        super().__init__(head, part, model_dir, config, warm_start_from)


class LinearClassifier(Estimator):
    """A linear model that says which class an example is of.

    Args:
        feature_columns: dense and categorical ones, as for `tf.feature_column.linear_model`.
        optimizer: as for `DNNClassifier`; names have a learning rate of 1 / sqrt(number of columns), 0.2 at most.
        partitioner: of the variables.
        sparse_combiner: how the weights of several ids are combined.
        model_dir, n_classes, weight_column, label_vocabulary, config, warm_start_from, loss_reduction: as for
            `DNNClassifier`.
    """

    def __init__(
        self,
        feature_columns: Iterable[FeatureColumn],
        model_dir: _Path = None,
        n_classes: int = 2,
        weight_column: WeightColumn = None,
        label_vocabulary: Sequence[str] | None = None,
        optimizer: OptimizerLike = "Ftrl",
        config: RunConfig | None = None,
        partitioner: PassedOn = None,
        warm_start_from: str | WarmStartSettings | None = None,
        loss_reduction: str = _SUM,
        sparse_combiner: str = "sum",
    ) -> None:
        head = classification_head(n_classes, weight_column, label_vocabulary, loss_reduction)
        columns = _columns(feature_columns, "feature_columns")
        part = _Wide(columns, optimizer, _LINEAR_RATE, sparse_combiner, partitioner)
        super().__init__(_model_function(head, [part]), model_dir, config, warm_start_from=warm_start_from)


class LinearRegressor(Estimator):
    """A linear model that says a number, or `label_dimension` of them; see `LinearClassifier`."""

    def __init__(
        self,
        feature_columns: Iterable[FeatureColumn],
        model_dir: _Path = None,
        label_dimension: int = 1,
        weight_column: WeightColumn = None,
        optimizer: OptimizerLike = "Ftrl",
        config: RunConfig | None = None,
        partitioner: PassedOn = None,
        warm_start_from: str | WarmStartSettings | None = None,
        loss_reduction: str = _SUM,
        sparse_combiner: str = "sum",
    ) -> None:
        head = RegressionHead(label_dimension, weight_column, loss_reduction)
        columns = _columns(feature_columns, "feature_columns")
        part = _Wide(columns, optimizer, _LINEAR_RATE, sparse_combiner, partitioner)
        super().__init__(_model_function(head, [part]), model_dir, config, warm_start_from=warm_start_from)


@dataclass(frozen=True)
class _Combined:
    """The arguments of both parts of a combined model."""

    linear_feature_columns: Iterable[FeatureColumn] | None
    linear_optimizer: OptimizerLike
    dnn_feature_columns: Iterable[FeatureColumn] | None
    dnn_optimizer: OptimizerLike
    dnn_hidden_units: Iterable[int] | None
    dnn_activation_fn: Activation
    dnn_dropout: float | None
    batch_norm: bool
    linear_sparse_combiner: str
    partitioner: PassedOn

    def parts(self) -> list[_Deep | _Wide]:
        """The parts that have columns."""
        result: list[_Deep | _Wide] = []
        if wide := tuple(self.linear_feature_columns or ()):
            combiner = self.linear_sparse_combiner
            result.append(_Wide(wide, self.linear_optimizer, _WIDE_RATE, combiner, self.partitioner))
        if deep := tuple(self.dnn_feature_columns or ()):
            units = _units(self.dnn_hidden_units or ())
            settings: Any = self.dnn_activation_fn, self.dnn_dropout, self.batch_norm, self.partitioner
            result.append(_Deep(units, deep, self.dnn_optimizer, _DEEP_RATE, *settings))
        if not result:
            raise ValueError("Either linear_feature_columns or dnn_feature_columns must be defined.")
        return result


class DNNLinearCombinedClassifier(Estimator):
    """A linear model and a network whose logits are added, which says which class an example is of.

    Args:
        linear_feature_columns, linear_optimizer, linear_sparse_combiner: as for `LinearClassifier`; the learning rate
            of a name is 0.005 at most.
        dnn_feature_columns, dnn_optimizer, dnn_hidden_units, dnn_activation_fn, dnn_dropout, batch_norm: as for
            `DNNClassifier`; the learning rate of a name is 0.001.
        input_layer_partitioner: of the variables.
        model_dir, n_classes, weight_column, label_vocabulary, config, warm_start_from, loss_reduction: as for
            `DNNClassifier`.
    """

    def __init__(
        self,
        model_dir: _Path = None,
        linear_feature_columns: Iterable[FeatureColumn] | None = None,
        linear_optimizer: OptimizerLike = "Ftrl",
        dnn_feature_columns: Iterable[FeatureColumn] | None = None,
        dnn_optimizer: OptimizerLike = "Adagrad",
        dnn_hidden_units: Iterable[int] | None = None,
        dnn_activation_fn: Activation = tf.nn.relu,
        dnn_dropout: float | None = None,
        n_classes: int = 2,
        weight_column: WeightColumn = None,
        label_vocabulary: Sequence[str] | None = None,
        input_layer_partitioner: PassedOn = None,
        config: RunConfig | None = None,
        warm_start_from: str | WarmStartSettings | None = None,
        loss_reduction: str = _SUM,
        batch_norm: bool = False,
        linear_sparse_combiner: str = "sum",
    ) -> None:
        head = classification_head(n_classes, weight_column, label_vocabulary, loss_reduction)
        parts = _Combined(
            linear_feature_columns,
            linear_optimizer,
            dnn_feature_columns,
            dnn_optimizer,
            dnn_hidden_units,
            dnn_activation_fn,
            dnn_dropout,
            batch_norm,
            linear_sparse_combiner,
            input_layer_partitioner,
        ).parts()
        super().__init__(_model_function(head, parts), model_dir, config, warm_start_from=warm_start_from)


class DNNLinearCombinedRegressor(Estimator):
    """A linear model and a network whose outputs are added, which says numbers; see `DNNLinearCombinedClassifier`."""

    def __init__(
        self,
        model_dir: _Path = None,
        linear_feature_columns: Iterable[FeatureColumn] | None = None,
        linear_optimizer: OptimizerLike = "Ftrl",
        dnn_feature_columns: Iterable[FeatureColumn] | None = None,
        dnn_optimizer: OptimizerLike = "Adagrad",
        dnn_hidden_units: Iterable[int] | None = None,
        dnn_activation_fn: Activation = tf.nn.relu,
        dnn_dropout: float | None = None,
        label_dimension: int = 1,
        weight_column: WeightColumn = None,
        input_layer_partitioner: PassedOn = None,
        config: RunConfig | None = None,
        warm_start_from: str | WarmStartSettings | None = None,
        loss_reduction: str = _SUM,
        batch_norm: bool = False,
        linear_sparse_combiner: str = "sum",
    ) -> None:
        head = RegressionHead(label_dimension, weight_column, loss_reduction)
        parts = _Combined(
            linear_feature_columns,
            linear_optimizer,
            dnn_feature_columns,
            dnn_optimizer,
            dnn_hidden_units,
            dnn_activation_fn,
            dnn_dropout,
            batch_norm,
            linear_sparse_combiner,
            input_layer_partitioner,
        ).parts()
        super().__init__(_model_function(head, parts), model_dir, config, warm_start_from=warm_start_from)
