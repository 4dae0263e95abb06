"""`RaggedTensorValue`: what a fetched ragged tensor is."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np

from anabranch.core.arrays import HostArray
from anabranch.core.values import TensorLike


class RaggedTensorValue:
    """A fetched or fed `RaggedTensor`: arrays in place of tensors.

    Args:
        values: an array, or a RaggedTensorValue of one dimension less.
        row_splits: a vector of int32 or int64: row i is `values[row_splits[i]:row_splits[i + 1]]`.

    Raises:
        TypeError: `row_splits` is no vector of these dtypes, or the splits of the values have another dtype.

    Example:
        >>> sess.run(tf.ragged.constant([[1, 2], [], [3]])).to_list()
        [[1, 2], [], [3]]
    """

    def __init__(self, values: TensorLike, row_splits: TensorLike) -> None:
        if not (isinstance(row_splits, np.ndarray | np.generic) and row_splits.dtype in (np.int64, np.int32)):
            raise TypeError(f"row_splits must be a 1D int32 or int64 numpy array, got {row_splits!r}")
        if not isinstance(values, np.ndarray | np.generic | RaggedTensorValue):
            raise TypeError(f"values must be a numpy array or a RaggedTensorValue, got {values!r}")
        if isinstance(values, RaggedTensorValue) and row_splits.dtype != values.row_splits.dtype:
            raise TypeError(
                f"row_splits and values.row_splits must have the same dtype, got {row_splits.dtype} and "
                f"{values.row_splits.dtype}"
            )
        self._values: Any = values
        self._row_splits: Any = row_splits

    @property
    def row_splits(self) -> HostArray:
        splits: HostArray = self._row_splits
        return splits

    @property
    def values(self) -> HostArray | RaggedTensorValue:
        values: HostArray | RaggedTensorValue = self._values
        return values

    @property
    def dtype(self) -> np.dtype[Any]:
        """The dtype of the innermost values."""
        dtype: np.dtype[Any] = self._values.dtype
        return dtype

    @property
    def flat_values(self) -> HostArray:
        """The innermost values, an array."""
        values = self._values
        while isinstance(values, RaggedTensorValue):
            values = values.values
        flat: HostArray = values
        return flat

    @property
    def nested_row_splits(self) -> tuple[Any, ...]:
        """The splits of all ragged dimensions, the outermost first."""
        splits, values = [self._row_splits], self._values
        while isinstance(values, RaggedTensorValue):
            splits.append(values.row_splits)
            values = values.values
        return tuple(splits)

    @property
    def ragged_rank(self) -> int:
        return len(self.nested_row_splits)

    @property
    def shape(self) -> tuple[int | None, ...]:
        """The sizes of the dimensions; None for ragged ones."""
        return (self._row_splits.size - 1, None, *self._values.shape[1:])

    def to_list(self) -> list[Any]:
        """The rows as nested lists of Python values."""
        values = self._values.to_list() if isinstance(self._values, RaggedTensorValue) else self._values.tolist()
        cuts = self._row_splits.tolist()
        return [values[start:limit] for start, limit in itertools.pairwise(cuts)]

    def __str__(self) -> str:
        return f"<tf.RaggedTensorValue {self.to_list()}>"

    def __repr__(self) -> str:
        return f"tf.RaggedTensorValue(values={self._values!r}, row_splits={self._row_splits!r})"


def ragged_value(parts: Sequence[Any]) -> Any:
    """Arrays of flat values and nested splits as a RaggedTensorValue."""
    value = parts[0]
    for splits in reversed(parts[1:]):
        value = RaggedTensorValue(value, splits)
    return value
