"""Images that are scaled and moved: each output pixel is a weighted mean of the input's about the place it comes from.

Both axes are treated alike, one after the other. The weights depend on the scale and the translation, which the step
may decide, so that they are computed as matrices [output, input].
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Final

import numpy as np

from anabranch.core.arrays import Array, ArrayLibrary
from anabranch.core.kernel_context import OperationContext
from anabranch.core.shapes import TensorShape
from anabranch.errors import InvalidArgumentError
from anabranch.graph.building import define_op
from anabranch.graph.constants import ShapeContext
from anabranch.graph.operation import Operation, Tensor
from anabranch.ops import raw, shape_rules

_KINDS: Final = "kernel_type: string = 'lanczos3', antialias: bool = True"
#: the sum of weights below which a pixel takes nothing
_LEAST_SUM: Final = np.float32(1000) * np.finfo(np.float32).tiny
_Weight = Callable[[Array, ArrayLibrary], Any]


def _lanczos(radius: float) -> _Weight:
    def weight(x: Array, xp: ArrayLibrary) -> Any:
        angle = np.float32(math.pi) * xp.maximum(x, np.float32(1e-3))
        waves = np.float32(radius) * xp.sin(angle) * xp.sin(angle / np.float32(radius)) / (angle * angle)
        return xp.where(x > radius, np.float32(0), xp.where(x <= np.float32(1e-3), np.float32(1), waves))

    return weight


def _gaussian(x: Array, xp: ArrayLibrary) -> Any:
    deviation = 0.5
    return xp.where(x >= np.float32(1.5), np.float32(0), xp.exp(-x * x / np.float32(2 * deviation * deviation)))


def _box(x: Array, xp: ArrayLibrary) -> Any:
    return (x < 0.5).astype(np.float32) + (x == 0.5).astype(np.float32) * np.float32(0.5)


def _triangle(x: Array, xp: ArrayLibrary) -> Any:
    return xp.maximum(np.float32(1) - x, np.float32(0))


def _cubic(inner: tuple[float, ...], outer: tuple[float, ...]) -> _Weight:
    """Two polynomials of the third degree, for distances below 1 and 2."""

    def polynomial(factors: tuple[float, ...], x: Array) -> Any:
        value: Any = np.float32(factors[0])
        for factor in factors[1:]:
            value = value * x + np.float32(factor)
        return value

    def weight(x: Array, xp: ArrayLibrary) -> Any:
        return xp.where(x >= 2, np.float32(0), xp.where(x >= 1, polynomial(outer, x), polynomial(inner, x)))

    return weight


#: kind -> how far it reaches, in pixels, and the weight at a distance (float32, not negative)
_WEIGHTS: Final[dict[str, tuple[float, _Weight]]] = {
    "lanczos1": (1, _lanczos(1)),
    "lanczos3": (3, _lanczos(3)),
    "lanczos5": (5, _lanczos(5)),
    "gaussian": (1.5, _gaussian),
    "box": (1, _box),
    "triangle": (1, _triangle),
    "keyscubic": (2, _cubic((1.5, -2.5, 0, 1), (-0.5, 2.5, -4, 2))),
    "mitchellcubic": (2, _cubic((7 / 6, -2, 0, 8 / 9), (-7 / 18, 2, -10 / 3, 16 / 9))),
}


def _weight_matrix(
    kind: str, antialias: bool, wanted: int, length: int, scale: Array, translation: Array, xp: ArrayLibrary
) -> Any:
    """[wanted, length], float32: what each output pixel of an axis takes of each input pixel."""
    one, half = np.float32(1), np.float32(0.5)
    reach, weight = _WEIGHTS[kind]
    back = one / xp.asarray(scale, np.float32)
    spread = xp.maximum(back, one) if antialias else one
    places = (xp.arange(wanted, dtype=np.float32) + half) * back - back * translation
    first = xp.clip(xp.ceil(places - np.float32(reach) * spread - half), 0, length - 1)
    last = xp.clip(xp.floor(places + np.float32(reach) * spread - half), 0, length - 1)
    source = xp.arange(length, dtype=np.float32)
    within = (source >= first[:, None]) & (source <= last[:, None])
    distances = xp.abs((source + half - places[:, None]) * (one / spread))
    weights = xp.where(within, weight(distances, xp), np.float32(0))
    total = weights.sum(axis=1)
    kept = (places >= 0) & (places <= length) & (xp.abs(total) >= _LEAST_SUM)
    return xp.where(kept[:, None], weights / xp.where(kept, total, one)[:, None], np.float32(0))


def _matrices(
    wanted: tuple[int, ...],
    lengths: tuple[int, ...],
    scale: Array,
    translation: Array,
    ctx: OperationContext,
    xp: ArrayLibrary,
) -> list[Any]:
    """Those of rows and columns."""
    kind, antialias = ctx.op.attrs["kernel_type"].decode(), ctx.op.attrs["antialias"]
    if kind not in _WEIGHTS:
        raise InvalidArgumentError(None, ctx.op, f"Unrecognized kernel type: {kind}; use one of {', '.join(_WEIGHTS)}")
    if min(*wanted, *lengths) < 1:
        raise InvalidArgumentError(
            None, ctx.op, f"images and output dimensions must be positive, got {[*lengths]} and {[*wanted]}"
        )
    ctx.check(scale > 0, "Scale must be greater than zero, got {0}", scale)
    return [_weight_matrix(kind, antialias, wanted[i], lengths[i], scale[i], translation[i], xp) for i in range(2)]


ScaleAndTranslate = define_op(
    "ScaleAndTranslate",
    "images: T, size: int32, scale: float32, translation: float32 -> resized_images: float32",
    "T: {int8, uint8, int16, uint16, int32, int64, bfloat16, half, float, double}, " + _KINDS,
    static=("size",),
    ranks={"images": 4, "size": 1},
)


def _check_pair(name: str, shape: TensorShape) -> None:
    if not shape.is_compatible_with([2]):
        raise ValueError(f"{name} must be two numbers, of rows and columns; its shape is {shape}")


@ScaleAndTranslate.shape
def _(
    images: TensorShape, size: TensorShape, scale: TensorShape, translation: TensorShape, *, ctx: ShapeContext
) -> TensorShape:
    images = shape_rules.with_rank(images, 4, "images")
    for name, shape in (("size", size), ("scale", scale), ("translation", translation)):
        _check_pair(name, shape)
    wanted = ctx.constant("size")
    sizes = (None, None) if wanted is None else (int(wanted[0]), int(wanted[1]))
    return TensorShape([images[0], *sizes, images[3]])


@ScaleAndTranslate.kernel
def _(images: Array, size: Array, scale: Array, translation: Array, *, ctx: OperationContext, xp: ArrayLibrary) -> Any:
    wanted = int(size[0]), int(size[1])
    if not images.shape[3]:
        raise InvalidArgumentError(None, ctx.op, "image must have at least one channel")
    rows, columns = _matrices(wanted, images.shape[1:3], scale, translation, ctx, xp)
    pixels = xp.asarray(images).astype(np.float32)
    return xp.einsum("yr,brxc->byxc", rows, xp.einsum("xs,brsc->brxc", columns, pixels))


@ScaleAndTranslate.gradient
def _(op: Operation, grad: Tensor) -> Any:
    images, _, scale, translation = op.inputs
    narrow = images.dtype.name
    original = images if narrow == "float32" else raw.Cast(images, DstT="float32")
    kinds = {name: op.attrs[name] for name in ("kernel_type", "antialias")}
    back = raw.ScaleAndTranslateGrad(grad, original, scale, translation, **kinds)
    return back if narrow == "float32" else raw.Cast(back, DstT=images.dtype), None, None, None


ScaleAndTranslateGrad = define_op(
    "ScaleAndTranslateGrad",
    "grads: T, original_image: T, scale: float32, translation: float32 -> output: T",
    "T: {float}, " + _KINDS,
    ranks={"grads": 4, "original_image": 4, "scale": 1, "translation": 1},
)


@ScaleAndTranslateGrad.shape
def _(grads: TensorShape, original_image: TensorShape, scale: TensorShape, translation: TensorShape) -> TensorShape:
    for name, shape in (("scale", scale), ("translation", translation)):
        _check_pair(name, shape)
    return original_image


@ScaleAndTranslateGrad.kernel
def _(
    grads: Array, original_image: Array, scale: Array, translation: Array, *, ctx: OperationContext, xp: ArrayLibrary
) -> Any:
    rows, columns = _matrices(grads.shape[1:3], original_image.shape[1:3], scale, translation, ctx, xp)
    return xp.einsum("yr,byxc->brxc", rows, xp.einsum("xs,byxc->bysc", columns, xp.asarray(grads)))


@ScaleAndTranslateGrad.gradient
def _(op: Operation, grad: Tensor) -> Any:
    """The operation is linear in its first input, and takes no value of the second."""
    grads, _, scale, translation = op.inputs
    size = raw.Slice(raw.Shape(grads), np.array([1], np.int32), np.array([2], np.int32))
    kinds = {name: op.attrs[name] for name in ("kernel_type", "antialias")}
    return raw.ScaleAndTranslate(grad, size, scale, translation, **kinds), None, None, None
