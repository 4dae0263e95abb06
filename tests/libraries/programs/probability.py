"""TensorFlow Probability: densities against SciPy, samples, bijectors, divergences, a Markov chain, variational fit."""

from __future__ import annotations

import numpy as np
import scipy.stats
import tensorflow as tf
import tensorflow_probability as tfp

tfd, tfb = tfp.distributions, tfp.bijectors
session = tf.Session()
points = np.linspace(0.2, 2.0, 7).astype("float32")

densities = {
    "normal": (tfd.Normal(0.5, 2.0), scipy.stats.norm(0.5, 2.0)),
    "gamma": (tfd.Gamma(2.0, 3.0), scipy.stats.gamma(2.0, scale=1 / 3.0)),
    "student": (tfd.StudentT(4.0, 0.1, 1.5), scipy.stats.t(4.0, 0.1, 1.5)),
    "laplace": (tfd.Laplace(0.0, 0.7), scipy.stats.laplace(0.0, 0.7)),
    "log normal": (tfd.LogNormal(0.1, 0.6), scipy.stats.lognorm(0.6, scale=np.exp(0.1))),
    "gumbel": (tfd.Gumbel(0.3, 1.2), scipy.stats.gumbel_r(0.3, 1.2)),
    "half cauchy": (tfd.HalfCauchy(0.0, 1.1), scipy.stats.halfcauchy(0.0, 1.1)),
    "pareto": (tfd.Pareto(3.0, 0.1), scipy.stats.pareto(3.0, scale=0.1)),
}
for name, (ours, theirs) in densities.items():
    np.testing.assert_allclose(session.run(ours.log_prob(points)), theirs.logpdf(points), rtol=2e-4, err_msg=name)

draws = session.run(tfd.Gamma([2.0, 5.0], [1.0, 2.0]).sample(4000, seed=4))
np.testing.assert_allclose(draws.mean(axis=0), [2.0, 2.5], rtol=0.1)
mixture = tfd.MixtureSameFamily(tfd.Categorical(probs=[0.3, 0.7]), tfd.Normal([0.0, 2.0], [1.0, 0.5]))
by_hand = 0.3 * scipy.stats.norm.pdf(points, 0, 1) + 0.7 * scipy.stats.norm.pdf(points, 2, 0.5)
np.testing.assert_allclose(session.run(mixture.prob(points)), by_hand, rtol=1e-4)
divergence = session.run(tfd.kl_divergence(tfd.Normal(0.0, 1.0), tfd.Normal(1.0, 2.0)))
np.testing.assert_allclose(divergence, np.log(2) + 2 / 8 - 0.5, rtol=1e-5)

chain = tfb.Chain([tfb.Exp(), tfb.AffineScalar(shift=0.5, scale=2.0)])
forward = session.run(chain.forward(points))
np.testing.assert_allclose(forward, np.exp(2 * points + 0.5), rtol=1e-4)
np.testing.assert_allclose(session.run(chain.inverse(forward)), points, rtol=1e-4)
slope = session.run(chain.forward_log_det_jacobian(points, event_ndims=0))
np.testing.assert_allclose(slope, np.log(2 * np.exp(2 * points + 0.5)), rtol=1e-4)

kernel = tfp.mcmc.HamiltonianMonteCarlo(tfd.Normal(1.0, 2.0).log_prob, step_size=1.0, num_leapfrog_steps=4, seed=1)
states, accepted = tfp.mcmc.sample_chain(
    800, current_state=tf.zeros(8), kernel=kernel, num_burnin_steps=100, trace_fn=lambda _, r: r.is_accepted
)
states_value, accepted_value = session.run([states, accepted])
print("chain: mean", states_value.mean(), "deviation", states_value.std(), "accepted", accepted_value.mean())
assert abs(states_value.mean() - 1.0) < 0.25
assert abs(states_value.std() - 2.0) < 0.25
assert accepted_value.mean() > 0.6

tf.set_random_seed(2)
location, scale = tf.Variable(0.0), tf.Variable(0.0)
posterior = tfd.Normal(location, tf.nn.softplus(scale))
target = tfd.Normal(3.0, 0.5)
sample = posterior.sample(64)
loss = tf.reduce_mean(posterior.log_prob(sample) - target.log_prob(sample))
step = tf.train.AdamOptimizer(0.05).minimize(loss)
session.run(tf.global_variables_initializer())
for _ in range(300):
    session.run(step)
fitted = session.run([posterior.mean(), posterior.stddev()])
print("fitted", fitted)
np.testing.assert_allclose(fitted, [3.0, 0.5], atol=0.1)
