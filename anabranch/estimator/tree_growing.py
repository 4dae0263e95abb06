"""How an ensemble of trees grows: from statistics of one batch that is the whole data, or of several batches.

A step gives each of its methods what it computed from its batch; when enough batches have come, the ensemble gets a
layer. On a cluster each worker adds its batches to accumulators that all share; the chief takes them out and grows.
"""

from __future__ import annotations

import abc
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import anabranch as tf
from anabranch.contrib.arguments import TensorLike
from anabranch.estimator.tree_features import FeatureGroup
from anabranch.estimator.tree_objects import Ensemble, Quantiles

#: as the operations number them
_PRUNING: Final = {"none": 0, "pre": 1, "post": 2}


@dataclass(frozen=True)
class TreeSettings:
    """How trees grow; the fields are arguments of `BoostedTreesClassifier`.

    Raises:
        ValueError: a number is out of its range, an unknown pruning mode, or one that does not go with
            `tree_complexity`.
    """

    n_trees: int
    max_depth: int
    learning_rate: float
    l1: float
    l2: float
    tree_complexity: float
    min_node_weight: float
    center_bias: bool
    pruning_mode: str
    quantile_sketch_epsilon: float

    def __post_init__(self) -> None:
        if self.pruning_mode not in _PRUNING:
            raise ValueError(
                f"pruning_mode mode must be one of: {', '.join(sorted(_PRUNING))}. Found: {self.pruning_mode}"
            )
        if self.tree_complexity > 0 and not self.pruning:
            raise ValueError("Tree complexity have no effect unless pruning mode is chosen: give pruning_mode too.")
        if self.tree_complexity <= 0 and self.pruning:
            raise ValueError(f"For pruning, tree_complexity must be positive, got {self.tree_complexity}.")
        for name, number in (("n_trees", self.n_trees), ("max_depth", self.max_depth)):
            if number < 1:
                raise ValueError(f"{name} must be positive, got {number}")
        if not 0 < self.quantile_sketch_epsilon < 1:
            raise ValueError(f"quantile_sketch_epsilon must be between 0 and 1, got {self.quantile_sketch_epsilon}")

    @property
    def pruning(self) -> int:
        """The number of the pruning mode."""
        return _PRUNING[self.pruning_mode]

    @property
    def max_splits(self) -> int:
        """How many inner nodes a tree may have."""
        return (1 << self.max_depth) - 1

    @property
    def number_buckets(self) -> int:
        """How many buckets a feature of numbers has."""
        return int(1.0 / self.quantile_sketch_epsilon)


def either(
    condition: TensorLike,
    then: Callable[[], tf.Operation],
    otherwise: Callable[[], tf.Operation],
    name: str | None = None,
) -> tf.Operation:
    """Runs one of two operations, which functions make."""

    def branch(made: Callable[[], tf.Operation]) -> Callable[[], tf.Tensor]:
        def done() -> tf.Tensor:
            with tf.control_dependencies([made()]):
                return tf.constant(True)

        return done

    result: tf.Operation = tf.cond(condition, branch(then), branch(otherwise), name=name).op
    return result


def when(condition: TensorLike, then: Callable[[], tf.Operation], name: str | None = None) -> tf.Operation:
    """Runs an operation, which `then` makes, where the condition holds."""
    return either(condition, then, tf.no_op, name)


def set_to(variable: tf.Variable, value: TensorLike) -> tf.Operation:
    """Gives a variable a value, where it is; in a branch too, on a cluster."""
    with tf.device(variable.device):
        assigned: tf.Operation = tf.assign(variable, value).op
    return assigned


class Grower(abc.ABC):
    """What becomes of the statistics of a step.

    Args:
        ensemble: which grows.
        quantiles: of the features that are numbers; None: there are none.
        settings: how it grows.
        groups: the features, as statistics come.
    """

    def __init__(
        self, ensemble: Ensemble, quantiles: Quantiles | None, settings: TreeSettings, groups: Sequence[FeatureGroup]
    ) -> None:
        self._ensemble, self._quantiles = ensemble, quantiles
        self._settings, self._groups = settings, groups

    @abc.abstractmethod
    def initializer(self) -> tf.Operation:
        """What the chief runs in each new session."""

    @abc.abstractmethod
    def add_numbers(self, values: Sequence[tf.Tensor], weights: tf.Tensor, is_ready: tf.Variable) -> tf.Operation:
        """Takes the numbers of a batch into account; when all have come, makes boundaries and sets `is_ready`."""

    @abc.abstractmethod
    def center(self, is_needed: tf.Variable, gradients: tf.Tensor, hessians: tf.Tensor) -> tf.Operation:
        """Corrects the bias; when there is no more to correct, clears `is_needed`."""

    @abc.abstractmethod
    def grow(self, statistics: Sequence[tf.Tensor], last_layer: tf.Tensor) -> tf.Operation:
        """Adds a layer.

        Args:
            statistics: for each group float32 [features, nodes, buckets, 2]: sums of gradients and of hessians.
            last_layer: the nodes [start, end) that may be split.
        """

    # ------------------------------------------------------------------ what both do
    def _center(self, is_needed: tf.Variable, gradient: tf.Tensor, hessian: tf.Tensor) -> tf.Tensor:
        """Corrects the bias by means over examples, [1, 1]; whether there is more to correct."""
        goes_on = self._ensemble.run(
            tf.raw_ops.BoostedTreesCenterBias,
            mean_gradients=gradient,
            mean_hessians=hessian,
            l1=self._settings.l1,
            l2=self._settings.l2,
        )
        with tf.control_dependencies([set_to(is_needed, goes_on)]):
            return tf.identity(goes_on)

    def _flush(self, is_ready: tf.Variable) -> tf.Operation:
        assert self._quantiles is not None
        with tf.control_dependencies([self._quantiles.flush(self._settings.number_buckets)]):
            return set_to(is_ready, True)

    def _grow(self, statistics: Sequence[tf.Tensor], last_layer: tf.Tensor) -> tf.Operation:
        """Splits each node of the last layer where the gain is greatest."""
        settings, features = self._settings, list[int]()
        proposals: list[list[tf.Tensor]] = [[], [], [], [], []]
        for group, sums in zip(self._groups, statistics, strict=True):
            made = tf.raw_ops.BoostedTreesCalculateBestGainsPerFeature(
                node_id_range=last_layer,
                stats_summary_list=tf.unstack(sums, len(group.features)),
                l1=settings.l1,
                l2=settings.l2,
                tree_complexity=settings.tree_complexity,
                min_node_weight=settings.min_node_weight,
                max_splits=settings.max_splits,
            )
            features += group.features
            for all_of_kind, of_group in zip(proposals, made, strict=True):
                all_of_kind += of_group
        nodes, gains, thresholds, left, right = proposals
        grown: tf.Operation = self._ensemble.run(
            tf.raw_ops.BoostedTreesUpdateEnsemble,
            feature_ids=features,
            node_ids=nodes,
            gains=gains,
            thresholds=thresholds,
            left_node_contribs=left,
            right_node_contribs=right,
            max_depth=settings.max_depth,
            learning_rate=settings.learning_rate,
            pruning_mode=settings.pruning,
        )
        return grown


class WholeDataGrower(Grower):
    """Each batch is the whole data: each step grows."""

    def initializer(self) -> tf.Operation:
        return tf.no_op()

    def add_numbers(self, values: Sequence[tf.Tensor], weights: tf.Tensor, is_ready: tf.Variable) -> tf.Operation:
        assert self._quantiles is not None
        with tf.control_dependencies([self._quantiles.add(values, weights)]):
            return self._flush(is_ready)

    def center(self, is_needed: tf.Variable, gradients: tf.Tensor, hessians: tf.Tensor) -> tf.Operation:
        means = [tf.reduce_mean(tensor, 0, keepdims=True) for tensor in (gradients, hessians)]
        return self._center(is_needed, *means).op

    def grow(self, statistics: Sequence[tf.Tensor], last_layer: tf.Tensor) -> tf.Operation:
        return self._grow(statistics, last_layer)


class BatchGrower(Grower):
    """Statistics of `batches` batches make a layer. Batches whose trees have grown meanwhile are left out.

    Args:
        ensemble, quantiles, settings, groups: as for `Grower`.
        stamp: that of the ensemble which the statistics of this step are of.
        batches: how many make a layer.
        is_chief: whether this task grows; the others only add.
    """

    def __init__(
        self,
        ensemble: Ensemble,
        quantiles: Quantiles | None,
        settings: TreeSettings,
        groups: Sequence[FeatureGroup],
        stamp: tf.Tensor,
        batches: TensorLike,
        is_chief: bool,
    ) -> None:
        super().__init__(ensemble, quantiles, settings, groups)
        self._stamp, self._batches, self._is_chief = stamp, batches, is_chief
        self._sums = [
            _Mean(
                ensemble,
                [len(group.features), settings.max_splits, group.buckets, 2],
                f"numeric_stats_summary_accumulator_{i}",
            )
            for i, group in enumerate(groups)
        ]
        self._bias = _Mean(ensemble, [2, 1, 1], "bias_accumulator") if settings.center_bias else None
        #: counts the batches that quantiles are made of
        self._seen = None if quantiles is None else _Mean(ensemble, [], "quantile_summary_accum")

    def initializer(self) -> tf.Operation:
        means = self._sums if self._bias is None else [*self._sums, self._bias]
        return tf.group(*(mean.begin(self._stamp) for mean in means))

    def add_numbers(self, values: Sequence[tf.Tensor], weights: tf.Tensor, is_ready: tf.Variable) -> tf.Operation:
        quantiles, seen = self._quantiles, self._seen
        assert quantiles is not None
        assert seen is not None
        added = tf.group(quantiles.add(values, weights), seen.begin(self._stamp), seen.add(0.0, self._stamp))
        if not self._is_chief:
            return added

        def flush() -> tf.Operation:
            return tf.group(self._flush(is_ready), seen.take())

        with tf.control_dependencies([added]):
            return when(seen.count() >= self._batches, flush, "enough_for_quantiles")

    def center(self, is_needed: tf.Variable, gradients: tf.Tensor, hessians: tf.Tensor) -> tf.Operation:
        bias = self._bias
        assert bias is not None
        means = tf.stack([tf.reduce_mean(tensor, 0, keepdims=True) for tensor in (gradients, hessians)])
        added = bias.add(means, self._stamp)
        if not self._is_chief:
            return added

        def correct() -> tf.Operation:
            gradient, hessian = tf.unstack(bias.take(), 2)
            goes_on = self._center(is_needed, gradient, hessian)
            return when(tf.logical_not(goes_on), self._begin)

        with tf.control_dependencies([added]):
            return when(bias.count() >= self._batches, correct, "enough_for_bias")

    def _begin(self) -> tf.Operation:
        """Statistics count from the ensemble on that has its bias now."""
        return tf.group(*(mean.begin(self._stamp + 1) for mean in self._sums))

    def grow(self, statistics: Sequence[tf.Tensor], last_layer: tf.Tensor) -> tf.Operation:
        added = [mean.add(sums, self._stamp) for mean, sums in zip(self._sums, statistics, strict=True)]
        if not self._is_chief:
            return tf.group(*added)
        with tf.control_dependencies(added):
            least = tf.reduce_min(tf.stack([mean.count() for mean in self._sums]))

            def grow() -> tf.Operation:
                return self._grow([mean.take() for mean in self._sums], last_layer)

            return when(least >= self._batches, grow, "enough_for_layer")


class _Mean:
    """The mean of what steps add, beside the ensemble, which all workers share."""

    def __init__(self, ensemble: Ensemble, shape: Sequence[int], name: str) -> None:
        with tf.device(ensemble.handle.device):
            self._made = tf.ConditionalAccumulator(tf.float32, shape, shared_name=name)

    def begin(self, stamp: tf.Tensor) -> tf.Operation:
        """What is of ensembles before that stamp is left out from now on."""
        with tf.device(self._made.accumulator_ref.device):
            return self._made.set_global_step(stamp)

    def add(self, value: TensorLike, stamp: tf.Tensor) -> tf.Operation:
        """Adds what is of the ensemble of that stamp."""
        with tf.device(self._made.accumulator_ref.device):
            return self._made.apply_grad(value, stamp)

    def count(self) -> tf.Tensor:
        """How many were added."""
        with tf.device(self._made.accumulator_ref.device):
            return self._made.num_accumulated()

    def take(self) -> tf.Tensor:
        """The mean; what is added from now on is of the next stamp."""
        with tf.device(self._made.accumulator_ref.device):
            return self._made.take_grad(1)
