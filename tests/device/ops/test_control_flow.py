"""If, StatelessIf and FakeParam as operations; tests/device/autodiff/test_conditional.py tests `tf.cond`."""

from __future__ import annotations

import contextlib
from typing import Any

import numpy as np
import pytest

import anabranch as tf
from anabranch.core.attrs import FuncAttr
from anabranch.core.kernel_context import KernelContext
from anabranch.graph.function_graph import FunctionGraph
from anabranch.graph.kernel_binding import BoundKernel
from anabranch.ops import raw
from anabranch.pipeline import lowering_everything, plan_step

AT = np.array([0.0, 1.0])


def branch(name: str, build: Any, dtype: Any = tf.float32) -> FuncAttr:
    """A function graph of one parameter, entered into the default graph."""
    outer = tf.get_default_graph()
    body = FunctionGraph(name, outer)
    with body.as_default():
        parameter = body.add_parameter(tf.as_dtype(dtype), tf.TensorShape(None), "x")
        body.outputs = [build(parameter)]
    return FuncAttr(outer.add_function(name, body))


def conditional(kind: str, pred: Any, x: Any) -> Any:
    then_branch, else_branch = branch("negated", raw.Neg), branch("squared", raw.Square)
    return getattr(raw, kind)(pred, [x], Tout=[tf.float32], then_branch=then_branch, else_branch=else_branch)[0]


@pytest.mark.parametrize("kind", ["If", "StatelessIf"])
@pytest.mark.parametrize(
    ("value", "taken"),
    [
        (np.bool_(True), True),
        (np.bool_(False), False),
        (np.int32(2), True),
        (np.int32(0), False),
        (np.float32(0.5), True),
        (np.zeros([0], np.float32), False),
        (np.zeros([1], np.float32), True),
        (np.zeros([2], np.bool_), True),
        (np.array(b"", np.object_), False),
        (np.array(b"0", np.object_), True),
        (np.array([], np.object_), False),
    ],
    ids=repr,
)
@pytest.mark.parametrize("known_rank", [True, False])
@pytest.mark.parametrize("lowered", [False, True])
def test_scalars_are_true_unless_zero_and_other_tensors_unless_empty(
    kind: str, value: Any, taken: bool, known_rank: bool, lowered: bool
) -> None:
    dtype = tf.string if value.dtype == np.object_ else value.dtype
    pred, x = tf.placeholder(dtype, value.shape if known_rank else None), tf.placeholder(tf.float32, [2])
    result = conditional(kind, pred, x)
    assert result.op.type == kind
    with lowering_everything() if lowered else contextlib.nullcontext(), tf.Session() as session:
        assert session.run(result, {pred: value, x: [2, 3]}).tolist() == ([-2, -3] if taken else [4, 9])


#: what a loop goes on with, given the number of iterations left: scalars and vectors of any type
CONDITIONS: dict[str, Any] = {
    "number": lambda left: left,
    "float": lambda left: tf.cast(left, tf.float32),
    "empty or not": lambda left: tf.zeros([left]),
    "bools": lambda left: tf.zeros([left], tf.bool),
    "text": lambda left: tf.strings.substr("xxxxx", 0, left),
}


@pytest.mark.parametrize("lowered", [False, True])
@pytest.mark.parametrize("condition", CONDITIONS)
@pytest.mark.parametrize("kind", ["While", "StatelessWhile"])
def test_a_loop_goes_on_while_its_condition_gives_what_is_true(kind: str, condition: str, lowered: bool) -> None:
    cond = branch("left", CONDITIONS[condition], tf.int32)
    body = branch("less", lambda left: raw.Sub(left, 1), tf.int32)
    start = tf.placeholder_with_default(3, [])
    left = getattr(raw, kind)([start], cond=cond, body=body)[0]
    with lowering_everything() if lowered else contextlib.nullcontext(), tf.Session() as session:
        assert session.run(left) == 0


@pytest.mark.parametrize("lowered", [False, True])
def test_a_loop_may_have_no_variables(lowered: bool) -> None:
    outer, asked = tf.get_default_graph(), list[int]()

    def goes_on() -> Any:
        asked.append(len(asked))
        return np.bool_(len(asked) < 4)

    cond, body = FunctionGraph("goes_on", outer), FunctionGraph("nothing", outer)
    with cond.as_default():
        cond.outputs = [tf.py_func(goes_on, [], tf.bool)]
    functions = {name: FuncAttr(outer.add_function(name, graph)) for name, graph in (("cond", cond), ("body", body))}
    raw.While([], **functions, name="loop")
    with lowering_everything() if lowered else contextlib.nullcontext(), tf.Session() as session:
        session.run(outer.get_operation_by_name("loop"))
    assert len(asked) == 4


@pytest.mark.parametrize("lowered", [False, True])
@pytest.mark.parametrize("kind", ["Case", "StatelessCase"])
def test_the_number_of_a_branch_is_a_scalar(kind: str, lowered: bool) -> None:
    index = tf.placeholder(tf.int32, None)
    branches = [branch("negated", raw.Neg), branch("squared", raw.Square)]
    result = getattr(raw, kind)(index, [tf.constant([2.0])], Tout=[tf.float32], branches=branches)[0]
    with lowering_everything() if lowered else contextlib.nullcontext(), tf.Session() as session:
        assert session.run(result, {index: 1}) == [4]
        for wrong in ([0], [0, 1], [[1]]):
            with pytest.raises(tf.errors.InvalidArgumentError):
                session.run(result, {index: wrong})


@pytest.mark.parametrize("kind", ["If", "StatelessIf"])
def test_a_constant_predicate_decides_while_the_step_is_compiled(kind: str) -> None:
    with tf.Session() as session:
        assert session.run(conditional(kind, tf.constant(False), tf.constant([3.0]))) == [9]


@pytest.mark.parametrize("kind", ["If", "StatelessIf"])
def test_the_gradient_is_a_conditional_of_the_same_kind(kind: str) -> None:
    pred, x = tf.placeholder(tf.bool, []), tf.placeholder(tf.float32, [2])
    (grad,) = tf.gradients(conditional(kind, pred, x), x)
    assert any(op.type == kind and op.name.startswith("gradients") for op in tf.get_default_graph().get_operations())
    with tf.Session() as session:
        assert session.run(grad, {pred: True, x: [2, 3]}).tolist() == [-1, -1]
        assert session.run(grad, {pred: False, x: [2, 3]}).tolist() == [4, 6]


def test_fake_params_stand_for_what_the_other_branch_keeps_for_the_gradient() -> None:
    pred, x = tf.placeholder(tf.bool, []), tf.placeholder(tf.float32, [2])
    y = tf.cond(pred, lambda: tf.exp(tf.exp(x)), lambda: tf.negative(x))
    (grad,) = tf.gradients(y, x)
    plan = plan_step([grad], [], [pred, x])
    (op,) = [op for op in plan.step.operations if op.name == y.op.name]
    other = op.function(op.attrs["else_branch"].name)
    fakes = [t.op for t in other.outputs if t.op.type == "FakeParam"]
    assert len(other.outputs) == len(op.outputs) > len(y.op.outputs) == 1
    assert fakes
    assert all(f.outputs[0].dtype is tf.float32 and f.outputs[0].shape.as_list() == [2] for f in fakes)
    with tf.Session() as session:
        np.testing.assert_allclose(session.run(grad, {pred: True, x: AT}), np.exp(AT) * np.exp(np.exp(AT)), 1e-6)
        assert session.run(grad, {pred: False, x: [0, 1]}).tolist() == [-1, -1]


def test_what_stands_beside_a_conditional_runs_as_a_part_of_it() -> None:
    pred, x = tf.placeholder(tf.bool, []), tf.placeholder(tf.float32, [2])
    y = tf.cond(pred, lambda: tf.exp(tf.exp(x)), lambda: tf.negative(x))
    tf.gradients(y, x)
    (values,) = y.op.control_outputs
    assert values.type == "_BranchValues"
    assert values.outputs[0].shape.as_list() == [2]
    kernel = BoundKernel(values, values.op_def.host_rule, ctx=KernelContext(values))
    with pytest.raises(tf.errors.InternalError, match="is part of the operation that it waits for"):
        kernel([True, AT])


def test_a_fake_param_alone_is_a_value_that_nobody_computes() -> None:
    fake = raw.FakeParam(dtype=tf.float64, shape=tf.TensorShape([3, None]))
    assert fake.dtype is tf.float64
    assert fake.shape.as_list() == [3, None]
