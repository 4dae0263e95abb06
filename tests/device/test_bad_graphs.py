"""Graphs that cannot be built: names, shapes, dtypes, gradients, and GraphDefs of others.

Each refusal names the node, the line that created it where there is one, what was expected and what came, and a way
out; and nothing of what was refused is in the graph. tests/unit/graph/test_graphdef.py refuses more GraphDefs.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from google.protobuf import text_format

import anabranch as tf
from tests.device.refusals import refused


def names() -> list[str]:
    return [op.name for op in tf.get_default_graph().get_operations()]


# ---------------------------------------------------------------------- names
@pytest.mark.parametrize("name", ["a b", "_a", "a:0", "a\n", "é"])
@pytest.mark.parametrize(
    "make",
    [
        lambda name: tf.constant(1.0, name=name),
        lambda name: tf.Variable(1.0, name=name),
        lambda name: tf.get_variable(name, [2]),
        lambda name: tf.name_scope(name).__enter__(),
        lambda name: tf.variable_scope(name).__enter__(),
    ],
    ids=["constant", "Variable", "get_variable", "name_scope", "variable_scope"],
)
def test_invalid_name(make: Any, name: str) -> None:
    with refused(ValueError, repr(name), "not a valid", "use letters, digits"):
        make(name)
    assert names() == []
    assert tf.global_variables() == []


def test_duplicate_variable() -> None:
    tf.get_variable("weights", [3])  # the first of them
    before = names()
    with refused(ValueError, "weights", "already exists", "reuse=tf.AUTO_REUSE", line="the first of them"):
        tf.get_variable("weights", [3])
    assert names() == before
    assert len(tf.global_variables()) == 1


def test_variable_that_is_not_there_to_be_shared() -> None:
    with tf.variable_scope("layer", reuse=True), refused(ValueError, "layer/weights", "does not exist", "AUTO_REUSE"):
        tf.get_variable("weights", [3])
    assert names() == []


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        ({"shape": [4]}, ("specified shape (4,)", "found shape (3,)")),
        ({"shape": [3], "dtype": tf.float64}, ("specified dtype float64", "found dtype float32")),
    ],
)
def test_shared_variable_that_does_not_fit(arguments: Any, parts: tuple[str, ...]) -> None:
    with tf.variable_scope("layer") as scope:
        tf.get_variable("weights", [3])  # what is shared
        scope.reuse_variables()
        with refused(ValueError, "layer/weights", *parts, "another name or scope", line="what is shared"):
            tf.get_variable("weights", **arguments)


def test_two_operations_cannot_have_one_name_but_get_two() -> None:
    assert [tf.constant(i, name="same").op.name for i in range(3)] == ["same", "same_1", "same_2"]


# ---------------------------------------------------------------------- shapes and dtypes
def test_matrices_that_do_not_go_together() -> None:
    x = tf.placeholder(tf.float32, [2, 3], name="x")
    parts = ("'product' (MatMul)", "x:0 (2, 3)", "3 and 2", "transpose_b")
    with refused(ValueError, *parts, line="product of two"):
        tf.matmul(x, x, name="product")  # product of two
    assert names() == ["x"]
    assert tf.matmul(x, x, transpose_b=True).shape.as_list() == [2, 2]


def test_shapes_that_do_not_broadcast() -> None:
    x, y = tf.placeholder(tf.float32, [2, 3], name="x"), tf.placeholder(tf.float32, [4], name="y")
    parts = ("(AddV2)", "x:0 (2, 3)", "y:0 (4,)", "3 and 4", "tf.expand_dims")
    with refused(ValueError, *parts, line="sum of two"):
        _ = x + y  # sum of two
    assert names() == ["x", "y"]


@pytest.mark.parametrize(
    ("build", "parts"),
    [
        (lambda x: tf.reshape(x, [4, 2], name="bad"), ("'bad' (Reshape)", "6 elements", "(4, 2)")),
        (lambda x: tf.concat([x, [[1.0]]], 0, name="bad"), ("'bad' (ConcatV2)", "x:0 (2, 3)", "3 and 1")),
        (lambda x: tf.nn.bias_add(x, [1.0], name="bad"), ("'bad' (BiasAdd)", "x:0 (2, 3)")),
        (lambda x: tf.nn.conv2d(x, x, [1, 1, 1, 1], "SAME", name="bad"), ("'bad' (Conv2D)", "rank 4", "(2, 3)")),
        (lambda x: tf.squeeze(x, [0], name="bad"), ("'bad' (Squeeze)", "x:0 (2, 3)")),
        (lambda x: tf.argmax(x, 2, name="bad"), ("'bad' (ArgMax)", "x:0 (2, 3)")),
        (lambda x: tf.split(x, 2, 1, name="bad"), ("'bad' (Split)", "x:0 (2, 3)")),
    ],
    ids=["reshape", "concat", "bias_add", "conv2d", "squeeze", "argmax", "split"],
)
def test_shape_conflict(build: Any, parts: tuple[str, ...]) -> None:
    x = tf.placeholder(tf.float32, [2, 3], name="x")
    with refused(ValueError, *parts, "test_bad_graphs.py:"):
        build(x)
    assert "bad" not in names()


def test_variable_and_value_of_other_shapes() -> None:
    weights = tf.get_variable("weights", [3])
    with refused(ValueError, "weights:0", "(3,)", "(4,)", "validate_shape=False"):
        weights.assign(tf.zeros([4]))


def test_dtypes_that_do_not_go_together() -> None:
    x, y = tf.placeholder(tf.float32, [], name="x"), tf.placeholder(tf.float64, [], name="y")
    parts = ("'y' of 'AddV2'", "y_1:0", "float64", "float32", "tf.cast")
    with refused(TypeError, *parts, line="the other dtype"):
        _ = x + tf.identity(y, name="y")  # the other dtype
    assert "add" not in names()


# ---------------------------------------------------------------------- gradients
def test_no_gradient_reaches_a_variable() -> None:
    weights = tf.get_variable("weights", [2, 3])
    best = tf.argmax(weights, 1, name="best")  # the end of the gradient
    loss = tf.reduce_sum(tf.cast(best, tf.float32))
    assert tf.gradients(loss, weights) == [None]
    parts = ("No gradients provided", "weights:0", "'best' (ArgMax", "use operations that have a gradient")
    with refused(ValueError, *parts, line="the end of the gradient"):
        tf.train.GradientDescentOptimizer(0.1).minimize(loss)
    assert not any(op.type == "ResourceApplyGradientDescent" for op in tf.get_default_graph().get_operations())


def test_variables_that_the_loss_does_not_use() -> None:
    tf.get_variable("idle", [2])
    loss = tf.reduce_sum(tf.placeholder(tf.float32, [2]))
    with refused(ValueError, "No gradients provided", "idle:0", "pass the variables that are as var_list"):
        tf.train.GradientDescentOptimizer(0.1).minimize(loss)


def test_loss_of_integers() -> None:
    tf.get_variable("weights", [2])
    loss = tf.constant(1, name="loss")
    with refused(ValueError, "loss:0", "'int32'", "'float32'", "tf.cast"):
        tf.train.GradientDescentOptimizer(0.1).minimize(loss)


def test_gradient_that_nobody_registered() -> None:
    x = tf.constant(1.0, name="x")
    with tf.get_default_graph().gradient_override_map({"Square": "NobodysGradient"}):
        y = tf.square(x, name="y")  # has no gradient
    with refused(LookupError, "'y'", "Square", "tf.RegisterGradient", line="has no gradient"):
        tf.gradients(y, x)


def test_initial_gradients_that_do_not_fit() -> None:
    x = tf.placeholder(tf.float32, [2], name="x")
    y = tf.identity(x, name="y")
    with refused(ValueError, "y:0", "(3,)", "(2,)"):
        tf.gradients(y, x, grad_ys=[tf.zeros([3])])
    with refused(TypeError, "y:0", "float64", "float32"):
        tf.gradients(y, x, grad_ys=[tf.zeros([2], tf.float64)])
    with refused(ValueError, "2 elements for 1 ys", "one gradient per y"):
        tf.gradients(y, x, grad_ys=[None, None])


# ---------------------------------------------------------------------- GraphDef
_T = 'attr { key: "T" value { type: DT_FLOAT } }'


@pytest.mark.parametrize(
    ("text", "error", "parts"),
    [
        (
            'node { name: "a" op: "FrobnicateV9" }',
            tf.errors.NotFoundError,
            ("'FrobnicateV9'", "node 'a'", "extract_sub_graph"),
        ),
        (
            f'node {{ name: "a" op: "Neg" input: "b" {_T} }} node {{ name: "b" op: "Neg" input: "a" {_T} }}',
            ValueError,
            ("node 'a' (Neg)", "cycle", "a <- b <- a", "remove one"),
        ),
        (
            f'node {{ name: "a" op: "Neg" input: "ghost" {_T} }}',
            ValueError,
            ("node 'a' (Neg)", "Unknown input node 'ghost'", "input_map"),
        ),
        (
            'node { name: "a" op: "NoOp" } node { name: "a" op: "NoOp" }',
            ValueError,
            ("node 'a' (NoOp)", "not unique", "rename"),
        ),
    ],
    ids=["an unknown operation", "a cycle", "a missing input", "a name twice"],
)
def test_graph_def(text: str, error: type[Exception], parts: tuple[str, ...]) -> None:
    kept = tf.constant(1.0, name="kept")
    graph_def = text_format.Parse(f'node {{ name: "fine" op: "NoOp" }} {text}', tf.GraphDef())
    with refused(error, *parts):
        tf.import_graph_def(graph_def, name="")
    assert names() == ["kept"]
    with tf.Session() as session:
        assert session.run(kept) == 1


def test_graph_def_whose_shapes_contradict_each_other() -> None:
    with tf.Graph().as_default() as other:
        a, b = tf.placeholder(tf.float32, [2, 3], name="a"), tf.placeholder(tf.float32, [3, 2], name="b")
        tf.matmul(a, b, name="c")
        graph_def = other.as_graph_def()
    graph_def.node[1].attr["shape"].shape.dim[0].size = 5
    with refused(ValueError, "'part/c' (MatMul)", "3 and 5", "part/b:0 (5, 2)"):
        tf.import_graph_def(graph_def, name="part")
    assert names() == []


@pytest.mark.parametrize(
    ("kind", "build"),
    [
        ("While", lambda x: tf.while_loop(lambda i, _: i < 3, lambda i, y: [i + 1, tf.sqrt(y)], [0, x])[1]),
        ("If", lambda x: tf.cond(x > 1, lambda: tf.cast(x, tf.int32), lambda: tf.cast(x, tf.int32) + 1)),
        ("Case", lambda x: tf.switch_case(tf.cast(x, tf.int32), [lambda: x + 1, lambda: x * 2])),
    ],
)
def test_functions_that_do_not_fit_their_caller(kind: str, build: Any) -> None:
    """A function of another signature in the place of any of those that a loop or a conditional names."""
    with tf.Graph().as_default() as other:
        build(tf.placeholder(tf.float32, [], name="x"))
        graph_def = other.as_graph_def()
    (caller,) = [node.name for node in graph_def.node if node.op in (kind, f"Stateless{kind}")]
    strange = graph_def.library.function.add()
    strange.signature.name = "strange"
    strange.signature.input_arg.add(name="text", type=tf.string.as_datatype_enum)
    strange.signature.output_arg.add(name="result", type=tf.string.as_datatype_enum)
    strange.ret["result"] = "text"
    number = next(i for i, node in enumerate(graph_def.node) if node.name == caller)
    attrs = graph_def.node[number].attr
    places = [attr.func for attr in attrs.values() if attr.HasField("func")]
    places += [func for attr in attrs.values() for func in attr.list.func]
    assert len(places) == 2
    for place in places:
        kept, place.name = place.name, "strange"
        parts = (f"operation '{caller}'", "calls the function 'strange', which takes (string), not (")
        with refused(tf.errors.InvalidArgumentError, *parts):
            tf.import_graph_def(graph_def, name="")
        place.name = ""
        with refused((tf.errors.InvalidArgumentError, ValueError), caller):
            tf.import_graph_def(graph_def, name="")
        place.name = kept
    assert names() == []
    tf.import_graph_def(graph_def, name="")


@pytest.mark.parametrize("value", [{"i": 3}, {"type": 1}, {"s": b"loc:@a"}])
def test_colocation_of_another_kind(value: dict[str, Any]) -> None:
    graph_def = text_format.Parse('node { name: "a" op: "NoOp" }', tf.GraphDef())
    graph_def.node[0].attr["_class"].CopyFrom(tf.AttrValue(**value))
    with refused(ValueError, "node 'a' (NoOp)", "'_class'", "list(string)"):
        tf.import_graph_def(graph_def, name="")
    graph_def.node[0].attr["_class"].list.s.append(b"loc:@\xff")
    with refused(ValueError, "node 'a' (NoOp)", "unknown node"):
        tf.import_graph_def(graph_def, name="")
    assert names() == []


def test_bytes_that_are_no_graph_def(tmp_path: Any) -> None:
    path = tmp_path / "graph.pb"
    data = tf.Graph().as_graph_def().SerializeToString() + np.random.default_rng(0).bytes(50)
    path.write_bytes(data)
    with pytest.raises(Exception, match="graph|Wire|wire|parsing") as caught:
        tf.import_graph_def(tf.GraphDef.FromString(path.read_bytes()))
    assert type(caught.value).__name__ == "DecodeError"
    assert names() == []
