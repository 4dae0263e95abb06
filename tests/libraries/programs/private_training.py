"""TensorFlow Privacy: two optimizers with noise, per microbatch; what privacy they leave."""

from __future__ import annotations

import numpy as np
import tensorflow as tf
from tensorflow_privacy.privacy.analysis.rdp_accountant import compute_rdp, get_privacy_spent
from tensorflow_privacy.privacy.optimizers import dp_optimizer

rng = np.random.RandomState(0)
values = rng.randn(256, 10).astype(np.float32)
classes = (values @ rng.randn(10, 3)).argmax(1).astype(np.int32)
x, y = tf.placeholder(tf.float32, [64, 10]), tf.placeholder(tf.int32, [64])
losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=y, logits=tf.layers.dense(x, 3))

for kind in (dp_optimizer.DPGradientDescentGaussianOptimizer, dp_optimizer.DPAdamGaussianOptimizer):
    optimizer = kind(l2_norm_clip=1.0, noise_multiplier=0.3, num_microbatches=16, learning_rate=0.1)
    train = optimizer.minimize(loss=losses, global_step=tf.train.get_or_create_global_step())
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        seen = []
        for step in range(60):
            rows = slice(step * 64 % 256, step * 64 % 256 + 64)
            seen.append(session.run([losses, train], {x: values[rows], y: classes[rows]})[0].mean())
    print(kind.__name__, seen[0], "->", seen[-1])
    assert seen[-1] < 0.8 * seen[0]

orders = [1 + step / 10.0 for step in range(1, 100)] + list(range(12, 64))
spent = compute_rdp(q=64 / 256, noise_multiplier=1.1, steps=60, orders=orders)
epsilon = get_privacy_spent(orders, spent, target_delta=1e-5)[0]
assert 14 < epsilon < 15
