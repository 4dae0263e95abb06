"""Frozen graphs whose variables are used inside functions: loops, conditionals and calls compute what they computed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import anabranch as tf
from anabranch.proto.graph_pb2 import DT_RESOURCE, GraphDef

X = np.random.default_rng(0).normal(size=[2, 5, 3]).astype(np.float32)
Network = Callable[[tf.Tensor], tf.Tensor]


def lstm(x: tf.Tensor) -> tf.Tensor:
    outputs: tf.Tensor = tf.nn.dynamic_rnn(tf.nn.rnn_cell.LSTMCell(4), x, dtype=tf.float32)[0]
    return outputs


def nested(x: tf.Tensor) -> tf.Tensor:
    weights = tf.get_variable("weights", [3])
    table = tf.get_variable("table", [4, 3])

    def inner(i: tf.Tensor, y: tf.Tensor) -> Any:
        added = tf.cond(tf.equal(i % 2, 0), lambda: weights * 2.0, lambda: tf.nn.embedding_lookup(table, i) + weights)
        return i + 1, y + added

    def outer(i: tf.Tensor, y: tf.Tensor) -> Any:
        return i + 1, tf.while_loop(lambda j, _: j < 3, inner, (0, y))[1] * weights

    result: tf.Tensor = tf.while_loop(lambda i, _: i < 2, outer, (0, x))[1] * weights
    return result


def cases(x: tf.Tensor) -> tf.Tensor:
    weights = tf.get_variable("weights", [3], use_resource=True)
    number = tf.cast(tf.shape(x)[0], tf.int32) - 1
    gathered: tf.Tensor = tf.raw_ops.ResourceGatherNd(resource=weights.handle, indices=[[1], [2]], dtype=tf.float32)
    size = tf.raw_ops.VariableShape(input=weights.handle)
    chosen = tf.switch_case(number, [lambda: x * weights, lambda: x + weights])
    result: tf.Tensor = chosen * tf.reduce_sum(gathered) * tf.cast(size[0], tf.float32)
    return result


def unchanged(x: tf.Tensor) -> tf.Tensor:
    """A loop without variables beside one that has some."""
    doubled = tf.while_loop(lambda i, _: i < 3, lambda i, y: (i + 1, y * 2.0), (0, x))[1]
    return nested(doubled)


def frozen(make: Network, add_shapes: bool = False) -> tuple[GraphDef, Any]:
    """The frozen graph, and what the graph computed before it was frozen."""
    with tf.Graph().as_default() as graph, tf.Session() as session:
        # no result is near zero: a sum that cancels would differ in more than its last places
        tf.set_random_seed(5)
        x = tf.placeholder(tf.float32, [None, 5, 3], name="x")
        y = tf.identity(make(x), name="y")
        session.run(tf.global_variables_initializer())
        definition = graph.as_graph_def(add_shapes=add_shapes)
        before = definition.SerializeToString(deterministic=True)
        result = tf.graph_util.convert_variables_to_constants(session, definition, ["y"])
        assert definition.SerializeToString(deterministic=True) == before, "the argument is changed"
        return result, session.run(y, {x: X})


@pytest.mark.parametrize("add_shapes", [False, True])
@pytest.mark.parametrize("make", [lstm, nested, cases, unchanged], ids=lambda make: make.__name__)
def test_functions_take_values_for_variables(make: Network, add_shapes: bool) -> None:
    definition, wanted = frozen(make, add_shapes)
    nodes = [*definition.node, *(node for function in definition.library.function for node in function.node_def)]
    assert not {node.op for node in nodes} & {"VarHandleOp", "ReadVariableOp", "ResourceGather", "VariableShape"}
    types = [arg.type for function in definition.library.function for arg in function.signature.input_arg]
    assert DT_RESOURCE not in types
    with tf.Graph().as_default() as graph:
        tf.import_graph_def(GraphDef.FromString(definition.SerializeToString()), name="")
        with tf.Session(graph=graph) as session:
            np.testing.assert_allclose(session.run("y:0", {"x:0": X}), wanted, rtol=1e-5)


def test_what_is_left_alone_is_kept_beside_the_copy() -> None:
    """Of two loops of the same body, one has a variable that is not frozen."""
    with tf.Graph().as_default() as graph, tf.Session() as session:
        variables = [tf.get_variable(name, [3]) for name in ("one", "other")]
        x = tf.placeholder(tf.float32, [None, 5, 3], name="x")
        ends = [tf.while_loop(lambda i, _: i < 2, lambda i, y, v=v: (i + 1, y + v), (0, x))[1] for v in variables]
        y = tf.add_n(ends, name="y")
        session.run(tf.global_variables_initializer())
        wanted = session.run(y, {x: X})
        definition = tf.graph_util.convert_variables_to_constants(
            session, graph.as_graph_def(), ["y"], variable_names_blacklist=["other"]
        )
        kept = session.run(variables[1])
    with tf.Graph().as_default() as graph:
        tf.import_graph_def(definition, name="")
        handle = graph.get_tensor_by_name("other:0")
        assign = tf.raw_ops.AssignVariableOp(resource=handle, value=kept)
        with tf.Session(graph=graph) as session:
            session.run(assign)
            np.testing.assert_allclose(session.run("y:0", {"x:0": X}), wanted, rtol=1e-5)


def test_a_variable_that_a_loop_changes_is_named() -> None:
    with tf.Graph().as_default() as graph, tf.Session() as session:
        v = tf.get_variable("v", initializer=1.0)
        count = tf.while_loop(lambda i: i < 3, lambda i: [i + tf.cast(v.assign_add(1.0) * 0 + 1, tf.int32)], [0])
        tf.identity(count, name="y")
        session.run(v.initializer)
        with pytest.raises(ValueError, match=r"AssignAddVariableOp.* changes the variable"):
            tf.graph_util.convert_variables_to_constants(session, graph.as_graph_def(), ["y"])
