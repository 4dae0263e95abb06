"""`tf.contrib.learn`: estimators with `fit`, experiments, ready-made models, and columns of `tf.contrib.layers`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import anabranch as tf
from anabranch.contrib.learn.model_operations import metric_operations

learn = tf.contrib.learn
layers = tf.contrib.layers
RNG = np.random.default_rng(3)
X = RNG.normal(size=(64, 3)).astype(np.float32)
WEIGHTS = np.array([1.0, -2.0, 0.5], np.float32)
Y = X @ WEIGHTS


def a_model(features: Any, targets: Any, mode: str, params: Any) -> Any:
    """A linear model, whose labels have the name that they had before."""
    weights = tf.get_variable("weights", [3, 1], initializer=tf.zeros_initializer())
    said = tf.squeeze(tf.matmul(features, weights), 1)
    loss = None if targets is None else tf.losses.mean_squared_error(targets, said)
    train_op = None
    if mode == learn.ModeKeys.TRAIN:
        train_op = tf.train.AdamOptimizer(params["rate"]).minimize(loss, tf.train.get_global_step())
    return said, loss, train_op


def parts_of_a_model(features: Any, labels: Any, mode: str, params: Any) -> Any:
    said, loss, train_op = a_model(features, labels, mode, params)
    return learn.ModelFnOps(mode, {"said": said}, loss, train_op, output_alternatives={"": (None, {"said": said})})


def batches() -> Any:
    return tf.constant(X), tf.constant(Y)


@pytest.mark.parametrize("model", [a_model, parts_of_a_model])
def test_a_model_function_learns_from_arrays(model: Callable[..., Any], tmp_path: Path) -> None:
    estimator = learn.Estimator(model, str(tmp_path), params={"rate": 0.1})
    assert estimator.fit(X, Y, steps=150) is estimator
    assert estimator.evaluate(X, Y)["loss"] < 1e-2
    assert estimator.evaluate(X, Y, batch_size=16)["global_step"] == 150
    np.testing.assert_allclose(estimator.get_variable_value("weights")[:, 0], WEIGHTS, atol=0.1)
    said = estimator.predict(X, as_iterable=False)
    np.testing.assert_allclose(said if model is a_model else said["said"], Y, atol=0.3)
    assert len(list(estimator.predict(X, batch_size=10))) == 64


def test_arrays_or_a_function_of_input(tmp_path: Path) -> None:
    estimator = learn.Estimator(a_model, str(tmp_path), params={"rate": 0.1})
    with pytest.raises(ValueError, match="Must provide x or input_fn"):
        estimator.fit(steps=1)
    with pytest.raises(ValueError, match="Can not provide both input_fn and x"):
        estimator.fit(X, Y, batches, steps=1)
    estimator.fit(input_fn=batches, max_steps=2)
    assert estimator.get_variable_value("global_step") == 2


def test_features_are_changed_before_the_model_gets_them(tmp_path: Path) -> None:
    estimator = learn.Estimator(
        a_model, str(tmp_path), params={"rate": 0.1}, feature_engineering_fn=lambda x, y: (x * 0.0, y)
    )
    estimator.fit(X, Y, steps=1)
    assert not np.any(estimator.predict(X, as_iterable=False))


def test_a_model_function_returns_three_things(tmp_path: Path) -> None:
    estimator = learn.Estimator(lambda features, labels: (features, labels), str(tmp_path))
    with pytest.raises(ValueError, match="a tuple of 2"):
        estimator.fit(X, Y, steps=1)


def test_metrics_beside_the_model(tmp_path: Path) -> None:
    estimator = learn.Estimator(parts_of_a_model, str(tmp_path), params={"rate": 0.1}).fit(X, Y, steps=1)
    said = estimator.predict(X, as_iterable=False)["said"]
    results = estimator.evaluate(
        X,
        Y,
        metrics={
            "by_name": learn.MetricSpec(tf.metrics.mean_absolute_error, prediction_key="said"),
            "by_place": learn.MetricSpec(lambda p, y: tf.reduce_max(tf.abs(p - y))),
        },
    )
    assert results["by_name"] == pytest.approx(np.abs(said - Y).mean(), rel=1e-5)
    assert results["by_place"] == pytest.approx(np.abs(said - Y).max(), rel=1e-5)
    assert "by_name" not in estimator.evaluate(X, Y)


def test_a_metric_must_know_what_it_compares() -> None:
    predictions = {"a": tf.zeros([2]), "b": tf.zeros([2])}
    spec = learn.MetricSpec(tf.metrics.accuracy)
    with pytest.raises(ValueError, match="say its prediction_key"):
        metric_operations({"m": spec}, {}, tf.zeros([2]), predictions)
    weighted = learn.MetricSpec(tf.metrics.mean_absolute_error, "a", weight_key="w")
    value, update = weighted.create_metric_ops({"w": tf.constant([1.0, 3.0])}, tf.constant([1.0, 5.0]), predictions)
    with tf.Session() as sess:
        sess.run(tf.local_variables_initializer())
        sess.run(update)
        assert sess.run(value) == pytest.approx((1 * 1 + 5 * 3) / 4)
    assert "mean_absolute_error" in str(weighted)


class Exports:
    name = "last"

    def __init__(self) -> None:
        self.calls: list[Any] = []

    def export(self, estimator: Any, folder: str, eval_result: Any) -> str:
        self.calls.append(eval_result)
        return folder


def test_an_experiment(tmp_path: Path) -> None:
    strategy = Exports()

    def make(config: Any, hparams: Any) -> Any:
        estimator = learn.Estimator(a_model, config=config, params=hparams)
        return learn.Experiment(
            estimator,
            batches,
            batches,
            eval_metrics={"mae": learn.MetricSpec(tf.metrics.mean_absolute_error)},
            train_steps=20,
            eval_steps=1,
            min_eval_frequency=5,
            export_strategies=strategy,
        )

    config = learn.RunConfig(model_dir=str(tmp_path), save_checkpoints_steps=5, num_cores=1, gpu_memory_fraction=0.5)
    assert config.tf_config.gpu_options.per_process_gpu_memory_fraction == 0.5
    results, exported = learn.learn_runner.run(make, run_config=config, hparams={"rate": 0.1})
    assert results["global_step"] == 20
    assert results["mae"] > 0
    assert strategy.calls == [results]
    assert exported == [f"{tmp_path}/export/last"]
    assert len(list(tmp_path.glob("eval/*tfevents*"))) >= 1
    assert make(config, {"rate": 0.1}).test()[0]["global_step"] == 20
    with pytest.raises(ValueError, match=r"non-existent task 'bake'.*train_and_evaluate"):
        learn.learn_runner.run(make, run_config=config, schedule="bake")
    with pytest.raises(TypeError, match="should return an Experiment"):
        learn.learn_runner.run(lambda folder: 3, str(tmp_path))  # type: ignore[arg-type, return-value]
    with pytest.raises(ValueError, match="Must provide either"):
        learn.learn_runner.run(make)


def test_an_experiment_in_turns(tmp_path: Path) -> None:
    estimator = learn.Estimator(a_model, str(tmp_path), params={"rate": 0.1})
    experiment = learn.Experiment(estimator, batches, batches, train_steps=7, eval_steps=1, train_steps_per_iteration=3)
    seen: list[Any] = []

    def goes_on(found: Any) -> bool:
        seen.append(found)
        return True

    results, exported = experiment.continuous_train_and_eval(goes_on)
    assert results is not None
    assert results["global_step"] >= 7
    assert exported == []
    assert [found and found["global_step"] for found in seen] == [None, 3, 6, 9]


def test_an_experiment_with_an_estimator_of_today(tmp_path: Path) -> None:
    columns = [tf.feature_column.numeric_column("x", shape=[3])]
    estimator = tf.estimator.LinearRegressor(columns, str(tmp_path))

    def named() -> Any:
        return {"x": tf.constant(X)}, tf.constant(Y)

    experiment = learn.Experiment(estimator, named, named, train_steps=4, eval_steps=1, min_eval_frequency=1)
    results, _ = experiment.train_and_evaluate()
    assert results["global_step"] == 4
    assert experiment.train_steps == 4
    with pytest.raises(ValueError, match="`eval_metrics` must be `None`"):
        learn.Experiment(estimator, named, named, eval_metrics={})


def test_training_stops_when_it_no_longer_helps(tmp_path: Path) -> None:
    config = learn.RunConfig(save_checkpoints_steps=1)
    monitor = learn.monitors.ValidationMonitor(X, Y, every_n_steps=1, early_stopping_rounds=2)
    estimator = learn.Estimator(a_model, str(tmp_path), config, params={"rate": 0.0})
    estimator.fit(X, Y, steps=50, monitors=[monitor])
    assert monitor.early_stopped
    assert monitor.best_step is not None
    assert monitor.best_step < 5
    assert estimator.get_variable_value("global_step") < 50
    with pytest.raises(ValueError, match="Either x or input_fn"):
        learn.monitors.ValidationMonitor()


def test_ready_made_models() -> None:
    classes = (X[:, 0] > 0).astype(np.int64) + (X[:, 1] > 0)
    columns = learn.infer_real_valued_columns_from_input(X)
    classifier = learn.DNNClassifier(
        [16], columns, n_classes=3, optimizer=tf.train.AdamOptimizer(0.05), gradient_clip_norm=5.0
    )
    classifier.fit(X, classes, steps=100)
    found = classifier.predict(X, as_iterable=False)
    assert (found == classes).mean() > 0.9
    assert found.shape == (64,)
    assert classifier.predict_proba(X, as_iterable=False).shape == (64, 3)
    assert classifier.evaluate(X, classes)["accuracy"] > 0.9
    assert set(next(classifier.predict(X, outputs=["logits"]))) == {"logits"}
    regressor = learn.LinearRegressor([layers.real_valued_column("", dimension=3)])
    regressor.fit(X, Y, steps=200)
    assert np.abs(regressor.predict(X, as_iterable=False) - Y).mean() < 0.5
    with pytest.raises(ValueError, match="gradient_clip_norm wants"):
        learn.DNNRegressor([4], columns, gradient_clip_norm=1.0)
    (column,) = learn.infer_real_valued_columns_from_input_fn(lambda: ({"a": tf.zeros([5, 2])}, None))
    assert (column.key, column.shape) == ("a", (2,))


def test_wide_and_deep() -> None:
    words = np.array(["a", "b", "c", "a"] * 4)
    numbers = np.arange(16, dtype=np.float32)
    hashed = layers.sparse_column_with_hash_bucket("word", 10)
    keyed = layers.sparse_column_with_keys("word", ["a", "b"])
    buckets = layers.bucketized_column(layers.real_valued_column("number"), [4.0, 8.0])
    model = learn.DNNLinearCombinedClassifier(
        linear_feature_columns=[hashed, layers.crossed_column([hashed, buckets], 20)],
        dnn_feature_columns=[layers.embedding_column(hashed, 2), layers.one_hot_column(keyed), buckets],
        dnn_hidden_units=[8],
        linear_optimizer=tf.train.AdamOptimizer(0.1),
    )

    def input_fn() -> Any:
        return {"word": tf.constant(words), "number": tf.constant(numbers)}, tf.constant((words == "a").astype(int))

    model.fit(input_fn=input_fn, steps=60)
    assert model.evaluate(input_fn=input_fn, steps=1)["accuracy"] == 1.0


def test_columns_as_matrices(tmp_path: Path) -> None:
    (tmp_path / "words").write_text("x\ny\n")
    features = {
        "n": tf.constant([[1.0], [3.0]]),
        "i": tf.constant([[2], [0]], tf.int64),
        "w": tf.constant([["y"], ["z"]]),
    }
    columns = [
        layers.real_valued_column("n", normalizer=lambda x: x * 2),
        layers.one_hot_column(layers.sparse_column_with_integerized_feature("i", 3)),
        layers.one_hot_column(layers.sparse_column_with_vocabulary_file("w", str(tmp_path / "words"), 1)),
    ]
    matrix = layers.input_from_feature_columns(features, columns)
    with tf.Session() as sess:
        sess.run(tf.tables_initializer())
        rows = sess.run(matrix)
    # columns stand in the order of their names
    np.testing.assert_array_equal(np.sort(rows, 1), np.sort([[0, 0, 1, 2, 0, 1, 0], [1, 0, 0, 6, 0, 0, 1]], 1))
    assert sorted(layers.create_feature_spec_for_parsing(columns)) == ["i", "n", "w"]
    with pytest.raises(ValueError, match="pad rows"):
        layers.real_valued_column("n", None)


def test_vectors_for_numbers() -> None:
    vectors = layers.embed_sequence([[0, 2], [1, 1]], 3, 4, initializer=tf.ones_initializer(), scope="table")
    again = layers.embed_sequence([[0]], scope="table", reuse=True, vocab_size=3, embed_dim=4)
    assert [v.name for v in tf.trainable_variables()] == ["table/embeddings:0"]
    assert vectors.shape == [2, 2, 4]
    assert again.shape == [1, 1, 4]
    with pytest.raises(ValueError, match="Must specify vocab size"):
        layers.embed_sequence([[0]])


def test_examples_are_read_from_files(tmp_path: Path) -> None:
    for part in range(2):
        with tf.python_io.TFRecordWriter(str(tmp_path / f"part-{part}")) as writer:
            for i in range(5):
                value = tf.train.Feature(int64_list=tf.train.Int64List(value=[10 * part + i]))
                writer.write(tf.train.Example(features=tf.train.Features(feature={"i": value})).SerializeToString())
    spec = {"i": tf.FixedLenFeature([], tf.int64)}
    found = learn.io.read_batch_features(
        str(tmp_path / "part-*"), 4, spec, reader=tf.TFRecordReader, randomize_input=True, num_epochs=1
    )
    seen: list[int] = []
    with tf.Session() as sess:
        for _ in range(3):
            seen += sess.run(found["i"]).tolist()
        with pytest.raises(tf.errors.OutOfRangeError):
            sess.run(found["i"])
    assert sorted(seen) == [*range(5), *range(10, 15)]
    with pytest.raises(ValueError, match="use tf.data"):
        learn.io.read_batch_features("x", 1, spec, reader=tf.TextLineReader)
