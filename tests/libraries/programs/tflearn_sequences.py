"""Trains TFLearn's recurrent networks on made sequences: embedding, LSTM, GRU, both directions; saves and loads one."""

from __future__ import annotations

import numpy as np
import tensorflow as tf
import tflearn

rng = np.random.RandomState(11)
sequences = [list(rng.randint(1, 10, size=rng.randint(4, 12))) for _ in range(384)]
classes = [int(np.mean([word > 5 for word in s]) > 0.45) for s in sequences]
x = tflearn.data_utils.pad_sequences(sequences, maxlen=12, value=0.0)
labels = tflearn.data_utils.to_categorical(classes, 2)


def model(kind: str) -> tflearn.DNN:
    """A recurrent network of that kind."""
    net = tflearn.input_data([None, 12])
    net = tflearn.embedding(net, input_dim=10, output_dim=8)
    if kind == "both ways":
        net = tflearn.bidirectional_rnn(net, tflearn.BasicLSTMCell(8), tflearn.BasicLSTMCell(8))
    elif kind == "gru":
        net = tflearn.gru(net, 12)
    else:
        net = tflearn.lstm(net, 12, dropout=0.9, dynamic=kind == "dynamic lstm")
    net = tflearn.fully_connected(net, 2, activation="softmax")
    net = tflearn.regression(net, optimizer="adam", learning_rate=0.02, loss="categorical_crossentropy")
    return tflearn.DNN(net, tensorboard_verbose=0, tensorboard_dir="logs")


for kind in ("lstm", "dynamic lstm", "gru", "both ways"):
    with tf.Graph().as_default():
        tflearn.init_graph(seed=3)
        trained = model(kind)
        trained.fit(x, labels, n_epoch=6, batch_size=32, run_id="sequences")
        accuracy = trained.evaluate(x, labels)[0]
        print(kind, "accuracy", accuracy)
        assert accuracy > 0.8
        wanted = np.array(trained.predict(x))
        trained.save(f"sequences {kind}.tfl")
    with tf.Graph().as_default():
        loaded = model(kind)
        loaded.load(f"./sequences {kind}.tfl")
        np.testing.assert_allclose(loaded.predict(x), wanted, rtol=1e-4, atol=1e-5)
