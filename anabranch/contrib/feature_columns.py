"""The columns of features as `tf.contrib.layers` named them: those of `tf.feature_column`, with their arguments."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, TypeAlias

import anabranch as tf
from anabranch.contrib.arguments import DTypeLike, PassedOn, TensorLike

#: a column of `tf.feature_column`, or what is made of columns
Column: TypeAlias = Any
#: the name of the one feature where the features are an array, for which `real_valued_column("")` stands
THE_FEATURE: Final = "features"


def real_valued_column(
    column_name: str,
    dimension: int | None = 1,
    default_value: PassedOn = None,
    dtype: DTypeLike = tf.float32,
    normalizer: Callable[[Any], Any] | None = None,
) -> Column:
    """Numbers, `dimension` for each example; see `tf.feature_column.numeric_column`.

    Args:
        column_name: "" for a model whose features are an array.

    Raises:
        ValueError: the dimension is None: rows of unequal lengths are no columns here.
    """
    if dimension is None:
        raise ValueError("dimension must be a number: pad rows of unequal lengths, as tf.data's padded_batch does")
    shape = (dimension,)
    return tf.feature_column.numeric_column(column_name or THE_FEATURE, shape, default_value, dtype, normalizer)


def bucketized_column(source_column: PassedOn, boundaries: Sequence[float]) -> Column:
    """Which interval a number lies in; boundaries that come twice count once."""
    return tf.feature_column.bucketized_column(source_column, sorted({*boundaries}))


def sparse_column_with_hash_bucket(
    column_name: str, hash_bucket_size: int, combiner: str = "sum", dtype: DTypeLike = tf.string
) -> Column:
    """Values by their hash; see `tf.feature_column.categorical_column_with_hash_bucket`."""
    return tf.feature_column.categorical_column_with_hash_bucket(column_name, hash_bucket_size, tf.as_dtype(dtype))


def sparse_column_with_keys(
    column_name: str,
    keys: Sequence[Any],
    default_value: int = -1,
    combiner: str = "sum",
    dtype: DTypeLike = tf.string,
) -> Column:
    """Values by their place in a list; see `tf.feature_column.categorical_column_with_vocabulary_list`."""
    return tf.feature_column.categorical_column_with_vocabulary_list(
        column_name, list(keys), tf.as_dtype(dtype), default_value
    )


def sparse_column_with_vocabulary_file(
    column_name: str,
    vocabulary_file: str,
    num_oov_buckets: int = 0,
    vocab_size: int | None = None,
    default_value: int = -1,
    combiner: str = "sum",
    dtype: DTypeLike = tf.string,
) -> Column:
    """Values by their line in a file; see `tf.feature_column.categorical_column_with_vocabulary_file`."""
    default = None if num_oov_buckets else default_value
    return tf.feature_column.categorical_column_with_vocabulary_file(
        column_name, vocabulary_file, vocab_size, num_oov_buckets, default, tf.as_dtype(dtype)
    )


def sparse_column_with_integerized_feature(
    column_name: str, bucket_size: int, combiner: str = "sum", dtype: DTypeLike = tf.int64
) -> Column:
    """Values that are numbers of classes; see `tf.feature_column.categorical_column_with_identity`."""
    return tf.feature_column.categorical_column_with_identity(column_name, bucket_size)


def weighted_sparse_column(
    sparse_id_column: PassedOn, weight_column_name: str, dtype: DTypeLike = tf.float32
) -> Column:
    """Values with weights, which are another feature."""
    return tf.feature_column.weighted_categorical_column(sparse_id_column, weight_column_name, tf.as_dtype(dtype))


def crossed_column(columns: Iterable[PassedOn], hash_bucket_size: int, combiner: str = "sum") -> Column:
    """The values of several columns together, by their hash."""
    crossed = [_crossable(column) for column in columns]
    return tf.feature_column.crossed_column(crossed, hash_bucket_size)


def _crossable(column: PassedOn) -> Column:
    """A column of hashes is crossed by its values."""
    is_hashed = hasattr(column, "hash_bucket_size") and hasattr(column, "key")
    return column.key if is_hashed else column


def embedding_column(
    sparse_id_column: PassedOn,
    dimension: int,
    combiner: str = "mean",
    initializer: PassedOn = None,
    ckpt_to_load_from: str | None = None,
    tensor_name_in_ckpt: str | None = None,
    max_norm: float | None = None,
    trainable: bool = True,
) -> Column:
    """A vector for each value; see `tf.feature_column.embedding_column`."""
    return tf.feature_column.embedding_column(
        sparse_id_column, dimension, combiner, initializer, ckpt_to_load_from, tensor_name_in_ckpt, max_norm, trainable
    )


def one_hot_column(sparse_id_column: PassedOn) -> Column:
    """How often each value occurs; see `tf.feature_column.indicator_column`."""
    return tf.feature_column.indicator_column(sparse_id_column)


def create_feature_spec_for_parsing(feature_columns: Iterable[PassedOn]) -> dict[str, Any]:
    """How `tf.parse_example` finds the features of columns."""
    spec: dict[str, Any] = tf.feature_column.make_parse_example_spec(list(feature_columns))
    return spec


def input_from_feature_columns(
    columns_to_tensors: Mapping[str, TensorLike],
    feature_columns: Iterable[PassedOn],
    weight_collections: Sequence[str] | None = None,
    trainable: bool = True,
    scope: PassedOn = None,
) -> Column:
    """A matrix of all columns side by side; see `tf.feature_column.input_layer`."""
    with tf.variable_scope(scope, default_name="input_from_feature_columns"):
        return tf.feature_column.input_layer(
            columns_to_tensors, list(feature_columns), list(weight_collections or ()), trainable
        )
