"""`tf.contrib.integrate.odeint`: a Runge-Kutta method of order five whose steps are as long as its error allows.

The method is that of Dormand and Prince (1980). Each step also has an estimate of its error, from a method of order
four with the same stages, and a value in its middle (Shampine 1986); a polynomial of order four through both ends,
their slopes and the middle gives the values in between.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

import anabranch as tf
from anabranch.contrib.arguments import TensorLike

#: the slope dy/dt of y at t
Slope = Callable[[tf.Tensor, tf.Tensor], TensorLike]

#: where each stage is, as a part of the step, and the weights of the slopes before it
_STAGES: Final = (
    (1 / 5, (1 / 5,)),
    (3 / 10, (3 / 40, 9 / 40)),
    (4 / 5, (44 / 45, -56 / 15, 32 / 9)),
    (8 / 9, (19372 / 6561, -25360 / 2187, 64448 / 6561, -212 / 729)),
    (1.0, (9017 / 3168, -355 / 33, 46732 / 5247, 49 / 176, -5103 / 18656)),
    (1.0, (35 / 384, 0.0, 500 / 1113, 125 / 192, -2187 / 6784, 11 / 84)),
)
#: of the method of order four, whose difference to the last stage is the error
_FOURTH_ORDER: Final = (1951 / 21600, 0.0, 22642 / 50085, 451 / 720, -12231 / 42400, 649 / 6300, 1 / 60)
_ERROR: Final = tuple(low - high for low, high in zip(_FOURTH_ORDER, (*_STAGES[-1][1], 0.0), strict=True))
#: of the value in the middle of a step
_MIDDLE: Final = (
    6025192743 / 60171106304,
    0.0,
    51252292925 / 130801643196,
    -2691868925 / 90256658458,
    187940372067 / 3189068634112,
    -1776094331 / 39487288512,
    11237099 / 470086768,
)


class StepRule(NamedTuple):
    """How long steps are.

    Args:
        rtol, atol: error that is allowed, relative to y and absolute.
        safety: part of the length at which the error would be as large as it may.
        ifactor: how many times as long as a step the next one is at most.
        dfactor: what part of its length at least.
        max_num_steps: steps between two times, before the integration fails.
    """

    rtol: tf.Tensor
    atol: tf.Tensor
    safety: TensorLike = 0.9
    ifactor: TensorLike = 10.0
    dfactor: TensorLike = 0.2
    max_num_steps: TensorLike = 1000


class Integration(NamedTuple):
    """What has been come to.

    Args:
        y, slope: at the time `end`.
        start, end: of the last step.
        length: of the next one.
        curve: coefficients of the polynomial of the last step, from that of order four to the constant.
    """

    y: tf.Tensor
    slope: tf.Tensor
    start: tf.Tensor
    end: tf.Tensor
    length: tf.Tensor
    curve: tuple[tf.Tensor, ...]


class Tries(NamedTuple):
    """Where each step that was tried would have ended, and its error as a part of what is allowed."""

    ends: tf.TensorArray
    errors: tf.TensorArray


def dormand_prince(
    func: Slope, y0: tf.Tensor, t: tf.Tensor, rule: StepRule, first_step: TensorLike
) -> tuple[tf.Tensor, Tries]:
    """Integrates from the first of the times `t` through all of them.

    Returns:
        (the values at the times, [times, ...], the steps that were tried).
    """
    with tf.control_dependencies([increasing(t)]):
        count = tf.size(t)
    error = rule.rtol.dtype
    begin = Integration(
        y0,
        tf.convert_to_tensor(func(y0, t[0])),
        t[0],
        t[0],
        tf.convert_to_tensor(first_step, t.dtype),
        (y0,) * 5,
    )
    empty = Tries(*(tf.TensorArray(dtype, size=0, dynamic_size=True) for dtype in (t.dtype, error)))

    def to_next(number: tf.Tensor, values: tf.TensorArray, now: Integration, tries: Tries) -> Any:
        time = t[number]
        _, now, tries = tf.while_loop(
            lambda _, now, tries: time > now.end,
            lambda steps, now, tries: (steps + 1, *_tried(func, steps, now, tries, rule)),
            (0, now, tries),
        )
        return number + 1, values.write(number, between(now, time)), now, tries

    values = tf.TensorArray(y0.dtype, size=count).write(0, y0)
    _, values, _, tries = tf.while_loop(lambda number, *_: number < count, to_next, (1, values, begin, empty))
    return values.stack(), tries


def increasing(t: tf.Tensor) -> tf.Operation:
    """Fails where times do not increase."""
    return tf.Assert(tf.reduce_all(t[1:] > t[:-1]), ["`t` must be monotonic increasing"])


def _tried(func: Slope, steps: tf.Tensor, now: Integration, tries: Tries, rule: StepRule) -> tuple[Integration, Tries]:
    """Another step; where its error is too large, it is not taken, and the next one is shorter."""
    checks = [
        tf.Assert(now.end + now.length > now.end, ["underflow in dt", now.length]),
        tf.Assert(steps < rule.max_num_steps, ["max_num_steps exceeded"]),
        tf.Assert(tf.reduce_all(tf.is_finite(tf.abs(now.y))), ["non-finite values in state `y`", now.y]),
    ]
    with tf.control_dependencies(checks):
        y = tf.identity(now.y)
    length = tf.cast(now.length, y.dtype)
    slopes = [now.slope]
    after = y
    for part, weights in _STAGES:
        after = y + length * _weighted(weights, slopes)
        slopes.append(tf.convert_to_tensor(func(after, now.end + part * now.length)))
    allowed = rule.atol + rule.rtol * tf.maximum(tf.abs(y), tf.abs(after))
    error = tf.sqrt(tf.reduce_mean(tf.square(tf.abs(length * _weighted(_ERROR, slopes)) / allowed)))
    middle = y + length * _weighted(_MIDDLE, slopes)
    taken = Integration(
        after, slopes[-1], now.end, now.end + now.length, now.length, _curve((y, middle, after), slopes, length)
    )
    kept = now._replace(start=now.end)
    chosen = tf.cond(error <= 1, lambda: taken, lambda: kept)
    tries = Tries(tries.ends.write(tries.ends.size(), taken.end), tries.errors.write(tries.errors.size(), error))
    return chosen._replace(length=next_length(now.length, error, rule)), tries


def next_length(length: tf.Tensor, error: tf.Tensor, rule: StepRule) -> tf.Tensor:
    """The length of a step whose error would be a bit less than what is allowed: it grows with the fifth power."""
    wanted = rule.safety / tf.cast(error, length.dtype) ** (1 / 5)
    result: tf.Tensor = length * tf.clip_by_value(wanted, rule.dfactor, rule.ifactor)
    return result


def _curve(values: Sequence[tf.Tensor], slopes: Sequence[tf.Tensor], length: tf.Tensor) -> tuple[tf.Tensor, ...]:
    """The polynomial of order four through three values, at 0, 1/2 and 1, that has the slopes of a step at its ends."""
    first, middle, last = values
    rise, fall = length * slopes[0], length * slopes[-1]
    return (
        2 * (fall - rise) - 8 * (first + last) + 16 * middle,
        5 * rise - 3 * fall + 18 * first + 14 * last - 32 * middle,
        fall - 4 * rise - 11 * first - 5 * last + 16 * middle,
        rise,
        first,
    )


def between(now: Integration, time: tf.Tensor) -> tf.Tensor:
    """The value at a time within the last step."""
    within = tf.Assert(
        (now.start <= time) & (time <= now.end),
        ["invalid interpolation, fails `t0 <= t <= t1`:", now.start, time, now.end],
    )
    with tf.control_dependencies([within]):
        part = tf.cast((time - now.start) / (now.end - now.start), now.y.dtype)
    value = now.curve[0]
    for coefficient in now.curve[1:]:
        value = value * part + coefficient
    return value


def _weighted(weights: Sequence[float], slopes: Sequence[tf.Tensor]) -> tf.Tensor:
    return tf.add_n([weight * slope for weight, slope in zip(weights, slopes, strict=False) if weight])
