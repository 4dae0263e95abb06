"""Steps in half precision: a network trains as in float32; control flow, functions and other dtypes are left whole."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from rich.console import Console

import anabranch as tf
from anabranch.passes.half_precision import HalfRequest
from anabranch.pipeline import lowering_everything, plan_step
from anabranch.runtime import explain, half_precision
from anabranch.runtime.process_settings import process_settings

HALVES = (tf.bfloat16, tf.float16)


@pytest.fixture(autouse=True)
def _settings() -> Iterator[None]:
    yield
    process_settings.reset()


def small_network() -> tuple[Any, Any, Any]:
    """Images of 12 x 12, labels from 0 to 3, and the loss of a convolutional network."""
    images, labels = tf.placeholder(tf.float32, [None, 12, 12, 1]), tf.placeholder(tf.int64, [None])
    h = tf.layers.conv2d(images, 8, 3, activation=tf.nn.relu)
    h = tf.layers.batch_normalization(h, training=True)
    h = tf.layers.max_pooling2d(h, 2, 2)
    h = tf.layers.conv2d(h, 16, 3, activation=tf.nn.relu)
    logits = tf.layers.dense(tf.layers.flatten(h), 4)
    return images, labels, tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits))


def losses(half: Any, steps: int = 60) -> list[float]:
    """The losses of a training from the same start, on the same batches: four patterns under noise."""
    random = np.random.RandomState(0)
    patterns = random.randn(4, 12, 12, 1)
    with tf.Graph().as_default():
        tf.set_random_seed(1)
        images, labels, loss = small_network()
        opt: Any = tf.train.MomentumOptimizer(0.005, 0.9)
        if half is not None:
            opt = tf.train.experimental.enable_mixed_precision_graph_rewrite(opt, dtype=half)
        train = opt.minimize(loss)
        seen = []
        with tf.Session() as session:
            session.run(tf.global_variables_initializer())
            for _ in range(steps):
                chosen = random.randint(0, 4, 32)
                noisy = patterns[chosen] + 2 * random.randn(32, 12, 12, 1)
                seen.append(float(session.run([loss, train], {images: noisy, labels: chosen})[0]))
    process_settings.reset()
    return seen


def test_a_convolutional_network_reaches_the_loss_of_float32() -> None:
    single = losses(None)
    assert np.mean(single[-10:]) < 0.5 * np.mean(single[:5])
    for half in HALVES:
        mixed = losses(half)
        assert mixed != single
        np.testing.assert_allclose(np.mean(mixed[-10:]), np.mean(single[-10:]), rtol=0.05)
        np.testing.assert_allclose(mixed[:10], single[:10], rtol=0.05)


def in_half(build: Callable[[Any], Any], value: Any, half: Any = tf.bfloat16) -> tuple[Any, Any]:
    """What a function of a [3, 3] placeholder gives in float32, and in half precision."""
    results = []
    for dtype in (None, half):
        with tf.Graph().as_default():
            x = tf.placeholder(np.asarray(value).dtype, [3, 3])
            process_settings.set_half_precision(dtype is not None, dtype)
            fetch = build(x)
            with tf.Session() as session:
                session.run(tf.global_variables_initializer())
                results.append(session.run(fetch, {x: value}))
    process_settings.reset()
    return results[0], results[1]


#: exact in either half precision, as are its small powers
POWERS = np.array([[1, 2, 0], [0, 1, 0.5], [1, 0, 2]], np.float32)


def loop(x: Any) -> Any:
    product = tf.while_loop(lambda i, _: i < 3, lambda i, y: (i + 1, tf.matmul(y, x)), [0, tf.matmul(x, x)])[1]
    return [product, tf.gradients(tf.reduce_sum(tf.matmul(product, x)), x)[0]]


def conditional(x: Any) -> Any:
    taken = tf.cond(tf.reduce_sum(x) > 0, lambda: tf.matmul(x, x), lambda: x)
    return [tf.matmul(taken, x), tf.gradients(tf.reduce_sum(tf.matmul(taken, x)), x)[0]]


@pytest.mark.parametrize("build", [loop, conditional])
@pytest.mark.parametrize("half", HALVES)
def test_control_flow_and_its_gradients(build: Callable[[Any], Any], half: Any) -> None:
    for expected, mixed in zip(*in_half(build, POWERS, half), strict=True):
        assert mixed.dtype == np.float32
        np.testing.assert_allclose(mixed, expected, rtol=0.02)


def recurrent(x: Any) -> Any:
    cell = tf.nn.rnn_cell.LSTMCell(8, initializer=tf.random_uniform_initializer(-0.5, 0.5, seed=1))
    outputs, _ = tf.nn.dynamic_rnn(cell, tf.stack([x, x * 0.5, x - 1.0], 1), dtype=tf.float32)
    loss = tf.reduce_sum(tf.square(outputs))
    return [loss, *tf.gradients(loss, [x, *tf.trainable_variables()])]


def chosen_types(build: Callable[[Any], Any], half: Any) -> dict[str, set[str]]:
    """The dtypes in which operations of each type compute, as the plan tells."""
    found: dict[str, set[str]] = {}
    with tf.Graph().as_default():
        x = tf.placeholder(tf.float32, POWERS.shape)
        fetches = [tf.convert_to_tensor(fetch) for fetch in build(x)]
        planned = plan_step(fetches, [], [x], half=HalfRequest(half, "the test asks"))
    for choice in planned.types:
        found.setdefault(choice.op_type, set()).add(choice.dtype.name)
    return found


@pytest.mark.parametrize("half", HALVES)
def test_recurrent_networks_compute_in_half_precision(half: Any) -> None:
    for expected, mixed in zip(*in_half(recurrent, POWERS, half), strict=True):
        assert mixed.dtype == np.float32
        np.testing.assert_allclose(mixed, expected, rtol=0.05, atol=0.05 * np.abs(expected).max())
    assert chosen_types(recurrent, half)["MatMul"] == {half.name}


@pytest.mark.parametrize("build", [loop, conditional])
def test_bodies_are_converted(build: Callable[[Any], Any]) -> None:
    assert chosen_types(build, tf.bfloat16)["MatMul"] == {"bfloat16"}


def test_a_loop_that_products_end_stays_float32() -> None:
    """How often it runs is found by its condition, for the room of what its gradient needs."""

    def build(x: Any) -> Any:
        def body(i: Any, y: Any) -> Any:
            return i + 1, tf.matmul(y, x) * 0.5

        last = tf.while_loop(lambda i, y: tf.reduce_sum(y) < 40.0, body, [0, tf.abs(x)])[1]
        return [last, tf.gradients(tf.reduce_sum(tf.square(last)), x)[0]]

    (expected, gradient), (mixed, mixed_gradient) = in_half(build, POWERS, tf.bfloat16)
    np.testing.assert_array_equal(mixed, expected)
    np.testing.assert_allclose(mixed_gradient, gradient, rtol=0.05)


@pytest.mark.parametrize("build", [loop, conditional])
def test_primitive_control_flow_of_version_1(build: Callable[[Any], Any]) -> None:
    with lowering_everything():
        for expected, mixed in zip(*in_half(build, POWERS), strict=True):
            np.testing.assert_allclose(mixed, expected, rtol=0.02)


def test_functions_and_custom_gradients() -> None:
    @tf.custom_gradient
    def doubled(x: Any) -> Any:
        return tf.matmul(x, x), lambda grad: tf.matmul(grad, x) * 2.0

    def build(x: Any) -> Any:
        y = doubled(tf.matmul(x, x))
        return [y, tf.gradients(tf.reduce_sum(y), x)[0]]

    for expected, mixed in zip(*in_half(build, POWERS), strict=True):
        np.testing.assert_allclose(mixed, expected, rtol=0.02)


def test_float64_keeps_its_bits() -> None:
    value = np.random.RandomState(0).randn(3, 3)
    expected, mixed = in_half(lambda x: tf.matmul(x, x), value)
    np.testing.assert_array_equal(mixed, expected)
    assert mixed.dtype == np.float64


def test_variables_stay_float32_and_keep_small_updates() -> None:
    x = tf.placeholder(tf.float32, [1, 1])
    w = tf.get_variable("w", [1, 1], initializer=tf.ones_initializer())
    opt = tf.train.GradientDescentOptimizer(2.0**-14)
    opt = tf.train.experimental.enable_mixed_precision_graph_rewrite(opt, 8, tf.bfloat16)
    train = opt.minimize(tf.reduce_sum(tf.matmul(x, w)))
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        for _ in range(4):
            session.run(train, {x: [[1.0]]})
        # in bfloat16 each of these updates would be lost
        np.testing.assert_array_equal(session.run(w), [[1 - 4 * 2.0**-14]])


def test_sums_of_products_are_accumulated_in_float32() -> None:
    # 4,096 ones and a 1: bfloat16, and float16 from 2,048 on, would stop counting on the way
    for half in HALVES:
        with tf.Graph().as_default():
            x = tf.placeholder(tf.float32, [1, 4096])
            process_settings.set_half_precision(True, half)
            with tf.Session() as session:
                product = session.run(tf.matmul(x, x, transpose_b=True), {x: np.ones((1, 4096), np.float32)})
        assert product[0, 0] == 4096


def test_a_configuration_asks_for_it_or_turns_it_off() -> None:
    x = tf.placeholder(tf.float32, [1, 1])
    product = tf.matmul(x, [[1.0]])
    value = 1 + 2.0**-12
    asking, refusing = tf.ConfigProto(), tf.ConfigProto()
    rewriter = type(asking.graph_options.rewrite_options)
    asking.graph_options.rewrite_options.auto_mixed_precision_onednn_bfloat16 = rewriter.ON
    refusing.graph_options.rewrite_options.auto_mixed_precision = rewriter.OFF
    with tf.Session(config=asking) as session:
        assert session.run(product, {x: [[value]]})[0, 0] == 1
    process_settings.set_half_precision(True, tf.bfloat16)
    with tf.Session(config=refusing) as session:
        assert session.run(product, {x: [[value]]})[0, 0] == value


@pytest.mark.parametrize("instructions", [(), ("avx512_bf16",)])
def test_explanations_say_what_runs_in_which_type(
    instructions: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(half_precision, "bfloat16_instructions", lambda: instructions)
    process_settings.set_half_precision(True)
    x = tf.placeholder(tf.float32, [2, 2], name="x")
    fetch = tf.exp(tf.matmul(x, x, name="product"), name="large")
    output = io.StringIO()
    explain.enable(Console(file=output, width=160))
    try:
        with tf.Session() as session:
            if any(d.device_type == "GPU" for d in session.list_devices()):
                pytest.skip("GPUs need no instructions of processors")
            session.run(fetch, {x: np.eye(2)})
    finally:
        explain.disable()
    text = " ".join(output.getvalue().split())
    if instructions:
        assert "half precision bfloat16: the processor has avx512_bf16" in text
        assert "MatMul │ bfloat16 │ profits from half precision" in text
        assert "Exp │ float32 │ needs float32" in text
    else:
        assert "half precision none: this processor has no instructions for bfloat16" in text
        assert "profits" not in text
