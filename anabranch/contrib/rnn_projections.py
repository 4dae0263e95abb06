"""`tf.contrib.rnn`: cells around cells that project, embed, attend and let inputs pass."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import anabranch as tf
from anabranch.contrib.arguments import PassedOn, ScopeLike, TensorLike


def linear(args: Sequence[tf.Tensor] | tf.Tensor, output_size: int, bias: bool = True) -> Any:
    """Matrices side by side, by the variable "kernel", plus the variable "bias", of the current scope.

    Args:
        args: float [batch, any], one or several, whose second dimensions are known.
        output_size: int.
        bias: whether there is one.

    Returns:
        [batch, output_size].

    Raises:
        ValueError: a second dimension is not known.
    """
    parts = [args] if isinstance(args, tf.Tensor) else list(args)
    sizes = [_known_size(part) for part in parts]
    value = parts[0] if len(parts) == 1 else tf.concat(parts, 1)
    kernel = tf.get_variable("kernel", [sum(sizes), output_size], value.dtype)
    product = tf.matmul(value, kernel)
    if not bias:
        return product
    return tf.nn.bias_add(product, tf.get_variable("bias", [output_size], value.dtype, tf.zeros_initializer()))


def _known_size(value: tf.Tensor) -> int:
    shape = value.shape.as_list() if value.shape.ndims == 2 else [None, None]
    if shape[1] is None:
        raise ValueError(f"{value.name} must have the shape [batch, known size], got {value.shape}; set it by reshape")
    return int(shape[1])


class _CellAround(tf.nn.rnn_cell.RNNCell):
    """A cell around another, with variables of its own.

    Raises:
        TypeError: `cell` is not a cell.
    """

    def __init__(self, cell: tf.nn.rnn_cell.RNNCell, reuse: bool | None = None) -> None:
        super().__init__(_reuse=reuse)
        if not (callable(cell) and hasattr(cell, "state_size") and hasattr(cell, "output_size")):
            raise TypeError(f"The parameter cell is not an RNNCell: {cell!r}")
        self._cell = cell

    @property
    def state_size(self) -> tf.nest.Structure:
        return self._cell.state_size

    @property
    def output_size(self) -> PassedOn:
        return self._cell.output_size

    def zero_state(self, batch_size: TensorLike, dtype: PassedOn) -> tf.nest.Structure:
        """A state of zeros."""
        return self._cell.zero_state(batch_size, dtype)


class InputProjectionWrapper(_CellAround):
    """A cell that is given a linear projection of the inputs.

    Args:
        cell: what is given the projection.
        num_proj: int: size of the projection.
        activation: of the projection; None: none.
        input_size: ignored.
        reuse: whether the variables exist already.

    Raises:
        TypeError: `cell` is not a cell.
    """

    def __init__(
        self,
        cell: tf.nn.rnn_cell.RNNCell,
        num_proj: int,
        activation: Callable[[Any], Any] | None = None,
        input_size: int | None = None,
        reuse: bool | None = None,
    ) -> None:
        super().__init__(cell, reuse)
        self._num_proj, self._activation = num_proj, activation

    def call(self, inputs: TensorLike, state: tf.nest.Structure) -> tuple[tf.Tensor, tf.nest.Structure]:
        projected = linear(inputs, self._num_proj)
        return self._cell(self._activation(projected) if self._activation else projected, state)


class OutputProjectionWrapper(_CellAround):
    """A cell whose output is projected linearly.

    Args:
        cell: whose output it is.
        output_size: int: size of the projection.
        activation: of the projection; None: none.
        reuse: whether the variables exist already.

    Raises:
        TypeError: `cell` is not a cell.
        ValueError: the size is not positive.
    """

    def __init__(
        self,
        cell: tf.nn.rnn_cell.RNNCell,
        output_size: int,
        activation: Callable[[Any], Any] | None = None,
        reuse: bool | None = None,
    ) -> None:
        super().__init__(cell, reuse)
        if output_size < 1:
            raise ValueError(f"Parameter output_size must be > 0: {output_size}.")
        self._output_size, self._activation = output_size, activation

    @property
    def output_size(self) -> PassedOn:
        return self._output_size

    def call(self, inputs: TensorLike, state: tf.nest.Structure) -> tuple[tf.Tensor, tf.nest.Structure]:
        output, state = self._cell(inputs, state)
        projected = linear(output, self._output_size)
        return self._activation(projected) if self._activation else projected, state


class EmbeddingWrapper(_CellAround):
    """A cell that is given vectors in place of symbols.

    Args:
        cell: what is given the vectors.
        embedding_classes: int: how many symbols there are.
        embedding_size: int: size of the vectors.
        initializer: of the variable "embedding"; None: the scope's, or uniform with variance 1.
        reuse: whether the variables exist already.

    Raises:
        TypeError: `cell` is not a cell.
        ValueError: a size is not positive.
    """

    def __init__(
        self,
        cell: tf.nn.rnn_cell.RNNCell,
        embedding_classes: int,
        embedding_size: int,
        initializer: PassedOn = None,
        reuse: bool | None = None,
    ) -> None:
        super().__init__(cell, reuse)
        if embedding_classes <= 0 or embedding_size <= 0:
            raise ValueError(f"embedding_classes and embedding_size must be > 0: {embedding_classes}, {embedding_size}")
        self._shape, self._initializer = [embedding_classes, embedding_size], initializer

    def call(self, inputs: TensorLike, state: tf.nest.Structure) -> tuple[tf.Tensor, tf.nest.Structure]:
        """Runs the cell on the vectors of int [batch] or [batch, 1]."""
        uniform = tf.random_uniform_initializer(-math.sqrt(3), math.sqrt(3))
        initializer = self._initializer or tf.get_variable_scope().initializer or uniform
        dtype = tf.nest.flatten(state)[0].dtype
        table = tf.get_variable("embedding", self._shape, dtype, initializer)
        return self._cell(tf.nn.embedding_lookup(table, tf.reshape(inputs, [-1])), state)


class AttentionCellWrapper(_CellAround):
    """A cell that attends to its own last outputs (Bahdanau et al. 2014).

    Args:
        cell: what is given the inputs together with what was attended to.
        attn_length: int: how many outputs are kept.
        attn_size: int: size of an output; None: the cell's.
        attn_vec_size: int: size of the layer that compares; None: `attn_size`.
        input_size: int: size of what the cell is given; None: that of the inputs.
        state_is_tuple: whether the state is (cell's state, attended [batch, attn_size], outputs [batch, attn_length *
            attn_size]); else these three side by side.
        reuse: whether the variables exist already.

    Raises:
        TypeError: `cell` is not a cell.
        ValueError: no output is kept, or the cell's state is a tuple and `state_is_tuple` is False.
    """

    def __init__(
        self,
        cell: tf.nn.rnn_cell.RNNCell,
        attn_length: int,
        attn_size: int | None = None,
        attn_vec_size: int | None = None,
        input_size: int | None = None,
        state_is_tuple: bool = True,
        reuse: bool | None = None,
    ) -> None:
        super().__init__(cell, reuse)
        if tf.nest.is_nested(cell.state_size) and not state_is_tuple:
            raise ValueError(f"state_is_tuple must be True: the cell's state is a tuple, {cell.state_size}")
        if attn_length <= 0:
            raise ValueError(f"attn_length should be greater than zero, got {attn_length}")
        self._length, self._size = attn_length, attn_size or cell.output_size
        self._vector_size, self._input_size = attn_vec_size or self._size, input_size
        self._state_is_tuple = state_is_tuple

    @property
    def state_size(self) -> tf.nest.Structure:
        sizes = (self._cell.state_size, self._size, self._size * self._length)
        return sizes if self._state_is_tuple else sum(sizes)

    @property
    def output_size(self) -> PassedOn:
        return self._size

    def zero_state(self, batch_size: TensorLike, dtype: PassedOn) -> tf.nest.Structure:
        """A state of zeros."""
        return tf.nn.rnn_cell.RNNCell.zero_state(self, batch_size, dtype)

    def call(self, inputs: TensorLike, state: PassedOn) -> tuple[tf.Tensor, tf.nest.Structure]:
        if not self._state_is_tuple:
            state = tf.split(state, [self._cell.state_size, self._size, self._size * self._length], 1)
        state, attended, outputs = state
        outputs = tf.reshape(outputs, [-1, self._length, self._size])
        given = linear([inputs, attended], self._input_size or _known_size(inputs))
        cell_output, state = self._cell(given, state)
        attended = self._attend(tf.concat(tf.nest.flatten(state), 1), outputs)
        with tf.variable_scope("attn_output_projection"):
            output = linear([cell_output, attended], self._size)
        outputs = tf.concat([outputs[:, 1:], tf.expand_dims(output, 1)], 1)
        new_state = (state, attended, tf.reshape(outputs, [-1, self._length * self._size]))
        return output, new_state if self._state_is_tuple else tf.concat(new_state, 1)

    def _attend(self, query: tf.Tensor, outputs: TensorLike) -> Any:
        """The mean of the outputs, weighed by how well they fit the query: [batch, size]."""
        with tf.variable_scope("attention"):
            features = tf.get_variable("attn_w", [1, 1, self._size, self._vector_size], query.dtype)
            vector = tf.get_variable("attn_v", [self._vector_size], query.dtype)
            compared = tf.tensordot(outputs, features[0, 0], 1) + tf.expand_dims(linear(query, self._vector_size), 1)
        weights = tf.nn.softmax(tf.reduce_sum(vector * tf.tanh(compared), 2))
        return tf.reduce_sum(tf.expand_dims(weights, 2) * outputs, 1)


class CompiledWrapper(_CellAround):
    """A cell that is compiled by XLA, as all are here.

    Args:
        cell: what is run.
        compile_stateful: whether random numbers and the like are compiled with it: XLA's choice here.

    Raises:
        TypeError: `cell` is not a cell.
    """

    def __init__(self, cell: tf.nn.rnn_cell.RNNCell, compile_stateful: bool = False) -> None:
        super().__init__(cell)
        self._compile_stateful = compile_stateful

    def __call__(
        self, inputs: TensorLike, state: PassedOn, scope: ScopeLike | None = None
    ) -> tuple[tf.Tensor, tf.nest.Structure]:
        """What the cell gives."""
        return self._cell(inputs, state, scope=scope)


class HighwayWrapper(_CellAround):
    """A cell whose output is mixed with its input by a gate (Srivastava et al. 2015).

    Args:
        cell: whose input and output have one size.
        couple_carry_transform_gates: whether the output passes as far as the input does not; else by its own gate.
        carry_bias_init: initial bias of the input's gate.

    Raises:
        TypeError: `cell` is not a cell.
    """

    def __init__(
        self,
        cell: tf.nn.rnn_cell.RNNCell,
        couple_carry_transform_gates: bool = True,
        carry_bias_init: float = 1.0,
    ) -> None:
        super().__init__(cell)
        self._coupled, self._bias = couple_carry_transform_gates, carry_bias_init

    def __call__(
        self, inputs: TensorLike, state: PassedOn, scope: ScopeLike | None = None
    ) -> tuple[tf.Tensor, tf.nest.Structure]:
        outputs, state = self._cell(inputs, state, scope=scope)
        tf.nest.assert_same_structure(inputs, outputs)
        return tf.nest.map_structure(self._mixed, inputs, outputs), state

    def _mixed(self, value: TensorLike, output: TensorLike) -> Any:
        value.shape.assert_is_compatible_with(output.shape)
        carried = self._gate(value, "carry", self._bias)
        passed = 1 - carried if self._coupled else self._gate(value, "transform", -self._bias)
        return value * carried + output * passed

    def _gate(self, value: tf.Tensor, name: str, bias: float) -> Any:
        size = _known_size(value)
        weights = tf.get_variable(f"{name}_w", [size, size], value.dtype)
        biases = tf.get_variable(f"{name}_b", [size], value.dtype, tf.constant_initializer(bias))
        return tf.sigmoid(tf.nn.xw_plus_b(value, weights, biases))
