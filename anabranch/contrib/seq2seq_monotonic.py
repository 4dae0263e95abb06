"""`tf.contrib.seq2seq`: attention that only moves forward through its memory (Raffel et al. 2017)."""

from __future__ import annotations

from typing import Any

import numpy as np

import anabranch as tf
from anabranch.contrib.arguments import DTypeLike, PassedOn, TensorLike
from anabranch.contrib.seq2seq_attention import BahdanauAttention, LuongAttention

_MODES = ("recursive", "parallel", "hard")


def safe_cumprod(x: TensorLike, *args: PassedOn, **kwargs: PassedOn) -> tf.Tensor:
    """The cumulative product of numbers in [0, 1] by a sum of logarithms, whose gradient is finite at 0.

    Args:
        x: any shape.
        args, kwargs: as of `tf.cumsum`.
    """
    with tf.name_scope(None, "SafeCumprod", [x]):
        x = tf.convert_to_tensor(x, name="x")
        tiny = np.finfo(x.dtype.as_numpy_dtype).tiny
        return tf.exp(tf.cumsum(tf.log(tf.clip_by_value(x, tiny, 1)), *args, **kwargs))


def monotonic_attention(p_choose_i: TensorLike, previous_attention: TensorLike, mode: str) -> tf.Tensor:
    """How likely each position is attended to, where attention starts at the last one and goes on with a probability.

    Args:
        p_choose_i: [batch, positions]: how likely attention that has come to a position stays there.
        previous_attention: [batch, positions]: the result of the step before.
        mode: "recursive" (exact, one position after the other), "parallel" (all at once; wrong where a probability is
            very near 0 or 1), or "hard" (probabilities are 0 or 1).

    Returns:
        [batch, positions].

    Raises:
        ValueError: `mode` is none of these.
    """
    p = tf.convert_to_tensor(p_choose_i, name="p_choose_i")
    before = tf.convert_to_tensor(previous_attention, name="previous_attention")
    if mode == "recursive":
        passed = tf.concat([tf.ones_like(p[:, :1]), 1 - p[:, :-1]], 1)
        columns = tf.transpose(passed), tf.transpose(before)
        reached = tf.scan(lambda so_far, at: at[0] * so_far + at[1], columns, tf.zeros_like(p[:, 0]))
        return p * tf.transpose(reached)
    if mode == "parallel":
        passed = safe_cumprod(1 - p, axis=1, exclusive=True)
        return p * passed * tf.cumsum(before / tf.clip_by_value(passed, 1e-10, 1.0), axis=1)
    if mode == "hard":
        p *= tf.cumsum(before, axis=1)
        return p * tf.cumprod(1 - p, axis=1, exclusive=True)
    raise ValueError(f"mode must be one of {_MODES}, got {mode!r}")


class _Monotonic:
    """What the two kinds share: a bias of the scores, noise, and where attention begins."""

    _noise: float
    _seed: int | None
    _bias: float
    _mode: str
    _positions: Any

    def _set_monotonic(self, noise: float, seed: int | None, bias: float, mode: str) -> None:
        if mode not in _MODES:
            raise ValueError(f"mode must be one of {_MODES}, got {mode!r}")
        self._noise, self._seed, self._bias, self._mode = noise, seed, bias, mode

    def _chosen(self, scores: TensorLike, before: TensorLike) -> Any:
        if self._noise > 0:
            scores += self._noise * tf.random_normal(tf.shape(scores), dtype=scores.dtype, seed=self._seed)
        p = tf.cast(scores > 0, scores.dtype) if self._mode == "hard" else tf.sigmoid(scores)
        return monotonic_attention(p, before, self._mode)

    def _biased(self, scores: TensorLike) -> Any:
        start = tf.constant_initializer(self._bias)
        return scores + tf.get_variable("attention_score_bias", (), scores.dtype, start)

    def initial_alignments(self, batch_size: TensorLike, dtype: DTypeLike) -> tf.Tensor:
        """The alignments before the first step: all at the first position, [batch, positions]."""
        return tf.one_hot(tf.zeros([batch_size], tf.int32), self._positions, dtype=dtype)


class BahdanauMonotonicAttention(_Monotonic, BahdanauAttention):
    """Monotonic attention by the scores of `BahdanauAttention`.

    Args:
        num_units, memory, memory_sequence_length, normalize, score_mask_value, dtype, name: as of `BahdanauAttention`.
        sigmoid_noise: the standard deviation of noise that is added to the scores, so that training leads to
            probabilities near 0 and 1.
        sigmoid_noise_seed: of the noise.
        score_bias_init: the first value of the scores' bias; a negative one for long memories.
        mode: see `monotonic_attention`; "hard" for inference.

    Raises:
        ValueError: `mode` is not known; and as `BahdanauAttention`.
    """

    def __init__(
        self,
        num_units: int,
        memory: TensorLike,
        memory_sequence_length: TensorLike | None = None,
        normalize: bool = False,
        score_mask_value: float | None = None,
        sigmoid_noise: float = 0.0,
        sigmoid_noise_seed: int | None = None,
        score_bias_init: float = 0.0,
        mode: str = "parallel",
        dtype: DTypeLike | None = None,
        name: str = "BahdanauMonotonicAttention",
    ) -> None:
        self._set_monotonic(sigmoid_noise, sigmoid_noise_seed, score_bias_init, mode)
        super().__init__(
            num_units, memory, memory_sequence_length, normalize, None, score_mask_value, dtype, None, name
        )
        self._probability_fn = self._chosen

    def __call__(self, query: TensorLike, state: TensorLike) -> tuple[Any, Any]:
        with tf.variable_scope(None, "bahdanau_monotonic_attention", [query]):
            alignments = self._alignments(self._biased(self.score(query)), state)
        return alignments, alignments


class LuongMonotonicAttention(_Monotonic, LuongAttention):
    """Monotonic attention by the scores of `LuongAttention`.

    Args:
        num_units, memory, memory_sequence_length, scale, score_mask_value, dtype, name: as of `LuongAttention`.
        sigmoid_noise, sigmoid_noise_seed, score_bias_init, mode: as of `BahdanauMonotonicAttention`.

    Raises:
        ValueError: `mode` is not known; and as `LuongAttention`.
    """

    def __init__(
        self,
        num_units: int,
        memory: TensorLike,
        memory_sequence_length: TensorLike | None = None,
        scale: bool = False,
        score_mask_value: float | None = None,
        sigmoid_noise: float = 0.0,
        sigmoid_noise_seed: int | None = None,
        score_bias_init: float = 0.0,
        mode: str = "parallel",
        dtype: DTypeLike | None = None,
        name: str = "LuongMonotonicAttention",
    ) -> None:
        self._set_monotonic(sigmoid_noise, sigmoid_noise_seed, score_bias_init, mode)
        super().__init__(num_units, memory, memory_sequence_length, scale, None, score_mask_value, dtype, None, name)
        self._probability_fn = self._chosen

    def __call__(self, query: TensorLike, state: TensorLike) -> tuple[Any, Any]:
        with tf.variable_scope(None, "luong_monotonic_attention", [query]):
            alignments = self._alignments(self._biased(self.score(query)), state)
        return alignments, alignments
