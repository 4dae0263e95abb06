"""Worker: what steps on parameter servers take, for `benchmarks.simulation`: real clusters of 1-8 workers.

A parameter server and eight workers are processes on this machine, which speak to each other as those of several
machines do. Any number of the workers run at once, null steps or
steps with a wait in them; each says how many steps it ran and what processor time they took.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from typing import Any

from benchmarks.workers.cluster import free_port, processor_seconds

WORKERS = 8
#: of which the least disturbed counts
ROUNDS = 6
#: bytes of the model whose bytes cost something
LARGE = 8_000_000
#: seconds of a wait that stands for computing
COMPUTE = 0.03


def main() -> dict[str, float]:
    """Rates (steps/s) of any number of workers, and processor seconds of a step."""
    addresses = {"ps": [f"localhost:{free_port()}"], "worker": [f"localhost:{free_port()}" for _ in range(WORKERS)]}
    command = [sys.executable, __file__, json.dumps(addresses)]
    started = [_start(command, "ps", 0)]
    rates: dict[str, float] = {}
    try:
        started += [_start(command, "worker", index) for index in range(WORKERS)]
        for process in started:
            assert _line(process) == "ready"
        server, workers = started[0], started[1:]
        for process in workers:
            _run([process], "scalar", 0.3)
        for _ in range(ROUNDS):
            for kind, counts in {"scalar": (1, 2, 4, 8), "compute": (1, 2, 4, 8), "large": (1,)}.items():
                for count in counts:
                    busy = processor_seconds(server.pid)
                    said = _run(workers[:count], kind, 1.0)
                    steps = sum(row["steps"] for row in said)
                    run = f"{kind}, {count} workers"
                    rate = sum(row["steps"] / row["seconds"] for row in said)
                    worker = sum(row["processor"] for row in said) / steps
                    served = (processor_seconds(server.pid) - busy) / steps
                    if rate > rates.get(f"{run}: steps/s", 0.0):
                        rates |= {f"{run}: steps/s": rate, f"{run}: processors": rate * (worker + served)}
                    _keep(rates, f"{run}: worker", worker)
                    _keep(rates, f"{run}: server", served)
    finally:
        for process in started:
            process.kill()
            process.wait()
    return rates


def _start(command: list[str], job: str, index: int) -> subprocess.Popen[str]:
    pipes = {"stdout": subprocess.PIPE, "stdin": subprocess.PIPE}
    # as if each had a machine of its own
    environment = os.environ | {"ANABRANCH_NETWORK": "plain"}
    return subprocess.Popen([*command, job, str(index)], text=True, env=environment, **pipes)


def _run(workers: list[subprocess.Popen[str]], kind: str, seconds: float) -> list[dict[str, float]]:
    for process in workers:
        assert process.stdin is not None
        process.stdin.write(f"{kind} {seconds}\n")
        process.stdin.flush()
    return [json.loads(_line(process)) for process in workers]


def _line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def _keep(rates: dict[str, float], name: str, value: float) -> None:
    """Keeps what the round gave that was disturbed least."""
    rates[name] = min(rates.get(name, value), value)


def serve(tf: Any, addresses: dict[str, list[str]], job: str, index: int) -> None:
    """A task; a worker runs what lines of its input say."""
    server = tf.train.Server(addresses, job, index)
    if job == "ps":
        print("ready", flush=True)
        server.join()
    steps = {}
    with tf.device("/job:ps/task:0"):
        scalar = tf.get_variable("scalar", [1], initializer=tf.zeros_initializer(), use_resource=True)
        large = tf.get_variable("large", [LARGE // 4], initializer=tf.zeros_initializer(), use_resource=True)
    for kind, variable in {"scalar": scalar, "large": large}.items():
        with tf.device(f"/job:worker/task:{index}"):
            steps[kind] = variable.assign_sub(variable.read_value() * 0.5).op
    with tf.device(f"/job:worker/task:{index}"):
        read = scalar.read_value()
        waited = tf.py_func(lambda value: (time.sleep(COMPUTE), value)[1], [read], tf.float32)
    steps["compute"] = scalar.assign_sub(tf.reshape(waited, [1])).op
    filters = tf.ConfigProto(device_filters=["/job:ps", f"/job:worker/task:{index}"])
    with tf.Session(server.target, config=filters) as session:
        session.run(tf.global_variables_initializer())
        calls = {kind: session.make_callable(step) for kind, step in steps.items()}
        for call in calls.values():
            call()
        print("ready", flush=True)
        for line in sys.stdin:
            kind, seconds = line.split()
            call, count = calls[kind], 0
            begin, processor = time.perf_counter(), time.process_time()
            while time.perf_counter() - begin < float(seconds):
                call()
                count += 1
            elapsed = time.perf_counter() - begin
            row = {"steps": count, "seconds": elapsed, "processor": time.process_time() - processor}
            print(json.dumps(row), flush=True)


if __name__ == "__main__":
    if len(sys.argv) > 2:
        import anabranch as tf

        serve(tf, json.loads(sys.argv[1]), sys.argv[2], int(sys.argv[3]))
    else:
        print(json.dumps(main()))
