"""Loss scales and their optimizer, beside what genuine TensorFlow does; what they refuse."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import anabranch as tf
from anabranch.runtime.process_settings import process_settings
from tests.oracles.loss_scale_cases import CASES, run

FIXTURE = Path(__file__).resolve().parents[2] / "fixtures" / "tensorflow" / "loss_scale.json"
experimental = tf.train.experimental


@pytest.fixture(autouse=True)
def _settings() -> Iterator[None]:
    yield
    process_settings.reset()


@pytest.mark.parametrize("name", CASES)
def test_training_is_tensorflows(name: str) -> None:
    recorded = json.loads(FIXTURE.read_text("utf-8"))[name]
    ours = run(tf, experimental, name)
    assert ours["variables"] == recorded["variables"]
    for after, expected in zip(ours["after"], recorded["after"], strict=True):
        for value, wanted in zip(after, expected, strict=True):
            np.testing.assert_allclose(value, wanted, rtol=1e-6)


def test_a_scale_is_made_anew_from_its_configuration() -> None:
    scale = experimental.DynamicLossScale(4.0, 7, 3.0)
    assert scale.get_config() == {"initial_loss_scale": 4.0, "increment_period": 7, "multiplier": 3.0}
    with tf.Graph().as_default():
        assert experimental.DynamicLossScale.from_config(scale.get_config()).increment_period == 7
    assert repr(scale) == "DynamicLossScale(initial_loss_scale=4.0, increment_period=7, multiplier=3.0)"
    assert experimental.FixedLossScale.from_config({"loss_scale_value": 2}).get_config() == {"loss_scale_value": 2.0}


@pytest.mark.parametrize("value", [0.5, -1, float("nan"), "8", None])
def test_a_fixed_scale_is_a_number_of_at_least_one(value: Any) -> None:
    with pytest.raises(ValueError, match="loss_scale_value must be"):
        experimental.FixedLossScale(value)


def test_what_is_no_optimizer_or_no_scale_is_refused() -> None:
    opt = tf.train.GradientDescentOptimizer(0.1)
    with pytest.raises(ValueError, match="must be an instance of Optimizer"):
        experimental.MixedPrecisionLossScaleOptimizer("sgd", 8)
    with pytest.raises(ValueError, match="a loss scale is a number"):
        experimental.MixedPrecisionLossScaleOptimizer(opt, "static")
    with pytest.raises(ValueError, match="in float16 or bfloat16, not in float64"):
        experimental.enable_mixed_precision_graph_rewrite(opt, dtype=tf.float64)
    wrapped = experimental.MixedPrecisionLossScaleOptimizer(opt, 8)
    with pytest.raises(ValueError, match="must not be a MixedPrecisionLossScaleOptimizer"):
        experimental.enable_mixed_precision_graph_rewrite(wrapped)
    assert process_settings.half_precision() == (False, None)


def test_gradients_that_are_missing_stay_missing() -> None:
    w, unused = tf.get_variable("w", [2]), tf.get_variable("unused", [2])
    opt = experimental.MixedPrecisionLossScaleOptimizer(tf.train.GradientDescentOptimizer(0.1), "dynamic")
    pairs = opt.compute_gradients(tf.reduce_sum(w), [w, unused])
    assert pairs[1] == (None, unused)
    opt.apply_gradients(pairs)


def test_float64_losses_are_scaled_too() -> None:
    w = tf.get_variable("w", [2], tf.float64, initializer=tf.ones_initializer())
    opt = experimental.MixedPrecisionLossScaleOptimizer(tf.train.GradientDescentOptimizer(0.25), 1024)
    step = opt.minimize(tf.reduce_sum(w))
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        session.run(step)
        np.testing.assert_array_equal(session.run(w), [0.75, 0.75])


def test_sessions_that_exist_stay_as_they_are() -> None:
    a = tf.placeholder(tf.float32, [1, 1])
    product = tf.matmul(a, [[1.0]])
    value = np.array([[1.0 + 2.0**-12]], np.float32)  # more bits than bfloat16 has
    with tf.Session() as before:
        experimental.enable_mixed_precision_graph_rewrite(tf.train.GradientDescentOptimizer(0.1), 8, tf.bfloat16)
        with tf.Session() as during:
            experimental.disable_mixed_precision_graph_rewrite()
            with tf.Session() as after:
                results = [s.run(product, {a: value}) for s in (before, during, after)]
    assert [r.dtype for r in results] == [np.float32] * 3
    np.testing.assert_array_equal(np.concatenate(results), [value[0], [1.0], value[0]])
