"""Gradients of loops in TensorFlow's vocabulary: for export, and back again  (design D2; docs/decisions/0014-loops.md).

A few operation types are only here: `_RecordingWhile`, what stands beside loops and conditionals for their gradients
(docs/decisions/0034), bounds, sums of lists. A GraphDef has what they do in operations that TensorFlow has. A loop that
something stands beside becomes one with further loop variables: the iteration count, and for each record a list that
every iteration pushes an item to; a conditional gets further results. Outputs keep their numbers, and what stood beside
becomes an `IdentityN` of the further ones.

A node that was rewritten holds the one that it was in the attribute `_anabranch`; TensorFlow lets such attributes pass.
Reading restores it, so that a graph from here is compiled as before, unless somebody has changed the graph meanwhile:
then rewriting what the attributes hold does not give what stands there, and the graph is read as it stands.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeVar

import numpy as np
from google.protobuf.internal.containers import RepeatedCompositeFieldContainer
from google.protobuf.message import DecodeError, Message

from anabranch.core import dtypes
from anabranch.core.attrs import AttributeValue
from anabranch.graph.inner_values import RECORDS, VALUES
from anabranch.proto.attr_values import attr_to_proto
from anabranch.proto.graph_pb2 import AttrValue, DataType, FunctionDef, GraphDef, NodeDef, OpDef, TensorShapeProto
from anabranch.proto.node_inputs import all_nodes, control_inputs, data_inputs
from anabranch.proto.tensors import dtype_to_proto, make_tensor_proto

M = TypeVar("M", bound=Message)
NodeList = RepeatedCompositeFieldContainer[NodeDef]

#: the types of operations that stand beside others
_BESIDE: Final = frozenset({RECORDS, VALUES})
#: TensorFlow runs loops and conditionals without this annotation by calls within calls: some thousand iterations end
#: its process. Those that it builds itself have it.
LOWERING: Final = "_lower_using_switch_merge"
#: of a node: the node that was rewritten to it; of a function: that rewriting made it
_ORIGIN = "_anabranch"


@dataclass
class _Scope:
    """The graph or function that nodes stand in, and the functions of the library by name."""

    library: dict[str, FunctionDef]
    in_function: bool
    #: functions to make, by name, each from the one that it extends
    derived: dict[str, Callable[[], FunctionDef]] = field(default_factory=dict)
    #: of each function that was rewritten, the new names of outputs
    renamed: dict[str, dict[str, str]] = field(default_factory=dict)
    #: loop or conditional, by name -> what stands beside it
    beside: dict[str, list[NodeDef]] = field(default_factory=dict)
    #: what stands beside a loop or a conditional, by name -> that
    owners: dict[str, NodeDef] = field(default_factory=dict)

    def find_beside(self, nodes: Iterable[NodeDef]) -> None:
        """Notes which nodes stand beside which."""
        by_name = {node.name: node for node in nodes}
        for node in by_name.values():
            if node.op in _BESIDE:
                controls = (by_name.get(text[1:]) for text in node.input if text.startswith("^"))
                owner = next((c for c in controls if c is not None and _stands_beside(node, c)), None)
                if owner is not None:
                    self.beside.setdefault(owner.name, []).append(node)
                    self.owners[node.name] = owner

    def element(self, node: str, argument: str, number: int) -> str:
        """An output of a node with one list of outputs, as an input is written."""
        return f"{node}:{argument}:{number}" if self.in_function else self.output(node, argument, number)

    def output(self, node: str, argument: str, number: int = 0) -> str:
        """An output as an input is written; each argument of the types used here is one tensor."""
        if self.in_function:
            return f"{node}:{argument}:0"
        return node if number == 0 else f"{node}:{number}"


@dataclass
class _Rewriting:
    """The nodes that replace a node (helpers before it, and itself), and its outputs' new names in functions."""

    helpers: list[NodeDef]
    node: NodeDef
    outputs: dict[str, str]


# ---------------------------------------------------------------------- for export
def in_tensorflows_vocabulary(message: GraphDef) -> None:
    """Rewrites, in place, the nodes of types that TensorFlow does not have."""
    library = {function.signature.name: function for function in message.library.function}
    derived: dict[str, Callable[[], FunctionDef]] = {}
    renamed: dict[str, dict[str, str]] = {}
    _rewrite(message.node, _Scope(library, False, derived, renamed))
    for name, function in library.items():
        renamed[name] = _rewrite(function.node_def, _Scope(library, True, derived, renamed))
        _rename_results(function, renamed[name])
    message.library.function.extend(make() for name, make in derived.items() if name not in library)


def _rewrite(nodes: NodeList, scope: _Scope) -> dict[str, str]:
    """Rewrites the nodes of a graph or of a function; gives the new names of outputs."""
    written: list[NodeDef] = []
    outputs: dict[str, str] = {}
    scope.find_beside(nodes)
    for node in nodes:
        rewriter = _rewriter_of(node, scope)
        if rewriter is not None:
            written_node = rewriter(node, scope)
            written_node.node.attr[_ORIGIN].s = node.SerializeToString(deterministic=True)
            written += [*written_node.helpers, written_node.node]
            outputs.update(written_node.outputs)
        else:
            written.append(node)
    if len(written) == len(nodes) and not any(_ORIGIN in node.attr for node in written):
        return {}
    _rename_inputs(written, outputs)
    copies = [_copy(node) for node in written]
    del nodes[:]
    nodes.extend(copies)
    return outputs


def _rename_inputs(nodes: Iterable[NodeDef], names: dict[str, str]) -> None:
    for node in nodes:
        for i, text in enumerate(node.input):
            if text in names:
                node.input[i] = names[text]


def _rename_results(function: FunctionDef, names: dict[str, str]) -> None:
    for result, text in list(function.ret.items()):
        if text in names:
            function.ret[result] = names[text]


def _copy(message: M) -> M:
    copied = type(message)()
    copied.CopyFrom(message)
    return copied


# ---------------------------------------------------------------------- nodes
def _node(name: str, op: str, inputs: Iterable[str], device: str = "", **attrs: AttributeValue) -> NodeDef:
    """A node; attributes are dtypes, whole numbers, or messages."""
    node = NodeDef(name=name, op=op, input=inputs, device=device)
    for key, value in attrs.items():
        if isinstance(value, AttrValue):
            node.attr[key].CopyFrom(value)
        else:
            node.attr[key].CopyFrom(attr_to_proto("int" if isinstance(value, int) else "type", value))
    return node


def _constant(name: str, value: int, device: str) -> NodeDef:
    tensor = AttrValue(tensor=make_tensor_proto(np.array(value, np.int32), dtypes.int32))
    return _node(name, "Const", (), device, dtype=dtypes.int32, value=tensor)


def _replacement(node: NodeDef, op: str, inputs: Iterable[str], **attrs: AttributeValue) -> NodeDef:
    """The node that takes the place of another: under its name, with its control inputs, device and annotations."""
    controls = control_inputs(node)
    made = _node(node.name, op, [*inputs, *controls], node.device, **attrs)
    for key, value in node.attr.items():
        if key.startswith("_"):
            made.attr[key].CopyFrom(value)
    return made


# ---------------------------------------------------------------------- what stands beside loops and conditionals
def _stands_beside(node: NodeDef, owner: NodeDef) -> bool:
    return _functions(node) == _functions(owner) and data_inputs(node)[-len(data_inputs(owner)) :] == data_inputs(owner)


def _functions(node: NodeDef) -> list[str]:
    """The functions of a loop or a conditional, or of what stands beside one."""
    for keys in (("cond", "body"), ("then_branch", "else_branch")):
        if keys[0] in node.attr:
            return [node.attr[key].func.name for key in keys]
    return [function.name for function in node.attr["branches"].list.func]


@dataclass(frozen=True, slots=True)
class _Inner:
    """A tensor of a function, which something beside its caller gives; of the branch `which` of a conditional."""

    which: int
    name: str
    kind: DataType.ValueType


def _inner_of(node: NodeDef) -> list[_Inner]:
    """The tensors that a node beside a loop or a conditional gives."""
    names = [text.decode() for text in node.attr["tensors"].list.s]
    types = list(node.attr["types" if node.op == RECORDS else "Tout"].list.type)
    numbers = list(node.attr["which"].list.i) if "which" in node.attr else [0] * len(names)
    return [_Inner(*parts) for parts in zip(numbers, names, types, strict=True)]


def _inner_of_all(nodes: Iterable[NodeDef]) -> list[_Inner]:
    return list(dict.fromkeys(inner for node in nodes for inner in _inner_of(node)))


def _text_of(inner: _Inner, function: FunctionDef, renamed: dict[str, str]) -> str:
    """A tensor as the results of its function are written."""
    if inner.name.startswith(":"):
        return function.signature.input_arg[int(inner.name[1:])].name
    return renamed.get(inner.name, inner.name)


def _digest(inner: Iterable[_Inner]) -> str:
    """A hash that distinguishes what different operations need of one function."""
    return hashlib.sha256("|".join(f"{i.which} {i.name}" for i in inner).encode()).hexdigest()[:8]


def _part_of_owner(node: NodeDef, scope: _Scope) -> _Rewriting:
    """A node beside a loop or a conditional as an `IdentityN` of the owner's further outputs."""
    owner = scope.owners[node.name]
    further = _inner_of_all(scope.beside[owner.name])
    given = _inner_of(node)
    start = _further_outputs(node, owner)
    numbers = [start + further.index(inner) for inner in given]
    kinds = [inner.kind for inner in given]
    outputs = {}
    if node.op == RECORDS:
        numbers.insert(0, len(owner.attr["T"].list.type))
        kinds = [dtype_to_proto(dtypes.int32), *[dtype_to_proto(dtypes.variant)] * len(given)]
        outputs = {f"{node.name}:record:{k}": f"{node.name}:output:{k + 1}" for k in range(len(given))}
        outputs[f"{node.name}:count:0"] = f"{node.name}:output:0"
    types = AttrValue(list=AttrValue.ListValue(type=kinds))
    inputs = [scope.element(owner.name, "output", number) for number in numbers]
    return _Rewriting([], _replacement(node, "IdentityN", inputs, T=types), outputs)


def _further_outputs(node: NodeDef, owner: NodeDef) -> int:
    """The number of the first output of a loop or a conditional that only the nodes beside it take."""
    if node.op != RECORDS:
        return len(owner.attr["Tout"].list.type)
    return len(owner.attr["T"].list.type) + 1 + len(owner.attr["recorded"].list.i)


def _conditional(node: NodeDef, scope: _Scope) -> _Rewriting:
    """A conditional that gives the tensors of the nodes beside it as further results."""
    beside = scope.beside[node.name]
    further = _inner_of_all(beside)
    shapes = {i: s for n in beside for i, s in zip(_inner_of(n), n.attr["output_shapes"].list.shape, strict=True)}
    made: NodeDef = _copy(node)
    made.attr.pop("_output_shapes", None)
    made.attr["Tout"].list.type.extend(inner.kind for inner in further)
    if made.attr["output_shapes"].list.shape:
        made.attr["output_shapes"].list.shape.extend(shapes[inner] for inner in further)
    for number, old in enumerate(_functions(node)):
        new = f"{old}_values_{number}_{_digest(further)}"
        if "branches" in made.attr:
            made.attr["branches"].list.func[number].name = new
        else:
            made.attr[("then_branch", "else_branch")[number]].func.name = new

        def branch(number: int = number, old: str = old, new: str = new) -> FunctionDef:
            results = [(inner, shapes[inner], inner.which == number) for inner in further]
            return _named(_branch_with(scope.library[old], results, scope.renamed[old]), new)

        scope.derived[new] = branch
    return _Rewriting([], made, {})


def _branch_with(
    branch: FunctionDef, further: list[tuple[_Inner, TensorShapeProto, bool]], renamed: dict[str, str]
) -> FunctionDef:
    """A branch with further results; what it does not compute is a `FakeParam`."""
    made: FunctionDef = _copy(branch)
    taken = {node.name for node in made.node_def} | {arg.name for arg in made.signature.input_arg}
    names = {arg.name for arg in made.signature.output_arg}
    for inner, shape, computed in further:
        if computed:
            text = _text_of(inner, branch, renamed)
        else:
            fake = _free("further_value", taken)
            dtype = dtypes.as_dtype(inner.kind)
            made.node_def.append(_node(fake, "FakeParam", (), dtype=dtype, shape=AttrValue(shape=shape)))
            text = f"{fake}:output:0"
        result = _free("further", names)
        made.signature.output_arg.append(OpDef.ArgDef(name=result, type=inner.kind))
        made.ret[result] = text
    return made


# ---------------------------------------------------------------------- loops
def _recording_while(node: NodeDef, scope: _Scope) -> _Rewriting:
    """A loop as a `While(variables, count, records)`; a `_RecordingWhile` hands its bound on, too."""
    name, device = node.name, node.device
    bounded = node.op == "_RecordingWhile"
    bound, variables = data_inputs(node)[: int(bounded)], data_inputs(node)[int(bounded) :]
    size = len(variables)
    own = _record_dtypes(node, scope) if bounded else []
    further = _inner_of_all(scope.beside.get(name, ()))
    kinds = [*own, *(dtypes.as_dtype(inner.kind) for inner in further)]
    helpers = [_constant(f"{name}/_count", 0, device), _constant(f"{name}/_any", -1, device)]
    anything = scope.output(f"{name}/_any", "output")
    records = []
    for k, kind in enumerate(kinds):
        lists = _node(
            f"{name}/_record_{k}",
            "EmptyTensorList",
            [anything, anything],
            device,
            element_dtype=kind,
            shape_type=dtypes.int32,
        )
        helpers.append(lists)
        records.append(scope.output(lists.name, "handle"))
    inputs = [*variables, scope.output(f"{name}/_count", "output"), *records, *bound]
    more = [dtypes.int32, *[dtypes.variant] * len(kinds), *[dtypes.int32] * int(bounded)]
    made = _while(node, "While" if bounded else node.op, inputs, more, scope)
    positions = list(node.attr["recorded"].list.i)
    old = node.attr["body"].func.name

    def body_of(body: FunctionDef) -> FunctionDef:
        recorded = [body.signature.output_arg[position] for position in positions]
        results: list[tuple[DataType.ValueType, str]] = [(arg.type, body.ret[arg.name]) for arg in recorded]
        results += [(inner.kind, _text_of(inner, body, scope.renamed.get(old, {}))) for inner in further]
        return _recording_body(body, size, results, bounded)

    _derive(made, scope, f"_recording_{_digest(further)}" if further else "_recording", body_of)
    outputs = {}
    if bounded:
        outputs = {f"{name}:record:{k}": f"{name}:output:{size + 1 + k}" for k in range(len(own))}
        outputs[f"{name}:count:0"] = f"{name}:output:{size}"
    return _Rewriting(helpers, made, outputs)


def _record_dtypes(node: NodeDef, scope: _Scope) -> list[dtypes.DType]:
    results = scope.library[node.attr["body"].func.name].signature.output_arg
    return [dtypes.as_dtype(results[position].type) for position in node.attr["recorded"].list.i]


def _bound(node: NodeDef, scope: _Scope) -> _Rewriting:
    """How often a loop runs, counted by a loop of the same kind."""
    name, device = node.name, node.device
    inputs = data_inputs(node)
    start = _constant(f"{name}/_count", 0, device)
    loop = _while(node, "While", [*inputs, scope.output(start.name, "output")], [dtypes.int32], scope)
    loop.name = f"{name}/_loop"
    _derive(loop, scope, "_counting", lambda body: _recording_body(body, len(inputs), [], bounded=False))
    count = f"{loop.name}:output:{len(inputs)}" if scope.in_function else f"{loop.name}:{len(inputs)}"
    made = _replacement(node, "Identity", [count], T=dtypes.int32)
    return _Rewriting([start, loop], made, {f"{name}:bound:0": f"{name}:output:0"})


def _while(node: NodeDef, op: str, inputs: list[str], more: list[dtypes.DType], scope: _Scope) -> NodeDef:
    """A loop in the place of another, with further scalar variables after the old ones."""
    made = _replacement(node, op, inputs)
    for key in ("T", "cond", "body", "output_shapes", "parallel_iterations"):
        if key in node.attr:
            made.attr[key].CopyFrom(node.attr[key])
    made.attr["T"].list.type.extend(dtype.as_datatype_enum for dtype in more)  # type: ignore[misc]
    if "output_shapes" in made.attr and made.attr["output_shapes"].list.shape:
        for _ in more:
            made.attr["output_shapes"].list.shape.add()
    if LOWERING not in made.attr:
        made.attr[LOWERING].b = True
    # these are annotations of another number of outputs
    made.attr.pop("_output_shapes", None)
    return made


def _derive(loop: NodeDef, scope: _Scope, suffix: str, body_of: Callable[[FunctionDef], FunctionDef]) -> None:
    """Gives a loop a condition and a body with as many variables as it has now; they are made from its old ones."""
    library, types = scope.library, loop.attr["T"].list.type
    for key, extend in (("cond", lambda cond: _with_parameters(cond, types)), ("body", body_of)):
        old = loop.attr[key].func.name
        new = f"{old}{suffix}_{len(types)}"
        loop.attr[key].func.name = new
        scope.derived[new] = lambda extend=extend, old=old, new=new: _named(extend(library[old]), new)  # type: ignore[misc]


def _named(function: FunctionDef, name: str) -> FunctionDef:
    function.signature.name = name
    function.attr[_ORIGIN].b = True
    return function


def _with_parameters(function: FunctionDef, types: Sequence[int]) -> FunctionDef:
    """A copy of a function that takes further scalars, and does nothing with them."""
    made: FunctionDef = _copy(function)
    taken = {*(arg.name for arg in made.signature.input_arg), *(node.name for node in made.node_def)}
    for number, dtype in enumerate(types[len(made.signature.input_arg) :]):
        name = _free(f"further_{number}", taken)
        made.signature.input_arg.append(OpDef.ArgDef(name=name, type=DataType.ValueType(dtype)))
        shapes = made.arg_attr[len(made.signature.input_arg) - 1].attr["_output_shapes"].list.shape
        shapes.add()
    return made


def _free(name: str, taken: set[str]) -> str:
    while name in taken:
        name += "_"
    taken.add(name)
    return name


def _recording_body(
    body: FunctionDef, size: int, records: list[tuple[DataType.ValueType, str]], bounded: bool
) -> FunctionDef:
    """A loop's body that counts, and pushes some tensors, of which the dtypes are given, to lists."""
    more = [dtypes.int32.as_datatype_enum, *[dtypes.variant.as_datatype_enum] * len(records)]
    if bounded:
        more.append(dtypes.int32.as_datatype_enum)
    old = [arg.type for arg in body.signature.input_arg]
    made = _with_parameters(body, [*old, *more])
    count, *lists = [arg.name for arg in made.signature.input_arg[size:]]
    taken = {node.name for node in made.node_def} | {arg.name for arg in made.signature.input_arg}
    one, number = _free("further_one", taken), _free("further_number", taken)
    made.node_def.append(_constant(one, 1, ""))
    made.node_def.append(_node(number, "AddV2", [count, f"{one}:output:0"], T=dtypes.int32))
    new = [f"{number}:z:0"]
    for (kind, item), record in zip(records, lists, strict=False):
        push = _free("further_push", taken)
        dtype = dtypes.as_dtype(kind)
        made.node_def.append(_node(push, "TensorListPushBack", [record, item], element_dtype=dtype))
        new.append(f"{push}:output_handle:0")
    if bounded:
        new.append(lists[-1])
    _set_results(made, size, new)
    return made


def _set_results(function: FunctionDef, size: int, more: list[str]) -> None:
    """Keeps the first results of a function, and gives it further ones: what its last parameters become."""
    for arg in function.signature.output_arg[size:]:
        del function.ret[arg.name]
    del function.signature.output_arg[size:]
    taken = {arg.name for arg in function.signature.output_arg}
    parameters = function.signature.input_arg[size:]
    for parameter, text in zip(parameters, more, strict=True):
        name = _free(parameter.name, taken)
        function.signature.output_arg.append(OpDef.ArgDef(name=name, type=parameter.type))
        function.ret[name] = text


# ---------------------------------------------------------------------- sums of lists
def _zeros(node: NodeDef, scope: _Scope) -> _Rewriting:
    made = _replacement(node, "ZerosLike", data_inputs(node), T=dtypes.variant)
    return _Rewriting([], made, {f"{node.name}:zeros:0": f"{node.name}:y:0"})


def _sum(node: NodeDef, scope: _Scope) -> _Rewriting:
    return _Rewriting([], _replacement(node, "AddN", data_inputs(node), N=2, T=dtypes.variant), {})


def _added_items(node: NodeDef, scope: _Scope) -> _Rewriting:
    """Rows added to elements of a list: rows of one element are summed, and put into a list of their own first."""
    name, device, output = node.name, node.device, scope.output
    handle, indices, values = data_inputs(node)
    index_type = dtypes.as_dtype(node.attr["Tindices"].type)
    kind = dtypes.as_dtype(node.attr["element_dtype"].type)
    helpers: list[NodeDef] = []

    def add(label: str, op: str, inputs: list[str], **attrs: AttributeValue) -> str:
        helpers.append(_node(f"{name}/_{label}", op, inputs, device, **attrs))
        return f"{name}/_{label}"

    unique = add("unique", "Unique", [indices], T=index_type, out_idx=dtypes.int32)
    rows = output(unique, "y")
    count = add("count", "Size", [rows], T=index_type, out_type=dtypes.int32)
    types = {"T": kind, "Tindices": dtypes.int32, "Tnumsegments": dtypes.int32}
    sums = add("sums", "UnsortedSegmentSum", [values, output(unique, "idx", 1), output(count, "output")], **types)
    if index_type is not dtypes.int32:
        cast = add("rows", "Cast", [rows], SrcT=index_type, DstT=dtypes.int32)
        rows = output(cast, "y")
    helpers.append(_constant(f"{name}/_any", -1, device))
    length = output(add("length", "TensorListLength", [handle]), "length")
    inputs = [output(sums, "output"), rows, output(f"{name}/_any", "output"), length]
    items = add("items", "TensorListScatterV2", inputs, element_dtype=kind, shape_type=dtypes.int32)
    made = _replacement(node, "AddN", [handle, output(items, "output_handle")], N=2, T=dtypes.variant)
    return _Rewriting(helpers, made, {})


def _rewriter_of(node: NodeDef, scope: _Scope) -> Callable[[NodeDef, _Scope], _Rewriting] | None:
    if node.name in scope.beside:
        return _recording_while if scope.beside[node.name][0].op == RECORDS else _conditional
    if node.op in _BESIDE:  # a part of a graph may lack what it stands beside
        return _part_of_owner if node.name in scope.owners else None
    return _REWRITERS.get(node.op)


_REWRITERS: dict[str, Callable[[NodeDef, _Scope], _Rewriting]] = {
    "_RecordingWhile": _recording_while,
    "_LoopBound": _bound,
    "_DeviceLoopBound": _bound,
    "_TensorListZeros": _zeros,
    "_TensorListZerosLike": _zeros,
    "_TensorListAdd": _sum,
    "_TensorListAddItems": _added_items,
}


# ---------------------------------------------------------------------- back again
def restored(message: GraphDef) -> GraphDef:
    """The graph as it was before `in_tensorflows_vocabulary`; nodes that were changed since stay as they are."""
    if not any(_ORIGIN in node.attr for node in all_nodes(message)):
        return message
    graph_def: GraphDef = _copy(message)
    library = {function.signature.name: function for function in graph_def.library.function}
    try:
        _restore(graph_def.node, _Scope(library, False))
        for function in library.values():
            outputs = _restore(function.node_def, _Scope(library, True))
            _rename_results(function, outputs)
    except (_ChangedError, DecodeError, KeyError, IndexError, ValueError, TypeError):
        return _without_origins(message)
    kept = [f for f in graph_def.library.function if _ORIGIN not in f.attr]
    del graph_def.library.function[:]
    graph_def.library.function.extend(kept)
    return graph_def


class _ChangedError(Exception):
    """A node is not what rewriting its origin gives."""


def _restore(nodes: NodeList, scope: _Scope) -> dict[str, str]:
    """Puts the origins of nodes in their places; gives the old names of outputs by the new ones."""
    if not any(_ORIGIN in node.attr for node in nodes):
        return {}
    originals = {node.name: NodeDef.FromString(node.attr[_ORIGIN].s) for node in nodes if _ORIGIN in node.attr}
    scope.find_beside(originals.values())
    again = {name: _rewritten_again(node, scope) for name, node in originals.items()}
    renamed = {old: new for rewritten in again.values() for old, new in rewritten.outputs.items()}
    expected = {made.name: made for rewritten in again.values() for made in (*rewritten.helpers, rewritten.node)}
    _rename_inputs(expected.values(), renamed)
    helpers = set(expected) - set(originals)
    present = {node.name: node for node in nodes}
    for name, wanted in expected.items():
        if name not in present or (present[name].op, *present[name].input) != (wanted.op, *wanted.input):
            raise _ChangedError(name)
    kept = [originals.get(node.name, node) for node in nodes if node.name not in helpers]
    names = {new: old for old, new in renamed.items()}
    _rename_inputs((node for node in kept if node.name not in originals), names)
    copies = [_copy(node) for node in kept]
    del nodes[:]
    nodes.extend(copies)
    return names


def _rewritten_again(node: NodeDef, scope: _Scope) -> _Rewriting:
    rewriter = _rewriter_of(node, scope)
    if rewriter is None:
        raise _ChangedError(node.name)
    return rewriter(node, scope)


def _without_origins(message: GraphDef) -> GraphDef:
    graph_def: GraphDef = _copy(message)
    for node in all_nodes(graph_def):
        node.attr.pop(_ORIGIN, None)
    for function in graph_def.library.function:
        function.attr.pop(_ORIGIN, None)
    return graph_def
