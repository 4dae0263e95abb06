"""What the methods of ragged tensors are given: checks of it, and conversions."""

from __future__ import annotations

from typing import Any

import numpy as np

from anabranch.core.dtypes import DType
from anabranch.core.shapes import TensorShape
from anabranch.frontend.ragged.partitions import zero_and
from anabranch.graph.constants import constant_value
from anabranch.graph.operation import Tensor
from anabranch.ops import raw


def check_flag(validate: object) -> None:
    if not isinstance(validate, bool):
        raise TypeError("validate must have type bool")


def check_list(parts: object, name: str) -> None:
    if isinstance(parts, Tensor):
        raise TypeError(f"{name} must be a list of Tensors")


def check_fills(default: TensorShape, inner: TensorShape) -> None:
    """Raises ValueError unless a shape broadcasts to that of an inner value, as far as both are known."""
    pairs = zip((default.dims_tuple or ())[::-1], (inner.dims_tuple or ())[::-1], strict=False)
    if any(None not in (own, wanted) and own not in (1, wanted) for own, wanted in pairs):
        raise ValueError(f"Shapes {default} and {inner} are incompatible: default_value must broadcast to a value")


def check_row_count(rows: Tensor, rowids: Tensor) -> None:
    """Raises ValueError where constants show that there are too few rows."""
    count, numbers = constant_value(rows), constant_value(rowids)
    if count is None:
        return
    if count < 0:
        raise ValueError(f"Expected nrows >= 0; got {int(count)}")
    if numbers is not None and numbers.size and count <= numbers[-1]:
        raise ValueError(
            f"Expected nrows >= value_rowids[-1] + 1; got nrows={int(count)}, value_rowids[-1]={int(numbers[-1])}"
        )


def cast(tensor: Tensor, dtype: DType) -> Tensor:
    converted: Tensor = tensor if tensor.dtype.base_dtype is dtype else raw.Cast(tensor, DstT=dtype)
    return converted


def longest(lengths: Tensor, dtype: DType) -> Any:
    zero = np.zeros((), lengths.dtype.as_numpy_dtype)
    return cast(raw.Max(zero_and(raw.Maximum(lengths, zero)), [0]), dtype)
