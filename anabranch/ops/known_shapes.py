"""Shapes of tensors for gradients: constants where the graph knows them, so that the tensor itself is not needed."""

from __future__ import annotations

from typing import Any

import numpy as np

from anabranch.graph.operation import Tensor
from anabranch.ops import raw


def full_shape(tensor: Tensor) -> Any:
    """The shape of a tensor, as an int32 vector."""
    if tensor.shape.is_fully_defined():
        return np.array(tensor.shape.as_list(), np.int32)
    return raw.Shape(tensor)


def tail_shape(tensor: Tensor) -> Any:
    """The shape of the rows of a tensor, as an int32 vector."""
    rows = tensor.shape[1:]
    if rows.is_fully_defined():
        return np.array(rows.as_list(), np.int32)
    return raw.StridedSlice(raw.Shape(tensor), [1], [0], [1], end_mask=1)
