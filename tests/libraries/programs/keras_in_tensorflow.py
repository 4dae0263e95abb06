"""Trains a model of `tf.keras`, which the package keras serves, with one of TensorFlow's own optimizers."""

from __future__ import annotations

import numpy as np
import tensorflow as tf
from tensorflow.keras import layers
from tensorflow.keras.models import Sequential, load_model

np.random.seed(5)  # of the initial weights
tf.set_random_seed(5)
rng = np.random.RandomState(1)
x = rng.normal(size=(256, 6)).astype("float32")
y = x @ rng.normal(size=(6, 1)) + 0.5


class Scale(layers.Layer):
    """Multiplies by a weight for each feature."""

    def build(self, input_shape: tuple[int | None, ...]) -> None:
        """Makes the weight."""
        self.scale = self.add_weight(name="scale", shape=(input_shape[-1],), initializer="ones")
        super().build(input_shape)

    def call(self, inputs: tf.Tensor) -> tf.Tensor:
        """The scaled features."""
        return inputs * self.scale


model = Sequential([Scale(input_shape=(6,)), layers.Dense(16, activation=tf.nn.tanh), layers.Dense(1)])
model.compile(optimizer=tf.train.AdamOptimizer(0.02), loss="mse")
before = model.evaluate(x, y, verbose=0)
model.fit(x, y, epochs=25, verbose=0)
after = model.evaluate(x, y, verbose=0)
print("mean squared error before", before, "after", after)
assert after < 0.2 * before

model.compile(optimizer=tf.keras.optimizers.Adam(lr=0.01), loss=tf.keras.losses.mean_squared_error)
model.fit(x, y, epochs=2, verbose=0)
model.save("scaled.h5")
again = load_model("scaled.h5", custom_objects={"Scale": Scale, "tanh": tf.nn.tanh})
np.testing.assert_allclose(again.predict(x), model.predict(x), rtol=1e-5, atol=1e-6)
with tf.keras.backend.get_session().as_default():
    assert np.isfinite(tf.reduce_mean(again(tf.constant(x))).eval())
