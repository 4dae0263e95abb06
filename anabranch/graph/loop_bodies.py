"""What the body of a loop does with its parameters  (§3.4).

Parameter i of a body receives what its result i was in the iteration before. A parameter that a body returns
unchanged is *fixed*: it has one value in the whole loop.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from anabranch.core.attrs import FuncAttr
from anabranch.graph.operation import Operation, Tensor

#: operation types that run their bodies any number of times in an island
LOOPS = frozenset({"While", "StatelessWhile", "_RecordingWhile", "_DeviceLoopBound"})
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


def contains_loop(op: Operation) -> bool:
    """Whether an operation is a loop, or calls a function graph with one in it."""
    return op.type in LOOPS or any(contains_loop(inner) for body in bodies_of(op) for inner in body.get_operations())
