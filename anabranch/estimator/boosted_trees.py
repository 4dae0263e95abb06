"""Ready-made estimators of gradient boosted trees.

A model is a sum of decision trees. Each is grown layer by layer to take away what is left of the loss, by its gradients
and hessians at the predictions of the trees before it.
"""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, TypeAlias

import anabranch as tf
from anabranch.contrib.arguments import PassedOn, TensorLike
from anabranch.estimator.class_heads import BinaryClassHead
from anabranch.estimator.estimators import Estimator, Hooks
from anabranch.estimator.heads import Head, WeightColumn, dense_labels
from anabranch.estimator.model_functions import EstimatorSpec, InputFunction
from anabranch.estimator.regression_heads import RegressionHead
from anabranch.estimator.run_config import RunConfig
from anabranch.estimator.tree_explanations import contributions, importances
from anabranch.estimator.tree_features import TreeFeatures
from anabranch.estimator.tree_growing import TreeSettings
from anabranch.estimator.tree_models import EXPLANATIONS, SCOPE, Derivatives, TreeModel
from anabranch.feature_column.columns import FeatureColumn
from anabranch.proto import boosted_trees_pb2

_Path: TypeAlias = "str | os.PathLike[str] | None"


class _BoostedTrees(Estimator):
    """What estimators of trees have in common.

    Raises:
        ValueError: a column is of a kind that trees cannot split by, settings are out of range or do not go together,
            or the head has several logits.
    """

    def __init__(
        self,
        head: Head,
        feature_columns: Iterable[FeatureColumn],
        settings: TreeSettings,
        batches: TensorLike,
        weight_column: WeightColumn,
        model_dir: _Path,
        config: RunConfig | None,
        derivatives: Derivatives | None = None,
        in_memory: bool = False,
    ) -> None:
        if head.logits_dimension != 1:
            raise ValueError(f"boosted trees have one logit, but the head has {head.logits_dimension}")
        features = TreeFeatures(feature_columns, settings.number_buckets)
        self._model = TreeModel(head, features, settings, batches, weight_column, derivatives, in_memory)
        model = self._model

        def model_fn(features: PassedOn, labels: PassedOn, mode: str, config: RunConfig) -> EstimatorSpec:
            return model.build(features, labels, mode, config)

        super().__init__(model_fn, model_dir, config)

    def experimental_feature_importances(self, normalize: bool = False) -> OrderedDict[str, float]:
        """How much the features of each column gained, in all trees of the latest checkpoint.

        Args:
            normalize: whether the numbers add up to 1.

        Returns:
            Gains by the column's name (an indicator's is that of its categorical column), the greatest first.

        Raises:
            ValueError: the model is not trained, or gains cannot be normalized: nothing was split, or one is negative.
        """
        message: Any = self.get_variable_value(f"{SCOPE}:0_serialized")
        if not message:
            raise ValueError(
                "Found empty serialized string for TreeEnsemble. You should only call this method after training."
            )
        ensemble = boosted_trees_pb2.TreeEnsemble.FromString(message)
        return importances(ensemble, self._model.features.names, normalize)

    def experimental_predict_with_explanations(
        self,
        input_fn: InputFunction,
        predict_keys: Sequence[str] | str | None = None,
        hooks: Hooks | None = None,
        checkpoint_path: str | None = None,
    ) -> Iterator[dict[str, Any]]:
        """Predictions, with what each column added to them.

        Args:
            input_fn, hooks, checkpoint_path: as for `predict`.
            predict_keys: names of the predictions that are wanted; None: all.

        Yields:
            For each example, predictions by name. "bias" is the prediction before any split, which is that of the mean
            of the training data; "dfc" (directional feature contributions) is what splits by each column add to it, by
            the column's name, those of the greatest size first. For classes, both are parts of the probability of
            class 1. The bias and the contributions add up to the prediction.

        Raises:
            ValueError: the bias is not centered, or the head's predictions are another function of logits.
        """
        model = self._model
        if not model.settings.center_bias:
            raise ValueError(
                "center_bias must be enabled during estimator instantiation when using "
                "experimental_predict_with_explanations."
            )
        is_classification = isinstance(model.head, BinaryClassHead)
        link = getattr(model.head, "inverse_link_fn", None)
        if not is_classification and link not in (None, tf.identity):
            raise ValueError(
                "For now only identity inverse_link_fn in regression_head is supported for "
                "experimental_predict_with_explanations."
            )

        def model_fn(features: PassedOn, labels: PassedOn, mode: str) -> EstimatorSpec:
            return model.explain(features)

        explaining = Estimator(model_fn, self.model_dir, self.config)
        wanted = [predict_keys] if isinstance(predict_keys, str) else list(predict_keys or ())
        for said in explaining.predict(input_fn, [*wanted, EXPLANATIONS] if wanted else None, hooks, checkpoint_path):
            message = said.pop(EXPLANATIONS)
            said["bias"], said["dfc"] = contributions(message, model.features.names, is_classification)
            yield said


class BoostedTreesClassifier(_BoostedTrees):
    """Boosted trees that say which of two classes an example is of.

    Args:
        feature_columns: `bucketized_column`s, `indicator_column`s, and `numeric_column`s of one dimension, for whose
            numbers buckets of about as many examples each are found first.
        n_batches_per_layer: how many batches make a layer: about the number of examples by the size of a batch.
        model_dir, config: as for `Estimator`.
        n_classes: 2.
        weight_column: the feature of an example's weight; None: all weigh the same.
        label_vocabulary: the classes, if labels are strings; None: labels are numbers in [0, 1].
        n_trees: how many trees there will be; training ends with the last.
        max_depth: how many layers a tree has.
        learning_rate: what the leaves of new trees are multiplied by.
        l1_regularization: what the absolute value of a leaf costs.
        l2_regularization: what its square costs.
        tree_complexity: what each leaf costs; with a pruning mode.
        min_node_weight: the least hessian of a node that is split, as a part of that of a batch.
        center_bias: whether the first tree begins with the prediction that suits the data without any features.
        pruning_mode: "none"; "pre": no split is made whose gain is negative; "post": whole trees are grown, and such
            splits undone from below.
        quantile_sketch_epsilon: the error of buckets of numbers, as a part of the examples; there are 1 / epsilon.
        train_in_memory: whether `input_fn` gives the whole data as one batch, each step; then a step grows a layer, and
            predictions are kept from step to step. `n_batches_per_layer` must be 1, and there is one process.

    Raises:
        ValueError: a column is of another kind, there are other than two classes, a setting is out of range, or
            `tree_complexity` and `pruning_mode` do not go together.
    """

    def __init__(
        self,
        feature_columns: Iterable[FeatureColumn],
        n_batches_per_layer: TensorLike,
        model_dir: _Path = None,
        n_classes: int = 2,
        weight_column: WeightColumn = None,
        label_vocabulary: Sequence[str] | None = None,
        n_trees: int = 100,
        max_depth: int = 6,
        learning_rate: float = 0.1,
        l1_regularization: float = 0.0,
        l2_regularization: float = 0.0,
        tree_complexity: float = 0.0,
        min_node_weight: float = 0.0,
        config: RunConfig | None = None,
        center_bias: bool = False,
        pruning_mode: str = "none",
        quantile_sketch_epsilon: float = 0.01,
        train_in_memory: bool = False,
    ) -> None:
        if n_classes != 2:
            raise ValueError(f"For now only binary classification is supported. n_classes given as {n_classes}")
        head = BinaryClassHead(weight_column, label_vocabulary=label_vocabulary)
        settings = TreeSettings(
            n_trees,
            max_depth,
            learning_rate,
            l1_regularization,
            l2_regularization,
            tree_complexity,
            min_node_weight,
            center_bias,
            pruning_mode,
            quantile_sketch_epsilon,
        )
        closed = _of_log_loss if weight_column is None and label_vocabulary is None else None
        super().__init__(
            head,
            feature_columns,
            settings,
            n_batches_per_layer,
            weight_column,
            model_dir,
            config,
            closed,
            train_in_memory,
        )


def _of_log_loss(logits: tf.Tensor, labels: TensorLike) -> tuple[tf.Tensor, tf.Tensor]:
    """The gradients and hessians of the mean over a batch of the cross entropy of a sigmoid."""
    said = tf.sigmoid(logits)
    share = 1 / tf.cast(tf.size(said), tf.float32)
    targets = tf.cast(dense_labels(labels, logits, 1), tf.float32)
    return (said - targets) * share, said * (1 - said) * share


class BoostedTreesRegressor(_BoostedTrees):
    """Boosted trees that say a number, by squared differences; see `BoostedTreesClassifier`.

    Args:
        label_dimension: 1.
        feature_columns, n_batches_per_layer, and the rest: as for `BoostedTreesClassifier`.

    Raises:
        ValueError: as `BoostedTreesClassifier`; or `label_dimension` is another.
    """

    def __init__(
        self,
        feature_columns: Iterable[FeatureColumn],
        n_batches_per_layer: TensorLike,
        model_dir: _Path = None,
        label_dimension: int = 1,
        weight_column: WeightColumn = None,
        n_trees: int = 100,
        max_depth: int = 6,
        learning_rate: float = 0.1,
        l1_regularization: float = 0.0,
        l2_regularization: float = 0.0,
        tree_complexity: float = 0.0,
        min_node_weight: float = 0.0,
        config: RunConfig | None = None,
        center_bias: bool = False,
        pruning_mode: str = "none",
        quantile_sketch_epsilon: float = 0.01,
        train_in_memory: bool = False,
    ) -> None:
        if label_dimension != 1:
            raise ValueError(
                f"For now only 1 dimension regression is supported. label_dimension given as {label_dimension}"
            )
        settings = TreeSettings(
            n_trees,
            max_depth,
            learning_rate,
            l1_regularization,
            l2_regularization,
            tree_complexity,
            min_node_weight,
            center_bias,
            pruning_mode,
            quantile_sketch_epsilon,
        )
        super().__init__(
            RegressionHead(1, weight_column),
            feature_columns,
            settings,
            n_batches_per_layer,
            weight_column,
            model_dir,
            config,
            in_memory=train_in_memory,
        )


class BoostedTreesEstimator(_BoostedTrees):
    """Boosted trees with a head of your choice.

    Args:
        feature_columns, n_batches_per_layer, model_dir, n_trees, max_depth, learning_rate, l1_regularization,
            l2_regularization, tree_complexity, min_node_weight, config, center_bias, pruning_mode,
            quantile_sketch_epsilon: as for `BoostedTreesClassifier`.
        head: of one logit, such as `tf.estimator.PoissonRegressionHead`; its loss has two derivatives. It knows the
            weights of examples itself.
        weight_column: the feature of an example's weight where buckets of numbers are found; None: all weigh the same.

    Raises:
        ValueError: as `BoostedTreesClassifier`; or the head has several logits.
    """

    def __init__(
        self,
        feature_columns: Iterable[FeatureColumn],
        n_batches_per_layer: TensorLike,
        head: Head,
        model_dir: _Path = None,
        weight_column: WeightColumn = None,
        n_trees: int = 100,
        max_depth: int = 6,
        learning_rate: float = 0.1,
        l1_regularization: float = 0.0,
        l2_regularization: float = 0.0,
        tree_complexity: float = 0.0,
        min_node_weight: float = 0.0,
        config: RunConfig | None = None,
        center_bias: bool = False,
        pruning_mode: str = "none",
        quantile_sketch_epsilon: float = 0.01,
    ) -> None:
        settings = TreeSettings(
            n_trees,
            max_depth,
            learning_rate,
            l1_regularization,
            l2_regularization,
            tree_complexity,
            min_node_weight,
            center_bias,
            pruning_mode,
            quantile_sketch_epsilon,
        )
        super().__init__(head, feature_columns, settings, n_batches_per_layer, weight_column, model_dir, config)
