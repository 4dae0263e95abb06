"""Three ways to train together: synchronous steps, averages every τ steps (SparkNet), and Downpour SGD (DistBelief).

Each worker trains on batches of its own. In synchronous steps (§4.4) all hand in each gradient and wait for the mean;
in SparkNet (Moritz et al., 2016) each trains a copy, and the copies are averaged every τ steps; in Downpour SGD (Dean
et al., 2012) each fetches the parameters and pushes sums of gradients every few steps, and waits for nobody. What
differs is one line. Shown is the loss after as many examples, and what went between the tasks for that.

    python examples/systems/replica_training.py [--draw replica_training.svg]
"""

from __future__ import annotations

import argparse
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import anabranch as tf
from anabranch.testing.local_cluster import LocalCluster, local_cluster
from anabranch.tools.demo.curves import draw_curves

WORKERS, FEATURES, BATCH = 2, 1024, 64
replicas = tf.train.replicas


def gradient_descent() -> Any:
    return tf.train.GradientDescentOptimizer(0.03)


WAYS: dict[str, Callable[[], Any]] = {
    "synchronous": lambda: replicas.synchronous(gradient_descent(), aggregate=WORKERS),
    "averaging, τ = 5": lambda: replicas.averaging(gradient_descent(), every=5, workers=WORKERS),
    "averaging, τ = 20": lambda: replicas.averaging(gradient_descent(), every=20, workers=WORKERS),
    "downpour, 5": lambda: replicas.downpour(tf.train.AdagradOptimizer(0.02), 5, 5, gradient_descent()),
}


def batches(worker: int) -> Any:
    """A worker's batches of a noisy linear problem."""
    truth = np.random.default_rng(0).normal(size=(FEATURES, 1)) / FEATURES**0.5
    rng = np.random.default_rng(worker + 1)
    while True:
        x = rng.normal(size=(BATCH, FEATURES))
        yield x.astype(np.float32), (x @ truth + rng.normal(0, 0.1, (BATCH, 1))).astype(np.float32)


class Worker:
    """A worker's graph, and its training."""

    def __init__(self, cluster: LocalCluster, index: int, make: Callable[[], Any]) -> None:
        self.cluster, self.index, self.graph = cluster, index, tf.Graph()
        setter = tf.train.replica_device_setter(1, worker_device=f"/job:worker/task:{index}")
        with self.graph.as_default(), tf.device(setter):
            self.optimizer = make()
            self.x = tf.placeholder(tf.float32, [None, FEATURES])
            self.y = tf.placeholder(tf.float32, [None, 1])
            self.step = tf.train.get_or_create_global_step()
            # a worker with a copy of its own trains that; the shared variable has the name without it
            copies = getattr(self.optimizer, "local_copies", None)
            with copies() if copies is not None else tf.name_scope("model"):
                weights = tf.get_variable("weights", [FEATURES, 1], initializer=tf.zeros_initializer())
            self.shared = next(v for v in tf.global_variables() if v.op.name == "weights")
            loss = tf.reduce_mean(tf.square(tf.matmul(self.x, weights) - self.y))
            self.train = self.optimizer.minimize(loss, self.step)
            self.shared_value = self.shared.read_value()

    def run(self, steps: int, on_step: Callable[[int, Any], None], ended: threading.Barrier) -> None:
        """Trains; `on_step` gets the shared weights every twenty steps. Nobody leaves before all have `ended`."""
        chief = self.index == 0
        hook = self.optimizer.make_session_run_hook(chief)
        config = tf.ConfigProto(operation_timeout_in_ms=60_000)
        target = self.cluster.target("worker", self.index)
        with (
            self.graph.as_default(),
            tf.train.MonitoredTrainingSession(target, chief, hooks=[hook], config=config) as session,
        ):
            for step, (x, y) in zip(range(steps), batches(self.index), strict=False):
                session.run(self.train, {self.x: x, self.y: y})
                if (step + 1) % 20 == 0:
                    on_step(
                        step + 1, session.run_step_fn(lambda step_context: step_context.session.run(self.shared_value))
                    )
            ended.wait(60)


def trained(make: Callable[[], Any], steps: int) -> tuple[list[tuple[float, float]], float]:
    """Losses on other examples by steps of the first worker, and bytes between tasks per step of a worker."""
    x, y = (
        np.concatenate(parts) for parts in zip(*(b for b, _ in zip(batches(99), range(4), strict=False)), strict=True)
    )
    losses = list[tuple[float, float]]()

    def on_step(step: int, weights: Any) -> None:
        losses.append((step, float(np.mean(np.square(x @ weights - y)))))

    with local_cluster(ps=1, worker=WORKERS) as cluster:
        workers = [Worker(cluster, index, make) for index in range(WORKERS)]
        ended = threading.Barrier(WORKERS)
        threads = [
            threading.Thread(target=worker.run, args=(steps, on_step if worker.index == 0 else lambda *_: None, ended))
            for worker in workers
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(120)
        assert not any(thread.is_alive() for thread in threads), "a worker waits"
        # the client is a task of its own here: its batches travel as well, and are no part of the comparison
        return losses, cluster.bytes_carried / (steps * WORKERS) - 4 * BATCH * (FEATURES + 1)


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="Trains by synchronous steps, averages and Downpour SGD.")
    parser.add_argument("--draw", type=Path, help="where to draw the figure")
    parser.add_argument("--steps", type=int, default=200, help="of each worker; a multiple of 20")
    parser.add_argument("--ways", nargs="+", default=[*WAYS], choices=[*WAYS])
    chosen = parser.parse_args(arguments)
    curves = {}
    for name in chosen.ways:
        losses, sent = trained(WAYS[name], chosen.steps)
        assert losses, f"no losses of {name}"
        print(f"{name:18} loss {losses[0][1]:.4f} -> {losses[-1][1]:.4f}; {sent / 1000:.1f} kB a step and worker")
        curves[name] = losses
    if chosen.draw:
        draw_curves(chosen.draw, curves, f"{WORKERS} workers", "loss", "steps of a worker")


if __name__ == "__main__":
    main()
