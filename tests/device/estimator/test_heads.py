"""`tf.estimator`'s heads beside what those of tensorflow-estimator gave on genuine TensorFlow (recorded)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import anabranch as tf
from tests.oracles.head_cases import CASES, result

HEADS = tf.estimator
RECORDED = json.loads(
    (Path(__file__).parents[2] / "fixtures" / "tensorflow" / "heads.json").read_text(encoding="utf-8")
)


def check_equal(ours: Any, theirs: Any, what: str) -> None:
    """Compares numbers and words, by name."""
    if isinstance(theirs, dict):
        assert set(ours) == set(theirs), what
        for key, value in theirs.items():
            check_equal(ours[key], value, f"{what}, {key}")
    elif np.asarray(theirs).dtype.kind == "U":
        assert ours == theirs, what
    else:
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=2e-6, err_msg=what)


@pytest.mark.parametrize("name", CASES)
def test_heads_give_what_tensorflows_gave(name: str) -> None:
    check_equal(result(tf, tf.estimator, name), RECORDED[name], name)


def test_every_recorded_case_is_compared() -> None:
    assert set(RECORDED) == set(CASES)


def value_of(tensor: Any) -> Any:
    with tf.Session() as session:
        session.run([tf.global_variables_initializer(), tf.tables_initializer()])
        return session.run(tensor)


def test_a_loss_of_ones_own_sees_features() -> None:
    def absolute(labels: Any, logits: Any, features: Any) -> Any:
        return tf.abs(labels - logits) * features["scale"]

    head = tf.estimator.RegressionHead(2, loss_fn=absolute)
    features = {"scale": tf.constant([[2.0], [3.0]])}
    loss = head.loss([[1.0, 2.0], [3.0, 4.0]], [[2.0, 2.0], [1.0, 5.0]], features)
    assert value_of(loss) == pytest.approx((2 + 6 + 3) / 4)
    assert head.loss_reduction == "sum_over_batch_size"

    def summed(labels: Any, logits: Any) -> Any:
        return tf.placeholder_with_default(tf.reduce_sum(tf.abs(labels - logits), 1), None)

    labels = tf.Variable([[1.0, 2.0]])
    wrong = tf.estimator.RegressionHead(2, loss_fn=summed).loss(labels, [[2.0, 2.0]])
    with pytest.raises(tf.errors.InvalidArgumentError, match="loss_fn must return a tensor of shape"):
        value_of(wrong)


def test_the_reductions_of_either_api() -> None:
    labels, logits = [[1.0], [2.0]], [[2.0], [5.0]]
    for reduction, expected in (
        ("sum", 10),
        ("auto", 5),
        (tf.losses.Reduction.SUM, 10),
        (tf.losses.Reduction.MEAN, 5),
        (tf.losses.Reduction.SUM_OVER_BATCH_SIZE, 5),
    ):
        head = tf.estimator.RegressionHead(loss_reduction=reduction)
        assert value_of(head.loss(labels, logits)) == pytest.approx(expected)
        assert head.loss_reduction == reduction


def test_optimizers_train_what_they_are_told_to() -> None:
    first, second = tf.Variable([[1.0]]), tf.Variable([[2.0]])
    beside = tf.Variable(0)
    spec = tf.estimator.RegressionHead(loss_reduction="sum").create_estimator_spec(
        {},
        "train",
        first + second,
        labels=[[5.0]],
        optimizer=tf.train.GradientDescentOptimizer(0.25),
        trainable_variables=[first],
        update_ops=[tf.assign_add(beside, 7)],
    )
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        session.run(spec.train_op)
        found = session.run([first, second, beside, tf.train.get_global_step()])
    assert [np.ravel(value).tolist() for value in found] == [[2.0], [2.0], [7], [1]]


class Halves(tf.estimator.Head):
    """A head of a program's own."""

    name = "halves"
    logits_dimension = 1
    loss_reduction = "sum"

    def loss(
        self, labels: Any, logits: Any, features: Any = None, mode: Any = None, regularization_losses: Any = None
    ) -> Any:
        return tf.reduce_sum(tf.abs(labels - logits / 2))

    def predictions(self, logits: Any, keys: Any = None) -> dict[str, Any]:
        return {"half": tf.convert_to_tensor(logits) / 2}

    def metrics(self, regularization_losses: Any = None) -> dict[str, Any]:
        return tf.estimator.RegressionHead(name="own").metrics()

    def update_metrics(
        self,
        eval_metrics: Any,
        features: Any,
        logits: Any,
        labels: Any,
        mode: Any = None,
        regularization_losses: Any = None,
    ) -> Any:
        head = tf.estimator.RegressionHead(name="own")
        return head.update_metrics(eval_metrics, features, logits / 2, labels)


def test_a_head_of_ones_own_goes_into_several() -> None:
    both = tf.estimator.MultiHead([Halves(), tf.estimator.RegressionHead(name="whole", loss_reduction="sum")])
    logits = tf.constant([[4.0, 1.0]])
    labels = {"halves": tf.constant([[1.0]]), "whole": tf.constant([[3.0]])}
    spec = both.create_estimator_spec({}, "eval", logits, labels)
    assert set(spec.eval_metric_ops) == {
        "loss/halves",
        "loss/whole",
        *(f"{name}/own" for name in ("average_loss", "prediction/mean", "label/mean")),
        *(f"{name}/whole" for name in ("average_loss", "prediction/mean", "label/mean")),
    }
    assert value_of(spec.loss) == pytest.approx(1 + 4)
    outputs = both.create_estimator_spec({}, "infer", logits).export_outputs
    assert outputs is not None
    assert set(outputs["predict"].outputs) == {"halves/half", "whole/predictions"}
    assert {"serving_default", "halves", "halves/predict", "whole", "whole/regression", "whole/predict"} < set(outputs)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: HEADS.MultiClassHead(2), "n_classes must be > 2"),
        (lambda: HEADS.MultiClassHead(3, label_vocabulary=["a"]), "label_vocabulary must be n_classes"),
        (lambda: HEADS.BinaryClassHead(thresholds=[1.0]), r"thresholds must be in \(0, 1\)"),
        (lambda: HEADS.BinaryClassHead(loss_fn=lambda labels: labels), "must contain argument: logits"),
        (lambda: HEADS.RegressionHead(0), "Invalid label_dimension 0"),
        (lambda: HEADS.RegressionHead(loss_reduction="none"), "Invalid loss_reduction"),
        (lambda: HEADS.MultiLabelHead(1), "n_classes must be > 1"),
        (lambda: HEADS.MultiLabelHead(3, classes_for_class_based_metrics=["a"]), "label_vocabulary must have"),
        (lambda: HEADS.MultiLabelHead(3, classes_for_class_based_metrics=[3]), r"must be in range \[0, 2\]"),
        (lambda: HEADS.MultiHead([]), "Must specify heads"),
        (lambda: HEADS.MultiHead([HEADS.RegressionHead()]), "names of their own"),
        (lambda: HEADS.RegressionHead(2).loss([[1.0]], [[1.0, 2.0]]), "expected 2 labels of an example, got 1"),
        (lambda: HEADS.RegressionHead(2).loss([[1.0]], [[1.0]]), "logits shape must be"),
        (lambda: HEADS.RegressionHead().loss(None, [[1.0]]), "You must provide a labels Tensor"),
        (lambda: HEADS.MultiClassHead(3).loss([[1.5]], [[1.0, 2.0, 3.0]]), "should be integer"),
        (lambda: HEADS.BinaryClassHead().predictions([[1.0]], ["scores"]), "no prediction 'scores'"),
        (lambda: HEADS.RegressionHead().create_estimator_spec({}, "train", [[1.0]], [[1.0]]), "exactly one of them"),
        (HEADS.RegressionHead().metrics()["average_loss"].result, "has no values"),
    ],
)
def test_what_is_wrong_is_said(make: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()


def test_indicators_out_of_range_are_an_error_of_the_step() -> None:
    loss = tf.estimator.MultiLabelHead(2).loss(tf.Variable([[0, 2]]), [[0.0, 0.0]])
    with pytest.raises(tf.errors.InvalidArgumentError, match="indicator"):
        value_of(loss)
