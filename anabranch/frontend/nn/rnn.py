"""Recurrent networks over sequences: dynamic_rnn, raw_rnn, static_rnn and their bidirectional forms (WP4.5)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np

from anabranch.core import dtypes, nest
from anabranch.core.dtypes import DTypeLike
from anabranch.core.nest import Structure
from anabranch.core.shapes import TensorShape
from anabranch.core.values import TensorLike
from anabranch.frontend.control_flow.tensor_array import TensorArray
from anabranch.frontend.control_flow.while_loop import while_loop
from anabranch.frontend.nn.rnn_cell_base import RNNCell, zero_state
from anabranch.frontend.variables.scope import VariableScope, variable_scope
from anabranch.graph.conversion import convert_to_tensor
from anabranch.graph.operation import Operation, Tensor
from anabranch.ops import raw


# ---------------------------------------------------------------------- helpers
def _check_cell(name: str, cell: RNNCell) -> None:
    missing = [
        a for a in ("output_size", "state_size", "zero_state") if not hasattr(type(cell), a) and not hasattr(cell, a)
    ]
    if missing or not callable(cell):
        raise TypeError(
            f"The argument {name!r} ({cell!r}) is not an RNNCell: it has no {', '.join(missing) or '__call__'}."
        )


def _dim(tensor: Tensor, axis: int) -> Any:
    """The size of a dimension: an int where it is known."""
    dims = tensor.shape.dims_tuple
    if dims is not None and dims[axis] is not None:
        return dims[axis]
    return raw.StridedSlice(raw.Shape(tensor), [axis], [axis + 1], [1], shrink_axis_mask=1)


def _swapped(tensor: Tensor) -> Tensor:
    """[a, b, ...] -> [b, a, ...]."""
    rank = tensor.shape.ndims
    if rank is None:
        raise ValueError(f"the rank of the input {tensor.name} must be known")
    if rank < 2:
        raise ValueError(
            f"inputs must have at least 2 dimensions (batch and time), {tensor.name} has shape {tensor.shape}"
        )
    swapped: Tensor = raw.Transpose(tensor, np.array([1, 0, *range(2, rank)], np.int32), name="transpose")
    return swapped


def _lengths(sequence_length: TensorLike, batch: TensorLike) -> Tensor | None:
    if sequence_length is None:
        return None
    lengths = convert_to_tensor(sequence_length, name="sequence_length")
    if lengths.shape.ndims not in (None, 1):
        raise ValueError(f"sequence_length must be a vector of length batch_size, but saw shape: {lengths.shape}")
    if isinstance(batch, int) and lengths.shape.dims_tuple and lengths.shape.dims_tuple[0] not in (None, batch):
        raise ValueError(f"sequence_length has {lengths.shape.dims_tuple[0]} elements for a batch of {batch}")
    return lengths if lengths.dtype is dtypes.int32 else raw.Cast(lengths, DstT=dtypes.int32)


def _where(running: Tensor, new: Structure, old: Structure) -> Any:
    """Rows of `new` where sequences still run, else of `old`; values without a batch are taken as they come."""
    if not isinstance(new, Tensor) or new.shape.ndims == 0:
        return new
    rank = new.shape.ndims or 2
    mask = raw.Reshape(running, np.array([-1, *[1] * (rank - 1)], np.int32))
    chosen: Tensor = raw.SelectV2(mask, new, old)
    chosen.set_shape(new.shape)
    return chosen


def _like(structure: Structure, values: list[Any]) -> Any:
    return nest.pack_sequence_as(structure, values) if nest.is_nested(structure) else values[0]


def _checked_state(cell: RNNCell, initial_state: Structure, dtype: DTypeLike | None, batch: TensorLike) -> Any:
    if initial_state is not None:
        return nest.map_structure(lambda s: s if isinstance(s, TensorArray) else convert_to_tensor(s), initial_state)
    if dtype is None:
        raise ValueError("If there is no initial_state, you must give a dtype.")
    return cell.zero_state(batch, dtype)


# ---------------------------------------------------------------------- dynamic
def dynamic_rnn(
    cell: RNNCell,
    inputs: Structure,
    sequence_length: TensorLike | None = None,
    initial_state: Structure | None = None,
    dtype: DTypeLike | None = None,
    parallel_iterations: int | None = None,
    swap_memory: bool = False,
    time_major: bool = False,
    scope: str | VariableScope | None = None,
) -> tuple[Any, Any]:
    """Runs a cell along the time dimension of `inputs`, in a loop.

    Args:
        cell: an `RNNCell`.
        inputs: structure of [batch, time, ...], or [time, batch, ...] if `time_major`.
        sequence_length: int vector [batch]; beyond it outputs are zeros and the state stays.
        initial_state: structure like `cell.state_size`; default zeros of `dtype`.
        dtype: of the initial state, where none is given.
        parallel_iterations, swap_memory: see `while_loop`.
        time_major: whether time is the first dimension.
        scope: variable scope; default "rnn".

    Returns:
        (outputs, last state): the outputs are [batch, time, size], in the layout of the inputs.

    Raises:
        TypeError: `cell` is not an RNNCell.
        ValueError: neither `initial_state` nor `dtype`; inputs of too low a rank.

    Example:
        >>> cell = tf.nn.rnn_cell.GRUCell(4)
        >>> outputs, state = tf.nn.dynamic_rnn(cell, tf.zeros([2, 5, 3]), dtype=tf.float32)
        >>> outputs.shape, state.shape
        (TensorShape([Dimension(2), Dimension(5), Dimension(4)]), TensorShape([Dimension(2), Dimension(4)]))
    """
    _check_cell("cell", cell)
    with variable_scope(scope, default_name="rnn"):
        flat = [convert_to_tensor(v) for v in nest.flatten(inputs)]
        if not time_major:
            flat = [_swapped(v) for v in flat]
        for tensor in flat:
            if tensor.shape.ndims is not None and tensor.shape.ndims < 2:
                raise ValueError(f"inputs must have at least 2 dimensions (batch and time), got {tensor.shape}")
        steps, batch = _dim(flat[0], 0), _dim(flat[0], 1)
        state = _checked_state(cell, initial_state, dtype, batch)
        lengths = _lengths(sequence_length, batch)
        loop = _DynamicLoop(cell, flat, inputs, steps, lengths, batch, state)
        outputs, final = loop.run(parallel_iterations or 32, swap_memory)
        if not time_major:
            outputs = nest.map_structure(_swapped, outputs)
        return outputs, final


class _DynamicLoop:
    """The loop of `dynamic_rnn`, on inputs [time, batch, ...]."""

    def __init__(
        self,
        cell: RNNCell,
        flat: list[Tensor],
        inputs: Structure,
        steps: TensorLike,
        lengths: Tensor | None,
        batch: TensorLike,
        state: Structure,
    ) -> None:
        self.cell, self.structure, self.steps, self.lengths, self.batch = cell, inputs, steps, lengths, batch
        self.state = state
        self.sources = [TensorArray(t.dtype, size=steps, element_shape=t.shape[1:]).unstack(t) for t in flat]
        self.fixed_batch = flat[0].shape.dims_tuple[1] if flat[0].shape.dims_tuple else None
        sizes = cell.output_size
        self.output_structure = sizes
        self.sizes = [sizes] if isinstance(sizes, TensorShape) or not nest.is_nested(sizes) else nest.flatten(sizes)
        kind = next(
            (t.dtype for t in nest.flatten(state) if isinstance(t, Tensor) and t.dtype.is_floating), flat[0].dtype
        )
        self.kind = kind

    def run(self, parallel_iterations: int, swap_memory: bool) -> tuple[Any, Any]:
        """Builds the loop; returns (outputs [time, batch, ...], last state)."""
        targets = [TensorArray(self.kind, size=self.steps, element_shape=self._element(s)) for s in self.sizes]
        _, targets, final = while_loop(
            lambda time, *_: raw.Less(time, self.steps),
            self._step,
            (0, targets, self.state),
            parallel_iterations=parallel_iterations,
            swap_memory=swap_memory,
            maximum_iterations=self.steps,
        )
        outputs = [target.stack() for target in targets]
        for output, size in zip(outputs, self.sizes, strict=True):
            known = self.steps if isinstance(self.steps, int) else None
            output.set_shape(TensorShape([known]).concatenate(self._element(size)))
        packed = (
            outputs[0]
            if len(self.sizes) == 1 and not nest.is_nested(self.output_structure)
            else (
                outputs[0] if isinstance(self.output_structure, TensorShape) else _like(self.output_structure, outputs)
            )
        )
        return packed, final

    def _element(self, size: Structure) -> TensorShape:
        return TensorShape([self.fixed_batch]).concatenate(_size_shape(size))

    def _step(self, time: Tensor, targets: list[TensorArray], state: Structure) -> Any:
        rows = [s.read(time) for s in self.sources]
        output, new = self.cell(_like(self.structure, rows), state)
        nest.assert_same_structure(state, new, check_types=False)
        flat = [convert_to_tensor(o) for o in nest.flatten(output)]
        if self.lengths is not None:
            running = raw.Less(time, self.lengths)
            flat = [_where(running, o, raw.ZerosLike(o)) for o in flat]
            pairs = zip(nest.flatten(new), nest.flatten(state), strict=True)
            new = _like(new, [_where(running, a, b) for a, b in pairs])
        return raw.AddV2(time, 1), [t.write(time, o) for t, o in zip(targets, flat, strict=True)], new


def _size_shape(size: Structure) -> TensorShape:
    return (
        size if isinstance(size, TensorShape) else TensorShape([size] if isinstance(size, int | np.integer) else size)
    )


def bidirectional_dynamic_rnn(
    cell_fw: RNNCell,
    cell_bw: RNNCell,
    inputs: Structure,
    sequence_length: TensorLike | None = None,
    initial_state_fw: Structure | None = None,
    initial_state_bw: Structure | None = None,
    dtype: DTypeLike | None = None,
    parallel_iterations: int | None = None,
    swap_memory: bool = False,
    time_major: bool = False,
    scope: str | VariableScope | None = None,
) -> tuple[tuple[Any, Any], tuple[Any, Any]]:
    """One cell along the time dimension and one against it.

    Args:
        cell_fw, cell_bw: the `RNNCell` that goes forwards, and the one that goes backwards.
        inputs: structure of [batch, time, ...], or [time, batch, ...] if `time_major`.
        sequence_length: int vector [batch]; beyond it outputs are zeros and the state stays.
        initial_state_fw, initial_state_bw: structures like the cells' `state_size`; default: zeros of `dtype`.
        dtype: of the initial states, where none are given.
        parallel_iterations, swap_memory: see `while_loop`.
        time_major: whether time is the first dimension.
        scope: variable scope; default "bidirectional_rnn".

    Returns:
        ((outputs of cell_fw, outputs of cell_bw), (last states)); both outputs are in the order of the inputs.

    Raises:
        As `dynamic_rnn`.

    Example:
        >>> cells = [tf.nn.rnn_cell.GRUCell(4), tf.nn.rnn_cell.GRUCell(4)]
        >>> outputs, _ = tf.nn.bidirectional_dynamic_rnn(*cells, tf.zeros([2, 5, 3]), dtype=tf.float32)
        >>> tf.concat(outputs, axis=2).shape
        TensorShape([Dimension(2), Dimension(5), Dimension(8)])
    """
    _check_cell("cell_fw", cell_fw)
    _check_cell("cell_bw", cell_bw)
    shared: dict[str, Any] = {
        "dtype": dtype,
        "parallel_iterations": parallel_iterations,
        "swap_memory": swap_memory,
        "time_major": time_major,
    }
    with variable_scope(scope or "bidirectional_rnn"):
        with variable_scope("fw") as forward:
            out_fw, state_fw = dynamic_rnn(cell_fw, inputs, sequence_length, initial_state_fw, scope=forward, **shared)
        time, batch = (0, 1) if time_major else (1, 0)

        def backwards(value: TensorLike) -> Tensor:
            tensor = convert_to_tensor(value)
            if sequence_length is None:
                return raw.ReverseV2(tensor, np.array([time], np.int32))  # type: ignore[no-any-return]
            return raw.ReverseSequence(tensor, convert_to_tensor(sequence_length), seq_dim=time, batch_dim=batch)  # type: ignore[no-any-return]

        with variable_scope("bw") as backward:
            reverse = nest.map_structure(backwards, inputs)
            out_bw, state_bw = dynamic_rnn(
                cell_bw, reverse, sequence_length, initial_state_bw, scope=backward, **shared
            )
    return (out_fw, nest.map_structure(backwards, out_bw)), (state_fw, state_bw)


def raw_rnn(
    cell: RNNCell,
    loop_fn: Callable[..., Any],
    parallel_iterations: int | None = None,
    swap_memory: bool = False,
    scope: str | VariableScope | None = None,
) -> tuple[TensorArray, Any, Any]:
    """A recurrent loop of which `loop_fn` decides inputs, states, outputs and the end.

    Args:
        loop_fn: called as `loop_fn(time, cell_output, cell_state, loop_state)`, first with None for the last three.
            Returns (finished [batch], next input, next cell state, emitted output, next loop state). The first call's
            cell state is the initial one, and its emitted output tells the structure, dtypes and shapes of the others
            (None: those of the cell's output).

    Returns:
        (TensorArrays of the emitted outputs, last state, last loop state).

    Raises:
        TypeError: `cell` is not an RNNCell, or `loop_fn` not callable.
    """
    _check_cell("cell", cell)
    if not callable(loop_fn):
        raise TypeError("loop_fn must be a callable")
    with variable_scope(scope, default_name="rnn"):
        zero = convert_to_tensor(0, dtypes.int32)
        finished, first_input, first_state, emit, loop_state = loop_fn(zero, None, None, None)
        first_input = nest.map_structure(convert_to_tensor, first_input)
        first_state = nest.map_structure(
            lambda s: s if isinstance(s, TensorArray) else convert_to_tensor(s), first_state
        )
        source = nest.flatten(first_input)[0]
        batch, known = _dim(source, 0), source.shape.dims_tuple[0] if source.shape.dims_tuple else None
        zeros, structure = _emitted(cell, emit, first_state, batch)
        arrays = [
            TensorArray(z.dtype, size=0, dynamic_size=True, element_shape=TensorShape([known]).concatenate(z.shape[1:]))
            for z in zeros
        ]
        has_loop_state = loop_state is not None
        held = loop_state if has_loop_state else zero

        def body(
            time: TensorLike, done: TensorLike, given: Structure, arrays: Structure, state: Structure, held: Structure
        ) -> Any:
            output, new = cell(given, state)
            following = raw.AddV2(time, 1)
            ends, given, new, emitted, new_held = loop_fn(following, output, new, held if has_loop_state else None)
            running = raw.LogicalNot(done)
            flat = [convert_to_tensor(v) for v in nest.flatten(emitted)]
            flat = [_where(running, v, z) for v, z in zip(flat, zeros, strict=True)]
            pairs = zip(nest.flatten(new), nest.flatten(state), strict=True)
            new = _like(state, [_where(running, a, b) for a, b in pairs])
            arrays = [a.write(time, v) for a, v in zip(arrays, flat, strict=True)]
            kept = held if new_held is None else new_held
            given = nest.map_structure(convert_to_tensor, given)
            return following, raw.LogicalOr(done, convert_to_tensor(ends)), given, arrays, new, kept

        def goes_on(time: TensorLike, done: TensorLike, *_: TensorLike) -> Any:
            return raw.LogicalNot(raw.All(done, np.array([0], np.int32)))

        start = (zero, convert_to_tensor(finished), first_input, arrays, first_state, held)
        last = while_loop(goes_on, body, start, parallel_iterations=parallel_iterations or 32, swap_memory=swap_memory)
        emitted = last[3][0] if not nest.is_nested(structure) else nest.pack_sequence_as(structure, last[3])
        return emitted, last[4], last[5] if has_loop_state else None


def _emitted(cell: RNNCell, emit: Structure, state: Structure, batch: TensorLike) -> tuple[list[Tensor], Any]:
    """Zeros of the shapes and dtypes of what `raw_rnn` emits, and its structure."""
    if emit is not None:
        return [_zero_rows(convert_to_tensor(v), batch) for v in nest.flatten(emit)], emit
    size = cell.output_size
    sizes = [size] if isinstance(size, TensorShape) or not nest.is_nested(size) else nest.flatten(size)
    kind = next(t.dtype for t in nest.flatten(state) if isinstance(t, Tensor))
    return [zero_state(_size_shape(s), batch, kind) for s in sizes], 0 if isinstance(size, TensorShape) else size


def _zero_rows(row: Tensor, batch: TensorLike) -> Tensor:
    """Zeros for a batch of tensors like `row`, whose shape the step may decide."""
    shape = raw.ConcatV2([raw.ExpandDims(convert_to_tensor(batch, dtypes.int32), 0), raw.Shape(row)], 0)
    zeros: Tensor = raw.Fill(shape, convert_to_tensor(np.zeros((), row.dtype.as_numpy_dtype)))
    zeros.set_shape(TensorShape([None]).concatenate(row.shape))
    return zeros


# ---------------------------------------------------------------------- static
def static_rnn(
    cell: RNNCell,
    inputs: Sequence[Any],
    initial_state: Structure | None = None,
    dtype: DTypeLike | None = None,
    sequence_length: TensorLike | None = None,
    scope: str | VariableScope | None = None,
) -> tuple[list[Any], Any]:
    """Runs a cell on a list of inputs, one copy of its operations for each.

    Args:
        cell: an `RNNCell`.
        inputs: a list of structures of [batch, depth], one per step.
        initial_state: structure like `cell.state_size`; default: zeros of `dtype`.
        dtype: of the initial state, where none is given.
        sequence_length: int vector [batch]; beyond it outputs are zeros and the state stays.
        scope: variable scope; default "rnn".

    Returns:
        (list of outputs, last state).

    Raises:
        TypeError: `cell` is not an RNNCell, or `inputs` not a sequence.
        ValueError: `inputs` is empty.

    Example:
        >>> cell = tf.contrib.rnn.BasicRNNCell(4)
        >>> outputs, state = tf.contrib.rnn.static_rnn(cell, [tf.zeros([2, 3])] * 5, dtype=tf.float32)
        >>> len(outputs), state.shape
        (5, TensorShape([Dimension(2), Dimension(4)]))
    """
    _check_cell("cell", cell)
    if not isinstance(inputs, list | tuple):
        raise TypeError("inputs must be a sequence")
    if not inputs:
        raise ValueError("inputs must not be empty")
    with variable_scope(scope, default_name="rnn") as opened:
        first = convert_to_tensor(nest.flatten(inputs[0])[0])
        batch = _dim(first, 0)
        state = _checked_state(cell, initial_state, dtype, batch)
        lengths = _lengths(sequence_length, batch)
        outputs = []
        for time, given in enumerate(inputs):
            if time > 0:
                opened.reuse_variables()
            output, new = cell(nest.map_structure(convert_to_tensor, given), state)
            if lengths is not None:
                running = raw.Less(convert_to_tensor(time, dtypes.int32), lengths)
                output = _like(output, [_where(running, o, raw.ZerosLike(o)) for o in nest.flatten(output)])
                pairs = zip(nest.flatten(new), nest.flatten(state), strict=True)
                new = _like(new, [_where(running, a, b) for a, b in pairs])
            state = new
            outputs.append(output)
        return outputs, state


class StateSaver(Protocol):
    """What keeps the states of recurrent networks between steps, by name."""

    def state(self, name: str) -> TensorLike:
        """The state to begin a step with."""

    def save_state(self, name: str, value: Tensor) -> Operation:
        """Keeps the state that a step ends with."""


def static_state_saving_rnn(
    cell: RNNCell,
    inputs: Sequence[Any],
    state_saver: StateSaver,
    state_name: Structure,
    sequence_length: TensorLike | None = None,
    scope: str | VariableScope | None = None,
) -> tuple[list[Any], Any]:
    """`static_rnn` whose state is taken from, and given back to, a state saver.

    Args:
        state_saver: has `state(name)` and `save_state(name, value)`.
        state_name: a name, or a structure of names like the state.
    """
    names = nest.flatten(state_name)
    state = _like(state_name, [state_saver.state(n) for n in names])
    outputs, final = static_rnn(cell, inputs, state, sequence_length=sequence_length, scope=scope)
    saves = [state_saver.save_state(n, s) for n, s in zip(names, nest.flatten(final), strict=True)]
    with convert_to_tensor(nest.flatten(outputs[-1])[0]).graph.control_dependencies(saves):
        outputs[-1] = nest.map_structure(raw.Identity, outputs[-1])
    return outputs, final


def static_bidirectional_rnn(
    cell_fw: RNNCell,
    cell_bw: RNNCell,
    inputs: Sequence[Any],
    initial_state_fw: Structure | None = None,
    initial_state_bw: Structure | None = None,
    dtype: DTypeLike | None = None,
    sequence_length: TensorLike | None = None,
    scope: str | VariableScope | None = None,
) -> tuple[list[Any], Any, Any]:
    """One cell along a list of inputs and one against it.

    Returns:
        (list of both cells' outputs side by side, last state forward, last state backward).

    Raises:
        As `static_rnn`.
    """
    _check_cell("cell_fw", cell_fw)
    _check_cell("cell_bw", cell_bw)
    with variable_scope(scope or "bidirectional_rnn"):
        with variable_scope("fw") as forward:
            out_fw, state_fw = static_rnn(cell_fw, inputs, initial_state_fw, dtype, sequence_length, scope=forward)
        with variable_scope("bw") as backward:
            reverse = _reversed(list(inputs), sequence_length)
            out_bw, state_bw = static_rnn(cell_bw, reverse, initial_state_bw, dtype, sequence_length, scope=backward)
        out_bw = _reversed(out_bw, sequence_length)
        joined = [
            nest.map_structure(lambda a, b: raw.ConcatV2([a, b], 1), f, b) for f, b in zip(out_fw, out_bw, strict=True)
        ]
        return joined, state_fw, state_bw


def _reversed(values: list[Any], lengths: TensorLike) -> list[Any]:
    if lengths is None:
        return values[::-1]
    flat = [[convert_to_tensor(v) for v in nest.flatten(value)] for value in values]
    columns = []
    for column in zip(*flat, strict=True):
        stacked = raw.Pack(list(column))
        turned = raw.ReverseSequence(stacked, convert_to_tensor(lengths), seq_dim=0, batch_dim=1)
        columns.append(raw.Unpack(turned, num=len(values)))
    return [_like(values[0], list(row)) for row in zip(*columns, strict=True)]
