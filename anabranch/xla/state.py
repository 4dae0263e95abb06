"""Which variables an operation reads and writes, its function bodies included."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from anabranch.core import dtypes
from anabranch.core.resources import ResourceHandle
from anabranch.errors import InvalidArgumentError
from anabranch.graph.loop_bodies import bodies_of, remembered
from anabranch.graph.operation import group_by_argument
from anabranch.graph.step_nodes import StepFunction, StepNode, StepTensor


@remembered
def draws_random(body: StepFunction) -> bool:
    """Whether calling a function graph draws random numbers."""
    return any(op.op_def.random or any(draws_random(b) for b in bodies_of(op)) for op in body.operations)


def locks(op: StepNode) -> bool:
    """Whether an operation, or a body that it calls, takes a lock or gives one back."""
    return op.op_def.locks or any(map(_locks_inside, bodies_of(op)))


@remembered
def _locks_inside(body: StepFunction) -> bool:
    return any(map(locks, body.operations))


def touches_variables(op: StepNode) -> bool:
    """Whether an operation, or a body that it calls, reads or writes a variable."""
    return (
        bool(op.op_def.reads) or writes_variables(op) or any(_state_in_terms_of_parameters(b)[0] for b in bodies_of(op))
    )


def writes_variables(op: StepNode) -> bool:
    """Whether an operation, or a body that it calls, writes a variable."""
    return bool(op.op_def.writes) or any(_state_in_terms_of_parameters(body)[1] for body in bodies_of(op))


def known_handle(tensor: StepTensor) -> ResourceHandle | None:
    """Which resource a handle names; None where only the step finds out."""
    return tensor.known if isinstance(tensor.known, ResourceHandle) else None


def state_of(op: StepNode, handle_of: Callable[[StepTensor], Any]) -> tuple[list[ResourceHandle], list[ResourceHandle]]:
    """The variables that an operation reads and writes, including those that its function bodies touch."""
    op_def = op.op_def
    reads: list[ResourceHandle] = []
    writes: list[ResourceHandle] = []
    if op_def.reads or op_def.writes:
        for arg, value in zip(op_def.inputs, group_by_argument(op_def.inputs, op.attrs, op.inputs), strict=True):
            if arg.name not in op_def.reads and arg.name not in op_def.writes:
                continue
            tensors = value if isinstance(value, list) else [value]
            handles = [_known(handle_of(t), t, op) for t in tensors]
            if arg.name in op_def.reads:
                reads.extend(handles)
            if arg.name in op_def.writes:
                writes.extend(handles)
    for body in bodies_of(op):
        outer = op.inputs[len(op.inputs) - len(body.inputs) :]
        known = {p: handle_of(t) for p, t in zip(body.inputs, outer, strict=True) if t.dtype is dtypes.resource}
        # a body does not say which of its parameters the unknown handle came by, so that the first is named
        body_reads, body_writes = (
            [_known(handle, next(iter(known), op.inputs[0]), op) for handle in handles]
            for handles in state_of_body(body, known)
        )
        reads.extend(body_reads)
        writes.extend(body_writes)
        reads.extend(body_writes)  # a branch that is not taken leaves the old value
    return list(dict.fromkeys(reads)), list(dict.fromkeys(writes))


def _known(handle: ResourceHandle | None, tensor: StepTensor, op: StepNode) -> ResourceHandle:
    if handle is None:
        raise InvalidArgumentError(
            None,
            op,
            f"which variable {op.name!r} touches must be known before the step runs, but the handle {tensor.name!r} is "
            "computed in it; take the handle from outside of the conditional or loop",
        )
    return handle


def state_of_body(
    body: StepFunction, handles: Mapping[StepTensor, ResourceHandle]
) -> tuple[list[ResourceHandle], list[ResourceHandle]]:
    """The variables that a call of a function graph reads and writes; `handles`: its resource parameters' values."""

    def named(place: StepTensor | ResourceHandle) -> Any:
        if not isinstance(place, StepTensor):
            return place
        return handles[place] if place in handles else ResourceHandle("", place.op.name, "variable")

    reads, writes = _state_in_terms_of_parameters(body)
    return list(dict.fromkeys(map(named, reads))), list(dict.fromkeys(map(named, writes)))


@remembered
def _state_in_terms_of_parameters(body: StepFunction) -> tuple[list[Any], list[Any]]:
    """What a call reads and writes: parameters of the body, and the handles of variables that it names itself."""
    parameters = set(body.inputs)

    def inner_handle(tensor: StepTensor) -> Any:
        # a body may pass a handle on before it uses it
        while tensor not in parameters and tensor.op.op_def.passes_on:
            tensor = tensor.op.inputs[tensor.value_index]
        return tensor if tensor in parameters else ResourceHandle("", tensor.op.name, "variable")

    reads: list[ResourceHandle] = []
    writes: list[ResourceHandle] = []
    for inner in body.operations:
        inner_reads, inner_writes = state_of(inner, inner_handle)
        reads.extend(inner_reads)
        writes.extend(inner_writes)
    return list(dict.fromkeys(reads)), list(dict.fromkeys(writes))
