"""`tf.contrib.distributions` by TensorFlow Probability: mixtures, transformed ones, divergences, bijectors."""

from __future__ import annotations

import numpy as np
import tensorflow as tf
from tensorflow.contrib.distributions import bijectors

ds = tf.contrib.distributions
assert {"Poisson", "Binomial", "MultivariateNormalTriL", "fill_triangular", "bijectors"} <= set(dir(ds))
normal = ds.MultivariateNormalTriL(loc=[0.0, 1.0], scale_tril=[[1.0, 0.0], [0.5, 2.0]])
plain = ds.MultivariateNormalTriL(loc=[0.0, 0.0], scale_tril=[[1.0, 0.0], [0.0, 1.0]])
positive = ds.TransformedDistribution(ds.Normal(0.0, 1.0), bijectors.Exp())
mixture = ds.Mixture(cat=ds.Categorical(probs=[0.3, 0.7]), components=[ds.Normal(-1.0, 1.0), ds.Normal(1.0, 1.0)])
assert all(isinstance(one, ds.Distribution) for one in (normal, positive, mixture, ds.Normal(0.0, 1.0)))
wanted = {
    "divergence": (ds.kl_divergence(normal, plain), 0.5 * (5.25 + 1 - 2 - np.log(4.0))),
    "counts": (ds.Poisson(rate=[2.0, 3.0]).log_prob([1.0, 2.0]), [np.log(2) - 2, 2 * np.log(3) - 3 - np.log(2)]),
    "positive": (positive.log_prob(1.0), -0.5 * np.log(2 * np.pi)),
    "mixture": (mixture.mean(), 0.4),
    "softplus": (bijectors.Softplus().forward(0.0), np.log(2.0)),
}
with tf.Session() as session:
    for name, (tensor, value) in wanted.items():
        assert np.allclose(session.run(tensor), value, rtol=1e-5), name
    assert (session.run(positive.sample(100, seed=1)) > 0).all()
