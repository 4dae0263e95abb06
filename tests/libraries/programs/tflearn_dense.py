"""Trains a dense network of TFLearn's, saves it, loads it and predicts; as its quick start does."""

from __future__ import annotations

import numpy as np
import tensorflow as tf
import tflearn

rng = np.random.RandomState(7)
x = rng.normal(size=(512, 8)).astype("float32")
classes = (x[:, :4].sum(axis=1) > x[:, 4:].sum(axis=1)).astype("int64")
labels = tflearn.data_utils.to_categorical(classes, 2)


def model() -> tflearn.DNN:
    """A network of two hidden layers, with its training."""
    net = tflearn.input_data(shape=[None, 8])
    net = tflearn.fully_connected(net, 32, activation="relu", regularizer="L2", weight_decay=1e-4)
    net = tflearn.dropout(net, 0.9)
    net = tflearn.batch_normalization(tflearn.fully_connected(net, 16, activation="tanh"))
    net = tflearn.fully_connected(net, 2, activation="softmax")
    net = tflearn.regression(net, optimizer="adam", learning_rate=0.01, loss="categorical_crossentropy")
    return tflearn.DNN(net, tensorboard_verbose=0, tensorboard_dir="logs")


with tf.Graph().as_default():
    tflearn.init_graph(seed=3)
    trained = model()
    before = trained.evaluate(x, labels)[0]
    trained.fit(x, labels, n_epoch=8, batch_size=32, validation_set=0.2, show_metric=True, run_id="dense")
    after = trained.evaluate(x, labels)[0]
    print("accuracy before", before, "after", after)
    assert after > 0.9
    assert after > before
    wanted = np.array(trained.predict(x))
    trained.save("dense.tfl")

with tf.Graph().as_default():
    loaded = model()
    loaded.load("./dense.tfl")
    np.testing.assert_allclose(loaded.predict(x), wanted, rtol=1e-4, atol=1e-6)
    assert (np.array(loaded.predict_label(x))[:, 0] == wanted.argmax(axis=1)).all()
