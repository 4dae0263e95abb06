"""The gradient of ExtractImagePatches where the sizes of the images are found out by the step."""

from __future__ import annotations

import numpy as np
import pytest

import anabranch as tf


@pytest.mark.parametrize(("padding", "strides"), [("SAME", [1, 2, 3, 1]), ("VALID", [1, 1, 2, 1])])
def test_images_of_unknown_size_have_the_gradient_of_known_ones(padding: str, strides: list[int]) -> None:
    images = np.arange(70, dtype=np.float32).reshape(1, 5, 7, 2)
    gradients = []
    x = tf.placeholder(tf.float32, [1, 5, 7, 2])
    with tf.Session() as session:
        for shape in ([1, 5, 7, 2], [None, None, 7, 2], None):
            hidden = tf.placeholder_with_default(x, shape)
            patches = tf.extract_image_patches(hidden, [1, 3, 2, 1], strides, [1, 1, 2, 1], padding)
            gradients.append(session.run(tf.gradients(patches * patches, x)[0], {x: images}))
    assert np.any(gradients[0])
    np.testing.assert_array_equal(gradients[1], gradients[0])
    np.testing.assert_array_equal(gradients[2], gradients[0])


@pytest.mark.parametrize("shape", [[1, 5, 4, 2], None])
def test_nothing_flows_back_through_windows_that_are_longer_than_the_image(shape: list[int] | None) -> None:
    images = np.ones((1, 5, 4, 2), np.float32)
    x = tf.placeholder(tf.float32, shape)
    patches = tf.extract_image_patches(x, [1, 2, 5, 1], [1, 1, 2, 1], [1, 1, 1, 1], "VALID")
    dilated = tf.nn.dilation2d(x, tf.ones([2, 5, 2]), [1, 1, 2, 1], [1, 1, 1, 1], "VALID")
    with tf.Session() as session:
        shapes = [value.shape for value in session.run([patches, dilated], {x: images})]
        gradients = session.run([tf.gradients(y, x)[0] for y in (patches, dilated)], {x: images})
    assert shapes == [(1, 4, 0, 20), (1, 4, 0, 2)]
    for gradient in gradients:
        np.testing.assert_array_equal(gradient, np.zeros_like(images))


def test_a_window_that_is_longer_by_more_than_a_stride_is_refused() -> None:
    with pytest.raises(ValueError, match="output size would be negative: -1"):
        tf.extract_image_patches(tf.zeros([1, 5, 4, 2]), [1, 2, 8, 1], [1, 1, 2, 1], [1, 1, 1, 1], "VALID")
    x = tf.placeholder(tf.float32)
    patches = tf.extract_image_patches(x, [1, 2, 8, 1], [1, 1, 2, 1], [1, 1, 1, 1], "VALID")
    with tf.Session() as session, pytest.raises(tf.errors.InvalidArgumentError, match="would be negative: -1"):
        session.run(patches, {x: np.ones((1, 5, 4, 2), np.float32)})
