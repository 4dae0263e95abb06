"""Moving averages of variables and tensors, and the names under which checkpoints hold them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from anabranch.frontend import raw_ops
from anabranch.frontend.variables.functions import global_variables_initializer
from anabranch.frontend.variables.scope import variable_scope
from anabranch.frontend.variables.variables import Variable
from anabranch.graph.collections import GraphKeys
from anabranch.graph.conversion import convert_to_tensor
from anabranch.graph.graph import get_default_graph
from anabranch.ops import raw
from anabranch.session import Session
from anabranch.train.moving_averages import (
    ExponentialMovingAverage,
    assign_moving_average,
    weighted_moving_average,
)


@pytest.fixture
def session() -> Any:
    with Session() as opened:
        yield opened


def test_the_average_of_a_variable_begins_with_its_initial_value(session: Session) -> None:
    v = Variable(np.array([10.0, 20.0], np.float32), name="v")
    average = ExponentialMovingAverage(0.75)
    update = average.apply([v])
    shadow = average.average(v)
    assert shadow.name == "v/ExponentialMovingAverage:0"
    assert update.name == "ExponentialMovingAverage"
    assert not shadow.trainable
    assert get_default_graph().get_collection(GraphKeys.MOVING_AVERAGE_VARIABLES) == [v]
    session.run(global_variables_initializer())
    assert session.run(shadow).tolist() == [10.0, 20.0]
    session.run(v.assign([30.0, 0.0]))
    session.run(update)
    assert session.run(shadow).tolist() == [15.0, 15.0]
    session.run(update)
    assert session.run(shadow).tolist() == [18.75, 11.25]
    assert average.name == "ExponentialMovingAverage"


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_num_updates_lets_the_average_move_faster_at_first(session: Session, dtype: str) -> None:
    v = Variable(np.zeros(3, dtype), name="v")
    step = Variable(np.int64(0), name="step", trainable=False)
    average = ExponentialMovingAverage(0.5, num_updates=step)
    update = average.apply([v])
    session.run(global_variables_initializer())
    session.run(v.assign(np.ones(3)))
    expected = 0.0
    for n in range(20):
        session.run(update)
        decay = min(0.5, (1 + n) / (10 + n))
        expected -= (1 - decay) * (expected - 1.0)
        np.testing.assert_allclose(session.run(average.average(v)), [expected] * 3, rtol=1e-6)
        session.run(step.assign_add(1))


def test_the_average_of_a_tensor_begins_with_zero(session: Session) -> None:
    x = raw.Placeholder(dtype="float32", shape=[2], name="x")
    average = ExponentialMovingAverage(0.9)
    update = average.apply([x])
    assert average.average(x).name == "x/ExponentialMovingAverage:0"
    assert get_default_graph().get_collection(GraphKeys.MOVING_AVERAGE_VARIABLES) == []
    session.run(global_variables_initializer())
    session.run(update, {x: [1.0, 2.0]})
    np.testing.assert_allclose(session.run(average.average(x)), [0.1, 0.2], rtol=1e-6)


def test_zero_debias_corrects_the_start(session: Session) -> None:
    x = raw.Placeholder(dtype="float64", shape=[], name="x")
    average = ExponentialMovingAverage(0.9, zero_debias=True)
    update = average.apply([x])
    session.run(global_variables_initializer())
    decay = 0.9
    biased, values = 0.0, [3.0, -1.0, 2.0]
    for n, value in enumerate(values, start=1):
        session.run(update, {x: value})
        biased = decay * biased + (1 - decay) * value
        np.testing.assert_allclose(session.run(average.average(x)), biased / (1 - decay**n), rtol=1e-6)


def test_assign_moving_average_returns_the_new_value(session: Session) -> None:
    v = Variable(np.array([4.0], np.float32), name="v")
    moved = assign_moving_average(v, convert_to_tensor([8.0]), 0.75, zero_debias=False)
    debiased = assign_moving_average(Variable(np.zeros(1, np.float32), name="u"), convert_to_tensor([8.0]), 0.75)
    session.run(global_variables_initializer())
    assert session.run(moved).tolist() == [5.0]
    assert session.run(debiased).tolist() == [8.0]
    assert session.run(debiased).tolist() == [8.0]


def test_weighted_moving_average(session: Session) -> None:
    value = raw.Placeholder(dtype="float32", shape=[], name="value")
    weight = raw.Placeholder(dtype="float32", shape=[], name="weight")
    average = weighted_moving_average(value, 0.5, weight)
    session.run(global_variables_initializer())
    assert session.run(average, {value: 4.0, weight: 2.0}) == pytest.approx(4.0)
    assert session.run(average, {value: 1.0, weight: 4.0}) == pytest.approx((0.5 * 4 + 0.5 * 4) / (0.5 * 1 + 0.5 * 4))


def test_default_is_every_trainable_variable_and_restoring_maps_names(session: Session) -> None:
    w, b = Variable(1.0, name="w"), Variable(2.0, name="b")
    Variable(0, name="step", trainable=False)
    average = ExponentialMovingAverage(0.99)
    assert average.average_name(w) == "w/ExponentialMovingAverage"
    assert average.average(w) is None
    average.apply()
    names = average.variables_to_restore()
    assert names["w/ExponentialMovingAverage"] is w
    assert names["b/ExponentialMovingAverage"] is b
    assert set(names) == {"w/ExponentialMovingAverage", "b/ExponentialMovingAverage", "step"}
    restricted = average.variables_to_restore([w])
    assert restricted["b"] is b
    assert restricted["w/ExponentialMovingAverage"] is w


def test_another_program_without_shadows_finds_the_same_names() -> None:
    w = Variable(1.0, name="w")
    names = ExponentialMovingAverage(0.99).variables_to_restore()
    assert names == {"w/ExponentialMovingAverage": w}


def test_updates_may_depend_on_a_training_step(session: Session) -> None:
    w = Variable(1.0, name="w")
    average = ExponentialMovingAverage(0.5)
    train = w.assign_add(2.0)
    with get_default_graph().control_dependencies([train]):
        update = average.apply([w])
    session.run(global_variables_initializer())
    session.run(update)
    assert session.run([w, average.average(w)]) == [3.0, 2.0]


def test_what_has_no_average_is_refused() -> None:
    average = ExponentialMovingAverage(0.5)
    with pytest.raises(TypeError, match="must be half, float, or double: n:0"):
        average.apply([Variable(1, name="n")])


def test_variables_keep_their_shadows_when_they_are_given_again() -> None:
    average, w = ExponentialMovingAverage(0.5), Variable(1.0, name="w")
    first = average.apply([w])
    shadow = average.average(w)
    second = average.apply([w])
    assert average.average(w) is shadow
    with Session() as session:
        session.run(global_variables_initializer())
        session.run(w.assign(3.0))
        session.run(first)
        session.run(second)
        assert session.run(shadow) == 2.5


def test_the_names_of_what_corrects_the_start_are_tensorflows(session: Session) -> None:
    x = raw.Identity(convert_to_tensor([1.0]), name="x")
    with variable_scope("outer"):
        average = ExponentialMovingAverage(0.9, zero_debias=True, name="ema")
        average.apply([x])
    assert set(average.variables_to_restore()) == {
        "outer/x/ema",
        "outer/outer/x/ema/biased",
        "outer/outer/x/ema/local_step",
    }


def test_the_average_of_an_old_variable_lies_beside_it() -> None:
    graph = get_default_graph()
    with graph.device("/job:there"):
        v = raw_ops.Variable(shape=[1], dtype="float32", name="v")
    with graph.device("/job:elsewhere"):
        average = ExponentialMovingAverage(0.5)
        average.apply([v])
    shadow = average.average(v)
    assert shadow is not None
    assert shadow.device == "/job:there"
