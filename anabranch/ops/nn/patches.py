"""Patches of images and volumes, side by side in the depth dimension."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from anabranch.core.arrays import Array, ArrayLibrary
from anabranch.core.kernel_context import OperationContext
from anabranch.core.shapes import TensorShape
from anabranch.graph.building import define_op
from anabranch.graph.operation import Operation, Tensor
from anabranch.ops import raw, shape_rules
from anabranch.ops.nn.windows import pad_amounts, positions

#: Patches of more places are taken by index: a slice for each is as many operations.
_MOST_SLICES: Final = 1 << 10
#: places of a patch whose gradient is still built
_MOST_SLICES_BACK: Final = 1 << 14

ExtractImagePatches = define_op(
    "ExtractImagePatches",
    "images: T -> patches: T",
    "ksizes: list(int) >= 4, strides: list(int) >= 4, rates: list(int) >= 4, T: {floating, integers, complex, bool}, "
    "padding: {'SAME', 'VALID'}",
)


@ExtractImagePatches.shape
def _(images: TensorShape, *, ksizes: list[int], strides: list[int], rates: list[int], padding: bytes) -> TensorShape:
    for name, sizes in (("ksizes", ksizes), ("strides", strides), ("rates", rates)):
        if len(sizes) != 4 or sizes[0] != 1 or sizes[3] != 1:
            raise ValueError(f"{name} must be [1, rows, columns, 1], got {sizes}")
    dims = shape_rules.with_rank(images, 4, "argument 'images'").dims_tuple or ()
    rows, columns = (positions(dims[a], ksizes[a], strides[a], padding, rates[a]) for a in (1, 2))
    return TensorShape([dims[0], rows, columns, None if dims[3] is None else dims[3] * ksizes[1] * ksizes[2]])


def _rates(attrs: dict[str, Any]) -> Any:
    """How far apart the elements of a patch lie, per dimension; those of volumes are neighbours."""
    return attrs.get("rates") or [1] * len(attrs["ksizes"])


class _PatchGrid:
    """Where the patches of an image or a volume lie, per axis but the first and the last, once it was padded."""

    def __init__(self, shape: Sequence[int], attrs: dict[str, Any]) -> None:
        self.strides = attrs["strides"]
        ksizes, rates, padding = attrs["ksizes"], _rates(attrs), attrs["padding"]
        self.pads = [(0, 0)] * len(ksizes)
        self.counts = [1] * len(ksizes)
        for a in range(1, len(ksizes) - 1):
            self.pads[a] = pad_amounts(shape[a], ksizes[a], self.strides[a], padding, rates[a])
            self.counts[a] = positions(shape[a], ksizes[a], self.strides[a], padding, rates[a]) or 0

    def bounds(self, axis: int, offset: int) -> tuple[int, int, int]:
        """Begin, end and stride along `axis` of what stands at `offset` in every patch."""
        stride = self.strides[axis]
        count = self.counts[axis]
        return offset, offset + (count - 1) * stride + 1 if count else offset, stride


def _offsets(attrs: dict[str, Any]) -> list[tuple[int, ...]]:
    """The place of each element of a patch, per axis, in the order in which a patch lists them."""
    inner = zip(attrs["ksizes"][1:-1], _rates(attrs)[1:-1], strict=True)
    return list(itertools.product(*(range(0, ksize * rate, rate) for ksize, rate in inner)))


def _elements(attrs: dict[str, Any]) -> int:
    """How many places a patch has."""
    return math.prod(attrs["ksizes"][1:-1])


def _extracted(images: Array, attrs: dict[str, Any], xp: ArrayLibrary) -> Any:
    windows = _PatchGrid(np.shape(images), attrs)
    padded = xp.pad(images, windows.pads)
    if _elements(attrs) > _MOST_SLICES:
        return _taken(padded, windows, attrs, xp)
    parts = [
        padded[(slice(None), *(slice(*windows.bounds(axis, at)) for axis, at in enumerate(offset, 1)))]
        for offset in _offsets(attrs)
    ]
    return xp.concatenate(parts, axis=-1)


def _taken(padded: Array, windows: _PatchGrid, attrs: dict[str, Any], xp: ArrayLibrary) -> Any:
    """The patches by index, one axis after the other, however many places they have."""
    axes = range(1, len(attrs["ksizes"]) - 1)
    for axis in reversed(axes):  # an axis becomes two, behind those that are still to come
        starts = np.arange(windows.counts[axis]) * windows.strides[axis]
        places = starts[:, None] + np.arange(attrs["ksizes"][axis]) * _rates(attrs)[axis]
        padded = xp.take(padded, places, axis=axis, mode="clip")
    grid, within = [2 * axis - 1 for axis in axes], [2 * axis for axis in axes]
    shape = np.shape(padded)
    patches = xp.transpose(padded, (0, *grid, *within, len(shape) - 1))
    return xp.reshape(patches, (shape[0], *(shape[axis] for axis in grid), _elements(attrs) * shape[-1]))


@ExtractImagePatches.kernel
def _(images: Array, *, ctx: OperationContext, xp: ArrayLibrary) -> Any:
    return _extracted(images, ctx.op.attrs, xp)


def _measured(op: Operation, grad: Tensor) -> tuple[Any, Any, Any]:
    """Of images whose sizes the step decides, per axis: padding in front and in all, how far patches start."""
    attrs, shape = op.attrs, raw.Shape(op.inputs[0])
    steps = raw.Mul(raw.Sub(raw.Shape(grad), 1), np.array(attrs["strides"], np.int32))
    reach = np.array([(k - 1) * r for k, r in zip(attrs["ksizes"], _rates(attrs), strict=True)], np.int32)
    missing = raw.Maximum(raw.Sub(raw.AddV2(steps, reach + 1), shape), 0)
    padded = np.array([0, *[int(attrs["padding"] == b"SAME")] * (len(reach) - 2), 0], np.int32)
    total = raw.Mul(missing, padded)
    return raw.FloorDiv(total, 2), total, raw.Maximum(raw.AddV2(steps, 1), 0)


@ExtractImagePatches.gradient
def _(op: Operation, grad: Tensor) -> Any:
    return _put_back(op, grad)


def _put_back(op: Operation, grad: Tensor) -> Any:
    """The gradient: each element gets what the patches that hold it got."""
    images, rank = op.inputs[0], len(op.attrs["ksizes"])
    if _elements(op.attrs) > _MOST_SLICES_BACK:
        raise NotImplementedError(
            f"the gradient of {op.type} adds up a slice for each place of a patch, of which {_elements(op.attrs)} are "
            f"too many; use ksizes of at most {_MOST_SLICES_BACK} places"
        )
    if images.shape[1 : rank - 1].is_fully_defined():
        windows = _PatchGrid([size or 0 for size in images.shape.as_list()], op.attrs)
        paddings = np.array(windows.pads, np.int32)
        before, total = paddings[:, 0], paddings.sum(axis=1, dtype=np.int32)
        reach: Any = np.array([0, *(windows.bounds(a, 0)[1] for a in range(1, rank - 1)), 0], np.int32)
    else:
        before, total, reach = _measured(op, grad)
    offsets = _offsets(op.attrs)
    parts = raw.Split(np.int32(rank - 1), grad, num_split=len(offsets))
    padded = raw.AddV2(raw.Shape(images), total)
    whole = 1 | 1 << rank - 1  # the first and the last axis
    sums = []
    for offset, part in zip(offsets, parts, strict=True):
        begin = np.array([0, *offset, 0], np.int32)
        end = reach + begin if isinstance(reach, np.ndarray) else raw.AddV2(reach, begin)
        strides = op.attrs["strides"]
        sums.append(raw.StridedSliceGrad(padded, begin, end, strides, part, begin_mask=whole, end_mask=whole))
    return raw.Slice(raw.AddN(sums), before, raw.Shape(images))


ExtractVolumePatches = define_op(
    "ExtractVolumePatches",
    "input: T -> patches: T",
    "ksizes: list(int) >= 5, strides: list(int) >= 5, T: real, padding: {'SAME', 'VALID'}",
)
ExtractVolumePatches.gradient(_put_back)


@ExtractVolumePatches.shape
def _(input: TensorShape, *, ksizes: list[int], strides: list[int], padding: bytes) -> TensorShape:
    for name, sizes in (("ksizes", ksizes), ("strides", strides)):
        if len(sizes) != 5 or sizes[0] != 1 or sizes[4] != 1 or min(sizes) < 1:
            raise ValueError(f"{name} must be [1, planes, rows, columns, 1], got {sizes}")
    dims = shape_rules.with_rank(input, 5, "input").dims_tuple or ()
    places = [positions(dims[a], ksizes[a], strides[a], padding) for a in (1, 2, 3)]
    return TensorShape([dims[0], *places, None if dims[4] is None else dims[4] * math.prod(ksizes)])


@ExtractVolumePatches.kernel
def _(input: Array, *, ctx: OperationContext, xp: ArrayLibrary) -> Any:
    return _extracted(input, ctx.op.attrs, xp)
