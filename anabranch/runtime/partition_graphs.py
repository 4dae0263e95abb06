"""What a step runs after all passes, as a graph that tools can show."""

from __future__ import annotations

from typing import Any

import numpy as np

from anabranch.graph import function_def as _function_def  # writes the library's functions  # noqa: F401
from anabranch.graph.graph import Graph
from anabranch.graph.graphdef import graph_to_proto, node_to_proto
from anabranch.graph.step_nodes import StepNode, StepTensor
from anabranch.pipeline import HOST_DEVICE, Plan
from anabranch.proto.attr_values import attr_to_proto
from anabranch.proto.graph_pb2 import AttrValue, GraphDef, NodeDef
from anabranch.proto.tensors import make_tensor_proto, shape_to_proto
from anabranch.xla.islands import Island


def default_device(plan: Plan) -> str:
    """The full name of the device on which operations run for which the plan names none."""
    return HOST_DEVICE if plan.placement is None else plan.placement.default


def step_graph_defs(plan: Plan, graph: Graph) -> list[GraphDef]:
    """What a step runs: one graph for each device, with the operations in the order in which they run.

    A value known when the step was planned stands there as a constant, a fed tensor as a placeholder. The attribute
    `_island` of a compiled operation names its island by its last operation.
    """
    default = default_device(plan)
    devices = sorted({item.device or default for item in plan.items} or {default})
    return [_step_graph_def(plan, graph, device, default) for device in devices]


def _step_graph_def(plan: Plan, graph: Graph, device: str, default: str) -> GraphDef:
    writer = _Writer(plan, graph, device)
    for item in plan.items:
        if (item.device or default) != device:
            continue
        if isinstance(item, Island):
            for op in item.operations:
                writer.add(op, item.operations[-1].name)
        else:
            writer.add(item.operation, None)
    return writer.message


class _Writer:
    """Adds nodes to a message; what they take from outside is added before them."""

    def __init__(self, plan: Plan, graph: Graph, device: str) -> None:
        # a Recv waits for its Send on another device, which is none of this graph's
        self.members = {op for op in plan.step.operations if (op.placed_on or device) == device}
        self.feeds = set(plan.step.feeds)
        self.device = device
        #: no operations yet, but the graph's library of functions
        self.message = graph_to_proto(graph, from_version=len(graph.get_operations()))
        self._given: dict[StepTensor, str] = {}

    def add(self, op: StepNode, island: str | None) -> None:
        inputs = [self._input(tensor) for tensor in op.inputs]
        node = node_to_proto(op)
        del node.input[:]
        node.input.extend(inputs)
        node.input.extend(f"^{control.name}" for control in op.control_inputs if control in self.members)
        node.device = self.device
        if island is not None:
            node.attr["_island"].CopyFrom(AttrValue(s=island.encode()))
        self.message.node.append(node)

    def _input(self, tensor: StepTensor) -> str:
        if tensor in self.feeds or tensor.is_known:
            if tensor not in self._given:
                self._given[tensor] = self._add_given(tensor)
            return self._given[tensor]
        return tensor.op.name if tensor.value_index == 0 else tensor.name

    def _add_given(self, tensor: StepTensor) -> str:
        """Adds a node for a value from outside; returns how it is named."""
        name = tensor.op.name if tensor.value_index == 0 else f"{tensor.op.name}/output_{tensor.value_index}"
        value = tensor.known
        if tensor in self.feeds:
            node = self._node(name, "Placeholder", tensor)
            node.attr["shape"].CopyFrom(AttrValue(shape=shape_to_proto(tensor.shape)))
        elif isinstance(value, np.ndarray | np.generic):
            node = self._node(name, "Const", tensor)
            node.attr["value"].CopyFrom(AttrValue(tensor=make_tensor_proto(value, tensor.dtype)))
        else:  # a resource: what its handle is made by says more
            node = node_to_proto(tensor.op)
            del node.input[:]
        node.device = node.device or self.device
        self.message.node.append(node)
        return name

    @staticmethod
    def _node(name: str, kind: str, tensor: StepTensor) -> Any:
        node = NodeDef(name=name, op=kind)
        node.attr["dtype"].CopyFrom(attr_to_proto("type", tensor.dtype.base_dtype))
        return node
