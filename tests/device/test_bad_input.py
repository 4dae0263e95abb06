"""Steps that are asked for wrongly: feeds, fetches, variables without values, indices, NaN.

Each refusal names the node, the line that created it, what was expected and what came, and a way out; and it leaves
everything as it was. test_session.py has more wrong feeds and fetches, one line each.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import anabranch as tf
from tests.device.refusals import refused


# ---------------------------------------------------------------------- feeds
@pytest.mark.parametrize(
    ("key", "parts"),
    [
        ("image:0", ("'image:0'", "does not exist in the graph", "Did you mean 'images'?")),
        ("model/images:0", ("'model/images:0'", "Did you mean 'images'?")),
        ("images", ("'images'", "refers to an Operation", "such as 'images:0'")),
        ("images:1", ("'images:1'", "only has 1 outputs")),
        ("zzz:0", ("'zzz:0'", "graph.get_operations()")),
    ],
)
def test_wrong_name_of_a_feed(key: str, parts: tuple[str, ...]) -> None:
    images = tf.placeholder(tf.float32, [2], name="images")
    with tf.Session() as session, refused(TypeError, "Cannot interpret feed_dict key", *parts):
        session.run(images, {key: [1, 2]})


@pytest.mark.parametrize(
    ("dtype", "value", "error", "parts"),
    [
        (tf.float32, "text", ValueError, ("'text'", "float32", "Convert the value")),
        (tf.float32, np.complex64(1j), TypeError, ("complex", "float32", "real part")),
        (tf.int32, 1 << 40, TypeError, ("1099511627776", "int32", "larger type")),
        (tf.int32, None, TypeError, ("None", "int32", "leave it out of feed_dict")),
        (tf.string, 3, TypeError, ("string", "got 3", "Convert the value")),
    ],
)
def test_wrong_dtype_of_a_feed(dtype: Any, value: Any, error: Any, parts: tuple[str, ...]) -> None:
    x = tf.placeholder(dtype, [], name="x")  # placeholder of a dtype
    with tf.Session() as session, refused(error, "'x:0'", *parts, line="placeholder of a dtype"):
        session.run(x, {x: value})


def test_wrong_shape_of_a_feed() -> None:
    x = tf.placeholder(tf.float32, [None, 3], name="x")  # placeholder of a shape
    seen = tf.Variable(0, name="seen")
    step = [tf.reduce_sum(x), seen.assign_add(1)]
    with tf.Session() as session:
        session.run(seen.initializer)
        for value in (np.zeros([3]), np.zeros([3, 2]), np.zeros([1, 2, 3])):
            parts = ("'x:0'", "'(?, 3)'", str(value.shape), "reshape the value")
            with refused(ValueError, *parts, line="placeholder of a shape"):
                session.run(step, {x: value})
        with refused(ValueError, "'x:0'", "inhomogeneous", line="placeholder of a shape"):
            session.run(step, {x: [[1, 2, 3], [4]]})
        assert session.run(seen) == 0


def test_a_missing_feed() -> None:
    x = tf.placeholder(tf.float32, [3], name="x")  # placeholder without a value
    seen = tf.Variable(0, name="seen")
    with tf.Session() as session:
        session.run(seen.initializer)
        parts = ("'x'", "float", "[3]", "pass it in feed_dict")
        with refused(tf.errors.InvalidArgumentError, *parts, line="placeholder without a value"):
            session.run([x + 1, seen.assign_add(1)])
        assert session.run(seen) == 0


def test_shapes_that_contradict_only_when_fed() -> None:
    a, b = tf.placeholder(tf.float32, name="a"), tf.placeholder(tf.float32, name="b")
    product = tf.matmul(a, b, name="product")  # product of what is fed
    done = tf.Variable(0, name="done")
    with tf.Session() as session:
        session.run(done.initializer)
        parts = ("'product'", "a:0 (2, 3)", "b:0 (2, 3)", "look at what was fed")
        with refused(tf.errors.InvalidArgumentError, *parts, line="product of what is fed"):
            session.run([product, done.assign_add(1)], {a: np.ones([2, 3]), b: np.ones([2, 3])})
        assert session.run(done) == 0
        assert session.run(product, {a: np.ones([2, 3]), b: np.ones([3, 1])}).tolist() == [[3], [3]]


# ---------------------------------------------------------------------- fetches
@pytest.mark.parametrize(
    ("fetch", "error", "parts"),
    [
        ("los:0", ValueError, ("'los:0'", "does not exist", "Did you mean 'loss'?")),
        ("los", ValueError, ("'los'", "not in the graph", "Did you mean 'loss'?")),
        ("loss:2", ValueError, ("'loss:2'", "only has 1 outputs")),
        (None, TypeError, ("None", "invalid type")),
        (3.5, TypeError, ("3.5", "must be a string or Tensor")),
    ],
)
def test_unknown_fetch(fetch: Any, error: Any, parts: tuple[str, ...]) -> None:
    tf.constant(1.0, name="loss")
    with tf.Session() as session, refused(error, "Fetch argument", *parts):
        session.run({"good": "loss:0", "bad": [fetch]})


# ---------------------------------------------------------------------- another graph
def test_tensor_of_another_graph() -> None:
    here = tf.constant(1.0, name="here")
    with tf.Graph().as_default():
        foreign = tf.constant(2.0, name="foreign")  # elsewhere
    before = [op.name for op in tf.get_default_graph().get_operations()]
    with tf.Session() as session:
        parts = ("foreign:0", "not an element of this graph", "as_default()")
        with refused(ValueError, *parts, line="elsewhere"):
            session.run(foreign)
        with refused(TypeError, *parts, line="elsewhere"):
            session.run(here, {foreign: 1.0})
    with refused(ValueError, "foreign:0", "Add", "another graph", "as_default()", line="elsewhere"):
        tf.add(here, foreign)
    with refused(ValueError, "foreign:0", "same graph", "as_default()", line="elsewhere"):
        tf.matmul(here, foreign)
    with (
        refused(ValueError, "'foreign'", "not an element of this graph", "as_default()", line="elsewhere"),
        tf.control_dependencies([foreign]),
    ):
        pass
    assert [op.name for op in tf.get_default_graph().get_operations()] == before


# ---------------------------------------------------------------------- variables without a value
def test_uninitialised_variable() -> None:
    ready = tf.Variable(1.0, name="ready")
    weights = tf.get_variable("weights", [2])
    twice = weights * 2  # reads the variable
    with tf.Session() as session:
        session.run(ready.initializer)
        parts = ("uninitialized value weights", "tf.global_variables_initializer()", "restore a checkpoint")
        with refused(tf.errors.FailedPreconditionError, *parts, line="reads the variable"):
            session.run([ready.assign_add(1.0), twice])
        assert session.run(ready) == 1
        with refused(tf.errors.FailedPreconditionError, *parts):
            session.run(tf.assign_add(weights, [1.0, 1.0]))


def test_uninitialised_slot_of_an_optimizer() -> None:
    weights = tf.get_variable("weights", [2], initializer=tf.ones_initializer())
    train = tf.train.AdamOptimizer(0.1).minimize(tf.reduce_sum(weights * weights))  # makes the slots
    with tf.Session() as session:
        session.run(weights.initializer)
        with refused(tf.errors.FailedPreconditionError, "weights/Adam", "initializer", line="makes the slots"):
            session.run(train)
        assert session.run(weights).tolist() == [1, 1]


# ---------------------------------------------------------------------- indices
@pytest.mark.parametrize("bad", [-1, 4])
def test_gather_index_out_of_range(bad: int) -> None:
    """XLA alone would take the nearest row; here the step fails and nothing has changed."""
    table = tf.get_variable("table", [4, 2], initializer=tf.ones_initializer())
    ids = tf.placeholder(tf.int32, [None], name="ids")
    rows = tf.nn.embedding_lookup(table, ids, name="rows")  # looks rows up
    seen = tf.get_variable("seen", [], tf.int64, initializer=tf.zeros_initializer())
    train = tf.train.AdagradOptimizer(0.5).minimize(tf.reduce_sum(rows))
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        before = session.run(tf.global_variables())
        parts = ("'rows'", f"indices[1] = {bad}", "[0, 4)", "keep indices in range")
        with refused(tf.errors.InvalidArgumentError, *parts, line="looks rows up"):
            session.run([train, seen.assign_add(1)], {ids: [0, bad]})
        for old, new in zip(before, session.run(tf.global_variables()), strict=True):
            np.testing.assert_array_equal(old, new)
        session.run(train, {ids: [0, 3]})
        assert session.run(table)[:, 0].tolist() != [1, 1, 1, 1]


def test_gather_of_a_constant() -> None:
    ids = tf.placeholder(tf.int64, [2], name="ids")
    picked = tf.gather([1.0, 2.0, 3.0], ids, name="picked")  # picks elements
    with tf.Session() as session:
        parts = ("'picked'", "indices[1] = 7", "[0, 3)", "keep indices in range")
        with refused(tf.errors.InvalidArgumentError, *parts, line="picks elements"):
            session.run(picked, {ids: [0, 7]})
        assert session.run(picked, {ids: [0, 2]}).tolist() == [1, 3]


# ---------------------------------------------------------------------- NaN
@pytest.mark.parametrize(("value", "kind"), [(-1.0, "NaN"), (0.0, "Inf")])
def test_nan_guard(value: float, kind: str) -> None:
    x = tf.placeholder(tf.float32, [2], name="x")
    logarithm = tf.log(x, name="logarithm")  # takes the logarithm
    guarded = tf.check_numerics(logarithm, "the logarithm of x", name="guard")
    total = tf.Variable(0.0, name="total")
    step = total.assign_add(tf.reduce_sum(guarded))
    with tf.Session() as session:
        session.run(total.initializer)
        parts = (
            "'guard'",
            "the logarithm of x",
            f"had {kind} values; it is logarithm:0",
            "add_check_numerics_ops",
        )
        with refused(tf.errors.InvalidArgumentError, *parts, line="takes the logarithm"):
            session.run(step, {x: [1.0, value]})
        assert session.run(total) == 0
        session.run(step, {x: [1.0, 1.0]})


def test_all_tensors_guarded_at_once() -> None:
    x = tf.placeholder(tf.float32, [], name="x")
    first = tf.log(x, name="first")  # where the trouble starts
    last = tf.exp(first, name="last")
    guard = tf.add_check_numerics_ops()
    with tf.Session() as session:
        words = "first:0 : Tensor had NaN values; it is first:0"
        with refused(tf.errors.InvalidArgumentError, words, line="where the trouble starts"):
            session.run([last, guard], {x: -1.0})
        assert session.run([last, guard], {x: 1.0})[0] == 1


@pytest.mark.parametrize(
    ("make", "where"),
    [
        (
            lambda size: tf.fill(tf.stack([size]), 1.0, name="pieces"),
            "OOM when allocating tensor with shape[1125899906842624] and type float32",
        ),
        (lambda size: tf.range(tf.cast(size, tf.float64), name="pieces"), "Range: the host is out of memory"),
        (
            lambda size: tf.fill(tf.stack([size]), b"text", name="pieces"),
            "OOM when allocating tensor with shape[1125899906842624]",
        ),
    ],
    ids=["on the device", "known while an island is traced", "on the host"],
)
def test_a_size_beyond_the_memory(make: Callable[[tf.Tensor], tf.Tensor], where: str) -> None:
    size = tf.placeholder(tf.int64, [], name="size")
    pieces = make(size)
    with tf.Session() as session, refused(tf.errors.ResourceExhaustedError, where, "'pieces'", "test_bad_input.py:"):
        session.run(pieces, {size: 1 << 50})
