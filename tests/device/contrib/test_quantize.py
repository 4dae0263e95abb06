"""`tf.contrib.quantize`: normalizations are folded without a change of results; ranges are measured and kept."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import anabranch as tf
from anabranch.contrib.quantize_folding import fold_batch_norms

quantize = tf.contrib.quantize
RNG = np.random.default_rng(5)
PICTURES = RNG.random((4, 6, 6, 3)).astype(np.float32)


def normalized(layer: str, x: Any, training: bool, fused: bool, scale: bool = True) -> Any:
    """A layer without a bias, its normalization and an activation."""
    init = tf.random_normal_initializer(stddev=0.3, seed=3)
    with tf.variable_scope("net"):
        if layer == "dense":
            y = tf.layers.dense(tf.reshape(x, [4, -1]), 5, use_bias=False, kernel_initializer=init)
        elif layer == "depthwise":
            kernel = tf.get_variable("kernel", [3, 3, 3, 2], initializer=init)
            y = tf.nn.depthwise_conv2d(x, kernel, [1, 1, 1, 1], "SAME")
        else:
            y = tf.layers.conv2d(
                x,
                5,
                3,
                dilation_rate=2 if layer == "dilated" else 1,
                padding="same",
                use_bias=False,
                kernel_initializer=init,
            )
        y = tf.layers.batch_normalization(y, training=training, fused=fused, scale=scale, momentum=0.5)
    return tf.nn.relu(y, name="activation")


def results(layer: str, training: bool, fused: bool, fold: bool, steps: int = 1, delay: int | None = None) -> list[Any]:
    with tf.Graph().as_default() as graph, tf.Session() as session:
        x = tf.placeholder(tf.float32, PICTURES.shape)
        y = normalized(layer, x, training, fused)
        updates = tf.get_collection(tf.GraphKeys.UPDATE_OPS)
        out = tf.identity(y)
        if fold:
            fold_batch_norms(graph, training, delay)
        gradients = tf.gradients(tf.reduce_sum(out**2), [x, *tf.trainable_variables()])
        session.run(tf.global_variables_initializer())
        averages = [v for v in tf.global_variables() if "moving" in v.op.name]
        for step in range(steps):
            found = session.run([out, gradients, updates], {x: PICTURES * (1 + step)})[:2]
        values: list[Any] = [found[0], *found[1], *session.run(averages)]
        return values


@pytest.mark.parametrize("fused", [False, True])
@pytest.mark.parametrize("layer", ["conv", "dilated", "depthwise", "dense"])
def test_folding_changes_no_result(layer: str, fused: bool) -> None:
    for training in (True, False):
        if fused and layer == "dense":
            continue  # which has no fused normalization in tf.layers
        plain, folded = (results(layer, training, fused, fold, steps=2) for fold in (False, True))
        for want, have in zip(plain, folded, strict=True):
            np.testing.assert_allclose(have, want, rtol=2e-3, atol=2e-3)


def test_weights_are_folded_with_the_moving_average_and_the_layer_corrected() -> None:
    with tf.Graph().as_default() as graph:
        y = normalized("conv", tf.constant(PICTURES), training=True, fused=True)
        fold_batch_norms(graph, is_training=True)
        names = {op.name: op for op in graph.get_operations()}
        corrected = names["net/conv2d/mul_fold"].inputs[0].op
        assert corrected.name == "net/conv2d/correction_mult"
        assert names["net/conv2d/Conv2D_Fold"].inputs[1].op is names["net/conv2d/mul_fold"]
        assert y.op.inputs[0].op is names["net/conv2d/add_fold"]


@pytest.mark.parametrize("fused", [False, True])
def test_after_the_delay_averages_are_used_and_stay(fused: bool) -> None:
    before = results("conv", True, fused, fold=True, steps=2, delay=3)
    for want, have in zip(results("conv", True, fused, fold=False, steps=2), before, strict=True):
        np.testing.assert_allclose(have, want, rtol=2e-3, atol=2e-3)
    frozen, later = (results("conv", True, fused, fold=True, steps=steps, delay=3) for steps in (3, 4))
    for two_steps, three_steps, four_steps in zip(before[-2:], frozen[-2:], later[-2:], strict=True):
        np.testing.assert_array_equal(three_steps, two_steps)
        np.testing.assert_array_equal(four_steps, two_steps)
    # with the averages instead of the batch: what evaluation computes of them, on the pictures of that step
    mean, variance = frozen[-2:]
    with tf.Graph().as_default(), tf.Session() as session:
        y = normalized("conv", tf.constant(PICTURES * 3), training=False, fused=fused)
        session.run(tf.global_variables_initializer())
        for variable in tf.global_variables():
            if "moving" in variable.op.name:
                variable.load(mean if "mean" in variable.op.name else variance, session)
        np.testing.assert_allclose(frozen[0], session.run(y), rtol=1e-3, atol=1e-3)


def network(x: Any, training: bool) -> Any:
    y = normalized("conv", x, training, fused=True)
    return tf.layers.dense(
        tf.reshape(y, [4, -1]), 2, name="logits", kernel_initializer=tf.random_normal_initializer(stddev=0.1, seed=4)
    )


def test_a_network_is_trained_and_used_with_the_ranges_it_learnt(tmp_path: Any) -> None:
    labels = np.array([0, 1, 0, 1])
    with tf.Graph().as_default(), tf.Session() as session:
        logits = network(tf.constant(PICTURES), training=True)
        loss = tf.losses.sparse_softmax_cross_entropy(labels, logits)
        quantize.create_training_graph()
        with tf.control_dependencies(tf.get_collection(tf.GraphKeys.UPDATE_OPS)):
            step = tf.train.GradientDescentOptimizer(0.05).minimize(loss)
        session.run(tf.global_variables_initializer())
        losses = [session.run([loss, step])[0] for _ in range(15)]
        path = tf.train.Saver().save(session, str(tmp_path / "model"))
    assert losses[-1] < 0.7 * losses[0]
    with tf.Graph().as_default() as graph, tf.Session() as session:
        logits = network(tf.constant(PICTURES), training=False)
        quantize.create_eval_graph()
        written = [op.name for op in graph.get_operations() if "Assign" in op.type and "quant" in op.name]
        assert all(name.endswith("/Assign") for name in written)  # by initializers alone
        tf.train.Saver().restore(session, path)
        weights = graph.get_tensor_by_name("net/conv2d/weights_quant/FakeQuantWithMinMaxVars:0")
        ends = [v for v in tf.global_variables() if v.op.name.startswith("net/conv2d/weights_quant/")]
        values, out, (low, high) = session.run([weights, logits, sorted(ends, key=lambda v: str(v.name), reverse=True)])
    levels = values / ((high - low) / 254)  # a narrow range: 8 bits but for one number; 0 is one of them
    np.testing.assert_allclose(levels, np.round(levels), atol=2e-3)
    assert (np.argmax(out, axis=1) == labels).all()


def test_quantization_begins_after_its_delay() -> None:
    with tf.Graph().as_default(), tf.Session() as session:
        x = tf.constant(PICTURES.reshape(4, -1))
        y = tf.layers.dense(x, 3, tf.nn.relu, kernel_initializer=tf.random_normal_initializer(seed=1))
        out = tf.identity(y)
        kernel = tf.trainable_variables()[0]
        quantize.experimental_create_training_graph(quant_delay=3, weight_bits=2, activation_bits=8)
        session.run(tf.global_variables_initializer())
        exact = np.maximum(PICTURES.reshape(4, -1) @ session.run(kernel), 0)
        differences = [float(np.abs(session.run(out) - exact).max()) for _ in range(4)]
    assert max(differences[:2]) < 1e-4
    assert min(differences[2:]) > 0.1  # two bits


def test_what_is_quantized() -> None:
    """Bypasses before and after the activation, shared weights, sums of quantized values; nothing outside the scope."""

    def fakes(scope: str | None = None) -> list[str]:
        with tf.Graph().as_default() as graph:
            x = tf.zeros([2, 4, 4, 3])
            layer = tf.layers.Conv2D(3, 3, padding="same", name="conv")
            with tf.name_scope("block"):
                y = tf.nn.relu(layer(x) + x, name="relu")
            with tf.name_scope("again"):
                z = tf.identity(tf.add(tf.nn.relu(layer(y)), y, name="sum"), name="end")
            tf.multiply(z, 2.0, name="product")
            quantize.experimental_create_training_graph(scope=scope)
            return [op.name.rpartition("/")[0] for op in graph.get_operations() if op.type.startswith("FakeQuant")]

    found = fakes()
    assert sum("weights_quant" in name for name in found) == 1
    assert sum("conv_quant" in name for name in found) == 1
    assert sum("post_activation_bypass_quant" in name for name in found) == 1
    assert sum("act_quant" in name for name in found) == 2
    assert "product/activation_Mul_quant" in found
    assert not any("add_quant" in name for name in found)  # its activation follows
    assert fakes("nowhere") == []


def test_symmetric_ranges() -> None:
    with tf.Graph().as_default(), tf.Session() as session:
        y = tf.layers.dense(tf.constant([[1.0]]), 3, kernel_initializer=tf.constant_initializer([-1.0, 0.2, 0.4]))
        out = tf.identity(y)
        quantize.experimental_create_training_graph(symmetric=True)
        session.run(tf.global_variables_initializer())
        session.run(out)
        ends = {v.op.name.rpartition("/")[2]: session.run(v) for v in tf.global_variables() if "weights_q" in v.name}
    assert ends == {"min": -1.0, "max": 1.0}


def test_errors() -> None:
    with tf.Graph().as_default() as graph:
        loss = tf.reduce_sum(tf.layers.dense(tf.zeros([1, 2]), 2))
        tf.train.AdamOptimizer().minimize(loss)
        with pytest.raises(ValueError, match="Training op found in graph"):
            quantize.create_training_graph(graph)
    with tf.Graph().as_default() as graph:
        kernel = tf.get_variable("kernel", [1, 1, 3, 2])
        y = tf.nn.conv2d(tf.zeros([2, 4, 4, 3]), kernel, [1, 1, 1, 1], "SAME")
        tf.identity(tf.nn.fused_batch_norm(y, tf.ones([2]), tf.zeros([2]))[0])
        with pytest.raises(ValueError, match="no moving average of its mean"):
            quantize.create_training_graph(graph)
