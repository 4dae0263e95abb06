"""Models exported with graphs for training and evaluation, and model functions on several devices."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import anabranch as tf

RNG = np.random.default_rng(2)
X = RNG.normal(size=(16, 3)).astype(np.float32)
Y = X @ np.array([1.0, -2.0, 0.5], np.float32)
MODES = tf.estimator.ModeKeys
TWO = tf.estimator.RunConfig(session_config=tf.ConfigProto(device_count={"CPU": 2}))


def model(features: Any, labels: Any, mode: str, params: Any) -> tf.estimator.EstimatorSpec:
    weights = tf.get_variable("w", [3, 1], initializer=tf.zeros_initializer())
    said = tf.squeeze(tf.matmul(features["x"], weights), 1)
    if mode == MODES.PREDICT:
        return tf.estimator.EstimatorSpec(mode, {"said": said})
    loss = tf.losses.mean_squared_error(labels, said)
    optimizer: Any = tf.train.AdamOptimizer(0.1)
    if params["towers"]:
        optimizer = tf.contrib.estimator.TowerOptimizer(optimizer)
    train_op = optimizer.minimize(loss, tf.train.get_global_step()) if mode == MODES.TRAIN else None
    metrics = {"mae": tf.metrics.mean_absolute_error(labels, said)}
    return tf.estimator.EstimatorSpec(mode, {"said": said}, loss, train_op, metrics)


def batches() -> Any:
    return tf.data.Dataset.from_tensors(({"x": X}, Y)).repeat(10)


def batch() -> Any:
    return tf.data.Dataset.from_tensors(({"x": X}, Y))


def test_two_devices_train_as_one(tmp_path: Path) -> None:
    replicated = tf.contrib.estimator.replicate_model_fn(model, devices=["/cpu:0", "/cpu:1"])
    results, weights = [], []
    for name, function, towers in (("one", model, False), ("two", replicated, True)):
        estimator = tf.estimator.Estimator(function, str(tmp_path / name), TWO, {"towers": towers})
        estimator.train(batches)
        results.append(estimator.evaluate(batch))
        weights.append(estimator.get_variable_value("w"))
        assert len(list(estimator.predict(batch))) == 16
    np.testing.assert_allclose(weights[1], weights[0], rtol=1e-5)
    assert results[1] == pytest.approx(results[0], rel=1e-5)


def test_what_cannot_be_replicated(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="need to be reduced"):
        tf.contrib.estimator.replicate_model_fn(model, tf.losses.Reduction.NONE)
    for devices, expected in (
        (["/cpu:0", "/cpu:1"], "wrap optimizers with TowerOptimizer"),
        (["/cpu:0"] * 3, "divisible"),
    ):
        function = tf.contrib.estimator.replicate_model_fn(model, devices=devices)
        estimator = tf.estimator.Estimator(function, str(tmp_path), TWO, {"towers": False})
        with pytest.raises(ValueError, match=expected):
            estimator.train(batches)


def test_a_model_with_a_graph_for_each_mode(tmp_path: Path) -> None:
    estimator = tf.estimator.Estimator(model, str(tmp_path / "model"), params={"towers": False})
    estimator.train(batches)
    supervised = tf.contrib.estimator.build_supervised_input_receiver_fn_from_input_fn(batch)
    served = tf.estimator.export.build_raw_serving_input_receiver_fn({"x": tf.placeholder(tf.float32, [None, 3])})
    receivers = {MODES.TRAIN: supervised, MODES.EVAL: supervised, MODES.PREDICT: served}
    path = tf.contrib.estimator.export_all_saved_models(estimator, str(tmp_path / "out"), receivers).decode()
    expected = X @ estimator.get_variable_value("w")[:, 0]
    for tag, key in (("train", "train"), ("eval", "eval"), ("serve", "serving_default")):
        with tf.Graph().as_default(), tf.Session() as session:
            signature = tf.saved_model.loader.load(session, [tag], path).signature_def[key]
            feeds = {info.name: X if name == "x" else Y for name, info in signature.inputs.items()}
            said = "predictions/said" if tag != "serve" else "said"
            np.testing.assert_allclose(session.run(signature.outputs[said].name, feeds), expected, rtol=1e-5)
            if tag == "train":
                before = session.run(signature.outputs["loss"].name, feeds)
                (train_op,) = tf.get_collection("saved_model_train_op")
                session.run(train_op, feeds)
                assert session.run(signature.outputs["loss"].name, feeds) < before
                assert signature.method_name == "tensorflow/supervised/training"
    with pytest.raises(ValueError, match="No valid modes"):
        estimator.experimental_export_all_saved_models(str(tmp_path), {})


def test_an_export_that_fails_leaves_nothing(tmp_path: Path) -> None:
    """Also where the graph of an earlier mode is written already."""
    estimator = tf.estimator.Estimator(model, str(tmp_path / "model"), params={"towers": False})
    estimator.train(batches)
    supervised = tf.contrib.estimator.build_supervised_input_receiver_fn_from_input_fn(batch)

    def broken() -> Any:
        raise KeyError("no receiver")

    receivers = {MODES.TRAIN: supervised, MODES.PREDICT: broken}
    with pytest.raises(KeyError, match="no receiver"):
        estimator.experimental_export_all_saved_models(str(tmp_path / "out"), receivers)
    assert [*(tmp_path / "out").rglob("*")] == []
