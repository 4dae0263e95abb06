"""Shapes of tensors for gradients: constants where the graph knows them, so that the tensor itself is not needed."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from anabranch.core.shapes import TensorShape
from anabranch.graph.operation import Tensor
from anabranch.ops import raw

#: the largest size that the vectors can hold; a tensor without elements may have a larger one
_LARGEST: Final = np.iinfo(np.int32).max


def full_shape(tensor: Tensor) -> Any:
    """The shape of a tensor, as an int32 vector."""
    if _is_known(tensor.shape):
        return np.array(tensor.shape.as_list(), np.int32)
    return raw.Shape(tensor)


def tail_shape(tensor: Tensor) -> Any:
    """The shape of the rows of a tensor, as an int32 vector."""
    rows = tensor.shape[1:]
    if _is_known(rows):
        return np.array(rows.as_list(), np.int32)
    return raw.StridedSlice(raw.Shape(tensor), [1], [0], [1], end_mask=1)


def _is_known(shape: TensorShape) -> bool:
    return all(size is not None and size <= _LARGEST for size in shape.as_list()) if shape.ndims is not None else False
