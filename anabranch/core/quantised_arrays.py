"""Arrays of quantised numbers: on the host NumPy's records of one field, in compiled programs plain integers.

The record says which of two dtypes with the same integers is meant; XLA knows no records. Both are the same bytes, so
that going from one to the other copies nothing.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from anabranch.core.arrays import Array, HostArray
from anabranch.core.dtypes import DType, as_dtype
from anabranch.core.values import TensorValue


def plain_type(dtype: DType) -> np.dtype[Any]:
    """The type of the integers that a quantised dtype holds; that of another dtype itself."""
    return np.dtype(dtype.name[1:]) if dtype.is_quantized else np.dtype(dtype.as_numpy_dtype)


def as_integers(x: TensorValue) -> Any:
    """The integers that an array of records holds; another array, and one of a device, as it is."""
    if not isinstance(x, np.ndarray | np.generic) or not x.dtype.fields:
        return x
    return np.ascontiguousarray(x).view(plain_type(as_dtype(x.dtype))).reshape(x.shape)


def as_records(integers: Array, dtype: DType) -> HostArray:
    """The records of a quantised dtype that hold these integers, which have its plain type."""
    array = np.ascontiguousarray(integers)
    return array if array.dtype.fields else array.view(dtype.as_numpy_dtype).reshape(np.shape(integers))
