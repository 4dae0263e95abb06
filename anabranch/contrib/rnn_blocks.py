"""`tf.contrib.rnn`: LSTMs that take all steps at once."""

from __future__ import annotations

import abc
from typing import Any

import anabranch as tf
from anabranch.contrib.arguments import DTypeLike, PassedOn, TensorLike


class LSTMBlockWrapper(tf.layers.Layer, metaclass=abc.ABCMeta):
    """What LSTMs over all steps have in common: states to begin with, and what is beyond the ends of sequences.

    A class that is derived from it says how many units it has (`num_units`), and what all steps give (`_call_cell`).
    """

    @property
    @abc.abstractmethod
    def num_units(self) -> int:
        """The size of c and h."""

    @abc.abstractmethod
    def _call_cell(
        self,
        inputs: tf.Tensor,
        initial_cell_state: TensorLike,
        initial_output: TensorLike,
        dtype: DTypeLike,
        sequence_length: tf.Tensor | None,
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """What all steps give.

        Args:
            inputs: [time, batch, size].
            initial_cell_state, initial_output: c and h before the first step, each [batch, num_units].
            dtype: of the result.
            sequence_length: int [batch], or None.

        Returns:
            c and h after each step, [time, batch, num_units]; what stands beyond a sequence's end does not matter.
        """

    def __call__(self, inputs: TensorLike, *args: PassedOn, **kwargs: PassedOn) -> PassedOn:
        """Runs all steps: see `call`."""
        if not isinstance(inputs, list):
            return super().__call__(inputs, *args, **kwargs)
        outputs, state = super().__call__(tf.stack(inputs), *args, **kwargs)
        return tf.unstack(outputs, len(inputs)), state

    def call(
        self,
        inputs: TensorLike,
        initial_state: PassedOn = None,
        dtype: DTypeLike | None = None,
        sequence_length: TensorLike | None = None,
    ) -> tuple[tf.Tensor, tf.nest.Structure]:
        """Runs all steps.

        Args:
            inputs: [time, batch, size], or a list of [batch, size].
            initial_state: (c, h), each [batch, num_units]; None: zeros.
            dtype: of those zeros, and of the outputs; default: that of `initial_state`.
            sequence_length: int [batch]; what is beyond gives zeros, and leaves the state. None: all steps.

        Returns:
            (outputs as the inputs are given, the last state, an `LSTMStateTuple`).

        Raises:
            ValueError: neither `initial_state` nor `dtype` is given, the former is no pair, or the inputs' size is
                not known.
        """
        steps = tf.convert_to_tensor(inputs)
        if not steps.shape.with_rank(3)[2].value:
            raise ValueError(f"Expecting inputs_shape[2] to be set: {steps.shape}")
        if initial_state is None:
            if dtype is None:
                raise ValueError("Either initial_state or dtype needs to be specified")
            zeros = tf.zeros([_size(steps, 1), self.num_units], dtype)
            initial_state = zeros, zeros
        if len(initial_state) != 2:
            raise ValueError("Expecting initial_state to be a tuple with length 2 or None")
        before = [tf.convert_to_tensor(part) for part in initial_state]
        lengths = None if sequence_length is None else tf.convert_to_tensor(sequence_length)
        after = self._call_cell(steps, before[0], before[1], dtype or before[0].dtype, lengths)
        outputs, last = after[1], tf.nn.rnn_cell.LSTMStateTuple(after[0][-1], after[1][-1])
        if lengths is not None:
            alive = tf.transpose(tf.sequence_mask(lengths, _size(steps, 0), outputs.dtype))
            outputs *= alive[..., tf.newaxis]
            last = tf.nn.rnn_cell.LSTMStateTuple(*(_at_end(*pair, lengths) for pair in zip(before, after, strict=True)))
        return outputs, last


def _size(steps: tf.Tensor, axis: int) -> Any:
    known = steps.shape.as_list()[axis]
    return tf.shape(steps)[axis] if known is None else known


def _at_end(before: tf.Tensor, after: tf.Tensor, lengths: tf.Tensor) -> tf.Tensor:
    """The state of each sequence after its last step, or before all where it has none."""
    states = tf.concat([before[tf.newaxis], after], 0)
    return tf.gather_nd(states, tf.stack([lengths, tf.range(tf.shape(before)[0], dtype=lengths.dtype)], 1))


class LSTMBlockFusedCell(LSTMBlockWrapper):
    """An LSTM that is given all steps at once, and computes them in one operation.

    Args:
        num_units: size of c and h.
        forget_bias: added to the forget gate's input.
        cell_clip: c is cut off at this value on both sides; None or a negative number for none.
        use_peephole: whether the gates see c.
        reuse: whether the variables exist already.
        dtype: of the variables; default: that of the first inputs.
        name: of the cell, under which its variables stand, as those of an `LSTMBlockCell`.

    Example:
        >>> cell = tf.contrib.rnn.LSTMBlockFusedCell(4)
        >>> outputs, state = cell(tf.zeros([5, 2, 3]), dtype=tf.float32, sequence_length=[5, 2])
        >>> outputs.shape.as_list(), state.c.shape.as_list()
        ([5, 2, 4], [2, 4])
    """

    def __init__(
        self,
        num_units: int,
        forget_bias: float = 1.0,
        cell_clip: float | None = None,
        use_peephole: bool = False,
        reuse: bool | None = None,
        dtype: DTypeLike | None = None,
        name: str = "lstm_fused_cell",
    ) -> None:
        super().__init__(_reuse=reuse, name=name, dtype=dtype)
        self._num_units = num_units
        self._forget_bias = forget_bias
        self._cell_clip = -1 if cell_clip is None else cell_clip
        self._use_peephole = use_peephole
        self.input_spec = tf.layers.InputSpec(ndim=3)

    @property
    def num_units(self) -> int:
        """The size of c and h."""
        return self._num_units

    def build(self, input_shape: PassedOn) -> None:
        units = self._num_units
        rows = int(tf.TensorShape(input_shape)[2]) + units
        self._kernel = self.add_weight("kernel", [rows, 4 * units])
        self._bias = self.add_weight("bias", [4 * units], initializer=tf.zeros_initializer())
        names = ("w_i_diag", "w_f_diag", "w_o_diag") if self._use_peephole else ()
        self._peepholes = [self.add_weight(name, [units]) for name in names]
        self.built = True

    def _call_cell(
        self,
        inputs: tf.Tensor,
        initial_cell_state: TensorLike,
        initial_output: TensorLike,
        dtype: DTypeLike,
        sequence_length: tf.Tensor | None,
    ) -> tuple[tf.Tensor, tf.Tensor]:
        if inputs.dtype not in (tf.float32, tf.float16):  # the operation, as TensorFlow's, has no other numbers
            states = tf.scan(self._step, inputs, (initial_cell_state, initial_output))
            return states[0], states[1]
        peepholes: list[Any] = self._peepholes or [tf.zeros([self._num_units], dtype)] * 3
        longest = _size(inputs, 0) if sequence_length is None else tf.reduce_max(sequence_length)
        every = tf.raw_ops.BlockLSTM(
            seq_len_max=tf.cast(longest, tf.int64),
            x=inputs,
            cs_prev=initial_cell_state,
            h_prev=initial_output,
            w=self._kernel,
            wci=peepholes[0],
            wcf=peepholes[1],
            wco=peepholes[2],
            b=self._bias,
            forget_bias=self._forget_bias,
            cell_clip=self._cell_clip,
            use_peephole=self._use_peephole,
        )
        return every.cs, every.h

    def _step(self, state: tuple[tf.Tensor, tf.Tensor], inputs: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        c, h = state
        sums = tf.matmul(tf.concat([inputs, h], 1), self._kernel) + self._bias
        entry, new, forget, output = tf.split(sums, 4, 1)
        peepholes: list[Any] = self._peepholes or [0.0] * 3
        seen_by_entry, seen_by_forget, seen_by_output = peepholes
        kept = tf.sigmoid(forget + self._forget_bias + c * seen_by_forget) * c
        now = kept + tf.sigmoid(entry + c * seen_by_entry) * tf.tanh(new)
        if self._cell_clip > 0:
            now = tf.clip_by_value(now, -self._cell_clip, self._cell_clip)
        return now, tf.sigmoid(output + now * seen_by_output) * tf.tanh(now)
