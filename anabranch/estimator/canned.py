"""Ready-made estimators: linear models, networks of dense layers, and both side by side ("wide and deep")."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import anabranch as tf
from anabranch.contrib.arguments import PassedOn
from anabranch.estimator.class_heads import classification_head
from anabranch.estimator.estimators import Estimator
from anabranch.estimator.heads import Head, SingleHead, WeightColumn
from anabranch.estimator.model_functions import ModelFunction, WarmStartSettings
from anabranch.estimator.model_parts import Activation, Deep, ModelPart, OptimizerLike, Wide, model_function
from anabranch.estimator.regression_heads import RegressionHead
from anabranch.estimator.run_config import RunConfig
from anabranch.estimator.sdca import LinearSDCA, dual_model_function
from anabranch.feature_column.columns import FeatureColumn

_Path: TypeAlias = "str | os.PathLike[str] | None"
_SUM = tf.losses.Reduction.SUM
_DNN_RATE, _LINEAR_RATE = 0.05, 0.2
#: where both parts are trained together
_DEEP_RATE, _WIDE_RATE = 0.001, 0.005


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
    """Dense layers below a head; `layers` are their activation, dropout, batch normalization and partitioner."""

    def __init__(
        self,
        head: Head,
        hidden_units: Iterable[int],
        feature_columns: Iterable[FeatureColumn],
        optimizer: OptimizerLike,
        layers: tuple[Activation, float | None, bool, PassedOn],
        model_dir: _Path,
        config: RunConfig | None,
        warm_start_from: PassedOn,
    ) -> None:
        columns = _columns(feature_columns, "feature_columns")
        part = Deep(_units(hidden_units), columns, optimizer, _DNN_RATE, *layers)
        super().__init__(model_function(head, [part]), model_dir, config, warm_start_from=warm_start_from)


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
        layers = activation_fn, dropout, batch_norm, input_layer_partitioner
        super().__init__(head, hidden_units, feature_columns, optimizer, layers, model_dir, config, warm_start_from)


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
        layers = activation_fn, dropout, batch_norm, input_layer_partitioner
        super().__init__(head, hidden_units, feature_columns, optimizer, layers, model_dir, config, warm_start_from)


class DNNEstimator(_DNN):
    """A network of dense layers with a head of your choice.

    Args:
        head: what the network says, such as `tf.estimator.MultiLabelHead`.
        hidden_units, feature_columns, model_dir, optimizer, activation_fn, dropout, input_layer_partitioner, config,
            warm_start_from, batch_norm: as for `DNNClassifier`.
    """

    def __init__(
        self,
        head: Head,
        hidden_units: Iterable[int],
        feature_columns: Iterable[FeatureColumn],
        model_dir: _Path = None,
        optimizer: OptimizerLike = "Adagrad",
        activation_fn: Activation = tf.nn.relu,
        dropout: float | None = None,
        input_layer_partitioner: PassedOn = None,
        config: RunConfig | None = None,
        warm_start_from: str | WarmStartSettings | None = None,
        batch_norm: bool = False,
    ) -> None:
        layers = activation_fn, dropout, batch_norm, input_layer_partitioner
        super().__init__(head, hidden_units, feature_columns, optimizer, layers, model_dir, config, warm_start_from)


def _linear(
    head: Head,
    feature_columns: Iterable[FeatureColumn],
    optimizer: OptimizerLike | LinearSDCA,
    sparse_combiner: str,
    partitioner: PassedOn,
) -> ModelFunction:
    """The model function of a linear model."""
    columns = _columns(feature_columns, "feature_columns")
    if not isinstance(optimizer, LinearSDCA):
        return model_function(head, [Wide(columns, optimizer, _LINEAR_RATE, sparse_combiner, partitioner)])
    if sparse_combiner != "sum":
        raise ValueError(
            f'sparse_combiner must be "sum" when optimizer is a LinearSDCA object, not {sparse_combiner!r}.'
        )
    if not isinstance(head, SingleHead):
        raise ValueError(
            f"LinearSDCA knows the losses of tf.estimator's heads. Unsupported head type: {type(head).__name__}"
        )
    return dual_model_function(head, columns, optimizer, partitioner)


class LinearClassifier(Estimator):
    """A linear model that says which class an example is of.

    Args:
        feature_columns: dense and categorical ones, as for `tf.feature_column.linear_model`.
        optimizer: as for `DNNClassifier`; names have a learning rate of 1 / sqrt(number of columns), 0.2 at most. Or a
            `tf.estimator.experimental.LinearSDCA`, for two classes.
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
        optimizer: OptimizerLike | LinearSDCA = "Ftrl",
        config: RunConfig | None = None,
        partitioner: PassedOn = None,
        warm_start_from: str | WarmStartSettings | None = None,
        loss_reduction: str = _SUM,
        sparse_combiner: str = "sum",
    ) -> None:
        head = classification_head(n_classes, weight_column, label_vocabulary, loss_reduction)
        model_fn = _linear(head, feature_columns, optimizer, sparse_combiner, partitioner)
        super().__init__(model_fn, model_dir, config, warm_start_from=warm_start_from)


class LinearRegressor(Estimator):
    """A linear model that says a number, or `label_dimension` of them; see `LinearClassifier`."""

    def __init__(
        self,
        feature_columns: Iterable[FeatureColumn],
        model_dir: _Path = None,
        label_dimension: int = 1,
        weight_column: WeightColumn = None,
        optimizer: OptimizerLike | LinearSDCA = "Ftrl",
        config: RunConfig | None = None,
        partitioner: PassedOn = None,
        warm_start_from: str | WarmStartSettings | None = None,
        loss_reduction: str = _SUM,
        sparse_combiner: str = "sum",
    ) -> None:
        head = RegressionHead(label_dimension, weight_column, loss_reduction)
        model_fn = _linear(head, feature_columns, optimizer, sparse_combiner, partitioner)
        super().__init__(model_fn, model_dir, config, warm_start_from=warm_start_from)


class LinearEstimator(Estimator):
    """A linear model with a head of your choice.

    Args:
        head: what the model says, such as `tf.estimator.PoissonRegressionHead`.
        feature_columns, model_dir, optimizer, config, partitioner, sparse_combiner: as for `LinearClassifier`.
    """

    def __init__(
        self,
        head: Head,
        feature_columns: Iterable[FeatureColumn],
        model_dir: _Path = None,
        optimizer: OptimizerLike | LinearSDCA = "Ftrl",
        config: RunConfig | None = None,
        partitioner: PassedOn = None,
        sparse_combiner: str = "sum",
    ) -> None:
        model_fn = _linear(head, feature_columns, optimizer, sparse_combiner, partitioner)
        super().__init__(model_fn, model_dir, config)


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

    def parts(self) -> list[ModelPart]:
        """The parts that have columns."""
        result: list[ModelPart] = []
        if wide := tuple(self.linear_feature_columns or ()):
            combiner = self.linear_sparse_combiner
            result.append(Wide(wide, self.linear_optimizer, _WIDE_RATE, combiner, self.partitioner))
        if deep := tuple(self.dnn_feature_columns or ()):
            units = _units(self.dnn_hidden_units or ())
            settings: Any = self.dnn_activation_fn, self.dnn_dropout, self.batch_norm, self.partitioner
            result.append(Deep(units, deep, self.dnn_optimizer, _DEEP_RATE, *settings))
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
        super().__init__(model_function(head, parts), model_dir, config, warm_start_from=warm_start_from)


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
        super().__init__(model_function(head, parts), model_dir, config, warm_start_from=warm_start_from)


class DNNLinearCombinedEstimator(Estimator):
    """A linear model and a network whose logits are added, with a head of your choice.

    Args:
        head: what the model says, such as `tf.estimator.MultiLabelHead`.
        model_dir, linear_feature_columns, linear_optimizer, dnn_feature_columns, dnn_optimizer, dnn_hidden_units,
            dnn_activation_fn, dnn_dropout, input_layer_partitioner, config, linear_sparse_combiner: as for
            `DNNLinearCombinedClassifier`.
    """

    def __init__(
        self,
        head: Head,
        model_dir: _Path = None,
        linear_feature_columns: Iterable[FeatureColumn] | None = None,
        linear_optimizer: OptimizerLike = "Ftrl",
        dnn_feature_columns: Iterable[FeatureColumn] | None = None,
        dnn_optimizer: OptimizerLike = "Adagrad",
        dnn_hidden_units: Iterable[int] | None = None,
        dnn_activation_fn: Activation = tf.nn.relu,
        dnn_dropout: float | None = None,
        input_layer_partitioner: PassedOn = None,
        config: RunConfig | None = None,
        linear_sparse_combiner: str = "sum",
    ) -> None:
        parts = _Combined(
            linear_feature_columns,
            linear_optimizer,
            dnn_feature_columns,
            dnn_optimizer,
            dnn_hidden_units,
            dnn_activation_fn,
            dnn_dropout,
            False,
            linear_sparse_combiner,
            input_layer_partitioner,
        ).parts()
        super().__init__(model_function(head, parts), model_dir, config)
