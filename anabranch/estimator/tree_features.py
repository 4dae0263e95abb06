"""From columns to the features of boosted trees, each of which is the number of a bucket.

A bucketized column is one feature. A column of numbers is one feature for each of its elements, whose buckets are found
while the model is trained. An indicator column is one feature of two buckets for each of its ids: whether the example
has it.
"""

from __future__ import annotations

import abc
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import anabranch as tf
from anabranch.feature_column.columns import FeatureColumn, Features, Transformed
from anabranch.feature_column.embedding import IndicatorColumn
from anabranch.feature_column.numeric import BucketizedColumn, NumericColumn

#: whether an example has an id
_HAS_OR_NOT = 2


class _Part(abc.ABC):
    """One column."""

    #: what its features are called
    name: str
    #: how many features it is
    width: int

    @abc.abstractmethod
    def buckets(self, transformed: Transformed, boundaries: Sequence[tf.Tensor]) -> list[tf.Tensor]:
        """The buckets of its features, int32 [batch] each; `boundaries` are those of a column of numbers."""


class _Bucketized(_Part):
    width = 1

    def __init__(self, column: BucketizedColumn) -> None:
        if column.source_column.shape not in ((), (1,)):
            raise ValueError(
                f"For now, only supports features equivalent to rank 1 but column `{column.source_column.name}` got: "
                f"shape {column.source_column.shape}. Give the numeric_column itself, or one column for each number"
            )
        self._column, self.name, self.count = column, column.name, len(column.boundaries) + 1

    def buckets(self, transformed: Transformed, boundaries: Sequence[tf.Tensor]) -> list[tf.Tensor]:
        return [tf.squeeze(transformed.get(self._column), 1)]


class _Indicator(_Part):
    def __init__(self, column: IndicatorColumn) -> None:
        self._column, self.name = column, column.categorical_column.name
        self.width = column.categorical_column.num_buckets

    def buckets(self, transformed: Transformed, boundaries: Sequence[tf.Tensor]) -> list[tf.Tensor]:
        counts = transformed.get(self._column)
        if counts.shape.ndims is not None and counts.shape.ndims > 2:
            raise ValueError(
                f"Rank of indicator column must be no more than 2, but column `{self.name}` got: {counts.shape}"
            )
        # an id that occurs twice is there as one that occurs once
        return _columns_of(tf.clip_by_value(tf.cast(counts, tf.int32), 0, _HAS_OR_NOT - 1), self.width)


class _Numbers(_Part):
    def __init__(self, column: NumericColumn) -> None:
        if len(column.shape) > 1:
            raise ValueError(
                f"For now, we only support Dense column with rank of 1, but column `{column.name}` got: {column.shape}"
            )
        self._column, self.name = column, column.name
        self.width = column.shape[0] if column.shape else 1

    def values(self, transformed: Transformed) -> list[tf.Tensor]:
        """The numbers themselves, float32 [batch] for each feature."""
        return _columns_of(transformed.get(self._column), self.width)

    def buckets(self, transformed: Transformed, boundaries: Sequence[tf.Tensor]) -> list[tf.Tensor]:
        found: list[tf.Tensor] = tf.raw_ops.BoostedTreesBucketize(
            float_values=self.values(transformed), bucket_boundaries=list(boundaries)
        )
        return list(found)


def _columns_of(matrix: tf.Tensor, width: int) -> list[tf.Tensor]:
    columns: list[tf.Tensor] = tf.unstack(matrix, width, axis=1)
    return columns


def _part_of(column: FeatureColumn) -> _Bucketized | _Indicator | _Numbers:
    if isinstance(column, BucketizedColumn):
        return _Bucketized(column)
    if isinstance(column, IndicatorColumn):
        return _Indicator(column)
    if isinstance(column, NumericColumn):
        return _Numbers(column)
    name = getattr(column, "name", column)
    raise ValueError(
        f"Got unexpected feature column type {type(column).__name__} ({name}): boosted trees take numeric, bucketized "
        "and indicator columns; a categorical column must be wrapped by tf.feature_column.indicator_column"
    )


class FeatureGroup(NamedTuple):
    """Features of as many buckets, by their numbers."""

    buckets: int
    features: list[int]


class TreeFeatures:
    """The features of some columns, in the order of the columns' names.

    Args:
        feature_columns: numeric, bucketized and indicator columns.
        number_buckets: how many buckets a feature of numbers has.

    Raises:
        ValueError: there is none, or a column is of another kind or has several dimensions.
    """

    def __init__(self, feature_columns: Iterable[FeatureColumn], number_buckets: int) -> None:
        columns = list(feature_columns or ())
        if not columns:
            raise ValueError("feature_columns must not be empty.")
        self._parts = [_part_of(column) for column in columns]
        order = sorted(range(len(columns)), key=lambda i: columns[i].name)
        self._parts = [self._parts[i] for i in order]
        self.number_buckets = number_buckets
        #: the name of each feature's column
        self.names = [part.name for part in self._parts for _ in range(part.width)]

    @property
    def number_count(self) -> int:
        """How many features are numbers, whose buckets are found."""
        return sum(part.width for part in self._parts if isinstance(part, _Numbers))

    def groups(self) -> list[FeatureGroup]:
        """The features by how many buckets statistics have for them; bucketized columns have those of the largest."""
        bucketized = max([_HAS_OR_NOT, *(part.count for part in self._parts if isinstance(part, _Bucketized))])
        sizes = {_Bucketized: bucketized, _Indicator: _HAS_OR_NOT, _Numbers: self.number_buckets}
        found: dict[int, list[int]] = {}
        first = 0
        for part in self._parts:
            found.setdefault(sizes[type(part)], []).extend(range(first, first + part.width))
            first += part.width
        return [FeatureGroup(size, ids) for size, ids in found.items()]

    def numbers(self, features: Features) -> list[tf.Tensor]:
        """The features that are numbers, float32 [batch] each."""
        transformed = Transformed(features)
        return [v for part in self._parts if isinstance(part, _Numbers) for v in part.values(transformed)]

    def buckets(self, features: Features, boundaries: Sequence[tf.Tensor]) -> list[tf.Tensor]:
        """The buckets of all features, int32 [batch] each.

        Args:
            features: by name.
            boundaries: of the buckets of the features that are numbers, float32 [n] each.
        """
        transformed, left, found = Transformed(features), list(boundaries), list[tf.Tensor]()
        for part in self._parts:
            taken = part.width if isinstance(part, _Numbers) else 0
            found += part.buckets(transformed, left[:taken])
            left = left[taken:]
        return found
