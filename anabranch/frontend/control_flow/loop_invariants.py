"""Reads of variables that a loop does not change are taken out of it, those of what it changes are in it (§3.4).

A body that uses a variable reads it in every iteration. The loop's gradient would keep what was read in each of them,
and could not know that it is one value. So `while_loop` reads such a variable once, before the loop, and the body takes
the value from outside.

This changes nothing: an iteration's read gives the value of the variable at that time. Only writes change it. The
loop itself has none (`_may_write` looks into all bodies that it calls), and a write of the same step is ordered before
or after the whole loop. Whether the loop runs at all does not matter, since reading has no effect. A read that waits
for something inside the body stays there.

The other way round, `read_within` has a loop read what it changes. A variable of TensorFlow's first kind (a reference)
shares its memory with what was read of it, and with `tf.identity` of that: a body that uses such a tensor of outside
sees what the loop has written, and programs count on it (samplers that update a model's parameters and compute with
them in one loop). Variables are resources here, whose reads are values; so each use of such a tensor in the body
becomes a read that waits for what its user waits for. What was *computed* from the tensor outside stays what it was,
where TensorFlow gives what came first.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from anabranch.core import dtypes
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


def read_within(graphs: Iterable[FunctionGraph]) -> None:
    """Has the bodies of a loop read the references that the loop changes, where they use reads made outside of it.

    Args:
        graphs: condition and body, complete; the graph that encloses them is the default graph.
    """
    graphs = list(graphs)
    changed = {_origin(tensor) for graph in graphs for op in graph.get_operations() for tensor in _changed_by(op)}
    for graph in graphs:
        for outer, parameter in list(graph._captured.items()):
            handle = _reference_behind(outer)
            if handle is not None and _origin(handle) in changed:
                _read_anew(graph, parameter, handle)


def _changed_by(op: Operation) -> list[Tensor]:
    """The handles of what an operation may write."""
    return [tensor for tensor in op.inputs if tensor.dtype is dtypes.resource] if _may_write(op) else []


def _origin(handle: Tensor) -> Tensor:
    origin: Tensor = handle.get_attribute("handle_of", handle)
    return origin


def _reference_behind(tensor: Tensor) -> Tensor | None:
    """The handle of the reference that a tensor shows; None: it shows none."""
    while True:
        graph, op = tensor.graph, tensor.op
        outer = graph.captured_from(tensor) if isinstance(graph, FunctionGraph) else None
        if outer is not None:
            tensor = outer
        elif op.type == "Identity":
            tensor = op.inputs[0]
        elif op.type == "ReadVariableOp" and _origin(op.inputs[0]).get_attribute("is_reference"):
            return op.inputs[0]
        else:
            return None


def _read_anew(graph: FunctionGraph, parameter: Tensor, handle: Tensor) -> None:
    """Replaces the uses of a parameter by reads of the variable, each when its user may run."""

    def read(waits: Iterable[Operation]) -> Tensor:
        with graph.as_default(), graph.control_dependencies(None), graph.control_dependencies(list(waits)):
            found: Tensor = raw.ReadVariableOp(handle, dtype=parameter.dtype)
        found.set_shape(parameter.shape)
        return found

    for op in list(graph.get_operations()):
        for index, given in enumerate(op._inputs):
            if given is parameter:
                op._set_input(index, read(op.control_inputs))
    graph.outputs = [read(()) if t is parameter else t for t in graph.outputs]


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
