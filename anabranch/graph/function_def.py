"""Function graphs to FunctionDef messages and back.

In a FunctionDef, parameters and nodes share one space of names; a node's input is written `parameter` or
`node:output argument:index`; `ret` tells for each result which of these it is, and `control_ret` names the nodes that
run whether or not a result depends on them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from anabranch.core.dtypes import DType, as_dtype
from anabranch.core.roles import Role
from anabranch.core.shapes import TensorShape
from anabranch.errors import UnimplementedError
from anabranch.graph import graphdef
from anabranch.graph.free_names import take_name
from anabranch.graph.function_graph import FunctionGraph
from anabranch.graph.inner_values import output_name
from anabranch.graph.node_plans import NodeError, NodePlan, check_connections, read_nodes
from anabranch.graph.operation import Tensor
from anabranch.proto.attr_values import attr_from_proto
from anabranch.proto.graph_pb2 import AttrValue, FunctionDef, NodeDef, OpDef
from anabranch.proto.node_inputs import Slot
from anabranch.proto.tensors import shape_to_proto

_INNER_INPUT = re.compile(r"([^:]+)(?::([^:]+):(\d+))?|([^:]+):0")


# ---------------------------------------------------------------------- export
def function_to_proto(body: FunctionGraph, name: str, add_shapes: bool = False) -> FunctionDef:
    """The message of a function graph that the library has under `name`."""
    parameters = set(body.inputs)
    operations = [op for op in body.get_operations() if not (op.outputs and op.outputs[0] in parameters)]
    taken = {op.name for op in operations}
    arguments = {t: take_name(_argument_name(t.op.name), taken) for t in body.inputs}
    taken = set()
    results = [take_name(_argument_name(t.op.name), taken) for t in body.outputs]
    kept = [op for op in operations if op.op_def.stateful and op.op_def.role is not Role.PLACEHOLDER]

    def input_name(tensor: Tensor) -> str:
        return arguments[tensor] if tensor in arguments else output_name(tensor)

    message = FunctionDef()
    signature = message.signature
    signature.name = name
    signature.is_stateful = bool(kept)
    for tensor in body.inputs:
        signature.input_arg.append(_arg(arguments[tensor], tensor))
    for result, tensor in zip(results, body.outputs, strict=True):
        signature.output_arg.append(_arg(result, tensor))
        message.ret[result] = input_name(tensor)
    # a function's parameters are always there: nothing waits for them
    never_waited_for = {f"^{tensor.op.name}" for tensor in body.inputs}
    for op in operations:
        node = graphdef.node_to_proto(op, input_name=input_name, add_shapes=add_shapes)
        node.input[:] = [text for text in node.input if text not in never_waited_for]
        message.node_def.append(node)
    for op in kept:
        signature.control_output.append(op.name)
        message.control_ret[op.name] = op.name
    for index, tensor in enumerate(body.inputs):
        if tensor.shape.ndims is not None:
            shapes = AttrValue.ListValue(shape=[shape_to_proto(tensor.shape)])
            message.arg_attr[index].attr["_output_shapes"].CopyFrom(AttrValue(list=shapes))
    return message


def _arg(name: str, tensor: Tensor) -> OpDef.ArgDef:
    return OpDef.ArgDef(name=name, type=tensor.dtype.as_datatype_enum)  # type: ignore[arg-type]


def _argument_name(name: str) -> str:
    """A name of the kind that arguments have: lower case, beginning with a letter."""
    cleaned = re.sub(r"[^a-z0-9_]", "_", name.lower()).strip("_") or "x"
    return cleaned if cleaned[0].isalpha() else f"arg_{cleaned}"


graphdef.WRITE_FUNCTION["function_to_proto"] = function_to_proto


# ---------------------------------------------------------------------- reading
class FunctionPlan:
    """A FunctionDef, read and checked.

    Attributes:
        parameters: name, dtype and shape of each parameter.
        plans: the nodes of the body.
        results: where each result comes from; a parameter is the slot (its name, 0).
    """

    def __init__(self, message: FunctionDef, nodes: list[NodeDef]) -> None:
        signature = message.signature
        self.name = signature.name
        self._check_monomorphic(message)
        self.parameters = [
            (arg.name, as_dtype(arg.type).base_dtype, _parameter_shape(message, i))
            for i, arg in enumerate(signature.input_arg)
        ]
        self._given: dict[Slot, DType] = {(name, 0): dtype for name, dtype, _ in self.parameters}
        try:
            self.plans = read_nodes(nodes, self._slot)
            self.results = [self._result(message, arg.name) for arg in signature.output_arg]
            check_connections(self.plans, self._given, [name for name, _, _ in self.parameters])
            self._check_results(message)
        except ValueError as error:
            raise ValueError(f"function {self.name!r}: {error}") from error

    @property
    def given(self) -> dict[Slot, DType]:
        """The dtypes of the parameters."""
        return self._given

    def _check_monomorphic(self, message: FunctionDef) -> None:
        arguments = [*message.signature.input_arg, *message.signature.output_arg]
        generic = [arg.name for arg in arguments if arg.type_attr or arg.number_attr or arg.type_list_attr]
        if generic or message.signature.attr:
            raise UnimplementedError(
                None,
                None,
                f"function {self.name!r} is generic (its arguments {generic} depend on attributes); export it with "
                "definite types",
            )

    def _slot(self, plan: NodePlan | None, text: str, plans: Mapping[str, NodePlan]) -> Slot:
        node = NodeDef(name=self.name, op="return") if plan is None else plan.node
        match = _INNER_INPUT.fullmatch(text)
        if match is None:
            raise NodeError(node, f"the input {text!r} is malformed; write 'parameter' or 'node:output:0'")
        name, argument, index = match[1] or match[4], match[2], match[3]
        if (name, 0) in self._given and argument is None:
            return name, 0
        source = plans.get(name)
        if source is None:
            raise NodeError(node, f"its input {text!r} is neither a parameter nor a node of the function")
        if argument is None:
            raise NodeError(node, f"its input {text!r} does not say which output of the node; write '{name}:output:0'")
        return name, _flat_index(node, source, argument, int(index))

    def _result(self, message: FunctionDef, name: str) -> Slot:
        if name not in message.ret:
            raise ValueError(f"the result {name!r} has no entry in 'ret'")
        return self._slot(None, message.ret[name], self.plans)

    def _check_results(self, message: FunctionDef) -> None:
        for arg, slot in zip(message.signature.output_arg, self.results, strict=True):
            dtypes = [self._given[slot]] if slot in self._given else self.plans[slot[0]].output_dtypes()[slot[1] :]
            wanted = as_dtype(arg.type).base_dtype
            if not dtypes or dtypes[0] is not wanted:
                actual = dtypes[0].name if dtypes else "missing"
                raise ValueError(
                    f"the result {arg.name!r} should be {wanted.name}, but {slot[0]}:{slot[1]} is {actual}"
                )


def _flat_index(node: NodeDef, source: NodePlan, argument: str, index: int) -> int:
    start = 0
    for arg in source.op_def.outputs:
        count = 1
        if arg.number_attr is not None:
            count = source.attrs[arg.number_attr]
        elif arg.type_list_attr is not None:
            count = len(source.attrs[arg.type_list_attr])
        if arg.name == argument:
            if index >= count:
                break
            return start + index
        start += count
    text = f"{source.name}:{argument}:{index}"
    raise NodeError(node, f"its input {text!r} does not exist: {source.op_def.name} has no such output")


def _parameter_shape(message: FunctionDef, index: int) -> TensorShape:
    attrs = message.arg_attr[index].attr if index in message.arg_attr else {}
    shapes = attr_from_proto(attrs["_output_shapes"], "list(shape)") if "_output_shapes" in attrs else []
    return shapes[0] if shapes else TensorShape(None)
