"""Values that consist of several tensors, as the results of branches and as loop variables."""

from __future__ import annotations

from typing import Any

from anabranch.core.values import TensorLike
from anabranch.frontend.control_flow.tensor_array import TensorArray
from anabranch.frontend.ragged.tensor import RaggedTensor
from anabranch.graph.composite import IndexedSlices, SparseTensor
from anabranch.graph.conversion import convert_to_tensor
from anabranch.graph.operation import Tensor


def components(value: TensorLike) -> list[Tensor]:
    """The tensors that a value consists of; none of None."""
    if value is None:
        return []
    if isinstance(value, TensorArray):
        return [value.flow]
    if isinstance(value, SparseTensor):
        return [value.indices, value.values, value.dense_shape]
    if isinstance(value, IndexedSlices):
        return [value.values, value.indices, *([] if value.dense_shape is None else [value.dense_shape])]
    if isinstance(value, RaggedTensor):
        return [value.flat_values, *value.nested_row_splits]
    return [convert_to_tensor(value)]


def rebuilt(like: TensorLike, tensors: list[Tensor]) -> Any:
    """A value like `like` made of other tensors."""
    if like is None:
        return None
    if isinstance(like, TensorArray):
        return like.with_flow(tensors[0])
    if isinstance(like, SparseTensor):
        return SparseTensor(*tensors)
    if isinstance(like, IndexedSlices):
        return IndexedSlices(*tensors)
    if isinstance(like, RaggedTensor):
        return RaggedTensor.from_nested_row_splits(tensors[0], tensors[1:], validate=False)
    return tensors[0]
