"""Estimators with heads of the program's choice, baselines, and `tf.estimator.experimental`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import anabranch as tf

fc = tf.feature_column
X = np.linspace(-1, 1, 24, dtype=np.float32)
LABELS = np.stack([X > 0, X > 0.5], 1).astype(np.int64)
COLUMNS = [fc.numeric_column("x")]
SUM = tf.losses.Reduction.SUM


def data(labels: Any, epochs: int | None = 1) -> Any:
    return tf.estimator.inputs.numpy_input_fn({"x": X}, labels, batch_size=len(X), num_epochs=epochs, shuffle=False)


@pytest.mark.parametrize("kind", ["deep", "wide", "both"])
def test_estimators_take_a_head(kind: str, tmp_path: Path) -> None:
    head = tf.estimator.MultiLabelHead(2, thresholds=[0.5], loss_reduction="sum")
    config = tf.estimator.RunConfig(tmp_path, tf_random_seed=1)
    model: tf.estimator.Estimator
    if kind == "deep":
        model = tf.estimator.DNNEstimator(head, [4], COLUMNS, optimizer="Adagrad", config=config)
    elif kind == "wide":
        model = tf.estimator.LinearEstimator(head, COLUMNS, config=config)
    else:
        model = tf.estimator.DNNLinearCombinedEstimator(
            head,
            linear_feature_columns=COLUMNS,
            linear_optimizer=lambda: tf.train.FtrlOptimizer(0.2),
            dnn_feature_columns=COLUMNS,
            dnn_hidden_units=[4],
            config=config,
        )
    model.train(data(LABELS, None), steps=40)
    result = model.evaluate(data(LABELS))
    said = np.array([each["probabilities"] for each in model.predict(data(None))])
    assert result["auc"] > 0.9
    assert result["accuracy/positive_threshold_0.5"] == pytest.approx(((said > 0.5) == LABELS).mean(), abs=1e-6)
    losses = -(LABELS * np.log(said) + (1 - LABELS) * np.log(1 - said)).mean(1)
    assert result["average_loss"] == pytest.approx(losses.mean(), rel=1e-4)
    assert result["loss"] == pytest.approx(losses.sum(), rel=1e-4)


def test_a_baseline_learns_how_frequent_classes_are(tmp_path: Path) -> None:
    classes = np.repeat([0, 1, 2], [12, 8, 4])
    model = tf.estimator.BaselineClassifier(tmp_path, n_classes=3)
    model.train(data(classes, None), steps=60)
    said = next(iter(model.predict(data(None))))
    np.testing.assert_allclose(said["probabilities"], [1 / 2, 1 / 3, 1 / 6], atol=0.01)
    assert model.get_variable_names()[:1] == ["baseline/bias"]
    assert model.evaluate(data(classes))["accuracy"] == 0.5


def test_the_step_of_a_baseline_is_ftrls(tmp_path: Path) -> None:
    """One step from zero of Ftrl with rate 0.3 and accumulator 0.1, on the sum of squared differences."""
    targets = 2 * X + 1
    model = tf.estimator.BaselineRegressor(tmp_path).train(data(targets, None), steps=1)
    gradient = -2 * targets.sum(dtype=np.float64)
    expected = -gradient / (np.sqrt(0.1 + gradient**2) / 0.3)
    assert model.get_variable_value("baseline/bias")[0] == pytest.approx(expected, rel=1e-5)


def test_a_baseline_of_any_head_with_more_metrics(tmp_path: Path) -> None:
    head = tf.estimator.PoissonRegressionHead()
    plain = tf.estimator.BaselineEstimator(head, tmp_path, optimizer=lambda: tf.train.AdamOptimizer(0.5))
    counts = np.tile([0.0, 2.0, 4.0], 8).astype(np.float32)

    def largest(labels: Any, predictions: Any) -> dict[str, Any]:
        error = tf.reduce_max(tf.abs(tf.reshape(labels, [-1, 1]) - predictions["predictions"]))
        return {"largest_error": tf.metrics.mean(error)}

    model = tf.estimator.add_metrics(plain, largest)
    assert model.model_dir == plain.model_dir
    model.train(data(counts, None), steps=30)
    result = model.evaluate(data(counts))
    said = next(iter(model.predict(data(None))))["predictions"][0]
    assert said == pytest.approx(2, abs=0.1)
    assert result["prediction/mean"] == pytest.approx(said, rel=1e-5)
    assert result["largest_error"] == pytest.approx(np.abs(counts - said).max(), rel=1e-5)
    assert "largest_error" not in plain.evaluate(data(counts))
    with pytest.raises(ValueError, match="not expected args: \\['labelz'\\]"):
        tf.estimator.add_metrics(plain, lambda labelz: {})


# ---------------------------------------------------------------------- tf.estimator.experimental
experimental = tf.estimator.experimental


def results_of(folder: Path) -> dict[int, dict[str, float]]:
    found: dict[int, dict[str, float]] = {}
    for path in folder.glob("events.out.tfevents.*"):
        for event in tf.train.summary_iterator(str(path)):
            for value in event.summary.value:
                found.setdefault(event.step, {})[value.tag] = value.simple_value
    return found


def test_evaluations_in_memory_are_those_of_checkpoints(tmp_path: Path) -> None:
    config = tf.estimator.RunConfig(tmp_path, save_checkpoints_steps=2, save_checkpoints_secs=None)
    model = tf.estimator.BaselineRegressor(config=config)
    hook = experimental.InMemoryEvaluatorHook(model, data(X + 1), name="memory", every_n_iter=2)
    model.train(data(X + 1, None), hooks=[hook], steps=5)
    seen = results_of(tmp_path / "eval_memory")
    assert sorted(seen) == [0, 2, 4, 5]
    assert seen[0]["average_loss"] == pytest.approx(((X + 1) ** 2).mean(), rel=1e-5)
    for step in (2, 5):
        saved = model.evaluate(data(X + 1), checkpoint_path=str(tmp_path / f"model.ckpt-{step}"))
        assert seen[step]["average_loss"] == pytest.approx(saved["average_loss"], rel=1e-5)
    with pytest.raises(ValueError, match="every_n_iter=0"):
        experimental.InMemoryEvaluatorHook(model, data(X), every_n_iter=0)


def write_evaluations(folder: Path, values: dict[int, float]) -> None:
    with tf.Graph().as_default(), tf.summary.FileWriter(str(folder)) as writer:
        for step, value in values.items():
            writer.add_summary(tf.Summary(value=[tf.Summary.Value(tag="accuracy", simple_value=value)]), step)


@pytest.mark.parametrize(
    ("make", "argument", "stops"),
    [
        (experimental.stop_if_higher_hook, 0.75, True),
        (experimental.stop_if_higher_hook, 0.85, False),
        (experimental.stop_if_lower_hook, 0.65, True),
        (experimental.stop_if_lower_hook, 0.5, False),
        (experimental.stop_if_no_increase_hook, 20, True),
        (experimental.stop_if_no_increase_hook, 30, False),
        (experimental.stop_if_no_decrease_hook, 10, True),
        (experimental.stop_if_no_decrease_hook, 20, False),
    ],
)
def test_training_stops_when_evaluations_say_so(make: Any, argument: float, stops: bool, tmp_path: Path) -> None:
    write_evaluations(tmp_path / "eval", {0: 0.9, 10: 0.7, 20: 0.8, 30: 0.6, 40: 0.7})
    model = tf.estimator.BaselineRegressor(tmp_path)
    arguments = {"min_steps": 10, "run_every_secs": None, "run_every_steps": 1}
    model.train(data(X, None), hooks=[make(model, "accuracy", argument, **arguments)], steps=2)
    assert model.get_variable_value("global_step") == (1 if stops else 2)


def test_the_chief_tells_workers_to_stop() -> None:
    model = tf.estimator.BaselineRegressor()
    asked: list[int] = []

    def should_stop() -> bool:
        asked.append(1)
        return len(asked) == 2

    hook = experimental.make_early_stopping_hook(model, should_stop, run_every_secs=None, run_every_steps=2)
    model.train(data(X, None), hooks=[hook], steps=9)
    assert model.get_variable_value("global_step") == 3  # asked after the first step, and two steps later
    assert model.get_variable_value("signal_early_stopping/STOP")
    with pytest.raises(ValueError, match="Only one of"):
        experimental.make_early_stopping_hook(model, should_stop, run_every_steps=2)
    with pytest.raises(TypeError, match="Estimator"):
        experimental.make_early_stopping_hook(None, should_stop)  # type: ignore[arg-type]


class AsWorker(tf.estimator.RunConfig):
    """The configuration of a task that is no chief."""

    @property
    def is_chief(self) -> bool:
        return False


def test_a_worker_stops_with_the_chief_and_with_its_last_checkpoint(tmp_path: Path) -> None:
    chief = tf.estimator.BaselineRegressor(tmp_path)
    worker = tf.estimator.BaselineRegressor(config=AsWorker(tmp_path))
    with tf.Graph().as_default():
        count = tf.assign_add(tf.train.create_global_step(), 1)
        with tf.variable_scope("signal_early_stopping"):
            told = tf.get_variable("STOP", [], tf.bool, tf.constant_initializer(False), trainable=False)
        tell = tf.assign(told, True)  # what the chief does
        hook = experimental.make_early_stopping_hook(worker, lambda: False)
        with tf.train.MonitoredSession(hooks=[hook]) as session:
            session.run(count)
            assert not session.should_stop()
            session.run(tell)
            session.run(count)
            assert session.should_stop()
    chief.train(data(X, None), hooks=[experimental.make_stop_at_checkpoint_step_hook(chief, 3)])
    assert chief.get_variable_value("global_step") == 3
    for last, stops in ((3, True), (4, False)):
        with tf.Graph().as_default():
            count = tf.assign_add(tf.train.create_global_step(), 4)
            hook = experimental.make_stop_at_checkpoint_step_hook(worker, last, wait_after_file_check_secs=0)
            with tf.train.MonitoredSession(hooks=[hook]) as session:
                session.run(count)
                session.run(count)
                assert session.should_stop() == stops


def test_networks_are_functions_of_features() -> None:
    linear = experimental.linear_logit_fn_builder(2, COLUMNS)
    deep = experimental.dnn_logit_fn_builder(2, [3], COLUMNS, tf.nn.relu, None, None, False)
    features = {"x": tf.constant([[1.0], [2.0]])}
    sums = experimental.call_logit_fn(linear, features, "infer", None, None)
    sums += experimental.call_logit_fn(deep, features, "infer", {}, None)
    assert sums.shape.as_list() == [2, 2]
    assert {variable.op.name for variable in tf.global_variables()} == {
        "linear_model/x/weights",
        "linear_model/bias_weights",
        "dnn/hiddenlayer_0/kernel",
        "dnn/hiddenlayer_0/bias",
        "dnn/logits/kernel",
        "dnn/logits/bias",
    }
    named = experimental.call_logit_fn(
        lambda features, params: {"a": params * features["x"]}, features, "infer", 3, None
    )
    with tf.Session() as session:
        assert session.run(named["a"]).tolist() == [[3.0], [6.0]]
    with pytest.raises(ValueError, match="should return a Tensor"):
        experimental.call_logit_fn(lambda features: "x", features, "infer", None, None)
    with pytest.raises(ValueError, match="units must be an int"):
        experimental.linear_logit_fn_builder("2", COLUMNS)  # type: ignore[arg-type]


def test_placeholders_of_features_and_labels() -> None:
    build = experimental.build_raw_supervised_input_receiver_fn
    features, labels = {"x": tf.constant([[1.0, 2.0]])}, tf.constant([3])
    receiver = build(features, labels, 7)()
    assert receiver.features["x"].shape.as_list() == [7, 2]
    assert receiver.labels.shape.as_list() == [7]
    assert receiver.labels.dtype == tf.int32
    assert set(receiver.receiver_tensors) == {"x", "label"}
    with pytest.raises(ValueError, match="both have 'x'"):
        build(features, {"x": labels})
