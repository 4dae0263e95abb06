"""Sampled classes for training with very many classes: the samplers, and which samples are true classes by accident."""

from __future__ import annotations

import threading
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from anabranch.core.arrays import RandomSource
from anabranch.core.kernel_context import OperationContext
from anabranch.core.resources import ResourceHandle
from anabranch.core.shapes import TensorShape
from anabranch.errors import InvalidArgumentError
from anabranch.graph.building import OpFunction, define_op
from anabranch.graph.kernel_contexts import StepHostContext
from anabranch.ops import shape_rules

Array = np.ndarray[Any, Any]
#: count -> that many classes drawn with replacement
Draw = Callable[[int], Array]
#: classes -> the probability of each in one draw
Probability = Callable[[Array], Array]

_SIGNATURE = (
    "true_classes: int64 -> sampled_candidates: int64, true_expected_count: float, sampled_expected_count: float"
)
_COUNTS = "num_true: int >= 1, num_sampled: int >= 1, unique: bool"
#: after so many draws without enough different classes a sampler gives up
_MAX_DRAWS = 1 << 24
_SEEDS = "seed: int = 0, seed2: int = 0"
#: what the weights of a learned distribution may come to
_MOST_WEIGHT = 2**31 - 1


class UnigramCounts:
    """How often classes were seen; each counts once before. Its methods are called under `lock`."""

    def __init__(self, classes: int) -> None:
        self.lock = threading.Lock()
        self._classes = classes
        # only those that were seen: there may be very many classes
        self._seen, self._counts = np.zeros(0, np.int64), np.zeros(0, np.int64)
        self._total = classes

    def draw(self, rng: RandomSource, count: int) -> Array:
        """Classes by their weights: of all alike where the first of them is meant, else of what was seen."""
        places = rng.integers(0, self._total, count)
        if not self._seen.size:
            return places  # type: ignore[no-any-return]
        at = np.searchsorted(np.cumsum(self._counts), places - self._classes, side="right")
        found: Array = np.where(places < self._classes, places, self._seen[np.minimum(at, len(self._seen) - 1)])
        return found

    def probability(self, classes: Array) -> Array:
        """The part of all weight that each class has."""
        weights = np.ones(classes.shape)
        if self._seen.size:
            at = np.minimum(np.searchsorted(self._seen, classes), len(self._seen) - 1)
            weights += np.where(self._seen[at] == classes, self._counts[at], 0)
        return weights / self._total

    def add(self, classes: Array) -> None:
        """Counts classes, until the weights come to the most that they may."""
        classes = classes[: max(0, _MOST_WEIGHT - self._total)]
        both = np.concatenate([self._seen, classes])
        seen, at = np.unique(both, return_inverse=True)
        counts = np.zeros(seen.size, np.int64)
        np.add.at(counts, at, np.concatenate([self._counts, np.ones(classes.size, np.int64)]))
        self._seen, self._counts, self._total = seen, counts, self._total + classes.size


def _sampler(name: str, attrs: str) -> OpFunction:
    op = define_op(name, _SIGNATURE, attrs, stateful=True)

    @op.shape
    def _(true_classes: TensorShape, *, num_true: int, num_sampled: int) -> tuple[TensorShape, ...]:
        true = shape_rules.with_rank(true_classes, 2, "argument 'true_classes'").merge_with([None, num_true])
        return TensorShape([num_sampled]), true, TensorShape([num_sampled])

    op.not_differentiable()
    return op


def _sampled(
    true_classes: Array,
    count: int,
    unique: bool,
    classes: int,
    draw: Draw,
    probability: Probability,
    ctx: OperationContext,
) -> tuple[Array, Array, Array]:
    """Draws, and says how often each class was to be expected among the drawn."""
    ctx.check(
        not unique or count <= classes,
        f"cannot draw {count} different classes out of {classes}; pass unique=False or a smaller num_sampled",
    )
    if true_classes.size and not 0 <= true_classes.min() <= true_classes.max() < classes:
        outside = (true_classes < 0) | (true_classes >= classes)
        raise InvalidArgumentError(
            None, ctx.op, f"true_classes has {int(true_classes[outside][0])}, which is not in [0, {classes})"
        )
    sampled, tries = _distinct(draw, count, ctx) if unique else (draw(count), count)
    sampled = sampled.astype(np.int64, copy=False)
    # together, since each function of NumPy takes longer to call than it computes
    p = probability(np.concatenate([true_classes.reshape(-1), sampled]))
    # (a class that is certain gives log(0) here; no warning comes of it where kernels of the host run)
    expected = (-np.expm1(tries * np.log1p(-p)) if unique else p * count).astype(np.float32)
    true = true_classes.size
    return sampled, expected[:true].reshape(true_classes.shape), expected[true:]


def _distinct(draw: Draw, count: int, ctx: OperationContext) -> tuple[Array, int]:
    """Draws until `count` different classes were seen; in order of appearance, with the number of draws."""
    seen: dict[int, None] = {}
    draws = 0
    while True:
        ctx.check(
            draws <= _MAX_DRAWS,
            f"{_MAX_DRAWS} draws did not give {count} different classes: the rest are too improbable; "
            "pass unique=False or a smaller num_sampled",
        )
        drawn = draw(max(64, 2 * count, draws)).tolist()
        seen.update(dict.fromkeys(drawn))
        if len(seen) >= count:
            distinct = list(islice(seen, count))
            return np.array(distinct, np.int64), draws + drawn.index(distinct[-1]) + 1
        draws += len(drawn)


UniformCandidateSampler = _sampler("UniformCandidateSampler", f"{_COUNTS}, range_max: int >= 1, {_SEEDS}")


@UniformCandidateSampler.host_kernel
def _(
    true_classes: Array, *, num_sampled: int, unique: bool, range_max: int, rng: RandomSource, ctx: OperationContext
) -> Any:
    def draw(count: int) -> Array:
        return rng.integers(0, range_max, count)  # type: ignore[no-any-return]

    def probability(classes: Array) -> Array:
        return np.full(classes.shape, 1.0 / range_max)

    return _sampled(true_classes, num_sampled, unique, range_max, draw, probability, ctx)


LogUniformCandidateSampler = _sampler("LogUniformCandidateSampler", f"{_COUNTS}, range_max: int >= 1, {_SEEDS}")


@LogUniformCandidateSampler.host_kernel
def _(
    true_classes: Array, *, num_sampled: int, unique: bool, range_max: int, rng: RandomSource, ctx: OperationContext
) -> Any:
    """Zipf's law: P(class) = (log(class + 2) - log(class + 1)) / log(range_max + 1)."""
    width = np.log1p(range_max)

    def draw(count: int) -> Array:
        classes = np.expm1(rng.random(count) * width).astype(np.int64)
        return np.minimum(classes, range_max - 1)  # type: ignore[no-any-return]

    def probability(classes: Array) -> Array:
        return np.log1p(1.0 / (classes + 1.0)) / width  # type: ignore[no-any-return]

    return _sampled(true_classes, num_sampled, unique, range_max, draw, probability, ctx)


FixedUnigramCandidateSampler = _sampler(
    "FixedUnigramCandidateSampler",
    f"{_COUNTS}, range_max: int >= 1, vocab_file: string = '', distortion: float = 1.0, num_reserved_ids: int = 0, "
    f"num_shards: int >= 1 = 1, shard: int >= 0 = 0, unigrams: list(float) = [], {_SEEDS}",
)


@FixedUnigramCandidateSampler.host_kernel
def _(
    true_classes: Array,
    *,
    num_sampled: int,
    unique: bool,
    range_max: int,
    vocab_file: bytes,
    distortion: float,
    num_reserved_ids: int,
    num_shards: int,
    shard: int,
    unigrams: list[float],
    rng: RandomSource,
    ctx: OperationContext,
) -> Any:
    """A given distribution; of its classes this sampler draws those of one shard."""
    ctx.check(bool(vocab_file) != bool(unigrams), "give either vocab_file or unigrams, not both")
    ctx.check(shard < num_shards, f"shard = {shard} must be less than num_shards = {num_shards}")
    counts = np.array(unigrams, np.float64) if unigrams else _vocabulary_counts(vocab_file.decode(), ctx)
    weights = np.concatenate([np.zeros(num_reserved_ids), counts**distortion])
    ctx.check(
        len(weights) == range_max,
        f"range_max = {range_max}, but there are {len(weights)} classes ({num_reserved_ids} of them reserved)",
    )
    cumulative = np.cumsum(weights[shard::num_shards])
    ctx.check(cumulative[-1] > 0, "no class of this shard has a positive weight")

    def draw(count: int) -> Array:
        at = np.searchsorted(cumulative, rng.random(count) * cumulative[-1], side="right")
        return np.minimum(at, len(cumulative) - 1) * num_shards + shard  # type: ignore[no-any-return]

    def probability(classes: Array) -> Array:
        return weights[classes] / cumulative[-1]  # type: ignore[no-any-return]

    possible = int(np.count_nonzero(weights[shard::num_shards]))
    ctx.check(not unique or num_sampled <= possible, f"cannot draw {num_sampled} different classes out of {possible}")
    return _sampled(true_classes, num_sampled, unique, range_max, draw, probability, ctx)


def _vocabulary_counts(path: str, ctx: OperationContext) -> Array:
    """The counts in a vocabulary file: the last field of each line, separated by commas."""
    lines = Path(path).read_text(encoding="utf-8").splitlines()
    try:
        return np.array([float(line.rsplit(",", 1)[-1]) for line in lines if line.strip()])
    except ValueError as error:
        raise InvalidArgumentError(None, ctx.op, f"{path}: each line must end in a number: {error}") from error


def _learned(
    true_classes: Array, *, num_sampled: int, unique: bool, range_max: int, rng: RandomSource, ctx: StepHostContext
) -> Any:
    """How often each class was among the true ones of earlier runs, and once more: that is its weight."""
    ctx.check(range_max < _MOST_WEIGHT, f"range_max must be less than {_MOST_WEIGHT}, got {range_max}")
    handle = ResourceHandle("", ctx.private_name, "unigram counts", task=ctx.task)
    counts: UnigramCounts = ctx.containers.object(handle, lambda: UnigramCounts(range_max))
    with counts.lock:
        drawn = _sampled(
            true_classes, num_sampled, unique, range_max, lambda n: counts.draw(rng, n), counts.probability, ctx
        )
        counts.add(true_classes.reshape(-1))
    return drawn


_LEARNED = f"{_COUNTS}, range_max: int >= 1, {_SEEDS}"
LearnedUnigramCandidateSampler = _sampler("LearnedUnigramCandidateSampler", _LEARNED)
ThreadUnsafeUnigramCandidateSampler = _sampler("ThreadUnsafeUnigramCandidateSampler", _LEARNED)
LearnedUnigramCandidateSampler.host_kernel(_learned)
ThreadUnsafeUnigramCandidateSampler.host_kernel(_learned)

AllCandidateSampler = _sampler("AllCandidateSampler", f"{_COUNTS}, {_SEEDS}")


@AllCandidateSampler.host_kernel
def _(true_classes: Array, *, num_sampled: int) -> Any:
    """Every class once, in order."""
    ones = np.ones(num_sampled, np.float32)
    return np.arange(num_sampled, dtype=np.int64), np.ones(true_classes.shape, np.float32), ones


ComputeAccidentalHits = define_op(
    "ComputeAccidentalHits",
    "true_classes: int64, sampled_candidates: int64 -> indices: int32, ids: int64, weights: float",
    f"num_true: int, {_SEEDS}",
)
ComputeAccidentalHits.not_differentiable()


@ComputeAccidentalHits.shape
def _(true_classes: TensorShape, sampled_candidates: TensorShape, *, num_true: int) -> Any:
    shape_rules.with_rank(true_classes, 2, "argument 'true_classes'").merge_with([None, num_true])
    shape_rules.with_rank(sampled_candidates, 1, "argument 'sampled_candidates'")
    return TensorShape([None]), TensorShape([None]), TensorShape([None])


@ComputeAccidentalHits.host_kernel
def _(true_classes: Array, sampled_candidates: Array, *, num_true: int, ctx: OperationContext) -> Any:
    ctx.check(
        true_classes.ndim == 2 and true_classes.shape[1] == num_true,
        f"true_classes must have shape [batch, {num_true}], got {list(true_classes.shape)}",
    )
    # of a candidate that was drawn several times, the last place counts
    places = {candidate: i for i, candidate in enumerate(sampled_candidates.tolist())}
    hits = [(row, places[c]) for row, classes in enumerate(true_classes.tolist()) for c in classes if c in places]
    rows, ids = zip(*hits, strict=True) if hits else ((), ())
    weights = np.full(len(hits), -np.finfo(np.float32).max, np.float32)
    return np.array(rows, np.int32), np.array(ids, np.int64), weights
