"""Frozen graphs rewritten for numbers of 8 bits: what they give, what they consist of, what is refused."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import anabranch as tf
from anabranch.tools import quantize
from anabranch.xla.variants import compile_log

RNG = np.random.RandomState(61)
IMAGES = RNG.randn(16, 8, 8, 3).astype(np.float32)
SAMPLES = [{"x:0": IMAGES[:8]}, {"x:0": IMAGES[8:]}]


def weights(*shape: int) -> Any:
    return tf.constant((RNG.randn(*shape) * 0.3).astype(np.float32))


def network() -> Any:
    """Each kind of node that becomes bytes, and some that do not; "logits" and "scores" are the outputs."""
    x = tf.placeholder(tf.float32, [None, 8, 8, 3], name="x")
    kernel = tf.identity(weights(3, 3, 3, 8), name="kernel/read")
    first = tf.nn.relu(tf.nn.bias_add(tf.nn.conv2d(x, kernel, [1, 1, 1, 1], "SAME"), weights(8)))
    second = tf.nn.relu6(tf.nn.conv2d(x, weights(1, 1, 3, 4), [1, 1, 1, 1], "VALID"))
    joined = tf.concat([first, tf.identity(second)], 3)
    pooled = tf.nn.avg_pool(tf.nn.max_pool(joined, 2, 2, "SAME"), 2, 2, "VALID")
    flat = tf.reshape(pooled, [-1, 48])
    hidden = tf.tanh(tf.matmul(flat, weights(48, 10)) + weights(10), name="hidden")
    logits = tf.matmul(hidden, weights(6, 10), transpose_b=True, name="logits")
    tf.nn.softmax(logits, name="scores")
    return tf.get_default_graph().as_graph_def()


def run(definition: Any, names: list[str], feeds: dict[str, Any] | None = None) -> list[Any]:
    with tf.Graph().as_default(), tf.Session() as session:
        fetched = tf.import_graph_def(definition, return_elements=[f"{n}:0" for n in names], name="")
        return list(session.run(fetched, {"x:0": IMAGES} if feeds is None else feeds))


def test_results_are_near_those_of_floats() -> None:
    floats = network()
    integers = tf.graph_util.quantize_graph(floats, ["logits", "scores"], SAMPLES)
    wanted, got = run(floats, ["logits", "hidden"]), run(integers, ["logits", "hidden"])
    for x, y in zip(wanted, got, strict=True):
        # the mean of a window is cut off, and what follows it adds up what is lost
        assert np.linalg.norm(x - y) < 0.15 * np.linalg.norm(x)
    types = Counter(node.op for node in integers.node)
    assert not {"MatMul", "Conv2D", "Relu", "Relu6", "MaxPool", "AvgPool", "Reshape", "ConcatV2"} & types.keys()
    assert types["QuantizedConv2D"] == types["QuantizedMatMul"] == types["QuantizedBiasAdd"] == 2
    assert types["QuantizeV2"] == 2, "the images, which two convolutions take, and the results of tanh"
    assert types["Dequantize"] == 2, "for tanh, and for softmax"
    assert not any(
        node.op == "Const"
        and node.attr["value"].tensor.dtype == 1
        and len(node.attr["value"].tensor.tensor_shape.dim) > 0
        for node in integers.node
    ), "all weights are bytes"


def test_all_of_it_is_one_program(compiled_at_once: None) -> None:
    """From the floats that are fed to those that are fetched: quantised tensors need not leave it."""
    integers = tf.graph_util.quantize_graph(network(), ["logits"], SAMPLES)
    before = len(compile_log.events)
    run(integers, ["logits"], SAMPLES[0])
    (event,) = compile_log.events[before:]
    assert event.operations == sum(node.op not in ("Const", "Placeholder") for node in integers.node)


def test_what_is_fetched_keeps_its_name_and_the_rest_is_left_out() -> None:
    integers = tf.graph_util.quantize_graph(network(), ["hidden"], SAMPLES)
    names = {node.name for node in integers.node}
    assert {"x", "hidden"} <= names
    assert not {"logits", "scores", "kernel/read"} & names


def test_nodes_that_do_not_fit_stay_floats() -> None:
    with tf.Graph().as_default() as graph:
        x = tf.placeholder(tf.float32, [None, 8, 8, 3], name="x")
        fed = tf.matmul(tf.reshape(x, [-1, 192]), tf.reshape(x, [192, -1]))
        wide = tf.nn.conv2d(x, weights(2, 2, 3, 4), [1, 1, 2, 1], "VALID")
        flat, kernel = tf.reshape(x, [-1, 192]), weights(192, 2)
        with tf.control_dependencies([wide]):
            late = tf.matmul(flat, kernel)
        tf.add_n([tf.reduce_sum(fed), tf.reduce_sum(wide), tf.reduce_sum(late)], name="total")
        definition = graph.as_graph_def()
    result = tf.graph_util.quantize_graph(definition, ["total"], SAMPLES[:1])
    assert sorted(node.op for node in result.node) == sorted(node.op for node in definition.node)


def test_a_transposed_product_and_weights_that_are_all_zero() -> None:
    with tf.Graph().as_default() as graph:
        x = tf.placeholder(tf.float32, [None, 4], name="x")
        tf.matmul(x, tf.zeros([4, 3]), name="zeros")
        tf.matmul(x, tf.constant(np.eye(4, dtype=np.float32)), transpose_a=True, name="turned")
        definition = graph.as_graph_def()
    feeds = {"x:0": np.arange(16, dtype=np.float32).reshape(4, 4)}
    result = tf.graph_util.quantize_graph(definition, ["zeros", "turned"], [feeds])
    zeros, turned = run(result, ["zeros", "turned"], feeds)
    assert not zeros.any()
    np.testing.assert_allclose(turned, feeds["x:0"].T, atol=0.1)


def test_what_is_refused() -> None:
    definition = network()
    with pytest.raises(ValueError, match="give one dictionary of feeds or more"):
        tf.graph_util.quantize_graph(definition, ["logits"], [])
    with pytest.raises(AssertionError, match="nothing is not in graph"):
        tf.graph_util.quantize_graph(definition, ["nothing"], SAMPLES)
    with pytest.raises(ValueError, match="which no bytes cover"):
        tf.graph_util.quantize_graph(definition, ["logits"], [{"x:0": IMAGES * np.nan}])
    with tf.Graph().as_default() as graph:
        tf.raw_ops.Merge(inputs=[tf.constant(1.0), tf.constant(2.0)], name="merged")
        lowered = graph.as_graph_def()
    with pytest.raises(ValueError, match="'merged' belongs to a loop or a conditional"):
        tf.graph_util.quantize_graph(lowered, ["merged"], SAMPLES)


# ---------------------------------------------------------------------- the command
def test_the_command_writes_what_the_function_gives(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    definition = network()
    source, target, samples = tmp_path / "floats.pb", tmp_path / "bytes.pb", tmp_path / "samples.npz"
    source.write_bytes(definition.SerializeToString())
    np.savez(samples, x=IMAGES)
    arguments = [str(source), str(target), "--outputs", "logits,scores", "--samples", str(samples), "--batch", "8"]
    assert quantize.main(arguments) == 0
    wanted = tf.graph_util.quantize_graph(definition, ["logits", "scores"], SAMPLES)
    assert tf.GraphDef.FromString(target.read_bytes()) == wanted
    assert "quantised operations" in capsys.readouterr().out
    with pytest.raises(tf.errors.AlreadyExistsError, match="another name"):
        quantize.main(arguments)


def test_the_command_says_what_does_not_fit(tmp_path: Path) -> None:
    source, samples = tmp_path / "floats.pb", tmp_path / "samples.npz"
    source.write_bytes(network().SerializeToString())
    np.savez(samples, x=IMAGES, y=IMAGES[:3])
    arguments = [str(source), str(tmp_path / "bytes.pb"), "--outputs", "logits", "--samples", str(samples)]
    with pytest.raises(tf.errors.InvalidArgumentError, match="as many as each other"):
        quantize.main(arguments)
    with pytest.raises(tf.errors.InvalidArgumentError, match="is not in graph"):
        quantize.main([*arguments[:3], "nothing", *arguments[4:]])
