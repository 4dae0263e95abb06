"""Rows of the op table: resizing, crops, colours, PNG files, boxes."""

from __future__ import annotations

import colorsys
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np

from anabranch.core import dtypes
from anabranch.errors import InvalidArgumentError
from anabranch.io.png import encode_png
from anabranch.testing.op_cases import OpCase

Array = np.ndarray[Any, Any]

RNG = np.random.default_rng(1996)
X = RNG.normal(size=(2, 5, 4, 3)).astype(np.float32)
BYTES = RNG.integers(0, 256, size=(1, 5, 4, 2)).astype(np.uint8)
RGB = RNG.uniform(size=(2, 3, 4, 3)).astype(np.float32)
RGB[0, 0, :2] = [[0.5, 0.5, 0.5], [0, 0, 0]]
CORNERS = {"align_corners": True}
CENTERS = {"half_pixel_centers": True}


def place(i: int, length: int, wanted: int, corners: bool = False, centers: bool = False) -> float:
    scale = (length - 1) / (wanted - 1) if corners and wanted > 1 else length / wanted
    return (i + 0.5) * scale - 0.5 if centers else i * scale


def resized(weight: Callable[..., Array], **how: bool) -> Any:
    """A separable method, row by row; `weight(i, length, wanted)` is one row of its matrix."""

    def oracle(images: Array, size: Array) -> Array:
        rows, columns = (
            np.array([weight(i, images.shape[axis], size[axis - 1], **how) for i in range(size[axis - 1])])
            for axis in (1, 2)
        )
        return np.einsum("yh,bhwc,xw->byxc", rows, images.astype(np.float64), columns).astype(np.float32)

    return oracle


def transposed(weight: Callable[..., Array], **how: bool) -> Any:
    def oracle(grads: Array, images: Array) -> Array:
        rows, columns = (
            np.array([weight(i, images.shape[a], grads.shape[a], **how) for i in range(grads.shape[a])]) for a in (1, 2)
        )
        return np.einsum("yh,byxc,xw->bhwc", rows, grads, columns).astype(images.dtype)

    return oracle


def linear(i: int, length: int, wanted: int, **how: bool) -> Array:
    at = np.clip(place(i, length, wanted, **how), 0, length - 1)
    return np.maximum(0, 1 - np.abs(np.arange(length) - at))


def cubic(i: int, length: int, wanted: int, corners: bool = False, centers: bool = False) -> Array:
    at, row = place(i, length, wanted, corners, centers), np.zeros(length)
    a = -0.5 if centers else -0.75
    for j in range(int(np.floor(at)) - 1, int(np.floor(at)) + 3):
        d = abs(at - j)
        weight = (a + 2) * d**3 - (a + 3) * d**2 + 1 if d <= 1 else a * (d**3 - 5 * d**2 + 8 * d - 4)
        if not centers or 0 <= j < length:
            row[min(max(j, 0), length - 1)] += weight
    return row / row.sum()


def nearest(i: int, length: int, wanted: int, corners: bool = False, centers: bool = False) -> Array:
    if centers:
        at = np.floor((i + 0.5) * length / wanted)
    else:
        at = place(i, length, wanted, corners)
        at = np.floor(at + 0.5) if corners else np.floor(at)
    return np.eye(length)[int(min(at, length - 1))]


def area(i: int, length: int, wanted: int) -> Array:
    start, end = i * length / wanted, (i + 1) * length / wanted
    covered = [max(0, min(j + 1, end) - max(j, start)) for j in range(length)]
    return np.array(covered) / (end - start)


def crop(outside: float = 0.0, method: str = "bilinear") -> Any:
    def one(image: Array, y: float, x: float) -> Array:
        height, width = image.shape[:2]
        if not (0 <= y <= height - 1 and 0 <= x <= width - 1):
            return np.full(image.shape[2], outside)
        if method == "nearest":
            return image[int(np.floor(y + 0.5)), int(np.floor(x + 0.5))]
        rows = np.maximum(0, 1 - np.abs(np.arange(height) - y))
        columns = np.maximum(0, 1 - np.abs(np.arange(width) - x))
        return np.einsum("h,hwc,w->c", rows, image.astype(np.float64), columns)

    def oracle(images: Array, boxes: Array, which: Array, size: Array) -> Array:
        out = np.zeros((len(boxes), *size, images.shape[3]))
        for b, (y1, x1, y2, x2) in enumerate(boxes.astype(np.float64)):
            span_y, span_x = images.shape[1] - 1, images.shape[2] - 1
            for i in range(size[0]):
                y = (y1 + (y2 - y1) * i / (size[0] - 1) if size[0] > 1 else (y1 + y2) / 2) * span_y
                for j in range(size[1]):
                    x = (x1 + (x2 - x1) * j / (size[1] - 1) if size[1] > 1 else (x1 + x2) / 2) * span_x
                    out[b, i, j] = one(images[which[b]], y, x)
        return out.astype(np.float32)

    return oracle


def crop_grad_image(grads: Array, boxes: Array, which: Array, size: Array) -> Array:
    """By linearity."""
    out = np.zeros(size)
    for at in np.ndindex(*size):
        unit = np.zeros(size)
        unit[at] = 1
        out[at] = (crop()(unit, boxes, which, np.array(grads.shape[1:3])) * grads).sum()
    return out.astype(np.float32)


def crop_grad_boxes(grads: Array, images: Array, boxes: Array, which: Array) -> Array:
    out, size = np.zeros(boxes.shape), np.array(grads.shape[1:3])
    for at in np.ndindex(*boxes.shape):
        step = np.zeros(boxes.shape)
        step[at] = 1e-3
        ends = [crop()(images, boxes + s * step, which, size).astype(np.float64) for s in (1, -1)]
        out[at] = ((ends[0] - ends[1]) * grads).sum() / 2e-3
    return out.astype(np.float32)


def per_pixel(function: Callable[..., Any]) -> Any:
    def oracle(images: Array, *rest: Any) -> Array:
        flat = [function(*pixel.astype(float), *rest) for pixel in images.reshape(-1, 3)]
        return np.array(flat).reshape(images.shape).astype(images.dtype)

    return oracle


def turn(r: float, g: float, b: float, delta: float) -> Any:
    h, s, v = colorsys.rgb_to_hsv(r, g, b)
    return colorsys.hsv_to_rgb((h + delta) % 1, s, v)


def saturate(r: float, g: float, b: float, scale: float) -> Any:
    h, s, v = colorsys.rgb_to_hsv(r, g, b)
    return colorsys.hsv_to_rgb(h, min(1, max(0, s * scale)), v)


def contrast(x: Array, factor: float) -> Array:
    mean = x.mean((-3, -2), keepdims=True)
    return (x - mean) * factor + mean


def size(height: int, width: int) -> Array:
    return np.array([height, width], np.int32)


BOXES = np.array([[0.1, 0.2, 0.8, 0.9], [0.7, 0.1, -0.3, 0.65], [0.2, 0.3, 1.2, 0.6]], np.float32)
WHICH = np.array([1, 0, 1], np.int32)
CROPS = RNG.normal(size=(3, 3, 2, 3)).astype(np.float32)
#: six boxes in two clusters, and one apart
STACK = np.array(
    [[0, 0, 1, 1], [0, 0.1, 1, 1.1], [0, -0.1, 1, 0.9], [0, 10, 1, 11], [0, 10.1, 1, 11.1], [1, 101, 0, 100]],
    np.float32,
)
SCORES = np.array([0.9, 0.75, 0.6, 0.95, 0.5, 0.3], np.float32)
LIMIT, THRESHOLD = np.int32(3), np.float32(0.5)
METHODS: dict[str, Callable[..., Array]] = {"ResizeBilinear": linear, "ResizeBicubic": cubic}
#: the cubic weights come from a table of 1024 steps
ROUGH = {"ResizeBilinear": None, "ResizeBicubic": 3e-3}
PNG = RNG.integers(0, 256, size=(4, 3, 3)).astype(np.uint8)

CASES = [
    *(OpCase(name, (X, size(7, 9)), oracle=resized(w), tolerance=ROUGH[name]) for name, w in METHODS.items()),
    *(
        OpCase(name, (X, size(3, 2)), oracle=resized(w), tolerance=ROUGH[name], label="smaller")
        for name, w in METHODS.items()
    ),
    *(
        OpCase(name, (X, size(9, 7)), CORNERS, resized(w, corners=True), tolerance=ROUGH[name], label="corners")
        for name, w in METHODS.items()
    ),
    *(
        OpCase(name, (X, size(8, 3)), CENTERS, resized(w, centers=True), tolerance=ROUGH[name], label="centers")
        for name, w in METHODS.items()
    ),
    *(OpCase(name, (BYTES, size(10, 8)), oracle=resized(w), label="uint8") for name, w in METHODS.items()),
    OpCase(
        "ResizeBilinear",
        (X.astype(ml_dtypes.bfloat16), size(10, 8)),
        oracle=resized(linear),
        label="bfloat16",
        gradient=False,
    ),
    OpCase("ResizeBilinear", (X, size(0, 3)), error=InvalidArgumentError, label="empty"),
    *(
        OpCase(
            f"{name}Grad",
            (RNG.normal(size=(2, 8, 9, 3)).astype(np.float32), X),
            CENTERS,
            transposed(w, centers=True),
            tolerance=ROUGH[name],
            differentiate=[0],
        )
        for name, w in METHODS.items()
    ),
    OpCase("ResizeNearestNeighbor", (X, size(7, 9)), oracle=resized(nearest), order=2),
    OpCase("ResizeNearestNeighbor", (X, size(3, 2)), CENTERS, resized(nearest, centers=True), label="centers"),
    OpCase("ResizeNearestNeighbor", (X, size(9, 7)), CORNERS, resized(nearest, corners=True), label="corners"),
    OpCase("ResizeNearestNeighbor", (BYTES, size(2, 9)), oracle=resized(nearest), label="uint8"),
    OpCase(
        "ResizeNearestNeighborGrad",
        (RNG.normal(size=(2, 7, 9, 3)).astype(np.float32), size(5, 4)),
        oracle=lambda g, s: transposed(nearest)(g, X),
        order=2,
    ),
    OpCase("ResizeArea", (X, size(3, 2)), oracle=resized(area)),
    OpCase("ResizeArea", (X, size(7, 9)), oracle=resized(area), label="larger"),
    OpCase("CropAndResize", (X, BOXES, WHICH, size(3, 2)), oracle=crop()),
    OpCase(
        "CropAndResize",
        (X, BOXES, WHICH, size(1, 4)),
        {"extrapolation_value": 2.0},
        crop(2.0),
        differentiate=[0],
        label="one row",
    ),
    OpCase(
        "CropAndResize",
        (X, BOXES, WHICH, size(5, 4)),
        {"method": "nearest"},
        crop(0, "nearest"),
        differentiate=[0],
        label="nearest",
    ),
    OpCase("CropAndResize", (BYTES, BOXES, WHICH * 0, size(3, 2)), oracle=crop(), label="uint8", gradient=False),
    OpCase("CropAndResize", (X, BOXES, WHICH + 1, size(3, 2)), error=InvalidArgumentError, label="box_ind"),
    OpCase(
        "CropAndResizeGradImage",
        (CROPS, BOXES, WHICH, np.array(X.shape, np.int32)),
        {"T": dtypes.float32},
        crop_grad_image,
    ),
    OpCase("CropAndResizeGradBoxes", (CROPS, X, BOXES, WHICH), oracle=crop_grad_boxes, tolerance=5e-3),
    OpCase("RGBToHSV", (RGB,), oracle=per_pixel(colorsys.rgb_to_hsv), gradient=False),  # some are grey
    OpCase("RGBToHSV", (RGB[1].astype(np.float64),), oracle=per_pixel(colorsys.rgb_to_hsv), label="double"),
    OpCase("RGBToHSV", (X[..., :2],), error=InvalidArgumentError, label="two channels"),
    OpCase("HSVToRGB", (RGB,), oracle=per_pixel(colorsys.hsv_to_rgb)),
    OpCase("AdjustHue", (RGB, np.float32(0.3)), oracle=per_pixel(turn)),
    OpCase("AdjustHue", (RGB[0], np.float32(-0.9)), oracle=per_pixel(turn), label="back"),
    OpCase(
        "AdjustHue", (RGB - 2, np.float32(1.25)), oracle=lambda x, d: per_pixel(turn)(x + 2, d) - 2, label="negative"
    ),
    OpCase("AdjustHue", (RGB[0, 0], np.float32(0.3)), error=InvalidArgumentError, label="a row"),
    OpCase("AdjustSaturation", (RGB[0, 0], np.float32(0.3)), error=InvalidArgumentError, label="a row"),
    OpCase("AdjustSaturation", (RGB, np.float32(0.4)), oracle=per_pixel(saturate)),
    OpCase("AdjustSaturation", (RGB.astype(np.float16), np.float32(3)), oracle=per_pixel(saturate), label="half"),
    OpCase("AdjustContrastv2", (X, np.float32(1.7)), oracle=contrast, differentiate=[0]),
    OpCase(
        "AdjustContrastv2", (RGB[0].astype(np.float16), np.float32(0.2)), oracle=contrast, gradient=False, label="half"
    ),
    OpCase("EncodePng", (PNG,), oracle=encode_png),
    OpCase("EncodePng", (PNG.astype(np.uint16) * 200,), {"compression": 9}, lambda x: encode_png(x, 9), label="uint16"),
    *(
        OpCase("EncodePng", (PNG,), {"compression": level}, error=InvalidArgumentError, label=f"compression {level}")
        for level in (-2, 10)
    ),
    OpCase("EncodePng", (np.zeros((4, 3, 5), np.uint8),), error=InvalidArgumentError, label="five channels"),
    OpCase("DecodePng", (np.array(encode_png(PNG), np.object_),), expected=PNG),
    OpCase(
        "DecodePng",
        (np.array(encode_png(PNG), np.object_),),
        {"channels": 4},
        expected=np.insert(PNG, 3, 255, -1),
        label="alpha",
    ),
    OpCase("DecodePng", (np.array(encode_png(PNG)[:-20], np.object_),), error=InvalidArgumentError, label="truncated"),
    OpCase("NonMaxSuppression", (STACK, SCORES, LIMIT), expected=np.array([3, 0, 5], np.int32)),
    OpCase(
        "NonMaxSuppression",
        (np.array([[0, 0, 1, 1], [0, np.nan, 1, 1], [0, 5, 1, 6]], np.float32), SCORES[:3], LIMIT),
        expected=np.array([0, 2, 1], np.int32),
        label="overlaps by NaN",
    ),
    OpCase(
        "NonMaxSuppression",
        (STACK, SCORES, LIMIT),
        {"iou_threshold": 1.0},
        expected=np.array([3, 0, 1], np.int32),
        label="all",
    ),
    OpCase("NonMaxSuppressionV2", (STACK, SCORES, LIMIT, THRESHOLD), expected=np.array([3, 0, 5], np.int32)),
    OpCase("NonMaxSuppressionV2", (STACK, SCORES, LIMIT, np.float32(2)), error=InvalidArgumentError, label="threshold"),
    OpCase(
        "NonMaxSuppressionV3", (STACK, SCORES, LIMIT, THRESHOLD, np.float32(0.4)), expected=np.array([3, 0], np.int32)
    ),
    OpCase(
        "NonMaxSuppressionV4",
        (STACK, SCORES, np.int32(4), THRESHOLD, np.float32(0.0)),
        {"pad_to_max_output_size": True},
        expected=[np.array([3, 0, 5, 0], np.int32), np.int32(3)],
    ),
    OpCase(
        "NonMaxSuppressionV5",
        (STACK, SCORES, np.int32(2), THRESHOLD, np.float32(0.0), np.float32(0)),
        expected=[np.array([3, 0], np.int32), SCORES[[3, 0]], np.int32(2)],
    ),
    OpCase(
        "NonMaxSuppressionV5",
        (
            STACK,
            np.where(np.arange(len(SCORES)) == 3, np.nan, SCORES),
            np.int32(1),
            THRESHOLD,
            np.float32(0.0),
            np.float32(0),
        ),
        expected=[np.array([0], np.int32), SCORES[[0]], np.int32(1)],
        label="NaN",
    ),
    *(
        OpCase(
            "NonMaxSuppressionV5",
            (STACK, SCORES, np.int32(count), THRESHOLD, np.float32(0.0), np.float32(sigma)),
            error=InvalidArgumentError,
            label=f"count {count}, sigma {sigma}",
        )
        for count, sigma in ((2, -1.0), (2, np.nan), (-1, 0.0))
    ),
]
