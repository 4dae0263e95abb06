"""Nodes that a pass adds to a step: nobody created an operation for them."""

from __future__ import annotations

from collections.abc import Sequence

from anabranch.core.attrs import AttributeValue
from anabranch.core.dtypes import DType
from anabranch.core.op_def import MISSING
from anabranch.core.shapes import TensorShape
from anabranch.graph.graph import op_def_of
from anabranch.graph.step_nodes import StepNode, StepTensor


def added_node(
    kind: str,
    beside: StepNode,
    label: str,
    inputs: Sequence[StepTensor] = (),
    control_inputs: Sequence[StepNode] = (),
    device: str = "",
    outputs: Sequence[tuple[DType, TensorShape]] = (),
    **attrs: AttributeValue,
) -> StepNode:
    """Makes a node that is named after another one, which it stands beside in the step order.

    Args:
        kind: its operation type; attributes that are not given have their defaults.
        outputs: dtype and shape of each.
    """
    op_def = op_def_of(kind)
    filled = {k: a.default for k, a in op_def.attrs.items() if a.default is not MISSING} | attrs
    name = f"{beside.name}/{label}"
    # number and line are those of the node beside it: ties are ordered, and errors told, as if the user's operation ran
    node = StepNode(
        op_def, name, list(inputs), tuple(control_inputs), filled, device, beside.number, beside.site, name, {}
    )
    node.outputs = [StepTensor(node, i, dtype, shape) for i, (dtype, shape) in enumerate(outputs)]
    return node
