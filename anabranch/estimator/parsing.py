"""How `tf.io.parse_example` reads the features of a canned model beside its label and its weight."""

from __future__ import annotations

from collections.abc import Iterable

import anabranch as tf
from anabranch.contrib.arguments import DTypeLike, TensorLike
from anabranch.feature_column.columns import FeatureColumn, ParseSpec
from anabranch.feature_column.numeric import NumericColumn


def classifier_parse_example_spec(
    feature_columns: Iterable[FeatureColumn],
    label_key: str,
    label_dtype: DTypeLike = "int64",
    label_default: TensorLike = None,
    weight_column: str | NumericColumn | None = None,
) -> ParseSpec:
    """The features of columns, and one label for each record.

    Args:
        feature_columns: of the model.
        label_key: the label's name.
        label_dtype, label_default: of the label.
        weight_column: of an example's weight; None: all weigh the same.

    Raises:
        ValueError: the label or the weight is a feature of the columns.
    """
    label = tf.FixedLenFeature((1,), tf.as_dtype(label_dtype), label_default)
    return _with_label(feature_columns, label_key, label, weight_column)


def regressor_parse_example_spec(
    feature_columns: Iterable[FeatureColumn],
    label_key: str,
    label_dtype: DTypeLike = "float32",
    label_default: TensorLike = None,
    label_dimension: int = 1,
    weight_column: str | NumericColumn | None = None,
) -> ParseSpec:
    """The features of columns, and `label_dimension` numbers for each record; see `classifier_parse_example_spec`."""
    label = tf.FixedLenFeature((label_dimension,), tf.as_dtype(label_dtype), label_default)
    return _with_label(feature_columns, label_key, label, weight_column)


def _with_label(
    columns: Iterable[FeatureColumn], label_key: str, label: tf.FixedLenFeature, weight: str | NumericColumn | None
) -> ParseSpec:
    spec: ParseSpec = tf.feature_column.make_parse_example_spec(columns)
    if label_key in spec:
        raise ValueError(f"label should not be used as feature. label_key: {label_key}, features: {sorted(spec)}")
    spec[label_key] = label
    if weight is not None:
        column = tf.feature_column.numeric_column(weight) if isinstance(weight, str) else weight
        if column.key in spec:
            raise ValueError(f"weight_column should not be used as feature. weight_column: {column.key}")
        spec.update(column._parse_example_spec)
    return spec
