"""Worker: steps in a second of one and of two threads that train one model, without waiting for each other (Hogwild).

``recurrent``: an LSTM of 128 over 20 words, batch 16: small operations one after the other, which leave a core idle.
``table``: a small network over 39 features of a table with 1,000,000 rows, batch 256, gradient descent. ``dense``: a
network of 256-256-10, batch 32. Figures are steps in a second of all threads together.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from timing import wait_for_the_compiler

#: how long (s) threads run for a figure, and before the first one
SECONDS, WARM_UP = 4.0, 2.0
FEEDS = 16
Feeds = list[dict[Any, np.ndarray]]


def recurrent(tf: Any) -> tuple[Any, Feeds]:
    batch, length, words, size = 16, 20, 1000, 128
    ids, labels = tf.placeholder(tf.int32, [batch, length]), tf.placeholder(tf.int32, [batch])
    table = tf.get_variable("table", [words, size], use_resource=True)
    w = tf.get_variable("w", [2 * size, 4 * size], use_resource=True)
    b = tf.get_variable("b", [4 * size], initializer=tf.zeros_initializer(), use_resource=True)
    x = tf.transpose(tf.nn.embedding_lookup(table, ids), [1, 0, 2])

    def step(i: Any, c: Any, h: Any) -> Any:
        gates = tf.matmul(tf.concat([x[i], h], 1), w) + b
        kept, taken, new, shown = tf.split(gates, 4, 1)
        c = tf.sigmoid(kept) * c + tf.sigmoid(taken) * tf.tanh(new)
        return i + 1, c, tf.sigmoid(shown) * tf.tanh(c)

    zeros = tf.zeros([batch, size])
    last = tf.while_loop(lambda i, c, h: i < length, step, (0, zeros, zeros), maximum_iterations=length)[2]
    out = tf.get_variable("out", [size, words], use_resource=True)
    loss = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=tf.matmul(last, out))
    rng = np.random.default_rng(0)
    feeds = [
        {ids: rng.integers(0, words, (batch, length)), labels: rng.integers(0, words, batch)} for _ in range(FEEDS)
    ]
    return tf.train.GradientDescentOptimizer(0.1).minimize(tf.reduce_mean(loss)), feeds


def table(tf: Any) -> tuple[Any, Feeds]:
    rows, fields, width, batch = 1_000_000, 39, 8, 256
    ids, labels = tf.placeholder(tf.int32, [None, fields]), tf.placeholder(tf.float32, [None])
    embeddings = tf.get_variable("table", [rows, width], use_resource=True)
    x = tf.reshape(tf.nn.embedding_lookup(embeddings, ids), [-1, fields * width])
    for i, (before, after) in enumerate(((fields * width, 256), (256, 128), (128, 1))):
        x = tf.matmul(x, tf.get_variable(f"w{i}", [before, after], use_resource=True))
        x = tf.nn.relu(x) if after > 1 else x
    loss = tf.reduce_mean(tf.nn.sigmoid_cross_entropy_with_logits(labels=labels, logits=x[:, 0]))
    rng = np.random.default_rng(0)
    feeds = [
        {ids: rng.integers(0, rows, (batch, fields)), labels: rng.integers(0, 2, batch).astype(np.float32)}
        for _ in range(FEEDS)
    ]
    return tf.train.GradientDescentOptimizer(0.1).minimize(loss), feeds


def dense(tf: Any) -> tuple[Any, Feeds]:
    batch, width = 32, 256
    x, labels = tf.placeholder(tf.float32, [batch, width]), tf.placeholder(tf.int32, [batch])
    hidden = tf.nn.relu(tf.matmul(x, tf.get_variable("w0", [width, width], use_resource=True)))
    logits = tf.matmul(hidden, tf.get_variable("w1", [width, 10], use_resource=True))
    loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits))
    rng = np.random.default_rng(0)
    feeds = [
        {x: rng.standard_normal((batch, width), np.float32), labels: rng.integers(0, 10, batch)} for _ in range(FEEDS)
    ]
    return tf.train.GradientDescentOptimizer(0.1).minimize(loss), feeds


MODELS: dict[str, Callable[[Any], tuple[Any, Feeds]]] = {"recurrent": recurrent, "table": table, "dense": dense}


def steps_per_second(session: Any, train: Any, feeds: Feeds, threads: int, seconds: float) -> float:
    """Of all threads together."""
    counts, ended = [0] * threads, threading.Event()

    def work(number: int) -> None:
        while not ended.is_set():
            session.run(train, feeds[(number + counts[number]) % len(feeds)])
            counts[number] += 1

    running = [threading.Thread(target=work, args=(number,)) for number in range(threads)]
    start = time.perf_counter()
    for thread in running:
        thread.start()
    ended.wait(seconds)
    ended.set()
    for thread in running:
        thread.join()
    return sum(counts) / (time.perf_counter() - start)


def main(tf: Any) -> dict[str, float]:
    row = {}
    for name, model in MODELS.items():
        with tf.Graph().as_default(), tf.Session() as session:
            train, feeds = model(tf)
            session.run(tf.global_variables_initializer())
            for i in range(60):
                session.run(train, feeds[i % FEEDS])
            wait_for_the_compiler()
            row[f"{name}: one thread"] = steps_per_second(session, train, feeds, 1, SECONDS)
            steps_per_second(session, train, feeds, 2, WARM_UP)
            wait_for_the_compiler()
            row[f"{name}: two threads"] = steps_per_second(session, train, feeds, 2, SECONDS)
    return row


if __name__ == "__main__":
    if sys.argv[1] == "anabranch":
        import anabranch as tf
    else:
        import tensorflow.compat.v1 as tf

        tf.disable_v2_behavior()
    print(json.dumps(main(tf)))
