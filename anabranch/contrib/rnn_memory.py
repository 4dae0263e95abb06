"""A cell with a memory: the neural Turing machine of TensorFlow's `contrib.rnn.python.ops.rnn_cell`."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import anabranch as tf
from anabranch.contrib.arguments import DTypeLike, PassedOn, TensorLike


class NTMControllerState(NamedTuple):
    """The state of a neural Turing machine.

    Attributes:
        controller_state: that of the cell in it.
        read_vector_list: what each head read last, float [batch, memory_vector_dim] each.
        w_list: where each head looked last, float [batch, memory_size] each: those that read, then those that write.
        M: the memory, float [batch, memory_size, memory_vector_dim].
        time: how many steps were made, int32 scalar.
    """

    controller_state: Any
    read_vector_list: Any
    w_list: Any
    M: Any
    time: Any


class NTMCell(tf.contrib.rnn.LayerRNNCell):
    """A cell that reads and writes a memory (Graves et al. 2014), as Collier and Beel (2018) begin it.

    At the first step all of the memory is 1e-6 and the heads look and have read as variables say, whatever the state.

    Args:
        controller: the cell that is given the inputs and what was read, and from whose output heads are steered.
        memory_size: int: the number of places.
        memory_vector_dim: int: the size of a place.
        read_head_num, write_head_num: int.
        shift_range: int: how far a head moves in a step, at most.
        output_dim: int: the size of the output; None: that of the inputs.
        clip_value: what the absolute values of parameters and outputs are at most.
        dtype: of the variables.
        name: of the cell, under which its variables stand.

    Raises:
        TypeError: the controller is no cell.
    """

    def __init__(
        self,
        controller: tf.nn.rnn_cell.RNNCell,
        memory_size: int,
        memory_vector_dim: int,
        read_head_num: int,
        write_head_num: int,
        shift_range: int = 1,
        output_dim: int | None = None,
        clip_value: float = 20,
        dtype: DTypeLike = tf.float32,
        name: str | None = None,
    ) -> None:
        super().__init__(dtype=dtype, name=name)
        if not all(hasattr(controller, what) for what in ("state_size", "output_size", "zero_state")):
            raise TypeError(f"controller must be an RNNCell, got {controller!r}")
        self.controller = controller
        self.memory_size, self.memory_vector_dim = memory_size, memory_vector_dim
        self.read_head_num, self.write_head_num = read_head_num, write_head_num
        self.shift_range, self.output_dim, self.clip_value = shift_range, output_dim, clip_value
        # a key, its strength, a gate, a distribution of shifts, a sharpness
        self.num_parameters_per_head = memory_vector_dim + 2 * shift_range + 4
        self.num_heads = read_head_num + write_head_num
        written = 2 * memory_vector_dim * write_head_num
        self.total_parameter_num = self.num_parameters_per_head * self.num_heads + written

    @property
    def state_size(self) -> tf.nest.Structure:
        return NTMControllerState(
            self.controller.state_size,
            [self.memory_vector_dim] * self.read_head_num,
            [self.memory_size] * self.num_heads,
            tf.TensorShape([self.memory_size, self.memory_vector_dim]),
            tf.TensorShape([]),
        )

    @property
    def output_size(self) -> Any:
        return self.output_dim

    def zero_state(self, batch_size: TensorLike, dtype: DTypeLike) -> NTMControllerState:
        """The state before the first step; its numbers are not looked at, but for the controller's.

        Args:
            batch_size: int scalar.
            dtype: of the controller's state.
        """
        return NTMControllerState(
            self.controller.zero_state(batch_size, dtype),
            [tf.zeros([batch_size, self.memory_vector_dim]) for _ in range(self.read_head_num)],
            [tf.zeros([batch_size, self.memory_size]) for _ in range(self.num_heads)],
            tf.zeros([batch_size, self.memory_size, self.memory_vector_dim]),
            tf.zeros([], tf.int32),
        )

    def build(self, inputs_shape: PassedOn) -> None:
        depth, width = self._depth(inputs_shape), self.controller.output_size
        if self.output_dim is None:
            self.output_dim = depth
        self._parameters = self._matrix_and_bias("parameters", width, self.total_parameter_num)
        seen = width + self.memory_vector_dim * self.read_head_num
        self._output = self._matrix_and_bias("output", seen, self.output_dim)
        glorot = tf.glorot_uniform_initializer()
        self._init_read_vectors = [
            self.add_weight(f"initial_read_vector_{i}", [1, self.memory_vector_dim], initializer=glorot)
            for i in range(self.read_head_num)
        ]
        self._init_address_weights = [
            self.add_weight(f"initial_address_weights_{i}", [1, self.memory_size], initializer=glorot)
            for i in range(self.num_heads)
        ]
        almost_nothing = tf.constant_initializer(1e-6)
        self._M = self.add_weight("memory", [self.memory_size, self.memory_vector_dim], initializer=almost_nothing)
        self.built = True

    def _matrix_and_bias(self, name: str, size: int, output_size: int) -> tuple[Any, Any]:
        make = tf.truncated_normal_initializer(stddev=1 / math.sqrt(size))
        kernel = self.add_weight(f"{name}_kernel", [size, output_size], initializer=make)
        return kernel, self.add_weight(f"{name}_bias", [output_size], initializer=tf.zeros_initializer())

    def call(self, inputs: TensorLike, state: PassedOn) -> tuple[tf.Tensor, NTMControllerState]:
        reads, addresses, memory = self._before(inputs, state)
        given = tf.concat([inputs, *reads], axis=1)
        output, controller_state = self.controller(given, state.controller_state)
        parameters = self._limited(_affine(output, self._parameters))
        steering = self.num_parameters_per_head * self.num_heads
        heads = tf.split(parameters[:, :steering], self.num_heads, axis=1)
        addresses = [self._address(*pair, memory) for pair in zip(heads, addresses, strict=True)]
        of_reading, of_writing = addresses[: self.read_head_num], addresses[self.read_head_num :]
        reads = [tf.einsum("bn,bnd->bd", address, memory) for address in of_reading]
        if of_writing:
            changes = tf.split(parameters[:, steering:], 2 * self.write_head_num, axis=1)
            for address, erased, added in zip(of_writing, changes[::2], changes[1::2], strict=True):
                place = address[:, :, None]
                memory = memory * (1 - place * tf.sigmoid(erased)[:, None]) + place * tf.tanh(added)[:, None]
        shown = self._limited(_affine(tf.concat([output, *reads], axis=1), self._output))
        return shown, NTMControllerState(controller_state, reads, addresses, memory, state.time + 1)

    def _limited(self, value: tf.Tensor) -> Any:
        return tf.clip_by_value(value, -self.clip_value, self.clip_value)

    def _before(self, inputs: TensorLike, state: PassedOn) -> tuple[list[Any], list[Any], Any]:
        """What was read, where heads looked and what the memory held: at the first step, what variables say."""
        size = inputs.shape.as_list()[0] or tf.shape(inputs)[0]

        def first() -> list[Any]:
            reads = [tf.tile(tf.tanh(vector), [size, 1]) for vector in self._init_read_vectors]
            addresses = [tf.tile(tf.nn.softmax(weights), [size, 1]) for weights in self._init_address_weights]
            return [*reads, *addresses, tf.tile(self._M[None], [size, 1, 1])]

        def later() -> list[Any]:
            return [*map(tf.identity, [*state.read_vector_list, *state.w_list]), tf.identity(state.M)]

        before = tf.cond(tf.equal(state.time, 0), first, later)
        return list(before[: self.read_head_num]), list(before[self.read_head_num : -1]), before[-1]

    def _address(self, parameters: tf.Tensor, before: tf.Tensor, memory: tf.Tensor) -> Any:
        """Where a head looks, [batch, memory_size]: by content, then moved, then sharpened (3.3 of the paper)."""
        key, strength, gate, moves, sharpness = tf.split(
            parameters, [self.memory_vector_dim, 1, 1, 2 * self.shift_range + 1, 1], axis=1
        )
        key = tf.tanh(key)
        products = tf.einsum("bnd,bd->bn", memory, key)
        likeness = products / (tf.norm(memory, axis=2) * tf.norm(key, axis=1, keepdims=True) + 1e-8)
        by_content = tf.nn.softmax(tf.nn.softplus(strength) * likeness)
        kept = tf.sigmoid(gate)
        mixed = kept * by_content + (1 - kept) * before
        sharp = tf.pow(self._moved(mixed, tf.nn.softmax(moves)), tf.nn.softplus(sharpness) + 1)
        return sharp / tf.reduce_sum(sharp, axis=1, keepdims=True)

    def _moved(self, address: tf.Tensor, moves: tf.Tensor) -> Any:
        """The convolution with a distribution of shifts, 0, 1, ..., then ..., -1, around the ends."""
        shifts = [*range(self.shift_range + 1), *range(-self.shift_range, 0)]
        return tf.add_n([tf.roll(address, by, axis=1) * moves[:, i, None] for i, by in enumerate(shifts)])


def _affine(value: tf.Tensor, weights: tuple[Any, Any]) -> Any:
    kernel, bias = weights
    return tf.nn.bias_add(tf.matmul(value, kernel), bias)
