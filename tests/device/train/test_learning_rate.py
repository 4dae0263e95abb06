"""Schedules of the learning rate against their formulas."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from anabranch.frontend.variables.functions import global_variables_initializer
from anabranch.graph.conversion import convert_to_tensor
from anabranch.ops import raw
from anabranch.session import Session
from anabranch.train import learning_rate as schedules
from anabranch.train.training_util import create_global_step

STEPS = [0, 1, 3, 5, 9, 10, 11, 15, 20, 25, 30, 44, 100]


def polynomial(t: float, end: float, power: float, cycle: bool) -> float:
    length = 10.0 * max(1.0, math.ceil(t / 10)) if cycle else 10.0
    return (0.5 - end) * (1 - min(t, length) / length) ** power + end


def restarts(t: float, t_mul: float, m_mul: float, alpha: float) -> float:
    length, rate = 10.0, 1.0
    while t >= length:
        t, length, rate = t - length, length * t_mul, rate * m_mul
    return 0.5 * ((1 - alpha) * rate * 0.5 * (1 + math.cos(math.pi * t / length)) + alpha)


def linear_cosine(t: float, periods: float, alpha: float, beta: float) -> float:
    p = min(t, 10.0) / 10
    return 0.5 * ((alpha + 1 - p) * 0.5 * (1 + math.cos(2 * math.pi * periods * p)) + beta)


#: (schedule of the global step with a rate of 0.5 and 10 steps, the same as a formula)
CASES: dict[str, tuple[Callable[[Any, Any], Any], Callable[[float], float]]] = {
    "exponential": (lambda r, s: schedules.exponential_decay(r, s, 10, 0.9), lambda t: 0.5 * 0.9 ** (t / 10)),
    "exponential staircase": (
        lambda r, s: schedules.exponential_decay(r, s, 10, 0.9, staircase=True),
        lambda t: 0.5 * 0.9 ** (t // 10),
    ),
    "natural exponential": (
        lambda r, s: schedules.natural_exp_decay(r, s, 10, 0.9),
        lambda t: 0.5 * math.exp(-0.9 * t / 10),
    ),
    "natural exponential staircase": (
        lambda r, s: schedules.natural_exp_decay(r, s, 10, 0.9, staircase=True),
        lambda t: 0.5 * math.exp(-0.9 * (t // 10)),
    ),
    "inverse time": (lambda r, s: schedules.inverse_time_decay(r, s, 10, 2.0), lambda t: 0.5 / (1 + 2 * t / 10)),
    "inverse time staircase": (
        lambda r, s: schedules.inverse_time_decay(r, s, 10, 2.0, staircase=True),
        lambda t: 0.5 / (1 + 2 * (t // 10)),
    ),
    "polynomial": (lambda r, s: schedules.polynomial_decay(r, s, 10), lambda t: polynomial(t, 1e-4, 1.0, False)),
    "polynomial squared": (
        lambda r, s: schedules.polynomial_decay(r, s, 10, 0.1, power=2.0),
        lambda t: polynomial(t, 0.1, 2.0, False),
    ),
    "polynomial cycle": (
        lambda r, s: schedules.polynomial_decay(r, s, 10, 0.1, power=0.5, cycle=True),
        lambda t: polynomial(t, 0.1, 0.5, True),
    ),
    "cosine": (
        lambda r, s: schedules.cosine_decay(r, s, 10, alpha=0.1),
        lambda t: 0.5 * (0.9 * 0.5 * (1 + math.cos(math.pi * min(t, 10) / 10)) + 0.1),
    ),
    "cosine restarts": (
        lambda r, s: schedules.cosine_decay_restarts(r, s, 10, t_mul=2.0, m_mul=0.5, alpha=0.1),
        lambda t: restarts(t, 2.0, 0.5, 0.1),
    ),
    "cosine restarts of equal length": (
        lambda r, s: schedules.cosine_decay_restarts(r, s, 10, t_mul=1.0),
        lambda t: restarts(t, 1.0, 1.0, 0.0),
    ),
    "cosine restarts with a tensor": (
        lambda r, s: schedules.cosine_decay_restarts(r, s, 10, t_mul=convert_to_tensor(1.0)),
        lambda t: restarts(t, 1.0, 1.0, 0.0),
    ),
    "linear cosine": (
        lambda r, s: schedules.linear_cosine_decay(r, s, 10, num_periods=1.5, alpha=0.1, beta=0.01),
        lambda t: linear_cosine(t, 1.5, 0.1, 0.01),
    ),
    "noisy linear cosine without noise": (
        lambda r, s: schedules.noisy_linear_cosine_decay(r, s, 10, initial_variance=0.0),
        lambda t: linear_cosine(t, 0.5, 0.0, 0.001),
    ),
}


@pytest.mark.parametrize(("name", "dtype"), [(name, dtype) for name in CASES for dtype in ("float32", "float64")])
def test_a_schedule_follows_its_formula(name: str, dtype: str) -> None:
    make, formula = CASES[name]
    step = raw.Placeholder(dtype="int64", shape=[])
    rate = make(convert_to_tensor(0.5, dtype), step)
    assert rate.shape.as_list() == []
    with Session() as session:
        for t in STEPS:
            value = session.run(rate, {step: t})
            assert value.dtype == dtype
            # float32 at the seams of the restarts: a step may count to either period
            tolerance = 5e-6 if dtype == "float32" else 1e-6
            np.testing.assert_allclose(value, formula(t), rtol=tolerance, atol=2e-7, err_msg=f"step {t}")


@pytest.mark.parametrize("step_dtype", ["int32", "int64", "float32"])
def test_piecewise_constant(step_dtype: str) -> None:
    step = raw.Placeholder(dtype=step_dtype, shape=[])
    boundaries: Any = [10.0, 20.0] if step_dtype == "float32" else [10, 20]
    rate = schedules.piecewise_constant(step, boundaries, [1.0, 0.5, 0.25])
    with Session() as session:
        values = [float(session.run(rate, {step: t})) for t in (0, 10, 11, 20, 21, 1000)]
    assert values == [1.0, 1.0, 0.5, 0.5, 0.25, 0.25]
    assert schedules.piecewise_constant_decay is schedules.piecewise_constant


def test_piecewise_constant_takes_narrow_boundaries_and_refuses_what_does_not_fit() -> None:
    step = raw.Placeholder(dtype="int64", shape=[])
    narrow = schedules.piecewise_constant(step, [convert_to_tensor(3, "int32")], [1, 2])
    with Session() as session:
        assert session.run(narrow, {step: 4}) == 2
        assert session.run(schedules.piecewise_constant(step, [], [7.0]), {step: 4}) == 7.0
    with pytest.raises(ValueError, match="1 less than the length of values"):
        schedules.piecewise_constant(step, [1, 2], [1.0, 2.0])
    with pytest.raises(ValueError, match="must have the same dtype as x"):
        schedules.piecewise_constant(step, [convert_to_tensor(1.5)], [1.0, 2.0])
    with pytest.raises(ValueError, match="elements all with the same dtype"):
        schedules.piecewise_constant(step, [1], [1.0, 2])


def test_noise_has_the_variance_asked_for() -> None:
    step = raw.Placeholder(dtype="int32", shape=[])
    rate = schedules.noisy_linear_cosine_decay(1.0, step, 1000, initial_variance=0.25, variance_decay=0.5)
    with Session() as session:
        values = np.array([session.run(rate, {step: 99}) for _ in range(400)])
    p = 99 / 1000
    wave = 0.5 * (1 + math.cos(math.pi * p))
    np.testing.assert_allclose(values.mean(), (1 - p) * wave + 0.001, atol=0.05)
    np.testing.assert_allclose(values.std(), math.sqrt(0.25 / 10) * wave, rtol=0.2)


def test_a_schedule_follows_the_global_step_variable() -> None:
    step = create_global_step()
    rate = schedules.exponential_decay(0.1, step, 2, 0.5, staircase=True, name="rate")
    assert rate.op.name == "rate"
    with Session() as session:
        session.run(global_variables_initializer())
        values = []
        for _ in range(5):
            values.append(round(float(session.run(rate)), 6))
            session.run(step.assign_add(1))
    assert values == [0.1, 0.1, 0.05, 0.05, 0.025]


@pytest.mark.parametrize(
    "make",
    [
        lambda: schedules.exponential_decay(0.1, None, 10, 0.9),
        lambda: schedules.natural_exp_decay(0.1, None, 10, 0.9),
        lambda: schedules.inverse_time_decay(0.1, None, 10, 0.9),
        lambda: schedules.polynomial_decay(0.1, None, 10),
        lambda: schedules.cosine_decay(0.1, None, 10),
        lambda: schedules.cosine_decay_restarts(0.1, None, 10),
        lambda: schedules.linear_cosine_decay(0.1, None, 10),
        lambda: schedules.noisy_linear_cosine_decay(0.1, None, 10),
    ],
)
def test_a_schedule_needs_a_global_step(make: Callable[[], Any]) -> None:
    with pytest.raises(ValueError, match="global_step is required for"):
        make()
