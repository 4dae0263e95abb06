"""`tf.contrib.estimator.boosted_trees_*_train_in_memory`: boosted trees of a data set that fits into memory."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import anabranch as tf
from anabranch.contrib.arguments import PassedOn

#: more examples than a batch can have
_ALL = 2**31 - 1


def _as_one_batch(train_input_fn: Callable[[], tf.data.Dataset]) -> Callable[[], tf.data.Dataset]:
    """The function of a data set's examples as one batch, again and again."""

    def batches() -> tf.data.Dataset:
        data = train_input_fn()
        if not isinstance(data, tf.data.Dataset):
            raise ValueError(f"train_input_fn must return a tf.data.Dataset of single examples, got {data!r}")
        return data.batch(_ALL).repeat()

    return batches


def boosted_trees_classifier_train_in_memory(
    train_input_fn: Callable[[], tf.data.Dataset],
    feature_columns: Iterable[PassedOn],
    model_dir: str | None = None,
    n_classes: int = 2,
    weight_column: PassedOn = None,
    label_vocabulary: Sequence[str] | None = None,
    n_trees: int = 100,
    max_depth: int = 6,
    learning_rate: float = 0.1,
    l1_regularization: float = 0.0,
    l2_regularization: float = 0.0,
    tree_complexity: float = 0.0,
    min_node_weight: float = 0.0,
    config: tf.estimator.RunConfig | None = None,
    train_hooks: Sequence[tf.train.SessionRunHook] | None = None,
    center_bias: bool = False,
    pruning_mode: str = "none",
    quantile_sketch_epsilon: float = 0.01,
) -> tf.estimator.BoostedTreesClassifier:
    """Trains a `tf.estimator.BoostedTreesClassifier`, each step of which sees the whole data.

    Args:
        train_input_fn: gives a data set of single examples, features and labels, once through.
        train_hooks: hooks of the training.
        feature_columns, and the rest: as for `tf.estimator.BoostedTreesClassifier`.

    Returns:
        The trained estimator.

    Raises:
        ValueError: as the estimator; or the function gives no data set.
    """
    settings = _settings(
        *(learning_rate, l1_regularization, l2_regularization, tree_complexity, min_node_weight),
        *(center_bias, pruning_mode, quantile_sketch_epsilon),
    )
    model = tf.estimator.BoostedTreesClassifier(
        *(feature_columns, 1, model_dir, n_classes, weight_column, label_vocabulary, n_trees, max_depth),
        config=config,
        train_in_memory=True,
        **settings,
    )
    model.train(_as_one_batch(train_input_fn), train_hooks)
    return model


def boosted_trees_regressor_train_in_memory(
    train_input_fn: Callable[[], tf.data.Dataset],
    feature_columns: Iterable[PassedOn],
    model_dir: str | None = None,
    label_dimension: int = 1,
    weight_column: PassedOn = None,
    n_trees: int = 100,
    max_depth: int = 6,
    learning_rate: float = 0.1,
    l1_regularization: float = 0.0,
    l2_regularization: float = 0.0,
    tree_complexity: float = 0.0,
    min_node_weight: float = 0.0,
    config: tf.estimator.RunConfig | None = None,
    train_hooks: Sequence[tf.train.SessionRunHook] | None = None,
    center_bias: bool = False,
    pruning_mode: str = "none",
    quantile_sketch_epsilon: float = 0.01,
) -> tf.estimator.BoostedTreesRegressor:
    """Trains a `tf.estimator.BoostedTreesRegressor` as `boosted_trees_classifier_train_in_memory` does a classifier."""
    settings = _settings(
        *(learning_rate, l1_regularization, l2_regularization, tree_complexity, min_node_weight),
        *(center_bias, pruning_mode, quantile_sketch_epsilon),
    )
    model = tf.estimator.BoostedTreesRegressor(
        *(feature_columns, 1, model_dir, label_dimension, weight_column, n_trees, max_depth),
        config=config,
        train_in_memory=True,
        **settings,
    )
    model.train(_as_one_batch(train_input_fn), train_hooks)
    return model


def _settings(
    learning_rate: float,
    l1_regularization: float,
    l2_regularization: float,
    tree_complexity: float,
    min_node_weight: float,
    center_bias: bool,
    pruning_mode: str,
    quantile_sketch_epsilon: float,
) -> dict[str, Any]:
    """The numbers by which trees are grown, by the names that both estimators have for them."""
    return dict(locals())
