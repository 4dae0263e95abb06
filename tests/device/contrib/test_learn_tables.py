"""Tables in files, an estimator for arrays, gradients that are clipped, features and metrics that are handed on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import anabranch as tf

learn = tf.contrib.learn
RNG = np.random.default_rng(5)


def test_tables_in_files(tmp_path: Path) -> None:
    with_header, without = tmp_path / "a.csv", tmp_path / "b.csv"
    without.write_text("1.5,2,0\n3,4,1\n")
    with_header.write_text("2,2,setosa,virginica\n" + without.read_text())
    for table in (
        learn.datasets.base.load_csv_with_header(str(with_header), np.int64, np.float32),
        learn.datasets.base.load_csv_without_header(str(without), tf.int64, tf.float32),
    ):
        assert isinstance(table, learn.datasets.base.Dataset)
        assert table.data.tolist() == [[1.5, 2], [3, 4]]
        assert table.data.dtype == np.float32
        assert table.target.tolist() == [0, 1]
        assert table.target.dtype == np.int64
    first = learn.datasets.base.load_csv_without_header(str(without), np.float64, np.int32, target_column=0)
    assert (first.target.tolist(), first.data.tolist()) == ([1.5, 3], [[2, 0], [4, 1]])
    with_header.write_text("3,2\n" + without.read_text())
    with pytest.raises(ValueError, match="there are 3 examples of 2"):
        learn.datasets.base.load_csv_with_header(str(with_header), np.int64, np.float32)


def test_an_estimator_for_arrays(tmp_path: Path) -> None:
    x = RNG.normal(size=(40, 2)).astype(np.float32)
    y = (x[:, 0] > 0).astype(np.int64)
    columns = learn.infer_real_valued_columns_from_input(x)
    model = learn.SKCompat(learn.LinearClassifier(columns, model_dir=str(tmp_path)))
    assert model.fit(x, y, batch_size=20, steps=60) is model
    assert model.score(x, y)["accuracy"] > 0.9
    said = model.predict(x, outputs=["class_ids"])
    assert (said["class_ids"].ravel() == y).mean() > 0.9
    assert learn.TaskType.WORKER == "worker"
    assert learn.PredictionKey.PROBABILITIES == "probabilities"
    assert issubclass(learn.NotFittedError, ValueError)


def test_gradients_are_clipped_together() -> None:
    a, b = tf.get_variable("a", initializer=[3.0, 0.0]), tf.get_variable("b", initializer=4.0)
    optimizer = tf.contrib.estimator.clip_gradients_by_norm(tf.train.GradientDescentOptimizer(1.0), 1.0)
    step = optimizer.minimize((tf.reduce_sum(a**2) + b**2) / 2, tf.train.get_or_create_global_step())
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        sess.run(step)
        # the gradient (3, 0, 4) has length 5
        np.testing.assert_allclose(sess.run(a), [3 - 3 / 5, 0], rtol=1e-6)
        np.testing.assert_allclose(sess.run(b), 4 - 4 / 5, rtol=1e-6)
        assert sess.run(tf.train.get_global_step()) == 1
    assert optimizer.get_name() == "ClipByNormGradientDescent"


# ---------------------------------------------------------------------- features and metrics that are handed on
def examples() -> Any:
    features = {
        "x": tf.constant([[1.0], [2.0]]),
        "key": tf.constant(["a", "b"]),
        "few": tf.SparseTensor([[1, 0]], tf.constant([7], tf.int64), [2, 1]),
    }
    return tf.data.Dataset.from_tensors((features, tf.constant([[1.0], [2.0]])))


def regressor(folder: Path) -> Any:
    return tf.estimator.LinearRegressor([tf.feature_column.numeric_column("x")], str(folder))


def test_features_beside_predictions(tmp_path: Path) -> None:
    estimator = tf.contrib.estimator.forward_features(regressor(tmp_path), ["key", "few"], {"few": -1})
    estimator.train(examples, steps=1)
    said = list(estimator.predict(lambda: examples().map(lambda features, _: features)))
    assert [each["key"] for each in said] == [b"a", b"b"]
    assert [each["few"].tolist() for each in said] == [[-1], [7]]
    assert said[0]["predictions"].shape == (1,)
    everything = tf.contrib.estimator.forward_features(regressor(tmp_path))
    assert {"x", "key", "few"} < {*next(everything.predict(lambda: examples().map(lambda features, _: features)))}


def test_features_that_cannot_be_handed_on(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="a string, a list of strings or None"):
        tf.contrib.estimator.forward_features(regressor(tmp_path), [1])
    unknown = tf.contrib.estimator.forward_features(regressor(tmp_path), "none")
    unknown.train(examples, steps=1)
    with pytest.raises(ValueError, match="Key 'none' is not in features"):
        next(unknown.predict(lambda: examples().map(lambda features, _: features)))


def test_metrics_of_evaluations(tmp_path: Path) -> None:
    estimator = regressor(tmp_path)
    for _ in range(2):
        estimator.train(examples, steps=1)
        last = estimator.evaluate(examples, steps=1)
    found = tf.contrib.estimator.read_eval_metrics(estimator.eval_dir())
    assert [*found] == [1, 2]
    assert found[2]["average_loss"] == pytest.approx(last["average_loss"])
    assert not tf.contrib.estimator.read_eval_metrics(str(tmp_path / "nothing"))
