"""Dense columns of ids: how often each id occurs, and rows of a matrix that is trained."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

import anabranch as tf
from anabranch.contrib.arguments import PassedOn
from anabranch.feature_column.columns import CategoricalColumn, DenseColumn, IdsAndWeights, ParseSpec, Transformed

_COMBINERS = ("mean", "sqrtn", "sum")


# ---------------------------------------------------------------------- counted
@dataclass(frozen=True)
class IndicatorColumn(DenseColumn):
    """See `indicator_column`."""

    categorical_column: CategoricalColumn

    @property
    def name(self) -> str:
        return f"{self.categorical_column.name}_indicator"

    @property
    def parse_example_spec(self) -> ParseSpec:
        return self.categorical_column.parse_example_spec

    @property
    def variable_shape(self) -> tf.TensorShape:
        return tf.TensorShape([self.categorical_column.num_buckets])

    def transform_feature(self, transformed: Transformed) -> tf.Tensor:
        dense = transformed.dense_ids(self.categorical_column)
        if dense is not None:
            return _counted(dense, self.categorical_column.num_buckets)
        ids, weights = self.categorical_column.get_sparse_tensors(transformed)
        return multi_hot(ids, weights, self.categorical_column.num_buckets)

    def get_dense_tensor(self, transformed: Transformed, trainable: bool = True) -> tf.Tensor:
        result: tf.Tensor = transformed.get(self)
        return result


def multi_hot(ids: tf.SparseTensor, weights: tf.SparseTensor | None, depth: int) -> tf.Tensor:
    """The number of times that each id occurs in a row, or the sum of its weights; float32, [..., depth].

    Args:
        ids: [..., n]; those outside [0, depth) count as nothing.
        weights: at the same places, or None.
        depth: the number of ids.
    """
    factors = None
    if weights is not None:
        factors = tf.sparse_tensor_to_dense(tf.SparseTensor(ids.indices, weights.values, ids.dense_shape))
    return _counted(tf.sparse_tensor_to_dense(ids, default_value=-1), depth, factors)


def _counted(ids: tf.Tensor, depth: int, factors: tf.Tensor | None = None) -> tf.Tensor:
    one_hot = tf.one_hot(ids, depth)
    if factors is not None:
        one_hot = one_hot * tf.expand_dims(tf.cast(factors, tf.float32), -1)
    return tf.reduce_sum(one_hot, axis=[-2])


def indicator_column(categorical_column: CategoricalColumn) -> IndicatorColumn:
    """How often each id occurs: [batch, num_buckets], with weights their sums."""
    return IndicatorColumn(categorical_column)


# ---------------------------------------------------------------------- embedded
@dataclass(frozen=True)
class EmbeddingColumn(DenseColumn):
    """See `embedding_column`."""

    categorical_column: CategoricalColumn
    dimension: int
    combiner: str
    initializer: Callable[..., tf.Tensor]
    ckpt_to_load_from: str | None
    tensor_name_in_ckpt: str | None
    max_norm: float | None
    trainable: bool

    @property
    def name(self) -> str:
        return f"{self.categorical_column.name}_embedding"

    @property
    def parse_example_spec(self) -> ParseSpec:
        return self.categorical_column.parse_example_spec

    @property
    def variable_shape(self) -> tf.TensorShape:
        return tf.TensorShape([self.dimension])

    def transform_feature(self, transformed: Transformed) -> IdsAndWeights:
        return self.categorical_column.get_sparse_tensors(transformed)

    def embedding_weights(self, trainable: bool) -> tf.Variable:
        """The matrix, a variable of the current scope."""
        weights = tf.get_variable(
            "embedding_weights",
            shape=(self.categorical_column.num_buckets, self.dimension),
            dtype=tf.float32,
            initializer=self.initializer,
            trainable=self.trainable and trainable,
        )
        if self.ckpt_to_load_from is not None:
            assert self.tensor_name_in_ckpt is not None
            parts = weights if isinstance(weights, tf.Variable) else list(weights)
            tf.train.init_from_checkpoint(self.ckpt_to_load_from, {self.tensor_name_in_ckpt: parts})
        return weights

    def get_dense_tensor(self, transformed: Transformed, trainable: bool = True) -> tf.Tensor:
        dense = transformed.dense_ids(self.categorical_column)
        if dense is not None:
            return combined_rows(
                self.embedding_weights(trainable), dense, self.combiner, self.max_norm, f"{self.name}_weights"
            )
        ids, weights = transformed.get(self)
        return tf.nn.safe_embedding_lookup_sparse(
            self.embedding_weights(trainable),
            ids,
            sparse_weights=weights,
            combiner=self.combiner,
            max_norm=self.max_norm,
            name=f"{self.name}_weights",
        )


def combined_rows(
    weights: tf.Variable, ids: tf.Tensor, combiner: str, max_norm: float | None = None, name: str | None = None
) -> tf.Tensor:
    """What `tf.nn.safe_embedding_lookup_sparse` gives for the ids as a sparse tensor, without one.

    Where there is no id, a row is taken in its place, and has no part in the result: a row of the same example, or the
    first one where the example has no id. `safe_embedding_lookup_sparse` takes the first one of examples without ids,
    too: so both have gradients for the same rows, which some optimizers change even where the gradient is zero.

    Args:
        weights: the matrix, partitioned or not, [ids, elements].
        ids: integers, [..., n], below 0 where there is none.
        combiner: "mean", "sqrtn" or "sum".
        max_norm: rows are scaled down to this norm.
        name: of the operations' scope.

    Returns:
        float32, [..., elements]; zeros where there is no id.
    """
    with tf.name_scope(name, "combined_rows", [ids]):
        present = ids >= 0
        in_its_place = tf.maximum(tf.reduce_max(ids, axis=-1, keepdims=True), np.int64(0))
        taken = tf.where(present, ids, tf.broadcast_to(in_its_place, tf.shape(ids)))
        rows = tf.nn.embedding_lookup(weights, taken, partition_strategy="div", max_norm=max_norm)
        factors = tf.cast(present, tf.float32)
        total: tf.Tensor = tf.reduce_sum(rows * tf.expand_dims(factors, -1), axis=-2)
        if combiner == "sum" or ids.shape.as_list()[-1] == 1:
            return total
        count = tf.maximum(tf.reduce_sum(factors, axis=-1, keepdims=True), 1.0)
        return total / (count if combiner == "mean" else tf.sqrt(count))


def embedding_column(
    categorical_column: CategoricalColumn,
    dimension: int,
    combiner: str = "mean",
    initializer: Callable[..., tf.Tensor] | None = None,
    ckpt_to_load_from: str | None = None,
    tensor_name_in_ckpt: str | None = None,
    max_norm: float | None = None,
    trainable: bool = True,
) -> EmbeddingColumn:
    """Rows of a trained matrix, those of the ids of an example combined: [batch, dimension].

    Args:
        categorical_column: of the ids.
        dimension: the size of a row.
        combiner: "mean", "sqrtn" or "sum".
        initializer: of the matrix; None: truncated normal numbers with a deviation of 1 / sqrt(dimension).
        ckpt_to_load_from, tensor_name_in_ckpt: the checkpoint and the name there of initial values, both or neither.
        max_norm: rows are scaled down to this norm.
        trainable: whether the matrix is.

    Raises:
        ValueError: no dimension, an initializer that cannot be called, or one half of the checkpoint's pair.
    """
    values = _embedding_arguments(dimension, combiner, initializer, ckpt_to_load_from, tensor_name_in_ckpt)
    return EmbeddingColumn(
        categorical_column,
        dimension,
        combiner,
        values,
        ckpt_to_load_from,
        tensor_name_in_ckpt,
        max_norm,
        trainable,
    )


def _embedding_arguments(
    dimension: int,
    combiner: str,
    initializer: Callable[..., tf.Tensor] | None,
    checkpoint: str | None,
    tensor_name: str | None,
) -> Callable[..., tf.Tensor]:
    """Checks what embedding columns share; the initializer."""
    if dimension is None or dimension < 1:
        raise ValueError(f"Invalid dimension {dimension}.")
    if combiner not in _COMBINERS:
        raise ValueError(f"combiner must be one of {_COMBINERS}, got {combiner!r}")
    if (checkpoint is None) != (tensor_name is None):
        raise ValueError("Must specify both `ckpt_to_load_from` and `tensor_name_in_ckpt` or none of them.")
    if initializer is not None and not callable(initializer):
        raise ValueError("initializer must be callable if specified.")
    return initializer or tf.truncated_normal_initializer(0.0, 1 / math.sqrt(dimension))


# ---------------------------------------------------------------------- sharing a matrix
@dataclass(frozen=True)
class SharedEmbeddingColumn(EmbeddingColumn):
    """See `shared_embedding_columns`."""

    collection_name: str

    @property
    def name(self) -> str:
        return f"{self.categorical_column.name}_shared_embedding"

    @property
    def scope_name(self) -> str:
        return self.collection_name

    def embedding_weights(self, trainable: bool) -> tf.Variable:
        held: list[tf.Variable] = tf.get_collection_ref(self.collection_name)
        if not held:
            held.append(super().embedding_weights(trainable))
        if len(held) > 1:
            raise ValueError(f"Collection {self.collection_name} can only contain one variable, not {held}.")
        if held[0].shape != (expected := tf.TensorShape([self.categorical_column.num_buckets, self.dimension])):
            raise ValueError(
                f"Shared embedding collection {self.collection_name} contains variable {held[0].name} of unexpected "
                f"shape {held[0].shape}. Expected shape is {expected}."
            )
        return held[0]


def shared_embedding_columns(
    categorical_columns: Sequence[CategoricalColumn],
    dimension: int,
    combiner: str = "mean",
    initializer: PassedOn = None,
    shared_embedding_collection_name: str | None = None,
    ckpt_to_load_from: str | None = None,
    tensor_name_in_ckpt: str | None = None,
    max_norm: float | None = None,
    trainable: bool = True,
) -> list[EmbeddingColumn]:
    """`embedding_column`s of columns with the same ids, whose rows come from one matrix.

    Args:
        categorical_columns: of one type and number of buckets, weighted or not.
        shared_embedding_collection_name: the collection that holds the matrix, and its scope; None: after the columns.
        dimension, combiner, initializer, ckpt_to_load_from, tensor_name_in_ckpt, max_norm, trainable: as for
            `embedding_column`.

    Returns:
        A column for each, in order.

    Raises:
        ValueError: as `embedding_column`, or the columns differ in type or number of buckets.
    """
    columns = list(categorical_columns)
    kinds = {type(getattr(column, "categorical_column", column)) for column in columns}
    if len(kinds) > 1:
        raise ValueError(f"All categorical_columns must have the same type, got {sorted(k.__name__ for k in kinds)}")
    if len({column.num_buckets for column in columns}) > 1:
        sizes = {column.name: column.num_buckets for column in columns}
        raise ValueError(
            f"To use shared_embedding_column, all columns must have the same number of buckets, got {sizes}"
        )
    values = _embedding_arguments(dimension, combiner, initializer, ckpt_to_load_from, tensor_name_in_ckpt)
    name = shared_embedding_collection_name
    if not name:
        name = "_".join(sorted(column.name for column in columns)) + "_shared_embedding"
    return [
        SharedEmbeddingColumn(
            column,
            dimension,
            combiner,
            values,
            ckpt_to_load_from,
            tensor_name_in_ckpt,
            max_norm,
            trainable,
            name,
        )
        for column in columns
    ]
