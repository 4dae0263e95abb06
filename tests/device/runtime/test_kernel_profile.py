"""Traces of steps tell the operations inside islands: their names, their times, and what XLA fused with them."""

from __future__ import annotations

import random
import threading
from typing import Any

import jax
import numpy as np
import pytest

import anabranch as tf
from anabranch.runtime import timeline
from anabranch.runtime.kernel_profile import KernelEvent, profiled

#: numbers that no other process has drawn: tests of `tf.test.TestCase` seed the ones of `random`
_UNSEEDED = random.SystemRandom()


def traced(fetches: Any, feeds: Any, level: int = tf.RunOptions.FULL_TRACE) -> Any:
    metadata = tf.RunMetadata()
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        session.run(fetches, feeds)
        session.run(fetches, feeds, tf.RunOptions(trace_level=level), metadata)
    return metadata.step_stats


def training() -> tuple[Any, dict[Any, Any]]:
    """A step that no earlier process compiled: what is found on the disk has lost the names."""
    x = tf.placeholder(tf.float32, [64, 32], name="x")
    hidden = tf.layers.dense(x * _UNSEEDED.random(), 128, activation=tf.nn.relu, name="hidden")
    loss = tf.reduce_mean(tf.square(tf.layers.dense(hidden, 10, name="out")), name="loss")
    train = tf.train.GradientDescentOptimizer(0.1).minimize(loss)
    return [loss, train], {x: np.ones((64, 32), np.float32)}


def kernels(stats: Any) -> list[Any]:
    """The entries on XLA's own threads."""
    return [
        node
        for device in stats.dev_stats
        for node in device.node_stats
        if device.thread_names[node.thread_id].startswith("XLA ")
    ]


def test_operations_inside_an_island_have_names_and_times() -> None:
    with tf.Graph().as_default():
        stats = traced(*training())
    (device,) = stats.dev_stats
    (island,) = [node for node in device.node_stats if " = Island(" in node.timeline_label]
    found = kernels(stats)
    names = {node.node_name for node in found}
    told = " ".join(node.timeline_label for node in found)
    assert len(names) > 5
    for operation in (
        "hidden/MatMul",
        "gradients/out/MatMul_grad/MatMul",
        "hidden/BiasAdd",
        "ResourceApplyGradientDescent",
    ):
        assert operation in told
    for node in found:
        assert node.node_name in tf_names(island) or node.node_name.startswith(f"{island.node_name}/"), node.node_name
    assert sum(node.all_end_rel_nanos for node in found) > 0
    assert any(node.timeline_label.startswith("hidden/MatMul = MatMul(): ") for node in found)
    assert '"hidden/MatMul"' in timeline.Timeline(stats).generate_chrome_trace_format()


def tf_names(island: Any) -> set[str]:
    return set(island.timeline_label.partition(": ")[2].split(", "))


def test_a_loop_inside_an_island_is_told() -> None:
    with tf.Graph().as_default():
        x = tf.placeholder(tf.float32, [64, 64])
        result = tf.while_loop(
            lambda i, _: i < 3, lambda i, y: (i + 1, tf.matmul(y, x)), (0, x * _UNSEEDED.random()), name="repeat"
        )[1]
        stats = traced(result, {x: np.eye(64, dtype=np.float32)})
    assert any("repeat" in node.node_name for node in kernels(stats))


def test_a_software_trace_leaves_xla_alone() -> None:
    with tf.Graph().as_default():
        assert kernels(traced(*training(), tf.RunOptions.SOFTWARE_TRACE)) == []


def test_a_profile_under_way_is_left_alone(tmp_path: Any) -> None:
    jax.profiler.start_trace(tmp_path)
    try:
        with tf.Graph().as_default():
            assert kernels(traced(*training())) == []
    finally:
        jax.profiler.stop_trace()
    assert list(tmp_path.rglob("*.xplane.pb"))


def test_one_of_several_threads_profiles() -> None:
    first: list[KernelEvent] = []
    second: list[KernelEvent] = []
    with profiled(first):
        thread = threading.Thread(target=lambda: profiled(second).__enter__())
        thread.start()
        thread.join()
        jax.jit(lambda x: x @ x)(np.ones((64, 64), np.float32)).block_until_ready()
    assert first
    assert not second


@pytest.mark.parametrize(
    ("scopes", "operations"),
    [
        (("a/b/dot_general",), ("a/b",)),
        (("a/add", "a/b/add", "a/add"), ("a", "a/b")),
        (("nothing/add",), ()),
        (("", "a"), ("a",)),
    ],
)
def test_operations_are_found_by_the_longest_beginning(scopes: tuple[str, ...], operations: tuple[str, ...]) -> None:
    event = KernelEvent("fusion", scopes, 0.0, 1.0, 0, "")
    assert event.operations({"a", "a/b", "a/b/c"}) == operations
