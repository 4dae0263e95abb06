"""`tf.contrib.integrate`: systems of ordinary differential equations."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import anabranch as tf
from anabranch.contrib.arguments import PassedOn, TensorLike
from anabranch.contrib.ode_steps import Slope, StepRule, dormand_prince, increasing


def odeint(
    func: Slope,
    y0: TensorLike,
    t: TensorLike,
    rtol: TensorLike = 1e-6,
    atol: TensorLike = 1e-12,
    method: str | None = None,
    options: Mapping[str, PassedOn] | None = None,
    full_output: bool = False,
    name: str | None = None,
) -> PassedOn:
    """The values of y at some times, where dy/dt is ``func(y, t)``, by Dormand's and Prince's method.

    Steps are as long as their estimated error allows; values at times within a step are interpolated.

    Args:
        func: gives the slope for (y, a scalar t), of y's shape.
        y0: y at the first time: of any shape, floating-point or complex.
        t: [times], increasing; what is no tensor becomes one of float64.
        rtol, atol: error that is allowed in a step, relative to y and absolute.
        method: "dopri5" or None.
        options: with `method`: `first_step` (1.0), the length of the first step that is tried; `safety` (0.9);
            `ifactor` (10.0) and `dfactor` (0.2), how many times as long as a step the next one is at most and at
            least; `max_num_steps` (1000) between two times.
        full_output: whether what the integration did is returned as well.
        name: of the operations.

    Returns:
        y at the times, [times, ...]; with `full_output` a pair of it and a dictionary: "num_func_evals";
        "integrate_points", where each step that was tried would have ended; "error_ratio", the errors of those steps
        as parts of what is allowed, of which those above 1 were not taken.

    Raises:
        ValueError: another method, or options without one.
        TypeError: y0 or t is of integers; another option.
        InvalidArgumentError: (in the step) the times do not increase, there are too many steps, they become too short,
            or y is not finite.

    Example:
        >>> sess.run(tf.contrib.integrate.odeint(lambda y, t: -y, 1.0, [0.0, 1.0])).round(5)
        array([1.     , 0.36788], dtype=float32)
    """
    if method not in (None, "dopri5"):
        raise ValueError(f"invalid method: {method!r}")
    if options is not None and method is None:
        raise ValueError("cannot supply `options` without specifying `method`")
    with tf.name_scope(name, "odeint", [y0, t, rtol, atol]) as scope:
        y, times = tf.convert_to_tensor(y0, name="y0"), _times(t)
        _check_dtypes(y, times)
        real = tf.abs(y).dtype
        settings = dict(options or {})
        first_step = settings.pop("first_step", None)
        for key in {"safety", "ifactor", "dfactor"} & settings.keys():
            settings[key] = tf.convert_to_tensor(settings[key], times.dtype)
        rule = StepRule(tf.convert_to_tensor(rtol, real), tf.convert_to_tensor(atol, real), **settings)
        found, tries = dormand_prince(func, y, times, rule, 1.0 if first_step is None else first_step)
        values = tf.identity(found, name=scope)
        values.set_shape(times.shape.concatenate(y.shape))
        if not full_output:
            return values
        ends = tries.ends.stack()
        return values, {
            "num_func_evals": 6 * tf.size(ends) + 1,
            "integrate_points": ends,
            "error_ratio": tries.errors.stack(),
        }


def odeint_fixed(
    func: Slope,
    y0: TensorLike,
    t: TensorLike,
    dt: TensorLike | None = None,
    method: str = "rk4",
    name: str | None = None,
) -> tf.Tensor:
    """The values of y at some times, where dy/dt is ``func(y, t)``, by steps of given lengths.

    Args:
        func: gives the slope for (y, a scalar t), of y's shape.
        y0: y at the first time: of any shape, floating-point or complex.
        t: [times], increasing; what is no tensor becomes one of float64.
        dt: the length of a step, or [times - 1], one for each interval: it is made a bit shorter where an interval is
            no multiple of it. None: a step for each interval.
        method: "rk4", Runge's and Kutta's of order four, or "midpoint", of order two.
        name: of the operations.

    Returns:
        y at the times, [times, ...].

    Raises:
        ValueError: another method, times or steps that are no vector, or not as many steps as intervals.
        TypeError: y0, t or dt is of integers.
        InvalidArgumentError: (in the step) the times do not increase.

    Example:
        >>> sess.run(tf.contrib.integrate.odeint_fixed(lambda y, t: -y, 1.0, [0.0, 1.0], dt=0.25)).round(4)
        array([1.    , 0.3679], dtype=float32)
    """
    with tf.name_scope(name, "odeint_fixed", [y0, t, dt]):
        times, y = _times(t), tf.convert_to_tensor(y0, name="y0")
        intervals = times[1:] - times[:-1]
        wanted = intervals if dt is None else tf.convert_to_tensor(dt, preferred_dtype=tf.float64, name="dt")
        _check_dtypes(y, times, wanted)
        if (wanted.shape.ndims is not None and wanted.shape.ndims > 1) or times.shape.ndims not in (None, 1):
            raise ValueError(f"t must be a vector, and dt a number or a vector, got {times.shape} and {wanted.shape}")
        if wanted.shape.ndims != 0 and not intervals.shape.is_compatible_with(wanted.shape):
            raise ValueError(
                f"t and dt have incompatible lengths, must be N and N-1, got {times.shape}, {wanted.shape}"
            )
        counts = tf.ceil(intervals / wanted)
        lengths = intervals / counts
        steps = {"rk4": _rk4, "midpoint": _midpoint}
        if method not in steps:
            raise ValueError(f"method not supported: {method}")
        with tf.control_dependencies([increasing(times)]), tf.name_scope(method):
            found = _on_grid(func, y, times[0], (tf.cast(counts, tf.int32), lengths), steps[method])
        found.set_shape(times.shape.concatenate(y.shape))
        return found


def _on_grid(
    func: Slope, y0: tf.Tensor, start: tf.Tensor, grid: tuple[tf.Tensor, tf.Tensor], step: PassedOn
) -> tf.Tensor:
    def over_interval(state: tuple[tf.Tensor, tf.Tensor], interval: tuple[tf.Tensor, tf.Tensor]) -> Any:
        count, length = interval
        _, time, y = tf.while_loop(
            lambda number, *_: number < count,
            lambda number, time, y: (number + 1, time + length, y + tf.cast(step(func, time, length, y), y.dtype)),
            (0, *state),
        )
        return time, y

    _, later = tf.scan(over_interval, grid, (start, y0))
    return tf.concat([y0[tf.newaxis], later], 0)


def _midpoint(func: Slope, t: tf.Tensor, dt: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
    length = tf.cast(dt, y.dtype)
    result: tf.Tensor = length * func(y + length / 2 * func(y, t), t + dt / 2)
    return result


def _rk4(func: Slope, t: tf.Tensor, dt: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
    length = tf.cast(dt, y.dtype)
    first = func(y, t)
    second = func(y + length / 2 * first, t + dt / 2)
    third = func(y + length / 2 * second, t + dt / 2)
    fourth = func(y + length * third, t + dt)
    result: tf.Tensor = length / 6 * (first + 2 * second + 2 * third + fourth)
    return result


def _times(t: TensorLike) -> tf.Tensor:
    return tf.convert_to_tensor(t, preferred_dtype=tf.float64, name="t")


def _check_dtypes(y: tf.Tensor, t: tf.Tensor, dt: tf.Tensor | None = None) -> None:
    if not (y.dtype.is_floating or y.dtype.is_complex):
        raise TypeError(f"`y0` must have a floating point or complex floating point dtype, got {y.dtype.name}")
    for name, value in (("t", t), ("dt", dt)):
        if value is not None and not value.dtype.is_floating:
            raise TypeError(f"`{name}` must have a floating point dtype, got {value.dtype.name}")
