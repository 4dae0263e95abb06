"""L-BFGS on functions whose minimum is known."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy.optimize import minimize

from anabranch.core import dtypes
from anabranch.frontend.variables.functions import global_variables_initializer
from anabranch.frontend.variables.variables import Variable
from anabranch.graph.conversion import convert_to_tensor
from anabranch.ops import raw
from anabranch.session import Session
from anabranch.train.lbfgs import LBFGSOptimizer
from anabranch.train.optimizers.gradient_descent import GradientDescentOptimizer
from anabranch.train.training_util import get_or_create_global_step


def losses_of(train: Any, loss: Any, steps: int) -> list[float]:
    with Session() as session:
        session.run(global_variables_initializer())
        values = []
        for _ in range(steps):
            values.append(float(session.run(loss)))
            session.run(train)
        return values


def rosenbrock(dtype: Any) -> tuple[Any, Any]:
    point = Variable(convert_to_tensor([-1.2, 1.0], dtype), name="point")
    x, y = raw.Unpack(point.value(), num=2)
    one, hundred = (convert_to_tensor(v, dtype) for v in (1.0, 100.0))
    valley = raw.Square(raw.Sub(y, raw.Square(x)))
    return raw.AddV2(raw.Mul(hundred, valley), raw.Square(raw.Sub(one, x))), point


@pytest.mark.parametrize(("dtype", "reached"), [(dtypes.float64, 1e-18), (dtypes.float32, 1e-9)])
def test_rosenbrocks_valley(dtype: Any, reached: float) -> None:
    loss, _ = rosenbrock(dtype)
    values = losses_of(LBFGSOptimizer().minimize(loss), loss, 60)
    assert values[0] == pytest.approx(24.2)
    assert min(values) < reached
    assert values[-1] < reached


def test_a_quadratic_bowl_in_several_variables() -> None:
    random = np.random.default_rng(0)
    factor = random.normal(size=(30, 12))
    target = random.normal(size=(30, 1))
    a = Variable(np.zeros((5, 1)), name="a")
    b = Variable(np.zeros((7, 1)), name="b")
    weights = raw.ConcatV2([a.value(), b.value()], 0)
    loss = raw.Sum(raw.Square(raw.Sub(raw.MatMul(factor, weights), target)), [0, 1])
    step = get_or_create_global_step()
    optimizer = LBFGSOptimizer(history_size=6)
    train = optimizer.minimize(loss, global_step=step)
    best = float(np.linalg.lstsq(factor, target, rcond=None)[1][0])
    with Session() as session:
        session.run(global_variables_initializer())
        for _ in range(60):
            session.run(train)
        assert session.run(step) == 60
        assert session.run(loss) == pytest.approx(best, rel=1e-12)
        solution = np.linalg.lstsq(factor, target, rcond=None)[0]
        np.testing.assert_allclose(session.run(weights), solution, rtol=1e-6)
    assert all(not v.trainable for v in optimizer.variables())


def test_it_falls_as_fast_as_scipys() -> None:
    scales = np.logspace(0, 3, 20)
    w = Variable(np.ones(20), name="w")
    loss = raw.Sum(raw.Mul(scales, raw.Square(w.value())), [0])
    values = losses_of(LBFGSOptimizer().minimize(loss), loss, 100)
    slow = losses_of(GradientDescentOptimizer(0.9 / scales[-1]).minimize(loss), loss, 100)
    seen: list[float] = []

    def function(point: Any) -> tuple[float, Any]:
        seen.append(float((scales * point * point).sum()))
        return seen[-1], 2 * scales * point

    minimize(function, np.ones(20), jac=True, method="L-BFGS-B", options={"maxcor": 10, "ftol": 0.0, "maxiter": 200})
    for evaluations in (25, 50, 100):
        assert min(values[:evaluations]) < 3 * min(seen[:evaluations])
    assert values[-1] < 1e-4 * slow[-1]


def test_a_step_into_the_undefined_is_taken_back() -> None:
    w = Variable(np.float64(0.01), name="w")
    # the first trial lies far on the negative side, where the logarithm has no value
    loss = raw.Sub(raw.Mul(w.value(), convert_to_tensor(2.0, "float64")), raw.Log(w.value()))
    train = LBFGSOptimizer(learning_rate=5.0).minimize(loss)
    with Session() as session:
        session.run(global_variables_initializer())
        for _ in range(60):
            session.run(train)
        assert session.run(w) == pytest.approx(0.5, rel=1e-6)


def test_a_sparse_gradient_is_taken_too() -> None:
    table = Variable(np.ones((4, 2)), name="table")
    rows = raw.ResourceGather(table.handle, [1, 3, 1], dtype="float64")
    loss = raw.Sum(raw.Square(raw.Sub(rows, convert_to_tensor(3.0, "float64"))), [0, 1])
    train = LBFGSOptimizer().minimize(loss)
    with Session() as session:
        session.run(global_variables_initializer())
        for _ in range(25):
            session.run(train)
        np.testing.assert_allclose(session.run(table), [[1, 1], [3, 3], [1, 1], [3, 3]], atol=1e-6)


def test_what_it_cannot_minimize_is_named() -> None:
    w = Variable(np.float32(1.0), name="w")
    v = Variable(np.float64(1.0), name="v")
    both = raw.AddV2(w.value(), raw.Cast(v.value(), DstT="float32"))
    with pytest.raises(ValueError, match=r"one dtype.*w:0 has float32, v:0 has float64"):
        LBFGSOptimizer().minimize(both)
    with pytest.raises(ValueError, match="compares losses"):
        LBFGSOptimizer().apply_gradients([(convert_to_tensor(1.0), w)])
    with pytest.raises(ValueError, match="at least 1"):
        LBFGSOptimizer(history_size=0)
    with pytest.raises(ValueError, match="between 0 and 1"):
        LBFGSOptimizer(sufficient_decrease=1.5)
    half = Variable(convert_to_tensor(1.0, "float16"), name="half")
    with pytest.raises(ValueError, match="Invalid type 'float16'"):
        LBFGSOptimizer().minimize(raw.Square(half.value()))
