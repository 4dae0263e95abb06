"""Pooling by oneDNN on XLA's own threads, which compute parts of a batch (`pool_stages`).

Averages, maxima with their places, and the gradients of both. What is no number among the data is looked for part by
part, before the maxima of the part are computed; where there is any, the maxima are computed as the operation's own
kernel computes them, as `native_pooling` does. Maxima of images with channels last are C (`pool_maxima.c`), which needs
no other pass to see whether all are numbers.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from anabranch.core.processor import core_count
from anabranch.kernels import native_calls, native_pooling, onednn, pool_stages
from anabranch.kernels.native_pooling import LARGEST, AtPlaces, Largest
from anabranch.kernels.onednn import Library, NativeError
from anabranch.kernels.onednn_stages import Stages
from anabranch.kernels.pool_stages import Cutter, Mark, MaximaFields, PlanBuilder, StagePlan

#: parts for each core, so that one that comes late has work left
_PARTS_OF_A_CORE: Final = 2
#: the positions of the window see so many elements in a part, at least
LEAST_SEEN: Final = 1 << 17
#: in C channels come in so many, and windows have so many places along an axis at most: a place is a byte
_LANES, _MOST_TAPS = 16, 15


def cut(text: str) -> str | None:
    """The text of the plan of a pooling; None where the batch has no equal parts for all cores."""
    values = json.loads(text)
    batch = values["data"][0][0]
    most = math.prod(values["output"][0]) * math.prod(values["size"]) // LEAST_SEEN
    wanted = min(core_count() * _PARTS_OF_A_CORE, most)
    parts = next((parts for parts in range(min(wanted, batch), 1, -1) if batch % parts == 0), 1)
    return f"{parts} {text}" if parts >= min(core_count(), most) else None


@dataclass(frozen=True, slots=True)
class _Recovery:
    """Pooling as the library's own threads compute it, whose Python part knows what is no number."""

    text: str

    def __call__(self, addresses: Sequence[int]) -> None:
        whole = native_calls.prepared(self.text)
        if isinstance(whole, Largest):
            whole.compute_maxima(addresses)
        else:
            memory = np.empty(whole.scratch_bytes, np.uint8)
            whole.run(addresses, memory.ctypes.data, memory.size)


def plan(library: Library, text: str) -> StagePlan:
    """The plan of a text. The library makes primitives for one thread meanwhile.

    Raises:
        NativeError: it cannot compute it, or only slowly.
    """
    number, _, described = text.partition(" ")
    parts, values = int(number), json.loads(described)
    if (in_c := _plan_in_c(values, parts, f"{native_pooling.KIND} {described}")) is not None:
        return in_c
    for name in ("data", "output"):
        values[name][0][0] //= parts
    prepared = native_pooling.make(json.dumps(values))
    one = prepared.computation
    stages = one.stages if isinstance(one, Largest | AtPlaces) else one
    assert isinstance(stages, Stages)
    marked = {Largest: 2, AtPlaces: 1}.get(type(one), -1)
    # (a mark is not part of the places)
    sizes = [(n - (at == marked)) * parts + (at == marked) for at, n in enumerate(prepared.sizes)]
    # the call's arrays that they take, in order: the gradient at places has the maxima, too
    taken = [0, 1, 3] if isinstance(one, AtPlaces) else range(len(sizes))
    width = 4 if values["type"] == onednn.FLOAT32 else 2
    bytes_of_parts = [library.size(array.value) for array in stages.outer]
    for at, size in zip(taken, bytes_of_parts, strict=True):
        if size * parts != (sizes[at] - 1 if at == marked else sizes[at] * width):
            raise NativeError("the arrays of parts do not lie one after the other")
    builder = PlanBuilder(library, sizes, 2 if isinstance(one, Largest) else 1)
    phase = []
    for part in range(parts):
        arrays = [
            builder.array(at, array.value, part * size)
            for at, array, size in zip(taken, stages.outer, bytes_of_parts, strict=True)
        ]
        arrays += [builder.scratch(description) for description in stages.inner]
        phase.append(
            [(primitive, {name: arrays[at] for name, at in given.items()}) for primitive, given in stages.described]
        )
    builder.phase(phase)
    if marked < 0:
        return builder.plan()
    recover = _Recovery(f"{native_pooling.KIND} {described}")
    is_set = isinstance(one, Largest)
    return builder.plan(Mark(marked, sizes[marked] - 1, recover, not is_set, 0 if is_set else -1, width))


def _plan_in_c(values: Mapping[str, Any], parts: int, text: str) -> StagePlan | None:
    """The plan of maxima of images with channels last, in sixteens; otherwise None."""
    lengths, strides = values["data"]
    fits = len(lengths) == 4 and strides[1] == 1 and lengths[1] % _LANES == 0 and max(values["size"]) <= _MOST_TAPS
    if values["what"] != LARGEST or not fits:
        return None
    (_, _, *outputs), (images, channels, *sides) = values["output"][0], lengths
    size, pooled = math.prod(lengths), images * channels * math.prod(outputs)
    window = (*values["size"], *values["strides"], *values["low"])
    width = 4 if values["type"] == onednn.FLOAT32 else 2
    fields = MaximaFields(images, *sides, channels, *outputs, *window, width, parts)
    mark = Mark(2, pooled, _Recovery(text), asks=False)
    return pool_stages.plan_in_c(fields, (size, pooled, pooled + 1), 2, mark)


pool_stages.register_cutter(native_pooling.KIND, Cutter(cut, plan))
