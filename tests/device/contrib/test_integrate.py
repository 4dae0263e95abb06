"""`tf.contrib.integrate`, beside solutions that are known."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import anabranch as tf

integrate = tf.contrib.integrate
TIMES = np.linspace(0.0, 2.0, 6)


def value(tensor: Any) -> Any:
    with tf.Session() as session:
        return session.run(tensor)


def test_steps_follow_the_error() -> None:
    rate, begin = np.array([[1j, -1.0 + 2j]]), np.array([[1.0, 2.0 + 0j]])
    found, told = value(integrate.odeint(lambda y, t: rate * y, begin, TIMES, full_output=True))
    np.testing.assert_allclose(found, np.exp(rate * TIMES[:, None, None]) * begin, rtol=3e-6)
    taken = told["integrate_points"][told["error_ratio"] <= 1]
    assert np.all(np.diff(taken) > 0)
    assert taken[-1] >= 2.0
    assert told["num_func_evals"] == 6 * len(told["integrate_points"]) + 1


def test_a_slope_that_depends_on_time_and_less_error() -> None:
    def slope(y: Any, t: Any) -> Any:
        return tf.cos(t) * y

    exact = np.exp(np.sin(TIMES))
    error = tf.placeholder(tf.float64, [])
    found = integrate.odeint(slope, np.float64(1.0), TIMES, rtol=error, atol=1e-12)
    with tf.Session() as session:
        rough, fine = (session.run(found, {error: allowed}) for allowed in (1e-3, 1e-9))
    assert np.abs(fine - exact).max() < 1e-8 < np.abs(rough - exact).max() < 1e-2


def in_numpy(dt: Any, method: str) -> list[float]:
    """The steps one by one, for the slope ``-t y``."""
    y, values = 1.0, [1.0]
    lengths = np.broadcast_to(np.diff(TIMES) if dt is None else dt, 5)
    for start, interval, wanted in zip(TIMES, np.diff(TIMES), lengths, strict=False):
        count = int(np.ceil(interval / wanted))
        h = interval / count
        for t in start + h * np.arange(count):
            first = -t * y
            second = -(t + h / 2) * (y + h / 2 * first)
            third = -(t + h / 2) * (y + h / 2 * second)
            fourth = -(t + h) * (y + h * third)
            y += h * second if method == "midpoint" else h / 6 * (first + 2 * second + 2 * third + fourth)
        values.append(y)
    return values


@pytest.mark.parametrize("method", ["rk4", "midpoint"])
@pytest.mark.parametrize("dt", [None, 0.15, [0.1, 0.2, 0.3, 0.4, 0.1]])
def test_steps_of_given_lengths(method: str, dt: Any) -> None:
    found = value(integrate.odeint_fixed(lambda y, t: -t * y, np.float64(1.0), TIMES, dt, method))
    np.testing.assert_allclose(found, in_numpy(dt, method), rtol=1e-12)
    np.testing.assert_allclose(found, np.exp(-(TIMES**2) / 2), atol=0.02)


@pytest.mark.parametrize("integrated", [integrate.odeint, integrate.odeint_fixed])
def test_gradients_go_through_the_steps(integrated: Any) -> None:
    begin, rate = tf.constant(2.0, tf.float64), tf.constant(-0.5, tf.float64)
    last = integrated(lambda y, t: rate * y, begin, TIMES)[-1]
    by_begin, by_rate = value(tf.gradients(last, [begin, rate]))
    assert by_begin == pytest.approx(np.exp(-1.0), abs=1e-4)
    assert by_rate == pytest.approx(4.0 * np.exp(-1.0), abs=1e-3)


def test_what_is_refused() -> None:
    def slope(y: Any, t: Any) -> Any:
        return -y

    with pytest.raises(TypeError, match="`y0` must have a floating point"):
        integrate.odeint(slope, 1, TIMES)
    with pytest.raises(TypeError, match="`t` must have a floating point"):
        integrate.odeint_fixed(slope, 1.0, tf.constant([0, 1]))
    with pytest.raises(ValueError, match="invalid method: 'euler'"):
        integrate.odeint(slope, 1.0, TIMES, method="euler")
    with pytest.raises(ValueError, match="cannot supply `options` without"):
        integrate.odeint(slope, 1.0, TIMES, options={"first_step": 0.1})
    with pytest.raises(ValueError, match="method not supported: euler"):
        integrate.odeint_fixed(slope, 1.0, TIMES, method="euler")
    with pytest.raises(ValueError, match="incompatible lengths"):
        integrate.odeint_fixed(slope, 1.0, TIMES, [0.1, 0.2])
    few = integrate.odeint(slope, 1.0, TIMES, method="dopri5", options={"max_num_steps": 1})
    for wrong, words in ((few, "max_num_steps"), (integrate.odeint(slope, 1.0, [1.0, 0.0]), "monotonic increasing")):
        with pytest.raises(tf.errors.InvalidArgumentError, match=words):
            value(wrong)
