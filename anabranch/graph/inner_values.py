"""Operations that give what is inside of loops and conditionals  (docs/decisions/0034).

A gradient needs tensors of the bodies of a loop, or of the branches of a conditional. It does not change these: it adds
an operation *beside* them, which takes the same, waits for its *owner* (the loop or the conditional), and names the
tensors that it gives. While a step is planned, both become one operation (`graph.joined_nodes`).

A tensor of a body is named ``node:argument:number``, as in a FunctionDef, and a parameter ``:position``.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from anabranch.core.roles import Role
from anabranch.errors import InvalidArgumentError
from anabranch.graph.graph import Graph
from anabranch.graph.operation import Operation, Tensor
from anabranch.graph.step_nodes import called_names

RECORDS: Final = "_LoopRecords"
VALUES: Final = "_BranchValues"


def owner_of(op: Operation) -> Operation:
    """The loop or conditional that an operation stands beside; the operation itself if it is no such operation.

    Raises:
        InvalidArgumentError: it does not wait for what it stands beside any more.
    """
    if op.op_def.role is not Role.BESIDE:
        return op
    functions = called_names(op.attrs, op.op_def)
    for owner in op._control_inputs:
        if owner.op_def.is_functional and called_names(owner.attrs, owner.op_def) == functions:
            count = len(owner._inputs)
            if op._inputs[len(op._inputs) - count :] == owner._inputs:
                return owner
    raise InvalidArgumentError(
        None, op, f"operation {op.name!r} ({op.type}) does not wait for the loop or conditional whose inside it gives"
    )


def beside(owner: Operation) -> list[Operation]:
    """The operations that stand beside a loop or a conditional, the oldest first."""
    return [op for op in owner._control_outputs if op.op_def.role is Role.BESIDE and owner_of(op) is owner]


# ---------------------------------------------------------------------- names
def _arguments(op: Operation) -> Iterator[tuple[str, int]]:
    """The names of an operation's output arguments, and how many tensors each is."""
    for arg in op.op_def.outputs:
        if arg.number_attr is not None:
            yield arg.name, op.attrs[arg.number_attr]
        elif arg.type_list_attr is not None:
            yield arg.name, len(op.attrs[arg.type_list_attr])
        else:
            yield arg.name, 1


def output_name(tensor: Tensor) -> str:
    """A node's output as an input inside a function: ``node:argument:number``."""
    left = tensor.value_index
    for name, count in _arguments(tensor.op):
        if left < count:
            return f"{tensor.op.name}:{name}:{left}"
        left -= count
    raise IndexError(tensor.name)


def inner_name(inputs: list[Tensor], tensor: Tensor) -> bytes:
    """The name of a tensor of a function with some parameters."""
    return (f":{inputs.index(tensor)}" if tensor in inputs else output_name(tensor)).encode()


def inner_tensor(body: Graph, inputs: list[Tensor], name: bytes) -> Tensor:
    """The tensor of a function that has a name.

    Raises:
        KeyError: there is none.
    """
    node, *output = name.decode().split(":")
    if not node:
        return inputs[int(output[0])]
    op = body.get_operation_by_name(node)
    start = 0
    for argument, count in _arguments(op):
        if argument == output[0]:
            return op.outputs[start + int(output[1])]
        start += count
    raise KeyError(f"operation {node!r} has no output {output[0]!r}")
