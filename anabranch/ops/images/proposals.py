"""Boxes that may hold an object: anchors moved by what a network says of them, the best of which are kept."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from anabranch.core.arrays import Array, HostArray
from anabranch.core.kernel_context import OperationContext
from anabranch.core.shapes import TensorShape
from anabranch.graph.building import define_op
from anabranch.ops import shape_rules
from anabranch.ops.images.image import suppress

#: logarithm of how many times larger than its anchor a box becomes at most
_MOST_GROWTH: Final = np.float32(np.log(1000.0 / 16.0))

GenerateBoundingBoxProposals = define_op(
    "GenerateBoundingBoxProposals",
    "scores: float, bbox_deltas: float, image_info: float, anchors: float, nms_threshold: float, pre_nms_topn: int32, "
    "min_size: float -> rois: float, roi_probabilities: float",
    "post_nms_topn: int = 300",
    ranks={
        "scores": 4,
        "bbox_deltas": 4,
        "image_info": 2,
        "anchors": 3,
        "nms_threshold": 0,
        "pre_nms_topn": 0,
        "min_size": 0,
    },
)
GenerateBoundingBoxProposals.not_differentiable()


@GenerateBoundingBoxProposals.shape
def _(scores: TensorShape, *_: TensorShape, post_nms_topn: int) -> list[TensorShape]:
    images = shape_rules.with_rank(scores, 4, "scores")[0]
    return [TensorShape([images, post_nms_topn, 4]), TensorShape([images, post_nms_topn])]


@GenerateBoundingBoxProposals.host_kernel
def _(
    scores: Array,
    bbox_deltas: Array,
    image_info: Array,
    anchors: Array,
    nms_threshold: Array,
    pre_nms_topn: Array,
    min_size: Array,
    *,
    post_nms_topn: int,
    ctx: OperationContext,
) -> Any:
    """Anchors are the same for all images; corners are (y1, x1, y2, x2) in pixels."""
    images, height, width, kinds = scores.shape
    count, before, threshold = height * width * kinds, int(pre_nms_topn), float(nms_threshold)
    ctx.check(post_nms_topn > 0, f"post_nms_topn can't be 0 or less, got {post_nms_topn}")
    ctx.check(before > 0, f"pre_nms_topn should be greater than 0, got {before}")
    ctx.check(0 <= threshold <= 1, f"nms_threshold should be between 0 and 1. Got {threshold}")
    ctx.check(anchors.size == 4 * count, f"{count} anchors of 4 numbers are needed, got the shape {anchors.shape}")
    fits = bbox_deltas.size == 4 * count * images
    ctx.check(fits, f"bbox_deltas must be of shape {[images, height, width, 4 * kinds]}, got {list(bbox_deltas.shape)}")
    fits = image_info.shape[0] == images and image_info.shape[1] >= 3
    ctx.check(fits, f"image_info must be of shape {[images, 5]}, got {list(image_info.shape)}")
    rois, chances = np.zeros((images, post_nms_topn, 4), np.float32), np.zeros((images, post_nms_topn), np.float32)
    for i in range(images):
        flat = scores[i].reshape(-1)
        best = np.argsort(-flat, kind="stable")[:before]
        boxes = _moved(anchors.reshape(-1, 4)[best], bbox_deltas[i].reshape(-1, 4)[best], image_info[i])
        sides = np.minimum(boxes[:, 2] - boxes[:, 0], boxes[:, 3] - boxes[:, 1])
        large = sides >= np.float32(min_size) * image_info[i, 2]
        boxes, values = boxes[large], flat[best][large]
        kept, _ = suppress(boxes, values, np.int32(post_nms_topn), threshold, -np.inf, 0, ctx, nan_lowers=False)
        rois[i, : len(kept)], chances[i, : len(kept)] = boxes[kept], values[kept]
    return rois, chances


def _moved(anchors: HostArray, deltas: HostArray, info: HostArray) -> HostArray:
    """Centres move by parts of the anchors' sides, sides grow by factors; what is outside of the picture is cut off."""
    sides = anchors[:, 2:] - anchors[:, :2]
    centres = anchors[:, :2] + np.float32(0.5) * sides + sides * deltas[:, :2]
    half = np.float32(0.5) * sides * np.exp(np.minimum(deltas[:, 2:], _MOST_GROWTH))
    corners = np.concatenate([centres - half, centres + half], axis=1)
    inside: HostArray = np.clip(corners, 0, np.tile(info[:2], 2)).astype(np.float32)
    return inside
