"""Boosted trees beside what those of tensorflow-estimator 1.15 came to on genuine TensorFlow (recorded)."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from google.protobuf import json_format

import anabranch as tf
from anabranch.proto import boosted_trees_pb2
from tests.oracles.boosted_tree_cases import (
    CASES,
    FEATURES,
    LABELS,
    boundaries,
    columns,
    data,
    estimator,
    result,
    said_of_first,
)

MODELS = Path(__file__).parents[2] / "fixtures" / "tensorflow" / "boosted_trees"
RECORDED = json.loads(
    (Path(__file__).parents[2] / "fixtures" / "tensorflow" / "boosted_trees.json").read_text(encoding="utf-8")
)


def to_dict(serialized: bytes) -> dict[str, Any]:
    return json_format.MessageToDict(boosted_trees_pb2.TreeEnsemble.FromString(serialized))


def check_equal(ours: Any, theirs: Any, what: str) -> None:
    """Compares numbers, words and what holds them."""
    if isinstance(theirs, dict):
        assert set(ours) == set(theirs), what
        for key, value in theirs.items():
            check_equal(ours[key], value, f"{what}, {key}")
    elif isinstance(theirs, list) and theirs and isinstance(theirs[0], dict):
        assert len(ours) == len(theirs), what
        for i, value in enumerate(theirs):
            check_equal(ours[i], value, f"{what}[{i}]")
    elif np.asarray(theirs).dtype.kind in "Ub":
        assert ours == theirs, what
    else:
        np.testing.assert_allclose(ours, theirs, rtol=2e-4, atol=2e-5, err_msg=what)


@pytest.mark.parametrize("name", CASES)
def test_trees_grow_as_tensorflows_grew(name: str, tmp_path: Path) -> None:
    """Losses by step, metrics, predictions, explanations, the ensemble itself, and what an exported model says."""
    check_equal(result(tf, tf.estimator, to_dict, name, tmp_path), RECORDED[name], name)


def test_every_recorded_case_is_compared() -> None:
    assert set(RECORDED) == set(CASES)


def test_boundaries_of_buckets_are_those_of_tensorflow() -> None:
    path = Path(__file__).parents[2] / "fixtures" / "tensorflow" / "boosted_tree_boundaries.json"
    for i, (ours, theirs) in enumerate(zip(boundaries(tf), json.loads(path.read_text(encoding="utf-8")), strict=True)):
        assert ours == theirs, i


def test_a_model_that_tensorflow_exported_says_the_same() -> None:
    first = {name: values[:5] for name, values in FEATURES.items()}
    recorded = json.loads((MODELS / "said.json").read_text(encoding="utf-8"))
    np.testing.assert_allclose(said_of_first(tf, str(MODELS / "exported"), first), recorded, rtol=1e-5)


def test_training_goes_on_from_tensorflows_checkpoint(tmp_path: Path) -> None:
    for path in MODELS.glob("model.ckpt-5.*"):
        shutil.copy(path, tmp_path)
    tf.train.update_checkpoint_state(str(tmp_path), str(tmp_path / "model.ckpt-5"))
    case = CASES["classes"]
    model = estimator(tf, tf.estimator, case, tmp_path).train(data(tf, case, None))
    logits = [said["logits"] for said in model.predict(data(tf, case, 1))]
    np.testing.assert_allclose(logits, RECORDED["classes"]["predictions"]["logits"], rtol=1e-4, atol=1e-5)


# ---------------------------------------------------------------------- beyond what is recorded
SMALL: dict[str, Any] = {"n_trees": 2, "max_depth": 2, "learning_rate": 0.5}


def trained(folder: Path, **arguments: Any) -> tf.estimator.BoostedTreesRegressor:
    model = tf.estimator.BoostedTreesRegressor(columns(tf, "height_buckets kind"), 1, folder, **(SMALL | arguments))
    model.train(data(tf, CASES["numbers by buckets"], None))
    return model


def said_by(model: tf.estimator.Estimator) -> Any:
    return np.array([each["predictions"][0] for each in model.predict(data(tf, CASES["numbers by buckets"], 1))])


def test_contributions_add_up_to_predictions(tmp_path: Path) -> None:
    model = trained(tmp_path, center_bias=True)
    listed = list(model.experimental_predict_with_explanations(data(tf, CASES["numbers by buckets"], 1), "predictions"))
    assert set(listed[0]) == {"predictions", "bias", "dfc"}
    assert listed[0]["bias"] == pytest.approx(LABELS["numbers"].mean(), rel=1e-3)
    for said in listed:
        assert said["bias"] + sum(said["dfc"].values()) == pytest.approx(said["predictions"][0], rel=1e-5)
        sizes = [abs(value) for value in said["dfc"].values()]
        assert sizes == sorted(sizes, reverse=True)


def test_a_head_of_classes_is_explained_as_probabilities(tmp_path: Path) -> None:
    head = tf.estimator.BinaryClassHead()
    case = CASES["head of classes"]
    model = tf.estimator.BoostedTreesEstimator(columns(tf, case.columns), 1, head, tmp_path, center_bias=True, **SMALL)
    model.train(data(tf, case, None))
    for said in model.experimental_predict_with_explanations(data(tf, case, 1)):
        assert said["bias"] + sum(said["dfc"].values()) == pytest.approx(said["logistic"][0], rel=1e-4)
    counts = tf.estimator.BoostedTreesEstimator(
        columns(tf, case.columns), 1, tf.estimator.PoissonRegressionHead(), tmp_path, center_bias=True
    )
    with pytest.raises(ValueError, match="only identity inverse_link_fn"):
        next(counts.experimental_predict_with_explanations(data(tf, case, 1)))


def test_training_goes_on_from_a_directory(tmp_path: Path) -> None:
    whole = said_by(trained(tmp_path / "whole", n_trees=4))
    first = trained(tmp_path / "parts")
    assert first.train(data(tf, CASES["numbers by buckets"], None)).get_variable_value("global_step") == 5
    second = trained(tmp_path / "parts", n_trees=4)
    # a call that finds all trees grown makes one step, which begins the next tree
    np.testing.assert_allclose(said_by(second), whole, rtol=1e-5)


def test_other_data_in_memory_is_seen_anew(tmp_path: Path) -> None:
    """What was kept of the examples of one call is no use to the next, which may have others."""
    model = trained(tmp_path / "a", train_in_memory=True, n_trees=3)
    half = {name: values[:30] for name, values in FEATURES.items()}
    others = tf.estimator.inputs.numpy_input_fn(half, LABELS["numbers"][:30], 30, num_epochs=None, shuffle=False)
    again = tf.estimator.BoostedTreesRegressor(
        columns(tf, "height_buckets kind"), 1, tmp_path / "a", train_in_memory=True, **(SMALL | {"n_trees": 5})
    )
    before = model.evaluate(others, steps=1)["average_loss"]
    after = again.train(others).evaluate(others, steps=1)["average_loss"]
    assert after < before


def test_ids_that_occur_twice_count_once(tmp_path: Path) -> None:
    twice = np.array([[0, 0], [0, 1], [2, 2], [1, 1]] * 4, np.int64)
    once = np.array([[0, -1], [0, 1], [2, -1], [1, -1]] * 4, np.int64)
    labels = np.tile(np.array([1, 2, 3, 4], np.float32), 4)
    said = []
    for name, ids in (("twice", twice), ("once", once)):
        kinds = tf.feature_column.categorical_column_with_identity("x", 3)
        model = tf.estimator.BoostedTreesRegressor(
            [tf.feature_column.indicator_column(kinds)], 1, tmp_path / name, **SMALL
        )
        model.train(tf.estimator.inputs.numpy_input_fn({"x": ids}, labels, 16, num_epochs=None, shuffle=False))
        once_more = tf.estimator.inputs.numpy_input_fn({"x": ids}, None, 16, shuffle=False)
        said.append([each["predictions"][0] for each in model.predict(once_more)])
    np.testing.assert_allclose(said[0], said[1], rtol=1e-6)


def test_an_untrained_model_says_nothing(tmp_path: Path) -> None:
    model = tf.estimator.BoostedTreesRegressor(columns(tf, "height kind"), 1, tmp_path, **SMALL)
    assert (said_by(model) == 0).all()
    with pytest.raises(ValueError, match="Couldn't find trained model"):
        model.experimental_feature_importances()
    with pytest.raises(ValueError, match="center_bias must be enabled"):
        next(model.experimental_predict_with_explanations(data(tf, CASES["numbers by buckets"], 1)))


def test_importances_that_cannot_be_normalized(tmp_path: Path) -> None:
    model = trained(tmp_path, pruning_mode="pre", tree_complexity=1e3)
    assert set(model.experimental_feature_importances().values()) == {0.0}
    with pytest.raises(ValueError, match="nothing to normalize"):
        model.experimental_feature_importances(normalize=True)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"pruning_mode": "some"}, "pruning_mode mode must be one of: none, post, pre. Found: some"),
        ({"tree_complexity": 0.1}, "Tree complexity have no effect unless pruning mode is chosen"),
        ({"pruning_mode": "post"}, "For pruning, tree_complexity must be positive"),
        ({"n_trees": 0}, "n_trees must be positive"),
        ({"quantile_sketch_epsilon": 1.0}, "quantile_sketch_epsilon must be between 0 and 1"),
        ({"label_dimension": 2}, "only 1 dimension regression is supported"),
        ({"train_in_memory": True, "n_batches_per_layer": 2}, "n_batches_per_layer should be set as 1, not 2"),
    ],
)
def test_settings_that_do_not_go(arguments: dict[str, Any], message: str, tmp_path: Path) -> None:
    settings: dict[str, Any] = {"n_batches_per_layer": 1, "model_dir": tmp_path} | arguments
    with pytest.raises(ValueError, match=message):
        tf.estimator.BoostedTreesRegressor(columns(tf, "height_buckets"), **settings).train(
            data(tf, CASES["numbers by buckets"], None)
        )


def test_columns_that_do_not_go() -> None:
    fc = tf.feature_column
    kinds = fc.categorical_column_with_identity("kind", 4)
    for column, message in (
        (kinds, "must be wrapped by tf.feature_column.indicator_column"),
        (fc.embedding_column(kinds, 2), "unexpected feature column type EmbeddingColumn"),
        (fc.numeric_column("x", (2, 2)), "rank of 1"),
        (fc.bucketized_column(fc.numeric_column("pair", 2), [0.0]), "equivalent to rank 1"),
    ):
        with pytest.raises(ValueError, match=message):
            tf.estimator.BoostedTreesRegressor([column], 1)
    with pytest.raises(ValueError, match="feature_columns must not be empty"):
        tf.estimator.BoostedTreesRegressor([], 1)
    with pytest.raises(ValueError, match="only binary classification"):
        tf.estimator.BoostedTreesClassifier(columns(tf, "kind"), 1, n_classes=3)
    with pytest.raises(ValueError, match="one logit, but the head has 3"):
        tf.estimator.BoostedTreesEstimator(columns(tf, "kind"), 1, tf.estimator.MultiClassHead(3))


def test_a_loss_without_curvature_is_refused(tmp_path: Path) -> None:
    def straight(labels: Any, logits: Any) -> Any:
        return -labels * logits

    head = tf.estimator.RegressionHead(loss_fn=straight)
    model = tf.estimator.BoostedTreesEstimator(columns(tf, "height_buckets"), 1, head, tmp_path)
    with pytest.raises(ValueError, match="second derivative"):
        model.train(data(tf, CASES["numbers by buckets"], None), steps=1)
