"""Reference variables to resources, on the nodes of a GraphDef (see `docs/decisions/0003-ref-variables.md`).

Graphs from before resource variables hold a variable's buffer in a tensor of a `ref` type, which some operations change
in place. Here a variable is a resource (design D5). The translation keeps every name that a program may look up:

    w = VariableV2               w/handle = VarHandleOp(shared_name=w); w = ReadVariableOp(w/handle)
    w/read = Identity(w)         w/read = ReadVariableOp(w/handle)
    y = MatMul(x, w)             y/w/read = ReadVariableOp(w/handle); y = MatMul(x, y/w/read)
    a = Assign(w, v)             a/AssignVariableOp = AssignVariableOp(w/handle, v)
                                 a = ReadVariableOp(w/handle, ^a/AssignVariableOp)

Each consumer reads for itself, under its own control inputs, because that is when a reference is looked at.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from anabranch.core.colocation import colocation_group
from anabranch.core.dtypes import as_dtype, bool as bool_, int32, resource
from anabranch.core.registry import find_op_def
from anabranch.graph.conversion import REFERENCE
from anabranch.graph.free_names import take_name
from anabranch.graph.node_plans import NodeError
from anabranch.proto.attr_values import attr_from_proto, attr_to_proto
from anabranch.proto.graph_pb2 import DT_FLOAT, DT_INVALID, DT_RESOURCE, AttrValue, NodeDef
from anabranch.proto.node_inputs import Slot, control_inputs, data_inputs, slot_of

#: an attribute of a node that stands for a given handle: the name of the node that stands for the variable's own
ROOT: Final = "root"
_VARIABLES: Final = frozenset({"Variable", "VariableV2", "TemporaryVariable"})

#: Types that hand their reference on, and what does the same to a handle.
_PASSING: Final[Mapping[str, str]] = {
    "RefIdentity": "Identity",
    "DebugGradientRefIdentity": "Identity",
    "RefSwitch": "Switch",
    "RefMerge": "Merge",
    "RefEnter": "Enter",
    "RefExit": "Exit",
    "RefNextIteration": "NextIteration",
}


@dataclass(frozen=True, slots=True)
class _Update:
    """What a type that takes references becomes.

    Attributes:
        op: the type that takes handles in their places.
        renamed: attributes that have another name there.
        dropped: attributes that it does not have.
        returns_ref: whether the output is the reference that went in.
    """

    op: str
    renamed: Mapping[str, str]
    dropped: frozenset[str] = frozenset({"use_locking"})
    returns_ref: bool = True


def _updates() -> Iterator[tuple[str, _Update]]:
    dtype = {"T": "dtype"}
    yield "Assign", _Update("AssignVariableOp", dtype, frozenset({"use_locking", "validate_shape"}))
    yield "AssignAdd", _Update("AssignAddVariableOp", dtype)
    yield "AssignSub", _Update("AssignSubVariableOp", dtype)
    yield "StridedSliceAssign", _Update("ResourceStridedSliceAssign", {})
    for kind in ("Update", "Add", "Sub", "Mul", "Div", "Min", "Max"):
        yield f"Scatter{kind}", _Update(f"ResourceScatter{kind}", dtype)
    for kind in ("Update", "Add", "Sub", "Min", "Max"):
        yield f"ScatterNd{kind}", _Update(f"ResourceScatterNd{kind}", {}, frozenset())
    dense: tuple[str, ...] = (
        "GradientDescent",
        "ProximalGradientDescent",
        "Adadelta",
        "Adagrad",
        "AdagradV2",
        "ProximalAdagrad",
    )
    dense += ("AdagradDA", "Ftrl", "FtrlV2", "Momentum", "Adam", "AdaMax", "RMSProp", "CenteredRMSProp", "AddSign")
    for rule in (*dense, "PowerSign"):
        yield f"Apply{rule}", _Update(f"ResourceApply{rule}", {}, frozenset())
    for rule in dense:
        if rule not in {"GradientDescent", "Adam", "AdaMax", "AddSign"}:
            yield f"SparseApply{rule}", _Update(f"ResourceSparseApply{rule}", {}, frozenset())
    yield "CountUpTo", _Update("ResourceCountUpTo", {}, frozenset(), returns_ref=False)
    yield "IsVariableInitialized", _Update("VarIsInitializedOp", {}, frozenset({"dtype"}), returns_ref=False)


UPDATES: Final[Mapping[str, _Update]] = dict(_updates())
_TYPES: Final = frozenset({*_VARIABLES, *_PASSING, *UPDATES, "DestroyTemporaryVariable", "RefSelect", "SdcaShrinkL1"})


def translate(nodes: Sequence[NodeDef], names: Mapping[str, str], given: Mapping[Slot, bool]) -> list[NodeDef]:
    """The nodes without references; nodes that have nothing to do with references are the same objects.

    Args:
        nodes: nodes of a GraphDef.
        names: those that they get in the graph that they are imported into; the variables' shared names.
        given: tensors that the caller supplies in place of outputs of `nodes` -> whether they are handles.

    Raises:
        ValueError: a reference is needed where there is none; the message names the node.
    """
    if not any(node.op in _TYPES for node in nodes):
        return list(nodes)
    return _Translation(nodes, names, given).run()


@dataclass(frozen=True, slots=True)
class _Reference:
    """A tensor of a ref type.

    Attributes:
        handle: the input text of the handle that stands for it.
        dtype: of the variable.
        after: the node after which the reference exists, if there is one to wait for.
        value: the input text of a tensor that holds the value at that point, which is enough for a consumer that waits
            for nothing else; None where each consumer has to read.
    """

    handle: str
    dtype: AttrValue
    after: str | None = None
    value: str | None = None


class _Translation:
    def __init__(self, nodes: Sequence[NodeDef], names: Mapping[str, str], given: Mapping[Slot, bool]) -> None:
        self._nodes = nodes
        self._by_name = {node.name: node for node in nodes}
        self._shared_names = names
        self._given = given
        self._names = set(self._by_name)
        self._handles = {node.name: self._fresh(f"{node.name}/handle") for node in nodes if node.op in _VARIABLES}
        self._references: dict[Slot, _Reference | None] = {}
        self._reshaped = self._variables_of_changing_shape()
        self._after_updates = self._names_after_updates()

    def run(self) -> list[NodeDef]:
        return [new for node in self._nodes for new in self._translated(node)]

    def _translated(self, node: NodeDef) -> Iterator[NodeDef]:
        if node.op in _VARIABLES:
            return self._variable(node)
        if node.op in UPDATES:
            return self._update(node, UPDATES[node.op])
        if node.op == "RefMerge" and not self._closes_loop(node):
            return self._merge(node)
        if node.op in _PASSING:
            return self._passing(node)
        if node.op == "DestroyTemporaryVariable":
            return self._destroy(node)
        if node.op == "RefSelect":
            return self._select(node)
        if node.op == "SdcaShrinkL1":
            return self._shrink(node)
        return self._consumer(node)

    def _fresh(self, name: str) -> str:
        return take_name(name, self._names)

    # ------------------------------------------------------------------ references
    def _reference(self, text: str) -> _Reference | None:
        """The reference that an input is, or None for an ordinary tensor."""
        slot = slot_of(text)
        if slot not in self._references:
            self._references[slot] = self._find_reference(slot)
        return self._references[slot]

    def _find_reference(self, slot: Slot) -> _Reference | None:
        node = self._by_name.get(slot[0])
        followed: list[str] = []
        while node is not None:
            current = slot if not followed else (node.name, 0)
            if current in self._given:
                return _Reference(_text(current), _dtype_of(node)) if self._given[current] else None
            if node.op in _VARIABLES:
                handle, dtype = self._handles[node.name], _dtype_of(node)
                break
            if node.op == "RefSelect" and self._constant_index(node) is None:
                return None
            if node.op == "RefMerge" and not self._closes_loop(node):
                root = self._common_root(node)
                if root is None or current[1] == 1:
                    return None
                followed.append(node.name)
                handle, dtype = root, _dtype_of(node)
                break
            passes = node.op in _PASSING or node.op == "RefSelect"
            if passes and not (node.op == "RefMerge" and slot[1] == 1):
                handle, dtype = _text(current), _dtype_of(node)
                break
            if node.op not in UPDATES or not UPDATES[node.op].returns_ref or not node.input:
                return None
            if node.name in followed:
                raise NodeError(node, f"its reference comes from itself, through {followed}")
            followed.append(node.name)
            node = self._by_name.get(slot_of(node.input[0])[0])
        else:
            return None
        if not followed:
            return _Reference(handle, dtype)
        return _Reference(handle, dtype, after=slot[0], value=_text(slot))

    def _closes_loop(self, merge: NodeDef) -> bool:
        sources = (self._by_name.get(slot_of(text)[0]) for text in data_inputs(merge))
        return any(source is not None and source.op == "RefNextIteration" for source in sources)

    def _common_root(self, merge: NodeDef) -> str | None:
        """The handle of the one variable that all inputs of a RefMerge are references to; None where they are several.

        Which variable an update changes has to be known before a step runs.
        """
        roots = {self._root(slot_of(text)) for text in data_inputs(merge)}
        return roots.pop() if len(roots) == 1 else None

    def _root(self, slot: Slot) -> str | None:
        """The handle of the variable that a reference began as."""
        passed: set[str] = set()
        while (node := self._by_name.get(slot[0])) is not None and node.name not in passed:
            passed.add(node.name)
            if slot in self._given:
                return node.attr[ROOT].s.decode() or _text(slot)
            if node.op in _VARIABLES:
                return self._handles[node.name]
            returns = node.op in UPDATES and UPDATES[node.op].returns_ref
            if not node.input or not (node.op in _PASSING or returns):
                return None
            slot = slot_of(node.input[0])
        return None

    def _needed(self, node: NodeDef, text: str) -> _Reference:
        reference = self._reference(text)
        if reference is None:
            problem = f"its input {text!r} must be a variable; map it to a variable's handle, or not at all"
            source = self._by_name.get(slot_of(text)[0])
            if source is not None and source.op in {"RefSelect", "RefMerge"}:
                problem = f"its input {text!r} chooses a variable in the step, and can only be read; choose it before"
            raise NodeError(node, problem)
        return reference

    def _variables_of_changing_shape(self) -> set[str]:
        """Variables that are assigned to without a check of the shape: what their nodes say of it need not hold."""
        changing = set()
        for node in self._nodes:
            unchecked = "validate_shape" in node.attr and not node.attr["validate_shape"].b
            if node.op == "Assign" and unchecked and node.input:
                reference = self._reference(node.input[0])
                if reference is not None:
                    changing.add(reference.handle)
        return changing

    def _names_after_updates(self) -> set[str]:
        """The nodes that run after an update: what is read beside their results may be the new value."""
        takers: dict[str, list[str]] = {}
        for node in self._nodes:
            for text in node.input:
                takers.setdefault(slot_of(text.removeprefix("^"))[0], []).append(node.name)
        after = {node.name for node in self._nodes if node.op in UPDATES and UPDATES[node.op].returns_ref}
        waiting = list(after)
        while waiting:
            new = [name for name in takers.get(waiting.pop(), ()) if name not in after]
            after.update(new)
            waiting += new
        return after

    # ------------------------------------------------------------------ nodes
    def _variable(self, node: NodeDef) -> Iterator[NodeDef]:
        handle = _node(self._handles[node.name], "VarHandleOp", node, data_inputs(node), control_inputs(node))
        shared = node.attr["var_name" if node.op == "TemporaryVariable" else "shared_name"].s
        handle.attr["shared_name"].s = shared or self._shared_names[node.name].encode()
        handle.attr["container"].s = node.attr["container"].s
        handle.attr["dtype"].CopyFrom(_dtype_of(node))
        shape = node.attr["shape"].shape
        scalar_meant_unknown = node.op == "Variable" and not shape.dim  # its shape [] has always stood for any shape
        if handle.name in self._reshaped or scalar_meant_unknown:
            handle.attr["shape"].shape.unknown_rank = True
        else:
            handle.attr["shape"].shape.CopyFrom(shape)
        if not handle.attr["_class"].list.s:
            handle.attr["_class"].list.s.append(colocation_group(node.name))
        yield handle
        read = _read(node.name, node, handle.name, _dtype_of(node))
        read.attr[REFERENCE].b = True
        yield read

    def _update(self, node: NodeDef, update: _Update) -> Iterator[NodeDef]:
        if not node.input or node.input[0].startswith("^"):
            raise NodeError(node, "it has no inputs; its first must be a variable")
        inputs: list[str] = []
        waits = control_inputs(node)
        for index, text in enumerate(data_inputs(node)):
            if _takes_handle(update.op, index):
                reference = self._needed(node, text)
                inputs.append(reference.handle)
                waits += [] if reference.after is None else [f"^{reference.after}"]
            else:
                reads, value = self._value(node, text)
                yield from reads
                inputs.append(value)
        name = self._fresh(f"{node.name}/{update.op}") if update.returns_ref else node.name
        changed = _node(name, update.op, node, inputs, list(dict.fromkeys(waits)), node.attr)
        for old, new in update.renamed.items():
            if old in changed.attr:
                changed.attr[new].CopyFrom(changed.attr[old])
                del changed.attr[old]
        for dropped in update.dropped:
            if dropped in changed.attr:
                del changed.attr[dropped]
        yield changed
        if update.returns_ref:
            first = self._needed(node, node.input[0])
            read = _read(node.name, node, first.handle, first.dtype, [f"^{name}"])
            read.attr[REFERENCE].b = True
            yield read

    def _passing(self, node: NodeDef) -> Iterator[NodeDef]:
        inputs, waits = [], control_inputs(node)
        for index, text in enumerate(data_inputs(node)):
            is_predicate = node.op == "RefSwitch" and index == 1
            if is_predicate:
                reads, value = self._value(node, text)
                yield from reads
                inputs.append(value)
            else:
                reference = self._needed(node, text)
                inputs.append(reference.handle)
                waits += [] if reference.after is None else [f"^{reference.after}"]
        passed = _node(node.name, _PASSING[node.op], node, inputs, waits, node.attr)
        passed.attr["T"].type = DT_RESOURCE
        yield passed

    def _merge(self, node: NodeDef) -> Iterator[NodeDef]:
        """The value behind the reference that is alive; updates go to the variable that all of them stand for."""
        values = []
        for text in data_inputs(node):
            self._needed(node, text)
            reads, value = self._value(node, text)
            yield from reads
            values.append(value)
        yield _node(node.name, "Merge", node, values, control_inputs(node), node.attr)

    def _destroy(self, node: NodeDef) -> Iterator[NodeDef]:
        """The last value of a temporary variable; the next step's first assignment replaces the variable."""
        data = data_inputs(node)
        if len(data) != 1:
            raise NodeError(node, f"it must have one input, a variable, but has {len(data)}")
        reference = self._needed(node, data[0])
        waits = control_inputs(node) + ([] if reference.after is None else [f"^{reference.after}"])
        yield _read(node.name, node, reference.handle, reference.dtype, waits)

    def _shrink(self, node: NodeDef) -> Iterator[NodeDef]:
        """Each variable nearer to zero by l1 / l2, and not beyond it."""

        def new(name: str, op: str, inputs: Sequence[str], controls: Sequence[str] = (), key: str = "T") -> NodeDef:
            made = _node(self._fresh(f"{node.name}/{name}"), op, node, inputs, controls)
            made.attr[key].type = DT_FLOAT
            return made

        def constant(name: str, value: float) -> NodeDef:
            made = new(name, "Const", [], key="dtype")
            made.attr["value"].CopyFrom(attr_to_proto("tensor", np.asarray(value, np.float32)))
            return made

        with np.errstate(divide="ignore", invalid="ignore"):
            way = np.float32(node.attr["l1"].f) / np.float32(node.attr["l2"].f)
        distance, zero = constant("distance", float(way)), constant("zero", 0.0)
        yield from (distance, zero)
        controls, assigned = control_inputs(node), []
        for text in data_inputs(node):
            reference = self._needed(node, text)
            waits = [*controls, *([] if reference.after is None else [f"^{reference.after}"])]
            read = _read(self._fresh(f"{node.name}/read"), node, reference.handle, reference.dtype, waits)
            sign, size = new("sign", "Sign", [read.name]), new("size", "Abs", [read.name])
            less = new("less", "Sub", [size.name, distance.name])
            kept = new("kept", "Maximum", [less.name, zero.name])
            shrunk = new("shrunk", "Mul", [sign.name, kept.name])
            assign = new("assign", "AssignVariableOp", [reference.handle, shrunk.name], key="dtype")
            yield from (read, sign, size, less, kept, shrunk, assign)
            assigned.append(f"^{assign.name}")
        yield _node(node.name, "NoOp", node, [], [*controls, *assigned])

    def _select(self, node: NodeDef) -> Iterator[NodeDef]:
        """One of several references: the handle where the index is known, else a read of the one that is chosen.

        Which variable an update changes has to be known before a step runs, so that only reads can choose in it.
        """
        index, *others = data_inputs(node)
        references = [self._needed(node, text) for text in others]
        waits = control_inputs(node) + [
            f"^{reference.after}" for reference in references if reference.after is not None
        ]
        waits = list(dict.fromkeys(waits))
        chosen = self._constant_index(node)
        if chosen is not None:
            if not 0 <= chosen < len(references):
                raise NodeError(node, f"its index is {chosen}, and it has {len(references)} inputs, numbered from 0")
            passed = _node(node.name, "Identity", node, [references[chosen].handle], waits)
            passed.attr["T"].type = DT_RESOURCE
            yield passed
            return
        reads, index = self._value(node, index)
        yield from reads
        yield from self._chosen_read(node, index, references, waits)

    def _chosen_read(
        self, node: NodeDef, index: str, references: Sequence[_Reference], waits: Sequence[str]
    ) -> Iterator[NodeDef]:
        """Reads of all variables of which only one is alive, and under the node's name the value that it gives."""

        def new(name: str, op: str, inputs: Sequence[str], **attrs: tuple[str, object]) -> NodeDef:
            protos = {key: attr_to_proto(kind, value) for key, (kind, value) in attrs.items()}
            return _node(self._fresh(f"{node.name}/{name}"), op, node, inputs, [], protos)

        def constant(name: str, value: Sequence[int] | int) -> NodeDef:
            return new(name, "Const", [], dtype=("type", int32), value=("tensor", np.asarray(value, np.int32)))

        number = ("type", int32)
        numbers, axis = constant("numbers", range(len(references))), constant("axis", 0)
        # an index outside is refused here: nothing would be alive behind the Merge
        inputs = [numbers.name, index, axis.name]
        checked = new("checked", "GatherV2", inputs, Tparams=number, Tindices=number, Taxis=number)
        wanted = new("wanted", "Equal", [numbers.name, checked.name], T=number)
        each = new("each", "Unpack", [wanted.name], T=("type", bool_), num=("int", len(references)), axis=("int", 0))
        yield from (numbers, axis, checked, wanted, each)
        values = []
        for i, reference in enumerate(references):
            switch = new("switch", "Switch", [checked.name, _text((each.name, i))], T=number)
            alive = new("alive", "Identity", [f"{switch.name}:1"], T=number)
            read = _read(self._fresh(f"{node.name}/read"), node, reference.handle, reference.dtype, [f"^{alive.name}"])
            read.input.extend(waits)
            yield from (switch, alive, read)
            values.append(read.name)
        yield _node(node.name, "Merge", node, values, [], node.attr)

    def _constant_index(self, node: NodeDef) -> int | None:
        """The index of a RefSelect that is a constant."""
        slot = slot_of(node.input[0])
        source = self._by_name.get(slot[0])
        if source is None or source.op not in {"Const", "Placeholder"} or "value" not in source.attr:
            return None
        value = attr_from_proto(source.attr["value"], "tensor")
        return int(value) if value.size == 1 else None

    def _consumer(self, node: NodeDef) -> Iterator[NodeDef]:
        """An operation that takes values: a reference among its inputs is read for it."""
        references = [self._reference(text) for text in data_inputs(node)]
        waited = control_inputs(node)
        if not any(references) and not any(text[1:] in self._handles for text in waited):
            yield node
            return
        if node.op == "Identity" and (read := references[0]) is not None and (read.value is None or waited):
            after = [] if read.after is None else [f"^{read.after}"]
            yield _read(node.name, node, read.handle, read.dtype, list(dict.fromkeys([*waited, *after])))
            return
        inputs = []
        for text in data_inputs(node):
            reads, value = self._value(node, text)
            yield from reads
            inputs.append(value)
        # to wait for a variable's node is not to read it: it may not be initialized yet
        controls = [f"^{self._handles.get(text[1:], text[1:])}" for text in waited]
        yield _node(node.name, node.op, node, inputs, controls, node.attr)

    def _value(self, node: NodeDef, text: str) -> tuple[list[NodeDef], str]:
        """The input to take in place of `text` where a value is wanted, and the nodes that this needs.

        A reference is looked at when its taker runs: after all that this one waits for, and after updates that its
        other inputs come from.
        """
        reference = self._reference(text)
        if reference is None:
            return [], text
        sources = (slot_of(other)[0] for other in data_inputs(node) if other != text)
        waits = [*control_inputs(node), *(f"^{name}" for name in sources if name in self._after_updates)]
        if reference.value is not None and not waits:
            return [], reference.value
        if reference.after is not None:
            waits.append(f"^{reference.after}")
        name = self._fresh(f"{node.name}/{slot_of(text)[0].rsplit('/', 1)[-1]}/read")
        waits = list(dict.fromkeys(waits))
        return [_read(name, node, reference.handle, reference.dtype, waits, annotated=False)], name


def _read(
    name: str,
    node: NodeDef,
    handle: str,
    dtype: AttrValue,
    controls: Sequence[str] = (),
    annotated: bool = True,
) -> NodeDef:
    """A read of a variable that stands at the place of `node`."""
    annotations = {k: v for k, v in node.attr.items() if k.startswith("_")} if annotated else {}
    read = _node(name, "ReadVariableOp", node, [handle], controls, annotations)
    read.attr["dtype"].CopyFrom(dtype)
    return read


def _node(
    name: str,
    op: str,
    origin: NodeDef,
    inputs: Sequence[str],
    controls: Sequence[str],
    attrs: Mapping[str, AttrValue] | None = None,
) -> NodeDef:
    node = NodeDef(name=name, op=op, device=origin.device, input=[*inputs, *controls])
    for key, value in (attrs or {k: v for k, v in origin.attr.items() if k == "_class"}).items():
        if key != "_output_shapes":
            node.attr[key].CopyFrom(value)
    return node


def _dtype_of(node: NodeDef) -> AttrValue:
    number = node.attr["dtype" if node.op in _VARIABLES else "T"].type
    return AttrValue(type=as_dtype(number).base_dtype.as_datatype_enum if number else DT_INVALID)  # type: ignore[arg-type]


def _takes_handle(op: str, index: int) -> bool:
    op_def = find_op_def(op)
    if op_def is None:
        return index == 0  # the import will refuse the type itself
    return index < len(op_def.inputs) and op_def.inputs[index].dtype is resource


def _text(slot: Slot) -> str:
    return slot[0] if slot[1] == 0 else f"{slot[0]}:{slot[1]}"
