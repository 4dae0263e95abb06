"""The front end of nn: what operations it builds, against NumPy and against each other."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from anabranch.autodiff.gradients import gradients
from anabranch.core import dtypes
from anabranch.errors import InvalidArgumentError
from anabranch.frontend.framework import set_random_seed
from anabranch.frontend.nn import (
    activations as nn_activations,
    conv as nn_conv,
    cross_entropies as nn_losses,
    ctc as nn_ctc,
    depthwise_conv,
    morphology,
    normalization as nn_normalization,
    pool as nn_pool,
)
from anabranch.graph.composite import SparseTensor
from anabranch.graph.conversion import convert_to_tensor
from anabranch.graph.graph import Graph
from anabranch.ops import raw
from anabranch.session import Session
from tests.oracles import windows

Array = np.ndarray[Any, Any]
RNG = np.random.default_rng(7)


@pytest.fixture(autouse=True)
def _own_graph() -> Any:
    with Graph().as_default():
        yield


def normal(*shape: int) -> Array:
    return RNG.normal(size=shape).astype(np.float32)


def run(fetches: Any, feeds: Any = None) -> Any:
    with Session() as session:
        return session.run(fetches, feeds)


def unknown(dtype: Any = dtypes.float32) -> Any:
    return raw.Placeholder(dtype=dtype)


def close(got: Any, wanted: Any, tolerance: float = 1e-4) -> None:
    np.testing.assert_allclose(got, wanted, rtol=tolerance, atol=tolerance)


X = normal(2, 7, 6, 3)
W = normal(3, 2, 3, 4)


# ---------------------------------------------------------------------- convolutions
def test_conv2d_takes_strides_and_paddings_in_every_form() -> None:
    wanted = windows.convolve(X, W, (2, 2), (1, 1), "SAME")
    for strides in (2, [2], [2, 2], [1, 2, 2, 1]):
        close(run(nn_conv.conv2d(X, W, strides, "SAME")), wanted)
    close(run(nn_conv.conv2d(X, filters=W, strides=2, padding="SAME")), wanted)
    pads = [[0, 0], [1, 2], [0, 3], [0, 0]]
    close(run(nn_conv.conv2d(X, W, 1, pads)), windows.convolve(X, W, (1, 1), (1, 1), pads[1:3]))


def test_conv2d_refuses_what_does_not_go_together() -> None:
    with pytest.raises(ValueError, match="both 'filter' and 'filters'"):
        nn_conv.conv2d(X, W, 1, "SAME", filters=W)
    with pytest.raises(ValueError, match="strides"):
        nn_conv.conv2d(X, W, [1, 2, 3], "SAME")
    with pytest.raises(ValueError, match="multiple of the filter's"):
        nn_conv.conv2d(X[..., :2], W, 1, "SAME")
    with pytest.raises(ValueError, match="EXPLICIT"):
        nn_conv.conv2d(X, W, 1, "EXPLICIT")


def test_the_name_of_a_layer_is_the_name_of_its_operation() -> None:
    assert nn_conv.conv2d(X, W, 1, "SAME").name == "Conv2D:0"
    assert nn_conv.conv2d(X, W, 1, "SAME", name="layer").name == "layer:0"
    assert nn_pool.max_pool(X, 2, 2, "SAME", name="pool").name == "pool:0"
    assert nn_activations.bias_add(X, np.zeros(3, np.float32)).name == "BiasAdd:0"
    assert nn_activations.softmax(X[0, 0]).name == "Softmax:0"
    assert nn_activations.dropout(X, 0.5).name == "dropout/mul_1:0"


@pytest.mark.parametrize("padding", ["SAME", "VALID"])
def test_convolutions_of_one_dimension_are_of_height_one(padding: str) -> None:
    x, w = normal(2, 9, 3), normal(3, 3, 4)
    close(run(nn_conv.conv1d(x, w, 2, padding)), windows.convolve(x, w, (2,), (1,), padding))
    first = np.ascontiguousarray(np.moveaxis(x, -1, 1))
    moved = run(nn_conv.conv1d(first, w, 2, padding, data_format="NCW"))
    close(np.moveaxis(moved, 1, -1), windows.convolve(x, w, (2,), (1,), padding))
    dilated = nn_conv.convolution(x, w, padding, dilation_rate=[2])
    close(run(dilated), windows.convolve(x, w, (1,), (2,), padding))


@pytest.mark.parametrize(("padding", "size"), [("SAME", [2, 13, 11, 3]), ("VALID", [2, 15, 12, 3])])
def test_transposed_convolutions_are_gradients(padding: str, size: list[int]) -> None:
    wide, small = np.zeros(size, np.float32), normal(2, 7, 6, 4)
    out = nn_conv.conv2d(convert_to_tensor(wide, name="wide"), W, 2, padding)
    (wanted,) = gradients(out, [out.op.inputs[0]], grad_ys=[convert_to_tensor(small)])
    layer = nn_conv.conv2d_transpose(small, W, size, 2, padding)
    assert layer.shape.as_list() == size
    close(*run([layer, wanted]))
    shape = unknown(dtypes.int32)
    close(run(nn_conv.conv2d_transpose(small, W, shape, 2, padding), {shape: size}), run(wanted))


def test_depthwise_and_separable_convolutions() -> None:
    depth, point = normal(3, 3, 3, 2), normal(1, 1, 6, 5)
    mixed = windows.convolve(X, depth, (1, 1), (2, 1), "SAME", depthwise=True)
    close(run(depthwise_conv.depthwise_conv2d(X, depth, [1, 1, 1, 1], "SAME", rate=[2, 1])), mixed)
    wanted = windows.convolve(mixed, point, (1, 1), (1, 1), "VALID")
    close(run(depthwise_conv.separable_conv2d(X, depth, point, [1, 1, 1, 1], "SAME", rate=[2, 1])), wanted, 1e-3)


def test_a_convolution_of_unknown_shapes_has_the_right_gradient() -> None:
    x, w = unknown(), unknown()
    out = nn_conv.conv2d(x, w, 1, "SAME")
    grads = gradients(out, [x, w])
    fixed = nn_conv.conv2d(X, W, 1, "SAME")
    wanted = run(gradients(fixed, list(fixed.op.inputs)))
    for got, value in zip(run(grads, {x: X, w: W}), wanted, strict=True):
        close(got, value)


# ---------------------------------------------------------------------- pooling
def test_pooling_by_rank() -> None:
    row = X[:, 0]
    wanted = windows.pool(row, [1, 2, 1], [1, 2, 1], "SAME", np.max)
    close(run(nn_pool.max_pool1d(row, 2, 2, "SAME")), wanted)
    close(run(nn_pool.pool(row, [2], "MAX", "SAME", strides=[2])), wanted)
    close(run(nn_pool.avg_pool_v2(X, 2, 2, "VALID")), windows.pool(X, [1, 2, 2, 1], [1, 2, 2, 1], "VALID", np.mean))


def test_pooling_with_a_dilated_window() -> None:
    got = run(nn_pool.pool(X, [2, 2], "AVG", "VALID", dilation_rate=[2, 3]))
    close(got, (X[:, :5, :3] + X[:, 2:, :3] + X[:, :5, 3:] + X[:, 2:, 3:]) / 4)
    with pytest.raises(ValueError, match="SAME padding"):
        nn_pool.pool(X, [2, 2], "MAX", "SAME", dilation_rate=[2, 2])
    with pytest.raises(ValueError, match="conjunction"):
        nn_pool.pool(X, [2, 2], "MAX", "VALID", dilation_rate=[2, 2], strides=[2, 2])


# ---------------------------------------------------------------------- softmax and losses
def softmax(x: Array, axis: int) -> Array:
    powers = np.exp(x - x.max(axis, keepdims=True))
    return powers / powers.sum(axis, keepdims=True)


@pytest.mark.parametrize("axis", [None, -1, 0, 1, -3])
def test_softmax_along_any_axis(axis: int | None) -> None:
    x = normal(3, 4, 5)
    wanted = softmax(x, -1 if axis is None else axis)
    close(run(nn_activations.softmax(x, axis)), wanted)
    hidden = unknown()
    close(run(nn_activations.log_softmax(hidden, dim=axis), {hidden: x}), np.log(wanted))


@pytest.mark.parametrize("axis", [2, 0, 1, -2])
def test_softmax_along_an_axis_that_is_fed(axis: int) -> None:
    x = np.random.default_rng(axis + 3).normal(size=(3, 4, 5)).astype(np.float32)
    at, hidden = unknown(dtypes.int32), unknown()
    at.set_shape([])
    close(run(nn_activations.softmax(x, at), {at: axis}), softmax(x, axis))
    close(run(nn_activations.log_softmax(hidden, at), {at: axis, hidden: x}), np.log(softmax(x, axis)))
    with pytest.raises(InvalidArgumentError, match="no permutation"):
        run(nn_activations.softmax(x, at), {at: 3})


def test_softmax_of_a_missing_axis() -> None:
    with pytest.raises(InvalidArgumentError, match="`axis` must be in the range"):
        nn_activations.softmax(normal(2, 3), axis=2)


@pytest.mark.parametrize("axis", [-1, 0, 1])
def test_cross_entropy_along_any_axis(axis: int) -> None:
    x, labels = normal(3, 4, 5), softmax(normal(3, 4, 5), axis)
    wanted = -(labels * np.log(softmax(x, axis))).sum(axis)
    close(run(nn_losses.softmax_cross_entropy_with_logits_v2(labels, x, axis=axis)), wanted)


def test_only_version_2_differentiates_the_labels() -> None:
    x, labels = convert_to_tensor(normal(3, 4)), convert_to_tensor(softmax(normal(3, 4), -1))
    assert gradients(nn_losses.softmax_cross_entropy_with_logits(labels=labels, logits=x), [labels]) == [None]
    assert gradients(nn_losses.softmax_cross_entropy_with_logits_v2(labels=labels, logits=x), [labels])[0] is not None
    with pytest.raises(ValueError, match="named arguments"):
        nn_losses.softmax_cross_entropy_with_logits(labels, x)
    with pytest.raises(ValueError, match="must be provided"):
        nn_losses.sigmoid_cross_entropy_with_logits(labels=labels)


def test_sparse_cross_entropy() -> None:
    x, labels = normal(2, 3, 5), np.array([[0, 4, 2], [1, 1, 3]])
    wanted = -np.log(np.take_along_axis(softmax(x, -1), labels[..., None], -1))[..., 0]
    close(run(nn_losses.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=x)), wanted)
    hidden = unknown(dtypes.int32)
    loss = nn_losses.sparse_softmax_cross_entropy_with_logits(labels=hidden, logits=x)
    close(run(loss, {hidden: labels}), wanted)
    with pytest.raises(InvalidArgumentError, match="outside the valid range"):
        run(loss, {hidden: labels + 1})
    with pytest.raises(ValueError, match="Rank mismatch"):
        nn_losses.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=x[0])
    with pytest.raises(ValueError, match="Shape mismatch"):
        nn_losses.sparse_softmax_cross_entropy_with_logits(labels=labels[0], logits=x[:, 0])


def test_sigmoid_losses_do_not_overflow() -> None:
    x = np.array([-1000, -3, 0, 2, 1000], np.float32)
    z = np.array([0, 0.3, 1, 0.5, 1], np.float32)
    wide = x.astype(np.float64)
    negative, positive = np.logaddexp(0, wide), np.logaddexp(0, -wide)
    close(run(nn_losses.sigmoid_cross_entropy_with_logits(labels=z, logits=x)), (1 - z) * negative + z * positive)
    weighted = (1 - z) * negative + 3 * z * positive
    close(run(nn_losses.weighted_cross_entropy_with_logits(z, x, 3.0)), weighted)
    with pytest.raises(ValueError, match="same shape"):
        nn_losses.sigmoid_cross_entropy_with_logits(labels=z[:2], logits=x)


def test_poisson_loss() -> None:
    x, z = normal(6), np.array([0, 0.5, 1, 2, 5, 9], np.float32)
    close(run(nn_losses.log_poisson_loss(z, x)), np.exp(x) - x * z)
    with np.errstate(all="ignore"):
        stirling = z * np.log(z) - z + 0.5 * np.log(2 * np.pi * z)
    stirling[z <= 1] = 0
    close(run(nn_losses.log_poisson_loss(z, x, compute_full_loss=True)), np.exp(x) - x * z + stirling)


# ---------------------------------------------------------------------- dropout
def test_dropout_keeps_the_expected_sum() -> None:
    set_random_seed(1)
    ones = np.ones((100, 200), np.float32)
    kept = run(nn_activations.dropout(ones, rate=0.25))
    assert set(np.unique(kept)) == {np.float32(0), np.float32(1 / 0.75)}
    assert abs(kept.mean() - 1) < 0.02
    rows = run(nn_activations.dropout(ones, keep_prob=0.5, noise_shape=[None, 1]))
    assert np.all(rows == rows[:, :1])
    assert 0 < (rows == 0).mean() < 1


def test_dropout_by_a_fed_probability() -> None:
    keep = raw.Placeholder(dtype=dtypes.float32, shape=[])
    ones = np.ones((30, 20), np.float32)
    dropped = nn_activations.dropout(ones, keep, seed=3)
    assert np.all(run(dropped, {keep: 1.0}) == 1)
    assert 0.2 < (run(dropped, {keep: 0.5}) == 0).mean() < 0.8


def test_dropout_refuses_bad_arguments() -> None:
    ones = convert_to_tensor(np.ones(3, np.float32))
    assert nn_activations.dropout(ones, rate=0.0) is ones
    for bad in ({}, {"rate": 1.0}, {"rate": -0.1}, {"rate": 0.5, "keep_prob": 0.5}):
        with pytest.raises(ValueError):
            nn_activations.dropout(ones, **bad)
    with pytest.raises(ValueError, match="floating point"):
        nn_activations.dropout(np.ones(3, np.int32), rate=0.5)


# ---------------------------------------------------------------------- normalization
def test_moments() -> None:
    x = normal(3, 4, 5)
    mean, variance = run(nn_normalization.moments(x, [0, 2]))
    close(mean, x.mean((0, 2)))
    close(variance, x.var((0, 2)))
    assert run(nn_normalization.moments(x, [1], keep_dims=True))[0].shape == (3, 1, 5)
    half = nn_normalization.moments(x.astype(np.float16), [0])
    assert [t.dtype for t in half] == [dtypes.float16] * 2
    together = nn_normalization.normalize_moments(
        *nn_normalization.sufficient_statistics(x, [0, 2], shift=np.float32(0.5))
    )
    for got, wanted in zip(run(together), (mean, variance), strict=True):
        close(got, wanted)
    weights = np.abs(normal(3, 1, 5))
    got = run(nn_normalization.weighted_moments(x, [0, 2], weights))
    close(got[0], np.average(x, (0, 2), np.broadcast_to(weights, x.shape)))


def composed(x: Any, scale: Any, offset: Any) -> Any:
    mean, variance = nn_normalization.moments(x, [0, 1, 2])
    return nn_normalization.batch_normalization(x, mean, variance, offset, scale, 0.01)


def fused(x: Any, scale: Any, offset: Any) -> Any:
    return nn_normalization.fused_batch_norm(x, scale, offset, epsilon=0.01)[0]


def fixed(x: Any, scale: Any, offset: Any) -> Any:
    moments = np.array([0.1, 0.2, 0.3], np.float32), np.array([1, 2, 3], np.float32)
    return nn_normalization.fused_batch_norm(x, scale, offset, *moments, epsilon=0.01, is_training=False)[0]


def fixed_composed(x: Any, scale: Any, offset: Any) -> Any:
    moments = np.array([0.1, 0.2, 0.3], np.float32), np.array([1, 2, 3], np.float32)
    return nn_normalization.batch_normalization(x, *moments, offset, scale, 0.01)


@pytest.mark.parametrize(("one", "other"), [(fused, composed), (fixed, fixed_composed)])
def test_fused_batch_norm_has_the_derivatives_of_its_parts(one: Any, other: Any) -> None:
    # numbers of its own: the shared ones depend on which tests ran before, and sums near zero round differently
    rng = np.random.default_rng(5)
    values = X * 2 + 1, *(rng.normal(size=3).astype(np.float32) for _ in range(2))
    weights = rng.normal(size=X.shape).astype(np.float32)
    seconds = [rng.normal(size=v.shape).astype(np.float32) for v in values]
    found = []
    for function in (one, other):
        inputs = [convert_to_tensor(v) for v in values]
        incoming = convert_to_tensor(weights)
        y = function(*inputs)
        first = gradients(y, inputs, grad_ys=[incoming])
        again = gradients(first, [*inputs[:2], incoming], grad_ys=[convert_to_tensor(s) for s in seconds])
        # Without training the gradient is linear in x: there is nothing of second order in some inputs.
        found.append(run([y, *first, *(raw.ZerosLike(y) if g is None else g for g in again)]))
    for a, b in zip(*found, strict=True):
        close(a, b, 2e-3)


def test_an_empty_batch_has_no_moments() -> None:
    ones = np.ones(2, np.float32)
    y, mean, variance = nn_normalization.fused_batch_norm(np.zeros([0, 3, 3, 2], np.float32), ones, ones)
    with Session() as session:
        found = session.run([y, mean, variance])
    assert found[0].shape == (0, 3, 3, 2)
    assert all(np.isnan(vector).tolist() == [True, True] for vector in found[1:])


def test_fused_batch_norm_checks_its_moments() -> None:
    ones = np.ones(3, np.float32)
    with pytest.raises(ValueError, match="must be None"):
        nn_normalization.fused_batch_norm(X, ones, ones, ones, ones)
    with pytest.raises(ValueError, match="inference"):
        nn_normalization.fused_batch_norm(X, ones, ones, is_training=False)


# ---------------------------------------------------------------------- the rest
def test_activations_outside_the_vocabulary() -> None:
    x = normal(3, 4)
    close(run(nn_activations.crelu(x)), np.maximum(np.concatenate([x, -x], -1), 0))
    close(run(nn_activations.swish(x)), x / (1 + np.exp(-x)))
    close(run(nn_activations.leaky_relu(np.array([-10, 10]), 0.1)), [-1, 10])
    leaky = nn_activations.leaky_relu(np.array([-10, 10]), np.array(0.1, np.float32))
    assert leaky.op.type == "LeakyRelu"
    close(run(leaky), [-1, 10])
    for axis in (1, [1], raw.Sub(raw.Rank(x), np.int32(1))):
        close(run(nn_activations.l2_normalize(x, axis)), x / np.linalg.norm(x, axis=1, keepdims=True))
    close(run(nn_activations.zero_fraction(np.array([0, 1, 0, 2]))), 0.5)
    close(run(nn_activations.relu_layer(x, normal(4, 2) * 0, np.array([-1, 2], np.float32))), np.full((3, 2), [0, 2]))


def test_bias_add_formats() -> None:
    bias = np.arange(7, dtype=np.float32)
    close(run(nn_activations.bias_add(X, bias, data_format="NCHW")), X + bias[:, None, None])
    with pytest.raises(ValueError, match="data_format"):
        nn_activations.bias_add(X, bias, data_format="HWC")
    with pytest.raises(ValueError, match="channels"):
        nn_activations.bias_add(X, bias)


def test_sequences_without_alignment() -> None:
    logits = normal(6, 2, 4)
    labels = SparseTensor([[0, 0], [0, 1], [1, 0]], np.array([1, 2, 0], np.int32), [2, 2])
    lengths = np.array([6, 4], np.int32)
    loss = nn_ctc.ctc_loss(labels, logits, lengths)
    swapped = nn_ctc.ctc_loss(labels, logits.swapaxes(0, 1), lengths, time_major=False)
    close(*run([loss, swapped]))
    assert np.all(run(loss) > 0)
    # The decoder's own labels are the most probable ones.
    (decoded,), scores = nn_ctc.ctc_beam_search_decoder(logits, lengths, merge_repeated=False)
    indices, values, best = run([decoded.indices, decoded.values, scores])
    again = SparseTensor(indices, values.astype(np.int32), [2, 6])
    close(run(nn_ctc.ctc_loss(again, logits, lengths)), -best[:, 0])
    with pytest.raises(TypeError, match="SparseTensor"):
        nn_ctc.ctc_loss(np.zeros((2, 2), np.int32), logits, lengths)


def test_erosion_is_dilation_of_the_negative() -> None:
    window = np.zeros((2, 2, 3), np.float32)
    eroded = run(morphology.erosion2d(X, window, [1, 1, 1, 1], [1, 1, 1, 1], "VALID"))
    close(eroded, windows.pool(X, [1, 2, 2, 1], [1, 1, 1, 1], "VALID", np.min))
