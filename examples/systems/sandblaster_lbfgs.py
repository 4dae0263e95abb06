"""L-BFGS whose coordinator never sees a vector: DistBelief's Sandblaster (Dean et al., 2012, §4.2).

The parameters lie in shards on parameter servers, and so does everything that L-BFGS computes with: gradients,
directions, the history. The coordinator knows vectors by number only. It says "number 3 is number 1 plus 0.5 times
number 2" or "the product of numbers 1 and 2", each shard does its part, and what comes back is a scalar. Workers take
small portions of the data, as many as they can do: a slow one does fewer. So the coordinator's traffic does not depend
on the size of the model.

    python examples/systems/sandblaster_lbfgs.py [--draw sandblaster_lbfgs.svg]
"""

from __future__ import annotations

import argparse
import queue
import threading
from pathlib import Path
from typing import Any

import numpy as np

import anabranch as tf
from anabranch.testing.local_cluster import LocalCluster, local_cluster
from anabranch.tools.demo.curves import draw_curves

SHARDS, WORKERS, PORTIONS, HISTORY = 2, 2, 6, 5
#: the numbers of vectors: parameters, gradient, those before, the direction; from `PAIRS` on the history
X, G, X0, G0, D = range(5)
PAIRS = 5
CONFIG = tf.ConfigProto(operation_timeout_in_ms=60_000)


class Shards:
    """Vectors by number, in shards on parameter servers, and what can be asked of them."""

    def __init__(self, cluster: LocalCluster, size: int) -> None:
        self.variables, dots, moves = [], [], []
        self.a, self.b, self.to = (tf.placeholder(tf.int32, [], name) for name in ("a", "b", "to"))
        self.p, self.q = tf.placeholder(tf.float64, [], "p"), tf.placeholder(tf.float64, [], "q")
        for shard in range(SHARDS):
            with tf.device(f"/job:ps/task:{shard}"):
                vectors = tf.Variable(np.zeros((PAIRS + 2 * HISTORY, size // SHARDS)), name=f"vectors_{shard}")
                self.variables.append(vectors)
                first, second = (tf.gather(vectors, number) for number in (self.a, self.b))
                dots.append(tf.reduce_sum(first * second))
                moves.append(tf.scatter_update(vectors, self.to, self.p * first + self.q * second).op)
        self._dot, self._combine = tf.add_n(dots), tf.group(*moves)
        self.cluster, self.session, self.bytes = cluster, tf.Session(cluster.target("coordinator"), config=CONFIG), 0

    def _run(self, fetch: Any, feeds: dict[Any, Any]) -> Any:
        before = self.cluster.bytes_carried
        value = self.session.run(fetch, feeds)
        self.bytes += self.cluster.bytes_carried - before
        return value

    def dot(self, a: int, b: int) -> float:
        return float(self._run(self._dot, {self.a: a, self.b: b}))

    def combine(self, to: int, p: float, a: int, q: float = 0.0, b: int = X) -> None:
        """Vector `to` becomes p times vector a plus q times vector b."""
        self._run(self._combine, {self.to: to, self.p: p, self.a: a, self.q: q, self.b: b})


class Workers:
    """They add losses and gradients of portions of the data: a softmax regression, with a little weight decay."""

    def __init__(self, shards: Shards, cluster: LocalCluster, images: Any, labels: Any, classes: int) -> None:
        self._portions = np.array_split(np.arange(len(images)), PORTIONS)
        self.done = [0] * WORKERS
        self._clear = (
            shards.session,
            tf.group(*(tf.scatter_update(v, G, tf.zeros_like(v[G])) for v in shards.variables)),
        )
        self._own = []
        for worker in range(WORKERS):
            with tf.device(f"/job:worker/task:{worker}"):
                portion = tf.placeholder(tf.int32, [None])
                x, y = tf.gather(tf.constant(images), portion), tf.gather(tf.constant(labels), portion)
                parts = [tf.gather(v, X) for v in shards.variables]
                weights = tf.reshape(tf.concat(parts, 0), [images.shape[1], classes])
                errors = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=y, logits=tf.matmul(x, weights))
                decay = 0.5e-3 * tf.reduce_sum(tf.square(weights)) / PORTIONS
                loss = tf.reduce_sum(errors) / len(images) + decay
                gradients = tf.gradients(loss, parts)
            adds = [tf.scatter_add(v, G, g).op for v, g in zip(shards.variables, gradients, strict=True)]
            session = tf.Session(cluster.target("worker", worker), config=CONFIG)
            self._own.append((session, portion, loss, tf.group(*adds)))

    def evaluate(self) -> float:
        """Puts the gradient at X into G; returns the loss."""
        session, clear = self._clear
        session.run(clear)
        left: queue.SimpleQueue[Any] = queue.SimpleQueue()
        for portion in self._portions:
            left.put(portion)
        losses: list[float] = []
        threads = [threading.Thread(target=self._work, args=(worker, left, losses)) for worker in range(WORKERS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(losses) == PORTIONS, "a worker failed"
        return sum(losses)

    def _work(self, worker: int, left: queue.SimpleQueue[Any], losses: list[float]) -> None:
        session, portion, loss, add = self._own[worker]
        while True:
            try:
                rows = left.get_nowait()
            except queue.Empty:
                return
            losses.append(float(session.run([loss, add], {portion: rows})[0]))
            self.done[worker] += 1


def coordinate(shards: Shards, workers: Workers, iterations: int) -> list[float]:
    """L-BFGS; returns the losses."""
    loss = workers.evaluate()
    losses, pairs = [loss], list[tuple[int, int, float]]()
    for iteration in range(iterations):
        # the two loops of Nocedal (1980): D becomes the direction
        shards.combine(D, -1.0, G)
        factors = []
        for s, y, rho in reversed(pairs):
            factors.append(rho * shards.dot(s, D))
            shards.combine(D, 1.0, D, -factors[-1], y)
        if pairs:
            s, y, rho = pairs[-1]
            shards.combine(D, 1.0 / (rho * shards.dot(y, y)), D)
        for (s, y, rho), factor in zip(pairs, reversed(factors), strict=True):
            shards.combine(D, 1.0, D, factor - rho * shards.dot(y, D), s)
        shards.combine(X0, 1.0, X)
        shards.combine(G0, 1.0, G)
        slope, length, before = shards.dot(D, G), 1.0, loss
        while True:
            shards.combine(X, 1.0, X0, length, D)
            loss = workers.evaluate()
            if loss <= before + 1e-4 * length * slope or length < 1e-6:
                break
            length /= 2
        losses.append(loss)
        s = PAIRS + 2 * (iteration % HISTORY)
        shards.combine(s, 1.0, X, -1.0, X0)
        shards.combine(s + 1, 1.0, G, -1.0, G0)
        curvature = shards.dot(s, s + 1)
        if curvature > 1e-12:
            pairs = [*(pair for pair in pairs if pair[0] != s), (s, s + 1, 1.0 / curvature)]
    return losses


def train(features: int, iterations: int, classes: int = 4) -> tuple[list[float], float, list[int]]:
    """Trains; returns the losses, the coordinator's bytes per iteration, and how many portions each worker did."""
    rng = np.random.default_rng(2)
    labels = rng.integers(0, classes, 300).astype(np.int32)
    images = rng.normal(size=(classes, features))[labels] * 0.3 + rng.normal(size=(300, features))
    with local_cluster(ps=SHARDS, worker=WORKERS, coordinator=1) as cluster, tf.Graph().as_default():
        shards = Shards(cluster, features * classes)
        workers = Workers(shards, cluster, images, labels, classes)
        shards.session.run(tf.global_variables_initializer())
        losses = coordinate(shards, workers, iterations)
        return losses, shards.bytes / iterations, workers.done


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="Trains by L-BFGS whose vectors stay in shards.")
    parser.add_argument("--draw", type=Path, help="where to draw the figure")
    parser.add_argument("--iterations", type=int, default=12)
    parser.add_argument("--features", type=int, nargs="+", default=[16, 1024])
    chosen = parser.parse_args(arguments)
    curves = {}
    for features in chosen.features:
        losses, sent, done = train(features, chosen.iterations)
        print(
            f"{4 * features:5} parameters: loss {losses[0]:.4f} -> {losses[-1]:.4f}; "
            f"the coordinator's messages {sent / 1000:.1f} kB an iteration; portions by worker {done}"
        )
        curves[f"{4 * features} parameters"] = list(enumerate(losses))
    if chosen.draw:
        draw_curves(chosen.draw, curves, "Sandblaster L-BFGS", "loss", "iteration")


if __name__ == "__main__":
    main()
