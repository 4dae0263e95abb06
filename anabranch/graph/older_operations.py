"""Building what a node of an older type stands for: `tf.raw_ops.Assign(ref=w, value=v)`  (docs/decisions/0062).

The node is written as an older program would have written it, translated as `import_graph_def` translates it, and what
comes of it is created in the open scopes. So a program that builds such nodes and a file that holds them mean the same.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from typing import Any

from anabranch.core.dtypes import DType, resource
from anabranch.core.op_def import ArgDef
from anabranch.graph import ref_handles, ref_variables
from anabranch.graph.building import Argument, OpFunction, complete_attrs, read_arguments
from anabranch.graph.constants import constant_value
from anabranch.graph.conversion import REFERENCE
from anabranch.graph.graph import Graph, get_default_graph, op_def_of
from anabranch.graph.older_types import OlderType
from anabranch.graph.operation import Operation, Tensor
from anabranch.proto.attr_values import attr_from_proto, attr_to_proto
from anabranch.proto.graph_pb2 import NodeDef
from anabranch.proto.node_inputs import Slot, control_inputs, data_inputs, slot_of


def handle_behind(value: object) -> Tensor | None:
    """The handle of what a value is a reference to: a handle, an object that has one, or a read of a variable."""
    handle = getattr(value, "handle", None)
    if isinstance(handle, Tensor):
        return handle
    if not isinstance(value, Tensor):
        queue = getattr(value, "queue_ref", None)
        return queue if isinstance(queue, Tensor) else None
    if value.dtype is resource:
        return value
    if value.op.type == "Merge" and value.value_index == 0:
        roots = {_root(h) for h in map(handle_behind, value.op.inputs) if h is not None}
        return roots.pop() if len(roots) == 1 else None
    return value.op.inputs[0] if value.op.type == "ReadVariableOp" else None


def _root(handle: Tensor) -> Tensor:
    """The handle that one was before it went into a conditional or a loop."""
    while handle.op.type in {"Identity", "Switch", "Enter"}:
        handle = handle.op.inputs[0]
    return handle


def takes_references(older: OlderType, args: Sequence[Argument], kwargs: Mapping[str, Argument]) -> bool:
    """Whether a call gives references where the type takes some: an operation of that name takes tensors as well."""
    given = dict(zip(older.definition.parameters(), args, strict=False)) | dict(kwargs)
    values = [item for name in older.handles if name in given for item in _items(given[name])]
    return bool(values) and all(handle_behind(value) is not None for value in values)


def build(older: OlderType, args: Sequence[Argument], kwargs: Mapping[str, Argument]) -> Any:
    """Adds what an operation of an older type stands for to the graph of its inputs, or to the default graph.

    Args:
        args, kwargs: as for an operation type: inputs, attributes and `name`.

    Returns:
        As an operation type does; a reference to a variable is a read of it, and whatever takes it reads anew.

    Raises:
        TypeError: a reference is needed where there is none, an argument is missing, or has a wrong dtype.
        ValueError: shapes or attribute values that the operation does not take.
    """
    given = dict(kwargs)
    name = given.pop("name", None)
    bound = older.definition.bind(tuple(args), given)
    graph = _graph_of(older, bound)
    with contextlib.nullcontext() if graph is get_default_graph() else graph.as_default():
        return _Building(graph, older, bound, name if isinstance(name, str) else older.definition.name).run()


def _graph_of(older: OlderType, bound: Mapping[str, Any]) -> Graph:
    default = get_default_graph()
    if not default.building_function:
        for value in (item for name in bound for item in _items(bound[name])):
            tensor = handle_behind(value)
            if tensor is None and isinstance(value, Tensor):
                tensor = value
            if tensor is not None:
                return tensor.graph
    return default


def _items(value: object) -> Sequence[Any]:
    return value if isinstance(value, list | tuple) else (value,)


class _Building:
    """One node: `_tensors` holds what its inputs and the nodes that come of it give, by name."""

    def __init__(self, graph: Graph, older: OlderType, bound: dict[str, Any], name: str) -> None:
        self._graph = graph
        self._older = older
        self._name = name[:-1] if name.endswith("/") else graph.unique_name(name)
        self._tensors: dict[Slot, Tensor] = {}
        self._made: dict[str, Operation] = {}
        self._waits: list[Operation] = []
        self._stand_ins: list[NodeDef] = []
        self._given: dict[Slot, bool] = {}
        self._bound = bound

    def run(self) -> Any:
        definition = self._older.definition
        inputs, attrs = self._read()
        self._dtype = attrs.get("T")
        node = NodeDef(name=self._name, op=definition.name, input=inputs)
        for key, value in attrs.items():
            node.attr[key].CopyFrom(attr_to_proto(definition.attrs[key].kind, value))
        names = {stand_in.name for stand_in in self._stand_ins}
        translated = ref_handles.translate([*self._stand_ins, node])
        translated = ref_variables.translate(translated, {node.name: node.name for node in translated}, self._given)
        with self._graph.control_dependencies(self._waits):
            for new in translated:
                if new.name not in names:
                    self._create(new)
        operation = self._made[self._name]
        if not definition.outputs:
            return operation
        flat = [arg for arg in definition.outputs for _ in range(_count(arg, attrs))]
        outputs = [self._as_stated(arg, tensor) for arg, tensor in zip(flat, operation.outputs, strict=False)]
        return definition.arranged(outputs, attrs)

    # ------------------------------------------------------------------ inputs
    def _read(self) -> tuple[list[str], dict[str, Any]]:
        """The texts of the inputs, and the attributes."""
        definition, handles = self._older.definition, self._older.handles
        plain = tuple(arg for arg in definition.inputs if arg.name not in handles)
        bound = dict(self._bound)
        texts: dict[str, list[str]] = {}
        for arg in definition.inputs:
            if arg.name in handles:
                texts[arg.name] = self._handles(arg, bound)
        with self._graph.name_scope(f"{self._name}/"):
            tensors, attrs = read_arguments(_without(definition, plain), bound)
        waiting = iter(tensors)
        for arg in plain:
            texts[arg.name] = [self._stand_in(next(waiting), False) for _ in range(_count(arg, attrs))]
        return [text for arg in definition.inputs for text in texts[arg.name]], attrs

    def _handles(self, arg: ArgDef, bound: dict[str, Any]) -> list[str]:
        if arg.name not in bound:
            raise TypeError(f"operation {self._older.definition.name} needs the input {arg.name!r}")
        values = bound.pop(arg.name)
        if arg.is_list and not isinstance(values, list | tuple):
            raise TypeError(f"Expected list for {arg.name!r} argument to {self._older.definition.name!r} Op")
        if arg.number_attr is not None:
            bound[arg.number_attr] = len(values)
        return [self._handle(arg, value, bound) for value in (values if arg.is_list else (values,))]

    def _handle(self, arg: ArgDef, value: object, bound: dict[str, Any]) -> str:
        handle = handle_behind(value)
        if handle is None:
            raise TypeError(
                f"Input {arg.name!r} of {self._older.definition.name!r} Op requires l-value input: a reference, which "
                f"only a variable, a queue, a table or a reader is; got {value!r}"
            )
        op: Any = getattr(value, "op", None)
        is_given = isinstance(op, Operation) and op is not handle.op
        if is_given and (not isinstance(value, Tensor) or op.control_inputs or op.type == "Merge"):
            self._waits.append(op)  # what an update gave: the reference exists after it
        dtype = _dtype_behind(value, handle)
        if arg.type_attr is not None and dtype is not None:
            stated = bound.setdefault(arg.type_attr, dtype)
            if stated != dtype:
                raise TypeError(
                    f"Input {arg.name!r} of {self._older.definition.name!r} Op has type {dtype.name} that does not "
                    f"match type {getattr(stated, 'name', stated)} of another argument"
                )
        return self._stand_in(handle, True, dtype)

    def _stand_in(self, tensor: Tensor, is_handle: bool, dtype: DType | None = None) -> str:
        name = f"{self._name}/input_{len(self._stand_ins)}"
        node = NodeDef(name=name, op="Placeholder")
        if dtype is not None:
            node.attr["T"].CopyFrom(attr_to_proto("type", dtype))
        if is_handle and (root := _root(tensor)) is not tensor:
            node.attr[ref_variables.ROOT].s = f"{self._name}/{root.op.name}:{root.value_index}".encode()
            self._tensors[slot_of(node.attr[ref_variables.ROOT].s.decode())] = root
        known = None if is_handle else constant_value(tensor)
        if known is not None and known.size == 1:
            node.attr["value"].CopyFrom(attr_to_proto("tensor", known))
        self._stand_ins.append(node)
        self._tensors[name, 0] = tensor
        self._given[name, 0] = is_handle
        return name

    # ------------------------------------------------------------------ what comes of it
    def _create(self, node: NodeDef) -> None:
        op_def = op_def_of(node.op)
        attrs = {
            key: attr_from_proto(proto, op_def.attrs[key].kind if key in op_def.attrs else None)
            for key, proto in node.attr.items()
            if key in op_def.attrs or key.startswith("_")
        }
        complete_attrs(op_def, attrs)
        slots = [slot_of(text) for text in data_inputs(node)]
        inputs = [self._graph.capture(self._tensors[slot]) for slot in slots]
        waits = [self._made[text[1:]] for text in control_inputs(node)]
        name = node.name if node.name == self._name else self._free(node.name)
        with self._graph.control_dependencies(waits):
            operation = self._graph.create_op(op_def, inputs, attrs, name=f"{name}/")
        self._made[node.name] = operation
        self._tensors.update(((node.name, i), tensor) for i, tensor in enumerate(operation.outputs))

    def _free(self, name: str) -> str:
        candidate, count = name, 0
        while self._graph._operation_exists(candidate):
            count += 1
            candidate = f"{name}_{count}"
        return candidate

    def _as_stated(self, arg: ArgDef, tensor: Tensor) -> Tensor:
        """An output; a handle where a reference to a variable is stated becomes one."""
        if arg.name not in self._older.references or tensor.dtype is not resource:
            return tensor
        attrs = {"dtype": self._dtype, REFERENCE: True}
        name = self._free(f"{self._name}/{arg.name}")
        return self._graph.create_op(op_def_of("ReadVariableOp"), [tensor], attrs, name=f"{name}/").outputs[0]


def _dtype_behind(value: object, handle: Tensor) -> DType | None:
    """The dtype of the variable that a value is a reference to; None where it does not tell, or is no variable."""
    dtype = getattr(value, "dtype", None)
    if isinstance(dtype, DType) and dtype is not resource:
        return dtype.base_dtype
    stated = handle.op.attrs.get("dtype") if handle.op.type == "VarHandleOp" else None
    return stated if isinstance(stated, DType) else None


def _without(definition: OpFunction, inputs: tuple[ArgDef, ...]) -> OpFunction:
    """The definition with only some of its inputs."""
    return OpFunction(definition.name, inputs, definition.outputs, definition.attrs)


def _count(arg: ArgDef, attrs: Mapping[str, Any]) -> int:
    if arg.number_attr is not None:
        return int(attrs[arg.number_attr])
    return len(attrs[arg.type_list_attr]) if arg.type_list_attr is not None else 1
