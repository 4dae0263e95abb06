"""Worker: resident memory over 10,000 training steps, and how many live buffers the variables have."""

from __future__ import annotations

import gc
import json
from pathlib import Path

import jax
import numpy as np

import anabranch as tf


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


def main() -> dict[str, float]:
    x = tf.placeholder(tf.float32, [None, 256])
    hidden = tf.layers.dense(x, 512, activation=tf.nn.relu)
    loss = tf.reduce_mean(tf.square(tf.layers.dense(hidden, 16)))
    train = tf.train.AdamOptimizer(1e-4).minimize(loss)
    batch = np.random.default_rng(0).normal(size=(32, 256)).astype(np.float32)
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        for _ in range(500):
            session.run([train, loss], {x: batch})
        gc.collect()
        before = resident_bytes()
        for _ in range(10_000):
            session.run([train, loss], {x: batch})
        gc.collect()
        grown = resident_bytes() - before
        variables = sum(v.shape.num_elements() * 4 for v in tf.global_variables())
        live = sum(a.nbytes for a in jax.live_arrays())
    return {"growth over 10,000 steps, bytes": grown, "live device bytes / bytes of variables": live / variables}


if __name__ == "__main__":
    print(json.dumps(main()))
