"""Rows of operations that few programs have: rows in place, comparisons as bits, proposals of boxes, fingerprints."""

from __future__ import annotations

from typing import Any

import numpy as np

from anabranch.errors import InvalidArgumentError
from anabranch.testing.op_cases import OpCase

Array = np.ndarray[Any, Any]

X = np.arange(12.0).reshape(4, 3)
V = np.array([[1.0, -1.0, 2.0], [0.5, 0.0, 3.0], [9.0, 8.0, 7.0]])
AT = np.array([3, -1, 4], np.int32)


def _in_place(change: Any, x: Array = X, at: Array = AT, v: Array = V) -> Array:
    y = x.copy()
    for row, i in zip(v, at, strict=True):
        y[i % len(y)] = change(y[i % len(y)], row)
    return y


def _rows() -> list[OpCase]:
    changes: dict[str, Any] = {
        "InplaceUpdate": lambda old, new: new,
        "InplaceAdd": lambda old, new: old + new,
        "InplaceSub": lambda old, new: old - new,
    }
    rows = [OpCase(name, (X, AT, V), expected=_in_place(change)) for name, change in changes.items()]
    rows += [OpCase(name, (X, np.zeros(0, np.int32), V[:0]), expected=X, label="none") for name in changes]
    rows += [OpCase(name, (X, AT[:2], V), error=InvalidArgumentError, label="other number of rows") for name in changes]
    words = np.array([b"a", b"b", b"c"], object)
    rows.append(
        OpCase("InplaceUpdate", (words, [1], np.array([b"x"], object)), expected=np.array([b"a", b"x", b"c"], object),
               label="strings")
    )  # fmt: skip
    tiled = np.arange(24.0).reshape(4, 6)
    rows += [
        OpCase("TileGrad", (tiled, [2, 3]), expected=tiled.reshape(2, 2, 3, 2).sum((0, 2))),
        OpCase("TileGrad", (tiled, [1, 1]), expected=tiled, label="one copy"),
        OpCase("TileGrad", (tiled, [3, 1]), error=InvalidArgumentError, label="no divisor"),
        OpCase("TileGrad", (tiled, [2]), error=InvalidArgumentError, label="one number"),
    ]
    return rows


def _bits() -> list[OpCase]:
    r = np.random.default_rng(2)
    numbers = r.normal(size=(2, 3, 16)).astype(np.float32)
    flags = r.integers(0, 2, (5, 8)).astype(bool)
    return [
        OpCase("CompareAndBitpack", (numbers, np.float32(0)), expected=np.packbits(numbers > np.float32(0), axis=-1)),
        OpCase("CompareAndBitpack", (flags, np.bool_(False)), expected=np.packbits(flags, axis=-1), label="bool"),
        OpCase("CompareAndBitpack", (np.arange(1, 9), np.int64(4)), expected=np.array([15], np.uint8),
               label="whole numbers"),
        OpCase("CompareAndBitpack", (numbers[..., :9], np.float32(0)), error=InvalidArgumentError,
               label="9"),
    ]  # fmt: skip


def _proposals_of(
    scores: Array, deltas: Array, info: Array, anchors: Array, most: int, before: int, least: float
) -> Any:
    """Box by box, as Faster R-CNN has it."""
    rois, chances = np.zeros((len(scores), most, 4), np.float32), np.zeros((len(scores), most), np.float32)
    for n in range(len(scores)):
        ranked = sorted(range(scores[n].size), key=lambda i: -scores[n].ravel()[i])[:before]
        kept: list[tuple[Array, float]] = []
        for i in ranked:
            y1, x1, y2, x2 = anchors.reshape(-1, 4)[i]
            dy, dx, dh, dw = deltas[n].reshape(-1, 4)[i]
            height, width = y2 - y1, x2 - x1
            cy, cx = y1 + height / 2 + dy * height, x1 + width / 2 + dx * width
            height, width = (side * np.exp(min(d, np.log(62.5))) for side, d in ((height, dh), (width, dw)))
            box = np.clip(
                [cy - height / 2, cx - width / 2, cy + height / 2, cx + width / 2], 0, [*info[n, :2], *info[n, :2]]
            )
            if min(box[2] - box[0], box[3] - box[1]) < least * info[n, 2]:
                continue
            if len(kept) < most and all(_overlap(box, other) <= 0.5 for other, _ in kept):
                kept.append((box, scores[n].ravel()[i]))
        for at, (box, score) in enumerate(kept):
            rois[n, at], chances[n, at] = box, score
    return rois, chances


def _overlap(a: Array, b: Array) -> float:
    sides = np.minimum(a[2:], b[2:]) - np.maximum(a[:2], b[:2])
    shared = float(np.prod(np.maximum(sides, 0)))
    return shared / float(np.prod(a[2:] - a[:2]) + np.prod(b[2:] - b[:2]) - shared)


def _proposals() -> list[OpCase]:
    r = np.random.default_rng(3)
    scores = r.permutation(2 * 4 * 5 * 3).reshape(2, 4, 5, 3).astype(np.float32)
    deltas = (r.normal(size=(2, 4, 5, 12)) * 0.3).astype(np.float32)
    corner = r.uniform(0, 60, (4, 5, 3, 2))
    anchors = np.concatenate([corner, corner + r.uniform(5, 40, (4, 5, 3, 2))], -1).reshape(4, 5, 12).astype(np.float32)
    info = np.array([[80, 90, 1, 0, 0], [70, 60, 2, 0, 0]], np.float32)
    scalars = np.float32(0.5), np.int32(30), np.float32(6)
    given = (scores, deltas, info, anchors, *scalars)
    name = "GenerateBoundingBoxProposals"
    rows = [
        OpCase(name, given, {"post_nms_topn": most}, expected=_proposals_of(scores, deltas, info, anchors, most, 30, 6),
               tolerance=1e-4, label=f"{most}")
        for most in (4, 40)
    ]  # fmt: skip
    changes = {"threshold": (4, np.float32(1.5)), "topn": (5, np.int32(0)), "anchors": (3, anchors[..., :8])}
    for label, (at, value) in changes.items():
        changed = (*given[:at], value, *given[at + 1 :])
        rows.append(OpCase(name, changed, error=InvalidArgumentError, label=label))
    return rows


CASES = [*_rows(), *_bits(), *_proposals()]
