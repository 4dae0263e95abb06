"""`tf.contrib.cudnn_rnn` as ordinary networks: the same results, variables and names in checkpoints, on any device.

cuDNN keeps all weights of a network in one buffer, which TensorFlow saves as the variables of cells that compute the
same. Here these cells compute it.
"""

from __future__ import annotations

from typing import Any, Final

import anabranch as tf
from anabranch.contrib.arguments import DTypeLike, PassedOn, TensorLike
from anabranch.contrib.rnn_extras import LSTMBlockCell, stack_bidirectional_dynamic_rnn
from anabranch.contrib.rnn_projections import linear

CUDNN_RNN_UNIDIRECTION: Final = "unidirectional"
CUDNN_RNN_BIDIRECTION: Final = "bidirectional"
CUDNN_LSTM: Final = "lstm"
CUDNN_GRU: Final = "gru"
CUDNN_RNN_RELU: Final = "rnn_relu"
CUDNN_RNN_TANH: Final = "rnn_tanh"
CUDNN_INPUT_LINEAR_MODE: Final = "linear_input"
CUDNN_INPUT_SKIP_MODE: Final = "skip_input"
CUDNN_INPUT_AUTO_MODE: Final = "auto_select"


class CudnnCompatibleLSTMCell(LSTMBlockCell):
    """The cell whose variables are those of one layer of `CudnnLSTM`: no bias is added to the forget gate.

    Args:
        num_units: size of c and h.
        reuse: whether the variables exist already.
    """

    def __init__(self, num_units: int, reuse: bool | None = None) -> None:
        super().__init__(num_units, forget_bias=0.0, reuse=reuse, name="cudnn_compatible_lstm_cell")


class CudnnCompatibleGRUCell(tf.nn.rnn_cell.GRUCell):
    """The cell whose variables are those of one layer of `CudnnGRU`: the reset gate acts after the product.

    ``new = tanh(x W + b + reset * (h R + b'))`` where `GRUCell` has ``tanh(x W + (reset * h) R + b)``.

    Args:
        num_units: size of the state.
        reuse: whether the variables exist already.
        kernel_initializer: of the kernels; None: the scope's.
    """

    def __init__(self, num_units: int, reuse: bool | None = None, kernel_initializer: PassedOn = None) -> None:
        super().__init__(num_units, reuse=reuse, kernel_initializer=kernel_initializer)
        self._units, self._initializer = num_units, kernel_initializer

    def build(self, inputs_shape: PassedOn) -> None:
        self.built = True

    def call(self, inputs: TensorLike, state: PassedOn) -> tuple[tf.Tensor, tf.nest.Structure]:
        with tf.variable_scope(tf.get_variable_scope(), initializer=self._initializer):
            with tf.variable_scope("gates"):
                ones = tf.constant_initializer(1.0)
                kernel_shape = [inputs.shape.as_list()[1] + self._units, 2 * self._units]
                kernel = tf.get_variable("kernel", kernel_shape, inputs.dtype)
                bias = tf.get_variable("bias", [2 * self._units], inputs.dtype, ones)
                gates = tf.sigmoid(tf.nn.xw_plus_b(tf.concat([inputs, state], 1), kernel, bias))
                reset, update = tf.split(gates, 2, 1)
            with tf.variable_scope("candidate"):
                with tf.variable_scope("input_projection"):
                    from_inputs = linear(inputs, self._units)
                with tf.variable_scope("hidden_projection"):
                    from_state = linear(state, self._units)
        state = update * state + (1 - update) * tf.tanh(from_inputs + reset * from_state)
        return state, state


class _CudnnRNN(tf.layers.Layer):
    """Layers of cells, one on the other, in one or both directions.

    Args:
        num_layers: int.
        num_units: int: size of the state of a layer and direction.
        input_mode: "linear_input", or "auto_select" where the inputs have another size than the state.
        direction: "unidirectional" or "bidirectional".
        dropout: probability that what goes from a layer to the next is dropped, in training.
        seed: of those random numbers.
        dtype: float32, float64 or float16: of the variables.
        kernel_initializer: of each gate's weights of inputs, and of state; None: Glorot and Bengio's, uniform.
        bias_initializer: of biases; None: zeros.
        name: of the layer; None: that of the class.

    Raises:
        ValueError: the direction or the mode is none of these.
    """

    #: whether a state has two parts, h and c
    _two_parts = False

    def __init__(
        self,
        num_layers: int,
        num_units: int,
        input_mode: str = "linear_input",
        direction: str = "unidirectional",
        dropout: float = 0.0,
        seed: int | None = None,
        dtype: DTypeLike = tf.float32,
        kernel_initializer: PassedOn = None,
        bias_initializer: PassedOn = None,
        name: str | None = None,
    ) -> None:
        super().__init__(dtype=dtype, name=name)
        if direction not in ("unidirectional", "bidirectional"):
            raise ValueError(f"direction must be unidirectional or bidirectional, got {direction!r}")
        if input_mode not in ("linear_input", "auto_select"):
            raise ValueError(
                f"input_mode must be linear_input or auto_select, got {input_mode!r}; inputs are projected"
            )
        self.num_layers, self.num_units, self.direction, self._mode = num_layers, num_units, direction, input_mode
        self._dropout, self._seed = dropout, seed
        self._kernel_initializer = kernel_initializer or tf.glorot_uniform_initializer()
        self._bias_initializer = bias_initializer or tf.zeros_initializer()

    @property
    def num_dirs(self) -> int:
        """1 or 2."""
        return 2 if self.direction == "bidirectional" else 1

    def state_shape(self, batch_size: int) -> tuple[list[int], ...]:
        """The shapes of the tensors of a state, each [layers * directions, batch, units]."""
        shape = [self.num_layers * self.num_dirs, batch_size, self.num_units]
        return (shape, shape) if self._two_parts else (shape,)

    def _cell(self) -> Any:
        raise NotImplementedError("one of the subclasses knows which cells it consists of")

    def _packed(self, tensors: list[Any]) -> Any:
        """The state of a cell, of its parts in cuDNN's order."""
        return tf.nn.rnn_cell.LSTMStateTuple(tensors[1], tensors[0]) if self._two_parts else tensors[0]

    def _unpacked(self, state: PassedOn) -> list[Any]:
        return [state.h, state.c] if self._two_parts else [state]

    def build(self, input_shape: PassedOn) -> None:
        size = tf.TensorShape(input_shape).as_list()[-1]
        if size is None:
            raise ValueError(f"the last dimension of the inputs of {self.name} must be known, got {input_shape}")
        if self._mode == "auto_select" and size == self.num_units:
            raise ValueError(
                f"auto_select leaves out the projection where inputs have {size} units too; say linear_input"
            )
        self.built = True

    def call(
        self,
        inputs: TensorLike,
        initial_state: PassedOn = None,
        sequence_lengths: TensorLike | None = None,
        time_major: bool = True,
        training: bool = True,
    ) -> tuple[tf.Tensor, tuple[tf.Tensor, ...]]:
        """Runs all steps.

        Args:
            inputs: [time, batch, size], or [batch, time, size] if not `time_major`.
            initial_state: tensors [layers * directions, batch, units]: (h, c) of an LSTM, (h,) else; None: zeros.
            sequence_lengths: int [batch]; what is beyond gives zeros, and leaves the state. None: all steps.
            time_major: see `inputs`.
            training: whether to drop.

        Returns:
            (outputs [time, batch, directions * units], or batch first; the last state, as the initial one).
        """
        inputs = tf.convert_to_tensor(inputs, self.dtype)
        if not time_major:
            inputs = tf.transpose(inputs, [1, 0, 2])
        layers = self._initial_states(initial_state)
        # who calls `build` first finds no variables of the cells, which are made here
        with tf.variable_scope(tf.get_variable_scope(), reuse=tf.AUTO_REUSE, custom_getter=self._initialized):
            run = self._both_ways if self.num_dirs == 2 else self._one_way
            outputs, states = run(inputs, layers, sequence_lengths, training)
        parts = zip(*map(self._unpacked, states), strict=True)
        return outputs if time_major else tf.transpose(outputs, [1, 0, 2]), tuple(tf.stack(part) for part in parts)

    def _initial_states(self, initial_state: PassedOn) -> list[Any] | None:
        if initial_state is None:
            return None
        if tf.contrib.framework.is_tensor(initial_state):
            initial_state = (initial_state,)
        count = self.num_layers * self.num_dirs
        parts = [tf.unstack(part, count) for part in initial_state]
        return [self._packed(list(tensors)) for tensors in zip(*parts, strict=True)]

    def _stacked(self, training: bool) -> list[Any]:
        cells = [self._cell() for _ in range(self.num_layers)]
        if training and self._dropout:
            keep = 1 - self._dropout
            wrap = tf.nn.rnn_cell.DropoutWrapper
            cells[:-1] = [wrap(cell, output_keep_prob=keep, seed=self._seed) for cell in cells[:-1]]
        return cells

    def _one_way(
        self, inputs: TensorLike, initial: list[Any] | None, lengths: TensorLike, training: bool
    ) -> tuple[Any, list[Any]]:
        network = tf.nn.rnn_cell.MultiRNNCell(self._stacked(training))
        state = tuple(initial) if initial is not None else None
        outputs, last = tf.nn.dynamic_rnn(network, inputs, lengths, state, self.dtype, time_major=True)
        return outputs, list(last)

    def _both_ways(
        self, inputs: TensorLike, initial: list[Any] | None, lengths: TensorLike, training: bool
    ) -> tuple[Any, list[Any]]:
        forward, backward = (initial[::2], initial[1::2]) if initial is not None else (None, None)
        outputs, last_forward, last_backward = stack_bidirectional_dynamic_rnn(
            self._stacked(training), self._stacked(training), inputs, forward, backward, self.dtype, lengths,
            time_major=True,
        )  # fmt: skip
        return outputs, [state for pair in zip(last_forward, last_backward, strict=True) for state in pair]

    def _initialized(self, getter: PassedOn, name: str, *args: PassedOn, **kwargs: PassedOn) -> Any:
        """Gets a variable, with the layer's initializers in place of the cells', and notes that it is the layer's."""
        if name.endswith("/bias"):
            kwargs["initializer"] = self._bias_initializer
        elif name.endswith("_projection/kernel"):
            kwargs["initializer"] = self._kernel_initializer
        elif name.endswith("/kernel"):
            kwargs["initializer"] = self._gate_by_gate
        variable = getter(name, *args, **kwargs)
        if not any(variable is owned for owned in self._trainable_weights):
            self._trainable_weights.append(variable)
        return variable

    def _gate_by_gate(self, shape: PassedOn, dtype: DTypeLike = tf.float32, partition_info: PassedOn = None) -> Any:
        """A kernel of which each gate's weights, of inputs and of state, are initialized as matrices of their own."""
        rows, columns = (int(size) for size in shape)
        blocks = [[rows - self.num_units, self.num_units], [self.num_units, self.num_units]]
        gates = [
            tf.concat([self._kernel_initializer(block, dtype=dtype) for block in blocks], 0)
            for _ in range(columns // self.num_units)
        ]
        return tf.concat(gates, 1)


class CudnnLSTM(_CudnnRNN):
    __doc__ = f"Layers of LSTMs. {_CudnnRNN.__doc__}"
    _two_parts = True

    def _cell(self) -> Any:
        return CudnnCompatibleLSTMCell(self.num_units)


class CudnnGRU(_CudnnRNN):
    __doc__ = f"Layers of GRUs. {_CudnnRNN.__doc__}"

    def _cell(self) -> Any:
        return CudnnCompatibleGRUCell(self.num_units)


class CudnnRNNTanh(_CudnnRNN):
    __doc__ = f"Layers of plain cells with a hyperbolic tangent. {_CudnnRNN.__doc__}"

    def _cell(self) -> Any:
        return tf.nn.rnn_cell.BasicRNNCell(self.num_units)


class CudnnRNNRelu(_CudnnRNN):
    __doc__ = f"Layers of plain cells with a rectifier. {_CudnnRNN.__doc__}"

    def _cell(self) -> Any:
        return tf.nn.rnn_cell.BasicRNNCell(self.num_units, activation=tf.nn.relu)
