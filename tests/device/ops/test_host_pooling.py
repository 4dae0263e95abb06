"""Pooling in NumPy gives what it gives compiled: averages, maxima, their places, and the gradients of all."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import anabranch as tf
from anabranch.ops import raw
from anabranch.xla import executable

#: what rounding makes of sums in another order
TOLERANCES = {np.float32: 2e-6, np.float16: 2e-3, ml_dtypes.bfloat16: 1.6e-2}


def _both_ways(fetches: list[tf.Tensor], fed: dict[Any, Any], monkeypatch: pytest.MonkeyPatch) -> list[list[Any]]:
    found = []
    for calls in (1, 0):
        monkeypatch.setattr(executable, "FIRST_DIRECT_CALLS", calls)
        with tf.Session() as session:
            found.append(session.run(fetches, fed))
    return found


@pytest.mark.parametrize("dtype", [np.float32, np.float16, ml_dtypes.bfloat16])
@pytest.mark.parametrize(
    ("size", "strides", "padding", "data_format"),
    [
        ((1, 2, 2, 1), (1, 2, 2, 1), "VALID", "NHWC"),
        ((1, 3, 2, 1), (1, 2, 1, 1), "SAME", "NHWC"),
        ((1, 1, 3, 3), (1, 1, 2, 2), "SAME", "NCHW"),
        ((1, 7, 7, 1), (1, 1, 2, 1), "SAME", "NHWC"),
        ((1, 2, 5, 1), (1, 3, 4, 1), "VALID", "NHWC"),
    ],
)
def test_images(
    size: Any, strides: Any, padding: str, data_format: str, dtype: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    attrs = {"ksize": size, "strides": strides, "padding": padding, "data_format": data_format}
    values = np.random.default_rng(0).normal(size=(2, 7, 8, 9)).astype(dtype)
    values[0, 2, 3, 1], values[1, 5, 5, 5], values[1, 0, 0] = np.nan, np.inf, 1  # equal ones, too
    x = tf.placeholder(dtype, values.shape)
    maxima = raw.MaxPool(x, **attrs)
    weights = tf.constant(np.random.default_rng(1).normal(size=maxima.shape.as_list()).astype(dtype))
    back = raw.MaxPoolGrad(x, maxima, weights, **attrs)
    again = raw.MaxPoolGradGrad(x, maxima, tf.sin(x), **attrs)
    finite = tf.where(tf.is_finite(x), x, tf.zeros_like(x))
    averages = raw.AvgPool(finite, **attrs)
    from_averages = raw.AvgPoolGrad(tf.shape(x), weights, **attrs)
    direct, compiled = _both_ways([maxima, back, again, averages, from_averages], {x: values}, monkeypatch)
    for name, one, other in zip(("maxima", "back", "again", "averages", "to data"), direct, compiled, strict=True):
        assert one.dtype == other.dtype
        np.testing.assert_allclose(one, other, rtol=TOLERANCES[dtype], atol=1e-6, err_msg=name)


@pytest.mark.parametrize("kind", ["maxima", "averages"])
def test_volumes(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    attrs = {"ksize": [1, 2, 3, 2, 1], "strides": [1, 2, 1, 2, 1], "padding": "SAME", "data_format": "NDHWC"}
    values = np.random.default_rng(0).integers(0, 5, size=(2, 5, 4, 3, 2)).astype(np.float32)
    x = tf.placeholder(tf.float32, values.shape)
    pooled = (raw.MaxPool3D if kind == "maxima" else raw.AvgPool3D)(x, **attrs)
    direct, compiled = _both_ways([pooled, tf.gradients(tf.square(pooled), x)[0]], {x: values}, monkeypatch)
    for one, other in zip(direct, compiled, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-6)


@pytest.mark.parametrize("dtype", [tf.qint8, tf.int8, tf.uint8, tf.int64])
def test_integers(dtype: tf.DType, monkeypatch: pytest.MonkeyPatch) -> None:
    values = np.random.default_rng(0).integers(-100, 100, size=(2, 5, 4, 4))
    x = tf.placeholder(tf.int32, values.shape)
    given = tf.bitcast(tf.cast(x, tf.int8), dtype) if dtype is tf.qint8 else tf.cast(x, dtype)
    maxima = raw.MaxPool(given, ksize=[1, 2, 2, 1], strides=[1, 1, 2, 1], padding="SAME")
    shown = tf.bitcast(maxima, tf.int8) if dtype is tf.qint8 else maxima
    direct, compiled = _both_ways([shown], {x: values}, monkeypatch)
    np.testing.assert_array_equal(direct[0], compiled[0])


@pytest.mark.parametrize("padding", ["VALID", "SAME"])
def test_of_nothing_there_is_nothing(padding: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """An empty batch is pooled to an empty batch, and no channels to none, as in TensorFlow."""
    x = tf.placeholder(tf.float32, [None, 4, 4, None])
    pooled = [tf.nn.max_pool(x, 2, 2, padding), tf.nn.avg_pool(x, 2, 2, padding)]
    fetches = [*pooled, *(tf.gradients(one, x)[0] for one in pooled)]
    for batch, channels in ((0, 3), (2, 0)):
        for found in _both_ways(fetches, {x: np.zeros((batch, 4, 4, channels))}, monkeypatch):
            wanted = [(batch, 2, 2, channels)] * 2 + [(batch, 4, 4, channels)] * 2
            assert [value.shape for value in found] == wanted
    assert tf.nn.max_pool(tf.zeros([0, 4, 4, 3]), 2, 2, padding).shape == (0, 2, 2, 3)
