"""oneDNN's passes over NumPy's arrays give what the operations' own kernels give, also of NaN and of infinities.

What needs the extra `native` is skipped without it.
"""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import anabranch as tf
from anabranch.core import kernels
from anabranch.core.kernels import KernelCase, alternates, candidates, has_alternates
from anabranch.kernels import MODULES, native_halves
from anabranch.ops import raw
from anabranch.xla import lowering
from tests.device.kernels.conftest import need_bfloat16
from tests.device.kernels.test_convolutions import case_of

BFLOAT16 = ml_dtypes.bfloat16
#: pieces of several lengths, and a rest
SHAPES = [(3, 70000), (1 << 18,), (5, 7, 4096 + 3)]


def _values(shape: tuple[int, ...], seed: int, special: float | None = None, dtype: Any = BFLOAT16) -> Any:
    values = np.random.default_rng(seed).normal(size=shape).astype(dtype)
    if special is not None:
        values.flat[[0, values.size // 2, values.size - 1]] = special
    return values


def _directly(fetch: Any, monkeypatch: pytest.MonkeyPatch, native: bool) -> Any:
    """What a new graph's first run gives, and whether a kernel of the library's served it."""
    with monkeypatch.context() as patch:
        served = []
        real = kernels.immediate

        def chosen(case: KernelCase) -> Any:
            kernel = real(case) if native else None
            served.append(kernel)
            return kernel

        patch.setattr(lowering, "immediate", chosen)
        with tf.Session() as session:
            result = session.run(fetch)
    return result, any(kernel is not None and kernel.at_once for kernel in served)


def _check(make: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    results = []
    for native in (True, False):
        with tf.Graph().as_default():
            result, served = _directly(make(), monkeypatch, native)
        assert served is native
        results.append(result)
    assert results[0].dtype == results[1].dtype
    np.testing.assert_array_equal(*(np.asarray(one, np.float32) for one in results))


def test_they_are_in_no_program() -> None:
    for op_type in MODULES[native_halves.__name__]:
        mine = [kernel for kernel in alternates(op_type) if kernel.at_once]
        assert [kernel.name for kernel in mine] == ["onednn"]
        assert mine[0].takes_numpy
    with tf.Graph().as_default():
        x = tf.constant(_values(SHAPES[0], 0))
        op = raw.AddV2(x, x).op
    case = case_of(op, [_values(SHAPES[0], 0)] * 2)
    assert [one.name for one in candidates(case)] == [kernels.OWN_KERNEL]
    assert not has_alternates(op.type, op.attrs)


@pytest.fixture
def halves(native: None) -> None:
    need_bfloat16()


@pytest.mark.usefixtures("halves")
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("special", [None, np.inf, -np.inf, np.nan])
class TestAgreement:
    def test_sums(self, shape: Any, special: float | None, monkeypatch: pytest.MonkeyPatch) -> None:
        x, y, z = _values(shape, 1, special), _values(shape, 2), _values(shape, 3)
        _check(lambda: raw.AddV2(tf.identity(x), tf.placeholder_with_default(y, shape)), monkeypatch)
        _check(lambda: raw.AddN([tf.placeholder_with_default(one, shape) for one in (x, y, z)]), monkeypatch)

    def test_casts(self, shape: Any, special: float | None, monkeypatch: pytest.MonkeyPatch) -> None:
        for source, target in ((np.float32, tf.bfloat16), (BFLOAT16, tf.float32)):
            x = _values(shape, 1, special, source)
            _check(lambda x=x, target=target: tf.cast(tf.placeholder_with_default(x, shape), target), monkeypatch)

    def test_gradients_of_relu(self, shape: Any, special: float | None, monkeypatch: pytest.MonkeyPatch) -> None:
        for pair in ((_values(shape, 1, special), _values(shape, 2)), (_values(shape, 1), _values(shape, 2, special))):
            _check(
                lambda pair=pair: raw.ReluGrad(*(tf.placeholder_with_default(one, shape) for one in pair)), monkeypatch
            )


@pytest.mark.usefixtures("halves")
def test_parts_of_an_array_have_gaps(monkeypatch: pytest.MonkeyPatch) -> None:
    """The last part that is read stands alone, and is not to be written over as if it had none."""
    x, y = _values((600, 1200), 1), _values((600, 600), 2)

    def make(read: Any) -> Any:
        one, other = tf.split(tf.placeholder_with_default(x, x.shape) + tf.constant(1, tf.bfloat16), 2, axis=1)
        with tf.control_dependencies([tf.reduce_sum(one)]):
            return read(other, tf.placeholder_with_default(y, y.shape))

    for read in (raw.AddV2, raw.ReluGrad, lambda a, b: raw.AddN([a, b, b]), lambda a, b: raw.BiasAdd(a, b[0])):
        _check(lambda read=read: make(read), monkeypatch)


@pytest.mark.usefixtures("halves")
@pytest.mark.parametrize("special", [None, np.inf, np.nan])
def test_biases(special: float | None, monkeypatch: pytest.MonkeyPatch) -> None:
    x, bias = _values((9, 30, 30, 67), 1, special), _values((67,), 2)
    _check(lambda: raw.BiasAdd(tf.placeholder_with_default(x, x.shape), tf.constant(bias)), monkeypatch)
