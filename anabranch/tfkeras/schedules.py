"""`tf.keras.optimizers.schedules`: learning rates as functions of the step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

import anabranch as tf
from anabranch.core.values import TensorLike


class LearningRateSchedule:
    """A learning rate that depends on the step; a subclass defines `__call__(step)` and `get_config()`."""

    def __call__(self, step: TensorLike) -> Any:
        raise NotImplementedError("Learning rate schedule must override __call__")

    def get_config(self) -> dict[str, Any]:
        raise NotImplementedError("Learning rate schedule must override get_config")

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Any:
        return cls(**config)


class _Decay(LearningRateSchedule):
    """One of `tf.train`'s functions; what it is called with, its fields, is its configuration."""

    def get_config(self) -> dict[str, Any]:
        return {field.name: getattr(self, field.name) for field in fields(self)}  # type: ignore[arg-type]


@dataclass(eq=False, repr=False)
class ExponentialDecay(_Decay):
    """initial · rate^(step / steps), the quotient without its fraction for `staircase`."""

    initial_learning_rate: float
    decay_steps: int
    decay_rate: float
    staircase: bool = False
    name: str | None = None

    def __call__(self, step: TensorLike) -> Any:
        return tf.train.exponential_decay(
            self.initial_learning_rate, step, self.decay_steps, self.decay_rate, self.staircase
        )


@dataclass(eq=False, repr=False)
class InverseTimeDecay(_Decay):
    """initial / (1 + rate · step / steps), the quotient without its fraction for `staircase`."""

    initial_learning_rate: float
    decay_steps: int
    decay_rate: float
    staircase: bool = False
    name: str | None = None

    def __call__(self, step: TensorLike) -> Any:
        return tf.train.inverse_time_decay(
            self.initial_learning_rate, step, self.decay_steps, self.decay_rate, self.staircase
        )


@dataclass(eq=False, repr=False)
class PiecewiseConstantDecay(_Decay):
    """values[i] up to step boundaries[i], and the last value afterwards."""

    boundaries: Sequence[float]
    values: Sequence[float]
    name: str | None = None

    def __post_init__(self) -> None:
        if len(self.boundaries) != len(self.values) - 1:
            raise ValueError("The length of boundaries should be 1 less than the length of values")
        self.boundaries, self.values = list(self.boundaries), list(self.values)

    def __call__(self, step: TensorLike) -> Any:
        step = tf.convert_to_tensor(step)
        bounds = [tf.cast(tf.convert_to_tensor(b), step.dtype.base_dtype) for b in self.boundaries]
        return tf.train.piecewise_constant(step, bounds, self.values)


@dataclass(eq=False, repr=False)
class PolynomialDecay(_Decay):
    """From the initial to the end rate within the steps, along a power; with `cycle` again and again."""

    initial_learning_rate: float
    decay_steps: int
    end_learning_rate: float = 0.0001
    power: float = 1.0
    cycle: bool = False
    name: str | None = None

    def __call__(self, step: TensorLike) -> Any:
        return tf.train.polynomial_decay(
            self.initial_learning_rate, step, self.decay_steps, self.end_learning_rate, self.power, self.cycle
        )


@dataclass(eq=False, repr=False)
class CosineDecay(_Decay):
    """From the initial rate to `alpha` of it along half a cosine."""

    initial_learning_rate: float
    decay_steps: int
    alpha: float = 0.0
    name: str | None = None

    def __call__(self, step: TensorLike) -> Any:
        return tf.train.cosine_decay(self.initial_learning_rate, step, self.decay_steps, self.alpha)


@dataclass(eq=False, repr=False)
class CosineDecayRestarts(_Decay):
    """The same, begun again with longer periods and smaller rates."""

    initial_learning_rate: float
    first_decay_steps: int
    t_mul: float = 2.0
    m_mul: float = 1.0
    alpha: float = 0.0
    name: str | None = None

    def __call__(self, step: TensorLike) -> Any:
        return tf.train.cosine_decay_restarts(
            self.initial_learning_rate, step, self.first_decay_steps, self.t_mul, self.m_mul, self.alpha
        )


@dataclass(eq=False, repr=False)
class LinearCosineDecay(_Decay):
    """(alpha + a line down to 0) · cosine + beta, of the initial rate."""

    initial_learning_rate: float
    decay_steps: int
    num_periods: float = 0.5
    alpha: float = 0.0
    beta: float = 0.001
    name: str | None = None

    def __call__(self, step: TensorLike) -> Any:
        return tf.train.linear_cosine_decay(
            self.initial_learning_rate, step, self.decay_steps, self.num_periods, self.alpha, self.beta
        )


@dataclass(eq=False, repr=False)
class NoisyLinearCosineDecay(_Decay):
    """The same with normal noise, whose variance decays."""

    initial_learning_rate: float
    decay_steps: int
    initial_variance: float = 1.0
    variance_decay: float = 0.55
    num_periods: float = 0.5
    alpha: float = 0.0
    beta: float = 0.001
    name: str | None = None

    def __call__(self, step: TensorLike) -> Any:
        return tf.train.noisy_linear_cosine_decay(
            self.initial_learning_rate,
            step,
            self.decay_steps,
            self.initial_variance,
            self.variance_decay,
            self.num_periods,
            self.alpha,
            self.beta,
        )


SCHEDULES: dict[str, type[LearningRateSchedule]] = {
    cls.__name__: cls
    for cls in (
        *(ExponentialDecay, InverseTimeDecay, PiecewiseConstantDecay, PolynomialDecay),
        *(CosineDecay, CosineDecayRestarts, LinearCosineDecay, NoisyLinearCosineDecay),
    )
}


def serialize(schedule: LearningRateSchedule) -> dict[str, Any]:
    """A schedule as its class's name and its configuration."""
    return {"class_name": type(schedule).__name__, "config": schedule.get_config()}


def deserialize(config: dict[str, Any], custom_objects: dict[str, Any] | None = None) -> LearningRateSchedule:
    """The schedule that `serialize` described.

    Raises:
        ValueError: there is no class of that name.
    """
    classes: dict[str, Any] = SCHEDULES | (custom_objects or {})
    if config["class_name"] not in classes:
        raise ValueError(f"Unknown decay: {config['class_name']}")
    made: LearningRateSchedule = classes[config["class_name"]].from_config(config["config"])
    return made
