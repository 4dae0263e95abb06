"""Meta graphs: a graph together with its collections and the description of its saver  (§4.3)."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from google.protobuf.any_pb2 import Any as AnyMessage
from google.protobuf.message import DecodeError, Message

from anabranch.core.colocation import colocation_group, colocation_leader
from anabranch.core.compat import as_bytes
from anabranch.core.values import PassedOn
from anabranch.errors import DataLossError
from anabranch.frontend.platform import logging
from anabranch.frontend.storage import graph_io
from anabranch.frontend.variables.variables import Variable
from anabranch.graph.collections import GraphKeys
from anabranch.graph.graph import Graph, get_default_graph
from anabranch.graph.graphdef_import import import_graph_def
from anabranch.graph.op_list import op_list_of, strip_default_attrs as strip_defaults
from anabranch.graph.operation import Operation, Tensor
from anabranch.io import gfile
from anabranch.proto.graph_pb2 import GraphDef, NodeDef
from anabranch.proto.training_pb2 import CollectionDef, MetaGraphDef, SaverDef, VariableDef

_UNBOUND = "$unbound_inputs_"


# ---------------------------------------------------------------------- collections of objects
@dataclass(frozen=True, slots=True)
class _ProtoFunctions:
    proto_type: type[Message] | None
    to_proto: Callable[..., Any] | None
    from_proto: Callable[..., Any] | None


_registered: dict[str, _ProtoFunctions] = {}


def register_proto_function(
    collection_name: str,
    proto_type: type[Message] | None = None,
    to_proto: Callable[..., Any] | None = None,
    from_proto: Callable[..., Any] | None = None,
) -> None:
    """Says how the objects of a collection are written to meta graphs and read back.

    Args:
        collection_name: the collection.
        proto_type: the class of message that stands for an object.
        to_proto: (object, export_scope=None) -> message, or None to leave the object out.
        from_proto: (message, import_scope=None) -> object.

    Raises:
        TypeError: a function cannot be called.
        KeyError: the collection has functions already.
    """
    if to_proto is not None and not callable(to_proto):
        raise TypeError("to_proto must be callable.")
    if from_proto is not None and not callable(from_proto):
        raise TypeError("from_proto must be callable.")
    if collection_name in _registered:
        raise KeyError(f"the collection {collection_name!r} has registered functions already; register it once")
    _registered[collection_name] = _ProtoFunctions(proto_type, to_proto, from_proto)


for _name in (
    *(GraphKeys.GLOBAL_VARIABLES, GraphKeys.TRAINABLE_VARIABLES, GraphKeys.LOCAL_VARIABLES, GraphKeys.MODEL_VARIABLES),
    *(GraphKeys.METRIC_VARIABLES, GraphKeys.MOVING_AVERAGE_VARIABLES, GraphKeys.CONCATENATED_VARIABLES),
    *(GraphKeys.TRAINABLE_RESOURCE_VARIABLES, GraphKeys.GLOBAL_STEP, GraphKeys.EVAL_STEP),
):
    register_proto_function(_name, VariableDef, Variable.to_proto, Variable.from_proto)


def add_collection(message: MetaGraphDef, key: str, items: Sequence[Any], export_scope: str | None) -> None:
    """Writes a collection into a meta graph, or warns where that cannot be done."""
    if not isinstance(key, str | bytes):
        logging.warning("A collection whose key %r is no text is left out of the meta graph.", key)
        return
    try:
        definition = _collection_def(key, items, export_scope)
    except (TypeError, ValueError, AttributeError) as error:
        logging.warning(
            "The collection %r is left out of the meta graph: %s. Register functions for it, or clear it.", key, error
        )
        return
    if definition.WhichOneof("kind") is not None:
        message.collection_def[key].CopyFrom(definition)


def _collection_def(key: str, items: Sequence[Any], export_scope: str | None) -> CollectionDef:
    functions = _registered.get(key)
    definition = CollectionDef()
    if functions is not None and functions.to_proto is not None:
        protos = [functions.to_proto(item, export_scope=export_scope) for item in items]
        definition.bytes_list.value.extend(p.SerializeToString(deterministic=True) for p in protos if p is not None)
        return definition
    if all(isinstance(item, bytes | str) for item in items):
        definition.bytes_list.value.extend(as_bytes(item) for item in items)
    elif all(isinstance(item, AnyMessage) for item in items):
        definition.any_list.value.extend(items)
    elif all(isinstance(item, int) for item in items):
        definition.int64_list.value.extend(items)
    elif isinstance(items[0], float) and all(isinstance(item, int | float) for item in items):
        definition.float_list.value.extend(items)
    else:
        names = [_node_name(item) for item in items]
        inside = [n for n in names if export_scope is None or n.startswith(export_scope + "/")]
        definition.node_list.value.extend(n.removeprefix(f"{export_scope}/") if export_scope else n for n in inside)
    return definition


def _node_name(item: object) -> str:
    if isinstance(item, Tensor | Operation):
        return item.name
    name = getattr(item, "name", None)
    if not isinstance(name, str) or not hasattr(item, "graph"):
        raise TypeError(f"{item!r} of type {type(item).__name__} cannot be written")
    return name


# ---------------------------------------------------------------------- export
def export_meta_graph(
    filename: str | None = None,
    meta_info_def: MetaGraphDef.MetaInfoDef | None = None,
    graph_def: GraphDef | None = None,
    saver_def: SaverDef | None = None,
    collection_list: Sequence[str] | None = None,
    as_text: bool = False,
    graph: Graph | None = None,
    export_scope: str | None = None,
    clear_devices: bool = False,
    clear_extraneous_savers: bool = False,
    strip_default_attrs: bool = False,
    save_debug_info: bool = False,
    **kwargs: PassedOn,
) -> MetaGraphDef:
    """Describes a graph, its collections and its saver in one message, and writes it to a file if one is named.

    Args:
        filename: path of the file.
        meta_info_def: a `MetaInfoDef` to take over.
        graph_def: the graph as a message; default: that of `graph`.
        saver_def: description of the saver.
        collection_list: names of the collections to write; default: all.
        as_text: write text instead of bytes.
        graph: default: the default graph.
        export_scope: write only what is in this name scope, with names relative to it.
        clear_devices: leave devices out.
        clear_extraneous_savers: leave out the operations of savers other than `saver_def`'s.
        strip_default_attrs: leave out attributes that have their default.
        save_debug_info: ignored.
        kwargs: `unbound_inputs_col_name`: the collection in which to list inputs from outside `export_scope`.

    Raises:
        ValueError: the message would have 2 GiB or more.
        OpError: the file cannot be written.
    """
    graph = graph or get_default_graph()
    message = MetaGraphDef()
    if meta_info_def is not None:
        message.meta_info_def.CopyFrom(meta_info_def)
    nodes = graph_def if graph_def is not None else graph.as_graph_def(add_shapes=True)
    message.graph_def.CopyFrom(nodes)
    unbound = _restrict(message.graph_def, export_scope) if export_scope else set()
    if clear_extraneous_savers:
        _remove_other_savers(message.graph_def, graph, saver_def)
    if clear_devices:
        for node in message.graph_def.node:
            node.device = ""
    if not message.meta_info_def.stripped_op_list.op:
        message.meta_info_def.stripped_op_list.CopyFrom(op_list_of(message.graph_def))
    if strip_default_attrs:
        strip_defaults(message.graph_def)
        message.meta_info_def.stripped_default_attrs = True
    if saver_def is not None:
        message.saver_def.CopyFrom(saver_def)
    keys = graph.get_all_collection_keys() if collection_list is None else collection_list
    for key in keys:
        items = graph.get_collection(key)
        if key == GraphKeys.SAVERS and clear_extraneous_savers:
            items = [saver for saver in items if saver.saver_def == saver_def]
        add_collection(message, key, items, export_scope)
    if kwargs.get("unbound_inputs_col_name") and unbound:
        message.collection_def[kwargs["unbound_inputs_col_name"]].bytes_list.value.extend(
            sorted(map(as_bytes, unbound))
        )
    if filename:
        _write(message, filename, as_text)
    return message


def _write(message: MetaGraphDef, filename: str, as_text: bool) -> None:
    directory = os.path.dirname(os.fsdecode(filename))
    if directory:
        gfile.makedirs(directory)
    graph_io.write_message(message, os.fsdecode(filename), as_text)


def _restrict(graph_def: GraphDef, scope: str) -> set[str]:
    """Keeps the nodes of a scope, with names relative to it; returns the inputs that come from outside."""
    start = scope.rstrip("/") + "/"
    inside = [node for node in graph_def.node if node.name.startswith(start)]
    unbound: set[str] = set()
    kept: list[NodeDef] = []
    for node in inside:
        copied = NodeDef()
        copied.CopyFrom(node)
        copied.name = node.name.removeprefix(start)
        for index, text in enumerate(node.input):
            mark, name = ("^", text[1:]) if text.startswith("^") else ("", text)
            if name.startswith(start):
                copied.input[index] = mark + name.removeprefix(start)
            else:
                copied.input[index] = f"{mark}{_UNBOUND}{name}"
                unbound.add(f"{mark}{_UNBOUND}{name}")
        if "_class" in node.attr:
            leaders = [colocation_leader(group) for group in node.attr["_class"].list.s]
            groups = [colocation_group(name.removeprefix(start)) for name in leaders if name and name.startswith(start)]
            copied.attr["_class"].list.s[:] = groups
            if not groups:
                del copied.attr["_class"]
        kept.append(copied)
    del graph_def.node[:]
    graph_def.node.extend(kept)
    return unbound


def _remove_other_savers(graph_def: GraphDef, graph: Graph, saver_def: SaverDef | None) -> None:
    """Removes the nodes in the name scopes of savers other than the one described."""
    kept = saver_def.save_tensor_name.rpartition("/")[0] if saver_def is not None else None
    scopes = {
        node.name.rpartition("/")[0]
        for node in graph_def.node
        if node.op in {"SaveV2", "RestoreV2"} and "/" in node.name
    }
    others = tuple(f"{scope}/" for scope in scopes if scope != kept)
    nodes = [node for node in graph_def.node if not node.name.startswith(others)] if others else list(graph_def.node)
    copies = [NodeDef.FromString(node.SerializeToString()) for node in nodes]
    del graph_def.node[:]
    graph_def.node.extend(copies)


# ---------------------------------------------------------------------- import
def read_meta_graph_file(filename: str) -> MetaGraphDef:
    """A meta graph from a file, bytes or text.

    Raises:
        OSError: there is no such file; a FileNotFoundError in substance.
        DataLossError: it holds no meta graph.
    """
    if not gfile.exists(filename):
        raise OSError(f"File {filename} does not exist.")
    return graph_io.read_message(filename, MetaGraphDef())


def import_scoped_meta_graph(
    meta_graph_or_file: MetaGraphDef | str | os.PathLike[str],
    clear_devices: bool = False,
    graph: Graph | None = None,
    import_scope: str | None = None,
    input_map: Mapping[str, Any] | None = None,
    unbound_inputs_col_name: str = "unbound_inputs",
    restore_collections_predicate: Callable[[str], bool] = lambda key: True,
) -> dict[str, Any]:
    """Adds a meta graph's nodes and collections to a graph.

    Args:
        meta_graph_or_file: a MetaGraphDef or a path.
        clear_devices: ignore the devices of its nodes.
        graph: default: the default graph.
        import_scope: name scope for everything that is added.
        input_map: as in `import_graph_def`; must map what a scoped export left open.
        unbound_inputs_col_name: the collection in which the export listed that.
        restore_collections_predicate: which collections to restore.

    Returns:
        The variables that were added, by their names in the meta graph (without ":0").

    Raises:
        ValueError: open inputs are not mapped, or as `import_graph_def`.
        OSError: there is no such file.
    """
    message = meta_graph_or_file if isinstance(meta_graph_or_file, MetaGraphDef) else _read(meta_graph_or_file)
    _check_unbound(message, unbound_inputs_col_name, input_map or {})
    graph = graph or get_default_graph()
    graph_def = message.graph_def
    if clear_devices:
        graph_def = GraphDef.FromString(graph_def.SerializeToString())
        for node in graph_def.node:
            node.device = ""
    with graph.as_default(), graph.all_or_nothing():
        prefix = _scope_of_import(graph, import_scope)
        import_graph_def(
            graph_def,
            name=prefix,
            input_map=input_map,
            producer_op_list=message.meta_info_def.stripped_op_list,
        )
        scope = prefix.rstrip("/")
        variables: dict[bytes, Any] = {}
        items = [
            (key, item)
            for key, definition in sorted(message.collection_def.items(), key=_variables_first)
            if key != unbound_inputs_col_name and restore_collections_predicate(key)
            for item in _collection_values(graph, key, definition, scope, variables)
        ]
    for key, item in items:
        graph.add_to_collection(key, item)
    start = f"{scope}/" if scope else ""
    return {v.name.removeprefix(start).rpartition(":")[0]: v for v in variables.values()}


def _read(path: str | os.PathLike[str]) -> MetaGraphDef:
    return read_meta_graph_file(os.fsdecode(path))


def _scope_of_import(graph: Graph, import_scope: str | None) -> str:
    """The scope's full name with a slash, made unique; "" for none."""
    if not import_scope:
        return f"{graph.get_name_scope()}/" if graph.get_name_scope() else ""
    with graph.name_scope(import_scope) as scope:
        return scope


def _check_unbound(message: MetaGraphDef, name: str, input_map: Mapping[str, Any]) -> None:
    if name not in message.collection_def:
        return
    inputs = [value.decode() for value in message.collection_def[name].bytes_list.value]
    missing = [text for text in inputs if text not in input_map]
    if missing:
        raise ValueError(f"Graph contains unbound inputs: {missing}. Must provide these inputs through input_map.")


def _variables_first(item: tuple[str, CollectionDef]) -> tuple[bool, str]:
    key, definition = item
    return definition.WhichOneof("kind") == "node_list", key


def _collection_values(
    graph: Graph, key: str, definition: CollectionDef, scope: str, variables: dict[bytes, Any]
) -> Iterable[Any]:
    kind = definition.WhichOneof("kind")
    if kind == "node_list":
        names = [f"{scope}/{name}" if scope else name for name in definition.node_list.value]
        of_handles = {v.handle: v for v in variables.values()}
        elements = [graph.as_graph_element(name) for name in names]
        # a variable that was added to a collection of the program's own is listed by the name of its handle
        return [of_handles.get(element, element) for element in elements]
    if kind == "bytes_list":
        return [_from_bytes(key, value, scope, variables) for value in definition.bytes_list.value]
    if kind == "int64_list":
        return [int(value) for value in definition.int64_list.value]
    if kind == "float_list":
        return [float(value) for value in definition.float_list.value]
    if kind == "any_list":
        return list(definition.any_list.value)
    logging.warning("The collection %r of the meta graph is left out: it is of the unknown kind %s", key, kind)
    return []


def _from_bytes(key: str, value: bytes, scope: str, variables: dict[bytes, Any]) -> Any:
    functions = _registered.get(key)
    if functions is None or functions.proto_type is None or functions.from_proto is None:
        return value
    if value in variables:  # one variable is in several collections
        return variables[value]
    try:
        message = functions.proto_type.FromString(value)
    except DecodeError as error:
        raise DataLossError(
            None, None, f"The collection {key!r} of the meta graph is damaged: {error}. Export the graph again."
        ) from error
    item = functions.from_proto(message, import_scope=scope or None)
    if isinstance(item, Variable):
        variables[value] = item
    return item
