"""Worker: gather 32 random rows of a table, and take a step of gradient descent on them."""

from __future__ import annotations

import itertools
import json
import sys
from typing import Any

import numpy as np
from timing import seconds_per_call

ROWS = 32
WIDTH = 64
SIZES = {"16 MB": 16 << 20, "1 GB": 1 << 30}


def main(tf: Any) -> dict[str, float]:
    times = {}
    rng = np.random.default_rng(0)
    for label, size in SIZES.items():
        with tf.Graph().as_default(), tf.Session() as session:
            rows = size // (4 * WIDTH)
            table = tf.get_variable("table", [rows, WIDTH], initializer=tf.zeros_initializer(), use_resource=True)
            indices = tf.placeholder(tf.int32, [ROWS])
            loss = tf.reduce_sum(tf.square(tf.nn.embedding_lookup(table, indices) - 1.0))
            train = tf.train.GradientDescentOptimizer(0.1).minimize(loss)
            session.run(tf.global_variables_initializer())
            feeds = [rng.integers(0, rows, ROWS).astype(np.int32) for _ in range(64)]
            times[label] = step_time(session, train, indices, feeds)
    return times


def step_time(session: Any, train: Any, indices: Any, feeds: list[np.ndarray]) -> float:
    rows = itertools.cycle(feeds)
    return seconds_per_call(lambda: session.run(train, {indices: next(rows)}), 500)


if __name__ == "__main__":
    if sys.argv[1] == "anabranch":
        import anabranch as tf
    else:
        import tensorflow.compat.v1 as tf

        tf.disable_v2_behavior()
    print(json.dumps(main(tf)))
