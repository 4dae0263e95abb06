"""Linear models by stochastic dual coordinate ascent: their weights, and what is kept of each example.

Each example has a dual variable, kept in a table by a fingerprint of its id, so that it goes on where it was when the
example comes again. A step improves the dual variables of a batch one after another, and adds what that does to the
weights. Weights that are added to are kept apart from those of the model, which are shrunk for the L1 penalty.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, TypeAlias

import anabranch as tf
from anabranch.contrib.arguments import TensorLike

#: a variable, or the parts of a partitioned one, cut along the first axis
Weights: TypeAlias = "tf.Variable | Sequence[tf.Variable]"
#: dual variable, primal loss, dual loss and weight of an example
_STATE_SIZE: Final = 4
#: keys that no fingerprint is
_EMPTY, _DELETED = [0, 0], [1, 1]


@dataclass(frozen=True)
class DualSettings:
    """How the ascent runs; the fields are arguments of `LinearSDCA`.

    Raises:
        ValueError: a number is out of its range.
    """

    num_loss_partitions: int
    num_table_shards: int
    l1: float
    l2: float
    adaptive: bool

    def __post_init__(self) -> None:
        if self.l2 <= 0.0:
            raise ValueError(f"symmetric_l2_regularization should be positive, got {self.l2}.")
        if self.l1 < 0.0:
            raise ValueError(f"symmetric_l1_regularization should be non-negative, got {self.l1}.")
        for name, number in (
            ("num_loss_partitions", self.num_loss_partitions),
            ("num_table_shards", self.num_table_shards),
        ):
            if number < 1:
                raise ValueError(f"{name} should be positive, got {number}.")
        if self.l2 <= 1.0:
            tf.logging.warning(
                "symmetric_l2_regularization for SDCA should typically be larger than for online optimization methods: "
                "of the order of the average L2 norm of the training examples."
            )


class SparseFeatures(NamedTuple):
    """Ids of a batch, each once in an example: the example and the id, int64 [n], and the value, float32 [n]."""

    examples: tf.Tensor
    ids: tf.Tensor
    values: tf.Tensor


def unique_features(ids: tf.SparseTensor, weights: tf.SparseTensor | None, count: int) -> SparseFeatures:
    """The ids of a column; those that are negative are left out, and those that occur twice are added up.

    Args:
        ids: [batch, ...].
        weights: at the same places; None: 1.
        count: ids are less.
    """
    examples, flat = ids.indices[:, 0], tf.cast(ids.values, tf.int64)
    values = tf.ones_like(flat, tf.float32) if weights is None else tf.cast(weights.values, tf.float32)
    is_there = flat >= 0
    examples, flat, values = (tf.boolean_mask(tensor, is_there) for tensor in (examples, flat, values))
    pairs, places = tf.unique(examples * count + flat)
    sums = tf.unsorted_segment_sum(values, places, tf.size(pairs))
    return SparseFeatures(pairs // count, pairs % count, sums)


class _Parts:
    """Weights as the model has them, and beside them those that steps add to."""

    def __init__(self, weights: Weights) -> None:
        self._model = [weights] if isinstance(weights, tf.Variable) else list(weights)
        # the name that TensorFlow gives: its variables are always partitioned, if only into one part
        part = "" if len(self._model) > 1 else "/part_0"
        self._added = [_beside(variable, f"{variable.op.name}{part}_unshrunk") for variable in self._model]

    def whole(self) -> tf.Tensor:
        """What steps add to, as one vector."""
        parts = [tf.reshape(part, [-1]) for part in self._added]
        result: tf.Tensor = tf.concat(parts, 0) if len(parts) > 1 else parts[0]
        return result

    def gather(self, ids: tf.Tensor) -> tf.Tensor:
        """Some of the weights that steps add to."""
        return tf.nn.embedding_lookup(list(self._added), ids, partition_strategy="div")

    def add(self, deltas: tf.Tensor) -> list[tf.Operation]:
        """Adds to all weights."""
        sizes = [part.shape.num_elements() for part in self._added]
        cut = tf.split(tf.reshape(deltas, [-1]), sizes)
        return [
            tf.assign_add(part, tf.reshape(delta, part.shape)).op for part, delta in zip(self._added, cut, strict=True)
        ]

    def add_at(self, ids: tf.Tensor, deltas: tf.Tensor) -> list[tf.Operation]:
        """Adds to some weights."""
        updates, start = [], 0
        for part in self._added:
            end = start + int(part.shape[0])
            mine = tf.logical_and(ids >= start, ids < end)
            added = tf.scatter_add(part, tf.boolean_mask(ids, mine) - start, tf.boolean_mask(deltas, mine))
            updates.append(added.op)
            start = end
        return updates

    def take_over(self, shrinkage: float) -> list[tf.Operation]:
        """Gives the model its weights, nearer to zero by `shrinkage`."""
        updates = []
        for variable, added in zip(self._model, self._added, strict=True):
            value = tf.identity(added)
            if shrinkage:
                value = tf.sign(value) * tf.maximum(0.0, tf.abs(value) - shrinkage)
            updates.append(tf.assign(variable, value).op)
        return updates

    def absolute(self) -> tf.Tensor:
        """The sum of the absolute weights of the model, float64."""
        return tf.add_n([tf.reduce_sum(tf.abs(tf.cast(variable, tf.float64))) for variable in self._model])

    def squared(self) -> tf.Tensor:
        """The sum of the squared weights of the model, float64."""
        return tf.add_n([tf.reduce_sum(tf.square(tf.cast(variable, tf.float64))) for variable in self._model])


def _beside(variable: tf.Variable, name: str) -> tf.Variable:
    with tf.device(variable.device):
        return tf.Variable(tf.zeros(variable.shape), trainable=False, name=name)


class _ExampleTable:
    """What is kept of examples, [fingerprints, 4], in one or several tables."""

    def __init__(self, shards: int) -> None:
        with tf.name_scope("sharded_mutable_hash_table"):
            self._shards = [
                tf.contrib.lookup.MutableDenseHashTable(
                    tf.int64,
                    tf.float32,
                    [0.0] * _STATE_SIZE,
                    _EMPTY,
                    _DELETED,
                    name=f"ShardedMutableHashTable-{i + 1}-of-{shards}",
                )
                for i in range(shards)
            ]

    def lookup(self, marks: tf.Tensor) -> tf.Tensor:
        """What is kept of examples; zeros for those that were not seen."""
        if len(self._shards) == 1:
            return _of(self._shards[0], marks)
        places = tf.dynamic_partition(tf.range(tf.shape(marks)[0]), self._shard_of(marks), len(self._shards))
        found = [_of(table, keys) for table, keys in zip(self._shards, self._split(marks, marks), strict=True)]
        state: tf.Tensor = tf.dynamic_stitch(places, found)
        return state

    def insert(self, marks: tf.Tensor, state: tf.Tensor) -> tf.Operation:
        """Replaces what is kept of examples."""
        keys, values = self._split(marks, marks), self._split(marks, state)
        return tf.group(*(table.insert(k, v) for table, k, v in zip(self._shards, keys, values, strict=True)))

    def size(self) -> tf.Tensor:
        """How many examples were seen."""
        return tf.add_n([table.size() for table in self._shards])

    def sums(self) -> tf.Tensor:
        """The sums over all examples, float64 [4]."""
        return tf.add_n([tf.reduce_sum(tf.cast(table.export()[1], tf.float64), 0) for table in self._shards])

    def _shard_of(self, marks: tf.Tensor) -> tf.Tensor:
        shards: tf.Tensor = tf.cast(tf.abs(marks[:, 0]) % len(self._shards), tf.int32)
        return shards

    def _split(self, marks: tf.Tensor, values: tf.Tensor) -> list[tf.Tensor]:
        """Rows by the table that has the fingerprint."""
        if len(self._shards) == 1:
            return [values]
        rows: list[tf.Tensor] = tf.dynamic_partition(values, self._shard_of(marks), len(self._shards))
        return rows


def _of(table: tf.contrib.lookup.MutableDenseHashTable, keys: tf.Tensor) -> tf.Tensor:
    """The values of keys."""
    values = table.lookup(keys)
    assert isinstance(values, tf.Tensor)
    return values


class DualExamples(NamedTuple):
    """A batch.

    Attributes:
        ids: string [batch]: by which an example is known when it comes again.
        labels, weights: float32 [batch].
        sparse: the features of each column of ids.
        dense: the features of each column of numbers, float32 [batch, n].
    """

    ids: tf.Tensor
    labels: tf.Tensor
    weights: tf.Tensor
    sparse: list[SparseFeatures]
    dense: list[tf.Tensor]


class DualModel:
    """A linear model that is trained on a batch.

    Args:
        loss_type: "logistic_loss", "squared_loss", "hinge_loss", "smooth_hinge_loss" or "poisson_loss".
        settings: how the ascent runs.
        examples: the batch.
        sparse_weights, dense_weights: of the features in `examples.sparse` and `examples.dense`.
    """

    def __init__(
        self,
        loss_type: str,
        settings: DualSettings,
        examples: DualExamples,
        sparse_weights: Sequence[Weights],
        dense_weights: Sequence[Weights],
    ) -> None:
        self._loss_type, self._settings, self._examples = loss_type, settings, examples
        self._sparse = [_Parts(weights) for weights in sparse_weights]
        self._dense = [_Parts(weights) for weights in dense_weights]
        self._table = _ExampleTable(settings.num_table_shards)
        tf.summary.scalar("approximate_duality_gap", self.approximate_duality_gap())
        tf.summary.scalar("examples_seen", self._table.size())

    def minimize(self, global_step: tf.Variable | None = None, name: str | None = None) -> tf.Operation:
        """A step on the batch; `update_weights` lets the model see it.

        Args:
            global_step: is counted up.
            name: of the operations.
        """
        with tf.name_scope(name, "sdca/minimize"):
            marks = tf.raw_ops.SdcaFprint(input=self._examples.ids)
            known = [tf.unique(features.ids)[0] for features in self._examples.sparse]
            state, sparse_deltas, dense_deltas = self._ascend(self._table.lookup(marks), known)
            with tf.control_dependencies([state]):
                updates: list[Any] = [self._table.insert(marks, state)]
                for parts, ids, deltas in zip(self._sparse, known, sparse_deltas, strict=True):
                    updates += parts.add_at(ids, deltas)
                for parts, deltas in zip(self._dense, dense_deltas, strict=True):
                    updates += parts.add(deltas)
            done = tf.group(*updates)
            if global_step is None:
                return done
            with tf.control_dependencies([done]):
                counted: tf.Operation = tf.assign_add(global_step, 1).op
                return counted

    def _ascend(
        self, state: tf.Tensor, known: list[tf.Tensor]
    ) -> tuple[tf.Tensor, Sequence[tf.Tensor], Sequence[tf.Tensor]]:
        """The new state of the examples, and what is added to weights: to those at `known`, and to dense ones."""
        examples, settings = self._examples, self._settings
        new, sparse, dense = tf.raw_ops.SdcaOptimizerV2(
            sparse_example_indices=[features.examples for features in examples.sparse],
            sparse_feature_indices=[features.ids for features in examples.sparse],
            sparse_feature_values=[features.values for features in examples.sparse],
            dense_features=examples.dense,
            example_weights=examples.weights,
            example_labels=examples.labels,
            sparse_indices=known,
            sparse_weights=[parts.gather(ids) for parts, ids in zip(self._sparse, known, strict=True)],
            dense_weights=[parts.whole() for parts in self._dense],
            example_state_data=state,
            loss_type=self._loss_type,
            adaptive=settings.adaptive,
            l1=settings.l1,
            l2=settings.l2,
            num_loss_partitions=settings.num_loss_partitions,
            num_inner_iterations=1,
        )
        return new, sparse, dense

    def update_weights(self, train_op: tf.Operation) -> tf.Operation:
        """Gives the model the weights that the steps so far came to.

        Args:
            train_op: what `minimize` gave, which runs before.
        """
        with tf.control_dependencies([train_op]):
            shrinkage = self._settings.l1 / self._settings.l2
            return tf.group(
                *(update for parts in (*self._sparse, *self._dense) for update in parts.take_over(shrinkage))
            )

    def approximate_duality_gap(self) -> tf.Tensor:
        """How far the loss is from the least possible, at most: a float64, of the examples that were seen, by weight.

        It is no number before there are any.
        """
        with tf.name_scope("sdca/approximate_duality_gap"):
            _, primal, dual, weight = tf.unstack(self._table.sums(), _STATE_SIZE)
            every = [*self._sparse, *self._dense]
            penalty = self._settings.l1 * tf.add_n([parts.absolute() for parts in every])
            penalty += self._settings.l2 * tf.add_n([parts.squared() for parts in every])
            gap: tf.Tensor = (primal + dual + penalty) / weight
            return gap


def vector_of(values: TensorLike) -> tf.Tensor:
    """One number for each example, float32 [batch]."""
    vector: tf.Tensor = tf.reshape(tf.cast(values, tf.float32), [-1])
    return vector
