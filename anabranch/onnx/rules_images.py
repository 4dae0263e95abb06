"""Import rules of operators on images: sizes, samples, regions."""

from __future__ import annotations

import functools
import importlib
import io
import itertools
from collections.abc import Callable

import numpy as np

import anabranch as tf
from anabranch.core.arrays import HostArray
from anabranch.onnx.rules import OnnxNode, rank_of, rule, size_of, sizes_of


@rule("Resize", 10, 11, 13, 18, 19)
def _resize(node: OnnxNode) -> tf.Tensor:
    x, rank = node.tensor(), node.rank()
    sizes = sizes_of(x)
    region = node.static(1) if node.since >= 11 and node.has(1) else np.zeros(0)
    at = 1 if node.since < 11 else 2
    axes = [a % rank for a in node.ints("axes") or range(rank)]
    scales = np.ones(rank)
    targets = list(sizes)
    if node.has(at) and node.static(at).size:
        for axis, scale in zip(axes, node.static(at).reshape(-1), strict=True):
            scales[axis] = float(scale)
            targets[axis] = int(np.floor(sizes[axis] * np.float32(scale)))
    else:
        _aim(node, axes, sizes, scales, targets)
    low, high = np.zeros(rank), np.ones(rank)
    if region.size:
        low[axes], high[axes] = region[: len(axes)], region[len(axes) :]
    crop = node.text("coordinate_transformation_mode", "half_pixel") == "tf_crop_and_resize"
    outside: dict[int, HostArray] = {}
    result = tf.cast(x, tf.float64) if x.dtype.is_integer else x
    for axis in axes:
        if targets[axis] == sizes[axis] and scales[axis] == 1 and not crop:
            continue
        matrix, out = _resizing(node, sizes[axis], targets[axis], scales[axis], low[axis], high[axis])
        if crop and out.any():
            outside[axis] = out
        order = [i for i in range(rank) if i != axis] + [axis]
        back = [int(i) for i in np.argsort(order)]
        moved = tf.tensordot(tf.transpose(result, order), tf.constant(matrix.T, result.dtype), 1)
        result = tf.transpose(moved, back)
    for axis, out in outside.items():
        mask = out.reshape([-1 if i == axis else 1 for i in range(rank)])
        value = tf.cast(node.real("extrapolation_value"), result.dtype)
        result = tf.where_v2(tf.broadcast_to(mask, tf.shape(result)), value, result)
    return tf.cast(tf.round(result), x.dtype) if x.dtype.is_integer else tf.identity(result)


def _aim(node: OnnxNode, axes: list[int], sizes: list[int], scales: HostArray, targets: list[int]) -> None:
    wanted = [int(v) for v in node.static(3).reshape(-1)]
    policy = node.text("keep_aspect_ratio_policy", "stretch")
    ratios = [w / sizes[a] for w, a in zip(wanted, axes, strict=True)]
    for axis, want, ratio in zip(axes, wanted, ratios, strict=True):
        if policy != "stretch":
            ratio = min(ratios) if policy == "not_larger" else max(ratios)
            want = int(np.floor(sizes[axis] * ratio + 0.5))
        scales[axis], targets[axis] = ratio, want


def _resizing(
    node: OnnxNode, size: int, target: int, scale: float, low: float, high: float
) -> tuple[HostArray, HostArray]:
    """The matrix from the elements along an axis to the new ones, and which of these are outside."""
    mode = node.text("mode", "nearest")
    where = node.text("coordinate_transformation_mode", "half_pixel" if node.since >= 11 else "asymmetric")
    places = _places(where, np.arange(target, dtype=np.float64), size, target, scale, low, high)
    matrix = np.zeros((target, size))
    out = (places < 0) | (places > size - 1)
    rows = np.arange(target)
    if mode == "nearest":
        how = node.text("nearest_mode", "round_prefer_floor" if node.since >= 11 else "floor")
        rounded: dict[str, Callable[[HostArray], HostArray]] = {
            "round_prefer_floor": lambda p: np.ceil(p - 0.5),
            "round_prefer_ceil": lambda p: np.floor(p + 0.5),
            "floor": np.floor,
            "ceil": np.ceil,
        }
        matrix[rows, np.clip(rounded[how](places), 0, size - 1).astype(int)] = 1
        return matrix, out
    shrink = min(scale, 1.0) if node.integer("antialias") else 1.0
    support = (1.0 if mode == "linear" else 2.0) / shrink
    a = node.real("cubic_coeff_a", -0.75)
    excluded = bool(node.integer("exclude_outside"))
    for row, place in enumerate(places):
        taps = np.arange(int(np.floor(place - support)), int(np.ceil(place + support)) + 1)
        distance = np.abs(place - taps) * shrink
        weights = np.maximum(1 - distance, 0) if mode == "linear" else _cubic(distance, a)
        if excluded:
            weights = np.where((taps >= 0) & (taps < size), weights, 0)
        weights = weights / weights.sum()
        np.add.at(matrix[row], np.clip(taps, 0, size - 1), weights)
    return matrix, out


def _places(where: str, i: HostArray, size: int, target: int, scale: float, low: float, high: float) -> HostArray:
    if (
        where == "align_corners"
    ):  # The corner is that of the size that the scale gives, before it is cut to a whole number.
        length = scale * size
        return i * (size - 1) / (length - 1) if target > 1 else np.zeros_like(i)
    if where == "asymmetric":
        return i / scale
    if where == "tf_crop_and_resize":
        if target == 1:
            return np.full_like(i, 0.5 * (low + high) * (size - 1))
        return low * (size - 1) + i * (high - low) * (size - 1) / (target - 1)
    places = (i + 0.5) / scale - 0.5
    if where == "pytorch_half_pixel" and target == 1:
        return np.zeros_like(i)
    if where == "half_pixel_symmetric":
        return size / 2 * (1 - target / (scale * size)) + places
    return places


def _cubic(x: HostArray, a: float) -> HostArray:
    near = ((a + 2) * x - (a + 3)) * x * x + 1
    far = ((x - 5) * x + 8) * x * a - 4 * a
    return np.where(x <= 1, near, np.where(x < 2, far, 0))


@rule("Upsample", 7, 9)
def _upsample(node: OnnxNode) -> tf.Tensor:
    x = node.tensor()
    scales = np.reshape(np.asarray(node.attr("scales")) if node.since < 9 else node.static(1), -1)
    for axis, scale in enumerate(scales):
        size = size_of(x, axis)
        target = int(np.floor(size * scale))
        if target == size:
            continue
        places = np.arange(target) / scale
        floor = np.floor(places).astype(int)
        if node.text("mode", "nearest") == "nearest":
            x = tf.gather(x, floor, axis=axis)
            continue
        share = (places - floor).reshape([-1 if i == axis else 1 for i in range(rank_of(x))])
        above = np.minimum(floor + 1, size - 1)
        x = tf.gather(x, floor, axis=axis) * tf.constant(1 - share, x.dtype) + tf.gather(
            x, above, axis=axis
        ) * tf.constant(share, x.dtype)
    return x


@rule("GridSample", 16, 20, 22)
def _grid_sample(node: OnnxNode) -> tf.Tensor:
    x, grid = node.tensor(0), node.tensor(1)
    mode = {"bilinear": "linear", "bicubic": "cubic"}.get(node.text("mode", "linear"), node.text("mode", "linear"))
    padding, corners = node.text("padding_mode", "zeros"), bool(node.integer("align_corners"))
    sizes = [size_of(x, axis) for axis in range(2, rank_of(x))]
    places = []
    for axis, size in enumerate(sizes):
        g = grid[..., len(sizes) - 1 - axis]
        place = (g + 1) / 2 * (size - 1) if corners else ((g + 1) * size - 1) / 2
        if padding == "border" and mode != "cubic":
            place = tf.clip_by_value(place, 0.0, float(size - 1))
        elif padding == "reflection" and mode != "cubic":
            place = _reflected(place, size, corners)
        places.append(place)
    if mode == "nearest":
        return sampled(x, [tf.cast(tf.round(p), tf.int32) for p in places], padding, corners)
    floors = [tf.floor(p) for p in places]
    taps = range(2) if mode == "linear" else range(-1, 3)
    terms: list[tf.Tensor] = []
    for offsets in itertools.product(taps, repeat=len(sizes)):
        weight = None
        for place, floor, offset in zip(places, floors, offsets, strict=True):
            distance = tf.abs(place - (floor + offset))
            part = 1 - distance if mode == "linear" else _cubic_tensor(distance)
            weight = part if weight is None else weight * part
        indices = [tf.cast(f, tf.int32) + o for f, o in zip(floors, offsets, strict=True)]
        terms.append(sampled(x, indices, padding, corners) * tf.expand_dims(weight, 1))
    return tf.add_n(terms)


def _cubic_tensor(x: tf.Tensor) -> tf.Tensor:
    a = -0.75
    near = ((a + 2) * x - (a + 3)) * x * x + 1
    far = ((x - 5) * x + 8) * x * a - 4 * a
    return tf.where_v2(x <= 1, near, tf.where_v2(x < 2, far, tf.zeros_like(x)))


def _reflected(place: tf.Tensor, size: int, corners: bool) -> tf.Tensor:
    low, high = (0.0, size - 1.0) if corners else (-0.5, size - 0.5)
    span = high - low
    if span == 0:
        return tf.zeros_like(place)
    turned = tf.floormod(place - low, 2 * span)
    back = low + tf.minimum(turned, 2 * span - turned)
    return tf.clip_by_value(back, 0.0, float(size - 1))


def sampled(x: tf.Tensor, indices: list[tf.Tensor], padding: str, corners: bool) -> tf.Tensor:
    """The elements of [batch, channels, ...] at places of [batch, ...], of which there may be more dimensions."""
    sizes = [size_of(x, axis) for axis in range(2, rank_of(x))]
    inside = None
    for i, size in enumerate(sizes):
        here = tf.logical_and(indices[i] >= 0, indices[i] < size)
        inside = here if inside is None else tf.logical_and(inside, here)
        if padding == "reflection":
            mirrored = tf.cast(tf.round(_reflected(tf.cast(indices[i], tf.float32), size, corners)), tf.int32)
            indices[i] = mirrored
    clipped = [tf.clip_by_value(index, 0, size - 1) for index, size in zip(indices, sizes, strict=True)]
    last = tf.transpose(x, [0, *range(2, len(sizes) + 2), 1])
    found = tf.gather_nd(last, tf.stack(clipped, -1), batch_dims=1)
    channels = rank_of(clipped[0])
    found = tf.transpose(found, [0, channels, *range(1, channels)])
    return found * tf.cast(tf.expand_dims(inside, 1), x.dtype) if padding == "zeros" else found


#: What ONNX lists; Pillow's name of PNM is PPM.
_FORMATS = ("BMP", "JPEG", "JPEG2000", "TIFF", "PNG", "WEBP", "PPM")


@rule("ImageDecoder", 20)
def _image_decoder(node: OnnxNode) -> tf.Tensor:
    form = node.text("pixel_format", "RGB")
    image = tf.py_func(
        functools.partial(_pixels, kind="L" if form == "Grayscale" else "RGB"),
        [node.tensor()],
        tf.uint8,
        stateful=False,
    )
    image.set_shape([None, None, 1 if form == "Grayscale" else 3])
    return tf.reverse(image, [2]) if form == "BGR" else image


def _pixels(contents: HostArray, kind: str) -> HostArray:
    """The pixels [height, width, channels] of a file. ONNX's own results come from Pillow, and so do these."""
    try:
        module = importlib.import_module("PIL.Image")
    except ImportError as error:
        reason = "ImageDecoder needs Pillow, which is not installed: pip install 'anabranch[image]'"
        raise tf.errors.UnimplementedError(None, None, reason) from error
    try:
        pixels = np.asarray(module.open(io.BytesIO(contents.tobytes()), formats=_FORMATS).convert(kind))
    except (OSError, SyntaxError, ValueError, module.DecompressionBombError) as error:
        raise tf.errors.InvalidArgumentError(
            None, None, f"{contents.size} bytes are no image that can be decoded: {error}"
        ) from error
    return pixels.reshape([*pixels.shape[:2], -1])
