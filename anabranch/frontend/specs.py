"""Specs: what a value that does not exist yet has to be. Its type, its dtype, and its shape as far as it matters."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from anabranch.core.dtypes import DType, DTypeLike, as_dtype, float32, int64, variant
from anabranch.core.shapes import ShapeLike, TensorShape
from anabranch.core.values import PassedOn, TensorLike
from anabranch.graph.composite import IndexedSlices, SparseTensor, SparseTensorValue, sparse_shape
from anabranch.graph.conversion import convert_to_tensor
from anabranch.graph.operation import Tensor
from anabranch.ops import raw


class TypeSpec(ABC):
    """What a value must be. The base of `tf.TensorSpec`, `tf.RaggedTensorSpec` and their like.

    A spec is made of parts: dtypes, shapes, numbers, other specs, and tuples and dicts of these. Two specs are equal
    where their parts are, compatible where their parts are.
    """

    __slots__ = ("__dict__",)

    @property
    @abstractmethod
    def value_type(self) -> type:
        """The Python type of the values."""

    @abstractmethod
    def parts(self) -> tuple[Any, ...]:
        """What the spec is made of: the arguments of its class."""

    def is_compatible_with(self, spec_or_value: PassedOn) -> bool:
        """Whether a value, or one that meets another spec, can meet this one.

        Raises:
            TypeError: there is no spec for such a value.
        """
        other = spec_or_value if isinstance(spec_or_value, TypeSpec) else type_spec_from_value(spec_or_value)
        return type(self) is type(other) and _compatible(self.parts(), other.parts())

    def most_specific_compatible_type(self, other: TypeSpec) -> TypeSpec:
        """The spec that says all that holds of the values of both.

        Raises:
            ValueError: they are of different types, or differ in what no spec leaves open.
        """
        if type(self) is not type(other):
            raise ValueError(f"No TypeSpec is compatible with both {self} and {other}")
        merged: TypeSpec = type(self)(*_merged(self.parts(), other.parts()))
        return merged

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and isinstance(other, TypeSpec) and self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())

    def _key(self) -> Any:
        return _hashable(self.parts())

    def __reduce__(self) -> Any:
        return type(self), tuple(_reducible(part) for part in self.parts())

    def __repr__(self) -> str:
        return f"{type(self).__name__}{self.parts()!r}"


def _reducible(part: TensorLike) -> Any:
    if isinstance(part, TensorShape):
        return None if part.ndims is None else part.as_list()
    return part.name if isinstance(part, DType) else part


def _hashable(part: TensorLike) -> Any:
    if isinstance(part, TensorShape):
        return TensorShape, part.dims_tuple
    if isinstance(part, Mapping):
        return tuple((key, _hashable(part[key])) for key in sorted(part))
    if isinstance(part, list | tuple):
        return tuple(_hashable(item) for item in part)
    return part


def _compatible(a: TensorLike, b: TensorLike) -> bool:
    if type(a) is not type(b):
        return False
    if isinstance(a, list | tuple):
        return len(a) == len(b) and all(_compatible(x, y) for x, y in zip(a, b, strict=True))
    if isinstance(a, Mapping):
        return a.keys() == b.keys() and all(_compatible(a[key], b[key]) for key in a)
    if isinstance(a, TypeSpec | TensorShape | DType):
        return a.is_compatible_with(b)
    return bool(a == b)


def _merged(a: TensorLike, b: TensorLike) -> Any:
    if type(a) is type(b):
        if isinstance(a, tuple) and len(a) == len(b):
            merged = [_merged(x, y) for x, y in zip(a, b, strict=True)]
            return type(a)(*merged) if hasattr(a, "_fields") else tuple(merged)
        if isinstance(a, Mapping) and a.keys() == b.keys():
            return {key: _merged(a[key], b[key]) for key in a}
        if isinstance(a, TensorShape):
            return a.most_specific_compatible_shape(b)
        if isinstance(a, TypeSpec):
            return a.most_specific_compatible_type(b)
        if a == b:
            return a
    raise ValueError(f"Types are not compatible: {a!r} vs {b!r}")


# ---------------------------------------------------------------------- from values
_makers: list[tuple[type, Callable[[Any], TypeSpec]]] = []


def register_spec_maker(cls: type, make: Callable[[Any], TypeSpec]) -> None:
    """Lets `type_spec_from_value` make specs of the values of a type."""
    _makers.insert(0, (cls, make))


def type_spec_from_value(value: PassedOn) -> TypeSpec:
    """The spec that a value meets.

    Raises:
        TypeError: the value is nothing that there are specs of.
    """
    for cls, make in _makers:
        if isinstance(value, cls):
            return make(value)
    try:
        tensor = convert_to_tensor(value)
    except (TypeError, ValueError):
        raise TypeError(f"Could not build a TypeSpec for {value!r} with type {type(value).__name__}") from None
    return TensorSpec(tensor.shape, tensor.dtype)


# ---------------------------------------------------------------------- the specs
class TensorSpec(TypeSpec):
    """What a tensor must be: its dtype, its shape as far as it matters, and a name.

    Args:
        shape: default: anything.
        dtype: the element type.
    """

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
    def value_type(self) -> type:
        """The Python type of the values."""
        return Tensor

    @property
    def shape(self) -> TensorShape:
        return self._shape

    @property
    def dtype(self) -> DType:
        return self._dtype

    @property
    def name(self) -> str | None:
        return self._name

    def is_compatible_with(self, spec_or_tensor: PassedOn) -> bool:
        """Whether a tensor, or one that meets another spec, can meet this one."""
        if isinstance(spec_or_tensor, TypeSpec) and not isinstance(spec_or_tensor, TensorSpec):
            return False
        dtype = as_dtype(spec_or_tensor.dtype)
        return self._dtype.is_compatible_with(dtype) and self._shape.is_compatible_with(spec_or_tensor.shape)

    def most_specific_compatible_type(self, other: TypeSpec) -> TensorSpec:
        """The spec that says all that holds of the tensors of both; without a name where the names differ.

        Raises:
            ValueError: the other one is no `TensorSpec`, or has another dtype.
        """
        if not isinstance(other, TensorSpec) or self._dtype != other.dtype:
            raise ValueError(f"Types are not compatible: {self!r} vs {other!r}")
        shape = self._shape.most_specific_compatible_shape(other.shape)
        return TensorSpec(shape, self._dtype, self._name if self._name == other.name else None)

    def parts(self) -> tuple[Any, ...]:
        """The shape, the dtype and the name."""
        return self._shape, self._dtype, self._name

    def __repr__(self) -> str:
        return f"TensorSpec(shape={self._shape}, dtype={self._dtype!r}, name={self._name!r})"


class SparseTensorSpec(TypeSpec):
    """What a `tf.SparseTensor` must be.

    Args:
        shape: its dense shape; default: anything.
        dtype: of its values.
    """

    def __init__(self, shape: ShapeLike | None = None, dtype: DTypeLike = float32) -> None:
        self._shape = TensorShape(shape)
        self._dtype = as_dtype(dtype)

    @classmethod
    def from_value(cls, value: SparseTensor | SparseTensorValue) -> SparseTensorSpec:
        """The spec that a symbolic or fetched sparse tensor meets; raises TypeError for anything else."""
        if not isinstance(value, SparseTensor | SparseTensorValue):
            raise TypeError(f"Expected SparseTensor or SparseTensorValue, got {value!r}")
        return cls(sparse_shape(value), SparseTensor.from_value(value).dtype)

    @property
    def value_type(self) -> type:
        """The Python type of the values."""
        return SparseTensor

    @property
    def shape(self) -> TensorShape:
        return self._shape

    @property
    def dtype(self) -> DType:
        return self._dtype

    def parts(self) -> tuple[Any, ...]:
        """The dense shape and the dtype."""
        return self._shape, self._dtype

    # ------------------------------------------------------------------ TensorFlow's protocol of specs
    _serialize = parts

    @property
    def _component_specs(self) -> list[TensorSpec]:
        """The specs of the indices, the values and the dense shape."""
        rank = self._shape.ndims
        return [TensorSpec([None, rank], int64), TensorSpec([None], self._dtype), TensorSpec([rank], int64)]

    def _to_components(self, value: SparseTensor | SparseTensorValue) -> list[Any]:
        return [value.indices, value.values, value.dense_shape]

    def _from_components(self, components: Sequence[Any]) -> SparseTensor | SparseTensorValue:
        """The sparse tensor of three tensors, or the value of three arrays."""
        if all(isinstance(part, np.ndarray) for part in components):
            return SparseTensorValue(*components)
        return SparseTensor(*components)

    @property
    def _flat_tensor_specs(self) -> list[TensorSpec]:
        """The spec of the one tensor of variants that stands for the sparse tensor in a dataset."""
        return [TensorSpec(None, variant)]

    def _to_tensor_list(self, value: SparseTensor | SparseTensorValue) -> list[Tensor]:
        sparse = SparseTensor.from_value(value)
        return [raw.SerializeSparse(sparse.indices, sparse.values, sparse.dense_shape, out_type=variant)]

    def _from_tensor_list(self, tensors: Sequence[Tensor]) -> SparseTensor:
        return SparseTensor(*raw.DeserializeSparse(tensors[0], dtype=self._dtype))

    def _batch(self, batch_size: int | None) -> SparseTensorSpec:
        return SparseTensorSpec(TensorShape([batch_size]).concatenate(self._shape), self._dtype)

    def _unbatch(self) -> SparseTensorSpec:
        if self._shape.ndims == 0:
            raise ValueError(f"{self!r} has no dimension of a batch")
        return SparseTensorSpec(self._shape[1:], self._dtype)


class IndexedSlicesSpec(TypeSpec):
    """What a `tf.IndexedSlices` must be.

    Args:
        shape: its dense shape; default: anything.
        dtype: of its values.
        indices_dtype: int32 or int64.
        dense_shape_dtype: int32 or int64, or None for slices that do not know their dense shape.
        indices_shape: a vector's: how many slices there are.

    Raises:
        ValueError: `indices_shape` is no vector's.
    """

    def __init__(
        self,
        shape: ShapeLike | None = None,
        dtype: DTypeLike = float32,
        indices_dtype: DTypeLike = int64,
        dense_shape_dtype: DTypeLike | None = None,
        indices_shape: ShapeLike | None = None,
    ) -> None:
        self._shape = TensorShape(shape)
        self._dtypes = as_dtype(dtype), as_dtype(indices_dtype)
        self._dense_shape_dtype = None if dense_shape_dtype is None else as_dtype(dense_shape_dtype)
        self._indices_shape = TensorShape(indices_shape).with_rank(1)

    @property
    def value_type(self) -> type:
        """The Python type of the values."""
        return IndexedSlices

    def parts(self) -> tuple[Any, ...]:
        """The arguments of the class."""
        return self._shape, *self._dtypes, self._dense_shape_dtype, self._indices_shape


def _of_slices(value: IndexedSlices) -> IndexedSlicesSpec:
    dense = None if value.dense_shape is None else value.dense_shape.dtype
    shape = value.values.shape[1:] if value.dense_shape is None else value.shape
    if value.dense_shape is None:
        shape = TensorShape([None]).concatenate(shape)
    return IndexedSlicesSpec(shape, value.dtype, value.indices.dtype, dense, value.indices.shape)


register_spec_maker(Tensor, lambda value: TensorSpec(value.shape, value.dtype))
register_spec_maker(SparseTensor, SparseTensorSpec.from_value)
register_spec_maker(SparseTensorValue, SparseTensorSpec.from_value)
register_spec_maker(IndexedSlices, _of_slices)
