"""Arguments of odd shapes and formats that are known only when a step runs."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import pytest

import anabranch as tf

PIXELS = (np.arange(48).reshape(4, 4, 3) * 5).astype(np.uint8)


def test_a_predicate_is_a_scalar() -> None:
    fed = tf.placeholder(tf.bool)
    steps = [
        tf.cond(fed, lambda: 1.0, lambda: 2.0),
        tf.case([(fed, lambda: 1.0), (tf.constant(True), lambda: 2.0)], default=lambda: 3.0),
        tf.while_loop(lambda x: tf.logical_and(fed, x < 1.0), lambda x: x + 1.0, [tf.constant(0.0)]),
        tf.Assert(fed, ["no"]),
    ]
    with tf.Session() as session:
        for step in steps:
            session.run(step, {fed: True})
            with pytest.raises(tf.errors.InvalidArgumentError):
                session.run(step, {fed: [True, True]})
    with pytest.raises(ValueError, match="rank 0"):
        tf.cond(tf.constant([True, False]), lambda: 1.0, lambda: 2.0)


@pytest.mark.parametrize("axis", [0, 1, -1, "fed"])
def test_a_gather_of_unknown_rank_has_a_gradient(axis: Any) -> None:
    params, indices, place = tf.placeholder(tf.float32), tf.placeholder(tf.int32), tf.placeholder(tf.int32, [])
    values = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    gathered = tf.gather(params, indices, axis=place if axis == "fed" else axis)
    gradient = tf.convert_to_tensor(tf.gradients(gathered, params, grad_ys=2.0 * gathered)[0])
    with tf.Session() as session:
        found = session.run(gradient, {params: values, indices: [[1, 0], [1, 1]], place: 2})
    counts = np.zeros(values.shape[2 if axis == "fed" else axis])
    counts[:2] = [1, 3]
    shape = [-1 if i == (2 if axis == "fed" else axis % 3) else 1 for i in range(3)]
    np.testing.assert_allclose(found, 2 * values * counts.reshape(shape))


def encoded(kind: str, *more: Any) -> bytes:
    images = pytest.importorskip("PIL.Image")
    file = io.BytesIO()
    images.fromarray(PIXELS).save(file, kind, **({"save_all": True, "append_images": more} if more else {}))
    return file.getvalue()


def test_decoders_of_one_picture_take_png_jpeg_and_gif() -> None:
    contents = tf.placeholder(tf.string, [])
    with tf.Session() as session:
        for decode in (tf.image.decode_png, tf.image.decode_jpeg, tf.image.decode_gif):
            for kind in ("PNG", "JPEG", "GIF"):
                found = session.run(decode(contents), {contents: encoded(kind)})
                assert found.shape == ((1, 4, 4, 3) if decode is tf.image.decode_gif else (4, 4, 3))
                assert np.abs(found.astype(int) - PIXELS).max() < 12
            with pytest.raises(tf.errors.InvalidArgumentError, match="BMP"):
                session.run(decode(contents), {contents: encoded("BMP")})
        deep = session.run(tf.image.decode_png(contents, dtype=tf.uint16), {contents: encoded("GIF")})
        assert (deep == PIXELS.astype(np.uint16) * 256).all()
        for decode, channels in ((tf.image.decode_png, 4), (tf.image.decode_jpeg, 4)):
            with pytest.raises(tf.errors.InvalidArgumentError, match="4 channels"):
                session.run(decode(contents, channels=channels), {contents: encoded("JPEG")})


def test_the_size_of_an_animation_is_bounded() -> None:
    """A few bytes for each of many small frames on a large screen stand for gigabytes of pixels."""
    pytest.importorskip("PIL.Image")
    screen = b"GIF89a" + (4000).to_bytes(2, "little") * 2 + b"\x80\0\0" + b"\0\0\0\xff\xff\xff"
    frame = b"\x2c\0\0\0\0\1\0\1\0\0\2\2\x44\1\0"
    with (
        tf.Session() as session,
        pytest.raises(tf.errors.InvalidArgumentError, match="claims 30x4000x4000x3 samples"),
    ):
        session.run(tf.image.decode_gif(screen + frame * 30 + b";"))


@pytest.mark.parametrize(
    ("length", "start", "size"), [(0, 1, 0), (0, 0, 1), (0, -1, 0), (3, 4, 0), (3, 2, 2), (3, -1, 2)]
)
def test_a_slice_out_of_bounds_is_refused_when_it_runs(length: int, start: int, size: int) -> None:
    """In a branch that is never taken it is nobody's business, as in TensorFlow."""
    wanted = tf.placeholder_with_default(False, [])
    taken = tf.cond(wanted, lambda: tf.slice(tf.zeros([length]), [start], [size]), lambda: tf.ones([size]))
    alone = tf.slice(tf.zeros([length]), [start], [size])
    assert alone.shape == [size]
    with tf.Session() as session:
        np.testing.assert_array_equal(session.run(taken), np.ones(size))
        for fetch, fed in ((taken, {wanted: True}), (alone, {})):
            with pytest.raises(tf.errors.InvalidArgumentError, match=f"within dimension 0 of size {length}"):
                session.run(fetch, fed)


@pytest.mark.parametrize(("length", "start", "size"), [(3, 4, -1), (0, 1, -1), (3, 0, -2)])
def test_a_slice_of_negative_length_is_refused_at_once(length: int, start: int, size: int) -> None:
    with pytest.raises(ValueError, match=r"does not lie within a dimension|must be >= 0"):
        tf.slice(tf.zeros([length]), [start], [size])
