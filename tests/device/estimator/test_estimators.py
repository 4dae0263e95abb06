"""Estimators with functions of their own: training that goes on, evaluation, prediction, export, warm starts."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import anabranch as tf

RANDOM = np.random.RandomState(3)
X = RANDOM.uniform(-1, 1, (96, 2)).astype(np.float32)
Y = (X @ np.array([[2.0], [-1.0]]) + 0.5).astype(np.float32)


def model_fn(features: Any, labels: Any, mode: str, params: Any) -> tf.estimator.EstimatorSpec:
    output = tf.layers.dense(features["x"], 1, name="line")
    predictions = {"y": output}
    if mode == tf.estimator.ModeKeys.PREDICT:
        outputs = {"predict": tf.estimator.export.PredictOutput(predictions)}
        return tf.estimator.EstimatorSpec(mode, predictions, export_outputs=outputs)
    loss = tf.losses.mean_squared_error(labels, output)
    if mode == tf.estimator.ModeKeys.EVAL:
        metrics = {"mae": tf.metrics.mean_absolute_error(labels, output)}
        return tf.estimator.EstimatorSpec(mode, predictions, loss, eval_metric_ops=metrics)
    optimizer = tf.train.GradientDescentOptimizer(params["rate"])
    step = optimizer.minimize(loss, global_step=tf.train.get_global_step())
    return tf.estimator.EstimatorSpec(mode, loss=loss, train_op=step)


def estimator(folder: Path | None, **more: Any) -> tf.estimator.Estimator:
    return tf.estimator.Estimator(model_fn, folder, params={"rate": 0.3}, **more)


def training() -> Callable[[], Any]:
    return tf.estimator.inputs.numpy_input_fn({"x": X}, Y, batch_size=32, num_epochs=None, shuffle=True)


def once(x: Any = X, y: Any = Y, batch_size: int = 40) -> Callable[[], Any]:
    return tf.estimator.inputs.numpy_input_fn({"x": x}, y, batch_size=batch_size, num_epochs=1, shuffle=False)


def test_it_trains_evaluates_predicts_and_goes_on(tmp_path: Path) -> None:
    model = estimator(tmp_path)
    assert model.train(training(), steps=40) is model
    first = model.evaluate(once())
    assert first["global_step"] == 40
    # another object, the same directory: training goes on where it ended
    again = estimator(tmp_path).train(training(), max_steps=160)
    second = again.evaluate(once())
    assert second["global_step"] == 160
    assert second["loss"] < min(first["loss"], 1e-3)
    assert again.train(training(), max_steps=160).evaluate(once())["global_step"] == 160
    np.testing.assert_allclose(again.get_variable_value("line/kernel"), [[2], [-1]], atol=0.05)
    assert {"line/kernel", "line/bias", "global_step"} <= set(again.get_variable_names())
    said = [each["y"] for each in again.predict(once(y=None))]
    np.testing.assert_allclose(np.array(said), Y, atol=0.1)


def test_metrics_are_those_of_the_data(tmp_path: Path) -> None:
    model = estimator(tmp_path).train(training(), steps=3)
    kernel, bias = model.get_variable_value("line/kernel"), model.get_variable_value("line/bias")
    errors = np.abs(X @ kernel + bias - Y)
    result = model.evaluate(once(batch_size=32), name="all")
    assert result["mae"] == pytest.approx(errors.mean(), rel=1e-4)
    assert result["loss"] == pytest.approx((errors**2).mean(), rel=1e-4)
    part = model.evaluate(once(batch_size=32), steps=2)
    assert part["mae"] == pytest.approx(errors[:64].mean(), rel=1e-4)
    (written,) = Path(model.eval_dir("all")).iterdir()
    values = {value.tag for event in tf.train.summary_iterator(str(written)) for value in event.summary.value}
    assert {"mae", "loss"} <= values


def test_an_exported_model_is_loaded_and_asked(tmp_path: Path) -> None:
    model = estimator(tmp_path / "model").train(training(), steps=5)
    (tmp_path / "note.txt").write_text("a note")
    receiver = tf.estimator.export.build_raw_serving_input_receiver_fn({"x": tf.placeholder(tf.float32, [None, 2])})
    exported = model.export_saved_model(tmp_path / "export", receiver, {"note.txt": str(tmp_path / "note.txt")})
    folder = Path(exported.decode())
    assert (folder / "assets.extra" / "note.txt").read_text() == "a note"
    with tf.Graph().as_default(), tf.Session() as session:
        loaded = tf.saved_model.loader.load(session, [tf.saved_model.tag_constants.SERVING], str(folder))
        signature = loaded.signature_def["serving_default"]
        fetched = session.run(signature.outputs["y"].name, {signature.inputs["x"].name: X[:3]})
    expected = X[:3] @ model.get_variable_value("line/kernel") + model.get_variable_value("line/bias")
    np.testing.assert_allclose(fetched, expected, rtol=1e-5)
    assert not [path for path in (tmp_path / "export").iterdir() if path.name.startswith("temp")]


def test_it_starts_from_another_models_checkpoint(tmp_path: Path) -> None:
    taught = estimator(tmp_path / "a").train(training(), steps=100)
    settings = tf.estimator.WarmStartSettings(str(tmp_path / "a"), vars_to_warm_start=".*kernel")
    started = tf.estimator.Estimator(model_fn, tmp_path / "b", params={"rate": 1e-9}, warm_start_from=settings)
    started.train(training(), steps=1)
    np.testing.assert_allclose(
        started.get_variable_value("line/kernel"), taught.get_variable_value("line/kernel"), rtol=1e-5
    )
    np.testing.assert_allclose(started.get_variable_value("line/bias"), [0], atol=1e-6)
    assert started.get_variable_value("global_step") == 1


def test_training_and_evaluating_with_exporters(tmp_path: Path) -> None:
    config = tf.estimator.RunConfig(save_checkpoints_steps=20, keep_checkpoint_max=2)
    model = estimator(tmp_path, config=config)
    receiver = tf.estimator.export.build_raw_serving_input_receiver_fn({"x": tf.placeholder(tf.float32, [None, 2])})
    exporters = [
        tf.estimator.FinalExporter("final", receiver),
        tf.estimator.LatestExporter("latest", receiver, exports_to_keep=2),
        tf.estimator.BestExporter("best", receiver, exports_to_keep=1),
    ]
    seen: list[int] = []

    class Counts(tf.train.SessionRunHook):
        def after_create_session(self, session: Any, coord: Any) -> None:
            seen.append(int(session.run(tf.train.get_global_step())))

    result, exported = tf.estimator.train_and_evaluate(
        model,
        tf.estimator.TrainSpec(training(), max_steps=60),
        tf.estimator.EvalSpec(once(), steps=None, exporters=exporters, throttle_secs=0, hooks=[Counts()]),
    )
    assert result is not None
    assert result["global_step"] == 60
    assert seen == sorted(set(seen))
    assert seen[-1] == 60
    assert len(seen) >= 3
    assert exported[0] is not None
    models = {path.name: len(list(path.iterdir())) for path in (tmp_path / "export").iterdir()}
    assert models == {"final": 1, "latest": 2, "best": 1}
    assert len(list(tmp_path.glob("model.ckpt-*.index"))) <= 2


def test_datasets_and_what_input_functions_ask_for(tmp_path: Path) -> None:
    asked: list[Any] = []

    def input_fn(mode: str, params: Any, config: Any) -> tf.data.Dataset:
        asked.append((mode, params, config.model_dir))
        return tf.data.Dataset.from_tensor_slices(({"x": X}, Y)).batch(48)

    model = estimator(tmp_path)
    model.train(input_fn)  # until the data end
    assert model.get_variable_value("global_step") == 2
    batches = list(model.predict(input_fn, predict_keys="y", yield_single_examples=False))
    assert [batch["y"].shape for batch in batches] == [(48, 1), (48, 1)]
    assert asked == [("train", {"rate": 0.3}, str(tmp_path)), ("infer", {"rate": 0.3}, str(tmp_path))]


def test_hooks_and_listeners_are_called(tmp_path: Path) -> None:
    calls: list[str] = []

    class Hook(tf.train.SessionRunHook):
        def after_run(self, run_context: Any, run_values: Any) -> None:
            calls.append("run")

    class Listener(tf.train.CheckpointSaverListener):
        def after_save(self, session: Any, global_step_value: int) -> None:
            calls.append(f"saved {global_step_value}")

    estimator(tmp_path).train(training(), hooks=[Hook()], steps=3, saving_listeners=[Listener()])
    assert calls == ["saved 0", "run", "run", "run", "saved 3"]


def test_an_untrained_model() -> None:
    model = estimator(None)
    assert model.evaluate(once())["global_step"] == 0
    assert len(list(model.predict(once(y=None)))) == len(X)
    with pytest.raises(ValueError, match="Couldn't find trained model"):
        model.export_saved_model("anywhere", lambda: None)


def test_arrays_are_given_in_order_and_shuffled() -> None:
    def read(**given: Any) -> list[Any]:
        with tf.Graph().as_default():
            x, y = tf.estimator.inputs.numpy_input_fn(np.arange(5), np.arange(5) * 10, batch_size=2, **given)()
            batches = []
            with tf.train.MonitoredSession() as session:
                while not session.should_stop():
                    batches.append([part.tolist() for part in session.run([x, y])])
            return batches

    assert read(shuffle=False) == [[[0, 1], [0, 10]], [[2, 3], [20, 30]], [[4], [40]]]
    assert [x for x, _ in read(shuffle=False, num_epochs=2)] == [[0, 1], [2, 3], [4, 0], [1, 2], [3, 4]]
    shuffled = read(shuffle=True)
    assert sorted(number for x, _ in shuffled for number in x) == list(range(5))
    assert all(b == 10 * a for x, y in shuffled for a, b in zip(x, y, strict=True))


def test_configurations() -> None:
    config = tf.estimator.RunConfig(save_checkpoints_steps=7)
    assert (config.save_checkpoints_steps, config.save_checkpoints_secs) == (7, None)
    assert tf.estimator.RunConfig().save_checkpoints_secs == 600
    by_time = config.replace(save_checkpoints_secs=5)
    assert (by_time.save_checkpoints_steps, by_time.save_checkpoints_secs) == (None, 5)
    assert (config.is_chief, config.task_type, config.num_worker_replicas, config.master) == (True, "worker", 1, "")


def _bad_arguments(features: Any, labels: Any, extra: Any) -> None: ...


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: tf.estimator.Estimator(_bad_arguments), ValueError, "not expected args: .*extra"),
        (lambda: tf.estimator.EstimatorSpec("train", loss=tf.constant(1.0)), ValueError, "Missing train_op"),
        (lambda: tf.estimator.EstimatorSpec("eval"), ValueError, "Missing loss"),
        (lambda: tf.estimator.EstimatorSpec("infer"), ValueError, "Missing predictions"),
        (lambda: tf.estimator.EstimatorSpec("eval", loss=tf.constant([1.0, 2.0])), ValueError, "must be scalar"),
        (lambda: estimator(None).train(once(), steps=1, max_steps=2), ValueError, "both steps and max_steps"),
        (lambda: tf.estimator.inputs.numpy_input_fn(X, Y), ValueError, "shuffle must be provided"),
        (lambda: tf.estimator.inputs.numpy_input_fn(X, Y[1:], shuffle=False), ValueError, "mismatched"),
        (lambda: tf.estimator.RunConfig(save_checkpoints_steps=0), ValueError, "should be > 0"),
        (lambda: tf.estimator.RunConfig(save_checkpoints_steps=1, save_checkpoints_secs=1), ValueError, "both"),
        (lambda: tf.estimator.LatestExporter("x", lambda: None, exports_to_keep=0), ValueError, "positive"),
        (lambda: tf.estimator.TrainSpec(once(), max_steps=0), ValueError, "max_steps > 0"),
        (lambda: tf.estimator.EvalSpec(once(), hooks=[3]), TypeError, "SessionRunHook"),
    ],
)
def test_wrong_arguments_are_refused(make: Callable[[], object], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        make()


def test_params_are_handed_on_as_what_they_are_and_as_copies(tmp_path: Path) -> None:
    class Params(dict[str, Any]):
        """A dictionary with an attribute."""

        @property
        def rate(self) -> Any:
            """The rate."""
            return self["rate"]

    given = Params(rate=[0.5])
    seen: list[Any] = []

    def model_fn(features: Any, labels: Any, mode: str, params: Any) -> tf.estimator.EstimatorSpec:
        seen.append(params)
        step = tf.assign_add(tf.train.get_global_step(), 1).op
        return tf.estimator.EstimatorSpec(mode, loss=tf.constant(params.rate[0]), train_op=step)

    estimator = tf.estimator.Estimator(model_fn, str(tmp_path), params=given)
    given["rate"].append(2.0)
    estimator.params["rate"].append(3.0)
    estimator.train(lambda: tf.data.Dataset.from_tensors({"x": [1.0]}).repeat(), steps=1)
    assert type(seen[0]) is Params
    assert seen[0].rate == [0.5]
