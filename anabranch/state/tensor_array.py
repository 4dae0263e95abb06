"""Tensor arrays with an identity: what loops of TensorFlow 1 write and read in place  (§3.4, WP4.5).

(`tf.TensorArray` of this package is a value; see `ops.lists.tensor_list`. These objects serve graphs that others
wrote.)
An array lives as long as the step that made it. The graph orders writes and reads by the *flow*, a number without
meaning that each of them takes and hands on.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NoReturn

import numpy as np

from anabranch.core.dtypes import DType
from anabranch.core.shapes import TensorShape
from anabranch.errors import InvalidArgumentError

Array = np.ndarray[Any, Any]

_UNKNOWN = TensorShape(None)


class _Element:
    """One place of an array; `shape` outlives the value."""

    __slots__ = ("cleared", "shape", "value")

    def __init__(self) -> None:
        self.value: Array | None = None
        self.shape: tuple[int, ...] | None = None
        self.cleared = False


class InPlaceTensorArray:
    """A list of tensors of one dtype, each written once.

    Args:
        size: number of elements.
        element_shape: what every element's shape must be compatible with.
        dynamic_size: whether writing behind the end makes the array longer.
        clear_after_read: whether a value can be read only once.
        adds_up: whether several writes to one place add up: so do gradients.
    """

    def __init__(
        self,
        name: str,
        dtype: DType,
        size: int,
        element_shape: TensorShape,
        dynamic_size: bool = False,
        clear_after_read: bool = True,
        adds_up: bool = False,
    ) -> None:
        if size < 0:
            raise InvalidArgumentError(None, None, f"Size should be >= 0, but TensorArray {name!r} is to have {size}")
        self.name, self.dtype, self.element_shape = name, dtype, element_shape
        self.dynamic_size, self.clear_after_read, self._adds_up = dynamic_size, clear_after_read, adds_up
        # no lock: what works on the array is quick host work, which the thread of its step runs (docs/decisions/0015)
        self._elements: list[_Element] | None = [_Element() for _ in range(size)]
        self._gradients: dict[tuple[bytes, tuple[int, ...]], InPlaceTensorArray] = {}

    def __len__(self) -> int:
        return len(self._places())

    def write(self, index: int, value: Array) -> None:
        """Puts a value at a place.

        Raises:
            InvalidArgumentError: the place is outside, or was written; or the value's dtype or shape is wrong.
        """
        self._check_value(index, value)
        element = self._grown(index)
        if element.value is not None and self._adds_up:
            if element.value.shape != value.shape:
                self._refuse(f"Could not add a value of shape {value.shape} to one of {element.shape} at {index}")
            # a new array: the value may be somebody's who has read or written it
            element.value = element.value + value
            return
        # written once: what was read and cleared was written as well
        if element.value is not None or element.cleared:
            self._refuse(f"Could not write to TensorArray index {index} because it has already been written to")
        element.value, element.shape = value, value.shape

    def read(self, index: int) -> Array:
        """The value at a place; zeros where nothing was written, if the shape is known.

        Raises:
            InvalidArgumentError: the place is outside, was read and cleared, or was not written.
        """
        places = self._places()
        if not 0 <= index < len(places):
            self._refuse(
                f"Tried to read from index {index} but array size is: {len(places)} (Trying to access element {index} "
                f"in a list with {len(places)} elements.)"
            )
        element = places[index]
        if element.cleared:
            self._refuse(f"Could not read index {index} twice because it was cleared after a previous read "
                         "(perhaps try setting clear_after_read = false?)")  # fmt: skip
        value = element.value
        if value is None:
            # nothing was added to this gradient, or nothing written
            return np.zeros(self._shape_of(index, element), self.dtype.as_numpy_dtype)
        if self.clear_after_read:
            element.value, element.cleared = None, True
        return value

    def gather(self, indices: Sequence[int], element_shape: TensorShape = _UNKNOWN) -> Array:
        """Values of one shape, one upon the other. [len(indices), ...]

        `element_shape` is what the reader knows of it, which matters where nothing is read.
        """
        if not len(indices):
            return np.zeros((0, *self._static_shape(element_shape)), self.dtype.as_numpy_dtype)
        values = [self.read(int(i)) for i in indices]
        if len({v.shape for v in values}) > 1:
            self._refuse(f"TensorArray has inconsistent shapes: {sorted({v.shape for v in values})}")
        return np.stack(values)

    def scatter(self, indices: Sequence[int], values: Array) -> None:
        """Writes row k of `values` to place `indices[k]`."""
        if len(values) != len(indices):
            self._refuse(f"Expected len(indices) == values.shape[0], but saw: {len(indices)} vs. {len(values)}")
        for index, value in zip(indices, values, strict=True):
            self.write(int(index), np.asarray(value))

    def split(self, values: Array, lengths: Sequence[int]) -> None:
        """Writes pieces of `values` along its first axis to places 0, 1, ..."""
        if sum(lengths) != len(values):
            self._refuse(
                f"Expected sum of lengths to be equal to values.shape[0], but sum of lengths is {sum(lengths)} and "
                f"value's shape is: {values.shape}"
            )
        if not self.dynamic_size and len(lengths) != len(self):
            self._refuse(f"the array's size is not equal to the size of lengths ({len(self)} vs. {len(lengths)})")
        ends = np.cumsum(np.asarray(lengths, np.int64))
        for index, (length, end) in enumerate(zip(lengths, ends, strict=True)):
            self.write(index, values[end - length : end])

    def concat(self, shape_except0: TensorShape = _UNKNOWN) -> tuple[Array, Array]:
        """All values one after the other along their first axis, and their lengths.

        `shape_except0` is what the reader knows of the other axes, which matters where there are no values.
        """
        values = [self.read(i) for i in range(len(self))]
        if not values:
            known = self.element_shape[1:].merge_with(shape_except0)
            return np.zeros((0, *self._sizes(known)), self.dtype.as_numpy_dtype), np.zeros(0, np.int64)
        if any(v.ndim == 0 or v.shape[1:] != values[0].shape[1:] for v in values):
            self._refuse(f"Concat saw inconsistent shapes: {[v.shape for v in values]}")
        return np.concatenate(values), np.array([len(v) for v in values], np.int64)

    def gradient(self, source: bytes, prefix: tuple[int, ...] = ()) -> InPlaceTensorArray:
        """The array of gradients of this one for a call of `gradients`; its size is fixed from now on.

        `prefix`: dimensions that its elements have before those of this array's.
        """
        gradients = self._gradients.get((source, prefix))
        if gradients is None:
            # the array of gradients has as many places, for good
            self.dynamic_size = False
            name = f"{self.name}@{source.decode()}"
            shape = TensorShape(prefix).concatenate(self.element_shape)
            gradients = InPlaceTensorArray(name, self.dtype, len(self), shape, adds_up=True)
            gradients.clear_after_read = False
            for mine, its in zip(self._places(), gradients._places(), strict=True):
                # a place that no gradient reaches reads as zeros of the forward value's shape, which may be gone
                # by then
                its.shape = None if mine.shape is None else (*prefix, *mine.shape)
            self._gradients[source, prefix] = gradients
        return gradients

    def close(self) -> None:
        """Gives the values up."""
        self._elements = None

    # ---- checks
    def _places(self) -> list[_Element]:
        if self._elements is None:
            self._refuse("it has already been closed")
        return self._elements

    def _grown(self, index: int) -> _Element:
        places = self._places()
        if index < 0 or (index >= len(places) and not self.dynamic_size):
            what = "" if index < 0 else "array is not resizeable and "
            self._refuse(
                f"Tried to write to index {index} but {what}size is: {len(places)} (Trying to modify element {index} "
                f"in a list with {len(places)} elements.)"
            )
        while index >= len(places):
            places.append(_Element())
        return places[index]

    def _check_value(self, index: int, value: Array) -> None:
        if value.dtype != self.dtype.as_numpy_dtype:
            self._refuse(f"it holds {self.dtype.name}, but the value for index {index} is {value.dtype}")
        if not self.element_shape.is_compatible_with(value.shape):
            self._refuse(
                f"Could not write to TensorArray index {index} because the value shape is {value.shape} which is "
                f"incompatible with the TensorArray's element shape: {self.element_shape}"
            )

    def _shape_of(self, index: int, element: _Element) -> tuple[int, ...]:
        if element.shape is not None:
            return element.shape
        if not self.element_shape.is_fully_defined():
            self._refuse(f"Could not read index {index}: it was not written, and the element shape is not known")
        return self._static_shape()

    def _static_shape(self, stated: TensorShape = _UNKNOWN) -> tuple[int, ...]:
        return self._sizes(self.element_shape.merge_with(stated))

    def _sizes(self, known: TensorShape) -> tuple[int, ...]:
        if not known.is_fully_defined():
            self._refuse("it has no elements, and the element shape is not known; state element_shape")
        return tuple(known.sizes())

    def _refuse(self, why: str) -> NoReturn:
        raise InvalidArgumentError(None, None, f"TensorArray {self.name!r}: {why}")
