"""Resizing images, and crops resized to one size; gradients of both.

Each resizing method is separable: an output row is a weighted sum of a few input rows (*taps*), whose places and
weights depend on the sizes alone.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
from jax import numpy as jnp

from anabranch.core.arrays import Array, ArrayLibrary, HostArray
from anabranch.core.dtypes import DType
from anabranch.core.kernel_context import OperationContext
from anabranch.core.shapes import TensorShape
from anabranch.graph.building import OpFunction, define_op
from anabranch.graph.constants import ShapeContext
from anabranch.graph.operation import Operation, Tensor
from anabranch.ops import raw, shape_rules
from anabranch.ops.nn.sliding import wide

_RESIZABLE = "{int8, uint8, int16, uint16, int32, int64, half, float, double, bfloat16}"
_CROPPED = "{uint8, uint16, int8, int16, int32, int64, half, float, double}"
_CENTERS = "align_corners: bool = False, half_pixel_centers: bool = False"
#: the shape of a size: height and width
_TWO = TensorShape([2])
#: cubic weights are looked up in a table with this many steps between two pixels
_CUBIC_STEPS = 1024


@dataclass(frozen=True)
class Taps:
    """How one axis is resized: output i is the sum over k of weights[i, k] * input[places[i, k]]."""

    places: HostArray
    weights: HostArray

    def matrix(self, length: int) -> HostArray:
        """The same as a matrix [outputs, length]."""
        dense = np.zeros((len(self.places), length), np.float32)
        np.add.at(dense, (np.arange(len(self.places))[:, None], self.places), self.weights)
        return dense


def _scale(length: int, wanted: int, align_corners: bool) -> np.float32:
    if align_corners and wanted > 1:
        return np.float32((length - 1) / np.float32(wanted - 1))
    return np.float32(length / np.float32(max(1, wanted)))


def coordinates(length: int, wanted: int, align_corners: bool, half_pixel_centers: bool) -> HostArray:
    """Where each output element stands among the input's, float32."""
    at = np.arange(wanted, dtype=np.float32)
    scale = _scale(length, wanted, align_corners)
    return (at + np.float32(0.5)) * scale - np.float32(0.5) if half_pixel_centers else at * scale


def bilinear_taps(length: int, wanted: int, align_corners: bool, half_pixel_centers: bool) -> Taps:
    at = coordinates(length, wanted, align_corners, half_pixel_centers)
    floor = np.floor(at)
    lower, upper = np.maximum(floor, 0), np.minimum(np.ceil(at), length - 1)
    share = at - floor
    places = np.stack([lower, np.maximum(upper, 0)], axis=1).astype(np.int32)
    return Taps(np.minimum(places, length - 1), np.stack([1 - share, share], axis=1))


def nearest_places(length: int, wanted: int, align_corners: bool, half_pixel_centers: bool) -> HostArray:
    scale = _scale(length, wanted, align_corners)
    at: HostArray = (np.arange(wanted, dtype=np.float32) + np.float32(0.5 if half_pixel_centers else 0)) * scale
    # Corners are aligned by rounding, halves away from zero (unlike np.round).
    nearest: HostArray = np.floor(at + np.float32(0.5 if align_corners else 0))
    places: HostArray = np.clip(nearest, 0, length - 1).astype(np.int32)
    return places


def bicubic_taps(length: int, wanted: int, align_corners: bool, half_pixel_centers: bool) -> Taps:
    """Cubic convolution with a = -0.75, or with half-pixel centres Keys' a = -0.5, renormalized at the borders."""
    at = coordinates(length, wanted, align_corners, half_pixel_centers)
    floor = np.floor(at)
    step = np.rint((at - floor) * _CUBIC_STEPS) / _CUBIC_STEPS
    distances = np.abs(np.stack([step + 1, step, 1 - step, 2 - step], axis=1))
    weights = _cubic(distances, -0.5 if half_pixel_centers else -0.75).astype(np.float32)
    wished = floor[:, None].astype(np.int64) + np.arange(-1, 3)
    places = np.clip(wished, 0, length - 1)
    if half_pixel_centers:
        weights = np.where(places == wished, weights, np.float32(0))
        weights = weights / weights.sum(axis=1, keepdims=True)
    return Taps(places.astype(np.int32), weights)


def _cubic(x: Array, a: float) -> HostArray:
    near = ((a + 2) * x - (a + 3)) * x * x + 1
    far = ((a * x - 5 * a) * x + 8 * a) * x - 4 * a
    return np.where(x <= 1, near, far)


def area_matrix(length: int, wanted: int, align_corners: bool) -> HostArray:
    """Each output averages the stretch of input that it covers; beyond the border the last element counts.

    A stretch has no length where the corners of one element are aligned with those of several: it is that element.
    """
    scale = np.float64(_scale(length, wanted, align_corners))
    matrix = np.zeros((wanted, length))
    if scale == 0:
        matrix[:, 0] = 1
        return matrix.astype(np.float32)
    for i in range(wanted):
        start, end = i * scale, (i + 1) * scale
        for j in range(int(np.floor(start)), int(np.ceil(end))):
            matrix[i, min(max(j, 0), length - 1)] += (min(j + 1, end) - max(j, start)) / scale
    return matrix.astype(np.float32)


def _by_taps(images: Array, rows: Taps, columns: Taps) -> Any:
    """Gathers: an element that no output uses has no influence, be it NaN."""
    for axis, taps in ((1, rows), (2, columns)):
        shape = [-1 if a == axis else 1 for a in range(4)]
        parts = [
            jnp.take(images, taps.places[:, k], axis=axis) * taps.weights[:, k].reshape(shape)
            for k in range(taps.places.shape[1])
        ]
        images = sum(parts)
    return images


def _by_matrices(images: Array, rows: Array, columns: Array) -> Any:
    """[batch, h, w, channels] with matrices [h', h] and [w', w] gives [batch, h', w', channels]."""
    return jnp.einsum("yh,bhwc,xw->byxc", rows, images, columns, precision=jax.lax.Precision.HIGHEST)


# ---------------------------------------------------------------------- shapes
def resized_shape(images: TensorShape, size: TensorShape, *, ctx: ShapeContext) -> TensorShape:
    images = shape_rules.with_rank(images, 4, "images")
    shape_rules.merged(size, _TWO)
    wanted = ctx.constant("size")
    if wanted is None:
        return TensorShape([images[0], None, None, images[3]])
    _check_size(wanted, least=0)  # that a picture has no pixels is an error of the step, as in TensorFlow
    return TensorShape([images[0], int(wanted[0]), int(wanted[1]), images[3]])


def _check_size(size: Array, least: int = 1) -> tuple[int, int]:
    if np.shape(size) != (2,) or min(size) < least:
        raise ValueError(f"size must be two positive numbers, height and width; got {np.asarray(size).tolist()}")
    return int(size[0]), int(size[1])


def _sized(images: Array, size: Array) -> tuple[tuple[int, int], tuple[int, int]]:
    """Old and new (height, width)."""
    if 0 in images.shape[1:3]:
        raise ValueError(f"the images have no pixels: shape {images.shape}")
    return images.shape[1:3], _check_size(size)


def _centers(align_corners: bool, half_pixel_centers: bool) -> tuple[bool, bool]:
    if align_corners and half_pixel_centers:
        raise ValueError("align_corners and half_pixel_centers cannot both be set")
    return align_corners, half_pixel_centers


# ---------------------------------------------------------------------- bilinear and bicubic
def bilinear(images: Array, size: Array, align_corners: bool) -> Any:
    """Images of that size, in float32 at least."""
    old, new = _sized(images, size)
    rows, columns = (bilinear_taps(n, wanted, align_corners, False) for n, wanted in zip(old, new, strict=True))
    return _by_taps(wide(images), rows, columns)


TapsFunction = Callable[[int, int, bool, bool], Taps]


def _by_weights(name: str, taps: TapsFunction, grad_types: str) -> tuple[OpFunction, OpFunction]:
    """A method made of taps, and its gradient (a sum over the same taps, transposed)."""
    forward = define_op(
        name,
        "images: T, size: int32 -> resized_images: float32",
        f"T: {_RESIZABLE}, {_CENTERS}",
        static=("size",),
    )
    forward.shape(resized_shape)
    backward = define_op(
        f"{name}Grad", "grads: float32, original_image: T -> output: T", f"T: {grad_types}, {_CENTERS}"
    )

    @backward.late_shape
    def _(grads: TensorShape, original_image: TensorShape) -> TensorShape:
        """As many images and channels as in `grads`, of the original's size.

        TensorFlow's graphs say that these are as many as in the original, also where a step would find that they are
        not: then nothing is said here.
        """
        grads, original_image = grads.with_rank(4), original_image.with_rank(4)
        number, channels = (
            grads[at] if grads[at].is_compatible_with(original_image[at]) else TensorShape([None])
            for at in (slice(1), slice(3, None))
        )
        return number.concatenate(original_image[1:3]).concatenate(channels)

    @forward.kernel
    def _(images: Array, size: Array, *, align_corners: bool, half_pixel_centers: bool) -> Any:
        old, new = _sized(images, size)
        centers = _centers(align_corners, half_pixel_centers)
        rows, columns = (taps(n, wanted, *centers) for n, wanted in zip(old, new, strict=True))
        return _by_taps(images.astype(np.float32), rows, columns).astype(np.float32)

    @forward.gradient
    def _(op: Operation, grad: Tensor) -> Any:
        images = op.inputs[0]
        if not images.dtype.is_floating:
            return None, None
        attrs = {name: op.attrs[name] for name in ("align_corners", "half_pixel_centers")}
        return backward(grad, images, **attrs), None

    @backward.kernel
    def _(grads: Array, original_image: Array, *, align_corners: bool, half_pixel_centers: bool) -> Any:
        centers = _centers(align_corners, half_pixel_centers)
        lengths = zip(original_image.shape[1:3], grads.shape[1:3], strict=True)
        rows, columns = (taps(n, wanted, *centers).matrix(n).T for n, wanted in lengths)
        return _by_matrices(grads, rows, columns).astype(original_image.dtype)

    @backward.gradient
    def _(op: Operation, grad: Tensor) -> Any:
        attrs = {name: op.attrs[name] for name in ("align_corners", "half_pixel_centers")}
        size = raw.Slice(raw.Shape(op.inputs[0]), np.array([1], np.int32), np.array([2], np.int32))
        return forward(grad, size, **attrs), None

    return forward, backward


ResizeBilinear, ResizeBilinearGrad = _by_weights("ResizeBilinear", bilinear_taps, "{float, bfloat16, half, double}")
ResizeBicubic, ResizeBicubicGrad = _by_weights("ResizeBicubic", bicubic_taps, "{float, double}")

# ---------------------------------------------------------------------- nearest and area
ResizeNearestNeighbor = define_op(
    "ResizeNearestNeighbor",
    "images: T, size: int32 -> resized_images: T",
    f"T: {_RESIZABLE}, {_CENTERS}",
    static=("size",),
)
ResizeNearestNeighbor.shape(resized_shape)


@ResizeNearestNeighbor.kernel
def _(images: Array, size: Array, *, align_corners: bool, half_pixel_centers: bool, xp: ArrayLibrary) -> Any:
    old, new = _sized(images, size)
    centers = _centers(align_corners, half_pixel_centers)
    rows, columns = (nearest_places(n, wanted, *centers) for n, wanted in zip(old, new, strict=True))
    return xp.take(xp.take(images, rows, axis=1), columns, axis=2)


@ResizeNearestNeighbor.gradient
def _(op: Operation, grad: Tensor) -> Any:
    images = op.inputs[0]
    attrs = {name: op.attrs[name] for name in ("align_corners", "half_pixel_centers")}
    size = raw.Slice(raw.Shape(images), np.array([1], np.int32), np.array([2], np.int32))
    return ResizeNearestNeighborGrad(grad, size, **attrs), None


ResizeNearestNeighborGrad = define_op(
    "ResizeNearestNeighborGrad",
    "grads: T, size: int32 -> output: T",
    f"T: {{uint8, int8, int32, half, float, double, bfloat16}}, {_CENTERS}",
    static=("size",),
)
ResizeNearestNeighborGrad.shape(resized_shape)


@ResizeNearestNeighborGrad.kernel
def _(grads: Array, size: Array, *, align_corners: bool, half_pixel_centers: bool) -> Any:
    new, old = _sized(grads, size)
    centers = _centers(align_corners, half_pixel_centers)
    rows, columns = (nearest_places(n, wanted, *centers) for n, wanted in zip(old, new, strict=True))
    wide = grads.astype(np.float32) if grads.dtype.itemsize == 2 else grads
    by_rows = jnp.zeros((grads.shape[0], old[0], *grads.shape[2:]), wide.dtype).at[:, rows].add(wide)
    out = jnp.zeros((grads.shape[0], *old, grads.shape[3]), wide.dtype).at[:, :, columns].add(by_rows)
    return out.astype(grads.dtype)


@ResizeNearestNeighborGrad.gradient
def _(op: Operation, grad: Tensor) -> Any:
    attrs = {name: op.attrs[name] for name in ("align_corners", "half_pixel_centers")}
    size = raw.Slice(raw.Shape(op.inputs[0]), np.array([1], np.int32), np.array([2], np.int32))
    return ResizeNearestNeighbor(grad, size, **attrs), None


ResizeArea = define_op(
    "ResizeArea",
    "images: T, size: int32 -> resized_images: float32",
    f"T: {_RESIZABLE}, align_corners: bool = False",
    static=("size",),
)
ResizeArea.shape(resized_shape)
ResizeArea.not_differentiable()


@ResizeArea.kernel
def _(images: Array, size: Array, *, align_corners: bool) -> Any:
    old, new = _sized(images, size)
    rows, columns = (area_matrix(n, wanted, align_corners) for n, wanted in zip(old, new, strict=True))
    return _by_matrices(images.astype(np.float32), rows, columns)


# ---------------------------------------------------------------------- crops
def _crop_coordinates(low: Array, high: Array, length: int, wanted: int) -> Any:
    """Where each row (or column) of each crop stands in the image, [boxes, wanted]; one alone stands in the middle."""
    span = length - 1
    if wanted == 1:
        return (0.5 * (low + high) * span)[:, None]
    return low[:, None] * span + np.arange(wanted, dtype=np.float32) * ((high - low) * span / (wanted - 1))[:, None]


@dataclass(frozen=True)
class _Places:
    """Where rows (or columns) of crops lie in the image, each [boxes, wanted]: between `lower` and `upper`."""

    lower: Any
    upper: Any
    share: Any
    inside: Any


def _along(at: Array, length: int, method: bytes) -> _Places:
    """The two places that each coordinate lies between, the upper one's share, and whether it is in the image."""
    inside = (at >= 0) & (at <= length - 1)
    safe = jnp.where(inside, at, 0)
    floor = jnp.floor(safe)
    share = safe - floor
    if method == b"nearest":
        nearest = jnp.where(share < 0.5, floor, floor + 1).astype(np.int32)
        return _Places(nearest, nearest, jnp.zeros_like(share), inside)
    return _Places(floor.astype(np.int32), jnp.ceil(safe).astype(np.int32), share, inside)


class _Crops:
    """The four pixels [boxes, rows, columns] that each one of the crops lies between, and its place between these.

    Sums are written in TensorFlow's order, so that NaN and infinities in images and gradients go the same ways.
    """

    def __init__(
        self, shape: tuple[int, ...], boxes: Array, box_ind: Array, size: tuple[int, int], method: bytes
    ) -> None:
        boxes = jnp.asarray(boxes)
        self.which = jnp.clip(jnp.asarray(box_ind), 0, shape[0] - 1)[:, None, None]
        self.rows = _along(_crop_coordinates(boxes[:, 0], boxes[:, 2], shape[1], size[0]), shape[1], method)
        self.columns = _along(_crop_coordinates(boxes[:, 1], boxes[:, 3], shape[2], size[1]), shape[2], method)
        self.down, self.right = self.rows.share[:, :, None, None], self.columns.share[:, None, :, None]
        self.inside = (self.rows.inside[:, :, None] & self.columns.inside[:, None, :])[..., None]

    def corner(self, low_row: bool, low_column: bool) -> tuple[Any, Any, Any]:
        """The indices of a corner in the image."""
        rows = self.rows.lower if low_row else self.rows.upper
        columns = self.columns.lower if low_column else self.columns.upper
        return self.which, rows[:, :, None], columns[:, None, :]

    def corners(self, image: Array) -> tuple[Any, Any, Any, Any]:
        """Top left, top right, bottom left, and bottom right pixels, float32."""
        image = jnp.asarray(image).astype(np.float32)
        top_left, top_right = image[self.corner(True, True)], image[self.corner(True, False)]
        return top_left, top_right, image[self.corner(False, True)], image[self.corner(False, False)]


def _check_boxes(box_ind: Array, batch: int, ctx: OperationContext) -> None:
    ctx.check((box_ind >= 0) & (box_ind < batch), f"box_ind must be in [0, {batch}), got {{0}}", box_ind)


def _boxes_shape(boxes: TensorShape, box_ind: TensorShape) -> TensorShape:
    """[boxes, 4] of as many boxes as there are indices."""
    indices = shape_rules.with_rank(box_ind, 1, "box_ind")
    return shape_rules.merged(shape_rules.with_rank(boxes, 2, "boxes"), TensorShape([indices[0], 4]))


def _crops_shape(grads: TensorShape, boxes: TensorShape, box_ind: TensorShape) -> TensorShape:
    """[boxes, height, width, channels] of the gradient for the crops."""
    grads = shape_rules.with_rank(grads, 4, "grads")
    grads[:1].merge_with(_boxes_shape(boxes, box_ind)[:1])
    return grads


CropAndResize = define_op(
    "CropAndResize",
    "image: T, boxes: float32, box_ind: int32, crop_size: int32 -> crops: float32",
    f"T: {_CROPPED}, method: {{'bilinear', 'nearest'}} = 'bilinear', extrapolation_value: float = 0.0",
    static=("crop_size",),
    ranks={"crop_size": 1},
)


@CropAndResize.shape
def _(
    image: TensorShape, boxes: TensorShape, box_ind: TensorShape, crop_size: TensorShape, *, ctx: ShapeContext
) -> TensorShape:
    image = shape_rules.with_rank(image, 4, "image")
    count = _boxes_shape(boxes, box_ind)
    shape_rules.merged(crop_size, _TWO)
    wanted = ctx.constant("crop_size")
    size = (None, None) if wanted is None else _check_size(wanted)
    return TensorShape([count[0], *size, image[3]])


@CropAndResize.kernel
def _(
    image: Array,
    boxes: Array,
    box_ind: Array,
    crop_size: Array,
    *,
    method: bytes,
    extrapolation_value: float,
    ctx: OperationContext,
) -> Any:
    _check_boxes(box_ind, image.shape[0], ctx)
    crops = _Crops(image.shape, boxes, box_ind, _check_size(crop_size), method)
    top_left, top_right, bottom_left, bottom_right = crops.corners(image)
    if method == b"nearest":
        return jnp.where(crops.inside, top_left, np.float32(extrapolation_value))
    top = top_left + (top_right - top_left) * crops.right
    bottom = bottom_left + (bottom_right - bottom_left) * crops.right
    return jnp.where(crops.inside, top + (bottom - top) * crops.down, np.float32(extrapolation_value))


@CropAndResize.gradient
def _(op: Operation, grad: Tensor) -> Any:
    image, boxes, box_ind, _ = op.inputs
    to_image = None
    if image.dtype.is_floating:
        to_image = CropAndResizeGradImage(
            grad, boxes, box_ind, raw.Shape(image), T=image.dtype, method=op.attrs["method"]
        )
    # to choose the nearest pixel has no gradient for where the box lies: TensorFlow takes that of interpolation for it
    return to_image, CropAndResizeGradBoxes(grad, image, boxes, box_ind), None, None


CropAndResizeGradImage = define_op(
    "CropAndResizeGradImage",
    "grads: float32, boxes: float32, box_ind: int32, image_size: int32 -> output: T",
    "T: {float, half, double}, method: {'bilinear', 'nearest'} = 'bilinear'",
    static=("image_size",),
    ranks={"image_size": 1},
)
CropAndResizeGradImage.not_differentiable()


@CropAndResizeGradImage.shape
def _(
    grads: TensorShape, boxes: TensorShape, box_ind: TensorShape, image_size: TensorShape, *, ctx: ShapeContext
) -> TensorShape:
    shape_rules.late(_crops_shape, grads, boxes, box_ind)
    size: TensorShape = ctx.constant_as_shape("image_size")
    return shape_rules.with_rank(size, 4, "image_size")


@CropAndResizeGradImage.kernel
def _(
    grads: Array,
    boxes: Array,
    box_ind: Array,
    image_size: Array,
    *,
    T: DType,
    method: bytes,
    ctx: OperationContext,
) -> Any:
    shape = tuple(int(d) for d in image_size)
    _check_boxes(box_ind, shape[0], ctx)
    crops = _Crops(shape, boxes, box_ind, grads.shape[1:3], method)
    grads = jnp.where(crops.inside, jnp.asarray(grads), 0)
    image = jnp.zeros(shape, np.float32)
    if method == b"nearest":
        return image.at[crops.corner(True, True)].add(grads).astype(T.as_numpy_dtype)
    for low_row, share in ((True, 1 - crops.down), (False, crops.down)):
        part = share * grads
        image = image.at[crops.corner(low_row, True)].add((1 - crops.right) * part)
        image = image.at[crops.corner(low_row, False)].add(crops.right * part)
    return image.astype(T.as_numpy_dtype)


CropAndResizeGradBoxes = define_op(
    "CropAndResizeGradBoxes",
    "grads: float32, image: T, boxes: float32, box_ind: int32 -> output: float32",
    f"T: {_CROPPED}, method: {{'bilinear'}} = 'bilinear'",
)
CropAndResizeGradBoxes.not_differentiable()


@CropAndResizeGradBoxes.late_shape
def _(grads: TensorShape, image: TensorShape, boxes: TensorShape, box_ind: TensorShape) -> TensorShape:
    """The boxes' shape, whatever the number of indices says of it: TensorFlow's rule says no more."""
    indexed = _boxes_shape(boxes, box_ind)
    grads, image = shape_rules.with_rank(grads, 4, "grads"), shape_rules.with_rank(image, 4, "image")
    shape_rules.merged(grads[:1], indexed[:1])
    shape_rules.merged(grads[3:], image[3:])
    return boxes


@CropAndResizeGradBoxes.kernel
def _(grads: Array, image: Array, boxes: Array, box_ind: Array, *, method: bytes, ctx: OperationContext) -> Any:
    _check_boxes(box_ind, image.shape[0], ctx)
    crops = _Crops(image.shape, boxes, box_ind, grads.shape[1:3], method)
    top_left, top_right, bottom_left, bottom_right = crops.corners(image)
    along_rows = (1 - crops.right) * (bottom_left - top_left) + crops.right * (bottom_right - top_right)
    along_columns = (1 - crops.down) * (top_right - top_left) + crops.down * (bottom_right - bottom_left)
    to_rows = _to_ends(jnp.where(crops.inside, grads * along_rows, 0), image.shape[1], 1)
    to_columns = _to_ends(jnp.where(crops.inside, grads * along_columns, 0), image.shape[2], 2)
    return jnp.stack([to_rows[0], to_columns[0], to_rows[1], to_columns[1]], axis=1)


def _to_ends(grads: Array, length: int, axis: int) -> tuple[Any, Any]:
    """Gradients for the low and the high end of boxes, [boxes] each, from those for coordinates along an axis."""
    wanted, span = grads.shape[axis], length - 1
    high: HostArray
    low: HostArray
    if wanted == 1:
        high = np.array([0.5 * span], np.float32)
        low = high
    else:
        high = np.arange(wanted, dtype=np.float32) * np.float32(span / (wanted - 1))
        low = span - high
    shape = [-1 if i == axis else 1 for i in range(4)]
    return jnp.sum(grads * low.reshape(shape), axis=(1, 2, 3)), jnp.sum(grads * high.reshape(shape), axis=(1, 2, 3))
