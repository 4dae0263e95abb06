"""`tf.RaggedTensorSpec`: what a ragged tensor that does not exist yet has to be."""

from __future__ import annotations

from typing import Any

from anabranch.core.dtypes import DType, DTypeLike, as_dtype, float32, int64
from anabranch.core.shapes import ShapeLike, TensorShape
from anabranch.frontend.ragged.tensor import RaggedTensor
from anabranch.frontend.ragged.values import RaggedTensorValue
from anabranch.frontend.specs import TypeSpec, register_spec_maker
from anabranch.graph.operation import Tensor


class RaggedTensorSpec(TypeSpec):
    """What a `tf.RaggedTensor` must be.

    Args:
        shape: its shape, with None for ragged dimensions; default: anything.
        dtype: of its values.
        ragged_rank: the number of its ragged dimensions; default: all dimensions of `shape` but the first.
        row_splits_dtype: int32 or int64.

    Raises:
        ValueError: neither `ragged_rank` nor the rank of `shape` is given, or they do not go together.
        TypeError: `ragged_rank` is no integer.
    """

    def __init__(
        self,
        shape: ShapeLike | None = None,
        dtype: DTypeLike = float32,
        ragged_rank: int | None = None,
        row_splits_dtype: DTypeLike = int64,
    ) -> None:
        self._shape = TensorShape(shape)
        self._dtypes = as_dtype(dtype), as_dtype(row_splits_dtype)
        rank = self._shape.ndims
        if ragged_rank is None:
            if rank is None:
                raise ValueError("Must specify ragged_rank or a shape with a known rank.")
            ragged_rank = rank - 1
        if not isinstance(ragged_rank, int):
            raise TypeError(f"ragged_rank must be an int, got {ragged_rank!r}")
        if rank is not None and ragged_rank >= rank:
            raise ValueError(f"ragged_rank must be less than rank, got {ragged_rank} and the shape {self._shape}")
        self._ragged_rank = ragged_rank

    @classmethod
    def from_value(cls, value: RaggedTensor | RaggedTensorValue) -> RaggedTensorSpec:
        """The spec that a symbolic or fetched ragged tensor meets."""
        return cls(value.shape, as_dtype(value.dtype), value.ragged_rank, as_dtype(value.row_splits.dtype))

    @property
    def value_type(self) -> type:
        """The Python type of the values."""
        return RaggedTensor if self._ragged_rank > 0 else Tensor

    @property
    def shape(self) -> TensorShape:
        return self._shape

    @property
    def dtype(self) -> DType:
        return self._dtypes[0]

    @property
    def ragged_rank(self) -> int:
        """The number of ragged dimensions."""
        return self._ragged_rank

    @property
    def row_splits_dtype(self) -> DType:
        """The dtype of the splits."""
        return self._dtypes[1]

    def parts(self) -> tuple[Any, ...]:
        """The arguments of the class."""
        return self._shape, self._dtypes[0], self._ragged_rank, self._dtypes[1]


register_spec_maker(RaggedTensor, RaggedTensorSpec.from_value)
register_spec_maker(RaggedTensorValue, RaggedTensorSpec.from_value)
