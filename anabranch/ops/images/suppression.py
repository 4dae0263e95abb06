"""The choice among overlapping boxes of several classes, or of boxes whose overlaps are given."""

from __future__ import annotations

from typing import Any

import numpy as np

from anabranch.core.arrays import Array
from anabranch.core.kernel_context import OperationContext
from anabranch.core.shapes import TensorShape
from anabranch.graph.building import define_op
from anabranch.graph.constants import ShapeContext
from anabranch.ops import shape_rules
from anabranch.ops.images.image import suppress

CombinedNonMaxSuppression = define_op(
    "CombinedNonMaxSuppression",
    "boxes: float, scores: float, max_output_size_per_class: int32, max_total_size: int32, iou_threshold: float, "
    "score_threshold: float -> nmsed_boxes: float, nmsed_scores: float, nmsed_classes: float, valid_detections: int32",
    "pad_per_class: bool = False, clip_boxes: bool = True",
)
CombinedNonMaxSuppression.not_differentiable()


@CombinedNonMaxSuppression.shape
def _(
    boxes: TensorShape,
    scores: TensorShape,
    max_output_size_per_class: TensorShape,
    max_total_size: TensorShape,
    iou_threshold: TensorShape,
    score_threshold: TensorShape,
    *,
    pad_per_class: bool,
    ctx: ShapeContext,
) -> list[TensorShape]:
    for scalar in (max_output_size_per_class, max_total_size, iou_threshold, score_threshold):
        shape_rules.with_rank(scalar, 0, "the limits")
    boxes = shape_rules.with_rank(boxes, 4, "boxes").merge_with([None, None, None, 4])
    scores = shape_rules.with_rank(scores, 3, "scores")
    boxes[:2].merge_with(scores[:2])
    of_class, size = ctx.constant("max_output_size_per_class"), ctx.constant("max_total_size")
    classes = scores[2].value
    length = None if size is None else int(size)
    if pad_per_class:
        known = None not in (length, classes, of_class)
        length = min(int(size), int(of_class) * classes) if known else None  # type: ignore[arg-type, operator]
    batch = boxes[0]
    return [TensorShape([batch, length, 4]), *[TensorShape([batch, length])] * 2, TensorShape([batch])]


@CombinedNonMaxSuppression.host_kernel
def _(
    boxes: Array,
    scores: Array,
    max_output_size_per_class: Array,
    max_total_size: Array,
    iou_threshold: Array,
    score_threshold: Array,
    *,
    pad_per_class: bool,
    clip_boxes: bool,
    ctx: OperationContext,
) -> Any:
    classes, of_class, size = scores.shape[2], int(max_output_size_per_class), int(max_total_size)
    ctx.check(of_class > 0, f"max_size_per_class must be positive, got {of_class}")
    ctx.check(size > 0, f"max_total_size must be > 0, got {size}")
    ctx.check(boxes.shape[2] in (1, classes), f"there are boxes for {boxes.shape[2]} of {classes} classes")
    length = min(size, of_class * classes) if pad_per_class else size
    images = len(boxes)
    kept = np.zeros((images, length, 4), np.float32), *(np.zeros((images, length), np.float32) for _ in range(2))
    counts = np.zeros(images, np.int32)
    for i in range(images):
        found = []
        for c in range(classes):
            corners = boxes[i, :, c if boxes.shape[2] > 1 else 0]
            which, values = suppress(
                corners,
                scores[i, :, c],
                max_output_size_per_class,
                float(iou_threshold),
                float(score_threshold),
                0,
                ctx,
                nan_lowers=False,
            )
            found += [(-value, c, corners[n]) for n, value in zip(which, values, strict=True)]
        found.sort(key=lambda entry: entry[0])
        for n, (value, c, corner) in enumerate(found[:length]):
            kept[0][i, n], kept[1][i, n], kept[2][i, n] = corner, -value, c
        counts[i] = min(len(found), length)
    return np.clip(kept[0], 0, 1) if clip_boxes else kept[0], kept[1], kept[2], counts


NonMaxSuppressionWithOverlaps = define_op(
    "NonMaxSuppressionWithOverlaps",
    "overlaps: float, scores: float, max_output_size: int32, overlap_threshold: float, score_threshold: float -> "
    "selected_indices: int32",
    ranks={"overlaps": 2, "scores": 1, "max_output_size": 0, "overlap_threshold": 0, "score_threshold": 0},
)
NonMaxSuppressionWithOverlaps.not_differentiable()


@NonMaxSuppressionWithOverlaps.shape
def _(overlaps: TensorShape, scores: TensorShape, *_: TensorShape | list[TensorShape]) -> TensorShape:
    overlaps[:1].merge_with(scores).merge_with(overlaps[1:])
    return TensorShape([None])


@NonMaxSuppressionWithOverlaps.host_kernel
def _(
    overlaps: Array,
    scores: Array,
    max_output_size: Array,
    overlap_threshold: Array,
    score_threshold: Array,
    *,
    ctx: OperationContext,
) -> Any:
    ctx.check(int(max_output_size) >= 0, f"max_output_size must be non-negative, got {int(max_output_size)}")
    chosen: list[int] = []
    for candidate in np.argsort(-scores, kind="stable").tolist():
        if len(chosen) == int(max_output_size) or not scores[candidate] > score_threshold:
            break
        if not (overlaps[candidate, chosen] > overlap_threshold).any():
            chosen.append(candidate)
    return np.array(chosen, np.int32)
