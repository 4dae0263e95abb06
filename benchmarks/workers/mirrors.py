"""Worker: what it costs that two parameter servers have what a step has changed (s); steps of a worker, asynchronous.

Two parameter servers in processes of their own. Plain and mirrored steps take turns, and each figure is the median.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

import anabranch as tf
from benchmarks.workers.cluster import free_port

ROWS, WIDTH = 32, 64
TURNS = 5


@contextmanager
def prepared(target: str, build: Callable[[], Any]) -> Iterator[dict[str, Callable[[], Any]]]:
    """A plain and a mirrored step of one model, ready to be run again and again."""
    with tf.Graph().as_default(), tempfile.TemporaryDirectory() as folder:
        with tf.device(tf.train.replica_device_setter(2, worker_device="/job:worker/task:0")):
            step, loss = tf.train.get_or_create_global_step(), build()
            plain = tf.train.AdagradOptimizer(0.1).minimize(loss, step)
            mirrored = tf.train.replicas.mirrored(tf.train.AdagradOptimizer(0.1)).minimize(loss, step)
        # one that gives the mirrors their values; then a plain one, whose steps have nothing beside them
        with (
            tf.train.MonitoredTrainingSession(
                target, True, folder, save_checkpoint_secs="auto", log_step_count_steps=None, save_summaries_steps=None
            ),
            tf.Session(target) as session,
        ):
            yield {"plain": session.make_callable(plain), "mirrored": session.make_callable(mirrored)}


def dense(elements: int) -> Callable[[], Any]:
    def build() -> Any:
        parts = [tf.get_variable(f"v{i}", [elements // 2], initializer=tf.zeros_initializer()) for i in range(2)]
        return tf.add_n([tf.reduce_sum(part) for part in parts])

    return build


def sparse(size: int) -> Callable[[], Any]:
    def build() -> Any:
        rows = size // 4 // WIDTH // 2
        indices = np.random.default_rng(0).integers(0, rows, ROWS // 2).astype(np.int32)
        tables = [tf.get_variable(f"t{i}", [rows, WIDTH], initializer=tf.zeros_initializer()) for i in range(2)]
        return tf.add_n([tf.reduce_sum(tf.gather(table, indices)) for table in tables])

    return build


def main(target: str) -> dict[str, float]:
    figures: dict[str, float] = {}
    for label, build, repeats in (
        ("scalars", dense(2), 60),
        ("4 MB", dense(1 << 20), 20),
        ("100 MB", dense(25_000_000), 4),
        ("32 rows of 16 MB", sparse(16 << 20), 60),
        ("32 rows of 256 MB", sparse(256 << 20), 60),
    ):
        times: dict[str, list[float]] = {"plain": [], "mirrored": []}
        with prepared(target, build) as ways:
            for turn in range(TURNS + 1):
                for way, run in ways.items():
                    for _ in range(repeats):
                        start = time.perf_counter()
                        run()
                        if turn:
                            times[way].append(time.perf_counter() - start)
        figures |= {f"{label}, {way}": statistics.median(taken) for way, taken in times.items()}
    return figures


def with_servers() -> dict[str, float]:
    addresses = {"ps": [f"localhost:{free_port()}" for _ in range(2)], "worker": [f"localhost:{free_port()}"]}
    command = [sys.executable, __file__, "anabranch", json.dumps(addresses)]
    tasks = [subprocess.Popen([*command, str(index)], stdout=subprocess.PIPE) for index in range(2)]
    try:
        for task in tasks:
            assert task.stdout is not None
            if not task.stdout.readline():
                raise RuntimeError(f"a server ended, with status {task.wait()}, before it was ready")
        return main(tf.train.Server(addresses, "worker", 0).target)
    finally:
        for task in tasks:
            task.kill()
            task.wait()


if __name__ == "__main__":
    if len(sys.argv) > 2:
        server = tf.train.Server(json.loads(sys.argv[2]), "ps", int(sys.argv[3]))
        print("ready", flush=True)
        server.join()
    print(json.dumps(with_servers()))
