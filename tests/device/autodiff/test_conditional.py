"""tf.cond: values, gradients of first and second order, state, shapes that differ, host work, checks."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from anabranch import errors
from anabranch.autodiff.gradients import gradients
from anabranch.frontend.control_flow.conditionals import case, cond, smart_cond
from anabranch.frontend.variables.variables import Variable
from anabranch.graph.conversion import convert_to_tensor
from anabranch.graph.graph import get_default_graph
from anabranch.ops import raw
from anabranch.session import Session
from anabranch.xla.variants import compile_log


def placeholder(shape: Any = (), dtype: str = "float64", name: str = "x") -> Any:
    return raw.Placeholder(dtype=dtype, shape=shape, name=name)


@pytest.fixture
def pred() -> Any:
    return placeholder(dtype="bool", name="pred")


def run(fetches: Any, feeds: Any) -> Any:
    with Session() as session:
        session.run([v.initializer for v in get_default_graph().get_collection("variables")])
        return session.run(fetches, feeds)


def test_value_structure_and_one_compilation(pred: Any) -> None:
    x = placeholder([3])
    got = cond(pred, lambda: {"a": raw.Neg(x), "b": (x,)}, lambda: {"a": raw.Exp(x), "b": (raw.Sin(x),)})
    before = len(compile_log.events)
    with Session() as session:
        taken = session.run(got, {x: [1, 2, 3], pred: True})
        other = session.run(got, {x: [1, 2, 3], pred: False})
    assert taken["a"].tolist() == [-1, -2, -3]
    assert taken["b"][0].tolist() == [1, 2, 3]
    np.testing.assert_allclose(other["b"][0], np.sin([1, 2, 3]))
    assert len(compile_log.events) == before + 1


@pytest.mark.parametrize("taken", [True, False])
def test_first_and_second_order_gradients(pred: Any, taken: bool) -> None:
    x = placeholder([3])
    weight = Variable(np.array([1.0, 2.0, 3.0]))
    y = cond(pred, lambda: raw.Mul(raw.Exp(x), weight.value()), lambda: raw.Mul(raw.Square(x), x))
    dx, dw = gradients(y, [x, weight])
    (dxx,) = gradients(dx, [x])
    at = np.array([0.1, 0.2, 0.3])
    got = run([dx, dw, dxx], {x: at, pred: taken})
    if taken:
        expected = [np.exp(at) * [1, 2, 3], np.exp(at), np.exp(at) * [1, 2, 3]]
    else:
        expected = [3 * at**2, np.zeros(3), 6 * at]
    for value, wanted in zip(got, expected, strict=True):
        np.testing.assert_allclose(value, wanted, rtol=1e-6)


def test_nested(pred: Any) -> None:
    x, second = placeholder(), placeholder(dtype="bool", name="second")
    y = cond(pred, lambda: cond(second, lambda: raw.Exp(x), lambda: raw.Square(x)), lambda: raw.Neg(x))
    dx = gradients(y, x)[0]
    with Session() as session:
        values = [
            session.run([y, dx], {x: 2.0, pred: p, second: s}) for p, s in ((True, True), (True, False), (False, True))
        ]
    np.testing.assert_allclose(values, [[np.exp(2), np.exp(2)], [4, 4], [-2, -1]])


def test_only_the_branch_taken_changes_state(pred: Any) -> None:
    v = Variable(np.float64(1.0))

    def add(amount: float) -> Any:
        with get_default_graph().control_dependencies([v.assign_add(amount).op]):
            return v.read_value()

    result = cond(pred, lambda: add(10.0), lambda: add(100.0))
    with Session() as session:
        session.run(v.initializer)
        assert [session.run(result, {pred: p}) for p in (True, False, True)] == [11, 111, 121]


def test_branches_of_different_shapes_run_on_the_host(pred: Any) -> None:
    x = placeholder([4])
    calls = Variable(np.int64(0))
    counted = calls.assign_add(1).op
    with get_default_graph().control_dependencies([counted]):
        y = cond(pred, lambda: raw.Identity(x), lambda: raw.Slice(x, [0], [2]))
    assert y.shape.as_list() == [None]
    with Session() as session:
        session.run(calls.initializer)
        assert session.run(raw.Neg(y), {x: [1, 2, 3, 4], pred: False}).tolist() == [-1, -2]
        assert session.run(raw.Neg(y), {x: [1, 2, 3, 4], pred: True}).tolist() == [-1, -2, -3, -4]
        assert session.run(calls) == 2  # finding out costs no step its effects


def test_host_work_in_a_branch(pred: Any) -> None:
    x = placeholder([4])
    y = cond(pred, lambda: raw.Where(raw.Greater(x, 2.0)), lambda: raw.Where(raw.Less(x, 2.0)))
    assert run(y, {x: [1, 2, 3, 4], pred: True}).tolist() == [[2], [3]]
    assert run(y, {x: [1, 2, 3, 4], pred: False}).tolist() == [[0]]


def test_a_check_in_the_branch_not_taken_is_silent(pred: Any) -> None:
    x = placeholder([2])
    checked = cond(pred, lambda: raw.CheckNumerics(x, message="bad numbers"), lambda: raw.Neg(x))
    with Session() as session:
        assert session.run(checked, {x: [np.nan, 1], pred: False})[1] == -1
        with pytest.raises(errors.InvalidArgumentError, match="bad numbers"):
            session.run(checked, {x: [np.nan, 1], pred: True})


def test_random_operations_in_a_branch_draw_anew(pred: Any) -> None:
    shape = convert_to_tensor([3])
    y = cond(
        pred, lambda: raw.RandomUniform(shape, dtype="float32", seed=1, seed2=2), lambda: raw.Fill(shape, np.float32(0))
    )
    with Session() as session:
        first, second = (session.run(y, {pred: True}) for _ in range(2))
    assert not np.array_equal(first, second)


def test_case_picks_the_first_true_predicate() -> None:
    x = placeholder()
    pairs = [(raw.Less(x, 1.0), lambda: convert_to_tensor(1)), (raw.Less(x, 2.0), lambda: convert_to_tensor(2))]
    y = case(pairs, default=lambda: convert_to_tensor(3))
    with Session() as session:
        assert [session.run(y, {x: v}) for v in (0.5, 1.5, 2.5)] == [1, 2, 3]
        exclusive = case(pairs, default=lambda: convert_to_tensor(3), exclusive=True)
        with pytest.raises(errors.InvalidArgumentError, match="Input error: .* more than one of the conditions"):
            session.run(exclusive, {x: 0.5})


def test_bad_arguments(pred: Any) -> None:
    x = placeholder()
    with pytest.raises(TypeError, match="must not be a Python bool"):
        cond(True, lambda: x, lambda: x)
    with pytest.raises(TypeError, match="must be callable"):
        cond(pred, x, lambda: x)
    with pytest.raises(TypeError, match="must have the same type"):
        cond(pred, lambda: x, lambda: convert_to_tensor(1))
    with pytest.raises(ValueError, match="Incompatible return values"):
        cond(pred, lambda: [x, x], lambda: x)


def test_smart_cond_decides_while_building() -> None:
    assert smart_cond(True, lambda: "yes", lambda: "no") == "yes"
    assert smart_cond(convert_to_tensor(False), lambda: "yes", lambda: "no") == "no"
