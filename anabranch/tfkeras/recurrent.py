"""Recurrent layers over cells of any state: numbers, shapes, structures of them, and the cells of `tf.nn.rnn_cell`."""

from __future__ import annotations

import contextlib
import inspect
from typing import Any

import numpy as np

import anabranch as tf
from anabranch.core.values import PassedOn
from anabranch.tfkeras import package, rebasing, shapes
from anabranch.tfkeras.layer import KerasLayer

_module = package.module("layers.recurrent")
_backend = package.module("backend")
_layers = package.module("layers")
_PackageLayer: Any = package.module("engine.base_layer").Layer
#: endings of attributes of cells that are objects
_OBJECTS = ("_constraint", "_regularizer", "_initializer")
_RNN: Any = rebasing.rebased(_module.RNN)
_StackedRNNCells: Any = rebasing.rebased(_module.StackedRNNCells)


def _is_of_graphs(cell: PassedOn) -> bool:
    """Whether a cell is one of `tf.nn.rnn_cell`, which takes a state that is no list of one."""
    return isinstance(cell, tf.nn.rnn_cell.RNNCell)


def _sizes(cell: PassedOn) -> list[list[int | None]]:
    """The lengths of each of a cell's states, without the batch."""
    return [tf.TensorShape(size).as_list() for size in _flat_sizes(cell.state_size)]


def _flat_sizes(size: PassedOn) -> list[Any]:
    if isinstance(size, list | tuple) and not isinstance(size, tf.TensorShape):
        return [one for part in size for one in _flat_sizes(part)]
    return [size]


def _packed(size: PassedOn, states: list[Any]) -> Any:
    """A flat list of states, which it empties, in the structure of a cell's sizes."""
    if isinstance(size, list | tuple) and not isinstance(size, tf.TensorShape):
        parts = [_packed(part, states) for part in size]
        return type(size)(*parts) if hasattr(size, "_fields") else type(size)(parts)
    return states.pop(0)


def _output_size(cell: PassedOn) -> Any:
    size = getattr(cell, "output_size", None)
    return size if size is not None else _flat_sizes(cell.state_size)[0]


def _accepts(function: PassedOn, name: str) -> bool:
    return name in inspect.signature(function).parameters


def _apply(cell: PassedOn, inputs: PassedOn, states: list[Any], kwargs: dict[str, Any]) -> tuple[Any, list[Any]]:
    """A step of a cell from a flat list of states to another."""
    given = _packed(cell.state_size, list(states))
    multiple = isinstance(cell.state_size, list | tuple) and not isinstance(cell.state_size, tf.TensorShape)
    if _is_of_graphs(cell):
        output, new = cell.call(inputs, given)
    else:
        taken = {key: value for key, value in kwargs.items() if _accepts(cell.call, key)}
        output, new = cell.call(inputs, given if multiple else [given], **taken)
    return output, tf.nest.flatten(new)


def _zeros(cell: PassedOn, batch: PassedOn, dtype: PassedOn) -> list[Any]:
    return [
        tf.zeros([batch, *lengths], dtype=dtype) if isinstance(batch, int) else _zeros_of(batch, lengths, dtype)
        for lengths in _sizes(cell)
    ]


def _zeros_of(batch: PassedOn, lengths: list[Any], dtype: PassedOn) -> Any:
    made = tf.zeros(tf.stack([batch, *lengths]), dtype=dtype)
    made.set_shape([None, *lengths])
    return made


def _initial(cell: PassedOn, inputs: PassedOn, batch: PassedOn, dtype: PassedOn) -> list[Any]:
    """What a cell begins with, as a flat list."""
    own = getattr(cell, "get_initial_state", None)
    if own is not None and not _is_of_graphs(cell) and _accepts(own, "inputs"):
        return list(tf.nest.flatten(own(inputs=None, batch_size=batch, dtype=dtype)))
    return _zeros(cell, batch, dtype)


@rebasing.serves(_module.StackedRNNCells)
class StackedRNNCells(_StackedRNNCells):
    """Cells one above the other; its state is the tuple of theirs."""

    def __init__(self, cells: PassedOn, **kwargs: PassedOn) -> None:
        self.reverse_state_order = kwargs.pop("reverse_state_order", False)
        for cell in cells:
            for attribute in ("call", "state_size"):
                if not hasattr(cell, attribute):
                    raise ValueError(
                        f"All cells must have a `{attribute}` attribute or method. received cells: {cells}"
                    )
        KerasLayer.__init__(self, **kwargs)
        self.cells = cells

    def _ordered(self) -> list[Any]:
        return list(self.cells[::-1] if self.reverse_state_order else self.cells)

    @property
    def state_size(self) -> Any:
        return tuple(cell.state_size for cell in self._ordered())

    @property
    def output_size(self) -> Any:
        return _output_size(self.cells[-1])

    def get_initial_state(self, inputs: PassedOn = None, batch_size: PassedOn = None, dtype: PassedOn = None) -> Any:
        batch = tf.shape(inputs)[0] if batch_size is None else batch_size
        kind = inputs.dtype if dtype is None else dtype
        return tuple(_packed(cell.state_size, _initial(cell, inputs, batch, kind)) for cell in self._ordered())

    def build(self, input_shape: PassedOn) -> None:
        shape = input_shape[0] if isinstance(input_shape, list) else input_shape
        lengths = tf.TensorShape(shape).as_list()
        for cell in self.cells:
            if isinstance(cell, _PackageLayer | tf.layers.Layer) and not cell.built:
                cell.build(tf.TensorShape(lengths))
                cell.built = True
            lengths = [lengths[0], *tf.TensorShape(_output_size(cell)).as_list()]
        self.built = True

    def call(self, inputs: PassedOn, states: PassedOn, constants: PassedOn = None, **kwargs: PassedOn) -> Any:
        flat = list(tf.nest.flatten(states))
        order = self._ordered()
        given = {id(cell): [flat.pop(0) for _ in _sizes(cell)] for cell in order}
        if constants is not None:
            kwargs["constants"] = constants
        new = {}
        for cell in self.cells:
            inputs, new[id(cell)] = _apply(cell, inputs, given[id(cell)], kwargs)
        return inputs, tuple(_packed(cell.state_size, new[id(cell)]) for cell in order)

    trainable_weights = KerasLayer.trainable_weights
    non_trainable_weights = KerasLayer.non_trainable_weights
    losses = KerasLayer.losses
    get_losses_for = KerasLayer.get_losses_for
    get_weights = KerasLayer.get_weights
    set_weights = KerasLayer.set_weights


@rebasing.serves(_module.RNN)
class RNN(_RNN):
    """A cell along the time of its inputs.

    Args:
        cell: what has `call(inputs, states)` and `state_size`, or a list of such.
        time_major: whether inputs and outputs have the time before the batch.
    """

    state_spec: Any

    def __init__(
        self,
        cell: PassedOn,
        return_sequences: bool = False,
        return_state: bool = False,
        go_backwards: bool = False,
        stateful: bool = False,
        unroll: bool = False,
        **kwargs: PassedOn,
    ) -> None:
        self.time_major = kwargs.pop("time_major", False)
        kwargs.pop("zero_output_for_mask", None)
        if isinstance(cell, list | tuple):
            cell = StackedRNNCells(cell)
        super().__init__(cell, return_sequences, return_state, go_backwards, stateful, unroll, **kwargs)

    def _set_cell(self, cell: PassedOn) -> None:
        if rebasing.is_of_package(type(cell)):  # made by a layer of the package
            config = cell.get_config()
            config["dtype"] = self._dtype
            made = rebasing.served(type(cell)).from_config(config)
            for key in [key for key in vars(cell) if key.endswith(_OBJECTS)]:
                setattr(made, key, getattr(cell, key))  # the program's own objects
            cell = made
        self.cell = cell

    @property
    def states(self) -> Any:
        return [None] * len(_sizes(self.cell)) if self._states is None else self._states

    @states.setter
    def states(self, states: PassedOn) -> None:
        self._states = states

    @property
    def _is_plain(self) -> bool:
        """Whether sequences are of vectors: what derives from it for images has its own shapes."""
        return not hasattr(self.cell, "kernel_size")

    def build(self, input_shape: PassedOn) -> None:
        if not self._is_plain:
            super().build(input_shape)
            return
        listed = input_shape if isinstance(input_shape, list) else [input_shape]
        lengths = tf.TensorShape(listed[0]).as_list()
        if self.time_major:
            lengths[:2] = [lengths[1], lengths[0]]
        kept = [None if self.time_major or not self.stateful else lengths[0], None, *lengths[2:]]
        self.input_spec[0] = _module.InputSpec(shape=tuple(kept))
        if isinstance(self.cell, _PackageLayer | tf.layers.Layer) and not self.cell.built:
            if getattr(self.cell, "_dtype", None) is None:
                self.cell._dtype = self.dtype
            step = tf.TensorShape([lengths[0], *lengths[2:]])
            own = not rebasing.is_foundation(type(self.cell))
            with tf.name_scope(self.cell.name) if own else contextlib.nullcontext():
                self.cell.build(step)
            self.cell.built = True
        sizes = _sizes(self.cell)
        if self.state_spec is not None and [list(s.shape[1:]) for s in self.state_spec] != sizes:
            raise ValueError(
                "An `initial_state` was passed that is not compatible with `cell.state_size`. Received "
                f"`state_spec`={self.state_spec}; however `cell.state_size` is {self.cell.state_size}"
            )
        self.state_spec = [_module.InputSpec(shape=(None, *size)) for size in sizes]
        if self.stateful:
            self.reset_states()
        self.built = True

    def get_initial_state(self, inputs: PassedOn) -> Any:
        if not self._is_plain:
            return super().get_initial_state(inputs)
        batch = tf.shape(inputs)[1 if self.time_major else 0]
        return _initial(self.cell, inputs, batch, inputs.dtype)

    def __call__(
        self, inputs: PassedOn, initial_state: PassedOn = None, constants: PassedOn = None, **kwargs: PassedOn
    ) -> Any:
        if initial_state is not None:
            initial_state = tf.nest.flatten(initial_state)
        return super().__call__(inputs, initial_state=initial_state, constants=constants, **kwargs)

    def call(
        self,
        inputs: PassedOn,
        mask: PassedOn = None,
        training: PassedOn = None,
        initial_state: PassedOn = None,
        constants: PassedOn = None,
    ) -> Any:
        if not self._is_plain:
            return super().call(inputs, mask, training, initial_state, constants)
        if isinstance(inputs, list | tuple):
            count = self._num_constants or 0
            rest = list(inputs[1:])
            constants = rest[len(rest) - count :] if count and constants is None else constants
            initial_state = rest[: len(rest) - count] or initial_state
            inputs = inputs[0]
        mask = mask[0] if isinstance(mask, list | tuple) else mask
        states = self._begun(inputs, initial_state)
        kwargs = {"training": training} if _accepts(self.cell.call, "training") else {}
        given = list(tf.nest.flatten(constants)) if constants is not None else []
        if given and not _accepts(self.cell.call, "constants"):
            raise ValueError("RNN cell does not support constants")

        def step(at: PassedOn, states: PassedOn) -> Any:
            own = list(states)
            if given:
                own, kwargs["constants"] = own[: -len(given)], own[-len(given) :]
            return _apply(self.cell, at, own, kwargs)

        inputs = _swapped(inputs) if self.time_major else inputs
        last, outputs, new = _backend.rnn(
            step,
            inputs,
            states,
            constants=given or None,
            go_backwards=self.go_backwards,
            mask=mask,
            unroll=self.unroll,
            input_length=inputs.shape.as_list()[1],
        )
        if self.stateful:
            self.add_update([tf.assign(old, one) for old, one in zip(self.states, new, strict=True)], inputs)
        output = outputs if self.return_sequences else last
        if self.return_sequences and self.time_major:
            output = _swapped(output)
        if not self.return_state:
            return output
        packed = _packed(self.cell.state_size, list(new))
        return [output, *(packed if isinstance(packed, list | tuple) else [packed])]

    def _begun(self, inputs: PassedOn, initial_state: PassedOn) -> list[Any]:
        if initial_state is not None:
            states = list(tf.nest.flatten(initial_state))
        elif self.stateful:
            states = list(self.states)
        else:
            states = self.get_initial_state(inputs)
        if len(states) != len(self.states):
            raise ValueError(f"Layer has {len(self.states)} states but was passed {len(states)} initial states.")
        steps = inputs.shape.as_list()[0 if self.time_major else 1]
        if self.unroll and steps is None:
            raise ValueError("Cannot unroll a RNN if the time dimension is undefined; give the input's time a length.")
        return states

    def compute_output_shape(self, input_shape: PassedOn) -> Any:
        if not self._is_plain:
            return super().compute_output_shape(input_shape)
        first = input_shape[0] if isinstance(input_shape, list) else input_shape
        batch, time, *_ = tf.TensorShape(first).as_list()
        if self.time_major:
            batch, time = time, batch
        size = tf.TensorShape(_output_size(self.cell)).as_list()
        order = [time, batch] if self.time_major else [batch, time]
        output = tf.TensorShape([*order, *size] if self.return_sequences else [batch, *size])
        answer: Any = output
        if self.return_state:
            answer = [output, *(tf.TensorShape([batch, *lengths]) for lengths in _sizes(self.cell))]
        return answer if shapes.of_tensorflow(input_shape) else shapes.as_tuples(answer)

    def _tell_shapes(self, inputs: PassedOn, outputs: PassedOn) -> None:
        """The loop knows them."""

    def reset_states(self, states: PassedOn = None) -> None:
        plain = all(len(size) == 1 for size in _sizes(self.cell))
        if not self._is_plain or not self.stateful or (plain and self._states is not None and states is not None):
            super().reset_states(states)
            return
        batch = self.input_spec[0].shape[0]
        if not batch:
            super().reset_states(states)  # which says so
            return
        if self._states is None:
            kind = self.dtype or _backend.floatx()
            made = [tf.zeros([batch, *size], kind) for size in _sizes(self.cell)]
            self._states = [tf.Variable(value, trainable=False, name="state") for value in made]
            for variable in self._states:
                variable._keras_initialized = False
        else:
            values = [None] * len(self._states) if states is None else tf.nest.flatten(states)
            for variable, value in zip(self._states, values, strict=True):
                size = variable.shape.as_list()
                _backend.set_value(variable, _array(value, size))

    def get_config(self) -> dict[str, Any]:
        config: dict[str, Any] = super().get_config()
        return config | {"time_major": True} if self.time_major else config

    # what the cell has is the layer's, and no more
    trainable_weights = KerasLayer.trainable_weights
    non_trainable_weights = KerasLayer.non_trainable_weights
    losses = KerasLayer.losses
    get_losses_for = KerasLayer.get_losses_for


def _array(value: PassedOn, size: list[int]) -> Any:
    return np.zeros(size) if value is None else value


def _swapped(x: PassedOn) -> Any:
    return tf.transpose(x, [1, 0, *range(2, x.shape.ndims)])
