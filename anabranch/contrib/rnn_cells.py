"""`tf.contrib.rnn`: further cells."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import anabranch as tf
from anabranch.contrib.arguments import PassedOn, TensorLike
from anabranch.contrib.rnn_projections import linear


class NASCell(tf.contrib.rnn.LayerRNNCell):
    """The cell that a search among architectures came to (Zoph and Le 2017).

    Args:
        num_units: int.
        num_proj: int: size of a projection of the output; None: none.
        use_biases: whether there are biases.
        reuse: whether the variables exist already.

    Example:
        >>> cell = tf.contrib.rnn.NASCell(4)
        >>> output, state = cell(tf.zeros([2, 3]), cell.zero_state(2, tf.float32))
        >>> output.shape
        TensorShape([Dimension(2), Dimension(4)])
    """

    def __init__(
        self,
        num_units: int,
        num_proj: int | None = None,
        use_biases: bool = False,
        reuse: bool | None = None,
        **kwargs: PassedOn,
    ) -> None:
        super().__init__(_reuse=reuse, **kwargs)
        self._num_units, self._num_proj, self._use_biases = num_units, num_proj, use_biases

    @property
    def state_size(self) -> tf.nest.Structure:
        return tf.nn.rnn_cell.LSTMStateTuple(self._num_units, self.output_size)

    @property
    def output_size(self) -> int:
        return self._num_proj or self._num_units

    def build(self, input_shape: PassedOn) -> None:
        units = self._num_units
        self.recurrent_kernel = self.add_weight("recurrent_kernel", [self.output_size, 8 * units])
        self.kernel = self.add_weight("kernel", [self._depth(input_shape), 8 * units])
        if self._use_biases:
            self.bias = self.add_weight("bias", [8 * units], initializer=tf.zeros_initializer())
        if self._num_proj is not None:
            self.projection_weights = self.add_weight("projection_weights", [units, self._num_proj])
        self.built = True

    def call(self, inputs: TensorLike, state: PassedOn) -> tuple[tf.Tensor, tf.nest.Structure]:
        c, m = state
        from_state = tf.matmul(m, self.recurrent_kernel)
        if self._use_biases:
            from_state = tf.nn.bias_add(from_state, self.bias)
        pairs = list(zip(tf.split(tf.matmul(inputs, self.kernel), 8, 1), tf.split(from_state, 8, 1), strict=True))
        sums = [a + b for a, b in pairs]
        first = tf.tanh(tf.sigmoid(sums[0]) * tf.nn.relu(sums[1]))
        second = tf.tanh(tf.sigmoid(sums[2]) + tf.nn.relu(pairs[3][0] * pairs[3][1]))
        third = tf.tanh(tf.tanh(sums[4]) * tf.sigmoid(sums[5]))
        fourth = tf.sigmoid(tf.tanh(sums[6]) + tf.sigmoid(sums[7]))
        c = tf.tanh(first + c) * second
        m = tf.tanh(c * tf.tanh(third + fourth))
        if self._num_proj is not None:
            m = tf.matmul(m, self.projection_weights)
        return m, tf.nn.rnn_cell.LSTMStateTuple(c, m)


class UGRNNCell(tf.nn.rnn_cell.RNNCell):
    """A cell with one gate, which decides between the old state and a new one (Collins et al. 2017).

    Args:
        num_units: int.
        initializer: of the kernel; None: the scope's.
        forget_bias: added to the gate's input.
        activation: of the new state.
        reuse: whether the variables exist already.
    """

    def __init__(
        self,
        num_units: int,
        initializer: PassedOn = None,
        forget_bias: float = 1.0,
        activation: Callable[[Any], Any] = tf.tanh,
        reuse: bool | None = None,
        **kwargs: PassedOn,
    ) -> None:
        super().__init__(_reuse=reuse, **kwargs)
        self._num_units, self._initializer = num_units, initializer
        self._forget_bias, self._activation = forget_bias, activation

    @property
    def state_size(self) -> int:
        return self._num_units

    @property
    def output_size(self) -> int:
        return self._num_units

    def call(self, inputs: TensorLike, state: PassedOn) -> tuple[tf.Tensor, tf.nest.Structure]:
        with tf.variable_scope(tf.get_variable_scope(), initializer=self._initializer):
            gate, new = tf.split(linear([inputs, state], 2 * self._num_units), 2, 1)
        kept = tf.sigmoid(gate + self._forget_bias)
        state = kept * state + (1 - kept) * self._activation(new)
        return state, state


class GRUBlockCellV2(tf.nn.rnn_cell.GRUCell):
    """A GRU whose step is one operation, where its dtype is float32; in others it is `GRUCell`.

    Args:
        num_units: size of the state.
        cell_size: an older name of it.
        reuse: whether the variables exist already.
        name: of the cell, under which its variables stand.

    Raises:
        ValueError: there is no size, or two different ones.
    """

    def __init__(
        self,
        num_units: int | None = None,
        cell_size: int | None = None,
        reuse: bool | None = None,
        name: str = "gru_cell",
    ) -> None:
        size = cell_size if num_units is None else num_units
        if size is None or cell_size not in (None, size):
            raise ValueError(f"say either num_units or cell_size, got {num_units} and {cell_size}")
        super().__init__(size, reuse=reuse, name=name)

    def call(self, inputs: TensorLike, state: PassedOn) -> tuple[tf.Tensor, tf.nest.Structure]:
        if inputs.dtype.base_dtype != tf.float32:
            return super().call(inputs, state)
        *_, new = tf.raw_ops.GRUBlockCell(
            x=inputs,
            h_prev=state,
            w_ru=self._gate_kernel,
            w_c=self._candidate_kernel,
            b_ru=self._gate_bias,
            b_c=self._candidate_bias,
        )
        return new, new


class GRUBlockCell(GRUBlockCellV2):
    """The same as `GRUBlockCellV2`, with variables of older names: w_ru, b_ru, w_c and b_c.

    Args, and errors, are those of `GRUBlockCellV2`.
    """

    def build(self, input_shape: PassedOn) -> None:
        units, rows = self._num_units, self._depth(input_shape) + self._num_units
        ones, zeros = tf.ones_initializer(), tf.zeros_initializer()
        self._gate_kernel = self.add_weight("w_ru", [rows, 2 * units])
        self._gate_bias = self.add_weight("b_ru", [2 * units], initializer=ones)
        self._candidate_kernel = self.add_weight("w_c", [rows, units])
        self._candidate_bias = self.add_weight("b_c", [units], initializer=zeros)
        self.built = True
