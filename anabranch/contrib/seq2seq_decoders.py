"""`tf.contrib.seq2seq`: decoders and the loop that runs them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import anabranch as tf
from anabranch.contrib.arguments import PassedOn, ScopeLike, TensorLike
from anabranch.contrib.seq2seq_helpers import Helper


class Decoder:
    """What `dynamic_decode` asks of a decoder: how decoding begins, and how one step is taken."""

    @property
    def batch_size(self) -> tf.Tensor | int:
        """The number of sequences, int32 scalar."""
        raise NotImplementedError

    @property
    def output_size(self) -> tf.nest.Structure:
        """The shapes of the outputs of a step, without the batch; a structure of ints and TensorShapes."""
        raise NotImplementedError

    @property
    def output_dtype(self) -> tf.nest.Structure:
        """The dtypes of the outputs, a structure like `output_size`."""
        raise NotImplementedError

    def initialize(self, name: str | None = None) -> tf.nest.Structure:
        """(finished [batch], first inputs, first state)."""
        raise NotImplementedError

    def step(
        self, time: tf.Tensor, inputs: tf.nest.Structure, state: tf.nest.Structure, name: str | None = None
    ) -> tf.nest.Structure:
        """(outputs, next state, next inputs, finished [batch])."""
        raise NotImplementedError

    def finalize(
        self, outputs: tf.nest.Structure, final_state: tf.nest.Structure, sequence_lengths: TensorLike
    ) -> tf.nest.Structure:
        """(outputs, state) made of those after the loop; optional."""
        raise NotImplementedError

    @property
    def tracks_own_finished(self) -> bool:
        """Whether `step` returns all sequences that ended, not only those that end now."""
        return False

    @property
    def most_steps(self) -> tf.Tensor | None:
        """How many steps there are at most, int32 scalar, or None: arrays of a known size make the loop faster."""
        return None


class BasicDecoderOutput(NamedTuple):
    """The outputs of `BasicDecoder`: of the cell (and the output layer), and what the helper chose from them."""

    rnn_output: Any
    sample_id: Any


class BasicDecoder(Decoder):
    """A cell whose inputs come from a helper.

    Args:
        cell: an `RNNCell`.
        helper: a `Helper`.
        initial_state: structure of tensors like `cell.state_size`.
        output_layer: a `tf.layers.Layer` applied to the cell's outputs, before the helper sees them.

    Raises:
        TypeError: an argument is of another type.
    """

    def __init__(
        self,
        cell: tf.nn.rnn_cell.RNNCell,
        helper: Helper,
        initial_state: tf.nest.Structure,
        output_layer: Callable[..., Any] | None = None,
    ) -> None:
        if not callable(cell) or not hasattr(cell, "output_size") or not hasattr(cell, "state_size"):
            raise TypeError(f"The argument 'cell' ({cell!r}) is not an RNNCell.")
        if not isinstance(helper, Helper):
            raise TypeError(f"helper must be a Helper, received: {type(helper)}")
        if output_layer is not None and not isinstance(output_layer, tf.layers.Layer):
            raise TypeError(f"output_layer must be a Layer, received: {type(output_layer)}")
        self._cell, self._helper, self._initial_state = cell, helper, initial_state
        self._output_layer = output_layer

    @property
    def batch_size(self) -> tf.Tensor | int:
        return self._helper.batch_size

    @property
    def most_steps(self) -> tf.Tensor | None:
        return self._helper.most_steps

    @property
    def output_size(self) -> BasicDecoderOutput:
        return BasicDecoderOutput(self._rnn_output_size(), self._helper.sample_ids_shape)

    @property
    def output_dtype(self) -> BasicDecoderOutput:
        dtype = tf.convert_to_tensor(tf.nest.flatten(self._initial_state)[0]).dtype
        kinds = _map_sizes(lambda _: dtype, self._rnn_output_size())
        return BasicDecoderOutput(kinds, self._helper.sample_ids_dtype)

    def _rnn_output_size(self) -> Any:
        size = self._cell.output_size
        layer = self._output_layer
        if layer is None:
            return size
        batch = tf.TensorShape([None])
        return _map_sizes(lambda s: layer.compute_output_shape(batch.concatenate(_as_shape(s)))[1:], size)

    def initialize(self, name: str | None = None) -> tf.nest.Structure:
        finished, inputs = self._helper.initialize()
        return finished, inputs, self._initial_state

    def step(
        self, time: tf.Tensor, inputs: tf.nest.Structure, state: tf.nest.Structure, name: str | None = None
    ) -> tf.nest.Structure:
        with tf.name_scope(name, "BasicDecoderStep", [time]):
            outputs, state = self._cell(inputs, state)
            if self._output_layer is not None:
                outputs = self._output_layer(outputs)
            chosen = self._helper.sample(time=time, outputs=outputs, state=state)
            finished, inputs, state = self._helper.next_inputs(
                time=time, outputs=outputs, state=state, sample_ids=chosen
            )
        return BasicDecoderOutput(outputs, chosen), state, inputs, finished


# ---------------------------------------------------------------------- sizes
def _as_shape(size: tf.nest.Structure) -> Any:
    return size if isinstance(size, tf.TensorShape) else tf.TensorShape(size if isinstance(size, list) else [size])


def _is_shape(size: tf.nest.Structure) -> bool:
    return isinstance(size, tf.TensorShape) or not tf.nest.is_nested(size)


def _map_sizes(function: Callable[..., Any], sizes: tf.nest.Structure) -> Any:
    """`map_structure` for which a TensorShape is a leaf."""
    return function(sizes) if _is_shape(sizes) else tf.nest.map_structure(function, sizes)


def _flat_sizes(sizes: tf.nest.Structure) -> list[Any]:
    return [_as_shape(s) for s in ([sizes] if _is_shape(sizes) else tf.nest.flatten(sizes))]


# ---------------------------------------------------------------------- the loop
def dynamic_decode(
    decoder: Decoder,
    output_time_major: bool = False,
    impute_finished: bool = False,
    maximum_iterations: TensorLike | None = None,
    parallel_iterations: int = 32,
    swap_memory: bool = False,
    scope: ScopeLike | None = None,
    **kwargs: PassedOn,
) -> tuple[Any, Any, Any]:
    """Takes steps of `decoder` until all sequences have ended.

    Args:
        decoder: a `Decoder`.
        output_time_major: whether outputs are [time, batch, ...] instead of [batch, time, ...].
        impute_finished: whether, where a sequence has ended, outputs become zeros and the state stays as it was.
        maximum_iterations: int32 scalar: the most steps; default: no limit.
        kwargs: passed to `decoder.initialize`.

    Returns:
        (outputs, a structure like `decoder.output_size`; last state; lengths of the sequences, int32 [batch]). The
        outputs have as many steps as were taken.

    Raises:
        TypeError: `decoder` is not a Decoder.
        ValueError: `maximum_iterations` is not a scalar.
    """
    if not isinstance(decoder, Decoder):
        raise TypeError(f"Expected decoder to be type Decoder, but saw: {type(decoder)}")
    with tf.variable_scope(scope, "decoder"):
        return _Decoding(decoder, impute_finished, maximum_iterations, kwargs).run(
            output_time_major, parallel_iterations, swap_memory
        )


class _Decoding:
    """One call of `dynamic_decode`."""

    def __init__(self, decoder: Decoder, impute: bool, maximum_iterations: TensorLike, kwargs: dict[str, Any]) -> None:
        self.decoder, self.impute = decoder, impute
        self.limit = _checked_limit(maximum_iterations)
        finished, self.inputs, self.state = decoder.initialize(**kwargs)
        self.inputs = _tensors(self.inputs)
        self.state = _tensors(self.state)
        self.finished = tf.convert_to_tensor(finished)
        if self.limit is not None:
            self.finished = tf.logical_or(self.finished, tf.less_equal(self.limit, 0))
        self.structure = decoder.output_dtype
        self.kinds = [tf.as_dtype(d) for d in tf.nest.flatten(self.structure)]
        self.sizes = _flat_sizes_of_outputs(decoder.output_size, len(self.kinds))
        self.known_batch = tf.get_static_value(tf.convert_to_tensor(decoder.batch_size))

    def run(self, time_major: bool, parallel_iterations: int, swap_memory: bool) -> tuple[Any, Any, Any]:
        bound = self.decoder.most_steps
        size_of_arrays: dict[str, Any] = {"size": 0, "dynamic_size": True} if bound is None else {"size": bound}
        arrays = [
            tf.TensorArray(kind, element_shape=self._element(size), **size_of_arrays)
            for kind, size in zip(self.kinds, self.sizes, strict=True)
        ]
        lengths = tf.zeros_like(self.finished, dtype=tf.int32)
        last = tf.while_loop(
            lambda time, arrays, state, inputs, finished, lengths: tf.logical_not(tf.reduce_all(finished)),
            self._step,
            (tf.constant(0), arrays, self.state, self.inputs, self.finished, lengths),
            parallel_iterations=parallel_iterations,
            swap_memory=swap_memory,
            maximum_iterations=self._most_iterations(bound),
        )
        outputs = tf.nest.pack_sequence_as(self.structure, [_taken(array.stack(), bound, last[0]) for array in last[1]])
        outputs, state = self._finalized(outputs, last[2], last[5])
        if not time_major:
            outputs = tf.nest.map_structure(_swapped, outputs)
        return outputs, state, last[5]

    def _most_iterations(self, bound: TensorLike | None) -> Any:
        if bound is None or self.limit is None:
            return bound if self.limit is None else self.limit
        return tf.minimum(self.limit, bound)

    def _element(self, size: tf.nest.Structure) -> Any:
        batch = None if self.known_batch is None else int(self.known_batch)
        return tf.TensorShape([batch]).concatenate(size)

    def _step(
        self,
        time: tf.Tensor,
        arrays: tf.nest.Structure,
        state: tf.nest.Structure,
        inputs: tf.nest.Structure,
        finished: TensorLike,
        lengths: TensorLike,
    ) -> Any:
        outputs, following, inputs, ends = self.decoder.step(time, inputs, state)
        tf.nest.assert_same_structure(state, following, check_types=False)
        tf.nest.assert_same_structure(self.structure, outputs, check_types=False)
        flat = [tf.convert_to_tensor(o) for o in tf.nest.flatten(outputs)]
        if self.impute:
            flat = [_where_finished(finished, tf.zeros_like(o), o) for o in flat]
            pairs = zip(tf.nest.flatten(state), tf.nest.flatten(following), strict=True)
            following = [_where_finished(finished, old, new) for old, new in pairs]
        else:
            following = tf.nest.flatten(following)
        following = tf.nest.pack_sequence_as(state, following)
        arrays = [array.write(time, value) for array, value in zip(arrays, flat, strict=True)]
        lengths = tf.where(finished, lengths, tf.fill(tf.shape(lengths), time + 1))
        ends = ends if self.decoder.tracks_own_finished else tf.logical_or(ends, finished)
        return time + 1, arrays, following, inputs, ends, lengths

    def _finalized(self, outputs: tf.nest.Structure, state: tf.nest.Structure, lengths: TensorLike) -> tuple[Any, Any]:
        try:
            return self.decoder.finalize(outputs, state, lengths)  # type: ignore[no-any-return]
        except NotImplementedError:
            return outputs, state


def _taken(stacked: TensorLike, bound: TensorLike | None, steps: TensorLike) -> Any:
    """The outputs of the steps that were taken: arrays of a known size may have more."""
    return stacked if bound is None else stacked[:steps]


def _checked_limit(maximum_iterations: TensorLike) -> Any:
    if maximum_iterations is None:
        return None
    limit = tf.convert_to_tensor(maximum_iterations, dtype=tf.int32, name="maximum_iterations")
    if limit.shape.ndims != 0:
        raise ValueError(f"maximum_iterations must be a scalar, but has shape {limit.shape}")
    return limit


def _flat_sizes_of_outputs(sizes: tf.nest.Structure, count: int) -> list[Any]:
    """The shapes of the outputs; a TensorShape is a leaf, wherever it stands."""
    shapes = [_as_shape(s) for part in _parts(sizes) for s in ([part] if _is_shape(part) else _flat_sizes(part))]
    if len(shapes) != count:
        raise ValueError(f"the decoder's output_size has {len(shapes)} parts, its output_dtype {count}")
    return shapes


def _parts(sizes: tf.nest.Structure) -> list[Any]:
    return list(sizes) if isinstance(sizes, tuple) and not _is_shape(sizes) else [sizes]


def _tensors(structure: tf.nest.Structure) -> Any:
    return tf.nest.map_structure(lambda v: v if isinstance(v, tf.TensorArray) else tf.convert_to_tensor(v), structure)


def _where_finished(finished: TensorLike, ended: TensorLike, running: TensorLike) -> Any:
    """Rows of `ended` where sequences ended, else of `running`; what has no batch dimension is taken from `running`."""
    if isinstance(running, tf.TensorArray) or running.shape.ndims == 0:
        return running
    chosen = tf.where(finished, ended, running)
    chosen.set_shape(running.shape)
    return chosen


def _swapped(value: tf.Tensor) -> Any:
    """[time, batch, ...] -> [batch, time, ...]; what has fewer dimensions stays."""
    rank = value.shape.ndims
    if rank is None:
        raise ValueError(f"the rank of the output {value.name} must be known; or pass output_time_major=True")
    return value if rank < 2 else tf.transpose(value, [1, 0, *range(2, rank)])
