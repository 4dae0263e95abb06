"""Images of no known rank, as `decode_image` and `py_func` give them, are single ones, as TensorFlow takes them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import anabranch as tf

IMAGE = np.arange(24, dtype=np.float32).reshape(4, 3, 2)


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (lambda x: tf.image.crop_to_bounding_box(x, 1, 0, 2, 3), IMAGE[1:3]),
        (lambda x: tf.image.pad_to_bounding_box(x, 1, 0, 5, 3), np.pad(IMAGE, [(1, 0), (0, 0), (0, 0)])),
        (lambda x: tf.image.resize_image_with_crop_or_pad(x, 2, 5), np.pad(IMAGE[1:3], [(0, 0), (1, 1), (0, 0)])),
        (lambda x: tf.image.resize_image_with_pad(x, 4, 3), IMAGE),
        (tf.image.flip_left_right, IMAGE[:, ::-1]),
        (tf.image.flip_up_down, IMAGE[::-1]),
        (tf.image.transpose_image, IMAGE.transpose(1, 0, 2)),
        (tf.image.rot90, np.rot90(IMAGE)),
    ],
)
def test_an_image_of_no_known_rank(change: Callable[[Any], Any], expected: Any) -> None:
    with tf.Graph().as_default(), tf.Session() as session:
        image = tf.placeholder(tf.float32)
        changed = change(image)
        assert changed.shape.ndims in (None, 3)
        np.testing.assert_allclose(session.run(changed, {image: IMAGE}), expected)


@pytest.mark.parametrize(
    ("change", "mirrored"),
    [(tf.image.random_flip_left_right, IMAGE[:, ::-1]), (tf.image.random_flip_up_down, IMAGE[::-1])],
)
def test_an_image_of_no_known_rank_is_mirrored_at_random(change: Callable[..., Any], mirrored: Any) -> None:
    with tf.Graph().as_default(), tf.Session() as session:
        image = tf.placeholder(tf.float32)
        changed = change(image, seed=1)
        assert changed.shape.as_list() == [None, None, None]
        results = [session.run(changed, {image: IMAGE}) for _ in range(20)]
        same = [np.array_equal(result, IMAGE) for result in results]
        assert {True, False} == set(same)
        for result, kept in zip(results, same, strict=True):
            np.testing.assert_array_equal(result, IMAGE if kept else mirrored)


def test_resizing_needs_a_rank() -> None:
    with tf.Graph().as_default(), pytest.raises(ValueError, match="contains no shape"):
        tf.image.resize_images(tf.placeholder(tf.float32), [2, 2])
