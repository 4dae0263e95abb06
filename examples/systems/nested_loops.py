"""A loop in a loop over several tasks, as in Naiad (Murray et al., 2013): each task has its part of the body.

Ranks of the pages of a small web: the inner loop iterates until they change no more, the outer one goes through several
damping factors, each from the ranks of the last. The links are in two halves on two tasks; what goes around travels
between them in each iteration, with control loops that tell each task whether there is another (§3.4). One process
gives the same, to the last bit and iteration.

    python examples/systems/nested_loops.py [--draw nested_loops.svg]
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np

import anabranch as tf
from anabranch.testing.local_cluster import local_cluster
from anabranch.tools.demo.curves import draw_curves

PAGES = 40
DAMPING = (0.5, 0.7, 0.85, 0.95)
TASKS = ("/job:worker/task:0", "/job:worker/task:1")


def web() -> Any:
    """A matrix of transitions: column j has 1 / n at each of the n pages that page j links to."""
    rng = np.random.default_rng(4)
    links = (rng.random((PAGES, PAGES)) < 0.1) | np.roll(np.eye(PAGES, dtype=bool), 1, axis=0)
    return (links / links.sum(axis=0)).astype(np.float32)


def ranked(tasks: tuple[str, ...]) -> tuple[Any, Any]:
    """The ranks after each damping factor, [factors, pages], and how many iterations each took, [factors]."""
    halves = []
    for task, half in zip(tasks, np.split(web(), len(tasks)), strict=True):
        with tf.device(task):
            halves.append(tf.constant(half, name="links"))
    factors = tf.constant(DAMPING)

    def iterate(ranks: Any, change: Any, count: Any, factor: Any) -> Any:
        parts = []
        for task, half in zip(tasks, halves, strict=True):
            with tf.device(task):
                parts.append(factor * tf.reduce_sum(half * ranks, axis=1) + (1 - factor) / PAGES)
        with tf.device(tasks[0]):
            following = tf.concat(parts, 0)
            return following, tf.reduce_sum(tf.abs(following - ranks)), count + 1, factor

    def outer(number: Any, ranks: Any, results: Any, counts: Any) -> Any:
        begin = (ranks, tf.constant(1.0), tf.constant(0), factors[number])
        ranks, _, count, _ = tf.while_loop(lambda ranks, change, count, factor: change > 1e-5, iterate, begin)
        return number + 1, ranks, results.write(number, ranks), counts.write(number, count)

    with tf.device(tasks[0]):
        arrays = [tf.TensorArray(dtype, size=len(DAMPING)) for dtype in (tf.float32, tf.int32)]
        start = (tf.constant(0), tf.fill([PAGES], 1.0 / PAGES), *arrays)
        _, _, results, counts = tf.while_loop(lambda number, *_: number < len(DAMPING), outer, start)
        return results.stack(), counts.stack()


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="Runs nested loops over two tasks.")
    parser.add_argument("--draw", type=Path, help="where to draw the figure")
    chosen = parser.parse_args(arguments)
    with tf.Graph().as_default():
        results = ranked(("/cpu:0", "/cpu:0"))
        with tf.Session() as session:
            alone, iterations = session.run(results)
    with local_cluster(worker=2) as cluster, tf.Graph().as_default():
        results = ranked(TASKS)
        with tf.Session(cluster.target("worker", 0), config=tf.ConfigProto(operation_timeout_in_ms=60_000)) as session:
            session.run(results)
            before = cluster.messages
            apart, counts = session.run(results)
            messages = cluster.messages - before
    for factor, count, ranks in zip(DAMPING, counts, apart, strict=True):
        print(f"damping {factor:.2f}: {count:3} iterations, the first page has {ranks.max():.4f}")
    print(
        f"{sum(counts)} iterations in {messages} messages; iterations as in one process: {[*counts] == [*iterations]}"
    )
    print(f"largest difference to one process: {np.abs(apart - alone).max():.2g}")
    if chosen.draw:
        curves = {f"damping {f:.2f}": list(enumerate(np.sort(r)[::-1])) for f, r in zip(DAMPING, apart, strict=True)}
        draw_curves(chosen.draw, curves, "ranks of pages", "rank", "page")


if __name__ == "__main__":
    main()
