"""GraphDef messages to operations of the default graph: `import_graph_def`  (§3.1; design D2).

The nodes are read and checked first (`node_plans`), functions of the library next (`function_def`), and only then are
operations created; should one of them still be refused, for its shapes say, all are taken back.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from google.protobuf.message import Message

from anabranch.core.attrs import FuncAttr
from anabranch.core.colocation import colocation_group, colocation_leader
from anabranch.core.dtypes import resource
from anabranch.core.registry import find_op_def
from anabranch.core.shapes import TensorShape
from anabranch.errors import OpError, UnimplementedError
from anabranch.graph import graphdef, ref_handles, ref_variables
from anabranch.graph.conversion import convert_to_tensor
from anabranch.graph.copied_calls import CopiedCalls
from anabranch.graph.creation_site import user_frame
from anabranch.graph.exchanged_loops import restored
from anabranch.graph.function_def import FunctionPlan, function_to_proto
from anabranch.graph.function_graph import FunctionGraph
from anabranch.graph.graph import PRODUCER_VERSION, Graph, get_default_graph
from anabranch.graph.loop_bodies import check_signatures
from anabranch.graph.node_plans import (
    NodeError,
    NodePlan,
    check_connections,
    check_op_types,
    closes_loop,
    creation_order,
    read_nodes,
)
from anabranch.graph.operation import Operation, Tensor
from anabranch.graph.step_nodes import called_names
from anabranch.proto.graph_pb2 import FunctionDef, GraphDef, NodeDef, OpList
from anabranch.proto.node_inputs import Slot

_log = logging.getLogger(__name__)

#: Whose graphs these are, as messages name it.
_TENSORFLOW = "1.15"
#: The last version of graphs in which a placeholder's shape could not be said to be unknown.
_LAST_WITHOUT_UNKNOWN_RANK = 21


def import_graph_def(
    graph_def: Message,
    input_map: Mapping[str, Any] | None = None,
    return_elements: Sequence[str] | None = None,
    name: str | None = None,
    op_dict: object = None,
    producer_op_list: OpList | None = None,
) -> list[Operation | Tensor] | None:
    """Adds the nodes of a GraphDef to the default graph.

    Reference variables are translated into resources: see `docs/decisions/0003-ref-variables.md`.

    Args:
        graph_def: a GraphDef message.
        input_map: input names of `graph_def` ("node", "node:1", "^node") -> what to use instead: tensors of the default
            graph, or values to make constants of.
        return_elements: names of nodes ("node") and of their outputs ("node:0") to return.
        name: a scope for the new operations' names; default "import". "" leaves the names as they are. A name that is
            taken gets a number.
        op_dict: ignored; kept for programs that pass it.
        producer_op_list: an OpList with the operation types of the program that wrote the graph: attributes that are
            unknown here are left out where they have the default stated there.

    Returns:
        What `return_elements` names, in that order; None where it is not given.

    Raises:
        TypeError: an argument is of the wrong type.
        ValueError: a node is wrong, names what is not there, or is named twice; the graph has a cycle;
            `input_map` or `return_elements` name what the GraphDef does not have. The message names the node,
            and the default graph is as it was.
        NotFoundError: operation types that are not registered; the message lists all of them.

    Example:
        >>> y = tf.square(tf.constant(3.0), name="y")
        >>> graph_def = tf.get_default_graph().as_graph_def()
        >>> copy, = tf.import_graph_def(graph_def, return_elements=["y:0"], name="copy")
        >>> copy.name, sess.run(copy)
        ('copy/y:0', np.float32(9.0))
    """
    message = _with_open_placeholders(restored(_as_message(graph_def)))
    _check_versions(message)
    replaced = _checked_input_map(input_map)
    wanted = _checked_elements(return_elements)
    if producer_op_list is not None:
        message = _without_defaults(message, producer_op_list)
    graph = get_default_graph()
    with graph.all_or_nothing(), graph.name_scope("import" if name is None else name) as scope:
        tensors = _input_tensors(graph, replaced, scope)
        operations = _Import(graph, message, tensors, scope).run()
        if wanted is None:
            return None
        return [_element(item, operations, tensors) for item in wanted]


# ---------------------------------------------------------------------- arguments
def _as_message(graph_def: Message) -> GraphDef:
    if isinstance(graph_def, GraphDef):
        return graph_def
    if getattr(getattr(graph_def, "DESCRIPTOR", None), "name", None) == "GraphDef":
        return GraphDef.FromString(graph_def.SerializeToString())
    error = TypeError("graph_def must be a GraphDef proto.")
    error.add_note(f"It is of type {type(graph_def).__name__}; GraphDef.FromString reads one from bytes.")
    raise error


def _check_versions(message: GraphDef) -> None:
    versions = message.versions
    if versions.min_consumer > PRODUCER_VERSION:
        problem = (
            f"GraphDef min consumer version {versions.min_consumer} above current version {PRODUCER_VERSION} for "
            f"TensorFlow {_TENSORFLOW}.  Please upgrade TensorFlow."
        )
    elif PRODUCER_VERSION in versions.bad_consumers:
        problem = f"GraphDef disallows consumer version {PRODUCER_VERSION}.  Please upgrade TensorFlow."
    elif versions.producer < 0:
        problem = (
            f"GraphDef producer version {versions.producer} below min producer 0 supported by TensorFlow "
            f"{_TENSORFLOW}.  Please regenerate your graph."
        )
    else:
        return
    error = ValueError(problem)
    error.add_note("What wrote the graph says that it needs another reader: export it anew.")
    raise error


def _with_open_placeholders(message: GraphDef) -> GraphDef:
    """The graph, where a program of before version 22 wrote it with a scalar's shape for the unknown one."""
    if message.versions.producer > _LAST_WITHOUT_UNKNOWN_RANK:
        return message
    if not any(map(_says_scalar, message.node)):
        return message
    opened = GraphDef()
    opened.CopyFrom(message)
    for node in opened.node:
        if _says_scalar(node):
            node.attr["shape"].shape.unknown_rank = True
    return opened


def _says_scalar(node: NodeDef) -> bool:
    shape = node.attr["shape"].shape if node.op == "Placeholder" and "shape" in node.attr else None
    return shape is not None and not shape.unknown_rank and not shape.dim


def _checked_input_map(input_map: Mapping[str, Any] | None) -> dict[str, Any]:
    if input_map is None:
        return {}
    if not isinstance(input_map, Mapping) or not all(isinstance(key, str | bytes) for key in input_map):
        raise TypeError("input_map must be a dictionary mapping strings to Tensor objects.")
    return {key.decode() if isinstance(key, bytes) else key: value for key, value in input_map.items()}


def _checked_elements(return_elements: Sequence[str] | None) -> list[str] | None:
    if return_elements is None:
        return None
    elements = tuple(return_elements)
    if isinstance(return_elements, str) or not all(isinstance(item, str | bytes) for item in elements):
        raise TypeError("return_elements must be a list of strings.")
    return [item.decode() if isinstance(item, bytes) else item for item in elements]


def _without_defaults(message: GraphDef, producer_op_list: OpList) -> GraphDef:
    """A copy without the attributes that only the producer knows and that have the producer's default."""
    defaults = {
        op.name: {attr.name: attr.default_value for attr in op.attr if attr.HasField("default_value")}
        for op in producer_op_list.op
    }
    copied = GraphDef()
    copied.CopyFrom(message)
    for node in copied.node:
        op_def = find_op_def(node.op)
        for name, default in defaults.get(node.op, {}).items():
            known = op_def is not None and name in op_def.attrs
            if not known and name in node.attr and node.attr[name].SerializeToString() == default.SerializeToString():
                del node.attr[name]
    return copied


def _input_tensors(graph: Graph, replaced: Mapping[str, Any], scope: str) -> dict[str, Tensor]:
    if not all(isinstance(value, Tensor) for value in replaced.values()):
        if not scope:
            raise ValueError(
                "tf.import_graph_def() requires a non-empty `name` if `input_map` contains non-Tensor values. "
                "Try calling tf.convert_to_tensor() on `input_map` values before calling tf.import_graph_def()."
            )
        with graph.name_scope("_inputs"):
            return {key: graph.capture(convert_to_tensor(value)) for key, value in replaced.items()}
    tensors = {key: graph.capture(value) for key, value in replaced.items()}
    for key, tensor in tensors.items():
        if tensor.graph is not graph:
            raise ValueError(
                f"input_map[{key!r}] is the tensor {tensor.name} of another graph (created at {tensor.op.site}); "
                "give a tensor of the graph that is imported into"
            )
    return tensors


def _slot_of(text: str) -> Slot:
    name, colon, index = text.rpartition(":")
    if colon and name and index.isdigit():
        return name, int(index)
    return text, 0


def _element(text: str, operations: Mapping[str, Operation], tensors: Mapping[str, Tensor]) -> Operation | Tensor:
    slots = {_slot_of(key): tensor for key, tensor in tensors.items()}
    name, index = _slot_of(text)
    is_tensor = ":" in text
    if ":" in name or text.endswith(":"):
        raise ValueError(f"Cannot convert {text!r} to a tensor name. Write 'node' or 'node:1'.")
    if is_tensor and (name, index) in slots:
        return slots[name, index]
    op = operations.get(name)
    if op is None:
        raise ValueError(f"Requested return {'tensor' if is_tensor else 'node'} {text!r} not found in graph def.")
    if is_tensor and index >= len(op.outputs):
        raise ValueError(f"Invalid return output {index} of node {name!r}, which has {len(op.outputs)} output(s).")
    return op.outputs[index] if is_tensor else op


# ---------------------------------------------------------------------- the graph
class _Import:
    """One import into a graph whose lock is held."""

    def __init__(self, graph: Graph, message: GraphDef, tensors: Mapping[str, Tensor], scope: str) -> None:
        self._graph = graph
        self._tensors = tensors
        self._prefix = scope
        self._library = _Library(graph, message)
        self._given = {_slot_of(key): tensor for key, tensor in tensors.items() if not key.startswith("^")}
        self._controls = {key[1:]: tensor.op for key, tensor in tensors.items() if key.startswith("^")}
        nodes = self._library.without_calls(message.node)
        resources = {slot: tensor.dtype is resource for slot, tensor in self._given.items()}
        translated = ref_handles.translate(nodes)
        names = _unique_names(graph, scope, [node.name for node in translated])
        self._nodes = ref_variables.translate(translated, names, resources)

    def run(self) -> dict[str, Operation]:
        """The new operations, by the names that their nodes have in the message."""
        check_op_types([*self._nodes, *self._library.reachable_nodes(self._nodes)])
        plans = read_nodes(self._nodes)
        dtypes = {slot: tensor.dtype for slot, tensor in self._given.items()}
        given_names = {slot: tensor.name for slot, tensor in self._given.items()}
        check_connections(plans, dtypes, self._controls, given_names, self._prefix)
        self._check_all_used(plans)
        order = creation_order(plans, self._given)
        self._check_colocation(plans)
        names = _unique_names(self._graph, self._prefix, list(plans))
        functions = self._library.add(self._nodes)
        for plan in order:
            _rename_functions(plan, functions)
            _rename_colocation(plan, names)
        with _imported_scopes(self._graph):
            builder = _PlanBuilder(self._graph, names, self._given, self._controls)
            return builder.create(order, plans)

    def _check_all_used(self, plans: Mapping[str, NodePlan]) -> None:
        if not self._tensors:
            return
        used: set[Slot | str] = {slot for plan in plans.values() for slot in plan.inputs}
        used.update(f"^{name}" for plan in plans.values() for name in plan.controls)
        used.update(slot for plan in plans.values() for slot in _outputs(plan))
        used.update(f"^{name}" for name in plans)
        missing = [k for k in self._tensors if (k if k.startswith("^") else _slot_of(k)) not in used]
        if missing:
            listed = ", ".join(sorted(missing))
            raise ValueError(f"Attempted to map inputs that were not found in graph_def: [{listed}]")

    def _check_colocation(self, plans: Mapping[str, NodePlan]) -> None:
        for plan in plans.values():
            for group in plan.attrs.get("_class", []):
                name = colocation_leader(group)
                if name is not None and name not in plans and not self._graph._operation_exists(name):
                    raise NodeError(
                        plan.node,
                        f"Node {plan.name!r} expects to be colocated with unknown node {name!r}; drop '_class'",
                    )


def _outputs(plan: NodePlan) -> list[Slot]:
    return [(plan.name, i) for i in range(len(plan.output_dtypes()))]


def _rename_functions(plan: NodePlan, names: Mapping[str, str]) -> None:
    for key, value in plan.attrs.items():
        if isinstance(value, FuncAttr):
            plan.attrs[key] = FuncAttr(names.get(value.name, value.name), value.attrs)
        elif isinstance(value, list) and value and isinstance(value[0], FuncAttr):
            plan.attrs[key] = [FuncAttr(names.get(v.name, v.name), v.attrs) for v in value]


def _rename_colocation(plan: NodePlan, names: Mapping[str, str]) -> None:
    groups = plan.attrs.get("_class")
    if groups:
        leaders = [(group, colocation_leader(group)) for group in groups]
        plan.attrs["_class"] = [
            colocation_group(names[name]) if name is not None and name in names else group for group, name in leaders
        ]


def _unique_names(graph: Graph, prefix: str, names: Sequence[str]) -> dict[str, str]:
    """The full name that each node gets: numbered where an operation has it, or lies in a scope of that name."""
    full = {name: prefix + name for name in names}
    if graph._names.keys().isdisjoint(name.lower() for name in full.values()):
        return full
    taken = set(graph._by_name)
    for name in graph._by_name:
        while (name := name.rpartition("/")[0]) and name not in taken:
            taken.add(name)
    given = set(full.values())
    for name, wanted in full.items():
        number, chosen = 0, wanted
        while chosen in taken or (number and chosen in given):
            number += 1
            chosen = f"{wanted}_{number}"
        full[name] = chosen
    return full


@contextlib.contextmanager
def _imported_scopes(graph: Graph) -> Iterator[None]:
    """Of the open scopes only names (already in the prefix) and devices concern imported operations."""
    scopes = graph._scopes
    saved = (scopes.controls, scopes.attrs, scopes.colocation, scopes.gradient_overrides)
    scopes.controls, scopes.attrs, scopes.colocation, scopes.gradient_overrides = [], {}, [], {}
    try:
        yield
    finally:
        scopes.controls, scopes.attrs, scopes.colocation, scopes.gradient_overrides = saved


class _PlanBuilder:
    """Creates the operations of checked plans in one graph."""

    def __init__(
        self,
        graph: Graph,
        names: Mapping[str, str],
        given: Mapping[Slot, Tensor],
        controls: Mapping[str, Operation | None],
    ) -> None:
        self._graph = graph
        self._names = names
        self._given = given
        self._controls = controls
        self._site = user_frame()
        self._operations: dict[str, Operation] = {}

    def create(self, order: Sequence[NodePlan], plans: Mapping[str, NodePlan]) -> dict[str, Operation]:
        back_edges: list[tuple[Operation, int, Slot]] = []
        for plan in order:
            free = [(i, slot) for i, slot in enumerate(plan.inputs) if slot not in self._given]
            loops = [i for i, slot in free if closes_loop(plan, slot, plans)]
            op = self._create_one(plan, loops)
            back_edges += [(op, i, plan.inputs[i]) for i in loops]
        for op, index, (name, output) in back_edges:
            op._set_input(index, self._operations[name].outputs[output])
        self._colocate_devices()
        return self._operations

    def _create_one(self, plan: NodePlan, loops: list[int]) -> Operation:
        inputs = self._inputs(plan, loops)
        controls = [op for name in dict.fromkeys(plan.controls) if (op := self._control(name)) is not None]
        name = f"{self._names[plan.name]}/"
        try:
            with self._device(plan):
                op = self._graph.create_op(
                    plan.op_def, inputs, plan.attrs, name, site=self._site, control_inputs=controls
                )
            if op.op_def.is_functional:
                library = self._graph.functions
                bodies = [library.get(name) for name in called_names(op.attrs, op.op_def)]
                check_signatures(op, [body if isinstance(body, FunctionGraph) else None for body in bodies])
            for tensor, hint in zip(op.outputs, _shape_hints(plan, op, loops), strict=False):
                tensor._shape = hint
        except OpError:
            raise
        except Exception as error:  # a shape rule may stumble over anything that a message contains
            raise NodeError(plan.node, str(error) or type(error).__name__) from error
        self._operations[plan.name] = op
        return op

    def _inputs(self, plan: NodePlan, loops: list[int]) -> list[Tensor]:
        tensors = [None if i in loops else self._tensor(slot) for i, slot in enumerate(plan.inputs)]
        stand_in = next((t for t in tensors if t is not None), None)
        if stand_in is None and tensors:
            raise NodeError(plan.node, "all its inputs are back edges of a loop; one must come from outside the loop")
        return [t if t is not None else stand_in for t in tensors]  # type: ignore[misc]

    def _tensor(self, slot: Slot) -> Tensor:
        given = self._given.get(slot)
        return given if given is not None else self._operations[slot[0]].outputs[slot[1]]

    def _control(self, name: str) -> Operation | None:
        return self._controls[name] if name in self._controls else self._operations[name]

    def _device(self, plan: NodePlan) -> contextlib.AbstractContextManager[Any]:
        return self._graph.device(plan.node.device) if plan.node.device else contextlib.nullcontext()

    def _colocate_devices(self) -> None:
        """An operation goes where those are that it is colocated with."""
        for op in self._operations.values():
            for group in op.attrs.get("_class", ()):
                name = colocation_leader(group)
                leader = self._graph._by_name.get(name) if name is not None else None
                if leader is not None and leader is not op and leader.device:
                    op.device = leader.device
                    break


def _shape_hints(plan: NodePlan, op: Operation, loops: list[int]) -> list[TensorShape]:
    """What is known of the outputs' shapes: inferred, and stated by the message."""
    # the shape of a loop's value may change on the way around
    inferred = [TensorShape(None)] * len(op.outputs) if loops else [t.shape for t in op.outputs]
    if loops:
        inferred[1:] = [t.shape for t in op.outputs[1:]]
    if not plan.output_shapes:
        return inferred
    merged = []
    for index, (shape, hint) in enumerate(zip(inferred, plan.output_shapes, strict=False)):
        if op.outputs[index].dtype is resource:
            merged.append(shape)  # TensorFlow says two elements of some handles, of which the older ones were strings
            continue
        if not shape.is_compatible_with(hint):
            raise ValueError(
                f"the attribute '_output_shapes' says {hint} for output {index}, but the inputs' shapes give {shape}"
            )
        merged.append(shape.merge_with(hint))
    return merged


# ---------------------------------------------------------------------- the library
class _Library:
    """The functions of a GraphDef, and how they get into a graph."""

    def __init__(self, graph: Graph, message: GraphDef) -> None:
        self._graph = graph
        self._copied = CopiedCalls({f.signature.name: f for f in message.library.function})
        self._functions: Mapping[str, FunctionDef] = self._copied.functions

    def without_calls(self, nodes: Sequence[NodeDef]) -> list[NodeDef]:
        """The nodes, where functions were copied in that nodes call; see `copied_calls`."""
        return self._copied.in_graph(nodes)

    def _body(self, name: str) -> list[NodeDef]:
        return self._copied.in_function(name)

    def _order(self, nodes: Sequence[NodeDef]) -> list[str]:
        """The functions that nodes need, each after those that it calls."""
        if not self._functions:
            return []
        done: dict[str, None] = {}
        for root in _called_by(nodes):
            self._visit(root, done)
        return list(done)

    def _visit(self, root: str, done: dict[str, None]) -> None:
        if root not in self._functions or root in done:
            return
        stack: list[tuple[str, list[str]]] = [(root, _called_by(self._body(root)))]
        active = {root}
        while stack:
            name, callees = stack[-1]
            if not callees:
                stack.pop()
                active.discard(name)
                done[name] = None
                continue
            callee = callees.pop()
            if callee in active:
                raise UnimplementedError(None, None, f"function {callee!r} calls itself; write the recursion as a loop")
            if callee in self._functions and callee not in done:
                active.add(callee)
                stack.append((callee, _called_by(self._body(callee))))

    def reachable_nodes(self, nodes: Sequence[NodeDef]) -> list[NodeDef]:
        """The nodes of all functions that `nodes` need."""
        return [node for name in self._order(nodes) for node in self._body(name)]

    def add(self, nodes: Sequence[NodeDef]) -> dict[str, str]:
        """Puts the functions into the graph: those that `nodes` need, and the others if their types are known.

        Returns the names that they have there.
        """
        names: dict[str, str] = {}
        needed = self._order(nodes)
        for name in dict.fromkeys([*needed, *self._others()]):
            body = self._build(name, names)
            known = self._graph.functions.get(name)
            if isinstance(known, FunctionGraph) and _same_function(known, body, name):
                names[name] = name
            else:
                names[name] = self._graph.add_function(name, body)
                body.name = names[name]
        return names

    def _others(self) -> list[str]:
        names = []
        for name in self._functions:
            if name in self._copied.copied:
                continue
            nodes = [*self._body(name), *self.reachable_nodes(self._body(name))]
            unknown = sorted({n.op for n in nodes if find_op_def(n.op) is None})
            if unknown:
                _log.info("function %r is not imported: nothing needs it, and it needs the types %s", name, unknown)
            else:
                names += self._order(self._body(name)) + [name]
        return names

    def _build(self, name: str, names: Mapping[str, str]) -> FunctionGraph:
        plan = FunctionPlan(self._functions[name], self._body(name))
        body = FunctionGraph(name, self._graph)
        given: dict[Slot, Tensor] = {}
        for parameter, dtype, shape in plan.parameters:
            given[parameter, 0] = body.add_parameter(dtype, shape, parameter)
        order = creation_order(plan.plans, given)
        for node in order:
            _rename_functions(node, names)
        with _imported_scopes(body):
            builder = _PlanBuilder(
                body, {name: name for name in plan.plans}, given, dict.fromkeys((slot[0] for slot in given), None)
            )
            operations = builder.create(order, plan.plans)
        body.outputs = [given[s] if s in given else operations[s[0]].outputs[s[1]] for s in plan.results]
        return body


def _called_by(nodes: Sequence[NodeDef]) -> list[str]:
    return list(dict.fromkeys(name for node in nodes for name in graphdef.function_attrs(node)))


def _same_function(known: FunctionGraph, new: FunctionGraph, name: str) -> bool:
    known_text, new_text = (
        function_to_proto(body, name).SerializeToString(deterministic=True) for body in (known, new)
    )
    return bool(known_text == new_text)
