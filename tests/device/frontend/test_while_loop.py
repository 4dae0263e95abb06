"""tf.while_loop: values, structures, invariants, state, checks, host loops, compilation."""

from __future__ import annotations

import collections
import itertools
from typing import Any

import numpy as np
import pytest

import anabranch as tf
from anabranch import errors
from anabranch.frontend.control_flow.conditionals import cond
from anabranch.frontend.control_flow.script import py_func
from anabranch.frontend.control_flow.tensor_array import TensorArray
from anabranch.frontend.control_flow.while_loop import while_loop
from anabranch.frontend.variables.variables import Variable
from anabranch.graph.composite import SparseTensor
from anabranch.graph.conversion import convert_to_tensor
from anabranch.graph.graph import Graph, get_default_graph
from anabranch.ops import raw
from anabranch.session import Session
from anabranch.xla.variants import compile_log


def placeholder(shape: Any = (), dtype: str = "int32", name: str = "n") -> Any:
    return raw.Placeholder(dtype=dtype, shape=shape, name=name)


def run(fetches: Any, feeds: Any = None) -> Any:
    with Session() as session:
        session.run([v.initializer for v in get_default_graph().get_collection("variables")])
        return session.run(fetches, feeds)


def test_one_compilation_whatever_the_count() -> None:
    n = placeholder()
    total = while_loop(lambda i, s: raw.Less(i, n), lambda i, s: (raw.AddV2(i, 1), raw.AddV2(s, i)), (0, 0))[1]
    before = len(compile_log.events)
    with Session() as session:
        assert [session.run(total, {n: k}) for k in (0, 1, 10, 1000)] == [0, 0, 45, 499500]
    assert len(compile_log.events) == before + 1


def test_nested_structures() -> None:
    start = {"a": (0, [1.0]), "b": np.float32(2.0)}

    def body(state: Any) -> Any:
        i, (x,) = state["a"]
        return ({"a": (raw.AddV2(i, 1), [raw.Mul(x, state["b"])]), "b": state["b"]},)

    (result,) = while_loop(lambda state: raw.Less(state["a"][0], 3), body, (start,))
    assert run(result) == {"a": (3, [8.0]), "b": 2.0}


def test_a_single_variable_is_unpacked() -> None:
    assert run(while_loop(lambda i: raw.Less(i, 5), lambda i: raw.AddV2(i, 2), [0])) == 6
    assert run(while_loop(lambda i: raw.Less(i, 5), lambda i: [raw.AddV2(i, 2)], [0], return_same_structure=True)) == [
        6
    ]


def test_maximum_iterations() -> None:
    n = placeholder()
    i = while_loop(lambda i: raw.Less(i, 100), lambda i: raw.AddV2(i, 1), [0], maximum_iterations=n)
    assert [run(i, {n: k}) for k in (0, 7, 200)] == [0, 7, 100]
    with pytest.raises(ValueError, match="maximum_iterations must be a scalar"):
        while_loop(lambda i: raw.Less(i, 100), lambda i: raw.AddV2(i, 1), [0], maximum_iterations=[1])


def test_nested_loops_and_captures() -> None:
    n = placeholder()

    def body(i: Any, total: Any) -> Any:
        inner = while_loop(lambda j, t: raw.Less(j, i), lambda j, t: (raw.AddV2(j, 1), raw.AddV2(t, n)), (0, total))
        return raw.AddV2(i, 1), inner[1]

    assert run(while_loop(lambda i, _: raw.Less(i, n), body, (0, 0))[1], {n: 5}) == 50


def test_variables_change_in_order() -> None:
    v = Variable(np.float32(1.0))

    def body(i: Any) -> Any:
        with get_default_graph().control_dependencies([v.assign(raw.Mul(v.read_value(), 2.0))]):
            return raw.AddV2(i, 1)

    loop = while_loop(lambda i: raw.Less(i, 4), body, [0])
    with get_default_graph().control_dependencies([loop]):
        after = v.read_value()
    assert run([loop, after]) == [4, 16.0]


def test_a_failed_check_stops_the_loop_and_changes_nothing() -> None:
    v = Variable(np.float32(1.0))
    table = convert_to_tensor(np.arange(3, dtype=np.float32))

    def body(i: Any, s: Any) -> Any:
        return raw.AddV2(i, 1), raw.AddV2(s, raw.GatherV2(table, i, 0))

    n = placeholder()
    total = while_loop(lambda i, _: raw.Less(i, n), body, (0, 0.0))[1]
    assign = v.assign(total)
    with Session() as session:
        session.run(v.initializer)
        with pytest.raises(errors.InvalidArgumentError, match=r"3 is not in \[0, 3\)"):
            session.run(assign, {n: 1000000000})
        assert session.run(v.value()) == 1.0
        session.run(assign, {n: 3})
        assert session.run(v.value()) == 3.0


def test_check_in_the_condition() -> None:
    table = convert_to_tensor(np.array([True, True, False]))
    loop = while_loop(lambda i: raw.GatherV2(table, i, 0), lambda i: raw.AddV2(i, 1), [placeholder()])
    start = get_default_graph().get_tensor_by_name("n:0")
    assert run(loop, {start: 0}) == 2
    with pytest.raises(errors.InvalidArgumentError):
        run(loop, {start: 3})


def test_random_numbers_differ_between_iterations() -> None:
    array = TensorArray("float32", size=20)
    _, array = while_loop(
        lambda i, _: raw.Less(i, 20),
        lambda i, a: (raw.AddV2(i, 1), a.write(i, raw.RandomUniform(np.zeros(0, np.int32), dtype="float32"))),
        (0, array),
    )
    assert len(set(run(array.stack()).tolist())) == 20


def test_shapes_that_grow_run_on_the_host() -> None:
    x = placeholder([None], "float32", "x")
    _, y = while_loop(
        lambda i, _: raw.Less(i, 3),
        lambda i, y: (raw.AddV2(i, 1), raw.ConcatV2([y, y], 0)),
        (0, x),
        shape_invariants=((), [None]),
    )
    np.testing.assert_array_equal(run(y, {x: [1, 2]}), [1, 2] * 8)


def test_python_in_the_body_runs_on_the_host() -> None:
    seen: list[int] = []

    def note(i: Any) -> Any:
        seen.append(int(i))
        return i + 1

    def body(i: Any) -> Any:
        following = py_func(note, [i], "int32")
        following.set_shape([])
        return following

    assert run(while_loop(lambda i: raw.Less(i, 4), body, [0])) == 4
    assert seen == [0, 1, 2, 3]


def test_text_as_a_loop_variable() -> None:
    i, text = while_loop(
        lambda i, _: raw.Less(i, 3),
        lambda i, t: (raw.AddV2(i, 1), raw.StringJoin([t, raw.AsString(i)])),
        (0, convert_to_tensor("n")),
    )
    assert run([i, text]) == [3, b"n012"]


def test_sparse_loop_variable() -> None:
    start = SparseTensor([[0], [2]], [1.0, 2.0], [4])
    _, sparse = while_loop(
        lambda i, _: raw.Less(i, 3),
        lambda i, s: (raw.AddV2(i, 1), SparseTensor(s.indices, raw.Mul(s.values, 2.0), s.dense_shape)),
        (0, start),
    )
    got = run(sparse)
    assert got.values.tolist() == [8.0, 16.0]
    assert got.indices.tolist() == [[0], [2]]


def test_the_invariant_of_a_sparse_variable_is_the_shape_of_its_shape() -> None:
    start = SparseTensor([[0], [2]], [1.0, 2.0], [4])

    def deeper(i: Any, s: Any) -> Any:
        indices = raw.ConcatV2(
            [s.indices, convert_to_tensor([[i], [i]], "int64")], 1
        )  # a list takes its tensors' values
        return raw.AddV2(i, 1), SparseTensor(indices, s.values, raw.ConcatV2([s.dense_shape, [5]], 0))

    _, sparse = while_loop(lambda i, _: raw.Less(i, 2), deeper, (0, start), shape_invariants=[[], [None]])
    got = run(sparse)
    assert got.indices.tolist() == [[0, 0, 1], [2, 0, 1]]
    assert got.dense_shape.tolist() == [4, 5, 5]
    with pytest.raises(ValueError, match=r"is not an invariant for the loop"):
        while_loop(lambda i, _: raw.Less(i, 2), deeper, (0, start))
    with pytest.raises(ValueError, match=r"with shape \(1,\), but the specified shape invariant is \(5,\)"):
        while_loop(lambda i, _: raw.Less(i, 2), lambda i, s: (i, s), (0, start), shape_invariants=[[], [5]])


def test_a_tensor_of_a_body_cannot_be_used_outside() -> None:
    inside: list[Any] = []
    while_loop(lambda i: raw.Less(i, 2), lambda i: inside.append(raw.Mul(i, 2)) or raw.AddV2(i, 1), [0])
    with pytest.raises(ValueError, match=r"Mul:0 .* is in the body of a loop, .* let the body return it"):
        raw.AddV2(inside[0], 1)
    with pytest.raises(ValueError, match=r"Mul:0 .* belongs neither to its body nor to an enclosing graph"):
        cond(convert_to_tensor(True), lambda: raw.AddV2(inside[0], 1), lambda: convert_to_tensor(0))


def test_counter_as_a_shape_runs_on_the_host() -> None:
    total = while_loop(
        lambda i, _: raw.Less(i, 4),
        lambda i, s: (raw.AddV2(i, 1), raw.AddV2(s, raw.Sum(raw.Fill(raw.Reshape(i, [1]), 1.0), [0]))),
        (0, 0.0),
    )[1]
    assert run(total) == 6.0


def test_control_dependencies_from_outside() -> None:
    v = Variable(np.float32(1.0))
    n = placeholder()
    with get_default_graph().control_dependencies([v.assign(np.float32(5.0))]):
        total = while_loop(lambda i, _: raw.Less(i, n), lambda i, s: (raw.AddV2(i, 1), raw.AddV2(s, 1.0)), (0, 0.0))[1]
    with get_default_graph().control_dependencies([total.op]):
        after = v.read_value()
    assert run([total, after], {n: 2}) == [2.0, 5.0]


def test_mistakes() -> None:
    x = placeholder([3], "float32", "x")
    with pytest.raises(TypeError, match="cond must be callable"):
        while_loop(None, lambda i: i, [0])  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="body must be callable"):
        while_loop(lambda i: raw.Less(i, 1), None, [0])  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="No loop variables"):
        while_loop(lambda: True, lambda: (), [])
    with pytest.raises(TypeError, match="enters the loop with type int32, but has type float32"):
        while_loop(lambda i: raw.Less(i, 1), lambda i: raw.Cast(i, DstT="float32"), [0])
    with pytest.raises(ValueError, match=r"x:0 is not an invariant for the loop. It enters the loop with shape \(3,\)"):
        while_loop(lambda x: True, lambda x: raw.ConcatV2([x, x], 0), [x])
    with pytest.raises(ValueError, match="same nested structure"):
        while_loop(raw.Less, lambda i, j: i, [0, 1])
    with pytest.raises(TypeError, match="boolean scalar"):
        while_loop(lambda i: i, lambda i: i, [0])
    with pytest.raises(ValueError, match="shape invariant specified for x:0 is not compatible"):
        while_loop(lambda x: True, lambda x: x, [x], shape_invariants=[[4]])


def test_invariants_say_what_may_change() -> None:
    x = placeholder([3], "float32", "x")
    with pytest.raises(
        ValueError, match=r"x:0 is not an invariant.*has shape \(6,\) after one.*Provide shape invariants"
    ):
        while_loop(lambda x: True, lambda x: raw.ConcatV2([x, x], 0), [x], shape_invariants=[[3]])
    with pytest.raises(ValueError, match=r"shape \(3,\), but the specified shape invariant is \(4,\); leave open"):
        while_loop(lambda x: True, lambda x: x, [x], shape_invariants=[[4]])
    with pytest.raises(ValueError, match=r"x:0 is not an invariant.*shape \(\?, 2\) after one|with shape \(\?,\)"):
        while_loop(lambda x: True, lambda x: raw.ExpandDims(x, 1), [x], shape_invariants=[[None]])
    grown = while_loop(
        lambda x: raw.Less(raw.Size(x), 10), lambda x: raw.ConcatV2([x, x], 0), [x], shape_invariants=[[None]]
    )
    assert grown.shape.as_list() == [None]
    assert run(grown, {x: [1, 2, 3]}).tolist() == [1, 2, 3] * 4


def test_graphs_must_not_be_mixed() -> None:
    x = placeholder([], "float32", "x")
    with Graph().as_default():
        y = placeholder([], "float32", "y")
        with pytest.raises(ValueError, match=r"x:0 .* belongs neither to its body nor to an enclosing graph"):
            while_loop(lambda y: raw.Less(y, 1.0), lambda y: raw.AddV2(y, x), [y])
        with pytest.raises(ValueError, match=r"loop variable x:0 .* belongs to another graph"):
            while_loop(lambda x: raw.Less(x, 1.0), lambda x: x, [x])
        with pytest.raises(ValueError, match=r"x:0 .* belongs neither to its body nor to an enclosing graph"):
            cond(raw.Less(y, 1.0), lambda: x, lambda: y)


@pytest.mark.parametrize("with_list", [False, True])
def test_what_a_loop_cannot_compute_is_refused_by_its_first_iteration(with_list: bool) -> None:
    x, n = tf.placeholder(tf.float32, []), tf.placeholder(tf.int32, [])

    def body(i: Any, y: Any, *lists: Any) -> Any:
        return (i + 1, y + tf.raw_ops.Cumprod(x=x, axis=-1), *(each.write(i, y) for each in lists))

    lists = [tf.TensorArray(tf.float32, n)] if with_list else []
    result = tf.while_loop(lambda i, *_: i < n, body, [0, x, *lists])[1]
    with tf.Session() as session:
        for _ in range(3):  # the tiers of a step agree
            assert session.run(result, {x: 2.0, n: 0}) == 2.0
            with pytest.raises(tf.errors.InvalidArgumentError, match="Expected scan axis"):
                session.run(result, {x: 2.0, n: 1})
            gradient = tf.gradients(result, x)[0]
            assert session.run(gradient, {x: 2.0, n: 0}) == 1.0


def test_results_come_in_what_the_body_gave_them_in() -> None:
    """A list, a tuple, a tuple with names, whatever the loop variables came in, as TensorFlow packs them."""
    pair = collections.namedtuple("pair", ["a", "b"])  # noqa: PYI024 (as programs of that time write it)
    for given, returned in itertools.product((list, tuple, pair._make), (list, tuple, pair._make)):
        result = tf.while_loop(lambda i, j: i < 3, lambda i, j: returned([i + 1, j]), given([0, 1]))  # noqa: B023
        assert type(result) is type(returned([0, 1]))
        with tf.Session() as session:
            assert session.run(list(result)) == [3, 1]
