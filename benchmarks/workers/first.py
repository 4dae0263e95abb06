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
#: runs of a graph, among which is the one that compiles it where that is done, and runs after those
RUNS, LATER_RUNS = 40, 5


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


def seconds(tf: Any, what: str, runs: int) -> list[float]:
    """Each of some runs of a new graph in a new session; medians of several graphs, the first left out."""
    graphs = []
    for number in range(GRAPHS):
        with tf.Graph().as_default():
            x, initializer, fetches = build(tf, what, 7 + number)
            feeds = {x: np.ones((3, 7 + number), np.float32)}
            with tf.Session() as session:
                session.run(initializer)
                taken = []
                for _ in range(runs):
                    start = time.perf_counter()
                    session.run(fetches, feeds)
                    taken.append(time.perf_counter() - start)
                graphs.append(taken)
    return [statistics.median(of_one_run) for of_one_run in zip(*graphs[1:], strict=True)]


def main() -> None:
    system = sys.argv[1]
    if system == "tensorflow":
        import tensorflow.compat.v1 as tf

        tf.disable_eager_execution()
    else:
        import anabranch as tf  # type: ignore[no-redef]
    together = seconds(tf, "gradient", RUNS + LATER_RUNS)
    row = {
        "values: first run": seconds(tf, "values", 1)[0],
        "values and gradient: first run": together[0],
        "values and gradient: first 21 runs": sum(together[:21]),
        "values and gradient: slowest later run": max(together[1:RUNS]),
        "values and gradient: a run after 40": statistics.median(together[RUNS:]),
        "a training step with Adam: first run": seconds(tf, "Adam", 1)[0],
    }
    print(json.dumps(row))


if __name__ == "__main__":
    main()
