"""MXNet's key-value store: workers push gradients and pull weights, asynchronously or in step (Chen et al., 2015).

A store with `push` and `pull` is a few lines of graph: weights are variables on a parameter server. Asynchronously,
what is pushed is applied at once, whatever it was computed from. In step, an accumulator takes one push of each worker,
and their mean is applied when all are there; who pulls waits for that. So pushes of several workers in step train as
one process does with the mean of their gradients, and asynchronous ones in some order.

    python examples/systems/push_pull.py [--draw push_pull.svg]
"""

from __future__ import annotations

import argparse
import threading
from pathlib import Path
from typing import Any

import numpy as np

import anabranch as tf
from anabranch.testing.local_cluster import LocalCluster, local_cluster
from anabranch.tools.demo.curves import draw_curves

WORKERS, SIZE, RATE = 3, 16, 0.2
CONFIG = tf.ConfigProto(operation_timeout_in_ms=20_000)


class KeyValueStore:
    """A worker's view of the store.

    Args:
        kind: "sync" or "async".
        shapes: of the values, by key.
    """

    def __init__(self, cluster: LocalCluster, worker: int, kind: str, shapes: dict[str, list[int]]) -> None:
        graph = tf.Graph()
        self._fed, self._push, self._pull = {}, {}, {}
        with graph.as_default(), tf.device("/job:server/task:0"):
            apply = tf.train.GradientDescentOptimizer(RATE).apply_gradients
            for key, shape in shapes.items():
                value = tf.get_variable(key, shape, initializer=tf.zeros_initializer())
                fed = self._fed[key] = tf.placeholder(tf.float32, shape)
                if kind == "async":
                    self._push[key] = apply([(fed, value)])
                    self._pull[key] = value.read_value()
                    continue
                sums = tf.ConditionalAccumulator(tf.float32, shape=shape, shared_name=f"{key}_sums")
                # a queue for each worker: a quick one must not take the token of another
                done = [tf.FIFOQueue(1, [tf.int32], shapes=[()], shared_name=f"{key}_{w}") for w in range(WORKERS)]
                # never late: nobody pushes for a round before the last one has ended
                push = sums.apply_grad(fed, local_step=np.int64(2**62))
                if worker == 0:  # the first worker's push also applies the mean, and lets all pull
                    with tf.control_dependencies([push]):
                        update = apply([(sums.take_grad(WORKERS), value)])
                    with tf.control_dependencies([update]):
                        push = tf.group(*(queue.enqueue(0) for queue in done))
                self._push[key] = push
                with tf.control_dependencies([done[worker].dequeue()]):
                    self._pull[key] = value.read_value()
            self._begin = tf.global_variables_initializer()
        self._session = tf.Session(cluster.target("worker", worker), graph=graph, config=CONFIG)
        if worker == 0:
            self._session.run(self._begin)

    def push(self, key: str, gradient: Any) -> None:
        self._session.run(self._push[key], {self._fed[key]: gradient})

    def pull(self, key: str) -> Any:
        """The value; in step: of the round that the last push belongs to."""
        return self._session.run(self._pull[key])


def gradient(weights: Any, worker: int, step: int) -> tuple[float, Any]:
    """The loss of a worker's batch, and its gradient."""
    rng = np.random.default_rng([worker, step])
    truth = np.linspace(-1, 1, SIZE, dtype=np.float32)
    x = rng.normal(size=(8, SIZE)).astype(np.float32)
    errors = x @ (weights - truth)
    return float(np.mean(errors**2)), x.T @ errors / len(x)


def trained(kind: str, steps: int) -> tuple[Any, list[float]]:
    """The weights that all workers arrive at, and the losses of the first."""
    losses: list[float] = []
    finished: list[Any] = []
    with local_cluster(server=1, worker=WORKERS) as cluster:
        stores = [KeyValueStore(cluster, worker, kind, {"weights": [SIZE]}) for worker in range(WORKERS)]

        def work(worker: int) -> None:
            weights: Any = np.zeros(SIZE, np.float32)
            for step in range(steps):
                loss, direction = gradient(weights, worker, step)
                stores[worker].push("weights", direction)
                weights = stores[worker].pull("weights")
                if worker == 0:
                    losses.append(loss)
            finished.append(weights)

        threads = [threading.Thread(target=work, args=(worker,)) for worker in range(WORKERS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(120)
    assert len(finished) == WORKERS, "a worker failed, or waits"
    return finished[-1], losses


def in_one_process(steps: int) -> Any:
    """What steps with the mean of all workers' gradients arrive at."""
    weights = np.zeros(SIZE, np.float32)
    for step in range(steps):
        weights = weights - np.float32(RATE) * np.mean([gradient(weights, w, step)[1] for w in range(WORKERS)], axis=0)
    return weights


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="Trains by pushing and pulling.")
    parser.add_argument("--draw", type=Path, help="where to draw the figure")
    parser.add_argument("--steps", type=int, default=40)
    chosen = parser.parse_args(arguments)
    curves = {}
    for kind in ("sync", "async"):
        weights, losses = trained(kind, chosen.steps)
        off = np.abs(weights - in_one_process(chosen.steps)).max()
        print(f"{kind:5} loss {losses[0]:.4f} -> {losses[-1]:.6f}; largest difference to one process {off:.1e}")
        curves[kind] = list(enumerate(losses))
    if chosen.draw:
        draw_curves(chosen.draw, curves, f"push and pull, {WORKERS} workers", "loss", "steps of a worker")


if __name__ == "__main__":
    main()
