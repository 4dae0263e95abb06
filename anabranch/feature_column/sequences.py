"""Columns of sequences: numbers and ids for each step of an example, [batch, steps, ...]."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np

import anabranch as tf
from anabranch.contrib.arguments import DTypeLike
from anabranch.feature_column.categorical import (
    categorical_column_with_hash_bucket,
    categorical_column_with_identity,
    categorical_column_with_vocabulary_file,
    categorical_column_with_vocabulary_list,
)
from anabranch.feature_column.columns import (
    CategoricalColumn,
    DenseColumn,
    FeatureColumn,
    Features,
    IdsAndWeights,
    ParseSpec,
    Transformed,
    check_key,
    map_values,
)
from anabranch.feature_column.embedding import EmbeddingColumn, IndicatorColumn
from anabranch.feature_column.numeric import numeric_column


# ---------------------------------------------------------------------- numbers
@dataclass(frozen=True)
class SequenceNumericColumn(FeatureColumn):
    """See `sequence_numeric_column`."""

    key: str
    shape: tuple[int, ...]
    default_value: float
    dtype: tf.DType
    normalizer_fn: Callable[[tf.Tensor], tf.Tensor] | None

    @property
    def name(self) -> str:
        return self.key

    @property
    def parse_example_spec(self) -> ParseSpec:
        return {self.key: tf.VarLenFeature(self.dtype)}

    @property
    def variable_shape(self) -> tf.TensorShape:
        """The shape for one step."""
        return tf.TensorShape(self.shape)

    def transform_feature(self, transformed: Transformed) -> tf.SparseTensor:
        feature = transformed.get(self.key)
        if not isinstance(feature, tf.SparseTensor):
            raise ValueError(f"sequence_numeric_column {self.key} takes a SparseTensor, got {feature}")
        if self.normalizer_fn is not None:
            feature = map_values(feature, self.normalizer_fn)
        return map_values(feature, lambda values: tf.cast(values, tf.float32))

    def get_sequence_dense_tensor(self, transformed: Transformed) -> tuple[tf.Tensor, tf.Tensor]:
        """The numbers, [batch, steps] + shape, and the number of steps of each example, int64 [batch]."""
        sparse = transformed.get(self)
        dense = tf.sparse_tensor_to_dense(sparse, default_value=self.default_value)
        elements = self.variable_shape.num_elements()
        assert elements is not None
        steps = tf.reshape(dense, [tf.shape(dense)[0], -1, *self.shape])
        is_flat = sparse.dense_shape.shape.as_list()[0] == 2
        return steps, lengths_of(sparse, elements if is_flat else 1)


def lengths_of(sparse: tf.SparseTensor, elements: int = 1) -> tf.Tensor:
    """How many steps each example has: one more than its last index; int64, [batch].

    Args:
        sparse: [batch, n, ...]
        elements: how many indices of the second dimension make a step.
    """
    rows, places = sparse.indices[:, 0], sparse.indices[:, 1]
    last = tf.segment_max(places, rows)
    counts = tf.where(tf.greater(tf.segment_sum(tf.ones_like(places), rows), 0), last + 1, tf.zeros_like(last))
    steps = tf.cast(tf.ceil(tf.cast(counts, tf.float64) / elements), tf.int64)
    missing = tf.cast(sparse.dense_shape[0], tf.int32) - tf.shape(steps)[0]
    return tf.concat([steps, tf.zeros([missing], tf.int64)], 0)  # examples at the end without a step


def sequence_numeric_column(
    key: str,
    shape: int | Iterable[int] = (1,),
    default_value: float = 0.0,
    dtype: DTypeLike = "float32",
    normalizer_fn: Callable[[tf.Tensor], tf.Tensor] | None = None,
) -> SequenceNumericColumn:
    """Real numbers for each step.

    Args:
        key: the feature's name; sparse, [batch, steps * elements].
        shape: of one step.
        default_value: for steps that shorter examples lack.
        dtype: of the feature.
        normalizer_fn: applied to the values that are stored.

    Raises:
        ValueError, TypeError: as `numeric_column`.
    """
    like = numeric_column(key, shape, dtype=dtype, normalizer_fn=normalizer_fn)
    return SequenceNumericColumn(check_key(key), like.shape, float(default_value), like.dtype, normalizer_fn)


# ---------------------------------------------------------------------- ids
@dataclass(frozen=True)
class SequenceCategoricalColumn(CategoricalColumn):
    """A categorical column whose ids belong to steps."""

    categorical_column: CategoricalColumn

    @property
    def name(self) -> str:
        return self.categorical_column.name

    @property
    def parse_example_spec(self) -> ParseSpec:
        return self.categorical_column.parse_example_spec

    @property
    def num_buckets(self) -> int:
        return self.categorical_column.num_buckets

    def transform_feature(self, transformed: Transformed) -> tf.SparseTensor:
        result: tf.SparseTensor = transformed.get(self.categorical_column)
        return result

    def get_sparse_tensors(self, transformed: Transformed) -> IdsAndWeights:
        ids, weights = self.categorical_column.get_sparse_tensors(transformed)
        return IdsAndWeights(_with_steps(ids), None if weights is None else _with_steps(weights))


def _with_steps(ids: tf.SparseTensor) -> tf.SparseTensor:
    """Ids as [batch, steps, ids of a step]: one a step where they have no third dimension."""
    if ids.dense_shape.shape.as_list()[0] == 3:
        return ids
    return tf.sparse_reshape(ids, tf.concat([ids.dense_shape, np.array([1], np.int64)], 0))


def sequence_categorical_column_with_identity(
    key: str, num_buckets: int, default_value: int | None = None
) -> SequenceCategoricalColumn:
    """`categorical_column_with_identity` of a sequence."""
    return SequenceCategoricalColumn(categorical_column_with_identity(key, num_buckets, default_value))


def sequence_categorical_column_with_hash_bucket(
    key: str, hash_bucket_size: int, dtype: DTypeLike = "string"
) -> SequenceCategoricalColumn:
    """`categorical_column_with_hash_bucket` of a sequence."""
    return SequenceCategoricalColumn(categorical_column_with_hash_bucket(key, hash_bucket_size, dtype))


def sequence_categorical_column_with_vocabulary_file(
    key: str,
    vocabulary_file: str | os.PathLike[str],
    vocabulary_size: int | None = None,
    num_oov_buckets: int = 0,
    default_value: int | None = None,
    dtype: DTypeLike = "string",
) -> SequenceCategoricalColumn:
    """`categorical_column_with_vocabulary_file` of a sequence."""
    return SequenceCategoricalColumn(
        categorical_column_with_vocabulary_file(
            key, vocabulary_file, vocabulary_size, num_oov_buckets, default_value, dtype
        )
    )


def sequence_categorical_column_with_vocabulary_list(
    key: str,
    vocabulary_list: Sequence[str | bytes | int],
    dtype: DTypeLike | None = None,
    default_value: int = -1,
    num_oov_buckets: int = 0,
) -> SequenceCategoricalColumn:
    """`categorical_column_with_vocabulary_list` of a sequence."""
    return SequenceCategoricalColumn(
        categorical_column_with_vocabulary_list(key, vocabulary_list, dtype, default_value, num_oov_buckets)
    )


# ---------------------------------------------------------------------- the input of a recurrent network
def sequence_input_layer(
    features: Features,
    feature_columns: Iterable[FeatureColumn],
    trainable: bool = True,
) -> tuple[tf.Tensor, tf.Tensor]:
    """The columns of a sequence side by side, in the order of their names.

    Args:
        features: by name.
        feature_columns: `sequence_numeric_column`s, and embeddings and indicators of the other columns of sequences.
        trainable: whether variables are.

    Returns:
        float32 [batch, steps, elements], and the number of steps of each example, int64 [batch].

    Raises:
        ValueError: a column is of another kind, or a feature is missing.
    """
    columns = sorted(feature_columns, key=lambda column: column.name)
    if not columns:
        raise ValueError("feature_columns must not be empty.")
    transformed = Transformed(features)
    parts, lengths = [], []
    with tf.variable_scope(None, default_name="sequence_input_layer", values=list(features.values())):
        for column in columns:
            with tf.variable_scope(None, default_name=column.name):
                steps, length = _steps_of(column, transformed, trainable)
                elements = int(np.prod(column.variable_shape.as_list()))  # type: ignore[attr-defined]
                shape = tf.shape(steps)
                parts.append(tf.reshape(steps, [shape[0], shape[1], elements]))
                lengths.append(length)
        same = [tf.assert_equal(length, lengths[0], message="columns differ in their steps") for length in lengths[1:]]
        with tf.control_dependencies(same):
            return tf.concat(parts, -1), tf.identity(lengths[0])


def _steps_of(column: FeatureColumn, transformed: Transformed, trainable: bool) -> tuple[tf.Tensor, tf.Tensor]:
    if isinstance(column, SequenceNumericColumn):
        return column.get_sequence_dense_tensor(transformed)
    if isinstance(column, EmbeddingColumn | IndicatorColumn):
        categorical = column.categorical_column
        if isinstance(getattr(categorical, "categorical_column", categorical), SequenceCategoricalColumn) or isinstance(
            categorical, SequenceCategoricalColumn
        ):
            assert isinstance(column, DenseColumn)
            ids = categorical.get_sparse_tensors(transformed).id_tensor
            return column.get_dense_tensor(transformed, trainable), lengths_of(ids)
    raise ValueError(f"sequence_input_layer takes columns of sequences, got {column.name} ({type(column).__name__})")
