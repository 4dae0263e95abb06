"""Elements of several components: what each may be, and how elements become batches and batches elements."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from anabranch.core.dtypes import DType
from anabranch.core.shapes import TensorShape, in_brackets
from anabranch.core.values import TensorValue
from anabranch.errors import InvalidArgumentError

Array = np.ndarray[Any, Any]
#: one array per component
Element = tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Components:
    """What the elements of an object are made of.

    Attributes:
        dtypes: one per component.
        shapes: one (perhaps partial) per component, or none at all: then elements may have any shape, and do not
            become batches.
        title: the object, in messages.
    """

    dtypes: tuple[DType, ...]
    shapes: tuple[TensorShape, ...]
    title: str

    def element(self, arrays: Sequence[Any]) -> Element:
        """One element, owned by nobody else.

        Raises:
            InvalidArgumentError: it is none of this object's.
        """
        self._check_types(arrays)
        for i, shape in enumerate(self.shapes):
            self._check_shape(i, arrays[i].shape, shape)
        return tuple([owned(a) for a in arrays])

    def elements(self, arrays: Sequence[Any]) -> list[Element]:
        """The elements that stand along the first dimension of arrays.

        Raises:
            InvalidArgumentError: they are none of this object's, or not equally many of each component.
        """
        self._check_types(arrays)
        for i, array in enumerate(arrays):
            if array.ndim == 0:
                raise InvalidArgumentError(
                    None,
                    None,
                    f"{self.title}: enqueue_many needs arrays whose first dimension counts the elements, but component "
                    f"{i} is a scalar; use enqueue for a single element",
                )
        count = arrays[0].shape[0] if arrays else 0
        for i, array in enumerate(arrays):
            if array.shape[0] != count:
                raise InvalidArgumentError(
                    None,
                    None,
                    "All input tensors must have the same size in the 0th dimension. "
                    f"Component {i} has {array.shape[0]}, and should have {count} ({self.title})",
                )
            if self.shapes and not _fits(array.shape[1:], self.shapes[i]):
                expected = TensorShape([count]).concatenate(self.shapes[i])
                raise self._mismatch(i, array.shape, expected)
        # whole arrays, so that their rows need not be copied one by one
        mine = [owned(a) for a in arrays]
        return list(zip(*([a[i, ...] for i in range(count)] for a in mine), strict=True))

    def _check_types(self, arrays: Sequence[Any]) -> None:
        if len(arrays) != len(self.dtypes):
            raise InvalidArgumentError(
                None,
                None,
                f"Wrong number of components in tuple for {self.title}. Expected {len(self.dtypes)}, got {len(arrays)}",
            )
        for i, dtype in enumerate(self.dtypes):
            array, expected = arrays[i], dtype.as_numpy_dtype
            # the class first, which is compared at once; comparing dtypes takes longer, and elements are many
            if array.dtype.type is not expected and array.dtype != expected:
                raise InvalidArgumentError(
                    None,
                    None,
                    f"Type mismatch in tuple component {i}. Expected {dtype.name}, got {array.dtype} ({self.title}); "
                    "cast it first",
                )

    def _check_shape(self, index: int, got: tuple[int, ...], expected: TensorShape) -> None:
        if not _fits(got, expected):
            raise self._mismatch(index, got, expected)

    def _mismatch(self, index: int, got: tuple[int, ...], expected: TensorShape) -> InvalidArgumentError:
        return InvalidArgumentError(
            None,
            None,
            f"Shape mismatch in tuple component {index}. Expected {in_brackets(expected.dims_tuple)}, got "
            f"{in_brackets(got)} "
            f"({self.title}); reshape the component, or declare the shape as it is",
        )

    def require_shapes(self, what: str) -> None:
        """Raises InvalidArgumentError unless elements can become a batch."""
        if not self.shapes or any(s.ndims is None for s in self.shapes):
            raise InvalidArgumentError(
                None,
                None,
                f"{self.title}: {what} require the components to have specified shapes; give `shapes` when you make it",
            )

    def batch(self, elements: Sequence[Element]) -> list[Array]:
        """The elements along a new first dimension; shapes must be known.

        Components of varying size are padded with zeros (empty strings) up to the largest in the batch.
        """
        return [_batch([e[i] for e in elements], dtype, self.shapes[i]) for i, dtype in enumerate(self.dtypes)]


def _batch(arrays: list[Any], dtype: DType, shape: TensorShape) -> Array:
    dims = shape.dims_tuple if shape.dims_tuple is not None else arrays[0].shape if arrays else ()
    if any(d is None for d in dims):
        dims = tuple(max((a.shape[k] for a in arrays), default=0) if d is None else d for k, d in enumerate(dims))
        result = np.zeros((len(arrays), *dims), dtype.as_numpy_dtype)
        # `zeros` fills an array of objects with the number 0, which is no string
        if result.dtype == np.object_:
            result[...] = b""
        for i, array in enumerate(arrays):
            window: Any = (i, *(slice(n) for n in array.shape))
            result[window] = array
        return result
    result = np.empty((len(arrays), *dims), dtype.as_numpy_dtype)
    for i, array in enumerate(arrays):
        # with an ellipsis, since an index alone would make an array of no dimensions itself the object at that place
        result[i, ...] = array
    return result


def _fits(got: tuple[int, ...], expected: TensorShape) -> bool:
    dims = expected.dims_tuple
    # most often all lengths are known and equal, and tuples compare at once
    if dims is None or got == dims:
        return True
    return len(got) == len(dims) and all(d is None or d == g for g, d in zip(got, dims, strict=True))


def owned(array: TensorValue) -> Any:
    """The array, or a copy where somebody else could change it: an element must stay what it was."""
    if array.flags.writeable or isinstance(array.base, np.ndarray):
        copied = array.copy()
        copied.flags.writeable = False
        return copied
    return array
