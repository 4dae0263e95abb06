"""Private cells of TensorFlow's `contrib.rnn`: LSTMs whose gates or weights are normalized, and two with one state.

Programs import them from `tensorflow.contrib.rnn.python.ops.rnn_cell`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import anabranch as tf
from anabranch.contrib.arguments import DTypeLike, PassedOn, TensorLike
from anabranch.contrib.rnn_extras import clipped, normalized
from anabranch.contrib.rnn_independent import CellOfUnits
from anabranch.contrib.rnn_projections import linear


class ExtendedLSTMCell(tf.nn.rnn_cell.RNNCell):
    """An LSTM with peepholes, clipping and a projection, whose linear parts and states a subclass may normalize.

    Args:
        num_units: int.
        use_peepholes: whether the gates see the state, each unit its own.
        cell_clip: what the state's absolute values are at most; None: no limit.
        initializer: of the variables; None: the scope's.
        num_proj: int: size of a projection of the output; None: none.
        proj_clip: what the projection's absolute values are at most; None: no limit.
        forget_bias: added to the forget gate.
        activation: of the state; None: tanh.
        reuse: whether the variables exist already.
    """

    #: the scope of all variables below that of the cell
    _variables_in: str | None = None

    def __init__(
        self,
        num_units: int,
        use_peepholes: bool = False,
        cell_clip: float | None = None,
        initializer: PassedOn = None,
        num_proj: int | None = None,
        proj_clip: float | None = None,
        forget_bias: float = 1,
        activation: Callable[[Any], Any] | None = None,
        reuse: bool | None = None,
    ) -> None:
        super().__init__(_reuse=reuse)
        self._num_units, self._use_peepholes, self._initializer = num_units, use_peepholes, initializer
        self._cell_clip, self._num_proj, self._proj_clip = cell_clip, num_proj or None, proj_clip
        self._forget_bias, self._activation = forget_bias, activation or tf.tanh

    @property
    def state_size(self) -> tf.nest.Structure:
        return tf.nn.rnn_cell.LSTMStateTuple(self._num_units, self.output_size)

    @property
    def output_size(self) -> int:
        return self._num_proj or self._num_units

    def _linear(self, args: Sequence[tf.Tensor], size: int) -> Any:
        """What matrices side by side come to, by variables of the current scope, with a bias."""
        return linear(args, size)

    def _projected(self, output: tf.Tensor, size: int) -> Any:
        """The same of one matrix, without a bias."""
        return linear(output, size, bias=False)

    def _normalized(self, value: tf.Tensor, name: str) -> Any:
        """A gate's inputs, or the state."""
        return value

    def call(self, inputs: TensorLike, state: PassedOn) -> tuple[tf.Tensor, tf.nest.Structure]:
        scope = self._variables_in or tf.get_variable_scope()
        with tf.variable_scope(scope, initializer=self._initializer):
            return self._step(tf.convert_to_tensor(inputs), *state)

    def _step(self, inputs: tf.Tensor, c: tf.Tensor, h: tf.Tensor) -> tuple[tf.Tensor, tf.nest.Structure]:
        names = ("input", "transform", "forget", "output")
        sums = tf.split(self._linear([inputs, h], 4 * self._num_units), 4, axis=1)
        i, j, f, o = (self._normalized(value, name) for value, name in zip(sums, names, strict=True))
        kept = tf.sigmoid(f + self._forget_bias + self._peephole("w_f_diag", c)) * c
        new = clipped(
            self._normalized(
                kept + tf.sigmoid(i + self._peephole("w_i_diag", c)) * self._activation(j),
                "state",
            ),
            self._cell_clip,
        )
        h = tf.sigmoid(o + self._peephole("w_o_diag", new)) * self._activation(new)
        if self._num_proj is not None:
            with tf.variable_scope("projection"):
                h = self._projected(h, self._num_proj)
            h = clipped(h, self._proj_clip)
        return h, tf.nn.rnn_cell.LSTMStateTuple(new, h)

    def _peephole(self, name: str, state: tf.Tensor) -> Any:
        return tf.get_variable(name, [self._num_units], state.dtype) * state if self._use_peepholes else 0.0


class LayerNormLSTMCell(ExtendedLSTMCell):
    """An LSTM whose gates and state are normalized (Ba et al. 2016), with what `tf.nn.rnn_cell.LSTMCell` has.

    Args:
        layer_norm: whether to normalize; there is a bias if not.
        norm_gain: initial value of the normalization's gain.
        norm_shift: initial value of its shift.
        num_units, use_peepholes, cell_clip, initializer, num_proj, proj_clip, forget_bias, activation, reuse: as
            `ExtendedLSTMCell` has them.
    """

    def __init__(
        self,
        num_units: int,
        use_peepholes: bool = False,
        cell_clip: float | None = None,
        initializer: PassedOn = None,
        num_proj: int | None = None,
        proj_clip: float | None = None,
        forget_bias: float = 1,
        activation: Callable[[Any], Any] | None = None,
        layer_norm: bool = False,
        norm_gain: float = 1.0,
        norm_shift: float = 0.0,
        reuse: bool | None = None,
    ) -> None:
        super().__init__(
            num_units, use_peepholes, cell_clip, initializer, num_proj, proj_clip, forget_bias, activation, reuse
        )
        self._layer_norm, self._gain, self._shift = layer_norm, norm_gain, norm_shift

    def _linear(self, args: Sequence[tf.Tensor], size: int) -> Any:
        if not self._layer_norm:
            return linear(args, size)
        # TensorFlow's cell makes this variable and does not use it; checkpoints hold it
        tf.get_variable("bias", [size], args[0].dtype, tf.zeros_initializer())
        return linear(args, size, bias=False)

    def _normalized(self, value: tf.Tensor, name: str) -> Any:
        return normalized(value, self._gain, self._shift, name) if self._layer_norm else value


class WeightNormLSTMCell(ExtendedLSTMCell):
    """An LSTM whose weights are a length times a direction, for each column (Salimans and Kingma 2016).

    Args:
        norm: whether the weights are; else they are as they are.
        num_units, use_peepholes, cell_clip, initializer, num_proj, proj_clip, forget_bias, activation, reuse: as
            `ExtendedLSTMCell` has them.
    """

    _variables_in = "wn_lstm_cell"

    def __init__(
        self,
        num_units: int,
        norm: bool = True,
        use_peepholes: bool = False,
        cell_clip: float | None = None,
        initializer: PassedOn = None,
        num_proj: int | None = None,
        proj_clip: float | None = None,
        forget_bias: float = 1,
        activation: Callable[[Any], Any] | None = None,
        reuse: bool | None = None,
    ) -> None:
        super().__init__(
            num_units, use_peepholes, cell_clip, initializer, num_proj, proj_clip, forget_bias, activation, reuse
        )
        self._norm = norm

    def _linear(self, args: Sequence[tf.Tensor], size: int) -> Any:
        if not self._norm:
            return linear(args, size)
        product = self._product(args, size)
        return tf.nn.bias_add(product, tf.get_variable("bias", [size], product.dtype, tf.zeros_initializer()))

    def _projected(self, output: tf.Tensor, size: int) -> Any:
        return self._product([output], size) if self._norm else linear(output, size, bias=False)

    def _product(self, args: Sequence[tf.Tensor], size: int) -> Any:
        """Each of the matrices has directions and lengths of its own."""
        sizes = [int(part.shape[1]) for part in args]
        kernel = tf.get_variable("kernel", [sum(sizes), size], args[0].dtype)
        scaled = [
            tf.nn.l2_normalize(part, axis=0) * tf.get_variable(f"norm_{index}", [size], part.dtype)
            for index, part in enumerate(tf.split(kernel, sizes, 0))
        ]
        return tf.matmul(tf.concat(args, 1), tf.concat(scaled, 0))


class MinimalRNNCell(CellOfUnits):
    """A cell of one gate between the old state and what the inputs alone come to (Chen et al. 2018).

    Args:
        units: int.
        activation: of what the inputs come to; a function or its name.
        kernel_initializer: of the matrices; an initializer or its name.
        bias_initializer: of the gate's bias.
        name: of the cell, under which its variables stand.
        dtype: of the variables; None: that of the first inputs.
    """

    def __init__(
        self,
        units: int,
        activation: Callable[[Any], Any] | str = "tanh",
        kernel_initializer: PassedOn = "glorot_uniform",
        bias_initializer: PassedOn = "ones",
        name: str | None = None,
        dtype: DTypeLike | None = None,
        **kwargs: PassedOn,
    ) -> None:
        super().__init__(units, _function(activation), None, name, dtype, **kwargs)
        self._kernel_initializer = _initializer(kernel_initializer)
        self._bias_initializer = _initializer(bias_initializer)

    def build(self, input_shape: PassedOn) -> None:
        units, self._inputs = self._num_units, self._depth(input_shape)
        self.kernel = self.add_weight("kernel", [self._inputs + 2 * units, units], initializer=self._kernel_initializer)
        self.bias = self.add_weight("bias", [units], initializer=self._bias_initializer)
        self.built = True

    def call(self, inputs: TensorLike, state: PassedOn) -> tuple[tf.Tensor, tf.nest.Structure]:
        first, gate = tf.split(self.kernel, [self._inputs, 2 * self._num_units], 0)
        new = self._activation(tf.matmul(inputs, first))
        kept = tf.sigmoid(tf.nn.bias_add(tf.matmul(tf.concat([new, state], 1), gate), self.bias))
        state = kept * state + (1 - kept) * new
        return state, state


class CFNCell(MinimalRNNCell):
    """A cell without chaos (Laurent and von Brecht 2017): two gates weigh the old state and the inputs.

    The gate of the inputs is one minus a sigmoid, so that a bias of ones lets little in at first. Arguments are those
    of `MinimalRNNCell`.
    """

    def build(self, input_shape: PassedOn) -> None:
        units, make = self._num_units, self._kernel_initializer
        self.kernel = self.add_weight("kernel", [self._depth(input_shape), 3 * units], initializer=make)
        self.recurrent_kernel = self.add_weight("recurrent_kernel", [units, 2 * units], initializer=make)
        self.bias = self.add_weight("bias", [2 * units], initializer=self._bias_initializer)
        self.built = True

    def call(self, inputs: TensorLike, state: PassedOn) -> tuple[tf.Tensor, tf.nest.Structure]:
        units = self._num_units
        gates, new = tf.split(tf.matmul(inputs, self.kernel), [2 * units, units], 1)
        gates = tf.sigmoid(tf.nn.bias_add(gates + tf.matmul(state, self.recurrent_kernel), self.bias))
        kept, shut = tf.split(gates, 2, 1)
        state = kept * self._activation(state) + (1 - shut) * self._activation(new)
        return state, state


def _function(activation: Callable[[Any], Any] | str) -> Callable[[Any], Any]:
    if callable(activation):
        return activation
    for module in (tf.nn, tf):
        found = getattr(module, activation, None)
        if callable(found):
            function: Callable[[Any], Any] = found
            return function
    raise ValueError(f"there is no activation {activation!r}; give the function")


def _initializer(initializer: PassedOn) -> Any:
    if not isinstance(initializer, str):
        return initializer
    return getattr(tf.initializers, initializer)()
