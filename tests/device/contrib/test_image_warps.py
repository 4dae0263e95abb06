"""Pictures that are warped, splines, and sparse probabilities, beside their definitions in NumPy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import anabranch as tf

RNG = np.random.default_rng(4)


def value(fetched: tf.nest.Structure, feeds: dict[tf.Tensor, Any] | None = None) -> Any:
    with tf.Session() as sess:
        return sess.run(fetched, feeds)


def slopes(function: Callable[[Any], Any], at: Any, step: float = 1e-5) -> Any:
    """Of the sum of what the function gives, by central differences."""
    found = np.zeros_like(at)
    for place in np.ndindex(at.shape):
        moved = np.zeros_like(at)
        moved[place] = step
        found[place] = (function(at + moved).sum() - function(at - moved).sum()) / (2 * step)
    return found


def check_gradient(build: Callable[[Any], tf.Tensor], at: Any) -> None:
    given = tf.placeholder(tf.float64, at.shape)
    result = build(given)
    (gradient,) = tf.gradients(result, given)
    with tf.Session() as sess:
        expected = slopes(lambda x: sess.run(result, {given: x}), at)
        np.testing.assert_allclose(sess.run(gradient, {given: at}), expected, atol=1e-6, rtol=1e-6)


# ---------------------------------------------------------------------- sparsemax
def nearest_in_simplex(row: Any) -> Any:
    """By bisection of the threshold."""
    low, high = row.min() - 1, row.max()
    for _ in range(100):
        middle = (low + high) / 2
        low, high = (middle, high) if np.maximum(row - middle, 0).sum() > 1 else (low, middle)
    return np.maximum(row - low, 0)


@pytest.mark.parametrize(("dtype", "tolerance"), [(np.float16, 5e-3), (np.float32, 1e-6), (np.float64, 1e-12)])
def test_sparsemax_is_the_nearest_point_of_the_simplex(dtype: Any, tolerance: float) -> None:
    logits = RNG.normal(size=(7, 5)).astype(dtype) * 2
    found = value(tf.contrib.sparsemax.sparsemax(logits))
    assert found.dtype == dtype
    expected = [nearest_in_simplex(row) for row in logits.astype(np.float64)]
    np.testing.assert_allclose(found, expected, atol=tolerance)
    assert (found == 0).any()


def test_sparsemax_of_what_is_not_finite() -> None:
    rows = [[0, -np.inf, 1], [np.inf, 0, 0], [np.nan, 0, 0], [-np.inf] * 3]
    found = value(tf.contrib.sparsemax.sparsemax(np.array(rows)))
    np.testing.assert_array_equal(found, [[0, 0, 1], [np.nan] * 3, [np.nan] * 3, [np.nan] * 3])


def test_gradient_of_sparsemax() -> None:
    weights = RNG.normal(size=(4, 5))
    check_gradient(lambda z: tf.contrib.sparsemax.sparsemax(z) * weights, RNG.normal(size=(4, 5)))


def test_sparsemax_loss() -> None:
    logits = RNG.normal(size=(4, 5))
    labels = np.eye(5)[[0, 3, 4, 1]]
    p = np.stack([nearest_in_simplex(row) for row in logits])
    # definition 7 of the paper: q.q / 2 - q.z + z.p - p.p / 2
    expected = (labels**2 / 2 - labels * logits + logits * p - p**2 / 2).sum(1)
    given = tf.placeholder(tf.float64, [None, None])
    probabilities = tf.contrib.sparsemax.sparsemax(given)
    loss = tf.contrib.sparsemax.sparsemax_loss(given, probabilities, labels)
    found, gradient = value([loss, tf.gradients(loss, given)[0]], {given: logits})
    np.testing.assert_allclose(found, expected)
    np.testing.assert_allclose(gradient, p - labels, atol=1e-12)


def test_sparsemax_loss_of_logits_that_are_infinite() -> None:
    logits = tf.constant([[0.0, -np.inf, 1.0]])
    probabilities = tf.contrib.sparsemax.sparsemax(logits)
    losses = [tf.contrib.sparsemax.sparsemax_loss(logits, probabilities, [np.eye(3)[i]]) for i in range(3)]
    np.testing.assert_allclose(np.ravel(value(losses)), [1, np.inf, 0])


# ---------------------------------------------------------------------- warps
def warped(picture: Any, flow: Any) -> Any:
    """The definition: the pixel at (y, x) comes from (y, x) - flow, within the picture."""
    result = np.zeros_like(picture)
    height, width = picture.shape[1:3]
    for b, row, column in np.ndindex(picture.shape[:3]):
        y = np.clip(row - flow[b, row, column, 0], 0, height - 1)
        x = np.clip(column - flow[b, row, column, 1], 0, width - 1)
        for r in range(height):
            for c in range(width):
                weight = max(0, 1 - abs(y - r)) * max(0, 1 - abs(x - c))
                result[b, row, column] += weight * picture[b, r, c]
    return result


@pytest.mark.parametrize("dtypes", [(np.float32, np.float32), (np.float64, np.float32), (np.float32, np.float64)])
def test_dense_warp(dtypes: tuple[Any, Any]) -> None:
    picture, flow = RNG.normal(size=(2, 4, 5, 3)).astype(dtypes[0]), RNG.normal(size=(2, 4, 5, 2)).astype(dtypes[1]) * 2
    found = value(tf.contrib.image.dense_image_warp(tf.constant(picture), tf.constant(flow)))
    assert found.dtype == dtypes[0]
    np.testing.assert_allclose(found, warped(picture, flow), atol=1e-5)


def test_dense_warp_of_unknown_size() -> None:
    picture, flow = RNG.normal(size=(2, 4, 5, 3)), RNG.normal(size=(2, 4, 5, 2))
    given = tf.placeholder(tf.float64, [None] * 4), tf.placeholder(tf.float64, [None] * 4)
    result = tf.contrib.image.dense_image_warp(*given)
    np.testing.assert_allclose(value(result, dict(zip(given, (picture, flow), strict=True))), warped(picture, flow))


def test_gradients_of_dense_warp() -> None:
    picture, flow = RNG.normal(size=(1, 3, 4, 2)), RNG.normal(size=(1, 3, 4, 2))
    weights = RNG.normal(size=(1, 3, 4, 2))
    check_gradient(lambda p: tf.contrib.image.dense_image_warp(p, flow) * weights, picture)
    check_gradient(lambda f: tf.contrib.image.dense_image_warp(picture, f) * weights, flow)


def test_what_cannot_be_warped() -> None:
    with pytest.raises(ValueError, match="at least 2"):
        tf.contrib.image.dense_image_warp(tf.zeros([1, 1, 4, 1]), tf.zeros([1, 1, 4, 2]))
    with pytest.raises(ValueError, match="flow must have four dimensions"):
        tf.contrib.image.dense_image_warp(tf.zeros([1, 4, 4, 1]), tf.zeros([4, 4, 2]))
    with pytest.raises(ValueError, match="must be known"):
        tf.contrib.image.sparse_image_warp(tf.placeholder(tf.float32, [None, 4, 4, 1]), [[[0.0, 0]]], [[[0.0, 0]]])
    with pytest.raises(ValueError, match=r"values \(k\) must be known"):
        tf.contrib.image.interpolate_spline([[[0.0]]], tf.placeholder(tf.float32), [[[0.0]]], 1)
    unknown = tf.placeholder(tf.float32, [None] * 4)
    result = tf.contrib.image.dense_image_warp(unknown, tf.zeros([1, 1, 4, 2]))
    with pytest.raises(tf.errors.InvalidArgumentError, match="at least 2"):
        value(result, {unknown: np.zeros([1, 1, 4, 1])})


def spline(points: Any, values: Any, queries: Any, order: int, smoothness: float) -> Any:
    def radial(a: Any, b: Any) -> Any:
        r = np.sqrt(np.maximum(((a[:, None] - b[None]) ** 2).sum(-1), 1e-10))
        return r**order * (1 if order % 2 else np.log(r))

    def ones(a: Any) -> Any:
        return np.concatenate([a, np.ones([len(a), 1])], 1)

    width = points.shape[1] + 1
    matrix = np.block(
        [
            [radial(points, points) + smoothness * np.eye(len(points)), ones(points)],
            [ones(points).T, np.zeros([width, width])],
        ]
    )
    weights = np.linalg.solve(matrix, np.concatenate([values, np.zeros([width, values.shape[1]])]))
    return np.concatenate([radial(queries, points), ones(queries)], 1) @ weights


@pytest.mark.parametrize("order", [1, 2, 3, 4, 5, 6])
@pytest.mark.parametrize("smoothness", [0.0, 0.01])
def test_splines(order: int, smoothness: float) -> None:
    points, values, queries = RNG.normal(size=(2, 9, 2)), RNG.normal(size=(2, 9, 3)), RNG.normal(size=(2, 4, 2))
    found = value(tf.contrib.image.interpolate_spline(points, values, queries, order, smoothness))
    expected = [spline(*parts, order, smoothness) for parts in zip(points, values, queries, strict=True)]
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)
    if not smoothness:
        through = value(tf.contrib.image.interpolate_spline(points, values, points, order))
        np.testing.assert_allclose(through, values, atol=1e-6)


@pytest.mark.parametrize("order", [1, 2, 3])
def test_gradients_of_splines(order: int) -> None:
    points, values, queries = RNG.normal(size=(1, 6, 2)), RNG.normal(size=(1, 6, 1)), RNG.normal(size=(1, 3, 2))
    check_gradient(lambda v: tf.contrib.image.interpolate_spline(points, v, queries, order), values)
    check_gradient(lambda q: tf.contrib.image.interpolate_spline(points, values, q, order), queries)


@pytest.mark.parametrize("stay", [0, 1, 3])
def test_sparse_warp_moves_its_points(stay: int) -> None:
    picture = RNG.normal(size=(1, 8, 9, 2))
    source, goal = np.array([[[2.0, 2], [5, 3], [3, 6]]]), np.array([[[3.0, 2], [5, 5], [2, 6]]])
    result, flow = value(tf.contrib.image.sparse_image_warp(picture, source, goal, num_boundary_points=stay))
    for before, after in zip(source[0].astype(int), goal[0].astype(int), strict=True):
        np.testing.assert_allclose(result[0, after[0], after[1]], picture[0, before[0], before[1]], atol=1e-5)
    np.testing.assert_allclose(result, warped(picture, flow), atol=1e-6)
    if stay:
        np.testing.assert_allclose(flow[0, [0, 0, -1, -1], [0, -1, 0, -1]], np.zeros([4, 2]), atol=1e-6)
