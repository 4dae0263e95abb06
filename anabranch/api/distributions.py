"""`tf.distributions`."""

from __future__ import annotations

from anabranch.frontend.distributions.continuous import Laplace, Normal, StudentT, Uniform
from anabranch.frontend.distributions.discrete import Bernoulli, Categorical, DirichletMultinomial, Multinomial
from anabranch.frontend.distributions.distribution import (
    FULLY_REPARAMETERIZED,
    NOT_REPARAMETERIZED,
    Distribution,
    ReparameterizationType,
)
from anabranch.frontend.distributions.divergences import RegisterKL, kl_divergence
from anabranch.frontend.distributions.gammas import Beta, Dirichlet, Exponential, Gamma

__all__ = [
    "FULLY_REPARAMETERIZED",
    "NOT_REPARAMETERIZED",
    "Bernoulli",
    "Beta",
    "Categorical",
    "Dirichlet",
    "DirichletMultinomial",
    "Distribution",
    "Exponential",
    "Gamma",
    "Laplace",
    "Multinomial",
    "Normal",
    "RegisterKL",
    "ReparameterizationType",
    "StudentT",
    "Uniform",
    "kl_divergence",
]
