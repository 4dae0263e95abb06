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
