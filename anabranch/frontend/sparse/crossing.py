"""Crosses of columns: every combination of their values, row by row."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from anabranch.core import dtypes
from anabranch.core.values import TensorLike
from anabranch.frontend.sparse.form import as_sparse_tensor
from anabranch.graph.composite import SparseTensor, SparseTensorValue
from anabranch.graph.conversion import convert_to_tensor
from anabranch.graph.operation import Tensor
from anabranch.ops import raw

#: what `SparseCross` starts its hashes with; as TensorFlow
_HASH_KEY: Final = 0xDECAFCAFFE


def sparse_cross(inputs: Sequence[TensorLike], name: str | None = None) -> SparseTensor:
    """Every combination of the values of several columns, row by row, as a string: "a_X_b".

    Args:
        inputs: matrices of one number of rows, strings or integers: tensors and sparse tensors.

    Returns:
        A sparse string matrix.

    Raises:
        TypeError: `inputs` is no list of tensors.

    Example:
        >>> sess.run(tf.sparse.cross([[["a"]], [["b", "c"]]])).values
        array([b'a_X_b', b'a_X_c'], dtype=object)
    """
    return _crossed(inputs, False, 0, None, name)


def sparse_cross_hashed(
    inputs: Sequence[TensorLike], num_buckets: int = 0, hash_key: int | None = None, name: str | None = None
) -> SparseTensor:
    """Every combination of the values of several columns, row by row, as a hash.

    Args:
        inputs: see `sparse_cross`.
        num_buckets: the hashes are taken modulo this number; 0: they are as large as they are.
        hash_key: what the hashes start with.

    Returns:
        A sparse int64 matrix.
    """
    return _crossed(inputs, True, num_buckets, hash_key, name)


def _crossed(
    inputs: Sequence[TensorLike], hashed: bool, num_buckets: int, hash_key: int | None, name: str | None
) -> SparseTensor:
    if not isinstance(inputs, list):
        raise TypeError("Inputs must be a list")
    if not all(isinstance(i, SparseTensor | SparseTensorValue | Tensor | np.ndarray | list) for i in inputs):
        raise TypeError("All inputs must be Tensor or SparseTensor.")
    sparse = [as_sparse_tensor(i) for i in inputs if isinstance(i, SparseTensor | SparseTensorValue)]
    dense = [convert_to_tensor(i) for i in inputs if not isinstance(i, SparseTensor | SparseTensorValue)]
    values = [_crossable(i.values) for i in sparse]
    dense = [_crossable(i) for i in dense]
    numbers = any(part.dtype is dtypes.int64 for part in [*values, *dense])
    parts = raw.SparseCross(
        [i.indices for i in sparse],
        values,
        [i.dense_shape for i in sparse],
        dense,
        hashed_output=hashed,
        num_buckets=num_buckets,
        hash_key=hash_key or _HASH_KEY,
        out_type=dtypes.int64 if hashed else dtypes.string,
        internal_type=dtypes.int64 if numbers else dtypes.string,
        name=name,
    )
    return SparseTensor(*parts)


def _crossable(tensor: Tensor) -> Tensor:
    """A tensor as strings or int64."""
    kept = tensor.dtype in (dtypes.string, dtypes.int64)
    result: Tensor = tensor if kept else raw.Cast(tensor, DstT=dtypes.int64)
    return result
