"""Weighted quantiles of streams of numbers, in little memory: what boosted trees find their buckets with.

A `Summary` is a sorted list of some of the values seen, and for each its weight and the least and greatest rank (sum of
weights) that it can have. Two summaries merge without loss; `compressed` drops values whose ranks the others bound well
enough. A `QuantileStream` collects values in a buffer; a full buffer becomes a summary, and summaries of one level
merge into one of the next, so that there are at most logarithmically many. Arithmetic is that of 32-bit numbers, in the
order of TensorFlow's kernels: which values survive depends on it.
"""

from __future__ import annotations

import math
import threading
from dataclasses import dataclass
from typing import Self

import numpy as np

from anabranch.core.arrays import HostArray
from anabranch.errors import InvalidArgumentError

_FLOAT = np.float32


@dataclass(frozen=True)
class Summary:
    """Values in ascending order; for each its weight and the least and greatest rank. All are float32 vectors."""

    values: HostArray
    weights: HostArray
    min_ranks: HostArray
    max_ranks: HostArray

    @classmethod
    def empty(cls) -> Self:
        """Of nothing."""
        return cls(*(np.zeros(0, _FLOAT) for _ in range(4)))

    @classmethod
    def of_values(cls, values: HostArray, weights: HostArray) -> Self:
        """Of numbers as they come."""
        order = np.argsort(values, kind="stable")
        values, weights = values[order], weights[order]
        first = np.r_[True, values[1:] != values[:-1]][: values.size]
        merged = np.zeros(np.count_nonzero(first), _FLOAT)
        np.add.at(merged, np.cumsum(first) - 1, weights)
        ends = np.cumsum(merged, dtype=_FLOAT)
        return cls(values[first], merged, np.r_[_FLOAT(0), ends[:-1]][: ends.size].astype(_FLOAT), ends)

    @classmethod
    def of_matrix(cls, matrix: HostArray) -> Self:
        """Of the four columns value, weight, least rank, greatest rank."""
        return cls(*(matrix[:, i].astype(_FLOAT) for i in range(4)))

    def matrix(self) -> HostArray:
        """The columns value, weight, least rank, greatest rank."""
        return np.stack([self.values, self.weights, self.min_ranks, self.max_ranks], axis=1)

    def __len__(self) -> int:
        return int(self.values.size)

    @property
    def _before(self) -> HostArray:
        """For each value, the greatest rank that the one before it can have."""
        return self.max_ranks - self.weights

    @property
    def _after(self) -> HostArray:
        """For each value, the least rank that the next one can have."""
        return self.min_ranks + self.weights

    def _at(self, kept: HostArray) -> Summary:
        return Summary(self.values[kept], self.weights[kept], self.min_ranks[kept], self.max_ranks[kept])

    def merged(self, other: Summary) -> Summary:
        """The summary of all that both are summaries of."""
        if not len(other):
            return self
        if not len(self):
            return other
        mine, theirs = self._beside(other), other._beside(self)
        shared = np.isin(self.values, other.values)
        only = ~np.isin(other.values, self.values)
        both = np.searchsorted(other.values, self.values[shared])
        mine.weights[shared] += other.weights[both]
        mine.min_ranks[shared] = self.min_ranks[shared] + other.min_ranks[both]
        mine.max_ranks[shared] = self.max_ranks[shared] + other.max_ranks[both]
        rest = theirs._at(only)
        pairs = zip(mine.columns(), rest.columns(), strict=True)
        joined = Summary(*(np.concatenate(pair) for pair in pairs))
        return joined._at(np.argsort(joined.values, kind="stable"))

    def columns(self) -> tuple[HostArray, HostArray, HostArray, HostArray]:
        """The four vectors."""
        return self.values, self.weights, self.min_ranks, self.max_ranks

    def _beside(self, other: Summary) -> Summary:
        """These values with the ranks that they have among those of `other`, of which none is equal."""
        at = np.searchsorted(other.values, self.values)
        least = np.r_[_FLOAT(0), other._after].astype(_FLOAT)[at]
        greatest = np.r_[other._before, other.max_ranks[-1]].astype(_FLOAT)[at]
        return Summary(self.values, self.weights.copy(), self.min_ranks + least, self.max_ranks + greatest)

    def compressed(self, size: int, least_error: float = 0.0) -> Summary:
        """About `size` of the values, or fewer where an error of `least_error` (a part of all weight) allows it."""
        size = max(size, 2)
        count = len(self)
        if count <= size:
            return self
        allowed = float(self.max_ranks[-1]) * max(1.0 / size, least_error)
        before, after = self._before, self._after
        kept, at, budget = [0], 0, 0
        last = 1
        while at + 1 != count:
            ahead = at + 1
            while ahead != count and budget < count and float(before[ahead] - after[at]) <= allowed:
                budget += size
                ahead += 1
            at = at + 1 if ahead - 1 == at else ahead - 1
            kept.append(at)
            last = at
            budget -= count
        if last + 1 != count:
            kept.append(count - 1)
        return self._at(np.array(kept))

    def error(self) -> float:
        """The greatest uncertainty of a rank, as a part of all weight."""
        if not len(self):
            return 0.0
        own = self.max_ranks[1:] - self.min_ranks[1:] - self.weights[1:]
        between = self._before[1:] - self._after[:-1]
        gap = max(0.0, float(np.max(own, initial=0)), float(np.max(between, initial=0)))
        return gap / float(self.max_ranks[-1])

    def boundaries(self, count: int) -> HostArray:
        """At most `count` values (or two) that divide the weight into about equal parts, without repetition.

        Where one too many is left, that one goes without which ranks are known best. So it is since TensorFlow 2; the
        bucket of one more is none of those that statistics are made of.
        """
        if not len(self):
            return self.values
        least = float(_FLOAT(self.error() + 1.0 / count))
        chosen = self.compressed(count, least)
        if len(chosen) > max(count, 2):
            without = chosen._before[2:] - chosen._after[:-2]
            chosen = chosen._at(np.delete(np.arange(len(chosen)), 1 + int(np.argmin(without))))
        values = chosen.values
        return values[np.r_[True, values[1:] != values[:-1]]]

    def quantiles(self, count: int) -> HostArray:
        """The `count` + 1 quantiles (at least three) from the smallest value to the greatest."""
        if not len(self):
            return self.values
        count = max(count, 2)
        before, after, middle = self._before, self._after, self.min_ranks + self.max_ranks
        found, at = [], 0
        for rank in range(count + 1):
            twice = _FLOAT(2) * (_FLOAT(rank) * self.max_ranks[-1] / _FLOAT(count))
            ahead = at + 1
            while ahead < len(self) and twice >= middle[ahead]:
                ahead += 1
            at = ahead - 1
            takes_lower = ahead == len(self) or twice < after[at] + before[ahead]
            found.append(self.values[at if takes_lower else ahead])
        return np.array(found, _FLOAT)


class QuantileStream:
    """The summary of a stream of values. Not thread-safe.

    Args:
        epsilon: the error of ranks, as a part of all weight; between 0 and 1.
        max_elements: how many values come at most.

    Raises:
        InvalidArgumentError: `epsilon` or `max_elements` is out of range.
    """

    def __init__(self, epsilon: float, max_elements: int) -> None:
        if not 0 < epsilon < 1:
            raise InvalidArgumentError(
                None, None, f"An epsilon value of zero is not allowed: epsilon must be between 0 and 1, got {epsilon}"
            )
        if max_elements <= 0:
            raise InvalidArgumentError(None, None, f"max_elements must be positive, got {max_elements}")
        self._epsilon = epsilon
        self._block = _block_size(epsilon, max_elements)
        self._capacity = min(self._block * 2, max_elements)
        self._buffer: tuple[HostArray, HostArray] = (np.zeros(0, _FLOAT), np.zeros(0, _FLOAT))
        self._levels: list[Summary] = []

    def push(self, values: HostArray, weights: HostArray) -> None:
        """Adds values; those without a positive weight do not count."""
        counted = ~(weights <= 0)
        all_values = np.concatenate([self._buffer[0], values[counted]])
        all_weights = np.concatenate([self._buffer[1], weights[counted]])
        whole = all_values.size - all_values.size % self._capacity
        for start in range(0, whole, self._capacity):
            part = slice(start, start + self._capacity)
            self.push_summary(Summary.of_values(all_values[part], all_weights[part]))
        self._buffer = all_values[whole:], all_weights[whole:]

    def push_summary(self, summary: Summary) -> None:
        """Adds what another stream has seen."""
        local = summary.compressed(self._block, self._epsilon)
        if not len(local):
            return
        level = 0
        while True:
            if len(self._levels) <= level:
                self._levels.append(Summary.empty())
            current = self._levels[level]
            local = local.merged(current)
            if not len(current) or len(local) <= self._block + 1:
                self._levels[level] = local
                return
            local = local.compressed(self._block, self._epsilon)
            self._levels[level] = Summary.empty()
            level += 1

    def finished(self) -> Summary:
        """The summary of all; nothing is added afterwards."""
        self.push_summary(Summary.of_values(*self._buffer))
        total = Summary.empty()
        for summary in self._levels:
            total = total.merged(summary)
        return total


def _block_size(epsilon: float, max_elements: int) -> int:
    if epsilon <= np.finfo(np.float64).eps:
        return max(max_elements, 2)
    level, block = 1, 2
    while (1 << level) * block < max_elements:
        block = math.ceil(level / epsilon) + 1
        level += 1
    return max(block, 2)


class QuantileStreams:
    """One stream for each feature, and the bucket boundaries found last. Its methods are called under `lock`.

    Raises:
        InvalidArgumentError: an argument is out of range.
    """

    title = "quantile stream"

    def __init__(self, epsilon: float, max_elements: int, count: int) -> None:
        self.lock = threading.Lock()
        self._made = epsilon, max_elements
        self.count = count
        self._streams = self._fresh()
        self._boundaries = [np.zeros(0, _FLOAT) for _ in range(count)]

    def _fresh(self) -> list[QuantileStream]:
        return [QuantileStream(*self._made) for _ in range(self.count)]

    def add(self, summaries: list[HostArray]) -> None:
        """Adds a matrix of four columns to each stream."""
        for stream, matrix in zip(self._streams, summaries, strict=True):
            stream.push_summary(Summary.of_matrix(matrix))

    def take(self) -> list[Summary]:
        """The summaries of all streams, which begin anew."""
        streams, self._streams = self._streams, self._fresh()
        return [stream.finished() for stream in streams]

    def flush(self, buckets: int, exact: bool) -> None:
        """Finds the boundaries of `buckets` buckets, and begins anew."""
        for i, summary in enumerate(self.take()):
            self._boundaries[i] = summary.quantiles(buckets - 1) if exact else summary.boundaries(buckets)

    @property
    def boundaries(self) -> list[HostArray]:
        """The boundaries of each stream's buckets."""
        return list(self._boundaries)

    def set_boundaries(self, boundaries: list[HostArray]) -> None:
        """Puts boundaries that were saved in place."""
        self._boundaries = [b.astype(_FLOAT) for b in boundaries]
