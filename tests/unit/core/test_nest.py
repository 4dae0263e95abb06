from __future__ import annotations

import collections
import types
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given, strategies as st

from anabranch.core import nest
from anabranch.core.shapes import TensorShape


class Point(NamedTuple):
    x: Any
    y: Any


class Pair(NamedTuple):
    x: Any
    y: Any


OtherPoint: Any = collections.namedtuple("Point", "x y")  # type: ignore[name-match]  # noqa: PYI024


class _Attribute(NamedTuple):
    name: str


class Options:
    """What `attrs.define` makes of a class, as far as nested structures look at it."""

    __attrs_attrs__ = (_Attribute("rate"), _Attribute("sizes"))

    def __init__(self, rate: Any, sizes: Any) -> None:
        self.rate = rate
        self.sizes = sizes


leaves = st.integers() | st.text(max_size=2) | st.none()
structures = st.recursive(
    leaves,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.lists(inner, max_size=3).map(tuple)
        | st.dictionaries(st.text("abc", max_size=2), inner, max_size=3)
        | st.builds(Point, inner, inner)
    ),
    max_leaves=12,
)


@given(structures)
def test_flatten_and_pack_are_inverse(structure: Any) -> None:
    flat = nest.flatten(structure)
    assert not any(nest.is_nested(leaf) for leaf in flat)
    assert nest.pack_sequence_as(structure, flat) == structure
    assert nest.map_structure(lambda x: x, structure) == structure
    nest.assert_same_structure(structure, nest.map_structure(lambda _: None, structure))


@given(structures)
def test_paths_lead_to_their_leaves(structure: Any) -> None:
    pairs = nest.flatten_with_tuple_paths(structure)
    assert [leaf for _, leaf in pairs] == nest.flatten(structure)
    for path, leaf in pairs:
        found = structure
        for element in path:
            found = getattr(found, element) if isinstance(found, Point) else found[element]
        assert found == leaf
    joined = nest.flatten_with_joined_string_paths(structure)
    assert joined == [("/".join(map(str, path)), leaf) for path, leaf in pairs]


@given(structures, structures)
def test_same_structure_is_symmetric_and_lenient_without_types(a: Any, b: Any) -> None:
    def verdict(x: Any, y: Any, check_types: bool) -> type[Exception] | None:
        try:
            nest.assert_same_structure(x, y, check_types=check_types)
        except (TypeError, ValueError) as e:
            return type(e)
        return None

    assert verdict(a, b, True) == verdict(b, a, True)
    assert verdict(a, b, False) == verdict(b, a, False)
    if verdict(a, b, True) is None:
        assert verdict(a, b, False) is None
        assert nest.flatten_up_to(a, b) == nest.flatten(b)


@pytest.mark.parametrize(
    "leaf", [1, "abc", b"abc", bytearray(b"abc"), None, {1, 2}, np.zeros(3), TensorShape([1, 2]), int]
)
def test_leaves(leaf: Any) -> None:
    assert not nest.is_nested(leaf)
    assert nest.flatten(leaf)[0] is leaf
    assert nest.pack_sequence_as(leaf, [5]) == 5


@pytest.mark.parametrize("structure", [[], (), {}, range(3), collections.deque([1]), {"a": 1}.values(), Point(1, 2)])
def test_structures(structure: Any) -> None:
    assert nest.is_nested(structure)
    assert nest.is_sequence(structure)


def test_flatten_sorts_dicts_by_key() -> None:
    assert nest.flatten({"b": 1, "a": [2, {"z": 3, "y": 4}]}) == [2, 4, 3, 1]
    assert nest.flatten(collections.OrderedDict([("b", 1), ("a", 2)])) == [2, 1]
    with pytest.raises(TypeError, match="sorted"):
        nest.flatten({1: 2, "a": 3})


def test_map_keeps_types_and_order_of_keys() -> None:
    ordered = nest.map_structure(lambda x: x + 1, collections.OrderedDict([("b", 1), ("a", 2)]))
    assert type(ordered) is collections.OrderedDict
    assert list(ordered.items()) == [("b", 2), ("a", 3)]
    default = nest.map_structure(str, collections.defaultdict(list, {"a": 1}))
    assert default == {"a": "1"}
    assert default["missing"] == []
    proxy = nest.map_structure(str, types.MappingProxyType({"a": 1}))
    assert type(proxy) is types.MappingProxyType
    assert nest.map_structure(str, Point(1, [2])) == Point("1", ["2"])
    assert nest.map_structure(str, {"a": 1}.values()) == ["1"]
    assert nest.map_structure(str, range(2)) == ["0", "1"]
    assert nest.map_structure(str, collections.deque([1])) == collections.deque(["1"])


def test_attrs_objects() -> None:
    options = Options(0.1, [1, 2])
    assert nest.flatten(options) == [0.1, 1, 2]
    mapped = nest.map_structure(str, options)
    assert (type(mapped), mapped.rate, mapped.sizes) == (Options, "0.1", ["1", "2"])
    assert nest.flatten_with_joined_string_paths(options)[1] == ("sizes/0", 1)


def test_map_several_structures() -> None:
    assert nest.map_structure(lambda a, b: a + b, {"a": 1, "b": (2,)}, {"b": (20,), "a": 10}) == {"a": 11, "b": (22,)}
    assert nest.map_structure(lambda a, b: a + b, [1, 2], (3, 4), check_types=False) == [4, 6]


@pytest.mark.parametrize(
    ("a", "b", "error"),
    [
        ([1], (1,), TypeError),
        ([1], 1, ValueError),
        ([1], [1, 2], ValueError),
        ([1, [2]], [[1], 2], ValueError),
        ({"a": 1}, {"b": 1}, ValueError),
        ({"a": 1}, {"a": 1, "b": 2}, ValueError),
        (Point(1, 2), Pair(1, 2), TypeError),
        (Point(1, 2), (1, 2), TypeError),
        ([1], {"a": 1}, TypeError),
    ],
)
def test_different_structures(a: Any, b: Any, error: type[Exception]) -> None:
    for call in (
        lambda: nest.assert_same_structure(a, b),
        lambda: nest.map_structure(lambda *_: 0, a, b),
    ):
        with pytest.raises(error, match="don't have the same nested structure") as info:
            call()
        assert repr(a) in str(info.value)
        assert repr(b) in str(info.value)


def test_structures_that_count_as_same() -> None:
    nest.assert_same_structure(Point(1, [2]), OtherPoint(3, [4]))
    nest.assert_same_structure({"a": 1}, collections.OrderedDict(a=2))
    nest.assert_same_structure([1, (2,)], (1, [2]), check_types=False)
    nest.assert_same_structure("abc", 3)


def test_pack_errors() -> None:
    with pytest.raises(ValueError, match="Structure had 2 elements, but flat_sequence had 3 elements"):
        nest.pack_sequence_as([1, 2], [1, 2, 3])
    with pytest.raises(ValueError, match="Structure is a scalar"):
        nest.pack_sequence_as("leaf", [1, 2])
    with pytest.raises(TypeError, match="must be a sequence"):
        nest.pack_sequence_as([1], 5)


def test_map_argument_errors() -> None:
    with pytest.raises(TypeError, match="callable"):
        nest.map_structure(3, [1])  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="at least one structure"):
        nest.map_structure(len)
    with pytest.raises(ValueError, match="not: `depth`"):
        nest.map_structure(str, [1], depth=2)


def test_flatten_dict_items() -> None:
    assert nest.flatten_dict_items({(4, (5,)): ("a", ("b",)), 6: "c"}) == {4: "a", 5: "b", 6: "c"}
    with pytest.raises(TypeError, match="must be a dictionary"):
        nest.flatten_dict_items([1])  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="not unique"):
        nest.flatten_dict_items({(1, 2): (3, 4), 1: 2})
    with pytest.raises(ValueError, match="same nested structure"):
        nest.flatten_dict_items({(1, 2): (3,)})


def test_shallow_structures() -> None:
    shallow = {"a": None, "b": [None, None]}
    deep = {"b": [(1, 2), 3], "a": [4]}
    assert nest.flatten_up_to(shallow, deep) == [[4], (1, 2), 3]
    assert nest.map_structure_up_to(shallow, lambda x, y: (x, y), deep, shallow) == {
        "a": ([4], None),
        "b": [((1, 2), None), (3, None)],
    }
    assert nest.flatten_up_to(None, deep) == [deep]
    assert nest.flatten_up_to([0, 0], ((1, 2), 3), check_types=False) == [(1, 2), 3]


@pytest.mark.parametrize(
    ("shallow", "deep", "error", "words"),
    [
        ([1], 2, TypeError, "must also be a sequence"),
        ([1], (2,), TypeError, "same sequence type"),
        ([1], [2, 3], ValueError, "same sequence length"),
        ({"a": 1}, {"b": 1}, ValueError, "same keys"),
        ([[1, 2]], [[1]], ValueError, "same sequence length"),
    ],
)
def test_shallow_structure_errors(shallow: Any, deep: Any, error: type[Exception], words: str) -> None:
    for call in (
        lambda: nest.assert_shallow_structure(shallow, deep),
        lambda: nest.flatten_up_to(shallow, deep),
        lambda: nest.map_structure_up_to(shallow, lambda x: x, deep),
    ):
        with pytest.raises(error, match=words):
            call()


def test_map_with_paths() -> None:
    structure = {"a": [1, 2], "b": Point(3, 4)}
    assert nest.map_structure_with_paths(lambda path, x: f"{path}={x}", structure) == {
        "a": ["a/0=1", "a/1=2"],
        "b": Point("b/x=3", "b/y=4"),
    }
    assert nest.map_structure_with_tuple_paths(lambda path, x, y: (path, x + y), [1, [2]], [10, [20]]) == [
        ((0,), 11),
        [((1, 0), 22)],
    ]


def test_how_far_a_structure_is_gone_into() -> None:
    structure = {"a": [1, (2, 3)], "b": Point(4, [5])}
    only_first = nest.get_traverse_shallow_structure(lambda part: part is structure, structure)
    assert only_first == {"a": False, "b": False}
    lists = nest.get_traverse_shallow_structure(lambda part: not isinstance(part, tuple), structure)
    assert lists == {"a": [True, False], "b": False}
    chosen = nest.get_traverse_shallow_structure(
        lambda part: Point(False, True) if isinstance(part, Point) else isinstance(part, dict | list | int), structure
    )
    assert chosen == {"a": [True, False], "b": Point(False, [True])}
    for wrong in (lambda part: 3, lambda part: [[1]], lambda part: {"a": 1, "b": 2}):
        with pytest.raises((TypeError, ValueError)):
            nest.get_traverse_shallow_structure(wrong, structure)
