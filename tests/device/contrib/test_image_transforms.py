"""`tf.contrib.image`: projective transforms, pixel by pixel."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import anabranch as tf

image = tf.contrib.image
RANDOM = np.random.RandomState(2)
IMAGES = RANDOM.uniform(0, 100, (2, 5, 7, 3)).astype(np.float32)
TRANSFORMS = np.array(
    [[1.2, 0.3, -1.4, 0.1, 0.8, 0.6, 0.02, -0.01], [0.7, -0.2, 2.3, -0.4, 1.1, 0.2, 0, 0]], np.float32
)


def pixel(picture: Any, x: int, y: int) -> Any:
    height, width = picture.shape[:2]
    return picture[y, x] if 0 <= x < width and 0 <= y < height else np.zeros(picture.shape[2:])


def seen(picture: Any, flat: Any, height: int, width: int, bilinear: bool) -> Any:
    result = np.zeros((height, width, picture.shape[2]))
    for row in range(height):
        for column in range(width):
            depth = flat[6] * column + flat[7] * row + 1
            x = (flat[0] * column + flat[1] * row + flat[2]) / depth
            y = (flat[3] * column + flat[4] * row + flat[5]) / depth
            if not bilinear:
                result[row, column] = pixel(picture, round(float(x)), round(float(y)))
                continue
            left, top = math.floor(x), math.floor(y)
            for dx in (0, 1):
                for dy in (0, 1):
                    weight = (1 - abs(x - left - dx)) * (1 - abs(y - top - dy))
                    result[row, column] += weight * pixel(picture, left + dx, top + dy)
    return result


@pytest.mark.parametrize("interpolation", ["NEAREST", "BILINEAR"])
@pytest.mark.parametrize("size", [None, (4, 9)])
def test_every_pixel_is_taken_from_where_the_transform_says(interpolation: str, size: tuple[int, int] | None) -> None:
    height, width = size or (5, 7)
    output = image.transform(IMAGES, TRANSFORMS, interpolation, size)
    assert output.shape.as_list() == [2, height, width, 3]
    bilinear = interpolation == "BILINEAR"
    wanted = [seen(p, t, height, width, bilinear) for p, t in zip(IMAGES, TRANSFORMS, strict=True)]
    fed = tf.placeholder(tf.float32, [None, None, None, 3])
    with tf.Session() as session:
        np.testing.assert_allclose(session.run(output), wanted, rtol=1e-4, atol=1e-3)
        of_fed = session.run(image.transform(fed, TRANSFORMS, interpolation, size), {fed: IMAGES})
    np.testing.assert_allclose(of_fed, wanted, rtol=1e-4, atol=1e-3)


def test_images_are_turned_and_moved() -> None:
    picture = np.arange(12, dtype=np.int32).reshape(3, 4)
    square = picture[:, :3]
    with tf.Session() as session:
        turned, quarter, moved, both = session.run(
            [
                image.rotate(picture, math.pi),
                image.rotate(square[..., np.newaxis], math.pi / 2)[..., 0],
                image.translate(picture, [1, -1]),
                image.translate(np.stack([picture] * 2)[..., np.newaxis], [[0, 0], [-2, 0]])[..., 0],
            ]
        )
    np.testing.assert_array_equal(turned, picture[::-1, ::-1])
    np.testing.assert_array_equal(quarter, np.rot90(square))
    np.testing.assert_array_equal(moved, [[0, 4, 5, 6], [0, 8, 9, 10], [0, 0, 0, 0]])
    np.testing.assert_array_equal(both[0], picture)
    np.testing.assert_array_equal(both[1], np.pad(picture[:, 2:], [(0, 0), (0, 2)]))


def test_composed_transforms_are_one_after_the_other() -> None:
    move = image.translations_to_projective_transforms([1.0, 2.0])
    turn = image.angles_to_projective_transforms([0.1, 0.2], 5.0, 7.0)
    with tf.Session() as session:
        one, two, composed = session.run([move, turn, image.compose_transforms(move, turn)])
    for row in range(2):
        matrices = [np.append(flat, 1).reshape(3, 3) for flat in (one[0], two[row])]
        np.testing.assert_allclose(composed[row], (matrices[0] @ matrices[1]).reshape(-1)[:8], rtol=1e-5, atol=1e-6)


def test_nothing_is_seen_of_an_image_without_pixels() -> None:
    with tf.Session() as session:
        assert not session.run(image.transform(np.zeros((0, 3), np.float32), TRANSFORMS[0], "NEAREST", [2, 2])).any()


def test_what_is_wrong_is_told() -> None:
    with pytest.raises(TypeError, match="rank of 2, 3 or 4"):
        image.transform(tf.placeholder(tf.float32), TRANSFORMS)
    with pytest.raises(ValueError, match="NEAREST or BILINEAR"):
        image.transform(IMAGES, TRANSFORMS, "CUBIC")
    with pytest.raises(ValueError, match="needs a transform"):
        image.compose_transforms()
