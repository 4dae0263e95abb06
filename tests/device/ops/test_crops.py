"""Crops of images with NaN and infinities: one pixel after the other, in the order of TensorFlow's kernels."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import anabranch as tf

Array = np.ndarray[Any, Any]
WILD = (np.inf, -np.inf, np.nan, 3e38)


def places(low: Any, high: Any, length: int, wanted: int) -> list[float]:
    span = length - 1
    return (
        [low * span + i * (high - low) * span / (wanted - 1) for i in range(wanted)]
        if wanted > 1
        else [0.5 * (low + high) * span]
    )


def reference(image: Array, grads: Array, boxes: Array, which: Array, outside: float) -> list[Array]:
    """The crops, bilinear and nearest; their gradients for the image; the bilinear one's for the boxes."""
    rows, columns = grads.shape[1:3]
    crops, nearest = np.full_like(grads, outside), np.full_like(grads, outside)
    to_image, to_nearest, to_boxes = np.zeros_like(image), np.zeros_like(image), np.zeros_like(boxes)
    height, width = image.shape[1:3]
    for b, (y1, x1, y2, x2) in enumerate(boxes):
        source, target, near = image[which[b]], to_image[which[b]], to_nearest[which[b]]
        for i, y in enumerate(places(y1, y2, height, rows)):
            for j, x in enumerate(places(x1, x2, width, columns)):
                if not (0 <= y <= height - 1 and 0 <= x <= width - 1):
                    continue
                grad = grads[b, i, j]
                at = int(np.floor(y + 0.5)), int(np.floor(x + 0.5))
                nearest[b, i, j] = source[at]
                near[at] += grad
                (top, bottom), (left, right) = ((int(np.floor(v)), int(np.ceil(v))) for v in (y, x))
                down, over = np.float32(y - top), np.float32(x - left)
                tl, tr, bl, br = source[top, left], source[top, right], source[bottom, left], source[bottom, right]
                upper, lower = tl + (tr - tl) * over, bl + (br - bl) * over
                crops[b, i, j] = upper + (lower - upper) * down
                target[top, left] += (1 - over) * ((1 - down) * grad)
                target[top, right] += over * ((1 - down) * grad)
                target[bottom, left] += (1 - over) * (down * grad)
                target[bottom, right] += over * (down * grad)
                slopes = (1 - over) * (bl - tl) + over * (br - tr), (1 - down) * (tr - tl) + down * (br - bl)
                for axis, (k, wanted, length) in enumerate(((i, rows, height), (j, columns, width))):
                    high = np.float32(k * (length - 1) / (wanted - 1) if wanted > 1 else 0.5 * (length - 1))
                    low = np.float32(length - 1 - high)
                    to_boxes[b, axis] += (grad * slopes[axis] * low).sum()
                    to_boxes[b, axis + 2] += (grad * slopes[axis] * high).sum()
    return [crops, nearest, to_image, to_nearest, to_boxes]


def wild(random: np.random.Generator, *shape: int) -> Array:
    found = random.normal(size=shape).astype(np.float32)
    for _ in range(random.integers(1, 3)):
        found.reshape(-1)[random.integers(found.size)] = random.choice(WILD)
    return found


@pytest.mark.parametrize("seed", range(5))
def test_wild_numbers_reach_the_same_elements_as_in_tensorflow(seed: int) -> None:
    random = np.random.default_rng(seed)
    image = wild(random, 2, *random.integers(2, 5, 2), 2)
    grads = wild(random, 3, *random.integers(1, 4, 2), 2)
    boxes = random.choice(np.float32([0, 0.25, 0.5, 1, 1.2, -0.1]), size=(3, 4))
    which = random.integers(2, size=3).astype(np.int32)
    size = np.int32(grads.shape[1:3])
    with tf.Graph().as_default(), tf.Session() as session:
        fed = [tf.placeholder_with_default(value, value.shape) for value in (image, grads, boxes)]
        methods = ("bilinear", "nearest")
        got = [
            *(tf.image.crop_and_resize(fed[0], fed[2], which, size, method, 0.5) for method in methods),
            *(
                tf.raw_ops.CropAndResizeGradImage(
                    grads=fed[1], boxes=fed[2], box_ind=which, image_size=image.shape, T=tf.float32, method=method
                )
                for method in methods
            ),
            tf.raw_ops.CropAndResizeGradBoxes(grads=fed[1], image=fed[0], boxes=fed[2], box_ind=which),
        ]
        # TensorFlow moves the boxes of the nearest pixels as if these were interpolated
        got += [tf.gradients(crops, fed[2], fed[1])[0] for crops in got[:2]]
        values = session.run(got)
    with np.errstate(all="ignore"):
        wanted = reference(image, grads, boxes, which, 0.5)
    wanted += [wanted[-1]] * 2
    for value, expected in zip(values, wanted, strict=True):
        np.testing.assert_allclose(value, expected, rtol=1e-4, atol=1e-4)
