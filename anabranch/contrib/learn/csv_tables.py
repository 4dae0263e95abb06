"""Tables of examples in files of comma-separated values, as `tf.contrib.learn.datasets.base` reads them."""

from __future__ import annotations

import csv
from typing import Any, NamedTuple

import numpy as np

import anabranch as tf
from anabranch.contrib.arguments import DTypeLike


class TableOfExamples(NamedTuple):
    """Examples and what is to be said of them; the `Dataset` of `tf.contrib.learn.datasets.base`.

    Attributes:
        data: [examples, features].
        target: [examples].
    """

    data: np.ndarray[Any, Any]
    target: np.ndarray[Any, Any]


def load_csv_with_header(
    filename: str, target_dtype: DTypeLike, features_dtype: DTypeLike, target_column: int = -1
) -> TableOfExamples:
    """A table whose first line says how many examples and features there are.

    Args:
        filename: of the file.
        target_dtype: NumPy's, of the target.
        features_dtype: NumPy's, of the features.
        target_column: which column is the target.

    Raises:
        ValueError: there are not so many examples or features.
    """
    header, *rows = _rows(filename)
    table = _table(rows, target_dtype, features_dtype, target_column)
    if table.data.shape != (int(header[0]), int(header[1])):
        raise ValueError(f"{filename} says that there are {header[0]} examples of {header[1]}, not {table.data.shape}")
    return table


def load_csv_without_header(
    filename: str, target_dtype: DTypeLike, features_dtype: DTypeLike, target_column: int = -1
) -> TableOfExamples:
    """A table that begins with its first example; see `load_csv_with_header`."""
    return _table(_rows(filename), target_dtype, features_dtype, target_column)


def _rows(filename: str) -> list[list[str]]:
    with tf.gfile.Open(filename) as file:
        return [row for row in csv.reader(file) if row]


def _table(
    rows: list[list[str]], target_dtype: DTypeLike, features_dtype: DTypeLike, target_column: int
) -> TableOfExamples:
    target = [row.pop(target_column) for row in rows]
    return TableOfExamples(np.array(rows, _numpy(features_dtype)), np.array(target, _numpy(target_dtype)))


def _numpy(dtype: DTypeLike) -> Any:
    return dtype.as_numpy_dtype if isinstance(dtype, tf.DType) else dtype
