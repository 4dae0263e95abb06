"""When attribute values are the same."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from anabranch.core import dtypes
from anabranch.core.attrs import AttrPlaceholder, FuncAttr, same_attr_value, same_attrs
from anabranch.core.shapes import TensorShape

SAME: list[tuple[Any, Any]] = [
    (1, 1),
    (float("nan"), float("nan")),
    (TensorShape(None), TensorShape(None)),
    (TensorShape([None, 2]), TensorShape([None, 2])),
    (np.array([np.nan, 1.0]), np.array([np.nan, 1.0])),
    (np.array([b"a"], np.object_), np.array([b"a"], np.object_)),
    ([dtypes.int32, dtypes.string], [dtypes.int32, dtypes.string]),
    (FuncAttr("f", {"x": np.arange(3)}), FuncAttr("f", {"x": np.arange(3)})),
    (AttrPlaceholder("T"), AttrPlaceholder("T")),
]
DIFFERENT: list[tuple[Any, Any]] = [
    (1, 1.0),
    (1, True),
    (0.0, -0.0),
    (b"a", "a"),
    (dtypes.int32, dtypes.int32_ref),
    (TensorShape(None), TensorShape([None])),
    (TensorShape([None]), TensorShape([1])),
    (np.array([0.0]), np.array([-0.0])),
    (np.zeros(2, np.int32), np.zeros(2, np.int64)),
    (np.zeros((2, 1)), np.zeros((1, 2))),
    (np.array([b"a"], np.object_), np.array([b"b"], np.object_)),
    ([1], [1, 2]),
    ([1], [2]),
    (FuncAttr("f", {"x": 1}), FuncAttr("f", {"x": 2})),
    (FuncAttr("f"), FuncAttr("g")),
    (FuncAttr("f"), AttrPlaceholder("f")),
]


@pytest.mark.parametrize(("a", "b"), SAME)
def test_same(a: Any, b: Any) -> None:
    assert same_attr_value(a, b)
    assert same_attrs({"k": a}, {"k": b})


@pytest.mark.parametrize(("a", "b"), DIFFERENT)
def test_different(a: Any, b: Any) -> None:
    assert not same_attr_value(a, b)
    assert not same_attrs({"k": a}, {"k": b})


def test_names_count() -> None:
    assert not same_attrs({"a": 1}, {"b": 1})
    assert not same_attrs({"a": 1}, {})


def test_functions_with_attributes_can_be_keys() -> None:
    assert len({FuncAttr("f", {"x": np.arange(3)}), FuncAttr("f", {"x": np.arange(3)})}) == 1
    assert FuncAttr("f") != "f"
