"""Worker: short trainings by interfaces above graphs: Keras' `fit`, estimators.

Of each: the time on the clock until the first step has ended, counted from the moment when the model begins to be
built; the processor time of a step once a few hundred have run; and the processor time of the whole training.

TensorFlow has no estimators since 2.16. Its part is the same model by hand, in a `MonitoredTrainingSession` that saves
as an estimator does; trees it does not have at all. anabranch's `tf.keras` needs the package keras 2.3.1; without that
its rows are left out.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any

import numpy as np

EXAMPLES = 1024
BATCH = 32
NUMBERS = 13
WORDS = 50
#: steps of a training, and of these the first that is timed
STEPS = 900
SETTLED = 600
#: layers of the network
UNITS = (64, 32)


class Progress:
    """When steps ended: on the clock, and in processor time, since it was made."""

    def __init__(self) -> None:
        self._clock, self._processor = time.perf_counter(), time.process_time()
        self.first = 0.0
        self.ended: list[float] = []

    def step(self) -> None:
        if not self.ended:
            self.first = time.perf_counter() - self._clock
        self.ended.append(time.process_time() - self._processor)

    def rows(self, name: str, settled: int = SETTLED) -> dict[str, float]:
        """The figures of the training that has just ended."""
        whole = time.process_time() - self._processor
        step = (self.ended[-1] - self.ended[settled]) / (len(self.ended) - 1 - settled)
        return {f"{name}: first step": self.first, f"{name}: a step": step, f"{name}: {len(self.ended)} steps": whole}


def main(tf: Any, is_ours: bool, has_keras: bool) -> dict[str, float]:
    rows: dict[str, float] = {}
    if has_keras:
        rows |= fitted(tf, "Keras, dense layers", dense_model)
        rows |= fitted(tf, "Keras, convolutions", convolutional_model)
    train = {"DNNClassifier": deep, "LinearClassifier": linear}
    for name, build in train.items():
        rows |= estimated(tf, name) if is_ours else by_hand(tf, name, build)
    if is_ours:
        rows |= estimated(tf, "BoostedTreesClassifier")
    return rows


# ---------------------------------------------------------------------- Keras
def dense_model(keras: Any) -> Any:
    return keras.Sequential(
        [
            keras.layers.Dense(64, activation="relu", input_shape=(28 * 28,)),
            keras.layers.Dense(10, activation="softmax"),
        ]
    )


def convolutional_model(keras: Any) -> Any:
    return keras.Sequential(
        [
            keras.layers.Reshape((28, 28, 1), input_shape=(28 * 28,)),
            keras.layers.Conv2D(16, 3, activation="relu"),
            keras.layers.MaxPooling2D(),
            keras.layers.Flatten(),
            keras.layers.Dense(10, activation="softmax"),
        ]
    )


def fitted(tf: Any, name: str, model: Callable[[Any], Any]) -> dict[str, float]:
    rng = np.random.default_rng(0)
    images = rng.normal(size=(EXAMPLES, 28 * 28)).astype(np.float32)
    digits = rng.integers(0, 10, EXAMPLES)
    progress = Progress()

    class Steps(tf.keras.callbacks.Callback):  # type: ignore[misc]
        def on_batch_end(self, batch: int, logs: Any = None) -> None:
            progress.step()

    with tf.Graph().as_default(), tf.Session().as_default():
        made = model(tf.keras)
        made.compile("adam", "sparse_categorical_crossentropy", metrics=["accuracy"])
        made.fit(images, digits, BATCH, STEPS * BATCH // EXAMPLES + 1, verbose=0, callbacks=[Steps()])
    return progress.rows(name)


# ---------------------------------------------------------------------- estimators
def examples() -> tuple[dict[str, Any], Any]:
    rng = np.random.default_rng(0)
    numbers = rng.normal(size=(EXAMPLES, NUMBERS)).astype(np.float32)
    words = np.array([f"v{i}" for i in range(WORDS)], object)[rng.integers(0, WORDS, EXAMPLES)]
    labels = (numbers[:, 0] + numbers[:, 1] > 0).astype(np.int32)
    return {"numbers": numbers, "word": words.astype(np.bytes_)}, labels


def inputs(tf: Any, repeat: bool = True) -> Any:
    data = tf.data.Dataset.from_tensor_slices(examples())
    return (data.shuffle(EXAMPLES, seed=1).repeat() if repeat else data).batch(BATCH)


def columns(tf: Any) -> tuple[Any, Any]:
    fc = tf.feature_column
    words = [f"v{i}" for i in range(WORDS)]
    return fc.numeric_column("numbers", [NUMBERS]), fc.categorical_column_with_vocabulary_list("word", words)


def estimated(tf: Any, name: str) -> dict[str, float]:
    numbers, word = columns(tf)
    folder = tempfile.mkdtemp()
    progress = Progress()

    class Steps(tf.train.SessionRunHook):  # type: ignore[misc]
        def after_run(self, run_context: Any, run_values: Any) -> None:
            progress.step()

    settled, steps = SETTLED, STEPS
    if name == "DNNClassifier":
        indicated = tf.feature_column.indicator_column(word)
        estimator = tf.estimator.DNNClassifier(UNITS, [numbers, indicated], folder)
    elif name == "LinearClassifier":
        estimator = tf.estimator.LinearClassifier([numbers, word], folder)
    else:
        bounds = np.linspace(-2, 2, 9).tolist()
        buckets = tf.feature_column.bucketized_column(tf.feature_column.numeric_column("first"), bounds)
        estimator = tf.estimator.BoostedTreesClassifier([buckets], 1, folder, n_trees=50, max_depth=4)
        settled, steps = 60, 150

    def fed(repeat: bool) -> Any:
        data = inputs(tf, repeat)
        if name == "BoostedTreesClassifier":
            return data.map(lambda features, labels: ({"first": features["numbers"][:, 0]}, labels))
        return data

    tf.estimator.train_and_evaluate(
        estimator,
        tf.estimator.TrainSpec(lambda: fed(True), steps, [Steps()]),
        tf.estimator.EvalSpec(lambda: fed(False), None),
    )
    return progress.rows(name, settled)


def deep(tf: Any, features: dict[str, Any]) -> tuple[Any, Any]:
    numbers, word = columns(tf)
    hidden = tf.feature_column.input_layer(features, [numbers, tf.feature_column.indicator_column(word)])
    for units in UNITS:
        hidden = tf.layers.dense(hidden, units, tf.nn.relu)
    return tf.layers.dense(hidden, 1), tf.train.AdagradOptimizer(0.05)


def linear(tf: Any, features: dict[str, Any]) -> tuple[Any, Any]:
    return tf.feature_column.linear_model(features, columns(tf)), tf.train.FtrlOptimizer(0.2)


def by_hand(tf: Any, name: str, build: Callable[[Any, dict[str, Any]], tuple[Any, Any]]) -> dict[str, float]:
    progress, folder = Progress(), tempfile.mkdtemp()
    with tf.Graph().as_default():
        loss, step = losses(tf, build, inputs(tf)), tf.train.get_or_create_global_step()
        train = loss[1].minimize(loss[0], global_step=step)
        with tf.train.MonitoredTrainingSession(checkpoint_dir=folder, save_summaries_steps=100) as session:
            for _ in range(STEPS):
                session.run([train, loss[0]])
                progress.step()
    with tf.Graph().as_default():
        loss = losses(tf, build, inputs(tf, repeat=False))
        mean, update = tf.metrics.mean(loss[0])
        saver = tf.train.Saver(tf.global_variables())
        with tf.Session() as session:
            session.run([tf.local_variables_initializer(), tf.tables_initializer()])
            saver.restore(session, tf.train.latest_checkpoint(folder))
            for _ in range(EXAMPLES // BATCH):
                session.run(update)
            session.run(mean)
    return progress.rows(name)


def losses(tf: Any, build: Callable[[Any, dict[str, Any]], tuple[Any, Any]], data: Any) -> tuple[Any, Any]:
    """The loss, with its summary, and the optimizer."""
    features, labels = tf.data.make_one_shot_iterator(data).get_next()
    logits, optimizer = build(tf, features)
    wanted = tf.expand_dims(tf.cast(labels, tf.float32), 1)
    loss = tf.reduce_mean(tf.nn.sigmoid_cross_entropy_with_logits(labels=wanted, logits=logits))
    tf.summary.scalar("loss", loss)
    return loss, optimizer


if __name__ == "__main__":
    if sys.argv[1] == "anabranch":
        from anabranch.tools import run

        sys.exit(run.main([__file__, "aliased"]))
    is_ours = sys.argv[1] == "aliased"
    if is_ours:
        import tensorflow as tf

        from anabranch.tools import keras_package

        has_keras = keras_package.is_installed()
    else:
        os.environ["TF_USE_LEGACY_KERAS"] = "1"  # `tf.layers` needs the older Keras
        import tensorflow.compat.v1 as tf

        tf.disable_v2_behavior()
        has_keras = True
    tf.logging.set_verbosity("ERROR")
    print(json.dumps(main(tf, is_ours, has_keras)))
