"""Columns of combinations: the ids of several columns or strings of several features, hashed together."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import anabranch as tf
from anabranch.feature_column.categorical import HashedColumn
from anabranch.feature_column.columns import CategoricalColumn, ParseSpec, Transformed

#: the hash that TensorFlow's crosses begin with
_HASH_KEY = 0xDECAFCAFFE


@dataclass(frozen=True)
class CrossedColumn(CategoricalColumn):
    """See `crossed_column`."""

    keys: tuple[str | CategoricalColumn, ...]
    hash_bucket_size: int
    hash_key: int | None

    @property
    def name(self) -> str:
        names = [key if isinstance(key, str) else key.name for key in self.leaves()]
        return "_X_".join(sorted(names))

    def leaves(self) -> Iterator[str | CategoricalColumn]:
        """The features and columns that are combined, those of crosses among them one by one."""
        for key in self.keys:
            if isinstance(key, CrossedColumn):
                yield from key.leaves()
            else:
                yield key

    @property
    def parse_example_spec(self) -> ParseSpec:
        spec: ParseSpec = {}
        for key in self.keys:
            spec.update({key: tf.VarLenFeature(tf.string)} if isinstance(key, str) else key.parse_example_spec)
        return spec

    @property
    def num_buckets(self) -> int:
        return self.hash_bucket_size

    def transform_feature(self, transformed: Transformed) -> tf.SparseTensor:
        parts = [_part(key, transformed) for key in self.leaves()]
        sparse = [part for part in parts if isinstance(part, tf.SparseTensor)]
        dense = [part for part in parts if not isinstance(part, tf.SparseTensor)]
        indices, values, shape = tf.raw_ops.SparseCross(
            indices=[part.indices for part in sparse],
            values=[_strings_or_int64(part.values) for part in sparse],
            shapes=[part.dense_shape for part in sparse],
            dense_inputs=[_strings_or_int64(part) for part in dense],
            hashed_output=True,
            num_buckets=self.hash_bucket_size,
            hash_key=_HASH_KEY if self.hash_key is None else self.hash_key,
            out_type=tf.int64,
            internal_type=tf.int64,
        )
        return tf.SparseTensor(indices, values, shape)


def _part(key: str | CategoricalColumn, transformed: Transformed) -> tf.Tensor | tf.SparseTensor:
    if isinstance(key, str):
        feature: tf.Tensor | tf.SparseTensor = transformed.get(key)
        return feature
    ids, weights = key.get_sparse_tensors(transformed)
    if weights is not None:
        raise ValueError(
            f"crossed_column does not support weight_tensor, but the given column populates it: {key.name}"
        )
    return ids


def _strings_or_int64(values: tf.Tensor) -> tf.Tensor:
    return values if values.dtype.base_dtype == tf.string else tf.cast(values, tf.int64)


def crossed_column(
    keys: Iterable[str | CategoricalColumn], hash_bucket_size: int, hash_key: int | None = None
) -> CrossedColumn:
    """Ids of the combinations of several features' values: a hash of the combination, modulo the number of buckets.

    Args:
        keys: two or more names of features of strings, or categorical columns (none that hashes: name its feature).
        hash_bucket_size: how many ids there are.
        hash_key: what the hash begins with; None: a constant.

    Raises:
        ValueError: fewer than two keys, one of another kind, or fewer than two buckets.
    """
    if not hash_bucket_size or hash_bucket_size < 1:
        raise ValueError(f"hash_bucket_size must be > 1. hash_bucket_size: {hash_bucket_size}")
    if isinstance(keys, str) or len(parts := tuple(keys)) < 2:
        raise ValueError(f"keys must be a list with length > 1. Given: {keys}")
    for key in parts:
        if not isinstance(key, str | CategoricalColumn):
            raise ValueError(
                f"Unsupported key type. All keys must be either string, or categorical column. Given: {key}"
            )
        if isinstance(key, HashedColumn):
            raise ValueError(
                f"categorical_column_with_hash_bucket is not supported for crossing; name its feature, "
                f"{key.key!r}, instead"
            )
    return CrossedColumn(parts, hash_bucket_size, hash_key)
