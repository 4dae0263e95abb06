"""Scaled images, patches of volumes, similarity at scales, fingerprints: beside what TensorFlow recorded."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import anabranch as tf
from tests.device.frontend.test_recorded_functions import same
from tests.oracles.image_cases import CASES, PICTURES

FIXTURE = Path(__file__).parents[2] / "fixtures" / "tensorflow" / "images.json.gz"
RECORDED: dict[str, list[dict[str, Any]]] = json.loads(gzip.decompress(FIXTURE.read_bytes()))


def value(tensor: Any, feeds: Any = None) -> Any:
    with tf.Session() as session:
        return session.run(tensor, feeds)


@pytest.mark.parametrize("name", CASES)
def test_values_are_those_that_tensorflow_recorded(name: str) -> None:
    with tf.Graph().as_default():
        values = value(CASES[name](tf))
    assert len(values) == len(RECORDED[name])
    for index, (found, entry) in enumerate(zip(values, RECORDED[name], strict=True)):
        same(np.asarray(found), entry, f"value {index} of {name}")


def test_scales_that_the_step_decides_and_second_derivatives() -> None:
    scale, pictures = tf.placeholder(tf.float32, [2]), tf.placeholder(tf.float32, [None, None, None, 3])
    scaled = tf.raw_ops.ScaleAndTranslate(images=pictures, size=[3, 4], scale=scale, translation=[0.5, 0.0])
    assert scaled.shape.as_list() == [None, 3, 4, 3]
    weights = tf.placeholder(tf.float32, [2, 3, 4, 3])
    (back,) = tf.gradients(scaled, pictures, weights)
    (again,) = tf.gradients(back, weights, pictures)
    given = np.random.default_rng(1).normal(size=(2, 3, 4, 3)).astype(np.float32)
    with tf.Session() as session:
        for _ in range(4):  # the first steps run directly, the later ones compiled
            feeds = {scale: [0.5, 0.4], pictures: PICTURES, weights: given}
            forward, backward, twice = session.run([scaled, back, again], feeds)
            np.testing.assert_allclose((forward * given).sum(), (backward * PICTURES).sum(), rtol=1e-4)
            np.testing.assert_allclose(twice, forward, rtol=1e-5, atol=1e-6)
        with pytest.raises(tf.errors.InvalidArgumentError, match="greater than zero"):
            session.run(scaled, {scale: [0.0, 1.0], pictures: PICTURES})
        with pytest.raises(tf.errors.InvalidArgumentError, match="positive"):
            session.run(scaled, {scale: [1.0, 1.0], pictures: PICTURES[:, :0]})


def test_gradients_of_volumes_whose_sizes_the_step_decides() -> None:
    volume = np.random.default_rng(2).normal(size=(1, 3, 4, 5, 2)).astype(np.float32)
    fed = tf.placeholder(tf.float32, [None, None, None, None, 2])
    slopes = []
    for x in (tf.constant(volume), fed):
        y = tf.extract_volume_patches(x, [1, 2, 2, 3, 1], [1, 2, 1, 2, 1], "SAME")
        slopes.append(tf.gradients(y * y, x)[0])
    with tf.Session() as session:
        known, late = session.run(slopes, {fed: volume})
    np.testing.assert_allclose(known, late, rtol=1e-6)


def test_what_is_refused() -> None:
    with pytest.raises(ValueError, match="Unsupported method"):
        tf.fingerprint([1], "md5")
    with pytest.raises(ValueError, match="at least one dimension"):
        tf.fingerprint(1)
    method = tf.placeholder(tf.string, [])
    assert tf.raw_ops.Fingerprint(data=[[1]], method=method).shape.as_list() == [1, None]
    with pytest.raises(tf.errors.InvalidArgumentError, match="Unsupported fingerprint method"):
        value(tf.raw_ops.Fingerprint(data=[[1]], method=method), {method: b"sha"})
    for wrong in ([1, 0, 1, 1, 1], [2, 1, 1, 1, 1], [1, 1, 1, 1, 1, 1]):
        with pytest.raises(ValueError, match="ksizes"):
            tf.extract_volume_patches(tf.zeros([1, 2, 2, 2, 1]), wrong, [1] * 5, "SAME")
    with pytest.raises(tf.errors.InvalidArgumentError, match="Unrecognized kernel type"):
        value(
            tf.raw_ops.ScaleAndTranslate(
                images=PICTURES, size=[2, 2], scale=[1.0, 1.0], translation=[0.0, 0.0], kernel_type="round"
            )
        )
    with pytest.raises(ValueError, match="two numbers"):
        tf.raw_ops.ScaleAndTranslate(images=PICTURES, size=[2, 2, 2], scale=[1.0, 1.0], translation=[0.0, 0.0])
    with pytest.raises(ValueError, match="power factor"):
        tf.image.ssim_multiscale(PICTURES, PICTURES, 1.0, ())
    images = tf.placeholder(tf.float32, [1, None, None, 3])
    with pytest.raises(tf.errors.InvalidArgumentError, match="smaller than the filter"):
        value(tf.image.ssim_multiscale(images, images, 1.0, (0.5, 0.5)), {images: np.zeros((1, 20, 30, 3))})
