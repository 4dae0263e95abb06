"""What a task does with few numbers on their way from one task to another runs on the host, each operation by itself.

A worker that scales rows of several parameter servers would compile one program for all of them. To call it takes 80 to
90 µs where processes share cores, and nothing leaves before all has come. By itself, what is for one server leaves as
soon as it is computed (`runtime.early_chains`). Sums of products are rounded twice then, as NumPy does it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from anabranch.core import dtypes
from anabranch.core.devices import task_of
from anabranch.graph.step_nodes import StepNode, StepTensor
from anabranch.passes.step_graph import StepGraph

#: with more, one call of a program takes less time
MAX_OPERATIONS: Final = 16
#: of a tensor: what servers change by NumPy, too (`xla.row_updates`)
MAX_ELEMENTS: Final = 1 << 12
_FLOATS: Final = frozenset({dtypes.float32, dtypes.float64})


def passes_few_numbers(step: StepGraph, operations: Iterable[StepNode]) -> bool:
    """Whether the operations of an island only compute few numbers of what other tasks have sent, to be sent to others.

    Each is one function of NumPy's.
    """
    own = list(operations)
    # one alone has nothing to wait for, and a call of its program takes no longer than the host
    if not step.transfers or not 1 < len(own) <= MAX_OPERATIONS:
        return False
    return all(op.op_def.one_function and ":CPU:" in op.placed_on for op in own) and _is_between(step, own)


def _is_between(step: StepGraph, own: list[StepNode]) -> bool:
    members, outputs = set(own), {t for op in own for t in op.outputs}
    comes = all(
        _has_few_numbers(t) and (t.is_known or t.op in members or crosses_tasks(t.op)) for op in own for t in op.inputs
    )
    if not comes or not all(map(_has_few_numbers, outputs)) or not outputs.isdisjoint(step.fetches):
        return False
    users = (op for op in step.operations if op not in members and not outputs.isdisjoint(op.inputs))
    return all(map(crosses_tasks, users))


def _has_few_numbers(tensor: StepTensor) -> bool:
    size = tensor.shape.num_elements()
    return tensor.dtype in _FLOATS and size is not None and size <= MAX_ELEMENTS


def crosses_tasks(op: StepNode) -> bool:
    """Whether an operation is an end of a transfer between two tasks."""
    if not op.op_def.is_transfer:
        return False
    source, destination = (task_of(op.attrs[end].decode()) for end in ("send_device", "recv_device"))
    return source != destination
