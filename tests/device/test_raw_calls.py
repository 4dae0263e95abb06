"""Calls of functions as raw operations: `PartitionedCall`, `RemoteCall`, `SymbolicGradient`, `For`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import anabranch as tf
from anabranch.frontend.control_flow.defined_functions import Defun
from anabranch.proto.graph_pb2 import DT_FLOAT, DT_INT32, NameAttrList


@Defun(tf.float32, tf.int32)
def scaled(x: Any, n: Any) -> Any:
    return tf.sin(x) * tf.cast(n, tf.float32), n * 2


@Defun(tf.int32, tf.float32, tf.int32)
def iteration(i: Any, x: Any, count: Any) -> Any:
    return x * 2.0 + tf.cast(i, tf.float32), count + 1


def looped(start: Any, limit: Any, delta: Any, x: Any = 1.0) -> Any:
    return tf.raw_ops.For(start=start, limit=limit, delta=delta, input=[x, 0], body=iteration)


@pytest.mark.parametrize("kind", ["PartitionedCall", "StatefulPartitionedCall"])
def test_a_call_gives_what_the_function_gives(kind: str) -> None:
    call = getattr(tf.raw_ops, kind)
    with tf.Graph().as_default() as graph, tf.Session() as session:
        x = tf.placeholder(tf.float32, [2])
        values, doubled = call(args=[x, 3], Tout=[tf.float32, tf.int32], f=scaled, name="called")
        assert [values.name, doubled.name] == ["called:0", "called:1"]
        assert values.shape == [2]
        (slope,) = tf.gradients(values, x)
        given = np.array([0.5, -2.0], np.float32)
        found = session.run([values, doubled, slope], {x: given})
        np.testing.assert_allclose(found[0], 3 * np.sin(given), rtol=1e-6)
        assert found[1] == 6
        np.testing.assert_allclose(found[2], 3 * np.cos(given), rtol=1e-6)
        types = {node.op for node in graph.as_graph_def().node}
        assert kind not in types


def test_a_function_may_be_named_in_every_way_that_tensorflow_knows() -> None:
    @tf.function
    def doubled(x: Any) -> Any:
        return x + x

    with tf.Graph().as_default(), tf.Session() as session:
        traced = doubled.get_concrete_function(tf.TensorSpec([], tf.float32))
        name = traced.add_to_graph(tf.get_default_graph())
        assert traced.add_to_graph() == name
        ways = (traced, name, NameAttrList(name=name))
        results = [tf.raw_ops.PartitionedCall(args=[4.0], Tout=[tf.float32], f=way)[0] for way in ways]
        assert session.run(results) == [8.0, 8.0, 8.0]


def test_what_a_function_captured_is_passed_after_its_arguments() -> None:
    with tf.Graph().as_default(), tf.Session() as session:
        outer = tf.placeholder_with_default(5.0, [])

        @tf.function
        def added(x: Any) -> Any:
            return x + outer

        traced = added.get_concrete_function(tf.TensorSpec([], tf.float32))
        (result,) = tf.raw_ops.PartitionedCall(args=[1.0, *traced.captured_inputs], Tout=[tf.float32], f=traced)
        assert session.run(result) == 6.0
        with pytest.raises(ValueError, match="what a function captured is passed after"):
            tf.raw_ops.PartitionedCall(args=[1.0], Tout=[tf.float32], f=traced)


def test_gradients_of_its_own_are_kept() -> None:
    @Defun(tf.float32, python_grad_func=lambda op, grad: grad * 7.0)
    def odd(x: Any) -> Any:
        return x * x

    with tf.Graph().as_default(), tf.Session() as session:
        x = tf.placeholder_with_default(3.0, [])
        (y,) = tf.raw_ops.PartitionedCall(args=[x], Tout=[tf.float32], f=odd)
        assert session.run([y, tf.gradients(y, x)[0]]) == [9.0, 7.0]
        (slope,) = tf.raw_ops.SymbolicGradient(input=[x, 2.0], Tout=[tf.float32], f=odd)
        assert session.run(slope) == 14.0


def test_effects_happen_in_order_after_what_the_call_waits_for() -> None:
    with tf.Graph().as_default(), tf.Session() as session:
        variable = tf.get_variable("v", initializer=1.0, use_resource=True)

        @Defun(tf.resource)
        def change(handle: Any) -> None:
            tf.raw_ops.AssignAddVariableOp(resource=handle, value=2.0)
            read = tf.raw_ops.ReadVariableOp(resource=handle, dtype=tf.float32)
            tf.raw_ops.AssignVariableOp(resource=handle, value=read * read)

        first = tf.assign(variable, 10.0)
        with tf.control_dependencies([first]):
            done = tf.raw_ops.StatefulPartitionedCall(args=[variable.handle], Tout=[], f=change)
        assert isinstance(done, tf.Operation)
        session.run(tf.global_variables_initializer())
        session.run(done)
        assert session.run(variable) == 144.0


@pytest.mark.parametrize("known", [True, False])
def test_a_remote_call_runs_where_its_target_says(known: bool) -> None:
    with tf.Graph().as_default(), tf.Session() as session:
        target = "/device:CPU:0" if known else tf.placeholder_with_default("/device:CPU:0", [])
        x = tf.placeholder_with_default(2.0, [])
        value, _ = tf.raw_ops.RemoteCall(target=target, args=[x, 3], Tout=[tf.float32, tf.int32], f=scaled)
        assert session.run(value) == pytest.approx(3 * np.sin(2.0))
        assert value.op.device == ("/device:CPU:0" if known else "")
        assert session.run(tf.gradients(value, x)[0]) == pytest.approx(3 * np.cos(2.0))


def test_an_imported_remote_call_is_copied_in() -> None:
    with tf.Graph().as_default() as graph:
        scaled.add_to_graph(graph)
        tf.constant("/device:CPU:0", name="target")
        tf.constant(2.0, name="x")
        tf.constant(3, name="n")
        message = graph.as_graph_def()
    node = message.node.add(name="call", op="RemoteCall", input=["target", "x", "n"])
    node.attr["f"].func.name = "scaled"
    for key in ("Tin", "Tout"):
        node.attr[key].list.type.extend([DT_FLOAT, DT_INT32])
    with tf.Graph().as_default() as graph, tf.Session() as session:
        tf.import_graph_def(message, name="")
        found = session.run([graph.get_tensor_by_name(f"call:{i}") for i in range(2)])
        assert found[0] == pytest.approx(3 * np.sin(2.0))
        assert found[1] == 6


def test_a_symbolic_gradient_is_zero_where_nothing_flows() -> None:
    @Defun(tf.float32, tf.float32, tf.float32)
    def square(x: Any, unused: Any, y: Any) -> Any:
        return x * x * 3.0 + y

    with tf.Graph().as_default(), tf.Session() as session:
        x = tf.constant([1.0, 2.0])
        given = [x, [[3.0]], x, [1.0, 10.0]]
        found = tf.raw_ops.SymbolicGradient(input=given, Tout=[tf.float32] * 3, f=square)
        first, second, third = session.run(found)
        np.testing.assert_array_equal(first, [6.0, 120.0])
        np.testing.assert_array_equal(second, [[0.0]])
        np.testing.assert_array_equal(third, [1.0, 10.0])


@pytest.mark.parametrize("static", [True, False])
@pytest.mark.parametrize("bounds", [(0, 3, 1), (0, 3, 2), (3, 0, -1), (3, 3, 1), (0, 0, 0), (-2, 5, 3), (3, 3, -1)])
def test_for_runs_through_a_range(bounds: tuple[int, int, int], static: bool) -> None:
    start, limit, delta = bounds
    x, count = 1.0, 0
    for i in range(start, limit, delta or 1):
        x, count = x * 2 + i, count + 1
    with tf.Graph().as_default(), tf.Session() as session:
        given: Any = bounds if static else [tf.placeholder_with_default(b, []) for b in bounds]
        initial = tf.placeholder_with_default(1.0, [])
        results = looped(given[0], given[1], given[2], x=initial)
        assert session.run(results) == [x, count]
        assert session.run(tf.gradients(results[0], initial)[0]) == 2.0**count


@pytest.mark.parametrize("bounds", [(3, 0, 1), (0, 3, -1), (0, 3, 0)])
def test_for_refuses_a_range_that_leads_nowhere(bounds: tuple[int, int, int]) -> None:
    with (
        tf.Graph().as_default(),
        tf.Session() as session,
        pytest.raises(tf.errors.InvalidArgumentError, match="Invalid start/limit/delta"),
    ):
        session.run(looped(*bounds))


def test_for_lets_shapes_change() -> None:
    @Defun(tf.int32, tf.float32)
    def longer(i: Any, x: Any) -> Any:
        return tf.concat([x, [tf.cast(i, tf.float32)]], 0)

    with tf.Graph().as_default(), tf.Session() as session:
        (grown,) = tf.raw_ops.For(start=0, limit=3, delta=1, input=[[9.0]], body=longer)
        assert session.run(grown).tolist() == [9.0, 0.0, 1.0, 2.0]


def test_for_without_inputs_has_its_effects() -> None:
    with tf.Graph().as_default(), tf.Session() as session:
        variable = tf.get_variable("v", initializer=1, use_resource=True)

        @Defun(tf.int32, tf.resource)
        def add(i: Any, handle: Any) -> Any:
            tf.raw_ops.AssignAddVariableOp(resource=handle, value=i)
            return handle

        (handle,) = tf.raw_ops.For(start=0, limit=4, delta=1, input=[variable.handle], body=add)
        session.run(tf.global_variables_initializer())
        session.run(handle.op)
        assert session.run(variable) == 7


def call(args: Any, types: Any = (tf.float32, tf.int32), f: Any = scaled) -> Any:
    return tf.raw_ops.PartitionedCall(args=args, Tout=list(types), f=f)


@pytest.mark.parametrize(
    ("build", "kind", "message"),
    [
        (lambda: call([1.0]), ValueError, "has arguments of types"),
        (lambda: call([1.0, 2.0]), TypeError, "use tf.cast"),
        (lambda: call([1.0, 2], [tf.float32]), ValueError, "has results of types"),
        (lambda: call([1.0, 2], f="nothing"), ValueError, "failed to find function 'nothing'"),
        (lambda: call([1.0, 2], f=Defun()(lambda x, y: x)), TypeError, "missing"),
        (lambda: call([1.0, 2], f=3), TypeError, "not a function"),
        (lambda: looped([0], 3, 1), ValueError, "not compatible"),
        (
            lambda: tf.raw_ops.SymbolicGradient(input=[1.0, 2], Tout=[tf.float32, tf.int32], f=scaled),
            ValueError,
            "arguments and results",
        ),
    ],
)
def test_wrong_calls_are_refused(build: Callable[[], Any], kind: type[Exception], message: str) -> None:
    with tf.Graph().as_default(), pytest.raises(kind, match=message):
        build()


def test_calls_in_functions_and_branches() -> None:
    with tf.Graph().as_default(), tf.Session() as session:
        x = tf.placeholder_with_default(2.0, [])
        chosen = tf.placeholder_with_default(True, [])
        y = tf.cond(chosen, lambda: call([x, 3])[0], lambda: looped(0, 3, 1, x)[0])
        slope = tf.gradients(y, x)[0]
        np.testing.assert_allclose(session.run([y, slope]), [3 * np.sin(2.0), 3 * np.cos(2.0)], rtol=1e-6)
        np.testing.assert_allclose(session.run([y, slope], {chosen: False}), [20.0, 8.0], rtol=1e-6)
