"""Recurrent layers over cells of any state: numbers, shapes, structures of them, and the cells of `tf.nn.rnn_cell`."""

from __future__ import annotations

import contextlib
import inspect
from typing import Any

import numpy as np

import anabranch as tf
from anabranch.compat.private import keras_rnn
from anabranch.core.values import PassedOn
from anabranch.tfkeras import history, package, rebasing, shapes
from anabranch.tfkeras.layer import KerasLayer

_module = package.module("layers.recurrent")
_backend = package.module("backend")
_layers = package.module("layers")
_PackageLayer: Any = package.module("engine.base_layer").Layer
#: endings of attributes of cells that are objects
_OBJECTS = ("_constraint", "_regularizer", "_initializer")
_ConvRNN: Any = package.module("layers.convolutional_recurrent").ConvRNN2D
#: layers of the package that go over sequences of vectors
_OF_VECTORS = (_module.SimpleRNN, _module.GRU, _module.LSTM)
_RNN: Any = rebasing.rebased(_module.RNN)
_StackedRNNCells: Any = rebasing.rebased(_module.StackedRNNCells)


def _is_of_graphs(cell: PassedOn) -> bool:
    """Whether a cell is one of `tf.nn.rnn_cell`, which takes a state that is no list of one."""
    return isinstance(cell, tf.nn.rnn_cell.RNNCell)


def _sizes(cell: PassedOn) -> list[list[int | None]]:
    """The lengths of each of a cell's states, without the batch."""
    return [tf.TensorShape(size).as_list() for size in _flat_sizes(cell.state_size)]


def _is_structure(size: PassedOn) -> bool:
    return isinstance(size, list | tuple) and not isinstance(size, tf.TensorShape)


def _flat_sizes(size: PassedOn) -> list[Any]:
    if _is_structure(size):
        return [one for part in size for one in _flat_sizes(part)]
    return [size]


def _packed(size: PassedOn, states: list[Any]) -> Any:
    """A flat list of states, which it empties, in the structure of a cell's sizes."""
    if _is_structure(size):
        parts = [_packed(part, states) for part in size]
        return type(size)(*parts) if hasattr(size, "_fields") else type(size)(parts)
    return states.pop(0)


def _output_size(cell: PassedOn) -> Any:
    size = getattr(cell, "output_size", None)
    return size if size is not None else _flat_sizes(cell.state_size)[0]


def _with_sizes(begin: list[Any], size: PassedOn) -> Any:
    """The shapes of tensors of those sizes behind the dimensions with which they begin, in the sizes' structure."""
    return _packed(size, [tf.TensorShape([*begin, *tf.TensorShape(one).as_list()]) for one in _flat_sizes(size)])


def _accepts(function: PassedOn, name: str) -> bool:
    return name in inspect.signature(function).parameters


def _apply(cell: PassedOn, inputs: PassedOn, states: list[Any], kwargs: dict[str, Any]) -> tuple[Any, list[Any]]:
    """A step of a cell from a flat list of states to another."""
    given = _packed(cell.state_size, list(states))
    multiple = _is_structure(cell.state_size)
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
        given = shapes.as_one_or_structure(shape)
        batch = tf.nest.flatten(given)[0].as_list()[0]
        for cell in self.cells:
            if isinstance(cell, _PackageLayer | tf.layers.Layer) and not cell.built:
                with tf.name_scope(cell.name):
                    cell.build(given)
                cell.built = True
            given = _with_sizes([batch], _output_size(cell))
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
        zero_output_for_mask: whether outputs of steps that the mask leaves out are zeros, not those of the step before.
    """

    state_spec: Any
    input_spec: Any
    _states: Any

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
        self.zero_output_for_mask = kwargs.pop("zero_output_for_mask", False)
        length, width = kwargs.pop("input_length", None), kwargs.pop("input_dim", None)
        if (length or width) and "input_shape" not in kwargs:
            kwargs["input_shape"] = (length, width)
        if isinstance(cell, list | tuple):
            cell = StackedRNNCells(cell)
        super().__init__(cell, return_sequences, return_state, go_backwards, stateful, unroll, **kwargs)
        if not isinstance(self, (*_OF_VECTORS, _ConvRNN)):
            self.input_spec = None  # inputs may be anything that the cell takes

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
        """The cell's states, in a list of as many structures as the cell has states; None each before there are any."""
        flat = [None] * len(_flat_sizes(self.cell.state_size)) if self._states is None else list(self._states)
        return _as_list(_packed(self.cell.state_size, flat))

    @states.setter
    def states(self, states: PassedOn) -> None:
        self._states = None if states is None else tf.nest.flatten(states)

    @property
    def _is_plain(self) -> bool:
        """Whether it is not one of the package's layers of images, which have their own shapes."""
        return not isinstance(self, _ConvRNN)

    def build(self, input_shape: PassedOn) -> None:
        if not self._is_plain:
            super().build(input_shape)
            return
        given = shapes.as_one_or_structure(input_shape[0] if isinstance(input_shape, list) else input_shape)
        specs = tf.nest.map_structure(self._spec, given)
        if self.input_spec is None:
            self.input_spec = [specs]
        else:
            self.input_spec[0] = specs
        if isinstance(self.cell, _PackageLayer | tf.layers.Layer) and not self.cell.built:
            if getattr(self.cell, "_dtype", None) is None:
                self.cell._dtype = self.dtype
            own = not rebasing.is_foundation(type(self.cell))
            with tf.name_scope(self.cell.name) if own else contextlib.nullcontext():
                self.cell.build(tf.nest.map_structure(self._of_step, given))
            self.cell.built = True
        sizes = _sizes(self.cell)
        if self.state_spec is not None and not _fit(self.state_spec, sizes):
            raise ValueError(
                "An `initial_state` was passed that is not compatible with `cell.state_size`. Received "
                f"`state_spec`={self.state_spec}; however `cell.state_size` is {self.cell.state_size}"
            )
        self.state_spec = [_module.InputSpec(shape=(None, *size)) for size in sizes]
        if self.stateful:
            self.reset_states()
        self.built = True

    def _spec(self, shape: tf.TensorShape) -> Any:
        """What inputs of this shape have to be: only a layer that keeps states holds to their batch."""
        lengths = shape.as_list()
        batch, time = (1, 0) if self.time_major else (0, 1)
        lengths[time] = None
        if not self.stateful:
            lengths[batch] = None
        return _module.InputSpec(shape=tuple(lengths))

    def _of_step(self, shape: tf.TensorShape) -> tf.TensorShape:
        lengths = shape.as_list()
        return tf.TensorShape([lengths[1 if self.time_major else 0], *lengths[2:]])

    def get_initial_state(self, inputs: PassedOn) -> Any:
        """Zeros, or what the cell says it begins with: a list of as many structures as the cell has states."""
        if not self._is_plain:
            return super().get_initial_state(inputs)
        first = tf.nest.flatten(inputs)[0]
        batch = tf.shape(first)[1 if self.time_major else 0]
        return _as_list(_packed(self.cell.state_size, _initial(self.cell, first, batch, first.dtype)))

    def __call__(
        self, inputs: PassedOn, initial_state: PassedOn = None, constants: PassedOn = None, **kwargs: PassedOn
    ) -> Any:
        """What the cell gives for a sequence.

        Args:
            inputs: a tensor, a tuple of such, or a list: of that, initial states and constants.
            initial_state: tensors in the structure of the cell's states.
            constants: what the cell gets in every step.

        Raises:
            ValueError: some of the states and constants are outputs of layers, others not.
        """
        if initial_state is not None:
            initial_state = tf.nest.flatten(initial_state)
        if not self._is_plain:
            return super().__call__(inputs, initial_state=initial_state, constants=constants, **kwargs)
        inputs, states, given = self._taken_apart(inputs, initial_state, constants)
        further = [*states, *given]
        call = super(_module.RNN, self).__call__
        if not further:
            return call(inputs, **kwargs)
        if states:
            self.state_spec = [_spec_of(x) for x in states]
        if given:
            self.constants_spec, self._num_constants = [_spec_of(x) for x in given], len(given)
        history.ensure((inputs, further))
        of_layers = [hasattr(x, "_keras_history") for x in further]
        if any(of_layers) and not all(of_layers):
            raise ValueError(
                "The initial state or constants of an RNN layer cannot be specified with a mix of Keras tensors and "
                'non-Keras tensors (a "Keras tensor" is a tensor that was returned by a Keras layer, or by `Input`)'
            )
        if not all(of_layers):
            told = {name: value for name, value in (("initial_state", states), ("constants", given)) if value}
            return call(inputs, **told, **kwargs)
        own = self.input_spec or [tf.nest.map_structure(lambda _: None, inputs)]
        self.input_spec = [*own, *(_spec_of(x) for x in further)]
        outputs = call([inputs, *further], **kwargs)
        self.input_spec = self.input_spec[: len(own)]
        return outputs

    def _taken_apart(
        self, inputs: PassedOn, initial_state: PassedOn, constants: PassedOn
    ) -> tuple[Any, list[Any], list[Any]]:
        """The sequences, the initial states and the constants of a call."""
        given = list(tf.nest.flatten(constants)) if constants is not None else []
        states = list(tf.nest.flatten(initial_state)) if initial_state is not None else []
        if isinstance(inputs, list):
            first, *rest = inputs
            count = 0 if given else self._num_constants or 0
            return first, rest[: len(rest) - count] or states, rest[len(rest) - count :] or given
        return inputs, states, given

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
        inputs, states, given = self._taken_apart(inputs, initial_state, constants)
        states = self._begun(inputs, states)
        kwargs = {"training": training} if _accepts(self.cell.call, "training") else {}
        if given and not _accepts(self.cell.call, "constants"):
            raise ValueError("RNN cell does not support constants")

        def step(at: PassedOn, states: PassedOn) -> Any:
            own = list(states)
            if given:
                own, kwargs["constants"] = own[: -len(given)], own[-len(given) :]
            return _apply(self.cell, at, own, kwargs)

        last, outputs, new = keras_rnn.rnn(
            step,
            inputs,
            states,
            constants=given or None,
            go_backwards=self.go_backwards,
            mask=tf.nest.flatten(mask)[0],
            unroll=self.unroll,
            time_major=self.time_major,
            zero_output_for_mask=self.zero_output_for_mask,
        )
        if self.stateful:
            updates = [tf.assign(old, one) for old, one in zip(self._states, new, strict=True)]
            self.add_update(updates, inputs)
        output = outputs if self.return_sequences else last
        if not self.return_state:
            return output
        return [*_as_list(output), *_as_list(_packed(self.cell.state_size, new))]

    def _begun(self, inputs: PassedOn, initial_state: list[Any]) -> list[Any]:
        if initial_state:
            states = initial_state
        elif self.stateful:
            states = list(self._states)
        else:
            states = tf.nest.flatten(self.get_initial_state(inputs))
        count = len(_flat_sizes(self.cell.state_size))
        if len(states) != count:
            raise ValueError(f"Layer has {count} states but was passed {len(states)} initial states.")
        steps = tf.nest.flatten(inputs)[0].shape.as_list()[0 if self.time_major else 1]
        if self.unroll and steps is None:
            raise ValueError("Cannot unroll a RNN if the time dimension is undefined; give the input's time a length.")
        return states

    def compute_mask(self, inputs: PassedOn, mask: PassedOn = None) -> Any:
        if not self._is_plain:
            return super().compute_mask(inputs, mask)
        own = tf.nest.flatten(mask)[0] if self.return_sequences else None
        outputs = [own for _ in _flat_sizes(_output_size(self.cell))]
        if self.return_state:
            return outputs + [None] * len(_flat_sizes(self.cell.state_size))
        return outputs if len(outputs) > 1 else own

    def compute_output_shape(self, input_shape: PassedOn) -> Any:
        if not self._is_plain:
            return super().compute_output_shape(input_shape)
        first = shapes.as_one_or_structure(input_shape[0] if isinstance(input_shape, list) else input_shape)
        batch, time, *_ = tf.nest.flatten(first)[0].as_list()
        if self.time_major:
            batch, time = time, batch
        order = [time, batch] if self.time_major else [batch, time]
        begin = order if self.return_sequences else [batch]
        answer: Any = tf.nest.flatten(_with_sizes(begin, _output_size(self.cell)))
        if self.return_state:
            answer += tf.nest.flatten(_with_sizes([batch], self.cell.state_size))
        answer = answer if len(answer) > 1 or self.return_state else answer[0]
        return answer if shapes.of_tensorflow(input_shape) else shapes.as_tuples(answer)

    def _tell_shapes(self, inputs: PassedOn, outputs: PassedOn) -> None:
        """The loop knows them."""

    def reset_states(self, states: PassedOn = None) -> None:
        """Sets the states that are kept from batch to batch: to zeros, or to arrays in the structure of the states.

        Raises:
            AttributeError: the layer keeps none.
            ValueError: the size of its batches is not known, or the arrays' number or shapes are others.
        """
        if not self._is_plain:
            super().reset_states(states)
            return
        if not self.stateful:
            raise AttributeError("Layer must be stateful.")
        spec = tf.nest.flatten(self.input_spec[0])[0] if self.input_spec else None
        lengths = getattr(spec, "shape", None) or (None, None)
        batch = lengths[1 if self.time_major else 0]
        if not batch:
            raise ValueError(
                "If a RNN is stateful, it needs to know its batch size: give the first layer of a Sequential model "
                "`batch_input_shape`, or `Input` of a functional one `batch_shape`."
            )
        if self._states is None:
            kind = self.dtype or _backend.floatx()
            made = [tf.zeros([batch, *size], kind) for size in _sizes(self.cell)]
            self._states = [tf.Variable(value, trainable=False, name="state") for value in made]
            for variable in self._states:
                variable._keras_initialized = False
            return
        given = [None] * len(self._states) if states is None else tf.nest.flatten(states)
        if len(given) != len(self._states):
            raise ValueError(
                f"Layer {self.name} expects {len(self._states)} states, but it received {len(given)} state values. "
                f"Input received: {states}"
            )
        for index, (variable, value) in enumerate(zip(self._states, given, strict=True)):
            size = tuple(variable.shape.as_list())
            array = np.zeros(size) if value is None else value
            if tuple(array.shape) != size:
                raise ValueError(
                    f"State {index} is incompatible with layer {self.name}: expected shape={size}, found shape="
                    f"{array.shape}"
                )
            _backend.set_value(variable, array)

    def get_config(self) -> dict[str, Any]:
        config: dict[str, Any] = super().get_config()
        given = {name: True for name in ("time_major", "zero_output_for_mask") if getattr(self, name, False)}
        return config | given

    # what the cell has is the layer's, and no more
    trainable_weights = KerasLayer.trainable_weights
    non_trainable_weights = KerasLayer.non_trainable_weights
    losses = KerasLayer.losses
    get_losses_for = KerasLayer.get_losses_for


def _spec_of(tensor: PassedOn) -> Any:
    shape = shapes.of(tensor)
    return _module.InputSpec(shape=None if shape.ndims is None else tuple(shape.as_list()))


def _fit(specs: PassedOn, sizes: list[list[int | None]]) -> bool:
    """Whether initial states are of a cell's sizes."""
    flat = tf.nest.flatten(specs)
    return len(flat) == len(sizes) and all(
        spec.shape is None or tf.TensorShape(list(spec.shape[1:])).is_compatible_with(size)
        for spec, size in zip(flat, sizes, strict=True)
    )


def _as_list(structure: PassedOn) -> list[Any]:
    return list(structure) if isinstance(structure, list | tuple) else [structure]
