"""Static shapes of tensors, known in full, in part, or not at all: `TensorShape`, and broadcasting.

A `TensorShape` keeps its dimensions as `dims_tuple`: a tuple of `int` and None (an unknown length), or None (an unknown
number of dimensions). Shape rules compute with such tuples, type `Dims`; the `Dimension` objects that users see are
made when asked for.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterable, Iterator
from typing import Any, ClassVar, Protocol, SupportsIndex, TypeAlias, cast, overload

from anabranch.core.dimensions import Dimension, DimensionLike, DimensionMessage, length_of

Dims: TypeAlias = tuple[int | None, ...] | None
#: what a program may give for a shape: None is an unknown rank, a number a vector's length
ShapeLike: TypeAlias = "TensorShape | Iterable[DimensionLike] | DimensionLike | ShapeMessage"


class ShapeMessage(Protocol):
    """A `TensorShapeProto`."""

    unknown_rank: bool

    @property
    def dim(self) -> Iterable[DimensionMessage]: ...


def _to_dims(dims: ShapeLike) -> Dims:
    """The tuple that a user's shape states: a shape, an iterable of lengths, one length, a shape proto, or None."""
    if isinstance(dims, (tuple, list)):
        return tuple([d if d is None or (type(d) is int and d >= 0) else length_of(d) for d in dims])
    if dims is None:
        return None
    if isinstance(dims, TensorShape):
        return dims.dims_tuple
    if hasattr(dims, "unknown_rank"):  # a TensorShapeProto, where -1 is an unknown length
        message = cast(ShapeMessage, dims)
        if message.unknown_rank:
            return None
        return tuple([None if d.size == -1 else length_of(d.size) for d in message.dim])
    if isinstance(dims, (str, bytes)):
        raise TypeError(f"A shape must be a list of integers and None, got {dims!r}")
    try:
        lengths = iter(dims)  # type: ignore[arg-type]  # it says itself what it cannot take
    except TypeError:
        return (length_of(dims),)
    return tuple([length_of(d) for d in lengths])


#: Makes the message of a shape: one function, which the room of the messages, above this one, puts here.
_to_message: list[Callable[[TensorShape], ShapeMessage]] = []


def write_messages_with(to_message: Callable[[TensorShape], ShapeMessage]) -> None:
    """Says what makes the messages of shapes (`TensorShape.as_proto`)."""
    _to_message[:] = [to_message]


class LateShapeError(ValueError):
    """Shapes that an operation refuses only when it runs: until then the shapes of its outputs are not known."""


class TensorShape:
    """The static shape of a tensor: fully known, known but for some dimensions, or of unknown rank.

    Immutable. Indexing and iteration give `Dimension`s, slicing gives a TensorShape, as in TensorFlow 1.

    Args:
        dims: a list of sizes, None where one is unknown; None for a shape of unknown rank; or a TensorShape.

    Attributes:
        dims_tuple: the lengths, None where unknown; None if the rank is unknown.

    Raises:
        ValueError: a size is negative.
        TypeError: `dims` is no list of sizes.

    Example:
        >>> shape = tf.TensorShape([None, 3])
        >>> shape.as_list(), shape.ndims, shape.is_fully_defined()
        ([None, 3], 2, False)
    """

    __slots__ = ("__dict__", "dims_tuple")

    #: whether indexing gives numbers in place of `Dimension`s, as in TensorFlow 2
    _v2_behavior: ClassVar[bool] = False

    dims_tuple: Dims

    def __init__(self, dims: ShapeLike) -> None:
        """Makes a shape.

        Args:
          dims: an iterable of lengths (integers, None, Dimensions), one length (a vector's shape), another shape, or
            None for an unknown rank.

        Raises:
          TypeError: a length is not an integer or None.
          ValueError: a length is negative.
        """
        self.dims_tuple = _to_dims(dims)

    @staticmethod
    def from_tuple(dims: Dims) -> TensorShape:
        """The shape of `dims`, which must be as `dims_tuple` is documented: nothing is checked."""
        shape: TensorShape = object.__new__(TensorShape)
        shape.dims_tuple = dims
        return shape

    @property
    def dims(self) -> list[Dimension] | None:
        """The dimensions as a new list, or None if the rank is unknown."""
        return None if self.dims_tuple is None else [Dimension(d) for d in self.dims_tuple]

    @property
    def _dims(self) -> list[Dimension] | None:
        """TensorFlow's own name for `dims`, which Keras reads."""
        return self.dims

    @property
    def rank(self) -> int | None:
        """The number of dimensions, or None if it is unknown."""
        return None if self.dims_tuple is None else len(self.dims_tuple)

    @property
    def ndims(self) -> int | None:
        """The same as `rank`."""
        return None if self.dims_tuple is None else len(self.dims_tuple)

    def __repr__(self) -> str:
        return f"TensorShape({self.dims!r})"

    def __str__(self) -> str:
        if self.dims_tuple is None:
            return "<unknown>"
        lengths = ["?" if d is None else str(d) for d in self.dims_tuple]
        return f"({lengths[0]},)" if len(lengths) == 1 else f"({', '.join(lengths)})"

    def __len__(self) -> int:
        if self.dims_tuple is None:
            raise ValueError("Cannot take the length of a shape of unknown rank")
        return len(self.dims_tuple)

    def __bool__(self) -> bool:
        """Whether the rank is known. A scalar's shape is true."""
        return self.dims_tuple is not None

    def __iter__(self) -> Iterator[Dimension]:
        if self.dims_tuple is None:
            raise ValueError("Cannot iterate over a shape of unknown rank")
        return iter([Dimension(d) for d in self.dims_tuple])

    @overload
    def __getitem__(self, key: slice) -> TensorShape: ...

    @overload
    def __getitem__(self, key: SupportsIndex) -> Dimension: ...

    def __getitem__(self, key: SupportsIndex | slice) -> Dimension | TensorShape:
        """A dimension, or for a slice a shape; as much of it as is known where the rank is unknown.

        Raises:
          IndexError: the rank is known and has no such dimension.
          ValueError: a slice with a step of a shape of unknown rank.
        """
        if self.dims_tuple is not None:
            if isinstance(key, slice):
                return TensorShape.from_tuple(self.dims_tuple[key])
            return Dimension(self.dims_tuple[key])
        if not isinstance(key, slice):
            return Dimension(None)
        if key.step is not None:
            raise ValueError("A slice with a step of a shape of unknown rank is undefined")
        start = 0 if key.start is None else operator.index(key.start)
        if key.stop is None or operator.index(key.stop) < 0 or start < 0:
            return unknown_shape()
        return unknown_shape(rank=operator.index(key.stop) - start)

    def num_elements(self) -> int | None:
        """The number of elements, or None unless the shape is fully defined."""
        if self.dims_tuple is None or None in self.dims_tuple:
            return None
        return math.prod(self.dims_tuple)  # type: ignore[arg-type]

    def merge_with(self, other: ShapeLike) -> TensorShape:
        """The shape that knows what either knows.

        Raises:
          ValueError: no tensor can have both shapes.
        """
        other = as_shape(other)
        return TensorShape.from_tuple(merge_dims(self.dims_tuple, other.dims_tuple))

    def concatenate(self, other: ShapeLike) -> TensorShape:
        """The dimensions of this shape followed by those of `other`; of unknown rank if either is."""
        other = as_shape(other)
        if self.dims_tuple is None or other.dims_tuple is None:
            return unknown_shape()
        return TensorShape.from_tuple(self.dims_tuple + other.dims_tuple)

    def __add__(self, other: ShapeLike) -> TensorShape:
        return self.concatenate(other)

    def __radd__(self, other: ShapeLike) -> TensorShape:
        return as_shape(other).concatenate(self)

    def assert_same_rank(self, other: ShapeLike) -> None:
        """Raises ValueError if both ranks are known and differ."""
        other = as_shape(other)
        if self.rank is not None and other.rank is not None and self.rank != other.rank:
            raise ValueError(f"Shapes {self} and {other} must have the same rank")

    def assert_has_rank(self, rank: int | None) -> None:
        """Raises ValueError if this rank is known and is not `rank`."""
        if self.dims_tuple is not None and len(self.dims_tuple) != rank:
            raise ValueError(f"Shape {self} must have rank {rank}")

    def with_rank(self, rank: int | None) -> TensorShape:
        """This shape, or where its rank is unknown a shape of `rank` unknown dimensions; for None this shape.

        Raises:
          ValueError: the rank is known and is another.
        """
        if rank is not None:
            self.assert_has_rank(rank)
        return unknown_shape(rank) if self.dims_tuple is None else self

    def with_rank_at_least(self, rank: int) -> TensorShape:
        """This shape. Raises ValueError if its rank is known and smaller than `rank`."""
        if self.rank is not None and self.rank < rank:
            raise ValueError(f"Shape {self} must have rank at least {rank}")
        return self

    def with_rank_at_most(self, rank: int) -> TensorShape:
        """This shape. Raises ValueError if its rank is known and greater than `rank`."""
        if self.rank is not None and self.rank > rank:
            raise ValueError(f"Shape {self} must have rank at most {rank}")
        return self

    def is_compatible_with(self, other: ShapeLike) -> bool:
        """Whether one tensor may have both shapes: known ranks and known lengths are equal."""
        a, b = self.dims_tuple, as_shape(other).dims_tuple
        if a is None or b is None:
            return True
        return len(a) == len(b) and all(x == y or x is None or y is None for x, y in zip(a, b, strict=True))

    def assert_is_compatible_with(self, other: ShapeLike) -> None:
        """Raises ValueError unless `self.is_compatible_with(other)`."""
        if not self.is_compatible_with(other):
            raise ValueError(f"Shapes {self} and {as_shape(other)} are incompatible")

    def most_specific_compatible_shape(self, other: ShapeLike) -> TensorShape:
        """The most specific shape that both shapes are instances of.

        Where the lengths differ or one is unknown, it is unknown; where the ranks do, so is the rank.
        """
        a, b = self.dims_tuple, as_shape(other).dims_tuple
        if a is None or b is None or len(a) != len(b):
            return unknown_shape()
        return TensorShape.from_tuple(tuple([x if x == y else None for x, y in zip(a, b, strict=True)]))

    def is_fully_defined(self) -> bool:
        """Whether the rank and every length are known."""
        return self.dims_tuple is not None and None not in self.dims_tuple

    def assert_is_fully_defined(self) -> None:
        """Raises ValueError unless `self.is_fully_defined()`."""
        if not self.is_fully_defined():
            raise ValueError(f"Shape {self} is not fully defined")

    def sizes(self) -> tuple[int, ...]:
        """The dimensions of a fully defined shape; raises ValueError for another."""
        self.assert_is_fully_defined()
        return self.dims_tuple  # type: ignore[return-value]

    def as_proto(self) -> ShapeMessage:
        """The `TensorShapeProto` of this shape; unknown dimensions have the size -1."""
        return _to_message[0](self)

    def as_list(self) -> list[int | None]:
        """The lengths, None where unknown.

        Returns:
            A list of integers and None.

        Raises:
            ValueError: the rank is unknown.

        Example:
            >>> tf.placeholder(tf.float32, [None, 3]).shape.as_list()
            [None, 3]
        """
        if self.dims_tuple is None:
            raise ValueError(
                "as_list() is not defined on an unknown TensorShape: its rank is not known; look at ndims first"
            )
        return list(self.dims_tuple)

    def __eq__(self, other: object) -> Any:
        """Whether both shapes know the same: equal lengths, unknown ones in the same places."""
        try:
            other = as_shape(other)  # type: ignore[arg-type]  # it says itself what it cannot take
        except (TypeError, ValueError):
            return NotImplemented
        return self.dims_tuple == other.dims_tuple

    def __ne__(self, other: object) -> Any:
        """The opposite of `==`, which raises ValueError where a rank is unknown."""
        try:
            other = as_shape(other)  # type: ignore[arg-type]  # it says itself what it cannot take
        except (TypeError, ValueError):
            return NotImplemented
        if self.dims_tuple is None or other.dims_tuple is None:
            raise ValueError("The inequality of TensorShapes of unknown rank is undefined")
        return self.dims_tuple != other.dims_tuple

    def __hash__(self) -> int:
        return hash(self.dims_tuple)

    def __reduce__(self) -> tuple[Any, tuple[Dims]]:
        return TensorShape, (self.dims_tuple,)


def as_shape(shape: ShapeLike) -> TensorShape:
    """`shape` itself if it is a TensorShape, else `TensorShape(shape)`."""
    return shape if isinstance(shape, TensorShape) else TensorShape(shape)


def unknown_shape(rank: int | None = None) -> TensorShape:
    """A shape of `rank` dimensions of unknown length, or of unknown rank."""
    return TensorShape.from_tuple(None if rank is None else (None,) * rank)


def scalar() -> TensorShape:
    """The shape of a scalar: no dimensions."""
    return TensorShape.from_tuple(())


def vector(length: DimensionLike) -> TensorShape:
    """The shape of a vector of `length` elements, which may be None."""
    return TensorShape([length])


def matrix(rows: DimensionLike, cols: DimensionLike) -> TensorShape:
    """The shape of a matrix; each of the two numbers may be None."""
    return TensorShape([rows, cols])


def dimension_at_index(shape: TensorShape, index: int) -> Dimension:
    """The dimension at `index`, unknown if the rank is."""
    return shape[index]


def covers(general: TensorShape, special: TensorShape) -> bool:
    """Whether every shape that `special` stands for is one that `general` stands for."""
    if general.dims_tuple is None:
        return True
    if special.dims_tuple is None or len(general.dims_tuple) != len(special.dims_tuple):
        return False
    return all(g is None or g == s for g, s in zip(general.dims_tuple, special.dims_tuple, strict=True))


def merge_dims(a: Dims, b: Dims) -> Dims:
    """The lengths that are known from either tuple.

    Raises:
      ValueError: the ranks, or two known lengths, differ.
    """
    if a is None or a == b:
        return b
    if b is None:
        return a
    if len(a) == len(b) and all(x == y or x is None or y is None for x, y in zip(a, b, strict=True)):
        return tuple([y if x is None else x for x, y in zip(a, b, strict=True)])
    raise ValueError(f"Shapes {TensorShape.from_tuple(a)} and {TensorShape.from_tuple(b)} are not compatible")


def broadcast_dims(a: Dims, b: Dims) -> Dims:
    """What is known of the shape of an elementwise result, by NumPy's rules of broadcasting.

    Raises:
      ValueError: two known lengths differ and neither is 1.
    """
    if a == b or a is None or b is None:
        return a if a == b else None
    rank = max(len(a), len(b))
    padded = zip((1,) * (rank - len(a)) + a, (1,) * (rank - len(b)) + b, strict=True)
    try:
        return tuple([x if x == y else _broadcastlength_of(x, y) for x, y in padded])
    except ValueError:
        raise ValueError(
            f"Dimensions must be equal, but are {_unequal(a, b)}. Incompatible shapes: {in_brackets(a)} vs. "
            f"{in_brackets(b)}: aligned at the right, they do not broadcast; tf.reshape or tf.expand_dims line "
            "dimensions up"
        ) from None


def in_brackets(dims: Dims) -> str:
    """Lengths as messages of TensorFlow's kernels write them: ``[?,3]``, and ``<unknown>`` for an unknown rank."""
    if dims is None:
        return "<unknown>"
    return f"[{','.join('?' if length is None else str(length) for length in dims)}]"


def _unequal(a: tuple[int | None, ...], b: tuple[int | None, ...]) -> str:
    """The two lengths that do not broadcast, from the right."""
    for x, y in zip(reversed(a), reversed(b), strict=False):
        if x != y and None not in (x, y) and 1 not in (x, y):
            return f"{x} and {y}"
    return f"{a} and {b}"


def _broadcastlength_of(x: int | None, y: int | None) -> int | None:
    """The length that two different lengths give: an unknown one can be 1, or the other one."""
    if x is None or y is None:
        known = y if x is None else x
        return known if known is not None and known > 1 else None
    if x == 1:
        return y
    if y == 1:
        return x
    raise ValueError


def broadcast_shape(shape_x: ShapeLike, shape_y: ShapeLike) -> TensorShape:
    """What is known of the shape to which two shapes broadcast; of unknown rank if either is.

    Raises:
      ValueError: the two do not broadcast.
    """
    return TensorShape.from_tuple(broadcast_dims(as_shape(shape_x).dims_tuple, as_shape(shape_y).dims_tuple))


def is_broadcast_compatible(shape_x: ShapeLike, shape_y: ShapeLike) -> bool:
    """Whether the two shapes are known to broadcast, but for unknown lengths: False if a rank is unknown."""
    dims_x, dims_y = as_shape(shape_x).dims_tuple, as_shape(shape_y).dims_tuple
    if dims_x is None or dims_y is None:
        return False
    try:
        broadcast_dims(dims_x, dims_y)
    except ValueError:
        return False
    return True
