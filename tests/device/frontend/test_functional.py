"""map_fn, scan, foldl and foldr against plain Python, and their gradients."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from anabranch.autodiff.gradients import gradients
from anabranch.frontend.control_flow.functional import foldl, foldr, map_fn, scan
from anabranch.ops import raw
from anabranch.session import Session

X = np.array([[1.0, 2.0], [3.0, 5.0], [0.5, -1.0]])


def placeholder(shape: Any = (None, 2), dtype: str = "float64", name: str = "x") -> Any:
    return raw.Placeholder(dtype=dtype, shape=shape, name=name)


def run(fetches: Any, feeds: Any = None) -> Any:
    with Session() as session:
        return session.run(fetches, feeds)


@pytest.mark.parametrize("shape", [(3, 2), (None, 2)])
def test_map(shape: Any) -> None:
    x = placeholder(shape)
    y = map_fn(lambda row: raw.Sum(raw.Square(row), 0), x)
    assert y.shape.as_list() == [shape[0]]
    got = run([y, gradients(y, x)[0]], {x: X})
    np.testing.assert_allclose(got[0], (X**2).sum(1))
    np.testing.assert_allclose(got[1], 2 * X)


def test_map_over_a_structure_to_another() -> None:
    x = placeholder()
    got = map_fn(
        lambda s: (raw.Mul(s["a"], s["b"]), raw.Cast(s["a"], DstT="int32")),
        {"a": x, "b": raw.Neg(x)},
        ("float64", "int32"),
    )
    product, number = run(got, {x: X})
    np.testing.assert_allclose(product, -(X**2))
    np.testing.assert_array_equal(number, X.astype(np.int32))


def test_map_over_nothing() -> None:
    x = placeholder()
    assert run(map_fn(raw.Exp, x), {x: np.zeros((0, 2))}).shape == (0, 2)


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("start", [None, 1.0])
def test_scan(reverse: bool, start: float | None) -> None:
    x = placeholder()
    first = None if start is None else np.full(2, start)
    y = scan(lambda a, row: raw.AddV2(raw.Mul(a, np.float64(0.5)), row), x, initializer=first, reverse=reverse)
    rows, state = (X[::-1] if reverse else X), first
    wanted = []
    for row in rows:
        state = row if state is None else 0.5 * state + row
        wanted.append(state)
    value, dx = run([y, gradients(y, x)[0]], {x: X})
    np.testing.assert_allclose(value, np.array(wanted)[::-1] if reverse else wanted)
    slopes = np.array([1.75, 1.5, 1.0])
    np.testing.assert_allclose(dx, np.repeat((slopes[::-1] if reverse else slopes)[:, None], 2, 1))


def test_scan_with_a_structure() -> None:
    x = placeholder()
    got = scan(lambda a, row: (raw.AddV2(a[0], row), raw.Maximum(a[1], row)), x, (np.zeros(2), np.full(2, -9.0)))
    total, largest = run(got, {x: X})
    np.testing.assert_allclose(total, np.cumsum(X, 0))
    np.testing.assert_allclose(largest, np.maximum.accumulate(X))


def test_folds() -> None:
    x = placeholder()

    def step(a: Any, row: Any) -> Any:
        return raw.Sub(raw.Mul(a, np.float64(2.0)), row)

    left, right = foldl(step, x), foldr(step, x, np.ones(2))
    got = run([left, right, gradients(left, x)[0]], {x: X})
    np.testing.assert_allclose(got[0], (X[0] * 2 - X[1]) * 2 - X[2])
    np.testing.assert_allclose(got[1], ((2 - X[2]) * 2 - X[1]) * 2 - X[0])
    np.testing.assert_allclose(got[2], [[4, 4], [-2, -2], [-1, -1]])


def test_mistakes() -> None:
    with pytest.raises(TypeError, match="fn must be callable"):
        map_fn(None, X)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="not a scalar"):
        map_fn(raw.Exp, np.float64(1.0))
