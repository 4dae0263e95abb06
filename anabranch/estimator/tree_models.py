"""The model function of boosted trees.

While there are features of numbers without boundaries, steps only collect quantiles, and are not counted. If the bias
is centered, the steps that follow correct it. All further steps grow trees, layer by layer.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import anabranch as tf
from anabranch.contrib.arguments import PassedOn, TensorLike
from anabranch.estimator.heads import Head, WeightColumn
from anabranch.estimator.model_functions import EstimatorSpec, ModeKeys
from anabranch.estimator.run_config import RunConfig
from anabranch.estimator.tree_features import TreeFeatures
from anabranch.estimator.tree_growing import BatchGrower, Grower, TreeSettings, WholeDataGrower, either, when
from anabranch.estimator.tree_objects import Ensemble, EnsembleState, Quantiles
from anabranch.feature_column.columns import Features, Transformed

#: the name scope of the model, which names what is saved
SCOPE: Final = "boosted_trees"
#: under which name predictions have the messages that explain them
EXPLANATIONS: Final = "_serialized_debug_outputs_proto"
_UNSEEN: Final = -1

#: from logits and labels to the gradients and hessians of the loss, [batch, 1] each
Derivatives = Callable[[tf.Tensor, TensorLike], tuple[tf.Tensor, tf.Tensor]]


@dataclass(frozen=True)
class TreeModel:
    """What a model of boosted trees consists of.

    Attributes:
        head: of one logit.
        features: what trees split by.
        settings: how they grow.
        batches: how many batches make a layer.
        weight_column: the weights of examples where quantiles are made; the head knows those of losses itself.
        derivatives: in closed form; None: the gradients of the head's loss.
        in_memory: whether each batch is the whole data, whose logits are kept from step to step.
    """

    head: Head
    features: TreeFeatures
    settings: TreeSettings
    batches: TensorLike
    weight_column: WeightColumn
    derivatives: Derivatives | None
    in_memory: bool

    def build(self, features: PassedOn, labels: PassedOn, mode: str, config: RunConfig) -> EstimatorSpec:
        """The model function."""
        checked = _checked(features)
        with tf.name_scope(SCOPE) as scope:
            ensemble, quantiles = Ensemble(scope), self._quantiles()
            if mode == ModeKeys.TRAIN:
                training = _TreeTraining(self, ensemble, quantiles, checked, labels, config, scope)
            else:
                logits = ensemble.predict(self.buckets(checked, quantiles))
        if mode != ModeKeys.TRAIN:
            return self.head.create_estimator_spec(checked, mode, logits, labels, train_op_fn=lambda loss: tf.no_op())
        return training.spec()

    def explain(self, features: PassedOn) -> EstimatorSpec:
        """The model function of predictions with messages that explain them."""
        checked = _checked(features)
        with tf.name_scope(SCOPE) as scope:
            ensemble = Ensemble(scope)
            buckets = self.buckets(checked, self._quantiles())
            logits, messages = ensemble.predict(buckets), ensemble.explain(buckets)
        spec = self.head.create_estimator_spec(checked, ModeKeys.PREDICT, logits)
        spec.predictions[EXPLANATIONS] = messages
        return spec

    def _quantiles(self) -> Quantiles | None:
        if not self.features.number_count:
            return None
        with tf.name_scope("QuantileAccumulator") as scope:
            return Quantiles(scope, self.features.number_count, self.settings.quantile_sketch_epsilon)

    def buckets(self, features: Features, quantiles: Quantiles | None) -> list[tf.Tensor]:
        """The buckets of a batch, int32 [batch] for each feature."""
        return self.features.buckets(features, [] if quantiles is None else quantiles.boundaries())


def _checked(features: PassedOn) -> Features:
    if not isinstance(features, Mapping):
        raise ValueError(f"features should be a dictionary of `Tensor`s. Given type: {type(features)}")
    return features


class _TreePlaces(NamedTuple):
    """Where the examples of a batch stand: in which tree, int32 [batch], at which node, and their logits so far."""

    trees: tf.Tensor
    nodes: tf.Tensor
    logits: tf.Tensor


class _Memory:
    """The places of the examples of the last step, if it was of as many."""

    def __init__(self, labels: TensorLike) -> None:
        self._size = tf.shape(labels)[0]
        self._kept = [_local(values, name) for values, name in zip(_nowhere(0), _NAMES, strict=True)]

    def places(self) -> _TreePlaces:
        """Where the examples of this step stood."""
        is_same = tf.equal(tf.shape(self._kept[0])[0], self._size)
        kept = tf.cond(
            is_same, lambda: [tf.identity(variable) for variable in self._kept], lambda: list(_nowhere(self._size))
        )
        trees, nodes, logits = kept
        trees.set_shape([None])
        nodes.set_shape([None])
        logits.set_shape([None, 1])
        return _TreePlaces(trees, nodes, logits)

    def keep(self, places: _TreePlaces) -> tf.Operation:
        """Notes where they stand now."""
        return tf.group(
            *(tf.assign(variable, now, validate_shape=False) for variable, now in zip(self._kept, places, strict=True))
        )


_NAMES: Final = ("tree_ids_cache", "node_ids_cache", "logits_cache")


def _nowhere(size: TensorLike) -> _TreePlaces:
    """Examples that were not seen before."""
    return _TreePlaces(tf.zeros([size], tf.int32), tf.fill([size], _UNSEEN), tf.zeros([size, 1]))


def _local(values: tf.Tensor, name: str) -> tf.Variable:
    """A variable that no checkpoint has: whoever goes on from one may have other examples."""
    return tf.Variable(
        values, trainable=False, collections=[tf.GraphKeys.LOCAL_VARIABLES], validate_shape=False, name=name
    )


class _TreeTraining:
    """The graph of a step of training."""

    def __init__(
        self,
        model: TreeModel,
        ensemble: Ensemble,
        quantiles: Quantiles | None,
        features: Features,
        labels: TensorLike,
        config: RunConfig,
        scope: str,
    ) -> None:
        self._model, self._features, self._labels = model, features, labels
        self._has_numbers = quantiles is not None
        if model.in_memory:
            _check_in_memory(model.batches, config)
        self._is_ready = tf.Variable(not self._has_numbers, trainable=False, name="are_boundaries_ready")
        self._buckets = model.buckets(features, quantiles)
        self._memory = _Memory(labels) if model.in_memory else None
        before = _nowhere(tf.shape(labels)[0]) if self._memory is None else self._memory.places()
        local, loaded = _for_this_worker(ensemble, config, scope)
        with tf.control_dependencies(loaded):
            self._state: EnsembleState = local.state()
            change, trees, nodes = local.run(
                tf.raw_ops.BoostedTreesTrainingPredict,
                cached_tree_ids=before.trees,
                cached_node_ids=before.nodes,
                bucketized_features=self._buckets,
                logits_dimension=1,
            )
        self._places = _TreePlaces(trees, nodes, before.logits + change)
        self._grower = self._grower_of(ensemble, quantiles, config)
        self._centers = tf.Variable(model.settings.center_bias, trainable=False, name="center_bias_needed")
        self._weights = _weights(features, model.weight_column)
        tf.summary.scalar("ensemble/num_trees", self._state.tree_count)
        tf.summary.scalar("ensemble/num_finalized_trees", self._state.final_tree_count)
        tf.summary.scalar("ensemble/num_attempted_layers", self._state.attempted_layers)

    def _grower_of(self, ensemble: Ensemble, quantiles: Quantiles | None, config: RunConfig) -> Grower:
        model = self._model
        groups = model.features.groups()
        if model.in_memory:
            return WholeDataGrower(ensemble, quantiles, model.settings, groups)
        return BatchGrower(
            ensemble, quantiles, model.settings, groups, self._state.stamp, model.batches, config.is_chief
        )

    def spec(self) -> EstimatorSpec:
        state, settings = self._state, self._model.settings
        spec = self._model.head.create_estimator_spec(
            self._features, ModeKeys.TRAIN, self._places.logits, self._labels, train_op_fn=self._train
        )
        stops = _StopsWhenGrown(state.final_tree_count, state.attempted_layers, settings.n_trees, settings.max_depth)
        first = _Initializes(self._grower.initializer())
        return spec._replace(
            training_hooks=(*spec.training_hooks, stops), training_chief_hooks=(first, *spec.training_chief_hooks)
        )

    def _train(self, loss: tf.Tensor) -> tf.Operation:
        gradients, hessians = self._derivatives(loss)
        numbers = self._model.features.numbers(self._features)

        def grow() -> tf.Operation:
            return self._step(gradients, hessians)

        if not self._has_numbers:
            return grow()

        def collect() -> tf.Operation:
            return self._grower.add_numbers(numbers, self._weights, self._is_ready)

        return either(self._is_ready, grow, collect)

    def _derivatives(self, loss: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        logits, closed = self._places.logits, self._model.derivatives
        if closed is not None:
            return closed(logits, self._labels)
        (gradients,) = tf.gradients(loss, logits, name="Gradients")
        (hessians,) = tf.gradients(gradients, logits, name="Hessians")
        if hessians is None:
            raise ValueError(
                "the second derivative of the head's loss by the logits is 0 everywhere, so that trees cannot grow; "
                "use a loss_fn that is curved"
            )
        return gradients, hessians

    def _step(self, gradients: tf.Tensor, hessians: tf.Tensor) -> tf.Operation:
        """A step that is counted: centers the bias, or adds to a layer."""
        steps: list[tf.Operation] = []
        if self._memory is not None:
            memory = self._memory
            # while the bias is centered, what was said changes for all
            steps.append(when(tf.logical_not(self._centers), lambda: memory.keep(self._places)))

        def grow() -> tf.Operation:
            statistics = self._statistics(gradients, hessians)
            return self._grower.grow(statistics, self._state.last_layer)

        if self._model.settings.center_bias:

            def center() -> tf.Operation:
                return self._grower.center(self._centers, gradients, hessians)

            steps.append(either(self._centers, center, grow))
        else:
            steps.append(grow())
        count = tf.train.get_or_create_global_step()
        with tf.control_dependencies(steps), tf.device(count.device):
            counted: tf.Operation = tf.assign_add(count, 1).op
        return counted

    def _statistics(self, gradients: tf.Tensor, hessians: tf.Tensor) -> list[tf.Tensor]:
        """For each group of features, sums of gradients and hessians by node and bucket."""
        return [
            tf.raw_ops.BoostedTreesMakeStatsSummary(
                node_ids=self._places.nodes,
                gradients=gradients,
                hessians=hessians,
                bucketized_features_list=[self._buckets[i] for i in group.features],
                max_splits=self._model.settings.max_splits,
                num_buckets=group.buckets,
            )
            for group in self._model.features.groups()
        ]


def _check_in_memory(batches: TensorLike, config: RunConfig) -> None:
    if batches != 1:
        raise ValueError(
            "When train_in_memory is enabled, input_fn should return the entire dataset as a single batch, and "
            f"n_batches_per_layer should be set as 1, not {batches}."
        )
    if not config.is_chief or config.num_worker_replicas > 1 or config.num_ps_replicas > 0:
        raise ValueError("train_in_memory is supported only for non-distributed training.")


def _for_this_worker(ensemble: Ensemble, config: RunConfig, scope: str) -> tuple[Ensemble, Sequence[tf.Operation]]:
    """The ensemble that this worker asks: where there are several, a copy of its own, loaded anew in each step."""
    if config.num_worker_replicas <= 1:
        return ensemble, []
    with tf.name_scope(f"{scope.rstrip('/')}_local/") as name, tf.device(tf.no_op().device):
        local = Ensemble(name, is_shared=False)
    return local, [local.replace(*ensemble.serialized())]


def _weights(features: Features, column: WeightColumn) -> tf.Tensor:
    """The weights of examples, [batch], or [1] where all weigh the same."""
    if column is None:
        return tf.ones([1])
    named = tf.feature_column.numeric_column(column) if isinstance(column, str) else column
    weights: tf.Tensor = tf.reshape(Transformed(features).get(named), [-1])
    return weights


class _Initializes(tf.train.SessionRunHook):
    """Runs an operation in each new session."""

    def __init__(self, initializer: tf.Operation) -> None:
        self._initializer = initializer

    def after_create_session(self, session: PassedOn, coord: PassedOn) -> None:
        session.run(self._initializer)


class _StopsWhenGrown(tf.train.SessionRunHook):
    """Ends training when all trees are final, or when so many layers were tried that no more will come of it."""

    def __init__(self, final_trees: tf.Tensor, attempted_layers: tf.Tensor, n_trees: int, max_depth: int) -> None:
        self._tensors = [final_trees, attempted_layers]
        self._n_trees, self._most_layers = n_trees, 2 * n_trees * max_depth

    def before_run(self, run_context: PassedOn) -> tf.train.SessionRunArgs:
        return tf.train.SessionRunArgs(self._tensors)

    def after_run(self, run_context: PassedOn, run_values: PassedOn) -> None:
        trees, layers = run_values.results
        if trees >= self._n_trees - 1 or layers > self._most_layers - 1:
            # those were read before the step grew
            trees, layers = run_context.session.run(self._tensors)
        if trees >= self._n_trees or layers > self._most_layers:
            run_context.request_stop()
