"""Operations that a pass adds to a step: no graph lists them, and what they take does not know them as consumers."""

from __future__ import annotations

from typing import Any

from anabranch.core.op_def import MISSING
from anabranch.graph.graph import op_def_of
from anabranch.graph.operation import Operation, Tensor


def detached_operation(
    kind: str,
    beside: Operation,
    label: str,
    inputs: list[Tensor],
    controls: list[Operation] | None = None,
    device: str = "",
    **attrs: Any,
) -> Operation:
    """Makes an operation without outputs, named after another one that it stands beside in the step order."""
    op_def = op_def_of(kind)
    filled = {k: a.default for k, a in op_def.attrs.items() if a.default is not MISSING} | attrs
    op = Operation(beside.graph, beside._id, op_def, f"{beside.name}/{label}", [], [], filled, device, beside.site)
    op._inputs, op._control_inputs = list(inputs), list(controls or ())
    return op
