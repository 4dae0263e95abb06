"""JPEG images give the pixels that TensorFlow gives (`tests/oracles/make_jpeg_fixture.py` wrote these down)."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import numpy as np
import pytest

import anabranch as tf

FIXTURE = Path(__file__).parents[2] / "fixtures" / "tensorflow" / "jpeg.npz"
KINDS = ("colour", "full", "progressive", "grey")

without_simplejpeg = importlib.util.find_spec("simplejpeg") is None


@pytest.mark.skipif(without_simplejpeg, reason="Pillow's pixels are near TensorFlow's, not equal")
@pytest.mark.parametrize("kind", KINDS)
def test_every_way_of_reading_an_image_gives_tensorflows_pixels(kind: str) -> None:
    found = np.load(FIXTURE)
    data = found[kind].tobytes()
    names = [name for name in found.files if name.startswith(kind + "/")]
    assert len(names) == 24
    with tf.Graph().as_default(), tf.Session() as session:
        decoded = []
        for name in names:
            _, channels, ratio, fancy, dct = name.split("/")
            decoded.append(
                tf.image.decode_jpeg(data, int(channels), int(ratio), fancy_upscaling=fancy == "True", dct_method=dct)
            )
        for name, pixels in zip(names, session.run(decoded), strict=True):
            np.testing.assert_array_equal(pixels, found[name], name)


@pytest.mark.parametrize("kind", KINDS)
def test_pixels_are_near_tensorflows_whatever_library_reads_them(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("anabranch.ops.images.codecs._find_simplejpeg", lambda: None)
    found = np.load(FIXTURE)
    with tf.Graph().as_default(), tf.Session() as session:
        pixels = session.run(tf.image.decode_jpeg(found[kind].tobytes(), dct_method="INTEGER_ACCURATE"))
    np.testing.assert_allclose(pixels, found[f"{kind}/0/1/True/INTEGER_ACCURATE"], atol=2)


@pytest.mark.skipif(without_simplejpeg, reason="Pillow takes no image without its end")
def test_an_image_without_its_end_is_taken_where_that_is_asked_for() -> None:
    whole = np.load(FIXTURE)["colour"].tobytes()
    with tf.Graph().as_default(), tf.Session() as session:
        first = session.run(tf.image.decode_jpeg(whole))
        cut = session.run(tf.image.decode_jpeg(whole[:-12], try_recover_truncated=True))
        np.testing.assert_array_equal(cut[:14], first[:14])
        with pytest.raises(tf.errors.InvalidArgumentError, match="do not decode as an image"):
            session.run(tf.image.decode_jpeg(whole[:-12]))


def test_ways_of_reading_that_do_not_exist_are_refused() -> None:
    data = np.load(FIXTURE)["grey"].tobytes()
    with tf.Graph().as_default(), tf.Session() as session:
        with pytest.raises(tf.errors.InvalidArgumentError, match="ratio must be 1, 2, 4 or 8, got 3"):
            session.run(tf.image.decode_jpeg(data, ratio=3))
        with pytest.raises(tf.errors.InvalidArgumentError, match="dct_method must be one of .* got 'FLOAT'"):
            session.run(tf.image.decode_jpeg(data, dct_method="FLOAT"))
