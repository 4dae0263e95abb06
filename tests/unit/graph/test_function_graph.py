"""Function graphs: what a body takes from the graphs around it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import anabranch as tf
from anabranch.graph.constants import constant_value
from anabranch.graph.function_graph import FunctionGraph
from anabranch.graph.graph import Graph
from anabranch.graph.loop_bodies import closure_of_parameters, fixed_parameters, parameters_behind
from anabranch.ops import raw


@pytest.fixture
def outer() -> Any:
    with Graph().as_default() as made:
        yield made


def test_a_tensor_is_captured_once(outer: Graph) -> None:
    x = tf.placeholder(tf.float32, [2], name="scope/x")
    body = FunctionGraph("body", outer)
    declared = body.add_parameter(tf.float32, [], "declared")
    with body.as_default():
        y = raw.Mul(x, declared)
        assert raw.Neg(x).op.inputs == [y.op.inputs[0]]
    inner = y.op.inputs[0]
    assert body.captures == [x]
    assert body.captured_parameters == [inner]
    assert body.inputs == [declared, inner]
    assert (inner.dtype, inner.shape.as_list(), inner.op.name) == (tf.float32, [2], "x")
    assert body.captured_from(inner) is x
    assert body.captured_from(declared) is None


def test_sizes_that_are_known_outside_are_known_inside(outer: Graph) -> None:
    x = tf.placeholder(tf.float32, [None, 3])
    sizes = raw.ConcatV2([raw.Pack([np.int32(4)]), [5]], np.int32(0))
    partly = raw.Pack([raw.StridedSlice(raw.Shape(x), [0], [1], [1], shrink_axis_mask=1), np.int32(7)])
    real = raw.Fill(np.int32([2]), 1.0)
    middle = FunctionGraph("middle", outer)
    body = FunctionGraph("body", middle)
    with body.as_default():
        assert raw.RandomUniform(sizes, dtype="float32").shape.as_list() == [4, 5]
        assert raw.Fill(partly, 0.0).shape.as_list() == [None, 7]
        assert constant_value(body.capture(real)) is None
    assert [t.op.type for t in body.captured_parameters] == ["Placeholder"] * 3


def test_levels_in_between_capture_too(outer: Graph) -> None:
    x = tf.placeholder(tf.float32, [], name="x")
    middle = FunctionGraph("middle", outer)
    inner = FunctionGraph("inner", middle)
    with inner.as_default():
        raw.Neg(x)
    assert middle.captures == [x]
    assert inner.captures == middle.captured_parameters
    assert x.consumers() == []  # nobody calls the bodies yet


def test_small_integers_are_copied_and_floats_are_not(outer: Graph) -> None:
    small, large = tf.constant([2, 3]), tf.constant(np.zeros(1000, np.int32))
    real = tf.constant([2.0, 3.0])
    body = FunctionGraph("body", outer)
    copies = [body.capture(t) for t in (small, large, real, small)]
    assert [t.op.type for t in copies] == ["Const", "Placeholder", "Placeholder", "Const"]
    assert copies[0] is copies[3]
    assert body.captures == [large, real]
    np.testing.assert_array_equal(copies[0].op.attrs["value"], [2, 3])


def test_a_constant_that_must_be_a_parameter(outer: Graph) -> None:
    number = tf.constant(3)
    body = FunctionGraph("body", outer)
    assert body.capture_as_parameter(number).op.type == "Placeholder"
    assert body.captures == [number]


def test_a_tensor_from_nowhere_is_refused(outer: Graph) -> None:
    with Graph().as_default():
        foreign = tf.placeholder(tf.float32, [], name="foreign")
    body = FunctionGraph("body", outer)
    with pytest.raises(ValueError, match=r"foreign:0 .* cannot be used inside the function 'body'"):
        body.capture(foreign)
    sibling = FunctionGraph("sibling", outer)
    inside = sibling.add_parameter(tf.float32, [], "p")
    with pytest.raises(ValueError, match="neither to its body nor to an enclosing graph"):
        body.capture(inside)
    assert body.inputs == []


def test_the_caller_waits_for_what_is_outside(outer: Graph) -> None:
    before = tf.no_op(name="before")
    body = FunctionGraph("body", outer)
    with body.as_default():
        first = tf.no_op(name="first")
        value = tf.constant(1)
        with tf.control_dependencies([before, first]):
            last = tf.identity(value, name="last")
    assert last.op.control_inputs == [first]
    assert body.outer_control_inputs == []
    body.outputs = [value]
    assert body.outer_control_inputs == []
    body.outputs = [last]
    assert body.outer_control_inputs == [before]


def test_a_body_shares_collections_container_and_seed(outer: Graph) -> None:
    outer.seed = 7
    with outer.container("box"):
        body = FunctionGraph("body", outer)
    body.add_to_collection("losses", "one")
    assert outer.get_collection("losses") == ["one"]
    assert (body.seed, body.current_container) == (7, "box")


# ---------------------------------------------------------------------- loops' bodies
@pytest.fixture
def body(outer: Graph) -> FunctionGraph:
    """Of parameters a, b, c, d: a + 1, b through a copy, a * b, and d after an operation that waits for c."""
    made = FunctionGraph("body", outer)
    a, b, c, d = (made.add_parameter(tf.float32, [], name) for name in "abcd")
    with made.as_default():
        with tf.control_dependencies([c]):
            waited = tf.identity(d)
        made.outputs = [a + 1.0, tf.identity(b), a * b, waited]
    return made


def test_what_a_body_returns_unchanged_is_fixed(body: FunctionGraph) -> None:
    assert fixed_parameters(body) == [False, True, False, False]


def test_parameters_behind_results(body: FunctionGraph) -> None:
    behind = [parameters_behind(body, [out]) for out in body.outputs]
    assert behind == [{0}, {1}, {0, 1}, {2, 3}]  # an edge of control counts
    assert closure_of_parameters(body, [2]) == {0, 1, 2}
    assert closure_of_parameters(body, [3]) == {0, 1, 2, 3}
    assert closure_of_parameters(body, []) == set()
