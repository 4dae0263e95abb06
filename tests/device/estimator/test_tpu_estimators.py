"""Estimators that were written for TPUs run on the devices that there are."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import anabranch as tf

RANDOM = np.random.RandomState(4)
X = RANDOM.uniform(-1, 1, (96, 2)).astype(np.float32)
Y = (X @ np.array([[2.0], [-1.0]]) + 0.5).astype(np.float32)
SIZES = {"train_batch_size": 32, "eval_batch_size": 24, "predict_batch_size": 40}


def model_fn(features: Any, labels: Any, mode: str, params: Any) -> tf.estimator.tpu.TPUEstimatorSpec:
    output = tf.layers.dense(features["x"], 1, name="line")
    size = params.batch_size if hasattr(params, "batch_size") else params.get("batch_size", -1)
    predictions = {"y": output, "batch": tf.fill([tf.shape(output)[0]], size)}
    if mode == tf.estimator.ModeKeys.PREDICT:
        outputs = {"predict": tf.estimator.export.PredictOutput(predictions)}
        return tf.estimator.tpu.TPUEstimatorSpec(mode, predictions, export_outputs=outputs)
    loss = tf.losses.mean_squared_error(labels, output)
    if mode == tf.estimator.ModeKeys.EVAL:

        def metric_fn(labels: Any, output: Any, scale: float = 1.0) -> dict[str, Any]:
            return {"mae": tf.metrics.mean_absolute_error(labels, output * scale)}

        arguments: Any = {"labels": labels, "output": output} if params["by_name"] else [labels, output]
        return tf.estimator.tpu.TPUEstimatorSpec(mode, loss=loss, eval_metrics=(metric_fn, arguments))
    optimizer = tf.tpu.CrossShardOptimizer(tf.train.GradientDescentOptimizer(0.3))
    calls = tf.get_variable("calls", initializer=0, trainable=False)
    return tf.estimator.tpu.TPUEstimatorSpec(
        mode,
        loss=loss,
        train_op=optimizer.minimize(loss, global_step=tf.train.get_global_step()),
        host_call=(lambda batch: calls.assign_add(batch[0]), [tf.minimum(tf.shape(output)[:1], size)]),
        scaffold_fn=tf.train.Scaffold,
    )


def input_fn(params: Any, mode: str) -> tf.data.Dataset:
    data = tf.data.Dataset.from_tensor_slices(({"x": X}, Y))
    return data.repeat(30 if mode == tf.estimator.ModeKeys.TRAIN else 1).batch(params["batch_size"])


def config(**more: Any) -> tf.estimator.tpu.RunConfig:
    return tf.contrib.tpu.RunConfig(tpu_config=tf.contrib.tpu.TPUConfig(iterations_per_loop=5), **more)


def estimator(folder: Path, **more: Any) -> tf.estimator.tpu.TPUEstimator:
    arguments = {"params": {"by_name": True}, "use_tpu": False, **SIZES, **more}
    return tf.estimator.tpu.TPUEstimator(model_fn, folder, config(), **arguments)


@pytest.mark.parametrize("by_name", [True, False])
def test_functions_are_told_the_size_of_a_batch(tmp_path: Path, by_name: bool) -> None:
    params = {"by_name": by_name}
    model = estimator(tmp_path, params=params)
    model.train(input_fn)
    assert params == {"by_name": by_name}
    found = model.evaluate(input_fn)
    assert found["global_step"] == 90
    assert found["mae"] < 0.05
    assert model.get_variable_value("calls") == 90 * 32
    said = list(model.predict(input_fn))
    assert {int(each["batch"]) for each in said} == {40}
    np.testing.assert_allclose([each["y"] for each in said], Y, atol=0.1)


def test_hyperparameters_may_be_an_object(tmp_path: Path) -> None:
    params = tf.contrib.training.HParams(by_name=True)
    model = estimator(tmp_path, params=params)
    model.train(lambda params: input_fn({"batch_size": params.batch_size}, "eval"))
    assert model.get_variable_value("calls") == 96
    assert "batch_size" not in params


def test_an_exported_model_knows_no_size_of_a_batch(tmp_path: Path) -> None:
    model = estimator(tmp_path / "model")
    model.train(input_fn)
    receive = tf.estimator.export.build_raw_serving_input_receiver_fn({"x": tf.placeholder(tf.float32, [None, 2])})
    path = model.export_saved_model(tmp_path / "exported", receive)
    with tf.Graph().as_default(), tf.Session() as session:
        meta = tf.saved_model.load(session, [tf.saved_model.tag_constants.SERVING], path.decode())
        signature = meta.signature_def["serving_default"]
        names = signature.inputs["x"].name, signature.outputs["batch"].name
        assert session.run(names[1], {names[0]: X[:3]}).tolist() == [-1] * 3


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"use_tpu": True}, NotImplementedError, "use_tpu=False runs the same model"),
        ({"train_batch_size": 0}, ValueError, "train_batch_size must be a positive"),
        ({"eval_batch_size": 2.5}, ValueError, "eval_batch_size must be a positive"),
        ({"params": {"batch_size": 3}}, ValueError, "reserved"),
        ({"embedding_config_spec": object()}, NotImplementedError, "embedding_config_spec"),
    ],
)
def test_what_does_not_fit_is_refused(
    tmp_path: Path, arguments: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        estimator(tmp_path, **arguments)


def test_functions_without_params_and_other_configurations_are_refused(tmp_path: Path) -> None:
    def without(features: Any, labels: Any, mode: str) -> None: ...

    with pytest.raises(ValueError, match="does not include params"):
        tf.estimator.tpu.TPUEstimator(without, tmp_path, config(), use_tpu=False)
    with pytest.raises(ValueError, match="tf.estimator.tpu.RunConfig"):
        tf.estimator.tpu.TPUEstimator(model_fn, tmp_path, tf.estimator.RunConfig(), use_tpu=False)
    with pytest.raises(ValueError, match="does not include params"):
        estimator(tmp_path).train(lambda mode: input_fn({}, mode))


@pytest.mark.parametrize(
    ("call", "error"), [(1, ValueError), ((1, [2]), TypeError), ((len,), ValueError), ((len, 3), ValueError)]
)
def test_calls_are_pairs_of_a_function_and_tensors(call: Any, error: type[Exception]) -> None:
    with pytest.raises(error, match="eval_metrics"):
        tf.estimator.tpu.TPUEstimatorSpec("eval", loss=1.0, eval_metrics=call)


def test_configurations_keep_what_they_were_given() -> None:
    made = config(master="grpc://a:1", save_checkpoints_steps=7).replace(tf_random_seed=3)
    assert (made.tpu_config.iterations_per_loop, made.master, made.evaluation_master) == (5, "grpc://a:1", "grpc://a:1")
    assert (made.save_checkpoints_steps, made.tf_random_seed) == (7, 3)
    cluster = tf.contrib.cluster_resolver.SimpleClusterResolver(
        tf.train.ClusterSpec({"worker": ["b:2"]}), master="grpc://b:2"
    )
    assert config(cluster=cluster, evaluation_master="grpc://c:3").evaluation_master == "grpc://c:3"
    with pytest.raises(ValueError, match="Both cluster and master"):
        config(cluster=cluster, master="grpc://a:1")


@pytest.mark.parametrize(
    "wrong",
    [
        {"iterations_per_loop": 0},
        {"num_shards": -1},
        {"num_cores_per_replica": 3},
        {"input_partition_dims": [[1]]},
        {"input_partition_dims": [[1]] * 3, "num_cores_per_replica": 2},
    ],
)
def test_numbers_of_tpus_are_checked(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"."):
        tf.estimator.tpu.TPUConfig(**wrong)


def test_older_pipelines_are_named_by_a_flag() -> None:
    kinds = tf.estimator.tpu.InputPipelineConfig
    assert tf.estimator.tpu.TPUConfig().per_host_input_for_training == kinds.PER_HOST_V1
    assert tf.estimator.tpu.TPUConfig(per_host_input_for_training=False).per_host_input_for_training == (
        kinds.PER_SHARD_V1
    )


def test_one_replica_is_its_own_sum() -> None:
    with tf.Session() as session:
        assert session.run(tf.tpu.cross_replica_sum([1, 2], [[0]])).tolist() == [1, 2]
    with pytest.raises(ValueError, match="one replica"):
        tf.tpu.cross_replica_sum([1], [[0, 1]])
    with pytest.raises(ValueError, match="Unsupported reduction"):
        tf.tpu.CrossShardOptimizer(tf.train.GradientDescentOptimizer(1.0), reduction="none")
    with pytest.raises(TypeError, match=r"tf.train.Optimizer"):
        tf.tpu.CrossShardOptimizer(3)


def test_slots_are_those_of_the_optimizer_inside() -> None:
    variable = tf.get_variable("inside", initializer=[1.0, 2.0])
    inner = tf.train.MomentumOptimizer(0.5, 0.9)
    outer = tf.tpu.CrossShardOptimizer(inner)
    outer.minimize(tf.reduce_sum(tf.square(variable)))
    assert outer.get_slot_names() == ["momentum"]
    assert outer.get_slot(variable, "momentum") is inner.get_slot(variable, "momentum")
    assert outer.variables() == inner.variables()


def test_what_a_tpu_leaves_to_its_host_is_called() -> None:
    with tf.Session() as session:
        assert session.run(tf.contrib.tpu.outside_compilation(tf.subtract, 5, y=3)) == 2
