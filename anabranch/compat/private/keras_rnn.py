"""`rnn` of `tensorflow.python.keras.backend`, and which tensors follow from others, for the package `keras`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import anabranch as tf
from anabranch.core.values import TensorLike

#: of one step: the input (batch, ...) and the states; returns the output and the new states
Step = Callable[[tf.Tensor, Any], tuple[tf.Tensor, Sequence[tf.Tensor]]]
#: how many steps' bodies may be under way
_PARALLEL = 32


def rnn(
    step_function: Step,
    inputs: tf.Tensor,
    initial_states: Sequence[tf.Tensor],
    go_backwards: bool = False,
    mask: tf.Tensor | None = None,
    constants: Sequence[tf.Tensor] | None = None,
    unroll: bool = False,
    input_length: TensorLike | None = None,
) -> tuple[tf.Tensor, tf.Tensor, list[tf.Tensor]]:
    """Goes through the time of a batch of sequences.

    Args:
        inputs: (batch, time, ...).
        initial_states: (batch, ...) each.
        mask: (batch, time) or (batch, time, 1); where it is false, states and output stay what they were.
        constants: what each step gets behind the states.
        unroll: whether the graph has each step, and no loop; the number of steps must be known then.
        input_length: not needed; how many steps there are.

    Returns:
        The last output (batch, ...), all outputs (batch, time, ...) and the last states.

    Raises:
        ValueError: `unroll` with an unknown number of steps.
    """
    steps = inputs.shape[1].value
    inputs = _swapped(inputs)
    if mask is not None:
        mask = tf.cast(mask, tf.bool)
        mask = _swapped(mask if mask.shape.ndims != 2 else tf.expand_dims(mask, -1))
    if go_backwards:
        inputs = tf.reverse(inputs, [0])
        mask = None if mask is None else tf.reverse(mask, [0])
    extra = list(constants or ())

    def call(at: tf.Tensor, states: Sequence[tf.Tensor]) -> tuple[tf.Tensor, list[tf.Tensor]]:
        output, new_states = step_function(at, [*states, *extra])
        return output, list(new_states)

    if unroll:
        if steps is None:
            raise ValueError("Unrolling requires a fixed number of timesteps; give the input's time a length")
        last, outputs, states = _unrolled(call, inputs, list(initial_states), mask)
    else:
        last, outputs, states = _looped(call, inputs, list(initial_states), mask)
    outputs = _swapped(outputs)
    if steps is not None and outputs.shape.ndims is not None:
        outputs.set_shape([None, steps] + [None] * (outputs.shape.ndims - 2))
    return last, outputs, states


def _swapped(x: tf.Tensor) -> tf.Tensor:
    """Batch and time in each other's place."""
    rank = x.shape.ndims
    assert rank is not None
    return tf.transpose(x, [1, 0, *range(2, rank)])


def _chosen(mask: tf.Tensor, new: tf.Tensor, old: tf.Tensor) -> tf.Tensor:
    """`new` where the mask (batch, 1) is true, `old` elsewhere."""
    rank = new.shape.ndims or 2
    flags = tf.reshape(mask, tf.concat([tf.shape(mask)[:1], [1] * (rank - 1)], 0))
    return tf.where(tf.logical_and(flags, tf.ones_like(new, dtype=tf.bool)), new, old)


def _unrolled(
    call: Step, inputs: tf.Tensor, states: list[tf.Tensor], mask: tf.Tensor | None
) -> tuple[tf.Tensor, tf.Tensor, list[tf.Tensor]]:
    outputs: list[tf.Tensor] = []
    masks = tf.unstack(mask) if mask is not None else None
    for time, at in enumerate(tf.unstack(inputs)):
        output, new_states = call(at, states)
        if masks is not None:
            output = _chosen(masks[time], output, outputs[-1] if outputs else tf.zeros_like(output))
            new_states = [_chosen(masks[time], new, old) for new, old in zip(new_states, states, strict=True)]
        outputs.append(output)
        states = list(new_states)
    return outputs[-1], tf.stack(outputs), states


def _looped(
    call: Step, inputs: tf.Tensor, states: list[tf.Tensor], mask: tf.Tensor | None
) -> tuple[tf.Tensor, tf.Tensor, list[tf.Tensor]]:
    count = tf.shape(inputs)[0]
    sample, _ = call(inputs[0], states)
    given = tf.TensorArray(inputs.dtype, size=count, name="input_ta").unstack(inputs)
    masks = None if mask is None else tf.TensorArray(tf.bool, size=count, name="mask_ta").unstack(mask)
    results = tf.TensorArray(sample.dtype, size=count, name="output_ta")

    def body(time: tf.Tensor, results: tf.TensorArray, last: tf.Tensor, *states: tf.Tensor) -> tuple[Any, ...]:
        output, new_states = call(given.read(time), states)
        if masks is not None:
            flags = masks.read(time)
            output = _chosen(flags, output, last)
            new_states = [_chosen(flags, new, old) for new, old in zip(new_states, states, strict=True)]
        for new, old in zip(new_states, states, strict=True):
            new.set_shape(old.shape)
        return (time + 1, results.write(time, output), output, *new_states)

    _, results, last, *states = tf.while_loop(
        lambda time, *_: time < count,
        body,
        (tf.constant(0, name="time"), results, tf.zeros_like(sample), *states),
        parallel_iterations=_PARALLEL,
        swap_memory=True,
    )
    return last, results.stack(), states


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
