"""Chains of operations that oneDNN computes at once give what their operations give one after the other.

What needs the extra `native` is skipped without it.
"""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import anabranch as tf
from anabranch.kernels import native_calls
from anabranch.ops import raw
from anabranch.xla import direct_program
from anabranch.xla.direct_chains import ChainedKernel
from tests.device.kernels.conftest import need_bfloat16

BFLOAT16 = ml_dtypes.bfloat16
#: how far results may lie from each other, as a share of the largest
TOLERANCES = {np.dtype(np.float32): 2e-6, np.dtype(BFLOAT16): 1e-2}


def _values(shape: tuple[int, ...], seed: int, dtype: Any = np.float32, special: float | None = None) -> Any:
    values = np.random.default_rng(seed).normal(size=shape).astype(dtype)
    if special is not None:
        values.flat[values.size // 2] = special
    return values


def _fed(*arrays: Any, open_batch: bool = False) -> tuple[list[Any], dict[Any, Any]]:
    shapes = [[None, *x.shape[1:]] if open_batch and x.ndim > 1 and not at else x.shape for at, x in enumerate(arrays)]
    placeholders = [tf.placeholder(x.dtype, shape) for x, shape in zip(arrays, shapes, strict=True)]
    return placeholders, dict(zip(placeholders, arrays, strict=True))


def _both(fetches: Any, fed: dict[Any, Any], monkeypatch: pytest.MonkeyPatch) -> tuple[list[str], list[Any]]:
    """What ran in chains; and the results of the first and the second call, with chains and without."""
    chains: list[str] = []
    real = direct_program.bound_chain

    def bound(*args: Any) -> ChainedKernel | None:
        kernel = real(*args)
        chains.extend([] if kernel is None else ["+".join(op.type for op in args[0])])
        return kernel

    results = []
    for replaced in (bound, lambda *_: None):
        with monkeypatch.context() as patch, tf.Session() as session:
            patch.setattr(direct_program, "bound_chain", replaced)
            results += [session.run(fetches, fed) for _ in range(2)]
    return chains, results


def _check(fetches: list[Any], fed: dict[Any, Any], chain: str, monkeypatch: pytest.MonkeyPatch) -> None:
    chains, results = _both(fetches, fed, monkeypatch)
    assert chains == ([chain] if chain else [])
    *others, wanted = results
    for found in others:
        for one, other in zip(found, wanted, strict=True):
            assert one.dtype == other.dtype
            a, b = (np.asarray(x, np.float64) for x in (one, other))
            bound = TOLERANCES[one.dtype] * np.abs(b[np.isfinite(b)]).max(initial=1.0)
            np.testing.assert_allclose(a, b, rtol=0, atol=bound)


@pytest.fixture
def chained(native: None) -> None:
    native_calls.forget()


@pytest.mark.usefixtures("chained")
@pytest.mark.parametrize("dtype", [np.float32, BFLOAT16])
@pytest.mark.parametrize("special", [None, np.inf, np.nan])
@pytest.mark.parametrize("open_batch", [False, True])
def test_convolutions_and_biases(
    dtype: Any, special: float | None, open_batch: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if dtype == BFLOAT16:
        need_bfloat16()
    data, filter, bias = _values((2, 9, 8, 16), 1, dtype, special), _values((3, 3, 16, 24), 2, dtype), _values((24,), 3)
    (x, w, b), fed = _fed(data, filter, bias.astype(dtype), open_batch=open_batch)
    y = tf.nn.bias_add(tf.nn.conv2d(x, w, [1, 2, 1, 1], "SAME"), b)
    _check([y, tf.nn.relu(y)], fed, "Conv2D+BiasAdd", monkeypatch)


@pytest.mark.usefixtures("chained")
def test_what_somebody_else_reads_is_in_no_chain(monkeypatch: pytest.MonkeyPatch) -> None:
    (x, w, b), fed = _fed(_values((2, 9, 8, 16), 1), _values((3, 3, 16, 24), 2), _values((24,), 3))
    y = tf.nn.conv2d(x, w, [1, 1, 1, 1], "SAME")
    with_bias = tf.nn.bias_add(y, b)
    _check([with_bias, y], fed, "", monkeypatch)
    _check([with_bias, tf.reduce_max(y)], fed, "", monkeypatch)
    # another layout: the bias belongs to other channels
    (x, w, b), fed = _fed(_values((2, 8, 8, 8), 1), _values((3, 3, 8, 8), 2), _values((8,), 3))
    mixed = raw.BiasAdd(tf.nn.conv2d(x, w, [1, 1, 1, 1], "SAME"), b, data_format="NCHW")
    _check([mixed], fed, "", monkeypatch)


@pytest.mark.usefixtures("chained")
def test_an_error_names_the_operation(monkeypatch: pytest.MonkeyPatch) -> None:
    x = tf.placeholder(tf.float32, [None, None, None, None])
    y = tf.nn.bias_add(tf.nn.conv2d(x, _values((3, 3, 16, 24), 2), [1, 1, 1, 1], "VALID", name="window"), np.zeros(24))
    with tf.Session() as session, pytest.raises(tf.errors.InvalidArgumentError, match="window"):
        session.run(y, {x: _values((2, 9, 8, 15), 1)})


@pytest.mark.usefixtures("chained")
@pytest.mark.parametrize("special", [None, np.inf, np.nan])
@pytest.mark.parametrize("shape", [(64, 33, 67), (4, 30, 30, 48), (1 << 17, 1)])
def test_sums_of_what_is_cast(shape: tuple[int, ...], special: float | None, monkeypatch: pytest.MonkeyPatch) -> None:
    need_bfloat16()
    (x,), fed = _fed(_values(shape, 1, BFLOAT16, special))
    (sums,) = (raw.BiasAddGrad(tf.cast(x, tf.float32)),)
    _check([sums], fed, "Cast+BiasAddGrad", monkeypatch)
