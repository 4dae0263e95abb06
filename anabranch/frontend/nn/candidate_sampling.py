"""Losses over very many classes that look at a sample of them: samplers, NCE, sampled softmax."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from anabranch.core.values import TensorLike
from anabranch.frontend.framework import get_seed, name_scope
from anabranch.frontend.nn.embedding import embedding_lookup
from anabranch.graph.conversion import convert_to_tensor
from anabranch.graph.operation import Tensor
from anabranch.ops import raw


class Candidates(NamedTuple):
    """Drawn classes, and how often the true and the drawn ones are to be expected among them."""

    sampled_candidates: Tensor
    true_expected_count: Tensor
    sampled_expected_count: Tensor


# ---------------------------------------------------------------------- samplers
def uniform_candidate_sampler(
    true_classes: TensorLike,
    num_true: int,
    num_sampled: int,
    unique: bool,
    range_max: int,
    seed: int | None = None,
    name: str | None = None,
) -> Candidates:
    """Draws classes uniformly from [0, range_max).

    Args:
        true_classes: int64, [batch, num_true].
        num_sampled: how many classes to draw for the whole batch.
        unique: whether they must differ from each other.

    Returns:
        sampled_candidates, int64 [num_sampled]; true_expected_count, float32 [batch, num_true], and
        sampled_expected_count, float32 [num_sampled]: how often each class is to be expected among the drawn ones.
    """
    seed1, seed2 = get_seed(seed)
    return Candidates(
        *raw.UniformCandidateSampler(
            true_classes,
            num_true=num_true,
            num_sampled=num_sampled,
            unique=unique,
            range_max=range_max,
            seed=seed1,
            seed2=seed2,
            name=name,
        )
    )


def log_uniform_candidate_sampler(
    true_classes: TensorLike,
    num_true: int,
    num_sampled: int,
    unique: bool,
    range_max: int,
    seed: int | None = None,
    name: str | None = None,
) -> Candidates:
    """Draws classes by Zipf's law: P(k) = (log(k + 2) - log(k + 1)) / log(range_max + 1).

    Right for classes in the order of falling frequency, such as words. Arguments and results as those of
    `uniform_candidate_sampler`.
    """
    seed1, seed2 = get_seed(seed)
    return Candidates(
        *raw.LogUniformCandidateSampler(
            true_classes,
            num_true=num_true,
            num_sampled=num_sampled,
            unique=unique,
            range_max=range_max,
            seed=seed1,
            seed2=seed2,
            name=name,
        )
    )


def fixed_unigram_candidate_sampler(
    true_classes: TensorLike,
    num_true: int,
    num_sampled: int,
    unique: bool,
    range_max: int,
    vocab_file: str = "",
    distortion: float = 1.0,
    num_reserved_ids: int = 0,
    num_shards: int = 1,
    shard: int = 0,
    unigrams: Sequence[float] = (),
    seed: int | None = None,
    name: str | None = None,
) -> Candidates:
    """Draws classes from a given distribution.

    Args:
        vocab_file: a file with one class per line; the last field, after a comma, is its weight.
        distortion: weights are raised to this power.
        num_reserved_ids: classes of weight 0 before those of the distribution.
        num_shards, shard: this sampler draws from the classes k with k % num_shards = shard.
        unigrams: the weights, in place of `vocab_file`.

    Other arguments and results as those of `uniform_candidate_sampler`.
    """
    seed1, seed2 = get_seed(seed)
    return Candidates(
        *raw.FixedUnigramCandidateSampler(
            true_classes,
            num_true=num_true,
            num_sampled=num_sampled,
            unique=unique,
            range_max=range_max,
            vocab_file=vocab_file,
            distortion=distortion,
            num_reserved_ids=num_reserved_ids,
            num_shards=num_shards,
            shard=shard,
            unigrams=list(unigrams),
            seed=seed1,
            seed2=seed2,
            name=name,
        )
    )


def learned_unigram_candidate_sampler(
    true_classes: TensorLike,
    num_true: int,
    num_sampled: int,
    unique: bool,
    range_max: int,
    seed: int | None = None,
    name: str | None = None,
) -> Candidates:
    """Draws classes by how often they were true classes in earlier steps of the session.

    At first all are equally likely; each true class of a step counts once in the steps after it. Arguments and results
    as those of `uniform_candidate_sampler`.
    """
    seed1, seed2 = get_seed(seed)
    return Candidates(
        *raw.LearnedUnigramCandidateSampler(
            true_classes,
            num_true=num_true,
            num_sampled=num_sampled,
            unique=unique,
            range_max=range_max,
            seed=seed1,
            seed2=seed2,
            name=name,
        )
    )


def all_candidate_sampler(
    true_classes: TensorLike,
    num_true: int,
    num_sampled: int,
    unique: bool,
    seed: int | None = None,
    name: str | None = None,
) -> Candidates:
    """Every class in [0, num_sampled) once: for testing a sampled loss. Results as of `uniform_candidate_sampler`."""
    seed1, seed2 = get_seed(seed)
    return Candidates(
        *raw.AllCandidateSampler(
            true_classes,
            num_true=num_true,
            num_sampled=num_sampled,
            unique=unique,
            seed=seed1,
            seed2=seed2,
            name=name,
        )
    )


class AccidentalHits(NamedTuple):
    """The drawn classes that are true ones: the rows, the places in the sample, and weights that take them out."""

    indices: Tensor
    ids: Tensor
    weights: Tensor


def compute_accidental_hits(
    true_classes: TensorLike,
    sampled_candidates: TensorLike,
    num_true: int,
    seed: int | None = None,
    name: str | None = None,
) -> AccidentalHits:
    """Which sampled classes are true classes of an example.

    Returns:
        indices, int32: rows of `true_classes`; ids, int64: positions in `sampled_candidates`; weights, float32: the
        lowest number of all, to be added to the logits of these pairs.
    """
    seed1, seed2 = get_seed(seed)
    return AccidentalHits(
        *raw.ComputeAccidentalHits(
            true_classes, sampled_candidates, num_true=num_true, seed=seed1, seed2=seed2, name=name
        )
    )


# ---------------------------------------------------------------------- losses
def nce_loss(
    weights: TensorLike,
    biases: TensorLike,
    labels: TensorLike,
    inputs: TensorLike,
    num_sampled: int,
    num_classes: int,
    num_true: int = 1,
    sampled_values: Sequence[TensorLike] | None = None,
    remove_accidental_hits: bool = False,
    partition_strategy: str = "mod",
    name: str = "nce_loss",
) -> Tensor:
    """The noise-contrastive estimation loss of each example.

    Args:
        weights: [num_classes, dim], or a list of parts of it.
        biases: [num_classes].
        labels: the true classes, int64 [batch, num_true].
        inputs: [batch, dim].
        num_sampled: how many classes to sample for the whole batch, an int.
        num_classes: an int.
        num_true: how many true classes each example has.
        sampled_values: what a candidate sampler returned; default: of `log_uniform_candidate_sampler`.
        remove_accidental_hits: whether sampled classes that are true ones are left out.
        partition_strategy: see `embedding_lookup`.
        name: of the operation.

    Returns:
        A vector of shape [batch], of the dtype of `inputs`.

    Raises:
        ValueError: the shapes do not go together.

    Example:
        >>> weights, inputs = tf.ones([10, 4]), tf.ones([2, 4])
        >>> labels = tf.constant([[1], [2]], tf.int64)
        >>> tf.nn.nce_loss(weights, tf.zeros([10]), labels, inputs, num_sampled=3, num_classes=10).shape
        TensorShape([Dimension(2)])
    """
    logits, targets = _sampled_logits(
        weights,
        biases,
        labels,
        inputs,
        num_sampled,
        num_classes,
        num_true,
        sampled_values,
        remove_accidental_hits,
        partition_strategy,
        name,
        None,
    )
    # cross entropy of a sigmoid: max(x, 0) - x z + log(1 + exp(-|x|))
    positive = raw.Sub(raw.Relu(logits), raw.Mul(logits, targets))
    losses = raw.AddV2(positive, raw.Log1p(raw.Exp(raw.Neg(raw.Abs(logits)))))
    result: Tensor = raw.Sum(losses, [1])
    return result


def sampled_softmax_loss(
    weights: TensorLike,
    biases: TensorLike,
    labels: TensorLike,
    inputs: TensorLike,
    num_sampled: int,
    num_classes: int,
    num_true: int = 1,
    sampled_values: Sequence[TensorLike] | None = None,
    remove_accidental_hits: bool = True,
    partition_strategy: str = "mod",
    name: str = "sampled_softmax_loss",
    seed: int | None = None,
) -> Tensor:
    """The softmax cross entropy of each example over its true classes and a sample of the others.

    Arguments and result as those of `nce_loss`. For training only: it underestimates the full softmax loss.
    """
    logits, targets = _sampled_logits(
        weights,
        biases,
        labels,
        inputs,
        num_sampled,
        num_classes,
        num_true,
        sampled_values,
        remove_accidental_hits,
        partition_strategy,
        name,
        seed,
    )
    result: Tensor = raw.SoftmaxCrossEntropyWithLogits(logits, raw.StopGradient(targets))[0]
    return result


def _sampled_logits(
    weights: TensorLike,
    biases: TensorLike,
    labels: TensorLike,
    inputs: TensorLike,
    num_sampled: int,
    num_classes: int,
    num_true: int,
    sampled_values: Sequence[TensorLike] | None,
    remove_accidental_hits: bool,
    partition_strategy: str,
    name: str,
    seed: int | None,
) -> tuple[Tensor, Tensor]:
    """Logits [batch, num_true + num_sampled] of the true and the sampled classes, corrected for how the sample was
    drawn, and the targets: 1 / num_true for true classes, 0 for sampled ones.
    """
    with name_scope(name, "compute_sampled_logits"):
        x = convert_to_tensor(inputs)
        true = convert_to_tensor(labels)
        true = true if true.dtype.name == "int64" else raw.Cast(true, DstT="int64")
        if sampled_values is None:
            sampled_values = log_uniform_candidate_sampler(true, num_true, num_sampled, True, num_classes, seed)
        sampled, true_count, sampled_count = (raw.StopGradient(v) for v in sampled_values)
        sampled = sampled if sampled.dtype.name == "int64" else raw.Cast(sampled, DstT="int64")
        # one lookup for all rows, so that one sparse gradient reaches the table
        every = raw.ConcatV2([raw.Reshape(true, [-1]), sampled], 0)
        all_weights = _cast_like(embedding_lookup(weights, every, partition_strategy), x)
        all_biases = _cast_like(embedding_lookup(biases, every, partition_strategy), x)
        count = raw.Reshape(raw.Size(true), [1])
        true_weights = raw.Slice(all_weights, [0, 0], raw.ConcatV2([count, np.array([-1], np.int32)], 0))
        sampled_weights = raw.Slice(all_weights, raw.ConcatV2([count, np.array([0], np.int32)], 0), [-1, -1])
        true_biases, sampled_biases = raw.Slice(all_biases, [0], count), raw.Slice(all_biases, count, [-1])
        width = raw.StridedSlice(raw.Shape(all_weights), [1], [2], [1])
        grouped = raw.Reshape(true_weights, raw.ConcatV2([np.array([-1, num_true], np.int32), width], 0))
        true_logits = raw.Sum(raw.Mul(raw.ExpandDims(x, 1), grouped), [2])
        true_logits = raw.AddV2(true_logits, raw.Reshape(true_biases, [-1, num_true]))
        sampled_logits = raw.AddV2(raw.MatMul(x, sampled_weights, transpose_b=True), sampled_biases)
        if remove_accidental_hits:
            sampled_logits = _without_hits(sampled_logits, true, sampled)
        true_logits = raw.Sub(true_logits, raw.Log(_cast_like(true_count, x)))
        sampled_logits = raw.Sub(sampled_logits, raw.Log(_cast_like(sampled_count, x)))
        share = np.array(1.0 / num_true, x.dtype.as_numpy_dtype)
        targets = [raw.Mul(raw.OnesLike(true_logits), share), raw.ZerosLike(sampled_logits)]
        return raw.ConcatV2([true_logits, sampled_logits], 1), raw.ConcatV2(targets, 1)


def _cast_like(value: Tensor, like: Tensor) -> Any:
    return value if value.dtype is like.dtype else raw.Cast(value, DstT=like.dtype)


def _without_hits(logits: Tensor, true: Tensor, sampled: Tensor) -> Any:
    """Logits so low that they count for nothing where a sampled class is a true one; compiled, unlike the operation."""
    same = raw.Equal(raw.ExpandDims(true, 2), raw.Reshape(sampled, [1, 1, -1]))
    # half of the lowest number: the sum must stay finite, since the loss multiplies it by zero
    lowest = np.array(float(logits.dtype.min) / 2, logits.dtype.as_numpy_dtype)
    return raw.AddV2(logits, raw.Mul(raw.Cast(raw.Any(same, [1]), DstT=logits.dtype), lowest))
