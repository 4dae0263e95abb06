"""Copying a function graph into the graph that is being built  (docs/decisions/0055)."""

from __future__ import annotations

from collections.abc import Mapping

from anabranch.core.roles import Role
from anabranch.graph.function_graph import FunctionGraph
from anabranch.graph.graph import Graph
from anabranch.graph.operation import Operation, Tensor


def added_once(graph: Graph, body: FunctionGraph) -> str:
    """The name of a function graph in the library of `graph`, into which it is put unless it is there."""
    known = next((name for name, other in graph.functions.items() if other is body), None)
    return graph.add_function(body.name, body) if known is None else known


def copied_into(
    body: FunctionGraph, graph: Graph, given: Mapping[Tensor, Tensor]
) -> tuple[dict[Tensor, Tensor], list[Operation]]:
    """Copies of the operations of a function: the tensor for each tensor of it, and what has effects.

    What has effects runs in the order in which the function made it. All of the copy waits for what the open scopes
    say.

    Args:
        given: for each parameter, what stands for it.
    """
    if isinstance(graph, FunctionGraph):
        given = {parameter: graph.capture(value) for parameter, value in given.items()}
    tensors, operations = dict(given), dict[Operation, Operation]()
    readers: list[Operation] = []
    last: Operation | None = None
    effects: list[Operation] = []
    parameters = {t.op for t in body.inputs}
    for op in body.get_operations():
        if op in parameters:
            continue
        controls = dict.fromkeys(operations[c] for c in op.control_inputs if c in operations)
        acts = has_effect(op)
        if last is not None and (acts or op.op_def.reads):
            controls[last] = None
        if acts:
            controls.update(dict.fromkeys(readers))
        if not controls and not any(t.op in operations for t in op.inputs):
            controls = dict.fromkeys(graph._current_control_inputs([tensors[t] for t in op.inputs]))
        made = graph.create_op(
            op.op_def,
            [tensors[t] for t in op.inputs],
            dict(op.attrs),
            name=op.name,
            site=op.site,
            control_inputs=list(controls),
        )
        operations[op] = made
        tensors.update(zip(op.outputs, made.outputs, strict=True))
        for old, new in zip(op.outputs, made.outputs, strict=True):
            new.set_shape(new.shape.merge_with(old.shape) if new.shape.is_compatible_with(old.shape) else None)
        if acts:
            last, readers = made, []
            effects.append(made)
        elif op.op_def.reads:
            readers.append(made)
    return tensors, effects


def has_effect(op: Operation) -> bool:
    """Whether an operation of a function runs whether or not a result depends on it."""
    definition = op.op_def
    if not definition.stateful or definition.random or definition.role is Role.PLACEHOLDER:
        return False
    return bool(definition.writes) or not (definition.reads or definition.unnoticed)
