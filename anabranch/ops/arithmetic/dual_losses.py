"""Losses of linear models and their convex conjugates, one example at a time  (Shalev-Shwartz, Zhang, "Stochastic dual
coordinate ascent methods for regularized loss minimization", 2013).

A loss is a function of a prediction and a label; its dual has one variable for each example. `updated` gives the value
of that variable that is best while all others stay.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import Final

#: Newton's method doubles its correct digits in each step
_NEWTON_STEPS: Final = 10
#: the largest double, for what is infinite
_INFINITE: Final = 1.7976931348623157e308


class DualLoss(ABC):
    """One kind of loss.

    Attributes:
        smoothness: 1 / the Lipschitz constant of its derivative; 0 where there is none.
    """

    smoothness: float

    def label(self, given: float) -> float:
        """A label as the loss computes with it: -1 or 1 for the classes 0 and 1.

        Raises:
            ValueError: it is no class.
        """
        if given not in (0.0, 1.0):
            raise ValueError(f"Only labels of 0.0 or 1.0 are supported right now. Found example with label: {given:g}")
        return -1.0 if given == 0 else 1.0

    @abstractmethod
    def updated(self, dual: float, label: float, wx: float, curvature: float) -> float:
        """The dual variable of an example.

        Args:
            wx: the prediction.
            curvature: partitions * squared norm of the example / l2 * weight of the example.
        """

    @abstractmethod
    def primal(self, wx: float, label: float) -> float:
        """The loss."""

    @abstractmethod
    def conjugate(self, dual: float, label: float) -> float:
        """What the dual variable contributes to the dual problem."""

    @abstractmethod
    def derivative(self, wx: float, label: float) -> float:
        """The derivative of the loss, as its dual variable has its sign."""


class LogisticLoss(DualLoss):
    """log(1 + exp(-y w x)) for labels of -1 and 1."""

    smoothness = 4.0

    def updated(self, dual: float, label: float, wx: float, curvature: float) -> float:
        x = 0.0
        for _ in range(_NEWTON_STEPS):
            slope = math.tanh(x)
            value = -2 * label * x - wx - curvature * (0.5 * (1 + slope) / label - dual)
            x -= value / (-2 * label - curvature * (1 - slope * slope) * 0.5 / label)
        return 0.5 * (1 + math.tanh(x)) / label

    def primal(self, wx: float, label: float) -> float:
        margin = label * wx
        return math.log1p(math.exp(-margin)) if margin > 0 else math.log1p(math.exp(margin)) - margin

    def conjugate(self, dual: float, label: float) -> float:
        share = dual * label
        return sum(part * math.log(part) for part in (share, 1 - share) if part > 0)

    def derivative(self, wx: float, label: float) -> float:
        margin = label * wx
        return label * (math.exp(-margin) / (1 + math.exp(-margin)) if margin > 0 else 1 / (1 + math.exp(margin)))


class SquaredLoss(DualLoss):
    """(w x - y)^2 / 2."""

    smoothness = 1.0

    def label(self, given: float) -> float:
        return given

    def updated(self, dual: float, label: float, wx: float, curvature: float) -> float:
        return dual + (label - dual - wx) / (1 + curvature)

    def primal(self, wx: float, label: float) -> float:
        return 0.5 * (label - wx) ** 2

    def conjugate(self, dual: float, label: float) -> float:
        return dual * (0.5 * dual - label)

    def derivative(self, wx: float, label: float) -> float:
        return label - wx


class HingeLoss(DualLoss):
    """max(0, 1 - y w x) for labels of -1 and 1; `gamma` is how far from its corner it is a parabola."""

    gamma = 0.0
    smoothness = 0.0

    def updated(self, dual: float, label: float, wx: float, curvature: float) -> float:
        steepness = curvature + self.gamma
        distance = label - wx - self.gamma * dual
        best = dual + (distance / steepness if steepness else math.copysign(math.inf, distance) if distance else 0.0)
        return min(max(label * best, 0.0), 1.0) * label

    def primal(self, wx: float, label: float) -> float:
        lack = 1 - label * wx
        if lack <= 0:
            return 0.0
        return lack - self.gamma / 2 if lack >= self.gamma else lack * lack * 0.5 / self.gamma

    def conjugate(self, dual: float, label: float) -> float:
        share = dual * label
        return 0.5 * self.gamma * dual * dual - share if 0 <= share <= 1 else _INFINITE

    def derivative(self, wx: float, label: float) -> float:
        lack = 1 - label * wx
        if lack <= 0:
            return 0.0
        return label if lack >= self.gamma else lack * label / self.gamma


class SmoothHingeLoss(HingeLoss):
    """The hinge loss with a parabola of width 1 in the place of its corner."""

    gamma = 1.0
    smoothness = 1.0


class PoissonLoss(DualLoss):
    """exp(w x) - y w x."""

    smoothness = 1.0

    def label(self, given: float) -> float:
        if given < 0:
            raise ValueError(
                f"Only non-negative labels can be used with the Poisson log loss. Found example with label: {given:g}"
            )
        return given

    def updated(self, dual: float, label: float, wx: float, curvature: float) -> float:
        x = math.log(label - dual) if label > dual else 0.0
        for _ in range(_NEWTON_STEPS):
            e = math.exp(x)
            x -= (x - wx - curvature * (label - dual - e)) / (1 + curvature * e)
        return label - math.exp(x)

    def primal(self, wx: float, label: float) -> float:
        return math.exp(wx) - wx * label

    def conjugate(self, dual: float, label: float) -> float:
        left = label - dual
        if left == 0:
            return 0.0
        return left * (math.log(left) - 1) if left > 0 else _INFINITE

    def derivative(self, wx: float, label: float) -> float:
        return math.exp(wx) - label  # in TensorFlow, too, this one has the other sign


LOSSES: Final[dict[str, DualLoss]] = {
    "logistic_loss": LogisticLoss(),
    "squared_loss": SquaredLoss(),
    "hinge_loss": HingeLoss(),
    "smooth_hinge_loss": SmoothHingeLoss(),
    "poisson_loss": PoissonLoss(),
}
