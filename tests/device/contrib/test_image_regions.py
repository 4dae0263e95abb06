"""`tf.contrib.image`: colours as signals of television, regions that hang together, pairs of boxes."""

from __future__ import annotations

import colorsys
from typing import Any

import numpy as np
import pytest
from scipy import ndimage

import anabranch as tf

image = tf.contrib.image
RNG = np.random.default_rng(8)


def run(fetches: Any) -> Any:
    with tf.Session() as session:
        return session.run(fetches)


def test_colours_are_turned_in_the_plane_of_colours() -> None:
    picture = RNG.random((2, 3, 4, 3)).astype(np.float32)
    turned, grey, bright = run(
        [
            image.adjust_hsv_in_yiq(picture, delta_hue=0.7),
            image.adjust_hsv_in_yiq(picture, scale_saturation=0.0),
            image.adjust_hsv_in_yiq(picture, scale_value=0.25),
        ]
    )

    def signals(pixels: Any) -> Any:
        return np.array([colorsys.rgb_to_yiq(*pixel) for pixel in pixels.reshape(-1, 3).tolist()])

    before, after = signals(picture), signals(turned)
    np.testing.assert_allclose(after[:, 0], before[:, 0], atol=0.01)
    angle = np.arctan2(after[:, 2], after[:, 1]) - np.arctan2(before[:, 2], before[:, 1])
    np.testing.assert_allclose(np.exp(1j * angle), np.exp(0.7j), atol=0.1)
    np.testing.assert_allclose(grey.std(-1), 0, atol=2e-3)
    np.testing.assert_allclose(bright, picture * 0.25, atol=2e-3)


def test_bytes_stay_bytes_and_numbers_are_drawn_anew() -> None:
    picture = RNG.integers(0, 255, (4, 4, 3)).astype(np.uint8)
    same, drawn = image.adjust_yiq_hsv(picture), image.random_yiq_hsv(picture, 0.5, 0.5, 1.5, 0.6, 0.9, seed=1)
    with tf.Session() as session:
        found = session.run(same)
        assert found.dtype == np.uint8
        assert np.abs(found.astype(int) - picture).max() <= 1
        assert (session.run(drawn) != session.run(drawn)).any()


def test_errors_of_colours() -> None:
    with pytest.raises(ValueError, match="at least rank 3"):
        image.adjust_hsv_in_yiq(np.zeros((2, 3), np.float32))
    with pytest.raises(tf.errors.InvalidArgumentError, match="instead has 4 channels"):
        image.adjust_hsv_in_yiq(np.zeros((2, 2, 4), np.float32))
    for wrong in ({"max_delta_hue": -1}, {"lower_saturation": 2}, {"lower_value": -1}, {"lower_value": 3}):
        with pytest.raises(ValueError, match="must be"):
            image.random_hsv_in_yiq(np.zeros((2, 2, 3), np.float32), **wrong)


def test_components_are_those_of_scipy() -> None:
    pictures = RNG.random((3, 9, 11)) < 0.55
    spiral = np.ones((9, 11), bool)
    spiral[1, 1:] = spiral[3, :-1] = spiral[5, 1:] = spiral[7, :-1] = False
    pictures[2] = spiral
    found = run(image.connected_components(pictures))
    count = 0
    for picture, labels in zip(pictures, found, strict=True):
        expected, number = ndimage.label(picture)
        np.testing.assert_array_equal(labels, np.where(expected > 0, expected + count, 0))
        count += number


def test_components_have_equal_pixels() -> None:
    numbers = np.array([[1, 1, 2, 0], [0, 1, 2, 2], [3, 0, 0, 1]])
    np.testing.assert_array_equal(run(image.connected_components(numbers)), [[1, 1, 2, 0], [0, 1, 2, 2], [3, 0, 0, 4]])
    assert run(image.connected_components(np.zeros((1, 2, 2)))).tolist() == [[[0, 0], [0, 0]]]
    with pytest.raises(TypeError, match="rank 2"):
        image.connected_components([True])


def test_the_nearest_are_paired_first() -> None:
    distances = RNG.random((4, 3)).astype(np.float32)
    for valid, top in ((-1, -1), (2, -1), ([3], 1)):
        rows, columns = run(image.bipartite_match(distances, valid, top))
        expected, used = np.full(4, -1), set[int]()
        limit = 4 if valid == -1 else int(np.ravel(valid)[0])
        order = sorted((distances[r, c], r, c) for r in range(limit) for c in range(3))
        for _, row, column in order:
            if expected[row] < 0 and column not in used and (top < 0 or len(used) < top):
                expected[row] = column
                used.add(column)
        np.testing.assert_array_equal(rows, expected)
        for row, column in enumerate(expected):
            assert column < 0 or columns[column] == row
        assert (columns >= 0).sum() == len(used)


def test_pairs_of_distances_of_which_one_size_is_known() -> None:
    distances = tf.placeholder(tf.float32, [None, 1])
    rows, columns = image.bipartite_match(distances, -1)
    assert (rows.shape.as_list(), columns.shape.as_list()) == ([None], [1])
    with tf.Session() as session:
        found = session.run([rows, columns], {distances: [[3.0], [1.0]]})
    assert [one.tolist() for one in found] == [[-1, 0], [1]]
