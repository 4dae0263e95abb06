"""Columns of real numbers, and of the intervals that they fall into."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np

import anabranch as tf
from anabranch.contrib.arguments import DTypeLike, TensorLike
from anabranch.feature_column.columns import (
    CategoricalColumn,
    DenseColumn,
    IdsAndWeights,
    ParseSpec,
    Transformed,
    check_key,
)


@dataclass(frozen=True)
class NumericColumn(DenseColumn):
    """See `numeric_column`."""

    key: str
    shape: tuple[int, ...]
    default_value: tuple[float, ...] | None
    dtype: tf.DType
    normalizer_fn: Callable[[tf.Tensor], tf.Tensor] | None

    @property
    def name(self) -> str:
        return self.key

    @property
    def parse_example_spec(self) -> ParseSpec:
        return {self.key: tf.FixedLenFeature(self.shape, self.dtype, self.default_value)}

    @property
    def variable_shape(self) -> tf.TensorShape:
        return tf.TensorShape(self.shape)

    def transform_feature(self, transformed: Transformed) -> tf.Tensor:
        feature = transformed.get(self.key)
        if isinstance(feature, tf.SparseTensor):
            raise ValueError(f"The corresponding Tensor of numerical column must be a Tensor. Key: {self.key}.")
        if self.normalizer_fn is not None:
            feature = self.normalizer_fn(feature)
        result: tf.Tensor = tf.cast(feature, tf.float32)
        return result

    def get_dense_tensor(self, transformed: Transformed, trainable: bool = True) -> tf.Tensor:
        result: tf.Tensor = transformed.get(self)
        return result


def numeric_column(
    key: str,
    shape: int | Iterable[int] = (1,),
    default_value: TensorLike = None,
    dtype: DTypeLike = "float32",
    normalizer_fn: Callable[[tf.Tensor], tf.Tensor] | None = None,
) -> NumericColumn:
    """Real numbers, as they are.

    Args:
        key: the feature's name; dense, [batch] + shape.
        shape: of one example.
        default_value: for records that lack the feature, when it is parsed: a number, or one for each element.
        dtype: of the stored feature, integer or floating.
        normalizer_fn: applied to the feature; the result is cast to float32.

    Raises:
        ValueError: the shape or the dtype is none for numbers.
        TypeError: a default is no number, or defaults do not fit the shape.
    """
    dims = (shape,) if isinstance(shape, int) else tuple(shape)
    for size in dims:
        if not isinstance(size, int | np.integer):
            raise TypeError(f"shape dimensions must be integer. shape: {shape}, key: {key}")
        if size <= 0:
            raise ValueError(f"shape dimensions must be greater than 0. shape: {shape}, key: {key}")
    stored = tf.as_dtype(dtype)
    if not (stored.is_integer or stored.is_floating):
        raise ValueError(f"dtype must be convertible to float. dtype: {stored}, key: {key}")
    if normalizer_fn is not None and not callable(normalizer_fn):
        raise TypeError(f"normalizer_fn must be a callable. Given: {normalizer_fn}")
    defaults = _defaults(default_value, dims, stored, key)
    return NumericColumn(check_key(key), tuple(int(size) for size in dims), defaults, stored, normalizer_fn)


def _defaults(value: TensorLike, shape: tuple[int, ...], dtype: tf.DType, key: str) -> tuple[float, ...] | None:
    if value is None:
        return None
    given = np.asarray(value)
    if given.dtype.kind not in "iuf" or (dtype.is_integer and given.dtype.kind == "f"):
        raise TypeError(f"default_value must be compatible with dtype {dtype}. default_value: {value}, key: {key}")
    if given.ndim and given.shape != shape:
        raise ValueError(
            f"The shape of default_value must be equal to shape {shape}. default_value: {value}, key: {key}"
        )
    numbers: list[float] = np.broadcast_to(given, shape).astype(dtype.as_numpy_dtype).reshape(-1).tolist()
    return tuple(numbers)


@dataclass(frozen=True)
class BucketizedColumn(DenseColumn, CategoricalColumn):
    """See `bucketized_column`."""

    source_column: NumericColumn
    boundaries: tuple[float, ...]

    @property
    def name(self) -> str:
        return f"{self.source_column.name}_bucketized"

    @property
    def parse_example_spec(self) -> ParseSpec:
        return self.source_column.parse_example_spec

    @property
    def variable_shape(self) -> tf.TensorShape:
        return tf.TensorShape([*self.source_column.shape, len(self.boundaries) + 1])

    @property
    def num_buckets(self) -> int:
        return (len(self.boundaries) + 1) * self.source_column.shape[0]

    def transform_feature(self, transformed: Transformed) -> tf.Tensor:
        source = transformed.get(self.source_column)
        result: tf.Tensor = tf.raw_ops.Bucketize(input=source, boundaries=list(self.boundaries))
        return result

    def get_dense_tensor(self, transformed: Transformed, trainable: bool = True) -> tf.Tensor:
        return tf.one_hot(tf.cast(transformed.get(self), tf.int64), len(self.boundaries) + 1)

    def get_sparse_tensors(self, transformed: Transformed) -> IdsAndWeights:
        ids = transformed.dense_ids(self)
        assert ids is not None
        batch, width = tf.shape(ids)[0], self.source_column.shape[0]
        rows = tf.reshape(tf.tile(tf.expand_dims(tf.range(batch), 1), [1, width]), [-1])
        columns = tf.tile(tf.range(width), [batch])
        indices = tf.cast(tf.stack([rows, columns], 1), tf.int64)
        shape = tf.cast(tf.stack([batch, width]), tf.int64)
        return IdsAndWeights(tf.SparseTensor(indices, tf.reshape(ids, [-1]), shape), None)

    def get_dense_ids(self, transformed: Transformed) -> tf.Tensor:
        # element i of an example has the ids from i * (number of intervals) on
        width, intervals = self.source_column.shape[0], len(self.boundaries) + 1
        buckets = tf.reshape(tf.cast(transformed.get(self), tf.int64), [-1, width])
        return buckets + np.arange(width, dtype=np.int64) * intervals


def bucketized_column(source_column: NumericColumn, boundaries: Sequence[float]) -> BucketizedColumn:
    """The interval that a number falls into: one-hot as a dense column, its number as a categorical one.

    Args:
        source_column: made by `numeric_column`, of one dimension at most.
        boundaries: ascending. n boundaries make n + 1 intervals; each includes its left boundary.

    Raises:
        ValueError: the source is no such column, or the boundaries do not ascend.
    """
    if not isinstance(source_column, NumericColumn):
        raise ValueError(f"source_column must be a column generated with numeric_column(). Given: {source_column}")
    if len(source_column.shape) > 1:
        raise ValueError(f"source_column must be one-dimensional column. Given: {source_column}")
    if not boundaries or any(not isinstance(b, int | float | np.number) or math.isnan(b) for b in boundaries):
        raise ValueError(f"boundaries must be a sorted list of numbers, got {boundaries}")
    if any(left >= right for left, right in itertools.pairwise(boundaries)):
        raise ValueError(f"boundaries must be a sorted list, got {boundaries}")
    return BucketizedColumn(source_column, tuple(float(b) for b in boundaries))
