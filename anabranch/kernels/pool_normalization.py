"""Normalization of batches on XLA's own threads, which compute parts of the rows (`pool_normalization.c`).

The library's own threads spin while they wait for each other's sums. Here a part leaves its sums behind, and whoever is
there goes on. For data with channels last, in sixteens; the results, and what says where they are positive, are those
of `native_normalization` to the last places, so that either computes the gradient of the other.
"""

from __future__ import annotations

import json
import math
from typing import Final

from anabranch.core.processor import core_count
from anabranch.kernels import native_normalization, onednn, pool_stages
from anabranch.kernels.native_normalization import mask_bytes
from anabranch.kernels.onednn import Library
from anabranch.kernels.pool_stages import Cutter, NormalizationFields, StagePlan

#: parts for each core, so that one that comes late has work left
_PARTS_OF_A_CORE: Final = 2
#: elements of a part, at least
LEAST_ELEMENTS: Final = 1 << 15
#: channels come in so many
_LANES: Final = 16


def cut(text: str) -> str | None:
    """The text of the plan of a normalization; None for other layouts."""
    values = json.loads(text)
    lengths, strides = values["lengths"], values["strides"]
    if strides[1] != 1 or lengths[1] % _LANES:
        return None
    rows = math.prod(lengths) // lengths[1]
    parts = min(core_count() * _PARTS_OF_A_CORE, math.prod(lengths) // LEAST_ELEMENTS, rows)
    return f"{max(parts, 1)} {text}"


def plan(library: Library, text: str) -> StagePlan:
    """The plan of a text."""
    parts, _, described = text.partition(" ")
    values = json.loads(described)
    size, channels = math.prod(values["lengths"]), values["lengths"][1]
    width = 4 if values["type"] == onednn.FLOAT32 else 2
    backward, relu, added = values["backward"], values["relu"], values["added"]
    kind = (width, relu, added, backward, int(parts))
    fields = NormalizationFields(size // channels, channels, values["epsilon"], *kind)
    vectors, positive = [channels] * 3, [mask_bytes(values["lengths"])] if relu else []
    side = [size] if added else []
    if backward:
        elements = [size, size, *vectors, *positive, size, *vectors[:2], *side]
        return pool_stages.plan_in_c(fields, elements, 3 + added)
    elements = [size, *vectors[:2], *side, size, *vectors[:2], *positive]
    return pool_stages.plan_in_c(fields, elements, 3 + relu)


pool_stages.register_cutter(native_normalization.KIND, Cutter(cut, plan))
