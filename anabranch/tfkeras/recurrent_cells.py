"""Cells of recurrent layers: the package's say what state they begin with, and two that the package has not."""

from __future__ import annotations

from typing import Any

import anabranch as tf
from anabranch.core.dtypes import DTypeLike
from anabranch.core.values import PassedOn, TensorLike
from anabranch.tfkeras import package, rebasing
from anabranch.tfkeras.layer import KerasLayer

_module = package.module("layers.recurrent")
_SimpleRNNCell: Any = rebasing.rebased(_module.SimpleRNNCell)
_GRUCell: Any = rebasing.rebased(_module.GRUCell)
_LSTMCell: Any = rebasing.rebased(_module.LSTMCell)


class _BeginsWithZeros:
    """Of a cell: the state that it begins with."""

    state_size: Any

    def get_initial_state(
        self, inputs: PassedOn = None, batch_size: TensorLike | None = None, dtype: DTypeLike | None = None
    ) -> Any:
        """Zeros in the structure of `state_size`, for the batch and the dtype of inputs, or for those given.

        Raises:
            ValueError: neither inputs nor both a batch and a dtype are given.
        """
        batch: Any = batch_size
        if inputs is not None:
            batch, dtype = tf.shape(inputs)[0], inputs.dtype
        if batch is None or dtype is None:
            raise ValueError(
                "batch_size and dtype cannot be None while constructing initial state: got "
                f"batch_size={batch_size}, dtype={dtype}; give them, or inputs"
            )
        return _zeros(self.state_size, batch, tf.as_dtype(dtype))


def _zeros(size: PassedOn, batch: PassedOn, dtype: tf.DType) -> Any:
    if isinstance(size, list | tuple) and not isinstance(size, tf.TensorShape):
        parts = [_zeros(part, batch, dtype) for part in size]
        return type(size)(*parts) if hasattr(size, "_fields") else type(size)(parts)
    lengths = tf.TensorShape(size).as_list()
    made = tf.zeros(tf.stack([batch, *lengths]), dtype)
    made.set_shape([batch if isinstance(batch, int) else None, *lengths])
    return made


@rebasing.serves(_module.SimpleRNNCell)
class KerasSimpleRNNCell(_BeginsWithZeros, _SimpleRNNCell):
    """A cell whose output is its state."""


@rebasing.serves(_module.GRUCell)
class KerasGRUCell(_BeginsWithZeros, _GRUCell):
    """A cell of gated units."""


@rebasing.serves(_module.LSTMCell)
class KerasLSTMCell(_BeginsWithZeros, _LSTMCell):
    """A cell of long short-term memory."""

    def __init__(self, units: int, *args: PassedOn, **kwargs: PassedOn) -> None:
        super().__init__(units, *args, **kwargs)
        self.state_size = [self.units, self.units]  # a list, as libraries expect that compare structures


class AbstractRNNCell(_BeginsWithZeros, KerasLayer):
    """A layer that makes one step of a recurrent layer; a program's cells derive from it.

    They have `state_size`, a length, a shape, or a structure of such, `output_size`, and `call(inputs, states)`, which
    gives the step's outputs and the new states.
    """

    def call(self, inputs: PassedOn, states: PassedOn) -> Any:
        """The outputs of a step and the new states."""
        raise NotImplementedError("a cell defines `call`")

    @property
    def state_size(self) -> Any:
        """The sizes of its states."""
        raise NotImplementedError("a cell defines `state_size`")

    @state_size.setter
    def state_size(self, size: PassedOn) -> None:
        raise AttributeError("`state_size` is a property that a cell defines")

    @property
    def output_size(self) -> Any:
        """The size of its outputs."""
        raise NotImplementedError("a cell defines `output_size`")


AbstractRNNCell.__module__ = "tensorflow.keras.layers"


class PeepholeLSTMCell(KerasLSTMCell):
    """A cell of long short-term memory whose gates see the memory, each unit's its own, with weights that are learned.

    The output gate sees the new memory, the other two the old one. Arguments are those of `LSTMCell`.
    """

    _dropout_mask: Any
    _recurrent_dropout_mask: Any

    def build(self, input_shape: PassedOn) -> None:
        super().build(input_shape)
        for gate in ("input", "forget", "output"):
            weight = self.add_weight(
                shape=(self.units,), name=f"{gate}_gate_peephole_weights", initializer=self.kernel_initializer
            )
            setattr(self, f"{gate}_gate_peephole_weights", weight)

    def call(self, inputs: PassedOn, states: PassedOn, training: PassedOn = None) -> Any:
        hidden, memory = states
        hidden, inputs = self._dropped(inputs, hidden, training)
        sums = tf.matmul(inputs, self.kernel) + tf.matmul(hidden, self.recurrent_kernel)
        if self.use_bias:
            sums = tf.nn.bias_add(sums, self.bias)
        of_input, of_forget, of_memory, of_output = tf.split(sums, 4, axis=1)
        gate = self.recurrent_activation
        new = gate(of_forget + self.forget_gate_peephole_weights * memory) * memory
        new += gate(of_input + self.input_gate_peephole_weights * memory) * self.activation(of_memory)
        outputs = gate(of_output + self.output_gate_peephole_weights * new) * self.activation(new)
        return outputs, [outputs, new]

    def _dropped(self, inputs: PassedOn, hidden: PassedOn, training: PassedOn) -> tuple[Any, Any]:
        """Hidden state and inputs with masks of dropout, the same ones in all steps."""
        make = _module._generate_dropout_mask
        if 0 < self.dropout < 1 and self._dropout_mask is None:
            self._dropout_mask = make(tf.ones_like(inputs), self.dropout, training=training)
        if 0 < self.recurrent_dropout < 1 and self._recurrent_dropout_mask is None:
            self._recurrent_dropout_mask = make(tf.ones_like(hidden), self.recurrent_dropout, training=training)
        hidden = hidden if self._recurrent_dropout_mask is None else hidden * self._recurrent_dropout_mask
        return hidden, inputs if self._dropout_mask is None else inputs * self._dropout_mask


PeepholeLSTMCell.__module__ = "tensorflow.keras.experimental"
