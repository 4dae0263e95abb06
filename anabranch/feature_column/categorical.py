"""Columns of ids: features that are ids, are hashed to ids, or are looked up in a vocabulary; and ids with weights."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

import anabranch as tf
from anabranch.contrib.arguments import DTypeLike
from anabranch.feature_column.columns import (
    CategoricalColumn,
    IdsAndWeights,
    ParseSpec,
    Transformed,
    as_sparse,
    check_key,
    is_stored,
    map_values,
)


@dataclass(frozen=True)
class KeyedColumn(CategoricalColumn):
    """A column of ids that are made from the feature of that name."""

    key: str

    @property
    def name(self) -> str:
        return self.key

    @property
    def stored_dtype(self) -> tf.DType:
        """The dtype of the feature in records."""
        return tf.int64

    @property
    def parse_example_spec(self) -> ParseSpec:
        return {self.key: tf.VarLenFeature(self.stored_dtype)}

    def transform_feature(self, transformed: Transformed) -> tf.SparseTensor:
        return map_values(as_sparse(self._checked(transformed.get(self.key))), self._ids_of)

    def get_dense_ids(self, transformed: Transformed) -> tf.Tensor | None:
        feature = self._checked(transformed.given(self.key))
        if isinstance(feature, tf.SparseTensor) or feature.shape.ndims is None:
            return None
        ids = self._ids_where(is_stored(feature), feature)
        # of the ids, not of the feature: no operation on strings is compiled
        return tf.expand_dims(ids, -1) if feature.shape.ndims == 1 else ids

    def _checked(self, feature: tf.Tensor | tf.SparseTensor) -> tf.Tensor | tf.SparseTensor:
        if feature.dtype.base_dtype != tf.string and not feature.dtype.is_integer:
            raise ValueError(f"column {self.name}: its feature must be strings or integers, got {feature.dtype}")
        return feature

    def _ids_of(self, values: tf.Tensor) -> tf.Tensor:
        """The ids of values, which all stand for something; int64, of their shape."""
        raise NotImplementedError

    def _ids_where(self, stored: tf.Tensor, values: tf.Tensor) -> tf.Tensor:
        """The ids of values that are `stored`, and -1 for the others."""
        ids = self._ids_of(values)
        return tf.where(stored, ids, tf.fill(tf.shape(ids), np.int64(-1)))


def _as_type_of_column(values: tf.Tensor, dtype: tf.DType, name: str) -> tf.Tensor:
    if (values.dtype.base_dtype == tf.string) != (dtype == tf.string):
        raise ValueError(
            f"Column dtype and SparseTensors dtype must be compatible. key: {name}, column dtype: {dtype}, "
            f"tensor dtype: {values.dtype}"
        )
    return values if dtype == tf.string else tf.cast(values, tf.int64)


# ---------------------------------------------------------------------- hashed
@dataclass(frozen=True)
class HashedColumn(KeyedColumn):
    """See `categorical_column_with_hash_bucket`."""

    hash_bucket_size: int
    dtype: tf.DType

    @property
    def stored_dtype(self) -> tf.DType:
        return self.dtype

    @property
    def num_buckets(self) -> int:
        return self.hash_bucket_size

    def _ids_of(self, values: tf.Tensor) -> tf.Tensor:
        strings = _as_type_of_column(values, self.dtype, self.key)
        if self.dtype != tf.string:
            strings = tf.as_string(strings)
        return tf.string_to_hash_bucket_fast(strings, self.hash_bucket_size)


def categorical_column_with_hash_bucket(key: str, hash_bucket_size: int, dtype: DTypeLike = "string") -> HashedColumn:
    """Ids by hashing: the fingerprint of a string, or of an integer's digits, modulo the number of buckets.

    Args:
        key: the feature's name; strings or integers, sparse or dense (where "" and -1 stand for nothing).
        hash_bucket_size: how many ids there are, above 1.
        dtype: of the feature: string or an integer.

    Raises:
        ValueError: one bucket or none, or another dtype.
    """
    if hash_bucket_size is None or hash_bucket_size < 1:
        raise ValueError(f"hash_bucket_size must be at least 1. hash_bucket_size: {hash_bucket_size}, key: {key}")
    return HashedColumn(check_key(key), hash_bucket_size, _ids_dtype(dtype, key))


def _ids_dtype(dtype: DTypeLike, key: str) -> tf.DType:
    wanted = tf.as_dtype(dtype)
    if wanted != tf.string and not wanted.is_integer:
        raise ValueError(f"dtype must be string or integer. dtype: {wanted}, column_name: {key}")
    return wanted


# ---------------------------------------------------------------------- as they are
@dataclass(frozen=True)
class IdentityColumn(KeyedColumn):
    """See `categorical_column_with_identity`."""

    number_buckets: int
    default_value: int | None

    @property
    def num_buckets(self) -> int:
        return self.number_buckets

    def _ids_of(self, values: tf.Tensor) -> tf.Tensor:
        if not values.dtype.is_integer:
            raise ValueError(f"Invalid input, not integer. key: {self.key} dtype: {values.dtype}")
        ids = tf.cast(values, tf.int64)
        if self.default_value is None:
            below = tf.assert_less(
                ids,
                np.int64(self.number_buckets),
                message=f"feature {self.key}: id {'>='} {self.number_buckets} buckets",
            )
            negative = tf.assert_greater_equal(ids, np.int64(0), message=f"feature {self.key}: id < 0")
            with tf.control_dependencies([below, negative]):
                return tf.identity(ids)
        outside = tf.logical_or(ids < 0, ids >= self.number_buckets)
        return tf.where(outside, tf.fill(tf.shape(ids), np.int64(self.default_value)), ids)

    def _ids_where(self, stored: tf.Tensor, values: tf.Tensor) -> tf.Tensor:
        # -1 is no id that a check may find out of range
        return super()._ids_where(stored, tf.where(stored, values, tf.zeros_like(values)))


def categorical_column_with_identity(key: str, num_buckets: int, default_value: int | None = None) -> IdentityColumn:
    """Ids as they are.

    Args:
        key: the feature's name; integers, sparse or dense (where -1 stands for nothing).
        num_buckets: ids lie in [0, num_buckets).
        default_value: for ids outside; None: they are an error in the step (InvalidArgumentError).

    Raises:
        ValueError: no bucket, or a default outside.
    """
    if num_buckets < 1:
        raise ValueError(f"num_buckets {num_buckets} < 1, column_name {key}")
    if default_value is not None and not 0 <= default_value < num_buckets:
        raise ValueError(f"default_value {default_value} not in range [0, {num_buckets}), column_name {key}")
    return IdentityColumn(check_key(key), num_buckets, default_value)


# ---------------------------------------------------------------------- vocabularies
@dataclass(frozen=True)
class VocabularyListColumn(KeyedColumn):
    """See `categorical_column_with_vocabulary_list`."""

    vocabulary_list: tuple[str | bytes | int, ...]
    dtype: tf.DType
    default_value: int
    num_oov_buckets: int

    @property
    def stored_dtype(self) -> tf.DType:
        return self.dtype

    @property
    def num_buckets(self) -> int:
        return len(self.vocabulary_list) + self.num_oov_buckets

    def _ids_of(self, values: tf.Tensor) -> tf.Tensor:
        keys = _as_type_of_column(values, self.dtype, self.key)
        kind = tf.string if self.dtype == tf.string else tf.int64
        table = tf.contrib.lookup.index_table_from_tensor(
            tf.constant(list(self.vocabulary_list), kind),
            num_oov_buckets=self.num_oov_buckets,
            default_value=self.default_value,
            dtype=kind,
            name=f"{self.key}_lookup",
        )
        ids = table.lookup(keys)
        assert isinstance(ids, tf.Tensor)
        return ids


def categorical_column_with_vocabulary_list(
    key: str,
    vocabulary_list: Sequence[str | bytes | int],
    dtype: DTypeLike | None = None,
    default_value: int = -1,
    num_oov_buckets: int = 0,
) -> VocabularyListColumn:
    """Ids by position in a list.

    Args:
        key: the feature's name; sparse or dense (where "" and -1 stand for nothing).
        vocabulary_list: different strings, or different integers.
        dtype: of the feature; None: of the list.
        default_value: the id of other values; -1: they count as nothing.
        num_oov_buckets: how many ids after the vocabulary's other values are hashed to.

    Raises:
        ValueError: an empty list, a value twice, a dtype unlike the list's, or a default beside other buckets.
    """
    if vocabulary_list is None or len(vocabulary_list) < 1:
        raise ValueError(f"vocabulary_list {vocabulary_list!r} must be non-empty, column_name: {key}")
    if len(set(vocabulary_list)) != len(vocabulary_list):
        raise ValueError(f"Duplicate keys in vocabulary_list {vocabulary_list!r}, column_name: {key}")
    is_text = np.array(vocabulary_list).dtype.kind in "US"
    kind = _ids_dtype((tf.string if is_text else tf.int64) if dtype is None else dtype, key)
    if is_text != (kind == tf.string):
        raise ValueError(f"dtype {kind} and vocabulary dtype do not match, column_name: {key}")
    _check_others(default_value, num_oov_buckets, key)
    words = tuple(word if is_text else int(word) for word in vocabulary_list)
    return VocabularyListColumn(check_key(key), words, kind, default_value, num_oov_buckets)


def _check_others(default_value: int | None, num_oov_buckets: int, key: str) -> None:
    if num_oov_buckets < 0:
        raise ValueError(f"Invalid num_oov_buckets {num_oov_buckets} in {key}.")
    if num_oov_buckets and default_value not in {None, -1}:
        raise ValueError(f"Can't specify both num_oov_buckets and default_value in {key}.")


@dataclass(frozen=True)
class VocabularyFileColumn(KeyedColumn):
    """See `categorical_column_with_vocabulary_file`."""

    vocabulary_file: str
    vocabulary_size: int
    num_oov_buckets: int
    dtype: tf.DType
    default_value: int

    @property
    def stored_dtype(self) -> tf.DType:
        return self.dtype

    @property
    def num_buckets(self) -> int:
        return self.vocabulary_size + self.num_oov_buckets

    def _ids_of(self, values: tf.Tensor) -> tf.Tensor:
        keys = _as_type_of_column(values, self.dtype, self.key)
        table = tf.contrib.lookup.index_table_from_file(
            self.vocabulary_file,
            num_oov_buckets=self.num_oov_buckets,
            vocab_size=self.vocabulary_size,
            default_value=self.default_value,
            key_dtype=tf.string if self.dtype == tf.string else tf.int64,
            name=f"{self.key}_lookup",
        )
        ids = table.lookup(keys)
        assert isinstance(ids, tf.Tensor)
        return ids


def categorical_column_with_vocabulary_file(
    key: str,
    vocabulary_file: str | os.PathLike[str],
    vocabulary_size: int | None = None,
    num_oov_buckets: int = 0,
    default_value: int | None = None,
    dtype: DTypeLike = "string",
) -> VocabularyFileColumn:
    """Ids by line in a file.

    Args:
        key: the feature's name; sparse or dense (where "" and -1 stand for nothing).
        vocabulary_file: one value a line.
        vocabulary_size: how many lines count; None: all, which the file is read for now.
        num_oov_buckets: how many ids after the vocabulary's other values are hashed to.
        default_value: the id of other values; None: they count as nothing.
        dtype: of the feature: string or an integer.

    Raises:
        ValueError: no file, or numbers out of range, or a default beside other buckets.
    """
    path = os.fsdecode(vocabulary_file) if vocabulary_file else ""
    if not path:
        raise ValueError(f"Missing vocabulary_file in {key}.")
    if vocabulary_size is None:
        if not tf.gfile.Exists(path):
            raise ValueError(f"vocabulary_file in {key} does not exist: {path}")
        with tf.gfile.GFile(path, "rb") as lines:
            vocabulary_size = sum(1 for _ in lines)
    if vocabulary_size < 1:
        raise ValueError(f"Invalid vocabulary_size in {key}: {vocabulary_size}")
    _check_others(default_value, num_oov_buckets, key)
    default = -1 if default_value is None else default_value
    return VocabularyFileColumn(check_key(key), path, vocabulary_size, num_oov_buckets, _ids_dtype(dtype, key), default)


# ---------------------------------------------------------------------- weighted
@dataclass(frozen=True)
class WeightedCategoricalColumn(CategoricalColumn):
    """See `weighted_categorical_column`."""

    categorical_column: CategoricalColumn
    weight_feature_key: str
    dtype: tf.DType

    @property
    def name(self) -> str:
        return f"{self.categorical_column.name}_weighted_by_{self.weight_feature_key}"

    @property
    def parse_example_spec(self) -> ParseSpec:
        spec = self.categorical_column.parse_example_spec
        if self.weight_feature_key in spec:
            raise ValueError(
                f"Parse config {spec[self.weight_feature_key]} already exists for {self.weight_feature_key}."
            )
        return {**spec, self.weight_feature_key: tf.VarLenFeature(self.dtype)}

    @property
    def num_buckets(self) -> int:
        return self.categorical_column.num_buckets

    def transform_feature(self, transformed: Transformed) -> IdsAndWeights:
        weights = transformed.get(self.weight_feature_key)
        if not (weights.dtype.is_floating or weights.dtype.is_integer):
            raise ValueError(
                f"Bad dtype, expected {self.dtype}, but got {weights.dtype} for {self.weight_feature_key}."
            )
        sparse = as_sparse(weights, left_out=0)
        ids = self.categorical_column.get_sparse_tensors(transformed).id_tensor
        return IdsAndWeights(ids, map_values(sparse, lambda values: tf.cast(values, tf.float32)))

    def get_sparse_tensors(self, transformed: Transformed) -> IdsAndWeights:
        result: IdsAndWeights = transformed.get(self)
        return result


def weighted_categorical_column(
    categorical_column: CategoricalColumn, weight_feature_key: str, dtype: DTypeLike = "float32"
) -> WeightedCategoricalColumn:
    """Ids with weights from another feature, which has its elements at the same places.

    Args:
        categorical_column: of the ids.
        weight_feature_key: the name of the feature with the weights; sparse or dense (where 0 stands for nothing).
        dtype: of the weights.

    Raises:
        ValueError: a dtype that is none of numbers.
    """
    kind = tf.as_dtype(dtype)
    if not (kind.is_integer or kind.is_floating):
        raise ValueError(f"dtype {kind} is not convertible to float.")
    return WeightedCategoricalColumn(categorical_column, check_key(weight_feature_key), kind)
