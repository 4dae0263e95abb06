"""What the first run of a new graph of a dozen small operations takes, and the first runs of what is made of it."""

from __future__ import annotations

import json
import statistics
import sys
import time
from typing import Any

import numpy as np

#: new graphs, each of its own shapes, so that nothing is found again
GRAPHS = 6


def build(tf: Any, what: str, size: int) -> tuple[Any, Any, Any]:
    """The fed tensor, what is to be initialized, and what is fetched."""
    x = tf.placeholder(tf.float32, [None, size])
    initial = np.random.default_rng(size).random((size, 5), np.float32)
    w = tf.Variable(initial) if what == "Adam" else tf.constant(initial)
    h = tf.nn.relu(tf.matmul(x, w) + 1.0)
    h = tf.tanh(h) * tf.sigmoid(h)
    h = tf.concat([h, h * 2], 1)
    y = tf.reduce_mean(tf.log(tf.reduce_sum(tf.square(h), axis=1) + 1)) + tf.reduce_max(h)
    if what == "Adam":
        train = tf.train.AdamOptimizer(0.1).minimize(y)
        return x, tf.global_variables_initializer(), train
    return x, tf.no_op(), y if what == "values" else [y, tf.gradients(y, [x])[0]]


def seconds(tf: Any, what: str, runs: int) -> float:
    """The last of some runs of a new graph in a new session; the median of several graphs, the first left out."""
    taken = []
    for number in range(GRAPHS):
        with tf.Graph().as_default():
            x, initializer, fetches = build(tf, what, 7 + number)
            feeds = {x: np.ones((3, 7 + number), np.float32)}
            with tf.Session() as session:
                session.run(initializer)
                for _ in range(runs):
                    start = time.perf_counter()
                    session.run(fetches, feeds)
                    last = time.perf_counter() - start
                taken.append(last)
    return statistics.median(taken[1:])


def main() -> None:
    system = sys.argv[1]
    if system == "tensorflow":
        import tensorflow.compat.v1 as tf

        tf.disable_eager_execution()
    else:
        import anabranch as tf  # type: ignore[no-redef]
    row = {
        "values: first run": seconds(tf, "values", 1),
        "values and gradient: first run": seconds(tf, "gradient", 1),
        "a training step with Adam: first run": seconds(tf, "Adam", 1),
        "values and gradient: third run": seconds(tf, "gradient", 3),
        "values and gradient: fourth run": seconds(tf, "gradient", 4),
    }
    print(json.dumps(row))


if __name__ == "__main__":
    main()
