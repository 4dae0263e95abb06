"""Quantisation with a range for each index of an axis: that of each slice with its own range."""

from __future__ import annotations

import numpy as np
import pytest

import anabranch as tf

X = (np.random.RandomState(0).randn(3, 4, 2) * 3).astype(np.float32)


@pytest.mark.parametrize("mode", ["MIN_COMBINED", "MIN_FIRST", "SCALED"])
@pytest.mark.parametrize("axis", [0, 1, 2])
def test_each_slice_has_its_range(mode: str, axis: int) -> None:
    count = X.shape[axis]
    least, most = -np.arange(1, count + 1, dtype=np.float32), np.arange(2, count + 2, dtype=np.float32)
    whole = tf.raw_ops.QuantizeV2(input=X, min_range=least, max_range=most, T=tf.qint8, mode=mode, axis=axis)
    back = tf.raw_ops.Dequantize(input=whole[0], min_range=whole[1], max_range=whole[2], mode=mode, axis=axis)
    assert whole[0].shape.as_list() == [3, 4, 2]
    with tf.Session() as session:
        numbers, lows, highs, floats = session.run([tf.bitcast(whole[0], tf.int8), whole[1], whole[2], back])
        for at in range(count):
            part = np.take(X, at, axis)
            one = tf.raw_ops.QuantizeV2(input=part, min_range=least[at], max_range=most[at], T=tf.qint8, mode=mode)
            wanted = session.run([tf.bitcast(one[0], tf.int8), one[1], one[2]])
            np.testing.assert_array_equal(np.take(numbers, at, axis), wanted[0])
            assert (lows[at], highs[at]) == (wanted[1], wanted[2])
    inside = (np.moveaxis(X, axis, -1) > lows) & (np.moveaxis(X, axis, -1) < highs)
    np.testing.assert_allclose(np.moveaxis(floats, axis, -1)[inside], np.moveaxis(X, axis, -1)[inside], atol=0.05)


def test_ranges_that_do_not_fit_are_refused() -> None:
    ranges = np.ones(2, np.float32)
    with pytest.raises(ValueError, match="equal"):
        tf.raw_ops.QuantizeV2(input=X, min_range=ranges, max_range=ranges, T=tf.qint8, axis=0)
    with pytest.raises(ValueError, match="axis must be -1"):
        tf.raw_ops.QuantizeV2(input=X, min_range=ranges, max_range=ranges, T=tf.qint8, axis=-2)
