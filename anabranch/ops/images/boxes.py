"""Boxes in images: drawing them, and choosing random ones that cover enough of given objects."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from anabranch.core.arrays import RandomSource
from anabranch.core.kernel_context import OperationContext
from anabranch.core.shapes import TensorShape
from anabranch.graph.building import OpFunction, define_op
from anabranch.ops import shape_rules

Array = np.ndarray[Any, Any]

#: colours of boxes that are given none, in turn: yellow, blue, red, lime, purple, olive, maroon, navy, aqua, fuchsia
COLOURS = np.array(
    [
        [1, 1, 0, 1],
        [0, 0, 1, 1],
        [1, 0, 0, 1],
        [0, 1, 0, 1],
        [0.5, 0, 0.5, 1],
        [0.5, 0.5, 0, 1],
        [0.5, 0, 0, 1],
        [0, 0, 0.5, 1],
        [0, 1, 1, 1],
        [1, 0, 1, 1],
    ],
    np.float32,
)
#: objects with less than one pixel are not looked at
_LEAST_AREA = 1.0
#: boxes that are tried where a graph asks for more: those take ten seconds
_MOST_ATTEMPTS = 1 << 20


# ---------------------------------------------------------------------- drawing
def _channels_checked(images: TensorShape) -> TensorShape:
    """Images are grey, of three colours, or of these and an alpha channel."""
    images = shape_rules.with_rank(images, 4, "images")
    if images[3].value not in (None, 1, 3, 4):
        raise ValueError(f"images must have 1, 3 or 4 channels, got shape {images}")
    return images


def _drawn_shape(images: TensorShape, boxes: TensorShape, *_: TensorShape | list[TensorShape]) -> TensorShape:
    images = _channels_checked(images)
    shape_rules.with_rank(boxes, 3, "boxes")[:1].merge_with(images[:1])
    return images


def _pixel(place: Array) -> int:
    """A place as a number of pixels; what int64 cannot hold lies before the first, as a processor converts it."""
    return int(place) if abs(place) < 2**63 else -(2**63)


def _draw(images: Array, boxes: Array, colours: Array) -> Array:
    """Lines one pixel wide along the boxes' borders, as far as they lie in the image."""
    out = images.copy()
    height, width, depth = images.shape[1:]
    if colours.ndim != 2:
        raise ValueError(f"colors must be a 2-D matrix, got shape {colours.shape}")
    if boxes.shape[2] != 4:
        raise ValueError(f"a box has 4 numbers, but boxes has shape {boxes.shape}")
    if colours.shape[1] < depth:
        raise ValueError(f"colors must have at least the {depth} channels of the images, got shape {colours.shape}")
    if not len(colours):
        # On grey images all boxes are white.
        colours = COLOURS if depth > 1 else np.ones((1, 1), np.float32)
    for image, own in zip(out, boxes, strict=True):
        for i, box in enumerate(own):
            colour = colours[i % len(colours)][:depth]
            top, left, bottom, right = (_pixel(v * (n - 1)) for v, n in zip(box, (height, width) * 2, strict=True))
            rows, columns = slice(max(top, 0), bottom + 1), slice(max(left, 0), right + 1)
            if top > bottom or left > right or bottom < 0 or right < 0 or top >= height or left >= width:
                continue
            for row in (top, bottom):
                if 0 <= row < height:
                    image[row, columns] = colour
            for column in (left, right):
                if 0 <= column < width:
                    image[rows, column] = colour
    return out


DrawBoundingBoxes = define_op(
    "DrawBoundingBoxes",
    "images: T, boxes: float32 -> output: T",
    "T: {float, half} = float32",
    ranks={"images": 4, "boxes": 3},
)


@DrawBoundingBoxes.shape
def _(images: TensorShape, boxes: TensorShape) -> TensorShape:
    boxes = shape_rules.merged(boxes, TensorShape([None, None, 4]))
    return shape_rules.late(_drawn_shape, _channels_checked(images), boxes)


DrawBoundingBoxes.not_differentiable()


@DrawBoundingBoxes.host_kernel
def _(images: Array, boxes: Array) -> Array:
    return _draw(images, boxes, COLOURS[:0])


DrawBoundingBoxesV2 = define_op(
    "DrawBoundingBoxesV2", "images: T, boxes: float32, colors: float32 -> output: T", "T: {float, half} = float32"
)
DrawBoundingBoxesV2.late_shape(_drawn_shape)
DrawBoundingBoxesV2.not_differentiable()


@DrawBoundingBoxesV2.host_kernel
def _(images: Array, boxes: Array, colors: Array) -> Array:
    return _draw(images, boxes, colors)


# ---------------------------------------------------------------------- random boxes
_SAMPLED = (
    "T: {uint8, int8, int16, int32, int64}, seed: int = 0, seed2: int = 0, %s"
    "aspect_ratio_range: list(float) = [0.75, 1.33], area_range: list(float) = [0.05, 1.0], max_attempts: int = 100, "
    "use_image_if_no_bounding_boxes: bool = False"
)


def _sampler(name: str, inputs: str, attrs: str) -> OpFunction:
    op = define_op(name, f"{inputs} -> begin: T, size: T, bboxes: float32", attrs, stateful=True)
    op.not_differentiable()

    @op.shape
    def _(
        image_size: TensorShape, bounding_boxes: TensorShape, *_: TensorShape | list[TensorShape]
    ) -> list[TensorShape]:
        shape_rules.with_rank(image_size, 1, "image_size").merge_with([3])
        shape_rules.with_rank(bounding_boxes, 3, "bounding_boxes")
        return [TensorShape([3]), TensorShape([3]), TensorShape([1, 1, 4])]

    return op


def _random_box(
    height: int, width: int, aspect: float, areas: list[float], rng: RandomSource
) -> tuple[int, ...] | None:
    """Top, left, height and width of a box of that aspect ratio (width / height) and an area in that range, or None."""
    least, most = (share * height * width for share in areas)
    low, high = round(math.sqrt(least / aspect)), round(math.sqrt(most / aspect))
    high = min(high, height, math.floor((width + 0.5 - 1e-7) / aspect))
    tall = min(low, high) if low >= high else int(rng.integers(low, high + 1))
    wide = round(tall * aspect)
    if wide * tall < least:
        tall += 1
        wide = round(tall * aspect)
    if wide * tall > most:
        tall -= 1
        wide = round(tall * aspect)
    if not (least <= wide * tall <= most and 0 < wide <= width and 0 < tall <= height):
        return None
    return int(rng.integers(0, height - tall + 1)), int(rng.integers(0, width - wide + 1)), tall, wide


def _covers(box: tuple[int, ...], objects: Array, least: float) -> bool:
    """Whether the box contains at least that share of some object (corners in pixels)."""
    top, left, tall, wide = box
    for y1, x1, y2, x2 in objects:
        area = max(0.0, y2 - y1) * max(0.0, x2 - x1)
        shared = max(0.0, min(y2, top + tall) - max(y1, top)) * max(0.0, min(x2, left + wide) - max(x1, left))
        if area >= _LEAST_AREA and shared / area >= least:
            return True
    return False


def _sample(
    image_size: Array, boxes: Array, least: float, attrs: dict[str, Any], rng: RandomSource, ctx: OperationContext
) -> Any:
    height, width = (int(n) for n in image_size[:2])
    ctx.check(height > 0 and width > 0, f"the image must have pixels, got the size {image_size.tolist()}")
    ratios, areas = attrs["aspect_ratio_range"], attrs["area_range"]
    ctx.check(len(ratios) == 2 and 0 < ratios[0] <= ratios[1], f"aspect_ratio_range must be 0 < low <= high: {ratios}")
    ctx.check(len(areas) == 2 and 0 < areas[0] <= areas[1] <= 1, f"area_range must be 0 < low <= high <= 1: {areas}")
    corners = boxes.reshape(-1, 4)
    ctx.check(
        ((corners >= 0) & (corners <= 1)).all() and (corners[:, 2:] >= corners[:, :2]).all(),
        "bounding boxes must be y1, x1, y2, x2 with 0 <= y1 <= y2 <= 1 and 0 <= x1 <= x2 <= 1, got {0}",
        corners,
    )
    ctx.check(
        len(corners) > 0 or attrs["use_image_if_no_bounding_boxes"],
        "no bounding boxes provided as input; set use_image_if_no_bounding_boxes to sample from the whole image",
    )
    objects = corners * [height, width, height, width] if len(corners) else np.array([[0, 0, height, width]])
    sampled: tuple[int, ...] = (0, 0, height, width)
    for _ in range(min(attrs["max_attempts"], _MOST_ATTEMPTS)):
        box = _random_box(height, width, rng.uniform(*ratios), areas, rng)
        if box is not None and _covers(box, objects, least):
            sampled = box
            break
    top, left, tall, wide = sampled
    # -1, all channels, is the greatest number where there are no negative ones
    begin, size = (np.array(each).astype(image_size.dtype) for each in ([top, left, 0], [tall, wide, -1]))
    share = np.array([top / height, left / width, (top + tall) / height, (left + wide) / width], np.float32)
    return begin, size, share.reshape(1, 1, 4)


SampleDistortedBoundingBox = _sampler(
    "SampleDistortedBoundingBox",
    "image_size: T, bounding_boxes: float32",
    _SAMPLED % "min_object_covered: float = 0.1, ",
)


@SampleDistortedBoundingBox.host_kernel
def _(
    image_size: Array, bounding_boxes: Array, *, min_object_covered: float, rng: RandomSource, ctx: OperationContext
) -> Any:
    return _sample(image_size, bounding_boxes, min_object_covered, ctx.op.attrs, rng, ctx)


SampleDistortedBoundingBoxV2 = _sampler(
    "SampleDistortedBoundingBoxV2",
    "image_size: T, bounding_boxes: float32, min_object_covered: float32",
    _SAMPLED % "",
)


@SampleDistortedBoundingBoxV2.host_kernel
def _(
    image_size: Array, bounding_boxes: Array, min_object_covered: Array, *, rng: RandomSource, ctx: OperationContext
) -> Any:
    return _sample(image_size, bounding_boxes, float(min_object_covered), ctx.op.attrs, rng, ctx)
