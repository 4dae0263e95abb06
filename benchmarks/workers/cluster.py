"""Worker: null steps on parameter servers (§6.2): a worker fetches the model, computes next to nothing, and updates it.

Beside them steps that train: look-ups of ids in a table that is dealt out to the servers, of which each has another
number of the rows in every step.

The parameter servers are processes of the same system on this machine. `python cluster.py SYSTEM COUNT`: so many of
them. Beside the time that a step takes, it is said what processor time it takes in all of these processes, which other
work on the machine changes less; and what memory the servers hold.
"""

from __future__ import annotations

import json
import os
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

#: draws the values of a step's feeds
Draw: TypeAlias = Callable[[], Sequence[Any]]

ROWS, WIDTH = 32, 64
#: bytes of the dense model
DENSE = 100_000_000
#: bytes of the tables of sparse steps
TABLES = {"16 MB": 16 << 20, "1 GB": 1 << 30}
#: of steps that look rows up: rows of the table, numbers in each; ids of a step, and how many there are to draw from
EMBEDDINGS, EMBEDDING_WIDTH, IDS, IDS_BELOW = 100_000, 32, 64, 1000
#: with more, the processes wait for each other's cores most of the time
MOST_SERVERS_OF_EMBEDDINGS = 4
#: how the measurements of processor time and of memory begin; all others are times of a step
PROCESSOR, MEMORY = "processor time, ", "memory, "
#: what must be left of the machine's memory when another server starts, so that it cannot be what ends others
SPARE = 2 << 30
_TICKS = os.sysconf("SC_CLK_TCK")
#: what keeps ports free: bound, but not listening
_held: list[socket.socket] = []


def main(tf: Any, system: str, count: int) -> dict[str, float]:
    addresses = {"ps": [f"localhost:{free_port()}" for _ in range(count)], "worker": [f"localhost:{free_port()}"]}
    with servers([sys.executable, __file__, system, str(count), json.dumps(addresses)], count) as pids:
        worker = tf.train.Server(addresses, "worker", 0)
        measured = steps(tf, worker.target, count, pids)
        measured["memory, all PS"] = float(sum(map(resident_bytes, pids)))
    return {f"{name}, {count} PS": value for name, value in measured.items()}


@contextmanager
def servers(command: Sequence[str], count: int) -> Iterator[list[int]]:
    """So many processes that have said that they are ready; their numbers.

    Raises:
        MemoryError: the machine has no memory for another.
        RuntimeError: one ended before it was ready.
    """
    started: list[subprocess.Popen[bytes]] = []
    try:
        for index in range(count):
            if available_bytes() < SPARE:
                raise MemoryError(f"{index} of {count} servers run, and less than {SPARE >> 20} MB of memory are left")
            started.append(subprocess.Popen([*command, str(index)], stdout=subprocess.PIPE))
            # one after the other, so that what is left is known
            assert started[-1].stdout is not None
            if not started[-1].stdout.readline():
                raise RuntimeError(f"server {index} ended, with status {started[-1].wait()}, before it was ready")
        yield [process.pid for process in started]
    finally:
        for process in started:
            process.kill()
            process.wait()


def available_bytes() -> int:
    """What is left of the machine's memory."""
    lines = Path("/proc/meminfo").read_text().splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith("MemAvailable:"))


def resident_bytes(pid: int) -> int:
    """What a process holds of it."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def processor_seconds(pid: int) -> float:
    """Processor seconds of a process."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


def steps(tf: Any, target: str, count: int, pids: Sequence[int]) -> dict[str, float]:
    """What steps take on so many parameter servers, which are these processes."""
    measured: dict[str, float] = {}

    def measure(name: str, step: Any, repeats: int, feeds: Sequence[Any] = (), draw: Draw = tuple) -> None:
        measured[name], measured[PROCESSOR + name] = seconds(tf, target, step, repeats, pids, feeds, draw)

    with tf.Graph().as_default():
        measure("scalar", dense_step(tf, count, 1), 1000)
    with tf.Graph().as_default():
        measure("dense 100 MB", dense_step(tf, count, DENSE // 4 // count), 10)
    for label, size in TABLES.items() if count == 1 else list(TABLES.items())[:1]:
        with tf.Graph().as_default():
            measure(f"32 rows of {label}", sparse_step(tf, count, size), 1000)
    if count <= MOST_SERVERS_OF_EMBEDDINGS:
        with tf.Graph().as_default():
            step, feeds = embedding_step(tf, count)
            measure(f"{IDS} ids looked up, Adagrad", step, 1000, feeds, examples(np.random.default_rng(0)))
    return measured


def embedding_step(tf: Any, count: int) -> tuple[Any, list[Any]]:
    """A training step with Adagrad on a table in as many parts as there are servers; what it fetches, and is fed."""
    cluster = tf.train.ClusterSpec({"ps": [f"localhost:{port}" for port in range(1, count + 1)], "worker": ["here:1"]})
    with tf.device(tf.train.replica_device_setter(cluster=cluster)):
        parts = tf.fixed_size_partitioner(count)
        shape = [EMBEDDINGS, EMBEDDING_WIDTH]
        table = tf.get_variable("table", shape, partitioner=parts, use_resource=True)
        weights = tf.get_variable("weights", [EMBEDDING_WIDTH, 1], use_resource=True)
        ids = tf.placeholder(tf.int64, [IDS])
        labels = tf.placeholder(tf.float32, [IDS, 1])
        predictions = tf.matmul(tf.nn.embedding_lookup(table, ids), weights)
        loss = tf.reduce_mean(tf.square(predictions - labels))
        train = tf.train.AdagradOptimizer(0.1).minimize(loss)
    return [loss, train], [ids, labels]


def examples(random: np.random.Generator) -> Draw:
    """Draws ids, and a label for each."""

    def draw() -> tuple[Any, Any]:
        ids = random.integers(0, IDS_BELOW, IDS)
        return ids, (ids[:, None] % 2).astype(np.float32)

    return draw


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
    for index in range(count):
        with tf.device(f"/job:ps/task:{index}"):
            table = tf.get_variable(f"t{index}", [rows, WIDTH], initializer=tf.zeros_initializer(), use_resource=True)
        with tf.device("/job:worker/task:0"):
            # others in each step, as a worker's examples have
            indices = tf.random.uniform([ROWS], 0, rows, tf.int32)
        with tf.device(f"/job:ps/task:{index}"):
            taken = tf.gather(table, indices)
        with tf.device("/job:worker/task:0"):
            gradient = taken * 0.5
        with tf.device(f"/job:ps/task:{index}"):
            updates.append(tf.raw_ops.ResourceScatterSub(resource=table.handle, indices=indices, updates=gradient))
    return tf.group(*updates)


def seconds(
    tf: Any, target: str, step: Any, repeats: int, pids: Sequence[int], feeds: Sequence[Any], draw: Draw
) -> tuple[float, float]:
    """The median time of a step, and its processor time, on average, in this process and the others.

    Args:
        feeds: what is fed.
        draw: gives new values for it.
    """

    def processor() -> float:
        return time.process_time() + sum(map(processor_seconds, pids))

    with tf.Session(target) as session:
        session.run(tf.global_variables_initializer())
        # as programs do that care for speed: nothing is looked up for a step
        run: Callable[..., Any] = session.make_callable(step, list(feeds))
        for _ in range(max(repeats // 5, 3)):
            run(*draw())
        times = []
        before = processor()
        for _ in range(repeats):
            values = draw()
            start = time.perf_counter()
            run(*values)
            times.append(time.perf_counter() - start)
        used = processor() - before
    return statistics.median(times), used / repeats


def free_port() -> int:
    """A port of this machine, which the system gives to nobody else while this process runs.

    Sixteen servers start one after the other, and connect to each other meanwhile: a port that was only looked up may
    be the source of such a connection when its server's turn comes.
    """
    held = socket.socket()
    held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    held.bind(("127.0.0.1", 0))
    _held.append(held)
    port: int = held.getsockname()[1]
    return port


if __name__ == "__main__":
    if sys.argv[1] == "anabranch":
        import anabranch as tf
    else:
        import tensorflow.compat.v1 as tf

        tf.disable_v2_behavior()
    if len(sys.argv) > 3:
        server = tf.train.Server(json.loads(sys.argv[3]), "ps", int(sys.argv[4]))
        print("ready", flush=True)
        server.join()
    print(json.dumps(main(tf, sys.argv[1], int(sys.argv[2]))))
