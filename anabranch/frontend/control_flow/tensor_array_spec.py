"""`tf.TensorArraySpec`: what a tensor array that does not exist yet has to be."""

from __future__ import annotations

from typing import Any

from anabranch.core.dtypes import DTypeLike, as_dtype, float32
from anabranch.core.shapes import ShapeLike, TensorShape
from anabranch.core.values import PassedOn
from anabranch.frontend.control_flow.tensor_array import TensorArray
from anabranch.frontend.specs import TypeSpec, register_spec_maker, type_spec_from_value


class TensorArraySpec(TypeSpec):
    """What a `tf.TensorArray` must be.

    Args:
        element_shape: of each element; default: anything.
        dtype: of the elements.
        dynamic_size: whether the array can grow.
        infer_shape: whether all elements have the shape of the first.
    """

    def __init__(
        self,
        element_shape: ShapeLike | None = None,
        dtype: DTypeLike = float32,
        dynamic_size: bool = False,
        infer_shape: bool = True,
    ) -> None:
        self._element_shape = TensorShape(element_shape)
        self._dtype = as_dtype(dtype)
        self._dynamic_size = dynamic_size
        self._infer_shape = infer_shape

    @staticmethod
    def from_value(value: TensorArray) -> TensorArraySpec:
        """The spec that a tensor array meets; raises TypeError for anything else."""
        if not isinstance(value, TensorArray):
            raise TypeError(f"Expected value to be a TensorArray, but saw: {type(value)}")
        return TensorArraySpec(value.element_shape, value.dtype, value.dynamic_size, value.infer_shape)

    @property
    def value_type(self) -> type:
        """The Python type of the values."""
        return TensorArray

    def is_compatible_with(self, other: PassedOn) -> bool:
        """Whether an array, or one that meets another spec, can meet this one; `infer_shape` may differ."""
        spec = other if isinstance(other, TypeSpec) else type_spec_from_value(other)
        return (
            isinstance(spec, TensorArraySpec)
            and self._dtype.is_compatible_with(spec._dtype)
            and self._element_shape.is_compatible_with(spec._element_shape)
            and self._dynamic_size == spec._dynamic_size
        )

    def most_specific_compatible_type(self, other: TypeSpec) -> TensorArraySpec:
        """The spec that says all that holds of the arrays of both.

        Raises:
            ValueError: they are not compatible.
        """
        if not isinstance(other, TensorArraySpec) or not self.is_compatible_with(other):
            raise ValueError(f"Types are not compatible: {self!r} vs {other!r}")
        shape = self._element_shape.most_specific_compatible_shape(other._element_shape)
        return TensorArraySpec(shape, self._dtype, self._dynamic_size, self._infer_shape and other._infer_shape)

    def parts(self) -> tuple[Any, ...]:
        """The arguments of the class."""
        return self._element_shape, self._dtype, self._dynamic_size, self._infer_shape


register_spec_maker(TensorArray, TensorArraySpec.from_value)
