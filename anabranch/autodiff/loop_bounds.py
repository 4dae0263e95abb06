"""How often a loop runs, as an operation beside it: the records of a compiled loop need room before it runs.

The loop is cut down to the parameters that its condition depends on. Three cases:

* these follow from constants and shapes: `_LoopBound`, computed while the step is compiled;
* the values are on the device: `_DeviceLoopBound` runs the smaller loop first, and its result, rounded up to a power of
  two, decides which program runs;
* running it twice would not be the same (it draws random numbers, or changes variables): -1. The host runs such a loop.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from anabranch.core.attrs import FuncAttr
from anabranch.core.op_def import OpDef
from anabranch.graph.function_graph import FunctionGraph
from anabranch.graph.graph import op_def_of
from anabranch.graph.loop_bodies import closure_of_parameters, operations_behind, parameters_behind
from anabranch.graph.operation import Operation, Tensor
from anabranch.ops.control_flow.loop_sizes import DeviceLoopBound, LoopBound


def loop_bound(op: Operation) -> Tensor:
    """How often a `While` runs at most: a scalar int32 tensor of its graph; negative where nothing is known."""
    graph = op.graph
    condition: Any = graph.get_function(op.attrs["cond"].name)
    body: Any = graph.get_function(op.attrs["body"].name)
    needed = sorted(closure_of_parameters(body, parameters_behind(condition, condition.outputs)))
    results = [body.outputs[i] for i in needed]
    inner = [*operations_behind(condition.outputs), *operations_behind(results)]
    inner = [o for o in inner if o.type != "Placeholder"]
    if not _can_run_twice(inner) or (_reads(inner) and _changes_state(body)):
        return _beside(op, op_def_of("Const"), [], {"value": np.array(-1, np.int32), "dtype": _INT32})
    smaller = [
        _cut_out(f"{condition.name}_count", condition, needed, condition.outputs),
        _cut_out(f"{body.name}_count", body, needed, results),
    ]
    inputs = [op.inputs[i] for i in needed]
    portable = all(o.op_def.portable or o.type == "Const" for o in inner)
    known = portable and all(_follows_from_shapes(t) for t in inputs)
    names = [graph.add_function(f.name, f) for f in smaller]
    attrs = {"T": [t.dtype for t in inputs], "cond": FuncAttr(names[0]), "body": FuncAttr(names[1])}
    return _beside(op, LoopBound if known else DeviceLoopBound, inputs, attrs)


_INT32 = LoopBound.outputs[0].dtype


def _beside(op: Operation, op_def: OpDef, inputs: list[Tensor], attrs: dict[str, Any]) -> Tensor:
    """A new operation on the loop's device: what it gives decides which program runs there.

    A step runs it right before the loop, so that both find the same values of variables.
    """
    graph = op.graph
    with graph.name_scope(None), graph.colocate_with(op, ignore_existing=True):
        name = graph.unique_name(f"{op.name}_bound", mark_as_used=False)
        made = graph.create_op(op_def, list(inputs), attrs, name=f"{name}/", control_inputs=list(op._control_inputs))
    return made.outputs[0]


def _can_run_twice(operations: Iterable[Operation]) -> bool:
    return not any(op.op_def.random or (op.op_def.stateful and not op.op_def.only_reads) for op in operations)


def _reads(operations: Iterable[Operation]) -> bool:
    return any(op.op_def.only_reads for op in operations)


def _changes_state(body: FunctionGraph) -> bool:
    return any(
        op.op_def.writes or (op.op_def.stateful and not op.op_def.only_reads) for op in operations_behind(body.outputs)
    )


def _cut_out(name: str, body: FunctionGraph, parameters: list[int], outputs: list[Tensor]) -> FunctionGraph:
    """The part of a function graph that some of its outputs need, on some of its parameters."""
    part = FunctionGraph(name, body.outer_graph)
    copies: dict[Tensor, Tensor] = {}
    for i in parameters:
        old = body.inputs[i]
        copies[old] = part.add_parameter(old.dtype, old.shape, "x")
        copies[old].set_attribute("handle_of", old.get_attribute("handle_of"))
    given = {t.op for t in copies}
    operations = [op for op in operations_behind(outputs) if op not in given and op.type != "Placeholder"]
    made: dict[Operation, Operation] = {}
    for op in sorted(operations, key=lambda op: op._id):
        attrs = {k: v for k, v in op.attrs.items() if k != "_class"}
        controls = [made[c] for c in op._control_inputs if c in made]
        copy = part.create_op(
            op.op_def, [copies[t] for t in op.inputs], attrs, name=op.name + "/", control_inputs=controls
        )
        made[op] = copy
        copies.update(zip(op.outputs, copy.outputs, strict=True))
    part.outputs = [copies[t] for t in outputs]
    return part


def _follows_from_shapes(tensor: Tensor, depth: int = 0) -> bool:
    """Whether a value is known as soon as the shapes of all tensors are."""
    op = tensor.op
    if op.type == "Const" or op.op_def.shape_valued:
        return True
    if op.type == "Placeholder" and isinstance(op.graph, FunctionGraph):
        outer = op.graph.captured_from(tensor)
        return outer is not None and _follows_from_shapes(outer, depth + 1)
    if depth > 100 or not op.op_def.portable or op.op_def.stateful or not op.inputs:
        return False
    return all(_follows_from_shapes(t, depth + 1) for t in op.inputs)
