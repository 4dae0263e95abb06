"""What queues, barriers and staging areas say of the components of their elements."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from anabranch.core.dtypes import DType, as_dtype
from anabranch.core.nest import Structure
from anabranch.core.shapes import TensorShape
from anabranch.frontend.arguments import DTypes, Names, Shapes
from anabranch.graph.operation import Tensor


def as_type_list(types: DTypes) -> list[DType]:
    """One dtype or a sequence of them, as a list."""
    if isinstance(types, list | tuple):
        return [as_dtype(t) for t in types]
    return [as_dtype(types)]


def as_shape_list(
    shapes: Shapes | None, unknown_dim_allowed: bool = False, unknown_rank_allowed: bool = False
) -> list[TensorShape] | None:
    """One shape or a sequence of them as a list; None stays None.

    Where dimensions may be unknown it must be a sequence: ``[None]`` could be one shape, or one for one component.

    Raises:
        TypeError: they are no shapes.
        ValueError: a shape is less known than is allowed, or a sequence is wanted.
    """
    if unknown_dim_allowed and not (isinstance(shapes, list | tuple) and shapes and not _is_one_shape(shapes)):
        raise ValueError(
            f"When providing partial shapes, a list of shapes must be provided, got {shapes!r}; write [[None, 2]]"
        )
    if shapes is None:
        return None
    listed = [shapes] if isinstance(shapes, TensorShape) else shapes
    if not isinstance(listed, list | tuple):
        raise TypeError("shapes must be a TensorShape or a list or tuple of TensorShapes.")
    if all(dim is None or isinstance(dim, int) for dim in listed):
        listed = [listed]  # a single shape
    result = [TensorShape(s) for s in listed]
    if not unknown_dim_allowed and not all(s.is_fully_defined() for s in result):
        raise ValueError(f"All shapes must be fully defined: {[str(s) for s in result]}")
    if not unknown_rank_allowed and any(s.ndims is None for s in result):
        raise ValueError(f"All shapes must have a defined rank: {[str(s) for s in result]}")
    return result


def _is_one_shape(shapes: Sequence[Any]) -> bool:
    return any(dim is None or isinstance(dim, int) for dim in shapes)


def as_name_list(names: Names | None, types: Sequence[DType]) -> list[str] | None:
    """One name or a sequence of them, one for each type; None stays None.

    Raises:
        ValueError: there are too few or too many.
    """
    if names is None:
        return None
    listed: list[Any] = list(names) if isinstance(names, list | tuple) else [names]
    if len(listed) != len(types):
        raise ValueError(
            f"List of names must have the same length as the list of dtypes, received len(names)={len(listed)},"
            f"len(dtypes)={len(types)}"
        )
    return listed


def common_shape(first: TensorShape, second: TensorShape) -> TensorShape:
    """The most that is known of a tensor that has one shape or the other."""
    if first.ndims is None or first.ndims != second.ndims:
        return TensorShape(None)
    pairs = zip(first.dims_tuple or (), second.dims_tuple or (), strict=True)
    return TensorShape([a if a == b else None for a, b in pairs])


def arranged(tensors: Sequence[Tensor], names: Sequence[str] | None) -> Any:
    """The components of an element as users get them: a dictionary by name, one tensor, or a list."""
    if names:
        return dict(zip(names, tensors, strict=True))
    return tensors[0] if len(tensors) == 1 else list(tensors)


def in_order(values: Structure, names: Sequence[str] | None, what: str) -> list[Any]:
    """The components that a user gives, in the order of the names.

    Raises:
        ValueError: a dictionary where there are no names, no dictionary where there are, or other keys.
    """
    if isinstance(values, dict):
        if not names:
            raise ValueError(f"{what} must have names to enqueue a dictionary")
        if sorted(names) != sorted(values, key=str):
            raise ValueError(
                f"Keys in dictionary to enqueue do not match names of {what}.  Dictionary: "
                f"({sorted(values, key=str)}), {what}: ({sorted(names)})"
            )
        return [values[name] for name in names]
    if names:
        raise ValueError(f"You must enqueue a dictionary in a {what} with names")
    return list(values) if isinstance(values, list | tuple) else [values]
