"""The front end of images, against NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from anabranch.core import dtypes
from anabranch.errors import InvalidArgumentError
from anabranch.frontend.framework import set_random_seed
from anabranch.frontend.images import (
    adjust as image_adjust,
    geometry as image_geometry,
    image,
    quality as image_quality,
)
from anabranch.graph.conversion import convert_to_tensor
from anabranch.graph.graph import Graph
from anabranch.ops import raw
from anabranch.session import Session

Array = np.ndarray[Any, Any]
RNG = np.random.default_rng(11)
BATCH = RNG.uniform(size=(2, 5, 6, 3)).astype(np.float32)
ONE = BATCH[0]
BYTES = RNG.integers(0, 256, size=(5, 6, 3)).astype(np.uint8)


@pytest.fixture(autouse=True)
def _own_graph() -> Any:
    with Graph().as_default():
        yield


def run(fetches: Any, feeds: Any = None) -> Any:
    with Session() as session:
        return session.run(fetches, feeds)


def unknown_size() -> Any:
    return raw.Placeholder(dtype=dtypes.float32, shape=[None, None, 3])


def close(got: Any, wanted: Any, tolerance: float = 1e-5) -> None:
    np.testing.assert_allclose(got, wanted, rtol=tolerance, atol=tolerance)


# ---------------------------------------------------------------------- sizes
@pytest.mark.parametrize("method", range(4))
def test_resizing_by_a_whole_factor(method: int) -> None:
    blocks = np.repeat(np.repeat(ONE, 4, 0), 4, 1)
    got = run(image.resize_images(blocks, [5, 6], method))
    assert got.shape == (5, 6, 3)
    close(got[1:-1, 1:-1], ONE[1:-1, 1:-1], 1e-3)


def test_resizing_keeps_what_fits_already() -> None:
    kept = convert_to_tensor(BYTES)
    got = image.resize_images(kept, [5, 6])
    assert got.dtype is dtypes.uint8
    computed = image.resize_images(kept, [5, 6], preserve_aspect_ratio=True)
    assert computed.dtype is dtypes.float32
    assert computed.shape.as_list() == kept.shape.as_list()
    close(run(computed), BYTES, 1e-3)
    assert run(image.resize_images(BATCH, [20, 9], preserve_aspect_ratio=True)).shape == (2, 8, 9, 3)
    padded = run(image.resize_image_with_pad(np.ones((4, 2, 1), np.float32), 2, 5))
    assert padded[..., 0].tolist() == [[0, 0, 1, 0, 0]] * 2


def test_the_gradient_of_resizing_says_no_length_that_graphs_of_tensorflow_contradict() -> None:
    """They say how many images the original has, and a step that those of the gradient are as many."""

    def shape(images: int | None, channels: int | None) -> list[int | None]:
        original = raw.Placeholder(dtype=np.float32, shape=[2, 5, 4, 3])
        grads = raw.Placeholder(dtype=np.float32, shape=[images, 7, 7, channels])
        return raw.ResizeBilinearGrad(grads, original).shape.as_list()  # type: ignore[no-any-return]

    assert shape(2, None) == [2, 5, 4, None]
    assert shape(None, 3) == [None, 5, 4, 3]
    assert shape(3, 1) == [None, 5, 4, None]


def test_resizing_refuses_bad_arguments() -> None:
    with pytest.raises(ValueError, match="3 or 4"):
        image.resize_images(ONE[0], [2, 2])
    with pytest.raises(ValueError, match="2 elements"):
        image.resize_images(ONE, [2, 2, 2])
    with pytest.raises(ValueError, match="not implemented"):
        image.resize_images(ONE, [2, 2], method=9)


def test_a_picture_without_pixels_is_an_error_of_the_step() -> None:
    with Graph().as_default(), Session() as session:
        for resize in (raw.ResizeBilinear, raw.ResizeNearestNeighbor):
            resized = resize(BATCH, np.array([0, 0], np.int32))
            assert resized.shape.as_list() == [2, 0, 0, 3]
            with pytest.raises(InvalidArgumentError, match="two positive numbers"):
                session.run(resized)


def middle(x: Array, height: int, width: int) -> Array:
    out = np.zeros((height, width, x.shape[2]), x.dtype)
    top, left = (x.shape[0] - height) // 2, (x.shape[1] - width) // 2
    for i in range(height):
        for j in range(width):
            y, z = (
                i + (top if top > 0 else -((height - x.shape[0]) // 2)),
                j + (left if left > 0 else -((width - x.shape[1]) // 2)),
            )
            if 0 <= y < x.shape[0] and 0 <= z < x.shape[1]:
                out[i, j] = x[y, z]
    return out


@pytest.mark.parametrize("size", [(3, 9), (8, 2), (5, 6), (9, 9), (1, 1)])
def test_cropping_or_padding_to_a_size(size: tuple[int, int]) -> None:
    close(run(image_geometry.resize_image_with_crop_or_pad(ONE, *size)), middle(ONE, *size))
    hidden = unknown_size()
    built = image_geometry.resize_image_with_crop_or_pad(hidden, *size)
    assert built.shape.as_list() == [*size, 3]
    close(run(built, {hidden: ONE}), middle(ONE, *size))


def test_boxes_within_the_image() -> None:
    close(run(image_geometry.crop_to_bounding_box(BATCH, 1, 2, 3, 4)), BATCH[:, 1:4, 2:6])
    close(run(image_geometry.pad_to_bounding_box(ONE, 1, 2, 7, 9)), np.pad(ONE, ((1, 1), (2, 1), (0, 0))))
    close(run(image_geometry.central_crop(np.pad(ONE, ((2, 1), (3, 3), (0, 0))), 0.5)).shape, (4, 6, 3))
    for arguments in ((-1, 0, 2, 2), (0, 0, 6, 2), (0, 3, 2, 4), (0, 0, 0, 2)):
        with pytest.raises(ValueError):
            image_geometry.crop_to_bounding_box(ONE, *arguments)
    with pytest.raises(ValueError, match="target"):
        image_geometry.pad_to_bounding_box(ONE, 0, 0, 4, 9)
    hidden = unknown_size()
    with pytest.raises(InvalidArgumentError, match="height must be"):
        run(image_geometry.crop_to_bounding_box(hidden, 0, 0, 6, 2), {hidden: ONE})


def test_random_crops_are_parts_of_the_image() -> None:
    whole = np.arange(30).reshape(5, 6, 1)
    for _ in range(3):
        part = run(image_geometry.random_crop(whole, [2, 3, 1]))
        y, x = divmod(int(part[0, 0, 0]), 6)
        assert np.array_equal(part, whole[y : y + 2, x : x + 3])
    hidden = unknown_size()
    with pytest.raises(InvalidArgumentError, match="Need value.shape >= size"):
        run(image_geometry.random_crop(hidden, [6, 1, 1]), {hidden: ONE})


# ---------------------------------------------------------------------- mirrors
def test_mirrors_and_turns() -> None:
    close(run(image_geometry.flip_left_right(BATCH)), BATCH[:, :, ::-1])
    close(run(image_geometry.flip_up_down(ONE)), ONE[::-1])
    close(run(image_geometry.transpose_image(BATCH)), BATCH.swapaxes(1, 2))
    fed = raw.Placeholder(dtype=dtypes.int32, shape=[])
    turned = image_geometry.rot90(ONE, fed)
    for k in range(5):
        close(run(image_geometry.rot90(ONE, k)), np.rot90(ONE, k))
        close(run(turned, {fed: k}), np.rot90(ONE, k))


def test_random_mirrors_choose_for_each_image() -> None:
    set_random_seed(5)
    many = np.broadcast_to(ONE, (40, *ONE.shape))
    got = run(image_geometry.random_flip_left_right(many))
    mirrored = [np.array_equal(g, ONE[:, ::-1]) for g in got]
    assert all(m or np.array_equal(g, ONE) for m, g in zip(mirrored, got, strict=True))
    assert 5 < sum(mirrored) < 35


# ---------------------------------------------------------------------- colours
def test_dtypes_are_scaled() -> None:
    close(run(image_adjust.convert_image_dtype(BYTES, dtypes.float32)), BYTES / 255)
    assert np.array_equal(run(image_adjust.convert_image_dtype(BYTES / np.float32(255), dtypes.uint8)), BYTES)
    wide = run(image_adjust.convert_image_dtype(BYTES, dtypes.uint16))
    assert np.array_equal(wide, BYTES.astype(np.uint16) * 256)
    assert np.array_equal(run(image_adjust.convert_image_dtype(wide, dtypes.uint8)), BYTES)
    over = np.array([[-0.5, 1.5]], np.float32)
    assert run(image_adjust.convert_image_dtype(over, dtypes.uint8, saturate=True)).tolist() == [[0, 255]]


def test_brightness_contrast_gamma() -> None:
    close(run(image_adjust.adjust_brightness(ONE, 0.25)), ONE + 0.25)
    assert np.all(run(image_adjust.adjust_brightness(BYTES, 1.0)) == 255)
    mean = ONE.mean((0, 1))
    close(run(image_adjust.adjust_contrast(ONE, 0.5)), (ONE - mean) / 2 + mean)
    close(run(image_adjust.adjust_gamma(ONE, 2, 0.5)), 0.5 * ONE**2)
    with pytest.raises(ValueError, match="non-negative"):
        image_adjust.adjust_gamma(ONE, -1)


def test_colour_spaces_go_there_and_back() -> None:
    for there, back in (
        (image_adjust.rgb_to_hsv, image_adjust.hsv_to_rgb),
        (image_adjust.rgb_to_yiq, image_adjust.yiq_to_rgb),
        (image_adjust.rgb_to_yuv, image_adjust.yuv_to_rgb),
    ):
        close(run(back(there(BATCH))), BATCH, 1e-4)
    grey = run(image_adjust.rgb_to_grayscale(ONE))
    close(grey, (ONE @ np.array([0.2989, 0.587, 0.114], np.float32))[..., None])
    assert run(image_adjust.grayscale_to_rgb(grey)).shape == ONE.shape
    close(run(image_adjust.adjust_hue(image_adjust.adjust_hue(ONE, 0.3), -0.3)), ONE, 1e-4)


def test_random_distortions_stay_in_their_range() -> None:
    moved = run(image_adjust.random_brightness(ONE, 0.2)) - ONE
    assert np.ptp(moved) < 1e-5
    assert np.abs(moved).max() <= 0.2
    grey = np.full((2, 2, 3), 0.5, np.float32)
    for distorted in (
        image_adjust.random_hue(grey, 0.3),
        image_adjust.random_saturation(grey, 0.1, 2.0),
        image_adjust.random_contrast(grey, 0.1, 2.0),
    ):
        close(run(distorted), grey)
    for bad in (
        lambda: image_adjust.random_hue(ONE, 0.6),
        lambda: image_adjust.random_contrast(ONE, 2, 1),
        lambda: image_adjust.random_brightness(ONE, -1),
    ):
        with pytest.raises(ValueError):
            bad()


def test_standardization_of_each_image() -> None:
    got = run(image_adjust.per_image_standardization(BATCH))
    close(got.mean((1, 2, 3)), np.zeros(2))
    close(got.std((1, 2, 3)), np.ones(2), 1e-4)
    assert np.all(run(image_adjust.per_image_standardization(np.full((4, 4, 1), 7, np.uint8))) == 0)


# ---------------------------------------------------------------------- quality
def test_likeness() -> None:
    other = BATCH[::-1].copy()
    error = ((BATCH - other) ** 2).mean((1, 2, 3))
    close(run(image_quality.psnr(BATCH, other, 1.0)), -10 * np.log10(error), 1e-4)
    large = RNG.uniform(size=(2, 16, 15, 3)).astype(np.float32)
    close(run(image_quality.ssim(large, large, 1.0)), [1, 1])
    assert np.all(run(image_quality.ssim(large, 1 - large, 1.0)) < 0)


def test_slopes() -> None:
    down, right = np.diff(BATCH, axis=1), np.diff(BATCH, axis=2)
    close(run(image_quality.total_variation(BATCH)), np.abs(down).sum((1, 2, 3)) + np.abs(right).sum((1, 2, 3)), 1e-4)
    close(run(image_quality.total_variation(ONE)), np.abs(down[0]).sum() + np.abs(right[0]).sum(), 1e-4)
    got = run(image_quality.image_gradients(BATCH))
    close(got[0], np.pad(down, ((0, 0), (0, 1), (0, 0), (0, 0))))
    close(got[1], np.pad(right, ((0, 0), (0, 0), (0, 1), (0, 0))))
    ramp = np.broadcast_to(np.arange(6, dtype=np.float32)[:, None, None], (1, 6, 5, 2))
    edges = run(image_quality.sobel_edges(ramp))
    close(edges[:, 1:-1, :, :, 0], np.full((1, 4, 5, 2), 8))
    close(edges[..., 1], np.zeros((1, 6, 5, 2)))


# ---------------------------------------------------------------------- boxes and files
def test_boxes_of_nan_and_soft_suppression_as_tensorflow_has_them() -> None:
    boxes = np.array([[0, 0, 1, 1], [0, np.nan, 1, 1], [0, 5, 1, 6]], np.float32)
    scores = np.array([0.9, 0.75, 0.6], np.float32)
    # the threshold may be a tensor; what overlaps by NaN comes last, with a score of 0
    half = convert_to_tensor(np.float32(0.5))
    assert run(image.non_max_suppression(boxes, scores, 3, half)).tolist() == [0, 2, 1]
    kept = raw.CombinedNonMaxSuppression(boxes[None, :, None], scores[None, :, None], 3, 3, half, np.float32(0))
    close(run(kept[1]), scores[None])
    # soft: a lower score in place of the threshold
    boxes[1] = [0, 0, 1, 0.9]
    indices, soft = run(image.non_max_suppression_with_scores(boxes, scores, 3, half, soft_nms_sigma=0.5))
    assert indices.tolist() == [0, 2, 1]
    assert np.allclose(soft, [0.9, 0.6, 0.3336436])


def test_lines_of_boxes_further_than_integers_reach() -> None:
    far = run(image.draw_bounding_boxes(np.zeros((1, 3, 4, 1), np.float32), [[[0.3, 1e30, 0.6, 0.8]]], colors=[[1.0]]))
    assert far[0, :, :, 0].tolist() == [[1, 1, 1, 0], [1, 1, 1, 0], [0, 0, 0, 0]]


def test_boxes_that_overlap_are_dropped() -> None:
    boxes = np.array([[0, 0, 1, 1], [0, 0, 1, 0.9], [2, 2, 3, 3]], np.float32)
    scores = np.array([0.5, 0.9, 0.1], np.float32)
    assert run(image.non_max_suppression(boxes, scores, 5)).tolist() == [1, 2]
    assert run(image.non_max_suppression(boxes, scores, 5, score_threshold=0.2)).tolist() == [1]
    indices, count = run(image.non_max_suppression_padded(boxes, scores, 3, pad_to_max_output_size=True))
    assert (indices.tolist(), int(count)) == ([1, 2, 0], 2)
    _, soft = run(image.non_max_suppression_with_scores(boxes, scores, 3, 1.0, 0.0, 0.5))
    close(soft, [0.9, 0.5 * np.exp(-(0.9**2)), 0.1])


def test_png_files_go_there_and_back() -> None:
    assert np.array_equal(run(image.decode_png(image.encode_png(BYTES))), BYTES)
    assert run(image.decode_png(image.encode_png(BYTES), channels=1)).shape == (5, 6, 1)
    with pytest.raises(InvalidArgumentError, match="PNG"):
        run(image.decode_png("nothing"))


def test_random_boxes_and_their_borders() -> None:
    boxes = np.array([[[0.2, 0.2, 0.7, 0.7]]], np.float32)
    begin, size, box = image.sample_distorted_bounding_box([5, 6, 3], boxes, min_object_covered=0.5)
    cut = raw.Slice(ONE, begin, size)
    part, corners = run([cut, box])
    top, left, bottom, right = (corners[0, 0] * [5, 6, 5, 6]).round().astype(int)
    assert np.array_equal(part, ONE[top:bottom, left:right])
    drawn = run(image.draw_bounding_boxes(BATCH, np.array([[[0, 0, 1, 1]]] * 2, np.float32)))
    assert np.all(drawn[:, 0] == [1, 1, 0])
    assert np.array_equal(drawn[:, 1:-1, 1:-1], BATCH[:, 1:-1, 1:-1])
