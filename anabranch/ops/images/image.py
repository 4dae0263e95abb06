"""Images: colours, PNG files, and the choice among overlapping boxes."""

from __future__ import annotations

import functools
import heapq
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from anabranch.core import dtypes
from anabranch.core.arrays import Array, ArrayLibrary, RandomSource
from anabranch.core.dtypes import DType
from anabranch.core.kernel_context import OperationContext
from anabranch.core.shapes import TensorShape
from anabranch.errors import FailedPreconditionError, InvalidArgumentError
from anabranch.graph.building import OpFunction, define_op
from anabranch.graph.constants import ShapeContext
from anabranch.graph.operation import Operation, Tensor
from anabranch.io.png import decode_png, encode_png
from anabranch.ops import raw, shape_rules
from anabranch.ops.factories import attach_gradient
from anabranch.ops.images.codecs import origin, plain_png_pixels
from anabranch.ops.nn.sliding import wide


# ---------------------------------------------------------------------- colours
def _coloured(images: TensorShape) -> TensorShape:
    """The shape of images with three channels last; raises ValueError for others."""
    images = images.with_rank_at_least(1)
    if images.dims_tuple is None:
        return images
    if images.dims_tuple[-1] not in (None, 3):
        raise ValueError(f"images must have 3 channels (the last axis), got shape {images}")
    return TensorShape([*images.dims_tuple[:-1], 3])


def _check_channels(images: Array) -> Any:
    if images.shape[-1:] != (3,):
        raise ValueError(f"images must have 3 channels (the last axis), got shape {images.shape}")
    return wide(images)


def _to_hsv(images: Array, xp: ArrayLibrary) -> tuple[Any, Any, Any]:
    rgb = _check_channels(images)
    red, green, blue = (rgb[..., i] for i in range(3))
    one, six = rgb.dtype.type(1), rgb.dtype.type(6)
    value = xp.maximum(xp.maximum(red, green), blue)
    spread = value - xp.minimum(xp.minimum(red, green), blue)
    grey, black = spread <= 0, value <= 0
    saturation = xp.where(black, xp.zeros_like(value), spread / xp.where(black, one, value))
    sixth = one / (six * xp.where(grey, one, spread))
    hue = xp.where(
        red == value,
        sixth * (green - blue),
        xp.where(
            green == value, sixth * (blue - red) + rgb.dtype.type(1 / 3), sixth * (red - green) + rgb.dtype.type(2 / 3)
        ),
    )
    hue = xp.where(grey, xp.zeros_like(hue), hue)
    return xp.where(hue < 0, hue + one, hue), saturation, value


def _shares(hue: Array, xp: ArrayLibrary) -> tuple[Any, Any, Any]:
    """How much red, green and blue a pure colour has, from 0 to 1."""
    c = hue.dtype.type
    at = hue * c(6)
    red = xp.clip(xp.abs(at - c(3)) - c(1), c(0), c(1))
    green = xp.clip(c(2) - xp.abs(at - c(2)), c(0), c(1))
    blue = xp.clip(c(2) - xp.abs(at - c(4)), c(0), c(1))
    return red, green, blue


def _from_hsv(hue: Array, saturation: Array, value: Array, xp: ArrayLibrary) -> Any:
    one = hue.dtype.type(1)
    return xp.stack([(one - saturation + saturation * part) * value for part in _shares(hue, xp)], axis=-1)


def _colour_op(
    name: str, more: str = "", types: str = "{half, float}", gradient: Callable[..., Any] | None = None
) -> OpFunction:
    """An operation on pixels; one with a factor takes images, the others also single colours and rows of them."""
    op = attach_gradient(define_op(name, f"images: T{more} -> output: T", f"T: {types} = float32"), gradient)

    @(op.late_shape if more else op.shape)
    def _(images: TensorShape, *rest: TensorShape) -> TensorShape:
        for factor in rest:
            shape_rules.with_rank(factor, 0, "the factor")
        return _coloured(images.with_rank_at_least(3) if more else images)

    return op


def _hsv_gradient(op: Operation, grad: Tensor) -> Tensor:
    """Where channels are equal, the first counts as the largest, and the last as the smallest."""
    rgb = raw.Unpack(op.inputs[0], num=3, axis=-1)
    red, green, blue = rgb
    grad_hue, grad_saturation, grad_value = raw.Unpack(grad, num=3, axis=-1)
    value = raw.Maximum(raw.Maximum(red, green), blue)
    least = raw.Minimum(raw.Minimum(red, green), blue)
    spread = raw.Sub(value, least)
    largest = _first_equal(rgb, value, grad.dtype)
    smallest = _first_equal(rgb[::-1], least, grad.dtype)[::-1]
    # the hue is (next - last) / (6 spread), where next and last follow the largest of the three in turn
    difference = raw.AddN([raw.Mul(largest[i], raw.Sub(rgb[i - 2], rgb[i - 1])) for i in range(3)])
    per_spread = raw.DivNoNan(grad_hue, raw.Mul(spread, 6.0))
    per_difference = raw.DivNoNan(raw.Mul(per_spread, difference), spread)
    per_value = raw.DivNoNan(grad_saturation, value)
    parts = []
    for i in range(3):
        # the channel after the largest counts up, the one before it down
        hue = raw.Mul(per_spread, raw.Sub(largest[i - 1], largest[i - 2]))
        hue = raw.Sub(hue, raw.Mul(per_difference, raw.Sub(largest[i], smallest[i])))
        ratio = raw.Mul(raw.DivNoNan(least, value), largest[i])
        saturation = raw.Mul(per_value, raw.Sub(ratio, smallest[i]))
        parts.append(raw.AddN([raw.Mul(grad_value, largest[i]), saturation, hue]))
    return raw.Pack(parts, axis=-1)  # type: ignore[no-any-return]


def _first_equal(channels: Sequence[Tensor], wanted: Tensor, dtype: DType) -> list[Tensor]:
    """One for the first channel that equals `wanted`, zero for the others."""
    first, second, third = (raw.Cast(raw.Equal(channel, wanted), DstT=dtype) for channel in channels)
    not_first = raw.Sub(1.0, first)
    return [first, raw.Mul(not_first, second), raw.Mul(raw.Mul(not_first, raw.Sub(1.0, second)), third)]


RGBToHSV = _colour_op("RGBToHSV", types="floating", gradient=_hsv_gradient)


@RGBToHSV.kernel
def _(images: Array, *, xp: ArrayLibrary) -> Any:
    return xp.stack(_to_hsv(images, xp), axis=-1).astype(images.dtype)


HSVToRGB = _colour_op("HSVToRGB", types="floating")


@HSVToRGB.kernel
def _(images: Array, *, xp: ArrayLibrary) -> Any:
    hsv = _check_channels(images)
    return _from_hsv(hsv[..., 0], hsv[..., 1], hsv[..., 2], xp).astype(images.dtype)


AdjustHue = _colour_op("AdjustHue", ", delta: float32")


@AdjustHue.kernel
def _(images: Array, delta: Array, *, xp: ArrayLibrary) -> Any:
    """Colours keep their largest and smallest channel, also where these are negative, which have no saturation."""
    hue, _, value = _to_hsv(images, xp)
    turned = hue + delta
    least = xp.min(wide(images), axis=-1)
    shares = _shares(turned - xp.floor(turned), xp)
    return xp.stack([least + (value - least) * share for share in shares], axis=-1).astype(images.dtype)


AdjustSaturation = _colour_op("AdjustSaturation", ", scale: float32")


@AdjustSaturation.kernel
def _(images: Array, scale: Array, *, xp: ArrayLibrary) -> Any:
    hue, saturation, value = _to_hsv(images, xp)
    zero, one = np.float32(0), np.float32(1)
    scaled = saturation * scale
    # a scale that is NaN leaves greys, as TensorFlow has it
    kept_in = xp.where(scaled > zero, xp.minimum(scaled, one), zero)
    return _from_hsv(hue, kept_in, value, xp).astype(images.dtype)


AdjustContrastv2 = define_op(
    "AdjustContrastv2", "images: T, contrast_factor: float32 -> output: T", "T: {half, float} = float32"
)


@AdjustContrastv2.shape
def _(images: TensorShape, contrast_factor: TensorShape) -> TensorShape:
    shape_rules.with_rank(contrast_factor, 0, "contrast_factor")
    return images.with_rank_at_least(3)


@AdjustContrastv2.kernel
def _(images: Array, contrast_factor: Array, *, xp: ArrayLibrary) -> Any:
    x = wide(images)
    mean = xp.mean(x, axis=(-3, -2), keepdims=True)
    return ((x - mean) * contrast_factor + mean).astype(images.dtype)


@AdjustContrastv2.gradient
def _(op: Operation, grad: Tensor) -> Any:
    factor = raw.Cast(op.inputs[1], DstT=grad.dtype)
    mean = raw.Mean(grad, np.array([-3, -2], np.int32), keep_dims=True)
    return raw.Add(raw.Mul(raw.Sub(grad, mean), factor), mean), None


_REAL = "{uint8, int8, int16, int32, int64, float, double}"
AdjustContrast = define_op(
    "AdjustContrast",
    "images: T, contrast_factor: float32, min_value: float32, max_value: float32 -> output: float32",
    f"T: {_REAL}",
)
AdjustContrast.not_differentiable()


@AdjustContrast.shape
def _(images: TensorShape, contrast_factor: TensorShape, min_value: TensorShape, max_value: TensorShape) -> TensorShape:
    for name, shape in (("contrast_factor", contrast_factor), ("min_value", min_value), ("max_value", max_value)):
        shape_rules.with_rank(shape, 0, name)
    return images.with_rank_at_least(3)


@AdjustContrast.kernel
def _(images: Array, contrast_factor: Array, min_value: Array, max_value: Array, *, xp: ArrayLibrary) -> Any:
    x = xp.asarray(images).astype(np.float32)
    mean = xp.mean(x, axis=(-3, -2), keepdims=True)
    return xp.clip((x - mean) * contrast_factor + mean, min_value, max_value).astype(np.float32)


RandomCrop = define_op(
    "RandomCrop",
    "image: T, size: int64 -> output: T",
    f"T: {_REAL}, seed: int = 0, seed2: int = 0",
    stateful=True,
    ranks={"image": 3, "size": 1},
)
RandomCrop.not_differentiable()


@RandomCrop.shape
def _(image: TensorShape, size: TensorShape, *, ctx: ShapeContext) -> TensorShape:
    shape_rules.merged(size, TensorShape([2]))
    cropped: TensorShape = ctx.constant_as_shape("size")
    return cropped.merge_with([None, None]).concatenate(image.with_rank(3)[2:])


@RandomCrop.host_kernel
def _(image: Array, size: Array, *, rng: RandomSource, ctx: OperationContext) -> Any:
    height, width = (int(n) for n in size)
    rows, columns = image.shape[0] - height, image.shape[1] - width
    if min(rows, columns, height, width) < 0:
        message = f"a crop of {height} rows and {width} columns does not lie within an image of shape {image.shape}"
        raise FailedPreconditionError(None, ctx.op, message)
    top, left = int(rng.integers(0, rows + 1)), int(rng.integers(0, columns + 1))
    return image[top : top + height, left : left + width]


# ---------------------------------------------------------------------- PNG files
EncodePng = define_op("EncodePng", "image: T -> contents: string", "compression: int = -1, T: {uint8, uint16} = uint8")
EncodePng.not_differentiable()


@EncodePng.shape
def _(image: TensorShape) -> TensorShape:
    return image.with_rank_at_least(3)[:-3] if image.ndims is not None else image


@EncodePng.host_kernel
def _(image: Array, *, compression: int, ctx: OperationContext) -> Any:
    ctx.check(-1 <= compression <= 9, f"compression should be in [-1,9], got {compression}; 9 is the densest")
    out = np.empty(image.shape[:-3], np.object_)
    for at in np.ndindex(*out.shape):
        out[at] = encode_png(image[at], compression)
    return out


def png_pixels(data: bytes, channels: int, dtype: DType, ctx: OperationContext) -> Any:
    """The pixels of a PNG image, uint8 or uint16 [height, width, channels].

    Raises:
        InvalidArgumentError: the data do not decode.
    """
    pixels = plain_png_pixels(data, channels) if dtype is dtypes.uint8 else None
    if pixels is not None:
        return pixels
    try:
        return decode_png(data, channels, dtype.as_numpy_dtype)
    except ValueError as error:
        message = f"{len(data)} bytes{origin(ctx)} do not decode as an image: {error}"
        raise InvalidArgumentError(None, ctx.op, message) from error


# ---------------------------------------------------------------------- boxes
def _overlaps(some: Array, others: Array) -> Array:
    """Intersections over unions of boxes, [some, others]; corners may stand in any order."""
    low, high = np.minimum(others[:, :2], others[:, 2:]), np.maximum(others[:, :2], others[:, 2:])
    own_low, own_high = np.minimum(some[:, :2], some[:, 2:]), np.maximum(some[:, :2], some[:, 2:])
    shared: Any = None
    for axis in range(2):
        first = np.maximum.outer(own_low[:, axis], low[:, axis])
        last = np.minimum.outer(own_high[:, axis], high[:, axis])
        last -= first
        side = np.maximum(last, 0, out=last)
        shared = side if shared is None else np.multiply(shared, side, out=shared)
    extents, own_extents = high - low, own_high - own_low
    areas, own = extents[:, 0] * extents[:, 1], (own_extents[:, 0] * own_extents[:, 1])[:, np.newaxis]
    empty = (areas <= 0) | (own <= 0)
    union = areas + own - shared
    if not empty.any():
        return np.divide(shared, union, out=union)
    return np.where(empty, 0, shared / np.where(empty, 1, union))


def suppress(
    boxes: Array,
    scores: Array,
    count: Array,
    overlap: float,
    least: float,
    sigma: float,
    ctx: OperationContext,
    nan_lowers: bool = True,
) -> tuple[Array, Array]:
    """Greedy choice: the best box, then the best of those that overlap no chosen one by more than `overlap`.

    With `sigma` > 0 overlapping lowers a score instead, by exp(-overlap^2 / (2 sigma)) (Bodla et al., Soft-NMS, 2017).

    Args:
        nan_lowers: whether an overlap that is NaN leaves a score of 0, or nothing changes by it.

    Returns:
        Indices (int32) and their scores, best first.
    """
    ctx.check(int(count) >= 0, f"output size must be non-negative, got {int(count)}")
    ctx.check(0 <= overlap <= 1, f"iou_threshold must be in [0, 1], got {overlap}")
    ctx.check(sigma >= 0, f"soft_nms_sigma must be >= 0, got {sigma}")
    ctx.check(boxes.ndim == 2 and boxes.shape[1] == 4, f"boxes must have shape [boxes, 4], got {boxes.shape}")
    ctx.check(scores.shape == boxes.shape[:1], f"there are {len(boxes)} boxes, but scores of shape {scores.shape}")
    corners, left = boxes.astype(np.float32), scores.astype(np.float32)
    if not np.isfinite(corners).all():
        return _suppress_one_by_one(corners, left, int(count), overlap, least, sigma, nan_lowers)
    if sigma > 0:
        chosen, values = _soften(corners, left, int(count), least, sigma)
    else:
        chosen = _suppress_in_order(corners, left, int(count), overlap, least)
        values = left[chosen].tolist()
    return np.array(chosen, np.int32), np.array(values, scores.dtype)


def _soften(corners: Array, left: Array, count: int, least: float, sigma: float) -> tuple[list[int], list[float]]:
    """`suppress` of finite boxes with `sigma` > 0."""
    chosen: list[int] = []
    values: list[float] = []
    while len(chosen) < count and len(left):
        left = np.where(left > least, left, -np.inf)  # NaN is no score
        best = int(np.argmax(left))
        if left[best] == -np.inf:
            break
        chosen.append(best)
        values.append(float(left[best]))
        shared = _overlaps(corners[best : best + 1], corners)[0]
        left = left * np.exp(-0.5 / sigma * shared * shared)
        left[best] = -np.inf
    return chosen, values


def _suppress_in_order(corners: Array, scores: Array, count: int, overlap: float, least: float) -> list[int]:
    """`suppress` of finite boxes without `sigma`: scores do not change, so that boxes are looked at in their order.

    Many are compared at once, with each other and with those that were chosen before: a box alone would take NumPy as
    long as fifty.
    """
    order = np.argsort(-scores, kind="stable")
    order = order[scores[order] > least]  # NaN is no score
    chosen: list[int] = []
    size = min(max(2 * count, _FEWEST_COMPARED), _MOST_COMPARED)
    for start in range(0, len(order), size):
        block = order[start : start + size]
        boxes = corners[block]
        # as the bits of numbers, from the first box of the block on
        excluded = 0
        if chosen:
            apart = (_overlaps(corners[chosen], boxes) <= overlap).all(axis=0)
            excluded = _bits(~apart[np.newaxis])[0]
        too_close = _bits(~(_overlaps(boxes, boxes) <= overlap))  # NaN, of overflown areas, excludes
        for place, index in enumerate(block.tolist()):
            if len(chosen) == count:
                return chosen
            if not excluded >> place & 1:
                chosen.append(index)
                excluded |= too_close[place]
    return chosen


#: boxes that are compared with each other at once
_FEWEST_COMPARED, _MOST_COMPARED = 32, 512


def _bits(rows: Array) -> list[int]:
    """Rows of truth values as numbers, the first value as the lowest bit."""
    packed = np.packbits(rows, axis=1, bitorder="little")
    return [int.from_bytes(row.tobytes(), "little") for row in packed]


def _suppress_one_by_one(
    corners: Array, scores: Array, count: int, overlap: float, least: float, sigma: float, nan_lowers: bool
) -> tuple[Array, Array]:
    """`suppress` of boxes that are not finite: how they overlap depends on who is compared with whom, and when.

    A candidate is compared with the boxes chosen since it was last looked at. An overlap of NaN does not exclude it,
    but leaves it a score of 0, with which it waits again, as in TensorFlow.
    """
    factor = np.float32(-0.5 / sigma if sigma > 0 else 0.0)
    waiting = [(-float(score), index, 0) for index, score in enumerate(scores) if score > least]
    heapq.heapify(waiting)
    chosen: list[int] = []
    values: list[float] = []
    while waiting and len(chosen) < count:
        negative, index, compared = heapq.heappop(waiting)
        score = before = np.float32(-negative)
        is_excluded = False
        with np.errstate(all="ignore"):
            for other in reversed(chosen[compared:]):
                shared = _overlap(corners[index], corners[other])
                if sigma > 0 or shared <= overlap:
                    score *= np.exp(factor * shared * shared)
                elif nan_lowers:
                    score = np.float32(0)
                is_excluded = sigma <= 0 and bool(shared > overlap)
                if is_excluded or score <= least:
                    break
        if is_excluded:
            continue
        if score == before:
            chosen.append(index)
            values.append(float(score))
        elif score > least:
            heapq.heappush(waiting, (-float(score), index, len(chosen)))
    return np.array(chosen, np.int32), np.array(values, scores.dtype)


def _overlap(box: Array, other: Array) -> Any:
    """`_overlaps` of two boxes. Of two numbers of which one is NaN, the first is the larger and the smaller."""
    low, high = _smaller(box[:2], box[2:]), _larger(box[:2], box[2:])
    other_low, other_high = _smaller(other[:2], other[2:]), _larger(other[:2], other[2:])
    area, other_area = np.prod(high - low), np.prod(other_high - other_low)
    if area <= 0 or other_area <= 0:
        return np.float32(0)
    sides = _larger(_smaller(high, other_high) - _larger(low, other_low), np.zeros(2, np.float32))
    shared = np.prod(sides)
    return shared / (area + other_area - shared)


def _smaller(a: Array, b: Array) -> Array:
    return np.where(b < a, b, a)


def _larger(a: Array, b: Array) -> Array:
    return np.where(a < b, b, a)


def _padded(kept: Array, length: Array) -> Array:
    return np.concatenate([kept, np.zeros(int(length) - len(kept), kept.dtype)])


def _box_op(name: str, inputs: str, outputs: str, attrs: str) -> OpFunction:
    op = define_op(name, f"boxes: {inputs} -> {outputs}", attrs)
    op.not_differentiable()

    def chosen(length: int | None, boxes: TensorShape, scores: TensorShape, *scalars: TensorShape) -> Any:
        boxes = shape_rules.merged(boxes, TensorShape([None, 4]))
        boxes[:1].merge_with(shape_rules.with_rank(scores, 1, "scores"))
        for scalar in scalars:
            shape_rules.with_rank(scalar, 0, "the limits")
        vectors = [TensorShape([length])] * max(1, len(op.outputs) - 1)
        return vectors if len(op.outputs) == 1 else [*vectors, shape_rules.SCALAR]

    if "pad_to_max_output_size" not in op.attrs:
        op.shape(functools.partial(chosen, None))
        return op

    @op.shape
    def _(*shapes: TensorShape, pad_to_max_output_size: bool, ctx: ShapeContext) -> Any:
        any_length = chosen(None, *shapes)
        known = ctx.constant("max_output_size") if pad_to_max_output_size else None
        return any_length if known is None else chosen(int(known), *shapes)

    return op


_BOX_TYPES = "T: {half, float} = float32"
_THRESHOLDS = f"{_BOX_TYPES}, T_threshold: {{half, float}} = float32"

NonMaxSuppression = _box_op(
    "NonMaxSuppression",
    "float32, scores: float32, max_output_size: int32",
    "selected_indices: int32",
    "iou_threshold: float = 0.5",
)


@NonMaxSuppression.host_kernel
def _(boxes: Array, scores: Array, max_output_size: Array, *, iou_threshold: float, ctx: OperationContext) -> Any:
    return suppress(boxes, scores, max_output_size, iou_threshold, -np.inf, 0.0, ctx)[0]


NonMaxSuppressionV2 = _box_op(
    "NonMaxSuppressionV2",
    "T, scores: T, max_output_size: int32, iou_threshold: T_threshold",
    "selected_indices: int32",
    _THRESHOLDS,
)


@NonMaxSuppressionV2.host_kernel
def _(boxes: Array, scores: Array, max_output_size: Array, iou_threshold: Array, *, ctx: OperationContext) -> Any:
    return suppress(boxes, scores, max_output_size, float(iou_threshold), -np.inf, 0.0, ctx)[0]


NonMaxSuppressionV3 = _box_op(
    "NonMaxSuppressionV3",
    "T, scores: T, max_output_size: int32, iou_threshold: T_threshold, score_threshold: T_threshold",
    "selected_indices: int32",
    _THRESHOLDS,
)


@NonMaxSuppressionV3.host_kernel
def _(
    boxes: Array,
    scores: Array,
    max_output_size: Array,
    iou_threshold: Array,
    score_threshold: Array,
    *,
    ctx: OperationContext,
) -> Any:
    return suppress(boxes, scores, max_output_size, float(iou_threshold), float(score_threshold), 0.0, ctx)[0]


NonMaxSuppressionV4 = _box_op(
    "NonMaxSuppressionV4",
    "T, scores: T, max_output_size: int32, iou_threshold: T_threshold, score_threshold: T_threshold",
    "selected_indices: int32, valid_outputs: int32",
    f"{_THRESHOLDS}, pad_to_max_output_size: bool = False",
)


@NonMaxSuppressionV4.host_kernel
def _(
    boxes: Array,
    scores: Array,
    max_output_size: Array,
    iou_threshold: Array,
    score_threshold: Array,
    *,
    pad_to_max_output_size: bool,
    ctx: OperationContext,
) -> Any:
    kept, _ = suppress(boxes, scores, max_output_size, float(iou_threshold), float(score_threshold), 0.0, ctx)
    count = np.int32(len(kept))
    return _padded(kept, max_output_size) if pad_to_max_output_size else kept, count


NonMaxSuppressionV5 = _box_op(
    "NonMaxSuppressionV5",
    "T, scores: T, max_output_size: int32, iou_threshold: T, score_threshold: T, soft_nms_sigma: T",
    "selected_indices: int32, selected_scores: T, valid_outputs: int32",
    f"{_BOX_TYPES}, pad_to_max_output_size: bool = False",
)


@NonMaxSuppressionV5.host_kernel
def _(
    boxes: Array,
    scores: Array,
    max_output_size: Array,
    iou_threshold: Array,
    score_threshold: Array,
    soft_nms_sigma: Array,
    *,
    pad_to_max_output_size: bool,
    ctx: OperationContext,
) -> Any:
    kept, values = suppress(
        boxes, scores, max_output_size, float(iou_threshold), float(score_threshold), float(soft_nms_sigma), ctx
    )
    count = np.int32(len(kept))
    if pad_to_max_output_size:
        kept, values = _padded(kept, max_output_size), _padded(values, max_output_size)
    return kept, values, count
