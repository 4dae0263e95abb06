"""`tf.contrib.rnn`: LSTMs whose gates are coupled, and those that go over frequencies as well as over time."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import anabranch as tf
from anabranch.contrib.arguments import PassedOn, TensorLike
from anabranch.contrib.rnn_extras import clipped, normalized


def _in_shards(name: str, shape: Sequence[int], dtype: tf.DType, shards: int) -> Any:
    """A matrix whose rows are variables `name`_0, `name`_1 and so on.

    Raises:
        ValueError: there are more shards than rows.
    """
    if shards > shape[0]:
        raise ValueError(f"Too many shards: shape={list(shape)}, num_shards={shards}; there can be {shape[0]}")
    each, more = divmod(shape[0], shards)
    parts = [tf.get_variable(f"{name}_{shard}", [each + (shard < more), *shape[1:]], dtype) for shard in range(shards)]
    return parts[0] if shards == 1 else tf.concat(parts, 0)


def _known_size(inputs: tf.Tensor) -> int:
    size = inputs.shape.with_rank(2).as_list()[1]
    if size is None:
        raise ValueError(f"Cannot infer input_size from the shape {inputs.shape} of the inputs: set it by set_shape")
    return int(size)


class CoupledInputForgetGateLSTMCell(tf.nn.rnn_cell.RNNCell):
    """An LSTM that lets in as much as it forgets (Greff et al. 2015).

    Args:
        num_units: int.
        use_peepholes: whether gates see the state.
        initializer: not used, as in TensorFlow.
        num_proj: size of a projection of the output; None: none.
        proj_clip: the projection is cut off at this value on both sides; None: it is not.
        num_unit_shards: how many variables hold the kernel.
        num_proj_shards: how many hold the projection.
        forget_bias: added to the forget gate's input.
        state_is_tuple: whether the state is an `LSTMStateTuple`; else its two parts stand side by side.
        activation: of the state.
        reuse: whether the variables exist already.
        layer_norm: whether to normalize gates and state; there is no bias then.
        norm_gain: initial value of the normalization's gain.
        norm_shift: initial value of its shift.
    """

    def __init__(
        self,
        num_units: int,
        use_peepholes: bool = False,
        initializer: PassedOn = None,
        num_proj: int | None = None,
        proj_clip: float | None = None,
        num_unit_shards: int = 1,
        num_proj_shards: int = 1,
        forget_bias: float = 1.0,
        state_is_tuple: bool = True,
        activation: Callable[[Any], Any] = tf.tanh,
        reuse: bool | None = None,
        layer_norm: bool = False,
        norm_gain: float = 1.0,
        norm_shift: float = 0.0,
    ) -> None:
        super().__init__(_reuse=reuse)
        self._num_units, self._use_peepholes, self._activation = num_units, use_peepholes, activation
        self._num_proj, self._proj_clip, self._forget_bias = num_proj, proj_clip, forget_bias
        self._shards, self._state_is_tuple = (num_unit_shards, num_proj_shards), state_is_tuple
        self._layer_norm, self._gain, self._shift = layer_norm, norm_gain, norm_shift

    @property
    def state_size(self) -> tf.nest.Structure:
        sizes = tf.nn.rnn_cell.LSTMStateTuple(self._num_units, self.output_size)
        return sizes if self._state_is_tuple else sum(sizes)

    @property
    def output_size(self) -> int:
        return self._num_proj or self._num_units

    def _normalized(self, value: tf.Tensor, scope: str) -> Any:
        return normalized(value, self._gain, self._shift, scope) if self._layer_norm else value

    def _peephole(self, gate: str, state: tf.Tensor) -> Any:
        """What the gate sees of the state."""
        if not self._use_peepholes:
            return tf.zeros([], state.dtype)
        return tf.get_variable(f"W_{gate}_diag", [self._num_units], state.dtype) * state

    def call(self, inputs: TensorLike, state: PassedOn) -> tuple[tf.Tensor, tf.nest.Structure]:
        c, m = state if self._state_is_tuple else tf.split(state, [self._num_units, self.output_size], 1)
        rows = _known_size(inputs) + self.output_size
        kernel = _in_shards("W", [rows, 3 * self._num_units], inputs.dtype, self._shards[0])
        bias = tf.get_variable("B", [3 * self._num_units], inputs.dtype, tf.zeros_initializer())
        gates = tf.matmul(tf.concat([inputs, m], 1), kernel)
        parts = tf.split(gates if self._layer_norm else tf.nn.bias_add(gates, bias), 3, 1)
        names = ("transform", "forget", "output")
        new, kept, shown = (self._normalized(part, name) for part, name in zip(parts, names, strict=True))
        kept = tf.sigmoid(kept + self._forget_bias + self._peephole("F", c))
        c = self._normalized(kept * c + (1 - kept) * self._activation(new), "state")
        m = tf.sigmoid(shown + self._peephole("O", c)) * self._activation(c)
        if self._num_proj is not None:
            projection = _in_shards("W_P", [self._num_units, self._num_proj], inputs.dtype, self._shards[1])
            m = clipped(tf.matmul(m, projection), self._proj_clip)
        return m, tf.nn.rnn_cell.LSTMStateTuple(c, m) if self._state_is_tuple else tf.concat([c, m], 1)


class TimeFreqLSTMCell(tf.nn.rnn_cell.RNNCell):
    """An LSTM that goes over parts of its input, each of which sees what the one before gave (Sainath and Li 2016).

    Args:
        num_units: int.
        use_peepholes: whether gates see the state.
        cell_clip: the state is cut off at this value on both sides; None: it is not.
        initializer: not used, as in TensorFlow.
        num_unit_shards: how many variables hold the kernel.
        forget_bias: added to the forget gate's input.
        feature_size: size of a part.
        frequency_skip: from the beginning of a part to that of the next.
        reuse: whether the variables exist already.

    `state_size` and `output_size` are those of one part, as in TensorFlow: the state that it is called with has the
    two of each part, side by side, and the output has one of each.
    """

    def __init__(
        self,
        num_units: int,
        use_peepholes: bool = False,
        cell_clip: float | None = None,
        initializer: PassedOn = None,
        num_unit_shards: int = 1,
        forget_bias: float = 1.0,
        feature_size: int | None = None,
        frequency_skip: int = 1,
        reuse: bool | None = None,
    ) -> None:
        super().__init__(_reuse=reuse)
        self._num_units, self._use_peepholes, self._cell_clip = num_units, use_peepholes, cell_clip
        self._num_unit_shards, self._forget_bias = num_unit_shards, forget_bias
        self._feature_size, self._frequency_skip = feature_size, frequency_skip

    @property
    def state_size(self) -> tf.nest.Structure:
        return 2 * self._num_units

    @property
    def output_size(self) -> int:
        return self._num_units

    def call(self, inputs: TensorLike, state: PassedOn) -> tuple[tf.Tensor, tf.nest.Structure]:
        features = _parts(inputs, 0, _known_size(inputs), self._feature_size, self._frequency_skip)
        units, dtype = self._num_units, inputs.dtype
        size = _known_size(features[0]) + 2 * units
        kernel = _in_shards("W", [size, 4 * units], dtype, self._num_unit_shards)
        bias = tf.get_variable("B", [4 * units], dtype, tf.zeros_initializer())
        zeros = dict.fromkeys("FIO", tf.zeros([], dtype))
        seen = {g: tf.get_variable(f"W_{g}_diag", [units], dtype) for g in "FIO"} if self._use_peepholes else zeros
        lower = tf.zeros([tf.shape(inputs)[0], units], dtype)
        states: list[Any] = []
        for number, feature in enumerate(features):
            c, m = (state[:, at * units : (at + 1) * units] for at in (2 * number, 2 * number + 1))
            gates = tf.nn.bias_add(tf.matmul(tf.concat([feature, m, lower], 1), kernel), bias)
            entered, new, kept, shown = tf.split(gates, 4, 1)
            kept = tf.sigmoid(kept + self._forget_bias + seen["F"] * c)
            c = clipped(kept * c + tf.sigmoid(entered + seen["I"] * c) * tf.tanh(new), self._cell_clip)
            lower = tf.sigmoid(shown + seen["O"] * c) * tf.tanh(c)
            states += [c, lower]
        return tf.concat(states[1::2], 1), tf.concat(states, 1)


def _parts(inputs: tf.Tensor, start: int, size: int, feature_size: int | None, skip: int | None) -> list[Any]:
    """The parts of columns from `start` on, `size` in all."""
    if feature_size is None or skip is None:
        raise ValueError(f"feature_size and frequency_skip must be given, got {feature_size} and {skip}")
    firsts = [start + number * skip for number in range((size - feature_size) // skip + 1)]
    return [inputs[:, first : first + feature_size] for first in firsts]


class GridLSTMCell(tf.nn.rnn_cell.RNNCell):
    """A pair of LSTMs, over time and over frequencies (Kalchbrenner et al. 2015, Sainath and Li 2016).

    Args:
        num_units: int.
        use_peepholes: whether gates see the states.
        share_time_frequency_weights: whether both have the same variables.
        cell_clip: the states are cut off at this value on both sides; None: they are not.
        initializer: not used, as in TensorFlow.
        num_unit_shards: how many variables hold a kernel.
        forget_bias: added to the forget gates' inputs.
        feature_size: size of a part of the input.
        frequency_skip: from the beginning of a part to that of the next.
        num_frequency_blocks: how many parts there are in each block of columns.
        start_freqindex_list: where the blocks begin; None: there is one.
        end_freqindex_list: where they end.
        couple_input_forget_gates: whether as much enters as is forgotten.
        state_is_tuple: whether the state is a named tuple, of c and m of each part; else these stand side by side.
        reuse: whether the variables exist already.

    Raises:
        ValueError: the blocks are not given, or do not fit the input.
    """

    def __init__(
        self,
        num_units: int,
        use_peepholes: bool = False,
        share_time_frequency_weights: bool = False,
        cell_clip: float | None = None,
        initializer: PassedOn = None,
        num_unit_shards: int = 1,
        forget_bias: float = 1.0,
        feature_size: int | None = None,
        frequency_skip: int | None = None,
        num_frequency_blocks: Sequence[int] | None = None,
        start_freqindex_list: Sequence[int] | None = None,
        end_freqindex_list: Sequence[int] | None = None,
        couple_input_forget_gates: bool = False,
        state_is_tuple: bool = True,
        reuse: bool | None = None,
    ) -> None:
        super().__init__(_reuse=reuse)
        if num_frequency_blocks is None:
            raise ValueError("Must specify num_frequency_blocks")
        self._num_units, self._use_peepholes, self._share = num_units, use_peepholes, share_time_frequency_weights
        self._cell_clip, self._num_unit_shards, self._forget_bias = cell_clip, num_unit_shards, forget_bias
        self._feature_size, self._frequency_skip = feature_size, frequency_skip
        self._blocks, self._starts, self._ends = num_frequency_blocks, start_freqindex_list, end_freqindex_list
        self._coupled = couple_input_forget_gates
        self._tuple_type: PassedOn = None
        if state_is_tuple:
            self._tuple_type = _tuple_type("GridLSTMStateTuple", ["state"], self._blocks)

    @property
    def state_size(self) -> tf.nest.Structure:
        count = 2 * sum(self._blocks)
        return count * self._num_units if self._tuple_type is None else self._tuple_type(*[self._num_units] * count)

    @property
    def output_size(self) -> int:
        return 2 * self._num_units * sum(self._blocks)

    @property
    def state_tuple_type(self) -> PassedOn:
        """The class of a state; None where its parts stand side by side."""
        return self._tuple_type

    def call(self, inputs: TensorLike, state: PassedOn) -> tuple[tf.Tensor, tf.nest.Structure]:
        outputs: list[Any] = []
        states: list[Any] = []
        for block, features in enumerate(self._features(inputs)):
            found = self._over(features, block, self._held(state, "state", block))
            outputs += found[0]
            states += found[1]
        return tf.concat(outputs, 1), self._tuple_type(*states) if self._tuple_type else tf.concat(states, 1)

    def _held(self, state: PassedOn, prefix: str, block: int) -> list[tuple[Any, Any]]:
        """What the state holds for the parts of a block: c and m of each."""
        count = self._blocks[block]
        if self._tuple_type is not None:
            names = (f"{prefix}_f{part:02}_b{block:02}" for part in range(count))
            return [(getattr(state, f"{name}_c"), getattr(state, f"{name}_m")) for name in names]
        # in TensorFlow every block begins at the state's first column; trained variables rely on it
        units = self._num_units
        columns = [state[:, at * units : (at + 1) * units] for at in range(2 * count)]
        return list(zip(columns[::2], columns[1::2], strict=True))

    def _features(self, inputs: tf.Tensor, offset: int = 0) -> list[list[Any]]:
        """The parts of each block, all `offset` columns further on; what is missing there is zero."""
        size = _known_size(inputs)
        inputs = tf.pad(inputs, [[0, 0], [max(0, -offset), max(0, offset)]]) if offset else inputs
        starts, ends = (self._starts, self._ends) if self._starts else ([0], [size])
        if not len(starts) == len(ends or []) == len(self._blocks):
            raise ValueError(
                f"num_frequency_blocks, start_freqindex_list and end_freqindex_list must have the same length, got "
                f"{self._blocks}, {self._starts} and {self._ends}; without the last two there is one block"
            )
        blocks = []
        for start, end, count in zip(starts, ends or [], self._blocks, strict=True):
            first = start + max(0, offset)
            blocks.append(_parts(inputs, first, end - start, self._feature_size, self._frequency_skip))
            if len(blocks[-1]) != count:
                raise ValueError(
                    f"Invalid num_frequency_blocks, requires {count} but gets {len(blocks[-1])}, please check the "
                    f"input size and filter config are correct."
                )
        return blocks

    def _weights(self, way: str, block: int, size: int, dtype: tf.DType) -> dict[str, Any]:
        """The variables of the LSTM over "freq" or "time": kernel, bias, and diagonals by gate and what is seen."""
        columns = (3 if self._coupled else 4) * self._num_units
        found = {"kernel": _in_shards(f"W_{way[0]}_{block}", [size, columns], dtype, self._num_unit_shards)}
        found["bias"] = tf.get_variable(f"B_{way[0]}_{block}", [columns], dtype, tf.zeros_initializer())
        if self._use_peepholes:
            for gate in "IO" if self._coupled else "FIO":
                for seen in "ft":
                    name = f"W_{gate}_diag_{way}{seen}_{block}"
                    found[gate + seen] = tf.get_variable(name, [self._num_units], dtype)
        return found

    def _over(
        self, features: list[Any], block: int, held: Iterable[tuple[Any, Any]]
    ) -> tuple[list[tf.Tensor], list[tf.Tensor]]:
        """Goes over a block's parts: their outputs (over time, over frequencies), and states (c, m)."""
        dtype, size = features[0].dtype, _known_size(features[0]) + 2 * self._num_units
        of_frequency = self._weights("freq", block, size, dtype)
        of_time = of_frequency if self._share else self._weights("time", block, size, dtype)
        zeros = tf.zeros([tf.shape(features[0])[0], self._num_units], dtype)
        before, lower = zeros, zeros
        outputs: list[tf.Tensor] = []
        states: list[tf.Tensor] = []
        for feature, (c, m) in zip(features, held, strict=True):
            given = tf.concat([feature, m, lower], 1)
            new_c, shown = self._advanced(of_time, given, c, (before, c))
            before, shown_lower = self._advanced(of_frequency, given, before, (before, c))
            m = self._shown(of_time, shown, new_c, (before, new_c))
            lower = self._shown(of_frequency, shown_lower, before, (before, new_c))
            outputs += [m, lower]
            states += [new_c, m]
        return outputs, states

    def _seen(self, weights: dict[str, Any], gate: str, both: tuple[Any, Any]) -> Any:
        """What a gate sees of the states over frequencies and over time."""
        if not self._use_peepholes:
            return tf.zeros([], both[0].dtype)
        return weights[f"{gate}f"] * both[0] + weights[f"{gate}t"] * both[1]

    def _advanced(self, weights: dict[str, Any], given: tf.Tensor, c: tf.Tensor, both: PassedOn) -> tuple[Any, Any]:
        """The new state, and what enters the output's gate."""
        gates = tf.nn.bias_add(tf.matmul(given, weights["kernel"]), weights["bias"])
        entered, new, *kept, shown = tf.split(gates, 3 if self._coupled else 4, 1)
        entered = tf.sigmoid(entered + self._seen(weights, "I", both))
        if self._coupled:
            forgotten = 1 - entered
        else:
            forgotten = tf.sigmoid(kept[0] + self._forget_bias + self._seen(weights, "F", both))
        return clipped(forgotten * c + entered * tf.tanh(new), self._cell_clip), shown

    def _shown(self, weights: dict[str, Any], gate: tf.Tensor, c: tf.Tensor, both: PassedOn) -> Any:
        return tf.sigmoid(gate + self._seen(weights, "O", both)) * tf.tanh(c)


class BidirectionalGridLSTMCell(GridLSTMCell):
    """A `GridLSTMCell` that goes over the frequencies in both directions, with variables for each.

    Args are those of `GridLSTMCell`, whose state is always a tuple, and

        backward_slice_offset: how many columns further on the parts begin on the way back.
    """

    def __init__(
        self,
        num_units: int,
        use_peepholes: bool = False,
        share_time_frequency_weights: bool = False,
        cell_clip: float | None = None,
        initializer: PassedOn = None,
        num_unit_shards: int = 1,
        forget_bias: float = 1.0,
        feature_size: int | None = None,
        frequency_skip: int | None = None,
        num_frequency_blocks: Sequence[int] | None = None,
        start_freqindex_list: Sequence[int] | None = None,
        end_freqindex_list: Sequence[int] | None = None,
        couple_input_forget_gates: bool = False,
        backward_slice_offset: int = 0,
        reuse: bool | None = None,
    ) -> None:
        super().__init__(
            num_units, use_peepholes, share_time_frequency_weights, cell_clip, initializer, num_unit_shards,
            forget_bias, feature_size, frequency_skip, num_frequency_blocks, start_freqindex_list,
            end_freqindex_list, couple_input_forget_gates, True, reuse,
        )  # fmt: skip
        self._offset = int(backward_slice_offset)
        prefixes = ["fwd_state", "bwd_state"]
        self._tuple_type = _tuple_type("BidirectionalGridLSTMStateTuple", prefixes, self._blocks)

    @property
    def state_size(self) -> tf.nest.Structure:
        return self._tuple_type(*[self._num_units] * (4 * sum(self._blocks)))

    @property
    def output_size(self) -> int:
        return 4 * self._num_units * sum(self._blocks)

    def call(self, inputs: TensorLike, state: PassedOn) -> tuple[tf.Tensor, tf.nest.Structure]:
        outputs: list[Any] = []
        states: list[Any] = []
        back = [features[::-1] for features in self._features(inputs, self._offset)]
        for direction, blocks in (("fwd", self._features(inputs)), ("bwd", back)):
            with tf.variable_scope(direction):
                for block, features in enumerate(blocks):
                    found = self._over(features, block, self._held(state, f"{direction}_state", block))
                    outputs += found[0]
                    states += found[1]
        return tf.concat(outputs, 1), self._tuple_type(*states)


def _tuple_type(name: str, prefixes: Sequence[str], blocks: Sequence[int]) -> Any:
    """The class of a state: fields for c and m of each part."""
    fields = [
        f"{prefix}_f{part:02}_b{block:02}_{which}"
        for prefix in prefixes
        for block, count in enumerate(blocks)
        for part in range(count)
        for which in "cm"
    ]
    return NamedTuple(name, [(field, Any) for field in fields])
