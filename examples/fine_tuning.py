"""Starts a new task from another model's checkpoint, restoring the layers that fit  (§4.3).

First a network learns to tell four clusters of points in the plane apart, and is saved. Then a network for two classes
(left half, right half) takes over the hidden layers from that checkpoint, leaves the output layer as it was
initialized, and trains only this one on sixteen examples.

Run it with `python examples/fine_tuning.py [--directory runs/fine_tuning]`.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import anabranch as tf

CENTRES = np.array([[-2, -2], [-2, 2], [2, -2], [2, 2]], np.float32)


@dataclass(frozen=True)
class Network:
    """The tensors and operations of a classifier that programs run."""

    points: Any
    labels: Any
    accuracy: Any
    train: Any


def clusters(count: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """`count` points, float32 [count, 2], and the number of the cluster of each, int32 [count]."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, len(CENTRES), count).astype(np.int32)
    return CENTRES[labels] + rng.normal(0, 0.7, (count, 2)).astype(np.float32), labels


def build(classes: int, trained_layers: str | None = None) -> Network:
    """Builds a classifier into the default graph; `trained_layers`: the scope whose variables are trained (all)."""
    points = tf.placeholder(tf.float32, [None, 2], name="points")
    labels = tf.placeholder(tf.int32, [None], name="labels")
    hidden = tf.layers.dense(points, 32, activation=tf.nn.relu, name="hidden_1")
    hidden = tf.layers.dense(hidden, 32, activation=tf.nn.relu, name="hidden_2")
    logits = tf.layers.dense(hidden, classes, name="output")
    loss = tf.losses.sparse_softmax_cross_entropy(labels, logits)
    hits = tf.equal(tf.argmax(logits, 1, output_type=tf.int32), labels)
    variables = tf.trainable_variables(trained_layers)
    train = tf.train.AdamOptimizer(0.02).minimize(loss, var_list=variables)
    return Network(points, labels, tf.reduce_mean(tf.cast(hits, tf.float32)), train)


def first_task(directory: Path) -> str:
    """Learns the four clusters; returns the checkpoint's prefix."""
    with tf.Graph().as_default():
        tf.set_random_seed(1)
        network = build(classes=4)
        points, labels = clusters(1000, seed=1)
        with tf.Session() as session:
            session.run(tf.global_variables_initializer())
            for _ in range(100):
                session.run(network.train, {network.points: points, network.labels: labels})
            print(f"four clusters: {session.run(network.accuracy, held_out(network, lambda y: y)):.1%} right")
            return tf.train.Saver().save(session, str(directory / "clusters"))


def second_task(checkpoint: str) -> None:
    """Learns left and right from sixteen examples, on the hidden layers of the first network."""
    with tf.Graph().as_default():
        tf.set_random_seed(2)
        network = build(classes=2, trained_layers="output")
        points, labels = clusters(16, seed=2)
        with tf.Session() as session:
            session.run(tf.global_variables_initializer())
            # what fits is restored, and the report says what does not; tf.train.Saver(variables).restore would
            # restore exactly the variables that it is given, or fail
            print(tf.train.restore_partial(session, checkpoint, tf.trainable_variables()))
            for _ in range(50):
                session.run(network.train, {network.points: points, network.labels: labels // 2})
            right = session.run(network.accuracy, held_out(network, lambda y: y // 2))
    print(f"left or right, from sixteen examples: {right:.1%} right")


def held_out(network: Network, task: Any) -> dict[Any, Any]:
    """Feeds of points that neither task trains on; `task` makes their labels from their clusters."""
    points, labels = clusters(500, seed=3)
    return {network.points: points, network.labels: task(labels)}


def main(directory: Path) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    second_task(first_task(directory))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Starts a new task from another model's checkpoint.")
    parser.add_argument("--directory", type=Path, default=Path("runs/fine_tuning"), help="where the checkpoint goes")
    main(parser.parse_args().directory)
