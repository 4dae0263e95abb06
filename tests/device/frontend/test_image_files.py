"""Image files through the front end, and what is said of damaged ones."""

from __future__ import annotations

import io
import warnings
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import anabranch as tf
from anabranch.ops.images.codecs import opened

PIXELS = np.random.default_rng(4).integers(0, 256, (9, 8, 3), np.uint8)


def saved(kind: str, **options: Any) -> bytes:
    out = io.BytesIO()
    Image.fromarray(PIXELS).save(out, kind, **options)
    return out.getvalue()


FILES = {kind: saved(kind) for kind in ("PNG", "JPEG", "GIF", "BMP")}


def run(fetches: Any, feeds: Any = None) -> Any:
    with tf.Session() as session:
        return session.run(fetches, feeds)


def test_static_shapes() -> None:
    data = tf.placeholder(tf.string, [])
    assert tf.image.decode_image(data).shape.ndims is None
    assert tf.image.decode_image(data, 3, expand_animations=False).shape.as_list() == [None, None, 3]
    assert tf.io.decode_gif(data).shape.as_list() == [None, None, None, 3]
    assert tf.io.decode_bmp(data, 4).shape.as_list() == [None, None, 4]
    assert tf.image.decode_and_crop_jpeg(data, [0, 0, 2, 2], 3).shape.as_list()[2] == 3
    assert tf.image.extract_jpeg_shape(data).shape.as_list() == [3]


def test_a_decoded_image_of_any_format_feeds_an_island() -> None:
    data = tf.placeholder(tf.string, [])
    image = tf.image.decode_image(data, channels=3, dtype=tf.float32, expand_animations=False)
    mean = tf.reduce_mean(image, [0, 1])
    for kind, contents in FILES.items():
        tolerance = 0.1 if kind in {"JPEG", "GIF"} else 1e-5
        np.testing.assert_allclose(run(mean, {data: contents}), PIXELS.mean((0, 1)) / 255, atol=tolerance)


def test_jpeg_files_are_recognized() -> None:
    contents = [FILES["JPEG"], FILES["PNG"], b"\xff\xd8\xff"]
    assert [run(tf.image.is_jpeg(c)) for c in contents] == [True, False, True]


def test_arguments_are_checked() -> None:
    with pytest.raises(ValueError, match="channels must be in"):
        tf.image.decode_image(b"", channels=2)
    with pytest.raises(ValueError, match="dtype must be uint8, uint16 or float32"):
        tf.image.decode_image(b"", dtype=tf.int32)


@pytest.mark.parametrize("kind", sorted(FILES))
def test_an_error_names_the_operation_and_the_file(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "broken.img"
    path.write_bytes(FILES[kind][:40])
    image = tf.image.decode_image(tf.read_file(str(path)), name="picture")
    with pytest.raises(tf.errors.InvalidArgumentError) as caught:
        run(image)
    assert str(path) in str(caught.value)
    assert "picture" in str(caught.value)
    assert "40 bytes" in str(caught.value)


@pytest.mark.parametrize("decode", [tf.image.decode_png, tf.image.decode_jpeg], ids=["png", "jpeg"])
def test_other_decoders_name_the_file_too(decode: Any, tmp_path: Path) -> None:
    path = tmp_path / "broken"
    path.write_bytes(b"\x89PNG\r\n\x1a\n nothing")
    with pytest.raises(tf.errors.InvalidArgumentError) as caught:
        run(decode(tf.read_file(str(path))))
    assert str(path) in str(caught.value)


def _outcome(session: Any, image: Any, feeds: Any) -> str:
    try:
        found = session.run(image, feeds)
    except tf.errors.InvalidArgumentError as error:
        return "error" if "'decode_image'" in str(error) else str(error)
    return "image" if found.dtype == np.uint8 else str(found.dtype)


@pytest.mark.parametrize("kind", sorted(FILES))
def test_damage_is_an_error_or_an_image_and_nothing_else(kind: str) -> None:
    """Bytes changed and files cut at random: no other exception comes out."""
    rng = np.random.default_rng(6)
    data = tf.placeholder(tf.string, [])
    image = tf.image.decode_image(data)
    with tf.Session() as session:
        for _ in range(80):
            damaged = bytearray(FILES[kind][: rng.integers(1, len(FILES[kind]) + 1)])
            for at in rng.integers(0, len(damaged), 3):
                damaged[at] = rng.integers(256)
            outcome = _outcome(session, image, {data: bytes(damaged)})
            assert outcome in ("image", "error")


def test_an_image_that_claims_to_be_huge_is_damaged() -> None:
    contents = bytearray(FILES["PNG"])
    contents[16:24] = (100_000).to_bytes(4, "big") * 2
    contents[29:33] = zlib.crc32(contents[12:29]).to_bytes(4, "big")
    for decode in (tf.image.decode_png, tf.image.decode_image):
        with pytest.raises(tf.errors.InvalidArgumentError, match="do not decode as an image"):
            run(decode(bytes(contents)))


def test_decoding_leaves_the_filters_of_warnings_alone() -> None:
    """They belong to all threads: two that put them back in another order would silence the process for good."""
    with opened(FILES["JPEG"], None):
        before = warnings.filters
    with opened(FILES["JPEG"], None):
        assert warnings.filters is before
