"""Cells of recurrent networks: one step from (input, state) to (output, state)  (WP4.5)."""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from anabranch.core import nest
from anabranch.core.dtypes import DType, DTypeLike, float32
from anabranch.core.nest import Structure
from anabranch.core.shapes import ShapeLike
from anabranch.core.trackables import Trackable
from anabranch.core.values import PassedOn, TensorLike
from anabranch.frontend.arguments import Activation, InitializerLike
from anabranch.frontend.arithmetic.elementwise import tanh
from anabranch.frontend.nn.rnn_cell_base import ACTIVATIONS, LayerRNNCell, RNNCell
from anabranch.frontend.variables.initializers import constant_initializer, zeros_initializer
from anabranch.frontend.variables.partitioned import fixed_size_partitioner
from anabranch.frontend.variables.scope import variable_scope
from anabranch.graph.conversion import convert_to_tensor
from anabranch.graph.operation import Tensor
from anabranch.ops import raw


class LSTMStateTuple(namedtuple("LSTMStateTuple", ("c", "h"))):  # noqa: PYI024
    """The state of an LSTM: the cell state `c` and the output `h`.

    Args:
        c: [batch, size].
        h: [batch, size of the output].

    Raises:
        nothing

    Example:
        >>> state = tf.contrib.rnn.LSTMStateTuple(c=tf.zeros([2, 4]), h=tf.zeros([2, 4]))
        >>> state.c.shape
        TensorShape([Dimension(2), Dimension(4)])
    """

    __slots__ = ()

    @property
    def dtype(self) -> DType:
        """The dtype of both.

        Raises:
            TypeError: they differ.
        """
        if self.c.dtype is not self.h.dtype:
            raise TypeError(f"Inconsistent internal state: {self.c.dtype} vs {self.h.dtype}")
        result: DType = self.c.dtype
        return result


def _activation(given: Activation | None) -> Callable[..., Any]:
    if given is None:
        return tanh
    if callable(given):
        return given
    if given not in ACTIVATIONS:
        raise ValueError(f"Unknown activation function: {given!r}; one of {sorted(ACTIVATIONS)}, or a function")
    return ACTIVATIONS[given]


def _linear(parts: list[Any], kernel: TensorLike, bias: TensorLike) -> Tensor:
    product = raw.MatMul(parts[0] if len(parts) == 1 else raw.ConcatV2(parts, 1), kernel)
    return raw.BiasAdd(product, bias)  # type: ignore[no-any-return]


class BasicRNNCell(LayerRNNCell):
    """The plain recurrent cell, output = state = activation(W [input, state] + b).

    Args:
        num_units: size of the state.
        activation: function or its name; default tanh.
        reuse: whether the variables exist already.
        name: of the cell, under which its variables stand.
        dtype: of the variables; default: that of the first inputs.

    Raises:
        ValueError: (when called) the depth of the inputs is not known.

    Example:
        >>> cell = tf.contrib.rnn.BasicRNNCell(4)
        >>> output, state = cell(tf.zeros([2, 3]), cell.zero_state(2, tf.float32))
        >>> output.shape
        TensorShape([Dimension(2), Dimension(4)])
    """

    def __init__(
        self,
        num_units: int,
        activation: Activation | None = None,
        reuse: bool | None = None,
        name: str | None = None,
        dtype: DTypeLike | None = None,
        **kwargs: PassedOn,
    ) -> None:
        super().__init__(_reuse=reuse, name=name, dtype=dtype, **kwargs)
        self._num_units, self._activation = num_units, _activation(activation)

    @property
    def state_size(self) -> int:
        return self._num_units

    @property
    def output_size(self) -> int:
        return self._num_units

    def build(self, input_shape: ShapeLike) -> None:
        """Makes kernel [depth + units, units] and bias [units]."""
        rows = self._depth(input_shape) + self._num_units
        self._kernel = self.add_weight("kernel", [rows, self._num_units])
        self._bias = self.add_weight(
            "bias", [self._num_units], initializer=zeros_initializer(dtype=self.dtype or float32)
        )
        self.built = True

    def call(self, inputs: Structure, state: Structure) -> tuple[Tensor, nest.Structure]:
        output = self._activation(_linear([inputs, state], self._kernel, self._bias))
        return output, output


class GRUCell(LayerRNNCell):
    """Gated recurrent unit (Cho et al. 2014): state' = u * state + (1 - u) * candidate.

    Args:
        num_units: size of the state.
        activation: of the candidate; default tanh.
        reuse: whether the variables exist already.
        kernel_initializer, bias_initializer: of both pairs of variables; the gates' bias starts at 1 by default.
        name: of the cell, under which its variables stand.
        dtype: of the variables; default: that of the first inputs.

    Raises:
        ValueError: (when called) the depth of the inputs is not known.

    Example:
        >>> cell = tf.contrib.rnn.GRUCell(4)
        >>> output, state = cell(tf.zeros([2, 3]), cell.zero_state(2, tf.float32))
        >>> output.shape
        TensorShape([Dimension(2), Dimension(4)])
    """

    def __init__(
        self,
        num_units: int,
        activation: Activation | None = None,
        reuse: bool | None = None,
        kernel_initializer: InitializerLike | None = None,
        bias_initializer: InitializerLike | None = None,
        name: str | None = None,
        dtype: DTypeLike | None = None,
        **kwargs: PassedOn,
    ) -> None:
        super().__init__(_reuse=reuse, name=name, dtype=dtype, **kwargs)
        self._num_units, self._activation = num_units, _activation(activation)
        self._kernel_initializer, self._bias_initializer = kernel_initializer, bias_initializer

    @property
    def state_size(self) -> int:
        return self._num_units

    @property
    def output_size(self) -> int:
        return self._num_units

    def build(self, input_shape: ShapeLike) -> None:
        """Makes the variables of the gates and of the candidate."""
        units, rows = self._num_units, self._depth(input_shape) + self._num_units
        kernel, bias = self._kernel_initializer, self._bias_initializer
        ones = constant_initializer(1.0, dtype=self.dtype or float32) if bias is None else bias
        zeros = zeros_initializer(dtype=self.dtype or float32) if bias is None else bias
        self._gate_kernel = self.add_weight("gates/kernel", [rows, 2 * units], initializer=kernel)
        self._gate_bias = self.add_weight("gates/bias", [2 * units], initializer=ones)
        self._candidate_kernel = self.add_weight("candidate/kernel", [rows, units], initializer=kernel)
        self._candidate_bias = self.add_weight("candidate/bias", [units], initializer=zeros)
        self.built = True

    def call(self, inputs: Structure, state: Structure) -> tuple[Tensor, nest.Structure]:
        gates = raw.Sigmoid(_linear([inputs, state], self._gate_kernel, self._gate_bias))
        reset, update = raw.Split(1, gates, num_split=2)
        parts = [inputs, raw.Mul(reset, state)]
        candidate = self._activation(_linear(parts, self._candidate_kernel, self._candidate_bias))
        one = convert_to_tensor(np.ones((), update.dtype.as_numpy_dtype))
        new = raw.AddV2(raw.Mul(update, state), raw.Mul(raw.Sub(one, update), candidate))
        return new, new


def _split_state(state: Structure, sizes: tuple[int, int], is_tuple: bool) -> tuple[Any, Any]:
    if is_tuple:
        c, h = state
        return c, h
    c, h = raw.SplitV(state, np.array(sizes, np.int32), 1, num_split=2)
    return c, h


class BasicLSTMCell(LayerRNNCell):
    """Long short-term memory without peepholes, projection or clipping (Zaremba et al. 2014).

    Args:
        num_units: size of c and h.
        forget_bias: added to the forget gate's input.
        state_is_tuple: whether the state is an `LSTMStateTuple`, or c and h side by side in one tensor.
        activation: default tanh.
        reuse: whether the variables exist already.
        name: of the cell, under which its variables stand.
        dtype: of the variables; default: that of the first inputs.

    Raises:
        ValueError: (when called) the depth of the inputs is not known.

    Example:
        >>> cell = tf.contrib.rnn.BasicLSTMCell(4)
        >>> output, state = cell(tf.zeros([2, 3]), cell.zero_state(2, tf.float32))
        >>> output.shape, state.c.shape
        (TensorShape([Dimension(2), Dimension(4)]), TensorShape([Dimension(2), Dimension(4)]))
    """

    def __init__(
        self,
        num_units: int,
        forget_bias: float = 1.0,
        state_is_tuple: bool = True,
        activation: Activation | None = None,
        reuse: bool | None = None,
        name: str | None = None,
        dtype: DTypeLike | None = None,
        **kwargs: PassedOn,
    ) -> None:
        super().__init__(_reuse=reuse, name=name, dtype=dtype, **kwargs)
        self._num_units, self._forget_bias = num_units, forget_bias
        self._state_is_tuple, self._activation = state_is_tuple, _activation(activation)

    @property
    def state_size(self) -> nest.Structure:
        units = self._num_units
        return LSTMStateTuple(units, units) if self._state_is_tuple else 2 * units

    @property
    def output_size(self) -> int:
        return self._num_units

    def build(self, input_shape: ShapeLike) -> None:
        """Makes kernel [depth + units, 4 units] and bias [4 units]; gates in the order i, j, f, o."""
        units = self._num_units
        self._kernel = self.add_weight("kernel", [self._depth(input_shape) + units, 4 * units])
        self._bias = self.add_weight("bias", [4 * units], initializer=zeros_initializer(dtype=self.dtype or float32))
        self.built = True

    def call(self, inputs: Structure, state: Structure) -> tuple[Tensor, nest.Structure]:
        c, h = _split_state(state, (self._num_units, self._num_units), self._state_is_tuple)
        i, j, f, o = raw.Split(1, _linear([inputs, h], self._kernel, self._bias), num_split=4)
        forget = raw.Sigmoid(raw.AddV2(f, convert_to_tensor(self._forget_bias, f.dtype)))
        new_c = raw.AddV2(raw.Mul(c, forget), raw.Mul(raw.Sigmoid(i), self._activation(j)))
        new_h = raw.Mul(self._activation(new_c), raw.Sigmoid(o))
        return new_h, LSTMStateTuple(new_c, new_h) if self._state_is_tuple else raw.ConcatV2([new_c, new_h], 1)


class LSTMCell(LayerRNNCell):
    """Long short-term memory with the options of Sak et al. 2014.

    Args:
        num_units: size of c.
        use_peepholes: whether the gates see c, each unit its own.
        cell_clip: c is clipped to this magnitude.
        initializer: of the kernels and of the peepholes' weights.
        num_proj: size of h, which is then a projection; default: num_units, without a projection.
        proj_clip: the projection is clipped to this magnitude.
        num_unit_shards, num_proj_shards: into how many parts the rows of the kernel and of the projection are split;
            default: as the scope's partitioner says.
        forget_bias: added to the forget gate's input.
        state_is_tuple: whether the state is an `LSTMStateTuple`, or c and h side by side in one tensor.
        activation: default tanh.
        reuse: whether the variables exist already.
        name: of the cell, under which its variables stand.
        dtype: of the variables; default: that of the first inputs.

    Raises:
        ValueError: (when called) the depth of the inputs is not known.

    Example:
        >>> cell = tf.nn.rnn_cell.LSTMCell(8, num_proj=4)
        >>> output, state = cell(tf.zeros([2, 3]), cell.zero_state(2, tf.float32))
        >>> output.shape, state.c.shape
        (TensorShape([Dimension(2), Dimension(4)]), TensorShape([Dimension(2), Dimension(8)]))
    """

    def __init__(
        self,
        num_units: int,
        use_peepholes: bool = False,
        cell_clip: float | None = None,
        initializer: InitializerLike | None = None,
        num_proj: int | None = None,
        proj_clip: float | None = None,
        num_unit_shards: int | None = None,
        num_proj_shards: int | None = None,
        forget_bias: float = 1.0,
        state_is_tuple: bool = True,
        activation: Activation | None = None,
        reuse: bool | None = None,
        name: str | None = None,
        dtype: DTypeLike | None = None,
        **kwargs: PassedOn,
    ) -> None:
        super().__init__(_reuse=reuse, name=name, dtype=dtype, **kwargs)
        self._kernel_parts, self._projection_parts = (
            None if parts is None else fixed_size_partitioner(parts) for parts in (num_unit_shards, num_proj_shards)
        )
        self._num_unit_shards, self._num_proj_shards = num_unit_shards, num_proj_shards
        self._num_units, self._use_peepholes, self._cell_clip = num_units, use_peepholes, cell_clip
        self._initializer, self._num_proj, self._proj_clip = initializer, num_proj, proj_clip
        self._forget_bias, self._state_is_tuple = forget_bias, state_is_tuple
        self._activation = _activation(activation)

    @property
    def state_size(self) -> nest.Structure:
        return (
            LSTMStateTuple(self._num_units, self.output_size)
            if self._state_is_tuple
            else self._num_units + self.output_size
        )

    @property
    def output_size(self) -> int:
        return self._num_proj or self._num_units

    def build(self, input_shape: ShapeLike) -> None:
        """Makes kernel, bias, and as asked for peephole weights and the projection."""
        units, rows = self._num_units, self._depth(input_shape) + self.output_size
        self._kernel = self.add_weight(
            "kernel", [rows, 4 * units], initializer=self._initializer, partitioner=self._kernel_parts
        )
        self._bias = self.add_weight("bias", [4 * units], initializer=zeros_initializer(dtype=self.dtype or float32))
        if self._use_peepholes:
            self._peepholes = [
                self.add_weight(f"w_{gate}_diag", [units], initializer=self._initializer) for gate in ("f", "i", "o")
            ]
        if self._num_proj:
            shape = [units, self._num_proj]
            self._projection = self.add_weight(
                "projection/kernel", shape, initializer=self._initializer, partitioner=self._projection_parts
            )
        self.built = True

    def call(self, inputs: Structure, state: Structure) -> tuple[Tensor, nest.Structure]:
        c, h = _split_state(state, (self._num_units, self.output_size), self._state_is_tuple)
        i, j, f, o = raw.Split(1, _linear([inputs, h], self._kernel, self._bias), num_split=4)
        f = raw.AddV2(f, convert_to_tensor(self._forget_bias, f.dtype))
        if self._use_peepholes:
            f = raw.AddV2(f, raw.Mul(self._peepholes[0], c))
            i = raw.AddV2(i, raw.Mul(self._peepholes[1], c))
        new_c = raw.AddV2(raw.Mul(raw.Sigmoid(f), c), raw.Mul(raw.Sigmoid(i), self._activation(j)))
        new_c = _clipped(new_c, self._cell_clip)
        if self._use_peepholes:
            o = raw.AddV2(o, raw.Mul(self._peepholes[2], new_c))
        new_h = raw.Mul(raw.Sigmoid(o), self._activation(new_c))
        if self._num_proj:
            new_h = _clipped(raw.MatMul(new_h, self._projection), self._proj_clip)
        return new_h, LSTMStateTuple(new_c, new_h) if self._state_is_tuple else raw.ConcatV2([new_c, new_h], 1)


def _clipped(value: Tensor, limit: float | None) -> Tensor:
    if limit is None:
        return value
    low, high = convert_to_tensor(-limit, value.dtype), convert_to_tensor(limit, value.dtype)
    return raw.ClipByValue(value, low, high)  # type: ignore[no-any-return]


class MultiRNNCell(RNNCell):
    """Cells on top of each other: the output of one is the input of the next.

    Args:
        cells: from the bottom up.
        state_is_tuple: whether the state is a tuple of the cells' states, or one tensor.

    Raises:
        ValueError: no cells, or a nested state with `state_is_tuple=False`.
        TypeError: `cells` is not a list or tuple.

    Example:
        >>> cells = tf.nn.rnn_cell.MultiRNNCell([tf.nn.rnn_cell.GRUCell(4), tf.nn.rnn_cell.GRUCell(8)])
        >>> cells.state_size, cells.output_size
        ((4, 8), 8)
    """

    _has_variables = False

    def __init__(self, cells: Sequence[Any], state_is_tuple: bool = True) -> None:
        super().__init__()
        if not cells:
            raise ValueError("Must specify at least one cell for MultiRNNCell.")
        if not isinstance(cells, list | tuple):
            raise TypeError(f"cells must be a list or tuple, but saw: {cells}.")
        self._cells, self._state_is_tuple = list(cells), state_is_tuple
        for number, cell in enumerate(cells):
            if isinstance(cell, Trackable):
                self._track_trackable(cell, f"cell-{number}")
        if not state_is_tuple and any(nest.is_nested(c.state_size) for c in cells):
            raise ValueError("Some cells return tuples of states, but the flag state_is_tuple is not set.")

    @property
    def state_size(self) -> nest.Structure:
        if self._state_is_tuple:
            return tuple(cell.state_size for cell in self._cells)
        return sum(cell.state_size for cell in self._cells)

    @property
    def output_size(self) -> nest.Structure:
        return self._cells[-1].output_size

    @property
    def trainable_weights(self) -> list[Any]:
        return [w for cell in self._cells for w in getattr(cell, "trainable_weights", [])] if self.trainable else []

    @property
    def non_trainable_weights(self) -> list[Any]:
        return [w for cell in self._cells for w in getattr(cell, "non_trainable_weights", [])]

    def zero_state(self, batch_size: TensorLike, dtype: DTypeLike) -> nest.Structure:
        """A state of zeros."""
        if not self._state_is_tuple:
            return super().zero_state(batch_size, dtype)
        return tuple(cell.zero_state(batch_size, dtype) for cell in self._cells)

    def call(self, inputs: Structure, state: Structure) -> tuple[Tensor, nest.Structure]:
        if self._state_is_tuple and not nest.is_nested(state):
            raise ValueError(f"Expected state to be a tuple of length {len(self._cells)}, but received: {state!r}")
        states = state if self._state_is_tuple else _unpacked(state, [c.state_size for c in self._cells])
        new = []
        for i, (cell, one) in enumerate(zip(self._cells, states, strict=True)):
            with variable_scope(f"cell_{i}"):
                inputs, one = cell(inputs, one)
            new.append(one)
        return inputs, tuple(new) if self._state_is_tuple else raw.ConcatV2(new, 1)


def _unpacked(state: Tensor, sizes: list[int]) -> list[Tensor]:
    return list(raw.SplitV(state, np.array(sizes, np.int32), 1, num_split=len(sizes)))
