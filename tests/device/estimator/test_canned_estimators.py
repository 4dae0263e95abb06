"""Ready-made estimators learn what they can, and their metrics are those of NumPy."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import anabranch as tf

fc = tf.feature_column
RANDOM = np.random.RandomState(1)
COUNT = 120
NUMBER = RANDOM.uniform(-1, 1, COUNT).astype(np.float32)
COLOUR = np.array(["red", "green", "blue"])[RANDOM.randint(0, 3, COUNT)]
FEATURES = {"number": NUMBER, "colour": COLOUR}
SHIFT = np.array([{"red": 1.0, "green": 0.0, "blue": -1.0}[word] for word in COLOUR])
#: a class that no single feature tells
CLASS = (NUMBER + SHIFT > 0).astype(np.int64)
numbers = fc.numeric_column("number")
colours = fc.categorical_column_with_vocabulary_list("colour", ["red", "green", "blue"])
DEEP = [numbers, fc.embedding_column(colours, 2)]
WIDE = [numbers, colours]


def data(labels: Any, epochs: int | None = None) -> Any:
    return tf.estimator.inputs.numpy_input_fn(
        FEATURES, labels, batch_size=COUNT, num_epochs=epochs, shuffle=epochs is None
    )


@pytest.mark.parametrize("kind", ["deep", "wide", "both"])
def test_classifiers_learn(kind: str, tmp_path: Path) -> None:
    config = tf.estimator.RunConfig(tmp_path, tf_random_seed=1)
    if kind == "deep":
        model: tf.estimator.Estimator = tf.estimator.DNNClassifier([16], DEEP, config=config)
    elif kind == "wide":
        model = tf.estimator.LinearClassifier(WIDE, config=config)
    else:
        model = tf.estimator.DNNLinearCombinedClassifier(
            linear_feature_columns=WIDE,
            linear_optimizer=lambda: tf.train.FtrlOptimizer(0.2),
            dnn_feature_columns=DEEP,
            dnn_hidden_units=[8],
            config=config,
        )
    model.train(data(CLASS), steps=150)
    result = model.evaluate(data(CLASS, 1))
    assert result["accuracy"] > 0.9
    assert result["auc"] > 0.95
    assert result["label/mean"] == pytest.approx(CLASS.mean())
    assert result["accuracy_baseline"] == pytest.approx(max(CLASS.mean(), 1 - CLASS.mean()))
    said = list(model.predict(data(None, 1)))
    classes = np.array([each["class_ids"][0] for each in said])
    assert (classes == CLASS).mean() == pytest.approx(result["accuracy"])
    logits = np.array([each["logits"][0] for each in said])
    np.testing.assert_allclose([each["logistic"][0] for each in said], 1 / (1 + np.exp(-logits)), rtol=1e-4)
    losses = np.log1p(np.exp(-logits * (2 * CLASS - 1)))
    assert result["average_loss"] == pytest.approx(losses.mean(), rel=1e-4)
    assert result["loss"] == pytest.approx(losses.sum(), rel=1e-4)  # the sum over a batch, as in TensorFlow 1
    assert set(said[0]["classes"].tolist()) <= {b"0", b"1"}


@pytest.mark.parametrize("kind", ["deep", "wide", "both"])
def test_regressors_learn(kind: str, tmp_path: Path) -> None:
    targets = (2 * NUMBER + SHIFT).astype(np.float32)
    config = tf.estimator.RunConfig(tmp_path, tf_random_seed=2)
    if kind == "deep":
        optimizer = tf.train.AdamOptimizer
        model: tf.estimator.Estimator = tf.estimator.DNNRegressor(
            [16], DEEP, optimizer=lambda: optimizer(0.03), config=config, batch_norm=False
        )
    elif kind == "wide":
        model = tf.estimator.LinearRegressor(WIDE, config=config)
    else:
        model = tf.estimator.DNNLinearCombinedRegressor(
            linear_feature_columns=WIDE,
            linear_optimizer=lambda: tf.train.FtrlOptimizer(0.2),
            dnn_feature_columns=DEEP,
            dnn_optimizer=lambda: tf.train.AdamOptimizer(0.03),
            dnn_hidden_units=[4],
            config=config,
        )
    model.train(data(targets), steps=200)
    result = model.evaluate(data(targets, 1))
    assert result["average_loss"] < targets.var() / 50
    said = np.array([each["predictions"][0] for each in model.predict(data(None, 1))])
    assert result["average_loss"] == pytest.approx(((said - targets) ** 2).mean(), rel=1e-3)
    assert result["prediction/mean"] == pytest.approx(said.mean(), abs=1e-4)


def test_several_classes_with_names_and_weights(tmp_path: Path) -> None:
    weights = RANDOM.uniform(0.1, 2, COUNT).astype(np.float32)
    words = ["red", "green", "blue"]
    model = tf.estimator.DNNClassifier(
        [8],
        [fc.indicator_column(colours)],
        tmp_path,
        n_classes=3,
        label_vocabulary=words,
        weight_column="weight",
        optimizer="Adam",
        dropout=0.1,
        batch_norm=True,
    )
    given = tf.estimator.inputs.numpy_input_fn(
        {**FEATURES, "weight": weights}, COLOUR, batch_size=COUNT, num_epochs=None, shuffle=True
    )
    model.train(given, steps=60)
    whole = tf.estimator.inputs.numpy_input_fn(
        {**FEATURES, "weight": weights}, COLOUR, batch_size=COUNT, num_epochs=1, shuffle=False
    )
    result = model.evaluate(whole)
    said = list(model.predict(whole))
    losses = [-np.log(each["probabilities"][words.index(word)]) for each, word in zip(said, COLOUR, strict=True)]
    assert result["average_loss"] == pytest.approx(np.average(losses, weights=weights), rel=1e-3)
    right = [each["classes"][0].decode() == word for each, word in zip(said, COLOUR, strict=True)]
    assert result["accuracy"] == pytest.approx(np.average(right, weights=weights), rel=1e-5)
    names = set(model.get_variable_names())
    assert {"dnn/hiddenlayer_0/kernel", "dnn/logits/bias", "dnn/batchnorm_0/gamma"} <= names


def test_an_exported_classifier_reads_records(tmp_path: Path) -> None:
    model = tf.estimator.LinearClassifier(WIDE, tmp_path / "model").train(data(CLASS), steps=20)
    receiver = tf.estimator.export.build_parsing_serving_input_receiver_fn(fc.make_parse_example_spec(WIDE))
    folder = model.export_saved_model(tmp_path / "export", receiver).decode()
    records = [
        tf.train.Example(
            features=tf.train.Features(
                feature={
                    "number": tf.train.Feature(float_list=tf.train.FloatList(value=[number])),
                    "colour": tf.train.Feature(bytes_list=tf.train.BytesList(value=[word.encode()])),
                }
            )
        ).SerializeToString()
        for number, word in zip(NUMBER[:5].tolist(), COLOUR[:5].tolist(), strict=True)
    ]
    with tf.Graph().as_default(), tf.Session() as session:
        loaded = tf.saved_model.loader.load(session, ["serve"], folder)
        assert set(loaded.signature_def) == {"serving_default", "classification", "regression", "predict"}
        signature = loaded.signature_def["serving_default"]
        feeds = {signature.inputs["inputs"].name: records}
        scores, classes = session.run([signature.outputs[key].name for key in ("scores", "classes")], feeds)
    assert classes.tolist() == [[b"0", b"1"]] * 5
    said = [each["probabilities"] for each in model.predict(data(None, 1))][:5]
    np.testing.assert_allclose(scores, said, rtol=1e-5)


def test_labels_out_of_range_are_an_error_of_the_step() -> None:
    model = tf.estimator.LinearClassifier([numbers])
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"labels must be in \[0, 1\]"):
        model.train(data(CLASS + 1), steps=1)


def test_what_records_hold_beside_features() -> None:
    spec = tf.estimator.classifier_parse_example_spec(WIDE, "label", weight_column="weight")
    assert set(spec) == {"number", "colour", "label", "weight"}
    assert spec["label"].dtype == tf.int64
    with pytest.raises(ValueError, match="should not be used as feature"):
        tf.estimator.regressor_parse_example_spec(WIDE, "number")


@pytest.mark.parametrize(("kind", "around"), [("wide", "linear/"), ("deep", "dnn/"), ("both", "")])
def test_nodes_of_the_loss_have_the_names_that_programs_log(kind: str, around: str, tmp_path: Path) -> None:
    config = tf.estimator.RunConfig(tmp_path, tf_random_seed=1)
    if kind == "wide":
        model: tf.estimator.Estimator = tf.estimator.LinearClassifier(WIDE, config=config)
    elif kind == "deep":
        model = tf.estimator.DNNClassifier([4], DEEP, config=config)
    else:
        model = tf.estimator.DNNLinearCombinedRegressor(
            linear_feature_columns=WIDE, dnn_feature_columns=DEEP, dnn_hidden_units=[4], config=config
        )
    logged: dict[str, float] = {}

    def log(values: dict[str, float]) -> str:
        logged.update(values)
        return ""

    names = {"mean": f"{around}head/truediv", "sum": f"{around}head/weighted_loss/Sum"}
    model.train(data(CLASS), steps=1, hooks=[tf.train.LoggingTensorHook(names, every_n_iter=1, formatter=log)])
    assert logged["sum"] == pytest.approx(COUNT * logged["mean"], rel=1e-5)
    (file,) = tmp_path.glob("events*")
    shown = {v.tag: v.simple_value for e in tf.train.summary_iterator(str(file)) for v in e.summary.value}
    assert shown["average_loss"] == pytest.approx(logged["mean"])
    assert shown["loss"] == pytest.approx(logged["sum"])


def test_the_mean_loss_is_over_the_weights_and_without_regularization(tmp_path: Path) -> None:
    head = tf.contrib.estimator.regression_head(weight_column="w", loss_reduction=tf.losses.Reduction.SUM)
    features, logits, labels = {"w": [[1.0], [3.0]]}, tf.constant([[1.0], [2.0]]), tf.constant([[0.0], [0.0]])
    spec = head.create_estimator_spec(
        features, "train", logits, labels, train_op_fn=lambda loss: loss.op, regularization_losses=[tf.constant(100.0)]
    )
    with tf.Session() as session:
        assert session.run(spec.loss) == 113.0
        assert session.run("head/truediv:0") == 13.0 / 4.0
    assert [t.op.name for t in tf.losses.get_losses()] == ["head/weighted_loss/Sum"]
