"""`LinearSDCA`: what trains `LinearClassifier` and `LinearRegressor` by stochastic dual coordinate ascent."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol

import anabranch as tf
from anabranch.contrib.arguments import PassedOn, TensorLike
from anabranch.estimator.dual_models import DualExamples, DualModel, DualSettings, Weights, unique_features, vector_of
from anabranch.estimator.heads import SingleHead
from anabranch.estimator.model_functions import EstimatorSpec, ModeKeys
from anabranch.feature_column.columns import CategoricalColumn, DenseColumn, FeatureColumn, Features, Transformed


class StateManager(Protocol):
    """What has the weights of columns."""

    def get_variable(self, feature_column: FeatureColumn, name: str) -> Weights:
        """The variable of that name of a column."""


class LinearSDCA:
    """Trains a linear model by stochastic dual coordinate ascent (Shalev-Shwartz, Zhang, 2013).

    It is given as the `optimizer` of a `LinearClassifier` of two classes or a `LinearRegressor` of one number, whose
    `sparse_combiner` is "sum". It has no learning rate; examples are known again by their ids.

    Args:
        example_id_column: the feature of an example's id, string [batch].
        num_loss_partitions: how many workers train at once.
        num_table_shards: how many tables keep what is known of examples, such as the number of parameter servers;
            None: one.
        symmetric_l1_regularization: what the absolute value of a weight costs.
        symmetric_l2_regularization: what half its square costs; positive.
        adaptive: whether examples with much to gain are taken more often.

    Raises:
        ValueError: a number is out of its range.
    """

    def __init__(
        self,
        example_id_column: str,
        num_loss_partitions: int = 1,
        num_table_shards: int | None = None,
        symmetric_l1_regularization: float = 0.0,
        symmetric_l2_regularization: float = 1.0,
        adaptive: bool = False,
    ) -> None:
        self._example_id_column = example_id_column
        shards = 1 if num_table_shards is None else num_table_shards
        self._settings = DualSettings(
            num_loss_partitions, shards, symmetric_l1_regularization, symmetric_l2_regularization, adaptive
        )

    def get_train_step(
        self,
        state_manager: StateManager,
        weight_column_name: str | None,
        loss_type: str,
        feature_columns: Iterable[FeatureColumn],
        features: Features,
        targets: TensorLike,
        bias_var: Weights,
        global_step: tf.Variable | None,
    ) -> tuple[DualModel, tf.Operation]:
        """The model on a batch, and the operation of a step.

        Args:
            state_manager: has the weights of columns: `get_variable(column, "weights")`.
            weight_column_name: the feature of an example's weight; None: all weigh the same.
            loss_type: "logistic_loss", "squared_loss", "hinge_loss", "smooth_hinge_loss" or "poisson_loss".
            feature_columns: dense ones of one dimension, and categorical ones.
            features: by name.
            targets: labels, [batch] or [batch, 1].
            bias_var: the bias, [1].
            global_step: is counted up.

        Raises:
            ValueError: a column is of another kind, or examples have no ids.
        """
        weights = None if weight_column_name is None else features[weight_column_name]
        return self.train_step(
            state_manager, loss_type, feature_columns, features, (targets, weights), bias_var, global_step
        )

    def train_step(
        self,
        state_manager: StateManager,
        loss_type: str,
        feature_columns: Iterable[FeatureColumn],
        features: Features,
        targets_and_weights: tuple[TensorLike, TensorLike],
        bias_var: Weights,
        global_step: tf.Variable | None,
    ) -> tuple[DualModel, tf.Operation]:
        """`get_train_step` with the weights of examples themselves, or None."""
        targets, weights = targets_and_weights
        labels = vector_of(targets)
        sparse, dense = [], []
        sparse_weights: list[Weights] = []
        dense_weights: list[Weights] = []
        transformed = Transformed(features)
        for column in sorted(feature_columns, key=lambda column: column.name):
            if isinstance(column, CategoricalColumn):
                ids, factors = column.get_sparse_tensors(transformed)
                sparse.append(unique_features(ids, factors, column.num_buckets))
                sparse_weights.append(state_manager.get_variable(column, "weights"))
            elif isinstance(column, DenseColumn):
                if column.variable_shape.ndims != 1:
                    raise ValueError(
                        f"Column {column.name} has rank {column.variable_shape.ndims}, larger than 1: LinearSDCA takes "
                        "columns of one dimension"
                    )
                dense.append(column.get_dense_tensor(transformed))
                dense_weights.append(state_manager.get_variable(column, "weights"))
            else:
                raise ValueError(f"LinearSDCA does not support column type {type(column).__name__}.")
        dense.append(tf.ones([tf.size(labels), 1]))
        dense_weights.append(bias_var)
        given = tf.ones_like(labels) if weights is None else vector_of(weights)
        examples = DualExamples(self._ids(features), labels, given, sparse, dense)
        model = DualModel(loss_type, self._settings, examples, sparse_weights, dense_weights)
        return model, model.minimize(global_step)

    def _ids(self, features: Features) -> tf.Tensor:
        name = self._example_id_column
        if name not in features:
            raise ValueError(f"example_id_column: there is no feature {name!r}, only {sorted(features)}")
        ids: tf.Tensor = tf.reshape(tf.convert_to_tensor(features[name]), [-1])
        if ids.dtype.base_dtype != tf.string:
            raise ValueError(f"example_id_column: ids must be strings, but {name!r} is {ids.dtype}; see tf.as_string")
        return ids


class _Variables:
    """The variables of a linear model's columns."""

    def __init__(self, by_column: Mapping[FeatureColumn | str, Sequence[tf.Variable]]) -> None:
        self._by_column = by_column

    def get_variable(self, feature_column: FeatureColumn | str, name: str) -> Weights:
        return [v for v in self._by_column[feature_column] if name in v.op.name.split("/")[-2:]]


def dual_model_function(
    head: SingleHead, columns: tuple[FeatureColumn, ...], optimizer: LinearSDCA, partitioner: PassedOn
) -> Callable[..., EstimatorSpec]:
    """The model function of a linear model that is trained by dual coordinate ascent.

    Raises:
        ValueError: the head has several logits, or a loss that has no dual here.
    """
    loss_type = head.dual_loss
    if head.logits_dimension != 1 or loss_type is None:
        raise ValueError(
            f"LinearSDCA trains heads of one logit with the loss of two classes, of squared differences or of counts; "
            f"Unsupported head type: {type(head).__name__} of {head.logits_dimension} logits"
        )

    def model_fn(features: PassedOn, labels: PassedOn, mode: str) -> EstimatorSpec:
        if not isinstance(features, Mapping):
            raise ValueError(f"features should be a dictionary of `Tensor`s. Given type: {type(features)}")
        made: dict[Any, list[tf.Variable]] = {}
        with tf.variable_scope("linear", values=list(features.values()), partitioner=partitioner):
            logits = tf.feature_column.linear_model(features, columns, cols_to_vars=made)
            if mode != ModeKeys.TRAIN:
                return head.create_estimator_spec(features, mode, logits, labels)
            variables = _Variables(made)
            model, train_op = optimizer.train_step(
                variables,
                loss_type,
                columns,
                features,
                head.targets_and_weights(labels, logits, features),
                variables.get_variable("bias", "bias_weights"),
                tf.train.get_or_create_global_step(),
            )
            spec = head.create_estimator_spec(features, mode, logits, labels, train_op_fn=lambda loss: train_op)
            hook = _UpdatesWeights(model.update_weights(train_op))
        return spec._replace(training_chief_hooks=(*spec.training_chief_hooks, hook))

    return model_fn


class _UpdatesWeights(tf.train.SessionRunHook):
    """Gives the model its new weights in each step."""

    def __init__(self, update: tf.Operation) -> None:
        self._update = update

    def before_run(self, run_context: PassedOn) -> tf.train.SessionRunArgs:
        return tf.train.SessionRunArgs(self._update)
