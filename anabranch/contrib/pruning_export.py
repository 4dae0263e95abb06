"""`tf.contrib.model_pruning`: graphs of pruned models, without masks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import anabranch as tf


def strip_pruning_vars_fn(input_graph_def: tf.GraphDef, output_node_names: Sequence[str]) -> tf.GraphDef:
    """A frozen graph with the products of weights and masks as constants, and without what only they need.

    Args:
        input_graph_def: a graph whose variables are constants, as `graph_def_from_checkpoint` gives it.
        output_node_names: what is to be computed.
    """
    with tf.Graph().as_default() as graph, tf.Session() as session:
        tf.import_graph_def(input_graph_def, name="")
        names = [node.name for node in input_graph_def.node if "masked_weight" in node.name]
        values = dict(zip(names, session.run([graph.get_tensor_by_name(f"{name}:0") for name in names]), strict=True))
    stripped = tf.GraphDef(versions=input_graph_def.versions, library=input_graph_def.library)
    for node in input_graph_def.node:
        copied = stripped.node.add()
        if node.name in values:
            copied.name, copied.op = node.name, "Const"
            copied.attr["dtype"].CopyFrom(node.attr["T"])
            copied.attr["value"].tensor.CopyFrom(tf.make_tensor_proto(values[node.name]))
        else:
            copied.CopyFrom(node)
    return tf.graph_util.extract_sub_graph(stripped, list(output_node_names))


def graph_def_from_checkpoint(checkpoint_dir: str, output_node_names: Sequence[str]) -> tf.GraphDef:
    """A model's graph with the values of its newest checkpoint as constants.

    Args:
        checkpoint_dir: the folder of checkpoints and meta graphs.
        output_node_names: what is to be computed.

    Raises:
        ValueError: there is no checkpoint.
    """
    path = tf.train.latest_checkpoint(checkpoint_dir)
    if path is None:
        raise ValueError(f"Could not find a checkpoint at: {checkpoint_dir}.")
    with tf.Graph().as_default() as graph, tf.Session() as session:
        saver: Any = tf.train.import_meta_graph(f"{path}.meta", clear_devices=True)
        saver.restore(session, path)
        return tf.graph_util.convert_variables_to_constants(session, graph.as_graph_def(), list(output_node_names))
