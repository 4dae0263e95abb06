"""Worker: clusters over time: many workers at once, killed tasks, ten thousand steps, large graphs.

All tasks are processes of this machine. `python cluster_life.py anabranch PART [SIZE]`; parts are the keys of `PARTS`,
sizes those of `SIZES`.
"""

from __future__ import annotations

import gc
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import anabranch as tf
from anabranch.distributed.local_plan import LocalPlan
from anabranch.distributed.supervisor import all_ready, task_program
from anabranch.distributed.task_engine import TaskEngine
from benchmarks.workers.cluster import dense_step, free_port, processor_seconds

#: a process holds so many workers
IN_A_PROCESS = 8
#: seconds of a wait that stands for computing: so long that 64 workers fit two cores
COMPUTE = 0.25
#: how long each number of workers trains
TRAINED = 5.0
CHAIN = 64
_DEADLINE = 300.0


class Size(NamedTuple):
    """How much is measured.

    Attributes:
        workers: numbers of them, the largest of which are started.
        steps: of the long run, after a tenth as many that are not counted.
        nodes: of the large graph.
    """

    workers: tuple[int, ...]
    steps: int
    nodes: int


#: small: to see that all parts run to their ends
SIZES = {"full": Size((1, 2, 4, 8, 16, 32, 64), 10_000, 36_000), "small": Size((1, 2, 8), 1_000, 3_000)}


@contextmanager
def processes(count: int, *arguments: str) -> Iterator[list[subprocess.Popen[str]]]:
    """So many processes of this script, which have said that they are ready."""
    pipes = {"stdout": subprocess.PIPE, "stdin": subprocess.PIPE}
    command = [sys.executable, __file__, *arguments]
    started = [subprocess.Popen([*command, str(index)], text=True, **pipes) for index in range(count)]
    try:
        for process in started:
            said(process)
        yield started
    finally:
        for process in started:
            process.kill()
            process.wait()


def said(process: subprocess.Popen[str]) -> Any:
    assert process.stdout is not None
    return json.loads(process.stdout.readline())


# ---------------------------------------------------------------------- many workers
def many_workers(size: Size) -> dict[str, float]:
    """How many steps they make of those that their waits allow, and the processor time (s) of one, servers included."""
    most = max(size.workers)
    addresses = {
        "ps": [f"localhost:{free_port()}" for _ in range(2)],
        "worker": [f"localhost:{free_port()}" for _ in range(most)],
    }
    text = json.dumps(addresses)
    rates = {}
    with processes(2, "serve", text) as servers, processes(most // IN_A_PROCESS, "train", text) as trainers:
        for count in size.workers:
            before = sum(processor_seconds(process.pid) for process in (*servers, *trainers))
            shares = [len(range(index, count, len(trainers))) for index in range(len(trainers))]
            for process, share in zip(trainers, shares, strict=True):
                assert process.stdin is not None
                process.stdin.write(f"{share}\n")
                process.stdin.flush()
            steps = sum(said(process) for process in trainers)
            used = sum(processor_seconds(process.pid) for process in (*servers, *trainers)) - before
            rates[f"{count} workers: of the steps that their waits allow"] = steps * COMPUTE / (TRAINED * count)
            rates[f"{count} workers: processor time of a step (s)"] = used / steps
    return rates


def serve(addresses: dict[str, list[str]], index: int) -> None:
    server = tf.train.Server(addresses, "ps", index)
    print(0, flush=True)
    server.join()


def train(addresses: dict[str, list[str]], index: int) -> None:
    """Workers of this process, of which as many train as each line of the input says."""
    own = [index * IN_A_PROCESS + number for number in range(IN_A_PROCESS)]
    servers = [tf.train.Server(addresses, "worker", task) for task in own]
    calls = [_waiting_step(server.target, task) for server, task in zip(servers, own, strict=True)]
    print(0, flush=True)
    for line in sys.stdin:
        counts = [0] * IN_A_PROCESS
        until = time.perf_counter() + TRAINED

        def run(number: int, counts: list[int] = counts, until: float = until) -> None:
            while time.perf_counter() < until:
                calls[number]()
                counts[number] += 1

        threads = [threading.Thread(target=run, args=(number,)) for number in range(int(line))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        print(sum(counts), flush=True)


def _waiting_step(target: str, task: int) -> Callable[[], Any]:
    """Reads a scalar of each parameter server, waits, and adds to both: two steps of a session."""
    with tf.Graph().as_default():
        variables = []
        for index in range(2):
            with tf.device(f"/job:ps/task:{index}"):
                variables.append(tf.get_variable(f"v{index}", initializer=0.0, use_resource=True))
        with tf.device(f"/job:worker/task:{task}"):
            read = tf.add_n([v.read_value() for v in variables])
            given = tf.placeholder(tf.float32, [])
            gradient = given * 0.5
        update = tf.group(*(v.assign_add(gradient).op for v in variables))
        config = tf.ConfigProto(device_filters=["/job:ps", f"/job:worker/task:{task}"])
        session = tf.Session(target, config=config)
        session.run(tf.global_variables_initializer())
        fetch, apply = session.make_callable(read), session.make_callable(update, [given])

    def call() -> None:
        fetch()
        time.sleep(COMPUTE)
        apply(np.float32(1))

    call()
    return call


# ---------------------------------------------------------------------- killed tasks
def recovery(_: Size) -> dict[str, float]:
    """Seconds from the kill of a task until a training session has run a step with the process that replaces it."""
    with tempfile.TemporaryDirectory() as folder, LocalPlan.of({"ps": 2, "worker": 2}) as plan:
        programs = [task_program(plan.spec, job, index, folder) for job, index, _ in plan.spec.tasks()]
        logs = Path(folder) / "logs"
        logs.mkdir()
        engine = plan.engine(programs, logs)
        engine.start()
        try:
            engine.wait(all_ready, _DEADLINE)
            return _killed(engine, f"grpc://{plan.spec.task_address('worker', 0)}", folder)
        finally:
            engine.close()


def _killed(engine: TaskEngine, target: str, folder: str) -> dict[str, float]:
    times: dict[str, float] = {}
    with tf.device(tf.train.replica_device_setter(2, worker_device="/job:worker/task:0")):
        step = tf.train.get_or_create_global_step()
        w = tf.get_variable("w", initializer=np.zeros(1000, np.float32), use_resource=True)
        more = tf.train.GradientDescentOptimizer(0.1).minimize(tf.reduce_sum(tf.square(w - 1.0)), step)
    with tf.train.MonitoredTrainingSession(
        target, True, folder, save_checkpoint_secs="auto", log_step_count_steps=None, save_summaries_steps=None
    ) as session:
        for name in ("worker/0", "ps/1", "ps/0"):
            for _ in range(20):
                session.run(more)
            before = next(status for status in engine.statuses() if status.name == name)
            assert before.pid is not None
            killed = time.perf_counter()
            os.kill(before.pid, 9)
            # the next step needs the task, and runs when it is back
            session.run(more)
            times[f"{name} killed, until the next step has run (s)"] = time.perf_counter() - killed
    return times


# ---------------------------------------------------------------------- thousands of steps
def many_steps(size: Size) -> dict[str, float]:
    """What grows in ten thousand steps after the first thousand, in the worker and in the parameter server."""
    addresses = {"ps": [f"localhost:{free_port()}"], "worker": [f"localhost:{free_port()}"]}
    grown: dict[str, float] = {}
    with processes(1, "serve", json.dumps(addresses)) as (server,), tf.train.Server(addresses, "worker", 0) as worker:
        step = dense_step(tf, 1, 1000)
        with tf.Session(worker.target) as session:
            session.run(tf.global_variables_initializer())
            call = session.make_callable(step)
            for _ in range(size.steps // 10):
                call()
            pids = {"worker": os.getpid(), "parameter server": server.pid}
            gc.collect()
            before = {name: _held(pid) for name, pid in pids.items()}
            start = time.perf_counter()
            for _ in range(size.steps):
                call()
            grown[f"{size.steps:,} steps (s)"] = time.perf_counter() - start
            gc.collect()
            for name, pid in pids.items():
                for what, value in _held(pid).items():
                    grown[f"{name}: {what} more"] = value - before[name][what]
    return grown


def _held(pid: int) -> dict[str, float]:
    folder = Path(f"/proc/{pid}")
    resident = int((folder / "statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    return {
        "MB": resident / 1e6,
        "threads": len(list((folder / "task").iterdir())),
        "descriptors": len(list((folder / "fd").iterdir())),
    }


# ---------------------------------------------------------------------- large graphs
def large_graph(size: Size) -> dict[str, float]:
    """Seconds to plan and register a step of many nodes on a parameter server, and to run it then."""
    addresses = {"ps": [f"localhost:{free_port()}"], "worker": [f"localhost:{free_port()}"]}
    with processes(1, "serve", json.dumps(addresses)), tf.train.Server(addresses, "worker", 0) as worker:
        with tf.device("/job:ps/task:0"):
            x = tf.placeholder(tf.float32, [8])
            # chains that differ, of five nodes for each element: nothing is pruned, and none stands for another
            chains = []
            for number in range(size.nodes // 5 // CHAIN):
                value = x * float(number)
                for _ in range(CHAIN):
                    value = tf.sin(value * 0.5 + 1.0)
                chains.append(value)
            last = tf.add_n(chains)
        nodes = len(tf.get_default_graph().get_operations())
        with tf.Session(worker.target) as session:
            start = time.perf_counter()
            call = session.make_callable(last, [x])
            prepared = time.perf_counter() - start
            start = time.perf_counter()
            call(np.ones(8, np.float32))
            first = time.perf_counter() - start
    return {f"{nodes} nodes: planned and registered (s)": prepared, f"{nodes} nodes: first run (s)": first}


PARTS: dict[str, Callable[[Size], dict[str, float]]] = {
    "workers": many_workers,
    "recovery": recovery,
    "steps": many_steps,
    "graph": large_graph,
}


def main(arguments: Sequence[str]) -> None:
    if arguments[0] in ("serve", "train"):
        run = serve if arguments[0] == "serve" else train
        run(json.loads(arguments[1]), int(arguments[2]))
    else:
        print(json.dumps(PARTS[arguments[1]](SIZES[arguments[2] if len(arguments) > 2 else "full"])))


if __name__ == "__main__":
    main(sys.argv[1:])
