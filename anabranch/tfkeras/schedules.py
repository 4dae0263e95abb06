"""`tf.keras.optimizers.schedules`: learning rates as functions of the step."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import anabranch as tf
from anabranch.core.values import PassedOn, TensorLike


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
    """One of `tf.train`'s functions; what it is called with is its configuration."""

    def __init__(self, **config: PassedOn) -> None:
        self._config = config
        self.__dict__.update(config)

    def get_config(self) -> dict[str, Any]:
        return dict(self._config)


class ExponentialDecay(_Decay):
    """initial · rate^(step / steps), the quotient without its fraction for `staircase`."""

    def __init__(
        self,
        initial_learning_rate: float,
        decay_steps: int,
        decay_rate: float,
        staircase: bool = False,
        name: str | None = None,
    ) -> None:
        super().__init__(
            initial_learning_rate=initial_learning_rate,
            decay_steps=decay_steps,
            decay_rate=decay_rate,
            staircase=staircase,
            name=name,
        )

    def __call__(self, step: TensorLike) -> Any:
        c = self._config
        return tf.train.exponential_decay(
            c["initial_learning_rate"], step, c["decay_steps"], c["decay_rate"], c["staircase"]
        )


class InverseTimeDecay(_Decay):
    """initial / (1 + rate · step / steps), the quotient without its fraction for `staircase`."""

    def __init__(
        self,
        initial_learning_rate: float,
        decay_steps: int,
        decay_rate: float,
        staircase: bool = False,
        name: str | None = None,
    ) -> None:
        super().__init__(
            initial_learning_rate=initial_learning_rate,
            decay_steps=decay_steps,
            decay_rate=decay_rate,
            staircase=staircase,
            name=name,
        )

    def __call__(self, step: TensorLike) -> Any:
        c = self._config
        return tf.train.inverse_time_decay(
            c["initial_learning_rate"], step, c["decay_steps"], c["decay_rate"], c["staircase"]
        )


class PiecewiseConstantDecay(_Decay):
    """values[i] up to step boundaries[i], and the last value afterwards."""

    def __init__(self, boundaries: Sequence[float], values: Sequence[float], name: str | None = None) -> None:
        if len(boundaries) != len(values) - 1:
            raise ValueError("The length of boundaries should be 1 less than the length of values")
        super().__init__(boundaries=list(boundaries), values=list(values), name=name)

    def __call__(self, step: TensorLike) -> Any:
        step = tf.convert_to_tensor(step)
        bounds = [tf.cast(tf.convert_to_tensor(b), step.dtype.base_dtype) for b in self._config["boundaries"]]
        return tf.train.piecewise_constant(step, bounds, self._config["values"])


class PolynomialDecay(_Decay):
    """From the initial to the end rate within the steps, along a power; with `cycle` again and again."""

    def __init__(
        self,
        initial_learning_rate: float,
        decay_steps: int,
        end_learning_rate: float = 0.0001,
        power: float = 1.0,
        cycle: bool = False,
        name: str | None = None,
    ) -> None:
        super().__init__(
            initial_learning_rate=initial_learning_rate,
            decay_steps=decay_steps,
            end_learning_rate=end_learning_rate,
            power=power,
            cycle=cycle,
            name=name,
        )

    def __call__(self, step: TensorLike) -> Any:
        c = self._config
        return tf.train.polynomial_decay(
            c["initial_learning_rate"], step, c["decay_steps"], c["end_learning_rate"], c["power"], c["cycle"]
        )


class CosineDecay(_Decay):
    """From the initial rate to `alpha` of it along half a cosine."""

    def __init__(
        self, initial_learning_rate: float, decay_steps: int, alpha: float = 0.0, name: str | None = None
    ) -> None:
        super().__init__(initial_learning_rate=initial_learning_rate, decay_steps=decay_steps, alpha=alpha, name=name)

    def __call__(self, step: TensorLike) -> Any:
        c = self._config
        return tf.train.cosine_decay(c["initial_learning_rate"], step, c["decay_steps"], c["alpha"])


class CosineDecayRestarts(_Decay):
    """The same, begun again with longer periods and smaller rates."""

    def __init__(
        self,
        initial_learning_rate: float,
        first_decay_steps: int,
        t_mul: float = 2.0,
        m_mul: float = 1.0,
        alpha: float = 0.0,
        name: str | None = None,
    ) -> None:
        super().__init__(
            initial_learning_rate=initial_learning_rate,
            first_decay_steps=first_decay_steps,
            t_mul=t_mul,
            m_mul=m_mul,
            alpha=alpha,
            name=name,
        )

    def __call__(self, step: TensorLike) -> Any:
        c = self._config
        return tf.train.cosine_decay_restarts(
            c["initial_learning_rate"], step, c["first_decay_steps"], c["t_mul"], c["m_mul"], c["alpha"]
        )


class LinearCosineDecay(_Decay):
    """(alpha + a line down to 0) · cosine + beta, of the initial rate."""

    def __init__(
        self,
        initial_learning_rate: float,
        decay_steps: int,
        num_periods: float = 0.5,
        alpha: float = 0.0,
        beta: float = 0.001,
        name: str | None = None,
    ) -> None:
        super().__init__(
            initial_learning_rate=initial_learning_rate,
            decay_steps=decay_steps,
            num_periods=num_periods,
            alpha=alpha,
            beta=beta,
            name=name,
        )

    def __call__(self, step: TensorLike) -> Any:
        c = self._config
        return tf.train.linear_cosine_decay(
            c["initial_learning_rate"], step, c["decay_steps"], c["num_periods"], c["alpha"], c["beta"]
        )


class NoisyLinearCosineDecay(_Decay):
    """The same with normal noise, whose variance decays."""

    def __init__(
        self,
        initial_learning_rate: float,
        decay_steps: int,
        initial_variance: float = 1.0,
        variance_decay: float = 0.55,
        num_periods: float = 0.5,
        alpha: float = 0.0,
        beta: float = 0.001,
        name: str | None = None,
    ) -> None:
        super().__init__(
            initial_learning_rate=initial_learning_rate,
            decay_steps=decay_steps,
            initial_variance=initial_variance,
            variance_decay=variance_decay,
            num_periods=num_periods,
            alpha=alpha,
            beta=beta,
            name=name,
        )

    def __call__(self, step: TensorLike) -> Any:
        c = dict(self._config)
        del c["name"]
        return tf.train.noisy_linear_cosine_decay(c.pop("initial_learning_rate"), step, **c)


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
