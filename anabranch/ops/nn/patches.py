"""Patches of images, side by side in the depth dimension."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from anabranch.core.arrays import Array, ArrayLibrary
from anabranch.core.kernel_context import OperationContext
from anabranch.core.shapes import TensorShape
from anabranch.graph.building import define_op
from anabranch.graph.operation import Operation, Tensor
from anabranch.ops import raw, shape_rules
from anabranch.ops.nn.windows import pad_amounts, positions

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


class _PatchGrid:
    """Where the patches of an image lie, per axis (1 and 2), once the image was padded."""

    def __init__(self, shape: Sequence[int], attrs: dict[str, Any]) -> None:
        self.ksizes, self.strides, self.rates = attrs["ksizes"], attrs["strides"], attrs["rates"]
        padding = attrs["padding"]
        self.pads = [(0, 0)] * 4
        self.counts = [1] * 4
        for a in (1, 2):
            self.pads[a] = pad_amounts(shape[a], self.ksizes[a], self.strides[a], padding, self.rates[a])
            self.counts[a] = positions(shape[a], self.ksizes[a], self.strides[a], padding, self.rates[a]) or 0

    def bounds(self, axis: int, offset: int) -> tuple[int, int, int]:
        """Begin, end and stride along `axis` of what stands at `offset` in every patch."""
        stride = self.strides[axis]
        count = self.counts[axis]
        return offset, offset + (count - 1) * stride + 1 if count else offset, stride


def _offsets(attrs: dict[str, Any]) -> list[tuple[int, int]]:
    """The (row, column) of each element of a patch, in the order in which a patch lists them."""
    ksizes, rates = attrs["ksizes"], attrs["rates"]
    return [(i * rates[1], j * rates[2]) for i in range(ksizes[1]) for j in range(ksizes[2])]


@ExtractImagePatches.kernel
def _(images: Array, *, ctx: OperationContext, xp: ArrayLibrary) -> Any:
    windows = _PatchGrid(np.shape(images), ctx.op.attrs)
    padded = xp.pad(images, windows.pads)
    parts = [
        padded[:, slice(*windows.bounds(1, row)), slice(*windows.bounds(2, column))]
        for row, column in _offsets(ctx.op.attrs)
    ]
    return xp.concatenate(parts, axis=-1)


def _measured(op: Operation, grad: Tensor) -> tuple[Any, Any, Any]:
    """Of images whose sizes the step decides, per axis: padding in front and in all, how far patches start."""
    attrs, shape = op.attrs, raw.Shape(op.inputs[0])
    steps = raw.Mul(raw.Sub(raw.Shape(grad), 1), np.array(attrs["strides"], np.int32))
    reach = np.array([(k - 1) * r for k, r in zip(attrs["ksizes"], attrs["rates"], strict=True)], np.int32)
    missing = raw.Maximum(raw.Sub(raw.AddV2(steps, reach + 1), shape), 0)
    padded = int(attrs["padding"] == b"SAME")
    total = raw.Mul(missing, np.array([0, padded, padded, 0], np.int32))
    return raw.FloorDiv(total, 2), total, raw.Maximum(raw.AddV2(steps, 1), 0)


@ExtractImagePatches.gradient
def _(op: Operation, grad: Tensor) -> Any:
    images = op.inputs[0]
    if images.shape[1:3].is_fully_defined():
        windows = _PatchGrid([size or 0 for size in images.shape.as_list()], op.attrs)
        paddings = np.array(windows.pads, np.int32)
        before, total = paddings[:, 0], paddings.sum(axis=1, dtype=np.int32)
        reach: Any = np.array([0, windows.bounds(1, 0)[1], windows.bounds(2, 0)[1], 0], np.int32)
    else:
        before, total, reach = _measured(op, grad)
    offsets = _offsets(op.attrs)
    parts = raw.Split(np.int32(3), grad, num_split=len(offsets))
    padded = raw.AddV2(raw.Shape(images), total)
    sums = []
    for (row, column), part in zip(offsets, parts, strict=True):
        begin = np.array([0, row, column, 0], np.int32)
        end = reach + begin if isinstance(reach, np.ndarray) else raw.AddV2(reach, begin)
        strides = op.attrs["strides"]
        sums.append(raw.StridedSliceGrad(padded, begin, end, strides, part, begin_mask=9, end_mask=9))
    return raw.Slice(raw.AddN(sums), before, raw.Shape(images))
