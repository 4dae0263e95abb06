"""`tf.nest`: structures of nested lists, tuples, namedtuples, mappings and attrs objects, and their leaves.

Whatever is not one of these is a leaf: strings, arrays, tensors, shapes, sets. The leaves of a mapping come in the
order of its sorted keys, so that equal mappings flatten equally whatever order they were filled in.
"""

from __future__ import annotations

import collections
import enum
from collections.abc import Callable, Hashable, Iterator, Mapping, MappingView, MutableMapping, Sequence
from typing import Any, Final, TypeAlias

Path: TypeAlias = tuple[Any, ...]
#: A value, or values nested in lists, tuples, named tuples and dicts. An argument decides which, so that type checkers
#: cannot know it.
Structure: TypeAlias = Any


class _NodeKind(enum.Enum):
    LEAF = enum.auto()
    SEQUENCE = enum.auto()
    NAMEDTUPLE = enum.auto()
    MAPPING = enum.auto()
    VIEW = enum.auto()
    ATTRS = enum.auto()


_kinds: dict[type, _NodeKind] = {}  # of the types seen lately
_KINDS_KEPT: Final = 1024


def _kind_of_type(cls: type) -> _NodeKind:
    if hasattr(cls, "__attrs_attrs__"):
        return _NodeKind.ATTRS
    if issubclass(cls, (str, bytes, bytearray)):
        return _NodeKind.LEAF
    if issubclass(cls, tuple):
        fields = getattr(cls, "_fields", None)
        is_named = isinstance(fields, tuple) and all(isinstance(field, str) for field in fields)
        return _NodeKind.NAMEDTUPLE if is_named else _NodeKind.SEQUENCE
    if issubclass(cls, Mapping):
        return _NodeKind.MAPPING
    if issubclass(cls, MappingView):
        return _NodeKind.VIEW
    return _NodeKind.SEQUENCE if issubclass(cls, Sequence) else _NodeKind.LEAF


def _kind(value: object) -> _NodeKind:
    cls = type(value)
    kind = _kinds.get(cls)
    if kind is None:
        if len(_kinds) >= _KINDS_KEPT:
            _kinds.clear()
        kind = _kinds[cls] = _kind_of_type(cls)
    return kind


def is_nested(structure: Structure) -> bool:
    """Whether the value is a structure rather than a leaf. An empty list is a structure without leaves."""
    return _kind(structure) is not _NodeKind.LEAF


is_sequence = is_nested


def _sorted_keys(mapping: Mapping[Any, Any]) -> list[Any]:
    try:
        return sorted(mapping)
    except TypeError:
        raise TypeError(f"A nested dict must have keys that can be sorted, got the keys {list(mapping)}") from None


def _children(structure: Structure) -> list[tuple[Any, Any]]:
    """The (path element, value) pairs of a structure's first level: indices, field names or keys."""
    match _kind(structure):
        case _NodeKind.MAPPING:
            return [(key, structure[key]) for key in _sorted_keys(structure)]
        case _NodeKind.NAMEDTUPLE:
            return [(field, getattr(structure, field)) for field in structure._fields]
        case _NodeKind.ATTRS:
            return [(attr.name, getattr(structure, attr.name)) for attr in type(structure).__attrs_attrs__]
        case _:
            return list(enumerate(structure))


def _values(structure: Structure) -> Any:
    """The values of a structure's first level."""
    match _kind(structure):
        case _NodeKind.MAPPING:
            return [structure[key] for key in _sorted_keys(structure)]
        case _NodeKind.ATTRS:
            return [getattr(structure, attr.name) for attr in type(structure).__attrs_attrs__]
        case _:
            return structure


def _rebuild(structure: Structure, values: list[Any]) -> Any:
    """A structure of the same type as `structure`, with other values on its first level."""
    match _kind(structure):
        case _NodeKind.MAPPING:
            return _rebuild_mapping(structure, dict(zip(_sorted_keys(structure), values, strict=True)))
        case _NodeKind.NAMEDTUPLE | _NodeKind.ATTRS:
            return type(structure)(*values)
        case _NodeKind.VIEW:
            return list(values)
        case _:
            return list(values) if isinstance(structure, range) else type(structure)(values)


def _rebuild_mapping(mapping: Structure, values: dict[Any, Any]) -> Any:
    """A mapping like `mapping`, in its order of keys."""
    ordered = [(key, values[key]) for key in mapping]
    if isinstance(mapping, collections.defaultdict):
        return collections.defaultdict(mapping.default_factory, ordered)
    if not isinstance(mapping, MutableMapping):
        return type(mapping)(dict(ordered))
    rebuilt = type(mapping)()
    for key, value in ordered:
        rebuilt[key] = value
    return rebuilt


def flatten(structure: Structure, expand_composites: bool = False) -> list[Any]:
    """The leaves, from left to right; `[structure]` if it is a leaf itself.

    Args:
      structure: a structure or a leaf.
      expand_composites: accepted as in TensorFlow; composite tensors are leaves here.

    Raises:
      TypeError: a dict has keys that cannot be sorted.
    """
    leaves: list[Any] = []
    _append_leaves(structure, leaves)
    return leaves


def _append_leaves(structure: Structure, leaves: list[Any]) -> None:
    if _kind(structure) is _NodeKind.LEAF:
        leaves.append(structure)
        return
    for value in _values(structure):
        _append_leaves(value, leaves)


def pack_sequence_as(structure: Structure, flat_sequence: Structure, expand_composites: bool = False) -> Structure:
    """A structure like `structure` whose leaves are those of the list `flat_sequence`.

    Raises:
      TypeError: `flat_sequence` is not a sequence.
      ValueError: it has more or fewer leaves than the structure.
    """
    if not is_nested(flat_sequence):
        raise TypeError(f"flat_sequence must be a sequence, got {flat_sequence!r}")
    flat = list(_values(flat_sequence))
    expected = len(flatten(structure))
    if expected != len(flat):
        if not is_nested(structure):
            raise ValueError(f"Structure is a scalar but len(flat_sequence) == {len(flat)} > 1: {flat_sequence!r}")
        raise ValueError(
            f"Could not pack sequence. Structure had {expected} elements, but flat_sequence had {len(flat)} elements. "
            f"Structure: {structure!r}, flat_sequence: {flat_sequence!r}."
        )
    return _pack(structure, iter(flat))


def _pack(structure: Structure, leaves: Iterator[Any]) -> Any:
    if not is_nested(structure):
        return next(leaves)
    return _rebuild(structure, [_pack(value, leaves) for value in _values(structure)])


def _is_same_sequence_type(a: Structure, b: Structure) -> bool:
    """Whether two structures count as of one type: namedtuples by name and fields, all mappings alike."""
    if type(a) is type(b):
        return True
    kind = _kind(a)
    if kind is not _kind(b):
        return False
    if kind is _NodeKind.NAMEDTUPLE:
        return type(a).__name__ == type(b).__name__ and a._fields == b._fields
    return kind is _NodeKind.MAPPING


def assert_same_structure(
    nest1: Structure, nest2: Structure, check_types: bool = True, expand_composites: bool = False
) -> None:
    """Checks that two structures differ in their leaves alone.

    Args:
      nest1: a structure or a leaf.
      nest2: a structure or a leaf.
      check_types: whether the types of lists, tuples and so on must agree, and the keys of mappings. Namedtuples
        agree by name and fields, and all mappings are of one type.
      expand_composites: accepted as in TensorFlow; composite tensors are leaves here.

    Raises:
      ValueError: the numbers of elements, the nesting or the keys differ.
      TypeError: the types differ and `check_types` is set.
    """
    try:
        _assert_same(nest1, nest2, check_types)
    except (ValueError, TypeError) as e:
        raise type(e)(
            f"The two structures don't have the same nested structure.\n\nFirst structure: {nest1!r}\n\n"
            f"Second structure: {nest2!r}\n\nMore specifically: {e}"
        ) from None


def _assert_same(a: Structure, b: Structure, check_types: bool) -> None:
    if is_nested(a) != is_nested(b):
        nested, leaf = (a, b) if is_nested(a) else (b, a)
        raise ValueError(f"Substructure {nested!r} is a sequence, while substructure {leaf!r} is not")
    if not is_nested(a):
        return
    if check_types:
        _assert_same_type_and_keys(a, b)
    values_a, values_b = _values(a), _values(b)
    if len(values_a) != len(values_b):
        raise ValueError(
            f"The two structures don't have the same number of elements: {a!r} has {len(values_a)}, "
            f"{b!r} {len(values_b)}"
        )
    for value_a, value_b in zip(values_a, values_b, strict=True):
        _assert_same(value_a, value_b, check_types)


def _assert_same_type_and_keys(a: Structure, b: Structure) -> None:
    if not _is_same_sequence_type(a, b):
        raise TypeError(
            f"The two don't have the same sequence type: the first has type {type(a).__name__}, "
            f"while the second has type {type(b).__name__}"
        )
    if _kind(a) is _NodeKind.MAPPING and set(a) != set(b):
        raise ValueError(f"The two dictionaries don't have the same set of keys: {list(a)} and {list(b)}")


def map_structure(func: Callable[..., Any], *structure: Structure, **kwargs: bool) -> Structure:
    """A structure like the first one, of `func` applied to the corresponding leaves of all.

    Args:
      func: a function of as many arguments as there are structures.
      *structure: structures that differ in their leaves alone.
      **kwargs: `check_types` (default True) and `expand_composites`, as for `assert_same_structure`.

    Raises:
      TypeError: `func` cannot be called, or the structures' types differ.
      ValueError: no structure is given, or they differ otherwise.
    """
    check_types = _check_map_arguments(func, structure, kwargs)
    for other in structure[1:]:
        assert_same_structure(structure[0], other, check_types=check_types)
    columns = [flatten(one) for one in structure]
    return _pack(structure[0], iter([func(*leaves) for leaves in zip(*columns, strict=True)]))


def _check_map_arguments(func: object, structures: tuple[Structure, ...], kwargs: dict[str, bool]) -> bool:
    """Checks what the `map_...` functions share, and returns `check_types`."""
    if not callable(func):
        raise TypeError(f"func must be callable, got: {func!r}")
    if not structures:
        raise ValueError("Must provide at least one structure")
    check_types = bool(kwargs.pop("check_types", True))
    kwargs.pop("expand_composites", None)
    if kwargs:
        raise ValueError(
            f"Only valid keyword arguments are `check_types` and `expand_composites`, not: `{'`, `'.join(kwargs)}`"
        )
    return check_types


def flatten_dict_items(dictionary: Mapping[Any, Any]) -> dict[Hashable, Any]:
    """A dict whose nested keys, and the values that go with them, are spread out.

    `{(4, (5,)): ("a", ("b",)), 6: "c"}` gives `{4: "a", 5: "b", 6: "c"}`.

    Raises:
      TypeError: the argument is not a mapping, or a key's type is not its value's.
      ValueError: a key's structure is not its value's, or a flat key occurs twice.
    """
    if not isinstance(dictionary, Mapping):
        raise TypeError(f"input must be a dictionary, got {dictionary!r}")
    flat: dict[Hashable, Any] = {}
    for key, value in dictionary.items():
        if is_nested(key):
            assert_same_structure(key, value)
            pairs = list(zip(flatten(key), flatten(value), strict=True))
        else:
            pairs = [(key, value)]
        for flat_key, flat_value in pairs:
            if flat_key in flat:
                raise ValueError(f"Could not flatten dictionary: key {flat_key!r} is not unique")
            flat[flat_key] = flat_value
    return flat


def assert_shallow_structure(
    shallow_tree: Structure, input_tree: Structure, check_types: bool = True, expand_composites: bool = False
) -> None:
    """Checks that `input_tree` has the structure of `shallow_tree`, whose leaves may stand for whole structures.

    Raises:
      TypeError: a leaf stands where `shallow_tree` has a structure; or the types differ and `check_types` is set.
      ValueError: the numbers of elements, or the keys of mappings, differ.
    """
    if not is_nested(shallow_tree):
        return
    if not is_nested(input_tree):
        raise TypeError(
            "If shallow structure is a sequence, input must also be a sequence. "
            f"Input has type: {type(input_tree).__name__}."
        )
    is_same_type = _is_same_sequence_type(shallow_tree, input_tree) or isinstance(input_tree, type(shallow_tree))
    if check_types and not is_same_type:
        raise TypeError(
            "The two structures don't have the same sequence type. Input structure has type "
            f"{type(input_tree).__name__}, while shallow structure has type {type(shallow_tree).__name__}."
        )
    for shallow_value, input_value in _shallow_pairs(shallow_tree, input_tree):
        assert_shallow_structure(shallow_value, input_value, check_types=check_types)


def _shallow_pairs(shallow_tree: Structure, input_tree: Structure) -> list[tuple[Any, Any]]:
    """The corresponding values of the first level of two structures.

    Raises:
      ValueError: the keys of mappings, or the numbers of elements, differ.
    """
    if _kind(shallow_tree) is _NodeKind.MAPPING and _kind(input_tree) is _NodeKind.MAPPING:
        if set(shallow_tree) != set(input_tree):
            raise ValueError(
                f"The two structures don't have the same keys. Input structure has keys {list(input_tree)}, "
                f"while shallow structure has keys {list(shallow_tree)}."
            )
        return [(shallow_tree[key], input_tree[key]) for key in _sorted_keys(shallow_tree)]
    shallow_values, input_values = _values(shallow_tree), _values(input_tree)
    if len(shallow_values) != len(input_values):
        raise ValueError(
            "The two structures don't have the same sequence length. Input structure has length "
            f"{len(input_values)}, while shallow structure has length {len(shallow_values)}."
        )
    return list(zip(shallow_values, input_values, strict=True))


def flatten_up_to(
    shallow_tree: Structure, input_tree: Structure, check_types: bool = True, expand_composites: bool = False
) -> list[Any]:
    """What stands in `input_tree` at the places of the leaves of `shallow_tree`, from left to right.

    Raises:
      TypeError, ValueError: as `assert_shallow_structure`.
    """
    assert_shallow_structure(shallow_tree, input_tree, check_types=check_types)
    pieces: list[Any] = []
    _append_pieces(shallow_tree, input_tree, pieces)
    return pieces


def _append_pieces(shallow_tree: Structure, input_tree: Structure, pieces: list[Any]) -> None:
    if not is_nested(shallow_tree):
        pieces.append(input_tree)
        return
    for shallow_value, input_value in _shallow_pairs(shallow_tree, input_tree):
        _append_pieces(shallow_value, input_value, pieces)


def map_structure_up_to(
    shallow_tree: Structure, func: Callable[..., Any], *inputs: Structure, **kwargs: bool
) -> Structure:
    """A structure like `shallow_tree`, of `func` applied to what stands in the inputs at the places of its leaves.

    Args:
      shallow_tree: the structure down to which the inputs are taken apart.
      func: a function of as many arguments as there are inputs.
      *inputs: structures that `shallow_tree` is a shallow form of.
      **kwargs: `check_types` (default True) and `expand_composites`, as for `assert_shallow_structure`.

    Raises:
      TypeError, ValueError: as `assert_shallow_structure`; or no input is given.
    """
    check_types = _check_map_arguments(func, inputs, kwargs)
    columns = [flatten_up_to(shallow_tree, one, check_types=check_types) for one in inputs]
    return _pack(shallow_tree, iter([func(*pieces) for pieces in zip(*columns, strict=True)]))


def get_traverse_shallow_structure(
    traverse_fn: Callable[[Any], Any], structure: Structure, expand_composites: bool = False
) -> Any:
    """A structure of truth values that says how far into a structure to go.

    Args:
      traverse_fn: called with a part of `structure`; returns whether each of its parts is gone into, or a structure of
        the same kind, one level deep, with True or False for each of them.
      structure: what is gone into.
      expand_composites: nothing depends on it.

    Raises:
      TypeError: `traverse_fn` returns something else.
    """
    wanted = traverse_fn(structure)
    if not is_nested(structure):
        if not isinstance(wanted, bool):
            raise TypeError(f"traverse_fn returned structure: {wanted!r} for non-structure: {structure!r}")
        return wanted
    if wanted is False:
        return False
    parts = list(_values(structure))
    if wanted is True:
        each = [True] * len(parts)
    elif not is_nested(wanted):
        raise TypeError(f"traverse_fn returned a non-bool scalar: {wanted!r} for input: {structure!r}")
    else:
        assert_shallow_structure(wanted, structure)
        each = list(_values(wanted))
    if not all(isinstance(one, bool) for one in each):
        raise TypeError(f"traverse_fn didn't return a depth=1 structure of bools, but {wanted!r} for {structure!r}")
    pairs = zip(each, parts, strict=True)
    return _rebuild(structure, [one and get_traverse_shallow_structure(traverse_fn, part) for one, part in pairs])


def flatten_with_tuple_paths(structure: Structure, expand_composites: bool = False) -> list[tuple[Path, Any]]:
    """The leaves with their paths: tuples of keys, field names and indices, empty for a lone leaf."""
    pairs: list[tuple[Path, Any]] = []
    _append_paths(structure, (), pairs)
    return pairs


def _append_paths(structure: Structure, path: Path, pairs: list[tuple[Path, Any]]) -> None:
    if not is_nested(structure):
        pairs.append((path, structure))
        return
    for key, value in _children(structure):
        _append_paths(value, (*path, key), pairs)


def _joined(path: Path, separator: str = "/") -> str:
    return separator.join(str(element) for element in path)


def flatten_with_joined_string_paths(
    structure: Structure, separator: str = "/", expand_composites: bool = False
) -> list[tuple[str, Any]]:
    """The leaves with their paths as strings, such as `("cells/0/state", leaf)`."""
    return [(_joined(path, separator), leaf) for path, leaf in flatten_with_tuple_paths(structure)]


def map_structure_with_tuple_paths(func: Callable[..., Any], *structure: Structure, **kwargs: bool) -> Structure:
    """As `map_structure`, but `func` takes the path of the leaves, a tuple, as its first argument."""
    check_types = _check_map_arguments(func, structure, kwargs)
    paths = iter([path for path, _ in flatten_with_tuple_paths(structure[0])])
    return map_structure(lambda *leaves: func(next(paths), *leaves), *structure, check_types=check_types)


def map_structure_with_paths(func: Callable[..., Any], *structure: Structure, **kwargs: bool) -> Structure:
    """As `map_structure`, but `func` takes the path of the leaves, joined by slashes, as its first argument."""
    return map_structure_with_tuple_paths(lambda path, *leaves: func(_joined(path), *leaves), *structure, **kwargs)
