"""`tf.contrib.seq2seq.BeamSearchDecoder`: decoding that keeps the best few beginnings of each sequence."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import anabranch as tf
from anabranch.contrib.arguments import PassedOn, TensorLike
from anabranch.contrib.seq2seq_attention_wrapper import AttentionWrapperState
from anabranch.contrib.seq2seq_beams import gather_tree, gather_tree_from_array
from anabranch.contrib.seq2seq_decoders import Decoder


class BeamSearchDecoderState(NamedTuple):
    """The state of a `BeamSearchDecoder`.

    Attributes:
        cell_state: of the cell, [batch, beams, ...].
        log_probs: of the beams, [batch, beams].
        finished: whether they have ended, bool [batch, beams].
        lengths: of their sequences, int64 [batch, beams].
        accumulated_attention_probs: how much each position of a memory was attended to, [batch, beams, positions]; ()
            without a penalty of coverage.
    """

    cell_state: Any
    log_probs: Any
    finished: Any
    lengths: Any
    accumulated_attention_probs: Any


class BeamSearchDecoderOutput(NamedTuple):
    """What a step chose: scores, ids, and the beams that it went on from, each [batch, beams]."""

    scores: Any
    predicted_ids: Any
    parent_ids: Any


class FinalBeamSearchDecoderOutput(NamedTuple):
    """What `dynamic_decode` returns of a `BeamSearchDecoder`.

    Attributes:
        predicted_ids: int32 [batch, time, beams], the best beam first; [time, batch, beams] where time is major.
        beam_search_decoder_output: the outputs of the steps.
    """

    predicted_ids: Any
    beam_search_decoder_output: BeamSearchDecoderOutput


class BeamSearchDecoder(Decoder):
    """Keeps the `beam_width` likeliest beginnings of each sequence, and goes on from all of them.

    Encoders' outputs, states and lengths must be repeated for the beams (`tile_batch`).

    Args:
        cell: an `RNNCell`.
        embedding: ids -> inputs, or the `params` of `tf.nn.embedding_lookup`.
        start_tokens: int32 [batch].
        end_token: int32 scalar: ends a sequence.
        initial_state: of the cell, [batch * beam_width, ...].
        beam_width: int.
        output_layer: a `tf.layers.Layer` that makes logits [..., vocabulary] of the cell's outputs; None: they are.
        length_penalty_weight: log probabilities are divided by ((5 + length) / 6) to this power; 0: they are not.
        coverage_penalty_weight: of the logarithms of how much each position was attended to, for ended sequences.
        reorder_tensor_arrays: whether TensorArrays in the cell's state follow the beams in the end.

    Raises:
        TypeError: an argument is of another type.
        ValueError: a shape is wrong.
    """

    def __init__(
        self,
        cell: tf.nn.rnn_cell.RNNCell,
        embedding: Callable[..., Any] | TensorLike,
        start_tokens: TensorLike,
        end_token: TensorLike,
        initial_state: tf.nest.Structure,
        beam_width: int,
        output_layer: Callable[..., Any] | None = None,
        length_penalty_weight: TensorLike = 0.0,
        coverage_penalty_weight: TensorLike = 0.0,
        reorder_tensor_arrays: bool = True,
    ) -> None:
        if not callable(cell) or not hasattr(cell, "output_size") or not hasattr(cell, "state_size"):
            raise TypeError(f"The argument 'cell' ({cell!r}) is not an RNNCell.")
        if output_layer is not None and not isinstance(output_layer, tf.layers.Layer):
            raise TypeError(f"output_layer must be a Layer, received: {type(output_layer)}")
        self._cell, self._output_layer = cell, output_layer
        self._embedding_fn = embedding if callable(embedding) else lambda ids: tf.nn.embedding_lookup(embedding, ids)
        self._reorders = reorder_tensor_arrays
        starts = tf.convert_to_tensor(start_tokens, dtype=tf.int32, name="start_tokens")
        if starts.shape.ndims != 1:
            raise ValueError(f"start_tokens must be a vector, got shape {starts.shape}")
        self._end_token = tf.convert_to_tensor(end_token, dtype=tf.int32, name="end_token")
        if self._end_token.shape.ndims != 0:
            raise ValueError(f"end_token must be a scalar, got shape {self._end_token.shape}")
        self._beam_width = beam_width
        self._length_weight = length_penalty_weight
        self._coverage_weight = tf.convert_to_tensor(coverage_penalty_weight, name="coverage_penalty_weight")
        if self._coverage_weight.shape.ndims != 0:
            raise ValueError(f"coverage_penalty_weight should be a scalar, got shape {self._coverage_weight.shape}")
        static = starts.shape.as_list()[0]
        self._static_batch = static
        self._batch_size: Any = tf.shape(starts)[0] if static is None else static
        self._start_tokens = tf.tile(tf.expand_dims(starts, 1), [1, beam_width])
        self._start_inputs = self._embedding_fn(self._start_tokens)
        self._initial_cell_state = tf.nest.map_structure(self._with_beams, initial_state)
        self._dtype = tf.nest.flatten(self._initial_cell_state)[0].dtype

    # ------------------------------------------------------------------ what it is
    @property
    def batch_size(self) -> tf.Tensor | int:
        size: tf.Tensor | int = self._batch_size
        return size

    @property
    def tracks_own_finished(self) -> bool:
        """True: beams that have ended trade places with others."""
        return True

    @property
    def output_size(self) -> BeamSearchDecoderOutput:
        beams = tf.TensorShape([self._beam_width])
        return BeamSearchDecoderOutput(beams, beams, beams)

    @property
    def output_dtype(self) -> BeamSearchDecoderOutput:
        return BeamSearchDecoderOutput(self._dtype, tf.int32, tf.int32)

    # ------------------------------------------------------------------ steps
    def initialize(self, name: str | None = None) -> tf.nest.Structure:
        # one beam of each sequence begins; the others can only come from it
        first = tf.zeros([self._batch_size], tf.int32)
        below = self._dtype.as_numpy_dtype(float("-inf"))
        log_probs = tf.one_hot(first, self._beam_width, on_value=0.0, off_value=below, dtype=self._dtype)
        finished = tf.one_hot(first, self._beam_width, on_value=False, off_value=True, dtype=tf.bool)
        attended = _attention_probs(self._initial_cell_state, self._coverage_weight)
        state = BeamSearchDecoderState(
            cell_state=self._initial_cell_state,
            log_probs=log_probs,
            finished=finished,
            lengths=tf.zeros([self._batch_size, self._beam_width], tf.int64),
            accumulated_attention_probs=() if attended is None else tf.zeros_like(attended),
        )
        return finished, self._start_inputs, state

    def step(
        self, time: tf.Tensor, inputs: tf.nest.Structure, state: BeamSearchDecoderState, name: str | None = None
    ) -> tf.nest.Structure:
        with tf.name_scope(name, "BeamSearchDecoderStep", [time]):
            merged = tf.nest.map_structure(self._without_beams, (inputs, state.cell_state))
            outputs, cell_state = self._cell(*merged)
            logits, cell_state = tf.nest.map_structure(self._with_beams, (outputs, cell_state))
            if self._output_layer is not None:
                logits = self._output_layer(logits)
            chosen, following = self._search(logits, cell_state, state)
            inputs = tf.cond(
                tf.reduce_all(following.finished),
                lambda: self._start_inputs,
                lambda: self._embedding_fn(chosen.predicted_ids),
            )
        return chosen, following, inputs, following.finished

    def _search(self, logits: TensorLike, cell_state: tf.nest.Structure, state: BeamSearchDecoderState) -> Any:
        """The best continuations of all beams of each sequence."""
        vocabulary = logits.shape.as_list()[-1] or tf.shape(logits)[-1]
        step_log_probs = self._of_ended(tf.nn.log_softmax(logits), state.finished, vocabulary)
        total = tf.expand_dims(state.log_probs, 2) + step_log_probs
        goes_on = tf.cast(tf.logical_not(state.finished), tf.int64)
        # an ended sequence stays as long as it is, and the end itself does not count
        counts = tf.one_hot(self._end_token, vocabulary, on_value=0, off_value=1, dtype=tf.int64)
        lengths = tf.expand_dims(state.lengths, 2) + tf.expand_dims(goes_on, 2) * counts
        attended = _attention_probs(cell_state, self._coverage_weight)
        accumulated = state.accumulated_attention_probs
        if attended is not None:
            ended = tf.expand_dims(state.finished, 2)
            accumulated += tf.where(tf.broadcast_to(ended, tf.shape(attended)), tf.zeros_like(attended), attended)
        scores = self._scores(total, lengths, state.finished, accumulated)
        flat = [self._batch_size, -1]
        best, places = tf.nn.top_k(tf.reshape(scores, flat), self._beam_width)
        words, beams = tf.mod(places, vocabulary), tf.div(places, vocabulary)

        def of_beams(value: TensorLike) -> Any:
            return tf.batch_gather(value, beams)

        had_ended = of_beams(state.finished)
        after = BeamSearchDecoderState(
            cell_state=tf.nest.map_structure(lambda v: of_beams(v) if self._has_beams(v) else v, cell_state),
            log_probs=tf.batch_gather(tf.reshape(total, flat), places),
            finished=tf.logical_or(had_ended, tf.equal(words, self._end_token)),
            lengths=of_beams(state.lengths) + tf.cast(tf.logical_not(had_ended), tf.int64),
            accumulated_attention_probs=() if attended is None else of_beams(accumulated),
        )
        for old, new in zip(tf.nest.flatten(state), tf.nest.flatten(after), strict=True):
            if isinstance(new, tf.Tensor):
                new.set_shape(old.shape)
        return BeamSearchDecoderOutput(best, words, beams), after

    def _of_ended(self, log_probs: TensorLike, finished: TensorLike, vocabulary: TensorLike) -> Any:
        """An ended sequence can only end: what else is as unlikely as can be."""
        dtype = log_probs.dtype
        only_end = tf.one_hot(self._end_token, vocabulary, on_value=0.0, off_value=dtype.min, dtype=dtype)
        shape = tf.shape(log_probs)
        ended = tf.broadcast_to(tf.expand_dims(finished, 2), shape)
        return tf.where(ended, tf.broadcast_to(only_end, shape), log_probs)

    def _scores(self, total: TensorLike, lengths: TensorLike, finished: TensorLike, accumulated: TensorLike) -> Any:
        """Log probabilities, with the penalties of Wu et al. 2016."""
        weight = tf.convert_to_tensor(self._length_weight, name="length_penalty_weight")
        scores = total
        if tf.get_static_value(weight) != 0:
            penalty = ((5.0 + tf.cast(lengths, tf.float32)) / 6.0) ** tf.cast(weight, tf.float32)
            scores = scores / tf.cast(penalty, scores.dtype)
        if tf.get_static_value(self._coverage_weight) == 0:
            return scores
        if isinstance(accumulated, tuple):
            raise ValueError("a penalty of coverage needs accumulated_attention_probs in the state")
        # positions that are beyond the sequence were never attended to
        seen = tf.where(tf.equal(accumulated, 0.0), tf.ones_like(accumulated), accumulated)
        coverage = tf.reduce_sum(tf.log(tf.minimum(seen, 1.0)), 2) * tf.cast(finished, seen.dtype)
        return scores + tf.expand_dims(tf.cast(self._coverage_weight, seen.dtype) * coverage, 2)

    def finalize(
        self, outputs: BeamSearchDecoderOutput, final_state: BeamSearchDecoderState, sequence_lengths: TensorLike
    ) -> tf.nest.Structure:
        """(what was predicted, a `FinalBeamSearchDecoderOutput`; the last state)."""
        lengths = tf.cast(tf.reduce_max(final_state.lengths, axis=1), tf.int32)
        predicted = gather_tree(outputs.predicted_ids, outputs.parent_ids, lengths, self._end_token)
        if self._reorders:
            final_state = final_state._replace(
                cell_state=tf.nest.map_structure(
                    lambda v: self._followed(v, outputs.parent_ids, final_state.lengths), final_state.cell_state
                )
            )
        return FinalBeamSearchDecoderOutput(predicted, outputs), final_state

    # ------------------------------------------------------------------ beams
    def _followed(self, value: PassedOn, parents: TensorLike, lengths: TensorLike) -> Any:
        """What a TensorArray holds of each step, along the sequences; anything else as it is."""
        if not isinstance(value, tf.TensorArray):
            return value
        return gather_tree_from_array(value.stack(), parents, lengths)

    def _has_beams(self, value: PassedOn) -> bool:
        return not isinstance(value, tf.TensorArray) and value.shape.ndims != 0

    def _with_beams(self, value: PassedOn) -> Any:
        """[batch * beams, ...] -> [batch, beams, ...]; a scalar or a TensorArray stays.

        Raises:
            ValueError: the rank is not known.
        """
        if isinstance(value, tf.TensorArray):
            return value
        value = tf.convert_to_tensor(value)
        if value.shape.ndims is None:
            raise ValueError(f"the rank of {value.name}, a part of the state, must be known")
        if value.shape.ndims == 0:
            return value
        inner = value.shape.as_list()[1:]
        split = tf.reshape(value, tf.concat([[self._batch_size, self._beam_width], tf.shape(value)[1:]], 0))
        split.set_shape([self._static_batch, self._beam_width, *inner])
        return split

    def _without_beams(self, value: PassedOn) -> Any:
        """[batch, beams, ...] -> [batch * beams, ...]; a scalar or a TensorArray stays."""
        if not self._has_beams(value):
            return value
        inner = value.shape.as_list()[2:]
        joined = tf.reshape(value, tf.concat([[self._batch_size * self._beam_width], tf.shape(value)[2:]], 0))
        batch = self._static_batch
        joined.set_shape([None if batch is None else batch * self._beam_width, *inner])
        return joined


def _attention_probs(cell_state: tf.nest.Structure, weight: TensorLike) -> Any:
    """How much each position was attended to in a step; None where no penalty asks for it.

    Several mechanisms and cells give their mean.

    Raises:
        ValueError: there is a penalty, and no state of an `AttentionWrapper`.
    """
    if tf.get_static_value(weight) == 0:
        return None
    states = [cell_state] if isinstance(cell_state, AttentionWrapperState) else cell_state
    found = []
    for state in states if isinstance(states, list | tuple) else []:
        if isinstance(state, AttentionWrapperState):
            aligned = state.alignments
            found.append(tf.add_n(list(aligned)) / len(aligned) if isinstance(aligned, tuple) else aligned)
    if not found:
        raise ValueError(
            "A penalty of coverage needs attention: wrap the cell with an AttentionWrapper, or set "
            "coverage_penalty_weight to 0"
        )
    return found[0] if len(found) == 1 else tf.add_n(found) / len(found)
