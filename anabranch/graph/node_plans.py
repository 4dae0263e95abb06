"""Nodes of a GraphDef or FunctionDef, read and checked before any operation is created.

Everything a message can have wrong is found here, over all nodes at once: a graph that is refused was never touched.
"""

from __future__ import annotations

import heapq
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from anabranch.core.attrs import COMPUTED_AGAIN, AttrPlaceholder
from anabranch.core.dtypes import DType, signature_name
from anabranch.core.op_def import MISSING, ArgDef, AttrDef, OpDef
from anabranch.core.refused_names import refusal_of
from anabranch.core.registry import find_op_def
from anabranch.core.shapes import TensorShape
from anabranch.errors import NotFoundError
from anabranch.graph.building import attr_value
from anabranch.graph.graph import arg_dtypes
from anabranch.proto.attr_values import attr_from_proto
from anabranch.proto.graph_pb2 import AttrValue, NodeDef
from anabranch.proto.node_inputs import Slot

#: Attributes that newer or older programs write as a hint or for bookkeeping: they never change a result.
HINT_ATTRS: Final = frozenset(
    {
        "grad_a",
        "grad_b",
        "grad_x",
        "grad_y",
        "sparse_gradient",
        "metadata",
        "is_files",
        "replicate_on_split",
        "debug_name",
        "use_locking",
        "use_cudnn_on_gpu",
        "accuracy",
        "parallel_iterations",
        "mixed_priority_policy",
        "batch_padding_policy",
    }
)

#: annotations that mean something here -> their kinds
_ANNOTATIONS: Final[Mapping[str, str]] = {
    "_class": "list(string)",
    "_gradient_op_type": "string",
    COMPUTED_AGAIN: "bool",
}

_VALID_NAME = re.compile(r"[A-Za-z0-9.][A-Za-z0-9_.\-/>]*")
_NODE_INPUT = re.compile(r"(\$?[A-Za-z0-9.][A-Za-z0-9_.\-/>]*)(?::(\d+))?")
_ZERO_VALUES: Final[tuple[Any, ...]] = (False, 0, 0.0, b"", [])


class NodeError(ValueError):
    """A node of a message is wrong; says which."""

    def __init__(self, node: NodeDef, problem: str) -> None:
        super().__init__(f"node {node.name!r} ({node.op}): {problem}")


@dataclass
class NodePlan:
    """One operation to be created."""

    node: NodeDef
    op_def: OpDef
    attrs: dict[str, Any]
    inputs: list[Slot] = field(default_factory=list)
    controls: list[str] = field(default_factory=list)
    output_shapes: list[TensorShape] = field(default_factory=list)

    @property
    def name(self) -> str:
        return self.node.name

    def input_dtypes(self) -> list[DType]:
        """The dtypes that its inputs must have, flat."""
        return self._dtypes(self.op_def.inputs)

    def output_dtypes(self) -> list[DType]:
        """The dtypes of its outputs, flat."""
        return self._dtypes(self.op_def.outputs)

    def _dtypes(self, args: Iterable[ArgDef]) -> list[DType]:
        try:
            return arg_dtypes(args, self.attrs)
        except ValueError as error:
            raise NodeError(self.node, str(error)) from error


# ---------------------------------------------------------------------- reading
def check_op_types(nodes: Iterable[NodeDef]) -> None:
    """Raises NotFoundError that lists every operation type that is not registered, with a node of each."""
    unknown: dict[str, NodeDef] = {}
    for node in nodes:
        if find_op_def(node.op) is None:
            unknown.setdefault(node.op, node)
    if unknown:
        listed = ", ".join(f"{op!r} (node {node.name!r}{_why(op)})" for op, node in sorted(unknown.items()))
        raise NotFoundError(
            next(iter(unknown.values())),
            None,
            f"Op type not registered: {listed}. Replace these nodes, or cut them off with extract_sub_graph.",
        )


def _why(op: str) -> str:
    """Why an operation type is not here on purpose, as the end of a remark; "" where nobody says."""
    refusal = refusal_of(f"raw_ops.{op}")
    return "" if refusal is None else f": {refusal.reason}"


def read_nodes(
    nodes: Sequence[NodeDef], read_input: Callable[[NodePlan, str, Mapping[str, NodePlan]], Slot] | None = None
) -> dict[str, NodePlan]:
    """Plans of all nodes, by name, in the order of the message.

    Args:
        nodes: the nodes; all their operation types are registered.
        read_input: how a data input is written; by default as in a GraphDef.

    Raises:
        ValueError: a name that is taken or invalid, an attribute or an input that cannot be; the message names the
            node.
    """
    plans: dict[str, NodePlan] = {}
    for node in nodes:
        if not _VALID_NAME.fullmatch(node.name):
            raise NodeError(node, "Node name contains invalid characters; use letters, digits and any of '_.-/>'")
        if node.name in plans:
            raise NodeError(node, f"Node {node.name!r} is not unique in the graph; rename one of the two nodes")
        op_def = find_op_def(node.op)
        assert op_def is not None
        plans[node.name] = NodePlan(node, op_def, read_attrs(node, op_def), output_shapes=_shape_hints(node))
    for plan in plans.values():
        _read_inputs(plan, plans, read_input or _graph_input)
    return plans


def _read_inputs(
    plan: NodePlan,
    plans: Mapping[str, NodePlan],
    read_input: Callable[[NodePlan, str, Mapping[str, NodePlan]], Slot],
) -> None:
    for text in plan.node.input:
        if text.startswith("^"):
            plan.controls.append(text[1:])
        elif plan.controls:
            raise NodeError(plan.node, f"the data input {text!r} comes after a control input; data inputs come first")
        else:
            plan.inputs.append(read_input(plan, text, plans))


def _graph_input(plan: NodePlan, text: str, plans: Mapping[str, NodePlan]) -> Slot:
    match = _NODE_INPUT.fullmatch(text)
    if match is None:
        raise NodeError(
            plan.node,
            f"Node {plan.name!r}: Unknown input node {text!r}, which is malformed; write 'node', 'node:1' or '^node'",
        )
    return match[1], int(match[2] or 0)


def read_attrs(node: NodeDef, op_def: OpDef) -> dict[str, Any]:
    """The attributes of a node as operations hold them: those of its type, checked and completed, and annotations.

    Raises:
        ValueError: an attribute is missing, unknown, or has a value that the type does not allow.
    """
    attrs: dict[str, Any] = {}
    for name, message in node.attr.items():
        definition = op_def.attrs.get(name)
        if definition is not None:
            attrs[name] = _read_attr(node, definition, message)
        elif name.startswith("_"):
            if name != "_output_shapes" and message.WhichOneof("value") is not None:
                attrs[name] = _read_message(node, name, message, _ANNOTATIONS.get(name))
        else:
            _check_unknown_attr(node, name, message)
    for definition in op_def.attrs.values():
        if definition.name in attrs:
            continue
        if definition.default is MISSING:
            raise NodeError(node, f"NodeDef missing attr {definition.name!r} from {op_def.name}")
        default = definition.default
        attrs[definition.name] = list(default) if isinstance(default, list) else default
    _check_constant(node, attrs)
    return attrs


def _read_attr(node: NodeDef, definition: AttrDef, message: AttrValue) -> Any:
    value = _read_message(node, definition.name, message, definition.kind)
    if isinstance(value, AttrPlaceholder):
        raise NodeError(node, f"attribute {definition.name!r} refers to {value.name!r} of a caller, but has none")
    if definition.kind == "type":
        value = value.base_dtype
    elif definition.kind == "list(type)":
        value = [dtype.base_dtype for dtype in value]
    try:
        value = attr_value(node.op, definition, value)
    except (TypeError, ValueError) as error:
        raise NodeError(node, str(error)) from error
    if definition.allowed is not None and "type" in definition.kind:
        for dtype in value if isinstance(value, list) else (value,):
            if dtype not in definition.allowed:
                names = ", ".join(sorted(item.name for item in definition.allowed))
                raise NodeError(
                    node,
                    f"Value for attr {definition.name!r} of {dtype.name} is not in the list of allowed values: {names}",
                )
    return value


def _read_message(node: NodeDef, name: str, message: AttrValue, kind: str | None) -> Any:
    try:
        return attr_from_proto(message, kind)
    except (TypeError, ValueError, MemoryError) as error:
        raise NodeError(node, f"attribute {name!r}: {error}") from error


def _check_unknown_attr(node: NodeDef, name: str, message: AttrValue) -> None:
    """An attribute that our type does not have may be dropped where it cannot change what the node computes."""
    if name in HINT_ATTRS or message.WhichOneof("value") is None:
        return
    value = _read_message(node, name, message, None)
    if any(value == zero and type(value) is type(zero) for zero in _ZERO_VALUES):
        return
    raise NodeError(
        node,
        f"NodeDef mentions attr {name!r} with the value {value!r}, which {node.op} does not have here; "
        "if it is a default, give producer_op_list so that it can be stripped",
    )


def _check_constant(node: NodeDef, attrs: Mapping[str, Any]) -> None:
    if node.op != "Const":
        return
    dtype, value = attrs["dtype"], attrs["value"]
    if value.dtype != dtype.as_numpy_dtype:
        raise NodeError(node, f"its value is of type {value.dtype}, but its attribute 'dtype' says {dtype.name}")
    value.flags.writeable = False


def _shape_hints(node: NodeDef) -> list[TensorShape]:
    message = node.attr.get("_output_shapes") if "_output_shapes" in node.attr else None
    if message is None:
        return []
    return list(_read_message(node, "_output_shapes", message, "list(shape)"))


# ---------------------------------------------------------------------- checking
def check_connections(
    plans: Mapping[str, NodePlan],
    given: Mapping[Slot, DType],
    given_controls: Iterable[str],
    given_names: Mapping[Slot, str] | None = None,
    prefix: str = "",
) -> None:
    """Checks that all inputs exist and are of the right number and types.

    Args:
        plans: the nodes.
        given: dtypes of tensors that come from elsewhere (`input_map`, parameters).
        given_controls: names that control inputs may have besides.
        given_names: the names of given tensors, for messages.
        prefix: what names in messages begin with.

    Raises:
        ValueError: an input is missing, or of another type than its operation takes.
    """
    controls = {*plans, *given_controls}
    outputs = {name: plan.output_dtypes() for name, plan in plans.items()}
    for plan in plans.values():
        expected = plan.input_dtypes()
        if len(expected) != len(plan.inputs):
            wanted = ", ".join(map(signature_name, expected))
            raise NodeError(
                plan.node, f"NodeDef expected inputs {wanted!r} do not match {len(plan.inputs)} inputs specified"
            )
        for index, (slot, dtype) in enumerate(zip(plan.inputs, expected, strict=True)):
            dtype_given = given.get(slot) or _produced(plan, slot, outputs)
            if dtype_given.base_dtype is not dtype.base_dtype:
                source = (given_names or {}).get(slot) or f"{prefix}{slot[0]}:{slot[1]}"
                raise NodeError(
                    plan.node,
                    f"Input {index} of node {prefix}{plan.name} was passed {signature_name(dtype_given)} from {source} "
                    f"incompatible with expected {signature_name(dtype)}.",
                )
        for name in plan.controls:
            if name not in controls:
                raise NodeError(plan.node, f"Node {plan.name!r}: Unknown input node '^{name}'; add the node")


def _produced(plan: NodePlan, slot: Slot, outputs: Mapping[str, list[DType]]) -> DType:
    name, index = slot
    if name not in outputs:
        written = next(text for text in plan.node.input if text in (name, f"{name}:{index}"))
        problem = f"Node {plan.name!r}: Unknown input node {written!r}; add the node, or give it in input_map"
        raise NodeError(plan.node, problem)
    produced = outputs[name]
    if index >= len(produced):
        raise NodeError(
            plan.node,
            f"Node {plan.name!r}: Connecting to invalid output {index} of source node {name} which has "
            f"{len(produced)} outputs",
        )
    return produced[index]


# ---------------------------------------------------------------------- order
def creation_order(plans: Mapping[str, NodePlan], given: Iterable[Slot] = ()) -> list[NodePlan]:
    """The nodes, each after what it depends on, otherwise in the order of the message.

    An edge from a NextIteration to a Merge closes a loop and does not count.

    Raises:
        ValueError: a cycle that goes through no such edge; the message lists its nodes.
    """
    provided = set(given)
    position = {name: i for i, name in enumerate(plans)}
    waiting: dict[str, int] = {}
    dependents: dict[str, list[str]] = {}
    for plan in plans.values():
        sources = dependencies(plan, plans, provided)
        waiting[plan.name] = len(sources)
        for source in sources:
            dependents.setdefault(source, []).append(plan.name)
    ready = [position[name] for name, count in waiting.items() if count == 0]
    names = list(plans)
    heapq.heapify(ready)
    order: list[NodePlan] = []
    while ready:
        name = names[heapq.heappop(ready)]
        order.append(plans[name])
        for dependent in dependents.get(name, ()):
            waiting[dependent] -= 1
            if waiting[dependent] == 0:
                heapq.heappush(ready, position[dependent])
    if len(order) < len(plans):
        _raise_cycle({n: plans[n] for n, count in waiting.items() if count > 0}, plans, provided)
    return order


def dependencies(plan: NodePlan, plans: Mapping[str, NodePlan], provided: set[Slot]) -> set[str]:
    """The nodes that have to exist before this one."""
    names = {slot[0] for slot in plan.inputs if slot not in provided and not closes_loop(plan, slot, plans)}
    names.update(name for name in plan.controls if name in plans)
    return names & plans.keys()


def closes_loop(plan: NodePlan, slot: Slot, plans: Mapping[str, NodePlan]) -> bool:
    """Whether an input is the back edge of a loop."""
    source = plans.get(slot[0])
    return plan.node.op == "Merge" and source is not None and source.node.op == "NextIteration"


def _raise_cycle(left: Mapping[str, NodePlan], plans: Mapping[str, NodePlan], provided: set[Slot]) -> None:
    name = next(iter(left))
    path: list[str] = []
    while name not in path:
        path.append(name)
        name = min(n for n in dependencies(left[name], plans, provided) if n in left)
    cycle = [*path[path.index(name) :], name]
    raise NodeError(
        plans[name].node,
        f"the graph has a cycle that goes through no Merge of a loop: {' <- '.join(cycle)}; remove one of these inputs",
    )
