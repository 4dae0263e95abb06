"""`tf.contrib.rnn`: cells whose state is a picture, and one that is open at times of its own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import anabranch as tf
from anabranch.contrib.arguments import DTypeLike, PassedOn, TensorLike
from anabranch.contrib.rnn_projections import linear


class ConvLSTMCell(tf.nn.rnn_cell.RNNCell):
    """An LSTM whose gates are convolutions of the input and the state (Shi et al. 2015).

    Args:
        conv_ndims: in how many dimensions: 1, 2 or 3.
        input_shape: of an input, without the batch: [..., channels], all known.
        output_channels: of the state.
        kernel_shape: of the convolutions, a size for each dimension.
        use_bias: whether they have a bias.
        skip_connection: whether the input stands beside the output.
        forget_bias: added to the forget gate's input.
        initializers: not used, as in TensorFlow.
        name: of the cell.

    Raises:
        ValueError: the shape has another number of dimensions.

    Example:
        >>> cell = tf.contrib.rnn.ConvLSTMCell(2, [8, 8, 3], 4, [3, 3])
        >>> output, state = cell(tf.zeros([1, 8, 8, 3]), cell.zero_state(1, tf.float32))
        >>> output.shape.as_list()
        [1, 8, 8, 4]
    """

    def __init__(
        self,
        conv_ndims: int,
        input_shape: Sequence[int],
        output_channels: int,
        kernel_shape: Sequence[int],
        use_bias: bool = True,
        skip_connection: bool = False,
        forget_bias: float = 1.0,
        initializers: PassedOn = None,
        name: str = "conv_lstm_cell",
    ) -> None:
        super().__init__(name=name)
        sizes = list(input_shape)
        if conv_ndims != len(sizes) - 1:
            raise ValueError(f"Invalid input_shape {input_shape} for conv_ndims={conv_ndims}.")
        self._dimensions, self._channels, self._kernel_shape = conv_ndims, output_channels, list(kernel_shape)
        self._use_bias, self._skip, self._forget_bias = use_bias, skip_connection, forget_bias
        state = tf.TensorShape([*sizes[:-1], output_channels])
        self._state_size = tf.nn.rnn_cell.LSTMStateTuple(state, state)
        self._output_size = tf.TensorShape([*sizes[:-1], output_channels + (sizes[-1] if skip_connection else 0)])

    @property
    def state_size(self) -> tf.nn.rnn_cell.LSTMStateTuple:
        return self._state_size

    @property
    def output_size(self) -> tf.TensorShape:
        return self._output_size

    def call(self, inputs: TensorLike, state: PassedOn, scope: PassedOn = None) -> tuple[tf.Tensor, Any]:
        cell, hidden = state
        entered, new, forgotten, shown = tf.split(self._convolved([inputs, hidden]), 4, axis=self._dimensions + 1)
        cell = tf.sigmoid(forgotten + self._forget_bias) * cell + tf.sigmoid(entered) * tf.tanh(new)
        output = hidden = tf.tanh(cell) * tf.sigmoid(shown)
        if self._skip:
            output = tf.concat([output, inputs], axis=-1)
        return output, tf.nn.rnn_cell.LSTMStateTuple(cell, hidden)

    def _convolved(self, parts: list[Any]) -> tf.Tensor:
        inputs = tf.concat(parts, axis=self._dimensions + 1)
        shape = [*self._kernel_shape, inputs.shape.as_list()[-1], 4 * self._channels]
        kernel = tf.get_variable("kernel", shape, inputs.dtype)
        convolve: Callable[..., Any] = (tf.nn.conv1d, tf.nn.conv2d, tf.nn.conv3d)[self._dimensions - 1]
        stride = 1 if self._dimensions == 1 else [1] * (self._dimensions + 2)
        result: tf.Tensor = convolve(inputs, kernel, stride, padding="SAME")
        if not self._use_bias:
            return result
        return result + tf.get_variable("biases", [4 * self._channels], inputs.dtype, tf.zeros_initializer())


class Conv1DLSTMCell(ConvLSTMCell):
    """A `ConvLSTMCell` of sequences, [batch, length, channels]."""

    def __init__(self, name: str = "conv_1d_lstm_cell", **kwargs: PassedOn) -> None:
        super().__init__(conv_ndims=1, name=name, **kwargs)


class Conv2DLSTMCell(ConvLSTMCell):
    """A `ConvLSTMCell` of pictures, [batch, height, width, channels]."""

    def __init__(self, name: str = "conv_2d_lstm_cell", **kwargs: PassedOn) -> None:
        super().__init__(conv_ndims=2, name=name, **kwargs)


class Conv3DLSTMCell(ConvLSTMCell):
    """A `ConvLSTMCell` of volumes, [batch, depth, height, width, channels]."""

    def __init__(self, name: str = "conv_3d_lstm_cell", **kwargs: PassedOn) -> None:
        super().__init__(conv_ndims=3, name=name, **kwargs)


class PhasedLSTMCell(tf.nn.rnn_cell.RNNCell):
    """An LSTM each of whose units is open in a part of a period of its own (Neil et al. 2016).

    Its input is a pair: times, [batch, 1], and features, [batch, n].

    Args:
        num_units: int.
        use_peepholes: whether gates see the state.
        leak: how much of a closed unit passes while it trains.
        ratio_on: the part of a period in which a unit is open.
        trainable_ratio_on: whether that is learnt.
        period_init_min, period_init_max: of the periods, which are drawn from between, small ones more often.
        reuse: whether the variables exist already.
    """

    def __init__(
        self,
        num_units: int,
        use_peepholes: bool = False,
        leak: float = 0.001,
        ratio_on: float = 0.1,
        trainable_ratio_on: bool = True,
        period_init_min: float = 1.0,
        period_init_max: float = 1000.0,
        reuse: bool | None = None,
    ) -> None:
        super().__init__(_reuse=reuse)
        self._num_units, self._use_peepholes, self._leak = num_units, use_peepholes, leak
        self._ratio_on, self._trainable_ratio_on = ratio_on, trainable_ratio_on
        self._periods = period_init_min, period_init_max

    @property
    def state_size(self) -> tf.nn.rnn_cell.LSTMStateTuple:
        return tf.nn.rnn_cell.LSTMStateTuple(self._num_units, self._num_units)

    @property
    def output_size(self) -> int:
        return self._num_units

    def call(self, inputs: PassedOn, state: PassedOn) -> tuple[tf.Tensor, Any]:
        time, x = inputs
        before, hidden = state
        seen = [x, hidden, before] if self._use_peepholes else [x, hidden]
        with tf.variable_scope("mask_gates"):
            entered, kept = tf.split(tf.sigmoid(linear(seen, 2 * self._num_units)), 2, 1)
        with tf.variable_scope("new_input"):
            new = tf.tanh(linear([x, hidden], self._num_units))
        cell = before * kept + entered * new
        with tf.variable_scope("output_gate"):
            shown = tf.sigmoid(linear([x, hidden, cell] if self._use_peepholes else [x, hidden], self._num_units))
        output = tf.tanh(cell) * shown
        is_open = self._openness(time, x.dtype)
        cell = is_open * cell + (1 - is_open) * before
        output = is_open * output + (1 - is_open) * hidden
        return output, tf.nn.rnn_cell.LSTMStateTuple(cell, output)

    def _openness(self, time: tf.Tensor, dtype: tf.DType) -> tf.Tensor:
        """How far each unit is open: from 0 to 1 and back in the open part of its period, a little in the rest."""
        units = [self._num_units]
        period = tf.get_variable("period", units, dtype, self._random_periods)
        phase = tf.get_variable(
            "phase", dtype=dtype, initializer=lambda: tf.random_uniform(units, dtype=dtype) * period.initialized_value()
        )
        ratio = tf.get_variable(
            "ratio_on", units, dtype, tf.constant_initializer(self._ratio_on), trainable=self._trainable_ratio_on
        )
        shifted = tf.cast(time, tf.float64) - tf.cast(phase, tf.float64)
        long_period = tf.cast(period, tf.float64)
        cycle = tf.cast(tf.floormod(shifted, long_period) / long_period, dtype)
        rising = 2 * cycle / ratio
        falling = 2 - rising
        opened = tf.where(cycle < ratio + tf.zeros_like(cycle), falling, self._leak * cycle)
        result: tf.Tensor = tf.where(cycle < 0.5 * ratio + tf.zeros_like(cycle), rising, opened)
        return result

    def _random_periods(
        self, shape: Sequence[int], dtype: DTypeLike = tf.float32, partition_info: PassedOn = None
    ) -> tf.Tensor:
        least, greatest = (tf.log(tf.constant(end, dtype)) for end in self._periods)
        return tf.exp(tf.random_uniform(shape, least, greatest, dtype))
