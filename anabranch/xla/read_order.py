"""What reads a variable comes before what overwrites it, said so that XLA knows.

XLA writes a variable's new value in place if everything that reads the old one leads to it, and copies the old value
where something does not: it looks at what depends on what, and not at the order of a program. A layer's gradient to its
data reads the weights, and nothing of it is in their update. So the update is made to depend on one number of such a
result, whatever that is. (`optimization_barrier` would not do: XLA takes barriers away before it looks.)
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import jax.numpy as jnp
import numpy as np
from jax import lax

from anabranch.core.arrays import Array
from anabranch.core.resources import ResourceHandle
from anabranch.graph.step_nodes import StepNode, StepTensor
from anabranch.xla.state import known_handle, state_of

#: variables of fewer elements are copied: that takes no longer than to ask
LEAST_ELEMENTS: Final = 1 << 14


def source_of(tensor: StepTensor) -> StepNode:
    """The operation that computes a tensor, past those that hand it on."""
    while tensor.op.op_def.passes_on and tensor.op.inputs:
        tensor = tensor.op.inputs[tensor.value_index]
    return tensor.op


def unordered_reads(operations: Sequence[StepNode]) -> dict[StepNode, list[StepTensor]]:
    """For each operation that writes variables: earlier results computed from their values that do not lead to it.

    Only results of products, and of large variables.

    Args:
        operations: in an order in which each comes after those that it depends on.
    """
    states = {op: state_of(op, known_handle) for op in operations}
    if not any(writes for _, writes in states.values()):
        return {}
    readers: dict[ResourceHandle, list[tuple[int, StepTensor]]] = {}
    #: operation -> the readers that lead to it, and itself if it is one: a bit each
    leading: dict[StepNode, int] = {}
    found: dict[StepNode, list[StepTensor]] = {}
    bit = 1
    for op in operations:
        before = 0
        for tensor in op.inputs:
            before |= leading.get(source_of(tensor), 0)
        unordered = (
            result for handle in states[op][1] for reader, result in readers.get(handle, ()) if not reader & before
        )
        if results := list(dict.fromkeys(unordered)):
            found[op] = results
        for handle in _values_read(op, states):
            readers.setdefault(handle, []).append((bit, op.outputs[0]))
            before |= bit
            bit <<= 1
        leading[op] = before
    return found


def _values_read(
    op: StepNode, states: Mapping[StepNode, tuple[list[ResourceHandle], list[ResourceHandle]]]
) -> Iterable[ResourceHandle]:
    """The large variables whose values an operation multiplies, if it is one that takes more than one for an element.

    XLA, or a library, computes such a product apart from its neighbours; what it fuses it would compute for this alone.
    """
    if op.op_def.flops_rule is None:
        return
    for tensor in dict.fromkeys(op.inputs):
        source = source_of(tensor)
        size = tensor.shape.num_elements()
        if source.op_def.only_reads and size is not None and size >= LEAST_ELEMENTS:
            yield from states[source][0] if source in states else ()


def are_there(results: Iterable[Any]) -> Any:
    """True, a scalar that depends on a number of each of these traced arrays; None where there is none."""
    truth = None
    for result in results:
        if np.size(result) and jnp.issubdtype(result.dtype, jnp.floating):
            number = lax.slice(result, (0,) * result.ndim, (1,) * result.ndim)
            bits = lax.bitcast_convert_type(number, np.dtype(f"uint{8 * result.dtype.itemsize}"))
            # without its sign a number's first bit is 0; XLA computes nothing of this beforehand
            one = lax.reshape(bits & (np.iinfo(bits.dtype).max >> 1), ()) >> (8 * result.dtype.itemsize - 1) == 0
            truth = one if truth is None else truth & one
    return truth


def once_there(value: Array, before: Sequence[Array]) -> Any:
    """A traced value that cannot be had before others are there, and is not known to be the same as without them.

    So XLA computes anew what is computed of it, and not with what was computed of the value itself.
    """
    truth = are_there(before)
    return value if truth is None else jnp.where(truth, value, jnp.zeros((), value.dtype))


def behind_barrier(value: Array, before: Sequence[Array]) -> Any:
    """The same where XLA heeds barriers until all is scheduled, as it does for GPUs; nothing is copied there."""
    return lax.optimization_barrier((value, *before))[0]  # type: ignore[no-untyped-call]
