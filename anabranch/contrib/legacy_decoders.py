"""`tf.contrib.legacy_seq2seq`: sequence-to-sequence networks over lists of tensors, those without attention.

A sequence is a list with one tensor per time step: [batch, depth], or [batch] of symbols (int32) to be embedded.
Networks are written out step by step; `tf.nn.dynamic_rnn` and `tf.nn.raw_rnn` make loops.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import anabranch as tf
from anabranch.contrib.arguments import DTypeLike, ScopeLike, TensorLike

#: from the last output and the number of its step to the next input
LoopFunction = Callable[[Any, int], Any]


# ---------------------------------------------------------------------- decoders
def rnn_decoder(
    decoder_inputs: Sequence[Any],
    initial_state: tf.nest.Structure,
    cell: tf.nn.rnn_cell.RNNCell,
    loop_function: LoopFunction | None = None,
    scope: ScopeLike | None = None,
) -> tuple[list[Any], Any]:
    """Runs a cell over inputs, or over what follows from its own outputs.

    Args:
        decoder_inputs: list of [batch, input size].
        initial_state: the cell's state, [batch, size].
        loop_function: called as f(previous output, step) for all steps but the first: its result, [batch, input size],
            takes the place of the input.
        scope: variable scope; default "rnn_decoder".

    Returns:
        (list of outputs [batch, output size], last state).
    """
    with tf.variable_scope(scope or "rnn_decoder"):
        state, outputs = initial_state, list[Any]()
        for step, given in enumerate(decoder_inputs):
            if step:
                tf.get_variable_scope().reuse_variables()
            if loop_function is not None and step:
                with tf.variable_scope("loop_function", reuse=True):
                    given = loop_function(outputs[-1], step)
            output, state = cell(given, state)
            outputs.append(output)
        return outputs, state


def embedding_rnn_decoder(
    decoder_inputs: Sequence[Any],
    initial_state: tf.nest.Structure,
    cell: tf.nn.rnn_cell.RNNCell,
    num_symbols: int,
    embedding_size: int,
    output_projection: tuple[Any, Any] | None = None,
    feed_previous: bool = False,
    update_embedding_for_previous: bool = True,
    scope: ScopeLike | None = None,
) -> tuple[list[Any], Any]:
    """`rnn_decoder` over symbols, which are embedded.

    Args:
        decoder_inputs: list of int32 [batch].
        output_projection: (weights [output size, num_symbols], biases [num_symbols]) that make logits of outputs.
        feed_previous: whether each symbol after the first is the likeliest one that the step before gave.
        update_embedding_for_previous: whether gradients reach the embedding through symbols that were fed back.
        scope: variable scope; default "embedding_rnn_decoder".

    Returns:
        (list of outputs, last state).

    Raises:
        ValueError: the projection's shapes do not fit.
    """
    with tf.variable_scope(scope or "embedding_rnn_decoder"):
        if output_projection is not None:
            check_projection(output_projection, num_symbols)
        embedding = tf.get_variable("embedding", [num_symbols, embedding_size])
        likeliest = (
            likeliest_symbol(embedding, output_projection, update_embedding_for_previous) if feed_previous else None
        )
        inputs = [tf.nn.embedding_lookup(embedding, symbols) for symbols in decoder_inputs]
        return rnn_decoder(inputs, initial_state, cell, likeliest)


def check_projection(output_projection: tuple[Any, Any], num_symbols: int) -> None:
    weights, biases = map(tf.convert_to_tensor, output_projection)
    weights.get_shape().assert_is_compatible_with([None, num_symbols])
    biases.get_shape().assert_is_compatible_with([num_symbols])


def likeliest_symbol(embedding: TensorLike, output_projection: tuple[Any, Any] | None, update: bool) -> LoopFunction:
    """Maps an output to the embedding of the symbol to which it gives the largest logit."""

    def following(previous: tf.Tensor, _: int) -> Any:
        if output_projection is not None:
            previous = tf.nn.xw_plus_b(previous, *output_projection)
        embedded = tf.nn.embedding_lookup(embedding, tf.argmax(previous, 1))
        return embedded if update else tf.stop_gradient(embedded)

    return following


# ---------------------------------------------------------------------- encoders and decoders
def basic_rnn_seq2seq(
    encoder_inputs: Sequence[Any],
    decoder_inputs: Sequence[Any],
    cell: tf.nn.rnn_cell.RNNCell,
    dtype: DTypeLike = tf.float32,
    scope: ScopeLike | None = None,
) -> tuple[list[Any], Any]:
    """Encodes a sequence into a state, from which another is decoded; two cells like `cell`.

    Args:
        encoder_inputs, decoder_inputs: lists of [batch, input size].
        dtype: of the encoder's first state.
        scope: variable scope; default "basic_rnn_seq2seq".

    Returns:
        (list of outputs [batch, output size], last state).
    """
    with tf.variable_scope(scope or "basic_rnn_seq2seq"):
        _, state = tf.nn.static_rnn(copy.deepcopy(cell), encoder_inputs, dtype=dtype)
        return rnn_decoder(decoder_inputs, state, cell)


def tied_rnn_seq2seq(
    encoder_inputs: Sequence[Any],
    decoder_inputs: Sequence[Any],
    cell: tf.nn.rnn_cell.RNNCell,
    loop_function: LoopFunction | None = None,
    dtype: DTypeLike = tf.float32,
    scope: ScopeLike | None = None,
) -> tuple[list[Any], Any]:
    """`basic_rnn_seq2seq` with one cell, hence the same weights, for both.

    Args:
        loop_function: see `rnn_decoder`.
        scope: variable scope, inside of "combined_tied_rnn_seq2seq"; default "tied_rnn_seq2seq".
    """
    with tf.variable_scope("combined_tied_rnn_seq2seq"):
        scope = scope or "tied_rnn_seq2seq"
        _, state = tf.nn.static_rnn(cell, encoder_inputs, dtype=dtype, scope=scope)
        tf.get_variable_scope().reuse_variables()
        return rnn_decoder(decoder_inputs, state, cell, loop_function, scope)


def embedding_rnn_seq2seq(
    encoder_inputs: Sequence[Any],
    decoder_inputs: Sequence[Any],
    cell: tf.nn.rnn_cell.RNNCell,
    num_encoder_symbols: int,
    num_decoder_symbols: int,
    embedding_size: int,
    output_projection: tuple[Any, Any] | None = None,
    feed_previous: TensorLike = False,
    dtype: DTypeLike | None = None,
    scope: ScopeLike | None = None,
) -> tuple[list[Any], Any]:
    """`basic_rnn_seq2seq` over symbols.

    Args:
        encoder_inputs, decoder_inputs: lists of int32 [batch].
        output_projection: see `embedding_rnn_decoder`; None: the decoder's outputs are logits.
        feed_previous: bool, or a boolean scalar tensor that decides in each step.
        dtype: of the encoder's first state; default that of `scope`, float32.
        scope: variable scope; default "embedding_rnn_seq2seq".

    Returns:
        (list of outputs [batch, num_decoder_symbols], or the cell's outputs with a projection; last state).
    """
    with tf.variable_scope(scope or "embedding_rnn_seq2seq") as opened:
        dtype = dtype or opened.dtype
        state = _encoded(copy.deepcopy(cell), encoder_inputs, num_encoder_symbols, embedding_size, dtype)
        cell = cell if output_projection is not None else CellWithLogits(cell, num_decoder_symbols)

        def decoded(feed: bool) -> tuple[list[Any], Any]:
            return embedding_rnn_decoder(
                decoder_inputs, state, cell, num_decoder_symbols, embedding_size, output_projection, feed
            )

        return either_way(decoded, feed_previous)


def embedding_tied_rnn_seq2seq(
    encoder_inputs: Sequence[Any],
    decoder_inputs: Sequence[Any],
    cell: tf.nn.rnn_cell.RNNCell,
    num_symbols: int,
    embedding_size: int,
    num_decoder_symbols: int | None = None,
    output_projection: tuple[Any, Any] | None = None,
    feed_previous: TensorLike = False,
    dtype: DTypeLike | None = None,
    scope: ScopeLike | None = None,
) -> tuple[list[Any], Any]:
    """`tied_rnn_seq2seq` over symbols, with one embedding for both sequences.

    Args:
        num_decoder_symbols: how many symbols the outputs tell apart; default `num_symbols`.
        output_projection, feed_previous, dtype: see `embedding_rnn_seq2seq`.
        scope: variable scope; default "embedding_tied_rnn_seq2seq".
    """
    with tf.variable_scope(scope or "embedding_tied_rnn_seq2seq") as opened:
        kind = dtype or opened.dtype
        if output_projection is not None:
            check_projection(output_projection, num_symbols)
        embedding = tf.get_variable("embedding", [num_symbols, embedding_size], dtype=kind)
        sources, targets = (
            [tf.nn.embedding_lookup(embedding, symbols) for symbols in inputs]
            for inputs in (encoder_inputs, decoder_inputs)
        )
        symbols = num_decoder_symbols if num_decoder_symbols is not None else num_symbols
        cell = cell if output_projection is not None else CellWithLogits(cell, symbols)
        likeliest = likeliest_symbol(embedding, output_projection, True)

        def decoded(feed: bool) -> tuple[list[Any], Any]:
            return tied_rnn_seq2seq(sources, targets, cell, likeliest if feed else None, kind)

        return either_way(decoded, feed_previous)


def one2many_rnn_seq2seq(
    encoder_inputs: Sequence[Any],
    decoder_inputs_dict: Mapping[str, Sequence[Any]],
    enc_cell: tf.nn.rnn_cell.RNNCell,
    dec_cells_dict: Mapping[str, Any],
    num_encoder_symbols: int,
    num_decoder_symbols_dict: Mapping[str, int],
    embedding_size: int,
    feed_previous: TensorLike = False,
    dtype: DTypeLike = tf.float32,
    scope: ScopeLike | None = None,
) -> tuple[dict[str, list[Any]], dict[str, Any]]:
    """One encoder and several decoders, each by its name.

    Args:
        scope: variable scope; default "one2many_rnn_seq2seq". A decoder's is "one2many_decoder_" and its name.

    Returns:
        (name -> list of logits [batch, symbols], name -> last state).
    """
    outputs, states = {}, {}
    with tf.variable_scope(scope or "one2many_rnn_seq2seq"):
        state = _encoded(enc_cell, encoder_inputs, num_encoder_symbols, embedding_size, dtype)
        for name, inputs in decoder_inputs_dict.items():
            symbols = num_decoder_symbols_dict[name]
            with tf.variable_scope(f"one2many_decoder_{name}"):
                cell = CellWithLogits(dec_cells_dict[name], symbols)

                def decoded(
                    feed: bool,
                    cell: tf.nn.rnn_cell.RNNCell = cell,
                    inputs: tf.nest.Structure = inputs,
                    symbols: int = symbols,
                ) -> Any:
                    return embedding_rnn_decoder(inputs, state, cell, symbols, embedding_size, feed_previous=feed)

                outputs[name], states[name] = either_way(decoded, feed_previous)
    return outputs, states


def _encoded(cell: tf.nn.rnn_cell.RNNCell, inputs: Sequence[Any], symbols: int, size: int, dtype: DTypeLike) -> Any:
    """The last state of a cell that runs over symbols."""
    _, state = tf.nn.static_rnn(CellOfSymbols(cell, symbols, size), inputs, dtype=dtype)
    return state


def either_way(decoded: Callable[[bool], tuple[list[Any], Any]], feed_previous: TensorLike) -> tuple[list[Any], Any]:
    """What a decoder gives with or without its outputs being fed back; a tensor decides in each step."""
    if isinstance(feed_previous, bool):
        return decoded(feed_previous)
    structure: list[Any] = []

    def branch(feed: bool) -> list[Any]:
        with tf.variable_scope(tf.get_variable_scope(), reuse=True if structure else None):
            structure[:] = [decoded(feed)]
        return list(tf.nest.flatten(structure[0]))

    chosen = tf.nest.pack_sequence_as(structure, tf.cond(feed_previous, lambda: branch(True), lambda: branch(False)))
    outputs, state = chosen[0]
    return list(outputs), state


# ---------------------------------------------------------------------- cells
class _Around(tf.nn.rnn_cell.RNNCell):
    """A cell around another."""

    def __init__(self, cell: tf.nn.rnn_cell.RNNCell) -> None:
        super().__init__()
        self._cell = cell

    @property
    def state_size(self) -> Any:
        return self._cell.state_size

    @property
    def output_size(self) -> Any:
        return self._cell.output_size

    def zero_state(self, batch_size: TensorLike, dtype: DTypeLike) -> Any:
        return self._cell.zero_state(batch_size, dtype)


class CellOfSymbols(_Around):
    """Takes symbols."""

    def __init__(self, cell: tf.nn.rnn_cell.RNNCell, symbols: int, size: int) -> None:
        super().__init__(cell)
        self._shape = [symbols, size]

    def __call__(self, inputs: tf.nest.Structure, state: tf.nest.Structure, scope: ScopeLike | None = None) -> Any:
        with tf.variable_scope(scope or "embedding_wrapper"):
            embedding = tf.get_variable("embedding", self._shape)
        return self._cell(tf.nn.embedding_lookup(embedding, tf.reshape(inputs, [-1])), state)


class CellWithLogits(_Around):
    """Gives a logit for each symbol."""

    def __init__(self, cell: tf.nn.rnn_cell.RNNCell, symbols: int) -> None:
        super().__init__(cell)
        self._symbols = symbols

    @property
    def output_size(self) -> int:
        return self._symbols

    def __call__(self, inputs: tf.nest.Structure, state: tf.nest.Structure, scope: ScopeLike | None = None) -> Any:
        output, state = self._cell(inputs, state)
        with tf.variable_scope(scope or "output_projection_wrapper"):
            kernel = tf.get_variable("kernel", [output.shape[1], self._symbols])
            bias = tf.get_variable("bias", [self._symbols], initializer=tf.zeros_initializer())
        return tf.nn.bias_add(tf.matmul(output, kernel), bias), state


# ---------------------------------------------------------------------- losses
def sequence_loss_by_example(
    logits: Sequence[Any],
    targets: Sequence[Any],
    weights: Sequence[Any],
    average_across_timesteps: bool = True,
    softmax_loss_function: Callable[..., Any] | None = None,
    name: str | None = None,
) -> tf.Tensor:
    """The weighted cross-entropy of each sequence, [batch].

    Args:
        logits: list of [batch, symbols].
        targets: list of int32 [batch].
        weights: list of float [batch].
        average_across_timesteps: whether to divide by the sum of a sequence's weights.
        softmax_loss_function: called with `labels` and `logits`; default sparse softmax cross-entropy.

    Raises:
        ValueError: the lists have different lengths.
    """
    if len(targets) != len(logits) or len(weights) != len(logits):
        raise ValueError(
            "Lengths of logits, weights, and targets must be the same: "
            f"{len(logits)}, {len(weights)}, {len(targets)}; give one tensor of each per time step"
        )
    loss_of = softmax_loss_function or tf.nn.sparse_softmax_cross_entropy_with_logits
    with tf.name_scope(name, "sequence_loss_by_example", [*logits, *targets, *weights]):
        terms = []
        for logit, target, weight in zip(logits, targets, weights, strict=True):
            labels = target if softmax_loss_function else tf.reshape(target, [-1])
            terms.append(loss_of(labels=labels, logits=logit) * weight)
        total = tf.add_n(terms)
        return total / (tf.add_n(list(weights)) + 1e-12) if average_across_timesteps else total


def sequence_loss(
    logits: Sequence[Any],
    targets: Sequence[Any],
    weights: Sequence[Any],
    average_across_timesteps: bool = True,
    average_across_batch: bool = True,
    softmax_loss_function: Callable[..., Any] | None = None,
    name: str | None = None,
) -> tf.Tensor:
    """The sum of `sequence_loss_by_example` over the batch, a scalar; divided by the batch size by default."""
    with tf.name_scope(name, "sequence_loss", [*logits, *targets, *weights]):
        losses = sequence_loss_by_example(logits, targets, weights, average_across_timesteps, softmax_loss_function)
        total = tf.reduce_sum(losses)
        return total / tf.cast(tf.shape(targets[0])[0], total.dtype) if average_across_batch else total


def model_with_buckets(
    encoder_inputs: Sequence[Any],
    decoder_inputs: Sequence[Any],
    targets: Sequence[Any],
    weights: Sequence[Any],
    buckets: Sequence[tuple[int, int]],
    seq2seq: Callable[[Sequence[Any], Sequence[Any]], tuple[list[Any], Any]],
    softmax_loss_function: Callable[..., Any] | None = None,
    per_example_loss: bool = False,
    name: str | None = None,
) -> tuple[list[list[Any]], list[Any]]:
    """One network per bucket (length of the input, length of the output), all with the same variables.

    Args:
        seq2seq: from encoder and decoder inputs to (outputs, state).
        per_example_loss: whether the losses are [batch] instead of scalars.

    Returns:
        (outputs of each bucket, loss of each bucket).

    Raises:
        ValueError: a bucket is longer than the sequences.
    """
    for what, given, longest in (
        ("encoder_inputs", encoder_inputs, max(source for source, _ in buckets)),
        ("targets", targets, max(target for _, target in buckets)),
        ("weights", weights, max(target for _, target in buckets)),
    ):
        if len(given) < longest:
            raise ValueError(f"Length of {what} ({len(given)}) must be at least that of the last bucket ({longest}).")
    loss_of = sequence_loss_by_example if per_example_loss else sequence_loss
    outputs, losses = [], []
    with tf.name_scope(name, "model_with_buckets", [*encoder_inputs, *decoder_inputs, *targets, *weights]):
        for number, (source, target) in enumerate(buckets):
            with tf.variable_scope(tf.get_variable_scope(), reuse=True if number else None):
                result, _ = seq2seq(encoder_inputs[:source], decoder_inputs[:target])
            outputs.append(result)
            losses.append(
                loss_of(result, targets[:target], weights[:target], softmax_loss_function=softmax_loss_function)
            )
    return outputs, losses
