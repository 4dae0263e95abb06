"""What the body of a loop does with its parameters  (§3.4).

Parameter i of a body receives what its result i was in the iteration before. A parameter that a body returns
unchanged is *fixed*: it has one value in the whole loop.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from anabranch.core.attrs import FuncAttr
from anabranch.graph.graph import Graph
from anabranch.graph.operation import Operation, Tensor

#: operation types that run their bodies any number of times in an island
LOOPS = frozenset({"While", "StatelessWhile", "_RecordingWhile", "_DeviceLoopBound"})
T = TypeVar("T")  #: what a fact about a body is
_PASSING = frozenset({"Identity"})


def behind_identities(tensor: Tensor) -> Tensor:
    """The tensor that `tensor` is a copy of."""
    while tensor.op.type in _PASSING and not tensor.op._control_inputs:
        tensor = tensor.op.inputs[0]
    return tensor


def fixed_parameters(body: Any) -> list[bool]:
    """For each parameter of a loop's body, whether the body returns it unchanged."""
    return [behind_identities(out) is parameter for parameter, out in zip(body.inputs, body.outputs, strict=False)]


def operations_behind(tensors: Iterable[Tensor]) -> set[Operation]:
    """The operations that tensors are computed from, control edges included."""
    found: set[Operation] = set()
    stack = [t.op for t in tensors]
    while stack:
        op = stack.pop()
        if op not in found:
            found.add(op)
            stack.extend(t.op for t in op._inputs)
            stack.extend(op._control_inputs)
    return found


def parameters_behind(body: Any, tensors: Iterable[Tensor]) -> set[int]:
    """The positions of the parameters that tensors of a body are computed from."""
    behind = operations_behind(tensors)
    return {i for i, parameter in enumerate(body.inputs) if parameter.op in behind}


def closure_of_parameters(body: Any, start: Iterable[int]) -> set[int]:
    """The parameters that decide, over any number of iterations, the parameters `start`."""
    found: set[int] = set()
    stack = list(start)
    while stack:
        position = stack.pop()
        if position not in found:
            found.add(position)
            stack.extend(parameters_behind(body, [body.outputs[position]]) - found)
    return found


def bodies_of(op: Operation) -> list[Any]:
    """The function graphs that an operation calls."""
    found: list[Any] = []
    if op.op_def.defers_bodies:
        return found
    for name, attr in op.op_def.attrs.items():
        if attr.kind in {"func", "list(func)"}:
            value = op.attrs[name]
            functions = value if isinstance(value, list) else [value]
            found.extend(op.graph.get_function(f.name) for f in functions if isinstance(f, FuncAttr) and f.name)
    return found


def remembered(find: Callable[[Any], T]) -> Callable[[Any], T]:
    """Makes a function of a function graph remember what it found, until any graph is changed.

    It is called for the innermost bodies first. So one that asks for the bodies of its operations finds the answer
    there, and neither takes the time that the bodies in bodies add up to, nor calls itself, however deep they are.
    """

    def found_before(body: Any, now: int) -> bool:
        return find in body.facts and body.facts[find][0] == now

    def fact(body: Any) -> T:
        now = Graph.last_change
        if not found_before(body, now):
            for inner in innermost_first(body, lambda inner: found_before(inner, now)):
                inner.facts[find] = now, find(inner)
        return body.facts[find][1]  # type: ignore[no-any-return]

    return functools.update_wrapper(fact, find)


def innermost_first(body: Any, passed_over: Callable[[Any], bool] = lambda _: False) -> list[Any]:
    """A function graph and those that it calls, directly or not, each once and after those that it calls itself."""
    ordered: list[Any] = []
    seen: set[Any] = set()
    stack = [(body, False)]
    while stack:
        current, complete = stack.pop()
        if complete:
            ordered.append(current)
        elif current not in seen and not passed_over(current):
            seen.add(current)
            stack.append((current, True))
            stack.extend((inner, False) for op in current.get_operations() for inner in bodies_of(op))
    return ordered


@remembered
def _holds_loop(body: Any) -> bool:
    return any(map(contains_loop, body.get_operations()))


def contains_loop(op: Operation) -> bool:
    """Whether an operation is a loop, or calls a function graph with one in it."""
    return op.type in LOOPS or any(map(_holds_loop, bodies_of(op)))


@remembered
def _deepest(body: Any) -> int:
    return max(map(nesting, body.get_operations()), default=0)


def nesting(op: Operation) -> int:
    """How deep the bodies that an operation calls are nested; a loop counts three times."""
    bodies = bodies_of(op)
    return (3 if op.type in LOOPS else 1) + max(map(_deepest, bodies)) if bodies else 0
