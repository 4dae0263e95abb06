"""`rnn` of `tensorflow.python.keras.backend`, and which tensors follow from others, for the package `keras`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import anabranch as tf
from anabranch.core.nest import Structure
from anabranch.core.values import TensorLike

#: of one step: the inputs (batch, ...) and the states; returns the outputs and the new states
Step = Callable[[Any, Any], tuple[Any, Any]]
#: the same over flat lists of tensors
_FlatStep = Callable[[list[tf.Tensor], list[tf.Tensor]], tuple[list[tf.Tensor], list[tf.Tensor]]]
_Tensors = list[tf.Tensor]
#: how many steps' bodies may be under way
_PARALLEL = 32


def rnn(
    step_function: Step,
    inputs: Structure,
    initial_states: Structure,
    go_backwards: bool = False,
    mask: tf.Tensor | None = None,
    constants: Sequence[tf.Tensor] | None = None,
    unroll: bool = False,
    input_length: TensorLike | None = None,
    time_major: bool = False,
    zero_output_for_mask: bool = False,
) -> tuple[Any, Any, list[Any]]:
    """Goes through the time of a batch of sequences.

    Args:
        inputs: (batch, time, ...), or a structure of such tensors.
        initial_states: (batch, ...) each, in a structure.
        mask: (batch, time) or (batch, time, 1); where it is false, states and outputs stay what they were.
        constants: what each step gets behind the states.
        unroll: whether the graph has each step, and no loop; the number of steps must be known then.
        input_length: not needed; how many steps there are.
        time_major: whether inputs, mask and outputs have the time before the batch.
        zero_output_for_mask: whether outputs are zeros where the mask is false.

    Returns:
        The last outputs (batch, ...), all outputs (batch, time, ...), both in the structure of a step's, and the list
        of the last states, each in its structure.

    Raises:
        ValueError: `unroll` with an unknown number of steps.
    """
    given = list(tf.nest.flatten(inputs))
    steps = given[0].shape[0 if time_major else 1].value
    if not time_major:
        given = [_swapped(x) for x in given]
    if mask is not None:
        mask = tf.cast(mask, tf.bool)
        mask = mask if mask.shape.ndims != 2 else tf.expand_dims(mask, -1)
        mask = mask if time_major else _swapped(mask)
    if go_backwards:
        given = [tf.reverse(x, [0]) for x in given]
        mask = None if mask is None else tf.reverse(mask, [0])
    extra = list(constants or ())
    structures: list[Any] = []

    def call(at: _Tensors, states: _Tensors) -> tuple[_Tensors, _Tensors]:
        packed = tf.nest.pack_sequence_as(initial_states, states)
        output, new_states = step_function(tf.nest.pack_sequence_as(inputs, at), [*packed, *extra])
        structures.append(output)
        return list(tf.nest.flatten(output)), list(tf.nest.flatten(new_states))

    began = list(tf.nest.flatten(initial_states))
    if unroll:
        if steps is None:
            raise ValueError("Unrolling requires a fixed number of timesteps; give the input's time a length")
        last, outputs, states = _unrolled(call, given, began, mask, zero_output_for_mask)
    else:
        last, outputs, states = _looped(call, given, began, mask, zero_output_for_mask)
    for index, sequence in enumerate(outputs):
        if steps is not None and sequence.shape.ndims is not None:
            sequence.set_shape([steps] + [None] * (sequence.shape.ndims - 1))
        outputs[index] = sequence if time_major else _swapped(sequence)
    pack = tf.nest.pack_sequence_as
    return pack(structures[0], last), pack(structures[0], outputs), list(pack(initial_states, states))


def _swapped(x: tf.Tensor) -> tf.Tensor:
    """Batch and time in each other's place."""
    rank = x.shape.ndims
    assert rank is not None
    return tf.transpose(x, [1, 0, *range(2, rank)])


def _chosen(mask: tf.Tensor, new: _Tensors, old: _Tensors) -> _Tensors:
    """`new` where the mask (batch, 1) is true, `old` elsewhere."""
    return [_one_chosen(mask, *pair) for pair in zip(new, old, strict=True)]


def _one_chosen(mask: tf.Tensor, new: tf.Tensor, old: tf.Tensor) -> tf.Tensor:
    rank = new.shape.ndims or 2
    flags = tf.reshape(mask, tf.concat([tf.shape(mask)[:1], [1] * (rank - 1)], 0))
    return tf.where(tf.logical_and(flags, tf.ones_like(new, dtype=tf.bool)), new, old)


def _zeros(tensors: _Tensors) -> _Tensors:
    return [tf.zeros_like(x) for x in tensors]


def _unrolled(
    call: _FlatStep, inputs: _Tensors, states: _Tensors, mask: tf.Tensor | None, zeros: bool
) -> tuple[_Tensors, _Tensors, _Tensors]:
    outputs: list[_Tensors] = []
    masks = tf.unstack(mask) if mask is not None else None
    for time, at in enumerate(zip(*(tf.unstack(x) for x in inputs), strict=True)):
        output, new_states = call(list(at), states)
        if masks is not None:
            output = _chosen(masks[time], output, outputs[-1] if outputs and not zeros else _zeros(output))
            new_states = _chosen(masks[time], new_states, states)
        outputs.append(output)
        states = new_states
    return outputs[-1], [tf.stack(list(column)) for column in zip(*outputs, strict=True)], states


def _looped(
    call: _FlatStep, inputs: _Tensors, states: _Tensors, mask: tf.Tensor | None, zeros: bool
) -> tuple[_Tensors, _Tensors, _Tensors]:
    count = tf.shape(inputs[0])[0]
    sample, _ = call([x[0] for x in inputs], states)
    given = [tf.TensorArray(x.dtype, size=count, name="input_ta").unstack(x) for x in inputs]
    masks = None if mask is None else tf.TensorArray(tf.bool, size=count, name="mask_ta").unstack(mask)
    results = [tf.TensorArray(x.dtype, size=count, name="output_ta") for x in sample]

    def body(time: tf.Tensor, results: list[Any], last: _Tensors, states: _Tensors) -> tuple[Any, ...]:
        output, new_states = call([one.read(time) for one in given], states)
        if masks is not None:
            flags = masks.read(time)
            output = _chosen(flags, output, _zeros(output) if zeros else last)
            new_states = _chosen(flags, new_states, states)
        for new, old in zip(new_states, states, strict=True):
            new.set_shape(old.shape)
        written = [array.write(time, x) for array, x in zip(results, output, strict=True)]
        return time + 1, written, output, new_states

    _, results, last, states = tf.while_loop(
        lambda time, *_: time < count,
        body,
        (tf.constant(0, name="time"), results, _zeros(sample), states),
        parallel_iterations=_PARALLEL,
        swap_memory=True,
    )
    return last, [array.stack() for array in results], states


def get_reachable_from_inputs(inputs: Iterable[Any], targets: Iterable[Any] | None = None) -> set[Any]:
    """The tensors and operations that follow from the inputs; those on the way to the targets, if all are reached."""
    wanted = set(targets or ())
    reached: set[Any] = set()
    queue = [x for x in inputs if isinstance(x, tf.Tensor | tf.Operation | tf.Variable)]
    while queue:
        x = queue.pop()
        if x in reached:
            continue
        reached.add(x)
        if isinstance(x, tf.Variable):
            queue += [x.op]
        elif isinstance(x, tf.Tensor):
            queue += x.consumers()
        else:
            queue += x.outputs
        if wanted and wanted <= reached:
            break
    return reached


_registered: set[type] = set()


def register_symbolic_tensor_type(cls_type: type) -> None:
    """Lets `is_symbolic_tensor` hold for a type that is converted to tensors."""
    _registered.add(cls_type)


def is_symbolic_tensor(tensor: object) -> bool:
    """Whether a value stands for what a graph computes."""
    return isinstance(tensor, (tf.Tensor, tf.SparseTensor, tf.Variable, *_registered))
