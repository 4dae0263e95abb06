"""A network whose layers live on different devices: model parallelism, on two virtual devices of one processor.

The lower half of the network runs on /cpu:0, the upper half on /cpu:1; what goes between them is sent. A step is
traced: `model_parallel.json` opens in Perfetto (https://ui.perfetto.dev), `model_parallel.svg` in a browser.

    python model_parallel.py [--directory .] [--steps 200]
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

import numpy as np

import anabranch as tf
from anabranch.runtime.timeline import Timeline
from anabranch.runtime.timeline_svg import timeline_svg

WIDTH = 64


def layer(x: Any, units: int, name: str) -> Any:
    """A dense layer."""
    with tf.variable_scope(name):
        weights = tf.get_variable("weights", [x.shape[1], units], initializer=tf.glorot_uniform_initializer(seed=1))
        bias = tf.get_variable("bias", [units], initializer=tf.zeros_initializer())
        return tf.matmul(x, weights) + bias


def network(x: Any, devices: tuple[str, str]) -> Any:
    """Logits for two classes; the lower layers on the first device, the upper ones on the second."""
    with tf.device(devices[0]):
        hidden = tf.nn.relu(layer(tf.nn.relu(layer(x, WIDTH, "layer_1")), WIDTH, "layer_2"))
    with tf.device(devices[1]):
        return layer(tf.nn.relu(layer(hidden, WIDTH, "layer_3")), 2, "layer_4")


def rings(count: int, seed: int) -> tuple[Any, Any]:
    """Points of a plane, and which of two rings each is in."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, 2, count)
    angle, radius = rng.uniform(0, 2 * np.pi, count), 1 + labels + rng.normal(0, 0.2, count)
    return np.stack([radius * np.cos(angle), radius * np.sin(angle)], 1), labels


def quickest_trace(session: Any, fetches: Any, feeds: Any, steps: int = 10) -> Any:
    """The metadata of the quickest of some traced steps: the others tell of what else the machine had to do."""
    options = tf.RunOptions(trace_level=tf.RunOptions.FULL_TRACE)
    traces = []
    for _ in range(steps):
        metadata = tf.RunMetadata()
        start = time.perf_counter()
        session.run(fetches, feeds, options=options, run_metadata=metadata)
        traces.append((time.perf_counter() - start, metadata))
    return min(traces, key=lambda pair: pair[0])[1]


def train(devices: tuple[str, str], steps: int) -> tuple[list[float], float, Any]:
    """Trains the network; returns the losses, the share of new points it gets right, and a traced step's metadata."""
    with tf.Graph().as_default():
        x = tf.placeholder(tf.float32, [None, 2])
        labels = tf.placeholder(tf.int64, [None])
        logits = network(x, devices)
        loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits))
        right = tf.reduce_mean(tf.cast(tf.equal(tf.argmax(logits, 1), labels), tf.float32))
        # gradients are computed where the operations are that they belong to
        step = tf.train.AdamOptimizer(0.01).minimize(loss, colocate_gradients_with_ops=True)
        with tf.Session(config=tf.ConfigProto(device_count={"CPU": 2})) as session:
            session.run(tf.global_variables_initializer())
            losses = []
            for number in range(steps):
                points, classes = rings(256, number)
                losses.append(float(session.run([loss, step], {x: points, labels: classes})[0]))
            metadata = quickest_trace(session, [loss, step], {x: points, labels: classes})
            points, classes = rings(1000, steps)
            return losses, float(session.run(right, {x: points, labels: classes})), metadata


def main() -> None:
    parser = argparse.ArgumentParser(description="Trains one network over two devices, and draws a step.")
    parser.add_argument("--directory", type=Path, default=Path(), help="where to write the trace and the picture")
    parser.add_argument("--steps", type=int, default=200)
    arguments = parser.parse_args()
    alone, _, _ = train(("/cpu:0", "/cpu:0"), arguments.steps)
    losses, accuracy, metadata = train(("/cpu:0", "/cpu:1"), arguments.steps)
    print(f"loss {losses[0]:.4f} -> {losses[-1]:.4f}, {100 * accuracy:.1f}% right")
    print(f"largest difference to one device: {max(abs(a - b) for a, b in zip(alone, losses, strict=True)):.2g}")
    for stats in metadata.step_stats.dev_stats:
        kinds = [node.timeline_label.split(" = ")[1].split("(")[0] for node in stats.node_stats]
        islands, sent, received = (kinds.count(kind) for kind in ("Island", "_Send", "_Recv"))
        print(f"{stats.device}: {islands} islands, {sent} sent, {received} received")
    trace = Timeline(metadata.step_stats).generate_chrome_trace_format()
    (arguments.directory / "model_parallel.json").write_text(trace, "utf-8")
    picture = timeline_svg(metadata.step_stats, title="one training step over two devices")
    (arguments.directory / "model_parallel.svg").write_text(picture, "utf-8")


if __name__ == "__main__":
    main()
