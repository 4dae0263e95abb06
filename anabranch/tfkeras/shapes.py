"""Shapes as TensorFlow's programs have them, `TensorShape`, and as the package has them, tuples of lengths or None."""

from __future__ import annotations

from typing import Any

import anabranch as tf
from anabranch.core.values import PassedOn


class ShapeTuple(tuple[Any, ...]):
    """A tuple of lengths, as the package has it, that also answers what programs ask a `TensorShape`."""

    __slots__ = ()

    def as_list(self) -> list[int | None]:
        return list(self)

    @property
    def ndims(self) -> int:
        return len(self)

    @property
    def rank(self) -> int:
        return len(self)

    @property
    def dims(self) -> list[tf.Dimension]:
        return [tf.Dimension(length) for length in self]


def of(tensor: PassedOn) -> tf.TensorShape:
    """The static shape of a tensor, a sparse tensor or an array."""
    shape = tensor.get_shape() if hasattr(tensor, "get_shape") else tensor.shape
    return tf.TensorShape(shape)


def as_tuples(shapes: PassedOn) -> Any:
    """Shapes in the package's form: a tuple, or a list of them; what is none stays as it is."""
    if isinstance(shapes, tf.TensorShape):
        return None if shapes.ndims is None else ShapeTuple(shapes.as_list())
    if isinstance(shapes, dict):
        return {key: as_tuples(value) for key, value in shapes.items()}
    if isinstance(shapes, tuple) and all(_is_length(length) for length in shapes):
        return ShapeTuple(_length(length) for length in shapes)
    if isinstance(shapes, list | tuple):
        if shapes and all(_is_length(length) for length in shapes):
            return ShapeTuple(_length(length) for length in shapes)
        return [as_tuples(shape) for shape in shapes]
    return shapes


def as_tensor_shapes(shapes: PassedOn) -> Any:
    """Shapes in TensorFlow's form."""
    if isinstance(shapes, tuple) and all(_is_length(length) for length in shapes):
        return tf.TensorShape(list(shapes))
    if isinstance(shapes, list | tuple):
        return [as_tensor_shapes(shape) for shape in shapes]
    return shapes


def as_one_or_structure(shape: PassedOn) -> Any:
    """A shape, as lengths or a `TensorShape`, as a `TensorShape`; a structure of shapes with each of them so."""
    if isinstance(shape, tf.TensorShape):
        return shape
    if all(_is_length(length) for length in shape):
        return tf.TensorShape(list(shape))
    parts = [as_one_or_structure(part) for part in shape]
    return type(shape)(*parts) if hasattr(shape, "_fields") else type(shape)(parts)


def of_tensorflow(shapes: PassedOn) -> bool:
    """Whether shapes are given in TensorFlow's form."""
    if isinstance(shapes, list | tuple):
        return any(of_tensorflow(shape) for shape in shapes)
    return isinstance(shapes, tf.TensorShape)


def _is_length(value: PassedOn) -> bool:
    return value is None or isinstance(value, int | tf.Dimension) or hasattr(value, "__index__")


def _length(value: PassedOn) -> int | None:
    value = value.value if isinstance(value, tf.Dimension) else value
    return None if value is None else int(value)
