"""`tensorflow.python.tools`: freezing, stripping and showing graphs and checkpoints in files, which programs import."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from typing import Any, TypeVar

from google.protobuf import message

import anabranch as tf
from anabranch.proto.graph_pb2 import GraphDef, NodeDef
from anabranch.proto.node_inputs import producer_of
from anabranch.proto.texts import parse_text
from anabranch.proto.training_pb2 import MetaGraphDef, SaverDef

Message = TypeVar("Message", bound=message.Message)

_REFERENCES = frozenset({"Variable", "VariableV2"})


# ---------------------------------------------------------------------- python.tools.freeze_graph
def freeze_graph(
    input_graph: str | None,
    input_saver: str | None,
    input_binary: bool,
    input_checkpoint: str | None,
    output_node_names: str,
    restore_op_name: str | None,
    filename_tensor_name: str | None,
    output_graph: str | None,
    clear_devices: bool,
    initializer_nodes: str | None,
    variable_names_whitelist: str = "",
    variable_names_blacklist: str = "",
    input_meta_graph: str | None = None,
    input_saved_model_dir: str | None = None,
    saved_model_tags: str = tf.saved_model.tag_constants.SERVING,
    checkpoint_version: int = SaverDef.V2,
) -> GraphDef:
    """Makes constants of the variables of a graph in a file, with the values of a checkpoint.

    Args:
        input_graph, input_meta_graph, input_saved_model_dir: where the graph is, one of them: the path of a GraphDef,
            of a MetaGraphDef or of a SavedModel, whose `saved_model_tags` are separated by commas.
        input_saver: path of a SaverDef, or None: the variables that the checkpoint and the graph both have.
        input_binary: whether the messages are binary, and not text.
        input_checkpoint: path of a checkpoint; a SavedModel has its own.
        output_node_names: names, separated by commas, of the nodes that are kept with what they need.
        output_graph: where the GraphDef is written, or None.
        clear_devices: whether nodes lose their devices.
        initializer_nodes: names, separated by commas, of nodes that run before the values are taken.
        variable_names_whitelist, variable_names_blacklist: names, separated by commas, of the variables that become
            constants, and of those that do not; default all.
        restore_op_name, filename_tensor_name, checkpoint_version: not used.

    Returns:
        The frozen GraphDef.

    Raises:
        OSError: a file is not there.
        ValueError: the checkpoint is not there, there are no names of nodes, or no variables.
    """
    graph_def = _read(input_graph, GraphDef(), input_binary) if input_graph else None
    meta_graph = _read(input_meta_graph, MetaGraphDef(), input_binary) if input_meta_graph else None
    saver_def = _read(input_saver, SaverDef(), input_binary) if input_saver else None
    return freeze_graph_with_def_protos(
        graph_def,
        saver_def,
        input_checkpoint,
        output_node_names,
        restore_op_name,
        filename_tensor_name,
        output_graph,
        clear_devices,
        initializer_nodes,
        variable_names_whitelist,
        variable_names_blacklist,
        meta_graph,
        input_saved_model_dir,
        _words(saved_model_tags),
        checkpoint_version,
    )


def freeze_graph_with_def_protos(
    input_graph_def: GraphDef | None,
    input_saver_def: SaverDef | None,
    input_checkpoint: str | None,
    output_node_names: str,
    restore_op_name: str | None,
    filename_tensor_name: str | None,
    output_graph: str | None,
    clear_devices: bool,
    initializer_nodes: str | None,
    variable_names_whitelist: str = "",
    variable_names_blacklist: str = "",
    input_meta_graph_def: MetaGraphDef | None = None,
    input_saved_model_dir: str | None = None,
    saved_model_tags: Sequence[str] | None = None,
    checkpoint_version: int = SaverDef.V2,
) -> GraphDef:
    """`freeze_graph` of messages instead of files."""
    if not input_saved_model_dir and not (input_checkpoint and tf.train.checkpoint_exists(input_checkpoint)):
        raise ValueError(f"Input checkpoint '{input_checkpoint}' doesn't exist!")
    if not output_node_names:
        raise ValueError("You need to supply the name of a node to --output_node_names.")
    given = input_meta_graph_def.graph_def if input_meta_graph_def is not None else input_graph_def
    if clear_devices and given is not None:
        for node in given.node:
            node.device = ""
    with tf.Graph().as_default() as graph, tf.Session(graph=graph) as session:
        if input_saved_model_dir:
            loaded = tf.saved_model.loader.load(session, list(saved_model_tags or ()), input_saved_model_dir)
            given = loaded.graph_def
        else:
            _load(session, str(input_checkpoint), input_graph_def, input_saver_def, input_meta_graph_def)
            if initializer_nodes and input_saver_def is None:
                session.run(_words(initializer_nodes))
        if given is None:
            raise ValueError("which graph? Name an input graph, a meta graph or a saved model")
        frozen: GraphDef = tf.graph_util.convert_variables_to_constants(
            session,
            given,
            _words(output_node_names),
            _words(variable_names_whitelist) or None,
            _words(variable_names_blacklist) or None,
        )
    if output_graph:
        with tf.gfile.GFile(output_graph, "wb") as file:
            file.write(frozen.SerializeToString())
    return frozen


def _load(
    session: tf.Session,
    checkpoint: str,
    graph_def: GraphDef | None,
    saver_def: SaverDef | None,
    meta_graph_def: MetaGraphDef | None,
) -> None:
    """Imports a graph, and gives its variables the values of a checkpoint."""
    if meta_graph_def is not None:
        saver = tf.train.import_meta_graph(meta_graph_def, clear_devices=True)
        if saver is None:
            raise ValueError("No variables were found in this model: its meta graph has no saver")
        saver.restore(session, checkpoint)
    elif graph_def is not None:
        tf.import_graph_def(graph_def, name="")
        if saver_def is not None:
            tf.train.Saver(saver_def=saver_def).restore(session, checkpoint)
        else:
            _restore_by_name(session, checkpoint)


def _restore_by_name(session: tf.Session, checkpoint: str) -> None:
    """Gives the variables of an imported graph, which are nodes only, the values that a checkpoint has for their names.

    Raises:
        ValueError: there are none.
    """
    reader = tf.train.NewCheckpointReader(checkpoint)
    nodes = {operation.name: operation for operation in session.graph.get_operations()}
    assigned = list[Any]()
    for name in reader.get_variable_to_shape_map():
        node = nodes.get(name)
        if node is not None and node.type == "VarHandleOp":
            assigned.append(tf.raw_ops.AssignVariableOp(resource=node.outputs[0], value=reader.read_tensor(name)))
        elif node is not None and node.type in _REFERENCES:
            assigned.append(tf.raw_ops.Assign(ref=node.outputs[0], value=reader.read_tensor(name)))
    if not assigned:
        raise ValueError(
            "No variables were found in this model. It is likely the model was frozen previously. "
            "You cannot freeze a graph twice."
        )
    session.run(assigned)


def _words(text: str | None) -> list[str]:
    return text.replace(" ", "").split(",") if text else []


def _read(path: str, into: Message, binary: bool) -> Message:
    if not tf.gfile.Exists(path):
        raise OSError(f"Input {type(into).__name__} file '{path}' does not exist!")
    with tf.gfile.GFile(path, "rb" if binary else "r") as file:
        if binary:
            into.ParseFromString(file.read())
        else:
            parse_text(file.read(), into, allow_repeats=True)
    return into


# ---------------------------------------------------------------------- strip_unused_lib, optimize_for_inference_lib
def strip_unused(
    input_graph_def: GraphDef,
    input_node_names: Sequence[str],
    output_node_names: Sequence[str],
    placeholder_type_enum: int | Sequence[int],
) -> GraphDef:
    """The part of a graph between nodes, with placeholders in the place of the first ones.

    Args:
        input_node_names: names of nodes that become placeholders.
        output_node_names: names of nodes that are kept with what they need.
        placeholder_type_enum: the dtype of the placeholders, or one for each.

    Raises:
        ValueError: a name is that of a tensor.
        KeyError: a node is not there.
    """
    for name in input_node_names:
        if ":" in name:
            raise ValueError(f"Name '{name}' appears to refer to a Tensor, not a Operation.")
    names = list(input_node_names)
    missing = set(names) - {node.name for node in input_graph_def.node}
    if missing:
        raise KeyError(f"The following input nodes were not found: {missing}")
    replaced = GraphDef()
    for node in input_graph_def.node:
        if node.name not in names:
            replaced.node.add().CopyFrom(node)
            continue
        kinds = placeholder_type_enum
        kind = kinds if isinstance(kinds, int) else kinds[names.index(node.name)]
        placeholder: NodeDef = replaced.node.add(name=node.name, op="Placeholder")
        placeholder.attr["dtype"].type = tf.as_dtype(kind).as_datatype_enum  # type: ignore[assignment]
        for attribute in ("_output_shapes", "shape"):
            if attribute in node.attr:
                placeholder.attr[attribute].CopyFrom(node.attr[attribute])
    stripped: GraphDef = tf.graph_util.extract_sub_graph(replaced, list(output_node_names))
    return stripped


def optimize_for_inference(
    input_graph_def: GraphDef,
    input_node_names: Sequence[str],
    output_node_names: Sequence[str],
    placeholder_type_enum: int | Sequence[int],
    toco_compatible: bool = False,
) -> GraphDef:
    """`strip_unused`, and without nodes that only training needs.

    Constants are not folded into convolutions, and nothing is fused: a session compiles the graph in any case.

    Args:
        toco_compatible: not used.

    Raises:
        ValueError: a node has a name twice, or an input that is not there; see also `strip_unused`.
    """
    ensure_graph_is_valid(input_graph_def)
    stripped = strip_unused(input_graph_def, input_node_names, output_node_names, placeholder_type_enum)
    optimized: GraphDef = tf.graph_util.remove_training_nodes(stripped, list(output_node_names))
    ensure_graph_is_valid(optimized)
    return optimized


def ensure_graph_is_valid(graph_def: GraphDef) -> None:
    """Checks that names are unique, and that inputs are there.

    Raises:
        ValueError: they are not.
    """
    names = set[str]()
    for node in graph_def.node:
        if node.name in names:
            raise ValueError("Duplicate node names detected for ", node.name)
        names.add(node.name)
    for node in graph_def.node:
        for text in node.input:
            if producer_of(text) not in names:
                raise ValueError("Input for ", node.name, " not found: ", text)


# ---------------------------------------------------------------------- python.tools.inspect_checkpoint
def print_tensors_in_checkpoint_file(
    file_name: str,
    tensor_name: str | None,
    all_tensors: bool,
    all_tensor_names: bool = False,
    count_exclude_pattern: str = "",
) -> None:
    """Prints what a checkpoint holds: names and shapes, or values, and how many numbers there are.

    Args:
        tensor_name: prints this value; "" or None: names, dtypes and shapes of all.
        all_tensors: whether all values are printed.
        all_tensor_names: whether all names are printed.
        count_exclude_pattern: a regular expression; variables in whose names it is found are not counted.

    Raises:
        OpError: there is no checkpoint, or it has no such tensor.
    """
    reader = tf.train.NewCheckpointReader(file_name)
    shapes = reader.get_variable_to_shape_map()
    if all_tensors or all_tensor_names:
        for name in sorted(shapes):
            _say(f"tensor_name:  {name}")
            if all_tensors:
                _say(reader.get_tensor(name))
    elif not tensor_name:
        _say(reader.debug_string().decode("utf-8"))
    else:
        _say(f"tensor_name:  {tensor_name}")
        _say(reader.get_tensor(tensor_name))
    counted = [
        tf.TensorShape(shape).num_elements() or 0
        for name, shape in shapes.items()
        if not (count_exclude_pattern and re.search(count_exclude_pattern, name))
    ]
    _say(f"# Total number of params: {sum(counted)}")


def _say(value: object) -> None:
    sys.stdout.write(f"{value}\n")
