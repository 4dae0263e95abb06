"""`tf.estimator.experimental.KMeans` beside the same steps in NumPy."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import anabranch as tf

KMeans = tf.estimator.experimental.KMeans
RANDOM = np.random.RandomState(3)
MIDDLES = np.array([[0, 0], [5, 0], [0, 5]], np.float32)
POINTS = (np.tile(MIDDLES, (8, 1)) + RANDOM.normal(0, 0.5, (24, 2))).astype(np.float32)
FIRST = POINTS[:3] + np.float32(0.5)


def data(epochs: int | None = 1, size: int = 24) -> Any:
    return tf.estimator.inputs.numpy_input_fn({"x": POINTS}, batch_size=size, num_epochs=epochs, shuffle=False)


def squared(points: Any, centres: Any) -> Any:
    return ((points[:, None] - centres[None]) ** 2).sum(-1)


def nearest(points: Any, centres: Any) -> Any:
    return squared(points, centres).argmin(1)


def test_centres_of_whole_data_are_means(tmp_path: Path) -> None:
    model = KMeans(3, tmp_path, FIRST, use_mini_batch=False, relative_tolerance=1e-3)
    model.train(data(None), steps=10)
    expected = FIRST
    for _ in range(10):
        expected = np.stack([POINTS[nearest(POINTS, expected) == i].mean(0) for i in range(3)])
    np.testing.assert_allclose(model.cluster_centers(), expected, rtol=1e-4)
    assert model.get_variable_value("global_step") < 10  # the loss changed no more
    assert list(model.predict_cluster_index(data())) == nearest(POINTS, expected).tolist()
    assert model.score(data()) == pytest.approx(squared(POINTS, expected).min(1).sum(), rel=1e-4)
    np.testing.assert_allclose(list(model.transform(data())), np.sqrt(squared(POINTS, expected)), rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("together", [1, 2])
def test_small_batches_move_centres_less_and_less(together: int, tmp_path: Path) -> None:
    model = KMeans(3, tmp_path, FIRST, mini_batch_steps_per_iteration=together)
    model.train(data(None, 6), steps=7)
    centres, moved = FIRST.astype(np.float64), FIRST.astype(np.float64)
    counts, left = np.full(3, 1 if together == 1 else 0), together
    for step in range(7):
        batch = POINTS[step * 6 % 24 :][:6]
        where = nearest(batch, centres)
        if together > 1:
            if left <= 0:
                centres, counts, left = moved.copy(), np.zeros(3, int), together - 1
            else:
                left -= 1
        for i in range(3):
            mine = batch[where == i]
            counts[i] += len(mine)
            if len(mine):
                moved[i] += (mine - moved[i]).sum(0) / counts[i]
        if together == 1:
            centres = moved
    np.testing.assert_allclose(model.cluster_centers(), centres, rtol=1e-4)


def test_cosine_distance_compares_directions(tmp_path: Path) -> None:
    first = np.array([[2.0, 0.1], [0.1, 3.0]], np.float32)
    model = KMeans(2, tmp_path, first, KMeans.COSINE_DISTANCE, use_mini_batch=False)
    points = np.array([[4, 1], [9, 1], [1, 2], [1, 7]], np.float32)
    given = tf.estimator.inputs.numpy_input_fn({"x": points}, batch_size=4, num_epochs=None, shuffle=False)
    model.train(given, steps=1)
    units = points / np.linalg.norm(points, axis=1, keepdims=True)
    sums = np.stack([units[:2].sum(0), units[2:].sum(0)])
    np.testing.assert_allclose(model.cluster_centers(), sums / np.linalg.norm(sums, axis=1, keepdims=True), rtol=1e-4)


@pytest.mark.parametrize("how", ["random", "kmeans_plus_plus", "function"])
def test_centres_are_chosen_from_examples(how: str, tmp_path: Path) -> None:
    asked: list[Any] = []

    def one_by_one(points: list[Any], missing: Any) -> Any:
        asked.append(missing)
        return points[0][:1]

    # the first batch of two has fewer examples than centres are missing
    size = 24 if how == "kmeans_plus_plus" else 2
    chosen: Any = one_by_one if how == "function" else how
    model = KMeans(3, tmp_path, chosen, seed=4, use_mini_batch=False)
    seen: list[Any] = []

    class Looks(tf.train.SessionRunHook):
        def begin(self) -> None:
            self.clusters = tf.global_variables("clusters")[0]

        def before_run(self, run_context: Any) -> Any:
            seen.append(run_context.session.run(self.clusters))

    model.train(data(None, size), hooks=[Looks()], steps=1)
    assert squared(seen[0], POINTS).min(1).max() < 1e-9
    assert len(asked) == (1 if how == "function" else 0)


def test_what_is_wrong_is_said() -> None:
    with pytest.raises(ValueError, match="Unsupported initialization algorithm 'best'"):
        KMeans(3, initial_clusters="best")
    with pytest.raises(ValueError, match="Unsupported distance metric 'far'"):
        KMeans(3, distance_metric="far")
    with pytest.raises(ValueError, match="num_clusters must be positive"):
        KMeans(0)
