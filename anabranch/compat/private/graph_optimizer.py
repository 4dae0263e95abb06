"""`tensorflow.python.grappler.tf_optimizer`: a GraphDef whose constant parts are computed, for converters of graphs."""

from __future__ import annotations

from typing import Final

import anabranch as tf
from anabranch.graph.constants import constant_value
from anabranch.proto.config_pb2 import ConfigProto
from anabranch.proto.graph_pb2 import GraphDef, NodeDef
from anabranch.proto.training_pb2 import MetaGraphDef

#: the collection of a meta graph that names what it is computed for
_FETCHES: Final = "train_op"
_FOLDING: Final = "constfold"
#: elements of a constant that is computed; a larger one is left to who runs the graph
_MAX_ELEMENTS: Final = 1 << 22


def OptimizeGraph(
    config_proto: ConfigProto,
    metagraph: MetaGraphDef,
    verbose: bool = True,
    graph_id: bytes = b"graph_to_optimize",
    cluster: object = None,
    strip_default_attributes: bool = False,
) -> GraphDef:
    """The graph, with constants in the place of operations that are computed from constants and known shapes alone.

    Of TensorFlow's optimizers this is the one that there is: functions, arithmetic and dependencies stay as they are.

    Args:
        config_proto: among its `rewrite_options`, `optimizers` has to hold "constfold", or be empty.
        metagraph: its collection "train_op" names the tensors that are kept as they are, and what they need.
        verbose, graph_id, cluster, strip_default_attributes: accepted, without effect.

    Returns:
        A GraphDef with what the tensors of the collection need; of all nodes, where there is no collection.
    """
    kept = {name.partition(":")[0] for name in metagraph.collection_def[_FETCHES].node_list.value}
    graph_def: GraphDef = metagraph.graph_def
    optimizers = config_proto.graph_options.rewrite_options.optimizers
    if not optimizers or _FOLDING in optimizers:
        graph_def = _folded(graph_def, kept)
    return tf.graph_util.extract_sub_graph(graph_def, sorted(kept)) if kept else graph_def


def _folded(graph_def: GraphDef, kept: set[str]) -> GraphDef:
    with tf.Graph().as_default() as graph:
        tf.import_graph_def(graph_def, name="")
    result = GraphDef(versions=graph_def.versions, library=graph_def.library)
    for node in graph_def.node:
        constant = None if node.name in kept else _as_constant(graph, node)
        result.node.add().CopyFrom(node if constant is None else constant)
    return result


def _as_constant(graph: tf.Graph, node: NodeDef) -> NodeDef | None:
    """A constant of the node's name; None where its value is not known, or it has several."""
    try:
        operation = graph.get_operation_by_name(node.name)
    except KeyError:  # a node of a loop of primitives, which is one operation here
        return None
    if node.op in ("Const", "Placeholder", "PlaceholderWithDefault") or len(operation.outputs) != 1:
        return None
    if operation.control_inputs:
        return None
    value = constant_value(operation.outputs[0])
    if value is None or value.size > _MAX_ELEMENTS or value.dtype.kind == "V":
        return None
    constant = NodeDef(name=node.name, op="Const", device=node.device)
    constant.attr["dtype"].type = operation.outputs[0].dtype.as_datatype_enum  # type: ignore[assignment]
    constant.attr["value"].tensor.CopyFrom(tf.make_tensor_proto(value, operation.outputs[0].dtype))
    return constant
