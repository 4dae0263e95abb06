from __future__ import annotations

import copy
import operator
import types
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st

from anabranch.core import dimensions, shapes
from anabranch.core.dimensions import Dimension
from anabranch.core.shapes import Dims, TensorShape

lengths = st.none() | st.integers(0, 4)
dims_tuples = st.none() | st.lists(lengths, max_size=4).map(tuple)
known_tuples = st.lists(st.integers(0, 4), max_size=4).map(tuple)


def hide(draw: st.DrawFn, known: tuple[int, ...]) -> Dims:
    """What a shape rule may know of the shape `known`."""
    if draw(st.integers(0, 5)) == 0:
        return None
    return tuple([d if draw(st.booleans()) else None for d in known])


@st.composite
def known_and_partial(draw: st.DrawFn) -> tuple[tuple[int, ...], Dims, Dims]:
    known = draw(known_tuples)
    return known, hide(draw, known), hide(draw, known)


@st.composite
def broadcastable(draw: st.DrawFn) -> tuple[tuple[int, ...], tuple[int, ...], Dims, Dims]:
    result = draw(known_tuples)
    a, b = (tuple([1 if draw(st.booleans()) else d for d in result]) for _ in range(2))
    a = a[draw(st.integers(0, len(a))) :]
    return a, b, hide(draw, a), hide(draw, b)


class TestDimension:
    @given(lengths, lengths)
    def test_arithmetic_is_that_of_integers_where_both_are_known(self, a: int | None, b: int | None) -> None:
        for operation in (operator.add, operator.sub, operator.mul, operator.floordiv, operator.mod):
            if a is None or b is None:
                assert operation(Dimension(a), b).value is None
                if b is not None:
                    assert operation(b, Dimension(a)).value is None
                continue
            if (b == 0 and operation in (operator.floordiv, operator.mod)) or (a < b and operation is operator.sub):
                with pytest.raises((ZeroDivisionError, ValueError)):
                    operation(Dimension(a), b)
                continue
            for result in (
                operation(Dimension(a), b),
                operation(a, Dimension(b)),
                operation(Dimension(a), Dimension(b)),
            ):
                assert result.value == operation(a, b)

    @given(lengths, lengths)
    def test_comparison_with_an_unknown_length_is_none(self, a: int | None, b: int | None) -> None:
        for relation in (operator.eq, operator.ne, operator.lt, operator.le, operator.gt, operator.ge):
            expected = None if a is None or b is None else relation(a, b)
            assert relation(Dimension(a), Dimension(b)) is expected
            assert relation(Dimension(a), b) is expected

    @given(lengths, lengths)
    def test_merge(self, a: int | None, b: int | None) -> None:
        compatible = a is None or b is None or a == b
        assert Dimension(a).is_compatible_with(b) is compatible
        if compatible:
            assert Dimension(a).merge_with(b).value == (b if a is None else a)
        else:
            with pytest.raises(ValueError, match="not compatible"):
                Dimension(a).merge_with(b)

    @pytest.mark.parametrize(("value", "length"), [(3, 3), (3.0, 3), (np.int64(3), 3), (None, None), (Dimension(3), 3)])
    def test_values(self, value: Any, length: int | None) -> None:
        assert Dimension(value).value == length
        assert dimensions.as_dimension(value).value == length

    @pytest.mark.parametrize(
        ("value", "error"),
        [(-1, ValueError), (3.5, ValueError), ("x", ValueError), ([3], TypeError), (1j, TypeError)],
    )
    def test_bad_values(self, value: Any, error: type[Exception]) -> None:
        with pytest.raises(error):
            Dimension(value)

    def test_as_integer(self) -> None:
        assert int(Dimension(3)) == 3
        assert list(range(Dimension(3))) == [0, 1, 2]
        assert not Dimension(None)
        with pytest.raises(TypeError, match=r"tf\.shape"):
            int(Dimension(None))

    def test_text_hash_and_copy(self) -> None:
        assert (str(Dimension(3)), repr(Dimension(3))) == ("3", "Dimension(3)")
        assert (str(Dimension(None)), repr(Dimension(None))) == ("?", "Dimension(None)")
        assert {Dimension(3): "a"}[Dimension(3)] == "a"
        assert copy.deepcopy(Dimension(3)) == 3

    def test_true_division_names_the_way_out(self) -> None:
        for divide in (lambda: Dimension(4) / 2, lambda: 4 / Dimension(2)):
            with pytest.raises(TypeError, match="use // instead"):
                divide()

    def test_unrelated_operands(self) -> None:
        assert (Dimension(3) == "x") is False
        with pytest.raises(TypeError):
            Dimension(3) + "x"


class TestTensorShape:
    @pytest.mark.parametrize(
        ("value", "dims"),
        [
            (None, None),
            ([], ()),
            ([1, None], (1, None)),
            ((Dimension(2), np.int32(3), 4.0), (2, 3, 4)),
            (5, (5,)),
            (Dimension(None), (None,)),
            (np.array([2, 3]), (2, 3)),
            (iter([2, 3]), (2, 3)),
            (range(3), (0, 1, 2)),
            (TensorShape([1, None]), (1, None)),
        ],
    )
    def test_values(self, value: Any, dims: Dims) -> None:
        shape = TensorShape(value)
        assert shape.dims_tuple == dims
        assert all(d is None or type(d) is int for d in dims or ())

    def test_from_a_proto(self) -> None:
        dims = [types.SimpleNamespace(size=2), types.SimpleNamespace(size=-1)]
        assert TensorShape(types.SimpleNamespace(unknown_rank=False, dim=dims)).dims_tuple == (2, None)
        assert TensorShape(types.SimpleNamespace(unknown_rank=True, dim=[])).dims_tuple is None

    @pytest.mark.parametrize(
        ("value", "error"),
        [([-1], ValueError), ([1.5], ValueError), ("ab", TypeError), ([[1]], TypeError), (-2, ValueError)],
    )
    def test_bad_values(self, value: Any, error: type[Exception]) -> None:
        with pytest.raises(error):
            TensorShape(value)

    @given(dims_tuples)
    def test_what_a_shape_tells(self, dims: Dims) -> None:
        shape = TensorShape(dims)
        assert shape.rank == shape.ndims == (None if dims is None else len(dims))
        assert bool(shape) is (dims is not None)
        assert shape.is_fully_defined() is (dims is not None and None not in dims)
        assert shape == TensorShape(dims)
        assert hash(shape) == hash(TensorShape(dims))
        assert copy.deepcopy(shape) == shape
        assert shapes.as_shape(shape) is shape
        if dims is not None:
            assert shape.as_list() == list(dims)
            assert [d.value for d in shape] == [d.value for d in shape.dims or ()] == list(dims)
            assert len(shape) == len(dims)
            assert shape.num_elements() == (None if None in dims else int(np.prod(dims)))
            for i in range(-len(dims), len(dims)):
                assert shape[i].value == dims[i]
                assert shape[i:].dims_tuple == dims[i:]
                assert shapes.dimension_at_index(shape, i).value == dims[i]

    def test_unknown_rank(self) -> None:
        shape = shapes.unknown_shape()
        assert shape.dims is None
        assert shape.num_elements() is None
        assert shape[3].value is None
        assert shape[1:].dims_tuple is None
        assert shape[:-1].dims_tuple is None
        assert shape[1:3].dims_tuple == (None, None)
        for function in (len, list, TensorShape.as_list, lambda s: s[::2], lambda s: s != s):
            with pytest.raises(ValueError):
                function(shape)

    def test_text(self) -> None:
        assert [str(TensorShape(d)) for d in (None, [], [3], [3, None])] == ["<unknown>", "()", "(3,)", "(3, ?)"]
        assert repr(TensorShape([3, None])) == "TensorShape([Dimension(3), Dimension(None)])"
        assert repr(TensorShape(None)) == "TensorShape(None)"

    def test_equality_with_other_things(self) -> None:
        assert TensorShape([2, 3]) == [2, 3]
        assert TensorShape([2, 3]) == (2, Dimension(3))
        assert TensorShape([2, 3]) != [2]
        assert TensorShape([2, None]) == [2, None]
        assert TensorShape([2]) != "ab"
        assert (TensorShape([2]) == object()) is False
        with pytest.raises(ValueError, match="unknown rank"):
            _ = TensorShape([2]) != None  # noqa: E711

    @given(dims_tuples, dims_tuples)
    def test_concatenation(self, a: Dims, b: Dims) -> None:
        expected = None if a is None or b is None else a + b
        assert (TensorShape(a) + TensorShape(b)).dims_tuple == expected
        assert TensorShape(a).concatenate(b).dims_tuple == expected
        if a is not None:
            assert (list(a) + TensorShape(b)).dims_tuple == expected

    @given(known_and_partial())
    def test_merging_what_two_rules_know_of_one_shape(self, case: tuple[tuple[int, ...], Dims, Dims]) -> None:
        known, a, b = case
        merged = TensorShape(a).merge_with(b)
        assert merged == TensorShape(b).merge_with(a)
        assert merged.is_compatible_with(known)
        if a is not None and b is not None:
            assert merged.dims_tuple == tuple([x if x is not None else y for x, y in zip(a, b, strict=True)])
        assert TensorShape(a).merge_with(known).dims_tuple == known
        TensorShape(a).assert_is_compatible_with(b)
        general = TensorShape(a).most_specific_compatible_shape(b)
        assert general.is_compatible_with(known)

    @given(dims_tuples, dims_tuples)
    def test_merge_fails_exactly_where_shapes_are_incompatible(self, a: Dims, b: Dims) -> None:
        if TensorShape(a).is_compatible_with(b):
            TensorShape(a).merge_with(b)
            TensorShape(a).assert_is_compatible_with(b)
            TensorShape(a).assert_same_rank(b)
            return
        with pytest.raises(ValueError, match="not compatible"):
            TensorShape(a).merge_with(b)
        with pytest.raises(ValueError, match="incompatible"):
            TensorShape(a).assert_is_compatible_with(b)

    def test_most_specific_compatible_shape(self) -> None:
        shape = TensorShape([2, 3])
        assert shape.most_specific_compatible_shape([2, 3]).dims_tuple == (2, 3)
        assert shape.most_specific_compatible_shape([2, 4]).dims_tuple == (2, None)
        assert shape.most_specific_compatible_shape([2]).dims_tuple is None
        assert shape.most_specific_compatible_shape(None).dims_tuple is None

    def test_with_rank(self) -> None:
        unknown, matrix = TensorShape(None), TensorShape([2, None])
        assert unknown.with_rank(2).dims_tuple == (None, None)
        assert matrix.with_rank(2) is matrix.with_rank(None) is matrix
        assert unknown.with_rank_at_least(2) is unknown
        assert matrix.with_rank_at_least(2).with_rank_at_most(2) is matrix
        for check in (
            lambda: matrix.with_rank(1),
            lambda: matrix.assert_has_rank(3),
            lambda: matrix.with_rank_at_least(3),
            lambda: matrix.with_rank_at_most(1),
            lambda: matrix.assert_same_rank([1]),
        ):
            with pytest.raises(ValueError, match=r"\(2, \?\).*rank"):
                check()

    def test_assert_is_fully_defined(self) -> None:
        TensorShape([2]).assert_is_fully_defined()
        for dims in (None, [None]):
            with pytest.raises(ValueError, match="not fully defined"):
                TensorShape(dims).assert_is_fully_defined()

    def test_numpy_takes_it_as_a_shape(self) -> None:
        assert np.zeros(TensorShape([2, 3])).shape == (2, 3)

    def test_makers(self) -> None:
        assert shapes.scalar().dims_tuple == ()
        assert shapes.vector(None).dims_tuple == (None,)
        assert shapes.matrix(2, Dimension(3)).dims_tuple == (2, 3)
        assert shapes.unknown_shape(2).dims_tuple == (None, None)
        assert dimensions.dimension_value(Dimension(3)) == 3
        assert dimensions.dimension_value(None) is None
        assert shapes.dimension_at_index(TensorShape(None), 1).value is None


class TestBroadcasting:
    @given(known_tuples, known_tuples)
    def test_known_shapes_broadcast_as_in_numpy(self, a: tuple[int, ...], b: tuple[int, ...]) -> None:
        try:
            expected = np.broadcast_shapes(a, b)
        except ValueError:
            assert not shapes.is_broadcast_compatible(a, b)
            with pytest.raises(ValueError, match="Dimensions must be equal"):
                shapes.broadcast_shape(a, b)
        else:
            assert shapes.broadcast_shape(a, b).dims_tuple == expected
            assert shapes.is_broadcast_compatible(a, b)

    @given(broadcastable())
    def test_what_is_known_of_a_result_is_right(
        self, case: tuple[tuple[int, ...], tuple[int, ...], Dims, Dims]
    ) -> None:
        a, b, partial_a, partial_b = case
        result = shapes.broadcast_shape(partial_a, partial_b)
        assert result.is_compatible_with(np.broadcast_shapes(a, b))
        assert result == shapes.broadcast_shape(partial_b, partial_a)
        if partial_a is not None and partial_b is not None:
            assert shapes.is_broadcast_compatible(partial_a, partial_b)

    def test_unknown_lengths(self) -> None:
        assert shapes.broadcast_shape([None], [3]).dims_tuple == (3,)
        assert shapes.broadcast_shape([None], [1]).dims_tuple == (None,)
        assert shapes.broadcast_shape([None], []).dims_tuple == (None,)
        assert shapes.broadcast_shape([None], [None]).dims_tuple == (None,)
        assert shapes.broadcast_shape(None, [3]).dims_tuple is None
        assert not shapes.is_broadcast_compatible(None, [3])


def test_a_text_may_write_a_length() -> None:
    assert Dimension(12) == "12"
    assert Dimension(12) != "_"
    assert (Dimension(None) == "13") is None
    assert TensorShape(["3", "4"]) == [3, 4]
    assert TensorShape([3, 4]) != "34"
    with pytest.raises(ValueError, match="text 'a'"):
        TensorShape(["a"])
