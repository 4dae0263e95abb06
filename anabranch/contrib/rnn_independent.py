"""`tf.contrib.rnn`: cells whose units see of the state only their own, and cells of coupled or grouped gates."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import anabranch as tf
from anabranch.contrib.arguments import DTypeLike, PassedOn, TensorLike
from anabranch.contrib.rnn_projections import linear


class CellOfUnits(tf.nn.rnn_cell.RNNCell):
    """A cell whose state and output are `num_units` numbers."""

    def __init__(
        self,
        num_units: int,
        activation: Callable[[Any], Any] | None,
        reuse: bool | None,
        name: str | None = None,
        dtype: DTypeLike | None = None,
        **kwargs: PassedOn,
    ) -> None:
        super().__init__(_reuse=reuse, name=name, dtype=dtype, **kwargs)
        self._num_units, self._activation = num_units, activation or tf.tanh

    @property
    def state_size(self) -> tf.nest.Structure:
        return self._num_units

    @property
    def output_size(self) -> int:
        return self._num_units

    def _own_weights(self, name: str, size: int) -> tf.Variable:
        """What each unit weighs its own state with, [1, size], at first uniform from -1 to 1."""
        return self.add_weight(name, [1, size], initializer=tf.random_uniform_initializer(-1, 1))


class SRUCell(CellOfUnits):
    """The simple recurrent unit (Lei et al. 2017): all products with matrices are of the inputs alone.

    Args:
        num_units: int.
        activation: of the state; None: tanh.
        reuse: whether the variables exist already.
        name: of the cell, under which its variables stand.

    Example:
        >>> cell = tf.contrib.rnn.SRUCell(4)
        >>> output, state = cell(tf.zeros([2, 3]), cell.zero_state(2, tf.float32))
        >>> output.shape
        TensorShape([Dimension(2), Dimension(4)])
    """

    def __init__(
        self,
        num_units: int,
        activation: Callable[[Any], Any] | None = None,
        reuse: bool | None = None,
        name: str | None = None,
        **kwargs: PassedOn,
    ) -> None:
        super().__init__(num_units, activation, reuse, name, **kwargs)

    def build(self, input_shape: PassedOn) -> None:
        units = self._num_units
        self._kernel = self.add_weight("kernel", [self._depth(input_shape), 4 * units])
        self._bias = self.add_weight("bias", [2 * units], initializer=tf.zeros_initializer())
        self.built = True

    def call(self, inputs: TensorLike, state: PassedOn) -> tuple[tf.Tensor, tf.nest.Structure]:
        units = self._num_units
        new, gates, passed = tf.split(tf.matmul(inputs, self._kernel), [units, 2 * units, units], 1)
        kept, shown = tf.split(tf.sigmoid(tf.nn.bias_add(gates, self._bias)), 2, 1)
        state = kept * state + (1 - kept) * new
        return shown * self._activation(state) + (1 - shown) * passed, state


class IndRNNCell(CellOfUnits):
    """A cell each of whose units sees its own state alone (Li et al. 2018): act(W x + u * state + b).

    Args:
        num_units: int.
        activation: of the output; None: tanh.
        reuse: whether the variables exist already.
        name: of the cell, under which its variables stand.
        dtype: of the variables; None: that of the first inputs.
    """

    def __init__(
        self,
        num_units: int,
        activation: Callable[[Any], Any] | None = None,
        reuse: bool | None = None,
        name: str | None = None,
        dtype: DTypeLike | None = None,
    ) -> None:
        super().__init__(num_units, activation, reuse, name, dtype)

    def build(self, input_shape: PassedOn) -> None:
        self._kernel = self.add_weight("kernel_w", [self._depth(input_shape), self._num_units])
        self._own = self._own_weights("kernel_u", self._num_units)
        self._bias = self.add_weight("bias", [self._num_units], initializer=tf.zeros_initializer())
        self.built = True

    def call(self, inputs: TensorLike, state: PassedOn) -> tuple[tf.Tensor, tf.nest.Structure]:
        weighed = tf.matmul(inputs, self._kernel) + state * self._own
        output = self._activation(tf.nn.bias_add(weighed, self._bias))
        return output, output


class IndyGRUCell(CellOfUnits):
    """A GRU each of whose units sees its own state alone (Li et al. 2018).

    Args:
        num_units: int.
        activation: of the new state; None: tanh.
        reuse: whether the variables exist already.
        kernel_initializer: of what the inputs are multiplied with.
        bias_initializer: of the biases; None: ones for the gates, and zeros.
        name: of the cell, under which its variables stand.
        dtype: of the variables; None: that of the first inputs.
    """

    def __init__(
        self,
        num_units: int,
        activation: Callable[[Any], Any] | None = None,
        reuse: bool | None = None,
        kernel_initializer: PassedOn = None,
        bias_initializer: PassedOn = None,
        name: str | None = None,
        dtype: DTypeLike | None = None,
    ) -> None:
        super().__init__(num_units, activation, reuse, name, dtype)
        self._kernel_initializer, self._bias_initializer = kernel_initializer, bias_initializer

    def build(self, input_shape: PassedOn) -> None:
        units, depth, of_kernel = self._num_units, self._depth(input_shape), self._kernel_initializer
        ones, zeros = self._bias_initializer or tf.ones_initializer(), self._bias_initializer or tf.zeros_initializer()
        self._gate_kernel = self.add_weight("gates/kernel_w", [depth, 2 * units], initializer=of_kernel)
        self._gate_own = self._own_weights("gates/kernel_u", 2 * units)
        self._gate_bias = self.add_weight("gates/bias", [2 * units], initializer=ones)
        self._candidate_kernel = self.add_weight("candidate/kernel", [depth, units], initializer=of_kernel)
        self._candidate_own = self._own_weights("candidate/kernel_u", units)
        self._candidate_bias = self.add_weight("candidate/bias", [units], initializer=zeros)
        self.built = True

    def call(self, inputs: TensorLike, state: PassedOn) -> tuple[tf.Tensor, tf.nest.Structure]:
        gates = tf.matmul(inputs, self._gate_kernel) + tf.tile(state, [1, 2]) * self._gate_own
        reset, kept = tf.split(tf.sigmoid(tf.nn.bias_add(gates, self._gate_bias)), 2, 1)
        candidate = tf.matmul(inputs, self._candidate_kernel) + reset * state * self._candidate_own
        state = kept * state + (1 - kept) * self._activation(tf.nn.bias_add(candidate, self._candidate_bias))
        return state, state


class IndyLSTMCell(CellOfUnits):
    """An LSTM each of whose units sees its own state alone (Gonnet and Deselaers 2019).

    Args:
        num_units: int.
        forget_bias: added to the forget gate's input.
        activation: of the state; None: tanh.
        reuse: whether the variables exist already.
        kernel_initializer: of what the inputs are multiplied with.
        bias_initializer: of the biases; None: zeros.
        name: of the cell, under which its variables stand.
        dtype: of the variables; None: that of the first inputs.
    """

    def __init__(
        self,
        num_units: int,
        forget_bias: float = 1.0,
        activation: Callable[[Any], Any] | None = None,
        reuse: bool | None = None,
        kernel_initializer: PassedOn = None,
        bias_initializer: PassedOn = None,
        name: str | None = None,
        dtype: DTypeLike | None = None,
    ) -> None:
        super().__init__(num_units, activation, reuse, name, dtype)
        self._forget_bias = forget_bias
        self._kernel_initializer, self._bias_initializer = kernel_initializer, bias_initializer

    @property
    def state_size(self) -> tf.nest.Structure:
        return tf.nn.rnn_cell.LSTMStateTuple(self._num_units, self._num_units)

    def build(self, input_shape: PassedOn) -> None:
        size, zeros = 4 * self._num_units, tf.zeros_initializer()
        depth = self._depth(input_shape)
        self._kernel = self.add_weight("kernel_w", [depth, size], initializer=self._kernel_initializer)
        self._own = self._own_weights("kernel_u", size)
        self._bias = self.add_weight("bias", [size], initializer=self._bias_initializer or zeros)
        self.built = True

    def call(self, inputs: TensorLike, state: PassedOn) -> tuple[tf.Tensor, tf.nest.Structure]:
        c, h = state
        gates = tf.matmul(inputs, self._kernel) + tf.tile(h, [1, 4]) * self._own
        entered, new, kept, shown = tf.split(tf.nn.bias_add(gates, self._bias), 4, 1)
        c = c * tf.sigmoid(kept + self._forget_bias) + tf.sigmoid(entered) * self._activation(new)
        h = self._activation(c) * tf.sigmoid(shown)
        return h, tf.nn.rnn_cell.LSTMStateTuple(c, h)


class IntersectionRNNCell(CellOfUnits):
    """A cell with a gate in time and one in depth, for stacks of many (Collins et al. 2017).

    Args:
        num_units: int, which is the size of the inputs as well.
        num_in_proj: `num_units` where the inputs have another size and are to be projected; None: they are not.
        initializer: of the kernels; None: the scope's.
        forget_bias: added to the gates' inputs.
        y_activation: of the output.
        reuse: whether the variables exist already.

    Raises:
        ValueError: the inputs have another size and `num_in_proj` is not given.
    """

    def __init__(
        self,
        num_units: int,
        num_in_proj: int | None = None,
        initializer: PassedOn = None,
        forget_bias: float = 1.0,
        y_activation: Callable[[Any], Any] = tf.nn.relu,
        reuse: bool | None = None,
    ) -> None:
        super().__init__(num_units, y_activation, reuse)
        self._num_in_proj, self._initializer, self._forget_bias = num_in_proj, initializer, forget_bias

    def call(self, inputs: TensorLike, state: PassedOn) -> tuple[tf.Tensor, tf.nest.Structure]:
        with tf.variable_scope(tf.get_variable_scope(), initializer=self._initializer):
            inputs = self._of_the_right_size(inputs)
            parts = tf.split(linear([inputs, state], 4 * self._num_units), 4, 1)
        state_gate, new_state, output_gate, new_output = parts
        kept, passed = tf.sigmoid(state_gate + self._forget_bias), tf.sigmoid(output_gate + self._forget_bias)
        state = kept * state + (1 - kept) * tf.tanh(new_state)
        return passed * inputs + (1 - passed) * self._activation(new_output), state

    def _of_the_right_size(self, inputs: TensorLike) -> Any:
        if inputs.shape.as_list()[1] == self._num_units:
            return inputs
        if not self._num_in_proj:
            raise ValueError(
                "Must have input size == output size for Intersection RNN. To fix, num_in_proj should be set to "
                f"num_units at cell init. Got inputs of the shape {inputs.shape} for {self._num_units} units."
            )
        with tf.variable_scope("in_projection"):
            return linear(inputs, self._num_units)


class GLSTMCell(tf.nn.rnn_cell.RNNCell):
    """An LSTM in groups, each of which sees its part of inputs and outputs (Kuchaiev and Ginsburg 2017).

    Args:
        num_units: int, which the number of groups divides.
        initializer: of the variables; None: the scope's.
        num_proj: size of a projection of the output, which the number of groups divides; None: none.
        number_of_groups: int.
        forget_bias: added to the forget gate's input.
        activation: of the output.
        reuse: whether the variables exist already.

    Raises:
        ValueError: the number of groups does not divide a size.
    """

    def __init__(
        self,
        num_units: int,
        initializer: PassedOn = None,
        num_proj: int | None = None,
        number_of_groups: int = 1,
        forget_bias: float = 1.0,
        activation: Callable[[Any], Any] = tf.tanh,
        reuse: bool | None = None,
    ) -> None:
        super().__init__(_reuse=reuse)
        self._num_units, self._num_proj, self._groups = num_units, num_proj, number_of_groups
        self._initializer, self._forget_bias, self._activation = initializer, forget_bias, activation
        for size, what in ((num_units, "num_units"), (num_proj or 0, "num_proj")):
            self._check_divides(size, what)

    def _check_divides(self, size: int, what: str) -> None:
        if size % self._groups:
            raise ValueError(f"{what} ({size}) must be divisible by number_of_groups ({self._groups})")

    @property
    def state_size(self) -> tf.nest.Structure:
        return tf.nn.rnn_cell.LSTMStateTuple(self._num_units, self.output_size)

    @property
    def output_size(self) -> int:
        return self._num_proj or self._num_units

    def call(self, inputs: TensorLike, state: PassedOn) -> tuple[tf.Tensor, tf.nest.Structure]:
        c, m = state
        if inputs.shape.as_list()[1] is None:
            raise ValueError(f"input size must be statically known, got inputs of the shape {inputs.shape}: set_shape")
        self._check_divides(inputs.shape.as_list()[1], "input size")
        with tf.variable_scope(tf.get_variable_scope(), initializer=self._initializer):
            entered, new, kept, shown = self._gates(inputs, m)
        c = tf.sigmoid(kept + self._forget_bias) * c + tf.sigmoid(entered) * tf.tanh(new)
        m = tf.sigmoid(shown) * self._activation(c)
        if self._num_proj is not None:
            with tf.variable_scope("projection"):
                m = linear(m, self._num_proj, bias=False)
        return m, tf.nn.rnn_cell.LSTMStateTuple(c, m)

    def _gates(self, inputs: tf.Tensor, outputs: tf.Tensor) -> list[Any]:
        """What enters the gates i, j, f and o: of all groups side by side."""
        of_groups = []
        pairs = zip(tf.split(inputs, self._groups, 1), tf.split(outputs, self._groups, 1), strict=True)
        for group, pair in enumerate(pairs):
            with tf.variable_scope(f"group{group}"):
                of_groups.append(tf.split(linear(pair, 4 * self._num_units // self._groups, bias=False), 4, 1))
        zeros = tf.zeros_initializer()
        return [
            tf.nn.bias_add(tf.concat(parts, 1), tf.get_variable(f"bias_{gate}", [self._num_units], inputs.dtype, zeros))
            for gate, parts in zip("ijfo", zip(*of_groups, strict=True), strict=True)
        ]
