"""Data parallelism with towers: each device computes the gradients of its share of a batch on the same variables.

The variables live on /cpu:0. Every tower, on a device of its own, is a copy of the network that shares them; the
gradients of all towers are averaged, and one update is made. `towers.json` opens in Perfetto, `towers.svg` in a
browser.

    python towers.py [--directory .] [--steps 150] [--towers 2]
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

SHAPE = (8, 8)
CLASSES = 4
CENTRES = np.random.default_rng(0).normal(size=(CLASSES, *SHAPE))


def variables_on(device: str, worker: str) -> Any:
    """A device function: variables on one device, everything else on another."""
    return lambda op: device if op.type == "VarHandleOp" else worker


def tower_loss(images: Any, labels: Any) -> Any:
    """A small convolutional network's loss; its variables are shared by all towers."""
    with tf.variable_scope("network", reuse=tf.AUTO_REUSE):
        x = tf.layers.conv2d(images, 8, 3, activation=tf.nn.relu, name="convolution")
        logits = tf.layers.dense(tf.layers.flatten(x), CLASSES, name="output")
        return tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits))


def batch(count: int, seed: int) -> tuple[Any, Any]:
    """Noisy pictures of one of several patterns, and which."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, CLASSES, count)
    return (CENTRES[labels] + rng.normal(0, 1.0, (count, *SHAPE)))[..., None], labels


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


def train(towers: int, steps: int, size: int = 64) -> tuple[list[float], Any]:
    """Trains with so many towers; returns the losses and a traced step's metadata."""
    with tf.Graph().as_default():
        tf.set_random_seed(1)
        images = tf.placeholder(tf.float32, [size, *SHAPE, 1])
        labels = tf.placeholder(tf.int64, [size])
        shares = zip(tf.split(images, towers), tf.split(labels, towers), strict=True)
        optimizer = tf.train.GradientDescentOptimizer(0.1)
        losses, gradients = [], []
        for number, (some_images, some_labels) in enumerate(shares):
            with tf.device(variables_on("/cpu:0", f"/cpu:{number}")), tf.name_scope(f"tower_{number}"):
                losses.append(tower_loss(some_images, some_labels))
                gradients.append(optimizer.compute_gradients(losses[-1], colocate_gradients_with_ops=True))
        with tf.device("/cpu:0"):
            averaged = [
                (tf.add_n([gradient for gradient, _ in pairs]) / towers, pairs[0][1])
                for pairs in zip(*gradients, strict=True)
            ]
            step = optimizer.apply_gradients(averaged)
            loss = tf.add_n(losses) / towers
        with tf.Session(config=tf.ConfigProto(device_count={"CPU": towers})) as session:
            session.run(tf.global_variables_initializer())
            history = []
            for number in range(steps):
                data = dict(zip((images, labels), batch(size, number), strict=True))
                history.append(float(session.run([loss, step], data)[0]))
            metadata = quickest_trace(session, [loss, step], data)
            return history, metadata


def main() -> None:
    parser = argparse.ArgumentParser(description="Trains with data-parallel towers, and draws a step.")
    parser.add_argument("--directory", type=Path, default=Path(), help="where to write the trace and the picture")
    parser.add_argument("--steps", type=int, default=150)
    parser.add_argument("--towers", type=int, default=2)
    arguments = parser.parse_args()
    alone, _ = train(1, arguments.steps)
    losses, metadata = train(arguments.towers, arguments.steps)
    print(f"loss {losses[0]:.4f} -> {losses[-1]:.4f} with {arguments.towers} towers, {alone[-1]:.4f} with one")
    print(f"devices: {', '.join(stats.device for stats in metadata.step_stats.dev_stats)}")
    trace = Timeline(metadata.step_stats).generate_chrome_trace_format()
    (arguments.directory / "towers.json").write_text(trace, "utf-8")
    picture = timeline_svg(metadata.step_stats, title=f"one training step of {arguments.towers} towers")
    (arguments.directory / "towers.svg").write_text(picture, "utf-8")


if __name__ == "__main__":
    main()
