"""`tf.contrib.seq2seq`: how much each position of a memory is attended to, by the scores of Bahdanau and Luong."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

import anabranch as tf
from anabranch.contrib.arguments import DTypeLike, ShapeLike, TensorLike


class AttentionMechanism:
    """What `AttentionWrapper` asks of a mechanism: `alignments, next_state = mechanism(query, state)`."""

    @property
    def alignments_size(self) -> TensorLike:
        """The number of positions of the memory: an int where it is known."""
        raise NotImplementedError

    @property
    def state_size(self) -> TensorLike:
        """The size of the mechanism's state."""
        raise NotImplementedError


class BaseAttentionMechanism(AttentionMechanism):
    """A memory whose positions are scored against queries; the scores become probabilities.

    Args:
        query_layer: a layer that is applied to the queries, or None.
        memory: [batch, positions, ...]: what is attended to.
        probability_fn: (scores [batch, positions], the state) -> alignments [batch, positions].
        memory_sequence_length: int [batch]: positions from there on are zeros that no query attends to; None: no limit.
        memory_layer: a layer that makes keys of the memory, or None.
        check_inner_dims_defined: whether the sizes after the second must be known.
        score_mask_value: the score of positions beyond a sequence; default: -infinity.
        custom_key_value_fn: (keys, values) -> (keys, values), in the end.
        name: name scope of the operations.

    Raises:
        TypeError: a layer is none, `probability_fn` cannot be called.
        ValueError: an inner size of the memory is not known, or `memory_sequence_length` has a wrong shape.
    """

    def __init__(
        self,
        query_layer: tf.layers.Layer | None,
        memory: TensorLike,
        probability_fn: Callable[..., Any],
        memory_sequence_length: TensorLike | None = None,
        memory_layer: tf.layers.Layer | None = None,
        check_inner_dims_defined: bool = True,
        score_mask_value: float | None = None,
        custom_key_value_fn: Callable[..., Any] | None = None,
        name: str | None = None,
    ) -> None:
        for what, layer in (("query_layer", query_layer), ("memory_layer", memory_layer)):
            if layer is not None and not isinstance(layer, tf.layers.Layer):
                raise TypeError(f"{what} is not a Layer: {type(layer).__name__}")
        if not callable(probability_fn):
            raise TypeError(f"probability_fn must be callable, saw type: {type(probability_fn).__name__}")
        self.query_layer, self.memory_layer = query_layer, memory_layer
        self._probability_fn = probability_fn
        self._mask_value = -np.inf if score_mask_value is None else score_mask_value
        with tf.name_scope(name, "BaseAttentionMechanismInit", tf.nest.flatten(memory)):
            self._lengths: Any = None
            if memory_sequence_length is not None:
                self._lengths = tf.convert_to_tensor(memory_sequence_length, name="memory_sequence_length")
            self.values: Any = _prepared_memory(tf.convert_to_tensor(memory), self._lengths, check_inner_dims_defined)
            self.keys: Any = self.values if memory_layer is None else memory_layer(self.values)
            if custom_key_value_fn is not None:
                self.keys, self.values = custom_key_value_fn(self.keys, self.values)
            self._keys, self._values = self.keys, self.values  # by which libraries know them
            batch, positions = self.keys.shape.as_list()[:2]
            self.batch_size: Any = tf.shape(self.keys)[0] if batch is None else batch
            self._positions: Any = tf.shape(self.keys)[1] if positions is None else positions

    @property
    def alignments_size(self) -> TensorLike:
        return self._positions

    @property
    def state_size(self) -> TensorLike:
        return self._positions

    def initial_alignments(self, batch_size: TensorLike, dtype: DTypeLike) -> tf.Tensor:
        """The alignments before the first step: zeros [batch, positions]."""
        zeros: tf.Tensor = tf.zeros([batch_size, self._positions], dtype)
        return zeros

    def initial_state(self, batch_size: TensorLike, dtype: DTypeLike) -> tf.Tensor:
        """The state before the first step, [batch, positions]."""
        return self.initial_alignments(batch_size, dtype)

    def score(self, query: TensorLike) -> TensorLike:
        """The scores of all positions, [batch, positions]."""
        raise NotImplementedError

    def __call__(self, query: TensorLike, state: TensorLike) -> tuple[Any, Any]:
        """The alignments [batch, positions] of `query` [batch, depth], and the next state.

        Args:
            query: mostly the output of the decoder's cell.
            state: the mechanism's last state.
        """
        raise NotImplementedError

    def _alignments(self, scores: TensorLike, state: TensorLike) -> Any:
        return self._probability_fn(self._masked(scores), state)

    def _masked(self, scores: TensorLike) -> Any:
        if self._lengths is None:
            return scores
        mask = tf.sequence_mask(self._lengths, maxlen=tf.shape(scores)[1])
        return tf.where(mask, scores, tf.fill(tf.shape(scores), tf.cast(self._mask_value, scores.dtype)))


def _prepared_memory(memory: tf.Tensor, lengths: TensorLike | None, check_inner: bool) -> Any:
    """The memory with zeros beyond its sequences."""
    rank = memory.shape.ndims
    if check_inner and (rank is None or not memory.shape[2:].is_fully_defined()):
        raise ValueError(f"the sizes of the memory {memory.name} must be known from the third on, got {memory.shape}")
    if lengths is None:
        return memory
    if lengths.shape.ndims not in {None, 1}:
        raise ValueError(f"memory_sequence_length must be a vector [batch], got shape {lengths.shape}")
    mask = tf.sequence_mask(lengths, maxlen=tf.shape(memory)[1], dtype=memory.dtype)
    for _ in range((rank or 3) - 2):
        mask = tf.expand_dims(mask, -1)
    return memory * mask


def _softmax(scores: TensorLike, _: TensorLike) -> Any:
    return tf.nn.softmax(scores)


def _probability_of_scores(function: Callable[..., Any] | None) -> Callable[..., Any]:
    return _softmax if function is None else lambda scores, _: function(scores)


def _dense(units: int, name: str, dtype: DTypeLike) -> tf.layers.Dense:
    return tf.layers.Dense(units, name=name, use_bias=False, dtype=dtype)


def _dtype_of(memory: TensorLike, dtype: DTypeLike | None) -> Any:
    return tf.convert_to_tensor(memory).dtype if dtype is None else tf.as_dtype(dtype)


class LuongAttention(BaseAttentionMechanism):
    """Scores are products of the query and the keys (Luong et al. 2015, "dot" and "general").

    Args:
        num_units: the depth of keys and queries.
        memory: [batch, positions, ...].
        memory_sequence_length: int [batch], or None.
        scale: whether scores are multiplied by a variable, `attention_g`.
        probability_fn: scores -> alignments; default: softmax.
        score_mask_value: the score of positions beyond a sequence.
        dtype: of the layer; default: that of `memory`.
        custom_key_value_fn: (keys, values) -> (keys, values).
        name: name scope of the operations.

    Raises:
        ValueError: when called: the query's depth is not `num_units`.
    """

    def __init__(
        self,
        num_units: int,
        memory: TensorLike,
        memory_sequence_length: TensorLike | None = None,
        scale: bool = False,
        probability_fn: Callable[..., Any] | None = None,
        score_mask_value: float | None = None,
        dtype: DTypeLike | None = None,
        custom_key_value_fn: Callable[..., Any] | None = None,
        name: str = "LuongAttention",
    ) -> None:
        super().__init__(
            None,
            memory,
            _probability_of_scores(probability_fn),
            memory_sequence_length,
            _dense(num_units, "memory_layer", _dtype_of(memory, dtype)),
            True,
            score_mask_value,
            custom_key_value_fn,
            name,
        )
        self._num_units, self._scale = num_units, scale

    def score(self, query: TensorLike) -> TensorLike:
        depth, units = query.shape.as_list()[-1], self.keys.shape.as_list()[-1]
        if depth != units:
            raise ValueError(
                f"a query of depth {depth} ({query.name}) cannot be multiplied with keys of depth {units} "
                f"({self.keys.name}); let num_units be the number of units of the cell"
            )
        scores = tf.squeeze(tf.matmul(tf.expand_dims(query, 1), self.keys, transpose_b=True), [1])
        if not self._scale:
            return scores
        gain = tf.get_variable("attention_g", (), query.dtype, tf.ones_initializer())
        return gain * scores

    def __call__(self, query: TensorLike, state: TensorLike) -> tuple[Any, Any]:
        with tf.variable_scope(None, "luong_attention", [query]):
            alignments = self._alignments(self.score(query), state)
        return alignments, alignments


class BahdanauAttention(BaseAttentionMechanism):
    """Scores are made by a small network of query and key (Bahdanau et al. 2014).

    Args:
        num_units: the depth of that network.
        memory: [batch, positions, ...].
        memory_sequence_length: int [batch], or None.
        normalize: whether its last vector is normalized (Salimans and Kingma 2016), with `attention_g`, `attention_b`.
        probability_fn: scores -> alignments; default: softmax.
        score_mask_value: the score of positions beyond a sequence.
        dtype: of the layers; default: that of `memory`.
        custom_key_value_fn: (keys, values) -> (keys, values).
        name: name scope of the operations.
    """

    def __init__(
        self,
        num_units: int,
        memory: TensorLike,
        memory_sequence_length: TensorLike | None = None,
        normalize: bool = False,
        probability_fn: Callable[..., Any] | None = None,
        score_mask_value: float | None = None,
        dtype: DTypeLike | None = None,
        custom_key_value_fn: Callable[..., Any] | None = None,
        name: str = "BahdanauAttention",
    ) -> None:
        kind = _dtype_of(memory, dtype)
        super().__init__(
            _dense(num_units, "query_layer", kind),
            memory,
            _probability_of_scores(probability_fn),
            memory_sequence_length,
            _dense(num_units, "memory_layer", kind),
            True,
            score_mask_value,
            custom_key_value_fn,
            name,
        )
        self._num_units, self._normalize = num_units, normalize

    def score(self, query: TensorLike) -> TensorLike:
        return additive_score(self.query_layer, query, self.keys, self._num_units, self._normalize)

    def __call__(self, query: TensorLike, state: TensorLike) -> tuple[Any, Any]:
        with tf.variable_scope(None, "bahdanau_attention", [query]):
            alignments = self._alignments(self.score(query), state)
        return alignments, alignments


def additive_score(
    query_layer: tf.layers.Layer | None, query: TensorLike, keys: TensorLike, num_units: int, normalize: bool
) -> Any:
    """Bahdanau's scores [batch, positions] of a query [batch, depth], with variables of the current scope."""
    processed = tf.expand_dims(query if query_layer is None else query_layer(query), 1)
    v = tf.get_variable("attention_v", [num_units], query.dtype)
    if not normalize:
        return tf.reduce_sum(v * tf.tanh(keys + processed), 2)
    gain = tf.get_variable(
        "attention_g", (), query.dtype, tf.constant_initializer(math.sqrt(1.0 / num_units), dtype=query.dtype)
    )
    bias = tf.get_variable("attention_b", [num_units], query.dtype, tf.zeros_initializer())
    normed = gain * v * tf.rsqrt(tf.reduce_sum(tf.square(v)))
    return tf.reduce_sum(normed * tf.tanh(keys + processed + bias), 2)


def hardmax(logits: TensorLike, name: str | None = None) -> tf.Tensor:
    """One where a row has its largest value (the first of them), zeros elsewhere.

    Args:
        logits: [batch, depth].

    Returns:
        The same shape and dtype.
    """
    with tf.name_scope(name, "Hardmax", [logits]):
        logits = tf.convert_to_tensor(logits, name="logits")
        depth: ShapeLike = logits.shape.as_list()[-1]
        size = tf.shape(logits)[-1] if depth is None else depth
        return tf.one_hot(tf.argmax(logits, -1), size, dtype=logits.dtype)
