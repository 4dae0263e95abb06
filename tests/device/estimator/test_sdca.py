"""`LinearSDCA` beside what tensorflow-estimator's came to on genuine TensorFlow (recorded)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import anabranch as tf
from tests.oracles.sdca_cases import CASES, FEATURES, LABELS, columns, data, result

RECORDED = json.loads((Path(__file__).parents[2] / "fixtures" / "tensorflow" / "sdca.json").read_text(encoding="utf-8"))
LinearSDCA = tf.estimator.experimental.LinearSDCA


@pytest.mark.parametrize("name", CASES)
def test_models_come_to_what_tensorflows_came_to(name: str, tmp_path: Path) -> None:
    ours, theirs = result(tf, name, tmp_path), RECORDED[name]
    for what in ("variables", "metrics"):
        assert set(ours[what]) == set(theirs[what])
        for key, value in theirs[what].items():
            np.testing.assert_allclose(ours[what][key], value, rtol=1e-3, atol=2e-4, err_msg=f"{name}, {key}")
    np.testing.assert_allclose(ours["predictions"], theirs["predictions"], rtol=1e-3, atol=2e-4, err_msg=name)


def test_every_recorded_case_is_compared() -> None:
    assert set(RECORDED) == set(CASES)


# ---------------------------------------------------------------------- beyond what is recorded
def trained(folder: Path, kind: str = "LinearRegressor", steps: int = 40, **arguments: Any) -> Any:
    names = arguments.pop("columns", "height_buckets kind pair")
    sdca = LinearSDCA("id", symmetric_l2_regularization=2.0, **arguments.pop("sdca", {}))
    model = getattr(tf.estimator, kind)(columns(tf, names), str(folder), optimizer=sdca, **arguments)
    return model.train(data(tf, "numbers" if kind == "LinearRegressor" else "classes"), steps=steps)


def test_weights_are_those_of_ridge_regression(tmp_path: Path) -> None:
    """The least of sum((y - Xw)^2) / 2 + l2 |w|^2 / 2, solved in NumPy; the bias is penalized as all weights are."""
    model = trained(tmp_path, columns="pair height", steps=150)
    x = np.column_stack([FEATURES["height"], FEATURES["pair"], np.ones(len(FEATURES["height"]))]).astype(np.float64)
    expected = np.linalg.solve(x.T @ x + 2.0 * np.eye(4), x.T @ LABELS["numbers"])
    found = [
        model.get_variable_value(f"linear/linear_model/{name}")
        for name in ("height/weights", "pair/weights", "bias_weights")
    ]
    np.testing.assert_allclose(np.concatenate([v.reshape(-1) for v in found]), expected, rtol=2e-3)


def test_partitioned_weights_are_the_same(tmp_path: Path) -> None:
    whole = trained(tmp_path / "whole", steps=60)
    parts = trained(tmp_path / "parts", steps=60, partitioner=tf.fixed_size_partitioner(2))
    for name in ("kind/weights", "height_bucketized/weights", "pair/weights"):
        values = [model.get_variable_value(f"linear/linear_model/{name}") for model in (whole, parts)]
        np.testing.assert_allclose(values[0], values[1], rtol=1e-3, atol=1e-4)


def test_examples_are_known_again_after_a_restart(tmp_path: Path) -> None:
    model = trained(tmp_path, steps=30)
    trained(tmp_path, steps=50)
    keys = model.get_variable_value("ShardedMutableHashTable-1-of-1-keys")
    assert keys.any(axis=1).sum() == len(FEATURES["id"])
    assert model.get_variable_value("global_step") == 80
    np.testing.assert_allclose(
        model.get_variable_value("linear/linear_model/kind/weights"),
        trained(tmp_path / "whole", steps=80).get_variable_value("linear/linear_model/kind/weights"),
        rtol=1e-3,
        atol=1e-4,
    )


def test_the_gap_is_written_and_closes(tmp_path: Path) -> None:
    trained(tmp_path, steps=101)
    gaps, seen = {}, set()
    for path in tmp_path.glob("events.out.tfevents.*"):
        for event in tf.train.summary_iterator(str(path)):
            for value in event.summary.value:
                if value.tag.endswith("approximate_duality_gap"):
                    gaps[event.step] = value.simple_value
                elif value.tag.endswith("examples_seen"):
                    seen.add(value.simple_value)
    assert abs(gaps[max(gaps)]) < 1e-4
    assert len(FEATURES["id"]) in seen


def test_counts_are_trained_too(tmp_path: Path) -> None:
    """At the least loss, penalized weights balance the gradient: l2 w = sum((y - exp(xw)) x)."""
    sdca = LinearSDCA("id", symmetric_l2_regularization=4.0)
    head = tf.estimator.PoissonRegressionHead()
    model = tf.estimator.LinearEstimator(head, columns(tf, "height"), str(tmp_path), optimizer=sdca)
    model.train(data(tf, "classes"), steps=150)
    weight = model.get_variable_value("linear/linear_model/height/weights").item()
    bias = model.get_variable_value("linear/linear_model/bias_weights").item()
    left = LABELS["classes"] - np.exp(FEATURES["height"] * weight + bias)
    assert (left * FEATURES["height"]).sum() == pytest.approx(4 * weight, abs=0.02)
    assert left.sum() == pytest.approx(4 * bias, abs=0.02)


def test_words_and_indicators(tmp_path: Path) -> None:
    numbers = trained(tmp_path / "numbers", "LinearClassifier", columns="kind pair", steps=60)
    words = tf.estimator.LinearClassifier(
        columns(tf, "kind_indicator pair"),
        str(tmp_path / "words"),
        label_vocabulary=["small", "large"],
        optimizer=LinearSDCA("id", symmetric_l2_regularization=2.0),
    )

    def in_words() -> Any:
        features, labels = data(tf, "classes")()
        return features, tf.where(tf.equal(labels, 1), tf.fill([30], "large"), tf.fill([30], "small"))

    words.train(in_words, steps=60)
    np.testing.assert_allclose(
        words.get_variable_value("linear/linear_model/kind_indicator/weights"),
        numbers.get_variable_value("linear/linear_model/kind/weights"),
        rtol=1e-3,
        atol=1e-4,
    )


def test_what_does_not_go(tmp_path: Path) -> None:
    sdca = LinearSDCA("id")
    numbers, kinds = columns(tf, "pair"), columns(tf, "kind")
    for arguments, message in (
        ({"symmetric_l2_regularization": 0.0}, "symmetric_l2_regularization should be positive"),
        ({"symmetric_l1_regularization": -1.0}, "symmetric_l1_regularization should be non-negative"),
        ({"num_table_shards": 0}, "num_table_shards should be positive"),
    ):
        with pytest.raises(ValueError, match=message):
            LinearSDCA("id", **arguments)
    with pytest.raises(ValueError, match='sparse_combiner must be "sum"'):
        tf.estimator.LinearClassifier(kinds, optimizer=sdca, sparse_combiner="mean")
    with pytest.raises(ValueError, match="Unsupported head type: MultiClassHead of 3 logits"):
        tf.estimator.LinearClassifier(kinds, n_classes=3, optimizer=sdca)
    with pytest.raises(ValueError, match="of 2 logits"):
        tf.estimator.LinearRegressor(kinds, label_dimension=2, optimizer=sdca)
    with pytest.raises(ValueError, match="LogisticRegressionHead"):
        tf.estimator.LinearEstimator(tf.estimator.LogisticRegressionHead(), kinds, optimizer=sdca)
    for model, message in (
        (tf.estimator.LinearRegressor(numbers, str(tmp_path), optimizer=LinearSDCA("name")), "no feature 'name'"),
        (tf.estimator.LinearRegressor(numbers, str(tmp_path), optimizer=LinearSDCA("kind")), "ids must be strings"),
        (
            tf.estimator.LinearRegressor(
                [tf.feature_column.numeric_column("square", (2, 2))], str(tmp_path), optimizer=sdca
            ),
            "Feature square is not in",
        ),
    ):
        with pytest.raises(ValueError, match=message):
            model.train(data(tf, "numbers"), steps=1)
