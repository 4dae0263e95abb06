"""GraphDefs with gradients of loops: they hold TensorFlow's operation types only, and come back as they were.

`tests/fuzz` gives them to TensorFlow itself; here they are read as TensorFlow reads them, without what their
annotations say.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import anabranch as tf
from anabranch.graph.graph import Graph
from anabranch.proto.graph_pb2 import GraphDef, NodeDef

_ROWS = np.array([[1.0, 2.0, 0.5], [0.1, 0.2, 0.3]], np.float32)


def _power(x: Any) -> Any:
    return tf.while_loop(lambda i, a: i < 4, lambda i, a: (i + 1, tf.sin(a) * x), (0, x))[1]


def _map(x: Any) -> Any:
    return tf.map_fn(lambda row: tf.sin(row) * row, x)


def _scan(x: Any) -> Any:
    return tf.scan(lambda a, row: tf.sin(row) * a, x, initializer=tf.constant([1.0, 2.0, 3.0]))


def _nested(x: Any) -> Any:
    def inner(row: Any) -> Any:
        times = tf.cast(tf.reduce_sum(row), tf.int32) + 2
        return tf.while_loop(lambda i, a: i < times, lambda i, a: (i + 1, tf.sin(a) * row), (0, row))[1]

    return tf.map_fn(inner, x)


def _arrays(x: Any) -> Any:
    """An element that is read, and gathered twice in one operation."""
    source = tf.TensorArray(tf.float32, 3, clear_after_read=False).unstack(tf.transpose(x))

    def body(i: Any, a: Any, written: Any) -> Any:
        twice = source.gather([0, 0, i])
        return i + 1, a * source.read(i) + tf.reduce_sum(twice, 0), written.write(i, a * source.read(0))

    _, y, written = tf.while_loop(lambda i, *_: i < 3, body, (0, x[:, 0], tf.TensorArray(tf.float32, 3)))
    return tf.reduce_sum(y**2) + tf.reduce_sum(written.stack() ** 2)


def _until(x: Any) -> Any:
    """A loop whose number of iterations the values decide, with a conditional inside."""

    def body(i: Any, a: Any) -> Any:
        return i + 1, tf.cond(i > 1, lambda: a * x[0], lambda: a + tf.exp(a))

    return tf.while_loop(lambda i, a: tf.reduce_sum(a) < 50.0, body, (0, x[0]))[1]


def _chosen(x: Any) -> Any:
    """Conditionals with intermediates of every branch, and a loop in one of them."""

    def power(v: Any) -> Any:
        return tf.while_loop(lambda i, a: i < 3, lambda i, a: (i + 1, tf.sin(a) * v), (0, v))[1]

    first = tf.switch_case(tf.constant(1), [lambda: tf.sin(tf.exp(x)), lambda: power(tf.cos(x)) * x, lambda: x])
    return tf.cond(tf.reduce_sum(x) > 0, lambda: tf.tanh(first * x), lambda: tf.exp(tf.sin(first)))


#: with the highest order of the gradients taken
_PROGRAMS = [(_power, 2), (_map, 2), (_scan, 1), (_nested, 1), (_arrays, 1), (_until, 1), (_chosen, 2)]


@pytest.fixture(scope="module", params=_PROGRAMS, ids=lambda row: str(row[0].__name__))
def exported(request: pytest.FixtureRequest) -> tuple[GraphDef, list[str], list[Any]]:
    """The GraphDef of a program with its gradients; names and values of what it computes."""
    program, orders = request.param
    with tf.Graph().as_default() as graph:
        x = tf.constant(_ROWS)
        found = [program(x)]
        for _ in range(orders):
            found += tf.gradients(found[-1], x)
        with tf.Session() as session:
            values = session.run(found)
    return graph.as_graph_def(add_shapes=True), [t.name for t in found], values


def _all_nodes(message: GraphDef) -> Iterator[NodeDef]:
    yield from message.node
    for function in message.library.function:
        yield from function.node_def


def _as_tensorflow_reads(message: GraphDef) -> GraphDef:
    plain = GraphDef()
    plain.CopyFrom(message)
    for node in _all_nodes(plain):
        node.attr.pop("_anabranch", None)
    return plain


def _imported(message: GraphDef, names: list[str], name: str = "") -> tuple[Graph, list[Any]]:
    with tf.Graph().as_default() as graph:
        tensors = tf.import_graph_def(message, return_elements=names, name=name)
        with tf.Session() as session:
            return graph, session.run(tensors)


_BESIDE = {"_LoopRecords", "_BranchValues"}


def _types(graph: Graph) -> list[str]:
    return [op.type for op in graph.get_operations()]


def test_no_type_is_ours_alone(exported: tuple[GraphDef, list[str], list[Any]]) -> None:
    message, _, _ = exported
    assert not [node.op for node in _all_nodes(message) if node.op.startswith("_")]


def test_it_means_the_same_in_tensorflows_vocabulary(exported: tuple[GraphDef, list[str], list[Any]]) -> None:
    message, names, values = exported
    graph, found = _imported(_as_tensorflow_reads(message), names)
    assert not {"_RecordingWhile", *_BESIDE} & {*_types(graph)}
    for a, b in zip(found, values, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4)


def test_it_comes_back_as_it_was(exported: tuple[GraphDef, list[str], list[Any]]) -> None:
    message, names, values = exported
    graph, found = _imported(message, names)
    assert _BESIDE & {*_types(graph)}
    assert not [op.name for op in graph.get_operations() if "_anabranch" in op.attrs]
    assert graph.as_graph_def(add_shapes=True).node == message.node
    for a, b in zip(found, values, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4)


def _changed(message: GraphDef, change: Callable[[NodeDef], None]) -> GraphDef:
    changed = GraphDef()
    changed.CopyFrom(message)
    change(next(node for node in changed.node if "_anabranch" in node.attr and node.op == "While"))
    return changed


def _take_another(node: NodeDef) -> None:
    other = NodeDef.FromString(node.attr["_anabranch"].s)
    other.input[1] = "somewhere_else"
    node.attr["_anabranch"].s = other.SerializeToString()


def _be_damaged(node: NodeDef) -> None:
    node.attr["_anabranch"].s = b"\xff\xff\xff"


def _be_of_another_type(node: NodeDef) -> None:
    node.attr["_anabranch"].s = NodeDef(name=node.name, op="NoOp").SerializeToString()


def _have_no_function(node: NodeDef) -> None:
    other = NodeDef.FromString(node.attr["_anabranch"].s)
    other.attr["body"].func.name = "missing"
    node.attr["_anabranch"].s = other.SerializeToString()


@pytest.mark.parametrize("change", [_take_another, _be_damaged, _be_of_another_type, _have_no_function])
def test_annotations_that_do_not_fit_are_not_believed(change: Callable[[NodeDef], None]) -> None:
    with tf.Graph().as_default() as graph:
        x = tf.constant([1.0, 2.0])
        (first,) = tf.gradients(_power(x), x)
        with tf.Session() as session:
            value = session.run(first)
    imported, (found,) = _imported(_changed(graph.as_graph_def(), change), [first.name])
    assert "_RecordingWhile" not in _types(imported)
    np.testing.assert_allclose(found, value, rtol=1e-5)


def test_a_loop_without_an_iteration_pops_from_no_list() -> None:
    """TensorFlow's gradient of a loop that never ran: its body would take an item from an empty list."""
    times = tf.placeholder(tf.int32, [])
    empty = tf.raw_ops.EmptyTensorList(
        element_shape=tf.zeros([0], tf.int32), max_num_elements=-1, element_dtype=tf.float32
    )

    def body(i: Any, total: Any, items: Any) -> Any:
        rest, item = tf.raw_ops.TensorListPopBack(
            input_handle=items, element_shape=tf.zeros([0], tf.int32), element_dtype=tf.float32
        )
        return i + 1, total + item, rest

    _, total, _ = tf.while_loop(lambda i, *_: i < times, body, (0, 1.5, empty))
    with tf.Session() as session:
        assert session.run(total, {times: 0}) == 1.5
        with pytest.raises(tf.errors.InvalidArgumentError, match="pop from an empty list"):
            session.run(total, {times: 1})
