"""What the package tf-slim serves of `tf.contrib`: layers, losses, metrics against NumPy; a network is trained."""

from __future__ import annotations

import functools
import importlib.util
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import anabranch as tf
from anabranch.core import absent_names
from anabranch.tools import slim_package

contrib = tf.contrib
RNG = np.random.default_rng(11)
needs_package = pytest.mark.skipif(
    importlib.util.find_spec("tf_slim") is None, reason="needs the extra: pip install 'anabranch[contrib]'"
)


def run(fetches: Any, *before: Any) -> Any:
    with tf.Session() as session:
        session.run([tf.global_variables_initializer(), tf.local_variables_initializer()])
        for operation in before:
            session.run(operation)
        return session.run(fetches)


# ------------------------------------------------------------------------------------------------ the package
def test_without_the_package_its_names_say_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slim_package, "is_installed", lambda: False)
    monkeypatch.setattr(absent_names.importlib.util, "find_spec", lambda name: None)
    for module, name in (("layers", "conv2d"), ("slim", "nets"), ("framework", "arg_scope"), ("metrics", "accuracy")):
        with pytest.raises(AttributeError) as caught:
            getattr(getattr(contrib, module), name)
        assert str(caught.value) == (
            f"tf.contrib.{module}.{name} needs the package tf-slim, which is not installed: "
            "pip install 'anabranch[contrib]'"
        )
    assert contrib.framework.is_tensor(tf.constant(1)), "what is of its own does not need it"


@pytest.mark.parametrize(
    ("name", "way_out"),
    [
        ("contrib.tpu.rewrite", "tf.train.MonitoredTrainingSession"),
        ("contrib.tensorrt.create_inference_graph", "compiled by XLA already"),
        ("contrib.layers.scattered_embedding_column", "tf.feature_column has the columns"),
        ("contrib.distribute.get_tower_context", "tf.train.replica_device_setter"),
    ],
)
@needs_package
def test_what_is_left_out_names_another_way(name: str, way_out: str) -> None:
    with pytest.raises(AttributeError, match=way_out):
        functools.reduce(getattr, name.split("."), tf)


@needs_package
def test_a_process_is_as_it_was_after_the_package_is_imported() -> None:
    program = """
import sys, types, importlib.machinery
genuine = sys.modules["tensorflow"] = types.ModuleType("tensorflow")
others = sys.modules["tf_slim"] = types.ModuleType("tf_slim")
others.__spec__ = importlib.machinery.ModuleSpec("tf_slim", None)
import anabranch as tf
assert tf.contrib.slim.conv2d and tf.contrib.slim.nets.inception.inception_v1 and tf.contrib.layers.layer_norm
assert [name for name in sys.modules if name.split(".")[0] in ("tensorflow", "tf_slim")] == ["tensorflow", "tf_slim"]
assert sys.modules["tensorflow"] is genuine and sys.modules["tf_slim"] is others
assert not any(type(finder).__name__ == "TensorFlowFinder" for finder in sys.meta_path)
assert tf.contrib.layers.conv2d is tf.contrib.slim.conv2d
assert tf.contrib.slim.arg_scope is tf.contrib.framework.arg_scope
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr


@needs_package
def test_programs_import_it_by_the_paths_of_its_time(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text("""
import tensorflow as tf
import tensorflow.contrib.slim as slim
from tensorflow.contrib import layers, slim as same
from tensorflow.contrib.framework import arg_scope, nest
from tensorflow.contrib.framework.python.ops import add_arg_scope, variables
from tensorflow.contrib.framework.python.ops.variables import get_or_create_global_step
from tensorflow.contrib.framework.python.framework import checkpoint_utils
from tensorflow.contrib.layers.python.layers import initializers, layers as layers_lib, utils
from tensorflow.contrib.layers.python.layers.layers import conv2d
from tensorflow.contrib.losses.python.losses import loss_ops
from tensorflow.contrib.metrics.python.ops import metric_ops
from tensorflow.contrib.slim.nets import resnet_v1, vgg
from tensorflow.contrib.slim.python.slim import learning
from tensorflow.contrib.slim.python.slim.data import dataset, tfexample_decoder
from tensorflow.contrib.slim.python.slim.nets.inception_v3 import inception_v3
from tensorflow.contrib.training.python.training import evaluation, hparam
import tf_slim

assert slim.conv2d is layers.conv2d is conv2d is layers_lib.conv2d is tf_slim.conv2d is tf.contrib.slim.conv2d
assert slim.arg_scope is arg_scope and add_arg_scope and variables.model_variable is slim.model_variable
assert learning.train and dataset.Dataset and metric_ops.streaming_mean and loss_ops.log_loss and vgg.vgg_16
assert hparam.HParams is tf.contrib.training.HParams and evaluation.wait_for_new_checkpoint and inception_v3
assert checkpoint_utils.load_variable is tf.train.load_variable and initializers.xavier_initializer
with slim.arg_scope(resnet_v1.resnet_arg_scope()):
    net, points = resnet_v1.resnet_v1_50(tf.zeros([1, 32, 32, 3]), 10, is_training=False)
assert nest.flatten((net, [])) == [net] and net.shape.as_list() == [1, 1, 1, 10] and len(points) > 10
print("imported")
""")
    command = [sys.executable, "-m", "anabranch", "run", str(program)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith("imported\n")


# ------------------------------------------------------------------------------------------------ layers
@needs_package
def test_layers_compute_their_formulas() -> None:
    x = RNG.normal(size=(6, 5))
    weights = tf.constant_initializer(RNG.normal(size=(5, 3)))
    with contrib.framework.arg_scope([contrib.layers.fully_connected], weights_initializer=weights):
        dense = contrib.layers.fully_connected(x, 3, biases_initializer=tf.constant_initializer(0.5))
        linear = contrib.layers.linear(x, 3, scope="linear")
    normed = contrib.layers.layer_norm(tf.constant(x), begin_norm_axis=1)
    one_hot = contrib.layers.one_hot_encoding([2, 0], 3)
    got, plain, kernel, normalized, hot = run([dense, linear, tf.trainable_variables()[0], normed, one_hot])
    assert tf.trainable_variables()[0].op.name == "fully_connected/weights"
    np.testing.assert_allclose(got, np.maximum(x @ kernel + 0.5, 0), atol=1e-12)
    np.testing.assert_allclose(plain, x @ kernel, atol=1e-12)
    centered = x - x.mean(1, keepdims=True)
    np.testing.assert_allclose(normalized, centered / np.sqrt((centered**2).mean(1, keepdims=True) + 1e-12), atol=1e-9)
    np.testing.assert_array_equal(hot, [[0, 0, 1], [1, 0, 0]])


@needs_package
def test_batch_normalization_follows_the_mean_of_its_batches() -> None:
    x = RNG.normal(size=(8, 4)).astype(np.float32)
    outputs = contrib.layers.batch_norm(tf.constant(x), decay=0.9, center=False, is_training=True, scope="norm")
    updates = tf.get_collection(tf.GraphKeys.UPDATE_OPS)
    mean, variance = (v for v in tf.global_variables() if "moving" in v.op.name)
    got, moved, spread = run([outputs, mean, variance], updates, updates)
    np.testing.assert_allclose(got, (x - x.mean(0)) / np.sqrt(x.var(0) + 1e-3), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(moved, x.mean(0) * (1 - 0.9**2), rtol=1e-4, atol=1e-6)
    expected = 0.9**2 + (1 - 0.9**2) * x.var(0, ddof=1)  # the fused kernel counts one row less
    plain = 0.9**2 + (1 - 0.9**2) * x.var(0)
    assert np.allclose(spread, expected, rtol=1e-4) or np.allclose(spread, plain, rtol=1e-4)


@needs_package
def test_losses_and_metrics_take_predictions_first() -> None:
    logits = RNG.normal(size=(4, 3)).astype(np.float32)
    labels = np.eye(3, dtype=np.float32)[[0, 2, 1, 1]]
    loss = contrib.losses.softmax_cross_entropy(tf.constant(logits), tf.constant(labels))
    squared = contrib.losses.mean_squared_error(tf.constant(logits), tf.constant(labels))
    accuracy, update = contrib.metrics.streaming_accuracy([1, 2, 2, 0], [1, 2, 0, 0])
    correlation, seen = contrib.metrics.streaming_pearson_correlation(logits[:, 0], logits[:, 1])
    entropy, mean, share, together = run([loss, squared, accuracy, correlation], update, seen)
    shifted = logits - logits.max(1, keepdims=True)
    expected = -(labels * (shifted - np.log(np.exp(shifted).sum(1, keepdims=True)))).sum(1).mean()
    np.testing.assert_allclose(entropy, expected, rtol=1e-5)
    np.testing.assert_allclose(mean, ((logits - labels) ** 2).mean(), rtol=1e-5)
    np.testing.assert_allclose(share, 0.75)
    np.testing.assert_allclose(together, np.corrcoef(logits[:, 0], logits[:, 1])[0, 1], rtol=1e-4)


# ------------------------------------------------------------------------------------------------ training
@needs_package
@pytest.mark.filterwarnings("ignore:Attempting to use a closed FileWriter")  # slim stops its supervisor twice
def test_a_network_of_slims_layers_is_trained_saved_and_restored(tmp_path: Path) -> None:
    slim = contrib.slim
    images = RNG.normal(size=(32, 8, 8, 1)).astype(np.float32)
    classes = (images.mean((1, 2, 3)) > 0).astype(np.int32)

    def network() -> Any:
        with slim.arg_scope([slim.conv2d, slim.fully_connected], weights_regularizer=slim.l2_regularizer(1e-4)):
            net = slim.repeat(tf.constant(images), 2, slim.conv2d, 4, [3, 3], scope="conv")
            net = slim.flatten(slim.max_pool2d(net, [2, 2]))
            return slim.fully_connected(net, 2, activation_fn=None, scope="logits")

    with tf.Graph().as_default():
        tf.set_random_seed(1)
        slim.losses.sparse_softmax_cross_entropy(network(), tf.constant(classes))
        assert len(tf.losses.get_regularization_losses()) == 3
        step = slim.learning.create_train_op(slim.losses.get_total_loss(), tf.train.AdamOptimizer(0.01))
        assert slim.learning.train(step, str(tmp_path), number_of_steps=60, save_summaries_secs=0) < 0.2
    checkpoint = tf.train.latest_checkpoint(str(tmp_path))
    assert ("conv/conv_1/weights", [3, 3, 1, 4]) in contrib.framework.list_variables(checkpoint)
    logits = network()
    restore = slim.assign_from_checkpoint_fn(checkpoint, slim.get_model_variables())
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        restore(session)
        assert (session.run(logits).argmax(1) == classes).mean() > 0.9


@needs_package
def test_optimize_loss_takes_steps_of_an_optimizer_by_name() -> None:
    x = tf.get_variable("x", initializer=[3.0, -4.0])
    loss = tf.reduce_sum(x**2)
    step = contrib.framework.get_or_create_global_step()
    train = contrib.layers.optimize_loss(loss, step, learning_rate=0.1, optimizer="SGD", clip_gradients=1.0)
    found, count = run([x, step], train)
    slope = np.array([6.0, -8.0]) / 10.0  # clipped to norm 1
    np.testing.assert_allclose(found, np.array([3.0, -4.0]) - 0.1 * slope, rtol=1e-5)
    assert count == 1
