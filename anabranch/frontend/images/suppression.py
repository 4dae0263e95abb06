"""tf.image: the choice among overlapping boxes of several classes, patches, and what JPEG does to pictures."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from anabranch.core import dtypes
from anabranch.core.values import TensorLike
from anabranch.frontend.arithmetic.random import random_uniform
from anabranch.frontend.arrays.rearranging import extract_image_patches
from anabranch.frontend.images.adjust import convert_image_dtype
from anabranch.frontend.images.codecs import decode_jpeg
from anabranch.graph.conversion import convert_to_tensor
from anabranch.graph.operation import Tensor
from anabranch.ops import raw


def generate_bounding_box_proposals(
    scores: TensorLike,
    bbox_deltas: TensorLike,
    image_info: TensorLike,
    anchors: TensorLike,
    nms_threshold: TensorLike = 0.7,
    pre_nms_topn: TensorLike = 6000,
    min_size: TensorLike = 16,
    post_nms_topn: int = 300,
    name: str | None = None,
) -> GenerateBoundingBoxProposals:
    """Boxes that may hold an object, made of anchors and of what a network says of each.

    Args:
        scores: float32, shape [images, height, width, kinds of anchors]: how likely each box holds an object.
        bbox_deltas: float32, shape [images, height, width, 4 * kinds]: (dy, dx, dh, dw) of each anchor. Its centre
            moves by (dy, dx) times its sides, which grow by exp(dh) and exp(dw), 62.5 times at most.
        image_info: float32, shape [images, 5]: height, width and scale of each image; two more numbers are not read.
        anchors: float32, shape [height, width, 4 * kinds]: (y1, x1, y2, x2) in pixels.
        nms_threshold: what intersection over union of two boxes is too much.
        pre_nms_topn: how many of the best boxes are looked at.
        min_size: shorter boxes are left out, in pixels of the unscaled image.
        post_nms_topn: how many boxes are kept; where there are fewer, zeros follow them.

    Returns:
        `rois`, float32 of shape [images, post_nms_topn, 4], corners (y1, x1, y2, x2); `roi_probabilities`, float32 of
        shape [images, post_nms_topn].
    """
    found: tuple[Tensor, Tensor] = raw.GenerateBoundingBoxProposals(
        scores, bbox_deltas, image_info, anchors, nms_threshold, pre_nms_topn, min_size, post_nms_topn, name=name
    )
    return GenerateBoundingBoxProposals(*found)


def combined_non_max_suppression(
    boxes: TensorLike,
    scores: TensorLike,
    max_output_size_per_class: TensorLike,
    max_total_size: TensorLike,
    iou_threshold: TensorLike = 0.5,
    score_threshold: TensorLike = float("-inf"),
    pad_per_class: bool = False,
    clip_boxes: bool = True,
    name: str | None = None,
) -> CombinedNonMaxSuppression:
    """Chooses, for each image and class, the best boxes that do not overlap, and then the best of all classes.

    Args:
        boxes: float32, shape [images, boxes, classes or 1, 4]: corners.
        scores: float32, shape [images, boxes, classes].
        max_output_size_per_class, max_total_size: int32 scalars.
        iou_threshold: what intersection over union is too much.
        score_threshold: what score is too low.
        pad_per_class: whether the results are no longer than `max_output_size_per_class` times the classes.
        clip_boxes: whether the corners are clipped to [0, 1].
        name: of the operation.

    Returns:
        `nmsed_boxes` [images, n, 4], `nmsed_scores` and `nmsed_classes` [images, n], all float32, the best first and
        then zeros; `valid_detections` [images], int32.

    Raises:
        ValueError: the shapes do not go together.
    """
    return CombinedNonMaxSuppression(
        *raw.CombinedNonMaxSuppression(
            boxes,
            scores,
            max_output_size_per_class,
            max_total_size,
            iou_threshold,
            score_threshold,
            pad_per_class=pad_per_class,
            clip_boxes=clip_boxes,
            name=name,
        )
    )


class GenerateBoundingBoxProposals(NamedTuple):
    """What `generate_bounding_box_proposals` returns."""

    rois: Any
    roi_probabilities: Any


class CombinedNonMaxSuppression(NamedTuple):
    """What `combined_non_max_suppression` returns."""

    nmsed_boxes: Any
    nmsed_scores: Any
    nmsed_classes: Any
    valid_detections: Any


def non_max_suppression_overlaps(
    overlaps: TensorLike,
    scores: TensorLike,
    max_output_size: TensorLike,
    overlap_threshold: TensorLike = 0.5,
    score_threshold: TensorLike = float("-inf"),
    name: str | None = None,
) -> Tensor:
    """Chooses the best boxes that do not overlap, by how much any two overlap.

    Args:
        overlaps: float32, shape [boxes, boxes].
        scores: float32, shape [boxes].
        max_output_size: int32 scalar.
        overlap_threshold, score_threshold: what overlap is too much, and what score too low.
        name: of the operation.

    Returns:
        int32, shape [chosen]: the numbers of the boxes, best first.

    Raises:
        ValueError: the shapes do not go together.
    """
    return raw.NonMaxSuppressionWithOverlaps(  # type: ignore[no-any-return]
        overlaps, scores, max_output_size, overlap_threshold, score_threshold, name=name
    )


def extract_patches(
    images: TensorLike,
    sizes: Sequence[int],
    strides: Sequence[int],
    rates: Sequence[int],
    padding: str,
    name: str | None = None,
) -> Tensor:
    """The same as `extract_image_patches`."""
    return extract_image_patches(images, sizes, strides, rates, padding, name)


def adjust_jpeg_quality(image: TensorLike, jpeg_quality: TensorLike, name: str | None = None) -> Tensor:
    """What is left of a picture when it is encoded as JPEG, and decoded again.

    Args:
        image: uint8, or float in [0, 1], shape [height, width, 1 or 3].
        jpeg_quality: a Python number from 0 to 100, or an int32 scalar.
        name: of the operation.

    Returns:
        The dtype and shape of `image`.

    Raises:
        ValueError: `image` is not of rank 3.
    """
    image = convert_to_tensor(image, name="image")
    channels = image.shape.with_rank(3)[2].value
    pixels = convert_image_dtype(image, dtypes.uint8, saturate=True)
    if isinstance(jpeg_quality, int | np.integer):
        encoded = raw.EncodeJpeg(pixels, quality=int(jpeg_quality), name=name)
    else:
        encoded = raw.EncodeJpegVariableQuality(pixels, jpeg_quality, name=name)
    decoded = decode_jpeg(encoded, channels=channels or 0)
    decoded.set_shape(image.shape)
    return convert_image_dtype(decoded, image.dtype, saturate=True)


def random_jpeg_quality(
    image: TensorLike, min_jpeg_quality: int, max_jpeg_quality: int, seed: int | None = None
) -> Tensor:
    """`adjust_jpeg_quality` with a random quality from `min_jpeg_quality` to below `max_jpeg_quality`.

    Args:
        image: as for `adjust_jpeg_quality`.
        min_jpeg_quality, max_jpeg_quality: from 0 to 100, the first smaller.
        seed: of the random number.

    Returns:
        The dtype and shape of `image`.

    Raises:
        ValueError: the qualities are not in order, or not from 0 to 100.
    """
    if not 0 <= min_jpeg_quality <= 100 or not 0 <= max_jpeg_quality <= 100:
        raise ValueError("jpeg encoding range must be between 0 and 100.")
    if min_jpeg_quality >= max_jpeg_quality:
        raise ValueError("`min_jpeg_quality` must be less than `max_jpeg_quality`.")
    quality = random_uniform([], min_jpeg_quality, max_jpeg_quality, seed=seed, dtype=dtypes.int32)
    return adjust_jpeg_quality(image, quality)
