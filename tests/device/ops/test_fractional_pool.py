"""Pooling by regions that are drawn: their sizes, what is pooled in them, and its gradient."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import anabranch as tf

RNG = np.random.RandomState(7)
FUNCTIONS = {"max": (tf.nn.fractional_max_pool, np.max), "avg": (tf.nn.fractional_avg_pool, np.mean)}


def pooled(x: Any, rows: Any, columns: Any, overlapping: bool, reduce: Any) -> Any:
    out = np.zeros((x.shape[0], len(rows) - 1, len(columns) - 1, x.shape[3]))
    for i in range(len(rows) - 1):
        for j in range(len(columns) - 1):
            region = x[:, rows[i] : rows[i + 1] + overlapping, columns[j] : columns[j + 1] + overlapping]
            out[:, i, j] = reduce(region, axis=(1, 2))
    return out


@pytest.mark.parametrize("kind", FUNCTIONS)
@pytest.mark.parametrize("pseudo_random", [False, True])
@pytest.mark.parametrize("overlapping", [False, True])
def test_regions_of_two_sizes_are_pooled(kind: str, pseudo_random: bool, overlapping: bool) -> None:
    function, reduce = FUNCTIONS[kind]
    x = RNG.randn(2, 11, 8, 3)
    output = function(x, [1.0, 1.5, 2.0, 1.0], pseudo_random, overlapping)
    assert [t.shape.as_list() for t in output] == [[2, 7, 4, 3], [8], [5]]
    seen = set()
    with tf.Session() as session:
        for _ in range(8):
            values, rows, columns = session.run(output)
            np.testing.assert_allclose(values, pooled(x, rows, columns, overlapping, reduce), rtol=1e-12, atol=1e-12)
            assert (rows[0], rows[-1], columns[0], columns[-1]) == (0, 11, 0, 8)
            assert set(np.diff(rows)) == {1, 2}
            assert set(np.diff(columns)) <= {2, 3}
            seen.add(tuple(rows))
    assert len(seen) > 1, "each run has its own regions"


def test_regions_that_are_drawn_once() -> None:
    x = RNG.randn(1, 30, 30, 1)
    ratios = [1.0, 1.4, 1.7, 1.0]
    same = [tf.nn.fractional_max_pool(x, ratios, deterministic=True, seed=5, seed2=6)[1] for _ in range(2)]
    other = tf.nn.fractional_max_pool(x, ratios, deterministic=True, seed=5, seed2=7)[1]
    named = tf.nn.fractional_max_pool(x, ratios, deterministic=True)[1]
    with tf.Session() as session:
        first, second = (session.run([*same, other, named]) for _ in range(2))
    np.testing.assert_array_equal(first, second)
    np.testing.assert_array_equal(first[0], first[1])
    assert (first[0] != first[2]).any()


def test_gradients_reach_the_largest_and_all_of_a_mean() -> None:
    x = tf.constant(RNG.permutation(210).reshape(1, 7, 10, 3).astype(np.float64))
    weights = {kind: RNG.randn(1, 5, 5, 3) for kind in FUNCTIONS}
    outputs = {k: f(x, [1.0, 1.4, 2.0, 1.0], overlapping=True) for k, (f, _) in FUNCTIONS.items()}
    grads = {kind: tf.gradients(tf.reduce_sum(outputs[kind][0] * weights[kind]), x)[0] for kind in FUNCTIONS}
    with tf.Session() as session:
        data, found, got = session.run([x, outputs, grads])
    for kind in FUNCTIONS:
        _, rows, columns = found[kind]
        wanted = np.zeros_like(data)
        for i in range(5):
            for j in range(5):
                at = np.s_[0, rows[i] : rows[i + 1] + 1, columns[j] : columns[j + 1] + 1]
                region, weight = data[at], weights[kind][0, i, j]
                chosen = region == region.max(axis=(0, 1)) if kind == "max" else 1 / (region[..., 0].size)
                wanted[at] += chosen * weight
        np.testing.assert_allclose(got[kind], wanted, rtol=1e-12, atol=1e-12)


def test_integers_are_cut_off() -> None:
    x = np.array([-3, -2, 1, 2]).reshape(1, 2, 2, 1)
    output = tf.nn.fractional_avg_pool(tf.constant(x, tf.int32), [1.0, 2.0, 1.0, 1.0])[0]
    with tf.Session() as session:
        assert session.run(output).reshape(-1).tolist() == [-1, 0]


def test_shapes_that_nobody_knows() -> None:
    x = tf.placeholder(tf.float32)
    output, rows, _ = tf.nn.fractional_max_pool(x, [1.0, 2.0, 2.0, 1.0])
    assert (output.shape.as_list(), rows.shape.as_list()) == ([None] * 4, [None])
    with tf.Session() as session:
        assert session.run(output, {x: np.ones((1, 5, 4, 2))}).shape == (1, 2, 2, 2)


def test_what_is_refused() -> None:
    x = tf.ones([1, 4, 4, 1])
    with pytest.raises(ValueError, match="must be \\[1, rows, columns, 1\\]"):
        tf.nn.fractional_max_pool(x, [1.0, 2.0, 2.0, 2.0])
    with pytest.raises(ValueError, match="higher than the 4 elements"):
        tf.nn.fractional_avg_pool(x, [1.0, 5.0, 2.0, 1.0])
    with pytest.raises(ValueError, match="set deterministic=True"):
        tf.nn.fractional_max_pool(x, [1.0, 2.0, 2.0, 1.0], seed=3)
    sequence = np.array([0, 3, 4], np.int64)
    given = {"row_pooling_sequence": sequence, "col_pooling_sequence": sequence + sequence[::-1]}
    grad = tf.raw_ops.FractionalAvgPoolGrad(
        orig_input_tensor_shape=np.array([1, 4, 4, 1], np.int64), out_backprop=tf.ones([1, 2, 2, 1]), **given
    )
    with tf.Session() as session, pytest.raises(tf.errors.InvalidArgumentError, match="a region of a sequence"):
        session.run(grad)


@pytest.mark.parametrize(("stride", "padding"), [(1, "SAME"), (2, "VALID")])
def test_old_gradients_of_volumes_are_those_of_today(stride: int, padding: str) -> None:
    x, w = RNG.randn(2, 5, 4, 6, 2), RNG.randn(3, 2, 2, 2, 3)
    given = {"strides": [1, stride, stride, stride, 1], "padding": padding}
    shape = tf.nn.conv3d(x, w, **given).shape.as_list()
    grad = RNG.randn(*shape)
    mine = [
        op(input=x, filter=w, out_backprop=grad, **given)
        for op in (tf.raw_ops.Conv3DBackpropInput, tf.raw_ops.Conv3DBackpropFilter)
    ]
    today = [
        tf.raw_ops.Conv3DBackpropInputV2(input_sizes=list(x.shape), filter=w, out_backprop=grad, **given),
        tf.raw_ops.Conv3DBackpropFilterV2(input=x, filter_sizes=list(w.shape), out_backprop=grad, **given),
    ]
    assert [t.shape.as_list() for t in mine] == [list(x.shape), list(w.shape)]
    with tf.Session() as session:
        for a, b in zip(*session.run([mine, today]), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-12)


@pytest.mark.parametrize("mode", ["REFLECT", "SYMMETRIC"])
def test_images_are_padded_each_for_itself(mode: str) -> None:
    x, w = RNG.randn(3, 4, 5, 2), RNG.randn(2, 3, 2, 4)
    pads, given = [[0, 0], [1, 2], [2, 0], [0, 0]], {"strides": [1, 1, 2, 1], "padding": "VALID"}
    fused = tf.raw_ops.FusedPadConv2D(input=x, paddings=pads, filter=w, mode=mode, **given)
    apart = tf.nn.conv2d(tf.pad(x, pads, mode), w, **given)
    assert fused.shape.as_list() == apart.shape.as_list() == [3, 6, 3, 4]
    with tf.Session() as session:
        np.testing.assert_allclose(*session.run([fused, apart]), rtol=1e-12)
    with pytest.raises(ValueError, match="must be no greater than"):
        tf.raw_ops.FusedPadConv2D(input=x, paddings=[[0, 0], [5, 0], [0, 0], [0, 0]], filter=w, mode=mode, **given)


def test_layouts_that_are_none() -> None:
    words = tf.raw_ops.DataFormatVecPermute(x=[1, 2, 3, 4], src_format="NHWC", dst_format="NHWD")
    short = tf.raw_ops.DataFormatVecPermute(x=[1, 2, 3])
    with tf.Session() as session:
        with pytest.raises(tf.errors.InvalidArgumentError, match="must determine a permutation"):
            session.run(words)
        with pytest.raises(tf.errors.InvalidArgumentError, match="for each axis of NHWC"):
            session.run(short)
