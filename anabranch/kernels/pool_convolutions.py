"""Convolutions by oneDNN on XLA's own threads, which compute parts of a batch (`pool_stages`).

In float32, and in bfloat16 on processors that have instructions for it; data in the layout that the program has. Bias
and ReLU are computed with the convolution. The filter is copied into the library's layout first; of a gradient to the
filter each part has a sum of its own (float32), and these are added up at the end. Both are done in parts, too, where
the filter is large.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

from anabranch.core.processor import core_count
from anabranch.kernels import native_convolutions, onednn, pool_stages
from anabranch.kernels.native_convolutions import FORWARD, TO_FILTER, TO_INPUT, Convolution
from anabranch.kernels.onednn import (
    DESTINATION,
    SECOND_SOURCE,
    SOURCE,
    WEIGHTS_GRADIENT,
    Handle,
    Library,
    NativeError,
    Strided,
)
from anabranch.kernels.pool_stages import Cutter, PlanBuilder, StagePlan

#: parts for each core, so that one that comes late has work left; a gradient to a filter has one for each
_PARTS_OF_A_CORE: Final = 2
#: a part has so many multiplications at least
LEAST_PRODUCTS: Final = 1 << 22
#: so many elements of a filter are worth a part of their own, whose channels begin at a multiple of one of these
_LEAST_COPIED: Final = 1 << 15
_BLOCKS: Final = (64, 48)
#: float32 of a vector, at a multiple of which parts of sums begin
_LANES: Final = 16
#: which of the arrays begin with the batch: what is read, in order, and the result; without a bias
_BATCHED: Final = {FORWARD: (True, False, True), TO_INPUT: (False, True, True), TO_FILTER: (True, True, False)}

#: the description of a primitive, and its arguments' arrays
Stage = tuple[Handle, Mapping[int, int]]


def cut(text: str) -> str | None:
    """The text of the plan of a convolution; None where the batch has no equal parts for all cores."""
    one = native_convolutions.from_json(text)
    if not one.trusted or one.blocked:
        return None
    most = min(core_count(), one.products // LEAST_PRODUCTS)
    wanted = min(most if one.direction == TO_FILTER else most * _PARTS_OF_A_CORE, one.products // LEAST_PRODUCTS)
    batch = one.data[0][0]
    parts = next((parts for parts in range(min(wanted, batch), 1, -1) if batch % parts == 0), 1)
    return f"{parts} {text}" if parts >= most else None


def plan(library: Library, text: str) -> StagePlan:
    """The plan of a text. The library makes primitives for one thread meanwhile.

    Raises:
        NativeError: it cannot compute it, or only slowly.
    """
    parts, _, described = text.partition(" ")
    return _CutConvolution(library, native_convolutions.from_json(described), int(parts)).plan()


class _CutConvolution:
    """A convolution of a batch that is cut into parts: what is done for all of them, for each, and with their sums."""

    def __init__(self, library: Library, whole: Convolution, count: int) -> None:
        self._library, self._count = library, count
        part = replace(whole, data=_cut(whole.data, count), output=_cut(whole.output, count))
        self._adds_up = whole.direction == TO_FILTER and count > 1
        sums = onednn.FLOAT32 if self._adds_up else None
        self._one, arrays = native_convolutions.computation(library, part, sums)
        #: which arrays begin with the batch: what is read, in order, and the result
        self._batched = list(_BATCHED[whole.direction])
        if whole.biased:
            self._batched.insert(-1, False)
        self._arrays = arrays
        self._sizes = [math.prod(array.lengths) for array in arrays]
        self._width = 4 if whole.type == onednn.FLOAT32 else 2
        elements = [size * (count if cut else 1) for size, cut in zip(self._sizes, self._batched, strict=True)]
        self._builder = PlanBuilder(library, elements)

    def plan(self) -> StagePlan:
        builder, outer = self._builder, self._one.outer
        result = len(outer) - 1
        # by the numbers that arrays have among those of the stages: what all parts share
        shared = {at: builder.array(at, outer[at].value) for at, cut in enumerate(self._batched) if not cut}
        before: list[list[Stage]] = []
        each: list[Stage] = []
        after: list[Handle] = []
        for primitive, arguments in self._one.described:
            is_copy = set(arguments) == {SOURCE, DESTINATION}
            if is_copy and arguments[SOURCE] in shared:
                at, place = arguments[SOURCE], arguments[DESTINATION]
                inner = self._one.inner[place - len(outer)]
                shared[place] = builder.scratch(inner)
                before += self._copies(primitive, at, (outer[at].value, shared[at]), (inner, shared[place]))
            elif is_copy and arguments[DESTINATION] == result and result in shared:
                after.append(primitive)
            else:
                each.append((primitive, arguments))
        if before:
            builder.phase(before)
        sums: list[int] = []
        builder.phase([self._stages(each, shared, number, sums) for number in range(self._count)])
        if self._adds_up:
            builder.phase(self._additions(sums))
        for primitive in after:
            source = self._library.argument(primitive, SOURCE), sums[0]
            builder.phase(self._copies(primitive, result, source, (outer[result].value, shared[result])))
        return builder.plan()

    def _stages(self, each: Sequence[Stage], shared: Mapping[int, int], number: int, sums: list[int]) -> list[Stage]:
        """What is done for a part; its gradient to the filter is added to `sums`."""
        builder = self._builder
        own = dict(shared)
        for at, cut in enumerate(self._batched):
            if cut:
                own[at] = builder.array(at, self._one.outer[at].value, number * self._sizes[at] * self._width)
        stages: list[Stage] = []
        for primitive, arguments in each:
            for argument, at in arguments.items():
                is_sum = argument == WEIGHTS_GRADIENT
                # where nothing is copied afterwards, the first part's sum lies in the result's place
                if at not in own or (is_sum and number > 0):
                    own[at] = builder.scratch(self._library.argument(primitive, argument))
                if is_sum:
                    sums.append(own[at])
            stages.append((primitive, {argument: own[at] for argument, at in arguments.items()}))
        return stages

    def _copies(
        self, primitive: Handle, array: int, source: tuple[int, int], destination: tuple[int, int]
    ) -> list[list[Stage]]:
        """Parts of a copy from one layout to another.

        Args:
            primitive: copies all of it.
            array: which array it is, by its number.
            source, destination: the descriptions and the memories of the two.
        """
        library, builder, lengths = self._library, self._builder, self._arrays[array].lengths
        whole: list[list[Stage]] = [[(primitive, {SOURCE: source[1], DESTINATION: destination[1]})]]
        parts = min(self._count, math.prod(lengths) // _LEAST_COPIED)
        # the filter's axes: out, in, and those of the taps; where there are groups, they come before
        if len(lengths) != 4 or parts < 2:
            return whole
        for block in _BLOCKS:
            bounds = sorted({lengths[1] * number // parts // block * block for number in range(parts)} | {lengths[1]})
            places = [((lengths[0], end - at, *lengths[2:]), (0, at, 0, 0)) for at, end in itertools.pairwise(bounds)]
            try:
                pairs = [[library.part(array, *place) for array, _ in (source, destination)] for place in places]
                copies = [library.reorder(one.value, other.value) for one, other in pairs]
            except NativeError:
                continue
            memories = [
                {
                    SOURCE: builder.seen_as(source[1], one.value),
                    DESTINATION: builder.seen_as(destination[1], other.value),
                }
                for one, other in pairs
            ]
            return [[stage] for stage in zip(copies, memories, strict=True)]
        return whole

    def _additions(self, sums: Sequence[int]) -> list[list[Stage]]:
        """Parts of the additions of the other parts' sums to the first one's, in the order in which they lie."""
        library, builder = self._library, self._builder
        main = next(primitive for primitive, arguments in self._one.described if WEIGHTS_GRADIENT in arguments)
        elements = library.size(library.argument(main, WEIGHTS_GRADIENT)) // 4
        count = max(1, min(self._count, elements // _LEAST_COPIED))
        parts: list[list[Stage]] = []
        bounds = (elements * number // count // _LANES * _LANES for number in range(count))
        for first, end in itertools.pairwise((*bounds, elements)):
            flat = library.described(Strided((end - first,), (1,)))
            add = library.sum(flat, flat, flat)
            total, *others = (builder.seen_as(place, flat.value, first * 4) for place in sums)
            parts.append([(add, {SOURCE: total, SECOND_SOURCE: other, DESTINATION: total}) for other in others])
        return parts


def _cut(array: tuple[tuple[int, ...], tuple[int, ...]], parts: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    (batch, *lengths), strides = array
    return (batch // parts, *lengths), strides


pool_stages.register_cutter(native_convolutions.KIND, Cutter(cut, plan))
