"""`tf.contrib.rnn`: layer-normalized cells and stacked bidirectional networks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import anabranch as tf
from anabranch.contrib.arguments import DTypeLike, PassedOn, ScopeLike, TensorLike


class LayerNormBasicLSTMCell(tf.nn.rnn_cell.RNNCell):
    """An LSTM whose gates and state are normalized (Ba et al. 2016), with dropout of what enters the state.

    Args:
        num_units: int.
        forget_bias: added to the forget gate.
        input_size: ignored.
        activation: of the state.
        layer_norm: whether to normalize; there is a bias if not.
        norm_gain: initial value of the normalization's gain.
        norm_shift: initial value of its shift.
        dropout_keep_prob: float or scalar; 1 for no dropout (Semeniuta et al. 2016).
        dropout_prob_seed: of the random numbers.
        reuse: whether to use existing variables.
    """

    def __init__(
        self,
        num_units: int,
        forget_bias: float = 1.0,
        input_size: int | None = None,
        activation: Callable[[Any], Any] = tf.tanh,
        layer_norm: bool = True,
        norm_gain: float = 1.0,
        norm_shift: float = 0.0,
        dropout_keep_prob: TensorLike = 1.0,
        dropout_prob_seed: int | None = None,
        reuse: bool | None = None,
    ) -> None:
        super().__init__(_reuse=reuse)
        self._num_units, self._forget_bias, self._activation = num_units, forget_bias, activation
        self._layer_norm, self._gain, self._shift = layer_norm, norm_gain, norm_shift
        self._keep_prob, self._seed = dropout_keep_prob, dropout_prob_seed

    @property
    def state_size(self) -> tf.nest.Structure:
        return tf.nn.rnn_cell.LSTMStateTuple(self._num_units, self._num_units)

    @property
    def output_size(self) -> int:
        return self._num_units

    def _gates(self, args: tf.Tensor) -> Any:
        """The four gates side by side, [batch, 4 * units]."""
        kernel = tf.get_variable("kernel", [args.shape.as_list()[-1], 4 * self._num_units], args.dtype)
        gates = tf.matmul(args, kernel)
        if self._layer_norm:
            return gates
        # as the scope makes variables: of zeros only where it says so
        return tf.nn.bias_add(gates, tf.get_variable("bias", [4 * self._num_units], args.dtype))

    def _normalized(self, value: tf.Tensor, scope: str) -> Any:
        if not self._layer_norm:
            return value
        return normalized(value, self._gain, self._shift, scope)

    def _kept(self, value: tf.Tensor) -> Any:
        if isinstance(self._keep_prob, float | int) and self._keep_prob >= 1:
            return value
        return tf.nn.dropout(value, self._keep_prob, seed=self._seed)

    def call(self, inputs: TensorLike, state: tf.nest.Structure) -> tuple[tf.Tensor, tf.nest.Structure]:
        c, h = state
        gates = tf.split(self._gates(tf.concat([inputs, h], 1)), 4, axis=1)
        names = ("input", "transform", "forget", "output")
        i, j, f, o = (self._normalized(gate, name) for gate, name in zip(gates, names, strict=True))
        entering = self._kept(self._activation(j))
        c = c * tf.sigmoid(f + self._forget_bias) + tf.sigmoid(i) * entering
        c = self._normalized(c, "state")
        h = self._activation(c) * tf.sigmoid(o)
        return h, tf.nn.rnn_cell.LSTMStateTuple(c, h)


def clipped(value: tf.Tensor, bound: float | None) -> Any:
    """The value cut off at a bound on both sides; None: as it is."""
    return value if bound is None else tf.clip_by_value(value, -bound, bound)


def normalized(value: tf.Tensor, gain: float, shift: float, scope: str) -> Any:
    """Rows with mean 0 and variance 1, by "gamma" plus "beta" of a scope, which are `gain` and `shift` at first."""
    with tf.variable_scope(scope):
        size = value.shape[-1:]
        gamma = tf.get_variable("gamma", size, value.dtype, tf.constant_initializer(gain))
        beta = tf.get_variable("beta", size, value.dtype, tf.constant_initializer(shift))
    mean, variance = tf.nn.moments(value, [-1], keep_dims=True)
    epsilon = 1e-3 if value.dtype == tf.float16 else 1e-12
    return tf.nn.batch_normalization(value, mean, variance, beta, gamma, epsilon)


# ---------------------------------------------------------------------- stacks
def _checked_stacks(
    cells_fw: list[tf.nn.rnn_cell.RNNCell],
    cells_bw: list[tf.nn.rnn_cell.RNNCell],
    states_fw: list[tf.nest.Structure] | None,
    states_bw: list[tf.nest.Structure] | None,
) -> tuple[list[Any], list[Any]]:
    """The initial states of the layers.

    Raises:
        ValueError: cells or states are not lists of one length.
    """
    for name, cells in (("cells_fw", cells_fw), ("cells_bw", cells_bw)):
        if not isinstance(cells, list) or not cells:
            raise ValueError(f"{name} must be a list of cells, one or more, got {cells!r}")
    if len(cells_fw) != len(cells_bw):
        raise ValueError(f"there are {len(cells_fw)} forward cells, but {len(cells_bw)} backward cells")
    for name, states in (("initial_states_fw", states_fw), ("initial_states_bw", states_bw)):
        if states is not None and (not isinstance(states, list) or len(states) != len(cells_fw)):
            raise ValueError(f"{name} must be a list of {len(cells_fw)} states, one for each cell")
    nothing = [None] * len(cells_fw)
    return states_fw or nothing, states_bw or nothing


def stack_bidirectional_dynamic_rnn(
    cells_fw: list[tf.nn.rnn_cell.RNNCell],
    cells_bw: list[tf.nn.rnn_cell.RNNCell],
    inputs: TensorLike,
    initial_states_fw: list[tf.nest.Structure] | None = None,
    initial_states_bw: list[tf.nest.Structure] | None = None,
    dtype: DTypeLike | None = None,
    sequence_length: TensorLike | None = None,
    parallel_iterations: int | None = None,
    time_major: bool = False,
    scope: ScopeLike | None = None,
    swap_memory: bool = False,
) -> tuple[Any, tuple[Any, ...], tuple[Any, ...]]:
    """Several bidirectional networks: each is given the outputs of the one below, both directions side by side.

    Args:
        cells_fw: list of cells, one for each layer.
        cells_bw: the same against time.
        inputs: [batch, time, ...], or [time, batch, ...] if `time_major`.

    Returns:
        (outputs [batch, time, both directions], last states forward, last states backward).

    Raises:
        ValueError: cells or states are not lists of one length.
    """
    states_fw, states_bw = _checked_stacks(cells_fw, cells_bw, initial_states_fw, initial_states_bw)
    last_fw, last_bw = [], []
    with tf.variable_scope(scope or "stack_bidirectional_rnn"):
        for i, (fw, bw) in enumerate(zip(cells_fw, cells_bw, strict=True)):
            with tf.variable_scope(f"cell_{i}"):
                outputs, (state_fw, state_bw) = tf.nn.bidirectional_dynamic_rnn(
                    fw, bw, inputs, sequence_length, states_fw[i], states_bw[i], dtype,
                    parallel_iterations, swap_memory, time_major,
                )  # fmt: skip
                inputs = tf.concat(outputs, 2)
            last_fw.append(state_fw)
            last_bw.append(state_bw)
    return inputs, tuple(last_fw), tuple(last_bw)


def stack_bidirectional_rnn(
    cells_fw: list[tf.nn.rnn_cell.RNNCell],
    cells_bw: list[tf.nn.rnn_cell.RNNCell],
    inputs: Sequence[Any],
    initial_states_fw: list[tf.nest.Structure] | None = None,
    initial_states_bw: list[tf.nest.Structure] | None = None,
    dtype: DTypeLike | None = None,
    sequence_length: TensorLike | None = None,
    scope: ScopeLike | None = None,
) -> tuple[list[Any], tuple[Any, ...], tuple[Any, ...]]:
    """The same as `stack_bidirectional_dynamic_rnn`, over a list of inputs [batch, ...], one for each step.

    Returns:
        (list of outputs, last states forward, last states backward).

    Raises:
        ValueError: cells or states are not lists of one length.
    """
    states_fw, states_bw = _checked_stacks(cells_fw, cells_bw, initial_states_fw, initial_states_bw)
    last_fw, last_bw, steps = [], [], list(inputs)
    with tf.variable_scope(scope or "stack_bidirectional_rnn"):
        for i, (fw, bw) in enumerate(zip(cells_fw, cells_bw, strict=True)):
            with tf.variable_scope(f"cell_{i}"):
                steps, state_fw, state_bw = tf.nn.static_bidirectional_rnn(
                    fw, bw, steps, states_fw[i], states_bw[i], dtype, sequence_length
                )
            last_fw.append(state_fw)
            last_bw.append(state_bw)
    return steps, tuple(last_fw), tuple(last_bw)


def transpose_batch_time(x: TensorLike) -> tf.nest.Structure:
    """[a, b, ...] -> [b, a, ...]; what has fewer than two dimensions stays.

    Raises:
        ValueError: the rank is not known.
    """
    x = tf.convert_to_tensor(x)
    rank = x.shape.ndims
    if rank is None:
        raise ValueError(f"the rank of {x.name} must be known")
    return x if rank < 2 else tf.transpose(x, [1, 0, *range(2, rank)])


class LSTMBlockCell(tf.nn.rnn_cell.LSTMCell):
    """An LSTM whose step is one operation, where its dtype is float32 or float16; in others it is `LSTMCell`.

    The gradient of the operation is TensorFlow's: it flows as if `cell_clip` cut nothing off.

    Args:
        num_units: size of c and h.
        forget_bias: added to the forget gate's input.
        cell_clip: c is cut off at this value on both sides; None or a negative number for none.
        use_peephole: whether the gates see c.
        dtype: of the variables; default: that of the first inputs.
        reuse: whether the variables exist already.
        name: of the cell, under which its variables stand.

    Example:
        >>> cell = tf.contrib.rnn.LSTMBlockCell(4)
        >>> output, state = cell(tf.zeros([2, 3]), cell.zero_state(2, tf.float32))
        >>> output.shape, state.c.shape
        (TensorShape([Dimension(2), Dimension(4)]), TensorShape([Dimension(2), Dimension(4)]))
    """

    def __init__(
        self,
        num_units: int,
        forget_bias: float = 1.0,
        cell_clip: float | None = None,
        use_peephole: bool = False,
        dtype: DTypeLike | None = None,
        reuse: bool | None = None,
        name: str = "lstm_cell",
    ) -> None:
        super().__init__(
            num_units,
            use_peepholes=use_peephole,
            cell_clip=cell_clip if cell_clip is not None and cell_clip > 0 else None,
            forget_bias=forget_bias,
            reuse=reuse,
            name=name,
            dtype=dtype,
        )

    def call(self, inputs: TensorLike, state: PassedOn) -> tuple[tf.Tensor, tf.nest.Structure]:
        if inputs.dtype.base_dtype not in (tf.float32, tf.float16):
            return super().call(inputs, state)
        zeros = tf.zeros([self._num_units], inputs.dtype)
        forget, entry, output = self._peepholes if self._use_peepholes else (zeros, zeros, zeros)
        gates = tf.raw_ops.LSTMBlockCell(
            x=inputs,
            cs_prev=state[0],
            h_prev=state[1],
            w=self._kernel,
            wci=entry,
            wcf=forget,
            wco=output,
            b=self._bias,
            forget_bias=self._forget_bias,
            cell_clip=self._cell_clip or -1.0,
            use_peephole=self._use_peepholes,
        )
        return gates[6], tf.nn.rnn_cell.LSTMStateTuple(gates[1], gates[6])
