"""Nearest centres, and centres to begin with  (Arthur, Vassilvitskii, "k-means++", 2007; Bachem et al., "Approximate
k-means++ in sublinear time", 2016). Random numbers are those of TensorFlow for the same seed.
"""

from __future__ import annotations

import math
from typing import Any, Final

import numpy as np

from anabranch.core.arrays import Array, HostArray
from anabranch.core.kernel_context import OperationContext
from anabranch.core.shapes import TensorShape
from anabranch.graph.building import define_op
from anabranch.graph.constants import ShapeContext
from anabranch.ops import shape_rules
from anabranch.ops.arithmetic import philox

#: words of random bits that are made at once
_BLOCK: Final = 1024


class _Words:
    """Random words of 32 bits of a seed, one after the other."""

    def __init__(self, seed: int) -> None:
        self._state = np.array([0, 0, seed], np.int64)
        self._words: list[int] = []

    def word(self) -> int:
        if not self._words:
            self._words = philox.bits32(self._state, _BLOCK, np).tolist()[::-1]
            self._state = philox.skipped(self._state, np.uint64(_BLOCK // 4), np)
        return self._words.pop()

    def fraction(self) -> np.float32:
        """In [0, 1): 23 bits."""
        return np.float32((self.word() & 0x7FFFFF) / (1 << 23))

    def below(self, bound: int) -> int:
        """A whole number in [0, bound), each as likely."""
        if bound & bound - 1 == 0:
            return self._long() & bound - 1
        least = (2**64 - 1) % bound + 1
        while (number := self._long()) < least:
            pass
        return number % bound

    def _long(self) -> int:
        low = self.word()
        return low | self.word() << 32


NearestNeighbors = define_op(
    "NearestNeighbors",
    "points: float, centers: float, k: int64 -> nearest_center_indices: int64, nearest_center_distances: float",
    ranks={"points": 2, "centers": 2, "k": 0},
)
NearestNeighbors.not_differentiable()


@NearestNeighbors.shape
def _(points: TensorShape, centers: TensorShape, k: TensorShape, *, ctx: ShapeContext) -> list[TensorShape]:
    points, centers = points.with_rank(2), centers.with_rank(2)
    points[1:].merge_with(centers[1:])
    wanted, known = ctx.constant("k"), centers[0].value
    count = None if wanted is None or known is None else min(int(wanted), known)
    return [TensorShape([points[0], count])] * 2


@NearestNeighbors.host_kernel
def _(points: Array, centers: Array, k: Array, *, ctx: OperationContext) -> Any:
    """The nearest first, with squared distances."""
    ctx.check(len(points) > 0, "Expected points.rows() > 0.")
    fits = points.shape[1] == centers.shape[1]
    ctx.check(fits, f"Expected point_dimensions == center_dimensions: {points.shape[1]} vs {centers.shape[1]}.")
    ctx.check(int(k) >= 0, f"Expected k >= 0, got {int(k)}.")
    distances = 2 * _half_distances(points, centers)
    nearest = np.argsort(distances, axis=1, kind="stable")[:, : int(k)]
    return nearest.astype(np.int64), np.take_along_axis(distances, nearest, 1)


def _half_distances(points: HostArray, centers: HostArray) -> HostArray:
    """Half the squared distances, [points, centers]."""
    half = np.float32(0.5)
    own, other = half * (points * points).sum(1), half * (centers * centers).sum(1)
    distances: HostArray = (own[:, None] - points @ centers.T) + other[None, :]
    return distances


KmeansPlusPlusInitialization = define_op(
    "KmeansPlusPlusInitialization",
    "points: float, num_to_sample: int64, seed: int64, num_retries_per_sample: int64 -> samples: float",
    ranks={"points": 2, "num_to_sample": 0, "seed": 0, "num_retries_per_sample": 0},
)
KmeansPlusPlusInitialization.not_differentiable()


@KmeansPlusPlusInitialization.shape
def _(points: TensorShape, *_: TensorShape, ctx: ShapeContext) -> TensorShape:
    wanted = ctx.constant("num_to_sample")
    return TensorShape([None if wanted is None else int(wanted)]).concatenate(points.with_rank(2)[1:])


@KmeansPlusPlusInitialization.host_kernel
def _(points: Array, num_to_sample: Array, seed: Array, num_retries_per_sample: Array, *, ctx: OperationContext) -> Any:
    """Each next point with a probability like its squared distance from those before; of several draws the best."""
    count, number = len(points), int(num_to_sample)
    ctx.check(count > 0, "Expected points.rows() > 0.")
    ctx.check(0 < number <= count, f"Expected 0 < num_to_sample <= points.rows(). {number} vs {count}.")
    retries = int(num_retries_per_sample)
    retries = 2 + int(math.log(number)) if retries < 0 else retries
    words, chosen = _Words(int(seed)), dict[int, None]()
    nearest: HostArray = np.full(count, np.inf, np.float32)
    for _ in range(number):
        heap = np.cumsum(nearest, dtype=np.float32)
        drawn = [_drawn(words, heap, chosen) for _ in range(1 + retries)]
        reached = [np.minimum(nearest, _half_distances(points, points[i : i + 1])[:, 0]) for i in drawn]
        best = int(np.argmin([distances.sum() for distances in reached]))
        chosen[drawn[best]], nearest = None, reached[best]
    return points[list(chosen)]


def _drawn(words: _Words, heap: HostArray, chosen: dict[int, None]) -> int:
    """A point that was not chosen yet; `heap`: the sums of the distances up to each."""
    if not chosen:
        return words.below(len(heap))
    while True:
        if heap[-1] > 0:
            number = min(int(np.searchsorted(heap, words.fraction() * heap[-1], "right")), len(heap) - 1)
        else:  # all others stand where chosen ones do
            number = words.below(len(heap))
        if number not in chosen:
            return number


KMC2ChainInitialization = define_op(
    "KMC2ChainInitialization", "distances: float, seed: int64 -> index: int64", ranks={"distances": 1, "seed": 0}
)
KMC2ChainInitialization.shape(shape_rules.scalar)
KMC2ChainInitialization.not_differentiable()


@KMC2ChainInitialization.host_kernel
def _(distances: Array, seed: Array, *, ctx: OperationContext) -> Any:
    """The last state of a chain that goes on to the next point with the probability of its distance over the last's."""
    ctx.check(distances.size > 0, "Expected distances_tensor.size() > 0.")
    words, index = _Words(int(seed)), 0
    for i in range(1, distances.size):
        if distances[i] > words.fraction() * distances[index]:
            index = i
    return np.int64(index)
