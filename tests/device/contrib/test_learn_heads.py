"""Heads of `tf.contrib.learn`, the models that take them, monitors, and graphs that are trained without a model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import anabranch as tf
from anabranch.contrib.learn.class_heads import binary_svm_head, multi_class_head, multi_label_head
from anabranch.contrib.learn.heads import loss_only_head, multi_head, poisson_regression_head, regression_head

learn = tf.contrib.learn
RNG = np.random.default_rng(5)
X = RNG.normal(size=(60, 3)).astype(np.float32)
Y = (X @ np.array([1.0, -2.0, 0.5], np.float32) > 0).astype(np.int64)
COLUMN = tf.feature_column.numeric_column("x", (3,))
LOGITS = np.array([[0.5], [-1.0], [2.0]], np.float32)


def data() -> Any:
    return {"x": tf.constant(X), "id": tf.as_string(tf.range(60))}, tf.constant(Y)


def run_ops(head: Any, logits: Any, labels: Any, features: Any = None) -> tuple[Any, dict[str, Any], Any]:
    """The loss, the metrics and the predictions of a batch."""
    with tf.Graph().as_default(), tf.Session() as session:
        mode = learn.ModeKeys.EVAL
        given = {name: tf.constant(value) for name, value in (features or {}).items()}
        ops = head.create_model_fn_ops(given, mode, labels=labels, logits=tf.constant(logits))
        updates = {name: update for name, (_, update) in ops.eval_metric_ops.items()}
        session.run([tf.global_variables_initializer(), tf.local_variables_initializer(), tf.tables_initializer()])
        session.run(updates)
        return session.run(
            [ops.loss, {name: value for name, (value, _) in ops.eval_metric_ops.items()}, ops.predictions]
        )


def test_two_classes_with_weights() -> None:
    head = multi_class_head(2, weight_column_name="w", head_name="h")
    labels, weights = np.array([1, 1, 0]), np.array([1.0, 2.0, 3.0], np.float32)
    losses = np.log1p(np.exp(-LOGITS[:, 0])) * labels + np.log1p(np.exp(LOGITS[:, 0])) * (1 - labels)
    loss, metrics, said = run_ops(head, LOGITS, labels, {"w": weights})
    assert loss == pytest.approx((losses * weights).mean(), rel=1e-5)
    assert metrics["loss/h"] == pytest.approx((losses * weights).sum() / 6, rel=1e-5)
    assert metrics["accuracy/h"] == pytest.approx(1 / 6)
    assert metrics["precision/positive_threshold_0.500000_mean/h"] == pytest.approx(1 / 4)
    assert said["classes"].tolist() == [1, 0, 1]
    np.testing.assert_allclose(said["probabilities"][:, 1:], said["logistic"], rtol=1e-6)


def test_several_classes_by_name() -> None:
    head = multi_class_head(3, label_keys=["a", "b", "c"])
    logits = np.array([[2.0, 0, 0], [0, 0, 3]], np.float32)
    loss, metrics, said = run_ops(head, logits, np.array([b"a", b"b"]))
    expected = -np.log(np.exp([2.0, 0]) / np.exp(logits).sum(1))
    assert loss == pytest.approx(expected.mean(), rel=1e-5)
    assert metrics["accuracy"] == 0.5
    assert said["classes"].tolist() == [b"a", b"c"]


def test_metrics_of_single_classes() -> None:
    _, metrics, _ = run_ops(multi_class_head(3, metric_class_ids=[2]), np.eye(3, dtype=np.float32), np.array([0, 2, 2]))
    assert metrics["labels/prediction_mean/class2"] == pytest.approx(1 / 3)
    assert metrics["labels/actual_label_mean/class2"] == pytest.approx(2 / 3)
    labels = np.array([[1, 0], [1, 1]])
    logits = np.array([[3.0, -1], [-2, 4]], np.float32)
    _, metrics, said = run_ops(multi_label_head(2, metric_class_ids=[1]), logits, labels)
    assert metrics["accuracy"] == 0.75
    assert metrics["auc/class1"] == pytest.approx(1.0, abs=1e-3)
    assert said["classes"].tolist() == [[1, 0], [0, 1]]


def test_numbers_counts_and_machines() -> None:
    loss, _, said = run_ops(regression_head(), LOGITS, np.array([0.0, 0, 1]))
    assert loss == pytest.approx((0.25 + 1 + 1) / 3)
    np.testing.assert_allclose(said["scores"], LOGITS[:, 0])
    _, _, said = run_ops(poisson_regression_head(), LOGITS, np.array([0.0, 0, 1]))
    np.testing.assert_allclose(said["scores"], np.exp(LOGITS[:, 0]), rtol=1e-6)
    loss, metrics, _ = run_ops(binary_svm_head(), LOGITS, np.array([1, 1, 0]))
    assert loss == pytest.approx((0.5 + 2 + 3) / 3)
    assert metrics["accuracy"] == pytest.approx(1 / 3)


def test_several_heads_add_their_losses() -> None:
    heads = [multi_class_head(2, "a", head_name="a"), regression_head("b", head_name="b")]
    heads.append(loss_only_head(lambda: [tf.constant(1.0), tf.constant(2.0)], "c"))
    labels = {"a": np.array([1]), "b": np.array([2.0])}
    loss, metrics, said = run_ops(multi_head(heads, [1.0, 0.5, 2.0]), np.array([[0.0, 1.0]], np.float32), labels)
    assert loss == pytest.approx(np.log(2) + 0.5 + 6)
    assert metrics["loss/b"] == 1.0
    assert said["b", "scores"] == 1.0
    with pytest.raises(ValueError, match="must have same size"):
        multi_head(heads, [1.0])
    with pytest.raises(ValueError, match="must have names"):
        multi_head([regression_head()])


def test_a_head_says_what_it_lacks() -> None:
    head = regression_head()
    with tf.Graph().as_default():
        logits = tf.zeros([2, 1])
        with pytest.raises(ValueError, match="unrecognized"):
            head.create_model_fn_ops({}, "bake", logits=logits)
        with pytest.raises(ValueError, match="Neither logits nor"):
            head.create_model_fn_ops({}, learn.ModeKeys.INFER)
        with pytest.raises(ValueError, match="train_op_fn can not be None"):
            head.create_model_fn_ops({}, learn.ModeKeys.TRAIN, np.zeros(2), logits=logits)
        head.create_model_fn_ops({}, learn.ModeKeys.INFER, logits_input=tf.zeros([2, 4]))
        assert [v.op.name for v in tf.trainable_variables()] == [
            "regression_head_2/logits/weights",
            "regression_head_2/logits/biases",
        ]
    with pytest.raises(ValueError, match="n_classes must be > 1"):
        multi_class_head(1)
    with pytest.raises(ValueError, match="Argument weights not found"):
        multi_class_head(3, loss_fn=lambda labels, logits: labels)


def test_models_with_heads_learn(tmp_path: Path) -> None:
    # eight hidden units may all begin badly
    config = tf.estimator.RunConfig(str(tmp_path / "deep"), tf_random_seed=3)
    deep = learn.DNNEstimator(multi_class_head(2), [8], [COLUMN], gradient_clip_norm=5.0, config=config)
    wide = learn.LinearEstimator([COLUMN], multi_class_head(2, enable_centered_bias=True), str(tmp_path / "wide"))
    machine = learn.SVM("id", [COLUMN], model_dir=str(tmp_path / "machine"), l2_regularization=1.0)
    for model, least in ((deep, 0.85), (wide, 0.9), (machine, 0.9)):
        assert isinstance(model, learn.BaseEstimator)
        model.fit(input_fn=data, steps=60)
        assert model.evaluate(input_fn=data, steps=1)["accuracy"] > least, model


def test_monitors_see_steps_and_stop_them(tmp_path: Path) -> None:
    class Watch(learn.monitors.EveryN):
        def __init__(self) -> None:
            super().__init__(every_n_steps=2)
            self.steps: list[int] = []

        def every_n_step_end(self, step: int, outputs: Any) -> bool:
            self.steps.append(step)
            return step >= 5

    def model(features: Any, labels: Any, mode: str) -> Any:
        weight = tf.get_variable("w", initializer=1.0)
        loss = tf.square(weight)
        return features, loss, tf.train.GradientDescentOptimizer(0.25).minimize(loss, tf.train.get_global_step())

    watch, kept = Watch(), learn.monitors.CaptureVariable("w", every_n=1)
    estimator = learn.LogisticRegressor(model, model_dir=str(tmp_path)).fit(X, Y, steps=20, monitors=[watch, kept])
    assert watch.steps == [1, 3, 5]
    assert kept.values == {i + 1: 0.5**i for i in range(5)}
    assert estimator.get_variable_value("global_step") == 5


def test_a_graph_is_trained_and_evaluated(tmp_path: Path) -> None:
    graph = tf.Graph()
    with graph.as_default():
        step = tf.train.create_global_step()
        weight = tf.get_variable("w", initializer=3.0)
        loss = tf.square(weight)
        train_op = tf.train.GradientDescentOptimizer(0.25).minimize(loss, step)
    folder = str(tmp_path)
    assert learn.graph_actions.train(graph, folder, train_op, loss, steps=3) == pytest.approx(9 / 16)
    results, at = learn.graph_actions.evaluate(graph, f"{folder}/eval", folder, {"loss": loss}, max_steps=1)
    assert (results["loss"], at) == (pytest.approx(9 / 64), 3)
    with pytest.raises(ValueError, match="Can not provide both"):
        learn.graph_actions.train(graph, folder, train_op, loss, steps=1, max_steps=1)


def test_clusters_with_the_names_of_before(tmp_path: Path) -> None:
    points = np.concatenate([RNG.normal(size=(20, 2)) + 8, RNG.normal(size=(20, 2)) - 8]).astype(np.float32)
    model = learn.KMeansClustering(2, str(tmp_path), learn.KMeansClustering.KMEANS_PLUS_PLUS_INIT)
    model.fit(input_fn=lambda: (tf.constant(points), None), steps=5)
    np.testing.assert_allclose(np.sort(model.clusters()[:, 0]), [-8, 8], atol=1)
    score = model.score(input_fn=lambda: (tf.constant(points), None), steps=1)
    assert score == pytest.approx(sum(min(((p - c) ** 2).sum() for c in model.clusters()) for p in points), rel=1e-3)


def test_small_models_and_data() -> None:
    with tf.Graph().as_default(), tf.Session() as session:
        said, loss = learn.models.linear_regression_zero_init(tf.constant(X), tf.constant(X[:, 0]))
        session.run(tf.global_variables_initializer())
        assert not session.run(said).any()
        assert session.run(loss) == pytest.approx((X[:, 0] ** 2).mean(), rel=1e-5)

        def words(x: Any) -> list[Any]:
            return tf.unstack(learn.ops.categorical_variable(x, 5, 4, "words"), axis=1)

        with tf.variable_scope("recurrent"):
            model = learn.models.get_rnn_model(
                3, "gru", 2, words, True, learn.models.logistic_regression, None, None, None, None, None
            )
            said, _ = model(tf.zeros([2, 6], tf.int32), tf.ones([2, 2]))
        assert said.shape.as_list() == [2, 2]
    for name in learn.datasets.SYNTHETIC:
        made = learn.datasets.make_dataset(name, 11)
        assert made.data.shape == (11, 2)
        assert np.abs(made.data).max() <= 1 + 1e-12
        assert set(made.target) == {0, 1}
    with pytest.raises(FileNotFoundError, match="boston_house_prices"):
        learn.datasets.load_dataset("boston")
