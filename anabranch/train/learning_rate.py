"""Learning rates that fall while training goes on: functions of the global step, as tensors.

In all of them `learning_rate` is a number or a scalar floating-point tensor, `global_step` the number of steps done (a
variable, tensor or number), `name` that of the returned tensor; the result is a scalar tensor of the dtype of
`learning_rate`, to be given to an optimizer. They raise ValueError if `global_step` is None.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from anabranch.core.dtypes import DType
from anabranch.core.values import TensorLike
from anabranch.frontend.framework import get_seed
from anabranch.graph.conversion import convert_to_tensor
from anabranch.graph.graph import get_default_graph
from anabranch.graph.operation import Tensor
from anabranch.ops import raw


class _Inputs:
    """The arguments of a schedule as tensors of the learning rate's dtype."""

    def __init__(self, learning_rate: TensorLike, global_step: TensorLike, decay_steps: TensorLike) -> None:
        self.rate = convert_to_tensor(learning_rate, name="learning_rate")
        self.dtype = self.rate.dtype.base_dtype
        self.step = _cast(global_step, self.dtype)
        self.decay_steps = _cast(decay_steps, self.dtype)

    def number(self, value: TensorLike) -> Tensor:
        return _cast(value, self.dtype)


@contextmanager
def _schedule(name: str | None, default: str, global_step: TensorLike, function: str) -> Iterator[str]:
    if global_step is None:
        raise ValueError(f"global_step is required for {function}.")
    with get_default_graph().name_scope(name or default) as scope:
        yield scope


def _cast(value: TensorLike, dtype: DType) -> Tensor:
    if isinstance(value, int | float):
        return convert_to_tensor(value, dtype)
    tensor = convert_to_tensor(value)
    return tensor if tensor.dtype.base_dtype is dtype else raw.Cast(tensor, DstT=dtype)


def exponential_decay(
    learning_rate: TensorLike,
    global_step: TensorLike,
    decay_steps: TensorLike,
    decay_rate: TensorLike,
    staircase: bool = False,
    name: str | None = None,
) -> Tensor:
    """``learning_rate * decay_rate ^ (global_step / decay_steps)``; `staircase` rounds the exponent down.

    Args:
        learning_rate: the rate at step 0, a number or a floating scalar.
        global_step: a number, or an integer scalar or variable.
        decay_steps: a positive number.
        decay_rate: a number.
        staircase: whether the exponent is rounded down.
        name: of the operation.

    Returns:
        A scalar of the dtype of `learning_rate`.

    Raises:
        ValueError: `global_step` is None.

    Example:
        >>> sess.run(tf.train.exponential_decay(0.1, global_step=200, decay_steps=100, decay_rate=0.5))
        np.float32(0.025)
    """
    with _schedule(name, "ExponentialDecay", global_step, "exponential_decay") as scope:
        given = _Inputs(learning_rate, global_step, decay_steps)
        exponent = _periods(given, staircase)
        result: Tensor = raw.Mul(given.rate, raw.Pow(given.number(decay_rate), exponent), name=scope)
        return result


def natural_exp_decay(
    learning_rate: TensorLike,
    global_step: TensorLike,
    decay_steps: TensorLike,
    decay_rate: TensorLike,
    staircase: bool = False,
    name: str | None = None,
) -> Tensor:
    """``learning_rate * exp(-decay_rate * global_step / decay_steps)``; `staircase` rounds the quotient down."""
    with _schedule(name, "NaturalExpDecay", global_step, "natural_exp_decay") as scope:
        given = _Inputs(learning_rate, global_step, decay_steps)
        exponent = raw.Neg(given.number(decay_rate)) * _periods(given, staircase)
        result: Tensor = raw.Mul(given.rate, raw.Exp(exponent), name=scope)
        return result


def inverse_time_decay(
    learning_rate: TensorLike,
    global_step: TensorLike,
    decay_steps: TensorLike,
    decay_rate: TensorLike,
    staircase: bool = False,
    name: str | None = None,
) -> Tensor:
    """``learning_rate / (1 + decay_rate * global_step / decay_steps)``; `staircase` rounds the quotient down."""
    with _schedule(name, "InverseTimeDecay", global_step, "inverse_time_decay") as scope:
        given = _Inputs(learning_rate, global_step, decay_steps)
        divisor = 1.0 + given.number(decay_rate) * _periods(given, staircase)
        result: Tensor = raw.RealDiv(given.rate, divisor, name=scope)
        return result


def _periods(given: _Inputs, staircase: bool) -> Any:
    """How many times `decay_steps` steps were done."""
    periods = given.step / given.decay_steps
    return raw.Floor(periods) if staircase else periods


def piecewise_constant(
    x: TensorLike, boundaries: Sequence[Any], values: Sequence[Any], name: str | None = None
) -> Tensor:
    """``values[0]`` while ``x <= boundaries[0]``, ``values[1]`` while ``x <= boundaries[1]``, and so on.

    After the last boundary it is ``values[-1]``.

    Args:
        x: usually the global step.
        boundaries: increasing, of the dtype of `x` (numbers; int32 where `x` is int64).
        values: one more than boundaries, all of one dtype.
        name: of the operation.

    Raises:
        ValueError: the numbers of boundaries and values do not fit, or their dtypes do not.
    """
    if len(boundaries) != len(values) - 1:
        raise ValueError("The length of boundaries should be 1 less than the length of values")
    with _schedule(name, "PiecewiseConstant", x, "piecewise_constant") as scope:
        step = convert_to_tensor(x)
        choices = [convert_to_tensor(v) for v in values]
        for value in choices[1:]:
            if value.dtype.base_dtype is not choices[0].dtype.base_dtype:
                raise ValueError(
                    "Values must have elements all with the same dtype "
                    f"({choices[0].dtype.name} vs {value.dtype.name})."
                )
        if len(choices) == 1:
            single: Tensor = raw.Identity(choices[0], name=scope)
            return single
        limits = raw.Pack([_boundary(b, step) for b in boundaries])
        passed = raw.Cast(raw.Greater(step, limits), DstT="int32")
        index = raw.Sum(passed, [0])
        result: Tensor = raw.GatherV2(raw.Pack(choices), index, 0, name=scope)
        return result


def _boundary(boundary: TensorLike, step: Tensor) -> Tensor:
    dtype = step.dtype.base_dtype
    tensor = convert_to_tensor(boundary, preferred_dtype=dtype)
    if tensor.dtype.base_dtype is dtype:
        return tensor
    if tensor.dtype.name == "int32" and dtype.name == "int64":
        wider: Tensor = raw.Cast(tensor, DstT=dtype)
        return wider
    raise ValueError(f"Boundaries ({tensor.dtype.name}) must have the same dtype as x ({dtype.name}).")


piecewise_constant_decay = piecewise_constant


def polynomial_decay(
    learning_rate: TensorLike,
    global_step: TensorLike,
    decay_steps: TensorLike,
    end_learning_rate: TensorLike = 0.0001,
    power: TensorLike = 1.0,
    cycle: bool = False,
    name: str | None = None,
) -> Tensor:
    """Goes from `learning_rate` to `end_learning_rate` in `decay_steps` steps, along ``(1 - progress) ^ power``.

    After that it stays there, or with `cycle` begins again with the next multiple of `decay_steps`.

    Args:
        learning_rate: the rate at step 0, a number or a floating scalar.
        global_step: a number, or an integer scalar or variable.
        decay_steps: a positive number.
        end_learning_rate: the last rate.
        power: a number.
        cycle: whether to begin again after `decay_steps`.
        name: of the operation.

    Returns:
        A scalar of the dtype of `learning_rate`.

    Raises:
        ValueError: `global_step` is None.

    Example:
        >>> sess.run(tf.train.polynomial_decay(0.1, global_step=50, decay_steps=100, end_learning_rate=0.0))
        np.float32(0.05)
    """
    with _schedule(name, "PolynomialDecay", global_step, "polynomial_decay") as scope:
        given = _Inputs(learning_rate, global_step, decay_steps)
        end = given.number(end_learning_rate)
        if cycle:
            periods = raw.Maximum(raw.Ceil(given.step / given.decay_steps), given.number(1.0))
            progress = given.step / (given.decay_steps * periods)
        else:
            progress = _progress(given)
        remaining = raw.Pow(1.0 - progress, given.number(power))
        result: Tensor = raw.AddV2((given.rate - end) * remaining, end, name=scope)
        return result


def _progress(given: _Inputs) -> Any:
    """The part of `decay_steps` that is done, at most 1."""
    return raw.Minimum(given.step, given.decay_steps) / given.decay_steps


def cosine_decay(
    learning_rate: TensorLike,
    global_step: TensorLike,
    decay_steps: TensorLike,
    alpha: float = 0.0,
    name: str | None = None,
) -> Tensor:
    """Half a period of a cosine, from `learning_rate` to ``alpha * learning_rate`` in `decay_steps` steps.

    (Loshchilov and Hutter, 2017.)
    """
    with _schedule(name, "CosineDecay", global_step, "cosine_decay") as scope:
        given = _Inputs(learning_rate, global_step, decay_steps)
        cosine = 0.5 * (1.0 + raw.Cos(math.pi * _progress(given)))
        result: Tensor = raw.Mul(given.rate, (1.0 - alpha) * cosine + alpha, name=scope)
        return result


def cosine_decay_restarts(
    learning_rate: TensorLike,
    global_step: TensorLike,
    first_decay_steps: TensorLike,
    t_mul: TensorLike = 2.0,
    m_mul: TensorLike = 1.0,
    alpha: float = 0.0,
    name: str | None = None,
) -> Tensor:
    """Cosine decay that begins again after each period (Loshchilov and Hutter, 2017).

    Args:
        learning_rate: at the beginning.
        global_step: steps done.
        first_decay_steps: length of the first period.
        t_mul: each period is this many times as long as the one before, >= 1.
        m_mul: each period begins at this many times the rate of the one before.
        alpha: the smallest rate, as a fraction of `learning_rate`.
        name: of the returned tensor.
    """
    with _schedule(name, "SGDRDecay", global_step, "cosine_decay_restarts") as scope:
        given = _Inputs(learning_rate, global_step, first_decay_steps)
        growth = given.number(t_mul)
        restarts, within = _restart(given.step / given.decay_steps, growth, t_mul)
        amplitude = 0.5 * raw.Pow(given.number(m_mul), restarts)
        cosine = amplitude * (1.0 + raw.Cos(math.pi * within))
        result: Tensor = raw.Mul(given.rate, (1.0 - alpha) * cosine + alpha, name=scope)
        return result


def _restart(periods: TensorLike, growth: Tensor, t_mul: TensorLike) -> tuple[Any, Any]:
    """The number of restarts after `periods` first periods, and the part of the present period that is done."""
    if isinstance(t_mul, int | float) and t_mul == 1:
        return _equal_periods(periods)
    restarts = raw.Floor(raw.Log(1.0 - periods * (1.0 - growth)) / raw.Log(growth))
    length = raw.Pow(growth, restarts)
    within = (periods - (1.0 - length) / (1.0 - growth)) / length
    if isinstance(t_mul, int | float):
        return restarts, within
    even = raw.Equal(growth, convert_to_tensor(1.0, growth.dtype))
    equal = _equal_periods(periods)
    return raw.SelectV2(even, equal[0], restarts), raw.SelectV2(even, equal[1], within)


def _equal_periods(periods: TensorLike) -> tuple[Any, Any]:
    restarts = raw.Floor(periods)
    return restarts, periods - restarts


def linear_cosine_decay(
    learning_rate: TensorLike,
    global_step: TensorLike,
    decay_steps: TensorLike,
    num_periods: float = 0.5,
    alpha: float = 0.0,
    beta: float = 0.001,
    name: str | None = None,
) -> Tensor:
    """A cosine under a falling line (Bello et al., 2017).

    ``(alpha + 1 - progress) * (1 + cos(2 pi num_periods progress)) / 2 + beta``, times `learning_rate`.
    """
    with _schedule(name, "LinearCosineDecay", global_step, "linear_cosine_decay") as scope:
        given = _Inputs(learning_rate, global_step, decay_steps)
        linear = 1.0 - _progress(given)
        result: Tensor = raw.Mul(given.rate, (alpha + linear) * _wave(given, num_periods) + beta, name=scope)
        return result


def noisy_linear_cosine_decay(
    learning_rate: TensorLike,
    global_step: TensorLike,
    decay_steps: TensorLike,
    initial_variance: float = 1.0,
    variance_decay: float = 0.55,
    num_periods: float = 0.5,
    alpha: float = 0.0,
    beta: float = 0.001,
    name: str | None = None,
) -> Tensor:
    """The same as `linear_cosine_decay`, with Gaussian noise added to the line.

    The noise has the variance ``initial_variance / (1 + global_step) ^ variance_decay``.
    """
    with _schedule(name, "NoisyLinearCosineDecay", global_step, "noisy_linear_cosine_decay") as scope:
        given = _Inputs(learning_rate, global_step, decay_steps)
        step = raw.Minimum(given.step, given.decay_steps)
        variance = initial_variance / raw.Pow(1.0 + step, given.number(variance_decay))
        seed, seed2 = get_seed(None)
        noise = raw.RandomStandardNormal(raw.Shape(variance), dtype=given.dtype, seed=seed or 0, seed2=seed2 or 0)
        linear = 1.0 - _progress(given) + noise * raw.Sqrt(variance)
        result: Tensor = raw.Mul(given.rate, (alpha + linear) * _wave(given, num_periods) + beta, name=scope)
        return result


def _wave(given: _Inputs, num_periods: float) -> Any:
    return 0.5 * (1.0 + raw.Cos(2.0 * math.pi * num_periods * _progress(given)))
