"""`tf.contrib.seq2seq`: helpers that feed a decoder from training data, some of the time from its own outputs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import anabranch as tf
from anabranch.contrib.arguments import TensorLike
from anabranch.contrib.seq2seq_helpers import Helper, checked_outputs, drawn, embedding_function


def _time_major(value: tf.Tensor) -> Any:
    rank = value.shape.ndims
    if rank is None or rank < 2:
        raise ValueError(f"inputs must have at least 2 dimensions (batch and time), {value.name} has {value.shape}")
    return tf.transpose(value, [1, 0, *range(2, rank)])


class _Rows:
    """A structure of tensors [time, batch, ...] that is read step by step."""

    def __init__(self, values: tf.nest.Structure, time_major: bool) -> None:
        tensors = tf.nest.map_structure(tf.convert_to_tensor, values)
        if not time_major:
            tensors = tf.nest.map_structure(_time_major, tensors)
        self.zeros = tf.nest.map_structure(_zeros_of_step, tensors)
        self._arrays = tf.nest.map_structure(_unstacked, tensors)
        self.steps = _steps_of(tf.nest.flatten(tensors)[0])

    def at(self, time: TensorLike, past_end: TensorLike) -> Any:
        """The rows at `time`; zeros if `past_end`."""
        return tf.cond(past_end, lambda: self.zeros, lambda: self._read(time))

    def _read(self, time: TensorLike) -> Any:
        return tf.nest.map_structure(lambda array: array.read(time), self._arrays)


def _zeros_of_step(value: tf.Tensor) -> Any:
    return tf.zeros(value.shape[1:] if value.shape[1:].is_fully_defined() else tf.shape(value)[1:], value.dtype)


def _steps_of(value: tf.Tensor) -> Any:
    """The size of the first dimension: an int where it is known."""
    known = value.shape.as_list()[0]
    return tf.shape(value)[0] if known is None else known


def _unstacked(value: tf.Tensor) -> Any:
    return tf.TensorArray(value.dtype, size=_steps_of(value), element_shape=value.shape[1:]).unstack(value)


class TrainingHelper(Helper):
    """Gives a decoder the inputs of the training data, whatever it puts out; what it chooses is the likeliest symbol.

    Args:
        inputs: structure of [batch, time, ...], or [time, batch, ...] if `time_major`.
        sequence_length: int32 [batch].

    Raises:
        ValueError: `sequence_length` is not a vector.
    """

    def __init__(
        self, inputs: tf.nest.Structure, sequence_length: TensorLike, time_major: bool = False, name: str | None = None
    ) -> None:
        with tf.name_scope(name, "TrainingHelper", [sequence_length]):
            self._inputs = inputs
            self._rows = _Rows(inputs, time_major)
            lengths = tf.convert_to_tensor(sequence_length, name="sequence_length")
            if lengths.shape.ndims != 1:
                raise ValueError(f"Expected sequence_length to be a vector, but received shape: {lengths.shape}")
            self._sequence_length = lengths
            known = self._known_batch(lengths)
            self._batch_size = tf.size(lengths) if known is None else tf.constant(known)

    def _known_batch(self, lengths: TensorLike) -> int | None:
        shapes = [lengths.shape, *(z.shape for z in tf.nest.flatten(self._rows.zeros))]
        known = [shape.as_list()[0] for shape in shapes if shape.ndims]
        return next((size for size in known if size is not None), None)

    @property
    def most_steps(self) -> tf.Tensor | None:
        result: tf.Tensor | None = self._rows.steps
        return result

    @property
    def inputs(self) -> tf.nest.Structure:
        return self._inputs

    @property
    def sequence_length(self) -> tf.Tensor:
        return self._sequence_length

    @property
    def batch_size(self) -> tf.Tensor | int:
        return self._batch_size

    @property
    def sample_ids_shape(self) -> tf.TensorShape:
        return tf.TensorShape([])

    @property
    def sample_ids_dtype(self) -> tf.DType:
        return tf.int32

    def initialize(self, name: str | None = None) -> tf.nest.Structure:
        with tf.name_scope(name, "TrainingHelperInitialize"):
            finished = tf.equal(tf.zeros([], self._sequence_length.dtype), self._sequence_length)
            return finished, self._rows.at(0, tf.reduce_all(finished))

    def sample(
        self, time: tf.Tensor, outputs: tf.nest.Structure, state: tf.nest.Structure, name: str | None = None
    ) -> tf.nest.Structure:
        with tf.name_scope(name, "TrainingHelperSample", [time]):
            return tf.argmax(checked_outputs(outputs), axis=-1, output_type=tf.int32)

    def next_inputs(
        self,
        time: tf.Tensor,
        outputs: tf.nest.Structure,
        state: tf.nest.Structure,
        sample_ids: TensorLike,
        name: str | None = None,
    ) -> tf.nest.Structure:
        with tf.name_scope(name, "TrainingHelperNextInputs", [time]):
            following = time + 1
            finished = tf.greater_equal(tf.cast(following, self._sequence_length.dtype), self._sequence_length)
            return finished, self._rows.at(following, tf.reduce_all(finished)), state


def _probability(value: tf.Tensor) -> Any:
    probability = tf.convert_to_tensor(value, name="sampling_probability", dtype=tf.float32)
    if probability.shape.ndims not in (0, 1):
        raise ValueError(f"sampling_probability must be either a scalar or a vector. saw shape: {probability.shape}")
    return probability


class ScheduledEmbeddingTrainingHelper(TrainingHelper):
    """A training helper that, with a probability, gives the embedding of a symbol drawn from the outputs instead.

    What it chooses is the symbol where one was drawn, and -1 where the training data come next.

    Args:
        embedding: a function ids -> vectors, or the `params` of `tf.nn.embedding_lookup`.
        sampling_probability: scalar or [batch].
        seed: of the symbols.
        scheduling_seed: of the choice between both.

    Raises:
        ValueError: `sampling_probability` is neither a scalar nor a vector.
    """

    def __init__(
        self,
        inputs: tf.nest.Structure,
        sequence_length: TensorLike,
        embedding: TensorLike | Callable[[tf.Tensor], TensorLike],
        sampling_probability: TensorLike,
        time_major: bool = False,
        seed: int | None = None,
        scheduling_seed: int | None = None,
        name: str | None = None,
    ) -> None:
        with tf.name_scope(name, "ScheduledEmbeddingSamplingWrapper", [sampling_probability]):
            self._embedding_fn = embedding_function(embedding)
            self._probability = _probability(sampling_probability)
            self._seed, self._scheduling_seed = seed, scheduling_seed
            super().__init__(inputs, sequence_length, time_major, name)

    def sample(
        self, time: tf.Tensor, outputs: tf.nest.Structure, state: tf.nest.Structure, name: str | None = None
    ) -> tf.nest.Structure:
        with tf.name_scope(name, "ScheduledEmbeddingTrainingHelperSample", [time]):
            symbols = drawn(checked_outputs(outputs), self._seed)
            chosen = tf.random.uniform(tf.shape(symbols), seed=self._scheduling_seed) < self._probability
            return tf.where(chosen, symbols, -tf.ones_like(symbols))

    def next_inputs(
        self,
        time: tf.Tensor,
        outputs: tf.nest.Structure,
        state: tf.nest.Structure,
        sample_ids: TensorLike,
        name: str | None = None,
    ) -> tf.nest.Structure:
        with tf.name_scope(name, "ScheduledEmbeddingTrainingHelperNextInputs", [time]):
            finished, inputs, state = super().next_inputs(time, outputs, state, sample_ids)
            # Nothing reads the inputs of sequences that ended, so that these may be the embedding's too.
            embedded = self._embedding_fn(tf.maximum(sample_ids, 0))
            return finished, tf.where(sample_ids >= 0, embedded, inputs), state


class ScheduledOutputTrainingHelper(TrainingHelper):
    """A training helper that, with a probability, gives the decoder's own outputs instead.

    What it chooses is 1 where the outputs come next, and 0 where the training data do.

    Args:
        sampling_probability: scalar or [batch].
        seed: of the choice between both.
        next_inputs_fn: outputs -> inputs; default: these are the outputs.
        auxiliary_inputs: like `inputs`: appended to the inputs of every step, wherever these come from.

    Raises:
        ValueError: `sampling_probability` is neither a scalar nor a vector.
    """

    def __init__(
        self,
        inputs: tf.nest.Structure,
        sequence_length: TensorLike,
        sampling_probability: TensorLike,
        time_major: bool = False,
        seed: int | None = None,
        next_inputs_fn: Callable[[Any], Any] | None = None,
        auxiliary_inputs: tf.nest.Structure | None = None,
        name: str | None = None,
    ) -> None:
        with tf.name_scope(name, "ScheduledOutputTrainingHelper", [sampling_probability]):
            self._probability = _probability(sampling_probability)
            self._seed, self._next_inputs_fn = seed, next_inputs_fn
            self._auxiliary = None if auxiliary_inputs is None else _Rows(auxiliary_inputs, time_major)
            super().__init__(inputs, sequence_length, time_major, name)

    def _with_auxiliary(self, inputs: tf.nest.Structure, time: TensorLike, past_end: TensorLike) -> Any:
        if self._auxiliary is None:
            return inputs
        extra = self._auxiliary.at(time, past_end)
        return tf.nest.map_structure(lambda a, b: tf.concat([a, b], -1), inputs, extra)

    def initialize(self, name: str | None = None) -> tf.nest.Structure:
        finished, inputs = super().initialize(name)
        return finished, self._with_auxiliary(inputs, 0, tf.reduce_all(finished))

    def sample(
        self, time: tf.Tensor, outputs: tf.nest.Structure, state: tf.nest.Structure, name: str | None = None
    ) -> tf.nest.Structure:
        with tf.name_scope(name, "ScheduledOutputTrainingHelperSample", [time]):
            drawn_at_random = tf.random.uniform([self._batch_size], seed=self._seed)
            return tf.cast(drawn_at_random < self._probability, tf.int32)

    def next_inputs(
        self,
        time: tf.Tensor,
        outputs: tf.nest.Structure,
        state: tf.nest.Structure,
        sample_ids: TensorLike,
        name: str | None = None,
    ) -> tf.nest.Structure:
        with tf.name_scope(name, "ScheduledOutputTrainingHelperNextInputs", [time]):
            finished, inputs, state = super().next_inputs(time, outputs, state, sample_ids)
            own = outputs if self._next_inputs_fn is None else self._next_inputs_fn(outputs)
            chosen = tf.cast(sample_ids, tf.bool)
            mixed = tf.nest.map_structure(lambda new, old: tf.where(chosen, new, old), own, inputs)
            return finished, self._with_auxiliary(mixed, time + 1, tf.reduce_all(finished)), state
