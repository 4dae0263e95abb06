"""Trains a dense network with Keras, saves it to HDF5, loads it and predicts; weights, JSON and callbacks too."""

from __future__ import annotations

import os

import keras
import numpy as np
import tensorflow as tf
from keras import regularizers
from keras.callbacks import EarlyStopping, ModelCheckpoint
from keras.layers import BatchNormalization, Dense, Dropout
from keras.models import Sequential, load_model, model_from_json

np.random.seed(5)  # of the initial weights
tf.set_random_seed(5)
rng = np.random.RandomState(7)
x = rng.normal(size=(512, 8)).astype("float32")
y = (x[:, :4].sum(axis=1) > x[:, 4:].sum(axis=1)).astype("int64")
labels = keras.utils.to_categorical(y, 2)

model = Sequential(
    [
        Dense(32, activation="relu", input_shape=(8,), kernel_regularizer=regularizers.l2(1e-4)),
        BatchNormalization(momentum=0.8),
        Dropout(0.1),
        Dense(2, activation="softmax"),
    ]
)
model.compile(optimizer="adam", loss="categorical_crossentropy", metrics=["accuracy"])
before = model.evaluate(x, labels, verbose=0)
history = model.fit(
    x,
    labels,
    epochs=12,
    batch_size=32,
    validation_split=0.25,
    verbose=0,
    callbacks=[ModelCheckpoint("best.h5", save_best_only=True), EarlyStopping(patience=6)],
)
after = model.evaluate(x, labels, verbose=0)
print("loss and accuracy before", before, "after", after)
assert after[0] < 0.6 * before[0]
assert after[1] > 0.9
assert history.history["loss"][-1] < history.history["loss"][0]

model.save("whole.h5")
wanted = model.predict(x)
loaded = load_model("whole.h5")
np.testing.assert_allclose(loaded.predict(x), wanted, rtol=1e-5, atol=1e-6)
np.testing.assert_allclose(loaded.evaluate(x, labels, verbose=0), after, rtol=1e-4)
first = loaded.train_on_batch(x[:64], labels[:64])  # the optimizer's state was saved too
assert np.isfinite(first).all()

model.save_weights("weights.h5")
again = model_from_json(model.to_json())
again.load_weights("weights.h5")
np.testing.assert_allclose(again.predict(x), wanted, rtol=1e-5, atol=1e-6)
assert os.path.exists("best.h5")
assert load_model("best.h5").predict(x).shape == (512, 2)
