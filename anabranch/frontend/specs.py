"""`TensorSpec`: the dtype and what is known of the shape of a tensor that does not exist yet."""

from __future__ import annotations

from typing import Any

from anabranch.core.dtypes import DType, DTypeLike, as_dtype, float32
from anabranch.core.shapes import ShapeLike, TensorShape
from anabranch.graph.operation import Tensor


class TensorSpec:
    """What a tensor must be: its dtype, its shape as far as it matters, and a name.

    Args:
        shape: default: anything.
        dtype: the element type.
    """

    __slots__ = ("__dict__", "_dtype", "_name", "_shape")

    def __init__(self, shape: ShapeLike | None = None, dtype: DTypeLike = float32, name: str | None = None) -> None:
        self._shape = TensorShape(shape)
        self._dtype = as_dtype(dtype)
        self._name = name

    @classmethod
    def from_spec(cls, spec: TensorSpec, name: str | None = None) -> TensorSpec:
        """The spec with the shape and dtype of another one."""
        return cls(spec.shape, spec.dtype, name or spec.name)

    @classmethod
    def from_tensor(cls, tensor: Tensor, name: str | None = None) -> TensorSpec:
        """The spec that a tensor meets; named after the operation that makes it."""
        return cls(tensor.shape, tensor.dtype, name or tensor.op.name)

    @property
    def shape(self) -> TensorShape:
        return self._shape

    @property
    def dtype(self) -> DType:
        return self._dtype

    @property
    def name(self) -> str | None:
        return self._name

    def is_compatible_with(self, spec_or_tensor: TensorSpec | Tensor) -> bool:
        """Whether a tensor, or one that meets another spec, can meet this one."""
        dtype = as_dtype(spec_or_tensor.dtype)
        return self._dtype.is_compatible_with(dtype) and self._shape.is_compatible_with(spec_or_tensor.shape)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TensorSpec) and self._parts() == other._parts()

    def __hash__(self) -> int:
        return hash(self._parts())

    def _parts(self) -> tuple[Any, ...]:
        return self._shape.dims_tuple, self._dtype, self._name

    def __reduce__(self) -> Any:
        return TensorSpec, (None if self._shape.ndims is None else self._shape.as_list(), self._dtype.name, self._name)

    def __repr__(self) -> str:
        return f"TensorSpec(shape={self._shape}, dtype={self._dtype!r}, name={self._name!r})"
