from anabranch.contrib.normal_distributions import (
    MultivariateNormalDiag as MultivariateNormalDiag,
    MultivariateNormalDiagWithSoftplusScale as MultivariateNormalDiagWithSoftplusScale,
    NormalWithSoftplusScale as NormalWithSoftplusScale,
)
from anabranch.frontend.distributions.continuous import (
    Laplace as Laplace,
    Normal as Normal,
    StudentT as StudentT,
    Uniform as Uniform,
)
from anabranch.frontend.distributions.discrete import (
    Bernoulli as Bernoulli,
    Categorical as Categorical,
    DirichletMultinomial as DirichletMultinomial,
    Multinomial as Multinomial,
)
from anabranch.frontend.distributions.distribution import (
    FULLY_REPARAMETERIZED as FULLY_REPARAMETERIZED,
    NOT_REPARAMETERIZED as NOT_REPARAMETERIZED,
    Distribution as Distribution,
    ReparameterizationType as ReparameterizationType,
)
from anabranch.frontend.distributions.divergences import RegisterKL as RegisterKL, kl_divergence as kl_divergence
from anabranch.frontend.distributions.gammas import (
    Beta as Beta,
    Dirichlet as Dirichlet,
    Exponential as Exponential,
    Gamma as Gamma,
)
from anabranch.tools.contributed_names import distributions

__getattr__ = distributions
