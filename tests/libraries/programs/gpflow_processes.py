"""Gaussian processes of GPflow 1: regression by SciPy's optimizer, a sparse one by Adam, classes; saved and loaded."""

from __future__ import annotations

from pathlib import Path

import gpflow
import numpy as np
import tensorflow as tf

rng = np.random.RandomState(0)
x = rng.rand(30, 1)
y = np.sin(12 * x) + 0.66 * np.cos(25 * x) + rng.randn(30, 1) * 0.1 + 3
at = np.linspace(0, 1, 5)[:, None]

exact = gpflow.models.GPR(x, y, kern=gpflow.kernels.Matern52(1, lengthscales=0.3))
before = exact.compute_log_likelihood()
gpflow.train.ScipyOptimizer().minimize(exact)
print("log likelihood", before, "->", exact.compute_log_likelihood())
assert exact.compute_log_likelihood() > before + 20
print(exact.as_pandas_table())
mean, variance = exact.predict_y(at)

with gpflow.defer_build():
    sparse = gpflow.models.SVGP(x, y, gpflow.kernels.RBF(1), gpflow.likelihoods.Gaussian(), Z=x[::5].copy())
sparse.compile()
before = sparse.compute_log_likelihood()
gpflow.train.AdamOptimizer(0.05).minimize(sparse, maxiter=100)
assert sparse.compute_log_likelihood() > before

classes = gpflow.models.VGP(x, (y > 3) * 1.0, gpflow.kernels.RBF(1), gpflow.likelihoods.Bernoulli())
before = classes.compute_log_likelihood()
gpflow.train.ScipyOptimizer().minimize(classes, maxiter=20)
assert classes.compute_log_likelihood() > before

Path("process").unlink(missing_ok=True)
gpflow.saver.Saver().save("process", exact)
with tf.Graph().as_default(), tf.Session().as_default():
    loaded = gpflow.saver.Saver().load("process")
    assert np.allclose(loaded.predict_y(at), (mean, variance))
