"""What the body of a loop does with its parameters  (§3.4).

Parameter i of a body receives what its result i was in the iteration before. A parameter that a body returns
unchanged is *fixed*: it has one value in the whole loop.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol, TypeVar

from anabranch.core.dtypes import DType, bool as bool_dtype
from anabranch.core.roles import Role
from anabranch.errors import InvalidArgumentError
from anabranch.graph.operation import Tensor
from anabranch.graph.step_nodes import AnyOperation, AnyTensor, StepFunction, StepNode, StepTensor, called_names

T = TypeVar("T")  #: what a fact about a body is


class BodyLike(Protocol):
    """The body of a loop, as a graph is built with it or as a step calls it."""

    @property
    def inputs(self) -> Sequence[AnyTensor]: ...
    @property
    def outputs(self) -> Sequence[AnyTensor]: ...


_AnyTensor = TypeVar("_AnyTensor", Tensor, StepTensor, AnyTensor)


def behind_identities(tensor: _AnyTensor) -> _AnyTensor:
    """The tensor that `tensor` is a copy of."""
    while _is_copy(tensor.op):
        tensor = tensor.op.inputs[tensor.value_index]
    return tensor


def _is_copy(op: AnyOperation) -> bool:
    """Whether an operation does nothing but to pass on its inputs, and the gradients as well."""
    op_def = op.op_def
    if not op_def.passes_on or not op_def.differentiable or op.control_inputs:
        return False
    return "_gradient_op_type" not in op.attrs


def fixed_parameters(body: BodyLike) -> list[bool]:
    """For each parameter of a loop's body, whether the body returns it unchanged."""
    return [behind_identities(out) is parameter for parameter, out in zip(body.inputs, body.outputs, strict=False)]


def operations_behind(tensors: Iterable[AnyTensor]) -> set[Any]:
    """The operations that tensors are computed from, control edges included."""
    operations: set[AnyOperation] = set()
    stack: list[AnyOperation] = [t.op for t in tensors]
    while stack:
        op = stack.pop()
        if op not in operations:
            operations.add(op)
            stack.extend(t.op for t in op.inputs)
            stack.extend(op.control_inputs)
    return operations


def parameters_behind(body: BodyLike, tensors: Iterable[AnyTensor]) -> set[int]:
    """The positions of the parameters that tensors of a body are computed from."""
    behind = operations_behind(tensors)
    return {i for i, parameter in enumerate(body.inputs) if parameter.op in behind}


def closure_of_parameters(body: BodyLike, start: Iterable[int]) -> set[int]:
    """The parameters that decide, over any number of iterations, the parameters `start`."""
    closure: set[int] = set()
    stack = list(start)
    while stack:
        position = stack.pop()
        if position not in closure:
            closure.add(position)
            stack.extend(parameters_behind(body, [body.outputs[position]]) - closure)
    return closure


def check_signatures(op: AnyOperation, functions: Sequence[BodyLike | None]) -> None:
    """Raises InvalidArgumentError where a function does not take and give what a loop or a conditional says.

    Graphs that others wrote may name any function. One that is missing is told of by who runs it.
    """
    loop = op.op_def.role is Role.LOOP
    taken = [dtype.base_dtype for dtype in op.attrs["T" if loop else "Tin"]]
    given = taken if loop else [dtype.base_dtype for dtype in op.attrs["Tout"]]
    if len(functions) != (len(op.attrs["branches"]) if op.op_def.role is Role.CASE else 2):
        raise InvalidArgumentError(None, op, f"operation {op.name!r} ({op.type}) does not say which functions it calls")
    for number, function in enumerate(functions):
        if function is None:
            continue
        takes = [t.dtype.base_dtype for t in function.inputs]
        gives, wanted = [t.dtype.base_dtype for t in function.outputs], given
        if loop and number == 0:
            wanted = gives[:1] or [bool_dtype]  # whatever its dtype, the condition's result is one of true and false
        elif loop:
            gives = gives[: len(given)]  # what the loop records comes behind its values
        for verb, found, expected in (("takes", takes, taken), ("gives", gives, wanted)):
            if found != expected:
                raise InvalidArgumentError(
                    None,
                    op,
                    f"operation {op.name!r} ({op.type}) calls the function "
                    f"{called_names(op.attrs, op.op_def)[number]!r}, "
                    f"which {verb} ({_listed(found)}), not ({_listed(expected)})",
                )


def _listed(dtypes: Iterable[DType]) -> str:
    return ", ".join(dtype.name for dtype in dtypes)


# ---------------------------------------------------------------------- in a step
def bodies_of(op: StepNode) -> list[StepFunction]:
    """The functions that an operation calls while it runs."""
    if not op.functions or op.op_def.defers_bodies:
        return []
    return [op.function(name) for name in called_names(op.attrs, op.op_def)]


def remembered(find: Callable[[StepFunction], T]) -> Callable[[StepFunction], T]:
    """Makes a question about functions remember its answers.

    It is asked of the innermost functions first. So one that asks about the functions that its operations call finds
    the answer there, and neither takes the time that functions in functions add up to, nor calls itself, however deep
    they are.
    """

    def fact(body: StepFunction) -> T:
        if find not in body.facts:
            for inner in innermost_first(body, lambda inner: find in inner.facts):
                inner.facts[find] = find(inner)
        return body.facts[find]  # type: ignore[no-any-return]

    return functools.update_wrapper(fact, find)


def innermost_first(
    body: StepFunction, passed_over: Callable[[StepFunction], bool] = lambda _: False
) -> list[StepFunction]:
    """A function and those that it calls, directly or not, each once and after those that it calls itself."""
    ordered: list[StepFunction] = []
    seen: set[StepFunction] = set()
    stack = [(body, False)]
    while stack:
        current, complete = stack.pop()
        if complete:
            ordered.append(current)
        elif current not in seen and not passed_over(current):
            seen.add(current)
            stack.append((current, True))
            stack.extend((inner, False) for op in current.operations for inner in bodies_of(op))
    return ordered


@remembered
def _holds_loop(body: StepFunction) -> bool:
    return any(map(contains_loop, body.operations))


def contains_loop(op: StepNode) -> bool:
    """Whether an operation is a loop, or calls a function with one in it."""
    return op.op_def.repeats_bodies or any(map(_holds_loop, bodies_of(op)))


@remembered
def _deepest(body: StepFunction) -> int:
    return max(map(nesting, body.operations), default=0)


def nesting(op: StepNode) -> int:
    """How deep the functions that an operation calls are nested; a loop counts three times."""
    bodies = bodies_of(op)
    return (3 if op.op_def.repeats_bodies else 1) + max(map(_deepest, bodies)) if bodies else 0
