"""`tf.contrib.rnn`: networks over all steps, as objects that are called like cells."""

from __future__ import annotations

import abc
from typing import Any

import anabranch as tf
from anabranch.contrib.arguments import DTypeLike, PassedOn, ScopeLike, TensorLike


class FusedRNNCell(abc.ABC):
    """What is given all steps at once."""

    @abc.abstractmethod
    def __call__(
        self,
        inputs: TensorLike,
        initial_state: PassedOn = None,
        dtype: DTypeLike | None = None,
        sequence_length: TensorLike | None = None,
        scope: ScopeLike | None = None,
    ) -> tuple[PassedOn, tf.nest.Structure]:
        """Runs all steps.

        Args:
            inputs: [time, batch, size], or a list of [batch, size].
            initial_state: None: zeros.
            dtype: of those zeros.
            sequence_length: int [batch]; None: all steps.
            scope: of the variables.

        Returns:
            (outputs as the inputs are given, the last state).
        """


class FusedRNNCellAdaptor(FusedRNNCell):
    """A cell that is given all steps at once, and takes them one by one.

    Args:
        cell: an `RNNCell`.
        use_dynamic_rnn: whether the steps are a loop; else the graph holds them one after the other.

    Example:
        >>> network = tf.contrib.rnn.FusedRNNCellAdaptor(tf.nn.rnn_cell.BasicRNNCell(4), use_dynamic_rnn=True)
        >>> outputs, state = network(tf.zeros([5, 2, 3]), dtype=tf.float32)
        >>> outputs.shape.as_list()
        [5, 2, 4]
    """

    def __init__(self, cell: tf.nn.rnn_cell.RNNCell, use_dynamic_rnn: bool = False) -> None:
        self._cell, self._use_dynamic_rnn = cell, use_dynamic_rnn

    def __call__(
        self,
        inputs: TensorLike,
        initial_state: PassedOn = None,
        dtype: DTypeLike | None = None,
        sequence_length: TensorLike | None = None,
        scope: ScopeLike | None = None,
    ) -> tuple[PassedOn, tf.nest.Structure]:
        """See `FusedRNNCell`."""
        is_list = isinstance(inputs, list)
        if self._use_dynamic_rnn:
            steps = tf.stack(inputs) if is_list else inputs
            outputs, state = tf.nn.dynamic_rnn(
                self._cell, steps, sequence_length, initial_state, dtype, time_major=True, scope=scope
            )
            return tf.unstack(outputs, len(inputs)) if is_list else outputs, state
        steps = inputs if is_list else tf.unstack(inputs)
        outputs, state = tf.nn.static_rnn(self._cell, steps, initial_state, dtype, sequence_length, scope)
        return outputs if is_list else tf.stack(outputs), state


class TimeReversedFusedRNN(FusedRNNCell):
    """A network that is given the steps in reverse; its outputs stand in the order of the inputs.

    Args:
        cell: a `FusedRNNCell`.
    """

    def __init__(self, cell: FusedRNNCell) -> None:
        self._cell = cell

    def __call__(
        self,
        inputs: TensorLike,
        initial_state: PassedOn = None,
        dtype: DTypeLike | None = None,
        sequence_length: TensorLike | None = None,
        scope: ScopeLike | None = None,
    ) -> tuple[PassedOn, tf.nest.Structure]:
        """See `FusedRNNCell`."""
        outputs, state = self._cell(
            _reversed(inputs, sequence_length),
            initial_state=initial_state,
            dtype=dtype,
            sequence_length=sequence_length,
            scope=scope,
        )
        return _reversed(outputs, sequence_length), state


def _reversed(steps: TensorLike, lengths: TensorLike | None) -> Any:
    """In time, each sequence as far as it reaches; lists are reversed whole, as in TensorFlow."""
    if isinstance(steps, list):
        return steps[::-1]
    return tf.reverse(steps, [0]) if lengths is None else tf.reverse_sequence(steps, lengths, 0, 1)


def best_effort_input_batch_size(flat_input: list[tf.Tensor]) -> TensorLike:
    """The second dimension of inputs [time, batch, ...]: a number where one of them knows it, else a tensor."""
    for value in flat_input:
        if value.shape.ndims is not None and value.shape.ndims >= 2 and value.shape.as_list()[1] is not None:
            return value.shape.as_list()[1]
    return tf.shape(flat_input[0])[1]
