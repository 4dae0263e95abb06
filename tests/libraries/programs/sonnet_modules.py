"""Trains Sonnet's modules on made data: a perceptron, and an LSTM; saves, restores in another graph, predicts."""

from __future__ import annotations

import numpy as np
import sonnet as snt
import tensorflow as tf

rng = np.random.RandomState(7)
x = rng.normal(size=(256, 8)).astype("float32")
y = (x[:, :4].sum(axis=1) > x[:, 4:].sum(axis=1)).astype("int64")


def classifier(inputs: tf.Tensor) -> tf.Tensor:
    """Logits of two classes."""
    flat = snt.BatchFlatten()(inputs)
    return snt.nets.MLP([24, 2], activation=tf.nn.tanh, regularizers={"w": tf.nn.l2_loss}, name="mlp")(flat)


with tf.Graph().as_default(), tf.Session() as session:
    tf.set_random_seed(3)
    logits = classifier(tf.constant(x))
    loss = tf.losses.sparse_softmax_cross_entropy(y, logits)
    penalty = 1e-4 * tf.add_n(tf.get_collection(tf.GraphKeys.REGULARIZATION_LOSSES))
    step = tf.train.AdamOptimizer(0.02).minimize(loss + penalty)
    session.run(tf.global_variables_initializer())
    first = session.run(loss)
    for _ in range(60):
        session.run(step)
    last, wanted = session.run([loss, logits])
    print("loss before", first, "after", last)
    assert last < 0.5 * first
    assert (wanted.argmax(axis=1) == y).mean() > 0.9
    path = tf.train.Saver().save(session, "./model")

with tf.Graph().as_default(), tf.Session() as session:
    logits = classifier(tf.constant(x))
    tf.train.Saver().restore(session, path)
    np.testing.assert_allclose(session.run(logits), wanted, rtol=1e-4, atol=1e-5)

waves = np.stack([np.sin(np.arange(20) * s) for s in rng.uniform(0.2, 0.6, size=32)]).astype("float32")[..., None]
with tf.Graph().as_default(), tf.Session() as session:
    tf.set_random_seed(3)
    parts = [snt.LSTM(16), snt.Linear(1)]
    core = snt.DeepRNN(parts, skip_connections=False)
    start = core.initial_state(32)
    forecast, _ = tf.nn.dynamic_rnn(core, tf.constant(waves[:, :-1]), initial_state=start)
    error = tf.losses.mean_squared_error(waves[:, 1:], forecast)
    step = tf.train.AdamOptimizer(0.02).minimize(error)
    session.run(tf.global_variables_initializer())
    first = session.run(error)
    for _ in range(80):
        session.run(step)
    last = session.run(error)
    print("mean squared error before", first, "after", last)
    assert last < 0.3 * first
    assert [len(part.get_variables()) for part in parts] == [2, 2]

with tf.Graph().as_default(), tf.Session() as session:
    convolution = snt.Conv2D(4, 3, name="convolution")
    images = tf.constant(rng.normal(size=(2, 8, 8, 1)).astype("float32"))
    normalized = snt.BatchNorm()(convolution(images), is_training=True)
    back = convolution.transpose()(normalized)
    session.run(tf.global_variables_initializer())
    value, shape = session.run([normalized, tf.shape(back)])
    np.testing.assert_allclose(value.mean(axis=(0, 1, 2)), np.zeros(4), atol=1e-5)
    assert list(shape) == [2, 8, 8, 1]
