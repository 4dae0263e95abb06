"""Islands that the host computes in less time than the call of an executable takes, which is 35 to 150 µs in a step.

That is so where an island only waits; where it is called in each iteration of a loop and computes a few numbers, such
as a loop's counter; where it does so with what is on its way from one task to another (`xla.between_tasks`); where it
stands between host operations and does no more than that, reads small variables for them, makes something of a few
numbers, or takes few rows of a constant; and where it makes little of what is fed for them: of NumPy's functions each
takes 1 to 5 µs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set as AbstractSet
from typing import Final

from anabranch.core import dtypes
from anabranch.graph.step_nodes import StepNode, StepTensor
from anabranch.passes.step_graph import StepGraph
from anabranch.xla.between_tasks import passes_few_numbers
from anabranch.xla.changing_sizes import is_small, is_small_integer

#: an island of so many operations on a few numbers runs on the host where it is called again and again
MAX_QUICK_OPERATIONS: Final = 4
#: the same of one that stands between host operations
MAX_OPERATIONS_BETWEEN: Final = 12
#: elements of a variable that the host copies when it reads it, and of what is fed that it prepares
MAX_READ_ELEMENTS: Final = 1 << 12
#: floating-point numbers that NumPy computes as fast as integers
_FLOATS: Final = frozenset({dtypes.float32, dtypes.float64})


def quick_on_host(
    step: StepGraph, islands: Sequence[Sequence[StepNode]], host: AbstractSet[StepNode], dynamic: bool
) -> set[str]:
    """The names of the operations of such islands.

    Args:
        islands: the operations of each.
        host: the operations that run on the host already.
        dynamic: whether the step has primitives of control flow.
    """
    quick: set[str] = set()
    users: dict[StepTensor, list[StepNode]] | None = None
    for operations in islands:
        is_quick = all(op.op_def.passes_on and not op.outputs for op in operations)
        is_quick = is_quick or passes_few_numbers(step, operations)
        if dynamic:
            is_quick = is_quick or _computes_few_numbers(operations)
        elif not is_quick and host and len(operations) <= MAX_OPERATIONS_BETWEEN:
            if users is None:
                users = step.consumers()
            is_quick = _stands_between(step, operations, host, users) or _prepares(step, operations, host, users)
        if is_quick:
            quick.update(op.name for op in operations)
    return quick


def _computes_few_numbers(operations: Sequence[StepNode]) -> bool:
    return len(operations) <= MAX_QUICK_OPERATIONS and all(map(_is_quick_arithmetic, operations))


def _is_quick_arithmetic(op: StepNode) -> bool:
    """Whether NumPy computes an operation in about a microsecond."""
    op_def = op.op_def
    if not op_def.portable or op_def.stateful or not op.outputs:
        return False
    return all(map(_is_few_numbers, op.outputs)) and (op_def.shape_valued or all(map(is_small, op.inputs)))


def _is_few_numbers(tensor: StepTensor) -> bool:
    return is_small_integer(tensor) or (tensor.dtype in _FLOATS and is_small(tensor))


def _stands_between(
    step: StepGraph,
    operations: Sequence[StepNode],
    host: AbstractSet[StepNode],
    users: Mapping[StepTensor, Sequence[StepNode]],
) -> bool:
    """Whether all that an island takes is on the host, and what it gives is taken there, or a few numbers."""
    inside, fed = set(operations), set(step.feeds)
    works_for_host = False
    for op in operations:
        if not (_is_quick_arithmetic(op) or _reads_little(op) or _is_made_of_few_numbers(op) or _picks_few_rows(op)):
            return False
        # of what is fed only the shape: small programs stay compiled
        looks_at_fed = op.op_def.shape_valued
        if any(not (t.is_known or t.op in inside or t.op in host or (looks_at_fed and t in fed)) for t in op.inputs):
            return False
        for tensor in op.outputs:
            outside = [user for user in users.get(tensor, ()) if user not in inside]
            # what is read to be sent is read where others see it (`runtime.pinned_read`)
            if any(user.op_def.is_transfer for user in outside):
                return False
            works_for_host = works_for_host or any(user in host for user in outside)
            is_passed = _is_few_numbers(tensor) and not op.op_def.only_reads
            if not is_passed and not all(user in host for user in outside):
                return False
    return works_for_host


def _prepares(
    step: StepGraph,
    operations: Sequence[StepNode],
    host: AbstractSet[StepNode],
    users: Mapping[StepTensor, Sequence[StepNode]],
) -> bool:
    """Whether an island makes whole numbers of few that are fed for the host, as it casts labels, and maybe for others.

    Functions of other numbers stay compiled: NumPy's may differ in the last place.
    """
    if len(operations) > MAX_QUICK_OPERATIONS:
        return False
    inside, fed, for_host = set(operations), set(step.feeds), False
    for op in operations:
        op_def = op.op_def
        if not op_def.portable or op_def.stateful or not op.outputs or op_def.flops_rule is not None:
            return False
        if not all(t.is_known or t.op in inside or t in fed for t in op.inputs):
            return False
        for tensor in (*op.inputs, *op.outputs):
            size = tensor.shape.num_elements()
            if size is None or size > MAX_READ_ELEMENTS or not (tensor.dtype.is_integer or tensor.dtype.is_bool):
                return False
        for_host = for_host or any(user in host for tensor in op.outputs for user in users.get(tensor, ()))
    return for_host


def _reads_little(op: StepNode) -> bool:
    """Whether an operation reads one variable of few elements."""
    sizes = [t.shape.num_elements() for t in op.outputs]
    return (
        op.op_def.only_reads
        and op.op_def.host_rule is not None
        and len(sizes) == 1
        and (sizes[0] is not None and sizes[0] <= MAX_READ_ELEMENTS)
    )


def _is_made_of_few_numbers(op: StepNode) -> bool:
    """Whether an operation takes a few numbers and nothing else, as one does that counts, or repeats a number."""
    op_def = op.op_def
    if not op_def.portable or op_def.stateful or not op.outputs:
        return False
    return all(map(_is_few_numbers, op.inputs))


def _picks_few_rows(op: StepNode) -> bool:
    """Whether an operation takes few rows of what is known, such as the next example of a constant."""
    op_def = op.op_def
    if not op_def.portable or op_def.stateful or len(op.outputs) != 1:
        return False
    sized_by = op_def.sized_by if op_def.sized_rule is None else op_def.sized_rule(op)
    size = op.outputs[0].shape.num_elements()
    if "rest" not in sized_by.values() or size is None or size > MAX_READ_ELEMENTS:
        return False
    return all(t.is_known or is_small_integer(t) for t in op.inputs)
