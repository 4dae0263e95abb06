"""A graph and its parts: edges known at both ends, names, and changes that are taken back as a whole."""

from __future__ import annotations

import difflib
import re
import threading
from typing import Any

import pytest

import anabranch as tf
from anabranch.core.shapes import TensorShape
from anabranch.graph.creation_site import user_frame
from anabranch.graph.graph import Graph, op_def_of
from anabranch.graph.operation import Operation
from anabranch.ops import raw
from anabranch.proto.graph_pb2 import GraphDef, NodeDef


@pytest.fixture
def graph() -> Any:
    with Graph().as_default() as made:
        yield made


def check_edges(graph: Graph) -> None:
    """Whatever is an input of an operation knows that operation as often, and the other way round."""
    operations = graph.get_operations()
    for op in operations:
        for tensor in op.inputs:
            assert tensor._consumers.count(op) == op.inputs.count(tensor), op.name
        for tensor in op.outputs:
            assert all(tensor in consumer.inputs for consumer in tensor.consumers()), tensor.name
        assert all(op in before.control_outputs for before in op.control_inputs), op.name
        assert all(op in after.control_inputs for after in op.control_outputs), op.name
    assert {op.name: op for op in operations} == graph._by_name
    assert [op._id for op in operations] == list(range(len(operations)))


def small_program() -> tuple[Operation, Operation]:
    x = tf.placeholder(tf.float32, [2], name="x")
    y = raw.Mul(x, x, name="y")
    with tf.control_dependencies([y]):
        z = raw.AddV2(x, y, name="z")
    return y.op, z.op


# ---------------------------------------------------------------------- edges
def test_edges_are_known_at_both_ends(graph: Graph) -> None:
    y, z = small_program()
    check_edges(graph)
    x = graph.get_tensor_by_name("x:0")
    assert y.inputs == [x] * 2
    assert {x.experimental_ref(): 1}[x.experimental_ref()] == 1
    assert z.control_inputs == []  # z waits for y already, because it takes its result
    with tf.control_dependencies([z]):
        assert tf.no_op().control_inputs == [z]
    check_edges(graph)


def test_an_input_is_exchanged_at_both_ends(graph: Graph) -> None:
    y, z = small_program()
    w = tf.placeholder(tf.float32, [2], name="w")
    before = graph.structure_version
    y._update_input(1, w)
    assert [t.name for t in y.inputs] == ["x:0", "w:0"]
    assert graph.structure_version > before
    check_edges(graph)
    assert w.consumers() == [y]
    with Graph().as_default():
        foreign = tf.placeholder(tf.float32, [2], name="foreign")
    with pytest.raises(ValueError, match="foreign:0 is of another graph than operation y"):
        y._update_input(0, foreign)
    check_edges(graph)
    assert z.inputs[0].name == "x:0"


def test_a_repeated_control_edge_is_one(graph: Graph) -> None:
    first, last = tf.no_op(name="first"), tf.no_op(name="last")
    last._add_control_inputs([first, first])
    last._add_control_input(first)
    assert last.control_inputs == [first]
    assert first.control_outputs == [last]


# ---------------------------------------------------------------------- all or nothing
@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_a_block_that_raises_leaves_the_graph_as_it_was(graph: Graph, error: type[BaseException]) -> None:
    y, _ = small_program()
    names = [op.name for op in graph.get_operations()]

    def build() -> None:
        with tf.name_scope("inner"), tf.control_dependencies([y]):
            doubled = raw.Mul(y.outputs[0], y.outputs[0])
            tf.cond(tf.reduce_sum(doubled) > 0, lambda: doubled, lambda: -doubled)
        raise error

    with pytest.raises(error), graph.all_or_nothing():
        build()
    assert [op.name for op in graph.get_operations()] == names
    assert graph.functions == {}
    check_edges(graph)
    with tf.name_scope("inner"):  # the name is free again
        assert tf.no_op(name="n").name == "inner/n"


def test_a_block_that_ends_leaves_what_it_built(graph: Graph) -> None:
    with graph.all_or_nothing():
        small_program()
    assert len(graph.get_operations()) == 3
    check_edges(graph)


# ---------------------------------------------------------------------- making operations
def test_an_operation_that_cannot_be_made_leaves_nothing(graph: Graph) -> None:
    x = tf.placeholder(tf.float32, [2, 3], name="x")
    site = re.escape(__file__)
    with pytest.raises(ValueError, match=rf"operation 'product' \(MatMul\), created at {site}:\d+: .*x:0 \(2, 3\)"):
        raw.MatMul(x, x, name="product")
    assert [op.name for op in graph.get_operations()] == ["x"]
    assert x.consumers() == []
    check_edges(graph)


def test_inputs_of_two_graphs_are_refused(graph: Graph) -> None:
    x = tf.placeholder(tf.float32, [], name="x")
    with Graph().as_default() as other:
        assert raw.Neg(x).graph is graph  # where its input is
        foreign = tf.placeholder(tf.float32, [], name="foreign")
        with pytest.raises(ValueError, match="graph"):
            raw.AddV2(x, foreign)
    with pytest.raises(ValueError, match="input foreign:0 of a new Neg operation belongs to another graph"):
        graph.create_op(op_def_of("Neg"), [foreign], {"T": tf.float32})
    check_edges(graph)
    check_edges(other)


def test_a_finalized_graph_takes_nothing(graph: Graph) -> None:
    y, _ = small_program()
    graph.finalize()
    for change in (tf.no_op, lambda: y._update_input(0, y.inputs[1]), lambda: graph.add_to_collection("c", 1)):
        with pytest.raises(RuntimeError, match="finalized"):
            change()
    assert graph.version == 3
    check_edges(graph)


def test_threads_that_build_get_names_of_their_own(graph: Graph) -> None:
    def build() -> None:
        with graph.as_default():
            for _ in range(50):
                raw.Neg(x, name="n")

    x = tf.placeholder(tf.float32, [], name="x")
    threads = [threading.Thread(target=build) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(op.name for op in x.consumers()) == sorted(["n", *(f"n_{i}" for i in range(1, 200))])
    check_edges(graph)


def test_the_site_is_the_line_outside_the_package(graph: Graph) -> None:
    here, op = user_frame(), tf.reduce_sum(tf.placeholder(tf.float32, [None]), name="sum").op
    assert op.site == here
    assert op.site.function == "test_the_site_is_the_line_outside_the_package"
    assert op.creation_site == f"{__file__}:{here.line}"
    assert all(o.site == here for o in graph.get_operations())


# ---------------------------------------------------------------------- finding them
@pytest.mark.parametrize(
    ("name", "error", "told"),
    [
        ("y", ValueError, "refers to an Operation, not a Tensor"),
        ("other", ValueError, "looks like an .invalid. Operation name"),
        ("y:", ValueError, "not a valid one"),
        (":0", ValueError, "not a valid one"),
        ("y:x", ValueError, "not a valid one"),
        ("y:1", KeyError, "only has 1 outputs"),
        ("Y:0", KeyError, "Did you mean 'y'"),
        (3, TypeError, "strings"),
    ],
)
def test_tensors_that_cannot_be_found(graph: Graph, name: Any, error: type[Exception], told: str) -> None:
    small_program()
    with pytest.raises(error, match=told):
        graph.get_tensor_by_name(name)


def test_shapes_that_are_learnt_later_must_agree(graph: Graph) -> None:
    x = tf.placeholder(tf.float32, [None, 3], name="x")
    x.set_shape([2, None])
    assert x.shape.as_list() == [2, 3]
    with pytest.raises(ValueError, match=r"x:0 .*\(2, 3\) and the given shape \[4, 3\] contradict"):
        x.set_shape([4, 3])
    assert x.shape.as_list() == [2, 3]


def test_a_rule_that_forgets_an_output_is_found_out(graph: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    from anabranch.core.op_def import Rule
    from anabranch.core.registry import all_op_defs

    monkeypatch.setattr(all_op_defs()["Unique"], "shape_rule", Rule.of(lambda x: TensorShape(None)))
    with pytest.raises(ValueError, match="the shape rule of Unique gave 1 shapes for 2 outputs"):
        raw.Unique(tf.placeholder(tf.int32, [3]))


def test_similar_names_are_looked_for_when_someone_reads(graph: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    looked: list[str] = []

    def look(name: str, *_: object) -> list[str]:
        looked.append(name)
        return []

    monkeypatch.setattr(difflib, "get_close_matches", look)
    small_program()
    with pytest.raises(KeyError) as caught:
        graph.get_operation_by_name("absent")
    assert not looked
    assert "get_operations()" in str(caught.value)
    assert looked == ["absent"]


LOWERING = "_lower_using_switch_merge"


def functional_nodes(message: GraphDef) -> list[NodeDef]:
    """Loops and conditionals, those in functions included."""
    nodes = [*message.node, *(node for function in message.library.function for node in function.node_def)]
    return [node for node in nodes if node.op in {"While", "StatelessWhile", "If", "StatelessIf"}]


def test_loops_and_conditionals_say_that_tensorflow_is_to_lower_them(graph: Graph) -> None:
    """Otherwise it runs them by calls within calls, and some thousand iterations end its process."""
    x = tf.placeholder(tf.float32, [])
    y = tf.while_loop(lambda v: v < 100.0, lambda v: tf.cond(v > 1.0, lambda: v * 2.0, lambda: v + 1.0), [x])
    plain = graph.as_graph_def()
    tf.gradients(y, x)
    for message, count in ((plain, 2), (graph.as_graph_def(), 6)):
        found = functional_nodes(message)
        assert len(found) >= count
        assert all(node.attr[LOWERING].b for node in found)
    for node in functional_nodes(plain):
        node.attr[LOWERING].b = False
    with Graph().as_default() as other:
        tf.import_graph_def(plain, name="")
    assert not any(node.attr[LOWERING].b for node in functional_nodes(other.as_graph_def()))


def test_texts_of_tensors_and_operations_are_tensorflows() -> None:
    with Graph().as_default() as graph:
        x = tf.placeholder(tf.int32, name="x")
        with graph.device("/cpu:0"):
            y = tf.placeholder(tf.float32, [None, 2], name="y")
        assert str(x) == 'Tensor("x:0", dtype=int32)'
        assert str(y) == 'Tensor("y:0", shape=(?, 2), dtype=float32, device=/device:CPU:0)'
        assert repr(x) == "<tf.Tensor 'x:0' shape=<unknown> dtype=int32>"
        assert str(x.op) == str(x.op.node_def)
        assert str(x.op).startswith('name: "x"\nop: "Placeholder"\nattr {')


def test_a_static_shape_as_a_tuple() -> None:
    with Graph().as_default():
        shapes: list[Any] = [[2, None], [], None]
        assert [tf.placeholder(tf.float32, shape)._shape_tuple() for shape in shapes] == [(2, None), (), None]
