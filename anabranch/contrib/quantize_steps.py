"""What the rewriters of graphs share: the count of steps, and the operations around an operation."""

from __future__ import annotations

from collections.abc import Iterable

import anabranch as tf

#: of the variable that counts steps of a graph with a delay
_STEP = "fake_quantization_step"
#: the operations that stand for the sum of two tensors
SUMS = frozenset({"Add", "AddV2"})


def quantization_step() -> tf.Tensor:
    """The number of steps that the default graph has been run for, this one too; made at the first call.

    It is counted by the variable "fake_quantization_step", which checkpoints hold.

    Returns:
        A tensor [], int64.
    """
    graph = tf.get_default_graph()
    try:
        return graph.get_tensor_by_name(f"{_STEP}/Identity:0")
    except KeyError:
        pass
    with tf.name_scope(None), tf.variable_scope(tf.VariableScope(reuse=tf.AUTO_REUSE), auxiliary_name_scope=False):
        step = tf.get_variable(
            _STEP,
            shape=[],
            dtype=tf.int64,
            initializer=tf.zeros_initializer(),
            trainable=False,
            collections=[tf.GraphKeys.GLOBAL_VARIABLES],
        )
        with tf.name_scope(f"{_STEP}/"):
            return tf.identity(tf.assign_add(step, tf.constant(1, tf.int64)))


def scope_of(op: tf.Operation) -> str:
    """The name scope that an operation stands in, "" for none."""
    return str(op.name).rpartition("/")[0]


def reroute(old: tf.Tensor, new: tf.Tensor, consumers: Iterable[tf.Operation]) -> int:
    """Gives operations another tensor for an input; returns how many inputs that were."""
    listed = list(consumers)
    return tf.contrib.graph_editor.reroute_ts(new, old, can_modify=listed) if listed else 0
