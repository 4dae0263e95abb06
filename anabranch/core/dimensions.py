"""The length of one dimension of a tensor, known or not."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any, Protocol, SupportsIndex, TypeAlias

#: what a program may give for a length: None is an unknown one; programs of Python 2 divide lengths with /
DimensionLike: TypeAlias = "Dimension | SupportsIndex | float | None"


class DimensionMessage(Protocol):
    """A dimension in a `TensorShapeProto`; -1 is an unknown length."""

    size: int


class Dimension:
    """The length of one dimension of a tensor: a number, or unknown (`value` None).

    Arithmetic with an unknown length gives an unknown length; comparing one gives None, which is neither true nor
    false.
    """

    __slots__ = ("__dict__", "_value")

    _value: int | None

    def __init__(self, value: DimensionLike) -> None:
        """Makes a dimension of length `value`.

        Args:
          value: a non-negative integer, None, or a Dimension.

        Raises:
          TypeError: `value` is none of these.
          ValueError: `value` is negative, or a number with a fraction.
        """
        self._value = length_of(value)

    @property
    def value(self) -> int | None:
        """The length, or None if it is unknown."""
        return self._value

    def is_compatible_with(self, other: DimensionLike) -> bool:
        """Whether both may be the same length: they are equal, or one is unknown."""
        length = length_of(other)
        return self._value is None or length is None or self._value == length

    def assert_is_compatible_with(self, other: DimensionLike) -> None:
        """Raises ValueError unless `self.is_compatible_with(other)`."""
        if not self.is_compatible_with(other):
            raise ValueError(f"Dimensions {self} and {as_dimension(other)} are not compatible")

    def merge_with(self, other: DimensionLike) -> Dimension:
        """The dimension that knows what either knows.

        Raises:
          ValueError: the two are known and differ.
        """
        self.assert_is_compatible_with(other)
        return as_dimension(other) if self._value is None else self

    def __repr__(self) -> str:
        return f"Dimension({self._value})"

    def __str__(self) -> str:
        return "?" if self._value is None else str(self._value)

    def __hash__(self) -> int:
        return hash(self._value)

    def __bool__(self) -> bool:
        """False for an unknown length, as for 0."""
        return bool(self._value)

    def __int__(self) -> int:
        return self.__index__()

    def __index__(self) -> int:
        if self._value is None:
            raise TypeError("This dimension's length is unknown until a step runs: use tf.shape(x) there")
        return self._value

    def __reduce__(self) -> tuple[Any, tuple[int | None]]:
        return Dimension, (self._value,)

    def _compare(self, other: object, relation: Callable[[int, int], bool]) -> Any:
        try:
            length = length_of(other)
        except (TypeError, ValueError):
            return NotImplemented
        if self._value is None or length is None:
            return None
        return relation(self._value, length)

    def __eq__(self, other: object) -> Any:
        return self._compare(other, operator.eq)

    def __ne__(self, other: object) -> Any:
        return self._compare(other, operator.ne)

    def __lt__(self, other: DimensionLike) -> Any:
        return self._compare(other, operator.lt)

    def __le__(self, other: DimensionLike) -> Any:
        return self._compare(other, operator.le)

    def __gt__(self, other: DimensionLike) -> Any:
        return self._compare(other, operator.gt)

    def __ge__(self, other: DimensionLike) -> Any:
        return self._compare(other, operator.ge)

    def _combine(self, other: object, operation: Callable[[int, int], int], reflected: bool = False) -> Any:
        try:
            length = length_of(other)
        except (TypeError, ValueError):
            return NotImplemented
        if self._value is None or length is None:
            return Dimension(None)
        return Dimension(operation(length, self._value) if reflected else operation(self._value, length))

    def __add__(self, other: DimensionLike) -> Any:
        return self._combine(other, operator.add)

    def __radd__(self, other: DimensionLike) -> Any:
        return self._combine(other, operator.add, reflected=True)

    def __sub__(self, other: DimensionLike) -> Any:
        return self._combine(other, operator.sub)

    def __rsub__(self, other: DimensionLike) -> Any:
        return self._combine(other, operator.sub, reflected=True)

    def __mul__(self, other: DimensionLike) -> Any:
        return self._combine(other, operator.mul)

    def __rmul__(self, other: DimensionLike) -> Any:
        return self._combine(other, operator.mul, reflected=True)

    def __floordiv__(self, other: DimensionLike) -> Any:
        return self._combine(other, operator.floordiv)

    def __rfloordiv__(self, other: DimensionLike) -> Any:
        return self._combine(other, operator.floordiv, reflected=True)

    def __mod__(self, other: DimensionLike) -> Any:
        return self._combine(other, operator.mod)

    def __rmod__(self, other: DimensionLike) -> Any:
        return self._combine(other, operator.mod, reflected=True)

    def __truediv__(self, other: object) -> Any:
        raise TypeError(
            f"unsupported operand type(s) for /: 'Dimension' and {type(other).__name__!r}, please use // instead: a "
            "length is an integer"
        )

    def __rtruediv__(self, other: object) -> Any:
        raise TypeError(
            f"unsupported operand type(s) for /: {type(other).__name__!r} and 'Dimension', please use // instead: a "
            "length is an integer"
        )


def length_of(value: object) -> int | None:
    """The length that a value states: None, or a non-negative `int`.

    Raises:
        TypeError: it states none.
        ValueError: it is negative, or a number with a fraction.
    """
    if value is None:
        return None
    if isinstance(value, Dimension):
        return value._value
    if isinstance(value, float):
        if not value.is_integer():
            raise ValueError(f"Ambiguous dimension: {value} has a fraction")
        length = int(value)  # Python 2 programs divide lengths with /
    elif isinstance(value, str | bytes):  # the number that a text writes, as in TensorFlow
        try:
            length = int(value)
        except ValueError:
            raise ValueError(f"A dimension must be an integer or None, got the text {value!r}") from None
    else:
        try:
            length = operator.index(value)  # type: ignore[arg-type]  # it says itself what it cannot take
        except TypeError:
            raise TypeError(f"A dimension must be an integer or None, got {value!r} of {type(value)}") from None
    if length < 0:
        raise ValueError(f"Dimension {length} must be >= 0; None stands for an unknown length")
    return length


def as_dimension(value: DimensionLike) -> Dimension:
    """`value` itself if it is a Dimension, else `Dimension(value)`."""
    return value if isinstance(value, Dimension) else Dimension(value)


def dimension_value(dimension: Dimension | int | None) -> int | None:
    """The length of a Dimension, None if unknown; anything that is not a Dimension as it is."""
    return dimension.value if isinstance(dimension, Dimension) else dimension
