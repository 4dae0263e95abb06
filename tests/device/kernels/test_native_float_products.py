"""Products of float32 that run at once are oneDNN's where NumPy's library would wake threads, and are exact.

What needs the extra `native` is skipped without it.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pytest

import anabranch as tf
from anabranch.core import kernels
from anabranch.core.kernels import KernelCase, alternates, candidates, has_alternates
from anabranch.kernels import MODULES, native_calls, native_float_products
from anabranch.ops import raw
from anabranch.xla import lowering
from tests.device.kernels.test_convolutions import case_of

#: shapes as they are multiplied, and whether a product of them is large enough
SHAPES = [
    ((64, 64), (64, 64), True),
    ((16, 1024), (1024, 100), True),
    ((129, 65), (65, 77), True),
    ((1, 3000), (3000, 200), True),
    ((63, 64), (64, 64), False),
    ((5, 3), (3, 4), False),
]
BATCHES = [
    ((3, 70, 40), (3, 40, 90), True),
    ((2, 3, 70, 40), (3, 40, 90), True),
    ((2, 3, 70, 40), (40, 90), True),
    ((2, 3, 5), (2, 5, 4), False),
]


def _values(shape: tuple[int, ...], seed: int, turned: bool) -> Any:
    values = np.random.default_rng(seed).normal(size=shape).astype(np.float32)
    return np.ascontiguousarray(values.swapaxes(-1, -2)) if turned else values


def _directly(fetch: Any, monkeypatch: pytest.MonkeyPatch) -> tuple[Any, list[str]]:
    """What a new graph's first run gives, and the kernels that served it."""
    served: list[str] = []

    def chosen(case: KernelCase) -> Any:
        kernel = kernels.immediate(case)
        served.extend([] if kernel is None else [kernel.name])
        return kernel

    with monkeypatch.context() as patch:
        patch.setattr(lowering, "immediate", chosen)
        with tf.Session() as session:
            result = session.run(fetch)
    return result, served


def _check(make: Any, x: Any, y: Any, expected: Any, is_large: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native_calls, "are_in_use", lambda: True)
    with tf.Graph().as_default():
        given = [tf.placeholder_with_default(one, one.shape) for one in (x, y)]
        result, served = _directly(make(*given), monkeypatch)
    assert served == (["onednn, at once"] if is_large else [])
    assert result.shape == expected.shape
    np.testing.assert_allclose(result, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.usefixtures("native")
@pytest.mark.parametrize("turned", [(False, False), (True, False), (False, True), (True, True)])
class TestWithNumPy:
    @pytest.mark.parametrize(("one", "other", "is_large"), SHAPES)
    def test_matrices(self, one: Any, other: Any, is_large: bool, turned: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        first, second = turned
        make = functools.partial(raw.MatMul, transpose_a=first, transpose_b=second)
        self._agrees(make, (one, other), turned, is_large, monkeypatch)

    @pytest.mark.parametrize(("one", "other", "is_large"), BATCHES)
    def test_batches(self, one: Any, other: Any, is_large: bool, turned: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        first, second = turned
        make = functools.partial(raw.BatchMatMulV2, adj_x=first, adj_y=second)
        self._agrees(make, (one, other), turned, is_large, monkeypatch)

    def _agrees(self, make: Any, shapes: Any, turned: Any, is_large: bool, monkeypatch: pytest.MonkeyPatch) -> None:
        x, y = (_values(shape, at, turned[at]) for at, shape in enumerate(shapes))
        exact = [_values(shape, at, False).astype(np.float64) for at, shape in enumerate(shapes)]
        monkeypatch.setattr(native_float_products, "core_count", lambda: 2)
        _check(make, x, y, np.matmul(*exact), is_large, monkeypatch)


@pytest.mark.usefixtures("native")
def test_one_core_has_no_threads_to_spare(monkeypatch: pytest.MonkeyPatch) -> None:
    x, y = _values((100, 100), 0, False), _values((100, 100), 1, False)
    monkeypatch.setattr(native_float_products, "core_count", lambda: 1)
    _check(raw.MatMul, x, y, x @ y, False, monkeypatch)


@pytest.mark.usefixtures("native")
def test_the_library_makes_no_threads_for_them_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    native_calls.forget()
    with tf.Graph().as_default():
        x = tf.placeholder_with_default(_values((100, 100), 0, False), [100, 100])
        _, served = _directly(raw.MatMul(x, x), monkeypatch)
    assert served == []


def test_they_are_in_no_program() -> None:
    for op_type in MODULES[native_float_products.__name__]:
        mine = [kernel for kernel in alternates(op_type) if kernel.name == "onednn, at once"]
        assert [kernel.at_once for kernel in mine] == [True]
    with tf.Graph().as_default():
        x = tf.constant(np.ones((100, 100), np.float32))
        op = raw.MatMul(x, x).op
    case = case_of(op, [np.ones((100, 100), np.float32)] * 2)
    assert "onednn, at once" not in [one.name for one in candidates(case)]
    assert not has_alternates("MatMul", {"T": tf.int32}, at_once=True)
