"""Reads of variables that a loop does not change are taken out of it  (§3.4).

A body that uses a variable reads it in every iteration. The loop's gradient would keep what was read in each of them,
and could not know that it is one value. So `while_loop` reads such a variable once, before the loop, and the body takes
the value from outside.

This changes nothing: an iteration's read gives the value of the variable at that time. Only writes change it. The
loop itself has none (`_may_write` looks into all bodies that it calls), and a write of the same step is ordered before
or after the whole loop. Whether the loop runs at all does not matter, since reading has no effect. A read that waits
for something inside the body stays there.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from anabranch.core.attrs import FuncAttr
from anabranch.graph.function_graph import FunctionGraph
from anabranch.graph.operation import Operation, Tensor
from anabranch.ops import raw

#: stateful operations that change no variable
_HARMLESS = frozenset(
    {"Placeholder", "ReadVariableOp", "VariableShape", "VarIsInitializedOp", "ResourceGather", "Assert", "PrintV2"}
)


def read_before(graphs: Iterable[FunctionGraph]) -> dict[Operation, Tensor]:
    """Replaces the reads of variables in a loop's bodies by what one read before the loop gives.

    Args:
        graphs: condition and body, complete; the graph that encloses them is the default graph.

    Returns:
        The reads that nothing uses any more, with what replaces each.
    """
    graphs = list(graphs)
    if any(_may_write(op) for graph in graphs for op in graph.get_operations()):
        return {}
    before: dict[tuple[Tensor, Any], Tensor] = {}
    replaced: dict[Operation, Tensor] = {}
    for graph in graphs:
        outer_of = {parameter: outer for outer, parameter in graph._captured.items()}
        for op in graph.get_operations():
            if op.type != "ReadVariableOp" or op._control_inputs or op.inputs[0] not in outer_of:
                continue
            key = (outer_of[op.inputs[0]], op.attrs["dtype"])
            if key not in before:
                before[key] = raw.ReadVariableOp(key[0], dtype=key[1])
                before[key].set_shape(op.outputs[0].shape)
            replaced[op] = _replace(graph, op.outputs[0], before[key])
    return replaced


def _replace(graph: FunctionGraph, tensor: Tensor, outer: Tensor) -> Tensor:
    parameter = graph.capture_as_parameter(outer)
    for op in graph.get_operations():
        for index, given in enumerate(op._inputs):
            if given is tensor:
                op._set_input(index, parameter)
    graph.outputs = [parameter if t is tensor else t for t in graph.outputs]
    return parameter


def _may_write(op: Operation) -> bool:
    if op.op_def.writes:
        return True
    bodies = [
        op.graph.get_function(function.name)
        for value in op.attrs.values()
        for function in (value if isinstance(value, list) else [value])
        if isinstance(function, FuncAttr) and function.name
    ]
    if bodies:
        return any(_may_write(inner) for body in bodies for inner in body.get_operations())
    return op.op_def.stateful and not op.op_def.random and op.type not in _HARMLESS
