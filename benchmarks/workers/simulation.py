"""Worker: what steps on parameter servers take, for `benchmarks.simulation`: real clusters of 1-8 workers.

Two parameter servers and eight workers are processes on this machine, which speak to each other as those of several
machines do. Any number of the workers run at once, null steps or steps with a wait in them. Each says how many steps it
ran, how long they took, and what processor time its threads took for them.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

from benchmarks.workers.cluster import free_port

SERVERS, WORKERS = 2, 8
#: of which the least disturbed counts
ROUNDS = 6
#: of a run
SECONDS = 0.8
#: bytes of the model whose bytes cost something
LARGE = 8_000_000
#: seconds of a wait that stands for computing
COMPUTE = 0.03
#: how many workers run, and on how many parameter servers, of each kind of steps
RUNS = {"scalar": (1, 2, 3, 4, 6, 8), "two": (1, 2, 4, 8), "compute": (1, 2, 4, 8), "large": (1,)}
#: what threads do
ROLES = ("program", "receive", "network")


def main() -> dict[str, float]:
    """Rates (steps/s) of any number of workers; of one also processor seconds of a step, by threads, and how much the
    times of its steps differ.
    """
    addresses = {
        job: [f"localhost:{free_port()}" for _ in range(n)] for job, n in (("ps", SERVERS), ("worker", WORKERS))
    }
    command = [sys.executable, __file__, json.dumps(addresses)]
    started = [_start(command, "ps", index) for index in range(SERVERS)]
    rates: dict[str, float] = {}
    try:
        started += [_start(command, "worker", index) for index in range(WORKERS)]
        for process in started:
            assert _line(process) == "ready"
        servers, workers = started[:SERVERS], started[SERVERS:]
        for kind in RUNS:
            for process in workers:
                _run([process], kind, 0.3)
        for _ in range(ROUNDS):
            for kind, counts in RUNS.items():
                for count in counts:
                    _measure(servers, workers[:count], kind, rates)
    finally:
        for process in started:
            process.kill()
            process.wait()
    return rates


def _measure(
    servers: list[subprocess.Popen[str]], workers: list[subprocess.Popen[str]], kind: str, rates: dict[str, float]
) -> None:
    """One run of so many workers; what is better than in the runs before is kept."""
    run = f"{kind}, {len(workers)} workers"
    before = _asked(servers)
    said = _run(workers, kind, SECONDS)
    served = [{role: row[role] - was[role] for role in ROLES} for row, was in zip(_asked(servers), before, strict=True)]
    rates[f"{run}: steps/s"] = max(
        rates.get(f"{run}: steps/s", 0.0), sum(row["steps"] / row["seconds"] for row in said)
    )
    if len(workers) > 1:
        return
    (row,) = said
    for role in ROLES:
        _keep(rates, f"{run}: worker {role}", row[role] / row["steps"])
        _keep(rates, f"{run}: server {role}", sum(one[role] for one in served) / row["steps"])
    _keep(rates, f"{run}: spread", row["spread"])


def _start(command: list[str], job: str, index: int) -> subprocess.Popen[str]:
    pipes = {"stdout": subprocess.PIPE, "stdin": subprocess.PIPE}
    # as if each had a machine of its own
    environment = os.environ | {"ANABRANCH_NETWORK": "plain"}
    return subprocess.Popen([*command, job, str(index)], text=True, env=environment, **pipes)


def _run(workers: list[subprocess.Popen[str]], kind: str, seconds: float) -> list[dict[str, float]]:
    return _asked(workers, f"{kind} {seconds}")


def _asked(processes: list[subprocess.Popen[str]], line: str = "") -> list[dict[str, float]]:
    """What processes say to a line of their input."""
    for process in processes:
        assert process.stdin is not None
        process.stdin.write(f"{line}\n")
        process.stdin.flush()
    return [json.loads(_line(process)) for process in processes]


def _line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def _keep(rates: dict[str, float], name: str, value: float) -> None:
    """Keeps what the round gave that was disturbed least."""
    rates[name] = min(rates.get(name, value), value)


# ---------------------------------------------------------------------- the tasks
def thread_seconds() -> dict[str, float]:
    """Processor seconds of this process's threads, by what they do."""
    receiving = {t.native_id for t in threading.enumerate() if t.name.startswith("anabranch endpoint")}
    seconds = dict.fromkeys(ROLES, 0.0)
    for thread in Path("/proc/self/task").iterdir():
        is_network = _read(thread / "comm").startswith("ZMQ")
        if is_network or int(thread.name) in receiving:
            seconds["network" if is_network else "receive"] += int(_read(thread / "schedstat").split()[0]) / 1e9
    # also of threads that have ended
    seconds["program"] = time.process_time() - seconds["receive"] - seconds["network"]
    return seconds


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except (FileNotFoundError, ProcessLookupError):  # the thread has ended, which is neither of the two
        return ""


def serve(tf: Any, addresses: dict[str, list[str]], job: str, index: int) -> None:
    """A task, which does what lines of its input say."""
    server = tf.train.Server(addresses, job, index)
    if job == "ps":
        print("ready", flush=True)
        for _ in sys.stdin:
            print(json.dumps(thread_seconds()), flush=True)
        return
    steps = steps_of(tf, len(addresses["ps"]), f"/job:worker/task:{index}")
    filters = tf.ConfigProto(device_filters=["/job:ps", f"/job:worker/task:{index}"])
    with tf.Session(server.target, config=filters) as session:
        session.run(tf.global_variables_initializer())
        calls = {kind: session.make_callable(step) for kind, step in steps.items()}
        for call in calls.values():
            call()
        print("ready", flush=True)
        for line in sys.stdin:
            kind, seconds = line.split()
            print(json.dumps(run(calls[kind], float(seconds))), flush=True)


def steps_of(tf: Any, servers: int, worker: str) -> dict[str, Any]:
    """Kinds of steps of a worker: each fetches what it updates."""
    variables = []
    for index in range(servers):
        with tf.device(f"/job:ps/task:{index}"):
            variables.append(
                tf.get_variable(f"scalar{index}", [1], initializer=tf.zeros_initializer(), use_resource=True)
            )
    with tf.device("/job:ps/task:0"):
        large = tf.get_variable("large", [LARGE // 4], initializer=tf.zeros_initializer(), use_resource=True)

    def null_step(variable: Any) -> Any:
        with tf.device(worker):
            return variable.assign_sub(variable.read_value() * 0.5).op

    with tf.device(worker):
        read = variables[0].read_value()
        waited = tf.py_func(lambda value: (time.sleep(COMPUTE), value)[1], [read], tf.float32)
    return {
        "scalar": null_step(variables[0]),
        "two": tf.group(*map(null_step, variables)),
        "compute": variables[0].assign_sub(tf.reshape(waited, [1])).op,
        "large": null_step(large),
    }


def run(call: Any, seconds: float) -> dict[str, float]:
    """Runs steps for a while."""
    ends: list[float] = []
    before, begin = thread_seconds(), time.perf_counter()
    until = begin + seconds
    while not ends or ends[-1] < until:
        call()
        ends.append(time.perf_counter())
    after = thread_seconds()
    taken = [end - start for start, end in zip([begin, *ends], ends, strict=False)]
    low, middle, _ = statistics.quantiles(taken, n=4) if len(taken) > 1 else (1.0, 1.0, 1.0)
    # of the lower half: the other one has what others on the machine did. A normal deviation is 1.48 times that
    row = {"steps": len(ends), "seconds": ends[-1] - begin, "spread": 1.48 * (middle - low) / middle}
    return row | {role: after[role] - before[role] for role in ROLES}


if __name__ == "__main__":
    if len(sys.argv) > 2:
        import anabranch as tf

        serve(tf, json.loads(sys.argv[1]), sys.argv[2], int(sys.argv[3]))
    else:
        print(json.dumps(main()))
