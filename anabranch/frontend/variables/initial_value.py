"""Initial values that depend on other variables: read those safely, in whatever order initializers run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from anabranch.frontend.control_flow.conditionals import cond
from anabranch.graph.collections import GraphKeys
from anabranch.graph.conversion import convert_to_tensor
from anabranch.graph.operation import Operation, Tensor

if TYPE_CHECKING:
    from anabranch.frontend.variables.variables import Variable


def initial_or_current(variable: Variable) -> Tensor:
    """The value of `variable` if it is initialized when the step runs, else the tensor it is initialized with."""
    value: Tensor = cond(variable.is_initialized(), variable.read_value, lambda: variable.initial_value)
    if not variable.shape.is_fully_defined():
        return value
    value.set_shape(variable.shape)
    return value


def with_initialized_inputs(name: str, initial_value: Tensor) -> Tensor:
    """`initial_value`, computed from `initialized_value()` wherever it reads another variable.

    So variables can be initialized all in one step although one's initial value is computed from another's.

    Args:
        name: of the variable that is initialized; names the operations that are copied.
    """
    reads = _reads_of_variables(initial_value.op)
    if not reads:
        return initial_value
    graph = initial_value.graph
    known = {
        v.handle.op: v
        for key in (GraphKeys.GLOBAL_VARIABLES, GraphKeys.LOCAL_VARIABLES)
        for v in graph.get_collection_ref(key)
        if hasattr(v, "handle") and getattr(v, "initial_value", None) is not None
    }
    readers = {op: known[op.inputs[0].op] for op in reads if op.inputs[0].op in known}
    return _Copier(name, readers).copied(initial_value) if readers else initial_value


def _reads_of_variables(root: Operation) -> list[Operation]:
    """The operations on the way to `root` that read a variable."""
    reads: list[Operation] = []
    seen: set[Operation] = set()
    stack = [root]
    while stack:
        op = stack.pop()
        if op in seen:
            continue
        seen.add(op)
        if op.type == "ReadVariableOp":
            reads.append(op)
        else:
            stack.extend(t.op for t in op.inputs)
    return reads


class _Copier:
    """Copies that part of a graph which depends on given reads, with the reads replaced."""

    def __init__(self, name: str, readers: dict[Operation, Any]) -> None:
        self._name = name
        self._outputs: dict[Operation, list[Tensor]] = {
            op: [convert_to_tensor(variable.initialized_value())] for op, variable in readers.items()
        }

    def copied(self, tensor: Tensor) -> Tensor:
        for op in _in_order(tensor.op):
            if op in self._outputs:
                continue
            inputs = [self._new(t) for t in op.inputs]
            changed = any(new is not old for new, old in zip(inputs, op.inputs, strict=True))
            self._outputs[op] = self._copy(op, inputs).outputs if changed else op.outputs
        return self._new(tensor)

    def _new(self, tensor: Tensor) -> Tensor:
        return self._outputs[tensor.op][tensor.value_index]

    def _copy(self, op: Operation, inputs: list[Tensor]) -> Operation:
        name = f"{op.name.replace('/', '_')}_{self._name.replace('/', '_')}"
        attrs = {k: v for k, v in op.attrs.items() if k != "_class"}
        return op.graph.create_op(op.op_def, inputs, attrs, name=name, control_inputs=op.control_inputs)


def _in_order(root: Operation) -> list[Operation]:
    """The ancestors of `root` and itself, inputs first (graph order: an operation comes after its inputs)."""
    seen = {root}
    stack = [root]
    while stack:
        for tensor in stack.pop().inputs:
            if tensor.op not in seen:
                seen.add(tensor.op)
                stack.append(tensor.op)
    return sorted(seen, key=lambda op: op._id)
