"""`tf.contrib.seq2seq.AttentionWrapper`: a cell that attends to memories at each step."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import anabranch as tf
from anabranch.contrib.arguments import DTypeLike, PassedOn, TensorLike
from anabranch.contrib.seq2seq_attention import AttentionMechanism


class AttentionWrapperState(NamedTuple):
    """The state of an `AttentionWrapper`.

    Attributes:
        cell_state: of the wrapped cell.
        attention: what the last step put out of the memories, [batch, size].
        time: int32 scalar: the steps taken.
        alignments: [batch, positions], or a tuple of one for each mechanism.
        alignment_history: a TensorArray of the alignments of all steps, or a tuple of them; () where none is kept.
        attention_state: of the mechanisms, as `alignments`.
    """

    cell_state: Any
    attention: Any
    time: Any
    alignments: Any
    alignment_history: Any
    attention_state: Any

    def clone(self, **kwargs: PassedOn) -> AttentionWrapperState:
        """The same with some parts replaced: `zero_state.clone(cell_state=encoder_state)`.

        Raises:
            ValueError: a replacement has another structure, or a shape that cannot be that of what it replaces.
        """
        for name, value in kwargs.items():
            old = getattr(self, name)
            tf.nest.assert_same_structure(old, value)
            for was, becomes in zip(tf.nest.flatten(old), tf.nest.flatten(value), strict=True):
                if not isinstance(was, tf.Tensor) or not isinstance(becomes, tf.Tensor):
                    continue
                if not becomes.shape.is_compatible_with(was.shape):
                    raise ValueError(f"clone: {name} has shape {was.shape}, its replacement {becomes.shape}")
        return self._replace(**kwargs)


class AttentionWrapper(tf.nn.rnn_cell.RNNCell):
    """A cell that is given, besides its inputs, what it attended to in the last step.

    Args:
        cell: an `RNNCell`.
        attention_mechanism: an `AttentionMechanism`, or a list of them.
        attention_layer_size: the size of a layer, without bias, of output and context (a list for several mechanisms);
            None: the context itself is the attention.
        alignment_history: whether the state keeps the alignments of all steps.
        cell_input_fn: (inputs, attention) -> inputs of the cell; default: side by side.
        output_attention: whether the attention is the output (Luong), or the cell's output (Bahdanau).
        initial_cell_state: for `zero_state`, instead of the cell's zeros.
        name: of the layer.
        attention_layer: layers to use instead of those of `attention_layer_size`.
        attention_fn: (mechanism, cell output, its state, layer or None) -> (attention, alignments, next state).
        dtype: of the layers.

    Raises:
        TypeError: an argument is of another type.
        ValueError: the numbers of mechanisms and layers differ, or both sizes and layers are given.
    """

    def __init__(
        self,
        cell: tf.nn.rnn_cell.RNNCell,
        attention_mechanism: AttentionMechanism | Sequence[AttentionMechanism],
        attention_layer_size: int | Sequence[int] | None = None,
        alignment_history: bool = False,
        cell_input_fn: Callable[..., Any] | None = None,
        output_attention: bool = True,
        initial_cell_state: tf.nest.Structure | None = None,
        name: str | None = None,
        attention_layer: tf.layers.Layer | Sequence[tf.layers.Layer] | None = None,
        attention_fn: Callable[..., Any] | None = None,
        dtype: DTypeLike | None = None,
    ) -> None:
        super().__init__(name=name, dtype=dtype)
        if not callable(cell) or not hasattr(cell, "output_size") or not hasattr(cell, "state_size"):
            raise TypeError(f"The argument 'cell' ({cell!r}) is not an RNNCell.")
        self._is_multi = isinstance(attention_mechanism, list | tuple)
        self._attention_mechanisms: list[Any] = _as_list(attention_mechanism)
        for mechanism in self._attention_mechanisms:
            if not isinstance(mechanism, AttentionMechanism):
                raise TypeError(f"attention_mechanism must contain AttentionMechanisms, saw {type(mechanism).__name__}")
        for what, function in (("cell_input_fn", cell_input_fn), ("attention_fn", attention_fn)):
            if function is not None and not callable(function):
                raise TypeError(f"{what} must be callable, saw type: {type(function).__name__}")
        if attention_layer_size is not None and attention_layer is not None:
            raise ValueError("give attention_layer_size or attention_layer, not both")
        self._layers_of = self._made_layers(attention_layer_size, attention_layer, dtype)
        self._cell, self._cell_input_fn = cell, cell_input_fn or _side_by_side
        self._output_attention, self._keeps_history = output_attention, alignment_history
        self._attention_fn = attention_fn or attend
        self._initial_cell_state = initial_cell_state
        self._attention_size = sum(map(_size_of_attention, self._attention_mechanisms, self._layers_of))

    def _made_layers(self, sizes: TensorLike, layers: TensorLike, dtype: DTypeLike | None) -> list[Any]:
        count = len(self._attention_mechanisms)
        if sizes is None and layers is None:
            return [None] * count
        listed = _as_list(sizes if layers is None else layers)
        if len(listed) != count:
            what = "attention_layer_size" if layers is None else "attention_layer"
            raise ValueError(f"{what} needs an entry for each of the {count} attention mechanisms, got {len(listed)}")
        if layers is not None:
            return listed
        return [tf.layers.Dense(size, name="attention_layer", use_bias=False, dtype=dtype) for size in listed]

    @property
    def output_size(self) -> tf.nest.Structure:
        return self._attention_size if self._output_attention else self._cell.output_size

    @property
    def state_size(self) -> AttentionWrapperState:
        sizes = [mechanism.alignments_size for mechanism in self._attention_mechanisms]
        return AttentionWrapperState(
            cell_state=self._cell.state_size,
            time=tf.TensorShape([]),
            attention=self._attention_size,
            alignments=self._item_or_tuple(sizes),
            attention_state=self._item_or_tuple([mechanism.state_size for mechanism in self._attention_mechanisms]),
            alignment_history=self._item_or_tuple(sizes if self._keeps_history else [()] * len(sizes)),
        )

    def _item_or_tuple(self, values: Sequence[Any]) -> Any:
        return tuple(values) if self._is_multi else next(iter(values))

    def zero_state(self, batch_size: TensorLike, dtype: DTypeLike) -> AttentionWrapperState:
        """The state before the first step.

        Args:
            batch_size: int, or int32 scalar; that of the memories, tiled if there is a beam.
            dtype: of the cell's zeros.

        Raises:
            ValueError: `batch_size` is known and not that of a memory; an InvalidArgumentError when it runs, if it is
                known only then.
        """
        with tf.name_scope(f"{type(self).__name__}ZeroState"):
            if self._initial_cell_state is None:
                cell_state = self._cell.zero_state(batch_size, dtype)
            else:
                cell_state = self._initial_cell_state
            with tf.control_dependencies(self._batch_checks(batch_size)):
                cell_state = tf.nest.map_structure(lambda s: tf.identity(s, "checked_cell_state"), cell_state)
            alignments = [mechanism.initial_alignments(batch_size, dtype) for mechanism in self._attention_mechanisms]
            return AttentionWrapperState(
                cell_state=cell_state,
                time=tf.zeros([], tf.int32),
                attention=tf.zeros([batch_size, self._attention_size], dtype),
                alignments=self._item_or_tuple(alignments),
                attention_state=self._item_or_tuple(
                    [m.initial_state(batch_size, dtype) for m in self._attention_mechanisms]
                ),
                alignment_history=self._item_or_tuple(
                    [
                        tf.TensorArray(dtype, size=0, dynamic_size=True, element_shape=alignment.shape)
                        if self._keeps_history
                        else ()
                        for alignment in alignments
                    ]
                ),
            )

    def _batch_checks(self, batch_size: TensorLike) -> list[Any]:
        checks = []
        for mechanism in self._attention_mechanisms:
            message = (
                f"zero_state of {self.name}: the memory has another batch size than is asked for; for a "
                "BeamSearchDecoder, repeat memory and lengths with tile_batch, and ask for batch size * beam width"
            )
            if isinstance(batch_size, int) and isinstance(mechanism.batch_size, int):
                if batch_size != mechanism.batch_size:
                    raise ValueError(f"{message} ({mechanism.batch_size} and {batch_size})")
            else:
                checks.append(tf.assert_equal(batch_size, mechanism.batch_size, message=message))
        return checks

    def call(self, inputs: TensorLike, state: tf.nest.Structure) -> tuple[tf.Tensor, tf.nest.Structure]:
        if not isinstance(state, AttentionWrapperState):
            raise TypeError(
                f"Expected state to be instance of AttentionWrapperState. Received type {type(state)} instead."
            )
        output, cell_state = self._cell(self._cell_input_fn(inputs, state.attention), state.cell_state)
        states, histories = (
            list(part) if self._is_multi else [part] for part in (state.attention_state, state.alignment_history)
        )
        attentions, alignments, following = [], [], []
        for i, mechanism in enumerate(self._attention_mechanisms):
            attention, aligned, next_state = self._attention_fn(mechanism, output, states[i], self._layers_of[i])
            if self._keeps_history:
                histories[i] = histories[i].write(state.time, aligned)
            attentions.append(attention)
            alignments.append(aligned)
            following.append(next_state)
        attention = tf.concat(attentions, 1)
        after = AttentionWrapperState(
            cell_state=cell_state,
            attention=attention,
            time=state.time + 1,
            alignments=self._item_or_tuple(alignments),
            alignment_history=self._item_or_tuple(histories),
            attention_state=self._item_or_tuple(following),
        )
        return (attention if self._output_attention else output), after


def attend(
    mechanism: AttentionMechanism, cell_output: TensorLike, attention_state: TensorLike, attention_layer: TensorLike
) -> tuple[Any, Any, Any]:
    """(attention [batch, size], alignments [batch, positions], next state of the mechanism)."""
    computed: Any = mechanism
    alignments, next_state = computed(cell_output, attention_state)
    values = computed.values
    context = tf.squeeze(tf.matmul(tf.expand_dims(alignments, 1), values), [1])
    if attention_layer is None:
        return context, alignments, next_state
    return attention_layer(tf.concat([cell_output, context], 1)), alignments, next_state


def _side_by_side(inputs: TensorLike, attention: TensorLike) -> Any:
    return tf.concat([inputs, attention], -1)


def _as_list(value: TensorLike) -> list[Any]:
    return list(value) if isinstance(value, list | tuple) else [value]


def _size_of_attention(mechanism: TensorLike, layer: TensorLike) -> int:
    depth = mechanism.values.shape.as_list()[-1]
    if layer is None:
        return int(depth)
    units = getattr(layer, "units", None)
    return int(units if units is not None else layer.compute_output_shape([None, depth])[-1])
