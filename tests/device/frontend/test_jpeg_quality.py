"""What JPEG leaves of a picture: the less, the lower the quality; the encoder is not TensorFlow's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import anabranch as tf

pytest.importorskip("PIL")


@pytest.fixture
def picture() -> Any:
    return np.random.default_rng(3).integers(0, 255, (16, 24, 3)).astype(np.uint8)


def test_a_lower_quality_leaves_less(picture: Any) -> None:
    quality = tf.placeholder(tf.int32, [])
    by_tensor, by_number = tf.image.adjust_jpeg_quality(picture, quality), tf.image.adjust_jpeg_quality(picture, 30)
    with tf.Session() as session:
        low, high = (session.run(by_tensor, {quality: q}) for q in (5, 95))
        errors = [np.abs(result.astype(float) - picture).mean() for result in (low, high)]
        assert errors[0] > errors[1] > 0
        assert by_tensor.shape.as_list() == [16, 24, 3]
        np.testing.assert_array_equal(session.run(by_tensor, {quality: 30}), session.run(by_number))
        with pytest.raises(tf.errors.InvalidArgumentError, match="quality must be in"):
            session.run(by_tensor, {quality: 101})


def test_floats_stay_floats_and_the_range_is_checked(picture: Any) -> None:
    image = tf.constant(picture / 255.0, tf.float32)
    with tf.Session() as session:
        result = session.run(tf.image.random_jpeg_quality(image, 20, 40, seed=1))
    assert result.dtype == np.float32
    assert 0 <= result.min() < result.max() <= 1
    for least, most in ((-1, 50), (50, 101), (60, 50)):
        with pytest.raises(ValueError, match=r"jpeg|must be less"):
            tf.image.random_jpeg_quality(image, least, most)
