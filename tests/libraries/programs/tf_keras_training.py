"""Training by `tf.keras` as TensorFlow 1.15 has it: losses, masks, callbacks, sparse and ragged inputs, slots."""

from __future__ import annotations

import glob
import os
import time
from collections.abc import Callable

import numpy as np
import tensorflow as tf
from tensorflow import keras

rng = np.random.RandomState(3)
x = rng.normal(size=(24, 4)).astype("float32")
classes = (x[:, 0] > 0).astype("int64")


def raises(error: type[Exception], words: str, call: Callable[[], object]) -> None:
    """Checks that a call fails, and says so."""
    said = "nothing"
    try:
        call()
    except error as found:
        said = str(found)
    assert words in said, f"{words!r} is not in: {said}"


def classifier() -> keras.Model:
    """Two classes of rows of four numbers."""
    made = keras.Sequential(
        [keras.layers.Dense(6, activation="tanh", input_shape=(4,)), keras.layers.Dense(2, activation="softmax")]
    )
    made.compile("sgd", loss=keras.losses.sparse_categorical_crossentropy, metrics=["accuracy"])
    return made


# --------------------------------------------------------------------------- losses and metrics
model = classifier()
assert model.loss_functions[0].fn is keras.losses.get("sparse_categorical_crossentropy")
accuracy = model.evaluate(x, classes, verbose=0)[1]
assert np.isclose(accuracy, np.mean(np.argmax(model.predict(x), 1) == classes)), "the metric of a loss of classes"
backend = keras.backend
two = keras.Sequential([keras.layers.Dense(2, input_shape=(3, 4)), keras.layers.Dense(5, activation="softmax")])
two.compile("sgd", "sparse_categorical_crossentropy")
steps = rng.randint(0, 5, size=(6, 3))
shares = two.predict(rng.normal(size=(6, 3, 4)))
assert np.isfinite(two.train_on_batch(rng.normal(size=(6, 3, 4)), steps)), "targets of one dimension less"
error = keras.losses.MeanSquaredError()
pairs = rng.normal(size=(2, 5, 3)).astype("float32")
weights = np.array([[1.0], [2.0], [0.5], [0.0], [3.0]], "float32")
expected = np.mean(np.mean((pairs[0] - pairs[1]) ** 2, -1) * weights[:, 0])
assert np.isclose(backend.eval(error(pairs[0], pairs[1], sample_weight=weights)), expected, rtol=1e-5)
raises(ValueError, "weights can not be broadcast", lambda: error(pairs, pairs, sample_weight=np.ones((2, 4))))
column = rng.normal(size=(5, 1)).astype("float32")
assert np.isclose(backend.eval(error(column, pairs[0])), np.mean((column - pairs[0]) ** 2), rtol=1e-5), (
    "broadcast targets"
)
mean = keras.metrics.MeanAbsoluteError()
assert np.isclose(backend.eval(mean(column, pairs[0])), np.mean(np.abs(column - pairs[0])), rtol=1e-5)
ragged = keras.metrics.Accuracy()
assert backend.eval(ragged(tf.ragged.constant([[1], [2, 3]]), tf.ragged.constant([[1], [2, 4]]))) == np.float32(2 / 3)

# --------------------------------------------------------------------------- what compile and fit say
plain = keras.Model
raises(RuntimeError, "must compile your model", lambda: keras.Sequential([keras.layers.Dense(1)]).fit(x, x))
raises(ValueError, "`validation_steps` should not be specified", lambda: model.fit(x, classes, validation_steps=2))
raises(
    ValueError,
    "Unknown entries in sample_weight_mode",
    lambda: model.compile("sgd", "mse", sample_weight_mode={"no": 1}),
)
raises(ValueError, "have not yet been created", lambda: keras.Sequential([keras.layers.Dense(1)]).weights)
model = classifier()


class Masked(keras.Model):
    """Steps of zeros do not count."""

    def __init__(self) -> None:
        super().__init__()
        self.masking = keras.layers.Masking(mask_value=0)
        self.dense = keras.layers.TimeDistributed(keras.layers.Dense(1, kernel_initializer="ones"))

    def call(self, inputs: tf.Tensor) -> tf.Tensor:
        """A number for each step."""
        return self.dense(self.masking(inputs))


masked = Masked()
masked.not_called = keras.Sequential(
    [keras.layers.Dense(3)]
)  # has no weights yet, which is no error of those around it
masked.compile("sgd", "mse")
assert masked.train_on_batch(np.array([[[1.0], [1.0]], [[0.0], [0.0]]]), np.ones((2, 2, 1))) == 0

assert len(masked.trainable_weights) == 2
shared = keras.layers.BatchNormalization()
first, second = keras.Input(4), keras.Input(4)
frozen, free = keras.Model(first, shared(first)), keras.Model(second, shared(second))
shared.trainable = False
frozen.compile("sgd", "mse")
shared.trainable = True
free.compile("sgd", "mse")
before = frozen.get_weights()
frozen.train_on_batch(x, x)
assert all(map(np.array_equal, before, frozen.get_weights())), "what is trained was said when it was compiled"
free.train_on_batch(x, x)
assert not all(map(np.array_equal, before, free.get_weights()))

# --------------------------------------------------------------------------- callbacks
callback = keras.callbacks.ModelCheckpoint("seen-{epoch:02d}.h5", save_weights_only=True, save_freq=48)
board = keras.callbacks.TensorBoard("board", histogram_freq=1, update_freq="batch")


def batches() -> object:
    """The same rows for ever."""
    while True:
        yield x, classes


model.fit(x, classes, batch_size=8, epochs=4, verbose=0, callbacks=[callback])
assert sorted(glob.glob("seen-*")) == ["seen-02.h5", "seen-04.h5"], glob.glob("seen-*")
os.utime("seen-02.h5", (time.time() + 60,) * 2)
again = classifier()
restart = keras.callbacks.ModelCheckpoint("seen-{epoch:02d}.h5", save_weights_only=True, load_weights_on_restart=True)
model.load_weights("seen-02.h5")
again.fit(x, classes, epochs=1, initial_epoch=1, verbose=0, callbacks=[restart])
assert all(map(np.array_equal, model.get_weights(), again.get_weights())), "the newest file of the pattern is read"
model.fit_generator(
    batches(), 2, epochs=2, validation_data=batches(), validation_steps=1, verbose=0, callbacks=[board], workers=0
)
tags = {
    value.tag
    for path in glob.glob("board/*")
    for event in tf.train.summary_iterator(path)
    for value in event.summary.value
}
assert {"batch_loss", "batch_acc", "epoch_loss", "epoch_val_loss"} <= tags, tags
assert any("kernel" in tag for tag in tags), "histograms of what a generator gives"

# --------------------------------------------------------------------------- sparse and ragged inputs and outputs
dense = np.array([[0, 1.5, 0], [2, 0, 0], [0, 0, 0], [0, 3, 1]], "float32")
where = np.argwhere(dense)
sparse_value = tf.SparseTensorValue(where, dense[tuple(where.T)], dense.shape)
inputs = keras.Input((3,), sparse=True)
outputs = keras.layers.Lambda(lambda tensor: tf.ensure_shape(tf.sparse.to_dense(tensor), [None, 3]))(inputs)
of_sparse = keras.Model(inputs, keras.layers.Dense(1)(outputs))
of_sparse.compile("sgd", "mse")
whole = of_sparse.predict(sparse_value)
assert np.allclose(of_sparse.predict(sparse_value, batch_size=3), whole)
assert np.allclose(
    of_sparse.predict(tf.data.Dataset.from_tensor_slices(tf.SparseTensor(*sparse_value)).batch(2)), whole
)
assert np.allclose(dense @ of_sparse.get_weights()[0], whole, atol=1e-6)
losses = of_sparse.fit(sparse_value, np.ones((4, 1)), batch_size=2, epochs=5, verbose=0).history["loss"]
assert losses[-1] < losses[0]
rows = keras.Input((None,), ragged=True, dtype="int32")
padded = keras.Model(rows, keras.layers.Lambda(lambda tensor: tensor.to_tensor())(rows))
words = tf.ragged.constant([[1], [2, 3], [], [4, 5]])
assert padded.predict(words).tolist() == [[1, 0], [2, 3], [0, 0], [4, 5]]
inputs = keras.Input((None,), dtype="int32")
to_ragged = keras.Model(
    inputs, keras.layers.Lambda(lambda tensor: tf.RaggedTensor.from_tensor(tensor, padding=0))(inputs)
)
found = to_ragged.predict(np.array([[1, 0], [2, 3], [4, 5], [6, 0]]), batch_size=3)
assert found.to_list() == [[1], [2, 3], [4, 5], [6]]

# --------------------------------------------------------------------------- losses of functional models; files
inputs = keras.Input((4,))
middle = keras.layers.Dense(3, kernel_regularizer="l2")(inputs)
functional = keras.Model(inputs, keras.layers.Dense(1)(middle))
functional.add_loss(tf.reduce_mean(tf.square(middle)))
functional.add_metric(tf.reduce_sum(middle), aggregation="mean", name="sum")
copies = [keras.Model.from_config(functional.get_config()), keras.models.clone_model(functional)]
for copy in copies:
    copy.compile("sgd", "mse")
    copy.set_weights(functional.get_weights())
    assert len(copy.losses) == 2
    assert copy.metrics_names == ["loss", "sum"]
functional.compile("sgd", "mse")
assert np.allclose(
    [copy.evaluate(x, x[:, :1], verbose=0) for copy in copies], [functional.evaluate(x, x[:, :1], verbose=0)]
)
functional.save_weights("functional")
count = len(tf.get_default_graph().get_operations())
functional.save_weights("functional")
assert len(tf.get_default_graph().get_operations()) == count, "a saver is used again"
raises(AssertionError, "Nothing to load", lambda: keras.Model().load_weights("functional"))


def penalty(weight: tf.Tensor) -> tf.Tensor:
    """Large weights cost."""
    return 0.1 * tf.reduce_sum(tf.abs(weight))


inputs = keras.Input((4,))
named = keras.Model(inputs, keras.layers.Dense(1, kernel_regularizer=penalty)(inputs))
assert keras.Model.from_config(named.get_config(), {"penalty": penalty}).layers[1].kernel_regularizer is penalty
scale = 3.0
inputs = keras.Input((4,))
by_lambda = keras.Model(inputs, keras.layers.Lambda(lambda tensor: tensor * scale)(inputs))
assert np.allclose(keras.Model.from_config(by_lambda.get_config()).predict(x), 3 * x), (
    "a lambda finds its module's names"
)

# --------------------------------------------------------------------------- optimizers and their slots
weight, other = tf.Variable([1.0, 2.0], name="weight"), tf.Variable([3.0], name="other")
optimizer = keras.optimizers.Adam(0.1)
step = optimizer.minimize(lambda: tf.reduce_sum(weight**2) + tf.reduce_sum(other**2), [weight, other])
session = backend.get_session()  # which initializes what has no value
powers = [op for op in tf.get_default_graph().get_operations() if op.type == "Pow" and op.name.startswith("Adam/")]
assert len(powers) == 2, "the powers of both decays, once for all variables"
session.run(step)
assert optimizer.get_slot_names() == ["m", "v"]
assert np.allclose(session.run(optimizer.get_slot(weight, "m")), 0.1 * 2 * np.array([1.0, 2.0]), rtol=1e-5)
assert np.allclose(session.run(optimizer.get_slot(weight, "v")), 0.001 * (2 * np.array([1.0, 2.0])) ** 2, rtol=1e-4)
assert np.allclose(session.run(weight), [0.9, 1.9], atol=1e-4)
for rule, slots in (
    (keras.optimizers.SGD(0.1, momentum=0.5), ["momentum"]),
    (keras.optimizers.RMSprop(0.1, momentum=0.5, centered=True), ["rms", "momentum", "mg"]),
    (keras.optimizers.Adagrad(0.1), ["accumulator"]),
    (keras.optimizers.Adadelta(0.1), ["accum_grad", "accum_var"]),
    (keras.optimizers.Adamax(0.1), ["m", "v"]),
    (keras.optimizers.Nadam(0.1), ["m", "v"]),
    (keras.optimizers.Ftrl(0.1), ["accumulator", "linear"]),
):
    table = tf.Variable(np.ones((3, 2), "float32"))
    step = rule.minimize(lambda: tf.reduce_sum(tf.gather(table, [0, 2, 0])), [table])  # noqa: B023 (called at once)
    backend.get_session().run(step)  # which initializes what has no value
    assert sorted(rule.get_slot_names()) == sorted(slots), rule.get_slot_names()
    moved = session.run(table)
    assert (moved[[0, 2]] < 1).all(), (rule, moved)
    assert (moved[1] == 1).all(), (rule, moved)
print("trained:", sorted(tags))
