"""What begin, end and strides say of the dimensions of a tensor, by the five masks of a strided slice."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from anabranch.graph.constants import constant_value
from anabranch.graph.step_nodes import StepNode

MASK_NAMES: Final = ("begin_mask", "end_mask", "ellipsis_mask", "new_axis_mask", "shrink_axis_mask")


@dataclass(frozen=True, slots=True)
class SlicePiece:
    """What a slicing expression says about one dimension.

    Attributes:
        kind: "all" of it, a "range", one "index" (the dimension disappears), or a "new" dimension of size 1.
        entry: the element of begin, end and strides that says so; -1 for "all".
        axis: the dimension of the tensor; -1 for "new".
    """

    kind: str
    entry: int
    axis: int


def pieces_of(rank: int, entries: int, masks: dict[str, int]) -> list[SlicePiece]:
    """The pieces of an expression of `entries` elements for a tensor of `rank`, in order.

    Raises:
        ValueError: two ellipses, or more elements than dimensions.
    """
    ellipses = [i for i in range(entries) if masks["ellipsis_mask"] >> i & 1]
    if len(ellipses) > 1:
        raise ValueError("a slice may have one ellipsis only")
    gap = ellipses[0] if ellipses else entries
    taken = [i for i in range(entries) if i != gap and not masks["new_axis_mask"] >> i & 1]
    if len(taken) > rank:
        raise ValueError(f"Index out of range using input dim {rank}; input has only {rank} dims")
    pieces: list[SlicePiece] = []
    axis = 0
    for i in range(max(entries, gap + 1)):
        if i == gap:
            pieces.extend(SlicePiece("all", -1, axis + k) for k in range(rank - len(taken)))
            axis += rank - len(taken)
        elif i not in taken:
            pieces.append(SlicePiece("new", i, -1))
        else:
            pieces.append(SlicePiece("index" if masks["shrink_axis_mask"] >> i & 1 else "range", i, axis))
            axis += 1
    return pieces


@functools.lru_cache(maxsize=1 << 12)
def index_of(
    rank: int, begin: tuple[int, ...], end: tuple[int, ...], strides: tuple[int, ...], *masks: int
) -> tuple[Any, ...] | None:
    """What NumPy takes between brackets for a strided slice of a tensor of some rank; None: it is refused."""
    named = dict(zip(MASK_NAMES, masks, strict=True))
    index: list[Any] = []
    try:
        pieces = pieces_of(rank, len(strides), named)
    except ValueError:
        return None
    for piece in pieces:
        at = piece.entry
        if piece.kind == "new":
            index.append(None)
        elif piece.kind == "all":
            index.append(slice(None))
        elif strides[at] == 0 or (piece.kind == "index" and strides[at] < 0):
            return None
        elif piece.kind == "index":
            index.append(begin[at])
        else:
            start = None if named["begin_mask"] >> at & 1 else begin[at]
            index.append(slice(start, None if named["end_mask"] >> at & 1 else end[at], strides[at]))
    return (*index, ...)  # an array also where one element is left


def picked_place(op: StepNode) -> tuple[int, int] | None:
    """The axis and the index of an operation that takes one place along an axis and everything along the others.

    None: it does not, or that is not known.
    """
    rank = op.inputs[0].shape.ndims if op.type == "StridedSlice" else None
    if rank is None or any(constant_value(t) is None for t in op.inputs[1:]):
        return None
    bounds = [tuple(np.asarray(constant_value(t)).reshape(-1).tolist()) for t in op.inputs[1:]]
    if len(set(map(len, bounds))) != 1:
        return None
    index = index_of(rank, *bounds, *[op.attrs[name] for name in MASK_NAMES])
    if index is None:
        return None
    pieces = index[:-1]
    picked = [(axis, piece) for axis, piece in enumerate(pieces) if not isinstance(piece, slice)]
    whole = (slice(None), slice(None, None, 1), slice(0, None, 1))
    if len(picked) != 1 or picked[0][1] is None or any(isinstance(p, slice) and p not in whole for p in pieces):
        return None
    return picked[0]
