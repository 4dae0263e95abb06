"""`tf.contrib.seq2seq`: helpers, which choose from a decoder's outputs and give it its next inputs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import anabranch as tf
from anabranch.contrib.arguments import DTypeLike, ShapeLike, TensorLike


class Helper:
    """What `BasicDecoder` asks of a helper."""

    @property
    def batch_size(self) -> tf.Tensor | int:
        """The number of sequences, int32 scalar."""
        raise NotImplementedError

    @property
    def sample_ids_shape(self) -> tf.TensorShape:
        """The shape of what is chosen for one sequence."""
        raise NotImplementedError

    @property
    def sample_ids_dtype(self) -> tf.DType:
        """The dtype of what is chosen."""
        raise NotImplementedError

    @property
    def most_steps(self) -> tf.Tensor | None:
        """How many steps there are at most, int32 scalar; None where that is not known."""
        return None

    def initialize(self, name: str | None = None) -> tf.nest.Structure:
        """(finished [batch], first inputs)."""
        raise NotImplementedError

    def sample(
        self, time: tf.Tensor, outputs: tf.nest.Structure, state: tf.nest.Structure, name: str | None = None
    ) -> tf.nest.Structure:
        """What is chosen from the outputs of this step."""
        raise NotImplementedError

    def next_inputs(
        self,
        time: tf.Tensor,
        outputs: tf.nest.Structure,
        state: tf.nest.Structure,
        sample_ids: TensorLike,
        name: str | None = None,
    ) -> tf.nest.Structure:
        """(finished [batch], next inputs, next state)."""
        raise NotImplementedError


class CustomHelper(Helper):
    """A helper made of functions.

    Args:
        initialize_fn: () -> (finished, first inputs).
        sample_fn: (time, outputs, state) -> what is chosen.
        next_inputs_fn: (time, outputs, state, sample_ids) -> (finished, next inputs, next state).
        sample_ids_shape: of what is chosen for one sequence; default: a scalar.
        sample_ids_dtype: default int32.
    """

    def __init__(
        self,
        initialize_fn: Callable[..., Any],
        sample_fn: Callable[..., Any],
        next_inputs_fn: Callable[..., Any],
        sample_ids_shape: ShapeLike | None = None,
        sample_ids_dtype: DTypeLike | None = None,
    ) -> None:
        self._initialize_fn, self._sample_fn, self._next_inputs_fn = initialize_fn, sample_fn, next_inputs_fn
        self._batch_size: Any = None
        self._shape = tf.TensorShape([] if sample_ids_shape is None else sample_ids_shape)
        self._dtype = tf.as_dtype(sample_ids_dtype or tf.int32)

    @property
    def batch_size(self) -> tf.Tensor | int:
        if self._batch_size is None:
            raise ValueError("batch_size accessed before initialize was called")
        result: tf.Tensor | int = self._batch_size
        return result

    @property
    def sample_ids_shape(self) -> tf.TensorShape:
        return self._shape

    @property
    def sample_ids_dtype(self) -> tf.DType:
        return self._dtype

    def initialize(self, name: str | None = None) -> tf.nest.Structure:
        with tf.name_scope(name, "CustomHelperInitialize"):
            finished, inputs = self._initialize_fn()
            if self._batch_size is None:
                self._batch_size = tf.size(finished)
        return finished, inputs

    def sample(
        self, time: tf.Tensor, outputs: tf.nest.Structure, state: tf.nest.Structure, name: str | None = None
    ) -> tf.nest.Structure:
        with tf.name_scope(name, "CustomHelperSample", [time]):
            return self._sample_fn(time=time, outputs=outputs, state=state)

    def next_inputs(
        self,
        time: tf.Tensor,
        outputs: tf.nest.Structure,
        state: tf.nest.Structure,
        sample_ids: TensorLike,
        name: str | None = None,
    ) -> tf.nest.Structure:
        with tf.name_scope(name, "CustomHelperNextInputs", [time]):
            return self._next_inputs_fn(time=time, outputs=outputs, state=state, sample_ids=sample_ids)


def embedding_function(embedding: TensorLike | Callable[[tf.Tensor], TensorLike]) -> Callable[[Any], Any]:
    """A function from ids to vectors: `embedding` itself if it is a function, else a look-up in its rows."""
    if callable(embedding):
        return embedding
    return lambda ids: tf.nn.embedding_lookup(embedding, ids)


def checked_outputs(outputs: tf.nest.Structure) -> Any:
    """
    Raises:
        TypeError: `outputs` is a structure.
    """
    if not isinstance(outputs, tf.Tensor):
        raise TypeError(f"Expected outputs to be a single Tensor, got: {type(outputs)}")
    return outputs


class GreedyEmbeddingHelper(Helper):
    """Takes the most likely symbol of each step, and gives its embedding to the next.

    Args:
        embedding: a function ids -> vectors, or the `params` of `tf.nn.embedding_lookup`.
        start_tokens: int32 [batch].
        end_token: int32 scalar: the symbol that ends a sequence.

    Raises:
        ValueError: `start_tokens` is not a vector, or `end_token` not a scalar.
    """

    def __init__(
        self, embedding: TensorLike | Callable[[tf.Tensor], TensorLike], start_tokens: TensorLike, end_token: TensorLike
    ) -> None:
        self._embedding_fn = embedding_function(embedding)
        self._start_tokens = tf.convert_to_tensor(start_tokens, dtype=tf.int32, name="start_tokens")
        self._end_token = tf.convert_to_tensor(end_token, dtype=tf.int32, name="end_token")
        if self._start_tokens.shape.ndims != 1:
            raise ValueError(f"start_tokens must be a vector, but has shape {self._start_tokens.shape}")
        if self._end_token.shape.ndims != 0:
            raise ValueError(f"end_token must be a scalar, but has shape {self._end_token.shape}")
        self._batch_size = tf.size(start_tokens)
        self._start_inputs = self._embedding_fn(self._start_tokens)

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
        return tf.zeros_like(self._start_tokens, dtype=tf.bool), self._start_inputs

    def sample(
        self, time: tf.Tensor, outputs: tf.nest.Structure, state: tf.nest.Structure, name: str | None = None
    ) -> tf.nest.Structure:
        return tf.argmax(checked_outputs(outputs), axis=-1, output_type=tf.int32)

    def next_inputs(
        self,
        time: tf.Tensor,
        outputs: tf.nest.Structure,
        state: tf.nest.Structure,
        sample_ids: TensorLike,
        name: str | None = None,
    ) -> tf.nest.Structure:
        finished = tf.equal(sample_ids, self._end_token)
        return finished, self._embedding_fn(sample_ids), state


class SampleEmbeddingHelper(GreedyEmbeddingHelper):
    """Draws a symbol from the distribution that each step's outputs describe, and gives its embedding to the next.

    Args:
        softmax_temperature: the outputs are divided by it; default 1.
        seed: of the random numbers.
    """

    def __init__(
        self,
        embedding: TensorLike | Callable[[tf.Tensor], TensorLike],
        start_tokens: TensorLike,
        end_token: TensorLike,
        softmax_temperature: TensorLike | None = None,
        seed: int | None = None,
    ) -> None:
        super().__init__(embedding, start_tokens, end_token)
        self._temperature, self._seed = softmax_temperature, seed

    def sample(
        self, time: tf.Tensor, outputs: tf.nest.Structure, state: tf.nest.Structure, name: str | None = None
    ) -> tf.nest.Structure:
        logits = checked_outputs(outputs)
        if self._temperature is not None:
            logits = logits / tf.cast(self._temperature, logits.dtype)
        return drawn(logits, self._seed)


def drawn(logits: TensorLike, seed: int | None) -> Any:
    """[batch, symbols] -> a symbol per row, int32 [batch]."""
    return tf.squeeze(tf.random.categorical(logits, 1, dtype=tf.int32, seed=seed), [1])


class InferenceHelper(Helper):
    """A helper for inference, made of functions.

    Args:
        sample_fn: outputs -> what is chosen.
        sample_shape: of what is chosen for one sequence.
        sample_dtype: of what is chosen.
        start_inputs: the first inputs, [batch, ...].
        end_fn: what is chosen -> finished [batch].
        next_inputs_fn: what is chosen -> next inputs; default: these are what was chosen.
    """

    def __init__(
        self,
        sample_fn: Callable[[Any], Any],
        sample_shape: ShapeLike,
        sample_dtype: tf.DType,
        start_inputs: tf.nest.Structure,
        end_fn: Callable[[Any], Any],
        next_inputs_fn: Callable[[Any], Any] | None = None,
    ) -> None:
        self._sample_fn, self._end_fn, self._next_inputs_fn = sample_fn, end_fn, next_inputs_fn
        self._shape, self._dtype = tf.TensorShape(sample_shape), sample_dtype
        self._start_inputs = tf.convert_to_tensor(start_inputs, name="start_inputs")
        known = self._start_inputs.shape.as_list()[0] if self._start_inputs.shape.ndims else None
        self._batch_size = tf.shape(self._start_inputs)[0] if known is None else tf.constant(known)

    @property
    def batch_size(self) -> tf.Tensor | int:
        return self._batch_size

    @property
    def sample_ids_shape(self) -> tf.TensorShape:
        return self._shape

    @property
    def sample_ids_dtype(self) -> tf.DType:
        result: tf.DType = self._dtype
        return result

    def initialize(self, name: str | None = None) -> tf.nest.Structure:
        return tf.fill([self._batch_size], False), self._start_inputs

    def sample(
        self, time: tf.Tensor, outputs: tf.nest.Structure, state: tf.nest.Structure, name: str | None = None
    ) -> tf.nest.Structure:
        return self._sample_fn(outputs)

    def next_inputs(
        self,
        time: tf.Tensor,
        outputs: tf.nest.Structure,
        state: tf.nest.Structure,
        sample_ids: TensorLike,
        name: str | None = None,
    ) -> tf.nest.Structure:
        inputs = sample_ids if self._next_inputs_fn is None else self._next_inputs_fn(sample_ids)
        return self._end_fn(sample_ids), inputs, state
