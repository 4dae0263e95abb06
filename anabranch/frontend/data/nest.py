"""Structures of the elements of datasets: tuples and dicts. A list is a leaf here: it stands for a tensor."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from anabranch.core.nest import Structure
from anabranch.graph.composite import SparseTensorValue


def is_nested(structure: Structure) -> bool:
    """Whether it is a tuple or a dict. The value of a sparse tensor is a leaf, though a named tuple."""
    return isinstance(structure, tuple | Mapping) and not isinstance(structure, SparseTensorValue)


def flatten(structure: Structure) -> list[Any]:
    """The leaves; those of a dict in the order of its keys."""
    if not is_nested(structure):
        return [structure]
    return [leaf for child in _children(structure) for leaf in flatten(child)]


def _children(structure: Structure) -> list[Any]:
    return [structure[k] for k in sorted(structure)] if isinstance(structure, Mapping) else list(structure)


def pack_sequence_as(structure: Structure, flat: Structure) -> Any:
    """The structure with other leaves.

    Raises:
        ValueError: their number differs.
    """
    leaves = list(flat)
    count = len(flatten(structure))
    if count != len(leaves):
        raise ValueError(f"Structure had {count} elements, but flat_sequence had {len(leaves)} elements.")
    return _pack(structure, iter(leaves))


def _pack(structure: Structure, leaves: Iterator[Any]) -> Any:
    if not is_nested(structure):
        return next(leaves)
    if isinstance(structure, Mapping):
        packed = {key: _pack(structure[key], leaves) for key in sorted(structure)}
        return type(structure)((key, packed[key]) for key in structure)  # type: ignore[call-arg]
    children = [_pack(child, leaves) for child in structure]
    return type(structure)(*children) if hasattr(structure, "_fields") else tuple(children)


def map_structure(function: Callable[..., Any], *structures: Structure) -> Any:
    """The structure of the first with `function` of the corresponding leaves of all.

    Raises:
        TypeError, ValueError: their structures differ.
    """
    for other in structures[1:]:
        assert_same_structure(structures[0], other)
    return pack_sequence_as(structures[0], map(function, *(flatten(s) for s in structures)))


def assert_same_structure(first: Structure, second: Structure) -> None:
    """Raises unless both are nested in the same way.

    Raises:
        TypeError: one has a tuple or dict where the other has something else.
        ValueError: the numbers of children, or the keys, differ.
    """
    if not is_nested(first) and not is_nested(second):
        return
    if is_nested(first) != is_nested(second) or isinstance(first, Mapping) != isinstance(second, Mapping):
        raise TypeError(f"The two structures don't have the same nested structure: {first!r} and {second!r}")
    if len(first) != len(second):
        raise ValueError(f"The two structures don't have the same number of elements: {first!r} and {second!r}")
    if isinstance(first, Mapping) and set(first) != set(second):
        raise ValueError(f"The two dictionaries don't have the same set of keys: {set(first)} and {set(second)}")
    for a, b in zip(_children(first), _children(second), strict=True):
        assert_same_structure(a, b)


def map_structure_up_to(shallow: Structure, function: Callable[..., Any], *structures: Structure) -> Any:
    """Like `map_structure`, but what lies below the leaves of `shallow` is passed whole."""
    columns = [flatten_up_to(shallow, structure) for structure in structures]
    return pack_sequence_as(shallow, map(function, *columns))


def flatten_up_to(shallow: Structure, structure: Structure) -> list[Any]:
    """What stands in `structure` in the places of the leaves of `shallow`.

    Raises:
        TypeError, ValueError: `structure` does not have the places.
    """
    if not is_nested(shallow):
        return [structure]
    if isinstance(shallow, Mapping) != isinstance(structure, Mapping) or not isinstance(
        structure, tuple | list | Mapping
    ):
        raise TypeError(
            f"If shallow structure is a sequence, input must also be a sequence: {shallow!r}, {structure!r}"
        )
    if len(shallow) != len(structure):
        raise ValueError(f"The two structures don't have the same sequence length: {len(structure)}, {len(shallow)}")
    return [x for a, b in zip(_children(shallow), _children(structure), strict=True) for x in flatten_up_to(a, b)]
