"""Pooling by oneDNN on XLA's own threads, which compute parts of a batch (`pool_stages`).

Averages, maxima with their places, and the gradients of both. What is no number among the data is looked for part by
part, before the maxima of the part are computed; where there is any, the maxima are computed as the operation's own
kernel computes them, as `native_pooling` does.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from anabranch.kernels import native_calls, native_pooling, onednn, pool_stages
from anabranch.kernels.native_pooling import AtPlaces, Largest
from anabranch.kernels.onednn import Library, NativeError
from anabranch.kernels.onednn_stages import Stages
from anabranch.kernels.pool_stages import Cutter, Mark, PlanBuilder, StagePlan
from anabranch.kernels.processor import core_count

#: parts for each core, so that one that comes late has work left
_PARTS_OF_A_CORE: Final = 2
#: the positions of the window see so many elements in a part, at least
LEAST_SEEN: Final = 1 << 17


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
    looked_at = 0 if isinstance(one, Largest) else None
    return builder.plan(
        Mark(marked, sizes[marked] - 1, _Recovery(f"{native_pooling.KIND} {described}"), looked_at, width)
    )


pool_stages.register_cutter(native_pooling.KIND, Cutter(cut, plan))
