"""Models of `tf.keras` trained on data sets, saved, restored and turned into Estimators, as tutorials of 1.15 do."""

from __future__ import annotations

import numpy as np
import tensorflow as tf
from tensorflow import keras

np.random.seed(1)
tf.set_random_seed(1)
rng = np.random.RandomState(2)
x = rng.normal(size=(96, 8, 8)).astype("float32")
labels = (x[:, 2, 2] > 0).astype("int64") + (x[:, 5, 5] > 0)

# --------------------------------------------------------------------------- basic classification, on data sets
model = keras.Sequential(
    [
        keras.layers.Flatten(input_shape=(8, 8)),
        keras.layers.Dense(24, activation=tf.nn.relu, kernel_regularizer=keras.regularizers.l2(1e-4)),
        keras.layers.BatchNormalization(),
        keras.layers.Dropout(0.1),
        keras.layers.Dense(3, activation=tf.nn.softmax),
    ]
)
model.compile(
    optimizer=keras.optimizers.Adam(learning_rate=0.01), loss="sparse_categorical_crossentropy", metrics=["accuracy"]
)
data = tf.data.Dataset.from_tensor_slices((x, labels)).batch(16)
history = model.fit(
    data.repeat(),
    epochs=8,
    steps_per_epoch=6,
    validation_data=data,
    validation_steps=6,
    verbose=0,
    callbacks=[
        keras.callbacks.ModelCheckpoint(
            "best-{epoch:02d}", save_weights_only=True, save_best_only=True, monitor="val_loss"
        ),
        keras.callbacks.LearningRateScheduler(lambda epoch: 0.01 * 0.9**epoch),
        keras.callbacks.TensorBoard(log_dir="logs"),
    ],
)
assert sorted(history.history) == ["acc", "loss", "lr", "val_acc", "val_loss"], sorted(history.history)
assert history.history["acc"][-1] > history.history["acc"][0]
assert [layer.name for layer in model.layers][:2] == ["flatten", "dense"]
loss, accuracy = model.evaluate(data, verbose=0)
assert model.predict(x).shape == (96, 3)
assert np.allclose(model.predict(data), model.predict(x), atol=1e-6)
print("classification: loss", loss, "accuracy", accuracy)

# --------------------------------------------------------------------------- save and restore
assert tf.train.latest_checkpoint(".").startswith("./best-")
model.save_weights("weights")
names = [name for name, _ in tf.train.list_variables("weights")]
assert "layer_with_weights-0/kernel/.ATTRIBUTES/VARIABLE_VALUE" in names, names
model.save("whole.h5")
copy = keras.models.load_model("whole.h5", custom_objects={"relu": tf.nn.relu, "softmax_v2": tf.nn.softmax})
np.testing.assert_allclose(copy.predict(x), model.predict(x), rtol=1e-5, atol=1e-6)
assert keras.backend.get_value(copy.optimizer.iterations) == 48
copy.set_weights([np.zeros_like(w) for w in copy.get_weights()])
copy.load_weights("weights").assert_consumed()
np.testing.assert_allclose(copy.predict(x), model.predict(x), rtol=1e-5, atol=1e-6)

# --------------------------------------------------------------------------- operations in a functional model
inputs = keras.Input((8, 8), name="picture")
middle = keras.layers.Dense(8)(tf.reshape(inputs, [-1, 64]) * 0.5)
outputs = keras.layers.Dense(1)(tf.nn.elu(middle) + 1.0)
functional = keras.Model(inputs, outputs)
functional.add_loss(1e-3 * tf.reduce_mean(tf.square(middle)))
functional.compile(tf.train.GradientDescentOptimizer(0.05), "mse")
target = x[:, 3, 3]
before = functional.evaluate(x, target, verbose=0)
functional.fit(x, target, epochs=15, verbose=0)
again = keras.Model.from_config(functional.get_config())
again.set_weights(functional.get_weights())
np.testing.assert_allclose(again.predict(x), functional.predict(x), rtol=1e-5, atol=1e-6)
print("functional:", before, "to", functional.evaluate(x, target, verbose=0))
assert functional.evaluate(x, target, verbose=0) < 0.6 * before


# --------------------------------------------------------------------------- a variational autoencoder, subclassed
class Sampling(keras.layers.Layer):
    """A sample of a normal distribution."""

    def call(self, inputs: list[tf.Tensor]) -> tf.Tensor:
        """The sample."""
        mean, log_variance = inputs
        return mean + tf.exp(0.5 * log_variance) * tf.random_normal(tf.shape(mean))


class Autoencoder(keras.Model):
    """Images from a few numbers."""

    def __init__(self, size: int, **kwargs: object) -> None:
        super().__init__(**kwargs)
        self.hidden = keras.layers.Dense(16, activation="relu")
        self.ends = {"mean": keras.layers.Dense(size), "log_variance": keras.layers.Dense(size)}
        self.sampling = Sampling()
        self.decoder = keras.Sequential([keras.layers.Dense(16, activation="relu"), keras.layers.Dense(64)])

    def call(self, inputs: tf.Tensor) -> tf.Tensor:
        """The images again."""
        hidden = self.hidden(inputs)
        mean, log_variance = self.ends["mean"](hidden), self.ends["log_variance"](hidden)
        self.add_loss(-5e-4 * tf.reduce_mean(log_variance - tf.square(mean) - tf.exp(log_variance) + 1))
        return self.decoder(self.sampling([mean, log_variance]))


autoencoder = Autoencoder(4)
autoencoder.compile(keras.optimizers.RMSprop(0.01), loss=keras.losses.MeanSquaredError())
flat = x.reshape(-1, 64)
losses = autoencoder.fit(
    tf.data.Dataset.from_tensor_slices((flat, flat)).shuffle(96).batch(32), epochs=6, verbose=0
).history["loss"]
print("autoencoder:", losses[0], "to", losses[-1])
assert losses[-1] < losses[0]
assert (len(autoencoder.trainable_variables), len(autoencoder.losses)) == (10, 1)

# --------------------------------------------------------------------------- an Estimator
keras.backend.clear_session()
small = keras.Sequential(
    [keras.layers.Dense(8, activation="tanh", input_shape=(64,), name="first"), keras.layers.Dense(1)]
)
# a metric with variables of its own is another one in the estimator's graph
metrics = ["mae", keras.metrics.RootMeanSquaredError(name="root")]
small.compile(keras.optimizers.SGD(0.05, momentum=0.9), "mse", metrics=metrics)
estimator = keras.estimator.model_to_estimator(small, model_dir="estimator")
name = small.input_names[0]


def batches() -> tf.data.Dataset:
    """Features by the input's name, and targets."""
    return tf.data.Dataset.from_tensor_slices(({name: flat}, target[:, None])).repeat(2).batch(32)


begun = small.evaluate(flat, target, verbose=0)[0]
for _ in range(3):
    estimator.train(batches, steps=20)
result = estimator.evaluate(batches)
print("estimator:", begun, "to", result)
assert result["global_step"] == 18
assert result["loss"] < begun
assert "mean_absolute_error" in result
assert abs(result["root"] ** 2 - result["loss"]) < 0.02 * result["loss"], result

# --------------------------------------------------------------------------- feature columns
column = tf.feature_column
columns = [
    column.numeric_column("size"),
    column.embedding_column(column.categorical_column_with_vocabulary_list("kind", ["a", "b"]), 2),
]
by_columns = keras.Sequential([keras.layers.DenseFeatures(columns), keras.layers.Dense(1)])
by_columns.compile("adam", "mse")
rows = {"size": np.arange(8.0).astype("float32"), "kind": np.array(["a", "b"] * 4)}
by_columns.fit(tf.data.Dataset.from_tensor_slices((rows, np.ones(8, "float32"))).batch(4), epochs=2, verbose=0)
assert len(by_columns.trainable_weights) == 3

# --------------------------------------------------------------------------- models in models, in HDF5


def convolved() -> keras.Model:
    """A model that holds a model that holds two Sequential ones, each with weights that are trained and others."""

    def part() -> keras.Model:
        return keras.Sequential(
            [keras.layers.Conv2D(3, 1, input_shape=(None, None, 3)), keras.layers.BatchNormalization()]
        )

    inside = keras.Input((None, None, 3))
    inner = keras.Model(inside, part()(part()(inside)))
    outside = keras.Input((None, None, 3))
    return keras.Model(outside, inner(outside))


whole, again = convolved(), convolved()
whole.set_weights([rng.uniform(0.5, 1, value.shape) for value in whole.get_weights()])
whole.save_weights("nested.h5")
again.load_weights("nested.h5")
for stored, loaded in zip(whole.get_weights(), again.get_weights(), strict=True):
    np.testing.assert_array_equal(stored, loaded)

# --------------------------------------------------------------------------- a layer that two models share
shared = keras.layers.Dense(2, kernel_regularizer=keras.regularizers.l2(0.01))
halves = []
for _ in range(2):
    given = keras.Input((3,))
    halves.append(keras.Model(given, shared(given)))
both = [keras.Input((3,)), keras.Input((3,))]
together = keras.Model(both, keras.layers.add([half(one) for half, one in zip(halves, both, strict=True)]))
together.compile("sgd", "mse")
loss = together.evaluate([np.zeros((4, 3))] * 2, np.zeros((4, 2)), verbose=0)
np.testing.assert_allclose(loss, 2 * 0.01 * (shared.get_weights()[0] ** 2).sum(), rtol=1e-5)

# --------------------------------------------------------------------------- Keras under its contributed names
from tensorflow.contrib import keras as contributed  # noqa: E402
from tensorflow.contrib.keras.python.keras.layers import Dense  # noqa: E402
from tensorflow.contrib.saved_model import load_keras_model, save_keras_model  # noqa: E402

assert contributed.layers.Dense is Dense is keras.layers.Dense
small = contributed.models.Sequential([Dense(2, input_shape=(3,))])
save_keras_model(small, "small")
np.testing.assert_allclose(load_keras_model("small").predict(np.ones((1, 3))), small.predict(np.ones((1, 3))))

# --------------------------------------------------------------------------- a metric of rows of unequal lengths
accuracy = keras.metrics.BinaryAccuracy()
rows = tf.ragged.constant([[1.0, 0.0], [1.0]])
counted = accuracy(rows, tf.ragged.constant([[0.9, 0.8], [0.7]]), tf.ragged.constant([[1.0, 2.0], [3.0]]))
session = keras.backend.get_session()
session.run([variable.initializer for variable in accuracy.variables])
np.testing.assert_allclose(session.run(counted), 4 / 6, rtol=1e-6)

# --------------------------------------------------------------------------- a contributed cell in a recurrent layer
over_time = keras.layers.RNN(tf.contrib.rnn.NASCell(4))
assert over_time(tf.zeros([2, 3, 5])).shape.as_list() == [2, 4]
assert [weight.shape.as_list() for weight in over_time.trainable_weights] == [[4, 32], [5, 32]]

# --------------------------------------------------------------------------- pairs of names and tensors; others' layers


class ByName(keras.Model):
    """A model that is called on pairs, as pyramids of features are."""

    def __init__(self):
        super().__init__()
        self.dense = keras.layers.Dense(3)

    def call(self, pairs):
        """A tensor for each name."""
        return {name: self.dense(tensor) for name, tensor in pairs}


by_name = ByName()
made = by_name([("low", tf.ones([2, 4])), ("high", tf.zeros([5, 4]))])
assert made["high"].shape.as_list() == [5, 3]
assert len(by_name.inputs) == 2
assert len(by_name.variables) == 2


class Narrow:
    """Layers of which convolutions have two channels."""

    def __getattr__(self, name):
        return getattr(keras.layers, name)

    def Conv2D(self, filters, *args, **kwargs):
        """Whatever width is asked for."""
        return keras.layers.Conv2D(2, *args, **kwargs)


narrow = keras.applications.MobileNet(
    weights=None, include_top=False, input_shape=(32, 32, 3), alpha=0.25, layers=Narrow()
)
assert narrow.output_shape == (None, 1, 1, 2)
