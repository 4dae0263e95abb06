"""Trains through a step function, whose derivative is zero, by giving it a gradient of its own.

A hidden layer of units that are either 0 or 1 learns the parity of six bits. With the true gradient nothing in front of
the step function learns; the straight-through estimator passes the gradient on where the input is near the threshold
(Bengio, Léonard and Courville, arXiv:1308.3432).

Run it with `python examples/custom_gradient.py [--steps 1000]`.
"""

from __future__ import annotations

import argparse
import itertools
from collections.abc import Callable
from typing import Any

import numpy as np

import anabranch as tf

BITS = 6


@tf.custom_gradient
def binary(x: tf.Tensor) -> tuple[tf.Tensor, Callable[[tf.Tensor], tf.Tensor]]:
    """1 where x > 0, else 0; as a gradient, that of a ramp around the threshold."""

    def gradient(upstream: tf.Tensor) -> tf.Tensor:
        return tf.where(tf.abs(x) < 1.0, upstream, tf.zeros_like(upstream))

    return tf.cast(x > 0, tf.float32), gradient


def train(activation: Callable[[Any], Any], steps: int) -> float:
    """Trains a network with that hidden activation; returns the share of the 64 inputs that it gets right."""
    inputs = np.array(list(itertools.product((-1, 1), repeat=BITS)), np.float32)
    targets = np.prod(inputs, axis=1, keepdims=True) > 0
    with tf.Graph().as_default():
        tf.set_random_seed(4)
        hidden = activation(tf.layers.dense(tf.constant(inputs), 48, name="hidden"))
        logits = tf.layers.dense(hidden, 1, name="output")
        loss = tf.losses.sigmoid_cross_entropy(targets, logits)
        flows = [gradient is not None for gradient in tf.gradients(loss, tf.trainable_variables("hidden"))]
        print(f"  {sum(flows)} of {len(flows)} variables in front of the step function get a gradient")
        update = tf.train.AdamOptimizer(0.02).minimize(loss)
        right = tf.reduce_mean(tf.cast(tf.equal(logits > 0, targets), tf.float32))
        with tf.Session() as session:
            session.run(tf.global_variables_initializer())
            for _ in range(steps):
                session.run(update)
            return float(session.run(right))


def main(steps: int) -> None:
    print("true gradient")
    print(f"  {train(lambda x: tf.cast(x > 0, tf.float32), steps):.0%} right")
    print("straight-through estimator")
    print(f"  {train(binary, steps):.0%} right")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Trains through a step function with a gradient of one's own.")
    parser.add_argument("--steps", type=int, default=1000)
    main(parser.parse_args().steps)
