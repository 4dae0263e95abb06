"""Fits a line to noisy points: placeholders, variables, a loss, an optimizer, and a session that runs it.

Run it with `python examples/linear_regression.py [--steps 200]`.
"""

from __future__ import annotations

import argparse

import numpy as np

import anabranch as tf

SLOPE, OFFSET = 3.0, -1.0


def noisy_points(count: int) -> tuple[np.ndarray, np.ndarray]:
    """`count` points (x, y), float32, around the line y = SLOPE * x + OFFSET."""
    rng = np.random.default_rng(0)
    x = rng.uniform(-1, 1, count).astype(np.float32)
    return x, (SLOPE * x + OFFSET + rng.normal(0, 0.1, count)).astype(np.float32)


def main(steps: int) -> None:
    x = tf.placeholder(tf.float32, [None], name="x")
    y = tf.placeholder(tf.float32, [None], name="y")
    slope = tf.get_variable("slope", [], initializer=tf.zeros_initializer())
    offset = tf.get_variable("offset", [], initializer=tf.zeros_initializer())
    loss = tf.reduce_mean(tf.squared_difference(slope * x + offset, y))
    train = tf.train.MomentumOptimizer(learning_rate=0.1, momentum=0.9, use_nesterov=True).minimize(loss)

    points, values = noisy_points(1000)
    feeds = {x: points, y: values}
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        for step in range(steps):
            # one step: the loss before the update, and the update
            before, _ = session.run([loss, train], feeds)
            if step % 50 == 0:
                print(f"step {step:4d}  loss {before:.4f}")
        fitted = session.run([slope, offset])
    print(f"y = {fitted[0]:.2f} x {fitted[1]:+.2f}, made from y = {SLOPE:.2f} x {OFFSET:+.2f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Fits a line to noisy points.")
    parser.add_argument("--steps", type=int, default=200)
    main(parser.parse_args().steps)
