"""Worker: null steps on parameter servers (§6.2): a worker fetches the model, computes next to nothing, and updates it.

The parameter servers are processes of the same system on this machine.
"""

from __future__ import annotations

import json
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np

ROWS, WIDTH = 32, 64
#: bytes of the dense model
DENSE = 100_000_000
#: bytes of the tables of sparse steps
TABLES = {"16 MB": 16 << 20, "1 GB": 1 << 30}
SERVERS = (1, 4, 16)


def main(tf: Any, system: str) -> dict[str, float]:
    times: dict[str, float] = {}
    for count in SERVERS:
        addresses = {"ps": [f"localhost:{free_port()}" for _ in range(count)], "worker": [f"localhost:{free_port()}"]}
        command = [sys.executable, __file__, system, json.dumps(addresses)]
        tasks = [subprocess.Popen([*command, str(index)], stdout=subprocess.PIPE) for index in range(count)]
        try:
            for task in tasks:
                assert task.stdout is not None
                task.stdout.readline()
            worker = tf.train.Server(addresses, "worker", 0)
            times |= {f"{name}, {count} PS": value for name, value in steps(tf, worker.target, count).items()}
        finally:
            for task in tasks:
                task.kill()
                task.wait()
    return times


def steps(tf: Any, target: str, count: int) -> dict[str, float]:
    times = {}
    with tf.Graph().as_default():
        times["scalar"] = seconds(tf, target, dense_step(tf, count, 1), 300)
    if count > 4:  # more would measure how processes share the cores of one machine
        return times
    with tf.Graph().as_default():
        times["dense 100 MB"] = seconds(tf, target, dense_step(tf, count, DENSE // 4 // count), 10)
    for label, size in TABLES.items() if count == 1 else list(TABLES.items())[:1]:
        with tf.Graph().as_default():
            times[f"32 rows of {label}"] = seconds(tf, target, sparse_step(tf, count, size), 200)
    return times


def dense_step(tf: Any, count: int, elements: int) -> Any:
    updates = []
    for index in range(count):
        with tf.device(f"/job:ps/task:{index}"):
            variable = tf.get_variable(f"v{index}", [elements], initializer=tf.zeros_initializer(), use_resource=True)
        with tf.device("/job:worker/task:0"):
            gradient = variable.read_value() * 0.5
        updates.append(variable.assign_sub(gradient).op)
    return tf.group(*updates)


def sparse_step(tf: Any, count: int, size: int) -> Any:
    updates = []
    rows = size // 4 // WIDTH // count
    indices = np.random.default_rng(0).integers(0, rows, ROWS).astype(np.int32)
    for index in range(count):
        with tf.device(f"/job:ps/task:{index}"):
            table = tf.get_variable(f"t{index}", [rows, WIDTH], initializer=tf.zeros_initializer(), use_resource=True)
            taken = tf.gather(table, indices)
        with tf.device("/job:worker/task:0"):
            gradient = taken * 0.5
        with tf.device(f"/job:ps/task:{index}"):
            updates.append(tf.raw_ops.ResourceScatterSub(resource=table.handle, indices=indices, updates=gradient))
    return tf.group(*updates)


def seconds(tf: Any, target: str, step: Any, repeats: int) -> float:
    """The median time of a step."""
    with tf.Session(target) as session:
        session.run(tf.global_variables_initializer())
        # as programs do that care for speed: nothing is looked up for a step
        run: Callable[[], Any] = session.make_callable(step)
        for _ in range(max(repeats // 5, 3)):
            run()
        times = []
        for _ in range(repeats):
            start = time.perf_counter()
            run()
            times.append(time.perf_counter() - start)
    return statistics.median(times)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


if __name__ == "__main__":
    if sys.argv[1] == "anabranch":
        import anabranch as tf
    else:
        import tensorflow.compat.v1 as tf

        tf.disable_v2_behavior()
    if len(sys.argv) > 2:
        server = tf.train.Server(json.loads(sys.argv[2]), "ps", int(sys.argv[3]))
        print("ready", flush=True)
        server.join()
    print(json.dumps(main(tf, sys.argv[1])))
