"""`BoundedTensorSpec`: what a tensor must be, with the least and the greatest value of its elements."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from anabranch.core.dtypes import DTypeLike, as_dtype
from anabranch.core.shapes import ShapeLike, TensorShape
from anabranch.frontend.specs import TensorSpec, TypeSpec


class BoundedTensorSpec(TensorSpec):
    """A `tf.TensorSpec` with bounds, such as those of what an agent may do.

    Args:
        shape, dtype, name: as in `tf.TensorSpec`.
        minimum, maximum: numbers, or arrays that broadcast to the shape; both belong to the range.

    Raises:
        ValueError: a bound is None or does not broadcast to the shape.
    """

    def __init__(
        self,
        shape: ShapeLike,
        dtype: DTypeLike,
        minimum: npt.ArrayLike,
        maximum: npt.ArrayLike,
        name: str | None = None,
    ) -> None:
        super().__init__(shape, dtype, name)
        self._minimum = self._bound("minimum", minimum)
        self._maximum = self._bound("maximum", maximum)

    @classmethod
    def from_spec(cls, spec: TensorSpec, name: str | None = None) -> BoundedTensorSpec:
        """A copy of a spec, also of one that has NumPy's dtypes; one without bounds gets those of its dtype."""
        dtype = as_dtype(spec.dtype)
        minimum = getattr(spec, "minimum", dtype.min)
        maximum = getattr(spec, "maximum", dtype.max)
        return cls(spec.shape, spec.dtype, minimum, maximum, name or spec.name)

    @property
    def minimum(self) -> npt.NDArray[Any]:
        """The least values, an array that cannot be written to."""
        return self._minimum

    @property
    def maximum(self) -> npt.NDArray[Any]:
        """The greatest values, an array that cannot be written to."""
        return self._maximum

    def most_specific_compatible_type(self, other: TypeSpec) -> TensorSpec:
        """The spec that says all that holds of the tensors of both; without bounds where these differ."""
        merged = super().most_specific_compatible_type(other)
        if not (isinstance(other, BoundedTensorSpec) and self._has_bounds_of(other)):
            return merged
        return BoundedTensorSpec(merged.shape, merged.dtype, self._minimum, self._maximum, merged.name)

    def parts(self) -> tuple[Any, ...]:
        """The shape, the dtype, the bounds and the name."""
        return self._shape, self._dtype, self._minimum, self._maximum, self._name

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, BoundedTensorSpec):
            return False
        alike = (self._shape.as_proto(), self._dtype, self._name) == (other.shape.as_proto(), other.dtype, other.name)
        return alike and self._has_bounds_of(other)

    def __hash__(self) -> int:
        return hash((str(self._shape), self._dtype))

    def __repr__(self) -> str:
        return (
            f"BoundedTensorSpec(shape={self._shape}, dtype={self._dtype!r}, name={self._name!r}, "
            f"minimum={self._minimum!r}, maximum={self._maximum!r})"
        )

    def _has_bounds_of(self, other: BoundedTensorSpec) -> bool:
        return np.array_equal(self._minimum, other.minimum) and np.array_equal(self._maximum, other.maximum)

    def _bound(self, which: str, value: npt.ArrayLike | None) -> npt.NDArray[Any]:
        if value is None:
            raise ValueError(f"{which} must be not None: give a number, or an array of shape {self._shape}")
        bound: npt.NDArray[Any] = np.array(value, dtype=self._dtype.as_numpy_dtype)
        if not _broadcasts(bound.shape, self._shape):
            raise ValueError(f"{which} is not compatible with shape: {bound.shape} does not broadcast to {self._shape}")
        bound.setflags(write=False)
        return bound


def _broadcasts(sizes: tuple[int, ...], shape: TensorShape) -> bool:
    """Whether an array can be repeated to fill a shape, as far as this is known."""
    if shape.ndims is None:
        return True
    known = shape.as_list()
    if len(sizes) > len(known):
        return False
    pairs = zip(reversed(sizes), reversed(known), strict=False)
    return all(size == 1 or length is None or size == length for size, length in pairs)
