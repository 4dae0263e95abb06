"""`tf.contrib.legacy_seq2seq`: decoders that look back at what was encoded (Bahdanau et al. 2015, Vinyals et al. 2015).

Sequences are lists, as in `legacy_decoders`. Variables have TensorFlow's names, so that its checkpoints can be read.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import anabranch as tf
from anabranch.contrib.arguments import DTypeLike, ScopeLike, TensorLike
from anabranch.contrib.legacy_decoders import (
    CellWithEmbedding,
    CellWithLogits,
    LoopFunction,
    check_projection,
    either_way,
    likeliest_symbol,
)
from anabranch.contrib.rnn_projections import linear


def attention_decoder(
    decoder_inputs: Sequence[Any],
    initial_state: tf.nest.Structure,
    attention_states: TensorLike,
    cell: tf.nn.rnn_cell.RNNCell,
    output_size: int | None = None,
    num_heads: int = 1,
    loop_function: LoopFunction | None = None,
    dtype: DTypeLike | None = None,
    scope: ScopeLike | None = None,
    initial_state_attention: bool = False,
) -> tuple[list[Any], Any]:
    """Runs a cell whose input and output are joined, in every step, with a weighted mean of what was encoded.

    Args:
        decoder_inputs: list of [batch, input size].
        initial_state: the cell's state.
        attention_states: [batch, length, size], where size is known.
        output_size: of the outputs; default: that of the cell.
        num_heads: how many means there are.
        loop_function: see `rnn_decoder`.
        dtype: of the variables; default that of `scope`, float32.
        scope: variable scope; default "attention_decoder".
        initial_state_attention: whether the first step looks at what was encoded, too, and not at zeros.

    Returns:
        (list of outputs [batch, output size], last state).

    Raises:
        ValueError: there are no inputs, fewer heads than one, or a size is not known.
    """
    if not decoder_inputs:
        raise ValueError("Must provide at least 1 input to attention decoder.")
    if num_heads < 1:
        raise ValueError("With less than 1 heads, use a non-attention decoder.")
    states: Any = tf.convert_to_tensor(attention_states)
    if states.shape.ndims != 3 or states.shape[2].value is None:
        raise ValueError(f"Shape[2] of attention_states must be known: {states.shape}")
    size = cell.output_size if output_size is None else output_size
    with tf.variable_scope(scope or "attention_decoder", dtype=dtype) as opened:
        attention = _Attention(states, num_heads, tf.as_dtype(opened.dtype))
        means = attention(initial_state) if initial_state_attention else attention.zeros(decoder_inputs[0])
        state, outputs = initial_state, list[Any]()
        for step, given in enumerate(decoder_inputs):
            if step:
                tf.get_variable_scope().reuse_variables()
            if loop_function is not None and step:
                with tf.variable_scope("loop_function", reuse=True):
                    given = loop_function(outputs[-1], step)
            width = tf.convert_to_tensor(given).shape.with_rank(2)[1].value
            if width is None:
                raise ValueError(f"Could not infer input size from input: {given}")
            output, state = cell(_linear([given, *means], width), state)
            with tf.variable_scope(tf.get_variable_scope(), reuse=True if step or initial_state_attention else None):
                means = attention(state)
            with tf.variable_scope("AttnOutputProjection"):
                outputs.append(_linear([output, *means], size))
        return outputs, state


class _Attention:
    """Weighted means of states [batch, length, size], for a query: the state of a cell."""

    def __init__(self, states: tf.Tensor, heads: int, dtype: tf.DType) -> None:
        self._states, self._dtype = tf.cast(states, dtype), dtype
        size: Any = states.shape.as_list()[2]  # which is known
        self._size: int = size
        self._heads = [
            (
                # a convolution of one pixel, as TensorFlow has it in its checkpoints
                tf.get_variable(f"AttnW_{head}", [1, 1, self._size, self._size], dtype=dtype),
                tf.get_variable(f"AttnV_{head}", [self._size], dtype=dtype),
            )
            for head in range(heads)
        ]
        self._features = [
            tf.tensordot(self._states, tf.reshape(weights, [self._size, self._size]), 1) for weights, _ in self._heads
        ]

    def zeros(self, like: TensorLike) -> list[tf.Tensor]:
        """What is looked at before the first step: nothing, for as many examples."""
        empty = tf.zeros([tf.shape(like)[0], self._size], self._dtype)
        empty.set_shape([None, self._size])
        return [empty] * len(self._heads)

    def __call__(self, query: tf.nest.Structure) -> list[tf.Tensor]:
        found = []
        for head, (features, (_, vector)) in enumerate(zip(self._features, self._heads, strict=True)):
            with tf.variable_scope(f"Attention_{head}"):
                wanted = _linear(tf.nest.flatten(query), self._size)
                scores = tf.reduce_sum(vector * tf.tanh(features + wanted[:, tf.newaxis, :]), 2)
                weights = tf.cast(tf.nn.softmax(tf.cast(scores, tf.float32)), self._dtype)
                found.append(tf.reduce_sum(weights[:, :, tf.newaxis] * self._states, 1))
        return found


def _linear(inputs: Sequence[Any], size: int) -> Any:
    """A linear layer over tensors side by side, in the dtype of the open scope, where its variables stand."""
    dtype = tf.get_variable_scope().dtype
    return linear([tf.cast(one, dtype) for one in inputs], size)


def embedding_attention_decoder(
    decoder_inputs: Sequence[Any],
    initial_state: tf.nest.Structure,
    attention_states: TensorLike,
    cell: tf.nn.rnn_cell.RNNCell,
    num_symbols: int,
    embedding_size: int,
    num_heads: int = 1,
    output_size: int | None = None,
    output_projection: tuple[Any, Any] | None = None,
    feed_previous: bool = False,
    update_embedding_for_previous: bool = True,
    dtype: DTypeLike | None = None,
    scope: ScopeLike | None = None,
    initial_state_attention: bool = False,
) -> tuple[list[Any], Any]:
    """`attention_decoder` over symbols, which are embedded.

    Args:
        decoder_inputs: list of int32 [batch].
        num_symbols, embedding_size: of the embedding.
        output_projection, feed_previous, update_embedding_for_previous: see `embedding_rnn_decoder`.
        scope: variable scope; default "embedding_attention_decoder".

    Returns:
        (list of outputs [batch, output size], last state).

    Raises:
        ValueError: the projection's shapes do not fit, or as for `attention_decoder`.
    """
    with tf.variable_scope(scope or "embedding_attention_decoder", dtype=dtype):
        if output_projection is not None:
            check_projection(output_projection, num_symbols)
        embedding = tf.get_variable("embedding", [num_symbols, embedding_size])
        likeliest = None
        if feed_previous:
            likeliest = likeliest_symbol(embedding, output_projection, update_embedding_for_previous)
        return attention_decoder(
            [tf.nn.embedding_lookup(embedding, symbols) for symbols in decoder_inputs],
            initial_state,
            attention_states,
            cell,
            output_size=cell.output_size if output_size is None else output_size,
            num_heads=num_heads,
            loop_function=likeliest,
            initial_state_attention=initial_state_attention,
        )


def embedding_attention_seq2seq(
    encoder_inputs: Sequence[Any],
    decoder_inputs: Sequence[Any],
    cell: tf.nn.rnn_cell.RNNCell,
    num_encoder_symbols: int,
    num_decoder_symbols: int,
    embedding_size: int,
    num_heads: int = 1,
    output_projection: tuple[Any, Any] | None = None,
    feed_previous: TensorLike = False,
    dtype: DTypeLike | None = None,
    scope: ScopeLike | None = None,
    initial_state_attention: bool = False,
) -> tuple[list[Any], Any]:
    """Encodes symbols, and decodes others while looking at what was encoded.

    Args:
        encoder_inputs, decoder_inputs: lists of int32 [batch].
        num_heads, initial_state_attention: see `attention_decoder`.
        output_projection: see `embedding_rnn_decoder`; None: the decoder's outputs are logits.
        feed_previous: bool, or a boolean scalar tensor that decides in each step.
        dtype: of the encoder's first state; default that of `scope`, float32.
        scope: variable scope; default "embedding_attention_seq2seq".

    Returns:
        (list of outputs [batch, num_decoder_symbols], or the cell's outputs with a projection; last state).
    """
    with tf.variable_scope(scope or "embedding_attention_seq2seq", dtype=dtype) as opened:
        encoder = CellWithEmbedding(copy.deepcopy(cell), num_encoder_symbols, embedding_size)
        encoded, state = tf.nn.static_rnn(encoder, encoder_inputs, dtype=dtype or opened.dtype)
        attention_states = tf.stack(encoded, 1)
        size = None if output_projection is not None else num_decoder_symbols
        decoder = cell if output_projection is not None else CellWithLogits(cell, num_decoder_symbols)
        is_chosen = isinstance(feed_previous, bool)

        def decoded(feed: bool) -> tuple[list[Any], Any]:
            return embedding_attention_decoder(
                decoder_inputs,
                state,
                attention_states,
                decoder,
                num_decoder_symbols,
                embedding_size,
                num_heads=num_heads,
                output_size=size,
                output_projection=output_projection,
                feed_previous=feed,
                update_embedding_for_previous=is_chosen,
                initial_state_attention=initial_state_attention,
            )

        return either_way(decoded, feed_previous)
