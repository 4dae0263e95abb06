"""`tf.contrib.legacy_seq2seq`: decoders over lists of tensors that attend to what an encoder gave.

Heads score the positions of a memory, [batch, length, depth], by a network of one hidden layer (Bahdanau's) from the
cell's state, and read the memory's weighted mean, which enters the cell's next input and the output. Variables have the
names and the shapes that TensorFlow gives them, so that its checkpoints fit.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any, NamedTuple

import anabranch as tf
from anabranch.contrib.arguments import DTypeLike, ScopeLike, TensorLike
from anabranch.contrib.legacy_decoders import (
    CellOfSymbols,
    CellWithLogits,
    LoopFunction,
    check_projection,
    either_way,
    likeliest_symbol,
)
from anabranch.contrib.rnn_projections import linear


class _Attended(NamedTuple):
    """What is attended to: the states, as pictures of one column, and for each head their features and its vector."""

    states: Any
    length: Any
    depth: int
    features: list[Any]
    vectors: list[Any]


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
    """Runs a cell over inputs, or over what follows from its own outputs, and attends to states in each step.

    Args:
        decoder_inputs: list of [batch, input size].
        initial_state: the cell's state, [batch, size], or a structure of such.
        attention_states: float [batch, length, depth]; the depth is known.
        output_size: of the outputs; default that of the cell.
        num_heads: how many heads read `attention_states`.
        loop_function: called as f(previous output, step) for all steps but the first: its result, [batch, input size],
            takes the place of the input.
        dtype: of what is computed; default that of `scope`, float32.
        scope: variable scope; default "attention_decoder".
        initial_state_attention: whether the first step reads the memory by `initial_state`, instead of zeros.

    Returns:
        (list of outputs [batch, output_size], last state).

    Raises:
        ValueError: there are no inputs or no heads, or the depth or the size of an input is not known.
    """
    if not decoder_inputs:
        raise ValueError("Must provide at least 1 input to attention decoder.")
    if num_heads < 1:
        raise ValueError("With less than 1 heads, use a non-attention decoder: rnn_decoder.")
    memory_states: Any = tf.convert_to_tensor(attention_states)
    if memory_states.shape.ndims != 3 or memory_states.shape[2].value is None:
        raise ValueError(f"Shape[2] of attention_states must be known: {memory_states.shape}")
    with tf.variable_scope(scope or "attention_decoder", dtype=dtype) as opened:
        kind = opened.dtype
        memory = _memory(memory_states, num_heads, kind)
        batch = tf.shape(decoder_inputs[0])[0]
        reads = [_zeros(batch, memory.depth, kind) for _ in range(num_heads)]
        if initial_state_attention:
            reads = _attend(memory, initial_state, kind)
        state, outputs = initial_state, list[Any]()
        for step, given in enumerate(map(tf.convert_to_tensor, decoder_inputs)):
            if step:
                tf.get_variable_scope().reuse_variables()
            if loop_function is not None and step:
                with tf.variable_scope("loop_function", reuse=True):
                    given = loop_function(outputs[-1], step)
            inputs = [tf.cast(part, kind) for part in (given, *reads)]
            output, state = cell(linear(inputs, _size(given)), state)
            with tf.variable_scope(tf.get_variable_scope(), reuse=True if step or initial_state_attention else None):
                reads = _attend(memory, state, kind)
            with tf.variable_scope("AttnOutputProjection"):
                size = cell.output_size if output_size is None else output_size
                outputs.append(linear([tf.cast(output, kind), *reads], size))
        return outputs, state


def _memory(states: tf.Tensor, num_heads: int, dtype: DTypeLike) -> _Attended:
    _, steps, known = states.shape.as_list()
    depth = int(known or 0)  # it is known: the caller has looked
    length: Any = tf.shape(states)[1] if steps is None else steps
    column = tf.reshape(states, [-1, length, 1, depth])
    features, vectors = [], []
    for head in range(num_heads):
        weights = tf.get_variable(f"AttnW_{head}", [1, 1, depth, depth], dtype=dtype)
        features.append(tf.nn.conv2d(column, weights, [1, 1, 1, 1], "SAME"))
        vectors.append(tf.get_variable(f"AttnV_{head}", [depth], dtype=dtype))
    return _Attended(column, length, depth, features, vectors)


def _zeros(batch: TensorLike, depth: int, dtype: DTypeLike) -> Any:
    value = tf.zeros(tf.stack([batch, depth]), dtype=dtype)
    value.set_shape([None, depth])
    return value


def _size(value: TensorLike) -> int:
    size = value.shape.with_rank(2)[1].value
    if size is None:
        raise ValueError(f"Could not infer input size from input: {value.name}")
    return int(size)


def _attend(memory: _Attended, state: tf.nest.Structure, dtype: DTypeLike) -> list[Any]:
    """What each head reads, [batch, depth]."""
    query = tf.concat(tf.nest.flatten(state), 1)
    reads = []
    for head, (features, vector) in enumerate(zip(memory.features, memory.vectors, strict=True)):
        with tf.variable_scope(f"Attention_{head}"):
            hidden = tf.cast(tf.reshape(linear(query, memory.depth), [-1, 1, 1, memory.depth]), dtype)
            scores = tf.reduce_sum(vector * tf.tanh(features + hidden), [2, 3])
            shares = tf.cast(tf.nn.softmax(tf.cast(scores, tf.float32)), dtype)
            read = tf.reduce_sum(tf.reshape(shares, [-1, memory.length, 1, 1]) * memory.states, [1, 2])
            reads.append(tf.reshape(read, [-1, memory.depth]))
    return reads


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
        output_projection: (weights [output size, num_symbols], biases [num_symbols]) that make logits of outputs.
        feed_previous: whether each symbol after the first is the likeliest one that the step before gave.
        update_embedding_for_previous: whether gradients reach the embedding through symbols that were fed back.
        scope: variable scope; default "embedding_attention_decoder".

    Returns:
        (list of outputs [batch, output_size], last state).

    Raises:
        ValueError: the projection's shapes do not fit; see also `attention_decoder`.
    """
    if output_projection is not None:
        check_projection(output_projection, num_symbols)
    with tf.variable_scope(scope or "embedding_attention_decoder", dtype=dtype):
        embedding = tf.get_variable("embedding", [num_symbols, embedding_size])
        following = None
        if feed_previous:
            following = likeliest_symbol(embedding, output_projection, update_embedding_for_previous)
        return attention_decoder(
            [tf.nn.embedding_lookup(embedding, symbols) for symbols in decoder_inputs],
            initial_state,
            attention_states,
            cell,
            output_size,
            num_heads,
            following,
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
    """Encodes symbols, and decodes others while it attends to the encoder's outputs; two cells like `cell`.

    Args:
        encoder_inputs, decoder_inputs: lists of int32 [batch].
        output_projection: see `embedding_attention_decoder`; None: the decoder's outputs are logits.
        feed_previous: bool, or a boolean scalar tensor that decides in each step; with a tensor no gradients reach the
            embedding through symbols that were fed back.
        dtype: of the encoder's first state; default that of `scope`, float32.
        scope: variable scope; default "embedding_attention_seq2seq".

    Returns:
        (list of outputs [batch, num_decoder_symbols], or the cell's outputs with a projection; last state).
    """
    with tf.variable_scope(scope or "embedding_attention_seq2seq", dtype=dtype) as opened:
        encoder = CellOfSymbols(copy.deepcopy(cell), num_encoder_symbols, embedding_size)
        encoded, state = tf.nn.static_rnn(encoder, encoder_inputs, dtype=opened.dtype)
        memory = tf.concat([tf.reshape(output, [-1, 1, cell.output_size]) for output in encoded], 1)
        size = None if output_projection is not None else num_decoder_symbols
        decoder = cell if size is None else CellWithLogits(cell, num_decoder_symbols)

        def decoded(feed: bool) -> tuple[list[Any], Any]:
            return embedding_attention_decoder(
                decoder_inputs,
                state,
                memory,
                decoder,
                num_decoder_symbols,
                embedding_size,
                num_heads,
                size,
                output_projection,
                feed,
                update_embedding_for_previous=isinstance(feed_previous, bool),
                initial_state_attention=initial_state_attention,
            )

        return either_way(decoded, feed_previous)
