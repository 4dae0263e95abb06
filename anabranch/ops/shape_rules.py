"""Shape rules that many operations share."""

from __future__ import annotations

from collections.abc import Callable
from typing import ParamSpec, TypeVar

from anabranch.core.shapes import LateShapeError, TensorShape, broadcast_shape

P = ParamSpec("P")
T = TypeVar("T")

SCALAR = TensorShape([])
UNKNOWN = TensorShape(None)


def same_as_first(first: TensorShape, *_: TensorShape | list[TensorShape]) -> TensorShape:
    """One output of the first input's shape."""
    return first


def merged(*shapes: TensorShape) -> TensorShape:
    """One output; all inputs have its shape."""
    result = shapes[0]
    for shape in shapes[1:]:
        try:
            result = result.merge_with(shape)
        except ValueError:
            raise ValueError(_unequal(result, shape)) from None
    return result


def _unequal(a: TensorShape, b: TensorShape) -> str:
    """Where two shapes contradict each other."""
    if a.ndims != b.ndims:
        return f"Shapes must be equal rank, but are {a.ndims} and {b.ndims}: {a} and {b}"
    pairs = zip(a.dims_tuple or (), b.dims_tuple or (), strict=True)
    at, x, y = next((i, x, y) for i, (x, y) in enumerate(pairs) if None not in (x, y) and x != y)
    return f"Dimension {at} in both shapes must be equal, but are {x} and {y}. Shapes are {a} and {b}."


def broadcast(first: TensorShape, *others: TensorShape) -> TensorShape:
    """One output whose shape is the inputs' shapes broadcast as in NumPy."""
    result = first
    for other in others:
        result = broadcast_shape(result, other)
    return result


def chosen(condition: TensorShape, one: TensorShape, other: TensorShape) -> TensorShape:
    """One output of the shape of two inputs, which a condition of their shape, for their rows, or a scalar chooses."""
    result = one.merge_with(other)
    if condition.ndims is None or result.ndims is None or condition.ndims == 0:
        return result
    if condition.ndims == 1 and result.ndims > 0:
        return condition.concatenate(result[1:]).merge_with(result)
    return result.merge_with(condition)


def scalar(*_: TensorShape | list[TensorShape]) -> TensorShape:
    """One scalar output."""
    return SCALAR


def unknown(*_: TensorShape | list[TensorShape]) -> TensorShape:
    """One output of unknown shape."""
    return UNKNOWN


def no_outputs(*_: TensorShape | list[TensorShape]) -> tuple[()]:
    """For operations without outputs."""
    return ()


def late(check: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """What `check` gives; what it refuses is refused when the operation runs (`OpDef.late_shape`)."""
    try:
        return check(*args, **kwargs)
    except ValueError as error:
        raise LateShapeError(*error.args) from error


def with_rank_at_least(shape: TensorShape, rank: int, what: str) -> TensorShape:
    """`shape`, known to have `rank` or more.

    Raises:
        ValueError: it has fewer dimensions; the message names `what`.
    """
    try:
        return shape.with_rank_at_least(rank)
    except ValueError:
        raise ValueError(f"Shape must be at least rank {rank} but is rank {shape.ndims}: {what}") from None


def with_rank(shape: TensorShape, rank: int, what: str) -> TensorShape:
    """`shape`, known to have `rank`.

    Raises:
        ValueError: it has another rank; the message names `what`.
    """
    try:
        return shape.with_rank(rank)
    except ValueError:
        raise ValueError(f"Shape must be rank {rank} but is rank {shape.ndims}: {what} has shape {shape}") from None
