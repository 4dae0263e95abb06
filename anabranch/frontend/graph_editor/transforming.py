"""Parts of a graph are copied, into the same graph or another, with handlers that may change them on the way."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, TypeAlias

from anabranch.core.colocation import colocation_group, colocation_leader
from anabranch.core.nest import Structure
from anabranch.core.registry import find_op_def
from anabranch.frontend.graph_editor.elements import (
    ControlOutputs,
    Element,
    flatten_tree,
    get_predefined_collection_names,
    get_unique_graph,
    make_placeholder_from_tensor,
    scope_finalize,
    transform_tree,
)
from anabranch.frontend.graph_editor.rerouting import add_control_inputs
from anabranch.frontend.graph_editor.selection import Selector, get_walks_intersection_ops
from anabranch.frontend.graph_editor.views import SubGraphView, make_view
from anabranch.graph.graph import Graph
from anabranch.graph.loop_structure import is_back_edge
from anabranch.graph.node_plans import read_attrs
from anabranch.graph.operation import Operation, Tensor
from anabranch.graph.ordering import in_execution_order
from anabranch.graph.step_nodes import called_names
from anabranch.proto.graph_pb2 import NodeDef

_ViewLike: TypeAlias = Selector | SubGraphView
#: what says what becomes of something that is missing
MissingFn: TypeAlias = Callable[[Any], Any]
_COLOCATED: Final = "_class"


class TransformInfo:
    """What a handler is given: where a part of a graph is copied from, where to, and what is copied already.

    Attributes:
        sgv: the view that is copied.
        sgv_inputs_set: the tensors that enter it.
        ops: its operations.
        control_outputs: which operations of the graph wait for which.
        graph, scope: where they are.
        graph_, scope_: where the copies are put.
        transformed_ops, transformed_ts: the copies of operations and tensors so far.
        collections: the collections of the graph.
    """

    def __init__(self, sgv: SubGraphView, dst_graph: Graph, dst_scope: str, src_scope: str) -> None:
        graph = get_unique_graph([*sgv.ops, *sgv.passthroughs], none_if_empty=True) or dst_graph
        self.sgv = sgv
        self.sgv_inputs_set = frozenset(sgv.inputs)
        self.ops = frozenset(sgv.ops)
        self.control_outputs = ControlOutputs(graph)
        self.graph = graph
        self.scope = src_scope
        self.graph_ = dst_graph
        self.scope_ = dst_scope
        self.transformed_ops: dict[Operation, Operation] = {}
        self.transformed_ts: dict[Tensor, Tensor] = {}
        self.collections: dict[Any, list[Any]] = {
            key: graph.get_collection(key) for key in graph.get_all_collection_keys()
        }
        self.collections_of: dict[int, list[Any]] = {}
        for key, items in self.collections.items():
            for item in items:
                self.collections_of.setdefault(id(item), []).append(key)

    def new_name(self, name: str) -> str:
        """The name of the copy of what has a name.

        Raises:
            ValueError: the name does not begin with the scope that is copied from.
        """
        if not name.startswith(self.scope):
            raise ValueError(f"{name} does not start with {self.scope}")
        return self.scope_ + name[len(self.scope) :]


# ---------------------------------------------------------------------- handlers
def replace_t_with_placeholder_handler(info: TransformInfo, t: Tensor) -> Tensor:
    """A handler of what enters: a placeholder stands for it."""
    with info.graph_.as_default():
        return make_placeholder_from_tensor(t, scope=info.scope_)


def keep_t_if_possible_handler(info: TransformInfo, t: Tensor) -> Tensor:
    """A handler of what enters: the copy takes the same, or, in another graph, a placeholder."""
    return t if info.graph is info.graph_ else replace_t_with_placeholder_handler(info, t)


def assign_renamed_collections_handler(info: TransformInfo, elem: Element, elem_: Element) -> None:
    """A handler of collections: a copy is put into those of the original; the program's own are renamed as names are.

    Args:
        elem, elem_: the original and the copy.
    """
    predefined = get_predefined_collection_names()
    for name in info.collections_of.get(id(elem), ()):
        info.graph_.add_to_collection(name if name in predefined else info.new_name(name), elem_)


def transform_op_if_inside_handler(
    info: TransformInfo, op: Operation | None, keep_if_possible: bool = True
) -> Operation | None:
    """A handler of what is waited for: its copy, if there is one; else, in the same graph, the same.

    Args:
        keep_if_possible: False: None where there is no copy.
    """
    if op is None or op in info.ops:
        return None if op is None else info.transformed_ops[op]
    return op if keep_if_possible and info.graph is info.graph_ else None


def copy_op_handler(
    info: TransformInfo,
    op: Operation,
    new_inputs: Sequence[Tensor],
    copy_shape: bool = False,
    nodedef_fn: Callable[[NodeDef], NodeDef] | None = None,
) -> tuple[Operation, list[Tensor]]:
    """The handler that copies an operation.

    Args:
        op: the operation.
        new_inputs: what the copy takes.
        copy_shape: whether what is known of the shapes of its outputs is known of the copy's, too.
        nodedef_fn: a function that gives, for the node of the copy, the node that is made.

    Returns:
        The copy, and its outputs.

    Raises:
        ValueError: the graph has another function of a name that the operation calls.
    """
    op_def, attrs, device = op.op_def, dict(op.attrs), op.device
    name = info.graph_.unique_name(info.new_name(op.name))
    if nodedef_fn is not None:
        node = op.node_def
        node.name = name
        node = nodedef_fn(node)
        definition = find_op_def(node.op)
        if definition is None:
            raise ValueError(f"nodedef_fn gave a node of type {node.op!r}, which is not registered")
        op_def, attrs, device = definition, read_attrs(node, definition), node.device
    if info.graph is not info.graph_:
        _bring_functions(info, called_names(attrs, op_def))
        _rename_colocation(info, attrs)
    copied = info.graph_.create_op(op_def, list(new_inputs), attrs, f"{name}/", site=op.site, control_inputs=[])
    copied.device = device
    if copy_shape:
        for old, new in zip(op.outputs, copied.outputs, strict=True):
            new.set_shape(old.shape)
    return copied, copied.outputs


def _bring_functions(info: TransformInfo, names: Iterable[str]) -> None:
    """Puts the functions that an operation calls, and those that they call, into the library of the other graph."""
    stack = list(names)
    entered: set[str] = set()
    here = info.graph_.functions
    while stack:
        name = stack.pop()
        if name in entered:
            continue
        entered.add(name)
        body = info.graph.get_function(name)
        if name not in here:
            info.graph_.add_function(name, body)
        elif here[name] is not body:
            raise ValueError(f"the graph has another function {name!r}; copy into a graph of its own, and import that")
        for op in body.get_operations():
            stack.extend(called_names(op.attrs, op.op_def))


def _rename_colocation(info: TransformInfo, attrs: dict[str, Any]) -> None:
    """In another graph, a copy shares its device with copies only."""
    if _COLOCATED not in attrs:
        return
    inside = {op.name for op in info.ops}
    leaders = [colocation_leader(group) for group in attrs.pop(_COLOCATED)]
    groups = [colocation_group(info.new_name(leader)) for leader in leaders if leader in inside]
    if groups:
        attrs[_COLOCATED] = groups


# ---------------------------------------------------------------------- what became of what
class TransformerInfo:
    """The copies that a `Transformer` made.

    Args:
        info: what its handlers were given.
    """

    def __init__(self, info: TransformInfo) -> None:
        self._graph = info.graph
        self._scope = info.scope
        self._graph_ = info.graph_
        self._scope_ = info.scope_
        self._transformed_ops = info.transformed_ops
        self._transformed_ts = info.transformed_ts

    def transformed(self, original: Structure, missing_fn: MissingFn | None = None) -> Structure:
        """The copies of operations and tensors.

        Args:
            original: a structure of them, or of their names.
            missing_fn: what gives something for one that has no copy; default: None stands for it.

        Raises:
            TypeError: something else is in the structure.
        """

        def copy_of(element: Element | str) -> Any:
            found = self._mapping(element).get(element)
            return missing_fn(element) if found is None and missing_fn is not None else found

        return transform_tree(original, copy_of) if not isinstance(original, str) else copy_of(original)

    def original(self, transformed: Structure, missing_fn: MissingFn | None = None) -> Structure:
        """The operations and tensors that some are copies of; arguments and errors of `transformed`."""

        def original_of(element: Element | str) -> Any:
            if isinstance(element, str):
                turned: dict[Any, Any] = {new.name: old for old, new in self._all()}
            else:
                turned = {new: old for old, new in self._mapping(element).items()}
            found = turned.get(element)
            return missing_fn(element) if found is None and missing_fn is not None else found

        return (
            transform_tree(transformed, original_of) if not isinstance(transformed, str) else original_of(transformed)
        )

    def _all(self) -> list[tuple[Any, Any]]:
        return [*self._transformed_ops.items(), *self._transformed_ts.items()]

    def _mapping(self, element: Element | str) -> Mapping[Any, Any]:
        if isinstance(element, Operation):
            return self._transformed_ops
        if isinstance(element, Tensor):
            return self._transformed_ts
        if isinstance(element, str):
            return {old.name: new for old, new in self._all()}
        raise TypeError(f"Expected a tf.Tensor or a tf.Operation, got a {type(element)}")

    def __str__(self) -> str:
        lines = ["Transform result info:"]
        if self._graph is self._graph_:
            lines.append(f"  Within graph[{id(self._graph)}]")
        else:
            lines.append(f"  graph[{id(self._graph)}] => graph[{id(self._graph_)}]")
        if self._scope:
            lines.append(f"  Relative to source scope: {self._scope}")
        if self._scope_:
            lines.append(f"  Scope destination: {self._scope_}")
        lines += ["Operations mapping:", *(f"  {a.name} => {b.name}" for a, b in self._transformed_ops.items())]
        return "\n".join(lines) + "\n"


# ---------------------------------------------------------------------- copies
class Transformer:
    """Copies a part of a graph. Its attributes are functions that say how, and may be set.

    Attributes:
        transform_op_handler: `(info, op, new_inputs)` gives a copy and its outputs.
        transform_control_input_handler: `(info, op)` gives what a copy waits for instead of `op`, or None.
        assign_collections_handler: `(info, elem, elem_)` puts copies into collections.
        transform_external_input_handler: `(info, t)` gives what a copy takes instead of an input of the view.
        transform_external_hidden_input_handler: the same for what enters and is no input of the view.
        transform_original_op_handler: as in TensorFlow; operations here do not know what they were made from.
    """

    def __init__(self) -> None:
        self.transform_op_handler: Callable[..., tuple[Operation, Sequence[Tensor]]] = copy_op_handler
        self.transform_control_input_handler: Callable[..., Operation | None] = transform_op_if_inside_handler
        self.assign_collections_handler: Callable[..., object] = assign_renamed_collections_handler
        self.transform_external_input_handler: Callable[..., Tensor] = replace_t_with_placeholder_handler
        self.transform_external_hidden_input_handler: Callable[..., Tensor] = keep_t_if_possible_handler
        self.transform_original_op_handler: Callable[..., Operation | None] = transform_op_if_inside_handler

    def __call__(
        self, sgv: _ViewLike, dst_graph: Graph, dst_scope: str, src_scope: str = "", reuse_dst_scope: bool = False
    ) -> tuple[SubGraphView, TransformerInfo]:
        """Copies a part of a graph, or nothing if something goes wrong.

        Args:
            sgv: a view, or what `make_view` takes.
            dst_graph: where the copies are put.
            dst_scope: the beginning of their names, made unique unless `reuse_dst_scope` says otherwise.
            src_scope: the beginning of the originals' names, in whose place that comes.

        Returns:
            `(sgv, info)`: a view of the copies, and which is the copy of which.

        Raises:
            TypeError: `dst_graph` is no graph.
            ValueError: a name does not begin with `src_scope`, or a handler gave back the operation itself.
            RuntimeError: the graph is finalized.
        """
        view = make_view(sgv)
        if not isinstance(dst_graph, Graph):
            raise TypeError(f"Expected a tf.Graph, got: {type(dst_graph)}")
        scope = scope_finalize(dst_scope)
        with dst_graph.all_or_nothing():
            if scope and not reuse_dst_scope:
                scope = scope_finalize(dst_graph.unique_name(scope[:-1]))
            copying = _Copying(self, TransformInfo(view, dst_graph, scope, scope_finalize(src_scope)))
            return copying.run()


class _Copying:
    """One call of a transformer."""

    def __init__(self, transformer: Transformer, info: TransformInfo) -> None:
        self._transformer = transformer
        self._info = info
        self._entering: dict[Tensor, Tensor] = {}
        self._back_edges: list[tuple[Operation, int, Tensor]] = []

    def run(self) -> tuple[SubGraphView, TransformerInfo]:
        info = self._info
        outside = {tensor for op in info.ops for tensor in op.inputs if tensor.op not in info.ops}
        ordered = in_execution_order(info.ops, outside)
        for op in ordered:
            self._copy(op)
        for op, index, tensor in self._back_edges:
            info.transformed_ops[op]._set_input(index, info.transformed_ts[tensor])
        for op in ordered:
            self._copy_control_inputs(op)
        return self._view(), TransformerInfo(info)

    def _copy(self, op: Operation) -> None:
        info = self._info
        copied, outputs = self._transformer.transform_op_handler(info, op, self._new_inputs(op))
        if copied is op:
            raise ValueError(f"the handler gave back operation {op.name} itself: In-place transformation not allowed.")
        info.transformed_ops[op] = copied
        self._transformer.assign_collections_handler(info, op, copied)
        for old, new in zip(op.outputs, outputs, strict=False):
            info.transformed_ts[old] = new
            self._transformer.assign_collections_handler(info, old, new)
        if any(is_back_edge(op, tensor) for tensor in op.inputs):
            for old, new in zip(op.outputs, copied.outputs, strict=True):
                new._shape = old._shape  # the rule has not seen what the next iteration brings

    def _new_inputs(self, op: Operation) -> list[Tensor]:
        made: list[Tensor | None] = []
        for index, tensor in enumerate(op.inputs):
            if tensor.op in self._info.ops and is_back_edge(op, tensor):
                self._back_edges.append((op, index, tensor))
                made.append(None)
            else:
                made.append(self._new_input(tensor))
        first = next((tensor for tensor in made if tensor is not None), None)
        return [tensor if tensor is not None else first for tensor in made]  # type: ignore[misc]

    def _new_input(self, tensor: Tensor) -> Tensor:
        info = self._info
        if tensor in info.transformed_ts:
            return info.transformed_ts[tensor]
        if tensor not in self._entering:
            enters = tensor in info.sgv_inputs_set
            handler = (
                self._transformer.transform_external_input_handler
                if enters
                else self._transformer.transform_external_hidden_input_handler
            )
            self._entering[tensor] = handler(info, tensor)
        return self._entering[tensor]

    def _copy_control_inputs(self, op: Operation) -> None:
        copied = self._info.transformed_ops[op]
        controls = [self._transformer.transform_control_input_handler(self._info, c) for c in op.control_inputs]
        new = [c for c in dict.fromkeys(controls) if c is not None and c not in copied.control_inputs]
        add_control_inputs(copied, new)

    def _view(self) -> SubGraphView:
        """A view of the copies, with inputs and outputs in the order in which the original view has theirs."""
        info = self._info
        view = SubGraphView(list(dict.fromkeys(info.transformed_ops.values())))
        places = {**self._entering, **info.transformed_ts}
        inputs = [places[t] for t in info.sgv.inputs if t in places and places[t] in view.inputs]
        outputs = [places[t] for t in info.sgv.outputs if t in places and places[t] in view.outputs]
        return view.remap([view.input_index(t) for t in dict.fromkeys(inputs)], [view.output_index(t) for t in outputs])


def copy(
    sgv: _ViewLike,
    dst_graph: Graph | None = None,
    dst_scope: str = "",
    src_scope: str = "",
    reuse_dst_scope: bool = False,
) -> tuple[SubGraphView, TransformerInfo]:
    """Copies a part of a graph; placeholders stand for what entered it.

    Args:
        sgv: a view, or what `make_view` takes.
        dst_graph: where the copies are put; default: beside the originals.
        dst_scope, src_scope, reuse_dst_scope: of `Transformer`.

    Returns:
        `(sgv, info)`: a view of the copies, and which is the copy of which.

    Raises:
        TypeError, ValueError, RuntimeError: as a `Transformer`.

    Example:
        >>> x = tf.constant(1.0, name="x")
        >>> y = tf.negative(x, name="y")
        >>> view, info = tf.contrib.graph_editor.copy(y.op, dst_scope="copied")
        >>> info.transformed(y).name, info.transformed(y).op.inputs[0].name
        ('copied/y:0', 'copied/geph__x_0:0')
    """
    view = make_view(sgv)
    return Transformer()(view, _destination(view, dst_graph), dst_scope, src_scope, reuse_dst_scope)


def copy_with_input_replacements(
    sgv: _ViewLike,
    replacement_ts: Mapping[Tensor, Tensor],
    dst_graph: Graph | None = None,
    dst_scope: str = "",
    src_scope: str = "",
    reuse_dst_scope: bool = False,
) -> tuple[SubGraphView, TransformerInfo]:
    """Copies a part of a graph; some tensors take the place of others that entered it.

    Args:
        sgv: a view, or what `make_view` takes.
        replacement_ts: for tensors that enter, those that the copies take. What else enters the copies take as well,
            in another graph from placeholders.
        dst_graph: where the copies are put; default: beside the originals.
        dst_scope, src_scope, reuse_dst_scope: of `Transformer`.

    Returns:
        `(sgv, info)`: a view of the copies, and which is the copy of which.

    Raises:
        TypeError, ValueError, RuntimeError: as a `Transformer`.
    """
    view = make_view(sgv)
    copier = Transformer()

    def replaced(info: TransformInfo, tensor: Tensor) -> Tensor:
        return replacement_ts[tensor] if tensor in replacement_ts else keep_t_if_possible_handler(info, tensor)

    copier.transform_external_input_handler = replaced
    return copier(view, _destination(view, dst_graph), dst_scope, src_scope, reuse_dst_scope)


def _destination(view: SubGraphView, dst_graph: Graph | None) -> Graph:
    graph = view.graph if dst_graph is None else dst_graph
    if not isinstance(graph, Graph):
        raise TypeError(f"Expected a tf.Graph, got: {type(graph)}")
    return graph


def graph_replace(
    target_ts: Structure,
    replacement_ts: Mapping[Tensor, Tensor],
    dst_scope: str = "",
    src_scope: str = "",
    reuse_dst_scope: bool = False,
) -> Structure:
    """What tensors would be if others stood in the place of some that they are computed from.

    What lies between is copied; the graph computes the tensors themselves as before.

    Args:
        target_ts: a structure of tensors.
        replacement_ts: for tensors that they are computed from, the others.
        dst_scope, src_scope, reuse_dst_scope: of `Transformer`.

    Returns:
        A structure like `target_ts`, in which tensors that do not depend on what is replaced are the same.

    Raises:
        TypeError: they are no tensors.
        ValueError: none depends on what is replaced; shapes or types do not fit.

    Example:
        >>> a, b = tf.constant(2.0), tf.constant(5.0)
        >>> y = a * 10.0 + 1.0
        >>> sess.run([y, tf.contrib.graph_editor.graph_replace(y, {a: b})])
        [np.float32(21.0), np.float32(51.0)]
    """
    targets = flatten_tree(target_ts)
    graph = get_unique_graph(targets, check_types=Tensor)
    assert graph is not None
    ops = get_walks_intersection_ops(list(replacement_ts), targets, control_ios=ControlOutputs(graph))
    if not ops:
        raise ValueError("Targets and replacements are not connected!")
    _, info = copy_with_input_replacements(ops, replacement_ts, None, dst_scope, src_scope, reuse_dst_scope)
    return info.transformed(target_ts, lambda tensor: tensor)
